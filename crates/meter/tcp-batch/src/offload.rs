//! Processing of batches on a device, and the host's copy of the device's table.
//!
//! ```text
//! submit(batch)   start the copy of the batch; collect the batch before; grow the device's table; launch
//! collect         wait for the kernels of a batch, read what they touched, then store it in the table
//! ```
//! While packets are packed, the batch before is copied or processed. The host's [`Table`] always
//! reflects a whole number of batches. A batch that fails is returned, so that the CPU can
//! continue.

use crate::batch::{Batch, MAX_ENTRY_BYTES};
use crate::buffer::Buffer;
use crate::device::{BatchCounters, Device, DeviceError, DeviceMemory, Kernel, KernelArguments};
use crate::packed::PackedIpv4;
use crate::table::{ConnectionRecord, Entry, Table};
use bytemuck::{Pod, Zeroable};
use weir_packet::Network;
use weir_tcp::PoolEntry;

/// Threads of a block whose threads work alone.
const THREADS: u32 = 128;
/// Threads of a block that work together; runs of more entries are long.
const WARP: u32 = 32;
/// Most blocks of the sort, and least words of a block.
const MAX_SORT_BLOCKS: usize = 4096;
const MIN_SORT_BLOCK: usize = 1024;
const DIGITS: usize = 256;
/// Table entries that are read at a time; of anomalies twice as many.
const GATHERED: usize = 1 << 14;

/// A device with memory for its table and for batches up to a size.
pub(crate) struct Offload {
    device: Box<dyn Device>,
    /// Most entries of a batch.
    max_entries: usize,
    /// The batch that is processed, and the next.
    batches: [DeviceMemory; 2],
    touched: DeviceMemory,
    anomalies: DeviceMemory,
    counters: DeviceMemory,
    out: DeviceMemory,
    free: DeviceMemory,
    index: DeviceMemory,
    entries: DeviceMemory,
    pool: DeviceMemory,
    /// Of the last launch. Memory that only kernels use is nowhere else.
    arguments: KernelArguments,
    running: Option<Batch>,
}

/// One or two batches that were not processed, in order.
pub(crate) struct FailedBatches {
    pub error: DeviceError,
    pub batches: Vec<Batch>,
}

impl Offload {
    /// Allocates memory for batches of at most `max_entries`, and copies the table to the device.
    pub fn new(mut device: Box<dyn Device>, max_entries: usize, table: &Table) -> Result<Self, DeviceError> {
        let mut memory = |length| device.allocate(length);
        let arguments = KernelArguments {
            order: memory(max_entries * 8)?.address,
            other: memory(max_entries * 8)?.address,
            digit_counts: memory(MAX_SORT_BLOCKS * DIGITS * 4)?.address,
            runs: memory(max_entries * 4)?.address,
            ..KernelArguments::default()
        };
        let mut offload = Self {
            max_entries,
            batches: [memory(max_entries * MAX_ENTRY_BYTES)?, memory(max_entries * MAX_ENTRY_BYTES)?],
            touched: memory(max_entries * 4)?,
            // Both sides of touched and of ended connections.
            anomalies: memory(4 * max_entries * 4)?,
            counters: memory(size_of::<BatchCounters>())?,
            out: memory(2 * GATHERED * size_of::<PoolEntry>())?,
            free: memory(max_entries * 4)?,
            index: DeviceMemory::default(),
            entries: DeviceMemory::default(),
            pool: DeviceMemory::default(),
            arguments,
            running: None,
            device,
        };
        offload.grow_table(table)?;
        Ok(offload)
    }

    /// Allocates host memory to pack a batch into.
    pub fn allocate_buffer(&mut self) -> Result<Buffer, DeviceError> {
        self.device.allocate_host(self.max_entries * MAX_ENTRY_BYTES)
    }

    /// Starts a batch. Finishes the one before and returns it, because its memory is free again.
    pub fn submit(
        &mut self,
        mut batch: Batch,
        table: &mut Table,
        done: &mut Vec<ConnectionRecord>,
    ) -> Result<Option<Batch>, FailedBatches> {
        let length = batch.count * entry_bytes(batch.network);
        let copied = self.device.copy_batch(&mut batch.buffer, length, self.batches[1]);
        let finished = match copied.and_then(|()| self.collect(table, done)) {
            Ok(finished) => finished,
            Err(error) => return Err(self.fail(error, Some(batch))),
        };
        self.batches.swap(0, 1);
        match self.launch_all(&batch, table) {
            Ok(()) => self.running = Some(batch),
            Err(error) => return Err(self.fail(error, Some(batch))),
        }
        Ok(finished)
    }

    /// Finishes the last batch.
    pub fn finish(
        &mut self,
        table: &mut Table,
        done: &mut Vec<ConnectionRecord>,
    ) -> Result<Option<Batch>, FailedBatches> {
        self.collect(table, done).map_err(|error| self.fail(error, None))
    }

    fn fail(&mut self, error: DeviceError, batch: Option<Batch>) -> FailedBatches {
        FailedBatches { error, batches: self.running.take().into_iter().chain(batch).collect() }
    }

    /// Launches the kernels for a batch.
    fn launch_all(&mut self, batch: &Batch, table: &mut Table) -> Result<(), DeviceError> {
        self.grow_table(table)?;
        let sort_block = batch.count.div_ceil(MAX_SORT_BLOCKS).max(MIN_SORT_BLOCK);
        let free = table.pool.free_indices();
        // The last ones are allocated first; a batch allocates at most one per entry.
        let free = &free[free.len().saturating_sub(batch.count)..];
        self.device.write(self.free, 0, bytemuck::cast_slice(free))?;
        self.device.write(self.counters, 0, bytemuck::bytes_of(&BatchCounters::default()))?;
        self.arguments = KernelArguments {
            batch: self.batches[0].address,
            touched: self.touched.address,
            anomalies: self.anomalies.address,
            counters: self.counters.address,
            index: self.index.address,
            entries: self.entries.address,
            pool: self.pool.address,
            free: self.free.address,
            out: self.out.address,
            base_ns: batch.base_ns,
            index_mask: (self.index.length / 8) as u64 - 1,
            hash_key: table.hash_key.0,
            count: batch.count as u32,
            network: batch.network as u32,
            known_entries: table.entries.len() as u32,
            max_entries: (self.entries.length / size_of::<Entry>()) as u32,
            known_anomalies: table.pool.entries().len() as u32,
            max_anomalies: (self.pool.length / size_of::<PoolEntry>()) as u32,
            free_count: free.len() as u32,
            sort_block: sort_block as u32,
            sort_blocks: batch.count.div_ceil(sort_block) as u32,
            ..self.arguments
        };
        self.launch(Kernel::Hash, batch.count)?;
        for shift in (24..64).step_by(8) {
            self.arguments.shift = shift;
            let blocks = self.arguments.sort_blocks;
            self.device.launch(Kernel::CountDigits, [blocks, WARP], &self.arguments)?;
            self.device.launch(Kernel::PrefixSums, [1, 1024], &self.arguments)?;
            self.device.launch(Kernel::Scatter, [blocks, WARP], &self.arguments)?;
            std::mem::swap(&mut self.arguments.order, &mut self.arguments.other);
        }
        self.launch(Kernel::FindRuns, batch.count)?;
        // The number of runs is known only to the device. There are at most as many as entries, and
        // one long run per warp of entries.
        let long_runs = self.arguments.count.div_ceil(WARP);
        self.device.launch(Kernel::ProcessLongRuns, [long_runs, WARP], &self.arguments)?;
        self.launch(Kernel::ProcessRuns, batch.count)
    }

    fn launch(&mut self, kernel: Kernel, threads: usize) -> Result<(), DeviceError> {
        self.arguments.threads = threads as u32;
        self.device.launch(kernel, [(threads as u32).div_ceil(THREADS), THREADS], &self.arguments)
    }

    /// Waits for the running batch, reads all that it touched, and only then stores it in the
    /// table.
    fn collect(&mut self, table: &mut Table, done: &mut Vec<ConnectionRecord>) -> Result<Option<Batch>, DeviceError> {
        if self.running.is_none() {
            return Ok(None);
        }
        let counters: BatchCounters = self.read_one(self.counters)?;
        let (touched, ended) = (counters.touched as usize, counters.ended as usize);
        let mut numbers = vec![0_u32; touched];
        self.device.read(self.touched, 0, bytemuck::cast_slice_mut(&mut numbers))?;
        let mut entries = vec![Entry::zeroed(); touched];
        self.gather(Kernel::GatherEntries, GATHERED, &mut entries)?;
        let mut ended_entries = vec![Entry::zeroed(); ended];
        let from = (self.arguments.max_entries as usize - ended) * size_of::<Entry>();
        self.device.read(self.entries, from, bytemuck::cast_slice_mut(&mut ended_entries))?;

        self.launch(Kernel::ListAnomalies, touched + ended)?;
        let listed = self.read_one::<BatchCounters>(self.counters)?.listed_anomalies as usize;
        let mut indices = vec![0_u32; listed];
        self.device.read(self.anomalies, 0, bytemuck::cast_slice_mut(&mut indices))?;
        let mut anomalies = vec![PoolEntry::zeroed(); listed];
        self.gather(Kernel::GatherAnomalies, 2 * GATHERED, &mut anomalies)?;

        // From here on nothing fails.
        table.pool.mirror_allocations(counters.allocated_anomalies as usize);
        for (&index, anomaly) in indices.iter().zip(&anomalies) {
            table.pool.mirror_entry(index, anomaly);
        }
        for entry in &mut ended_entries {
            done.push(entry.finish(&mut table.pool));
        }
        for (&number, entry) in numbers.iter().zip(&entries) {
            table.store(number as usize, entry);
        }
        Ok(self.running.take())
    }

    fn read_one<T: Pod>(&mut self, memory: DeviceMemory) -> Result<T, DeviceError> {
        let mut one = T::zeroed();
        self.device.read(memory, 0, bytemuck::bytes_of_mut(&mut one))?;
        Ok(one)
    }

    /// Gathers listed items in the output memory of the device, `at_a_time`, and reads them.
    fn gather<T: Pod>(&mut self, kernel: Kernel, at_a_time: usize, items: &mut [T]) -> Result<(), DeviceError> {
        for (number, items) in items.chunks_mut(at_a_time).enumerate() {
            self.arguments.first = (number * at_a_time) as u32;
            self.launch(kernel, items.len() * (size_of::<T>() / 8))?;
            self.device.read(self.out, 0, bytemuck::cast_slice_mut(items))?;
        }
        Ok(())
    }

    /// Copies the whole table into larger memory if another batch may not fit. No batch is running.
    fn grow_table(&mut self, table: &Table) -> Result<(), DeviceError> {
        let entries = (table.entries.len() + self.max_entries) * size_of::<Entry>();
        let pool = (table.pool.entries().len() + self.max_entries) * size_of::<PoolEntry>();
        let index = table.index.len().max((2 * (table.entries.len() + self.max_entries)).next_power_of_two()) * 8;
        if self.entries.length < entries || self.index.length < index {
            self.replace(|it| &mut it.entries, 2 * entries, table.entries.chunks().map(bytemuck::cast_slice))?;
            let words = table.build_index(index.max(2 * self.index.length) / 8);
            self.replace(|it| &mut it.index, words.len() * 8, [bytemuck::cast_slice(&words)])?;
        }
        if self.pool.length < pool {
            self.replace(|it| &mut it.pool, 2 * pool, [bytemuck::cast_slice(table.pool.entries())])?;
        }
        Ok(())
    }

    /// Replaces memory by larger memory that starts with `chunks`.
    fn replace<'a>(
        &mut self,
        memory: fn(&mut Self) -> &mut DeviceMemory,
        length: usize,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), DeviceError> {
        let old = std::mem::take(memory(self));
        self.device.free(old);
        let new = self.device.allocate(length)?;
        *memory(self) = new;
        let mut offset = 0;
        for chunk in chunks {
            self.device.write(new, offset, chunk)?;
            offset += chunk.len();
        }
        Ok(())
    }
}

/// Size of a batch entry of a network.
fn entry_bytes(network: Network) -> usize {
    match network {
        Network::Ipv4 => size_of::<PackedIpv4>(),
        _ => MAX_ENTRY_BYTES,
    }
}
