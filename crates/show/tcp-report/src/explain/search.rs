//! Finds one connection among those that follow each other between the same endpoints.

use crate::connection::Connection;
use crate::endpoint_pairs::opens_connection;
use crate::reader::PacketConsumer;
use weir_packet::Packet;
use weir_tcp::AnomalyPool;
use weir_tcp_batch::ConnectionKey;

/// The packets between two endpoints, divided into connections by the rule of the batch engine.
pub struct PairTracker {
    key: ConnectionKey,
    /// State of the current connection.
    pub state: weir_tcp::Connection,
    /// Anomalies of both sides.
    pub anomalies: AnomalyPool,
    /// Number of the current connection, from 0.
    pub number: usize,
}

impl PairTracker {
    /// Creates a tracker for the endpoints of a connection.
    pub fn new(connection: &Connection) -> Self {
        // Without memory for anomalies it still knows where connections end.
        let anomalies = AnomalyPool::new(2).unwrap_or_default();
        Self { key: connection.key(), state: weir_tcp::Connection::NEW, anomalies, number: 0 }
    }

    /// The side that sent a packet; `None` if it has other endpoints.
    pub fn side(&self, packet: &Packet) -> Option<usize> {
        let (key, side) = ConnectionKey::from_packet(packet);
        (key == self.key).then_some(side)
    }

    /// Whether the next connection begins with this packet.
    pub fn opens_next(&self, packet: &Packet) -> bool {
        opens_connection(packet) && self.state.has_ended()
    }

    /// Begins the next connection.
    pub fn start_next(&mut self) {
        self.state.reset(&mut self.anomalies);
        self.number += 1;
    }
}

/// Searches for the number of a connection. Its times and packets distinguish it from others.
pub struct ConnectionSearch<'a> {
    tracker: PairTracker,
    wanted: &'a Connection,
    current: Extent,
    found: Option<usize>,
}

/// What distinguishes a connection from others between the same endpoints.
#[derive(PartialEq, Eq)]
pub struct Extent {
    /// Times of the earliest and the latest packet, ns.
    first_ns: u64,
    last_ns: u64,
    /// Packets of each side of the batch engine.
    packets: [u64; 2],
}

impl Extent {
    /// Of no packets.
    pub const EMPTY: Self = Self { first_ns: u64::MAX, last_ns: 0, packets: [0; 2] };

    /// Adds a packet of a side of the batch engine.
    pub fn enter(&mut self, side: usize, time_ns: u64) {
        self.first_ns = time_ns.min(self.first_ns);
        self.last_ns = time_ns.max(self.last_ns);
        self.packets[side] += 1;
    }

    /// Whether it is that of a connection.
    pub fn is_of(&self, connection: &Connection) -> bool {
        let Connection { first_ns, last_ns, mut packets, client_side, .. } = *connection;
        packets.rotate_left(client_side);
        *self == Self { first_ns, last_ns, packets }
    }
}

impl<'a> ConnectionSearch<'a> {
    /// Starts a search for a connection.
    pub fn new(wanted: &'a Connection) -> Self {
        Self { tracker: PairTracker::new(wanted), wanted, current: Extent::EMPTY, found: None }
    }

    /// The number of the connection, if there is one with its times and packets.
    pub fn finish(mut self) -> Option<usize> {
        self.compare();
        self.found
    }

    fn compare(&mut self) {
        if self.found.is_none() && self.current.is_of(self.wanted) {
            self.found = Some(self.tracker.number);
        }
    }
}

impl PacketConsumer for ConnectionSearch<'_> {
    fn consume(&mut self, packets: &[Packet], _: &[u64]) {
        for packet in packets {
            let Some(side) = self.tracker.side(packet) else { continue };
            if self.tracker.opens_next(packet) {
                self.compare();
                self.current = Extent::EMPTY;
                self.tracker.start_next();
            }
            self.tracker.state.classify(side, packet, &mut self.tracker.anomalies);
            self.current.enter(side, packet.time_ns);
        }
    }
}
