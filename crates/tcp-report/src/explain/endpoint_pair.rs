//! The packets between two ends, and which connection of several, one after the other, each is of: the engine's rule.

use crate::connection::Connection;
use crate::reader::{PacketConsumer, ends, opens};
use std::net::SocketAddr;
use weir_packet::Packet;
use weir_tcp::AnomalyPool;

/// The packets between two ends.
pub struct Between {
    ends: [SocketAddr; 2],
    connection: weir_tcp::Connection,
    room: AnomalyPool,
    number: usize,
}

impl Between {
    /// Between the ends of a connection.
    pub fn ends_of(connection: &Connection) -> Self {
        let mut room = AnomalyPool::default();
        // Two sides at a time. Without memory for them it still knows where connections end.
        let _ = room.reserve(2);
        Self { ends: connection.ends(), connection: weir_tcp::Connection::NEW, room, number: 0 }
    }

    /// The number of a packet's connection, from 0, and the engine's side that sent it; `None` of other ends.
    pub fn enter(&mut self, packet: &Packet) -> Option<(usize, usize)> {
        let (ends, side) = ends(packet);
        if ends != self.ends {
            return None;
        }
        if opens(packet) && self.connection.has_ended() {
            self.connection.reset(&mut self.room);
            self.number += 1;
        }
        self.connection.enter(side, packet, &mut self.room);
        Some((self.number, side))
    }
}

/// Looks for the number of a connection: times and packets tell it from others between the same ends.
pub struct Search<'a> {
    between: Between,
    connection: &'a Connection,
    now: Extent,
    found: Option<usize>,
}

/// Number; first and last time, ns; packets of both sides of the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent(usize, [u64; 2], [u64; 2]);

impl Extent {
    fn of(number: usize) -> Self {
        Self(number, [u64::MAX, 0], [0; 2])
    }
}

impl<'a> Search<'a> {
    /// For this one.
    pub fn new(connection: &'a Connection) -> Self {
        Self { between: Between::ends_of(connection), connection, now: Extent::of(0), found: None }
    }

    /// The number, if there is such a connection.
    pub fn finish(mut self) -> Option<usize> {
        self.compare();
        self.found
    }

    fn compare(&mut self) {
        let Extent(number, times, packets) = self.now;
        let mut expected = self.connection.packets;
        if self.connection.turned {
            expected.reverse();
        }
        if self.found.is_none() && (times, packets) == ([self.connection.first_ns, self.connection.last_ns], expected) {
            self.found = Some(number);
        }
    }
}

impl PacketConsumer for Search<'_> {
    fn consume(&mut self, packets: &[Packet], _: &[u64]) {
        for packet in packets {
            let Some((number, side)) = self.between.enter(packet) else { continue };
            if number != self.now.0 {
                self.compare();
                self.now = Extent::of(number);
            }
            let Extent(_, [first_ns, last_ns], packets) = &mut self.now;
            *first_ns = packet.time_ns.min(*first_ns);
            *last_ns = packet.time_ns.max(*last_ns);
            packets[side] += 1;
        }
    }
}
