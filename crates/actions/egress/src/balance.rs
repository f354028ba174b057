//! Which output of several gets a packet.
//!
//! The hash is the same for both directions of a flow and in all pipelines of a run. It is keyed with
//! a secret of the run: who does not know it cannot choose addresses that all meet at one consumer.
//! So another run spreads the same traffic otherwise.

use crate::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::str::FromStr;
use weir_capture::Frame;
use weir_packet::{Flags, Network, Packet};
use weir_text::most_similar;

/// Which outputs get a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One, by the pair of IP addresses, so that all flows between two hosts, and all fragments, reach
    /// the same one. Packets without IP: by the pair of MAC addresses.
    #[default]
    AddressPair,
    /// One, by the pair of addresses and ports, and the protocol. Packets without known ports, as
    /// fragments whose first one was not seen: by the pair of addresses.
    FiveTuple,
    /// All of them.
    Mirror,
}

impl Balance {
    const ALL: [(&str, Self); 3] =
        [("address-pair", Self::AddressPair), ("five-tuple", Self::FiveTuple), ("mirror", Self::Mirror)];
}

impl FromStr for Balance {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known
            .map(|&(_, balance)| balance)
            .ok_or_else(|| Error::Balance(text.into(), most_similar(text, Self::ALL.map(|(name, _)| name))))
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, balance)| balance == self).map_or("", |(name, _)| name))
    }
}

/// Selects one of several outputs.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    balance: Balance,
    outputs: usize,
    hasher: ahash::RandomState,
}

impl Selector {
    pub fn new(balance: Balance, outputs: usize, secret: u64) -> Self {
        let hasher =
            ahash::RandomState::with_seeds(secret, !secret, secret.rotate_left(32), 0x9e37_79b9_7f4a_7c15 ^ secret);
        Self { balance, outputs, hasher }
    }

    /// The number of the output for a frame; `packet` has its headers, if they could be decoded.
    pub fn select(&self, frame: &Frame<'_>, packet: Option<&Packet>) -> usize {
        let hash = match packet {
            Some(packet) => self.hash_packet(packet),
            None => self.hash_mac_addresses(frame),
        };
        // The upper half of the product is uniform below `outputs`.
        ((u128::from(hash) * self.outputs as u128) >> 64) as usize
    }

    fn hash_packet(&self, packet: &Packet) -> u64 {
        let has_ports = packet.flags.has(Flags::PORTS) && packet.network != Network::Layer2;
        let ports = if self.balance == Balance::FiveTuple && has_ports {
            Some([packet.source_port, packet.destination_port, packet.protocol.into()])
        } else {
            None
        };
        self.hash_pair(packet.source, packet.destination, ports)
    }

    /// As that of a decoded packet without IP, which has these addresses.
    fn hash_mac_addresses(&self, frame: &Frame<'_>) -> u64 {
        const ETHERNET: u16 = 1;
        let Some(addresses) = frame.bytes.first_chunk::<12>().filter(|_| frame.link_type == ETHERNET) else { return 0 };
        let address = |octets: &[u8]| {
            let mut address = [0; 16];
            address[10..].copy_from_slice(octets);
            address
        };
        self.hash_pair(address(&addresses[6..]), address(&addresses[..6]), None)
    }

    /// Hashes the endpoints in an order that both directions share.
    fn hash_pair(&self, source: [u8; 16], destination: [u8; 16], ports: Option<[u16; 3]>) -> u64 {
        let [source_port, destination_port, protocol] = ports.unwrap_or_default();
        let mut endpoints =
            [(u128::from_be_bytes(source), source_port), (u128::from_be_bytes(destination), destination_port)];
        if endpoints[0] > endpoints[1] {
            endpoints.swap(0, 1);
        }
        let mut hasher = self.hasher.build_hasher();
        endpoints.iter().for_each(|(address, _)| hasher.write_u128(*address));
        if ports.is_some() {
            let [one, other] = endpoints.map(|(_, port)| u64::from(port));
            hasher.write_u64(one << 32 | other << 16 | u64::from(protocol));
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::ipv4_mapped;

    const FRAME: Frame<'static> =
        Frame { bytes: &[], time_ns: 0, wire_bytes: 0, link_type: 1, time_assumed: false, interface: 1 };

    fn packet(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Packet {
        Packet {
            source: ipv4_mapped(source),
            destination: ipv4_mapped(destination),
            source_port: ports[0],
            destination_port: ports[1],
            protocol: 6,
            flags: Flags(Flags::PORTS),
            ..Packet::default()
        }
    }

    #[test]
    fn both_directions_and_fragments_of_an_address_pair_have_one_output() {
        let selector = Selector::new(Balance::AddressPair, 7, 5);
        for host in 0..=255 {
            let forward = packet([10, 0, 0, host], [192, 0, 2, 1], [1000, 443]);
            let reverse = packet([192, 0, 2, 1], [10, 0, 0, host], [443, 1000]);
            let fragment =
                Packet { flags: Flags(Flags::FRAGMENT_LATER), source_port: 0, destination_port: 0, ..forward };
            let output = selector.select(&FRAME, Some(&forward));
            assert_eq!([reverse, fragment].map(|packet| selector.select(&FRAME, Some(&packet))), [output; 2]);
        }
    }

    #[test]
    fn five_tuple_is_symmetric_and_spreads_the_flows_of_two_hosts() {
        let selector = Selector::new(Balance::FiveTuple, 4, 5);
        let mut packets = [0; 4];
        for port in 1000..3000 {
            let forward = packet([10, 0, 0, 1], [192, 0, 2, 1], [port, 443]);
            let reverse = packet([192, 0, 2, 1], [10, 0, 0, 1], [443, port]);
            let output = selector.select(&FRAME, Some(&forward));
            assert_eq!(selector.select(&FRAME, Some(&reverse)), output);
            packets[output] += 1;
        }
        assert!(packets.iter().all(|&packets| (400..600).contains(&packets)), "{packets:?}");
        // To itself: the ports decide the order.
        let [one, other] = [[5, 6], [6, 5]].map(|ports| packet([10, 0, 0, 1], [10, 0, 0, 1], ports));
        assert_eq!(selector.select(&FRAME, Some(&one)), selector.select(&FRAME, Some(&other)));
        // Without ports, by the addresses.
        let fragment =
            |source, destination| Packet { flags: Flags(Flags::FRAGMENT_LATER), ..packet(source, destination, [0; 2]) };
        let [one, other] = [fragment([1; 4], [2; 4]), fragment([2; 4], [1; 4])];
        assert_eq!(selector.select(&FRAME, Some(&one)), selector.select(&FRAME, Some(&other)));
    }

    #[test]
    fn address_pairs_spread_evenly_with_any_secret() {
        for secret in 0..20 {
            let selector = Selector::new(Balance::AddressPair, 5, secret);
            let mut packets = [0; 5];
            for number in 0..10_000_u16 {
                let [a, b] = number.to_be_bytes();
                packets[selector.select(&FRAME, Some(&packet([10, 0, a, b], [192, 0, 2, 1], [1, 2])))] += 1;
            }
            assert!(packets.iter().all(|&packets| (1800..2200).contains(&packets)), "{packets:?}");
        }
    }

    #[test]
    fn frames_without_ip_go_by_mac_addresses_decoded_or_not() {
        for balance in [Balance::AddressPair, Balance::FiveTuple] {
            let selector = Selector::new(balance, 16, 9);
            for host in 0..=255 {
                let bytes = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, host, 8, 6, 0];
                let back = [2, 0, 0, 0, 0, host, 2, 0, 0, 0, 0, 1, 8, 6, 0];
                let frame = Frame { bytes: &bytes, ..FRAME };
                let output = selector.select(&frame, None);
                assert_eq!(selector.select(&Frame { bytes: &back, ..FRAME }, None), output);
                let mut decoded = Packet::default();
                let options = weir_packet::DecodeOptions::default();
                if weir_packet::decode(1, &bytes, 60, options, &mut decoded).is_ok() {
                    assert_eq!(selector.select(&frame, Some(&decoded)), output);
                }
            }
            for bytes in [&[1, 2, 3][..], &[]] {
                assert!(selector.select(&Frame { bytes, ..FRAME }, None) < 16);
            }
            assert!(selector.select(&Frame { link_type: 101, ..FRAME }, None) < 16);
        }
    }

    #[test]
    fn words_are_parsed_with_a_near_match() {
        for (name, balance) in Balance::ALL {
            assert_eq!((name.parse::<Balance>().unwrap(), balance.to_string()), (balance, name.into()));
        }
        let error = "adress-pair".parse::<Balance>().unwrap_err().to_string();
        assert!(error.contains("did you mean address-pair?"), "{error}");
    }
}
