//! What is read of a packet.

use crate::rules::{is_first_fragment, is_identified, is_segment};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::mem::offset_of;
use std::sync::LazyLock;
use weir_packet::Packet;

/// What the analysis reads of a segment, wherever it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// By the capture, ns.
    pub time_ns: u64,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Octets of payload by the IP length.
    pub payload_bytes: u32,
    /// Digest of all that copies have in common: 31 bits above one that is set.
    pub mark: u32,
    /// Window, not scaled. Of segments with payload and no SYN only whether it is 0 matters.
    pub window: u16,
    /// As [`Packet::maximum_segment`], or 0.
    pub maximum_segment_size: u16,
    /// As [`Packet::window_scale`], plus 1, or 0.
    pub window_scale: u8,
    /// The control bits FIN, SYN, RST and ACK; and [`Segment::FRAGMENT`].
    pub control: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Its IP identification tells it from other packets of its sender.
    pub identified: bool,
}

/// The control bits that matter.
pub(crate) const CONTROL: u16 = Packet::FIN | Packet::SYN | Packet::RST | Packet::ACK;

impl Segment {
    /// In [`Segment::control`]: it is the first fragment of a packet.
    pub const FRAGMENT: u8 = 1 << 5;

    /// What a packet has of it, if it has a whole TCP header. Segments of one connection are of one secret.
    #[inline]
    pub fn of(packet: &Packet, secret: &DigestKey) -> Option<Self> {
        is_segment(packet).then(|| Self {
            time_ns: packet.time_ns,
            sequence: packet.sequence,
            acknowledgment: packet.acknowledgment,
            payload_bytes: packet.payload_bytes,
            mark: mark(packet, secret),
            window: packet.window,
            maximum_segment_size: packet.maximum_segment_size().unwrap_or(0),
            window_scale: packet.window_scale().map_or(0, |scale| scale + 1),
            control: (packet.control & CONTROL) as u8 | if is_first_fragment(packet) { Self::FRAGMENT } else { 0 },
            ttl: packet.ttl,
            identified: is_identified(packet),
        })
    }

    /// Whether a control bit is set.
    pub(crate) fn has(&self, bit: u16) -> bool {
        u16::from(self.control) & bit != 0
    }
}

/// The words of a packet that copies have in common: both numbers; payload and identification; window and checksum.
const NUMBERS: usize = offset_of!(Packet, sequence) / 8;
const LENGTH: usize = offset_of!(Packet, payload_bytes) / 8;
const WINDOW: usize = offset_of!(Packet, window) / 8;
const _: () = assert!(
    offset_of!(Packet, acknowledgment) == 8 * NUMBERS + 4
        && offset_of!(Packet, identification) == 8 * LENGTH + 4
        && offset_of!(Packet, window) == 8 * WINDOW + 4
        && offset_of!(Packet, icmp_or_checksum) == 8 * WINDOW + 6
);

/// The key of the marks, so that no sender can choose a segment with the mark of another.
#[derive(Clone, Copy, Debug)]
pub struct DigestKey([u64; 3]);

impl DigestKey {
    /// Another one in every process, where all connections have the same.
    pub fn of_this_process() -> Self {
        static SECRET: LazyLock<DigestKey> = LazyLock::new(|| {
            let [one, two, three] = [(); 3].map(|()| RandomState::new().build_hasher().finish());
            DigestKey([one, two, three | 1])
        });
        *SECRET
    }
}

/// A digest of both numbers, payload, control bits, window, checksum and identification: 31 bits above one that is set.
/// Two segments that differ in any of it have the same one by chance in one of 2^31 cases.
#[inline(always)]
pub(crate) fn mark(packet: &Packet, secret: &DigestKey) -> u32 {
    let words = packet.words();
    let more = words[WINDOW] >> 32 << 16 | u64::from(packet.control);
    let DigestKey([for_numbers, for_length, for_more]) = *secret;
    let one = words[NUMBERS] ^ for_numbers;
    let other = words[LENGTH] ^ for_length;
    let product = u128::from(one) * u128::from(other);
    // The upper half: what lies below does not know of the checksum.
    let digest = (product >> 64) as u64 ^ product as u64 ^ more.wrapping_mul(for_more);
    (digest >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_that_copies_have_in_common_is_in_the_mark() {
        let secret = DigestKey::of_this_process();
        let packet = Packet { sequence: 0x1234_5678, acknowledgment: 77, payload_bytes: 1448, ..Packet::default() };
        for bit in 0..32 {
            let (wide, narrow) = (1 << bit, 1 << (bit % 16));
            for changed in [
                Packet { sequence: packet.sequence ^ wide, ..packet },
                Packet { acknowledgment: packet.acknowledgment ^ wide, ..packet },
                Packet { payload_bytes: packet.payload_bytes ^ wide, ..packet },
                Packet { identification: packet.identification ^ wide, ..packet },
                Packet { control: packet.control ^ narrow, ..packet },
                Packet { window: packet.window ^ narrow, ..packet },
                Packet { icmp_or_checksum: narrow.to_le_bytes(), ..packet },
            ] {
                assert_ne!(mark(&changed, &secret), mark(&packet, &secret), "{changed:?}");
            }
        }
    }
}
