//! MPLS label stacks (RFC 3032) and the pseudowires in them (RFC 4385, RFC 4448).
//!
//! A label stack does not identify its payload. The first four bits after it are used instead (RFC
//! 4928): 4 and 6 are IP, 0 is a control word followed by Ethernet, any other value is Ethernet.

use super::link_headers::LinkHeaders;
use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;
use crate::packet::NO_LABEL;
use weir_ledger::RefusalReason;

/// Largest number of labels in a stack.
const MAX_LABELS: usize = 16;
/// Octets of the pseudowire control word.
const CONTROL_WORD_BYTES: usize = 4;

/// Splits a stack, and the control word if there is one, from the payload.
///
/// # Errors
/// `MplsTruncated` if the capture ends before the octet after the bottom label; `TooManyHeaders` if
/// the stack has no bottom within 16 labels; `LinkTruncated` if the capture ends inside the control
/// word.
#[inline]
pub(crate) fn split<'a>(
    frame: FrameSlice<'a>,
    headers: &mut LinkHeaders,
) -> Result<(NextHeader, FrameSlice<'a>), RefusalReason> {
    let (top, mut rest) = frame.split().ok_or(RefusalReason::MplsTruncated)?;
    let mut entry: &[u8; 4] = top;
    for _ in 1..MAX_LABELS {
        if is_bottom(entry) {
            break;
        }
        (entry, rest) = rest.split().ok_or(RefusalReason::MplsTruncated)?;
    }
    if !is_bottom(entry) {
        return Err(RefusalReason::TooManyHeaders);
    }
    let next = match rest.captured().first().ok_or(RefusalReason::MplsTruncated)? >> 4 {
        4 => NextHeader::Ipv4,
        6 => NextHeader::Ipv6,
        0 => {
            rest = rest.skip(CONTROL_WORD_BYTES).ok_or(RefusalReason::LinkTruncated)?;
            NextHeader::Ethernet
        }
        _ => NextHeader::Ethernet,
    };
    if headers.mpls_label == NO_LABEL {
        headers.mpls_label = u32::from_be_bytes(*top) >> 12;
    }
    Ok((next, rest))
}

/// Whether a label stack entry is the last of its stack.
#[inline]
fn is_bottom(entry: &[u8; 4]) -> bool {
    entry[2] & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::frames::*;
    use crate::{NO_VLAN, Network};

    #[test]
    fn the_first_four_bits_identify_the_payload() {
        for ethertype in [0x8847, 0x8848] {
            let v4 = decoded(&ethernet(ethertype, &mpls(&[17, 18], &udp_in_v4(5, 6, b"x")))).0;
            let v6 = decoded(&ethernet(ethertype, &mpls(&[0xfffff], &udp_in_v6(5, 6, b"x")))).0;
            assert_eq!((v4.network, v4.mpls_label, v4.source_port), (Network::Ipv4, 17, 5));
            assert_eq!((v6.network, v6.mpls_label, v6.source_port), (Network::Ipv6, 0xfffff, 5));
        }
    }

    #[test]
    fn ethernet_with_and_without_a_control_word_adds_its_tags() {
        let inner = ethernet(0x8100, &vlan(20, 0x8847, &mpls(&[99], &udp_in_v4(5, 6, b"x"))));
        let with = [&[0, 0, 0, 1], &inner[..]].concat();
        let without = [&[0x1e], &inner[1..]].concat();
        for payload in [with, without] {
            let packet = decoded(&ethernet(0x8100, &vlan(10, 0x8847, &mpls(&[17], &payload)))).0;
            assert_eq!((packet.vlan, packet.inner_vlan, packet.mpls_label, packet.source_port), (10, 20, 17, 5));
        }
    }

    #[test]
    fn ethernet_without_ip_in_a_stack_has_the_inner_addresses() {
        let mut inner = ethernet(0x0806, &[0; 28]);
        inner[..6].fill(0xff);
        let packet = decoded(&ethernet(0x8847, &mpls(&[17], &inner))).0;
        assert_eq!((packet.network, packet.source_port, packet.mpls_label), (Network::Layer2, 0x0806, 17));
        assert_eq!(packet.destination[10..], [0xff; 6]);
        assert_eq!(packet.vlan, NO_VLAN);
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let frame = ethernet(0x8847, &mpls(&[17, 18], &[0, 0, 0, 0]));
        for cut in 14..=22 {
            assert_eq!(refusal(1, &frame[..cut]), RefusalReason::MplsTruncated);
        }
        for cut in 23..=26 {
            assert_eq!(refusal(1, &frame[..cut]), RefusalReason::LinkTruncated);
        }
    }

    #[test]
    fn a_stack_of_more_labels_than_the_bound_is_refused() {
        let frame = |labels: usize| ethernet(0x8847, &mpls(&vec![5; labels], &udp_in_v4(5, 6, b"x")));
        assert_eq!(decoded(&frame(MAX_LABELS)).0.source_port, 5);
        assert_eq!(refusal(1, &frame(MAX_LABELS + 1)), RefusalReason::TooManyHeaders);
        assert_eq!(refusal(1, &frame(MAX_LABELS + 1)[..14 + 4 * MAX_LABELS]), RefusalReason::TooManyHeaders);
        assert_eq!(refusal(1, &frame(MAX_LABELS)[..14 + 4 * MAX_LABELS - 1]), RefusalReason::MplsTruncated);
    }
}
