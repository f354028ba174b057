//! Community ID version 1 with seed 0 (github.com/corelight/community-id-spec): a flow identifier
//! that is the same for both directions and in all tools that support it. It is computed at export
//! and not stored in records.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use std::net::IpAddr;
use weir_flow::{Approximate, FlowRecord};
use weir_packet::{Network, ip_address};

const SEED: u16 = 0;
/// `1:` and the SHA-1 digest in base 64, octets.
pub const LENGTH: usize = "1:".len() + 28;

/// The Community ID of a flow as text; `None` for layer 2, and for overflow records, whose addresses are
/// prefixes.
pub fn community_id(flow: &FlowRecord) -> Option<[u8; LENGTH]> {
    if flow.network == Network::Layer2 || flow.approximate.has(Approximate::OVERFLOW) {
        return None;
    }
    let has_ports = community_id_has_ports(flow);
    let (source_port, destination_port) = if has_ports { (flow.source_port, flow.destination_port) } else { (0, 0) };
    // ICMP messages without a counterpart have 0x100 | code in place of the port (see
    // `weir_packet::Packet`); their endpoints keep the order of the message.
    let one_way = flow.is_icmp() && destination_port > 0xff;
    let mut ends = [(flow.source, source_port), (flow.destination, destination_port & if one_way { 0xff } else { !0 })];
    if !one_way {
        ends.sort_unstable();
    }
    // Seed, addresses, protocol, padding, ports: at most 2 + 32 + 2 + 4 octets.
    let mut text = [0; 40];
    let mut length = 0;
    let mut append = |octets: &[u8]| {
        text[length..length + octets.len()].copy_from_slice(octets);
        length += octets.len();
    };
    append(&SEED.to_be_bytes());
    for (end, _) in ends {
        match ip_address(flow.network, end)? {
            IpAddr::V4(address) => append(&address.octets()),
            IpAddr::V6(address) => append(&address.octets()),
        }
    }
    append(&[flow.protocol, 0]);
    if has_ports {
        ends.iter().for_each(|(_, port)| append(&port.to_be_bytes()));
    }
    let mut id = [0; LENGTH];
    id[..2].copy_from_slice(b"1:");
    let written = STANDARD.encode_slice(Sha1::digest(&text[..length]), &mut id[2..]);
    debug_assert_eq!(written, Ok(LENGTH - 2), "20 octets are 28 characters");
    Some(id)
}

/// Whether the Community ID of a flow has its ports, or the types of ICMP: those of TCP, UDP and SCTP,
/// not those of UDP-Lite and DCCP, of which all flows between two hosts have the same ID.
pub fn community_id_has_ports(flow: &FlowRecord) -> bool {
    flow.is_icmp() || matches!(flow.protocol, 6 | 17 | 132)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::Approximate;
    use weir_packet::ipv4_mapped;

    /// Protocol, source, destination, ports (ICMP: type and counterpart, or type and 0x100 | code)
    /// and Community ID, from the baseline of the specification, which has most of them in both
    /// directions.
    #[rustfmt::skip]
    const VECTORS: &[(u8, &str, &str, u16, u16, &str)] = &[
        (1, "192.168.0.89", "192.168.0.1", 8, 0, "1:X0snYXpgwiv9TZtqg64sgzUn6Dk="),
        (1, "10.0.0.1", "10.0.0.2", 11, 0x100, "1:YHxtAirCG//0OzkcVAukqKQN9xM="),
        (58, "fe80::200:86ff:fe05:80da", "fe80::260:97ff:fe07:69ea", 135, 136, "1:dGHyGvjMfljg6Bppwm3bg0LO8TY="),
        (58, "fe80::260:97ff:fe07:69ea", "fe80::200:86ff:fe05:80da", 135, 136, "1:zavyT/cezQr1fmImYCwYnMXbgck="),
        (58, "3ffe:501:1800:2345::2", "3ffe:507:0:1:200:86ff:fe05:80da", 3, 0x100, "1:2ObVBgIn28oZvibYZhZMBgh7WdQ="),
        (58, "3ffe:501:410:0:2c0:dfff:fe47:33e", "3ffe:507:0:1:200:86ff:fe05:80da", 1, 0x104,
            "1:hLZd0XGWojozrvxqE0dWB1iM6R0="),
        (58, "3ffe:507:0:1:200:86ff:fe05:80da", "3ffe:501:0:1001::2", 128, 129, "1:+TW+HtLHvV1xnGhV1lv7XoJrqQg="),
        (58, "fe80::200:86ff:fe05:80da", "ff02::2", 133, 134, "1:hO+sN4H+MG5MY/8hIrXPqc4ZQz0="),
        (58, "fe80::260:97ff:fe07:69ea", "ff02::1", 134, 133, "1:pkvHqCL88/tg1k4cPigmZXUtL00="),
        (6, "2001:470:e5bf:dead:4957:2174:e82c:4887", "2607:f8b0:400c:c03::1a", 63943, 25,
            "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4="),
        (6, "128.232.110.120", "66.35.250.204", 34855, 80, "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
        (17, "192.168.1.52", "8.8.8.8", 54585, 53, "1:d/FP5EW3wiY1vCndhwleRRKHowQ="),
        (132, "192.168.170.8", "192.168.170.56", 7, 7, "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs="),
        (46, "10.1.12.1", "10.1.12.2", 0, 0, "1:KHlLkgoJW7ifUTyTSgyVfkFHzKw="),
    ];

    fn flow(protocol: u8, source: &str, destination: &str, source_port: u16, destination_port: u16) -> FlowRecord {
        let octets = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(address) => ipv4_mapped(address.octets()),
            IpAddr::V6(address) => address.octets(),
        };
        let network = if source.contains(':') { Network::Ipv6 } else { Network::Ipv4 };
        let (source, destination) = (octets(source), octets(destination));
        FlowRecord { source, destination, source_port, destination_port, protocol, network, ..FlowRecord::default() }
    }

    #[test]
    fn the_test_vectors_of_the_specification_hold_in_both_directions() {
        for &(protocol, source, destination, source_port, destination_port, id) in VECTORS {
            let forward = flow(protocol, source, destination, source_port, destination_port);
            assert_eq!(community_id(&forward).unwrap(), id.as_bytes(), "{forward:?}");
            let reverse = flow(protocol, destination, source, destination_port, source_port);
            assert!(destination_port > 0xff || community_id(&reverse) == community_id(&forward), "{reverse:?}");
        }
    }

    #[test]
    fn overflow_records_and_layer_2_have_no_community_id() {
        let mut flow = flow(6, "10.0.0.0", "10.0.1.0", 0, 80);
        flow.approximate = Approximate(Approximate::OVERFLOW);
        assert_eq!(community_id(&flow), None);
        assert_eq!(community_id(&FlowRecord { network: Network::Layer2, ..FlowRecord::default() }), None);
    }
}
