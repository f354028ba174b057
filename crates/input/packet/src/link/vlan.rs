//! VLAN tags (IEEE 802.1Q clause 9): priority and identifier, then an EtherType or a length.

use super::link_headers::LinkHeaders;
use super::next_header::NextHeader;
use crate::frame_slice::{FrameSlice, be16};

/// Splits a tag, without the EtherType that announced it, from its payload; `None` if the capture
/// ends inside it.
#[inline]
pub(crate) fn split<'a>(frame: FrameSlice<'a>, headers: &mut LinkHeaders) -> Option<(NextHeader, FrameSlice<'a>)> {
    let (tag, rest) = frame.split::<4>()?;
    // 12 bits; 0 in a priority tag.
    headers.add_vlan(be16(tag, 0) & 0x0fff);
    Some((NextHeader::of_ethertype_or_length(be16(tag, 2)), rest))
}

#[cfg(test)]
mod tests {
    use super::super::MAX_HEADERS;
    use crate::NO_VLAN;
    use crate::tests::frames::*;
    use weir_ledger::RefusalReason;

    #[test]
    fn the_first_two_identifiers_are_stored_and_every_tag_is_skipped() {
        let ip = udp_in_v4(5, 6, b"x");
        let one = ethernet(0x8100, &vlan(0xe000 | 7, 0x0800, &ip));
        let three = ethernet(0x88a8, &vlan(100, 0x9100, &vlan(200, 0x9300, &vlan(300, 0x0800, &ip))));
        let (one, three) = (decoded(&one).0, decoded(&three).0);
        assert_eq!((one.vlan, one.inner_vlan, one.source_port), (7, NO_VLAN, 5));
        assert_eq!((three.vlan, three.inner_vlan, three.source_port), (100, 200, 5));
    }

    #[test]
    fn a_priority_tag_counts_as_a_tag() {
        let packet = decoded(&ethernet(0x8100, &vlan(0, 0x9200, &vlan(9, 0x0806, &[])))).0;
        assert_eq!((packet.vlan, packet.inner_vlan), (0, 9));
    }

    #[test]
    fn a_tagged_frame_may_have_a_length() {
        let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &udp_in_v4(5, 6, b"x")[..]].concat();
        assert_eq!(decoded(&ethernet(0x8100, &vlan(3, 37, &snap))).0.source_port, 5);
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        assert_truncation_is_refused(1, &ethernet(0x8100, &vlan(1, 0x0800, &udp_in_v4(5, 6, b"x"))), 18);
    }

    #[test]
    fn more_tags_than_the_bound_are_refused() {
        let tagged = |count| {
            let mut payload = udp_in_v4(5, 6, b"x");
            let mut ethertype = 0x0800;
            for identifier in 0..count {
                payload = vlan(identifier, ethertype, &payload);
                ethertype = 0x8100;
            }
            ethernet(ethertype, &payload)
        };
        assert_eq!(decoded(&tagged(MAX_HEADERS as u16)).0.source_port, 5);
        assert_eq!(refusal(1, &tagged(MAX_HEADERS as u16 + 1)), RefusalReason::TooManyHeaders);
    }
}
