//! Encodes field values in data records of IPFIX (RFC 7011) and NetFlow v9 (RFC 3954), as their
//! information elements define.

use crate::uptime::uptime_ms;
use std::net::IpAddr;
use weir_fields::{DataType, Element, FieldValue, WEIR_FIRST_NUMBER};
use weir_flow::KeyOptions;
use weir_packet::Network;

// Numbers of elements that basic templates treat in another way than the rest.
const TCP_CONTROL_BITS: u16 = 6;
const SOURCE_TRANSPORT_PORT: u16 = 7;
const DESTINATION_TRANSPORT_PORT: u16 = 11;
const ICMP_TYPE_CODE_IPV4: u16 = 32;
const ICMP_TYPE_CODE_IPV6: u16 = 139;
/// The classification engine of applicationId: user-defined (RFC 6759 section 4.1), because the
/// numbers of applications are those of Weir.
const CLASSIFICATION_ENGINE: u64 = 6;
/// Longest text that can be sent, octets.
pub const MAX_TEXT_OCTETS: usize = 65_535;

/// The encoding of an element.
pub(crate) trait Encode {
    /// Length of the shortest value, octets.
    fn min_octets(&self) -> usize;

    /// Whether the element says that a flow is of IP.
    fn is_of_ip(&self) -> bool;

    /// Whether the element is in the flow key, of a flow of IP or of layer 2. ICMP types and codes
    /// are in place of the ports.
    fn is_flow_key(&self, key: KeyOptions, of_ip: bool) -> bool;

    /// Whether the element is in the flow key and belongs to one endpoint (RFC 5103 section 2: Directional Key
    /// Field).
    fn is_directional_key(&self, of_ip: bool) -> bool;

    /// Whether the basic template of a network has an element of basic templates. ICMP has a
    /// template of its own: nfdump 1.7.1 stores the type and code of ICMP as the destination port
    /// of any protocol.
    fn applies_to_basic(&self, network: Network, icmp: bool) -> bool;

    /// Whether basic records have the element if it applies, although their template need not have
    /// it.
    fn is_optional_in_basic(&self) -> bool;

    /// Appends a value in a basic template: 0 if it does not apply. A number that needs more octets
    /// is sent as the largest one, and control bits without those above FIN to CWR.
    fn write_basic(&self, value: &FieldValue<'_>, context: Context, out: &mut Vec<u8>);

    /// Whether the element applies to this value. `without_anomalies`: the direction has no TCP
    /// anomalies, and what follows from other fields is omitted.
    fn applies(&self, value: &FieldValue<'_>, network: Network, without_anomalies: bool) -> bool;

    /// Appends a value for which [`Self::applies`].
    fn write(&self, value: &FieldValue<'_>, context: Context, out: &mut Vec<u8>);
}

impl Encode for Element {
    fn min_octets(&self) -> usize {
        if self.is_variable() { 1 } else { self.octets.into() }
    }

    fn is_of_ip(&self) -> bool {
        matches!(self.number, 8 | 12 | 27 | 28 | 4)
    }

    fn is_flow_key(&self, key: KeyOptions, of_ip: bool) -> bool {
        const TUNNEL_TYPE: u16 = WEIR_FIRST_NUMBER + 7;
        const TUNNEL_IDENTIFIER: u16 = WEIR_FIRST_NUMBER + 8;
        match self.number {
            // Addresses, ports, protocol.
            8 | 12 | 27 | 28 | SOURCE_TRANSPORT_PORT | DESTINATION_TRANSPORT_PORT | 4 => true,
            ICMP_TYPE_CODE_IPV4 | ICMP_TYPE_CODE_IPV6 | 176..=179 => true,
            // MAC addresses and EtherType of layer-2 flows.
            56 | 80 | 256 => !of_ip,
            58 | 243 | 245 => key.vlan,
            10 => key.interface,
            351 | TUNNEL_TYPE | TUNNEL_IDENTIFIER => key.tunnel,
            _ => false,
        }
    }

    fn is_directional_key(&self, of_ip: bool) -> bool {
        match self.number {
            8 | 12 | 27 | 28 | SOURCE_TRANSPORT_PORT | DESTINATION_TRANSPORT_PORT => true,
            56 | 80 => !of_ip,
            _ => false,
        }
    }

    #[inline(always)]
    fn applies_to_basic(&self, network: Network, icmp: bool) -> bool {
        let of_protocol = match self.number {
            SOURCE_TRANSPORT_PORT | DESTINATION_TRANSPORT_PORT => !icmp,
            ICMP_TYPE_CODE_IPV4 | ICMP_TYPE_CODE_IPV6 => icmp,
            _ => true,
        };
        let of_network = match self.data_type {
            DataType::Ipv4Address => network == Network::Ipv4,
            DataType::Ipv6Address => network == Network::Ipv6,
            _ => self.network.or(self.basic_network).is_none_or(|only| only == network),
        };
        of_network && of_protocol
    }

    #[inline(always)]
    fn is_optional_in_basic(&self) -> bool {
        !self.is_basic() || self.basic_network.is_some()
    }

    #[inline(always)]
    fn write_basic(&self, value: &FieldValue<'_>, context: Context, out: &mut Vec<u8>) {
        let value = match *value {
            FieldValue::NotApplicable if self.data_type == DataType::Ipv6Address => {
                return out.extend_from_slice(&[0; 16]);
            }
            FieldValue::NotApplicable => FieldValue::Unsigned(0),
            FieldValue::Unsigned(bits) if self.number == TCP_CONTROL_BITS => FieldValue::Unsigned(bits & 0xff),
            FieldValue::Unsigned(number) => FieldValue::Unsigned(number.min(u64::MAX >> (64 - 8 * self.octets))),
            _ => return self.write(value, context, out),
        };
        self.write(&value, context, out);
    }

    #[inline(always)]
    fn applies(&self, value: &FieldValue<'_>, network: Network, without_anomalies: bool) -> bool {
        let fits = match value {
            FieldValue::NotApplicable => false,
            FieldValue::Implied(_) => !without_anomalies,
            FieldValue::Unsigned(number)
                if self.octets < self.data_type.octets() && self.data_type != DataType::OctetArray =>
            {
                number >> (8 * self.octets) == 0
            }
            FieldValue::Unsigned(number) => *number >= self.min,
            FieldValue::Ip(IpAddr::V4(_)) => self.data_type == DataType::Ipv4Address,
            FieldValue::Ip(IpAddr::V6(_)) => self.data_type == DataType::Ipv6Address,
            _ => true,
        };
        fits && !(without_anomalies && self.with_anomalies_only) && self.network.is_none_or(|only| only == network)
    }

    #[inline(always)]
    fn write(&self, value: &FieldValue<'_>, context: Context, out: &mut Vec<u8>) {
        let number = match *value {
            FieldValue::NoValue if self.is_variable() => return append_text("", context, out),
            FieldValue::Text(ref text) if self.is_variable() => return append_text(text, context, out),
            FieldValue::Code(_, name) if self.is_variable() => return append_text(name, context, out),
            FieldValue::Code(number, _) if self.is_application_id() => application_id(number),
            // Label, traffic class and bottom-of-stack bit. A flow record only has the label.
            FieldValue::Unsigned(label) if self.data_type == DataType::OctetArray => label << 4,
            FieldValue::Unsigned(number) if self.ntop_reverse.is_some() => {
                number.min(u64::MAX >> (64 - 8 * self.octets))
            }
            FieldValue::Unsigned(number) | FieldValue::Implied(number) => number,
            FieldValue::NoValue => 0,
            FieldValue::Degraded(set) => u64::from(set.0),
            FieldValue::Float(number) => number.to_bits(),
            FieldValue::Time(ns) => match self.data_type {
                DataType::DateTimeMilliseconds => ns / 1_000_000,
                DataType::DateTimeNanoseconds => ntp(ns),
                _ => u64::from(uptime_ms(ns, context.boot_ms)),
            },
            FieldValue::Code(number, _) => u64::from(number),
            FieldValue::Approximate(set) => u64::from(set.0),
            FieldValue::Notes(set) => u64::from(set.0),
            FieldValue::Ip(IpAddr::V4(address)) => u64::from(address.to_bits()),
            FieldValue::Mac([a, b, c, d, e, f]) => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            FieldValue::Ip(IpAddr::V6(address)) => return out.extend_from_slice(&address.octets()),
            FieldValue::Text(ref text) => {
                let octets = text.bytes().chain(std::iter::repeat(0));
                return out.extend(octets.take(self.octets.into()));
            }
            FieldValue::CommunityId(id) => return out.extend_from_slice(&id),
            FieldValue::Protocol(_) | FieldValue::TcpFlags(_) | FieldValue::NotApplicable => {
                unreachable!("no element applies to such a value")
            }
        };
        append_number(number, self.octets, out);
    }
}

/// What the encoding of a value depends on besides the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Boot time of the exporter, ms since 1970-01-01 UTC.
    pub boot_ms: u64,
    /// Octets of a text that are sent at most: up to [`MAX_TEXT_OCTETS`].
    pub text_octets: usize,
}

/// The value of applicationId of an application: classification engine and selector.
pub(crate) const fn application_id(number: u8) -> u64 {
    CLASSIFICATION_ENGINE << 24 | number as u64
}

/// The first characters of a text that have at most this many octets.
pub(crate) fn cut(text: &str, octets: usize) -> &str {
    let end = (0..=octets.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

/// Appends a text with its length (RFC 7011 section 7).
fn append_text(text: &str, context: Context, out: &mut Vec<u8>) {
    let text = cut(text, context.text_octets);
    match u8::try_from(text.len()) {
        Ok(length) if length < u8::MAX => out.push(length),
        _ => {
            out.push(u8::MAX);
            out.extend((text.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}

/// Smallest message size limit, octets: it holds the longest full template and the longest records
/// of one flow with one, and is the UDP payload of a packet of the minimum IPv6 MTU (RFC 8200
/// section 5).
pub(crate) const MIN_MESSAGE_BYTES: usize = 1280 - 40 - 8;

/// Appends the low `octets` octets (1 to 8) of a number in network byte order.
#[inline(always)]
fn append_number(number: u64, octets: u16, out: &mut Vec<u8>) {
    // Always eight octets, because a copy of constant length is cheap; then the rest is removed.
    let shifted = number << (64 - 8 * octets);
    out.extend_from_slice(&shifted.to_be_bytes());
    out.truncate(out.len() - 8 + usize::from(octets));
}

/// The NTP time format of RFC 7011 section 6.1.10: seconds since 1900 modulo 2^32, and fractions of
/// 2^-32 s. The fraction is rounded up, so that a conversion back to nanoseconds is exact, whether
/// it truncates or rounds.
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
    fn ntp_fractions_convert_back_to_the_same_nanosecond() {
        for ns in (0..1_000_000_000).step_by(9973).chain([0, 1, 2, 499_999_999, 999_999_998, 999_999_999]) {
            let fraction = ntp(7_000_000_000 + ns) & u64::from(u32::MAX);
            assert_eq!((fraction * 1_000_000_000) >> 32, ns, "truncated");
            assert_eq!((fraction * 1_000_000_000 + (1 << 31)) >> 32, ns, "rounded");
        }
    }

    #[test]
    fn ntp_seconds_count_from_1900_and_wrap_in_2036() {
        assert_eq!(ntp(0) >> 32, 2_208_988_800);
        assert_eq!(ntp(2_085_978_496_000_000_000), 0);
        assert_eq!(ntp(2_085_978_497_500_000_000), 1 << 32 | 1 << 31);
    }
}
