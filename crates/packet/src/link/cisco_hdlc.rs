//! Cisco HDLC (RFC 1547 section 4.3.1): address, control, EtherType.

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

/// Addresses of unicast and multicast frames.
const ADDRESSES: [u8; 2] = [0x0f, 0x8f];

/// A whole Cisco HDLC header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CiscoHdlc<'a>(&'a [u8; 4]);

impl<'a> CiscoHdlc<'a> {
    /// Whether a frame of LINKTYPE_PPP_HDLC is Cisco HDLC: its first octet is one of the two
    /// addresses.
    #[inline]
    pub fn is_announced_by(frame: FrameSlice<'_>) -> bool {
        frame.captured().first().is_some_and(|address| ADDRESSES.contains(address))
    }

    /// Splits the header from the payload; `None` if the capture ends inside it.
    #[inline]
    pub fn split(frame: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        frame.split().map(|(header, rest)| (Self(header), rest))
    }

    /// The header that follows. A frame with another address or control field is not IP.
    #[inline]
    pub fn next(self) -> NextHeader {
        let [address, control, a, b] = *self.0;
        if ADDRESSES.contains(&address) && control == 0 {
            NextHeader::of_ethertype(u16::from_be_bytes([a, b]))
        } else {
            NextHeader::Other(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;
    use weir_ledger::RefusalReason;

    fn frame(address: u8, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&[address, 0], &ethertype.to_be_bytes()[..], payload].concat()
    }

    #[test]
    fn both_addresses_lead_to_ip_and_labels() {
        for (link, address) in [(104, 0x0f), (104, 0x8f), (50, 0x0f), (50, 0x8f)] {
            let v4 = decoded_as(link, &frame(address, 0x0800, &udp_in_v4(5, 6, b"x"))).0;
            let v6 = decoded_as(link, &frame(address, 0x86dd, &udp_in_v6(5, 6, b"x"))).0;
            let labelled = frame(address, 0x8847, &mpls(&[17], &udp_in_v4(5, 6, b"x")));
            assert_eq!((v4.network, v4.source_port, v4.ip_bytes), (Network::Ipv4, 5, 29));
            assert_eq!((v6.network, v6.source_port, v6.ip_bytes), (Network::Ipv6, 5, 49));
            assert_eq!(decoded_as(link, &labelled).0.mpls_label, 17);
        }
    }

    #[test]
    fn keepalives_are_not_ip() {
        let slarp = decoded_as(104, &frame(0x8f, 0x8035, &[0; 14])).0;
        assert_eq!((slarp.network, slarp.source_port, slarp.source), (Network::Layer2, 0x8035, [0; 16]));
    }

    #[test]
    fn another_address_or_control_field_is_not_ip() {
        let mut control = frame(0x0f, 0x0800, &udp_in_v4(5, 6, b"x"));
        control[1] = 3;
        for frame in [control, frame(0xff, 0x0800, &udp_in_v4(5, 6, b"x"))] {
            let packet = decoded_as(104, &frame).0;
            assert_eq!((packet.network, packet.source_port), (Network::Layer2, 0));
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let frame = frame(0x0f, 0x0800, &udp_in_v4(5, 6, b"x"));
        for link in [50, 104] {
            for cut in 0..24 {
                let reason = if cut < 4 { RefusalReason::LinkTruncated } else { RefusalReason::Ipv4Truncated };
                assert_eq!(refusal(link, &frame[..cut]), reason, "link type {link} cut at {cut}");
            }
        }
    }
}
