//! A shard: one table of connections and the device, or the CPU, that processes its batches.

use crate::batch::{Batch, MAX_ENTRY_BYTES};
use crate::buffer::Buffer;
use crate::cost::{StageTimes, Stopwatch};
use crate::cpu::CpuProcessor;
use crate::device::{Device, DeviceError};
use crate::key::HashKey;
use crate::offload::{FailedBatches, Offload};
use crate::packed::{PackedIpv4, PackedIpv6};
use crate::table::{ConnectionRecord, Table};
use std::time::Duration;
use weir_packet::{Network, Packet};

/// Packs packets into batches and has them processed.
pub(crate) struct Shard {
    pub table: Table,
    cpu: CpuProcessor,
    /// Most entries of a batch.
    max_entries: usize,
    /// The device, until it fails.
    offload: Option<Offload>,
    /// The batches that are being filled: IPv4 and IPv6.
    filling: [Batch; 2],
    spare: Vec<Buffer>,
    /// Time that the device took: copies, launches, waiting.
    device_time: Duration,
    pub batches: u64,
    /// Batches that a device did not finish and the CPU repeated.
    pub repeated_batches: u64,
    /// The error of the device that failed.
    pub failure: Option<DeviceError>,
}

impl Shard {
    /// Creates a shard on the CPU, with batches of at most `max_entries`.
    pub fn on_cpu(hash_key: HashKey, max_entries: usize) -> Self {
        let filling = [Network::Ipv4, Network::Ipv6].map(|network| Batch::new(network, Buffer::plain(0)));
        Self {
            table: Table::new(hash_key),
            cpu: CpuProcessor::default(),
            max_entries,
            offload: None,
            filling,
            spare: Vec::new(),
            device_time: Duration::ZERO,
            batches: 0,
            repeated_batches: 0,
            failure: None,
        }
    }

    /// Creates a shard on a device.
    pub fn on_device(device: Box<dyn Device>, hash_key: HashKey, max_entries: usize) -> Result<Self, DeviceError> {
        let mut shard = Self::on_cpu(hash_key, max_entries);
        shard.offload = Some(Offload::new(device, max_entries, &shard.table)?);
        Ok(shard)
    }

    /// Enters a TCP packet with ports.
    #[inline]
    pub fn enter(&mut self, packet: &Packet, done: &mut Vec<ConnectionRecord>) {
        if !self.push(packet) {
            self.flush(usize::from(packet.network == Network::Ipv6), done);
            assert!(self.push(packet), "an empty batch takes any packet");
        }
    }

    #[inline]
    fn push(&mut self, packet: &Packet) -> bool {
        let key = self.table.pool.digest_key();
        match packet.network {
            Network::Ipv4 => self.filling[0].push::<PackedIpv4>(packet, key, self.max_entries),
            _ => self.filling[1].push::<PackedIpv6>(packet, key, self.max_entries),
        }
    }

    /// Has a batch processed, and starts another.
    fn flush(&mut self, which: usize, done: &mut Vec<ConnectionRecord>) {
        let buffer = self.take_buffer();
        let network = self.filling[which].network;
        let batch = std::mem::replace(&mut self.filling[which], Batch::new(network, buffer));
        if batch.count == 0 {
            return;
        }
        self.batches += 1;
        match &mut self.offload {
            None => self.process_on_cpu(batch, done),
            Some(offload) => {
                let result = timed(&mut self.device_time, || offload.submit(batch, &mut self.table, done));
                self.reuse(result, done);
            }
        }
    }

    fn take_buffer(&mut self) -> Buffer {
        let spare = self.spare.pop();
        let pinned = || self.offload.as_mut().and_then(|offload| offload.allocate_buffer().ok());
        spare.or_else(pinned).unwrap_or_else(|| Buffer::plain(self.max_entries * MAX_ENTRY_BYTES))
    }

    fn process_on_cpu(&mut self, batch: Batch, done: &mut Vec<ConnectionRecord>) {
        self.cpu.process(&mut self.table, &batch, done);
        self.spare.push(batch.buffer);
    }

    /// Keeps the buffer of a batch that the device finished. If it failed, the CPU continues behind
    /// the last finished batch.
    fn reuse(&mut self, result: Result<Option<Batch>, FailedBatches>, done: &mut Vec<ConnectionRecord>) {
        let failed = match result {
            Ok(finished) => return self.spare.extend(finished.map(|batch| batch.buffer)),
            Err(failed) => failed,
        };
        self.offload = None;
        self.failure = Some(failed.error);
        for batch in failed.batches {
            self.repeated_batches += 1;
            self.process_on_cpu(batch, done);
        }
    }

    /// Time of all stages but packing.
    pub fn times(&self) -> StageTimes {
        StageTimes { device: self.device_time, ..self.cpu.times }
    }

    /// Memory of the table, of the batches and for their order, bytes.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.filling.iter().map(|batch| &batch.buffer).chain(&self.spare);
        let buffers: usize = buffers.map(|buffer| buffer.bytes().len()).sum();
        buffers + self.cpu.memory_bytes() + self.table.memory_bytes()
    }

    /// Has all batches processed.
    pub fn finish_batches(&mut self, done: &mut Vec<ConnectionRecord>) {
        for which in 0..2 {
            if self.filling[which].count > 0 {
                self.flush(which, done);
            }
        }
        if let Some(offload) = &mut self.offload {
            let result = timed(&mut self.device_time, || offload.finish(&mut self.table, done));
            self.reuse(result, done);
        }
    }

    /// Ends the capture: appends the records of all connections that are left.
    pub fn finish(&mut self, done: &mut Vec<ConnectionRecord>) {
        self.finish_batches(done);
        // Table entries are freed while their records are created.
        self.table.index = Vec::new();
        while let Some(entry) = self.table.entries.pop() {
            done.push(entry.record(&self.table.pool));
        }
    }
}

/// Adds the time of `work` to `time`.
fn timed<T>(time: &mut Duration, work: impl FnOnce() -> T) -> T {
    let mut stopwatch = Stopwatch::start();
    let result = work();
    *time += stopwatch.lap();
    result
}
