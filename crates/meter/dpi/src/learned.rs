//! What flows announce about later ones: the names of addresses (DNS), and where media will flow (SDP).
//!
//! Both are bounded: the oldest entry makes room for a new one. An entry counts for a limited time.

use arrayvec::ArrayVec;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

/// An IP address as a packet has it: of IPv4 the mapped one.
pub(crate) type Address = [u8; 16];

/// Addresses or places that are learned of one message.
pub(crate) const MAX_LEARNED: usize = 16;
/// Places of media that are known at the same time.
const MAX_MEDIA: usize = 4096;
/// Time from the announcement of media to their first packet.
const MEDIA_NS: u64 = 300 * SECOND_NS;
/// Names count for the lifetime that the answer has, within these limits, s.
const NAME_SECONDS: [u32; 2] = [60, 24 * 3600];
const SECOND_NS: u64 = 1_000_000_000;
/// Memory of a name at most, with its entry: 255 octets of text, two keys, and what allocators add.
const NAME_OCTETS: u64 = 512;
/// The same for a place of media.
const MEDIUM_OCTETS: u64 = 128;

/// A name as text, and the addresses that a response of DNS has for it, each with its time to live in s.
pub(crate) struct Names<'a> {
    pub name: &'a str,
    pub addresses: ArrayVec<(Address, u32), MAX_LEARNED>,
}

/// Addresses and ports at which a party of a call expects media.
pub(crate) type Media = ArrayVec<(Address, u16), MAX_LEARNED>;

/// What was learned.
#[derive(Debug)]
pub(crate) struct Learned {
    /// By client and address.
    names: Bounded<[Address; 2], Arc<str>>,
    media: Bounded<(Address, u16), ()>,
}

impl Learned {
    pub fn new(max_names: u32) -> Self {
        Self { names: Bounded::new(max_names as usize), media: Bounded::new(MAX_MEDIA) }
    }

    /// Memory that it takes at most, octets.
    pub fn memory_octets_for(max_names: u32) -> u64 {
        u64::from(max_names) * NAME_OCTETS + MAX_MEDIA as u64 * MEDIUM_OCTETS
    }

    /// Learns the names of addresses from a response that a client got.
    pub fn add_names(&mut self, client: &Address, names: &Names<'_>, now_ns: u64) {
        let name: Arc<str> = names.name.into();
        for (address, seconds) in &names.addresses {
            let [min, max] = NAME_SECONDS;
            let until_ns = now_ns.saturating_add(u64::from(*seconds.clamp(&min, &max)) * SECOND_NS);
            self.names.insert([*client, *address], Arc::clone(&name), until_ns);
        }
    }

    /// The name that a client learned for an address.
    pub fn name(&self, client: &Address, address: &Address, now_ns: u64) -> Option<&str> {
        self.names.get(&[*client, *address], now_ns).map(|name| &**name)
    }

    pub fn add_media(&mut self, media: &Media, now_ns: u64) {
        for place in media {
            self.media.insert(*place, (), now_ns.saturating_add(MEDIA_NS));
        }
    }

    /// Whether media were announced at one of two places: parties mostly send from where they receive.
    pub fn expects_media(&self, addresses: [&Address; 2], ports: [u16; 2], now_ns: u64) -> bool {
        addresses.into_iter().zip(ports).any(|(address, port)| self.media.get(&(*address, port), now_ns).is_some())
    }
}

/// A map of bounded size, whose entries expire.
#[derive(Debug)]
struct Bounded<K, V> {
    /// Values with the end of their time, ns.
    entries: HashMap<K, (V, u64), ahash::RandomState>,
    /// The keys in the order in which they came.
    order: VecDeque<K>,
    limit: usize,
}

impl<K: Copy + Eq + Hash, V> Bounded<K, V> {
    fn new(limit: usize) -> Self {
        Self { entries: HashMap::default(), order: VecDeque::new(), limit }
    }

    fn insert(&mut self, key: K, value: V, until_ns: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            *entry = (value, until_ns);
            return;
        }
        if self.order.len() >= self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        if self.order.len() < self.limit {
            self.order.push_back(key);
            self.entries.insert(key, (value, until_ns));
        }
    }

    fn get(&self, key: &K, now_ns: u64) -> Option<&V> {
        if self.entries.is_empty() {
            return None;
        }
        self.entries.get(key).filter(|(_, until_ns)| now_ns < *until_ns).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Address = [1; 16];
    const SERVER: Address = [2; 16];

    fn names(name: &str, address: Address, seconds: u32) -> Names<'_> {
        Names { name, addresses: [(address, seconds)].into_iter().collect() }
    }

    #[test]
    fn names_count_for_their_client_in_their_time() {
        let mut learned = Learned::new(10);
        learned.add_names(&CLIENT, &names("a.example", SERVER, 90), 0);
        for (hosts, seconds, expected) in [
            ([&CLIENT, &SERVER], 89, Some("a.example")),
            ([&SERVER, &CLIENT], 89, None),
            ([&CLIENT, &SERVER], 90, None),
        ] {
            assert_eq!(learned.name(hosts[0], hosts[1], seconds * SECOND_NS), expected);
        }
        learned.add_names(&CLIENT, &names("b.example", SERVER, 0), 100 * SECOND_NS);
        assert_eq!(learned.name(&CLIENT, &SERVER, 159 * SECOND_NS), Some("b.example"));
        assert_eq!(learned.name(&CLIENT, &SERVER, 160 * SECOND_NS), None);
    }

    #[test]
    fn oldest_name_makes_room() {
        let mut learned = Learned::new(3);
        for number in 0..1000_u32 {
            let mut address = SERVER;
            address[..4].copy_from_slice(&number.to_be_bytes());
            learned.add_names(&CLIENT, &names("a.example", address, 90), 0);
            assert!(learned.name(&CLIENT, &address, 1).is_some());
        }
        assert_eq!((learned.names.entries.len(), learned.names.order.len()), (3, 3));
        let mut none = Learned::new(0);
        none.add_names(&CLIENT, &names("a.example", SERVER, 90), 0);
        assert_eq!(none.name(&CLIENT, &SERVER, 1), None);
    }
}
