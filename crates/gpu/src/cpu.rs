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
use crate::conversation::Conversation;
use crate::record::{Ipv4, Ipv6, Record};
use crate::table::Table;
use weir_packet::Network;

/// Bits of a word that are the record's number; those above are of the hash.
const NUMBER_BITS: u32 = 24;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = (64 - NUMBER_BITS).div_ceil(DIGIT_BITS) as usize;

/// Memory that is used again from batch to batch.
#[derive(Default)]
pub(crate) struct Walker {
    order: Vec<u64>,
    other: Vec<u64>,
}

impl Walker {
    /// Enters a batch into the table. Connections that another one follows are done.
    pub fn walk(&mut self, table: &mut Table, batch: &Batch, done: &mut Vec<Conversation>) {
        table.reserve(batch.count);
        match batch.network {
            Network::Ipv4 => self.walk_of::<Ipv4>(table, batch, done),
            _ => self.walk_of::<Ipv6>(table, batch, done),
        }
    }

    fn walk_of<R: Record>(&mut self, table: &mut Table, batch: &Batch, done: &mut Vec<Conversation>) {
        let records: &[R] = batch.records();
        self.order.clear();
        self.order.extend(records.iter().zip(0..).map(|(record, number)| {
            let (key, _) = record.key();
            key.hash(&table.secret) & !NUMBER | number
        }));
        self.sort();
        let mut known = None;
        let mut order = self.order.iter();
        while let Some(&word) = order.next() {
            let number = (word & NUMBER) as usize;
            let record = &records[number];
            let (key, side) = record.key();
            let at = match known {
                Some((of, at)) if of == key => at,
                _ => table.entry(&key, key.hash(&table.secret)),
            };
            known = Some((key, at));
            let facts = record.facts();
            let second = facts.has_second().then(|| {
                order.next();
                records[number + 1].facts()
            });
            let (entry, room) = (&mut table.entries[at], &mut table.room);
            if facts.opens() && entry.connection.has_ended() {
                done.push(entry.close(room));
            }
            let time_ns = facts.time_ns(batch.base_ns);
            entry.first_ns = entry.first_ns.min(time_ns);
            entry.last_ns = entry.last_ns.max(time_ns);
            entry.packets[side] += 1;
            let segment = facts.segment(second, batch.base_ns);
            if !segment.as_ref().is_some_and(|segment| entry.connection.usual_segment(side, segment)) {
                entry.connection.step(side, segment.as_ref(), room);
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

#[inline(always)]
fn digit(word: u64, place: usize) -> usize {
    (word >> (NUMBER_BITS as usize + DIGIT_BITS as usize * place)) as usize & ((1 << DIGIT_BITS) - 1)
}
