//! What the engine needs of a device: memory, copies and kernels. CUDA is one implementation; tests
//! have another.

use crate::buffer::Buffer;
use bytemuck::{Pod, Zeroable};

/// Why a device cannot be used, or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver.
    #[error("the NVIDIA driver (libcuda.so.1) is not installed")]
    NoDriver,
    /// No GPU runs the kernels with right results: why.
    #[error("{0}")]
    Unusable(String),
    /// An error of the driver, in its words.
    #[error("{0}")]
    Driver(String),
}

/// Memory of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceMemory {
    pub address: u64,
    pub length: usize,
}

/// A device. It does everything in the order of the calls.
pub(crate) trait Device: Send {
    /// Allocates host memory for batches.
    fn allocate_host(&mut self, length: usize) -> Result<Buffer, DeviceError>;
    /// Allocates memory of the device, all zero.
    fn allocate(&mut self, length: usize) -> Result<DeviceMemory, DeviceError>;
    /// Frees memory of the device.
    fn free(&mut self, memory: DeviceMemory);
    /// Starts a copy to the device, perhaps while kernels of earlier launches run. Later launches
    /// wait for it.
    fn copy_batch(&mut self, from: &mut Buffer, length: usize, to: DeviceMemory) -> Result<(), DeviceError>;
    /// Writes at an offset, after all earlier launches.
    fn write(&mut self, to: DeviceMemory, offset: usize, from: &[u8]) -> Result<(), DeviceError>;
    /// Reads at an offset, after all earlier launches.
    fn read(&mut self, from: DeviceMemory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError>;
    /// Starts a kernel on a number of blocks with a number of threads each. All addresses in the
    /// arguments are those of sufficient memory of the device.
    fn launch(&mut self, kernel: Kernel, grid: [u32; 2], arguments: &KernelArguments) -> Result<(), DeviceError>;
}

/// The kernels of `kernels/weir.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    Hash,
    CountDigits,
    PrefixSums,
    Scatter,
    FindRuns,
    ProcessLongRuns,
    ProcessRuns,
    GatherEntries,
    ListAnomalies,
    GatherAnomalies,
}

impl Kernel {
    /// The names of their functions, in this order.
    pub const NAMES: [&str; 10] = [
        "weir_hash",
        "weir_count_digits",
        "weir_prefix_sums",
        "weir_scatter",
        "weir_find_runs",
        "weir_process_long_runs",
        "weir_process_runs",
        "weir_gather_entries",
        "weir_list_anomalies",
        "weir_gather_anomalies",
    ];
}

/// The argument of every kernel: addresses of device memory, and numbers. `KernelArguments` in
/// `kernels/weir.cu` has the same layout and describes the fields.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct KernelArguments {
    pub batch: u64,
    pub order: u64,
    pub other: u64,
    pub digit_counts: u64,
    pub runs: u64,
    pub touched: u64,
    pub anomalies: u64,
    pub counters: u64,
    pub index: u64,
    pub entries: u64,
    pub pool: u64,
    pub free: u64,
    pub out: u64,
    pub base_ns: u64,
    pub index_mask: u64,
    pub hash_key: [u64; 4],
    pub count: u32,
    pub network: u32,
    pub known_entries: u32,
    pub max_entries: u32,
    pub known_anomalies: u32,
    pub max_anomalies: u32,
    pub free_count: u32,
    pub sort_block: u32,
    pub sort_blocks: u32,
    pub shift: u32,
    pub threads: u32,
    pub first: u32,
}

const _: () = assert!(size_of::<KernelArguments>() == 200);

/// Counters of a batch that the kernels increment.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct BatchCounters {
    pub runs: u32,
    pub long_runs: u32,
    pub new_entries: u32,
    pub ended: u32,
    pub touched: u32,
    pub allocated_anomalies: u32,
    pub listed_anomalies: u32,
}
