//! MPLS label stacks (RFC 3032) and the pseudowires in them (RFC 4385, RFC 4448).
//!
//! A stack does not say what it carries. The first four bits behind it do, as far as they can:
//! 4 and 6 are IP, 0 is a control word with Ethernet behind it, all else is Ethernet (RFC 4928).

use super::Next;
use crate::octets::Octets;
use weir_ledger::RefusalReason;

/// Labels in a stack, at most.
const LABELS: usize = 16;
/// Octets of the pseudowire control word.
const CONTROL_WORD_BYTES: usize = 4;

/// A whole label stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    top: &'a [u8; 4],
    next: Next,
}

impl<'a> Stack<'a> {
    /// Splits the stack, and the control word if there is one, from what follows.
    ///
    /// # Errors
    /// `MplsTruncated` if the capture ends before the octet behind the bottom; `TooManyHeaders` if the
    /// stack does not end; `LinkTruncated` if the capture ends inside the control word.
    #[inline]
    pub fn split(octets: Octets<'a>) -> Result<(Self, Octets<'a>), RefusalReason> {
        let (top, mut rest) = octets.split().ok_or(RefusalReason::MplsTruncated)?;
        let mut entry: &[u8; 4] = top;
        for _ in 1..LABELS {
            if is_bottom(entry) {
                break;
            }
            (entry, rest) = rest.split().ok_or(RefusalReason::MplsTruncated)?;
        }
        if !is_bottom(entry) {
            return Err(RefusalReason::TooManyHeaders);
        }
        let next = match rest.captured().first().ok_or(RefusalReason::MplsTruncated)? >> 4 {
            4 => Next::Ipv4,
            6 => Next::Ipv6,
            0 => {
                rest = rest.skip(CONTROL_WORD_BYTES).ok_or(RefusalReason::LinkTruncated)?;
                Next::Ethernet
            }
            _ => Next::Ethernet,
        };
        Ok((Self { top, next }, rest))
    }

    /// The label that was pushed last: 20 bits.
    #[inline]
    pub fn top_label(self) -> u32 {
        u32::from_be_bytes(*self.top) >> 12
    }

    /// What follows.
    #[inline]
    pub fn next(self) -> Next {
        self.next
    }
}

/// Whether a label is the last of its stack.
#[inline]
fn is_bottom(entry: &[u8; 4]) -> bool {
    entry[2] & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::build::*;
    use crate::{NO_VLAN, Network};

    #[test]
    fn the_first_bits_say_what_a_stack_carries() {
        for ethertype in [0x8847, 0x8848] {
            let v4 = decoded(&ethernet(ethertype, &mpls(&[17, 18], &udp_in_v4(5, 6, b"x")))).0;
            let v6 = decoded(&ethernet(ethertype, &mpls(&[0xfffff], &udp_in_v6(5, 6, b"x")))).0;
            assert_eq!((v4.network, v4.mpls_label, v4.source_port), (Network::Ipv4, 17, 5));
            assert_eq!((v6.network, v6.mpls_label, v6.source_port), (Network::Ipv6, 0xfffff, 5));
        }
    }

    #[test]
    fn ethernet_is_found_with_and_without_a_control_word_and_adds_its_tags() {
        let inner = ethernet(0x8100, &vlan(20, 0x8847, &mpls(&[99], &udp_in_v4(5, 6, b"x"))));
        let with = [&[0, 0, 0, 1], &inner[..]].concat();
        let without = [&[0x1e], &inner[1..]].concat();
        for payload in [with, without] {
            let packet = decoded(&ethernet(0x8100, &vlan(10, 0x8847, &mpls(&[17], &payload)))).0;
            assert_eq!((packet.vlan, packet.inner_vlan, packet.mpls_label, packet.source_port), (10, 20, 17, 5));
        }
    }

    #[test]
    fn ethernet_without_ip_in_a_stack_is_the_inner_frame() {
        let mut inner = ethernet(0x0806, &[0; 28]);
        inner[..6].fill(0xff);
        let packet = decoded(&ethernet(0x8847, &mpls(&[17], &inner))).0;
        assert_eq!((packet.network, packet.source_port, packet.mpls_label), (Network::Layer2, 0x0806, 17));
        assert_eq!(packet.destination[10..], [0xff; 6]);
        assert_eq!(packet.vlan, NO_VLAN);
    }

    #[test]
    fn a_stack_cut_anywhere_is_refused() {
        let frame = ethernet(0x8847, &mpls(&[17, 18], &[0, 0, 0, 0]));
        for cut in 14..=22 {
            assert_eq!(refused(1, &frame[..cut]), RefusalReason::MplsTruncated);
        }
        for cut in 23..=26 {
            assert_eq!(refused(1, &frame[..cut]), RefusalReason::LinkTruncated);
        }
    }

    #[test]
    fn a_stack_of_more_labels_than_the_bound_is_refused() {
        let frame = |labels: usize| ethernet(0x8847, &mpls(&vec![5; labels], &udp_in_v4(5, 6, b"x")));
        assert_eq!(decoded(&frame(LABELS)).0.source_port, 5);
        assert_eq!(refused(1, &frame(LABELS + 1)), RefusalReason::TooManyHeaders);
        assert_eq!(refused(1, &frame(LABELS + 1)[..14 + 4 * LABELS]), RefusalReason::TooManyHeaders);
        assert_eq!(refused(1, &frame(LABELS)[..14 + 4 * LABELS - 1]), RefusalReason::MplsTruncated);
    }
}
