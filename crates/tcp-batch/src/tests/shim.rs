//! The kernels as an ordinary C++ compiler sees them: threads are loops, the memory is the
//! program's own.

use crate::buffer::Buffer;
use crate::card::{Device, Failure, Job, Kernel, Memory};
use bytemuck::{Pod, Zeroable};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// A card that is none, and may fail.
#[derive(Default)]
pub struct Shim {
    memory: BTreeMap<u64, Vec<Line>>,
    /// Calls until it fails, and fails from then on.
    calls_left: Option<usize>,
}

/// What the compiler may take for granted about the place of an entry.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

type Function = unsafe extern "C" fn(*const Job, u32);

/// The kernels in the order of [`Kernel::ALL`], compiled once.
fn kernels() -> &'static [Function] {
    static KERNELS: OnceLock<Vec<Function>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("there is a place for temporary files");
        let library = folder.path().join("libweir.so");
        compile("kernels/weir.cu", &library);
        // SAFETY: it was just made of our own source and does nothing when it is loaded.
        let library = Box::leak(Box::new(unsafe { libloading::Library::new(&library) }.expect("it can be loaded")));
        let function = |kernel: Kernel| {
            // SAFETY: every kernel has this type there.
            *unsafe { library.get::<Function>(kernel.name()) }.expect("the kernel is there")
        };
        Kernel::ALL.map(function).to_vec()
    })
}

/// Makes a library of a source of this crate.
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

impl Shim {
    /// One that fails at the call after so many.
    pub fn failing_after(calls: usize) -> Self {
        Self { calls_left: Some(calls), ..Self::default() }
    }

    fn call(&mut self) -> Result<(), Failure> {
        match &mut self.calls_left {
            Some(0) => return Err(Failure("the card fell off".into())),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn part(&mut self, memory: Memory, offset: usize, octets: usize) -> &mut [u8] {
        let lines = self.memory.get_mut(&memory.address).expect("memory was allocated");
        &mut bytemuck::cast_slice_mut(lines)[offset..offset + octets]
    }
}

impl Device for Shim {
    fn buffer(&mut self, octets: usize) -> Result<Buffer, Failure> {
        self.call()?;
        Ok(Buffer::plain(octets))
    }

    fn allocate(&mut self, octets: usize) -> Result<Memory, Failure> {
        self.call()?;
        // One line more: no two have one address.
        let lines = vec![Line([0; 8]); octets.div_ceil(64) + 1];
        let memory = Memory { address: lines.as_ptr().addr() as u64, octets };
        self.memory.insert(memory.address, lines);
        Ok(memory)
    }

    fn free(&mut self, memory: Memory) {
        self.memory.remove(&memory.address);
    }

    fn send(&mut self, from: &mut Buffer, octets: usize, to: Memory) -> Result<(), Failure> {
        self.write(to, 0, &from.octets()[..octets])
    }

    fn write(&mut self, to: Memory, offset: usize, from: &[u8]) -> Result<(), Failure> {
        self.call()?;
        self.part(to, offset, from.len()).copy_from_slice(from);
        Ok(())
    }

    fn read(&mut self, from: Memory, offset: usize, to: &mut [u8]) -> Result<(), Failure> {
        self.call()?;
        to.copy_from_slice(self.part(from, offset, to.len()));
        Ok(())
    }

    fn launch(&mut self, kernel: Kernel, blocks: u32, _threads: u32, job: &Job) -> Result<(), Failure> {
        self.call()?;
        // SAFETY: as of a card: addresses are those of memory that is large enough.
        unsafe { kernels()[kernel as usize](job, blocks) };
        Ok(())
    }
}
