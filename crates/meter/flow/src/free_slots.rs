//! The free slots of the flow cache, and which of them a new flow takes.
//!
//! Only TCP flows have a connection ([`crate::tcp_analysis`]), which is larger than the rest of a
//! slot. So they take slots from blocks of their own: the system then provides no memory for the
//! connections of other flows. Slots are used in order, which is why the blocks that come next are
//! known ahead ([`crate::memory_ahead`]). Few flows share the first slots, and if one kind of flow
//! has no slots left, it takes those of the other.
//!
//! ```text
//! 0          SHARED_SLOTS                                              used          capacity
//! | all flows | TCP | others | TCP, next | others, next | TCP, next ... |  unused     |
//! ```
//! Invariant: a slot below `used` is in use, freed, or left in a block.

use crate::mapped_array::MappedArray;
use crate::slot::TCP;
use std::io;
use std::ops::Range;

/// Slots that are used before flows have blocks of their own: 2 MiB of connections.
const SHARED_SLOTS: u32 = 4096;
/// Slots of a block: an eighth of those in use, within these bounds and a multiple of the first.
const BLOCK_SLOTS: [u32; 2] = [1024, 32 * 1024];

/// Flows that take the same slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowKind {
    Tcp,
    Other,
}

impl FlowKind {
    #[inline(always)]
    pub fn of(protocol: u8) -> Self {
        if protocol == TCP { Self::Tcp } else { Self::Other }
    }

    fn other(self) -> Self {
        if self == Self::Tcp { Self::Other } else { Self::Tcp }
    }
}

#[derive(Debug)]
pub(crate) struct FreeSlots {
    /// Freed slots: of TCP flows from the start on, of others from the end on. The last one is taken
    /// first.
    freed: MappedArray<u32>,
    counts: [usize; 2],
    /// What is left of the block of each kind of flow, and its next block.
    blocks: [[Range<u32>; 2]; 2],
    /// Slots that were ever used or are in a block: those below.
    pub used: u32,
}

impl FreeSlots {
    pub fn new(slots: usize) -> io::Result<Self> {
        let freed = MappedArray::with_small_pages(slots)?;
        Ok(Self { freed, counts: [0; 2], blocks: Default::default(), used: 0 })
    }

    pub fn memory_bytes_for(slots: usize) -> usize {
        slots * size_of::<u32>()
    }

    /// Takes a slot for a flow. Calls `reserved` for each block that is reserved.
    #[inline]
    pub fn take(&mut self, kind: FlowKind, reserved: impl FnMut(FlowKind, Range<u32>)) -> Option<u32> {
        self.take_freed(kind).or_else(|| self.take_next(kind, reserved))
    }

    fn take_next(&mut self, kind: FlowKind, mut reserved: impl FnMut(FlowKind, Range<u32>)) -> Option<u32> {
        if self.used < SHARED_SLOTS.min(self.freed.len() as u32) {
            self.used += 1;
            return Some(self.used - 1);
        }
        // At first both blocks are empty.
        for _ in 0..2 {
            if self.blocks[kind as usize][0].is_empty() {
                let next = self.reserve();
                if !next.is_empty() {
                    reserved(kind, next.clone());
                }
                let [block, after] = &mut self.blocks[kind as usize];
                *block = std::mem::replace(after, next);
            }
        }
        self.take_from_blocks(kind)
            .or_else(|| self.take_freed(kind.other()))
            .or_else(|| self.take_from_blocks(kind.other()))
    }

    fn take_from_blocks(&mut self, kind: FlowKind) -> Option<u32> {
        self.blocks[kind as usize].iter_mut().find_map(Iterator::next)
    }

    /// Reserves a block of unused slots; an empty one if there are none.
    fn reserve(&mut self) -> Range<u32> {
        let size = (self.used / 8 / BLOCK_SLOTS[0] * BLOCK_SLOTS[0]).clamp(BLOCK_SLOTS[0], BLOCK_SLOTS[1]);
        let start = self.used;
        self.used = start.saturating_add(size).min(self.freed.len() as u32);
        start..self.used
    }

    #[inline(always)]
    fn take_freed(&mut self, kind: FlowKind) -> Option<u32> {
        let count = self.counts[kind as usize].checked_sub(1)?;
        self.counts[kind as usize] = count;
        self.freed.get(self.place(kind, count)).copied()
    }

    /// Frees the slot of a flow.
    #[inline]
    pub fn free(&mut self, kind: FlowKind, slot: u32) {
        let place = self.place(kind, self.counts[kind as usize]);
        self.counts[kind as usize] += 1;
        self.freed[place] = slot;
    }

    #[inline(always)]
    fn place(&self, kind: FlowKind, number: usize) -> usize {
        if kind == FlowKind::Tcp { number } else { self.freed.len() - 1 - number }
    }

    pub fn has_freed(&self) -> bool {
        self.counts != [0; 2]
    }

    /// The slot that the `nth` next call of [`FreeSlots::take`] for this kind will probably return
    /// (`nth` from 1). May be out of bounds.
    #[inline(always)]
    pub fn nth(&self, kind: FlowKind, nth: usize) -> u32 {
        let freed = self.counts[kind as usize];
        match freed.checked_sub(nth).and_then(|number| self.freed.get(self.place(kind, number))) {
            Some(&slot) => slot,
            None => {
                let block = &self.blocks[kind as usize][0];
                let next = if block.is_empty() { self.used } else { block.start };
                next + (nth - 1 - freed) as u32
            }
        }
    }

    /// Forgets all free slots below `used`, and the slots from there on, which are taken again.
    pub fn forget(&mut self, used: u32) {
        (self.counts, self.blocks, self.used) = ([0; 2], Default::default(), used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FlowKind::{Other, Tcp};

    #[test]
    fn every_slot_is_taken_once_whatever_the_flows() {
        for slots in [1, 4095, 4096, 4097, 5000, 50_000, 300_000_u32] {
            for kind_of in [|_| Tcp, |_| Other, |number: u32| if number.is_multiple_of(3) { Tcp } else { Other }] {
                let mut free = FreeSlots::new(slots as usize).unwrap();
                let (mut taken, mut reserved) = (vec![false; slots as usize], 0);
                for number in 0..slots {
                    let slot = free.take(kind_of(number), |_, block| reserved += block.len()).unwrap();
                    assert!(!std::mem::replace(&mut taken[slot as usize], true) && slot < free.used);
                }
                assert_eq!((free.take(Tcp, |_, _| ()), free.take(Other, |_, _| ())), (None, None));
                assert_eq!(reserved as u32, slots.saturating_sub(SHARED_SLOTS));
                // All are freed as one kind and taken as the other.
                (0..slots).for_each(|slot| free.free(Tcp, slot));
                (0..slots).rev().for_each(|slot| assert_eq!(free.take(Other, |_, _| ()), Some(slot)));
                assert!(!free.has_freed());
            }
        }
    }

    #[test]
    fn kinds_of_flows_share_few_blocks() {
        let mut free = FreeSlots::new(1 << 20).unwrap();
        let kinds = [Tcp, Other, Other].into_iter().cycle().take(300_000);
        let slots: Vec<_> = kinds.map(|kind| (kind, free.take(kind, |_, _| ()).unwrap())).collect();
        let mixed = slots.iter().filter(|(kind, slot)| {
            *slot >= SHARED_SLOTS && slots.iter().step_by(997).any(|(k, s)| s / 1024 == slot / 1024 && k != kind)
        });
        assert_eq!(mixed.count(), 0);
        // Beyond those in use: what is left of two blocks, and two next blocks.
        assert!(free.used < 300_000 + 4 * BLOCK_SLOTS[1]);
    }

    #[test]
    fn the_next_slots_are_foreseen() {
        let mut free = FreeSlots::new(100_000).unwrap();
        for number in 0..50_000_u32 {
            let kind = if number % 5 < 3 { Tcp } else { Other };
            let (expected, end) = (free.nth(kind, 1), free.blocks[kind as usize][0].end);
            let slot = free.take(kind, |_, _| ()).unwrap();
            assert!(slot == expected || free.blocks[kind as usize][0].end != end);
            if number % 7 == 0 {
                free.free(kind, slot);
            }
        }
    }

    #[test]
    fn forgotten_slots_are_taken_again() {
        let mut free = FreeSlots::new(50_000).unwrap();
        (0..20_000).for_each(|_| assert!(free.take(Tcp, |_, _| ()).is_some()));
        free.free(Tcp, 3);
        free.forget(10_000);
        let left = std::iter::from_fn(|| free.take(Other, |_, _| ())).inspect(|&slot| assert!(slot >= 10_000));
        assert_eq!(left.count(), 40_000);
    }
}
