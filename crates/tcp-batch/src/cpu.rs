//! The walk through a batch on the processor.
//!
//! ```text
//! hash   of every record: 40 bits, above the number of the record
//! sort   by the 40 bits, stable: least significant digit first, 8 bits at a time
//! walk   every run of equal bits in order, with the entry of its connection at hand
//! ```
//! What is always true: packets of a connection are entered in the order of the capture; two connections of one hash
//! lie in one run and are told apart by their keys. The kernels do the same, and with them what is here is compared.

use crate::batch::Batch;
use crate::conversation::ConnectionRecord;
use crate::record::{Ipv4, Ipv6, Record};
use crate::table::{Entry, Table};
use weir_packet::Network;
use weir_tcp::AnomalyPool;

/// Bits of a word that are the record's number; those above are of the hash.
const NUMBER_BITS: u32 = 24;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
/// Runs whose entries are fetched together.
const RUNS: usize = 32;
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = (64 - NUMBER_BITS).div_ceil(DIGIT_BITS) as usize;

/// Memory that is used again from batch to batch.
#[derive(Default)]
pub(crate) struct Walker {
    order: Vec<u64>,
    other: Vec<u64>,
    /// Records in the order of the walk.
    sorted: Vec<u64>,
}

impl Walker {
    /// Enters a batch into the table. Connections that another one follows are done.
    pub fn walk(&mut self, table: &mut Table, batch: &Batch, done: &mut Vec<ConnectionRecord>) {
        match batch.network {
            Network::Ipv4 => self.walk_of::<Ipv4>(table, batch, done),
            _ => self.walk_of::<Ipv6>(table, batch, done),
        }
    }

    fn walk_of<R: Record>(&mut self, table: &mut Table, batch: &Batch, done: &mut Vec<ConnectionRecord>) {
        let records: &[R] = batch.records();
        self.order.clear();
        self.order.extend(records.iter().zip(0..).map(|(record, number)| {
            let (key, _) = record.key();
            key.hash(&table.secret) & !NUMBER | number
        }));
        self.sort();
        // Loads that do not wait for each other; the walk would wait for every one.
        self.sorted.resize(size_of_val(records).div_ceil(8), 0);
        let sorted: &mut [R] = bytemuck::cast_slice_mut(&mut self.sorted);
        for (sorted, word) in sorted.iter_mut().zip(&self.order) {
            *sorted = records[(word & NUMBER) as usize];
        }
        let mut rest: &[R] = sorted;
        let mut runs = Vec::with_capacity(RUNS);
        while !rest.is_empty() {
            // Some runs at a time: the places and then the entries of all are fetched before the first is walked along.
            runs.clear();
            while let Some(first) = rest.first()
                && runs.len() < RUNS
            {
                let (key, _) = first.key();
                let hash = key.hash(&table.secret);
                let end = rest.iter().position(|record| record.key().0 != key).unwrap_or(rest.len());
                let (run, others) = rest.split_at(end);
                table.fetch_place(hash);
                runs.push((key, hash, run));
                rest = others;
            }
            for (_, hash, _) in &runs {
                table.fetch_entry(*hash);
            }
            for (key, hash, run) in &runs {
                let at = table.entry(key, *hash);
                table.reserve_room();
                walk_along(&mut table.entries[at], &mut table.room, run, batch.base_ns, done);
            }
        }
    }

    /// Sorts by what is above the numbers, which ascend.
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

/// Enters the packets of a connection that follow each other.
fn walk_along<R: Record>(
    entry: &mut Entry,
    room: &mut AnomalyPool,
    run: &[R],
    base_ns: u64,
    done: &mut Vec<ConnectionRecord>,
) {
    let mut records = run.iter();
    while let Some(record) = records.next() {
        let facts = record.facts();
        let second = if facts.has_second() { records.next().map(Record::facts) } else { None };
        if facts.opens() && entry.connection.has_ended() {
            done.push(entry.close(room));
        }
        let time_ns = facts.time_ns(base_ns);
        entry.first_ns = entry.first_ns.min(time_ns);
        entry.last_ns = entry.last_ns.max(time_ns);
        let side = record.key().1;
        entry.packets[side] += 1;
        let segment = facts.segment(second, base_ns);
        if !segment.as_ref().is_some_and(|segment| entry.connection.enter_segment_fast(side, segment)) {
            entry.connection.enter_segment(side, segment.as_ref(), room);
        }
    }
}

#[inline(always)]
fn digit(word: u64, place: usize) -> usize {
    (word >> (NUMBER_BITS as usize + DIGIT_BITS as usize * place)) as usize & ((1 << DIGIT_BITS) - 1)
}
