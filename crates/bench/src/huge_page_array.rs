//! Large arrays in huge pages, for ceilings and loads, so that TLB misses do not dominate the figures.

use crate::error::Error;
use bytemuck::Pod;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Array of zero-initialised values, in 2 MiB pages where the kernel provides them.
#[derive(Debug)]
pub struct HugePageArray<T> {
    map: MmapMut,
    of: PhantomData<T>,
}

impl<T: Pod> HugePageArray<T> {
    pub fn new(length: usize) -> Result<Self, Error> {
        let bytes = length.max(1) * size_of::<T>();
        let map = MmapMut::map_anon(bytes).map_err(|error| Error::Memory(bytes, error))?;
        // Affects speed only, so errors are ignored.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, of: PhantomData })
    }
}

impl<T: Pod> Deref for HugePageArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map)
    }
}

impl<T: Pod> DerefMut for HugePageArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}
