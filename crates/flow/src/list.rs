//! Lists through slots: who came first, without a pointer or an allocation.
//!
//! A slot is in at most one list that shares the same [`Links`]. All steps are O(1).

use crate::bounded::list;
use std::collections::TryReserveError;

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// The links of all slots, kept apart from the slots so that moving one touches 8 octets of it.
#[derive(Debug)]
pub(crate) struct Links(Vec<[u32; 2]>);

/// First and last slot of one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Links {
    /// Room for `slots` slots, none of them in a list.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub fn new(slots: usize) -> Result<Self, TryReserveError> {
        let mut links = list(slots)?;
        links.resize(slots, [NONE; 2]);
        Ok(Self(links))
    }

    fn previous(&mut self, slot: u32) -> &mut u32 {
        &mut self.0[slot as usize][0]
    }

    fn next(&mut self, slot: u32) -> &mut u32 {
        &mut self.0[slot as usize][1]
    }
}

impl List {
    /// The slot that has been in the list for longest.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Puts a slot that is in no list at the end.
    pub fn push(&mut self, links: &mut Links, slot: u32) {
        links.0[slot as usize] = [self.last, NONE];
        match self.last {
            NONE => self.first = slot,
            last => *links.next(last) = slot,
        }
        self.last = slot;
    }

    /// Takes out a slot that is in this list.
    pub fn remove(&mut self, links: &mut Links, slot: u32) {
        let [previous, next] = links.0[slot as usize];
        match previous {
            NONE => self.first = next,
            previous => *links.next(previous) = next,
        }
        match next {
            NONE => self.last = previous,
            next => *links.previous(next) = previous,
        }
    }

    /// Moves a slot of this list to its end.
    pub fn renew(&mut self, links: &mut Links, slot: u32) {
        if self.last != slot {
            self.remove(links, slot);
            self.push(links, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(list: &List, links: &Links) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = list.first;
        while at != NONE {
            found.push(at);
            at = links.0[at as usize][1];
        }
        found
    }

    #[test]
    fn renewing_and_removing_keep_the_order_of_the_rest() {
        let (mut links, mut list) = (Links::new(4).unwrap(), List::default());
        (0..4).for_each(|slot| list.push(&mut links, slot));
        list.renew(&mut links, 1);
        assert_eq!(order(&list, &links), [0, 2, 3, 1]);
        list.renew(&mut links, 1);
        list.remove(&mut links, 0);
        list.remove(&mut links, 3);
        assert_eq!(order(&list, &links), [2, 1]);
        list.remove(&mut links, 1);
        list.remove(&mut links, 2);
        assert_eq!((list.first(), order(&list, &links)), (None, vec![]));
        list.push(&mut links, 3);
        assert_eq!(order(&list, &links), [3]);
    }
}
