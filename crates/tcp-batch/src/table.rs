//! The connections that are known, and what is known of them between two batches.
//!
//! ```text
//! index    a power of two of words: upper half of the hash, number of the entry plus 1; 0 is free. Linear probing.
//! entries  384 octets each, in the order they came in some order; none is ever taken out
//! room     what directions in trouble need more
//! ```
//! A card keeps the same three; its index may have another order, which nothing depends on.

use crate::ahead::fetch;
use crate::conversation::ConnectionRecord;
use crate::entries::Entries;
use crate::key::{ConnectionKey, Secret};
use bytemuck::{Pod, Zeroable};
use weir_tcp::{AnomalyPool, Connection};

/// A connection in the table.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub key: ConnectionKey,
    pub hash: u64,
    /// Packets of each side.
    pub packets: [u64; 2],
    pub first_ns: u64,
    pub last_ns: u64,
    unused: [u64; 6],
    pub connection: Connection,
}

const _: () = assert!(size_of::<Entry>() == 384);

/// All connections.
pub(crate) struct Table {
    pub secret: Secret,
    pub index: Vec<u64>,
    pub entries: Entries<Entry>,
    pub room: AnomalyPool,
    /// Directions in trouble beyond which no more room is made.
    pub in_trouble: usize,
}

impl Entry {
    /// Of a connection that has not begun.
    pub fn new(key: ConnectionKey, hash: u64) -> Self {
        Self { key, hash, first_ns: u64::MAX, ..Self::zeroed() }
    }

    /// What is known of it.
    pub fn conversation(&self, room: &AnomalyPool) -> ConnectionRecord {
        ConnectionRecord {
            endpoints: self.key.endpoints(),
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            packets: self.packets,
            reports: [0, 1].map(|side| self.connection.report(side, self.packets[side], room).into()),
        }
    }

    /// Ends the connection, and makes the entry one of the next between the same endpoints.
    pub fn close(&mut self, room: &mut AnomalyPool) -> ConnectionRecord {
        let conversation = self.conversation(room);
        self.connection.reset(room);
        *self = Self::new(self.key, self.hash);
        conversation
    }
}

impl Table {
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            index: vec![0; 1 << 10],
            entries: Entries::new(),
            room: AnomalyPool::default(),
            in_trouble: usize::MAX,
        }
    }

    /// Makes room for both sides of a connection. If there is no memory for it the reports say so.
    #[inline]
    pub fn reserve_room(&mut self) {
        if self.room.used() < self.in_trouble {
            let _ = self.room.reserve(2);
        }
    }

    /// An index of so many places over all entries.
    pub fn index_of(&self, places: usize) -> Vec<u64> {
        let mut index = vec![0; places];
        let here = self.entries.iter().enumerate().filter(|(_, entry)| entry.key != ConnectionKey::zeroed());
        here.for_each(|(number, entry)| enlist(&mut index, entry.hash, number));
        index
    }

    /// The number of a connection's entry, which is new if it was not known.
    #[inline]
    pub fn entry(&mut self, key: &ConnectionKey, hash: u64) -> usize {
        let mask = self.index.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let word = self.index[place];
            if word == 0 {
                break;
            }
            let number = (word as u32 - 1) as usize;
            if word >> 32 == hash >> 32 && self.entries[number].key == *key {
                return number;
            }
            place = (place + 1) & mask;
        }
        self.put(self.entries.len(), &Entry::new(*key, hash));
        self.entries.len() - 1
    }

    /// Fetches the place of a hash ahead.
    #[inline(always)]
    pub fn fetch_place(&self, hash: u64) {
        fetch(&self.index[hash as usize & (self.index.len() - 1)]);
    }

    /// Fetches what is likely the entry of a hash ahead; its place is there.
    #[inline(always)]
    pub fn fetch_entry(&self, hash: u64) {
        let word = self.index[hash as usize & (self.index.len() - 1)];
        if let Some(entry) = self.entries.get((word as u32).wrapping_sub(1) as usize) {
            fetch(&entry.key);
            fetch(&entry.last_ns);
            fetch(entry.connection.hot_line(0));
            fetch(entry.connection.hot_line(1));
        }
    }

    /// Takes over an entry that was changed or made elsewhere. New numbers come in any order, without
    /// a gap when all are here.
    pub fn put(&mut self, number: usize, entry: &Entry) {
        while number >= self.entries.len() {
            self.entries.push(Entry::zeroed());
        }
        let is_new = self.entries[number].key == ConnectionKey::zeroed();
        self.entries[number] = *entry;
        if 2 * self.entries.len() > self.index.len() {
            // Entries that are not here yet are put in when they come.
            self.index = self.index_of(4 * self.entries.len().next_power_of_two());
        } else if is_new {
            enlist(&mut self.index, entry.hash, number);
        }
    }
}

/// Writes an entry into an index, which does not have it.
fn enlist(index: &mut [u64], hash: u64, number: usize) {
    let mask = index.len() - 1;
    let mut place = hash as usize & mask;
    while index[place] != 0 {
        place = (place + 1) & mask;
    }
    index[place] = index_word(hash, number);
}

fn index_word(hash: u64, number: usize) -> u64 {
    hash >> 32 << 32 | (number as u64 + 1)
}
