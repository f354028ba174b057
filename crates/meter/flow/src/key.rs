//! The flow key: both endpoints in a fixed order, so that both directions have one key.

use crate::config::KeyOptions;
use std::mem::offset_of;
use weir_packet::{Flags, NO_VLAN, Packet};

/// A flow key in words as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The two addresses, the low endpoint's first. Which endpoint is low is arbitrary but fixed.
    pub addresses: [u64; 4],
    /// Ports, the low endpoint's first (from bit 32), network (from bit 24), protocol (from bit 0).
    pub ports_and_protocol: u64,
    /// Further fields; [`KeyExtension::NONE`] if the options name none.
    pub extension: KeyExtension,
}

/// VLAN, interface and tunnel, as far as the key options name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct KeyExtension([u64; 2]);

/// An endpoint of a flow: 0 for the low one of the key, 1 for the high one. It is also the index of
/// the direction in which this endpoint sends.
pub(crate) type Endpoint = usize;

impl Key {
    /// The key of a packet that `endpoint` sent. No branch: endpoints alternate unpredictably.
    #[inline(always)]
    pub fn new(packet: &Packet, endpoint: Endpoint, ports_and_protocol: u64, options: KeyOptions) -> Self {
        let words = packet.words();
        let low = endpoint << 1 & 2;
        let high = low ^ 2;
        let addresses = [words[low], words[low + 1], words[high], words[high + 1]];
        Self { addresses, ports_and_protocol, extension: KeyExtension::of(packet, options) }
    }
}

/// [`Key::ports_and_protocol`] of a packet that `endpoint` sent.
#[inline(always)]
pub(crate) fn ports_and_protocol(packet: &Packet, endpoint: Endpoint) -> u64 {
    let ports = (packet.words()[PORTS] as u32).rotate_right(16 * endpoint as u32);
    let protocol = packet.words()[PROTOCOL] & 0xff00_00ff;
    u64::from(ports) << 32 | protocol
}

/// Words of a packet that begin with both ports, and with protocol, TTL, ToS and network.
const PORTS: usize = offset_of!(Packet, source_port) / 8;
const PROTOCOL: usize = offset_of!(Packet, protocol) / 8;
const _: () = assert!(
    cfg!(target_endian = "little")
        && offset_of!(Packet, source_port) == 8 * PORTS
        && offset_of!(Packet, destination_port) == 8 * PORTS + 2
        && offset_of!(Packet, protocol) == 8 * PROTOCOL
        && offset_of!(Packet, network) == 8 * PROTOCOL + 3
);

impl KeyExtension {
    pub const NONE: Self = Self([0; 2]);

    #[inline(always)]
    pub fn of(packet: &Packet, options: KeyOptions) -> Self {
        if options.has_extension() { Self::read(packet, options) } else { Self::NONE }
    }

    #[inline(never)]
    fn read(packet: &Packet, options: KeyOptions) -> Self {
        let mut words = [0, 0];
        if options.vlan {
            words[0] |= u64::from(packet.vlan) | u64::from(packet.inner_vlan) << 16;
        } else {
            words[0] |= u64::from(NO_VLAN);
        }
        if options.interface {
            words[0] |= u64::from(packet.interface) << 32;
        }
        if options.tunnel {
            let id = tunnel_id(packet);
            words[1] |= u64::from(id.unwrap_or(0));
            words[1] |= (packet.tunnel_type as u64) << 32 | u64::from(id.is_some()) << 40;
        }
        Self(words)
    }

    /// Its part of the key's hash under a secret; `fold` multiplies.
    #[inline(always)]
    pub fn hash(self, secret: [u64; 2], fold: impl Fn(u64, u64) -> u64) -> u64 {
        if self == Self::NONE { 0 } else { fold(self.0[0] ^ secret[0], self.0[1] ^ secret[1]) }
    }
}

/// The tunnel's identifier, if the packet has one.
pub(crate) fn tunnel_id(packet: &Packet) -> Option<u32> {
    packet.flags.has(Flags::TUNNEL_ID).then_some(packet.tunnel_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{HashedKey, KeyHasher};
    use crate::tests::udp;
    use weir_packet::{Network, TunnelType};

    fn key(packet: &Packet, options: KeyOptions) -> (Key, Endpoint) {
        let HashedKey { endpoint, ports_and_protocol, .. } = KeyHasher::new(Some(1)).hash_packet(packet, options);
        (Key::new(packet, endpoint, ports_and_protocol, options), endpoint)
    }

    fn packet(source: u8, source_port: u16, destination: u8, destination_port: u16) -> Packet {
        udp([10, 0, 0, source], [10, 0, 0, destination], [source_port, destination_port])
    }

    #[test]
    fn directions_have_one_key_and_opposite_endpoints() {
        for options in
            [KeyOptions::default(), KeyOptions { vlan: true, interface: true, tunnel: true, unidirectional: false }]
        {
            for ([a, port], [b, other_port]) in [([1, 40], [2, 80]), ([1, 40], [1, 80]), ([7, 1], [200, 1])] {
                let (there, endpoint) = key(&packet(a, port.into(), b, other_port.into()), options);
                let (back, other) = key(&packet(b, other_port.into(), a, port.into()), options);
                assert_eq!(there, back);
                assert_eq!(endpoint + other, 1);
            }
        }
    }

    #[test]
    fn unidirectional_keys_differ_by_direction() {
        let options = KeyOptions { unidirectional: true, ..KeyOptions::default() };
        assert_ne!(key(&packet(1, 4000, 2, 80), options).0, key(&packet(2, 80, 1, 4000), options).0);
    }

    #[test]
    fn key_has_the_fields_of_its_options_only() {
        let plain = packet(1, 1, 2, 2);
        let changes: [(&str, Packet); 6] = [
            ("always", Packet { network: Network::Ipv6, ..plain }),
            ("vlan", Packet { vlan: 7, ..plain }),
            ("vlan", Packet { inner_vlan: 8, ..plain }),
            ("interface", Packet { interface: 3, ..plain }),
            ("tunnel", Packet { tunnel_type: TunnelType::Gre, ..plain }),
            ("tunnel", Packet { flags: Flags(Flags::TUNNEL_ID), ..plain }),
        ];
        for (option, changed) in changes {
            for chosen in ["nothing", "vlan", "interface", "tunnel"] {
                let options = KeyOptions {
                    vlan: chosen == "vlan",
                    interface: chosen == "interface",
                    tunnel: chosen == "tunnel",
                    unidirectional: false,
                };
                let differ = key(&plain, options).0 != key(&changed, options).0;
                assert_eq!(differ, option == "always" || option == chosen, "{option} changed, option {chosen}");
            }
        }
    }

    #[test]
    fn an_absent_tunnel_identifier_is_not_identifier_zero() {
        let options = KeyOptions { tunnel: true, ..KeyOptions::default() };
        let without = Packet { tunnel_type: TunnelType::Gre, ..packet(1, 1, 2, 2) };
        let with = Packet { flags: Flags(Flags::TUNNEL_ID), ..without };
        assert_ne!(key(&without, options).0, key(&with, options).0);
    }
}
