//! Information elements: how a value goes into a template record of IPFIX (RFC 7011) or NetFlow v9 (RFC 3954).

use crate::value::Value;
use std::net::IpAddr;
use weir_packet::Network;

/// Private enterprise number of the elements that IANA has no number for. 32473 is the one for examples
/// and documentation (RFC 5612): see docs/decisions/0010.
pub(crate) const OWN_ENTERPRISE: u32 = 32473;
/// Private enterprise number that turns an IANA element into that of the reverse direction (RFC 5103 section 6.1).
pub(crate) const REVERSE_ENTERPRISE: u32 = 29305;
/// Private enterprise number of ntop, whose elements many collectors know.
pub(crate) const NTOP_ENTERPRISE: u32 = 35632;
/// Added to the number of an own element, it is that of the reverse direction (RFC 5103 section 6.2).
pub(crate) const OWN_REVERSE: u16 = 0x4000;

/// Abstract data types (RFC 7011 section 6.1, RFC 5610 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DataType {
    OctetArray = 0,
    Unsigned8 = 1,
    Unsigned16 = 2,
    Unsigned32 = 3,
    Unsigned64 = 4,
    Float64 = 10,
    MacAddress = 12,
    DateTimeMilliseconds = 15,
    DateTimeNanoseconds = 17,
    Ipv4Address = 18,
    Ipv6Address = 19,
}

impl DataType {
    /// The name in the registry.
    #[cfg(test)]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OctetArray => "octetArray",
            Self::Unsigned8 => "unsigned8",
            Self::Unsigned16 => "unsigned16",
            Self::Unsigned32 => "unsigned32",
            Self::Unsigned64 => "unsigned64",
            Self::Float64 => "float64",
            Self::MacAddress => "macAddress",
            Self::DateTimeMilliseconds => "dateTimeMilliseconds",
            Self::DateTimeNanoseconds => "dateTimeNanoseconds",
            Self::Ipv4Address => "ipv4Address",
            Self::Ipv6Address => "ipv6Address",
        }
    }

    /// Octets in full length. The only octet array here is a label stack entry without its TTL.
    const fn octets(self) -> u16 {
        match self {
            Self::Unsigned8 => 1,
            Self::Unsigned16 => 2,
            Self::OctetArray => 3,
            Self::Unsigned32 | Self::Ipv4Address => 4,
            Self::MacAddress => 6,
            Self::Unsigned64 | Self::Float64 | Self::DateTimeMilliseconds | Self::DateTimeNanoseconds => 8,
            Self::Ipv6Address => 16,
        }
    }
}

/// Semantics of own elements (RFC 5610 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Semantics {
    Default = 0,
    Quantity = 1,
    Identifier = 4,
    Flags = 5,
}

/// Units of own elements (RFC 5610 section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Units {
    None = 0,
    Octets = 2,
    Packets = 3,
    Nanoseconds = 8,
}

/// Which formats have the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Formats {
    Ipfix,
    Netflow9,
    Both,
}

/// One element of a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    /// Number, in IANA's registry or among our own.
    pub number: u16,
    pub name: &'static str,
    pub data_type: DataType,
    /// Octets in a record: those of the type, or less (reduced-size encoding, RFC 7011 section 6.2).
    pub octets: u16,
    /// Semantics and units if it is our own.
    pub own: Option<(Semantics, Units)>,
    /// If it is ntop's, its number for the reverse direction. It takes the largest value for one that it has no room for.
    pub ntop_reverse: Option<u16>,
    /// Not for directions of TCP without trouble.
    pub of_trouble: bool,
    pub formats: Formats,
    /// Only for flows of this network.
    network: Option<Network>,
    /// Only for numbers from here on.
    least: u64,
}

impl Element {
    /// An element of IANA's registry that only IPFIX has.
    pub const fn iana(number: u16, name: &'static str, data_type: DataType) -> Self {
        let octets = data_type.octets();
        Self {
            number,
            name,
            data_type,
            octets,
            own: None,
            ntop_reverse: None,
            of_trouble: false,
            formats: Formats::Ipfix,
            network: None,
            least: 0,
        }
    }

    /// An element that ntop has numbers for, one per direction.
    pub const fn ntop(number: u16, reverse: u16, name: &'static str, data_type: DataType) -> Self {
        Self { ntop_reverse: Some(reverse), ..Self::iana(number, name, data_type) }
    }

    /// Not for directions of TCP without trouble: there it is 0, or follows from other fields.
    pub const fn of_trouble(self) -> Self {
        Self { of_trouble: true, ..self }
    }

    /// An element that IANA has no number for.
    pub const fn own(number: u16, name: &'static str, data_type: DataType, semantics: Semantics, units: Units) -> Self {
        Self { own: Some((semantics, units)), ..Self::iana(number, name, data_type) }
    }

    /// NetFlow v9 has it too, under the same number.
    pub const fn also_netflow9(self) -> Self {
        Self { formats: Formats::Both, ..self }
    }

    /// Only NetFlow v9 has it.
    pub const fn only_netflow9(self) -> Self {
        Self { formats: Formats::Netflow9, ..self }
    }

    /// Sent in fewer octets than the type has.
    pub const fn in_octets(self, octets: u16) -> Self {
        Self { octets, ..self }
    }

    /// Only for flows of one network.
    pub const fn of(self, network: Network) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Only for numbers that another element of the field, in fewer octets, does not take.
    pub const fn beyond(self, octets: u16) -> Self {
        Self { least: 1 << (8 * octets), ..self }
    }

    /// Only for numbers that are not 0.
    pub const fn not_zero(self) -> Self {
        Self { least: 1, ..self }
    }

    /// Whether a format has it.
    #[inline(always)]
    pub fn is_of(&self, format: Formats) -> bool {
        self.formats == Formats::Both || self.formats == format
    }

    /// Whether it is to tell this value. `calm`: of a direction of TCP that had no trouble.
    #[inline(always)]
    pub fn takes(&self, value: &Value, network: Network, calm: bool) -> bool {
        let fits = match value {
            Value::Absent => false,
            Value::Implied(_) => !calm,
            Value::Unsigned(number)
                if self.octets < self.data_type.octets() && self.data_type != DataType::OctetArray =>
            {
                number >> (8 * self.octets) == 0
            }
            Value::Unsigned(number) => *number >= self.least,
            Value::Ip(IpAddr::V4(_)) => self.data_type == DataType::Ipv4Address,
            Value::Ip(IpAddr::V6(_)) => self.data_type == DataType::Ipv6Address,
            _ => true,
        };
        fits && !(calm && self.of_trouble) && self.network.is_none_or(|only| only == network)
    }

    /// Appends a value that it takes. `boot_ms` is where the exporter's uptime begins, ms since 1970.
    #[inline(always)]
    pub fn write(&self, value: &Value, boot_ms: u64, out: &mut Body) {
        let number = match *value {
            // Label, experimental bits and bottom-of-stack bit; only the label is kept in a record.
            Value::Unsigned(label) if self.data_type == DataType::OctetArray => label << 4,
            Value::Unsigned(number) if self.ntop_reverse.is_some() => number.min(u64::MAX >> (64 - 8 * self.octets)),
            Value::Unsigned(number) | Value::Implied(number) => number,
            Value::Missing => 0,
            Value::Degraded(set) => u64::from(set.0),
            Value::Float(number) => number.to_bits(),
            Value::Time(ns) => match self.data_type {
                DataType::DateTimeMilliseconds => ns / 1_000_000,
                DataType::DateTimeNanoseconds => ntp(ns),
                _ => u64::from(uptime(ns, boot_ms)),
            },
            Value::Code(number, _) => u64::from(number),
            Value::Words(set) => u64::from(set.0),
            Value::Ip(IpAddr::V4(address)) => u64::from(address.to_bits()),
            Value::Mac([a, b, c, d, e, f]) => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            Value::Ip(IpAddr::V6(address)) => return out.append_address(address.octets()),
            Value::Text(_) | Value::Absent => unreachable!("no field has such an element"),
        };
        out.append(number, self.octets);
    }
}

/// Shortest limit of a message: it holds the longest template or the longest records of one flow, and is what UDP carries
/// in the shortest packet that every link of IPv6 takes whole (RFC 8200 section 5).
pub(crate) const SHORTEST_MESSAGE: usize = 1280 - 40 - 8;

/// The octets of one record in the making, in memory of their own: the longest record is known.
#[derive(Default)]
pub(crate) struct Body {
    octets: Vec<u8>,
    length: usize,
}

impl Body {
    /// The longest records of one flow, and what a number is written beyond its end.
    const ROOM: usize = SHORTEST_MESSAGE + 8;

    pub fn new() -> Self {
        Self { octets: vec![0; Self::ROOM], length: 0 }
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }

    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }

    /// The low `octets` octets of a number, 1 to 8, highest first.
    #[inline(always)]
    fn append(&mut self, number: u64, octets: u16) {
        // All eight are written; the next number overwrites those that were not asked for.
        let shifted = number << (64 - 8 * octets);
        self.octets[self.length..self.length + 8].copy_from_slice(&shifted.to_be_bytes());
        self.length += usize::from(octets);
    }

    #[inline(always)]
    fn append_address(&mut self, octets: [u8; 16]) {
        self.octets[self.length..self.length + 16].copy_from_slice(&octets);
        self.length += 16;
    }
}

/// Milliseconds between boot and a time, as far as 32 bits tell.
pub(crate) fn uptime(time_ns: u64, boot_ms: u64) -> u32 {
    u32::try_from((time_ns / 1_000_000).saturating_sub(boot_ms)).unwrap_or(u32::MAX)
}

/// The NTP format of RFC 7011 section 6.1.10: seconds since 1900 modulo 2^32, and fractions of 2^-32 s. The fraction is
/// rounded up, so that whoever turns it back into nanoseconds, cutting or rounding, gets the very nanosecond.
fn ntp(time_ns: u64) -> u64 {
    const SECONDS_1900_TO_1970: u64 = 2_208_988_800;
    let (seconds, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let era = (seconds + SECONDS_1900_TO_1970) & u64::from(u32::MAX);
    era << 32 | (ns << 32).div_ceil(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntp_fractions_give_back_the_very_nanosecond() {
        for ns in (0..1_000_000_000).step_by(9973).chain([0, 1, 2, 499_999_999, 999_999_998, 999_999_999]) {
            let fraction = ntp(7_000_000_000 + ns) & u64::from(u32::MAX);
            assert_eq!((fraction * 1_000_000_000) >> 32, ns, "cut");
            assert_eq!((fraction * 1_000_000_000 + (1 << 31)) >> 32, ns, "rounded");
        }
    }

    #[test]
    fn ntp_seconds_count_from_1900_and_begin_again_in_2036() {
        assert_eq!(ntp(0) >> 32, 2_208_988_800);
        assert_eq!(ntp(2_085_978_496_000_000_000), 0);
        assert_eq!(ntp(2_085_978_497_500_000_000), 1 << 32 | 1 << 31);
    }
}
