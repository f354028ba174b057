//! Large arrays in pages of a chosen size, for ceilings and loads.

use crate::error::Error;
use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Size of a cache line, bytes.
pub const LINE_BYTES: usize = 64;

/// One cache line.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

/// Pages of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Of 2 MiB where the kernel provides them.
    Huge,
    /// Of 4 KiB.
    Small,
}

/// Array of zero-initialised values.
#[derive(Debug)]
pub struct MappedArray<T> {
    map: MmapMut,
    of: PhantomData<T>,
}

impl<T: Pod> MappedArray<T> {
    /// Maps an array in huge pages, so that TLB misses do not dominate the figures.
    pub fn new(length: usize) -> Result<Self, Error> {
        Self::with_pages(length, Pages::Huge)
    }

    /// Maps an array in these pages.
    pub fn with_pages(length: usize, pages: Pages) -> Result<Self, Error> {
        let bytes = length.max(1) * size_of::<T>();
        let map = MmapMut::map_anon(bytes).map_err(|error| Error::Memory(bytes, error))?;
        // Affects speed only, so errors are ignored.
        #[cfg(target_os = "linux")]
        let _ = map.advise(match pages {
            Pages::Huge => memmap2::Advice::HugePage,
            Pages::Small => memmap2::Advice::NoHugePage,
        });
        Ok(Self { map, of: PhantomData })
    }

    /// Locks the pages in memory. Returns whether the system permits it.
    pub fn lock(&mut self) -> bool {
        self.map.lock().is_ok()
    }
}

impl<T: Pod> Deref for MappedArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map)
    }
}

impl<T: Pod> DerefMut for MappedArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}
