//! Host memory that packets are packed into: ordinary, or pinned memory, which a GPU reads directly,
//! with the CUDA context that it belongs to.

use cudarc::driver::{DriverError, result, sys};
use std::sync::Arc;

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

/// The primary context of a GPU.
pub(crate) struct Context {
    pub device: sys::CUdevice,
    pub context: sys::CUcontext,
}

// SAFETY: driver handles may be used from any thread; nothing in it changes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Pinned host memory.
pub(crate) struct Pinned {
    pub context: Arc<Context>,
    pub memory: *mut u8,
    pub length: usize,
    /// Recorded behind each copy to the GPU.
    pub copied: sys::CUevent,
    /// A copy may still be running.
    pub in_flight: bool,
}

// SAFETY: it owns its memory; the event may be used from any thread.
unsafe impl Send for Pinned {}

impl Context {
    /// Makes it the current context of this thread.
    pub fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(self.context) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

impl Pinned {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it owns `length` initialised bytes, and the GPU only reads them.
        unsafe { std::slice::from_raw_parts(self.memory, self.length) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.wait();
        // SAFETY: as above, and the GPU no longer reads them.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.length) }
    }

    /// Waits until the GPU has read the memory. A GPU that fails reads no more.
    #[inline(always)]
    fn wait(&mut self) {
        if self.in_flight {
            // SAFETY: the event lives as long as `self`.
            let _ = self.context.enter().map(|()| unsafe { result::event::synchronize(self.copied) });
            self.in_flight = false;
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.wait();
        // SAFETY: `Cuda::allocate_host` made both for it, and nothing else refers to them.
        unsafe {
            let _ = self.context.enter();
            let _ = result::event::destroy(self.copied);
            let _ = result::free_host(self.memory.cast());
        }
    }
}
