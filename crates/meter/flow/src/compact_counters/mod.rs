//! Counters of one direction of one record in a cache line.
//!
//! They are exact. A direction with a packet that does not fit (a jumbogram, the 2^28th packet of a
//! record, a packet hours later) moves to full counters (`full_counters.rs`). `iat`: inter-arrival
//! time (`docs/metering.md` section 6). The sum of these times is the time from the earliest to the
//! latest packet and needs no field; that of their squares is below 2^88.

use crate::Direction;
use bytemuck::Zeroable;
use std::mem::offset_of;
use weir_packet::Packet;

/// Counters of one direction; all zero without packets. Names list a word's highest bits first.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct CompactCounters {
    /// Earliest packet, ns since 1970 UTC.
    first_ns: u64,
    /// Time from the earliest to the latest packet, ns: 48 bits, below 2^44 at each check; the
    /// largest IP packet, octets: 16 bits.
    span_and_size_max: u64,
    /// IP octets: 48 bits; the smallest IP packet, octets: 16 bits.
    bytes_and_size_min: u64,
    /// Sum of squared sizes, octets².
    size_squares: u64,
    /// Octets of frames beyond IP, negative if IP lengths are wrong: 36 bits; packets: 28 bits.
    overhead_and_packets: u64,
    /// Sum of squared inter-arrival times, ns²: the low 64 bits.
    iat_squares: u64,
    /// Shortest one, ns: 48 bits, all ones if there is none; bits 64 to 79 of the sum of squares.
    iat_min_and_squares: u64,
    /// Longest one, ns: 48 bits; bits 80 to 87 of the sum of squares; first type of service.
    iat_max_squares_tos: u64,
}

const SPAN_BITS: u32 = 44;
const PACKET_BITS: u32 = 28;
const PACKETS_MAX: u64 = (1 << PACKET_BITS) - 1;
/// Values of the sum of squared inter-arrival times above its low 64 bits: 24 bits.
const HIGH_SQUARES: u64 = 1 << 24;
/// Counters are checked once in this many packets. Between two checks, inter-arrival times are
/// below 2^32 ns and their squares below 2^64 ns².
const CHECK_INTERVAL: u64 = 1 << 15;
/// Largest overhead at a check: up to the next check it grows by at most 2^16 octets a packet.
const OVERHEAD_MAX: i128 = (1 << 35) - ((CHECK_INTERVAL as i128) << 16);

/// The word of a packet that holds its two lengths.
const LENGTHS: usize = offset_of!(Packet, ip_bytes) / 8;
/// Bits of that word that are set if a length is 65 536 or more.
const OVERSIZE: u64 = 0xffff_0000_ffff_0000;
const _: () =
    assert!(offset_of!(Packet, ip_bytes) == 8 * LENGTHS && offset_of!(Packet, frame_bytes) == 8 * LENGTHS + 4);

impl CompactCounters {
    #[inline(always)]
    pub fn packets(&self) -> u64 {
        self.overhead_and_packets & PACKETS_MAX
    }

    /// Whether a packet fits as the first one.
    pub fn can_start(packet: &Packet) -> bool {
        packet.ip_bytes >> 16 == 0
    }

    /// Counts the first packet. Returns false and changes nothing if it does not fit.
    #[inline(always)]
    pub fn start(&mut self, packet: &Packet) -> bool {
        if !Self::can_start(packet) {
            return false;
        }
        let size = u64::from(packet.ip_bytes);
        *self = Self {
            first_ns: packet.time_ns,
            span_and_size_max: size,
            bytes_and_size_min: size << 16 | size,
            size_squares: size * size,
            overhead_and_packets: overhead(packet) << PACKET_BITS | 1,
            iat_squares: 0,
            iat_min_and_squares: !0xffff,
            iat_max_squares_tos: packet.tos.into(),
        };
        true
    }

    /// Time since the latest packet, ns, if [`CompactCounters::add_fast`] can count the packet: not
    /// the first, no check due, not older than the latest nor 2^32 ns younger, not oversized.
    #[inline(always)]
    pub fn fast_iat_ns(&self, packet: &Packet) -> Option<u64> {
        let latest_ns = self.first_ns + (self.span_and_size_max >> 16);
        let iat_ns = packet.time_ns.checked_sub(latest_ns)?;
        let check_due = self.overhead_and_packets.is_multiple_of(CHECK_INTERVAL);
        let fast = !check_due && iat_ns >> 32 == 0 && packet.words()[LENGTHS] & OVERSIZE == 0;
        fast.then_some(iat_ns)
    }

    /// Counts a packet that came `iat_ns` after the latest one.
    #[inline(always)]
    pub fn add_fast(&mut self, iat_ns: u64, packet: &Packet) {
        let size = u64::from(packet.ip_bytes);
        // Additions above bit 16 or 28 leave the lower field of a word as it is.
        self.overhead_and_packets = self.overhead_and_packets.wrapping_add((overhead(packet) << PACKET_BITS) + 1);
        self.span_and_size_max += iat_ns << 16;
        self.bytes_and_size_min += size << 16;
        self.size_squares += size * size;
        // A new extreme is rare: a branch is cheaper than rebuilding both words.
        if (size as u16) < self.bytes_and_size_min as u16 || size as u16 > self.span_and_size_max as u16 {
            self.set_size_extremes(size);
        }
        let (min, max) = (self.iat_min_and_squares, self.iat_max_squares_tos);
        self.iat_min_and_squares = min.min(iat_ns << 16 | min & 0xffff);
        self.iat_max_squares_tos = max.max(iat_ns << 16 | max & 0xffff);
        let (squares, carry) = self.iat_squares.overflowing_add(iat_ns * iat_ns);
        self.iat_squares = squares;
        if carry {
            self.carry_iat_squares();
        }
    }

    #[inline(never)]
    fn set_size_extremes(&mut self, size: u64) {
        let (min, max) = (self.bytes_and_size_min & 0xffff, self.span_and_size_max & 0xffff);
        self.bytes_and_size_min = self.bytes_and_size_min & !0xffff | min.min(size);
        self.span_and_size_max = self.span_and_size_max & !0xffff | max.max(size);
    }

    /// Counts any later packet. Returns false and changes nothing if it does not fit.
    #[cold]
    #[inline(never)]
    pub fn add_slow(&mut self, packet: &Packet) -> bool {
        let mut direction = self.to_direction();
        crate::record::add(&mut direction, packet);
        Self::from_direction(&direction).map(|counters| *self = counters).is_some()
    }

    #[cold]
    #[inline(never)]
    fn carry_iat_squares(&mut self) {
        let high = self.high_squares() + 1;
        self.iat_min_and_squares = self.iat_min_and_squares & !0xffff | high & 0xffff;
        self.iat_max_squares_tos = self.iat_max_squares_tos & !0xff00 | high >> 16 << 8;
    }

    /// The sum of squared inter-arrival times above its low 64 bits.
    fn high_squares(&self) -> u64 {
        self.iat_min_and_squares & 0xffff | (self.iat_max_squares_tos >> 8 & 0xff) << 16
    }

    /// A direction in compact form, if it fits now and after [`CHECK_INTERVAL`] more packets.
    fn from_direction(direction: &Direction) -> Option<Self> {
        let span_ns = direction.last_ns - direction.first_ns;
        let overhead = i128::from(direction.frame_bytes) - i128::from(direction.bytes);
        let fits = span_ns >> SPAN_BITS == 0
            && direction.size_max >> 16 == 0
            && direction.packets + CHECK_INTERVAL <= PACKETS_MAX
            && direction.iat_squares >> 64 <= (HIGH_SQUARES - CHECK_INTERVAL).into()
            && (-OVERHEAD_MAX..OVERHEAD_MAX).contains(&overhead);
        let high = (direction.iat_squares >> 64) as u64;
        let iat_min = if direction.packets < 2 { !0xffff } else { direction.iat_min_ns << 16 };
        fits.then(|| Self {
            first_ns: direction.first_ns,
            span_and_size_max: span_ns << 16 | u64::from(direction.size_max),
            bytes_and_size_min: direction.bytes << 16 | u64::from(direction.size_min),
            size_squares: direction.size_squares as u64,
            overhead_and_packets: (overhead as u64) << PACKET_BITS | direction.packets,
            iat_squares: direction.iat_squares as u64,
            iat_min_and_squares: iat_min | high & 0xffff,
            iat_max_squares_tos: direction.iat_max_ns << 16 | high >> 16 << 8 | u64::from(direction.tos),
        })
    }

    pub fn to_direction(self) -> Direction {
        let mut direction = Direction::NONE;
        if self.packets() > 0 {
            self.write_to(&mut direction);
        }
        direction
    }

    /// Writes the counters and the type of service; other fields of a direction are kept elsewhere.
    #[inline(always)]
    pub fn write_to(&self, direction: &mut Direction) {
        let packets = self.packets();
        let bytes = self.bytes_and_size_min >> 16;
        let overhead = self.overhead_and_packets as i64 >> PACKET_BITS;
        direction.packets = packets;
        direction.bytes = bytes;
        direction.frame_bytes = bytes.wrapping_add_signed(overhead);
        direction.first_ns = self.first_ns;
        direction.last_ns = self.first_ns + (self.span_and_size_max >> 16);
        direction.size_min = (self.bytes_and_size_min & 0xffff) as u32;
        direction.size_max = (self.span_and_size_max & 0xffff) as u32;
        direction.size_squares = self.size_squares.into();
        direction.iat_min_ns = if packets < 2 { 0 } else { self.iat_min_and_squares >> 16 };
        direction.iat_max_ns = self.iat_max_squares_tos >> 16;
        direction.iat_squares = u128::from(self.high_squares()) << 64 | u128::from(self.iat_squares);
        direction.tos = self.iat_max_squares_tos as u8;
    }
}

/// Octets of the frame beyond the IP packet; wraps below 0 if the IP header claims too many.
#[inline(always)]
fn overhead(packet: &Packet) -> u64 {
    u64::from(packet.frame_bytes).wrapping_sub(packet.ip_bytes.into())
}

#[cfg(test)]
mod tests;
