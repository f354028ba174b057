//! The meter against the rules of `docs/metering.md` section 5, one test per rule.

use weir_dpi::InspectionSettings;
use weir_flow::{Approximate, CacheFullPolicy, Config, EndReason, FlowRecord, KeyOptions, Meter, NoFollower, Payloads};
use weir_ledger::PacketAnomaly;
use weir_packet::{Flags, Network, Packet, ipv4_mapped};

const S: u64 = 1_000_000_000;
const FIN: u16 = Packet::FIN | Packet::ACK;
const SYN_ACK: u16 = Packet::SYN | Packet::ACK;

/// A packet from host `a` to host `b` at second `t`. Hosts below 100 are clients.
fn tcp(t: f64, a: u8, b: u8, control: u16, payload: u32) -> Packet {
    let port = |host: u8| if host < 100 { 4000 + u16::from(host) } else { 80 };
    Packet {
        source: ipv4_mapped([10, 0, 0, a]),
        destination: ipv4_mapped([10, 0, 0, b]),
        source_port: port(a),
        destination_port: port(b),
        protocol: 6,
        time_ns: (t * S as f64) as u64,
        ip_bytes: 40 + payload,
        frame_bytes: 54 + payload,
        payload_bytes: payload,
        control,
        ttl: 64,
        flags: Flags(Flags::PORTS | Flags::TCP),
        ..Packet::default()
    }
}

fn udp(t: f64, a: u8, b: u8) -> Packet {
    Packet { protocol: 17, flags: Flags(Flags::PORTS), ..tcp(t, a, b, 0, 8) }
}

fn config() -> Config {
    Config { flows: 1000, secret: Some(1), ..Config::default() }
}

/// Meters packets one burst each and checks the balance.
fn meter(config: Config, packets: &[Packet]) -> (Vec<FlowRecord>, Meter) {
    let (mut meter, mut out) = (Meter::new(config).unwrap(), Vec::new());
    for packet in packets {
        meter.process(&[*packet], &mut out);
        let live = meter.open_records();
        assert_eq!(live.flows + out.len() as u64, meter.counters().created);
    }
    meter.drain(&mut out);
    assert_eq!(meter.open_records(), Default::default());
    assert_eq!(out.len() as u64, meter.counters().created);
    let metered: u64 = out.iter().map(FlowRecord::packets).sum();
    assert_eq!(metered + meter.counters().dropped_packets, packets.len() as u64);
    let bytes: u64 = packets.iter().map(|packet| u64::from(packet.frame_bytes)).sum();
    assert_eq!(out.iter().map(FlowRecord::frame_bytes).sum::<u64>() + meter.counters().dropped_bytes, bytes);
    (out, meter)
}

fn flows(packets: &[Packet]) -> Vec<FlowRecord> {
    meter(config(), packets).0
}

#[test]
fn both_directions_share_one_record_with_all_counters() {
    let mut packets = [udp(1.0, 1, 100), udp(2.0, 100, 1), udp(4.0, 1, 100), udp(10.0, 1, 100)];
    packets[2].ip_bytes = 148;
    packets[3].ttl = 60;
    packets[3].tos = 8;
    let flows = flows(&packets);
    assert_eq!(flows.len(), 1);
    let flow = &flows[0];
    assert_eq!((flow.source_port, flow.destination_port, flow.end_reason), (4001, 80, EndReason::Forced));
    let forward = &flow.forward;
    assert_eq!((forward.packets, forward.bytes, forward.frame_bytes), (3, 48 + 148 + 48, 3 * 62));
    assert_eq!((forward.size_min, forward.size_max), (48, 148));
    assert!((forward.size_mean() - 81.333).abs() < 0.001);
    assert!((forward.size_std() - 47.140).abs() < 0.001);
    assert_eq!((forward.iat_min_ns, forward.iat_max_ns), (3 * S, 6 * S));
    assert_eq!((forward.iat_mean_ns(), forward.iat_std_ns()), (Some(4.5e9), Some(1.5e9)));
    assert_eq!((forward.ttl_min, forward.ttl_max, forward.tos), (60, 64, 0));
    assert_eq!((flow.reverse.packets, flow.reverse.iat_mean_ns()), (1, None));
    assert_eq!((flow.start_ns(), flow.end_ns()), (S, 10 * S));
}

#[test]
fn idle_flow_ends_at_the_timeout_and_not_before() {
    assert_eq!(flows(&[udp(0.0, 1, 100), udp(119.9, 1, 100)]).len(), 1);
    let flows = flows(&[udp(0.0, 1, 100), udp(120.0, 100, 1)]);
    assert_eq!(flows.len(), 2);
    assert_eq!(flows[0].end_reason, EndReason::Idle);
    assert_eq!(flows[1].source_port, 80, "a new flow begins with its own first packet");
}

#[test]
fn idle_flows_end_without_a_packet_of_their_own() {
    let (mut meter, mut out) = (Meter::new(config()).unwrap(), Vec::new());
    meter.process(&[udp(0.0, 1, 100)], &mut out);
    meter.process(&[udp(121.0, 2, 100)], &mut out);
    assert_eq!((out.len(), meter.open_records().flows), (1, 1));
}

#[test]
fn active_timeout_splits_records_and_keeps_the_initiator() {
    let packets: Vec<Packet> = (0..8)
        .map(|i| if i < 3 { udp(f64::from(i) * 100.0, 1, 100) } else { udp(f64::from(i) * 100.0, 100, 1) })
        .collect();
    let flows = flows(&packets);
    assert_eq!(
        flows.iter().map(|flow| flow.end_reason).collect::<Vec<_>>(),
        [EndReason::Active, EndReason::Active, EndReason::Forced]
    );
    assert!(flows.iter().all(|flow| flow.source_port == 4001));
    assert_eq!(
        flows.iter().map(|f| (f.forward.packets, f.reverse.packets)).collect::<Vec<_>>(),
        [(3, 0), (0, 3), (0, 2)]
    );
}

#[test]
fn record_reaches_the_active_timeout_without_a_packet() {
    let (mut meter, mut out) = (Meter::new(Config { idle_timeout_ns: 1000 * S, ..config() }).unwrap(), Vec::new());
    meter.process(&[udp(0.0, 1, 100)], &mut out);
    meter.process(&[udp(300.0, 2, 100)], &mut out);
    assert_eq!((out.len(), out[0].end_reason), (1, EndReason::Active));
    // Remembered for one idle timeout from the active deadline: 300 s + 1000 s.
    meter.process(&[udp(1299.0, 100, 1)], &mut out);
    meter.drain(&mut out);
    assert_eq!(out.last().map(|flow| (flow.source_port, flow.reverse.packets)), Some((4001, 1)));
}

#[test]
fn record_closed_by_fin_takes_late_packets_until_a_syn() {
    let end = [
        tcp(0.0, 1, 100, Packet::SYN, 0),
        tcp(0.1, 100, 1, SYN_ACK, 0),
        tcp(0.2, 1, 100, FIN, 10),
        tcp(0.3, 100, 1, FIN, 0),
        tcp(0.4, 1, 100, Packet::ACK, 0),
    ];
    let one = flows(&end);
    assert_eq!((one.len(), one[0].end_reason, one[0].packets()), (1, EndReason::EndOfFlow, 5));
    let syn = flows(&[&end[..], &[tcp(0.5, 1, 100, Packet::SYN, 0)]].concat());
    assert_eq!((syn.len(), syn[0].packets(), syn[1].end_reason), (2, 5, EndReason::Forced));
    let again = flows(&[&end[..], &[tcp(0.5, 1, 100, FIN, 10)]].concat());
    assert_eq!((again.len(), again[0].end_reason, again[0].packets()), (1, EndReason::EndOfFlow, 6));
    let late = flows(&[&end[..], &[tcp(5.3, 1, 100, Packet::ACK, 0)]].concat());
    assert_eq!(late.len(), 2);
    assert_eq!(flows(&[&end[..], &[tcp(5.2, 1, 100, Packet::ACK, 0)]].concat()).len(), 1);
}

#[test]
fn times_are_in_the_record_of_their_packets_however_packets_come_in_bursts() {
    // Requests of 10 octets and answers of 20, then the same again in another flow.
    let mut packets = Vec::new();
    for flow in 0..2 {
        let (mut t, mut next) = (f64::from(flow), [0; 2]);
        packets.push(tcp(t, 1, 100, Packet::SYN, 0));
        for _ in 0..10 {
            for (side, (a, b)) in [(0, (1, 100)), (1, (100, 1))] {
                t += 0.001;
                let payload = 10 + 10 * side as u32;
                let (sequence, acknowledgment) = (1 + next[side], 1 + next[1 - side]);
                next[side] += payload;
                let segment = tcp(t, a, b, Packet::ACK, payload);
                packets.push(Packet { sequence, acknowledgment, window: 1, ..segment });
            }
        }
        packets.push(tcp(t + 0.001, 1, 100, Packet::RST, 0));
    }
    let one_by_one = flows(&packets);
    let (mut meter, mut at_once) = (Meter::new(config()).unwrap(), Vec::new());
    meter.process(&packets, &mut at_once);
    meter.drain(&mut at_once);
    assert_eq!(at_once, one_by_one);
    for record in &at_once {
        let [client, server] = record.tcp.as_ref().unwrap();
        assert_eq!([client.responses.count, server.responses.count], [9, 10]);
        assert_eq!([client.round_trips.count, server.round_trips.count], [9, 10]);
        assert_eq!((server.responses.first_ns, server.round_trips.min_ns), (1_000_000, 1_000_000));
    }
}

#[test]
fn rst_of_either_side_ends_the_flow() {
    for rst in [tcp(0.1, 1, 100, Packet::RST, 0), tcp(0.1, 100, 1, Packet::RST | Packet::ACK, 0)] {
        let flows = flows(&[tcp(0.0, 1, 100, Packet::SYN, 0), rst, tcp(0.2, 1, 100, Packet::SYN, 0)]);
        assert_eq!((flows.len(), flows[0].end_reason), (2, EndReason::EndOfFlow));
    }
}

#[test]
fn initiator_is_the_sender_of_the_syn() {
    assert_eq!(flows(&[tcp(0.0, 100, 1, SYN_ACK, 0)])[0].source_port, 4001);
    assert_eq!(flows(&[tcp(0.0, 100, 1, Packet::ACK, 5), tcp(0.1, 1, 100, Packet::SYN, 0)])[0].source_port, 4001);
    assert_eq!(flows(&[tcp(0.0, 100, 1, SYN_ACK, 0), tcp(0.1, 100, 1, Packet::SYN, 0)])[0].source_port, 4001);
    assert_eq!(flows(&[tcp(0.0, 100, 1, Packet::ACK, 5), tcp(0.1, 1, 100, Packet::ACK, 0)])[0].source_port, 80);
}

#[test]
fn unidirectional_flows_have_two_records_and_end_with_one_fin() {
    let config = Config { key: KeyOptions { unidirectional: true, ..KeyOptions::default() }, ..config() };
    let packets = [tcp(0.0, 1, 100, FIN, 0), tcp(0.1, 100, 1, SYN_ACK, 0)];
    let (flows, _) = meter(config, &packets);
    let mut ports: Vec<_> = flows.iter().map(|flow| (flow.source_port, flow.end_reason)).collect();
    ports.sort();
    assert_eq!(ports, [(80, EndReason::Forced), (4001, EndReason::EndOfFlow)]);
}

#[test]
fn mixed_encapsulation_is_flagged_and_the_first_value_exported() {
    let mut packets = [udp(0.0, 1, 100), udp(1.0, 1, 100), udp(2.0, 100, 1)];
    packets[1].vlan = 7;
    packets[1].interface = 3;
    packets[2].mpls_label = 9;
    let flow = flows(&packets)[0].clone();
    assert_eq!(flow.approximate.0, Approximate::MIXED_VLAN | Approximate::MIXED_INTERFACE);
    let by_vlan = Config { key: KeyOptions { vlan: true, ..KeyOptions::default() }, ..config() };
    assert_eq!(meter(by_vlan, &packets).0.len(), 2);
}

#[test]
fn mac_addresses_are_those_of_the_first_packet_and_others_are_flagged() {
    const HOST: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 3];
    let with = |mut packet: Packet, [source, destination]: [[u8; 6]; 2]| {
        packet.set_mac_addresses(source, destination);
        packet
    };
    let config = Config { mac_addresses: true, ..config() };
    let sent = |seconds, macs| with(udp(seconds, 1, 100), macs);
    let answered = |seconds, macs| with(udp(seconds, 100, 1), macs);
    let one = |packets: &[Packet]| meter(config, packets).0.remove(0);
    let there = [HOST, ROUTER];

    let flow = one(&[sent(0.0, there), answered(1.0, [ROUTER, HOST]), sent(2.0, there)]);
    assert_eq!((flow.mac_addresses(), flow.approximate.0), (there.map(Some), 0));
    // The way back through another router is no change of a direction.
    let flow = one(&[sent(0.0, there), answered(1.0, [OTHER, HOST]), answered(2.0, [OTHER, HOST])]);
    assert_eq!((flow.mac_addresses(), flow.approximate.0), (there.map(Some), 0));
    assert_eq!([flow.reverse.source_mac, flow.reverse.destination_mac], [OTHER, HOST]);
    for changed in [[HOST, OTHER], [OTHER, ROUTER], [[0; 6]; 2]] {
        for flow in [
            one(&[sent(0.0, there), sent(1.0, changed), sent(2.0, there)]),
            one(&[sent(0.0, there), answered(1.0, there), answered(2.0, changed)]),
        ] {
            assert_eq!((flow.mac_addresses(), flow.approximate.0), (there.map(Some), Approximate::MIXED_MAC));
        }
    }

    // Each record begins anew; in the second one only the responder sends.
    let first = [sent(0.0, [OTHER, ROUTER]), sent(110.0, there), sent(220.0, there)];
    let (flows, _) = meter(config, &[&first[..], &[answered(310.0, [ROUTER, HOST])]].concat());
    assert_eq!(flows.len(), 2);
    let records: Vec<_> = flows.iter().map(|flow| (flow.mac_addresses(), flow.approximate.0)).collect();
    assert_eq!(records[0], ([OTHER, ROUTER].map(Some), Approximate::MIXED_MAC));
    assert_eq!(records[1], (there.map(Some), 0));

    // Packets without addresses, as of raw IP, and a cooked capture.
    assert_eq!(one(&[udp(0.0, 1, 100)]).mac_addresses(), [None; 2]);
    assert_eq!(one(&[sent(0.0, [HOST, [0; 6]])]).mac_addresses(), [Some(HOST), None]);

    let full = Config { flows: 1, ..config };
    let (flows, _) =
        meter(full, &[sent(0.0, there), with(udp(0.0, 2, 100), [OTHER, ROUTER]), with(udp(0.0, 3, 100), there)]);
    let overflow = flows.iter().find(|flow| flow.approximate.has(Approximate::OVERFLOW)).unwrap();
    assert_eq!(overflow.mac_addresses(), [OTHER, ROUTER].map(Some));
    assert_eq!(overflow.approximate.0, Approximate::OVERFLOW | Approximate::MIXED_MAC);
}

#[test]
fn full_cache_adds_new_flows_to_overflow_records() {
    let config = Config { flows: 2, ..config() };
    let packets: Vec<Packet> = (1..=9).map(|host| udp(0.0, host, 100)).collect();
    let (flows, _) = meter(config, &packets);
    assert_eq!(flows.len(), 3);
    let overflow = flows.iter().find(|flow| flow.approximate.0 & Approximate::OVERFLOW != 0).unwrap();
    assert_eq!((overflow.packets(), overflow.destination_port, overflow.source_port), (7, 80, 0));
    assert_eq!(overflow.end_reason, EndReason::LackOfResources);
}

#[test]
fn full_cache_drops_and_counts_new_flows() {
    let config = Config { flows: 2, cache_full_policy: CacheFullPolicy::Drop, ..config() };
    let packets: Vec<Packet> = (1..=9).map(|host| udp(0.0, host, 100)).collect();
    let (flows, meter) = meter(config, &packets);
    assert_eq!((flows.len(), meter.counters().dropped_packets), (2, 7));
}

#[test]
fn eviction_takes_the_oldest_flow_but_no_answered_one_for_a_syn() {
    let config = Config { flows: 2, cache_full_policy: CacheFullPolicy::EvictOldestIdle, ..config() };
    let answered = [tcp(0.0, 1, 100, Packet::SYN, 0), tcp(0.1, 100, 1, SYN_ACK, 0)];
    let scan: Vec<Packet> = (0..50).map(|i| tcp(1.0 + f64::from(i), 2 + i, 101, Packet::SYN, 0)).collect();
    let (flows, _) = meter(config, &[&answered[..], &scan[..]].concat());
    let established = flows.iter().find(|flow| flow.source_port == 4001).unwrap();
    assert_eq!((established.end_reason, established.packets()), (EndReason::Forced, 2));
    assert_eq!(flows.iter().filter(|flow| flow.end_reason == EndReason::LackOfResources).count(), 49);
    // Data of a new flow may evict it.
    let (flows, _) = meter(config, &[&answered[..], &[udp(2.0, 3, 100), udp(3.0, 4, 100)]].concat());
    assert!(flows.iter().any(|flow| flow.source_port == 4001 && flow.end_reason == EndReason::LackOfResources));
    // The cache has answered flows only: the SYN is added to an overflow record.
    let one = Config { flows: 1, ..config };
    let (flows, _) = meter(one, &[&answered[..], &scan[..1]].concat());
    assert!(flows.iter().any(|flow| flow.approximate.0 == Approximate::OVERFLOW));
}

#[test]
fn expired_and_closing_flows_are_replaced_before_the_policy_applies() {
    let config = Config { flows: 1, cache_full_policy: CacheFullPolicy::Drop, ..config() };
    let (flows, meter) =
        meter(config, &[udp(0.0, 1, 100), udp(120.0, 2, 100), tcp(240.0, 3, 100, Packet::RST, 0), udp(240.5, 4, 100)]);
    assert_eq!((flows.len(), meter.counters().dropped_packets), (4, 0));
    assert_eq!(flows[2].end_reason, EndReason::EndOfFlow);
}

#[test]
fn backward_step_of_more_than_a_second_is_counted_and_ends_nothing() {
    let (flows, meter) =
        meter(config(), &[udp(1000.0, 1, 100), udp(999.5, 1, 100), udp(10.0, 1, 100), udp(129.0, 1, 100)]);
    assert_eq!(meter.counters().anomalies.get(PacketAnomaly::ClockWentBack), 1);
    assert_eq!((flows.len(), flows[0].start_ns(), flows[0].end_ns()), (1, 10 * S, 1000 * S));
    assert_eq!(flows[0].forward.iat_min_ns, 0);
}

#[test]
fn after_a_backward_step_timeouts_continue_from_there() {
    let flows = flows(&[udp(1000.0, 1, 100), udp(10.0, 2, 100), udp(129.0, 2, 100), udp(130.0, 1, 100)]);
    assert_eq!(flows.len(), 3);
    assert_eq!((flows[0].end_reason, flows[0].start_ns()), (EndReason::Idle, 1000 * S));
}

#[test]
fn packet_from_the_future_does_not_delay_expiry() {
    let (mut meter, mut out) = (Meter::new(config()).unwrap(), Vec::new());
    meter.process(&[udp(4_000_000_000.0, 9, 100)], &mut out);
    for second in 0..400 {
        meter.process(&[udp(f64::from(second), 1 + (second / 200) as u8, 100)], &mut out);
    }
    assert_eq!(meter.open_records().flows, 1);
}

#[test]
fn packets_between_equal_endpoints_are_all_forward() {
    let land = Packet { destination_port: 4001, ..tcp(0.0, 1, 1, SYN_ACK, 0) };
    let flows = flows(&[land, land]);
    assert_eq!((flows.len(), flows[0].forward.packets), (1, 2));
}

#[test]
fn jump_of_the_clock_ends_all_records_a_few_at_a_time() {
    let (mut meter, mut out) = (Meter::new(Config { flows: 4096, ..config() }).unwrap(), Vec::new());
    for number in 0..4000u32 {
        let [_, _, c, d] = number.to_be_bytes();
        meter.process(&[Packet { source: ipv4_mapped([10, 1, c, d]), ..udp(0.0, 1, 100) }], &mut out);
    }
    meter.process(&[udp(1e9, 1, 100)], &mut out);
    assert!(out.len() <= 256);
    for _ in 0..20 {
        meter.process(&[udp(1e9, 1, 100)], &mut out);
    }
    assert_eq!((out.len(), meter.open_records().flows), (4000, 1));
}

#[test]
fn later_fragments_join_the_flow_of_the_first_and_unknown_ones_are_flagged() {
    let first = Packet { flags: Flags(Flags::FRAGMENT_FIRST | Flags::PORTS), identification: 5, ..udp(0.0, 1, 100) };
    let later = Packet {
        flags: Flags(Flags::FRAGMENT_LATER),
        identification: 5,
        source_port: 0,
        destination_port: 0,
        ..udp(0.1, 1, 100)
    };
    let unknown = Packet { identification: 6, ..later };
    let (flows, meter) = meter(config(), &[first, later, unknown]);
    assert_eq!(flows.len(), 2);
    assert_eq!(flows.iter().find(|flow| flow.source_port == 4001).unwrap().packets(), 2);
    assert_eq!(flows.iter().find(|flow| flow.source_port == 0).unwrap().approximate.0, Approximate::FRAGMENTS);
    assert_eq!(meter.counters().anomalies.get(PacketAnomaly::FragmentUnattributed), 1);
}

#[test]
fn layer_2_frames_have_flows_of_their_own() {
    let arp = Packet {
        network: Network::Layer2,
        source_port: 0x0806,
        destination_port: 0x0806,
        protocol: 255,
        ip_bytes: 0,
        ..udp(0.0, 1, 2)
    };
    let (flows, _) = meter(config(), &[arp, arp]);
    assert_eq!((flows[0].ethertype(), flows[0].forward.packets, flows[0].forward.bytes), (Some(0x0806), 2, 0));
    assert_eq!(flows[0].source_ip(), None);
}

#[test]
fn records_do_not_depend_on_the_secret() {
    let packets: Vec<Packet> = (0..60).map(|i| udp(f64::from(i) * 10.0, i as u8 % 7, 100 + i as u8 % 3)).collect();
    let mut all = [1, 99].map(|secret| meter(Config { secret: Some(secret), ..config() }, &packets).0);
    all.iter_mut().for_each(|flows| flows.sort_by_key(|flow| (flow.start_ns(), flow.source_port, flow.destination)));
    assert_eq!(all[0], all[1]);
}

#[test]
fn drain_in_steps_gives_the_same_records() {
    let packets: Vec<Packet> = (0..200).map(|i| udp(f64::from(i) * 3.0, i as u8 % 50, 100 + i as u8 % 2)).collect();
    let [mut at_once, mut in_steps] = [(); 2].map(|()| Meter::new(config()).unwrap());
    let (mut one, mut other) = (Vec::new(), Vec::new());
    at_once.process(&packets, &mut one);
    in_steps.process(&packets, &mut other);
    at_once.drain(&mut one);
    while in_steps.drain_up_to(3, &mut other) {}
    assert_eq!(one, other);
}

#[test]
fn jumbograms_and_wrong_lengths_are_counted_like_any_packet() {
    let giant = Packet { ip_bytes: 200_000, frame_bytes: 200_014, ..tcp(2., 1, 100, 0, 8) };
    let wrong = Packet { ip_bytes: 65_535, frame_bytes: 60, ..tcp(3., 1, 100, 0, 8) };
    let packets = [tcp(0., 1, 100, Packet::SYN, 0), tcp(1., 100, 1, SYN_ACK, 0), giant, wrong, tcp(7e5, 1, 100, 0, 1)];
    let config = Config { idle_timeout_ns: u64::MAX, active_timeout_ns: u64::MAX, ..config() };
    let (flows, _) = meter(config, &packets);
    let [flow] = &flows[..] else { panic!("{flows:?}") };
    let sizes: [u128; 4] = [40, 200_000, 65_535, 41];
    let forward = flow.forward;
    assert_eq!((forward.packets, flow.reverse.packets), (4, 1));
    assert_eq!(u128::from(forward.bytes), sizes.iter().sum());
    assert_eq!(forward.frame_bytes, 54 + 200_014 + 60 + 55);
    assert_eq!((forward.size_min, forward.size_max), (40, 200_000));
    assert_eq!({ forward.size_squares }, sizes.iter().map(|size| size * size).sum());
    assert_eq!((forward.iat_min_ns, forward.iat_max_ns), (S, 699_997 * S));
    assert_eq!(forward.tcp_flags, Packet::SYN);
}

#[test]
fn packets_without_full_counters_are_added_to_overflow_records() {
    const CAPACITY: u32 = 4096;
    let giant = |host: u32, t: u64| Packet {
        source: ipv4_mapped((0x0a00_0000 + host).to_be_bytes()),
        time_ns: t,
        ip_bytes: 100_000,
        frame_bytes: 100_014,
        ..udp(0., 1, 100)
    };
    // A flow with full counters keeps them; one with compact counters keeps its record.
    let ordinary = |host: u32| Packet { ip_bytes: 100, frame_bytes: 114, ..giant(host, 0) };
    let packets: Vec<Packet> = (0..=CAPACITY + 9)
        .map(|host| if host == CAPACITY + 9 { ordinary(host) } else { giant(host, 0) })
        .chain([giant(CAPACITY + 9, 1), giant(7, 1)])
        .collect();
    let (flows, meter) = meter(Config { flows: 10_000, ..config() }, &packets);
    let (sums, own): (Vec<&FlowRecord>, Vec<&FlowRecord>) =
        flows.iter().partition(|flow| flow.approximate.has(Approximate::OVERFLOW));
    assert_eq!(own.len(), CAPACITY as usize + 1);
    assert_eq!(own.iter().filter(|flow| flow.forward.packets == 2).count(), 1, "number 7");
    assert_eq!(own.iter().filter(|flow| flow.forward.bytes == 100).count(), 1, "the ordinary one");
    assert_eq!(sums.iter().map(|flow| flow.packets()).sum::<u64>(), 9 + 1);
    assert_eq!(meter.counters().anomalies.get(PacketAnomaly::Overflow), 10);
}

#[test]
fn syn_flood_leaves_established_flows_exact() {
    const ESTABLISHED: u8 = 20;
    for policy in [CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop] {
        let mut packets = Vec::new();
        for host in 1..=ESTABLISHED {
            packets.extend([tcp(0., host, 100, Packet::SYN, 0), tcp(0.1, 100, host, SYN_ACK, 0)]);
        }
        for number in 0..20_000_u32 {
            let spoofed =
                Packet { source: ipv4_mapped((0xc000_0000 + number).to_be_bytes()), ..tcp(1., 1, 100, Packet::SYN, 0) };
            packets.push(spoofed);
            if number % 1000 == 0 {
                packets.extend((1..=ESTABLISHED).map(|host| tcp(1., host, 100, Packet::ACK, 100)));
            }
        }
        let (flows, meter) = meter(Config { flows: 100, cache_full_policy: policy, ..config() }, &packets);
        let established: Vec<&FlowRecord> = flows.iter().filter(|flow| flow.reverse.packets > 0).collect();
        assert_eq!(established.len(), ESTABLISHED.into(), "{policy:?}");
        for flow in established {
            assert_eq!((flow.forward.packets, flow.forward.bytes), (21, 40 + 20 * 140), "{policy:?}");
            assert_eq!((flow.end_reason, flow.approximate.0), (EndReason::Forced, 0), "{policy:?}");
        }
        let dropped = meter.counters().dropped_packets;
        assert_eq!(dropped, if policy == CacheFullPolicy::Drop { 20_000 - 80 } else { 0 }, "{policy:?}");
        let summed = flows.iter().any(|flow| flow.approximate.has(Approximate::OVERFLOW));
        // Among neighbouring slots with established flows a SYN finds none to evict.
        assert_eq!(summed, policy != CacheFullPolicy::Drop, "{policy:?}");
    }
}

#[test]
fn syn_flood_leaves_flows_between_two_records() {
    for (policy, unidirectional) in [
        (CacheFullPolicy::Overflow, false),
        (CacheFullPolicy::EvictOldestIdle, false),
        (CacheFullPolicy::EvictOldestIdle, true),
        (CacheFullPolicy::Drop, false),
        (CacheFullPolicy::Drop, true),
    ] {
        let key = KeyOptions { unidirectional, ..KeyOptions::default() };
        let (mut packets, mut sent) = (Vec::new(), 0);
        for round in 0..40_u32 {
            let at = f64::from(round) / 10.;
            for host in 1..=20 {
                packets.extend([tcp(at, host, 100, Packet::ACK, 100), tcp(at, 100, host, Packet::ACK, 0)]);
                sent += 2;
            }
            for number in 0..500 {
                let source = ipv4_mapped((0xc000_0000 + round * 500 + number).to_be_bytes());
                packets.push(Packet { source, ..tcp(at + 0.05, 1, 100, Packet::SYN, 0) });
            }
        }
        let config = Config { flows: 100, cache_full_policy: policy, key, active_timeout_ns: 500_000_000, ..config() };
        let (flows, _) = meter(config, &packets);
        let kept = |flow: &&FlowRecord| flow.approximate.0 == 0 && flow.forward.tcp_flags & Packet::ACK != 0;
        let kept: u64 = flows.iter().filter(kept).map(FlowRecord::packets).sum();
        assert_eq!(kept, sent, "{policy:?} {key:?}");
    }
}

#[test]
fn timeouts_hold_after_years() {
    const YEAR_NS: u64 = 31_557_600 * 1_000_000_000;
    let packet = |time_ns: u64, host: u8| Packet { time_ns, ..udp(0., host, 100) };
    for step_ns in [YEAR_NS / 3, YEAR_NS, 3 * YEAR_NS] {
        let mut meter = Meter::new(Config { idle_timeout_ns: 60_000_000_000, ..config() }).unwrap();
        let mut out = Vec::new();
        for number in 0..30 {
            // A flow of two packets, and another whose packets move the expiry cursor until the
            // first one has expired.
            let begins = number * step_ns;
            let mut packets = vec![packet(begins, 1), packet(begins + 1, 1)];
            packets.extend((0..640).map(|second| packet(begins + second * 1_000_000_000, 2)));
            meter.process(&packets, &mut out);
            // The second one expires with the step of time.
            let expired = out.iter().filter(|flow| flow.end_reason == EndReason::Idle).count();
            assert_eq!(expired as u64, number + 1 + number, "{step_ns} {number}");
        }
    }
}

#[test]
fn flow_ends_while_no_packets_arrive() {
    let (mut meter, mut out) = (Meter::new(config()).unwrap(), Vec::new());
    meter.process(&[udp(1.0, 1, 100)], &mut out);
    for quarter in 0..8_u64 {
        meter.advance_time(500 * S + quarter, &mut out);
    }
    assert_eq!((out.len(), out[0].end_reason), (1, EndReason::Idle));
    assert_eq!(meter.open_records(), Default::default());
}

/// A request, as far as a packet has payload.
struct Request;

impl Payloads for Request {
    const AVAILABLE: bool = true;

    fn payload(&self, _: usize, packet: &Packet) -> (&[u8], u32) {
        (&b"GET / HTTP/1.1\r\n\r\n"[..packet.payload_bytes as usize], packet.payload_bytes)
    }
}

/// The application of the only record of these packets, and its notes.
fn inspected(limit: u32, packets: &[Packet]) -> Option<(Option<&'static str>, Vec<&'static str>)> {
    let settings = InspectionSettings { packets: limit, ..InspectionSettings::default() };
    let mut meter = Meter::new(Config { inspection: Some(settings), ..config() }).unwrap();
    let mut out = Vec::new();
    packets.iter().for_each(|packet| meter.process_with(&[*packet], &Request, &mut NoFollower, &mut out));
    meter.drain(&mut out);
    assert_eq!(out.len(), 1);
    let findings = out[0].findings.as_deref()?;
    Some((findings.application().map(|(application, _)| application.name()), findings.notes().names().collect()))
}

#[test]
fn limit_of_packets_before_the_first_payload_is_noted() {
    let (ack, syn) = (Packet::ACK, Packet::SYN);
    let request = tcp(1.0, 1, 100, ack, 18);
    for (limit, control, client, count, expected) in [
        (16, ack, true, 14, Some("http")),
        (16, ack, true, 16, None),
        (16, ack, false, 40, None),
        (16, syn, true, 20, None),
        (2, ack, true, 2, None),
    ] {
        let (from, to) = if client { (1, 100) } else { (100, 1) };
        let mut packets = vec![tcp(0.5, from, to, control, 0); count];
        assert_eq!(inspected(limit, &packets), None, "no payload, no note");
        packets.push(request);
        let (application, notes) = inspected(limit, &packets).unwrap();
        assert_eq!(application, expected, "{limit} {count}");
        assert_eq!(notes.contains(&"limit"), expected.is_none(), "{limit} {count}");
    }
}

/// RFC 1122 section 4.2.2.12: it explains the reset.
#[test]
fn text_of_a_reset_is_not_inspected() {
    let reset = tcp(1.0, 1, 100, Packet::RST | Packet::ACK, 18);
    assert_eq!(inspected(16, &[reset]), None);
    assert_eq!(inspected(1, &[reset]), None);
    assert_eq!(inspected(16, &[reset, tcp(1.0, 1, 100, Packet::ACK, 18)]).unwrap().0, Some("http"));
}

#[test]
fn memory_provided_by_another_thread_changes_no_record_and_the_thread_ends_with_the_meter() {
    let packet = |number: u32| Packet {
        source: ipv4_mapped(number.to_be_bytes()),
        ..if number % 5 < 3 { tcp(0.0, 1, 200, SYN_ACK, 9) } else { udp(0.0, 1, 200) }
    };
    let packets: Vec<Packet> = (0..30_000).chain(0..30_000).map(packet).collect();
    let run = |is_ahead: bool| {
        // The last flows find no slot.
        let mut meter = Meter::new(Config { flows: 28_000, ..config() }).unwrap();
        let ahead = is_ahead.then(|| meter.memory_ahead());
        let thread = ahead.map(|ahead| std::thread::spawn(|| ahead.run()));
        let mut out = Vec::new();
        packets.chunks(64).for_each(|burst| meter.process(burst, &mut out));
        meter.drain(&mut out);
        drop(meter);
        thread.into_iter().for_each(|thread| thread.join().unwrap());
        out
    };
    let expected = run(false);
    assert_eq!(expected.iter().map(FlowRecord::packets).sum::<u64>(), 60_000);
    assert!(run(true) == expected);
}
