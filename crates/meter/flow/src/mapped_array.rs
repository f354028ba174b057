//! Arrays of fixed length in huge or small memory pages.
//!
//! One of the two files of this crate with `unsafe` code: it views the bytes of a mapping as
//! values.

use crate::instructions::prefetch_address;
use bytemuck::Zeroable;
use memmap2::{Advice, MmapMut, MmapRaw};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// An array of `T`, zero at first. The system provides its pages when they are first touched.
#[derive(Debug)]
pub(crate) struct MappedArray<T> {
    /// Only this array reads and writes it.
    map: Arc<MmapRaw>,
    length: usize,
    of: PhantomData<T>,
}

/// The memory of an array, to have the system provide it before it is touched.
#[derive(Debug)]
pub(crate) struct ArrayMemory {
    map: Arc<MmapRaw>,
    value_bytes: usize,
}

impl ArrayMemory {
    /// Has the system provide the pages of some values. This changes no value.
    ///
    /// # Errors
    /// The system does not know how: Linux before 5.14.
    pub fn provide(&self, values: Range<u32>) -> io::Result<()> {
        let [start, end] = [values.start, values.end].map(|value| value as usize * self.value_bytes);
        let bytes = end.min(self.map.len()).saturating_sub(start);
        if bytes > 0 && !cfg!(miri) {
            self.map.advise_range(Advice::PopulateWrite, start, bytes)?;
        }
        Ok(())
    }
}

impl<T: Zeroable + Copy> MappedArray<T> {
    /// An array in transparent huge pages, as far as the system has some.
    pub fn with_huge_pages(length: usize) -> io::Result<Self> {
        Self::new(length, Advice::HugePage)
    }

    /// An array in 4 KiB pages, for arrays of which few values are touched.
    pub fn with_small_pages(length: usize) -> io::Result<Self> {
        Self::new(length, Advice::NoHugePage)
    }

    fn new(length: usize, advice: Advice) -> io::Result<Self> {
        let bytes = length.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        let map = MmapRaw::from(MmapMut::map_anon(bytes)?);
        assert!(map.as_ptr().cast::<T>().is_aligned(), "pages are aligned to more than a cache line");
        if !cfg!(miri) {
            // Affects only speed: a system may ignore the advice.
            let _ = map.advise(advice);
        }
        Ok(Self { map: Arc::new(map), length, of: PhantomData })
    }

    /// Its memory.
    pub fn memory(&self) -> ArrayMemory {
        ArrayMemory { map: self.map.clone(), value_bytes: size_of::<T>() }
    }

    pub fn memory_bytes(&self) -> usize {
        self.length * size_of::<T>()
    }
}

impl<T> MappedArray<T> {
    /// Prefetches a cache line of a value, which may be out of bounds. Affects only speed.
    #[inline(always)]
    pub fn prefetch_line(&self, index: u32, line: usize) {
        let offset = (index as usize).wrapping_mul(size_of::<T>()).wrapping_add(64 * line);
        prefetch_address(self.map.as_ptr().wrapping_add(offset));
    }
}

impl<T> Deref for MappedArray<T> {
    type Target = [T];

    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        // SAFETY: the map holds at least `length * size_of::<T>()` bytes (`new`) and is aligned for
        // `T` (asserted there). It was zero at first, a valid `T` (`Zeroable`), and is written only
        // as `[T]`. It is private to this process and to this array (`ArrayMemory` only gives advice
        // that changes no byte), does not move, and outlives the slice.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.length) }
    }
}

impl<T> DerefMut for MappedArray<T> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.length) }
    }
}

/// Asks for transparent huge pages where memory of another owner has not been touched yet. Affects only
/// speed, for any addresses.
#[allow(unsafe_code)]
pub(crate) fn advise_huge_pages(start: *const u8, bytes: usize) {
    if cfg!(miri) {
        return;
    }
    let first = start.align_offset(rustix::param::page_size());
    if let Some(length) = bytes.checked_sub(first) {
        let start = start.wrapping_add(first).cast_mut().cast();
        // SAFETY: the advice changes the content of no page.
        let _ = unsafe { rustix::mm::madvise(start, length, rustix::mm::Advice::LinuxHugepage) };
    }
}

/// Lets all threads share one arena of the allocator. glibc maps 128 MiB of address space for a moment when a thread
/// allocates for the first time, and keeps half of it: where address space is limited, other threads then have none.
#[allow(unsafe_code)]
pub fn share_allocator() {
    // SAFETY: the call sets a number of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_and_keeps_what_is_written() {
        for new in [MappedArray::<[u64; 3]>::with_huge_pages, MappedArray::with_small_pages] {
            let mut memory = new(1000).unwrap();
            assert!(
                memory.len() == 1000 && memory.memory_bytes() == 24_000 && memory.iter().all(|line| *line == [0; 3])
            );
            memory[999] = [1, 2, 3];
            assert_eq!((memory[998], memory[999]), ([0; 3], [1, 2, 3]));
        }
        assert!(MappedArray::<u64>::with_small_pages(0).unwrap().is_empty());
        assert!(MappedArray::<u64>::with_small_pages(usize::MAX / 8).is_err());
        assert!(MappedArray::<u64>::with_small_pages(usize::MAX).is_err());
    }
}
