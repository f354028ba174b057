//! Overflow records: packets of flows without a slot, added up by prefix and port.

use crate::bounded::{allocated_entries, map_with_capacity, vec_with_capacity};
use crate::record::{add, mixed};
use crate::{Approximate, Direction, EndReason, FlowRecord};
use std::collections::{HashMap, TryReserveError, VecDeque};
use weir_packet::{Network, Packet, ipv4_mapped};

/// Records by prefix and port. Further packets are added to one record per network and protocol.
const RECORDS: usize = 1 << 14;
/// Records in all: with those of 3 networks and 256 protocols.
const CAPACITY: usize = RECORDS + 3 * 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OverflowKey {
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
pub(crate) struct OverflowRecords {
    sums: HashMap<OverflowKey, Sum, ahash::RandomState>,
    /// Clock time at which each began, the oldest first.
    order: VecDeque<(u64, OverflowKey)>,
}

impl OverflowRecords {
    pub fn new(hasher: ahash::RandomState) -> Result<Self, TryReserveError> {
        Ok(Self { sums: map_with_capacity(CAPACITY, hasher)?, order: vec_with_capacity(CAPACITY)?.into() })
    }

    pub fn memory_bytes_for() -> usize {
        allocated_entries(CAPACITY) * size_of::<(OverflowKey, Sum)>() + CAPACITY * size_of::<(u64, OverflowKey)>()
    }

    pub fn memory_bytes(&self) -> usize {
        self.sums.capacity() * size_of::<(OverflowKey, Sum)>() + self.order.capacity() * size_of::<(u64, OverflowKey)>()
    }

    /// Adds a packet. Returns whether it opened a record.
    pub fn add(&mut self, packet: &Packet, approximate: u16, now_ns: u64) -> bool {
        let mut key = overflow_key(packet);
        if self.sums.len() >= RECORDS && !self.sums.contains_key(&key) {
            let any = if key.network == Network::Ipv4 { ipv4_mapped([0; 4]) } else { [0; 16] };
            key = OverflowKey { source: any, destination: any, source_port: 0, destination_port: 0, ..key };
        }
        let mut opened = false;
        let sum = self.sums.entry(key).or_insert_with(|| {
            opened = true;
            self.order.push_back((now_ns, key));
            Sum { direction: Direction::default(), interface: packet.interface, approximate: Approximate::OVERFLOW }
        });
        sum.approximate |= approximate | mixed(&sum.direction, packet);
        if sum.interface != packet.interface {
            sum.approximate |= Approximate::MIXED_INTERFACE;
        }
        add(&mut sum.direction, packet);
        opened
    }

    /// Takes the oldest record if it began `age_ns` ago or earlier.
    pub fn take_due(&mut self, age_ns: u64, now_ns: u64) -> Option<FlowRecord> {
        let &(began_ns, _) = self.order.front()?;
        if now_ns - began_ns < age_ns { None } else { self.take_oldest() }
    }

    pub fn take_oldest(&mut self) -> Option<FlowRecord> {
        let (_, key) = self.order.pop_front()?;
        let sum = self.sums.remove(&key).expect("every key in the order has a sum");
        Some(FlowRecord {
            source: key.source,
            destination: key.destination,
            source_port: key.source_port,
            destination_port: key.destination_port,
            protocol: key.protocol,
            network: key.network,
            end_reason: EndReason::LackOfResources,
            approximate: Approximate(sum.approximate),
            interface: sum.interface,
            forward: sum.direction,
            ..FlowRecord::NONE
        })
    }
}

/// Prefixes of both addresses and the lower port (of equal ones the source's); the other port is 0.
fn overflow_key(packet: &Packet) -> OverflowKey {
    let (source_port, destination_port) = if packet.source_port <= packet.destination_port {
        (packet.source_port, 0)
    } else {
        (0, packet.destination_port)
    };
    OverflowKey {
        source: overflow_prefix(packet.network, packet.source),
        destination: overflow_prefix(packet.network, packet.destination),
        source_port,
        destination_port,
        protocol: packet.protocol,
        network: packet.network,
    }
}

/// The address of an overflow record: the /24 of an IPv4 address, the /48 of an IPv6 address, the first three octets
/// of a MAC address.
pub fn overflow_prefix(network: Network, mut address: [u8; 16]) -> [u8; 16] {
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
    use crate::tests::udp;

    fn packet(host: u8, port: u16) -> Packet {
        let packet = udp([10, 0, 0, host], [192, 0, 2, 9], [40_000 + port, port]);
        Packet { ip_bytes: 28, frame_bytes: 60, ..packet }
    }

    #[test]
    fn hosts_of_one_prefix_and_port_share_a_record() {
        let mut overflow = OverflowRecords::new(ahash::RandomState::with_seeds(1, 2, 3, 4)).unwrap();
        assert!(overflow.add(&packet(1, 53), 0, 0));
        assert!(!overflow.add(&packet(2, 53), 0, 0));
        assert!(overflow.add(&packet(2, 123), 0, 5));
        assert!(overflow.take_due(10, 9).is_none());
        let flow = overflow.take_due(10, 10).unwrap();
        assert_eq!((flow.forward.packets, flow.forward.bytes, flow.destination_port), (2, 56, 53));
        assert_eq!((flow.source, flow.source_port), (ipv4_mapped([10, 0, 0, 0]), 0));
        assert_eq!(flow.approximate.0, Approximate::OVERFLOW);
        assert_eq!(overflow.take_oldest().unwrap().destination_port, 123);
        assert!(overflow.take_oldest().is_none());
    }

    #[test]
    fn packets_beyond_the_capacity_share_a_record_per_protocol() {
        let mut overflow = OverflowRecords::new(ahash::RandomState::with_seeds(1, 2, 3, 4)).unwrap();
        for number in 0..RECORDS as u32 + 1000 {
            let [_, a, b, c] = number.to_be_bytes();
            let source = ipv4_mapped([a, b, c, 1]);
            overflow.add(&Packet { source, ..packet(1, 53) }, 0, 0);
        }
        let flows: Vec<FlowRecord> = std::iter::from_fn(|| overflow.take_oldest()).collect();
        assert_eq!(flows.len(), RECORDS + 1);
        assert_eq!(flows.iter().map(|flow| flow.forward.packets).sum::<u64>(), RECORDS as u64 + 1000);
        assert_eq!(flows.last().unwrap().forward.packets, 1000);
        assert_eq!(flows.last().unwrap().source, ipv4_mapped([0; 4]));
    }

    #[test]
    fn different_outer_addresses_are_mixed_tunnels() {
        let mut overflow = OverflowRecords::new(ahash::RandomState::with_seeds(1, 2, 3, 4)).unwrap();
        for outer in [1, 2] {
            overflow.add(
                &Packet { tunnel_type: weir_packet::TunnelType::Gre, outer_source: [outer; 16], ..packet(1, 53) },
                0,
                0,
            );
        }
        assert_eq!(overflow.take_oldest().unwrap().approximate.0, Approximate::OVERFLOW | Approximate::MIXED_TUNNEL);
    }
}
