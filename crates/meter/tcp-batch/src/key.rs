//! The key of a connection: an unordered pair of endpoints, and its keyed hash.

use bytemuck::{Pod, Zeroable};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_packet::{Network, Packet};

/// An address and a port. The upper 64 bits of the address come first.
type Endpoint = ([u64; 2], u16);

/// Both endpoints of a connection, the lower one first: 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ConnectionKey {
    low: [u64; 2],
    high: [u64; 2],
    low_port: u16,
    high_port: u16,
    network: u32,
}

const _: () = assert!(size_of::<ConnectionKey>() == 40);

/// Secret key of the hash. It keeps senders from choosing endpoints that collide.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct HashKey(pub [u64; 4]);

impl HashKey {
    /// Creates a random key.
    pub fn random() -> Self {
        let random = RandomState::new();
        Self([0_u8, 1, 2, 3].map(|number| random.hash_one(number)))
    }
}

impl ConnectionKey {
    /// Returns the key, and the side of the source: 0 is the lower endpoint.
    #[inline(always)]
    pub(crate) fn new(source: Endpoint, destination: Endpoint, network: Network) -> (Self, usize) {
        let side = usize::from(source > destination);
        let (low, high) = if side == 0 { (source, destination) } else { (destination, source) };
        let network = network as u32;
        (Self { low: low.0, high: high.0, low_port: low.1, high_port: high.1, network }, side)
    }

    /// Returns the key of an IP packet with ports, and the side that sent it: 0 is the lower
    /// endpoint.
    pub fn from_packet(packet: &Packet) -> (Self, usize) {
        let endpoint = |address: [u8; 16], port| {
            let number = u128::from_be_bytes(address);
            match packet.network {
                Network::Ipv4 => ([0, u64::from(number as u32)], port),
                _ => (halves(number), port),
            }
        };
        let source = endpoint(packet.source, packet.source_port);
        let destination = endpoint(packet.destination, packet.destination_port);
        Self::new(source, destination, packet.network)
    }

    /// Returns the key of the connection between two endpoints of one network.
    pub fn from_endpoints(endpoints: [SocketAddr; 2]) -> Self {
        let endpoint = |end: SocketAddr| match end.ip() {
            IpAddr::V4(address) => ([0, u64::from(address.to_bits())], end.port()),
            IpAddr::V6(address) => (halves(address.to_bits()), end.port()),
        };
        let [one, other] = endpoints;
        let network = if one.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 };
        Self::new(endpoint(one), endpoint(other), network).0
    }

    /// The keyed hash.
    #[inline(always)]
    pub(crate) fn hash(&self, HashKey(key): &HashKey) -> u64 {
        let low = fold(self.low[0] ^ key[0], self.low[1] ^ key[1]);
        let high = fold(self.high[0] ^ key[2], self.high[1] ^ key[3]);
        let rest = u64::from(self.network) << 32 | u64::from(self.high_port) << 16 | u64::from(self.low_port);
        // Folded twice: once would map neighbours, of which one factor hardly differs, close
        // together.
        fold(fold(low ^ rest ^ key[3], high ^ key[0]) ^ key[1], key[2])
    }

    /// The lower endpoint, and the other.
    pub fn endpoints(&self) -> [SocketAddr; 2] {
        let address = |[upper, lower]: [u64; 2]| match self.network == Network::Ipv4 as u32 {
            true => IpAddr::V4(Ipv4Addr::from_bits(lower as u32)),
            false => IpAddr::V6(Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower))),
        };
        [(address(self.low), self.low_port).into(), (address(self.high), self.high_port).into()]
    }
}

/// Hashes five words instead of single octets.
impl Hash for ConnectionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [low, high] = [self.low, self.high];
        let rest = u64::from(self.network) << 32 | u64::from(self.high_port) << 16 | u64::from(self.low_port);
        [low[0], low[1], high[0], high[1], rest].iter().for_each(|&word| state.write_u64(word));
    }
}

/// The upper and the lower half of an address.
pub(crate) fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// Exclusive or of both halves of a product.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_have_the_same_key() {
        let (one, other) = (([1, 2], 3), ([1, 2], 4));
        let (forward, from_low) = ConnectionKey::new(one, other, Network::Ipv6);
        let (reverse, from_high) = ConnectionKey::new(other, one, Network::Ipv6);
        assert_eq!((forward, from_low, from_high), (reverse, 0, 1));
        assert_ne!(forward, ConnectionKey::new(one, other, Network::Ipv4).0);
        assert_eq!(forward.endpoints()[1].port(), 4);
        for key in [forward, ConnectionKey::new(([0, 1], 3), ([0, 1], 4), Network::Ipv4).0] {
            assert_eq!(ConnectionKey::from_endpoints(key.endpoints()), key);
        }
    }

    #[test]
    fn hash_spreads_neighbouring_endpoints() {
        for number in 1..20_u64 {
            let words = [1, 2, 3, 5].map(|odd| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7 * odd));
            let mut buckets = vec![0_u32; 1 << 12];
            for host in 0..1 << 10 {
                for port in 0..1 << 6 {
                    let source = ([0, 10 << 24 | host], 40_000 + port);
                    let (key, _) = ConnectionKey::new(source, ([0, 1], 443), Network::Ipv4);
                    buckets[(key.hash(&HashKey(words)) & 0xfff) as usize] += 1;
                }
            }
            // 16 on average; by chance one of a million tries has 50.
            let most = buckets.iter().max().copied();
            assert!(most < Some(50), "{most:?} with key {number}");
        }
    }
}
