//! The parameter `every`: lengths of intervals, and how many an answer may have.

use crate::parameters::InvalidQuery;
use std::ops::RangeInclusive;
use weir_text::units::{ParseError, parse_duration};
use weir_text::zone::Zone;

/// Shortest interval, ns.
const MIN_LENGTH_NS: u64 = 1_000_000;
/// Intervals of an answer, and its rows if it has groups in each: at most about 10 MB of JSON.
const MAX_INTERVALS: u64 = 2000;
const MAX_ROWS: u64 = 20_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Lengths that are proposed: name and seconds.
const LENGTHS: [(&str, u64); 22] = [
    ("1s", 1),
    ("2s", 2),
    ("5s", 5),
    ("10s", 10),
    ("15s", 15),
    ("30s", 30),
    ("1m", 60),
    ("2m", 120),
    ("5m", 300),
    ("10m", 600),
    ("15m", 900),
    ("30m", 1800),
    ("1h", 3600),
    ("2h", 7200),
    ("3h", 10_800),
    ("6h", 21_600),
    ("12h", 43_200),
    ("1d", 86_400),
    ("7d", 604_800),
    ("30d", 2_592_000),
    ("365d", 31_536_000),
    ("3650d", 315_360_000),
];

/// The length of an interval, ns.
pub fn length(text: &str) -> Result<u64, InvalidQuery> {
    match parse_duration(text) {
        Ok(0..MIN_LENGTH_NS) | Err(ParseError::NoDuration) => Err(InvalidQuery::ShortInterval),
        parsed => parsed.map_err(InvalidQuery::Every),
    }
}

/// Checks how many intervals of this length, and rows with this number of groups (0 without), there are from the start
/// of the first flow to that of the last one. `stored` are these, within the times of the question.
///
/// # Errors
/// There are too many: what fits.
pub fn check(
    asked: &RangeInclusive<u64>,
    every_ns: u64,
    groups: usize,
    stored: impl FnOnce() -> Option<RangeInclusive<u64>>,
) -> Result<(), String> {
    let most = if groups == 0 { MAX_INTERVALS } else { MAX_INTERVALS.min((MAX_ROWS / groups as u64).max(1)) };
    if count(asked, every_ns) <= most {
        return Ok(());
    }
    let Some(stored) = stored() else { return Ok(()) };
    let times = *asked.start().max(stored.start())..=*asked.end().min(stored.end());
    let intervals = count(&times, every_ns);
    if intervals <= most {
        return Ok(());
    }
    let fits = LENGTHS.iter().find(|(_, seconds)| count(&times, seconds * SECOND_NS) <= most);
    let length = fits.map_or("a longer one", |(name, _)| name);
    let limit = match groups {
        0 => format!("more than {most}"),
        _ => format!("more than {most} for {} groups (of {MAX_ROWS} rows)", groups - 1),
    };
    let fewer = if groups > 2 { ", or fewer groups (top)" } else { "" };
    Err(format!("every: these are {intervals} intervals, {limit}; use every={length}, a shorter time{fewer}"))
}

/// The number of intervals in which these times are.
fn count(times: &RangeInclusive<u64>, length_ns: u64) -> u64 {
    if times.is_empty() {
        return 0;
    }
    let first_ns = Zone::current().interval(*times.start(), length_ns).start;
    Zone::current().intervals(first_ns..times.end().saturating_add(1), length_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_intervals_are_refused_with_a_length_that_fits() {
        let hour = 3600 * SECOND_NS;
        let day = 1_800_000_000 * SECOND_NS..=1_800_086_399 * SECOND_NS;
        assert_eq!(check(&day, 60 * SECOND_NS, 0, || panic!("the times of the question decide")), Ok(()));
        let refused = |every_ns, groups| check(&day, every_ns, groups, || Some(0..=u64::MAX)).unwrap_err();
        let error = refused(SECOND_NS, 0);
        assert!(error.contains("86400 intervals, more than 2000; use every=1m, "), "{error}");
        let error = refused(60 * SECOND_NS, 101);
        assert!(error.contains("more than 198 for 100 groups") && error.contains("use every=10m, "), "{error}");
        assert_eq!(check(&day, 600 * SECOND_NS, 101, || Some(0..=u64::MAX)), Ok(()));
        // Few flows in a long time.
        let all = 0..=u64::MAX;
        assert_eq!(check(&all, SECOND_NS, 0, || Some(5 * hour..=5 * hour + 9 * SECOND_NS)), Ok(()));
        assert_eq!(check(&all, SECOND_NS, 0, || None), Ok(()));
        let error = check(&all, 1_000_000, 1, || Some(0..=u64::MAX)).unwrap_err();
        assert!(error.contains("use every=365d, "), "{error}");
    }

    #[test]
    fn lengths_are_those_of_weir_read() {
        for (text, ns) in [("10s", 10 * SECOND_NS), ("1m", 60 * SECOND_NS), ("1ms", MIN_LENGTH_NS)] {
            assert_eq!(length(text).unwrap(), ns);
        }
        for text in ["0s", "1us", "0", "", "soon", "-1s"] {
            assert!(length(text).is_err(), "{text}");
        }
    }
}
