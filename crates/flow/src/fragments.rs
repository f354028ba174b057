//! Ports of first fragments, remembered for later ones (`docs/metering.md` section 4).
//!
//! Entries are bounded in number and time. The hash is keyed, so that an attacker cannot fill one
//! bucket.

use crate::bounded::{map_capacity, vec_with_capacity};
use crate::key::tunnel_id;
use crate::list::{Links, List};
use ahash::RandomState;
use hashbrown::HashTable;
use std::io;
use weir_packet::{Flags, Network, Packet, TunnelType};

/// First fragments remembered at a time.
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
}

/// The fragments of a meter or partitioner.
#[derive(Debug)]
pub(crate) struct FragmentCache {
    hasher: RandomState,
    table: HashTable<u32>,
    entries: Vec<Entry>,
    links: Links,
    /// All entries in use, oldest first.
    order: List,
}

impl FragmentCache {
    pub fn new(hasher: RandomState) -> io::Result<Self> {
        let mut table = HashTable::new();
        table.try_reserve(map_capacity(ENTRIES), |_| 0).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (entries, links) = (vec_with_capacity(ENTRIES)?, Links::new(ENTRIES)?);
        Ok(Self { hasher, table, entries, links, order: List::default() })
    }

    /// Memory of a cache, bytes.
    pub fn memory_bytes() -> usize {
        ENTRIES * (size_of::<Entry>() + size_of::<[u32; 2]>()) + map_capacity(ENTRIES) * size_of::<u32>()
    }

    /// Remembers a first fragment, or gives a later one its ports. Returns false if they are
    /// unknown.
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
            };
            match found {
                Some(at) => {
                    self.entries[at as usize] = entry;
                    self.order.move_to_end(&mut self.links, at);
                }
                None => self.insert(hash, entry),
            }
        }
        true
    }

    fn insert(&mut self, hash: u64, entry: Entry) {
        let at = if self.entries.len() < ENTRIES {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let oldest = self.order.first().expect("a full cache has an oldest entry");
            let old = self.hasher.hash_one(self.entries[oldest as usize].key);
            self.table.find_entry(old, |&at| at == oldest).expect("every entry is in the table").remove();
            self.order.remove(&mut self.links, oldest);
            self.entries[oldest as usize] = entry;
            oldest
        };
        self.order.push(&mut self.links, at);
        let (hasher, entries) = (&self.hasher, &self.entries);
        self.table.insert_unique(hash, at, |&at| hasher.hash_one(entries[at as usize].key));
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
    fn repeated_first_fragment_is_no_longer_the_oldest() {
        let mut cache = cache();
        for identification in (0..ENTRIES as u32).chain([0, ENTRIES as u32]) {
            cache.resolve(&mut first(identification), 0);
        }
        assert!(cache.resolve(&mut later(0), 0));
        assert!(!cache.resolve(&mut later(1), 0));
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
