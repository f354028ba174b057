//! Numbers as people write and read them: `90s`, `8M`, `12.3kB`, times of day.

const SECOND_NS: u64 = 1_000_000_000;

/// A time span: a number with `ms`, `s`, `m` or `h`; a plain number is seconds. In ns, above 0.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ns = match &text[digits.len()..] {
        "ms" => SECOND_NS / 1000,
        "" | "s" => SECOND_NS,
        "m" => 60 * SECOND_NS,
        "h" => 3600 * SECOND_NS,
        other => return Err(format!("'{other}' is no unit of time; use ms, s, m or h, as in 90s")),
    };
    match scale(digits, unit_ns) {
        Some(0) => Err("must be longer than 0".into()),
        Some(ns) => Ok(ns),
        None => Err("not a time span; write for example 500ms, 120s or 5m".into()),
    }
}

/// Most flows that a table has room for.
const MOST_FLOWS: u32 = 1 << 31;

/// A number of flows with `k`, `M` or `G` (decimal), 1 at least.
pub fn parse_flows(text: &str) -> Result<u32, String> {
    match parse_count(text).map(u32::try_from) {
        Ok(Ok(flows @ 1..=MOST_FLOWS)) => Ok(flows),
        Err(why) if !why.starts_with("must") => Err(why),
        _ => Err(format!("must be from 1 to {MOST_FLOWS}")),
    }
}

/// A number with `k`, `M` or `G` (decimal), 1 at least.
pub fn parse_count(text: &str) -> Result<u64, String> {
    match parse_number(text)? {
        0 => Err("must be 1 at least".into()),
        n => Ok(n),
    }
}

/// A number with `k`, `M` or `G` (decimal), or 0.
pub fn parse_number(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1000,
        "M" | "m" => 1_000_000,
        "G" | "g" => 1_000_000_000,
        other => return Err(format!("'{other}' is no suffix; use k, M or G (decimal)")),
    };
    scale(digits, factor).ok_or_else(|| "not a number; write for example 65536 or 4M".into())
}

/// The same of as many things as a list can have.
pub fn parse_length(text: &str) -> Result<usize, String> {
    let count = parse_number(text)?;
    usize::try_from(count).map_err(|_| format!("must be up to {}", usize::MAX))
}

/// A decimal number times a factor, exact; digits finer than 1 are cut off.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let fraction_of = 10_u128.pow(fraction.len() as u32);
    let fraction = fraction.parse::<u128>().ok()? * u128::from(factor) / fraction_of;
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(u64::try_from(fraction).ok()?)
}

/// A count in at most five places: exact below 10 000, else three digits and a decimal prefix (`12.3k`).
pub fn short(n: u64) -> String {
    let (digits, prefix) = prefixed(n);
    digits + prefix
}

/// A number of things, exact: `1 packet`, `12345 packets`.
pub fn count(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A quantity for a sentence: `12.3 MB`.
pub fn quantity(n: u64, unit: &str) -> String {
    let (digits, prefix) = prefixed(n);
    format!("{digits} {prefix}{unit}")
}

/// A rate for a sentence: `12.3 Mbit/s`, `0.25 packets/s`.
pub fn rate(per_second: f64, unit: &str) -> String {
    if per_second < 99.95 { format!("{} {unit}", three_digits(per_second)) } else { quantity(per_second as u64, unit) }
}

fn prefixed(n: u64) -> (String, &'static str) {
    if n < 10_000 {
        return (n.to_string(), "");
    }
    let mut scaled = n as f64;
    for prefix in ["k", "M", "G", "T", "P"] {
        scaled /= 1000.0;
        if scaled < 999.5 {
            return (three_digits(scaled), prefix);
        }
    }
    (three_digits(scaled / 1000.0), "E")
}

fn three_digits(value: f64) -> String {
    let places = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

/// A measured value with three digits or the whole digits that it has: `1234`, `12.3`, `1.23`, `12`, `1.2e-3`.
pub fn number(value: f64) -> String {
    let places = match value.abs() {
        v if v == 0.0 || v >= 1000.0 || (v >= 10.0 && v.fract() == 0.0) => 0,
        v if v >= 10.0 => 1,
        v if v.fract() == 0.0 => 0,
        v if v >= 0.1 => 2,
        _ => return format!("{value:.1e}"),
    };
    format!("{value:.places$}")
}

/// A time span in at most seven places: `0s`, `12.3ms`, `1.50s`, `5m03s`, `2h03m`, `3d04h`.
pub fn span(ns: u64) -> String {
    let seconds = ns / SECOND_NS;
    match ns {
        0 => "0s".into(),
        1..1000 => format!("{ns}ns"),
        1000..999_500 => three_digits(ns as f64 / 1e3) + "µs",
        999_500..999_500_000 => three_digits(ns as f64 / 1e6) + "ms",
        _ if seconds < 60 => three_digits(ns as f64 / 1e9) + "s",
        _ if seconds < 3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Date and time of day in UTC, to the millisecond: (`2026-11-20`, `12:00:00.123`).
pub fn utc(ns: u64) -> (String, String) {
    let seconds = ns / SECOND_NS;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let milliseconds = ns % SECOND_NS / 1_000_000;
    (format!("{year:04}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}.{milliseconds:03}"))
}

/// First and last time, and what lies between: `2026-11-20 12:00:00.000 to 12:00:00.364 UTC (364ms)`.
pub fn period(first_ns: u64, last_ns: u64) -> String {
    let ((day, time), (last_day, last_time)) = (utc(first_ns), utc(last_ns));
    let until = if day == last_day { last_time } else { format!("{last_day} {last_time}") };
    format!("{day} {time} to {until} UTC ({})", span(last_ns.saturating_sub(first_ns)))
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar. Years are counted from March,
/// so that the leap day is the last day of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01; 400 years have 146 097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days, again and again.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, month + 3);
    if month > 12 { (year + 1, month - 12, day) } else { (year, month, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_plain_numbers_are_seconds() {
        for (text, ns) in [
            ("120", 120 * SECOND_NS),
            ("120s", 120 * SECOND_NS),
            ("500ms", SECOND_NS / 2),
            ("1.5m", 90 * SECOND_NS),
            ("2h", 7200 * SECOND_NS),
            ("0.000000001", 1),
        ] {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
        for text in ["", "s", "0", "0ms", "-1s", "1d", "1 s", "1e3", "1.s", ".5s", "99999999999h", "1s2", "٣s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flow_counts_take_a_suffix_and_stay_within_32_bits() {
        assert_eq!(parse_flows("65536"), Ok(65_536));
        assert_eq!(parse_flows("4M"), Ok(4_000_000));
        assert_eq!(parse_flows("1.5k"), Ok(1500));
        for text in ["0", "", "k", "5G", "4x", "-1", "4294967296"] {
            assert!(parse_flows(text).is_err(), "{text}");
        }
    }

    #[test]
    fn short_counts_never_need_more_than_five_places() {
        for (n, text) in [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10.0k"),
            (99_949, "99.9k"),
            (99_950, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(short(n), text);
        }
        assert_eq!(quantity(45_300_000, "B"), "45.3 MB");
    }

    #[test]
    fn spans_change_unit_where_three_digits_end() {
        for (ns, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_500, "1.50µs"),
            (999_499, "999µs"),
            (999_500, "1.00ms"),
            (999_500_000, "1.00s"),
            (59_990_000_000, "60.0s"),
            (60_000_000_000, "1m00s"),
            (3_723_000_000_000, "1h02m"),
            (90_000_000_000_000, "1d01h"),
        ] {
            assert_eq!(span(ns), text);
        }
        assert!(!span(u64::MAX).is_empty());
    }

    #[test]
    fn times_follow_the_gregorian_calendar() {
        for (seconds, date, time) in [
            (0, "1970-01-01", "00:00:00.000"),
            (951_782_399, "2000-02-28", "23:59:59.000"),
            (951_782_400, "2000-02-29", "00:00:00.000"),
            (951_868_800, "2000-03-01", "00:00:00.000"),
            (1_709_164_800, "2024-02-29", "00:00:00.000"),
            (1_767_225_599, "2025-12-31", "23:59:59.000"),
            (4_107_542_400, "2100-03-01", "00:00:00.000"),
        ] {
            assert_eq!(utc(seconds * SECOND_NS), (date.into(), time.into()));
        }
        assert_eq!(utc(u64::MAX), ("2554-07-21".into(), "23:34:33.709".into()));
    }
}
