//! Ports for later fragments, remembered from first ones (`docs/metering.md` section 4).
//!
//! Bounded in entries and in time; the hash is keyed, so that nobody can aim at one bucket.

use crate::bounded::{list, roomy};
use crate::key::tunnel_id;
use crate::list::{Links, List};
use ahash::RandomState;
use hashbrown::HashTable;
use std::io;
use weir_packet::{Flags, Network, Packet, TunnelType};

/// First fragments remembered at a time.
const ENTRIES: usize = 1 << 16;
/// How long, by the capture's clock.
const TIMEOUT_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
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
    name: Name,
    since_ns: u64,
    source_port: u16,
    destination_port: u16,
    icmp: [u8; 2],
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Fragments {
    hasher: RandomState,
    table: HashTable<u32>,
    entries: Vec<Entry>,
    links: Links,
    /// All entries in use, oldest first.
    order: List,
}

impl Fragments {
    /// # Errors
    /// The system has no memory for it.
    pub fn new(hasher: RandomState) -> io::Result<Self> {
        let mut table = HashTable::new();
        table.try_reserve(roomy(ENTRIES), |_| 0).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (entries, links) = (list(ENTRIES)?, Links::new(ENTRIES)?);
        Ok(Self { hasher, table, entries, links, order: List::default() })
    }

    /// Octets of memory taken.
    pub fn octets() -> usize {
        ENTRIES * (size_of::<Entry>() + size_of::<[u32; 2]>()) + roomy(ENTRIES) * size_of::<u32>()
    }

    /// Remembers a first fragment, or gives a later one its ports. False if they are not known.
    pub fn resolve(&mut self, packet: &mut Packet, clock_ns: u64) -> bool {
        let name = Name {
            source: packet.source,
            destination: packet.destination,
            identification: packet.identification,
            tunnel_id: tunnel_id(packet),
            tunnel_type: packet.tunnel_type,
            protocol: packet.protocol,
            network: packet.network,
        };
        let hash = self.hasher.hash_one(name);
        let found = self.table.find(hash, |&at| self.entries[at as usize].name == name).copied();
        if packet.flags.has(Flags::FRAGMENT_LATER) {
            let Some(entry) = found.map(|at| self.entries[at as usize]) else { return false };
            if clock_ns - entry.since_ns >= TIMEOUT_NS {
                return false;
            }
            (packet.source_port, packet.destination_port) = (entry.source_port, entry.destination_port);
            packet.icmp_or_checksum = entry.icmp;
        } else {
            let entry = Entry {
                name,
                since_ns: clock_ns,
                source_port: packet.source_port,
                destination_port: packet.destination_port,
                icmp: packet.icmp(),
            };
            match found {
                Some(at) => {
                    self.entries[at as usize] = entry;
                    self.order.renew(&mut self.links, at);
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
            let old = self.hasher.hash_one(self.entries[oldest as usize].name);
            self.table.find_entry(old, |&at| at == oldest).expect("every entry is in the table").remove();
            self.order.remove(&mut self.links, oldest);
            self.entries[oldest as usize] = entry;
            oldest
        };
        self.order.push(&mut self.links, at);
        let (hasher, entries) = (&self.hasher, &self.entries);
        self.table.insert_unique(hash, at, |&at| hasher.hash_one(entries[at as usize].name));
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

    fn cache() -> Fragments {
        Fragments::new(RandomState::with_seeds(1, 2, 3, 4)).unwrap()
    }

    #[test]
    fn a_later_fragment_gets_the_ports_until_the_timeout() {
        let mut cache = cache();
        assert!(cache.resolve(&mut first(7), 100));
        let mut packet = later(7);
        assert!(cache.resolve(&mut packet, 100 + TIMEOUT_NS - 1));
        assert_eq!((packet.source_port, packet.destination_port), (4000, 53));
        assert!(!cache.resolve(&mut later(7), 100 + TIMEOUT_NS));
        assert!(!cache.resolve(&mut later(8), 100));
    }

    #[test]
    fn when_full_the_oldest_goes() {
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
    fn a_first_fragment_that_comes_again_is_no_longer_the_oldest() {
        let mut cache = cache();
        for identification in (0..ENTRIES as u32).chain([0, ENTRIES as u32]) {
            cache.resolve(&mut first(identification), 0);
        }
        assert!(cache.resolve(&mut later(0), 0));
        assert!(!cache.resolve(&mut later(1), 0));
    }

    #[test]
    fn fragments_of_two_tunnels_are_two() {
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
