//! The value of a field of a flow record, independent of the format, and its text.

use crate::community_id;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use weir_dpi::Notes;
use weir_flow::Approximate;
use weir_tcp::Degradation;

/// The value of a field in one flow record, from which a text may be borrowed.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// The field does not apply.
    NotApplicable,
    /// The field applies but has no value: null in text, 0 in a template, which keeps templates
    /// few. Columns have [`FieldValue::NotApplicable`] instead.
    NoValue,
    /// A number.
    Unsigned(u64),
    /// A number that follows from other fields of a direction without TCP anomalies. Templates omit
    /// it then. Columns have [`FieldValue::Unsigned`] instead.
    Implied(u64),
    /// Always finite.
    Float(f64),
    /// Nanoseconds since 1970-01-01 UTC.
    Time(u64),
    /// An address.
    Ip(IpAddr),
    /// A MAC address.
    Mac([u8; 6]),
    /// A number and its name.
    Code(u8, &'static str),
    /// The number of an IP protocol. Its text is the name, if it has one.
    Protocol(u8),
    /// TCP control bits. Their text has a letter for each.
    TcpFlags(u16),
    /// A set of words.
    Approximate(Approximate),
    /// A set of words.
    Degraded(Degradation),
    /// ASCII.
    CommunityId([u8; community_id::LENGTH]),
    /// A set of words.
    Notes(Notes),
    /// UTF-8 without control characters.
    Text(Cow<'a, str>),
}

/// The letters of TCP control bits with their bits: SYN, ACK, PSH, FIN, RST, URG, ECE, CWR, AE
/// (formerly NS), and the three reserved bits from the lowest on.
pub(crate) const TCP_FLAG_LETTERS: [(u8, u16); 12] = [
    (b'S', 0x002),
    (b'A', 0x010),
    (b'P', 0x008),
    (b'F', 0x001),
    (b'R', 0x004),
    (b'U', 0x020),
    (b'E', 0x040),
    (b'C', 0x080),
    (b'N', 0x100),
    (b'X', 0x200),
    (b'Y', 0x400),
    (b'Z', 0x800),
];

impl FieldValue<'_> {
    /// The value with a text of its own.
    pub fn into_owned(self) -> FieldValue<'static> {
        match self {
            Self::NotApplicable => FieldValue::NotApplicable,
            Self::NoValue => FieldValue::NoValue,
            Self::Unsigned(number) => FieldValue::Unsigned(number),
            Self::Implied(number) => FieldValue::Implied(number),
            Self::Float(number) => FieldValue::Float(number),
            Self::Time(ns) => FieldValue::Time(ns),
            Self::Ip(address) => FieldValue::Ip(address),
            Self::Mac(octets) => FieldValue::Mac(octets),
            Self::Code(number, word) => FieldValue::Code(number, word),
            Self::Protocol(number) => FieldValue::Protocol(number),
            Self::TcpFlags(bits) => FieldValue::TcpFlags(bits),
            Self::Approximate(set) => FieldValue::Approximate(set),
            Self::Degraded(set) => FieldValue::Degraded(set),
            Self::CommunityId(id) => FieldValue::CommunityId(id),
            Self::Notes(set) => FieldValue::Notes(set),
            Self::Text(text) => FieldValue::Text(Cow::Owned(text.into_owned())),
        }
    }

    /// Appends the text of the value, as in CSV. It is empty if the field does not apply.
    pub fn append_text(&self, out: &mut Vec<u8>) {
        match *self {
            Self::NotApplicable | Self::NoValue => {}
            Self::Text(ref text) => out.extend(text.as_bytes()),
            Self::Unsigned(number) | Self::Implied(number) => {
                out.extend(itoa::Buffer::new().format(number).as_bytes());
            }
            Self::Float(number) => out.extend(zmij::Buffer::new().format(number).as_bytes()),
            Self::Time(ns) => append_time(ns, out),
            Self::Ip(address) => write!(out, "{address}").expect("memory takes every octet"),
            Self::Mac(octets) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                for (at, octet) in octets.iter().enumerate() {
                    out.extend((at > 0).then_some(b':'));
                    out.extend([DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]]);
                }
            }
            Self::Code(_, word) => out.extend(word.as_bytes()),
            Self::Protocol(number) => match protocol_name(number) {
                Some(name) => out.extend(name.as_bytes()),
                None => out.extend(itoa::Buffer::new().format(number).as_bytes()),
            },
            Self::TcpFlags(bits) => {
                out.extend(TCP_FLAG_LETTERS.iter().filter(|(_, bit)| bits & bit != 0).map(|(letter, _)| letter));
            }
            Self::Approximate(set) => append_words(set.names(), out),
            Self::Degraded(set) => append_words(set.names(), out),
            Self::Notes(set) => append_words(set.names(), out),
            Self::CommunityId(id) => out.extend(id),
        }
    }
}

/// The text of [`FieldValue::append_text`].
impl fmt::Display for FieldValue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.append_text(&mut text);
        formatter.pad(std::str::from_utf8(&text).expect("the text of a value is UTF-8"))
    }
}

fn append_words(words: impl Iterator<Item = &'static str>, out: &mut Vec<u8>) {
    for (at, word) in words.enumerate() {
        out.extend((at > 0).then_some(b' '));
        out.extend(word.as_bytes());
    }
}

/// `2026-11-20T12:00:00.123456789Z` (RFC 3339).
fn append_time(time_ns: u64, out: &mut Vec<u8>) {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(9));
    let time = Timestamp::new((time_ns / 1_000_000_000) as i64, (time_ns % 1_000_000_000) as i32);
    let time = time.expect("64 bits of ns end in the year 2554");
    PRINTER.print_timestamp(&time, out).expect("memory takes every octet");
}

/// Name of an IP protocol (IANA "Protocol Numbers", short common form).
pub const fn protocol_name(number: u8) -> Option<&'static str> {
    Some(match number {
        0 => "hopopt",
        1 => "icmp",
        2 => "igmp",
        4 => "ipip",
        6 => "tcp",
        8 => "egp",
        9 => "igp",
        17 => "udp",
        33 => "dccp",
        41 => "ipv6",
        46 => "rsvp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmp6",
        59 => "nonext",
        88 => "eigrp",
        89 => "ospf",
        97 => "etherip",
        103 => "pim",
        108 => "ipcomp",
        112 => "vrrp",
        115 => "l2tp",
        132 => "sctp",
        136 => "udplite",
        137 => "mpls",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_with_nanoseconds() {
        let time = |ns| FieldValue::Time(ns).to_string();
        assert_eq!(time(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(time(951_782_400_000_000_001), "2000-02-29T00:00:00.000000001Z");
        assert_eq!(time(1_795_176_000_123_456_789), "2026-11-20T12:00:00.123456789Z");
        assert_eq!(time(4_107_542_399_999_999_999), "2100-02-28T23:59:59.999999999Z");
        assert_eq!(time(4_107_542_400_000_000_000), "2100-03-01T00:00:00.000000000Z");
        assert_eq!(time(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }
}
