//! IPv6 extension headers (RFC 8200 section 4): hop-by-hop, routing, fragment and destination
//! options, authentication (RFC 4302), mobility (RFC 6275), HIP (RFC 7401) and shim6 (RFC 5533).

use super::fragment_flags;
use crate::Flags;
use crate::octets::Octets;

/// Extension headers of one packet, at most.
const HEADERS: usize = 16;

/// Protocol number of the hop-by-hop options.
pub(super) const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Type of the jumbo payload option (RFC 2675 section 2).
const JUMBO_PAYLOAD: u8 = 0xc2;

/// Whether a protocol number is that of an extension header that can be passed.
#[inline]
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | 43 | FRAGMENT | AUTHENTICATION | 60 | 135 | 139 | 140)
}

/// Why a chain of extension headers was followed no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// What follows is none.
    Transport,
    /// What follows lies in the middle of what was fragmented.
    LaterFragment,
    /// A header is cut or impossible, or there are too many.
    Malformed,
}

/// Where a chain of extension headers led.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain<'a> {
    /// The last protocol number reached.
    pub protocol: u8,
    /// What follows the headers that were passed.
    pub rest: Octets<'a>,
    /// Of the fragment header, 0 without.
    pub identification: u32,
    /// First or later fragment, or none.
    pub fragment: Flags,
    pub end: End,
}

/// Passes extension headers from protocol number `first` on.
#[inline]
pub(super) fn walk(first: u8, octets: Octets<'_>) -> Chain<'_> {
    let mut chain = Chain { protocol: first, rest: octets, identification: 0, fragment: Flags(0), end: End::Transport };
    for _ in 0..HEADERS {
        if !is_extension(chain.protocol) {
            return chain;
        }
        let Some((extension, rest)) = Extension::split(chain.protocol, chain.rest) else {
            return Chain { end: End::Malformed, ..chain };
        };
        chain.protocol = extension.next_header();
        chain.rest = rest;
        if let Extension::Fragment(fragment) = extension {
            chain.identification = fragment.identification();
            let flags = fragment.flags();
            if flags.has(Flags::FRAGMENT_LATER) {
                return Chain { fragment: flags, end: End::LaterFragment, ..chain };
            }
            chain.fragment.0 |= flags.0;
        }
    }
    let end = if is_extension(chain.protocol) { End::Malformed } else { End::Transport };
    Chain { end, ..chain }
}

/// A whole extension header.
#[derive(Clone, Copy, Debug)]
enum Extension<'a> {
    Fragment(Fragment<'a>),
    /// One that is only passed: its first octet, the next header.
    Other(u8),
}

impl<'a> Extension<'a> {
    /// Splits the header of a protocol number from what follows; `None` if it is cut or impossible.
    #[inline]
    fn split(protocol: u8, octets: Octets<'a>) -> Option<(Self, Octets<'a>)> {
        if protocol == FRAGMENT {
            return octets.split().map(|(header, rest)| (Self::Fragment(Fragment(header)), rest));
        }
        let (&[next_header, length], _) = octets.split()?;
        let header_bytes = match (protocol, usize::from(length)) {
            // In words of four octets less two, and never without its fixed part of three.
            (AUTHENTICATION, 0) => return None,
            (AUTHENTICATION, words) => (words + 2) * 4,
            (_, words) => (words + 1) * 8,
        };
        Some((Self::Other(next_header), octets.skip(header_bytes)?))
    }

    /// Protocol number of what follows.
    #[inline]
    fn next_header(self) -> u8 {
        match self {
            Self::Fragment(Fragment(&[next_header, ..])) | Self::Other(next_header) => next_header,
        }
    }
}

/// A whole fragment header.
#[derive(Clone, Copy, Debug)]
struct Fragment<'a>(&'a [u8; 8]);

impl Fragment<'_> {
    /// First or later fragment; none if it is atomic (RFC 6946).
    #[inline]
    fn flags(self) -> Flags {
        let [_, _, a, b, ..] = *self.0;
        let field = u16::from_be_bytes([a, b]);
        fragment_flags(field >> 3, field & 1 != 0)
    }

    /// Names the fragments of one packet.
    #[inline]
    fn identification(self) -> u32 {
        let [.., a, b, c, d] = *self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

/// The length in the jumbo payload option of the hop-by-hop header that `octets` begin with; `None` if
/// there is no such option, or the header is cut.
pub(super) fn jumbo_length(octets: Octets<'_>) -> Option<u32> {
    let (&[_, length], _) = octets.split()?;
    let mut options = octets.captured().get(2..(usize::from(length) + 1) * 8)?;
    // Each turn takes an octet at least, of 2 046 at most.
    while let Some((&option, rest)) = options.split_first() {
        if option == 0 {
            // The padding of one octet has no length.
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
    use crate::tests::build::*;
    use weir_ledger::PacketAnomaly;

    fn fragment(next_header: u8, field: u16) -> Vec<u8> {
        let [high, low] = field.to_be_bytes();
        vec![next_header, 0, high, low, 0x11, 0x22, 0x33, 0x44]
    }

    #[test]
    fn every_kind_is_passed() {
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
        let (packet, notes) = decoded_as(229, &ipv6(0, &chain));
        assert!(notes.is_empty());
        assert_eq!((packet.protocol, packet.source_port, packet.payload_bytes), (17, 5, 1));
        assert_eq!(packet.ip_bytes, 40 + chain.len() as u32);
        // An atomic fragment is none.
        assert_eq!((packet.flags.0, packet.identification), (Flags::PORTS, 0x1122_3344));
    }

    #[test]
    fn a_chain_cut_anywhere_is_metered_with_the_last_protocol_reached() {
        let chain = [&[60, 0, 1, 4, 0, 0, 0, 0], &[17, 0, 1, 4, 0, 0, 0, 0], &udp(5, 6, b"x")[..]].concat();
        let ip = ipv6(0, &chain);
        for cut in 40..56 {
            let (packet, notes) = snapped(229, &ip, cut);
            assert_eq!(noted(notes), [PacketAnomaly::ExtensionMalformed]);
            assert_eq!((packet.protocol, packet.payload_bytes), if cut < 48 { (0, 25) } else { (60, 17) });
            assert_eq!((packet.source_port, packet.flags.0, packet.ip_bytes), (0, 0, 65));
        }
        // The same if the packet itself ends there.
        for length in 1..16 {
            let mut ip = ip.clone();
            ip[5] = length;
            let (packet, notes) = decoded_as(229, &ip);
            assert_eq!(noted(notes), [PacketAnomaly::ExtensionMalformed]);
            assert_eq!(packet.protocol, if length < 8 { 0 } else { 60 });
        }
    }

    #[test]
    fn more_headers_than_the_bound_are_malformed() {
        let ip = |headers: usize| {
            let mut chain = [60, 0, 1, 4, 0, 0, 0, 0].repeat(headers);
            chain[headers * 8 - 8] = 17;
            chain.extend(udp(5, 6, b"x"));
            ipv6(60, &chain)
        };
        let (packet, notes) = decoded_as(229, &ip(HEADERS));
        assert!(notes.is_empty());
        assert_eq!((packet.protocol, packet.source_port), (17, 5));
        let (packet, notes) = decoded_as(229, &ip(HEADERS + 1));
        assert_eq!(noted(notes), [PacketAnomaly::ExtensionMalformed]);
        assert_eq!((packet.protocol, packet.source_port), (60, 0));
    }

    #[test]
    fn an_authentication_header_without_its_fixed_part_is_malformed() {
        let (packet, notes) = decoded_as(229, &ipv6(51, &[17, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 6, 0, 8, 0, 0]));
        assert_eq!((noted(notes), packet.protocol), (vec![PacketAnomaly::ExtensionMalformed], 51));
    }

    #[test]
    fn only_the_first_fragment_has_ports() {
        let decode = |field| {
            let ip = ipv6(44, &[fragment(60, field), vec![17, 0, 1, 4, 0, 0, 0, 0], udp(5, 6, b"x")].concat());
            let (packet, notes) = decoded_as(229, &ip);
            assert!(notes.is_empty());
            assert_eq!(packet.identification, 0x1122_3344);
            (packet.flags.0, packet.protocol, packet.source_port, packet.payload_bytes)
        };
        assert_eq!(decode(1), (Flags::FRAGMENT_FIRST | Flags::PORTS, 17, 5, 1));
        assert_eq!(decode(8), (Flags::FRAGMENT_LATER, 60, 0, 17));
        assert_eq!(decode(0xfff9), (Flags::FRAGMENT_LATER, 60, 0, 17));
        // The reserved bits say nothing.
        assert_eq!(decode(6), (Flags::PORTS, 17, 5, 1));
    }

    #[test]
    fn jumbo_payload_is_found_behind_other_options() {
        let find = |octets: &[u8]| jumbo_length(Octets::of_frame(octets, 100));
        assert_eq!(find(&[6, 0, 0xc2, 4, 0, 1, 2, 3]), Some(0x0001_0203));
        assert_eq!(find(&[6, 1, 0, 1, 1, 9, 5, 2, 0, 0, 0xc2, 4, 0, 1, 2, 3]), Some(0x0001_0203));
        assert_eq!(find(&[6, 0, 1, 4, 0, 0, 0, 0]), None);
        assert_eq!(find(&[6, 0, 0xc2, 3, 0, 1, 2, 0]), None);
        assert_eq!(find(&[6, 0, 1, 9, 0, 0, 0, 0]), None);
        assert_eq!(find(&[6, 0, 0xc2, 4, 0, 1, 2]), None);
        assert_eq!(find(&[6, 0, 0, 0, 0, 0, 0, 0xc2]), None);
    }

    #[test]
    fn protocols_that_look_like_extensions_are_not_passed_over_ipv4() {
        let packet = decoded_as(228, &ipv4(51, &[17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).0;
        assert_eq!((packet.protocol, packet.payload_bytes), (51, 12));
    }

    #[test]
    fn no_next_header_and_encrypted_payload_have_no_ports() {
        for protocol in [59, 50] {
            let (packet, notes) = decoded_as(229, &ipv6(protocol, &[0, 5, 0, 6, 0, 0, 0, 0]));
            assert!(notes.is_empty());
            assert_eq!((packet.protocol, packet.flags.0, packet.payload_bytes), (protocol, 0, 8));
        }
    }
}
