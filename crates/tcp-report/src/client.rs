//! Who began a connection, and whether there is room for one more. The rule is the meter's (`docs/metering.md`): the first
//! packet with SYN settles it, its sender, or its receiver if it has ACK, too; without one the first packet's sender began.

use crate::reader::opens;
use ahash::RandomState;
use std::collections::HashMap;
use weir_packet::{Flags, Packet};
use weir_tcp_batch::{ConnectionKey, ConnectionRecord};

/// Which side is the client, of every pair of ends; 50 to 110 octets each.
pub struct Clients {
    pairs: HashMap<ConnectionKey, Pair, RandomState>,
    /// Times from which on another side is the client, ns, of the few pairs of which there are some.
    turns: HashMap<ConnectionKey, Vec<(u64, u8)>, RandomState>,
    /// Connections for which there still is room.
    left: usize,
}

/// What is known of the connections between two ends, of which one follows the other.
struct Pair {
    /// The client of the first one.
    first: u8,
    /// The client of the last one.
    last: u8,
    /// A SYN said so.
    settled: bool,
    /// Of the last one: FIN by side (bits 0 and 1), RST (both).
    ended: u8,
    /// There was no room for another one.
    full: bool,
}

impl Clients {
    /// Of so many connections at most: no fewer than the engine takes for connections.
    pub fn at_most(left: usize) -> Self {
        Self { pairs: HashMap::default(), turns: HashMap::default(), left }
    }

    /// Takes note of a packet. If not, it is of a connection for which there is no room.
    #[must_use]
    pub fn enter(&mut self, packet: &Packet) -> bool {
        let (key, side) = ConnectionKey::from_packet(packet);
        let side = side as u8;
        let pair = match self.pairs.get_mut(&key) {
            Some(pair) => pair,
            None => {
                if self.left == 0 || self.pairs.try_reserve(1).is_err() {
                    self.left = 0;
                    return false;
                }
                self.left -= 1;
                let pair = Pair { first: side, last: side, settled: false, ended: 0, full: false };
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
        if opens(packet) && pair.ended == 3 {
            if self.left == 0 {
                pair.full = true;
                return false;
            }
            self.left -= 1;
            if pair.last != side {
                pair.last = side;
                self.turns.entry(key).or_default().push((packet.time_ns, side));
            }
            (pair.settled, pair.ended) = (true, 0);
        } else if has(Packet::SYN) && !pair.settled {
            // Two equal ends are one side.
            let [low, high] = key.endpoints();
            // Only the first connection is not settled when it begins.
            pair.first = if has(Packet::ACK) && low != high { 1 - side } else { side };
            (pair.last, pair.settled) = (pair.first, true);
        }
        pair.ended |= if has(Packet::RST) { 3 } else { u8::from(has(Packet::FIN)) << side };
        true
    }

    /// The side of the client.
    pub fn of(&self, conversation: &ConnectionRecord) -> usize {
        let key = ConnectionKey::from_endpoints(conversation.endpoints);
        let Some(pair) = self.pairs.get(&key) else { return 0 };
        let turns = self.turns.get(&key).map_or(&[][..], Vec::as_slice);
        let turn = turns.iter().rev().find(|&&(since_ns, _)| since_ns <= conversation.first_ns);
        turn.map_or(pair.first, |&(_, side)| side).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use weir_packet::ipv4_mapped;

    fn client_of(segments: &[(u16, u8, u16)], first_ns: u64) -> u16 {
        let mut clients = Clients::at_most(9);
        for (&(port, _, control), time_ns) in segments.iter().zip(0..) {
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
            assert!(clients.enter(&packet));
        }
        let endpoints = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let conversation =
            ConnectionRecord { endpoints, first_ns, last_ns: 99, packets: [1; 2], reports: Default::default() };
        endpoints[clients.of(&conversation)].port()
    }

    #[test]
    fn the_sender_of_the_syn_is_the_client_and_without_one_the_first_sender() {
        assert_eq!(client_of(&[(2, 0, Packet::ACK), (1, 0, Packet::ACK)], 0), 2);
        assert_eq!(client_of(&[(2, 0, Packet::ACK), (1, 0, Packet::SYN)], 0), 1);
        assert_eq!(client_of(&[(2, 0, Packet::SYN | Packet::ACK)], 0), 1);
    }

    #[test]
    fn after_an_end_another_side_may_begin() {
        let segments = [(2, 0, Packet::SYN), (1, 0, Packet::RST), (1, 0, Packet::SYN), (2, 0, Packet::SYN)];
        assert_eq!(client_of(&segments, 0), 2);
        assert_eq!(client_of(&segments, 2), 1);
    }
}
