//! The fields of a packet that the analysis reads, and the digest by which it detects duplicates.

use crate::rules::identification;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::mem::offset_of;
use std::sync::LazyLock;
use weir_packet::{Flags, Packet};

/// The fields of a segment that the analysis reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Capture time, ns.
    pub time_ns: u64,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Payload octets by the IP length.
    pub payload_bytes: u32,
    /// Digest of all fields that duplicates share: 31 bits, above one bit that is set.
    pub digest: u32,
    /// Window, not scaled. In segments with payload and without SYN, only zero or not matters.
    pub window: u16,
    /// Maximum segment size option in octets, or 0.
    pub maximum_segment_size: u16,
    /// Window scale option plus 1, or 0.
    pub window_scale: u8,
    /// The control bits FIN, SYN, RST and ACK, and [`Segment::FIRST_FRAGMENT`].
    pub control: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// IP identification, or 0 if there is none.
    pub identification: u16,
}

/// The control bits that the analysis reads.
pub(crate) const CONTROL: u16 = Packet::FIN | Packet::SYN | Packet::RST | Packet::ACK;

impl Segment {
    /// Bit of [`Segment::control`]: a first fragment; later fragments have the rest of the payload.
    pub const FIRST_FRAGMENT: u8 = 1 << 5;

    /// Reads a packet; `None` if it has no whole TCP header. All segments of a connection need the
    /// same key.
    #[inline]
    pub fn from_packet(packet: &Packet, key: &DigestKey) -> Option<Self> {
        packet.flags.has(Flags::TCP).then(|| Self {
            time_ns: packet.time_ns,
            sequence: packet.sequence,
            acknowledgment: packet.acknowledgment,
            payload_bytes: packet.payload_bytes,
            digest: digest(packet, key),
            window: packet.window,
            maximum_segment_size: packet.maximum_segment_size().unwrap_or(0),
            window_scale: packet.window_scale().map_or(0, |scale| scale + 1),
            control: (packet.control & CONTROL) as u8
                | if packet.flags.has(Flags::FRAGMENT_FIRST) { Self::FIRST_FRAGMENT } else { 0 },
            ttl: packet.ttl,
            identification: identification(packet),
        })
    }

    /// Whether it is the first segment of a handshake: SYN without ACK and RST.
    #[inline(always)]
    pub fn opens_connection(&self) -> bool {
        u16::from(self.control) & (Packet::SYN | Packet::ACK | Packet::RST) == Packet::SYN
    }

    /// Whether any of these control bits is set.
    pub(crate) fn has(&self, bits: u16) -> bool {
        u16::from(self.control) & bits != 0
    }
}

/// Words of a packet with fields that duplicates share: sequence and acknowledgment number; payload
/// length and identification; window and checksum.
const NUMBERS: usize = offset_of!(Packet, sequence) / 8;
const LENGTH: usize = offset_of!(Packet, payload_bytes) / 8;
const WINDOW: usize = offset_of!(Packet, window) / 8;
const _: () = assert!(
    offset_of!(Packet, acknowledgment) == 8 * NUMBERS + 4
        && offset_of!(Packet, identification) == 8 * LENGTH + 4
        && offset_of!(Packet, window) == 8 * WINDOW + 4
        && offset_of!(Packet, icmp_or_checksum) == 8 * WINDOW + 6
);

/// Secret key of the digests. It keeps senders from crafting a segment with the digest of another.
#[derive(Clone, Copy, Debug)]
pub struct DigestKey([u64; 3]);

impl DigestKey {
    /// The key of this process: random, and the same for all connections.
    pub fn of_this_process() -> Self {
        static KEY: LazyLock<DigestKey> = LazyLock::new(|| {
            let [one, two, three] = [(); 3].map(|()| RandomState::new().build_hasher().finish());
            DigestKey([one, two, three | 1])
        });
        *KEY
    }
}

/// Digest of sequence and acknowledgment number, payload length, control bits, window, checksum and
/// identification: 31 bits, above one bit that is set. Two segments that differ in any of these
/// collide with probability 2^-31.
#[inline(always)]
pub(crate) fn digest(packet: &Packet, key: &DigestKey) -> u32 {
    let words = packet.words();
    let rest = words[WINDOW] >> 32 << 16 | u64::from(packet.control);
    let DigestKey([numbers_key, length_key, rest_key]) = *key;
    let numbers = words[NUMBERS] ^ numbers_key;
    let length = words[LENGTH] ^ length_key;
    let product = u128::from(numbers) * u128::from(length);
    // The digest is the upper half of this word: the checksum does not reach the lower one.
    let word = (product >> 64) as u64 ^ product as u64 ^ rest.wrapping_mul(rest_key);
    (word >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_every_bit_that_duplicates_share() {
        let key = DigestKey::of_this_process();
        let packet = Packet { sequence: 0x1234_5678, acknowledgment: 77, payload_bytes: 1448, ..Packet::default() };
        for bit in 0..32 {
            let (in_32, in_16) = (1 << bit, 1 << (bit % 16));
            for changed in [
                Packet { sequence: packet.sequence ^ in_32, ..packet },
                Packet { acknowledgment: packet.acknowledgment ^ in_32, ..packet },
                Packet { payload_bytes: packet.payload_bytes ^ in_32, ..packet },
                Packet { identification: packet.identification ^ in_32, ..packet },
                Packet { control: packet.control ^ in_16, ..packet },
                Packet { window: packet.window ^ in_16, ..packet },
                Packet { icmp_or_checksum: in_16.to_le_bytes(), ..packet },
            ] {
                assert_ne!(digest(&changed, &key), digest(&packet, &key), "{changed:?}");
            }
        }
    }
}
