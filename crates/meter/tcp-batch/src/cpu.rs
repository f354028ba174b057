//! Processing of a batch on the CPU.
//!
//! ```text
//! hash     of every batch entry: 40 bits, above the number of the entry
//! sort     by the 40 bits, stable: least significant digit first, 8 bits at a time
//! process  the entries in this order, run by run: entries in a row of one connection
//! ```
//! Packets of a connection are entered in the order of the capture. Connections with equal hashes
//! are distinguished by their keys. The GPU kernels do the same; tests compare both.

use crate::batch::Batch;
use crate::cost::{StageTimes, Stopwatch};
use crate::packed::{PackedIpv4, PackedIpv6, PackedPacket};
use crate::table::{ConnectionRecord, Entry, Table};
use weir_packet::Network;
use weir_tcp::AnomalyPool;

/// Low bits of a sort word that hold the number of the batch entry; the hash is above.
const NUMBER_BITS: u32 = 24;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
/// Runs whose table entries are prefetched together.
const RUNS: usize = 32;
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = (64 - NUMBER_BITS).div_ceil(DIGIT_BITS) as usize;

/// Processes batches; reuses its memory from batch to batch.
#[derive(Default)]
pub(crate) struct CpuProcessor {
    order: Vec<u64>,
    other: Vec<u64>,
    /// Batch entries in the order of processing.
    sorted: Vec<u64>,
    pub times: StageTimes,
}

impl CpuProcessor {
    /// Memory for the order of a batch, bytes.
    pub fn memory_bytes(&self) -> usize {
        8 * (self.order.capacity() + self.other.capacity() + self.sorted.capacity())
    }

    /// Enters a batch into the table. Connections that are followed by another are appended to
    /// `done`.
    pub fn process(&mut self, table: &mut Table, batch: &Batch, done: &mut Vec<ConnectionRecord>) {
        match batch.network {
            Network::Ipv4 => self.process_entries::<PackedIpv4>(table, batch, done),
            _ => self.process_entries::<PackedIpv6>(table, batch, done),
        }
    }

    fn process_entries<P: PackedPacket>(&mut self, table: &mut Table, batch: &Batch, done: &mut Vec<ConnectionRecord>) {
        let entries: &[P] = batch.entries();
        let mut stopwatch = Stopwatch::start();
        self.order.clear();
        self.order.extend(entries.iter().zip(0..).map(|(entry, number)| {
            let (key, _) = entry.key();
            key.hash(&table.hash_key) & !NUMBER | number
        }));
        self.times.hash += stopwatch.lap();
        self.sort();
        self.times.sort += stopwatch.lap();
        // These loads do not depend on each other; during processing each would be waited for.
        self.sorted.resize(size_of_val(entries).div_ceil(8), 0);
        let sorted: &mut [u8] = bytemuck::cast_slice_mut(&mut self.sorted);
        let sorted: &mut [P] = bytemuck::cast_slice_mut(&mut sorted[..size_of_val(entries)]);
        for (sorted, word) in sorted.iter_mut().zip(&self.order) {
            *sorted = entries[(word & NUMBER) as usize];
        }
        self.times.gather += stopwatch.lap();
        let mut rest: &[P] = sorted;
        let mut runs = Vec::with_capacity(RUNS);
        while !rest.is_empty() {
            // The index slots and then the table entries of some runs are prefetched together.
            runs.clear();
            while let Some(first) = rest.first()
                && runs.len() < RUNS
            {
                let (key, _) = first.key();
                let hash = key.hash(&table.hash_key);
                let end = rest.iter().position(|entry| entry.key().0 != key).unwrap_or(rest.len());
                let (run, others) = rest.split_at(end);
                table.prefetch_slot(hash);
                runs.push((key, hash, run));
                rest = others;
            }
            for (_, hash, _) in &runs {
                table.prefetch_entry(*hash);
            }
            for (key, hash, run) in &runs {
                let number = table.find_or_insert(key, *hash);
                table.reserve_anomalies();
                process_run(&mut table.entries[number], &mut table.pool, run, batch.base_ns, done);
            }
        }
        self.times.classify += stopwatch.lap();
    }

    /// Sorts the words by the hash; their numbers ascend.
    fn sort(&mut self) {
        let mut counts = [[0_u32; 1 << DIGIT_BITS]; DIGITS];
        for &word in &self.order {
            for (place, counts) in counts.iter_mut().enumerate() {
                counts[digit(word, place)] += 1;
            }
        }
        self.other.resize(self.order.len(), 0);
        for (place, counts) in counts.iter_mut().enumerate() {
            let mut sum = 0;
            for count in counts.iter_mut() {
                sum += std::mem::replace(count, sum);
            }
            for &word in &self.order {
                let to = &mut counts[digit(word, place)];
                self.other[*to as usize] = word;
                *to += 1;
            }
            std::mem::swap(&mut self.order, &mut self.other);
        }
    }
}

/// Enters packets in a row of one connection into its table entry.
fn process_run<P: PackedPacket>(
    entry: &mut Entry,
    pool: &mut AnomalyPool,
    run: &[P],
    base_ns: u64,
    done: &mut Vec<ConnectionRecord>,
) {
    let mut packets = run.iter();
    while let Some(packet) = packets.next() {
        let packed = packet.segment();
        let extension = if packed.has_extension() { packets.next().map(P::segment) } else { None };
        let segment = packed.unpack(extension, packet.identification(), base_ns);
        if segment.is_some_and(|segment| segment.opens_connection()) && entry.connection.has_ended() {
            done.push(entry.finish(pool));
        }
        let time_ns = packed.time_ns(base_ns);
        entry.first_ns = entry.first_ns.min(time_ns);
        entry.last_ns = entry.last_ns.max(time_ns);
        let side = packet.key().1;
        entry.packets[side] += 1;
        if !segment.as_ref().is_some_and(|segment| entry.connection.classify_segment_fast(side, segment)) {
            entry.connection.classify_segment(side, segment.as_ref(), pool);
        }
    }
}

#[inline(always)]
fn digit(word: u64, place: usize) -> usize {
    (word >> (NUMBER_BITS as usize + DIGIT_BITS as usize * place)) as usize & ((1 << DIGIT_BITS) - 1)
}
