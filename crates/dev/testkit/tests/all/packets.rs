//! Compares the meter with the reference meter on generated packets: extreme values in every field,
//! times at both ends of 64 bits, flow caches of 1 to 300 slots.

use weir_flow::{CacheFullPolicy, Config, KeyOptions};
use weir_packet::{Flags, NO_LABEL, NO_VLAN, Network, Packet, TunnelType, ipv4_mapped};
use weir_testkit::compare;
use weir_trafficgen::Random;

const SEEDS: u64 = 1500;
const SECOND: u64 = 1_000_000_000;

/// Returns a number below `bound`; other than [`Random::below`] for any bound.
fn below(random: &mut Random, bound: u64) -> u64 {
    random.next_u64() % bound
}

fn pick<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[below(random, list.len() as u64) as usize]
}

fn packet(random: &mut Random, time_ns: u64, hosts: u64) -> Packet {
    let protocol = pick(random, &[6u8, 6, 6, 17, 0, 47, 1]);
    let v6 = below(random, 8) == 0;
    let mut address = || match below(random, hosts) as u8 {
        host if v6 => std::array::from_fn(|at| if at == 15 { host } else { 0 }),
        host => ipv4_mapped([10, 0, host % 2, host]),
    };
    let (source, destination) = (address(), address());
    let control = if protocol == 6 { pick(random, &[0u16, 16, 16, 16, 24, 2, 18, 17, 17, 4, 1, 3, 6]) } else { 0 };
    let ip_bytes = pick(random, &[0u32, 20, 40, 1500, 65_535, 65_536, 65_537, 40, 100, u32::MAX]);
    let ip_bytes = if below(random, 3) > 0 { 40 } else { ip_bytes };
    let frame_bytes = pick(random, &[0u32, 14, 54, 60, 65_535, 65_536, u32::MAX]);
    let tunnel = below(random, 12) == 0;
    let mut flags = if matches!(protocol, 6 | 17) { Flags::PORTS } else { 0 };
    if protocol != 1 {
        match below(random, 14) {
            0 => flags |= Flags::FRAGMENT_FIRST,
            1 | 2 => flags = Flags::FRAGMENT_LATER,
            _ => {}
        }
    }
    if tunnel && below(random, 2) == 0 {
        flags |= Flags::TUNNEL_ID;
    }
    let later = flags & Flags::FRAGMENT_LATER != 0;
    let icmp = if protocol == 1 && !later { [pick(random, &[0u8, 8, 3]), pick(random, &[0u8, 1])] } else { [0, 0] };
    let (source_port, destination_port) = match protocol {
        _ if later => (0, 0),
        6 | 17 => (pick(random, &[80u16, 443]), pick(random, &[80u16, 443])),
        1 => (u16::from(icmp[0]), 8 - u16::from(icmp[0])),
        _ => (0, 0),
    };
    Packet {
        source,
        destination,
        source_port,
        destination_port,
        protocol,
        network: if v6 { Network::Ipv6 } else { Network::Ipv4 },
        time_ns,
        ip_bytes,
        frame_bytes,
        payload_bytes: pick(random, &[0, 0, 0, 10]),
        control: if later { 0 } else { control },
        ttl: pick(random, &[64u8, 64, 63, 0, 255]),
        tos: pick(random, &[0u8, 0, 8, 255]),
        icmp_or_checksum: icmp,
        vlan: if below(random, 10) == 0 { 7 } else { NO_VLAN },
        mpls_label: if below(random, 14) == 0 { 99 } else { NO_LABEL },
        interface: if below(random, 12) == 0 { 5 } else { 1 },
        tunnel_type: if tunnel { pick(random, &[TunnelType::Gre, TunnelType::Vxlan]) } else { TunnelType::None },
        tunnel_id: if flags & Flags::TUNNEL_ID != 0 { below(random, 2) as u32 } else { 0 },
        outer_source: if tunnel { ipv4_mapped([1, 1, 1, below(random, 2) as u8]) } else { [0; 16] },
        outer_destination: if tunnel { ipv4_mapped([1, 1, 1, 9]) } else { [0; 16] },
        identification: below(random, 3) as u32,
        flags: Flags(flags),
        ..Packet::default()
    }
}

/// Returns whether the meters were compared. After 575 years of steps forward the clock of the reference
/// continues and that of the meter stops, so such sequences are skipped.
fn run(seed: u64, extreme: bool) -> Result<bool, String> {
    let random = &mut Random::new(seed);
    let [vlan, interface, tunnel, unidirectional] = [(); 4].map(|()| below(random, 4) == 0);
    let policies = [CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop];
    let config = Config {
        inspection: None,
        second_opinion: false,
        marks: false,
        flows: pick(random, &[1u32, 2, 3, 5, 15, 16, 17, 40, 300]),
        idle_timeout_ns: pick(
            random,
            &[0, 1, SECOND, 3 * SECOND, 10 * SECOND, 100 * SECOND, 20_000 * SECOND, 1 << 24, 1 << 62, u64::MAX],
        ),
        active_timeout_ns: pick(
            random,
            &[0, 1, SECOND, 3 * SECOND, 10 * SECOND, 300 * SECOND, 40_000 * SECOND, 1 << 25, 1 << 62, u64::MAX],
        ),
        key: KeyOptions { vlan, interface, tunnel, unidirectional },
        mac_addresses: below(random, 4) == 0,
        cache_full_policy: pick(random, &policies),
        secret: Some(seed),
        prefetch_packets: pick(random, &[1usize, 2, 33, 64]),
    };
    let hosts = pick(random, &[2u64, 3, 8, 20]);
    let mut time_ns: u64 = if extreme { pick(random, &[0, 1, u64::MAX, u64::MAX - SECOND, 1 << 60]) } else { 1 << 60 };
    let mut packets = Vec::new();
    for _ in 0..60 + seed % 400 {
        let back = below(random, 12) == 0;
        let step = match below(random, 20) {
            0..=9 => below(random, SECOND / 100),
            10..=12 => 0,
            13 => SECOND,
            14 => below(random, 12 * SECOND),
            15 => pick(random, &[1 << 32, (1 << 32) - 1, 3 * SECOND, 5 * SECOND, 10 * SECOND]),
            16 => below(random, 400 * SECOND),
            17 => pick(random, &[1, 1 << 24, (1 << 24) - 1]),
            18 if below(random, 4) == 0 => pick(random, &[1 << 44, (1 << 44) - 1, 5 * 3600 * SECOND, 1 << 43]),
            _ => 1000,
        };
        time_ns = if back { time_ns.saturating_sub(step) } else { time_ns.saturating_add(step) };
        if extreme && below(random, 60) == 0 {
            time_ns = pick(random, &[0, 1, 4 * SECOND, u64::MAX, u64::MAX - 1, u64::MAX - 5 * SECOND, 1 << 60]);
        }
        packets.push(packet(random, time_ns, hosts));
    }
    let forward: u128 =
        packets.windows(2).map(|pair| u128::from(pair[1].time_ns.saturating_sub(pair[0].time_ns))).sum();
    if forward > u128::from(u64::MAX - (1 << 58)) {
        return Ok(false);
    }
    if config.mac_addresses {
        for packet in &mut packets {
            let source = [2, 0, 0, 0, packet.source[15], u8::from(below(random, 8) == 0)];
            packet.set_mac_addresses(source, [2, 0, 0, 0, packet.destination[15], 0]);
        }
    }
    let burst = pick(random, &[1usize, 7, 64, 100, 512]);
    compare::meters(&packets, burst, config)
        .map_err(|difference| format!("seed {seed} {config:?} burst {burst}\n{difference}"))?;
    Ok(true)
}

fn run_all(extreme: bool) {
    let run = |&seed: &u64| run(seed, extreme).unwrap_or_else(|difference| panic!("{difference}"));
    let compared = (0..SEEDS).filter(run).count() as u64;
    println!("{compared} of {SEEDS} compared");
    assert!(compared > SEEDS / 4, "{compared} of {SEEDS} compared");
}

#[test]
fn meter_equals_reference_on_extreme_values() {
    run_all(false);
}

#[test]
fn meter_equals_reference_at_both_ends_of_time() {
    run_all(true);
}
