//! The engine: shards on the GPUs or on the CPU, and the assignment of packets to them.

use crate::batch::MAX_ENTRIES;
use crate::cost::{StageTimes, Stopwatch};
use crate::cuda::{self, Cuda};
use crate::device::DeviceError;
use crate::key::{ConnectionKey, HashKey};
use crate::self_test;
use crate::shard::Shard;
use crate::table::ConnectionRecord;
use std::time::Duration;
use weir_packet::{Flags, Network, Packet};

/// The protocol number of TCP.
const TCP: u8 = 6;

/// Where batches are processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// On the GPUs, if there are any that pass the self-test; else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPUs. Opening the engine fails without one.
    Gpu,
}

/// Options of an [`Engine`].
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Where batches are processed.
    pub backend: Backend,
    /// Most packets of a batch: 2 to 2^24. A GPU takes fewer if it has too little memory.
    pub batch_size: usize,
    /// Directions with anomalies, 1.6 kB each, for which the CPU reserves memory. Reports of
    /// further ones are marked [`weir_tcp::Degradation::POOL_FULL`]. The pool may grow to twice as
    /// many.
    pub max_anomalies: usize,
}

/// Why an engine runs on the CPU although it may use GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fallback {
    /// No GPU could be used.
    #[error("no GPU is used: {0}")]
    Unavailable(DeviceError),
    /// A GPU failed while it was used.
    #[error("a GPU failed, and the CPU continues: {0}")]
    Failed(DeviceError),
}

/// Counters of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Packets that belong to a connection.
    pub entered: u64,
    /// Packets that are not TCP over IP.
    pub not_tcp: u64,
    /// Later fragments, and packets cut before the ports: their connection is unknown.
    pub without_ports: u64,
    /// Batches of all shards.
    pub batches: u64,
    /// Batches that a GPU did not finish and the CPU repeated.
    pub repeated_batches: u64,
    /// Why GPUs are not used, or no longer; `None` if they are used or were not wanted.
    pub fallback: Option<Fallback>,
    /// Time of each stage.
    pub times: StageTimes,
    /// Memory of the host for tables and batches, bytes.
    pub memory_bytes: u64,
}

/// Takes packets in the order of the capture and returns the records of their connections.
///
/// The records come in no particular order: a record comes when another connection starts between
/// the same endpoints, all others at the end. They depend neither on the devices nor on the batch
/// size.
pub struct Engine {
    hash_key: HashKey,
    shards: Vec<Shard>,
    name: String,
    counters: EngineCounters,
    /// Time in which packets were packed.
    pack_time: Duration,
}

/// Memory of a GPU per packet of a batch. It lets the tables grow to four times their first size.
const GPU_BYTES_PER_PACKET: usize = 16 << 10;
/// Batch size below which a GPU is not used.
const MIN_GPU_BATCH: usize = 1 << 14;
const DEFAULT_BATCH_SIZE: usize = 1 << 20;

impl Default for EngineOptions {
    fn default() -> Self {
        Self { backend: Backend::Auto, batch_size: DEFAULT_BATCH_SIZE, max_anomalies: usize::MAX }
    }
}

impl Engine {
    /// Opens the devices.
    ///
    /// # Errors
    /// [`Backend::Gpu`] was asked for, and no GPU can be used.
    pub fn open(options: EngineOptions) -> Result<Self, DeviceError> {
        let hash_key = HashKey::random();
        let max_entries = options.batch_size.clamp(2, MAX_ENTRIES);
        // One thread gains nothing from several shards.
        let on_cpu = |fallback| Self::new(hash_key, vec![Shard::on_cpu(hash_key, max_entries)], "CPU".into(), fallback);
        let mut engine = match options.backend {
            Backend::Cpu => on_cpu(None),
            backend => match open_gpus(hash_key, max_entries) {
                Ok((shards, name)) => Self::new(hash_key, shards, name, None),
                Err(error) if backend == Backend::Gpu => return Err(error),
                Err(error) => on_cpu(Some(Fallback::Unavailable(error))),
            },
        };
        engine.shards.iter_mut().for_each(|shard| shard.table.max_anomalies = options.max_anomalies);
        Ok(engine)
    }

    pub(crate) fn new(hash_key: HashKey, shards: Vec<Shard>, name: String, fallback: Option<Fallback>) -> Self {
        Self {
            hash_key,
            shards,
            name,
            counters: EngineCounters { fallback, ..EngineCounters::default() },
            pack_time: Duration::ZERO,
        }
    }

    /// Names of the devices it runs on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The counters so far.
    pub fn counters(&self) -> EngineCounters {
        let sum = |of: fn(&Shard) -> u64| self.shards.iter().map(of).sum();
        let failure = self.shards.iter().find_map(|shard| shard.failure.clone());
        EngineCounters {
            batches: sum(|shard| shard.batches),
            repeated_batches: sum(|shard| shard.repeated_batches),
            fallback: failure.map(Fallback::Failed).or_else(|| self.counters.fallback.clone()),
            times: self.times(),
            memory_bytes: sum(|shard| shard.memory_bytes() as u64),
            ..self.counters
        }
    }

    fn times(&self) -> StageTimes {
        let mut times = StageTimes { pack: self.pack_time, ..StageTimes::default() };
        self.shards.iter().for_each(|shard| times.add(&shard.times()));
        times
    }

    /// Enters packets. Appends to `done` connections that ended and were followed by another,
    /// perhaps some batches later.
    pub fn enter(&mut self, packets: &[Packet], done: &mut Vec<ConnectionRecord>) {
        let (mut stopwatch, before) = (Stopwatch::start(), self.times().total());
        for packet in packets {
            if packet.protocol != TCP || packet.network == Network::Layer2 {
                self.counters.not_tcp += 1;
                continue;
            }
            if !packet.flags.has(Flags::PORTS) {
                self.counters.without_ports += 1;
                continue;
            }
            self.counters.entered += 1;
            // Both directions of a connection are in one shard.
            let shard = match self.shards.len() {
                1 => 0,
                shards => (ConnectionKey::from_packet(packet).0.hash(&self.hash_key) >> 32) as usize % shards,
            };
            self.shards[shard].enter(packet, done);
        }
        // What was not spent on batches.
        self.pack_time += stopwatch.lap().saturating_sub(self.times().total() - before);
    }

    /// Ends the capture: appends the records of all connections that are left.
    pub fn finish(mut self, done: &mut Vec<ConnectionRecord>) -> EngineCounters {
        self.shards.iter_mut().for_each(|shard| shard.finish_batches(done));
        // Before the table is freed.
        let counters = self.counters();
        self.shards.iter_mut().for_each(|shard| shard.finish(done));
        counters
    }
}

/// Opens a shard on every GPU. Returns them with the names of the GPUs.
fn open_gpus(hash_key: HashKey, max_entries: usize) -> Result<(Vec<Shard>, String), DeviceError> {
    let mut shards = Vec::new();
    let mut names = Vec::new();
    for number in 0..cuda::count_devices()? {
        self_test::run(Box::new(Cuda::open(number)?.0))?;
        let (gpu, name) = Cuda::open(number)?;
        let fits = gpu.free_bytes()? / GPU_BYTES_PER_PACKET;
        if fits < max_entries.min(MIN_GPU_BATCH) {
            return Err(DeviceError::Unusable(format!("{name} has too little free memory")));
        }
        shards.push(Shard::on_device(Box::new(gpu), hash_key, max_entries.min(fits))?);
        names.push(name);
    }
    Ok((shards, names.join(", ")))
}
