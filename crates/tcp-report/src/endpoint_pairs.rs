//! Which side of a connection is the client, and whether there is memory for one more connection.
//!
//! In: the packets of all connections in the order of the capture. Out: for each packet whether its
//! connection is analysed; for each connection its client.
//! The rule is that of the meter (`docs/metering.md`): the first packet with SYN decides. Its
//! sender is the client, or its receiver if it also has ACK. Without a SYN the sender of the first
//! packet is the client.

use ahash::RandomState;
use std::collections::HashMap;
use weir_packet::{Flags, Packet};
use weir_tcp_batch::{ConnectionKey, ConnectionRecord};

/// All pairs of endpoints, 50 to 110 bytes each.
pub struct EndpointPairs {
    pairs: HashMap<ConnectionKey, EndpointPair, RandomState>,
    /// For pairs whose client changes from one connection to the next: from which time, ns, which
    /// side is the client.
    client_changes: HashMap<ConnectionKey, Vec<(u64, u8)>, RandomState>,
    /// Connections that can still be added.
    remaining: usize,
}

/// The connections between two endpoints, which follow each other.
struct EndpointPair {
    /// The client's side in the first connection.
    first_client: u8,
    /// The client's side in the last connection.
    last_client: u8,
    /// A SYN decided who the client is.
    client_known: bool,
    /// How the last connection ended: FIN of side 0 (bit 0) and of side 1 (bit 1), RST (both).
    closed: u8,
    /// The next connection was refused.
    full: bool,
}

/// [`EndpointPair::closed`] of a connection that has ended.
const CLOSED: u8 = 3;

impl EndpointPairs {
    /// Creates an empty set for at most this many connections. The batch engine counts no more
    /// connections than this.
    pub fn with_limit(max_connections: usize) -> Self {
        Self { pairs: HashMap::default(), client_changes: HashMap::default(), remaining: max_connections }
    }

    /// Enters a packet. Returns false if its connection is beyond the limit.
    #[must_use]
    pub fn enter(&mut self, packet: &Packet) -> bool {
        let (key, side) = ConnectionKey::from_packet(packet);
        let side = side as u8;
        let pair = match self.pairs.get_mut(&key) {
            Some(pair) => pair,
            None => {
                if self.remaining == 0 || self.pairs.try_reserve(1).is_err() {
                    self.remaining = 0;
                    return false;
                }
                self.remaining -= 1;
                let pair =
                    EndpointPair { first_client: side, last_client: side, client_known: false, closed: 0, full: false };
                self.pairs.entry(key).or_insert(pair)
            }
        };
        if pair.full {
            return false;
        }
        let has = |bit| packet.control & bit != 0;
        if !packet.flags.has(Flags::TCP) {
            return true;
        }
        if opens_connection(packet) && pair.closed == CLOSED {
            if self.remaining == 0 {
                pair.full = true;
                return false;
            }
            self.remaining -= 1;
            if pair.last_client != side {
                pair.last_client = side;
                self.client_changes.entry(key).or_default().push((packet.time_ns, side));
            }
            (pair.client_known, pair.closed) = (true, 0);
        } else if has(Packet::SYN) && !pair.client_known {
            // This is the first connection: each later one begins with a SYN. If both endpoints are
            // equal there is only one side.
            let [low, high] = key.endpoints();
            pair.first_client = if has(Packet::ACK) && low != high { 1 - side } else { side };
            (pair.last_client, pair.client_known) = (pair.first_client, true);
        }
        pair.closed |= if has(Packet::RST) { CLOSED } else { u8::from(has(Packet::FIN)) << side };
        true
    }

    /// The client's side of a connection.
    pub fn client_side(&self, connection: &ConnectionRecord) -> usize {
        let key = ConnectionKey::from_endpoints(connection.endpoints);
        let Some(pair) = self.pairs.get(&key) else { return 0 };
        let changes = self.client_changes.get(&key).map_or(&[][..], Vec::as_slice);
        let change = changes.iter().rev().find(|&&(since_ns, _)| since_ns <= connection.first_ns);
        change.map_or(pair.first_client, |&(_, side)| side).into()
    }
}

/// Whether a packet opens a new connection if the one before it has ended: SYN without ACK and RST.
pub fn opens_connection(packet: &Packet) -> bool {
    let bits = packet.control & (Packet::SYN | Packet::ACK | Packet::RST);
    packet.flags.has(Flags::TCP) && bits == Packet::SYN
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use weir_packet::ipv4_mapped;

    /// The client's port of the connection that begins at `first_ns`. Segments are source port and
    /// control bits, one per nanosecond.
    fn client_port(segments: &[(u16, u16)], first_ns: u64) -> u16 {
        let mut pairs = EndpointPairs::with_limit(9);
        for (&(port, control), time_ns) in segments.iter().zip(0..) {
            let packet = Packet {
                time_ns,
                source: ipv4_mapped([192, 0, 2, 1]),
                destination: ipv4_mapped([192, 0, 2, 1]),
                source_port: port,
                destination_port: 3 - port,
                flags: Flags(Flags::PORTS | Flags::TCP),
                control,
                ..Packet::default()
            };
            assert!(pairs.enter(&packet));
        }
        let endpoints = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let connection =
            ConnectionRecord { endpoints, first_ns, last_ns: 99, packets: [1; 2], reports: Default::default() };
        endpoints[pairs.client_side(&connection)].port()
    }

    #[test]
    fn the_sender_of_the_syn_is_the_client_or_else_the_sender_of_the_first_packet() {
        assert_eq!(client_port(&[(2, Packet::ACK), (1, Packet::ACK)], 0), 2);
        assert_eq!(client_port(&[(2, Packet::ACK), (1, Packet::SYN)], 0), 1);
        assert_eq!(client_port(&[(2, Packet::SYN | Packet::ACK)], 0), 1);
    }

    #[test]
    fn the_next_connection_can_have_another_client() {
        let segments = [(2, Packet::SYN), (1, Packet::RST), (1, Packet::SYN), (2, Packet::SYN)];
        assert_eq!(client_port(&segments, 0), 2);
        assert_eq!(client_port(&segments, 2), 1);
    }
}
