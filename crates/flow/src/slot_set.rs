//! A set of flow slots.

use crate::memory::Memory;
use std::io;

/// One bit per slot.
#[derive(Debug)]
pub(crate) struct SlotSet(Memory<u64>);

impl SlotSet {
    /// An empty set.
    pub fn new(slots: usize) -> io::Result<Self> {
        Ok(Self(Memory::with_small_pages(slots.div_ceil(64))?))
    }

    pub fn memory_bytes_for(slots: usize) -> usize {
        slots.div_ceil(64) * size_of::<u64>()
    }

    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    pub fn contains(&self, slot: u32) -> bool {
        self.0[slot as usize / 64] >> (slot % 64) & 1 != 0
    }

    #[inline(always)]
    pub fn insert(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    pub fn remove(&mut self, slot: u32) {
        self.0[slot as usize / 64] &= !(1 << (slot % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_inserted_slots_only() {
        let mut set = SlotSet::new(130).unwrap();
        [0, 63, 64, 129].into_iter().for_each(|slot| set.insert(slot));
        set.remove(63);
        let found: Vec<u32> = (0..130).filter(|&slot| set.contains(slot)).collect();
        assert_eq!(found, [0, 64, 129]);
    }
}
