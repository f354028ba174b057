//! The state of one side of a connection, and the fast path for its ordinary segments.
//!
//! [`HotSide`] is what nearly every segment changes, [`ColdSide`] what only few do: one cache line
//! each. All zero is a side that has sent nothing.

use crate::history::history_entry;
use crate::rules::{ACKNOWLEDGMENT_JUMP, DEEP_HISTORY, HISTORY};
use crate::segment::Segment;
use bytemuck::{Pod, Zeroable};
use weir_packet::Packet;

/// State that nearly every segment changes.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub(crate) struct HotSide {
    /// Position after the highest one seen.
    pub next_position: u64,
    /// Octets seen for the first time in this record.
    pub unique_bytes: u64,
    /// Segments in order in this record.
    pub in_order: u32,
    /// Greatest acknowledgment number sent.
    pub acknowledged: u32,
    /// Window of the last segment without payload.
    pub window: u16,
    /// Flags below; above them, the number of segments remembered so far, modulo [`DEEP_HISTORY`].
    pub flags_and_history_number: u16,
    /// Its entry in the anomaly pool: the index plus 1; 0 for none.
    pub entry_number: u32,
    /// The last remembered segments ([`crate::history`]). With [`HotSide::HAS_DEEP_HISTORY`], the
    /// pool entry has more.
    pub recent: [u64; HISTORY],
}

/// State of the beginning and end of the connection.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub(crate) struct ColdSide {
    pub lowest_position: u64,
    /// Time at which the positions started.
    pub started_ns: u64,
    pub syn_ns: u64,
    /// Time of the last retransmission of that SYN.
    pub last_syn_ns: u64,
    pub fin_position: u64,
    pub fin_ns: u64,
    /// Plus 1, or 0.
    pub handshake_rtt_ns: u64,
    pub maximum_segment_size: u16,
    pub syn_window: u16,
    /// Window scale plus 1 in the low 4 bits; flags above.
    pub scale_and_flags: u8,
    pub syns: u8,
    pub fins: u8,
    pub resets: u8,
}

const _: () = assert!(size_of::<HotSide>() == 64 && size_of::<ColdSide>() == 64);

/// One remembered segment in [`HotSide::flags_and_history_number`].
const REMEMBERED: u16 = 1 << 10;
const _: () = assert!((u16::MAX / REMEMBERED) as usize + 1 == DEEP_HISTORY);

/// Value of [`HotSide::in_order`] from which it is moved to the pool entry.
pub(crate) const IN_ORDER_LIMIT: u32 = 1 << 31;

impl HotSide {
    /// Flags: positions are known.
    pub const STARTED: u16 = 1;
    /// The side has acknowledged something.
    pub const ACKED: u16 = 1 << 1;
    /// The last window that it announced was 0.
    pub const ZERO_WINDOW: u16 = 1 << 2;
    /// The position of its SYN is known: the one before the lowest.
    pub const SYN: u16 = 1 << 3;
    /// The position of its FIN is known.
    pub const FIN: u16 = 1 << 4;
    /// Its last segment with payload or FIN was out of window.
    pub const LAST_OUT_OF_WINDOW: u16 = 1 << 5;
    /// The options of its SYN are known.
    pub const OPTIONS: u16 = 1 << 6;
    /// It has sent FIN or RST.
    pub const ENDED: u16 = 1 << 7;
    /// The pool entry holds a deep history, because a duplicate was found.
    pub const HAS_DEEP_HISTORY: u16 = 1 << 8;

    /// Processes a segment that only brings the next octets, or only acknowledges more than before.
    /// Returns false and changes nothing for any other segment.
    #[inline(always)]
    pub fn classify_fast(&mut self, segment: &Segment, digest: impl FnOnce() -> u32) -> bool {
        let advance = segment.acknowledgment.wrapping_sub(self.acknowledged);
        if u16::from(segment.control) != Packet::ACK || segment.window == 0 || advance >= ACKNOWLEDGMENT_JUMP {
            return false;
        }
        let next = self.next_position as u32;
        if segment.payload_bytes == 0 {
            let known = self.flags_and_history_number & (Self::ACKED | Self::ZERO_WINDOW | Self::HAS_DEEP_HISTORY)
                == Self::ACKED;
            // The sequence number before the next is that of a keep-alive.
            if !known || advance == 0 || segment.sequence == next.wrapping_sub(1) {
                return false;
            }
            self.window = segment.window;
        } else {
            let known = self.flags_and_history_number
                & (Self::STARTED | Self::ACKED | Self::ZERO_WINDOW | Self::LAST_OUT_OF_WINDOW | Self::HAS_DEEP_HISTORY)
                == Self::STARTED | Self::ACKED
                && self.in_order < IN_ORDER_LIMIT;
            // One octet may be a zero-window probe. More than 64 KiB is a jumbogram or a false
            // length.
            if !known || segment.sequence != next || segment.payload_bytes.wrapping_sub(2) >= 1 << 16 {
                return false;
            }
            self.next_position += u64::from(segment.payload_bytes);
            self.unique_bytes += u64::from(segment.payload_bytes);
            self.in_order += 1;
        }
        self.acknowledged = segment.acknowledgment;
        self.remember(digest(), segment.ttl, segment.time_ns);
        true
    }

    #[inline(always)]
    pub fn remember(&mut self, digest: u32, ttl: u8, time_ns: u64) {
        self.recent[self.history_number() % HISTORY] = history_entry(digest, ttl, time_ns);
        self.flags_and_history_number = self.flags_and_history_number.wrapping_add(REMEMBERED);
    }

    /// Number of the next history entry: the segments remembered so far, modulo [`DEEP_HISTORY`].
    #[inline(always)]
    pub fn history_number(&self) -> usize {
        usize::from(self.flags_and_history_number / REMEMBERED)
    }

    /// Whether any of these flags is set.
    pub fn has(&self, flags: u16) -> bool {
        self.flags_and_history_number & flags != 0
    }

    pub fn set(&mut self, flag: u16, value: bool) {
        self.flags_and_history_number =
            if value { self.flags_and_history_number | flag } else { self.flags_and_history_number & !flag };
    }
}

impl ColdSide {
    /// Flags: its SYN acknowledged one of the other side.
    pub const SYN_ACKED: u8 = 1 << 4;
    /// It sent SYN or FIN at different positions.
    pub const SEVERAL_SYN_OR_FIN: u8 = 1 << 5;
    /// The anomaly pool was full, in this record or before: a hole may not have been recorded.
    pub const POOL_FULL: u8 = 1 << 6;
    /// It has sent RST.
    pub const RESET: u8 = 1 << 7;

    pub fn has(&self, flags: u8) -> bool {
        self.scale_and_flags & flags != 0
    }
}
