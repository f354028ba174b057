//! The meter at its limits: the ends of time, records with full counters, reused slots.

use weir_flow::*;
use weir_packet::{Packet, ipv4_mapped};

const S: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * S;

fn udp(t: u64, host: u8) -> Packet {
    Packet {
        time_ns: t * S,
        source: ipv4_mapped([10, 0, 0, host]),
        destination: ipv4_mapped([10, 9, 0, 1]),
        source_port: 1,
        destination_port: 2,
        protocol: 17,
        ip_bytes: 40,
        frame_bytes: 54,
        ..Packet::default()
    }
}

/// The records of packets that are metered in bursts of a length.
fn records(config: Config, burst: usize, packets: &[Packet]) -> Vec<FlowRecord> {
    let (mut meter, mut out) = (Meter::new(config).unwrap(), Vec::new());
    packets.chunks(burst).for_each(|burst| meter.process(burst, &mut out));
    meter.drain(&mut out);
    out
}

#[test]
fn time_does_not_wrap() {
    let config = Config { flows: 4, secret: Some(1), ..Config::default() };
    let out = records(config, 1, &[u64::MAX, 0].map(|time_ns| Packet { time_ns, ..udp(0, 1) }));
    assert_eq!((out[0].start_ns(), out[0].end_ns(), out[0].forward.iat_max_ns), (0, u64::MAX, u64::MAX));
}

fn without_timeouts() -> Config {
    Config {
        flows: 10_000,
        idle_timeout_ns: u64::MAX,
        active_timeout_ns: u64::MAX,
        secret: Some(1),
        ..Config::default()
    }
}

fn jumbogram(host: u32) -> Packet {
    Packet {
        source: ipv4_mapped((0x0a00_0000 + host).to_be_bytes()),
        ip_bytes: 100_000,
        frame_bytes: 100_014,
        ..udp(0, 1)
    }
}

/// Inter-arrival times above 4.8 hours need full counters. Without them the record does not change.
#[test]
fn long_inter_arrival_time_without_full_counters_leaves_the_record_as_it_was() {
    let mut packets: Vec<Packet> = (0..4096).map(jumbogram).collect();
    let known = Packet { ip_bytes: 40, frame_bytes: 54, ..jumbogram(9000) };
    packets.extend([known, Packet { time_ns: 5 * HOUR, ..known }, Packet { time_ns: 5 * HOUR + 1, ..known }]);
    let out = records(without_timeouts(), 64, &packets);
    let own: Vec<&FlowRecord> = out.iter().filter(|f| f.source == known.source).collect();
    assert_eq!((own.len(), own[0].forward.packets, own[0].forward.bytes), (1, 1, 40));
    assert_eq!(out.iter().map(FlowRecord::packets).sum::<u64>(), 4099);
}

/// The reverse direction of one with full counters stays compact.
#[test]
fn reverse_direction_of_one_with_full_counters_needs_none() {
    let mut packets: Vec<Packet> = (0..4096).map(jumbogram).collect();
    let g = jumbogram(7);
    packets.push(Packet {
        source: g.destination,
        destination: g.source,
        source_port: 2,
        destination_port: 1,
        ip_bytes: 40,
        frame_bytes: 54,
        ..g
    });
    let out = records(without_timeouts(), 64, &packets);
    assert_eq!(out.len(), 4096);
    assert_eq!(out.iter().filter(|f| f.reverse.packets == 1).count(), 1);
}

/// Slots whose due tick equals that of the clock expire too, in whole groups of 32.
#[test]
fn slot_expires_at_its_due_tick() {
    let idle_timeout_ns = 128 << 24;
    let (mut meter, mut out) = (Meter::new(Config { idle_timeout_ns, ..without_timeouts() }).unwrap(), Vec::new());
    let packets: Vec<Packet> = (0..63).map(|n| Packet { ip_bytes: 40, ..jumbogram(n) }).collect();
    meter.process(&packets, &mut out);
    meter.process(&[Packet { time_ns: idle_timeout_ns, ip_bytes: 40, ..jumbogram(100) }], &mut out);
    assert_eq!((out.len(), meter.open_records().flows), (63, 1));
}

/// Captures clamp times beyond 2554 to the last representable one: flows there have records, too.
#[test]
fn flows_at_the_end_of_time_have_records() {
    let packets: Vec<Packet> = (0..5000).map(|n| Packet { time_ns: u64::MAX, ip_bytes: 40, ..jumbogram(n) }).collect();
    assert_eq!(records(without_timeouts(), 64, &packets).len(), 5000);
}

/// Compact counters take ordinary inter-arrival times at the end of time.
#[test]
fn ordinary_inter_arrival_time_at_the_end_of_time_needs_no_full_counters() {
    let first = u64::MAX - (1 << 48);
    let mut packets: Vec<Packet> = (0..4096).map(|n| Packet { time_ns: first, ..jumbogram(n) }).collect();
    let known = Packet { time_ns: first, ip_bytes: 40, frame_bytes: 54, ..jumbogram(9000) };
    packets.extend([known, Packet { time_ns: first - 1, ..known }, Packet { time_ns: first + 5 * S, ..known }]);
    let out = records(without_timeouts(), 64, &packets);
    assert_eq!(out.iter().filter(|f| f.source == known.source).map(FlowRecord::packets).sum::<u64>(), 3);
}

/// A record that ends frees its full counters, and leaves nothing to the next flow in its slot.
#[test]
fn ended_records_free_their_full_counters() {
    let config = Config { flows: 1, cache_full_policy: CacheFullPolicy::EvictOldestIdle, ..without_timeouts() };
    let out = records(config, 1, &(0..5000).map(jumbogram).collect::<Vec<_>>());
    assert_eq!(out.len(), 5000);
    assert!(out.iter().all(|f| f.forward.packets == 1 && !f.approximate.has(Approximate::OVERFLOW)));
}

/// Expired records that the cursor has not reached end by their timeout at the end of input.
#[test]
fn drain_applies_the_timeouts() {
    let (mut meter, mut out) =
        (Meter::new(Config { idle_timeout_ns: 120 * S, ..without_timeouts() }).unwrap(), Vec::new());
    let packets: Vec<Packet> = (0..600).map(|n| Packet { ip_bytes: 40, ..jumbogram(n) }).collect();
    meter.process(&packets, &mut out);
    meter.process(&[Packet { time_ns: 120 * S, ..jumbogram(5000) }], &mut out);
    assert_eq!(out.len(), 256);
    meter.drain(&mut out);
    assert_eq!(out.iter().filter(|f| f.end_reason == EndReason::Idle).count(), 600);
}

/// Two flows with equal tags in the index whose keys differ only in their extension.
#[test]
fn flows_with_equal_tags_are_distinguished_by_their_keys() {
    let key = KeyOptions { interface: true, ..KeyOptions::default() };
    let (mut meter, mut out) = (Meter::new(Config { flows: 2, key, ..without_timeouts() }).unwrap(), Vec::new());
    let of = |interface| Packet { interface, ..udp(0, 1) };
    let tag = |interface| KeyHasher::new(Some(1)).hash(&of(interface), key) as u16 | 1;
    let mut seen = std::collections::HashMap::new();
    let (one, other) =
        (0..).find_map(|number| seen.insert(tag(number), number).map(|before| (before, number))).unwrap();
    meter.process(&[of(one), of(other)], &mut out);
    meter.process(&[of(one), of(other), of(other)], &mut out);
    meter.drain(&mut out);
    out.sort_by_key(|flow| flow.interface);
    assert_eq!(out.iter().map(|flow| (flow.interface, flow.packets())).collect::<Vec<_>>(), [(one, 2), (other, 3)]);
}

/// After 575 years of forward steps the clock stands still.
#[test]
fn clock_does_not_wrap() {
    let config = Config { idle_timeout_ns: 120 * S, active_timeout_ns: 300 * S, ..without_timeouts() };
    let times = [0, u64::MAX - (1 << 49), 0, u64::MAX - (1 << 49), 0, 1 << 40];
    let out = records(config, 1, &times.map(|time_ns| Packet { time_ns, ..udp(0, 1) }));
    assert_eq!(out.iter().map(FlowRecord::packets).sum::<u64>(), 6);
}
