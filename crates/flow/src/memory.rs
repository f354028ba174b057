//! The table's memory: taken once, zero at first, in the pages that were asked for.
//!
//! One of the two places of this crate with `unsafe`: the system hands over octets, the table wants lines.

use crate::PageKind;
use bytemuck::Zeroable;
use memmap2::{MmapMut, MmapOptions};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// As many `T` as were asked for. The system provides the pages when they are first touched.
#[derive(Debug)]
pub(crate) struct Memory<T> {
    map: MmapMut,
    length: usize,
    of: PhantomData<T>,
}

impl<T: Zeroable + Copy> Memory<T> {
    /// # Errors
    /// The system has no room for that much.
    pub fn new(length: usize, pages: PageKind) -> io::Result<Self> {
        let octets = length.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        // Reserved pages come in whole numbers only.
        let reserved = |bits: u8| {
            let octets = octets.checked_next_multiple_of(1 << bits)?;
            MmapOptions::new().len(octets).huge(Some(bits)).map_anon().ok()
        };
        let map = match pages {
            PageKind::Hugetlb2M => reserved(21),
            PageKind::Hugetlb1G => reserved(30),
            PageKind::Small | PageKind::Transparent => None,
        };
        let map = match map {
            Some(map) => map,
            None => {
                let map = MmapMut::map_anon(octets)?;
                // A matter of speed alone: a system that refuses the advice works with what it has.
                #[cfg(all(target_os = "linux", not(miri)))]
                let _ = map.advise(match pages {
                    PageKind::Small => memmap2::Advice::NoHugePage,
                    _ => memmap2::Advice::HugePage,
                });
                map
            }
        };
        assert!(map.as_ptr().cast::<T>().is_aligned(), "pages are aligned to more than a line");
        Ok(Self { map, length, of: PhantomData })
    }

    /// Octets taken.
    pub fn octets(&self) -> usize {
        self.length * size_of::<T>()
    }
}

impl<T> Deref for Memory<T> {
    type Target = [T];

    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        // SAFETY: the map holds at least `length` times the size of `T` octets (`new`), is aligned for `T` (asserted
        // there), was zero at first, which is a value of `T` (`Zeroable`), and is written only as `[T]`. It is private
        // to this process, does not move, and is borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.length) }
    }
}

impl<T> DerefMut for Memory<T> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_zero_and_keeps_what_is_written() {
        // Miri knows no reserved pages.
        let reserved = if cfg!(miri) { &[][..] } else { &[PageKind::Hugetlb2M, PageKind::Hugetlb1G] };
        for &pages in [PageKind::Small, PageKind::Transparent].iter().chain(reserved) {
            let mut memory = Memory::<[u64; 3]>::new(1000, pages).unwrap();
            assert!(memory.len() == 1000 && memory.octets() == 24_000 && memory.iter().all(|line| *line == [0; 3]));
            memory[999] = [1, 2, 3];
            assert_eq!((memory[998], memory[999]), ([0; 3], [1, 2, 3]));
        }
        assert!(Memory::<u64>::new(0, PageKind::Small).unwrap().is_empty());
        assert!(Memory::<u64>::new(usize::MAX / 8, PageKind::Small).is_err());
        assert!(Memory::<u64>::new(usize::MAX, PageKind::Small).is_err());
    }
}
