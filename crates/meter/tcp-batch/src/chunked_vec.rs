//! A vector in chunks of one size, which grows and shrinks without moving its items.
//!
//! A `Vec` of items aligned to cache lines would be copied by the allocator when it grows, and need
//! twice its memory meanwhile.

use std::ops::{Index, IndexMut};

/// Items per chunk.
const CHUNK: usize = 1 << 14;

/// A vector of which all chunks but the last are full.
pub(crate) struct ChunkedVec<T>(Vec<Vec<T>>);

impl<T> ChunkedVec<T> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK + last.len())
    }

    pub fn push(&mut self, item: T) {
        let len = self.len();
        if len.is_multiple_of(CHUNK) {
            self.0.push(Vec::with_capacity(CHUNK));
        }
        self.0[len / CHUNK].push(item);
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
        self.0.get(at / CHUNK)?.get(at % CHUNK)
    }

    /// The chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[T]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl<T> Index<usize> for ChunkedVec<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.0[at / CHUNK][at % CHUNK]
    }
}

impl<T> IndexMut<usize> for ChunkedVec<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at / CHUNK][at % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_in_order_and_popped_in_reverse() {
        let mut items = ChunkedVec::new();
        for number in 0..2 * CHUNK + 1 {
            assert_eq!((items.len(), items.get(number)), (number, None));
            items.push(number);
            assert_eq!(items[number], number);
        }
        assert!(items.chunks().flatten().copied().eq(0..2 * CHUNK + 1));
        assert_eq!(items.chunks().map(<[usize]>::len).collect::<Vec<_>>(), [CHUNK, CHUNK, 1]);
        assert!((0..2 * CHUNK + 1).rev().all(|number| items.pop() == Some(number)));
        assert_eq!((items.len(), items.pop()), (0, None));
    }
}
