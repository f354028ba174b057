//! What a meter leaves out while there is too much to do, and what it must remember of that.
//!
//! In: which detail is wanted, from now on. Out: records that say what they lack. Always true: a packet is in a record, whatever is left out.

use crate::PageKind;
use crate::memory::Memory;
use std::io;

/// Packets that a new flow must have had before it is given a record of its own, while [`Detail::small_flows`] is off.
const SMALL: u32 = 8;
/// Flows of which packets are counted meanwhile: a power of two.
const NEWCOMERS: usize = 1 << 16;

/// How much a meter finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// TCP is analysed. Records with a TCP packet that was not are [`crate::Approximate::UNANALYSED`], and have nothing of TCP but its
    /// control bits.
    pub tcp_analysis: bool,
    /// New flows have records of their own from their first packet on. If not, the first 8 packets of a new flow are summed
    /// into overflow records by prefix and port ([`crate::Approximate::AGGREGATED`]). Flows that have a record go on as before.
    pub small_flows: bool,
}

impl Detail {
    /// Everything.
    pub const ALL: Self = Self { tcp_analysis: true, small_flows: true };
}

/// A yes or no for each place.
#[derive(Debug)]
pub(crate) struct Marks(Memory<u64>);

impl Marks {
    pub fn new(places: usize) -> io::Result<Self> {
        Ok(Self(Memory::new(Self::words(places), PageKind::Small)?))
    }

    fn words(places: usize) -> usize {
        places.div_ceil(64)
    }

    /// Octets that as many take.
    pub fn octets_for(places: usize) -> usize {
        Self::words(places) * size_of::<u64>()
    }

    pub fn octets(&self) -> usize {
        self.0.octets()
    }

    pub fn has(&self, at: u32) -> bool {
        self.0[at as usize / 64] >> (at % 64) & 1 != 0
    }

    #[inline(always)]
    pub fn set(&mut self, at: u32) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word |= 1 << (at % 64);
        }
    }

    pub fn clear(&mut self, at: u32) {
        self.0[at as usize / 64] &= !(1 << (at % 64));
    }
}

/// Packets of flows that have no record yet. A flow may push out another one, which then begins anew: large flows come
/// through all the same, as their packets follow each other soon.
#[derive(Debug)]
pub(crate) struct Newcomers(Memory<u32>);

impl Newcomers {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Memory::new(NEWCOMERS, PageKind::Small)?))
    }

    /// Octets of memory taken; the system gives pages when they are touched.
    pub const fn octets() -> usize {
        NEWCOMERS * size_of::<u32>()
    }

    /// Counts a packet of a flow by the hash of its key. Whether it has had so many before that it is no small one.
    pub fn enter(&mut self, hash: u64) -> bool {
        let entry = &mut self.0[(hash >> 8) as usize % NEWCOMERS];
        // 24 bits that are no part of the place, and 8 of the count.
        let tag = (hash >> 32) as u32 & !0xff;
        let before = if *entry & !0xff == tag { *entry & 0xff } else { 0 };
        *entry = tag | (before + 1).min(0xff);
        before >= SMALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_no_small_one_after_eight_packets_whoever_comes_between() {
        let mut newcomers = Newcomers::new().unwrap();
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for packet in 0..300 {
            assert_eq!(newcomers.enter(hash(1)), packet >= 8, "{packet}");
            // Mice, each of another flow: one of them takes the place of the first only once in a while.
            let mice = (0..10).filter(|mouse| newcomers.enter(hash(1000 + 10 * packet + mouse)));
            assert_eq!(mice.count(), 0);
        }
    }

    #[test]
    fn marks_stand_for_themselves() {
        let mut marks = Marks::new(130).unwrap();
        [0, 63, 64, 129].into_iter().for_each(|at| marks.set(at));
        marks.clear(63);
        let set: Vec<u32> = (0..130).filter(|&at| marks.has(at)).collect();
        assert_eq!(set, [0, 64, 129]);
    }
}
