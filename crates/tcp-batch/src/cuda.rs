//! Cards with CUDA, by the driver's own interface: no toolkit is needed to build or to run, only `libcuda.so.1`.
//!
//! The unsafe code of this crate is here, in `pinned.rs` and in `ahead.rs`. What it rests on: a context, its streams, its
//! module and its memory live as long as the [`Cuda`] or [`Pinned`] that holds them; a pinned buffer is not written or freed before the card has read
//! it; addresses in a [`Job`] are those of [`Device::allocate`], with the sizes that `card.rs` works out.

use crate::buffer::Buffer;
use crate::card::{Device, Failure, Job, Kernel, Memory};
use crate::pinned::{Context, Pinned};
use cudarc::driver::{DriverError, result, sys};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// The kernels, for cards of compute capability 8.0 and later; the driver translates them for the card that is there.
const PTX: &str = include_str!("../kernels/weir.ptx");
/// The CUDA version whose drivers understand [`PTX`].
const DRIVER: i32 = 12_020;
const CAPABILITY: i32 = 8;

/// A card, ready for kernels.
pub(crate) struct Cuda {
    context: Arc<Context>,
    module: sys::CUmodule,
    kernels: [sys::CUfunction; Kernel::ALL.len()],
    /// Kernels and what is read and written between them; records on their way.
    compute: sys::CUstream,
    copy: sys::CUstream,
    memory: Vec<Memory>,
}

// SAFETY: handles of the driver may be used from any thread, and every function makes the context current first.
unsafe impl Send for Cuda {}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        let text = error.error_string().ok().and_then(|text| text.to_str().ok()).map(String::from);
        Self(text.unwrap_or_else(|| format!("error {} of the driver", error.0 as u32)))
    }
}

/// Why no card is used where there is none, mostly.
pub const NO_DRIVER: &str = "there is no NVIDIA driver: libcuda.so.1 is not found";

/// How many cards there are.
pub(crate) fn cards() -> Result<i32, Failure> {
    // SAFETY: only looks whether the library can be loaded. Without this question the next call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(Failure(NO_DRIVER.into()));
    }
    result::init()?;
    let mut version = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    if version < DRIVER {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(Failure(format!(
            "the NVIDIA driver is for CUDA {major}.{minor}; 12.2 or later is needed (driver 535)"
        )));
    }
    match result::device::get_count()? {
        0 => Err(Failure("the NVIDIA driver knows of no card".into())),
        cards => Ok(cards),
    }
}

impl Cuda {
    /// The card of this number, and its name.
    pub fn open(number: i32) -> Result<(Self, String), Failure> {
        let card = result::device::get(number)?;
        let name = result::device::get_name(card)?;
        use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR;
        // SAFETY: the card is one that the driver named.
        let capability = unsafe { result::device::get_attribute(card, MAJOR) }?;
        if capability < CAPABILITY {
            return Err(Failure(format!("{name} is of compute capability {capability}; {CAPABILITY}.0 is needed")));
        }
        // SAFETY: as above; what is retained is released by `Context::drop`.
        let context = Arc::new(Context { card, context: unsafe { result::primary_ctx::retain(card) }? });
        context.enter()?;
        let text = CString::new(PTX).expect("PTX is text");
        // SAFETY: the image is text that ends with a zero.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }?;
        let mut kernels = [std::ptr::null_mut(); Kernel::ALL.len()];
        for (function, kernel) in kernels.iter_mut().zip(Kernel::ALL) {
            let name = CString::new(kernel.name()).expect("names have no zeros");
            // SAFETY: the module was just loaded.
            *function = unsafe { result::module::get_function(module, name) }?;
        }
        let compute = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let copy = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok((Self { context, module, kernels, compute, copy, memory: Vec::new() }, name))
    }

    /// Octets of memory that are free.
    pub fn free_octets(&self) -> Result<usize, Failure> {
        self.context.enter()?;
        Ok(result::mem_get_info()?.0)
    }

    fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the stream lives as long as `self`.
        Ok(unsafe { result::stream::synchronize(self.compute) }?)
    }
}

impl Device for Cuda {
    fn buffer(&mut self, octets: usize) -> Result<Buffer, Failure> {
        self.context.enter()?;
        let sent = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: the memory is freed by `Pinned::drop` and nowhere else. It is zeroed before anybody sees it.
        let memory = unsafe { result::malloc_host(octets, 0) }?.cast::<u8>();
        // SAFETY: so many octets were given.
        unsafe { memory.write_bytes(0, octets) };
        Ok(Buffer::Pinned(Pinned {
            context: Arc::clone(&self.context),
            octets: memory,
            length: octets,
            sent,
            on_its_way: false,
        }))
    }

    fn allocate(&mut self, octets: usize) -> Result<Memory, Failure> {
        self.context.enter()?;
        // SAFETY: freed by `free` or `drop`; all of it is set before it is used.
        let memory = unsafe {
            let address = result::malloc_sync(octets)?;
            let memory = Memory { address, octets };
            self.memory.push(memory);
            result::memset_d8_async(address, 0, octets, self.compute)?;
            memory
        };
        // Records are sent on another stream.
        self.wait()?;
        Ok(memory)
    }

    fn free(&mut self, memory: Memory) {
        if let Some(at) = self.memory.iter().position(|known| known.address == memory.address) {
            self.memory.swap_remove(at);
            // SAFETY: it was allocated here, and nothing runs that uses it: callers free between batches, and the
            // driver waits. What the driver says of it a later call will say again.
            let _ = self.context.enter().map(|()| unsafe { result::free_sync(memory.address) });
        }
    }

    fn send(&mut self, from: &mut Buffer, octets: usize, to: Memory) -> Result<(), Failure> {
        let pinned = match from {
            Buffer::Plain(words) => return self.write(to, 0, &bytemuck::cast_slice(words)[..octets]),
            Buffer::Pinned(pinned) => pinned,
        };
        assert!(octets <= to.octets, "records have their place");
        self.context.enter()?;
        // SAFETY: the place is large enough. `on_its_way` keeps the buffer from being written or freed before the event.
        unsafe {
            result::memcpy_htod_async(to.address, &pinned.octets()[..octets], self.copy)?;
            pinned.on_its_way = true;
            result::event::record(pinned.sent, self.copy)?;
            let no_flags = sys::CUevent_wait_flags_enum::CU_EVENT_WAIT_DEFAULT;
            result::stream::wait_event(self.compute, pinned.sent, no_flags)?;
        }
        Ok(())
    }

    fn write(&mut self, to: Memory, offset: usize, from: &[u8]) -> Result<(), Failure> {
        assert!(offset + from.len() <= to.octets, "what is written has its place");
        if from.is_empty() {
            return Ok(());
        }
        self.context.enter()?;
        // SAFETY: the place is large enough, and both live until the copy is over.
        unsafe { result::memcpy_htod_async(to.address + offset as u64, from, self.compute) }?;
        self.wait()
    }

    fn read(&mut self, from: Memory, offset: usize, to: &mut [u8]) -> Result<(), Failure> {
        assert!(offset + to.len() <= from.octets, "what is read is there");
        if to.is_empty() {
            return Ok(());
        }
        self.context.enter()?;
        // SAFETY: as in `write`.
        unsafe { result::memcpy_dtoh_async(to, from.address + offset as u64, self.compute) }?;
        self.wait()
    }

    fn launch(&mut self, kernel: Kernel, blocks: u32, threads: u32, job: &Job) -> Result<(), Failure> {
        if blocks == 0 {
            return Ok(());
        }
        self.context.enter()?;
        let mut job = *job;
        let mut arguments = [(&raw mut job).cast::<c_void>()];
        let function = self.kernels[kernel as usize];
        // SAFETY: the kernel takes a job and nothing else; the driver copies it before this returns.
        Ok(unsafe {
            result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), 0, self.compute, &mut arguments)
        }?)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // A card that fails fails here again, and nobody is left to tell.
        // SAFETY: everything is of this context, and nothing is used afterwards.
        unsafe {
            let _ = self.context.enter();
            let _ = result::stream::synchronize(self.copy);
            let _ = result::stream::synchronize(self.compute);
            for memory in &self.memory {
                let _ = result::free_sync(memory.address);
            }
            let _ = result::stream::destroy(self.copy);
            let _ = result::stream::destroy(self.compute);
            let _ = result::module::unload(self.module);
        }
    }
}
