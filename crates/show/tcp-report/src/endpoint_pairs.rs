//! Which side of a connection is the client, what the engine does not count of it, and whether there is
//! memory for one more connection.
//!
//! In: the packets of all connections in the order of the capture. Out: for each packet whether its
//! connection is analysed; for each connection its client and its [`PacketSums`].
//! The rule is that of the meter (`docs/metering.md`): the first packet with SYN decides. Its
//! sender is the client, or its receiver if it also has ACK. Without a SYN the sender of the first
//! packet is the client.

use ahash::RandomState;
use std::collections::HashMap;
use weir_packet::{Flags, Packet};
use weir_tcp_batch::{ConnectionKey, ConnectionRecord};

/// All pairs of endpoints, 120 to 240 bytes each.
#[derive(Default)]
pub struct EndpointPairs {
    pairs: HashMap<ConnectionKey, EndpointPair, RandomState>,
    /// For pairs whose client changes from one connection to the next: from which time, ns, which
    /// side is the client.
    client_changes: HashMap<ConnectionKey, Vec<(u64, u8)>, RandomState>,
    /// For pairs with several connections: the sums of each before the last, in the order of their
    /// ends.
    earlier_sums: HashMap<ConnectionKey, Vec<PacketSums>, RandomState>,
    /// Connections that can still be added.
    remaining: usize,
}

/// When a connection sent payload: any octet that is not in a segment with RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadTimes {
    /// Time of the first packet with payload, ns.
    pub first_ns: u64,
    /// Time of the last one, ns.
    pub last_ns: u64,
    /// The second side sent the first one.
    pub of_second_side: bool,
}

/// Sums over the packets of a connection. Pairs are in the order of the sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSums {
    /// Time of the earliest packet, ns.
    first_ns: u64,
    /// Packets of both sides.
    packets: u64,
    /// Octets by the IP headers.
    pub ip_bytes: [u64; 2],
    /// Octets of the frames of both sides on the wire.
    pub frame_bytes: u64,
    /// TCP control bits of all packets together.
    pub control: [u16; 2],
    /// When payload was sent.
    pub payload: Option<PayloadTimes>,
}

impl PacketSums {
    fn add_packet(&mut self, packet: &Packet, side: usize) {
        let time_ns = packet.time_ns;
        self.first_ns = if self.packets == 0 { time_ns } else { self.first_ns.min(time_ns) };
        self.packets += 1;
        self.ip_bytes[side] += u64::from(packet.ip_bytes);
        self.frame_bytes += u64::from(packet.frame_bytes);
        self.control[side] |= packet.control & Packet::CONTROL;
        if packet.flags.has(Flags::TCP) && packet.payload_bytes > 0 && packet.control & Packet::RST == 0 {
            let first = PayloadTimes { first_ns: time_ns, last_ns: time_ns, of_second_side: side == 1 };
            self.payload.get_or_insert(first).last_ns = time_ns;
        }
    }

    /// Adds what came later.
    fn add(&mut self, later: &Self) {
        self.first_ns = if self.packets == 0 { later.first_ns } else { self.first_ns.min(later.first_ns) };
        self.packets += later.packets;
        self.frame_bytes += later.frame_bytes;
        for side in 0..2 {
            self.ip_bytes[side] += later.ip_bytes[side];
            self.control[side] |= later.control[side];
        }
        if let Some(payload) = later.payload {
            self.payload.get_or_insert(payload).last_ns = payload.last_ns;
        }
    }

    /// Exchanges both sides.
    pub fn reverse(&mut self) {
        self.ip_bytes.reverse();
        self.control.reverse();
        self.payload.iter_mut().for_each(|payload| payload.of_second_side ^= true);
    }
}

/// The connections between two endpoints, which follow each other.
#[derive(Default)]
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
    /// The sums of the last connection.
    sums: PacketSums,
}

/// [`EndpointPair::closed`] of a connection that has ended.
const CLOSED: u8 = 3;

impl EndpointPairs {
    /// Creates an empty set for at most this many connections. The batch engine counts no more
    /// connections than this.
    pub fn with_limit(max_connections: usize) -> Self {
        Self { remaining: max_connections, ..Self::default() }
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
                let new = EndpointPair { first_client: side, last_client: side, ..EndpointPair::default() };
                self.pairs.entry(key).or_insert(new)
            }
        };
        if pair.full {
            return false;
        }
        let has = |bit| packet.control & bit != 0;
        let is_read = packet.flags.has(Flags::TCP);
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
            self.earlier_sums.entry(key).or_default().push(std::mem::take(&mut pair.sums));
        } else if is_read && has(Packet::SYN) && !pair.client_known {
            // This is the first connection: each later one begins with a SYN. If both endpoints are
            // equal there is only one side.
            let [low, high] = key.endpoints();
            pair.first_client = if has(Packet::ACK) && low != high { 1 - side } else { side };
            (pair.last_client, pair.client_known) = (pair.first_client, true);
        }
        pair.sums.add_packet(packet, side.into());
        if is_read {
            pair.closed |= if has(Packet::RST) { CLOSED } else { u8::from(has(Packet::FIN)) << side };
        }
        true
    }

    /// The sums of a connection. A FIN that the engine does not accept (out of window, a duplicate)
    /// ends a connection here only: the connection of the engine then has the packets of several.
    pub fn sums(&self, connection: &ConnectionRecord) -> PacketSums {
        let key = ConnectionKey::from_endpoints(connection.endpoints);
        let earlier = self.earlier_sums.get(&key).map_or(&[][..], Vec::as_slice);
        let first = earlier.partition_point(|sums| sums.first_ns < connection.first_ns);
        let last = self.pairs.get(&key).map(|pair| &pair.sums);
        let packets: u64 = connection.packets.iter().sum();
        let mut sums = PacketSums::default();
        for part in earlier[first..].iter().chain(last) {
            if sums.packets >= packets {
                break;
            }
            sums.add(part);
        }
        sums
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

    /// Two ports of one address, which are the endpoints.
    fn endpoints() -> [SocketAddr; 2] {
        [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)))
    }

    /// A connection with these times.
    fn connection(first_ns: u64, last_ns: u64) -> ConnectionRecord {
        ConnectionRecord { endpoints: endpoints(), first_ns, last_ns, packets: [1; 2], reports: Default::default() }
    }

    /// The pair after segments: time, source port, control bits and payload.
    fn pairs(segments: &[(u64, u16, u16, u32)]) -> EndpointPairs {
        let mut pairs = EndpointPairs::with_limit(9);
        for &(time_ns, port, control, payload_bytes) in segments {
            let packet = Packet {
                time_ns,
                source: ipv4_mapped([192, 0, 2, 1]),
                destination: ipv4_mapped([192, 0, 2, 1]),
                source_port: port,
                destination_port: 3 - port,
                flags: Flags(Flags::PORTS | Flags::TCP),
                control,
                payload_bytes,
                ..Packet::default()
            };
            assert!(pairs.enter(&packet));
        }
        pairs
    }

    /// The client's port of the connection that begins at `first_ns`. Segments are source port and
    /// control bits, one per nanosecond.
    fn client_port(segments: &[(u16, u16)], first_ns: u64) -> u16 {
        let segments: Vec<_> =
            (0..).zip(segments).map(|(time_ns, &(port, control))| (time_ns, port, control, 0)).collect();
        endpoints()[pairs(&segments).client_side(&connection(first_ns, 99))].port()
    }

    #[test]
    fn the_sender_of_the_syn_is_the_client_or_else_the_sender_of_the_first_packet() {
        assert_eq!(client_port(&[(2, Packet::ACK), (1, Packet::ACK)], 0), 2);
        assert_eq!(client_port(&[(2, Packet::ACK), (1, Packet::SYN)], 0), 1);
        assert_eq!(client_port(&[(2, Packet::SYN | Packet::ACK)], 0), 1);
    }

    #[test]
    fn payload_belongs_to_its_connection() {
        // Three connections: with payload at 11 and 13, without, and with payload at 31.
        let pairs = pairs(&[
            (10, 1, Packet::SYN, 0),
            (11, 2, Packet::ACK, 5),
            (13, 1, Packet::ACK, 5),
            (14, 1, Packet::RST, 5),
            (20, 1, Packet::SYN, 0),
            (24, 1, Packet::RST, 0),
            (30, 1, Packet::SYN, 0),
            (31, 1, Packet::ACK, 5),
        ]);
        let sums = |first_ns, last_ns| pairs.sums(&connection(first_ns, last_ns));
        let payload = |first_ns, last_ns| {
            let times = sums(first_ns, last_ns).payload;
            times.map(|times| (times.first_ns, times.last_ns, usize::from(times.of_second_side)))
        };
        assert_eq!(payload(10, 14), Some((11, 13, 1)));
        assert_eq!(payload(20, 24), None);
        assert_eq!(payload(30, 31), Some((31, 31, 0)));
        assert_eq!([sums(10, 14), sums(20, 24), sums(30, 31)].map(|sums| sums.packets), [4, 2, 2]);
        assert_eq!(sums(20, 24).control, [Packet::SYN | Packet::RST, 0]);
    }

    #[test]
    fn the_next_connection_can_have_another_client() {
        let segments = [(2, Packet::SYN), (1, Packet::RST), (1, Packet::SYN), (2, Packet::SYN)];
        assert_eq!(client_port(&segments, 0), 2);
        assert_eq!(client_port(&segments, 2), 1);
    }
}
