//! Percentages and percentiles.

/// Formats a share with three digits: `12.3 %`. Only 0 is `0 %`, and only the whole is `100 %`.
pub fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    match share {
        0.0 => "0 %".into(),
        s if s < 0.01 => "<0.01 %".into(),
        s if s < 9.995 => format!("{s:.2} %"),
        s if s < 99.95 || part == whole => format!("{s:.1} %"),
        _ => ">99.9 %".into(),
    }
}

/// The value of an ascending list that this many percent of the list do not exceed (nearest rank).
pub fn percentile(ascending: &[u64], percent: usize) -> Option<u64> {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_three_digits_and_only_0_is_0() {
        for (part, whole, text) in [
            (0, 0, "0 %"),
            (1, 1_000_000, "<0.01 %"),
            (1, 100, "1.00 %"),
            (1, 3, "33.3 %"),
            (99_999, 100_000, ">99.9 %"),
            (7, 7, "100.0 %"),
        ] {
            assert_eq!(percent(part, whole), text);
        }
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(percentile(&[5], 95), Some(5));
        assert_eq!(percentile(&[1, 2, 3, 4], 50), Some(2));
        assert_eq!(percentile(&[1, 2, 3, 4], 95), Some(4));
    }
}
