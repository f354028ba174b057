//! Arrays of fixed length in memory pages of a chosen kind.
//!
//! One of the two files of this crate with `unsafe` code: it views the bytes of a mapping as
//! values.

use crate::config::PageKind;
use crate::instructions::prefetch_address;
use bytemuck::Zeroable;
use memmap2::{MmapMut, MmapOptions};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// An array of `T`, zero at first. The system provides its pages when they are first touched.
#[derive(Debug)]
pub(crate) struct Memory<T> {
    map: MmapMut,
    length: usize,
    of: PhantomData<T>,
}

impl<T: Zeroable + Copy> Memory<T> {
    /// # Errors
    /// The system has not that much memory.
    pub fn new(length: usize, pages: PageKind) -> io::Result<Self> {
        let bytes = length.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        // A mapping of hugetlbfs pages has a multiple of their size.
        let hugetlb = |bits: u8| {
            let bytes = bytes.checked_next_multiple_of(1 << bits)?;
            MmapOptions::new().len(bytes).huge(Some(bits)).map_anon().ok()
        };
        let map = match pages {
            PageKind::Hugetlb2M => hugetlb(21),
            PageKind::Hugetlb1G => hugetlb(30),
            PageKind::Small | PageKind::Transparent => None,
        };
        let map = match map {
            Some(map) => map,
            None => {
                let map = MmapMut::map_anon(bytes)?;
                // Affects only speed: a system may ignore the advice.
                #[cfg(all(target_os = "linux", not(miri)))]
                let _ = map.advise(match pages {
                    PageKind::Small => memmap2::Advice::NoHugePage,
                    _ => memmap2::Advice::HugePage,
                });
                map
            }
        };
        assert!(map.as_ptr().cast::<T>().is_aligned(), "pages are aligned to more than a cache line");
        Ok(Self { map, length, of: PhantomData })
    }

    pub fn memory_bytes(&self) -> usize {
        self.length * size_of::<T>()
    }
}

impl<T> Memory<T> {
    /// Starts to load cache line `line` of value `index`, which may be out of bounds. Affects only
    /// speed.
    #[inline(always)]
    pub fn prefetch_line(&self, index: u32, line: usize) {
        let offset = (index as usize).wrapping_mul(size_of::<T>()).wrapping_add(64 * line);
        prefetch_address(self.map.as_ptr().wrapping_add(offset));
    }
}

impl<T> Deref for Memory<T> {
    type Target = [T];

    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        // SAFETY: the map holds at least `length * size_of::<T>()` bytes (`new`) and is aligned for
        // `T` (asserted there). It was zero at first, a valid `T` (`Zeroable`), and is written only
        // as `[T]`. It is private to this process, does not move, and outlives the slice.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.length) }
    }
}

impl<T> DerefMut for Memory<T> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_and_keeps_what_is_written() {
        // Miri has no hugetlbfs pages.
        let hugetlb = if cfg!(miri) { &[][..] } else { &[PageKind::Hugetlb2M, PageKind::Hugetlb1G] };
        for &pages in [PageKind::Small, PageKind::Transparent].iter().chain(hugetlb) {
            let mut memory = Memory::<[u64; 3]>::new(1000, pages).unwrap();
            assert!(
                memory.len() == 1000 && memory.memory_bytes() == 24_000 && memory.iter().all(|line| *line == [0; 3])
            );
            memory[999] = [1, 2, 3];
            assert_eq!((memory[998], memory[999]), ([0; 3], [1, 2, 3]));
        }
        assert!(Memory::<u64>::new(0, PageKind::Small).unwrap().is_empty());
        assert!(Memory::<u64>::new(usize::MAX / 8, PageKind::Small).is_err());
        assert!(Memory::<u64>::new(usize::MAX, PageKind::Small).is_err());
    }
}
