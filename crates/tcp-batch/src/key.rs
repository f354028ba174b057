//! Which connection a packet belongs to: an unordered pair of endpoints, and its keyed hash.

use bytemuck::{Pod, Zeroable};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_packet::{Network, Packet};

/// An address and a port. Of an address the upper 64 bits come first.
type Endpoint = ([u64; 2], u16);

/// Both endpoints of a connection, the lower one first. 40 octets.
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

/// What a hash is keyed with: nobody outside can choose endpoints that meet in a place.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Secret(pub [u64; 4]);

impl Secret {
    /// One of this run.
    pub fn new() -> Self {
        let random = RandomState::new();
        Self([0_u8, 1, 2, 3].map(|number| random.hash_one(number)))
    }
}

impl ConnectionKey {
    /// Of a packet between two endpoints, and which side sent it: 0 is the lower endpoint.
    #[inline(always)]
    pub(crate) fn of(source: Endpoint, destination: Endpoint, network: Network) -> (Self, usize) {
        let side = usize::from(source > destination);
        let (low, high) = if side == 0 { (source, destination) } else { (destination, source) };
        let network = network as u32;
        (Self { low: low.0, high: high.0, low_port: low.1, high_port: high.1, network }, side)
    }

    /// Of a packet over IP that has ports, and which side sent it: 0 is the lower endpoint.
    pub fn of_packet(packet: &Packet) -> (Self, usize) {
        let endpoint = |address: [u8; 16], port| {
            let number = u128::from_be_bytes(address);
            match packet.network {
                Network::Ipv4 => ([0, u64::from(number as u32)], port),
                _ => ([(number >> 64) as u64, number as u64], port),
            }
        };
        let source = endpoint(packet.source, packet.source_port);
        let destination = endpoint(packet.destination, packet.destination_port);
        Self::of(source, destination, packet.network)
    }

    /// Of a connection between these.
    pub fn between(endpoints: [SocketAddr; 2]) -> Self {
        let endpoint = |end: SocketAddr| match end.ip() {
            IpAddr::V4(address) => ([0, u64::from(address.to_bits())], end.port()),
            IpAddr::V6(address) => ([(address.to_bits() >> 64) as u64, address.to_bits() as u64], end.port()),
        };
        let [one, other] = endpoints;
        let network = if one.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 };
        Self::of(endpoint(one), endpoint(other), network).0
    }

    /// A keyed hash.
    #[inline(always)]
    pub(crate) fn hash(&self, Secret(secret): &Secret) -> u64 {
        let low = fold(self.low[0] ^ secret[0], self.low[1] ^ secret[1]);
        let high = fold(self.high[0] ^ secret[2], self.high[1] ^ secret[3]);
        let rest = u64::from(self.network) << 32 | u64::from(self.high_port) << 16 | u64::from(self.low_port);
        // Once more: neighbours, of which one factor hardly differs, would else lie close together.
        fold(fold(low ^ rest ^ secret[3], high ^ secret[0]) ^ secret[1], secret[2])
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

/// Five words, none of them octet by octet.
impl Hash for ConnectionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [low, high] = [self.low, self.high];
        let rest = u64::from(self.network) << 32 | u64::from(self.high_port) << 16 | u64::from(self.low_port);
        [low[0], low[1], high[0], high[1], rest].iter().for_each(|&word| state.write_u64(word));
    }
}

/// Both halves of a product, one upon the other.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_one_connection() {
        let (one, other) = (([1, 2], 3), ([1, 2], 4));
        let (there, from_low) = ConnectionKey::of(one, other, Network::Ipv6);
        let (back, from_high) = ConnectionKey::of(other, one, Network::Ipv6);
        assert_eq!((there, from_low, from_high), (back, 0, 1));
        assert_ne!(there, ConnectionKey::of(one, other, Network::Ipv4).0);
        assert_eq!(there.endpoints()[1].port(), 4);
        for key in [there, ConnectionKey::of(([0, 1], 3), ([0, 1], 4), Network::Ipv4).0] {
            assert_eq!(ConnectionKey::between(key.endpoints()), key);
        }
    }

    #[test]
    fn neighbours_spread_over_places() {
        for number in 1..20_u64 {
            let secret =
                Secret([1, 2, 3, 5].map(|odd| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7 * odd)));
            let mut places = vec![0_u32; 1 << 12];
            for host in 0..1 << 10 {
                for port in 0..1 << 6 {
                    let (key, _) =
                        ConnectionKey::of(([0, 10 << 24 | host], 40_000 + port), ([0, 1], 443), Network::Ipv4);
                    places[(key.hash(&secret) & 0xfff) as usize] += 1;
                }
            }
            // 16 on average; by chance one of a million tries has 50.
            let most = places.iter().max().copied();
            assert!(most < Some(50), "{most:?} with secret {number}");
        }
    }
}
