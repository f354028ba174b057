//! Ports of first fragments, stored for later ones (`docs/metering.md` section 4).
//!
//! Entries are bounded in number and time. The hash is keyed, so that an attacker cannot fill one
//! bucket.

use crate::bounded::{map_capacity, vec_with_capacity};
use crate::key::tunnel_id;
use ahash::RandomState;
use hashbrown::HashTable;
use std::io;
use weir_packet::{Flags, Network, Packet, TunnelType};

/// Largest number of first fragments.
const ENTRIES: usize = 1 << 16;
/// Lifetime of an entry by the meter's clock.
const TIMEOUT_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DatagramKey {
    source: [u8; 16],
    destination: [u8; 16],
    identification: u32,
    tunnel_id: Option<u32>,
    tunnel_type: TunnelType,
    protocol: u8,
    network: Network,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: DatagramKey,
    since_ns: u64,
    source_port: u16,
    destination_port: u16,
    icmp: [u8; 2],
    /// The next older and the next newer entry; the newest and the oldest are neighbours, too.
    older: u32,
    newer: u32,
}

/// The fragments of a meter or partitioner.
#[derive(Debug)]
pub(crate) struct FragmentCache {
    hasher: RandomState,
    table: HashTable<u32>,
    entries: Vec<Entry>,
    /// The entry that was written first.
    oldest: u32,
}

impl FragmentCache {
    pub fn new(hasher: RandomState) -> io::Result<Self> {
        let mut table = HashTable::new();
        table.try_reserve(map_capacity(ENTRIES), |_| 0).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self { hasher, table, entries: vec_with_capacity(ENTRIES)?, oldest: 0 })
    }

    pub fn memory_bytes() -> usize {
        ENTRIES * size_of::<Entry>() + map_capacity(ENTRIES) * size_of::<u32>()
    }

    /// Stores a first fragment, or gives a later one its ports; false if they are unknown.
    pub fn resolve(&mut self, packet: &mut Packet, now_ns: u64) -> bool {
        let key = DatagramKey {
            source: packet.source,
            destination: packet.destination,
            identification: packet.identification,
            tunnel_id: tunnel_id(packet),
            tunnel_type: packet.tunnel_type,
            protocol: packet.protocol,
            network: packet.network,
        };
        let hash = self.hasher.hash_one(key);
        let found = self.table.find(hash, |&at| self.entries[at as usize].key == key).copied();
        if packet.flags.has(Flags::FRAGMENT_LATER) {
            let Some(entry) = found.map(|at| self.entries[at as usize]) else { return false };
            if now_ns - entry.since_ns >= TIMEOUT_NS {
                return false;
            }
            (packet.source_port, packet.destination_port) = (entry.source_port, entry.destination_port);
            packet.icmp_or_checksum = entry.icmp;
        } else {
            let entry = Entry {
                key,
                since_ns: now_ns,
                source_port: packet.source_port,
                destination_port: packet.destination_port,
                icmp: packet.icmp(),
                older: 0,
                newer: 0,
            };
            self.store(hash, found, entry);
        }
        true
    }

    /// Writes an entry as the newest one: in place of `found`, which has the same key, else in a
    /// new place or, if the cache is full, in place of the oldest one.
    fn store(&mut self, hash: u64, found: Option<u32>, entry: Entry) {
        let at = match found {
            Some(at) => at,
            None if self.entries.len() < ENTRIES => self.entries.len() as u32,
            None => {
                let old = self.hasher.hash_one(self.entries[self.oldest as usize].key);
                self.table.find_entry(old, |&at| at == self.oldest).expect("every entry is in the table").remove();
                self.oldest
            }
        };
        if at as usize == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.unlink(at);
            self.entries[at as usize] = entry;
        }
        self.link_as_newest(at);
        if found.is_none() {
            let (hasher, entries) = (&self.hasher, &self.entries);
            self.table.insert_unique(hash, at, |&at| hasher.hash_one(entries[at as usize].key));
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        (self.entries[older as usize].newer, self.entries[newer as usize].older) = (newer, older);
        if self.oldest == at {
            self.oldest = newer;
        }
    }

    fn link_as_newest(&mut self, at: u32) {
        let (oldest, newest) = (self.oldest, self.entries[self.oldest as usize].older);
        (self.entries[at as usize].older, self.entries[at as usize].newer) = (newest, oldest);
        (self.entries[newest as usize].newer, self.entries[oldest as usize].older) = (at, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(identification: u32) -> Packet {
        Packet {
            identification,
            source_port: 4000,
            destination_port: 53,
            protocol: 17,
            flags: Flags(Flags::FRAGMENT_FIRST | Flags::PORTS),
            ..Packet::default()
        }
    }

    fn later(identification: u32) -> Packet {
        Packet { identification, protocol: 17, flags: Flags(Flags::FRAGMENT_LATER), ..Packet::default() }
    }

    fn cache() -> FragmentCache {
        FragmentCache::new(RandomState::with_seeds(1, 2, 3, 4)).unwrap()
    }

    #[test]
    fn later_fragment_gets_the_ports_until_the_timeout() {
        let mut cache = cache();
        assert!(cache.resolve(&mut first(7), 100));
        let mut packet = later(7);
        assert!(cache.resolve(&mut packet, 100 + TIMEOUT_NS - 1));
        assert_eq!((packet.source_port, packet.destination_port), (4000, 53));
        assert!(!cache.resolve(&mut later(7), 100 + TIMEOUT_NS));
        assert!(!cache.resolve(&mut later(8), 100));
    }

    #[test]
    fn full_cache_replaces_the_oldest_entry() {
        let mut cache = cache();
        for identification in 0..=ENTRIES as u32 {
            cache.resolve(&mut first(identification), 0);
        }
        assert!(!cache.resolve(&mut later(0), 0));
        assert!(cache.resolve(&mut later(1), 0));
        assert!(cache.resolve(&mut later(ENTRIES as u32), 0));
        assert_eq!(cache.table.len(), ENTRIES);
    }

    #[test]
    fn repeated_first_fragments_are_the_newest() {
        let (mut cache, all) = (cache(), ENTRIES as u32);
        // The oldest, one between others, the newest, and the newest again.
        let repeated = [0, 5, all - 1, all - 1];
        for identification in (0..all).chain(repeated) {
            cache.resolve(&mut first(identification), 0);
        }
        // All others are replaced, and then two of the repeated ones in their order.
        for identification in all..2 * all - 3 {
            cache.resolve(&mut first(identification), 0);
        }
        let known = |cache: &mut FragmentCache| [0, 5, all - 1].map(|number| cache.resolve(&mut later(number), 0));
        assert!((1..all - 1).filter(|number| *number != 5).all(|number| !cache.resolve(&mut later(number), 0)));
        assert_eq!(known(&mut cache), [true; 3]);
        for expected in [[false, true, true], [false, false, true], [false; 3]] {
            cache.resolve(&mut first(2 * all + expected.iter().filter(|known| **known).count() as u32), 0);
            assert_eq!(known(&mut cache), expected);
        }
        assert_eq!(cache.table.len(), ENTRIES);
    }

    #[test]
    fn tunnels_have_fragments_of_their_own() {
        let mut cache = cache();
        let of = |packet: Packet, tunnel_id| Packet {
            flags: Flags(packet.flags.0 | Flags::TUNNEL_ID),
            tunnel_type: TunnelType::Gre,
            tunnel_id,
            ..packet
        };
        assert!(cache.resolve(&mut of(first(7), 1), 0));
        assert!(!cache.resolve(&mut of(later(7), 2), 0));
    }
}
