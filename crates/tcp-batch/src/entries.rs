//! A list that grows and shrinks without a copy of it: pieces of one size, of which the last one is not full.
//!
//! What is aligned to a cache line the allocator moves by copying, so that there would be twice as much of it.

use std::ops::{Index, IndexMut};

/// Items of a piece: so many that there are few of them, and so few that one is soon full.
const PIECE: usize = 1 << 14;

/// The list.
pub(crate) struct Entries<T>(Vec<Vec<T>>);

impl<T> Entries<T> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PIECE + last.len())
    }

    pub fn push(&mut self, item: T) {
        match self.0.last_mut() {
            Some(last) if last.len() < PIECE => last.push(item),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(item);
                self.0.push(piece);
            }
        }
    }

    pub fn pop(&mut self) -> Option<T> {
        let last = self.0.last_mut()?;
        let item = last.pop();
        if last.is_empty() {
            self.0.pop();
        }
        item
    }

    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at / PIECE)?.get(at % PIECE)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// In order.
    pub fn pieces(&self) -> impl Iterator<Item = &[T]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl<T> Index<usize> for Entries<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.0[at / PIECE][at % PIECE]
    }
}

impl<T> IndexMut<usize> for Entries<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at / PIECE][at % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_there_in_order_and_comes_out_backwards() {
        let mut entries = Entries::new();
        for number in 0..2 * PIECE + 1 {
            assert_eq!((entries.len(), entries.get(number)), (number, None));
            entries.push(number);
            assert_eq!(entries[number], number);
        }
        assert!(entries.iter().copied().eq(0..2 * PIECE + 1));
        assert_eq!(entries.pieces().map(<[usize]>::len).collect::<Vec<_>>(), [PIECE, PIECE, 1]);
        assert!((0..2 * PIECE + 1).rev().all(|number| entries.pop() == Some(number)));
        assert_eq!((entries.len(), entries.pop()), (0, None));
    }
}
