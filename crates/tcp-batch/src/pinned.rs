//! Memory of the host that a card reads by itself, and the context that it belongs to.

use cudarc::driver::{DriverError, result, sys};
use std::sync::Arc;

/// The primary context of a card.
pub(crate) struct Context {
    pub card: sys::CUdevice,
    pub context: sys::CUcontext,
}

// SAFETY: handles of the driver may be used from any thread; nothing in it changes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Memory of the host that a card reads by itself.
pub(crate) struct Pinned {
    pub context: Arc<Context>,
    pub octets: *mut u8,
    pub length: usize,
    /// When the card has read it.
    pub sent: sys::CUevent,
    pub on_its_way: bool,
}

// SAFETY: it owns its memory; the event may be used from any thread.
unsafe impl Send for Pinned {}

impl Context {
    /// Makes it that of this thread.
    pub fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: it is retained.
        unsafe { result::ctx::set_current(self.context) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once.
        let _ = unsafe { result::primary_ctx::release(self.card) };
    }
}

impl Pinned {
    pub fn octets(&self) -> &[u8] {
        // SAFETY: it owns so many octets, which were set, and the card does not write there.
        unsafe { std::slice::from_raw_parts(self.octets, self.length) }
    }

    pub fn octets_mut(&mut self) -> &mut [u8] {
        self.wait();
        // SAFETY: as above, and the card no longer reads there.
        unsafe { std::slice::from_raw_parts_mut(self.octets, self.length) }
    }

    /// Until the card has read it. If it fails it reads no more.
    #[inline(always)]
    fn wait(&mut self) {
        if self.on_its_way {
            // SAFETY: the event lives as long as `self`.
            let _ = self.context.enter().map(|()| unsafe { result::event::synchronize(self.sent) });
            self.on_its_way = false;
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.wait();
        // SAFETY: both were made for it by `Cuda::buffer`, and nobody has them any more.
        unsafe {
            let _ = self.context.enter();
            let _ = result::event::destroy(self.sent);
            let _ = result::free_host(self.octets.cast());
        }
    }
}
