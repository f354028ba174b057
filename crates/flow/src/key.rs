//! The flow key: endpoints in one order, so that both directions meet.

use crate::KeyOptions;
use weir_packet::{Flags, NO_VLAN, Network, Packet, TunnelType};

/// What makes packets one flow. Fields that are not asked for hold the same value in every key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub low: [u8; 16],
    pub high: [u8; 16],
    pub low_port: u16,
    pub high_port: u16,
    pub vlan: u16,
    pub inner_vlan: u16,
    pub interface: u32,
    pub tunnel_id: u32,
    /// The tunnel's type, and whether it has an identifier.
    pub tunnel: (TunnelType, bool),
    pub protocol: u8,
    pub network: Network,
}

/// Index into a record's directions: 0 from the low endpoint, 1 from the high one.
pub(crate) type Side = usize;

impl Key {
    /// The key of a packet, and the side that sent it.
    pub fn of(packet: &Packet, options: KeyOptions) -> (Self, Side) {
        let source = (packet.source, packet.source_port);
        let destination = (packet.destination, packet.destination_port);
        let side = usize::from(!options.unidirectional && source > destination);
        let [(low, low_port), (high, high_port)] =
            if side == 0 { [source, destination] } else { [destination, source] };
        let mut key = Self {
            low,
            high,
            low_port,
            high_port,
            vlan: NO_VLAN,
            inner_vlan: NO_VLAN,
            interface: 0,
            tunnel_id: 0,
            tunnel: (TunnelType::None, false),
            protocol: packet.protocol,
            network: packet.network,
        };
        if options.vlan {
            (key.vlan, key.inner_vlan) = (packet.vlan, packet.inner_vlan);
        }
        if options.interface {
            key.interface = packet.interface;
        }
        if options.tunnel {
            key.tunnel = (packet.tunnel_type, packet.flags.has(Flags::TUNNEL_ID));
            key.tunnel_id = tunnel_id(packet).unwrap_or(0);
        }
        (key, side)
    }

    /// Whether the two sides can be told apart.
    pub fn has_sides(&self) -> bool {
        (self.low, self.low_port) != (self.high, self.high_port)
    }

    /// Address and port of one side.
    pub fn endpoint(&self, side: Side) -> ([u8; 16], u16) {
        if side == 0 { (self.low, self.low_port) } else { (self.high, self.high_port) }
    }
}

/// The tunnel's identifier, if the packet has one.
pub(crate) fn tunnel_id(packet: &Packet) -> Option<u32> {
    packet.flags.has(Flags::TUNNEL_ID).then_some(packet.tunnel_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::mapped;

    fn packet(source: u8, source_port: u16, destination: u8, destination_port: u16) -> Packet {
        Packet {
            source: mapped([10, 0, 0, source]),
            destination: mapped([10, 0, 0, destination]),
            source_port,
            destination_port,
            protocol: 6,
            ..Packet::default()
        }
    }

    #[test]
    fn both_directions_have_one_key_and_opposite_sides() {
        for options in
            [KeyOptions::default(), KeyOptions { vlan: true, interface: true, tunnel: true, unidirectional: false }]
        {
            let (there, side) = Key::of(&packet(1, 4000, 2, 80), options);
            let (back, other) = Key::of(&packet(2, 80, 1, 4000), options);
            assert_eq!(there, back);
            assert_eq!(side + other, 1);
        }
    }

    #[test]
    fn one_way_keys_differ() {
        let options = KeyOptions { unidirectional: true, ..KeyOptions::default() };
        assert_ne!(Key::of(&packet(1, 4000, 2, 80), options).0, Key::of(&packet(2, 80, 1, 4000), options).0);
    }

    #[test]
    fn the_network_is_part_of_the_key() {
        let ipv4 = packet(1, 1, 2, 2);
        let ipv6 = Packet { network: Network::Ipv6, ..ipv4 };
        assert_ne!(Key::of(&ipv4, KeyOptions::default()).0, Key::of(&ipv6, KeyOptions::default()).0);
    }

    #[test]
    fn an_absent_tunnel_identifier_is_not_identifier_zero() {
        let options = KeyOptions { tunnel: true, ..KeyOptions::default() };
        let without = Packet { tunnel_type: TunnelType::Gre, ..packet(1, 1, 2, 2) };
        let with = Packet { flags: Flags(Flags::TUNNEL_ID), ..without };
        assert_ne!(Key::of(&without, options).0, Key::of(&with, options).0);
    }
}
