//! Large arrays in large pages: what the ceilings and the loads lie in, so that they are not what is slow.

use crate::error::Error;
use bytemuck::Pod;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// So many values, zero at first, in 2 MiB pages as far as the system has some.
#[derive(Debug)]
pub struct Huge<T> {
    map: MmapMut,
    of: PhantomData<T>,
}

impl<T: Pod> Huge<T> {
    pub fn new(length: usize) -> Result<Self, Error> {
        let octets = length.max(1) * size_of::<T>();
        let map = MmapMut::map_anon(octets).map_err(|error| Error::Memory { bytes: octets, error })?;
        // A matter of speed alone.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, of: PhantomData })
    }
}

impl<T: Pod> Deref for Huge<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map)
    }
}

impl<T: Pod> DerefMut for Huge<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}
