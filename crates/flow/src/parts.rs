//! To which part of all flows a packet belongs, so that several meters can share the packets of a source.
//!
//! In: decoded packets, all of a source, in its order. Out: the part of each; later fragments have the ports of their flow
//! from then on.
//! Always true: the packets of a flow are of one part, whichever direction they came from. And as a part is made of other
//! bits of the hash than bucket and tag in the index, the flows of some parts fill the index of their meter evenly.

use crate::clock::Clock;
use crate::fragments::Fragments;
use crate::{KeyHasher, KeyOptions};
use std::io;
use weir_packet::{Flags, Packet};

/// Parts of all flows. A part is the least that moves from one meter to another.
pub const BUCKETS: usize = 512;

/// The part of the flows whose keys have a hash.
#[inline(always)]
pub(crate) fn part_of(hash: u64) -> u16 {
    // The index uses the 32 bits above, and the 16 below.
    (hash >> 16) as u16 % BUCKETS as u16
}

/// A set of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketSet([u64; BUCKETS / 64]);

impl BucketSet {
    /// None of them.
    pub const fn new() -> Self {
        Self([0; BUCKETS / 64])
    }

    /// Adds one.
    ///
    /// # Panics
    /// If there is no such part: they have the numbers below [`BUCKETS`].
    pub fn insert(&mut self, part: u16) {
        self.0[usize::from(part / 64)] |= 1 << (part % 64);
    }

    /// Whether one is among them.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn contains(&self, part: u16) -> bool {
        self.0[usize::from(part / 64)] >> (part % 64) & 1 == 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; BUCKETS / 64]
    }
}

/// Says the parts of packets. What it remembers of fragments has a fixed bound.
#[derive(Debug)]
pub struct Partitioner {
    hash: KeyHasher,
    key: KeyOptions,
    fragments: Fragments,
    clock: Clock,
}

impl Partitioner {
    /// For meters with this secret and this key, see [`crate::Config`].
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn new(secret: u64, key: KeyOptions) -> io::Result<Self> {
        let hash = KeyHasher::new(Some(secret));
        // The first packet is a step back from the end of time, from which steps forward are counted.
        let clock = Clock { newest_ns: u64::MAX, ..Clock::default() };
        Ok(Self { hash, key, fragments: Fragments::new(hash.random())?, clock })
    }

    /// The part of a packet, below [`BUCKETS`]. A fragment is looked up here (`docs/metering.md` section 4), and flagged so that the
    /// meter does not do it again.
    #[inline]
    pub fn bucket(&mut self, packet: &mut Packet) -> u16 {
        self.clock.advance(packet.time_ns);
        if packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0 {
            self.look_up(packet);
        }
        // The usual key on a path of its own, where its options are constants.
        part_of(match self.key {
            KeyOptions::USUAL => self.hash.hash(packet, KeyOptions::USUAL),
            options => self.hash.hash(packet, options),
        })
    }

    #[inline(never)]
    fn look_up(&mut self, packet: &mut Packet) {
        let known = self.fragments.resolve(packet, self.clock.now_ns);
        if known && packet.flags.has(Flags::FRAGMENT_LATER) {
            packet.flags.0 &= !Flags::FRAGMENT_LATER;
        } else {
            packet.flags.0 |= Flags::LOOKED_UP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::ipv4_mapped;

    fn packet(host: u32, port: u16) -> Packet {
        Packet {
            source: ipv4_mapped(host.to_be_bytes()),
            destination: ipv4_mapped([192, 0, 2, 1]),
            source_port: port,
            destination_port: 443,
            protocol: 17,
            flags: Flags(Flags::PORTS),
            ..Packet::default()
        }
    }

    fn back(packet: Packet) -> Packet {
        Packet {
            source: packet.destination,
            destination: packet.source,
            source_port: packet.destination_port,
            destination_port: packet.source_port,
            ..packet
        }
    }

    #[test]
    fn both_directions_are_of_one_part() {
        for key in [KeyOptions::default(), KeyOptions { vlan: true, interface: true, ..KeyOptions::default() }] {
            let mut spread = Partitioner::new(7, key).unwrap();
            for host in 0..if cfg!(miri) { 10 } else { 10_000 } {
                let mut there = packet(host, 4000);
                assert_eq!(spread.bucket(&mut there), spread.bucket(&mut back(there)), "{key:?}");
            }
        }
    }

    #[test]
    fn parts_are_of_about_the_same_size() {
        let each = 200;
        for secret in 0..if cfg!(miri) { 0 } else { 10 } {
            let mut spread = Partitioner::new(secret, KeyOptions::default()).unwrap();
            for of in [|number| packet(number, 4000), |number| packet(number >> 16, number as u16)] {
                let mut flows = [0_u32; BUCKETS];
                (0..each * BUCKETS as u32).for_each(|number| flows[usize::from(spread.bucket(&mut of(number)))] += 1);
                // By chance (Poisson, deviation 14.1) one in 10^8 is so far away.
                assert!(flows.iter().all(|&flows| flows.abs_diff(each) < 85), "secret {secret}: {flows:?}");
            }
        }
    }

    #[test]
    fn a_part_leads_to_all_buckets_and_tags() {
        let (secret, buckets) = (3, 1 << 12);
        let hash = KeyHasher::new(Some(secret));
        let mut spread = Partitioner::new(secret, KeyOptions::default()).unwrap();
        let (mut in_bucket, mut with_tag) = (vec![0_u32; buckets], vec![0_u32; 1 << 8]);
        let (mut of_part, mut host) = (0, 0);
        let wanted = if cfg!(miri) { 10 } else { 4 * buckets };
        while of_part < wanted {
            host += 1;
            let mut packet = packet(host, 4000);
            // Four of 512 parts, as a meter has few of them if there are many meters.
            if spread.bucket(&mut packet) < 4 {
                of_part += 1;
                let hash = hash.hash(&packet, KeyOptions::default());
                in_bucket[(((hash >> 32) * buckets as u64) >> 32) as usize] += 1;
                with_tag[usize::from(hash as u8)] += 1;
            }
        }
        // By chance (Poisson, mean 4 and 64) one in 10^9 is above.
        assert!(in_bucket.iter().all(|&flows| flows < 24), "{:?}", in_bucket.iter().max());
        assert!(with_tag.iter().all(|&flows| flows < 130), "{:?}", with_tag.iter().max());
    }

    #[test]
    fn fragments_are_of_the_part_of_their_flow() {
        let mut spread = Partitioner::new(1, KeyOptions::default()).unwrap();
        let whole = packet(1, 4000);
        let part = spread.bucket(&mut whole.clone());
        let mut first = Packet { flags: Flags(Flags::PORTS | Flags::FRAGMENT_FIRST), identification: 5, ..whole };
        assert_eq!(
            (spread.bucket(&mut first), first.flags.has(Flags::FRAGMENT_FIRST | Flags::LOOKED_UP)),
            (part, true)
        );
        let later = Packet { source_port: 0, destination_port: 0, flags: Flags(Flags::FRAGMENT_LATER), ..first };
        let mut found = later;
        assert_eq!(spread.bucket(&mut found), part);
        assert_eq!((found.source_port, found.destination_port, found.flags), (4000, 443, Flags(0)));
        let mut stranger = Packet { identification: 6, ..later };
        spread.bucket(&mut stranger);
        assert_eq!((stranger.source_port, stranger.flags), (0, Flags(Flags::FRAGMENT_LATER | Flags::LOOKED_UP)));
        // 30 s later it is a stranger too, whatever time the capture began at.
        let mut late = Packet { time_ns: 30_000_000_000, ..later };
        spread.bucket(&mut late);
        assert!(late.flags.has(Flags::FRAGMENT_LATER));
    }

    #[test]
    fn a_set_has_what_was_inserted() {
        let mut parts = BucketSet::new();
        assert!(parts.is_empty());
        [0, 63, 64, 511].into_iter().for_each(|part| parts.insert(part));
        let has: Vec<u16> = (0..BUCKETS as u16).filter(|&part| parts.contains(part)).collect();
        assert_eq!((has, parts.is_empty()), (vec![0, 63, 64, 511], false));
    }
}
