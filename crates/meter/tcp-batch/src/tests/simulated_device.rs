//! A device that runs the kernels on the CPU: compiled as C++, with threads as loops.

use crate::buffer::Buffer;
use crate::device::{Device, DeviceError, DeviceMemory, Kernel, KernelArguments};
use memmap2::MmapMut;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// A device without a GPU. It can be made to fail.
#[derive(Default)]
pub struct SimulatedDevice {
    memory: BTreeMap<u64, MmapMut>,
    /// Calls left until all calls fail.
    calls_left: Option<usize>,
}

type Function = unsafe extern "C" fn(*const KernelArguments, u32);

/// The kernels in the order of [`Kernel`], compiled once per process.
fn kernels() -> &'static [Function] {
    static KERNELS: OnceLock<Vec<Function>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let library = folder.path().join("libweir.so");
        compile("kernels/weir.cu", &library);
        // SAFETY: it was just compiled from this crate, and runs no code when it is loaded.
        let library =
            Box::leak(Box::new(unsafe { libloading::Library::new(&library) }.expect("the library can be loaded")));
        let function = |name: &str| {
            // SAFETY: every kernel has this type.
            *unsafe { library.get::<Function>(name) }.expect("the library has every kernel")
        };
        Kernel::NAMES.map(function).to_vec()
    })
}

/// Compiles a C++ source of this crate to a shared library.
pub fn compile(source: &str, library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let compiler = std::env::var("CXX").unwrap_or("c++".into());
    let run = Command::new(&compiler)
        .args(["-x", "c++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .args([library, &source])
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; `scripts/bootstrap test` installs a C++ compiler"));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

impl SimulatedDevice {
    /// Creates a device that fails after `calls` calls.
    pub fn failing_after(calls: usize) -> Self {
        Self { calls_left: Some(calls), ..Self::default() }
    }

    fn call(&mut self) -> Result<(), DeviceError> {
        match &mut self.calls_left {
            Some(0) => return Err(DeviceError::Driver("the GPU fell off the bus".into())),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn slice(&mut self, memory: DeviceMemory, offset: usize, length: usize) -> &mut [u8] {
        let pages = self.memory.get_mut(&memory.address).expect("memory was allocated");
        &mut pages[offset..offset + length]
    }
}

impl Device for SimulatedDevice {
    fn allocate_host(&mut self, length: usize) -> Result<Buffer, DeviceError> {
        self.call()?;
        Ok(Buffer::plain(length))
    }

    fn allocate(&mut self, length: usize) -> Result<DeviceMemory, DeviceError> {
        self.call()?;
        // Pages that no kernel touches cost nothing. One octet more gives empty memory an address of its own.
        let pages = MmapMut::map_anon(length + 1).expect("there is memory");
        let memory = DeviceMemory { address: pages.as_ptr().addr() as u64, length };
        self.memory.insert(memory.address, pages);
        Ok(memory)
    }

    fn free(&mut self, memory: DeviceMemory) {
        self.memory.remove(&memory.address);
    }

    fn copy_batch(&mut self, from: &mut Buffer, length: usize, to: DeviceMemory) -> Result<(), DeviceError> {
        self.write(to, 0, &from.bytes()[..length])
    }

    fn write(&mut self, to: DeviceMemory, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        self.call()?;
        self.slice(to, offset, from.len()).copy_from_slice(from);
        Ok(())
    }

    fn read(&mut self, from: DeviceMemory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.call()?;
        to.copy_from_slice(self.slice(from, offset, to.len()));
        Ok(())
    }

    fn launch(
        &mut self,
        kernel: Kernel,
        [blocks, _]: [u32; 2],
        arguments: &KernelArguments,
    ) -> Result<(), DeviceError> {
        self.call()?;
        // SAFETY: as for a GPU: the addresses are those of sufficient memory.
        unsafe { kernels()[kernel as usize](arguments, blocks) };
        Ok(())
    }
}
