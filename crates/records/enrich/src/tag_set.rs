//! Sets of tag lists.

use std::ops::{BitOr, BitOrAssign};

/// Names of lists at most: each is a bit of a set.
pub const MAX_TAG_LISTS: usize = 32;

/// A set of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TagSet(u32);

impl TagSet {
    /// The set of one list.
    pub fn of_list(number: usize) -> Self {
        Self(1 << number)
    }

    /// Whether a list is in the set.
    pub fn has(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }
}

impl BitOr for TagSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for TagSet {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}
