//! Converts the octets of an information element into a value of the catalogue (RFC 7011 section 6).

use std::net::{Ipv4Addr, Ipv6Addr};
use weir_fields::StoredValue;

/// How the octets of a value are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// An unsigned integer, also in fewer octets (section 6.2).
    Number,
    /// float64, also as float32.
    Float,
    /// The number of a word, or the bits of words and flags. 0 stands for none.
    Code,
    /// The same, and 0 is a value.
    CodeOrZero,
    /// An IPv4 or IPv6 address. In a template with both, the one that is 0 stands for none.
    Address,
    /// The same: 0 is a value.
    AddressOrZero,
    /// A MAC address.
    Mac,
    /// UTF-8, without the octets 0 behind it. An empty text stands for none.
    Text,
    /// dateTimeMilliseconds.
    Milliseconds,
    /// A duration in ms, as ns.
    MillisecondsToNs,
    /// An MPLS label without traffic class and bottom-of-stack bit.
    Label,
    /// The number of a VLAN; 0 stands for none.
    Vlan,
    /// The type of ICMP in type * 256 + code.
    IcmpType,
    /// The code of ICMP in the same number.
    IcmpCode,
    /// One packet in this number; 0 stands for all.
    Sampling,
    /// A number that is above 0; 0 stands for none.
    NotZero,
}

/// A converted value.
#[derive(Debug, PartialEq)]
pub enum Converted<'a> {
    Value(StoredValue<'a>),
    /// The record has no such value.
    None,
    /// These octets are no such value.
    Invalid,
}

impl Conversion {
    /// Converts octets.
    pub fn convert(self, octets: &[u8]) -> Converted<'_> {
        let value = match self {
            Self::Float => float(octets).map(StoredValue::Float),
            Self::Address | Self::AddressOrZero => address(octets),
            Self::Mac => octets.try_into().ok().map(StoredValue::Mac),
            Self::Text => {
                let end = octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
                std::str::from_utf8(&octets[..end]).ok().map(StoredValue::Text)
            }
            _ => number(octets).and_then(|number| self.of_number(number)),
        };
        let is_none = match (self, value) {
            (Self::Text, Some(StoredValue::Text(text))) => text.is_empty(),
            (Self::Address, _) => octets.iter().all(|octet| *octet == 0),
            (Self::Code, Some(StoredValue::Code(0))) => true,
            (Self::Vlan | Self::NotZero, Some(StoredValue::Unsigned(0))) => true,
            _ => false,
        };
        if is_none { Converted::None } else { value.map_or(Converted::Invalid, Converted::Value) }
    }

    fn of_number(self, number: u64) -> Option<StoredValue<'static>> {
        Some(match self {
            Self::Code | Self::CodeOrZero => StoredValue::Code(number),
            Self::Milliseconds | Self::MillisecondsToNs => StoredValue::Unsigned(number.checked_mul(1_000_000)?),
            Self::Label => StoredValue::Unsigned(number >> 4),
            Self::IcmpType => StoredValue::Unsigned(number >> 8),
            Self::IcmpCode => StoredValue::Unsigned(number & 0xff),
            Self::Sampling => StoredValue::Unsigned(number.max(1)),
            _ => StoredValue::Unsigned(number),
        })
    }
}

/// An unsigned integer of any length whose value fits.
pub fn number(octets: &[u8]) -> Option<u64> {
    let (high, low) = octets.split_at(octets.len().saturating_sub(8));
    let fits = !low.is_empty() && high.iter().all(|octet| *octet == 0);
    fits.then(|| low.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
}

fn float(octets: &[u8]) -> Option<f64> {
    match octets.len() {
        4 => Some(f32::from_be_bytes(octets.try_into().ok()?).into()),
        _ => Some(f64::from_be_bytes(octets.try_into().ok()?)),
    }
}

fn address(octets: &[u8]) -> Option<StoredValue<'static>> {
    Some(StoredValue::Ip(match octets.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into(),
    }))
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Milliseconds since the exporter started.
    SysUptime,
    /// Microseconds before the export time.
    BeforeExport,
    /// dateTimeSeconds.
    Seconds,
    /// dateTimeMilliseconds.
    Milliseconds,
    /// dateTimeMicroseconds: the NTP format.
    Microseconds,
    /// dateTimeNanoseconds: the NTP format.
    Nanoseconds,
}

impl TimeUnit {
    /// The time, ns since 1970 UTC. `None` if it does not fit, or the start of the exporter is not known.
    pub fn time_ns(self, octets: &[u8], export_seconds: u32, boot_ms: Option<u64>) -> Option<u64> {
        let number = number(octets)?;
        match self {
            Self::SysUptime => boot_ms?.checked_add(number)?.checked_mul(1_000_000),
            Self::BeforeExport => (u64::from(export_seconds) * 1_000_000_000).checked_sub(number.checked_mul(1000)?),
            Self::Seconds => number.checked_mul(1_000_000_000),
            Self::Milliseconds => number.checked_mul(1_000_000),
            Self::Microseconds | Self::Nanoseconds if octets.len() == 8 => Some(self.of_ntp(number)),
            Self::Microseconds | Self::Nanoseconds => None,
        }
    }

    /// Seconds since 1900 modulo 2^32, those from 1970 to 2106, and fractions of 2^-32 s (section 6.1.9). A fraction of
    /// microseconds is rounded: its low 11 bits mean nothing.
    fn of_ntp(self, number: u64) -> u64 {
        const SECONDS_1900_TO_1970: u32 = 2_208_988_800;
        let seconds = ((number >> 32) as u32).wrapping_sub(SECONDS_1900_TO_1970);
        let fraction = number & u64::from(u32::MAX);
        let ns = match self {
            Self::Microseconds => ((fraction * 1_000_000 + (1 << 31)) >> 32) * 1000,
            _ => (fraction * 1_000_000_000) >> 32,
        };
        u64::from(seconds) * 1_000_000_000 + ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_any_length_that_holds_them() {
        assert_eq!(number(&[1, 0]), Some(256));
        assert_eq!(number(&[0, 0, 0, 0, 0, 0, 0, 0, 7]), Some(7));
        assert_eq!(number(&[1, 0, 0, 0, 0, 0, 0, 0, 7]), None);
        assert_eq!(number(&[]), None);
        assert_eq!(Conversion::Float.convert(&1.5_f32.to_be_bytes()), Converted::Value(StoredValue::Float(1.5)));
        assert_eq!(Conversion::Mac.convert(&[1, 2]), Converted::Invalid);
        assert_eq!(Conversion::Text.convert(b"ab\0\0"), Converted::Value(StoredValue::Text("ab")));
        assert_eq!(Conversion::Text.convert(&[0xff]), Converted::Invalid);
    }

    #[test]
    fn times_of_all_units_are_nanoseconds_since_1970() {
        let ntp =
            |seconds: u64, fraction: u64| (((seconds + 2_208_988_800) & 0xffff_ffff) << 32 | fraction).to_be_bytes();
        let time = |unit: TimeUnit, octets: &[u8]| unit.time_ns(octets, 1000, Some(5000));
        assert_eq!(time(TimeUnit::Nanoseconds, &ntp(7, 1 << 31)), Some(7_500_000_000));
        // 2040, in the second era.
        assert_eq!(time(TimeUnit::Nanoseconds, &ntp(2_208_988_800, 0)), Some(2_208_988_800_000_000_000));
        let micros = (3_u64 << 32) / 1_000_000;
        assert_eq!(time(TimeUnit::Microseconds, &ntp(7, micros)), Some(7_000_003_000));
        assert_eq!(time(TimeUnit::Seconds, &7_u32.to_be_bytes()), Some(7_000_000_000));
        assert_eq!(time(TimeUnit::BeforeExport, &2_u32.to_be_bytes()), Some(999_999_998_000));
        assert_eq!(time(TimeUnit::SysUptime, &2_u32.to_be_bytes()), Some(5_002_000_000));
        assert_eq!(TimeUnit::SysUptime.time_ns(&[2], 0, None), None);
        assert_eq!(time(TimeUnit::BeforeExport, &[255; 8]), None);
        assert_eq!(time(TimeUnit::Milliseconds, &[255; 8]), None);
    }
}
