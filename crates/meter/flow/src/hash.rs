//! The keyed hash of a flow key, and which endpoint of it is the low one.
//!
//! The hash multiplies 64 by 64 bits and folds the product to 64: once per address, and once for
//! the sum and the difference of both with ports and protocol. The secret is new in every run, so
//! that keys that collide cannot be computed in advance. The endpoint with the smaller product of
//! its address is the low one: this spares the comparison of the addresses.
//! Invariant: both directions of a flow have one hash.

use crate::config::KeyOptions;
use crate::key::{Endpoint, Key, KeyExtension, ports_and_protocol};
use weir_packet::Packet;

/// Hashes flow keys with a secret.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher([u64; 4]);

/// The hash of a packet's key and what was computed on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HashedKey {
    pub hash: u64,
    /// The endpoint that sent the packet: 0 if its source is the low endpoint.
    pub endpoint: Endpoint,
    pub ports_and_protocol: u64,
}

impl KeyHasher {
    /// With a secret derived from a number, or from the operating system's random numbers.
    pub fn new(secret: Option<u64>) -> Self {
        let random = match secret {
            Some(secret) => {
                ahash::RandomState::with_seeds(secret, !secret, secret.rotate_left(32), 0x9e37_79b9_7f4a_7c15)
            }
            None => ahash::RandomState::new(),
        };
        Self(std::array::from_fn(|at| random.hash_one(at)))
    }

    /// The hash of a packet's key.
    #[inline]
    pub fn hash(&self, packet: &Packet, options: KeyOptions) -> u64 {
        self.hash_packet(packet, options).hash
    }

    /// A hasher for other tables, with the same secret.
    pub(crate) fn random_state(&self) -> ahash::RandomState {
        let Self([a, b, c, d]) = *self;
        ahash::RandomState::with_seeds(a, b, c, d)
    }

    #[inline(always)]
    pub(crate) fn hash_packet(&self, packet: &Packet, options: KeyOptions) -> HashedKey {
        let words = packet.words();
        let (source, destination) = (self.hash_address(words[0], words[1]), self.hash_address(words[2], words[3]));
        let mut endpoint = Endpoint::from(source > destination);
        if source == destination {
            endpoint = endpoint_by_port(packet);
        }
        if options.unidirectional {
            endpoint = 0;
        }
        let ports_and_protocol = ports_and_protocol(packet, endpoint);
        let hash = self.combine(source, destination, ports_and_protocol, KeyExtension::of(packet, options));
        HashedKey { hash, endpoint, ports_and_protocol }
    }

    pub(crate) fn hash_key(&self, key: &Key) -> u64 {
        let [a, b, c, d] = key.addresses;
        self.combine(self.hash_address(a, b), self.hash_address(c, d), key.ports_and_protocol, key.extension)
    }

    #[inline(always)]
    fn hash_address(&self, a: u64, b: u64) -> u64 {
        fold(a ^ self.0[0], b ^ self.0[1])
    }

    #[inline(always)]
    fn combine(&self, one: u64, other: u64, ports_and_protocol: u64, extension: KeyExtension) -> u64 {
        let Self([a, b, c, d]) = *self;
        let rest = ports_and_protocol ^ extension.hash([b ^ c, a ^ d], fold);
        // Sum and difference: pairs of neighbouring addresses often have equal sums. Ports in both
        // factors: multiplied by a constant, neighbouring ports would stay neighbours.
        fold(one.wrapping_add(other) ^ rest ^ c, one ^ other ^ rest.rotate_left(32) ^ d)
    }
}

/// The endpoint of a packet whose addresses have equal products, nearly always equal addresses.
#[cold]
#[inline(never)]
fn endpoint_by_port(packet: &Packet) -> Endpoint {
    Endpoint::from((packet.source, packet.source_port) > (packet.destination, packet.destination_port))
}

/// XOR of both halves of the product.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::udp;
    use std::collections::HashSet;

    /// Keys as in real networks: neighbouring hosts, and consecutive ports.
    fn similar_keys() -> [Vec<Packet>; 3] {
        let hosts = || (0..=255_u8).flat_map(|a| (0..=255_u8).map(move |b| (a, b)));
        [
            hosts().filter(|(a, b)| a < b).map(|(a, b)| udp([192, 0, 2, a], [192, 0, 2, b], [53, 53])).collect(),
            hosts().map(|(a, b)| udp([10, 1, 2, a], [192, 0, 2, b], [53, 53])).collect(),
            (0..=u16::MAX).map(|port| udp([10, 0, 0, 1], [10, 0, 0, 2], [port, 443])).collect(),
        ]
    }

    #[test]
    fn similar_keys_spread_as_at_random() {
        for keys in similar_keys() {
            for secret in 0..if cfg!(miri) { 1 } else { 50 } {
                let hash = KeyHasher::new(Some(secret));
                let hashes: Vec<u64> = keys.iter().map(|packet| hash.hash(packet, KeyOptions::default())).collect();
                assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), keys.len(), "secret {secret}");
                let (mut buckets, number) = (vec![0_u32; keys.len() * 2 / 13], keys.len() as u64 * 2 / 13);
                hashes.iter().for_each(|hash| buckets[(((hash >> 32) * number) >> 32) as usize] += 1);
                // At random (Poisson, mean 6.5) one bucket in ten million has more than 30.
                assert!(buckets.iter().all(|&keys| keys <= 30), "secret {secret}: {:?}", buckets.iter().max());
            }
        }
    }
}
