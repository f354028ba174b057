//! The meter: sequences of packets between few endpoints, with times that jump both ways.

use weir_flow::{CacheFullPolicy, Config, KeyOptions};
use weir_packet::{Flags, NO_LABEL, NO_VLAN, Network, Packet, TunnelType, ipv4_mapped};
use weir_testkit::compare;
use weir_testkit::input::{Input, pick};

const SECOND: u64 = 1_000_000_000;
const BEGIN_NS: u64 = 1_700_000_000 * SECOND;
/// More packets take the reference meter long.
const MAX_PACKETS: usize = 400;
/// After 575 years of forward steps the clock of a meter stops (`docs/metering.md` section 5).
const MAX_FORWARD_NS: u64 = 570 * 31_557_600 * SECOND;
const PORTS: [u16; 4] = [0, 53, 80, 4000];

/// Meters packets. Invariants: records and counters equal those of the reference meter, and every
/// packet and octet is in one record or in the count of those dropped.
///
/// # Panics
/// An invariant does not hold.
pub fn meter(input: &[u8]) {
    let mut input = Input(input);
    let config = config(&mut input);
    let burst = usize::from(input.octet() % 64) + 1;
    let mut packets = Vec::new();
    let (mut time_ns, mut forward_ns) = (BEGIN_NS, 0_u64);
    while !input.is_empty() && packets.len() < MAX_PACKETS {
        let next_ns = next_time(time_ns, &config, &mut input);
        forward_ns = forward_ns.saturating_add(next_ns.saturating_sub(time_ns));
        if forward_ns > MAX_FORWARD_NS {
            break;
        }
        time_ns = next_ns;
        let mut packet = packet(time_ns, &mut input);
        // Mostly the same address of a sender.
        if config.mac_addresses && packet.network != Network::Layer2 {
            let source = [2, 0, 0, 0, packet.source[15], u8::from(packet.ttl == 62)];
            packet.set_mac_addresses(source, [2, 0, 0, 0, packet.destination[15], 0]);
        }
        packets.push(packet);
    }
    compare::meters(&packets, burst, config).unwrap_or_else(|difference| panic!("{difference}"));
}

fn config(input: &mut Input<'_>) -> Config {
    let [flows, timeouts, key, policy, prefetch] = input.octets();
    let [vlan, interface, tunnel, unidirectional] = [1, 2, 4, 8].map(|bit| key & bit != 0);
    Config {
        flows: pick(&[1, 2, 3, 5, 16, 17, 64, 4096], flows),
        idle_timeout_ns: pick(&[1, 3, 10, 60, 120], timeouts & 15) * SECOND,
        active_timeout_ns: pick(&[1, 3, 10, 60, 300], timeouts >> 4) * SECOND,
        key: KeyOptions { vlan, interface, tunnel, unidirectional },
        mac_addresses: key & 16 != 0,
        cache_full_policy: pick(
            &[CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop],
            policy,
        ),
        secret: Some(7),
        prefetch_packets: usize::from(prefetch % 64) + 1,
        inspection: None,
        second_opinion: false,
        marks: false,
    }
}

/// A time after the last one, or before it.
fn next_time(last_ns: u64, config: &Config, input: &mut Input<'_>) -> u64 {
    let [kind, value] = input.octets();
    let steps = u64::from(value);
    let edge = |timeout_ns: u64| timeout_ns - 1 + steps % 3;
    match kind % 16 {
        0..=5 => last_ns,
        6 => last_ns.saturating_add(steps * 1000),
        7 => last_ns.saturating_add(steps * 10_000_000),
        8 => last_ns.saturating_add(steps * SECOND),
        9 => last_ns.saturating_add(edge(config.idle_timeout_ns)),
        10 => last_ns.saturating_add(edge(config.active_timeout_ns)),
        11 => last_ns.saturating_sub(steps * 10_000_000),
        12 => last_ns.saturating_sub(edge(SECOND)),
        13 => last_ns.saturating_sub(steps * 100 * SECOND),
        14 => last_ns.saturating_add(steps << 52),
        _ => pick(&[0, u64::MAX, BEGIN_NS, 1 << 63], value),
    }
}

fn packet(time_ns: u64, input: &mut Input<'_>) -> Packet {
    let [ends, kind, control, more, fragment, outside] = input.octets();
    let (ip_bytes, tcp) = (input.u16(), input.octets::<4>());
    let network = pick(&[Network::Ipv4, Network::Ipv4, Network::Ipv6, Network::Layer2], ends >> 4);
    let address = |number: u8| match network {
        Network::Ipv4 => ipv4_mapped([10, 0, number >> 1, number]),
        _ => std::array::from_fn(|at| if at == 15 { number } else { 0 }),
    };
    let size = u32::from(ip_bytes);
    let mut packet = Packet {
        time_ns,
        network,
        source: address(ends & 3),
        destination: address(ends >> 2 & 3),
        interface: (outside & 1).into(),
        vlan: if outside & 6 == 6 { (outside >> 3 & 1).into() } else { NO_VLAN },
        mpls_label: if outside & 0x30 == 0x30 { 16 } else { NO_LABEL },
        tos: more & 3,
        ttl: 62 + (more >> 2 & 3),
        ..Packet::default()
    };
    if network == Network::Layer2 {
        let ethertype = pick(&[0x0806, 0x88cc], kind);
        return Packet {
            protocol: 255,
            source_port: ethertype,
            destination_port: ethertype,
            flags: Flags(Flags::PORTS),
            frame_bytes: size,
            ..packet
        };
    }
    if outside & 0xc0 == 0xc0 {
        packet.tunnel_type = pick(&[TunnelType::Gre, TunnelType::Vxlan, TunnelType::Ipip], more >> 4);
        packet.flags.0 |= if packet.tunnel_type == TunnelType::Ipip { 0 } else { Flags::TUNNEL_ID };
        packet.tunnel_id = (more >> 6).into();
        packet.outer_source = ipv4_mapped([192, 0, 2, outside & 1]);
        packet.outer_destination = ipv4_mapped([192, 0, 2, 9]);
    }
    // Jumbograms are rare.
    packet.ip_bytes = if more & 0x3f == 0x3f { size << 16 | 0xffff } else { size.max(20) };
    packet.frame_bytes = packet.ip_bytes.saturating_add(14);
    packet.protocol = pick(&[6, 6, 6, 6, 17, 1, 132, 47], kind & 7);
    packet.payload_bytes = packet.ip_bytes.saturating_sub(40);
    packet.identification = (fragment >> 2 & 3).into();
    match fragment & 3 {
        1 => packet.flags.0 |= Flags::FRAGMENT_FIRST,
        2 => {
            packet.flags.0 |= Flags::FRAGMENT_LATER;
            return packet;
        }
        _ => {}
    }
    (packet.source_port, packet.destination_port) = (pick(&PORTS, kind >> 3 & 3), pick(&PORTS, kind >> 5 & 3));
    match packet.protocol {
        // One TCP header in 16 is cut behind the ports.
        6 if fragment & 0xf0 == 0xf0 => packet.flags.0 |= Flags::PORTS,
        6 => {
            packet.flags.0 |= Flags::PORTS | Flags::TCP;
            packet.control = (control & 0x3f).into();
            packet.window = pick(&[0, 100, 500, u16::MAX], control >> 6);
            packet.sequence = 1000 + u32::from(tcp[0]) * 10 + u32::from(tcp[1] >> 6 == 3) * (1 << 30);
            packet.acknowledgment = 1000 + u32::from(tcp[2]) * 10;
            packet.payload_bytes = (tcp[1] & 0x3f).into();
            packet.icmp_or_checksum = [0, tcp[3]];
        }
        1 => {
            packet.flags.0 |= Flags::PORTS;
            let echo_type = control & 1;
            packet.icmp_or_checksum = [8 * echo_type, 0];
            (packet.source_port, packet.destination_port) = ((8 * echo_type).into(), (8 - 8 * echo_type).into());
        }
        47 => (packet.source_port, packet.destination_port) = (0, 0),
        _ => packet.flags.0 |= Flags::PORTS,
    }
    packet
}
