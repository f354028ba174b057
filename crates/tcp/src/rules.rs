//! The numbers of `docs/tcp.md`, and what is asked of a packet.

use weir_packet::{Flags, Network, Packet};

/// Segments of a direction that are remembered, to know copies of them.
pub(crate) const REMEMBERED: usize = 4;
/// The same from the first copy on: where there is one there are mostly more, and bursts between them.
pub(crate) const REMEMBERED_DEEP: usize = 64;
/// A copy that is found behind so many others tells that more may be behind those that are remembered.
pub(crate) const SUSPICIOUS: usize = REMEMBERED - 1;
/// The same where 64 are remembered.
pub(crate) const SUSPICIOUS_DEEP: usize = REMEMBERED_DEEP / 2;
/// Holes of a direction that are kept apart.
pub const MAX_HOLES: usize = 32;
/// The largest window there can be (RFC 7323 section 2.3): what is so far away belongs to something else.
pub(crate) const FAR: u64 = 1 << 30;
/// An acknowledgment that moves so far lets what is remembered be forgotten: numbers come around.
pub(crate) const LEAP: u32 = 1 << 28;
/// How long after a hole opened what fills it counts as out of order, ns, if both round-trip times are not known.
pub(crate) const REORDERING_NS: u64 = 3_000_000;
/// How far apart in ticks a copy may be that is known by its IP identification: 50 ms. Some senders repeat a
/// segment with its identification, but none so soon (RFC 6298: 1 s; Linux: 200 ms).
pub(crate) const IDENTIFIED_COPY_TICKS: u32 = 48;
/// The same without one: between 1 and 2.1 ms.
pub(crate) const COPY_TICKS: u32 = 1;

const TICK_BITS: u32 = 24;

/// A time in units of 2^20 ns, modulo 4.9 hours.
#[inline(always)]
pub(crate) fn tick(time_ns: u64) -> u32 {
    (time_ns >> 20) as u32 & ((1 << TICK_BITS) - 1)
}

/// How far apart two ticks are.
pub(crate) fn ticks_between(one: u32, other: u32) -> u32 {
    let ahead = one.wrapping_sub(other) << (32 - TICK_BITS) >> (32 - TICK_BITS);
    ahead.min((1 << TICK_BITS) - ahead)
}

/// Whether the whole TCP header was there.
#[inline(always)]
pub(crate) fn is_segment(packet: &Packet) -> bool {
    packet.flags.has(Flags::TCP)
}

/// Whether it was there, and the packet is not in fragments.
#[inline(always)]
pub(crate) fn is_whole_segment(packet: &Packet) -> bool {
    packet.flags.0 & (Flags::TCP | Flags::FRAGMENT_FIRST) == Flags::TCP
}

/// Whether it is the first of the fragments of a packet: the rest of the payload is in others.
pub(crate) fn is_first_fragment(packet: &Packet) -> bool {
    packet.flags.has(Flags::FRAGMENT_FIRST)
}

/// Whether the IP identification tells one packet of its sender from the next.
#[inline(always)]
pub(crate) fn is_identified(packet: &Packet) -> bool {
    packet.network == Network::Ipv4 && packet.identification & 0xffff != 0
}

/// Whether a segment that is no copy is hardly sent twice at once: acknowledgments and RST are.
pub(crate) fn is_told_by_itself(payload_bytes: u32, control: u16) -> bool {
    control & Packet::RST == 0 && (payload_bytes > 0 || control & (Packet::SYN | Packet::FIN) != 0)
}

/// Whether one sequence number comes after another.
#[inline(always)]
pub(crate) fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// The position of a sequence number that is nearest to a known one.
pub(crate) fn near(known: u64, sequence: u32) -> u64 {
    known.wrapping_add_signed(i64::from(sequence.wrapping_sub(known as u32) as i32))
}

/// The position of the first sequence number that is known of a stream: there is room below.
pub(crate) fn first_position(sequence: u32) -> u64 {
    1 << 32 | u64::from(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_around() {
        assert_eq!(tick(1 << 44), 0);
        assert_eq!(ticks_between(0, (1 << 24) - 1), 1);
        assert_eq!(ticks_between((1 << 24) - 1, 0), 1);
        assert_eq!(ticks_between(7, 7), 0);
        assert_eq!(ticks_between(0, 1 << 23), 1 << 23);
        assert_eq!(tick(50_400_000) - tick(0), IDENTIFIED_COPY_TICKS);
    }
}
