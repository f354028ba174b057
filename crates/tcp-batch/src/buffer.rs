//! Host memory that packets are packed into.

use crate::pinned::Pinned;

/// Host memory for packed packets.
pub(crate) enum Buffer {
    /// Ordinary memory.
    Plain(Vec<u64>),
    /// Memory that a GPU reads directly.
    Pinned(Pinned),
}

impl Buffer {
    pub fn plain(length: usize) -> Self {
        Self::Plain(vec![0; length.div_ceil(8)])
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(words) => bytemuck::cast_slice(words),
            Self::Pinned(pinned) => pinned.bytes(),
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(words) => bytemuck::cast_slice_mut(words),
            Self::Pinned(pinned) => pinned.bytes_mut(),
        }
    }
}
