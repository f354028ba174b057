//! The limits of `docs/tcp.md`, and predicates of single segments.

use weir_packet::{Flags, Network, Packet};

/// Segments of a side that are remembered as possible originals of duplicates.
pub(crate) const HISTORY: usize = 4;
/// The same from the first duplicate on: where there is one, more follow, often in bursts.
pub(crate) const DEEP_HISTORY: usize = 64;
/// Age of an original from which duplicates of older segments may have been missed.
pub(crate) const LATE_AGE: usize = HISTORY - 1;
/// The same with [`DEEP_HISTORY`].
pub(crate) const LATE_AGE_DEEP: usize = DEEP_HISTORY / 2;
/// Most holes that are recorded for a side.
pub const MAX_HOLES: usize = 32;
/// Largest possible window (RFC 7323 section 2.3). Positions this far apart do not belong together.
pub(crate) const MAX_WINDOW: u64 = 1 << 30;
/// An acknowledgment that advances this far clears the history: sequence numbers wrap.
pub(crate) const ACKNOWLEDGMENT_JUMP: u32 = 1 << 28;
/// Longest age of a hole whose filling counts as out of order, if the round-trip time is unknown.
pub(crate) const DEFAULT_REORDERING_NS: u64 = 3_000_000;
/// Longest distance in ticks between a segment and its duplicate with the same IP identification:
/// 50 ms. Some senders retransmit with the same identification, but none this soon (RFC 6298: 1 s;
/// Linux: 200 ms).
pub(crate) const IDENTIFIED_DUPLICATE_TICKS: u32 = 48;
/// Most by which the identification of a segment that opens a hole is ahead of that of the segment
/// in order before it: with more, the sender does not count. A segment out of order is less far behind
/// the one that opened the hole.
pub(crate) const COUNTED_IDENTIFICATIONS: u16 = 1 << 10;
/// Most by which the identification of an unseen retransmission is ahead of that of the segment
/// that opened the hole: what the sender sent in between.
pub(crate) const NEWER_IDENTIFICATIONS: u16 = 1 << 13;
/// Longest age of a hole whose filling counts as out of order because of its identification. Some
/// senders retransmit with the identification of the original, most of them by a timer (RFC 6298:
/// 1 s; Linux: 200 ms).
pub(crate) const IDENTIFIED_REORDERING_NS: u64 = 200_000_000;
/// Ticks without identification: between 1 and 2.1 ms.
pub(crate) const DUPLICATE_TICKS: u32 = 1;

const TICK_BITS: u32 = 24;

/// A time in units of 2^20 ns, modulo 4.9 hours.
#[inline(always)]
pub(crate) fn tick(time_ns: u64) -> u32 {
    (time_ns >> 20) as u32 & ((1 << TICK_BITS) - 1)
}

/// Distance of two ticks.
#[inline]
pub(crate) fn ticks_between(one: u32, other: u32) -> u32 {
    let ahead = one.wrapping_sub(other) << (32 - TICK_BITS) >> (32 - TICK_BITS);
    ahead.min((1 << TICK_BITS) - ahead)
}

/// Whether the packet has a whole TCP header and is not fragmented.
#[inline(always)]
pub(crate) fn is_unfragmented_segment(packet: &Packet) -> bool {
    packet.flags.0 & (Flags::TCP | Flags::FRAGMENT_FIRST) == Flags::TCP
}

/// The IP identification, if it may distinguish packets of one sender; 0 if there is none.
#[inline(always)]
pub(crate) fn identification(packet: &Packet) -> u16 {
    if packet.network == Network::Ipv4 { packet.identification as u16 } else { 0 }
}

/// The identification of a segment that opens a hole; 0 if its sender does not count them. `before`
/// is that of the last segment in order or SYN before it. It is 0 after a SYN with ACK of Linux,
/// which counts.
pub(crate) fn counted_identification(before: u16, identification: u16) -> u16 {
    let is_counted = before == 0 || is_ahead(identification, before, COUNTED_IDENTIFICATIONS);
    if is_counted { identification } else { 0 }
}

/// Whether a segment that fills a hole was sent before the one that opened the hole, by the
/// identifications of both; `None` if they do not decide.
pub(crate) fn is_sent_before(filling: u16, opening: u16, age_ns: u64) -> Option<bool> {
    if filling == 0 || opening == 0 {
        return None;
    }
    let is_after = is_ahead(filling, opening, NEWER_IDENTIFICATIONS);
    let is_before = age_ns <= IDENTIFIED_REORDERING_NS && is_ahead(opening, filling, COUNTED_IDENTIFICATIONS);
    (is_after || is_before).then_some(is_before)
}

/// Whether an identification is ahead of another, by `most` at most.
fn is_ahead(one: u16, other: u16, most: u16) -> bool {
    one != other && one.wrapping_sub(other) <= most
}

/// Whether senders do not transmit this kind of segment twice at once. They do so with pure
/// acknowledgments and RST, which are therefore duplicates only by their IP identification.
pub(crate) fn is_sent_once(payload_bytes: u32, control: u16) -> bool {
    control & Packet::RST == 0 && (payload_bytes > 0 || control & (Packet::SYN | Packet::FIN) != 0)
}

/// Whether sequence number `one` comes after `other`.
#[inline(always)]
pub(crate) fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// The position of a sequence number that is nearest to a known position.
pub(crate) fn nearest_position(known: u64, sequence: u32) -> u64 {
    known.wrapping_add_signed(i64::from(sequence.wrapping_sub(known as u32) as i32))
}

/// The position of the first known sequence number of a stream. Lower positions remain available.
pub(crate) fn initial_position(sequence: u32) -> u64 {
    1 << 32 | u64::from(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_wrap() {
        assert_eq!(tick(1 << 44), 0);
        assert_eq!(ticks_between(0, (1 << 24) - 1), 1);
        assert_eq!(ticks_between((1 << 24) - 1, 0), 1);
        assert_eq!(ticks_between(7, 7), 0);
        assert_eq!(ticks_between(0, 1 << 23), 1 << 23);
        assert_eq!(tick(50_400_000) - tick(0), IDENTIFIED_DUPLICATE_TICKS);
    }

    #[test]
    fn sender_counts_if_the_next_identification_is_a_little_ahead() {
        for (before, identification, counts) in [
            (7, 8, true),
            (7, 7 + 1024, true),
            (7, 7 + 1025, false),
            (7, 7, false),
            (7, 6, false),
            (0xffff, 1, true),
            (0xfff0, 0x03f0, true),
            (0xfff0, 0x03f1, false),
            (0, 40_000, true),
            (5, 40_000, false),
        ] {
            let expected = if counts { identification } else { 0 };
            assert_eq!(counted_identification(before, identification), expected, "{before} {identification}");
        }
    }

    #[test]
    fn identification_tells_whether_a_segment_was_sent_before_another() {
        let (soon, late) = (200_000_000, 200_000_001);
        for (filling, opening, age_ns, expected) in [
            (101, 100, 0, Some(false)),
            (100 + 8192, 100, late, Some(false)),
            (100 + 8193, 100, 0, None),
            (99, 100, 0, Some(true)),
            (99, 100, soon, Some(true)),
            (99, 100, late, None),
            (1000, 2024, soon, Some(true)),
            (1000, 2025, 0, None),
            (100, 100, 0, None),
            (3, 0xfffe, 0, Some(false)),
            (0xfffe, 3, 0, Some(true)),
            (0, 100, 0, None),
            (100, 0, 0, None),
            (0, 0xffff, 0, None),
        ] {
            assert_eq!(is_sent_before(filling, opening, age_ns), expected, "{filling} {opening} {age_ns}");
        }
    }
}
