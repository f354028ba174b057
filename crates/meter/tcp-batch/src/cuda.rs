//! GPUs through the CUDA driver API: it needs no toolkit to build or run, only `libcuda.so.1`.
//!
//! The unsafe code of this crate is here, in `buffer.rs` and in `table.rs`. It relies on this: a
//! context, its streams, its module and its memory live as long as the [`Cuda`] or [`Pinned`] that
//! holds them; a pinned buffer is neither written nor freed before the GPU has read it; addresses
//! in [`KernelArguments`] come from [`Device::allocate`], with the sizes that `offload.rs`
//! computes.

use crate::buffer::{Buffer, Context, Pinned};
use crate::device::{Device, DeviceError, DeviceMemory, Kernel, KernelArguments};
use cudarc::driver::{DriverError, result, sys};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// The kernels, for compute capability 8.0 and later. The driver compiles them for the GPU.
const PTX: &str = include_str!("../kernels/weir.ptx");
/// Least CUDA version of a driver that can load [`PTX`].
const MIN_DRIVER: i32 = 12_020;
/// Least major compute capability that can run it.
const MIN_CAPABILITY: i32 = 8;

/// A GPU with the kernels loaded.
pub(crate) struct Cuda {
    context: Arc<Context>,
    module: sys::CUmodule,
    kernels: [sys::CUfunction; Kernel::NAMES.len()],
    /// Kernels, and reads and writes between them.
    compute: sys::CUstream,
    /// Copies of batches.
    copy: sys::CUstream,
    memory: Vec<DeviceMemory>,
}

// SAFETY: driver handles may be used from any thread, and every function makes the context current
// first.
unsafe impl Send for Cuda {}

impl From<DriverError> for DeviceError {
    fn from(error: DriverError) -> Self {
        let text = error.error_string().ok().and_then(|text| text.to_str().ok()).map(String::from);
        Self::Driver(text.unwrap_or_else(|| format!("driver error {}", error.0 as u32)))
    }
}

/// Number of GPUs.
pub(crate) fn count_devices() -> Result<i32, DeviceError> {
    // SAFETY: only checks whether the library can be loaded. Without it the next call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    result::init()?;
    let mut version = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    if version < MIN_DRIVER {
        return Err(DeviceError::Unusable(format!(
            "the NVIDIA driver supports CUDA {}.{}; 12.2 or later is needed (driver 535)",
            version / 1000,
            version % 1000 / 10
        )));
    }
    match result::device::get_count()? {
        0 => Err(DeviceError::Unusable("the NVIDIA driver finds no GPU".into())),
        devices => Ok(devices),
    }
}

impl Cuda {
    /// Opens the GPU of a number, and returns its name.
    pub fn open(number: i32) -> Result<(Self, String), DeviceError> {
        let device = result::device::get(number)?;
        let name = result::device::get_name(device)?;
        use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR;
        // SAFETY: the driver returned the device.
        let major = unsafe { result::device::get_attribute(device, MAJOR) }?;
        if major < MIN_CAPABILITY {
            let text = format!("{name} has compute capability {major}; {MIN_CAPABILITY}.0 or later is needed");
            return Err(DeviceError::Unusable(text));
        }
        // SAFETY: as above; `Context::drop` releases the context.
        let context = Arc::new(Context { device, context: unsafe { result::primary_ctx::retain(device) }? });
        context.enter()?;
        let text = CString::new(PTX).expect("PTX is text");
        // SAFETY: the image is text that ends with a zero.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }?;
        let mut kernels = [std::ptr::null_mut(); Kernel::NAMES.len()];
        for (function, name) in kernels.iter_mut().zip(Kernel::NAMES) {
            let name = CString::new(name).expect("names have no zeros");
            // SAFETY: the module was just loaded.
            *function = unsafe { result::module::get_function(module, name) }?;
        }
        let compute = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let copy = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok((Self { context, module, kernels, compute, copy, memory: Vec::new() }, name))
    }

    /// Free memory of the GPU.
    pub fn free_bytes(&self) -> Result<usize, DeviceError> {
        self.context.enter()?;
        Ok(result::mem_get_info()?.0)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`.
        Ok(unsafe { result::stream::synchronize(self.compute) }?)
    }
}

impl Device for Cuda {
    fn allocate_host(&mut self, length: usize) -> Result<Buffer, DeviceError> {
        self.context.enter()?;
        let copied = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: `Pinned::drop` frees the memory. It is zeroed before its first use.
        let memory = unsafe { result::malloc_host(length, 0) }?.cast::<u8>();
        // SAFETY: it has this length.
        unsafe { memory.write_bytes(0, length) };
        Ok(Buffer::Pinned(Pinned { context: Arc::clone(&self.context), memory, length, copied, in_flight: false }))
    }

    fn allocate(&mut self, length: usize) -> Result<DeviceMemory, DeviceError> {
        self.context.enter()?;
        // SAFETY: `free` or `drop` frees it; all of it is set before its first use.
        let memory = unsafe {
            let address = result::malloc_sync(length)?;
            let memory = DeviceMemory { address, length };
            self.memory.push(memory);
            result::memset_d8_async(address, 0, length, self.compute)?;
            memory
        };
        // Batches are copied on another stream.
        self.wait()?;
        Ok(memory)
    }

    fn free(&mut self, memory: DeviceMemory) {
        if let Some(at) = self.memory.iter().position(|known| known.address == memory.address) {
            self.memory.swap_remove(at);
            // SAFETY: it was allocated here, and no kernel uses it: callers free between batches,
            // and the driver waits. Later calls return the error again.
            let _ = self.context.enter().map(|()| unsafe { result::free_sync(memory.address) });
        }
    }

    fn copy_batch(&mut self, from: &mut Buffer, length: usize, to: DeviceMemory) -> Result<(), DeviceError> {
        let pinned = match from {
            Buffer::Plain(words) => return self.write(to, 0, &bytemuck::cast_slice(words)[..length]),
            Buffer::Pinned(pinned) => pinned,
        };
        assert!(length <= to.length, "the batch fits");
        self.context.enter()?;
        // SAFETY: the memory is large enough. `in_flight` delays writing and freeing the buffer
        // until the event. Without an event, the copy has ended when this returns.
        unsafe {
            result::memcpy_htod_async(to.address, &pinned.bytes()[..length], self.copy)?;
            if let Err(error) = result::event::record(pinned.copied, self.copy) {
                let _ = result::stream::synchronize(self.copy);
                return Err(error.into());
            }
            pinned.in_flight = true;
            let no_flags = sys::CUevent_wait_flags_enum::CU_EVENT_WAIT_DEFAULT;
            result::stream::wait_event(self.compute, pinned.copied, no_flags)?;
        }
        Ok(())
    }

    fn write(&mut self, to: DeviceMemory, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        assert!(offset + from.len() <= to.length, "the write is inside the memory");
        if from.is_empty() {
            return Ok(());
        }
        self.context.enter()?;
        // SAFETY: the memory is large enough, and both live until the copy has finished.
        unsafe { result::memcpy_htod_async(to.address + offset as u64, from, self.compute) }?;
        self.wait()
    }

    fn read(&mut self, from: DeviceMemory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        assert!(offset + to.len() <= from.length, "the read is inside the memory");
        if to.is_empty() {
            return Ok(());
        }
        self.context.enter()?;
        // SAFETY: as in `write`.
        unsafe { result::memcpy_dtoh_async(to, from.address + offset as u64, self.compute) }?;
        self.wait()
    }

    fn launch(
        &mut self,
        kernel: Kernel,
        [blocks, threads]: [u32; 2],
        arguments: &KernelArguments,
    ) -> Result<(), DeviceError> {
        if blocks == 0 {
            return Ok(());
        }
        self.context.enter()?;
        let mut arguments = *arguments;
        let mut parameters = [(&raw mut arguments).cast::<c_void>()];
        let function = self.kernels[kernel as usize];
        // SAFETY: the arguments are the only parameter; the driver copies them before this returns.
        Ok(unsafe {
            result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), 0, self.compute, &mut parameters)
        }?)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Errors are ignored: an earlier call has already returned them.
        // SAFETY: everything belongs to this context, and nothing is used afterwards.
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
