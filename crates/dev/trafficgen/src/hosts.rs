//! Addresses and ports of conversations; every 5-tuple is used once.

use crate::frame::Endpoint;
use crate::random::{Random, mix64};

/// Client addresses: 100.64.0.0/10 (RFC 6598) and 2001:db8:1::/48 (RFC 3849), 22 bits of each.
const CLIENTS: u32 = u32::from_be_bytes([100, 64, 0, 0]);
const CLIENT_BITS: u32 = 22;
/// Client ports: 32768 to 65535, 15 bits.
const PORT_BITS: u32 = 15;
/// Server addresses: 198.18.0.0/15 (RFC 2544) and 2001:db8:2::/48.
const SERVERS: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const SERVER_BITS: u32 = 17;

pub(super) struct Hosts {
    /// Numbers of client and server addresses, as powers of two.
    client_bits: u32,
    server_bits: u32,
    seed: u64,
}

impl Hosts {
    /// Hosts for this number of concurrent conversations.
    pub(super) fn new(flows: u64, seed: u64) -> Self {
        Self {
            client_bits: (flows / 8).max(16).next_power_of_two().trailing_zeros(),
            server_bits: (flows / 64).max(16).next_power_of_two().trailing_zeros().min(SERVER_BITS),
            seed,
        }
    }

    /// Returns client and server. Client address and port together are a permutation of the
    /// conversation's number.
    pub(super) fn ends(&self, number: u64, ipv6: bool, port: u16, random: &mut Random) -> [Endpoint; 2] {
        // Every client in turn, each time with another port; when all ports are used, other client
        // addresses.
        let mask = (1u64 << self.client_bits) - 1;
        let round = number >> self.client_bits;
        let client = (number & mask).wrapping_mul(0x9e37_79b1).wrapping_add(self.seed) & mask;
        let client = (client | ((round >> PORT_BITS) << self.client_bits)) & ((1 << CLIENT_BITS) - 1);
        let first_port = mix64(client ^ self.seed);
        let client_port = 1 << PORT_BITS | (first_port.wrapping_add(round.wrapping_mul(5)) as u16 & 0x7fff);
        // The product of two uniform numbers, so that some servers are far more popular than
        // others.
        let servers = 1u64 << self.server_bits;
        let server = (random.below(servers) * random.below(servers)) >> self.server_bits;
        let endpoint = |base: u32, network: u8, host: u32, port| {
            let mut address = [0; 16];
            if ipv6 {
                address[..6].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, network]);
                address[12..].copy_from_slice(&host.to_be_bytes());
            } else {
                address[..4].copy_from_slice(&(base | host).to_be_bytes());
            }
            Endpoint { address, port }
        };
        [endpoint(CLIENTS, 1, client as u32, client_port), endpoint(SERVERS, 2, server as u32, port)]
    }
}
