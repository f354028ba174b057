//! Finds one connection among those that follow each other between the same endpoints.

use crate::connection::Connection;
use crate::endpoint_pairs::opens_connection;
use crate::reader::PacketConsumer;
use weir_packet::Packet;
use weir_tcp::{AnomalyPool, SegmentClass, SegmentEvent, TcpReport};
use weir_tcp_batch::ConnectionKey;

/// The packets between two endpoints, divided into connections by the rule of the batch engine.
pub struct PairTracker {
    key: ConnectionKey,
    /// State of the current connection.
    pub state: weir_tcp::Connection,
    anomalies: AnomalyPool,
    extent: Extent,
    /// Number of the current connection, from 0.
    pub number: usize,
}

/// What distinguishes a connection from others between the same endpoints.
#[derive(PartialEq, Eq)]
struct Extent {
    /// Times of the earliest and the latest packet, ns.
    first_ns: u64,
    last_ns: u64,
    /// Packets of each side of the batch engine.
    packets: [u64; 2],
}

const NO_PACKETS: Extent = Extent { first_ns: u64::MAX, last_ns: 0, packets: [0; 2] };

impl PairTracker {
    /// Creates a tracker for the endpoints of a connection.
    pub fn new(connection: &Connection) -> Self {
        // Without memory for anomalies it still knows where connections end.
        let anomalies = AnomalyPool::new(2).unwrap_or_default();
        Self { key: connection.key(), state: weir_tcp::Connection::NEW, anomalies, extent: NO_PACKETS, number: 0 }
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
        self.extent = NO_PACKETS;
        self.number += 1;
    }

    /// Classifies a packet of a side, and passes every decision about it to `observer`.
    pub fn classify(&mut self, side: usize, packet: &Packet, observer: impl FnMut(SegmentEvent)) -> SegmentClass {
        let Extent { first_ns, last_ns, packets } = &mut self.extent;
        *first_ns = packet.time_ns.min(*first_ns);
        *last_ns = packet.time_ns.max(*last_ns);
        packets[side] += 1;
        self.state.classify_observed(side, packet, &mut self.anomalies, observer)
    }

    /// Packets of each side of the batch engine in the current connection.
    pub fn packets(&self) -> [u64; 2] {
        self.extent.packets
    }

    /// Report of a side of the current connection.
    pub fn report(&self, side: usize) -> TcpReport {
        self.state.report(side, self.extent.packets[side], &self.anomalies)
    }

    /// Whether the current connection has the times and packets of this one.
    pub fn is_at(&self, connection: &Connection) -> bool {
        let Connection { first_ns, last_ns, mut packets, client_side, .. } = *connection;
        packets.rotate_left(client_side);
        self.extent == Extent { first_ns, last_ns, packets }
    }
}

/// Searches for the number of a connection. Its times and packets distinguish it from others.
pub struct ConnectionSearch<'a> {
    tracker: PairTracker,
    wanted: &'a Connection,
    found: Option<usize>,
}

impl<'a> ConnectionSearch<'a> {
    /// Starts a search for a connection.
    pub fn new(wanted: &'a Connection) -> Self {
        Self { tracker: PairTracker::new(wanted), wanted, found: None }
    }

    /// The number of the connection, if there is one with its times and packets.
    pub fn finish(mut self) -> Option<usize> {
        self.compare();
        self.found
    }

    fn compare(&mut self) {
        if self.found.is_none() && self.tracker.is_at(self.wanted) {
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
                self.tracker.start_next();
            }
            self.tracker.classify(side, packet, |_| {});
        }
    }
}
