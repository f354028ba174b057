//! Who began a connection. The rule is the meter's (`docs/metering.md`): the first packet with SYN settles it, its sender,
//! or its receiver if it has ACK, too; without one the first packet's sender began.

use super::input::{Taker, ends, opens};
use std::collections::HashMap;
use std::net::SocketAddr;
use weir_gpu::Conversation;
use weir_packet::{Flags, Packet};

/// Which side is the client, of every pair of ends. About 200 octets each.
#[derive(Default)]
pub struct Clients {
    pairs: HashMap<[SocketAddr; 2], Pair>,
}

/// What is known of the connections between two ends, of which one follows the other.
struct Pair {
    /// The client of the first one.
    first: usize,
    /// A SYN said so.
    settled: bool,
    /// Of the last one: FIN by side (bits 0 and 1), RST (both).
    ended: u8,
    /// Times from which on another side is the client, ns.
    turns: Vec<(u64, usize)>,
}

impl Taker for Clients {
    fn take(&mut self, packets: &[Packet], _: &[u64]) {
        for packet in packets {
            let (ends, side) = ends(packet);
            let pair =
                self.pairs.entry(ends).or_insert(Pair { first: side, settled: false, ended: 0, turns: Vec::new() });
            let has = |bit| packet.control & bit != 0;
            if !packet.flags.has(Flags::TCP) {
                continue;
            }
            if opens(packet) && pair.ended == 3 {
                if pair.client() != side {
                    pair.turns.push((packet.time_ns, side));
                }
                (pair.settled, pair.ended) = (true, 0);
            } else if has(Packet::SYN) && !pair.settled {
                // Two equal ends are one side.
                let client = if has(Packet::ACK) && ends[0] != ends[1] { 1 - side } else { side };
                match pair.turns.last_mut() {
                    Some((_, side)) => *side = client,
                    None => pair.first = client,
                }
                pair.settled = true;
            }
            pair.ended |= if has(Packet::RST) { 3 } else { u8::from(has(Packet::FIN)) << side };
        }
    }
}

impl Pair {
    /// Of the last connection.
    fn client(&self) -> usize {
        self.turns.last().map_or(self.first, |&(_, side)| side)
    }
}

impl Clients {
    /// The side of the client.
    pub fn of(&self, conversation: &Conversation) -> usize {
        let Some(pair) = self.pairs.get(&conversation.endpoints) else { return 0 };
        let turn = pair.turns.iter().rev().find(|&&(since_ns, _)| since_ns <= conversation.first_ns);
        turn.map_or(pair.first, |&(_, side)| side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::mapped;
    use weir_tcp::Report;

    fn client_of(segments: &[(u16, u8, u16)], first_ns: u64) -> u16 {
        let mut clients = Clients::default();
        for (&(port, _, control), time_ns) in segments.iter().zip(0..) {
            let packet = Packet {
                time_ns,
                source: mapped([192, 0, 2, 1]),
                destination: mapped([192, 0, 2, 1]),
                source_port: port,
                destination_port: 3 - port,
                flags: Flags(Flags::PORTS | Flags::TCP),
                control,
                ..Packet::default()
            };
            clients.take(&[packet], &[]);
        }
        let endpoints = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let conversation =
            Conversation { endpoints, first_ns, last_ns: 99, packets: [1; 2], reports: [Report::default(); 2] };
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
