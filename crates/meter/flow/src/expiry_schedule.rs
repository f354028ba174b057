//! Which slots have to be examined for expiry: one due time per slot and a cursor that scans them.
//!
//! A due time is a lower bound: a slot may expire later, never earlier. It is written when a flow
//! starts and when an examined slot has not expired, not per packet. The cursor passes over all
//! slots in turn (the CLOCK algorithm, decisions/0005).
//! Invariant: a slot that expires at clock time t is found by the first scan after t that reaches
//! it.

use crate::instructions::at_most;
use crate::mapped_array::MappedArray;
use std::io;

/// Slots scanned per chunk of packets.
pub(crate) const SCANNED_SLOTS: usize = 256;
/// Due tick of a free slot: later than any clock time.
const NEVER: i32 = i32::MAX;
/// A tick is 2^24 ns, 17 ms.
const TICK_SHIFT: u32 = 24;
/// Ticks are rebased after 2^30 of them, 208 days. A deadline may be another 208 days ahead.
const REBASE_NS: u64 = 1 << (30 + TICK_SHIFT);

#[derive(Debug)]
pub(crate) struct ExpirySchedule {
    /// Per slot, the tick before which nothing expires there.
    due: MappedArray<i32>,
    /// The slot that is scanned next.
    cursor: u32,
    /// Clock time from which ticks are counted.
    ticks_from_ns: u64,
}

impl ExpirySchedule {
    pub fn new(slots: usize, now_ns: u64) -> io::Result<Self> {
        Ok(Self { due: MappedArray::with_huge_pages(slots)?, cursor: 0, ticks_from_ns: now_ns })
    }

    pub fn memory_bytes_for(slots: usize) -> usize {
        slots * size_of::<i32>()
    }

    /// Sets the clock time before which nothing expires in a slot.
    pub fn set(&mut self, slot: u32, deadline_ns: u64) {
        self.due[slot as usize] = self.tick(deadline_ns);
    }

    pub fn clear(&mut self, slot: u32) {
        self.due[slot as usize] = NEVER;
    }

    /// Marks all slots in use as due, so that each is examined once.
    pub fn mark_all_due(&mut self, used: u32) {
        self.due[..used as usize].iter_mut().filter(|due| **due != NEVER).for_each(|due| *due = 0);
    }

    pub fn is_due(&self, slot: u32, now_ns: u64) -> bool {
        self.due[slot as usize] <= self.tick(now_ns)
    }

    #[inline(always)]
    pub fn rebase_ticks(&mut self, used: u32, now_ns: u64) {
        if now_ns.saturating_sub(self.ticks_from_ns) > REBASE_NS {
            self.ticks_from_ns = now_ns;
            self.mark_all_due(used);
        }
    }

    /// Moves the cursor over the next [`SCANNED_SLOTS`] slots and reports those that are due.
    #[inline(always)]
    pub fn scan(&mut self, used: u32, now_ns: u64, mut report: impl FnMut(u32)) {
        let (now, used) = (self.tick(now_ns), used as usize);
        let mut left = SCANNED_SLOTS.min(used);
        while left > 0 {
            let from = self.cursor as usize;
            let run = left.min(used - from);
            report_due(&self.due[from..from + run], from, now, &mut report);
            left -= run;
            self.cursor = if from + run == used { 0 } else { (from + run) as u32 };
        }
    }

    /// Reports the due slots that the scan after the next one will find, without moving the cursor.
    #[inline(always)]
    pub fn scan_ahead(&self, used: u32, now_ns: u64, report: impl FnMut(u32)) {
        let from = self.cursor as usize + SCANNED_SLOTS;
        if let Some(due) = self.due[..used as usize].get(from..from + SCANNED_SLOTS) {
            report_due(due, from, self.tick(now_ns), report);
        }
    }

    /// The slot at the cursor; moves the cursor on.
    pub fn advance_cursor(&mut self, used: u32) -> u32 {
        let slot = self.cursor;
        self.cursor = if slot + 1 >= used { 0 } else { slot + 1 };
        slot
    }

    pub fn reset_cursor(&mut self) {
        self.cursor = 0;
    }

    /// A clock time in ticks, rounded down.
    #[inline(always)]
    fn tick(&self, clock_ns: u64) -> i32 {
        (clock_ns.saturating_sub(self.ticks_from_ns) >> TICK_SHIFT).min(NEVER as u64 - 1) as i32
    }
}

/// Reports the slots that are due among those from number `from` on.
#[inline(always)]
fn report_due(due: &[i32], from: usize, now: i32, mut report: impl FnMut(u32)) {
    let (groups, rest) = due.as_chunks::<32>();
    let mut first = from as u32;
    for group in groups {
        // One bit per due slot. Most groups have none.
        let mut bits = at_most(group, now);
        while bits != 0 {
            report(first + bits.trailing_zeros());
            bits &= bits - 1;
        }
        first += 32;
    }
    (first..).zip(rest).filter(|&(_, &due)| due <= now).for_each(|(slot, _)| report(slot));
}
