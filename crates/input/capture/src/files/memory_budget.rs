//! A limit on the memory that all compressed captures of the process take together.
//!
//! In: the size of a buffer before it grows. Out: permission, or [`MemoryExceeded`]. A claim ends
//! when it is dropped. Buffers of a size that is fixed from the start claim nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit: four Zstandard frames with the longest window, or 64 of `zstd -19`.
const MAX_TOTAL_BYTES: usize = 1 << 30;

static CLAIMED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Captures that are read at the same time need too much memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "a buffer of {bytes} bytes is needed, and the captures that are read at the same time have {free} left of the \
     {MAX_TOTAL_BYTES} that they may take together: read fewer at once, or decompress them first"
)]
pub struct MemoryExceeded {
    bytes: usize,
    /// What other captures have left.
    free: usize,
}

/// Memory that one buffer may take.
#[derive(Default)]
pub(crate) struct MemoryClaim {
    bytes: usize,
}

impl MemoryClaim {
    /// Claims memory for a buffer of this size. The claim of a smaller buffer stays as it is.
    ///
    /// # Errors
    /// [`MemoryExceeded`] if all buffers together would exceed the limit.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryExceeded> {
        let Some(more) = bytes.checked_sub(self.bytes) else { return Ok(()) };
        let within_limit = |claimed: usize| claimed.checked_add(more).filter(|&total| total <= MAX_TOTAL_BYTES);
        CLAIMED_BYTES
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within_limit)
            .map_err(|claimed| MemoryExceeded { bytes, free: MAX_TOTAL_BYTES - (claimed - self.bytes) })?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        CLAIMED_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
