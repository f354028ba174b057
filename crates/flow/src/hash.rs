//! The keyed hash of a flow key, and which endpoint comes first in it.
//!
//! A product of 64 by 64 bits per address, folded to 64, and a third over their sum, their difference and the rest. The secret is new in every
//! run, so keys that collide cannot be computed beforehand. The same two products say which side sent a packet: the
//! endpoint whose address has the smaller one is the low one, so that no address is compared with another.
//! Always true: a key has one hash, whichever direction the packet came from.

use crate::KeyOptions;
use crate::key::{Extra, Key, Side, rest};
use weir_packet::Packet;

/// A hash with its secret.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher([u64; 4]);

impl KeyHasher {
    /// With a secret made from a number, or from the operating system's randomness.
    pub fn new(secret: Option<u64>) -> Self {
        let random = match secret {
            Some(secret) => {
                ahash::RandomState::with_seeds(secret, !secret, secret.rotate_left(32), 0x9e37_79b9_7f4a_7c15)
            }
            None => ahash::RandomState::new(),
        };
        Self(std::array::from_fn(|at| random.hash_one(at)))
    }

    /// A hash for other tables, of the same secret.
    pub(crate) fn random(&self) -> ahash::RandomState {
        let Self([a, b, c, d]) = *self;
        ahash::RandomState::with_seeds(a, b, c, d)
    }

    /// The hash of a packet's key.
    #[inline]
    pub fn hash(&self, packet: &Packet, options: KeyOptions) -> u64 {
        self.look(packet, options).0
    }

    /// The hash of a packet's key, the side that sent it (0 if its source is the low endpoint), and [`Key::rest`].
    #[inline(always)]
    pub(crate) fn look(&self, packet: &Packet, options: KeyOptions) -> (u64, Side, u64) {
        let words = packet.words();
        let (source, destination) = (self.address(words[0], words[1]), self.address(words[2], words[3]));
        let mut side = Side::from(source > destination);
        if source == destination {
            side = tie(packet);
        }
        if options.unidirectional {
            side = 0;
        }
        let rest = rest(packet, side);
        (self.all(source, destination, rest, Extra::of(packet, options)), side, rest)
    }

    /// The hash of a key.
    pub(crate) fn key(&self, key: &Key) -> u64 {
        let [a, b, c, d] = key.addresses;
        self.all(self.address(a, b), self.address(c, d), key.rest, key.extra)
    }

    #[inline(always)]
    fn address(&self, a: u64, b: u64) -> u64 {
        folded(a ^ self.0[0], b ^ self.0[1])
    }

    #[inline(always)]
    fn all(&self, one: u64, other: u64, rest: u64, extra: Extra) -> u64 {
        let Self([a, b, c, d]) = *self;
        let rest = rest ^ extra.hashed([b ^ c, a ^ d], folded);
        // Sum and difference together, as different pairs of neighbours often have the same sum; the rest on both sides, as a
        // product with something constant leaves neighbouring ports neighbours.
        folded(one.wrapping_add(other) ^ rest ^ c, one ^ other ^ rest.rotate_left(32) ^ d)
    }
}

/// The side of a packet between two addresses that look the same (nearly always: are the same): by address and port.
#[cold]
#[inline(never)]
fn tie(packet: &Packet) -> Side {
    Side::from((packet.source, packet.source_port) > (packet.destination, packet.destination_port))
}

/// Both halves of the product.
#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use weir_packet::ipv4_mapped;

    fn packet(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Packet {
        let (source, destination) = (ipv4_mapped(source), ipv4_mapped(destination));
        Packet {
            source,
            destination,
            source_port: ports[0],
            destination_port: ports[1],
            protocol: 17,
            ..Packet::default()
        }
    }

    /// Keys as one finds them: neighbours with neighbours, and one port after the other.
    fn neighbours() -> [Vec<Packet>; 3] {
        let hosts = || (0..=255_u8).flat_map(|a| (0..=255_u8).map(move |b| (a, b)));
        [
            hosts().filter(|(a, b)| a < b).map(|(a, b)| packet([192, 0, 2, a], [192, 0, 2, b], [53, 53])).collect(),
            hosts().map(|(a, b)| packet([10, 1, 2, a], [192, 0, 2, b], [53, 53])).collect(),
            (0..=u16::MAX).map(|port| packet([10, 0, 0, 1], [10, 0, 0, 2], [port, 443])).collect(),
        ]
    }

    #[test]
    fn neighbours_are_spread_as_if_by_chance() {
        for keys in neighbours() {
            for secret in 0..if cfg!(miri) { 1 } else { 50 } {
                let hash = KeyHasher::new(Some(secret));
                let hashes: Vec<u64> = keys.iter().map(|packet| hash.hash(packet, KeyOptions::default())).collect();
                assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), keys.len(), "secret {secret}");
                let (mut buckets, number) = (vec![0_u32; keys.len() * 2 / 13], keys.len() as u64 * 2 / 13);
                hashes.iter().for_each(|hash| buckets[(((hash >> 32) * number) >> 32) as usize] += 1);
                // By chance (Poisson, mean 6.5) more than 30 are in one bucket once in ten million buckets.
                assert!(buckets.iter().all(|&keys| keys <= 30), "secret {secret}: {:?}", buckets.iter().max());
            }
        }
    }
}
