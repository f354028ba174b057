//! IPv6 extension headers (RFC 8200 section 4): hop-by-hop, routing, fragment and destination
//! options, authentication (RFC 4302), mobility (RFC 6275), HIP (RFC 7401) and shim6 (RFC 5533).

use crate::frame_slice::{FrameSlice, be16, be32};
use crate::packet::{AnomalySet, Flags, Packet};
use weir_ledger::PacketAnomaly;

/// Largest number of extension headers of one packet.
const MAX_HEADERS: usize = 16;

/// Protocol number of the hop-by-hop options.
pub(super) const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Type of the jumbo payload option (RFC 2675 section 2).
const JUMBO_PAYLOAD: u8 = 0xc2;

/// Whether a protocol number is that of an extension header that can be skipped.
#[inline]
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | 43 | FRAGMENT | AUTHENTICATION | 60 | 135 | 139 | 140)
}

/// Skips the extension headers at the start of `rest` and fills in what they say. `packet` has the
/// protocol number of the first of them, and counts all of `rest` as payload. Returns the payload
/// after them, or `None` if it has no transport header (later fragment, malformed headers).
#[inline]
pub(super) fn fill<'a>(
    mut rest: FrameSlice<'a>,
    packet: &mut Packet,
    anomalies: &mut AnomalySet,
) -> Option<FrameSlice<'a>> {
    let mut headers = 0;
    while is_extension(packet.protocol) {
        let extension = if headers < MAX_HEADERS { Extension::split(packet.protocol, rest) } else { None };
        let Some((extension, payload)) = extension else {
            anomalies.add(PacketAnomaly::ExtensionMalformed);
            return None;
        };
        packet.protocol = extension.next_header;
        packet.payload_bytes -= rest.wire_bytes() - payload.wire_bytes();
        if let Some((flags, identification)) = extension.fragment {
            packet.identification = identification;
            if flags.has(Flags::FRAGMENT_LATER) {
                packet.flags = flags;
                return None;
            }
            packet.flags.0 |= flags.0;
        }
        rest = payload;
        headers += 1;
    }
    Some(rest)
}

struct Extension {
    /// Protocol number of the header that follows.
    next_header: u8,
    /// Of a fragment header: flags (0 for an atomic fragment, RFC 6946) and identification.
    fragment: Option<(Flags, u32)>,
}

impl Extension {
    /// Splits the header with this protocol number from its payload; `None` if it is truncated or
    /// impossible.
    #[inline]
    fn split(protocol: u8, slice: FrameSlice<'_>) -> Option<(Self, FrameSlice<'_>)> {
        if protocol == FRAGMENT {
            let (header, rest) = slice.split::<8>()?;
            let field = be16(header, 2);
            let fragment = (Flags::of_fragment(field >> 3, field & 1 != 0), be32(header, 4));
            return Some((Self { next_header: header[0], fragment: Some(fragment) }, rest));
        }
        let (&[next_header, length], _) = slice.split()?;
        let header_bytes = match (protocol, usize::from(length)) {
            // The length counts words of 4 octets, minus 2. The fixed part takes 3 words.
            (AUTHENTICATION, 0) => return None,
            (AUTHENTICATION, words) => (words + 2) * 4,
            (_, words) => (words + 1) * 8,
        };
        Some((Self { next_header, fragment: None }, slice.skip(header_bytes)?))
    }
}

/// The length in the jumbo payload option of the hop-by-hop header at the start of `slice`; `None`
/// if there is no such option, or the header is truncated.
pub(super) fn jumbo_length(slice: FrameSlice<'_>) -> Option<u32> {
    let (&[_, length], _) = slice.split()?;
    let mut options = slice.captured().get(2..(usize::from(length) + 1) * 8)?;
    // Each iteration consumes at least one of at most 2046 octets.
    while let Some((&option, rest)) = options.split_first() {
        if option == 0 {
            // Pad1 has no length field.
            options = rest;
            continue;
        }
        let (&length, rest) = rest.split_first()?;
        let (data, rest) = rest.split_at_checked(length.into())?;
        if option == JUMBO_PAYLOAD {
            return Some(u32::from_be_bytes(data.try_into().ok()?));
        }
        options = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::frames::*;

    fn fragment(next_header: u8, field: u16) -> Vec<u8> {
        let [high, low] = field.to_be_bytes();
        vec![next_header, 0, high, low, 0x11, 0x22, 0x33, 0x44]
    }

    #[test]
    fn every_extension_header_is_skipped() {
        let chain = [
            &[43, 0, 1, 4, 0, 0, 0, 0][..],
            &[60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[51, 0, 1, 4, 0, 0, 0, 0],
            &[135, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
            &[139, 0, 0, 0, 0, 0, 0, 0],
            &[140, 0, 0, 0, 0, 0, 0, 0],
            &[44, 0, 0, 0, 0, 0, 0, 0],
            &fragment(17, 0),
            &udp(5, 6, b"x"),
        ]
        .concat();
        let packet = without_anomalies(decoded_as(229, &ipv6(0, &chain)));
        assert_eq!((packet.protocol, packet.source_port, packet.payload_bytes), (17, 5, 1));
        assert_eq!(packet.ip_bytes, 40 + chain.len() as u32);
        // An atomic fragment is not a fragment.
        assert_eq!((packet.flags.0, packet.identification), (Flags::PORTS, 0x1122_3344));
    }

    #[test]
    fn a_truncated_chain_is_metered_with_the_last_protocol_read() {
        let chain = [&[60, 0, 1, 4, 0, 0, 0, 0], &[17, 0, 1, 4, 0, 0, 0, 0], &udp(5, 6, b"x")[..]].concat();
        let ip = ipv6(0, &chain);
        for cut in 40..56 {
            let packet = with_anomalies(snapped(229, &ip, cut), &[PacketAnomaly::ExtensionMalformed]);
            assert_eq!((packet.protocol, packet.payload_bytes), if cut < 48 { (0, 25) } else { (60, 17) });
            assert_eq!((packet.source_port, packet.flags.0, packet.ip_bytes), (0, 0, 65));
        }
        // The same if the packet itself ends there.
        for length in 1..16 {
            let mut ip = ip.clone();
            ip[5] = length;
            let packet = with_anomalies(decoded_as(229, &ip), &[PacketAnomaly::ExtensionMalformed]);
            assert_eq!(packet.protocol, if length < 8 { 0 } else { 60 });
        }
    }

    #[test]
    fn more_headers_than_the_limit_are_malformed() {
        let ip = |headers: usize| {
            let mut chain = [60, 0, 1, 4, 0, 0, 0, 0].repeat(headers);
            chain[headers * 8 - 8] = 17;
            chain.extend(udp(5, 6, b"x"));
            ipv6(60, &chain)
        };
        let packet = without_anomalies(decoded_as(229, &ip(MAX_HEADERS)));
        assert_eq!((packet.protocol, packet.source_port), (17, 5));
        let packet = with_anomalies(decoded_as(229, &ip(MAX_HEADERS + 1)), &[PacketAnomaly::ExtensionMalformed]);
        assert_eq!((packet.protocol, packet.source_port), (60, 0));
    }

    #[test]
    fn an_authentication_header_without_its_fixed_part_is_malformed() {
        let (packet, anomalies) = decoded_as(229, &ipv6(51, &[17, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 6, 0, 8, 0, 0]));
        assert_eq!((anomaly_list(anomalies), packet.protocol), (vec![PacketAnomaly::ExtensionMalformed], 51));
    }

    #[test]
    fn only_the_first_fragment_has_ports() {
        let decode = |field| {
            let ip = ipv6(44, &[fragment(60, field), vec![17, 0, 1, 4, 0, 0, 0, 0], udp(5, 6, b"x")].concat());
            let packet = without_anomalies(decoded_as(229, &ip));
            assert_eq!(packet.identification, 0x1122_3344);
            (packet.flags.0, packet.protocol, packet.source_port, packet.payload_bytes)
        };
        assert_eq!(decode(1), (Flags::FRAGMENT_FIRST | Flags::PORTS, 17, 5, 1));
        assert_eq!(decode(8), (Flags::FRAGMENT_LATER, 60, 0, 17));
        assert_eq!(decode(0xfff9), (Flags::FRAGMENT_LATER, 60, 0, 17));
        // The reserved bits are ignored.
        assert_eq!(decode(6), (Flags::PORTS, 17, 5, 1));
    }

    #[test]
    fn the_jumbo_payload_option_is_found_after_other_options() {
        let find = |octets: &[u8]| jumbo_length(FrameSlice::new(octets, 100));
        assert_eq!(find(&[6, 0, 0xc2, 4, 0, 1, 2, 3]), Some(0x0001_0203));
        assert_eq!(find(&[6, 1, 0, 1, 1, 9, 5, 2, 0, 0, 0xc2, 4, 0, 1, 2, 3]), Some(0x0001_0203));
        assert_eq!(find(&[6, 0, 1, 4, 0, 0, 0, 0]), None);
        assert_eq!(find(&[6, 0, 0xc2, 3, 0, 1, 2, 0]), None);
        assert_eq!(find(&[6, 0, 1, 9, 0, 0, 0, 0]), None);
        assert_eq!(find(&[6, 0, 0xc2, 4, 0, 1, 2]), None);
        assert_eq!(find(&[6, 0, 0, 0, 0, 0, 0, 0xc2]), None);
    }

    #[test]
    fn extension_headers_are_not_skipped_over_ipv4() {
        let packet = decoded_as(228, &ipv4(51, &[17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).0;
        assert_eq!((packet.protocol, packet.payload_bytes), (51, 12));
    }

    #[test]
    fn no_next_header_and_encrypted_payload_have_no_ports() {
        for protocol in [59, 50] {
            let packet = without_anomalies(decoded_as(229, &ipv6(protocol, &[0, 5, 0, 6, 0, 0, 0, 0])));
            assert_eq!((packet.protocol, packet.flags.0, packet.payload_bytes), (protocol, 0, 8));
        }
    }
}
