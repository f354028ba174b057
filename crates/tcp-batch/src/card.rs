//! The walk through a batch on a card, and a copy on the host of all that the card knows.
//!
//! ```text
//! submit(batch)   send its records; meanwhile wait for the batch before; see to it that there is room; launch
//! wait            for the kernels of the batch before: fetch what they touched, all of it, then enter it in the table
//! ```
//! So while records are packed, those of the batch before are on their way or walked through. What is always true: the
//! host's [`Table`] is that of a whole number of batches, and a batch that failed in any way is handed back, so that the
//! processor can go on with both.

use crate::batch::{Batch, LARGEST};
use crate::buffer::Buffer;
use crate::conversation::ConnectionRecord;
use crate::table::{Entry, Table};
use bytemuck::{Pod, Zeroable};
use weir_packet::Network;
use weir_tcp::TcpAnomaly;

/// Why a device did not do what was asked of it, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub String);

/// Memory of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub address: u64,
    pub octets: usize,
}

/// What is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    Hash,
    Count,
    Scan,
    Scatter,
    Heads,
    WalkLong,
    Walk,
    Entries,
    Troubles,
    Rooms,
}

impl Kernel {
    pub const ALL: [Self; 10] = [
        Self::Hash,
        Self::Count,
        Self::Scan,
        Self::Scatter,
        Self::Heads,
        Self::WalkLong,
        Self::Walk,
        Self::Entries,
        Self::Troubles,
        Self::Rooms,
    ];

    /// Its name in `kernels/weir.cu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "weir_hash",
            Self::Count => "weir_count",
            Self::Scan => "weir_scan",
            Self::Scatter => "weir_scatter",
            Self::Heads => "weir_heads",
            Self::WalkLong => "weir_walk_long",
            Self::Walk => "weir_walk",
            Self::Entries => "weir_entries",
            Self::Troubles => "weir_troubles",
            Self::Rooms => "weir_rooms",
        }
    }
}

/// What does the work: a card, or in tests a compiler's view of one. Everything happens in the order it was asked for.
pub(crate) trait Device: Send {
    /// Memory of the host that records are sent from.
    fn buffer(&mut self, octets: usize) -> Result<Buffer, Failure>;
    /// Memory of the device, all zero.
    fn allocate(&mut self, octets: usize) -> Result<Memory, Failure>;
    fn free(&mut self, memory: Memory);
    /// Sends records, perhaps while kernels run that were launched before. Later launches wait for them.
    fn send(&mut self, from: &mut Buffer, octets: usize, to: Memory) -> Result<(), Failure>;
    /// Writes at an offset, after all that was launched.
    fn write(&mut self, to: Memory, offset: usize, from: &[u8]) -> Result<(), Failure>;
    /// Reads at an offset, after all that was launched.
    fn read(&mut self, from: Memory, offset: usize, to: &mut [u8]) -> Result<(), Failure>;
    /// Starts a kernel. All addresses of the job are of memory that it has, and is large enough.
    fn launch(&mut self, kernel: Kernel, blocks: u32, threads: u32, job: &Job) -> Result<(), Failure>;
}

/// What every kernel is told; `kernels/weir.cu` says what is what.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Job {
    records: u64,
    order: u64,
    other: u64,
    counters: u64,
    runs: u64,
    touched: u64,
    troubles: u64,
    tallies: u64,
    index: u64,
    entries: u64,
    room: u64,
    free: u64,
    out: u64,
    base_ns: u64,
    index_mask: u64,
    secret: [u64; 4],
    count: u32,
    network: u32,
    known: u32,
    capacity: u32,
    room_known: u32,
    room_capacity: u32,
    free_count: u32,
    segment: u32,
    segments: u32,
    shift: u32,
    threads: u32,
    first: u32,
}

const _: () = assert!(size_of::<Job>() == 200);

/// Numbers that a batch leaves behind.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Tallies {
    runs: u32,
    long_runs: u32,
    new: u32,
    closed: u32,
    touched: u32,
    taken: u32,
    troubles: u32,
}

/// Threads of a block where each does its own.
const THREADS: u32 = 128;
/// Threads of a block that work together; longer runs than that are long.
const LANES: u32 = 32;
/// Segments of a sort, at most; and words of a segment, at least.
const SEGMENTS: usize = 4096;
const SEGMENT: usize = 1024;
const DIGITS: usize = 256;
/// Entries, or twice as many troubles, that are fetched at a time.
const FETCHED: usize = 1 << 14;

/// A device with the memory it needs for batches up to a size, and its copy of the table.
pub(crate) struct Card {
    device: Box<dyn Device>,
    /// Records of a batch, at most.
    limit: usize,
    /// Of the batch that is walked through, and of the next.
    records: [Memory; 2],
    order: Memory,
    other: Memory,
    counters: Memory,
    runs: Memory,
    touched: Memory,
    troubles: Memory,
    tallies: Memory,
    out: Memory,
    free: Memory,
    index: Memory,
    entries: Memory,
    room: Memory,
    job: Job,
    running: Option<Batch>,
}

/// A batch that was not walked through, or two: in order.
pub(crate) struct Returned {
    pub why: Failure,
    pub batches: Vec<Batch>,
}

impl Card {
    /// With memory for batches of so many records.
    pub fn new(mut device: Box<dyn Device>, limit: usize, table: &Table) -> Result<Self, Failure> {
        let mut memory = |octets| device.allocate(octets);
        let mut card = Self {
            limit,
            records: [memory(limit * LARGEST)?, memory(limit * LARGEST)?],
            order: memory(limit * 8)?,
            other: memory(limit * 8)?,
            counters: memory(SEGMENTS * DIGITS * 4)?,
            runs: memory(limit * 4)?,
            touched: memory(limit * 4)?,
            // Both sides of what is touched and of what is closed.
            troubles: memory(4 * limit * 4)?,
            tallies: memory(size_of::<Tallies>())?,
            out: memory(2 * FETCHED * size_of::<TcpAnomaly>())?,
            free: memory(limit * 4)?,
            index: Memory::default(),
            entries: Memory::default(),
            room: Memory::default(),
            job: Job::default(),
            running: None,
            device,
        };
        card.make_room(table)?;
        Ok(card)
    }

    /// Memory to pack records into.
    pub fn buffer(&mut self) -> Result<Buffer, Failure> {
        self.device.buffer(self.limit * LARGEST)
    }

    /// Takes a batch; the one before is done then, and its memory is free again.
    pub fn submit(
        &mut self,
        mut batch: Batch,
        table: &mut Table,
        done: &mut Vec<ConnectionRecord>,
    ) -> Result<Option<Batch>, Returned> {
        let octets = batch.count * record_octets(batch.network);
        let sent = self.device.send(&mut batch.buffer, octets, self.records[1]);
        let before = match sent.and_then(|()| self.enter(table, done)) {
            Ok(before) => before,
            Err(why) => return Err(self.give_back(why, Some(batch))),
        };
        self.records.swap(0, 1);
        match self.launch_all(&batch, table) {
            Ok(()) => self.running = Some(batch),
            Err(why) => return Err(self.give_back(why, Some(batch))),
        }
        Ok(before)
    }

    /// Waits until all is done.
    pub fn finish(&mut self, table: &mut Table, done: &mut Vec<ConnectionRecord>) -> Result<Option<Batch>, Returned> {
        self.enter(table, done).map_err(|why| self.give_back(why, None))
    }

    fn give_back(&mut self, why: Failure, batch: Option<Batch>) -> Returned {
        Returned { why, batches: self.running.take().into_iter().chain(batch).collect() }
    }

    /// Launches the walk through a batch.
    fn launch_all(&mut self, batch: &Batch, table: &mut Table) -> Result<(), Failure> {
        self.make_room(table)?;
        let segment = batch.count.div_ceil(SEGMENTS).max(SEGMENT);
        let free = table.room.free_indices();
        // The last ones are taken first; more than there are records no batch takes.
        let free = &free[free.len().saturating_sub(batch.count)..];
        self.device.write(self.free, 0, bytemuck::cast_slice(free))?;
        self.device.write(self.tallies, 0, bytemuck::bytes_of(&Tallies::default()))?;
        self.job = Job {
            records: self.records[0].address,
            order: self.order.address,
            other: self.other.address,
            counters: self.counters.address,
            runs: self.runs.address,
            touched: self.touched.address,
            troubles: self.troubles.address,
            tallies: self.tallies.address,
            index: self.index.address,
            entries: self.entries.address,
            room: self.room.address,
            free: self.free.address,
            out: self.out.address,
            base_ns: batch.base_ns,
            index_mask: (self.index.octets / 8) as u64 - 1,
            secret: table.secret.0,
            count: batch.count as u32,
            network: batch.network as u32,
            known: table.entries.len() as u32,
            capacity: (self.entries.octets / size_of::<Entry>()) as u32,
            room_known: table.room.entries().len() as u32,
            room_capacity: (self.room.octets / size_of::<TcpAnomaly>()) as u32,
            free_count: free.len() as u32,
            segment: segment as u32,
            segments: batch.count.div_ceil(segment) as u32,
            shift: 0,
            threads: 0,
            first: 0,
        };
        self.launch(Kernel::Hash, batch.count)?;
        for shift in (24..64).step_by(8) {
            self.job.shift = shift;
            let segments = self.job.segments;
            self.device.launch(Kernel::Count, segments, LANES, &self.job)?;
            self.device.launch(Kernel::Scan, 1, 1024, &self.job)?;
            self.device.launch(Kernel::Scatter, segments, LANES, &self.job)?;
            std::mem::swap(&mut self.job.order, &mut self.job.other);
        }
        self.launch(Kernel::Heads, batch.count)?;
        // There are at most as many runs as records, and long ones as there are lanes in them; the card knows how many.
        let long = self.job.count.div_ceil(LANES);
        self.device.launch(Kernel::WalkLong, long, LANES, &self.job)?;
        self.launch(Kernel::Walk, batch.count)
    }

    fn launch(&mut self, kernel: Kernel, threads: usize) -> Result<(), Failure> {
        self.job.threads = threads as u32;
        self.device.launch(kernel, (threads as u32).div_ceil(THREADS), THREADS, &self.job)
    }

    /// Fetches what the batch that runs has touched, and enters it in the table when all is here.
    fn enter(&mut self, table: &mut Table, done: &mut Vec<ConnectionRecord>) -> Result<Option<Batch>, Failure> {
        if self.running.is_none() {
            return Ok(None);
        }
        let tallies: Tallies = self.read_one(self.tallies)?;
        let (touched, closed) = (tallies.touched as usize, tallies.closed as usize);
        let mut numbers = vec![0_u32; touched];
        self.device.read(self.touched, 0, bytemuck::cast_slice_mut(&mut numbers))?;
        let mut entries = vec![Entry::zeroed(); touched];
        self.fetch(Kernel::Entries, FETCHED, &mut entries)?;
        let mut ended = vec![Entry::zeroed(); closed];
        let from = (self.job.capacity as usize - closed) * size_of::<Entry>();
        self.device.read(self.entries, from, bytemuck::cast_slice_mut(&mut ended))?;

        self.launch(Kernel::Troubles, touched + closed)?;
        let found = self.read_one::<Tallies>(self.tallies)?.troubles as usize;
        let mut rooms = vec![0_u32; found];
        self.device.read(self.troubles, 0, bytemuck::cast_slice_mut(&mut rooms))?;
        let mut troubles = vec![TcpAnomaly::zeroed(); found];
        self.fetch(Kernel::Rooms, 2 * FETCHED, &mut troubles)?;

        // All is here.
        table.room.mirror_allocations(tallies.taken as usize);
        for (&number, trouble) in rooms.iter().zip(&troubles) {
            table.room.mirror_entry(number, trouble);
        }
        for entry in &mut ended {
            done.push(entry.close(&mut table.room));
        }
        for (&number, entry) in numbers.iter().zip(&entries) {
            table.put(number as usize, entry);
        }
        Ok(self.running.take())
    }

    fn read_one<T: Pod>(&mut self, memory: Memory) -> Result<T, Failure> {
        let mut one = T::zeroed();
        self.device.read(memory, 0, bytemuck::bytes_of_mut(&mut one))?;
        Ok(one)
    }

    /// Has items of a list gathered, so many at a time, and reads them.
    fn fetch<T: Pod>(&mut self, kernel: Kernel, at_a_time: usize, items: &mut [T]) -> Result<(), Failure> {
        for (number, items) in items.chunks_mut(at_a_time).enumerate() {
            self.job.first = (number * at_a_time) as u32;
            self.launch(kernel, items.len() * (size_of::<T>() / 8))?;
            self.device.read(self.out, 0, bytemuck::cast_slice_mut(items))?;
        }
        Ok(())
    }

    /// Copies the whole table to the device where it has no room for a batch more. Only between batches.
    fn make_room(&mut self, table: &Table) -> Result<(), Failure> {
        let entries = (table.entries.len() + self.limit) * size_of::<Entry>();
        let room = (table.room.entries().len() + self.limit) * size_of::<TcpAnomaly>();
        let index = table.index.len().max((2 * (table.entries.len() + self.limit)).next_power_of_two()) * 8;
        if self.entries.octets < entries || self.index.octets < index {
            self.renew(|card| &mut card.entries, 2 * entries, table.entries.pieces().map(bytemuck::cast_slice))?;
            let words = table.index_of(index.max(2 * self.index.octets) / 8);
            self.renew(|card| &mut card.index, words.len() * 8, [bytemuck::cast_slice(&words)])?;
        }
        if self.room.octets < room {
            self.renew(|card| &mut card.room, 2 * room, [bytemuck::cast_slice(table.room.entries())])?;
        }
        Ok(())
    }

    /// Other memory in place of some, with these at its beginning.
    fn renew<'a>(
        &mut self,
        which: fn(&mut Self) -> &mut Memory,
        octets: usize,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), Failure> {
        let old = std::mem::take(which(self));
        self.device.free(old);
        let memory = self.device.allocate(octets)?;
        *which(self) = memory;
        let mut offset = 0;
        for piece in pieces {
            self.device.write(memory, offset, piece)?;
            offset += piece.len();
        }
        Ok(())
    }
}

/// Octets of a record of this network.
fn record_octets(network: Network) -> usize {
    match network {
        Network::Ipv4 => size_of::<crate::record::Ipv4>(),
        _ => LARGEST,
    }
}
