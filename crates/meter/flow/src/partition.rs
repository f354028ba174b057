//! Partitions the packets of one source among several meters.
//!
//! In: decoded packets of the source, in its order. Out: per packet a bucket of the indirection
//! table that maps buckets to meters, as receive-side scaling does with its indirection table
//! (RETA). A later fragment is given the ports of its flow on the way.
//! Invariant: all packets of a flow, of both directions, have one bucket. The bucket depends on
//! other bits of the hash than bucket and tag in the flow index, so that the flows of a few buckets
//! fill the index of their meter evenly.

use crate::clock::Clock;
use crate::config::KeyOptions;
use crate::fragments::FragmentCache;
use crate::hash::KeyHasher;
use std::io;
use weir_packet::{Flags, Packet};

/// Buckets of the indirection table. Flows migrate between meters by whole buckets.
pub const BUCKETS: usize = 512;

/// The bucket of a hash.
#[inline(always)]
pub(crate) fn bucket_of(hash: u64) -> u16 {
    // The flow index uses the 32 bits above and the 16 bits below.
    (hash >> 16) as u16 % BUCKETS as u16
}

/// A set of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketSet([u64; BUCKETS / 64]);

impl BucketSet {
    /// Adds a bucket.
    ///
    /// # Panics
    /// If `bucket` is not below [`BUCKETS`].
    pub fn insert(&mut self, bucket: u16) {
        self.0[usize::from(bucket / 64)] |= 1 << (bucket % 64);
    }

    /// Whether a bucket is in the set.
    ///
    /// # Panics
    /// If `bucket` is not below [`BUCKETS`].
    pub fn contains(&self, bucket: u16) -> bool {
        self.0[usize::from(bucket / 64)] >> (bucket % 64) & 1 == 1
    }
}

/// Assigns packets to buckets. Its memory for fragments is bounded.
#[derive(Debug)]
pub struct Partitioner {
    hasher: KeyHasher,
    key: KeyOptions,
    fragments: FragmentCache,
    clock: Clock,
}

impl Partitioner {
    /// For meters with this secret and flow key, see [`crate::Config`].
    ///
    /// # Errors
    /// The system has not that much memory.
    pub fn new(secret: u64, key: KeyOptions) -> io::Result<Self> {
        let hasher = KeyHasher::new(Some(secret));
        // The first packet is a backward step, from which forward steps count.
        let clock = Clock { newest_ns: u64::MAX, ..Clock::default() };
        Ok(Self { hasher, key, fragments: FragmentCache::new(hasher.random_state())?, clock })
    }

    /// Assigns a packet to its bucket, below [`BUCKETS`]. Looks up fragments (`docs/metering.md`
    /// section 4) and flags them, so that the meter does not look them up again.
    #[inline]
    pub fn assign(&mut self, packet: &mut Packet) -> u16 {
        self.clock.advance(packet.time_ns);
        if packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0 {
            self.resolve_fragment(packet);
        }
        // The default key has a path of its own, in which its options are constants.
        bucket_of(match self.key {
            KeyOptions::DEFAULT => self.hasher.hash(packet, KeyOptions::DEFAULT),
            options => self.hasher.hash(packet, options),
        })
    }

    #[inline(never)]
    fn resolve_fragment(&mut self, packet: &mut Packet) {
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
    use crate::tests::udp;

    fn packet(host: u32, port: u16) -> Packet {
        udp(host.to_be_bytes(), [192, 0, 2, 1], [port, 443])
    }

    fn reversed(packet: Packet) -> Packet {
        Packet {
            source: packet.destination,
            destination: packet.source,
            source_port: packet.destination_port,
            destination_port: packet.source_port,
            ..packet
        }
    }

    #[test]
    fn directions_have_one_bucket() {
        for key in [KeyOptions::default(), KeyOptions { vlan: true, interface: true, ..KeyOptions::default() }] {
            let mut partitioner = Partitioner::new(7, key).unwrap();
            for host in 0..if cfg!(miri) { 10 } else { 10_000 } {
                let mut there = packet(host, 4000);
                assert_eq!(partitioner.assign(&mut there), partitioner.assign(&mut reversed(there)), "{key:?}");
            }
        }
    }

    #[test]
    fn buckets_have_about_equally_many_flows() {
        let each = 200;
        for secret in 0..if cfg!(miri) { 0 } else { 10 } {
            let mut partitioner = Partitioner::new(secret, KeyOptions::default()).unwrap();
            for of in [|number| packet(number, 4000), |number| packet(number >> 16, number as u16)] {
                let mut flows = [0_u32; BUCKETS];
                (0..each * BUCKETS as u32)
                    .for_each(|number| flows[usize::from(partitioner.assign(&mut of(number)))] += 1);
                // At random (Poisson, standard deviation 14.1) one in 10^8 differs by 85.
                assert!(flows.iter().all(|&flows| flows.abs_diff(each) < 85), "secret {secret}: {flows:?}");
            }
        }
    }

    #[test]
    fn flows_of_few_buckets_fill_the_index_evenly() {
        let (secret, buckets) = (3, 1 << 12);
        let hash = KeyHasher::new(Some(secret));
        let mut partitioner = Partitioner::new(secret, KeyOptions::default()).unwrap();
        let (mut in_bucket, mut with_tag) = (vec![0_u32; buckets], vec![0_u32; 1 << 8]);
        let (mut in_few, mut host) = (0, 0);
        let wanted = if cfg!(miri) { 10 } else { 4 * buckets };
        while in_few < wanted {
            host += 1;
            let mut packet = packet(host, 4000);
            // Four of 512 buckets, as of a meter among 128.
            if partitioner.assign(&mut packet) < 4 {
                in_few += 1;
                let hash = hash.hash(&packet, KeyOptions::default());
                in_bucket[(((hash >> 32) * buckets as u64) >> 32) as usize] += 1;
                with_tag[usize::from(hash as u8)] += 1;
            }
        }
        // At random (Poisson, means 4 and 64) one in 10^9 is above.
        assert!(in_bucket.iter().all(|&flows| flows < 24), "{:?}", in_bucket.iter().max());
        assert!(with_tag.iter().all(|&flows| flows < 130), "{:?}", with_tag.iter().max());
    }

    #[test]
    fn fragments_have_the_bucket_of_their_flow() {
        let mut partitioner = Partitioner::new(1, KeyOptions::default()).unwrap();
        let whole = packet(1, 4000);
        let bucket = partitioner.assign(&mut whole.clone());
        let mut first = Packet { flags: Flags(Flags::PORTS | Flags::FRAGMENT_FIRST), identification: 5, ..whole };
        assert_eq!(
            (partitioner.assign(&mut first), first.flags.has(Flags::FRAGMENT_FIRST | Flags::LOOKED_UP)),
            (bucket, true)
        );
        let later = Packet { source_port: 0, destination_port: 0, flags: Flags(Flags::FRAGMENT_LATER), ..first };
        let mut found = later;
        assert_eq!(partitioner.assign(&mut found), bucket);
        assert_eq!((found.source_port, found.destination_port, found.flags), (4000, 443, Flags(0)));
        let mut unknown = Packet { identification: 6, ..later };
        partitioner.assign(&mut unknown);
        assert_eq!((unknown.source_port, unknown.flags), (0, Flags(Flags::FRAGMENT_LATER | Flags::LOOKED_UP)));
        // After 30 s its first fragment has timed out.
        let mut late = Packet { time_ns: 30_000_000_000, ..later };
        partitioner.assign(&mut late);
        assert!(late.flags.has(Flags::FRAGMENT_LATER));
    }

    #[test]
    fn set_contains_inserted_buckets_only() {
        let mut set = BucketSet::default();
        [0, 63, 64, 511].into_iter().for_each(|bucket| set.insert(bucket));
        let has: Vec<u16> = (0..BUCKETS as u16).filter(|&bucket| set.contains(bucket)).collect();
        assert_eq!(has, [0, 63, 64, 511]);
    }
}
