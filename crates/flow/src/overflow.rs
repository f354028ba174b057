//! Overflow records: what does not fit into the table is summed per prefix and port, never lost.

use crate::bounded::{list, table, table_room};
use crate::record::{enter, mixed};
use crate::{Approximate, Direction, EndReason, FlowRecord};
use std::collections::{HashMap, TryReserveError, VecDeque};
use weir_packet::{Network, Packet, ipv4_mapped};

/// Records by prefix and port; beyond them, one per network and protocol.
const RECORDS: usize = 1 << 14;
/// With the few catch-all records: 3 networks of 256 protocols.
const ROOM: usize = RECORDS + 3 * 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    source: [u8; 16],
    destination: [u8; 16],
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    network: Network,
}

#[derive(Clone, Copy, Debug)]
struct Sum {
    direction: Direction,
    interface: u32,
    approximate: u16,
}

/// The overflow records of one meter.
#[derive(Debug)]
pub(crate) struct Overflow {
    sums: HashMap<Name, Sum, ahash::RandomState>,
    /// When each began, by the clock, in that order.
    order: VecDeque<(u64, Name)>,
}

impl Overflow {
    /// # Errors
    /// The system has no memory for it.
    pub fn new(hasher: ahash::RandomState) -> Result<Self, TryReserveError> {
        Ok(Self { sums: table(ROOM, hasher)?, order: list(ROOM)?.into() })
    }

    /// Octets of memory that one takes.
    pub fn octets_for() -> usize {
        table_room(ROOM) * size_of::<(Name, Sum)>() + ROOM * size_of::<(u64, Name)>()
    }

    /// Octets of memory taken.
    pub fn octets(&self) -> usize {
        self.sums.capacity() * size_of::<(Name, Sum)>() + self.order.capacity() * size_of::<(u64, Name)>()
    }

    /// Enters a packet. True if that opened a record.
    pub fn add(&mut self, packet: &Packet, approximate: u16, clock_ns: u64) -> bool {
        let mut name = name(packet);
        if self.sums.len() >= RECORDS && !self.sums.contains_key(&name) {
            let any = if name.network == Network::Ipv4 { ipv4_mapped([0; 4]) } else { [0; 16] };
            name = Name { source: any, destination: any, source_port: 0, destination_port: 0, ..name };
        }
        let mut opened = false;
        let sum = self.sums.entry(name).or_insert_with(|| {
            opened = true;
            self.order.push_back((clock_ns, name));
            Sum { direction: Direction::default(), interface: packet.interface, approximate: Approximate::OVERFLOW }
        });
        sum.approximate |= approximate | mixed(&sum.direction, packet);
        if sum.interface != packet.interface {
            sum.approximate |= Approximate::MIXED_INTERFACE;
        }
        enter(&mut sum.direction, packet);
        opened
    }

    /// The next record that began `age_ns` ago or more.
    pub fn due(&mut self, age_ns: u64, clock_ns: u64) -> Option<FlowRecord> {
        let &(began_ns, _) = self.order.front()?;
        if clock_ns - began_ns < age_ns { None } else { self.take() }
    }

    /// The oldest record.
    pub fn take(&mut self) -> Option<FlowRecord> {
        let (_, name) = self.order.pop_front()?;
        let sum = self.sums.remove(&name).expect("every name in the order has a sum");
        Some(FlowRecord {
            source: name.source,
            destination: name.destination,
            source_port: name.source_port,
            destination_port: name.destination_port,
            protocol: name.protocol,
            network: name.network,
            end_reason: EndReason::LackOfResources,
            approximate: Approximate(sum.approximate),
            interface: sum.interface,
            forward: sum.direction,
            reverse: Direction::default(),
            tcp: None,
            queue_lost: 0,
            sampling: None,
        })
    }
}

/// Prefixes of both addresses; the lower port stays where it is, the other becomes 0 (a tie: the source's stays).
fn name(packet: &Packet) -> Name {
    let (source_port, destination_port) = if packet.source_port <= packet.destination_port {
        (packet.source_port, 0)
    } else {
        (0, packet.destination_port)
    };
    Name {
        source: prefix(packet.network, packet.source),
        destination: prefix(packet.network, packet.destination),
        source_port,
        destination_port,
        protocol: packet.protocol,
        network: packet.network,
    }
}

/// The /24 of an IPv4 address, the /48 of an IPv6 address, the first three octets of a MAC address.
fn prefix(network: Network, mut address: [u8; 16]) -> [u8; 16] {
    let kept = match network {
        Network::Ipv4 => 15,
        Network::Ipv6 => 6,
        Network::Layer2 => 13,
    };
    address[kept..].fill(0);
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(host: u8, port: u16) -> Packet {
        Packet {
            source: ipv4_mapped([10, 0, 0, host]),
            destination: ipv4_mapped([192, 0, 2, 9]),
            source_port: 40_000 + port,
            destination_port: port,
            protocol: 17,
            ip_bytes: 28,
            frame_bytes: 60,
            ..Packet::default()
        }
    }

    #[test]
    fn hosts_of_one_prefix_and_port_share_a_record() {
        let mut overflow = Overflow::new(ahash::RandomState::with_seeds(1, 2, 3, 4)).unwrap();
        assert!(overflow.add(&packet(1, 53), 0, 0));
        assert!(!overflow.add(&packet(2, 53), 0, 0));
        assert!(overflow.add(&packet(2, 123), 0, 5));
        assert!(overflow.due(10, 9).is_none());
        let flow = overflow.due(10, 10).unwrap();
        assert_eq!((flow.forward.packets, flow.forward.bytes, flow.destination_port), (2, 56, 53));
        assert_eq!((flow.source, flow.source_port), (ipv4_mapped([10, 0, 0, 0]), 0));
        assert_eq!(flow.approximate.0, Approximate::OVERFLOW);
        assert_eq!(overflow.take().unwrap().destination_port, 123);
        assert!(overflow.take().is_none());
    }

    #[test]
    fn beyond_the_bound_one_record_per_protocol_takes_the_rest() {
        let mut overflow = Overflow::new(ahash::RandomState::with_seeds(1, 2, 3, 4)).unwrap();
        for number in 0..RECORDS as u32 + 1000 {
            let [_, a, b, c] = number.to_be_bytes();
            let source = ipv4_mapped([a, b, c, 1]);
            overflow.add(&Packet { source, ..packet(1, 53) }, 0, 0);
        }
        let flows: Vec<FlowRecord> = std::iter::from_fn(|| overflow.take()).collect();
        assert_eq!(flows.len(), RECORDS + 1);
        assert_eq!(flows.iter().map(|flow| flow.forward.packets).sum::<u64>(), RECORDS as u64 + 1000);
        assert_eq!(flows.last().unwrap().forward.packets, 1000);
        assert_eq!(flows.last().unwrap().source, ipv4_mapped([0; 4]));
    }

    #[test]
    fn other_outer_addresses_are_another_tunnel() {
        let mut overflow = Overflow::new(ahash::RandomState::with_seeds(1, 2, 3, 4)).unwrap();
        for outer in [1, 2] {
            overflow.add(
                &Packet { tunnel_type: weir_packet::TunnelType::Gre, outer_source: [outer; 16], ..packet(1, 53) },
                0,
                0,
            );
        }
        assert_eq!(overflow.take().unwrap().approximate.0, Approximate::OVERFLOW | Approximate::MIXED_TUNNEL);
    }
}
