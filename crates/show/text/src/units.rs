//! Numbers with units, as people write and read them: `90s`, `8M`, `12.3kB`.

const SECOND_NS: u64 = 1_000_000_000;
/// Largest size of a flow cache.
const MAX_FLOWS: u64 = 1 << 31;

/// Why a text is not a valid number or duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The suffix of a duration is unknown.
    #[error("'{0}' is not a unit of time; use ns, us, ms, s, m, h or d, as in 90s")]
    TimeUnit(String),
    /// The suffix of a number is unknown.
    #[error("'{0}' is not a suffix; use k, M or G (decimal)")]
    Suffix(String),
    /// The unit of a bit rate is missing or unknown.
    #[error(
        "'{0}' has no unit of bit rates; write for example 100Gbit/s, 100Gbps or 100G (k, M, G or T; 1 bit is 1bit/s)"
    )]
    BitRate(String),
    /// A bit rate that no link has.
    #[error("a link has from 1bit/s to 1000Tbit/s; is the unit right?")]
    BitRateRange,
    /// A duration of 0.
    #[error("must be at least 1ns")]
    NoDuration,
    /// Not a decimal number, or too large.
    #[error("{0}")]
    Invalid(&'static str),
    /// The number is outside of this range.
    #[error("must be from {min} to {max}")]
    Range {
        /// Smallest valid number.
        min: u64,
        /// Largest valid number.
        max: u64,
    },
}

/// Parses a duration in ns, at least 1: a number with `ns`, `us`, `ms`, `s`, `m`, `h` or `d`; without
/// a unit, seconds.
pub fn parse_duration(text: &str) -> Result<u64, ParseError> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit_ns = match &text[digits.len()..] {
        "" => SECOND_NS,
        unit => time_unit_ns(unit).ok_or_else(|| ParseError::TimeUnit(unit.into()))?,
    };
    match scale(digits, unit_ns) {
        Some(0) => Err(ParseError::NoDuration),
        Some(ns) => u64::try_from(ns).map_err(|_| ParseError::Invalid("too long; at most 5124095h (584 years)")),
        None => Err(ParseError::Invalid("not a duration; write for example 500ms, 120s or 5m")),
    }
}

/// A unit of time in ns: `s`, `sec`, `minutes`.
pub fn time_unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" => SECOND_NS / 1_000_000,
        "ms" => SECOND_NS / 1000,
        "s" | "sec" | "second" | "seconds" => SECOND_NS,
        "m" | "min" | "minute" | "minutes" => 60 * SECOND_NS,
        "h" | "hour" | "hours" => 3600 * SECOND_NS,
        "d" | "day" | "days" => 86_400 * SECOND_NS,
        _ => return None,
    })
}

/// Parses a number of flows, at least 1, with the suffixes of [`parse_number`].
pub fn parse_flows(text: &str) -> Result<u32, ParseError> {
    parse_within(text, 1, MAX_FLOWS).map(|flows| flows as u32)
}

/// Parses a number, at least 1, with the suffixes of [`parse_number`].
pub fn parse_count(text: &str) -> Result<u64, ParseError> {
    parse_within(text, 1, u64::MAX)
}

/// Fastest bit rate, bit/s.
const MAX_BIT_RATE: u64 = 1_000_000_000_000_000;

/// Parses a bit rate in bit/s, from 1 bit/s to 1000 Tbit/s, with its unit: `100G`, `100Gbit/s`, `10Mbit`,
/// `2.5 Gbps`.
pub fn parse_bit_rate(text: &str) -> Result<u64, ParseError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let unit = &text[digits.len()..];
    let long = ["bit/s", "bps", "b/s", "bit"].iter().find_map(|end| unit.strip_suffix(end));
    let (prefix, is_long) = long.map_or((unit, false), |prefix| (prefix, true));
    let factor = match prefix {
        "" if is_long => 1,
        "k" | "K" => 1000,
        "M" | "m" => 1_000_000,
        "G" | "g" => 1_000_000_000,
        "T" | "t" => 1_000_000_000_000,
        _ => return Err(ParseError::BitRate(text.into())),
    };
    let rate = scale(digits.trim_end(), factor).ok_or(ParseError::BitRate(text.into()))?;
    let in_range = |rate: &u64| (1..=MAX_BIT_RATE).contains(rate);
    u64::try_from(rate).ok().filter(in_range).ok_or(ParseError::BitRateRange)
}

/// Parses a number of list elements with the suffixes of [`parse_number`].
pub fn parse_length(text: &str) -> Result<usize, ParseError> {
    parse_within(text, 0, usize::MAX as u64).map(|length| length as usize)
}

/// Parses a number with an optional decimal suffix: `k`, `M` or `G`.
pub fn parse_number(text: &str) -> Result<u64, ParseError> {
    parse_within(text, 0, u64::MAX)
}

/// Parses a size in octets, with its unit: `k`, `M`, `G` and `T` are decimal (`G` is 10^9), `Ki`, `Mi`, `Gi` and `Ti` binary,
/// each also with `B`. `None` without a unit.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let prefix = unit.strip_suffix('B').unwrap_or(unit);
    let (letter, factor) = prefix.strip_suffix('i').map_or((prefix, 1000_u64), |letter| (letter, 1024));
    let power = match letter {
        "k" if factor == 1000 => 1,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor.pow(power))
}

fn parse_within(text: &str, min: u64, max: u64) -> Result<u64, ParseError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1000,
        "M" | "m" => 1_000_000,
        "G" | "g" => 1_000_000_000,
        other if !digits.is_empty() => return Err(ParseError::Suffix(other.into())),
        _ => 1,
    };
    let number = scale(digits, factor).ok_or(ParseError::Invalid("not a number; write for example 65536 or 4M"))?;
    let number = u64::try_from(number).ok().filter(|number| (min..=max).contains(number));
    number.ok_or(ParseError::Range { min, max })
}

/// A decimal number times a factor, without digits below 1; `None` if the text is not a number.
/// Values of 2^64 and more are not exact.
fn scale(number: &str, factor: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let fraction_of = 10_u128.pow(fraction.len() as u32);
    let fraction = fraction.parse::<u128>().ok()? * u128::from(factor) / fraction_of;
    // Only digits: parsing fails if they are too many.
    let whole = whole.parse::<u128>().unwrap_or(u128::MAX);
    Some(whole.saturating_mul(factor.into()).saturating_add(fraction))
}

/// A count in at most five characters: exact below 10 000, else three digits and a decimal prefix (`12.3k`).
pub fn short(n: u64) -> String {
    let (digits, prefix) = prefixed(n);
    digits + prefix
}

/// An exact number with its noun: `1 packet`, `12345 packets`.
pub fn count(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A quantity with its unit: `12.3 MB`.
pub fn quantity(n: u64, unit: &str) -> String {
    let (digits, prefix) = prefixed(n);
    format!("{digits} {prefix}{unit}")
}

/// A rate with its unit: `12.3 Mbit/s`, `0.25 packets/s`.
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

/// A duration in at most seven characters: `0s`, `12.3ms`, `1.50s`, `5m03s`, `2h03m`, `3d04h`.
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
            ("1ns", 1),
            ("1.5us", 1500),
            ("2µs", 2000),
            ("1d", 86_400 * SECOND_NS),
        ] {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
        for text in ["", "s", "0", "0ms", "-1s", "1w", "0.5ns", "1 s", "1e3", "1.s", ".5s", "99999999999h", "1s2", "٣s"]
        {
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
        let range = Err(ParseError::Range { min: 0, max: u64::MAX });
        assert_eq!(parse_number("18446744073709551615"), Ok(u64::MAX));
        assert_eq!([parse_number("18446744073709551616"), parse_number(&"9".repeat(50))], [range.clone(), range]);
    }

    #[test]
    fn bit_rates_need_a_unit() {
        for (text, rate) in [
            ("100G", 100_000_000_000),
            ("100Gbps", 100_000_000_000),
            ("2.5 Gbit/s", 2_500_000_000),
            ("64kb/s", 64_000),
            ("1T", 1_000_000_000_000),
            ("9bit/s", 9),
            ("10Mbit", 10_000_000),
            ("1000T", 1_000_000_000_000_000),
        ] {
            assert_eq!(parse_bit_rate(text), Ok(rate), "{text}");
        }
        for text in ["100", "", "G", "100GB/s", "100Gbyte", "1.G", "-1G"] {
            assert_eq!(parse_bit_rate(text), Err(ParseError::BitRate(text.into())), "{text}");
        }
        for text in ["0G", "0.1bit", "1001T", "99999999999999999999T"] {
            assert_eq!(parse_bit_rate(text), Err(ParseError::BitRateRange), "{text}");
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
    fn sizes_have_decimal_and_binary_units() {
        for (text, size) in [
            ("20G", Some(20_000_000_000)),
            ("20GB", Some(20_000_000_000)),
            ("20Gi", Some(20 << 30)),
            ("20GiB", Some(20 << 30)),
            ("500M", Some(500_000_000)),
            ("64k", Some(64_000)),
            ("64KiB", Some(65_536)),
            ("2T", Some(2_000_000_000_000)),
            ("0M", Some(0)),
            ("20", None),
            ("20B", None),
            ("20i", None),
            ("20Gb", None),
            ("20g", None),
            ("20kiB", None),
            ("1.5G", None),
            ("99999999999T", None),
        ] {
            assert_eq!(parse_size(text), size, "{text}");
        }
    }
}
