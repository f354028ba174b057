//! Doubly linked lists of entry numbers, without allocation.
//!
//! An entry is in at most one list of the same [`Links`]. All operations are O(1).

use crate::bounded::vec_with_capacity;
use std::collections::TryReserveError;

/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// Previous and next entry of each entry.
#[derive(Debug)]
pub(crate) struct Links(Vec<[u32; 2]>);

/// First and last entry of a list.
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
    /// Links of `entries` entries, none of them in a list.
    pub fn new(entries: usize) -> Result<Self, TryReserveError> {
        let mut links = vec_with_capacity(entries)?;
        links.resize(entries, [NONE; 2]);
        Ok(Self(links))
    }

    fn previous(&mut self, entry: u32) -> &mut u32 {
        &mut self.0[entry as usize][0]
    }

    fn next(&mut self, entry: u32) -> &mut u32 {
        &mut self.0[entry as usize][1]
    }
}

impl List {
    /// The entry that has been in the list for longest.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends an entry that is in no list.
    pub fn push(&mut self, links: &mut Links, entry: u32) {
        links.0[entry as usize] = [self.last, NONE];
        match self.last {
            NONE => self.first = entry,
            last => *links.next(last) = entry,
        }
        self.last = entry;
    }

    /// Removes an entry of this list.
    pub fn remove(&mut self, links: &mut Links, entry: u32) {
        let [previous, next] = links.0[entry as usize];
        match previous {
            NONE => self.first = next,
            previous => *links.next(previous) = next,
        }
        match next {
            NONE => self.last = previous,
            next => *links.previous(next) = previous,
        }
    }

    /// Moves an entry of this list to its end.
    pub fn move_to_end(&mut self, links: &mut Links, entry: u32) {
        if self.last != entry {
            self.remove(links, entry);
            self.push(links, entry);
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
    fn move_to_ending_and_removing_keep_the_order_of_the_rest() {
        let (mut links, mut list) = (Links::new(4).unwrap(), List::default());
        (0..4).for_each(|entry| list.push(&mut links, entry));
        list.move_to_end(&mut links, 1);
        assert_eq!(order(&list, &links), [0, 2, 3, 1]);
        list.move_to_end(&mut links, 1);
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
