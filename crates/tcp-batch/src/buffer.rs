//! Memory that records are packed into.

use crate::pinned::Pinned;

/// Memory for records: the program's own, or such that a card reads by itself.
pub(crate) enum Buffer {
    Plain(Vec<u64>),
    Pinned(Pinned),
}

impl Buffer {
    /// Of the program's own.
    pub fn plain(octets: usize) -> Self {
        Self::Plain(vec![0; octets.div_ceil(8)])
    }

    pub fn octets(&self) -> &[u8] {
        match self {
            Self::Plain(words) => bytemuck::cast_slice(words),
            Self::Pinned(pinned) => pinned.octets(),
        }
    }

    pub fn octets_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(words) => bytemuck::cast_slice_mut(words),
            Self::Pinned(pinned) => pinned.octets_mut(),
        }
    }
}
