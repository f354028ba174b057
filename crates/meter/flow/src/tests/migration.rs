//! Flows that migrate from one meter to another. `testkit` compares the records of several meters
//! with those of one.

use weir_flow::{Approximate, BUCKETS, BucketSet, Config, Detail, EndReason, FlowRecord, Meter, MigratedFlow};
use weir_ledger::{PacketAnomaly, RecordTotals};
use weir_packet::{Flags, Packet, ipv4_mapped};

const S: u64 = 1_000_000_000;

fn config() -> Config {
    Config { flows: 1 << 14, idle_timeout_ns: 10 * S, active_timeout_ns: 60 * S, secret: Some(5), ..Config::default() }
}

fn udp(time_ns: u64, host: u32) -> Packet {
    Packet {
        source: ipv4_mapped(host.to_be_bytes()),
        destination: ipv4_mapped([192, 0, 2, 1]),
        source_port: 4000,
        destination_port: 53,
        protocol: 17,
        time_ns,
        ip_bytes: 48,
        frame_bytes: 62,
        ttl: 64,
        flags: Flags(Flags::PORTS),
        ..Packet::default()
    }
}

fn all() -> BucketSet {
    let mut buckets = BucketSet::default();
    (0..BUCKETS as u16).for_each(|bucket| buckets.insert(bucket));
    buckets
}

fn migrate_out(meter: &mut Meter) -> Vec<MigratedFlow> {
    let mut migrated = Vec::new();
    meter.migrate_out(|_, flow| migrated.push(flow));
    migrated
}

/// Migrates all flows and checks that none is left and none was added.
fn migrate_all(from: &mut Meter, to: &mut Meter, out: &mut Vec<FlowRecord>) {
    let (before, there, created) = (from.open_records(), to.open_records(), to.counters().created);
    from.start_migration(all());
    migrate_out(from).into_iter().for_each(|flow| to.migrate_in(flow, out));
    let mut together = there;
    together.merge(before);
    assert_eq!(
        (from.open_records(), to.open_records(), to.counters().created),
        (RecordTotals::default(), together, created)
    );
}

#[test]
fn flow_can_be_sent_to_another_thread() {
    fn is_send<T: Send + std::fmt::Debug>() {}
    is_send::<MigratedFlow>();
}

#[test]
fn search_covers_a_few_slots_per_chunk_of_packets() {
    let (mut meter, mut out) = (Meter::new(config()).unwrap(), Vec::new());
    let packets: Vec<Packet> = (0..10_000).map(|host| udp(0, host)).collect();
    meter.process(&packets, &mut out);
    assert!(!meter.migration_ready(), "there is no search");
    meter.start_migration(all());
    let mut groups = 0;
    while !meter.migration_ready() {
        meter.process(&packets[..64], &mut out);
        groups += 1;
    }
    // The slots of these flows, and blocks of 1024 slots for further ones.
    assert!((10_000 / 64..=13_000 / 64).contains(&groups), "{groups}");
    // It goes on without packets, too.
    meter.start_migration(all());
    let mut calls = 0;
    while !meter.migration_ready() {
        meter.advance_time(S, &mut out);
        calls += 1;
    }
    assert!((2..=4).contains(&calls), "{calls}");
    assert_eq!(
        (migrate_out(&mut meter).len(), meter.open_records(), meter.migration_ready()),
        (10_000, RecordTotals::default(), false)
    );
    assert!(out.is_empty());
}

#[test]
fn search_follows_flows_that_start_and_end_meanwhile() {
    let (mut meter, mut out) = (Meter::new(config()).unwrap(), Vec::new());
    (0..100).for_each(|host| meter.process(&[udp(0, host)], &mut out));
    meter.start_migration(all());
    while !meter.migration_ready() {
        meter.advance_time(0, &mut out);
    }
    // Half of the flows found go on, the others end; new flows take some of their slots.
    (0..50).for_each(|host| meter.process(&[udp(5 * S, host)], &mut out));
    meter.process(&(200..230).map(|host| udp(10 * S, host)).collect::<Vec<_>>(), &mut out);
    assert_eq!((out.len(), meter.open_records().flows), (50, 80));
    assert!(meter.migration_ready(), "new flows are listed when they start");
    assert_eq!(migrate_out(&mut meter).len(), 80);
}

#[test]
fn only_flows_of_the_buckets_migrate_and_none_after_a_cancelled_search() {
    let (mut meter, mut out) = (Meter::new(config()).unwrap(), Vec::new());
    meter.process(&(0..5000).map(|host| udp(0, host)).collect::<Vec<_>>(), &mut out);
    let mut some = BucketSet::default();
    (0..100).for_each(|bucket| some.insert(bucket));
    meter.start_migration(all());
    meter.advance_time(S, &mut out);
    meter.cancel_migration();
    assert!(migrate_out(&mut meter).is_empty());
    // Nothing is left of the cancelled search.
    meter.start_migration(some);
    let mut flows = 0;
    meter.migrate_out(|bucket, _| {
        assert!(some.contains(bucket));
        flows += 1;
    });
    // Expected: 977, with a standard deviation of 28.
    assert!((800..1150).contains(&flows), "{flows}");
    assert_eq!(meter.open_records().flows, 5000 - flows);
}

#[test]
fn meter_without_packets_accepts_flows_and_ends_them_in_time() {
    for (time_ns, reason, records) in [(19 * S, EndReason::Forced, 1), (20 * S, EndReason::Idle, 2)] {
        let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config()).unwrap()), Vec::new());
        [0, 9, 10].into_iter().for_each(|second| one.process(&[udp(second * S, 1)], &mut out));
        migrate_all(&mut one, &mut other, &mut out);
        other.process(&[udp(time_ns, 1)], &mut out);
        other.drain(&mut out);
        assert_eq!((out.len(), out[0].end_reason), (records, reason));
        assert_eq!((out[0].start_ns(), out[0].packets()), (0, if records == 1 { 4 } else { 3 }));
    }
}

#[test]
fn migrated_flow_ends_without_a_packet_of_its_own() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config()).unwrap()), Vec::new());
    one.process(&[udp(100 * S, 1)], &mut out);
    other.process(&[udp(40 * S, 2)], &mut out);
    migrate_all(&mut one, &mut other, &mut out);
    other.advance_time(110 * S - 1, &mut out);
    assert_eq!((out.len(), other.open_records().flows), (1, 1));
    other.advance_time(110 * S, &mut out);
    assert_eq!((out.len(), other.open_records().flows), (2, 0));
    // Also in a meter that never had a packet.
    let mut third = Meter::new(config()).unwrap();
    one.process(&[udp(100 * S, 1)], &mut out);
    migrate_all(&mut one, &mut third, &mut out);
    third.advance_time(110 * S, &mut out);
    assert_eq!((out.len(), third.open_records().flows), (3, 0));
    // Also in a slot that another flow has left.
    other.process(&[udp(120 * S, 1)], &mut out);
    migrate_all(&mut other, &mut one, &mut out);
    one.advance_time(130 * S, &mut out);
    assert_eq!((out.len(), one.open_records().flows), (4, 0));
}

#[test]
fn meter_that_is_behind_in_time_accepts_a_flow_and_its_own_stay_exact() {
    // Its first packet may not have arrived yet.
    for first in [true, false] {
        let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config()).unwrap()), Vec::new());
        one.process(&[udp(95 * S, 1), udp(100 * S, 1)], &mut out);
        if first {
            other.process(&[udp(80 * S, 2)], &mut out);
        }
        migrate_all(&mut one, &mut other, &mut out);
        for second in [80, 89, 98, 107] {
            other.process(&[udp(second * S, 2)], &mut out);
        }
        assert_eq!(out.len(), 0);
        other.process(&[udp(110 * S - 1, 1)], &mut out);
        // The active timeout of its own flow counts from that flow's first packet.
        for second in [115, 120, 125, 130, 135, 139] {
            [1, 2].into_iter().for_each(|host| other.process(&[udp(second * S, host)], &mut out));
        }
        assert_eq!(out.len(), 0);
        other.advance_time(140 * S, &mut out);
        assert_eq!((out.len(), out[0].end_reason, out[0].start_ns()), (1, EndReason::Active, 80 * S));
        [145, 150, 154].into_iter().for_each(|second| other.process(&[udp(second * S, 1)], &mut out));
        other.advance_time(155 * S, &mut out);
        assert_eq!((out.len(), out[1].end_reason, out[1].start_ns()), (2, EndReason::Active, 95 * S));
    }
}

#[test]
fn expired_flows_end_in_the_meter_they_migrated_to() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config()).unwrap()), Vec::new());
    // More than the expiry cursor passes over with one packet.
    one.process(&(0..9000).map(|host| udp(0, host)).collect::<Vec<_>>(), &mut out);
    one.process(&[udp(10 * S, 10_000)], &mut out);
    let ended = out.len();
    assert!(ended <= 256);
    migrate_all(&mut one, &mut other, &mut out);
    (0..8).for_each(|_| other.advance_time(10 * S, &mut out));
    assert_eq!((out.len(), other.open_records().flows), (9000, 1));
    assert!(out.iter().all(|flow| flow.end_reason == EndReason::Idle));
}

#[test]
fn record_keeps_the_interface_of_the_meter_it_began_in() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config()).unwrap()), Vec::new());
    let on = |interface, packet| Packet { interface, ..packet };
    one.process(&[on(1, udp(0, 1))], &mut out);
    other.process(&[on(2, udp(0, 2))], &mut out);
    migrate_all(&mut one, &mut other, &mut out);
    other.process(&[on(1, udp(1, 1)), on(2, udp(1, 3))], &mut out);
    migrate_all(&mut other, &mut one, &mut out);
    one.drain(&mut out);
    let mut found: Vec<_> = out.iter().map(|flow| (flow.source[15], flow.interface, flow.approximate.0)).collect();
    found.sort_unstable();
    assert_eq!(found, [(1, 1, 0), (2, 2, 0), (3, 2, 0)]);
}

#[test]
fn search_finds_flows_that_migrate_in_meanwhile() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config()).unwrap()), Vec::new());
    one.process(&[udp(0, 1)], &mut out);
    other.process(&[udp(0, 2)], &mut out);
    other.start_migration(all());
    one.start_migration(all());
    migrate_out(&mut one).into_iter().for_each(|flow| other.migrate_in(flow, &mut out));
    assert_eq!((migrate_out(&mut other).len(), other.open_records()), (2, RecordTotals::default()));
}

#[test]
fn flow_without_full_counters_ends_with_a_complete_record() {
    let jumbogram = |time_ns, host| Packet { ip_bytes: 70_000, frame_bytes: 70_014, ..udp(time_ns, host) };
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config()).unwrap()), Vec::new());
    other.process(&(0..4096).map(|host| jumbogram(0, 100 + host)).collect::<Vec<_>>(), &mut out);
    let tagged = Packet { vlan: 7, interface: 3, ..jumbogram(1, 1) };
    one.process(&[udp(0, 2), tagged, jumbogram(2, 1)], &mut out);
    let full = other.open_records();
    one.start_migration(all());
    migrate_out(&mut one).into_iter().for_each(|flow| other.migrate_in(flow, &mut out));
    assert_eq!((other.open_records().flows, out.len()), (full.flows + 1, 1));
    let ended = &out[0];
    assert_eq!(
        (ended.end_reason, ended.forward.packets, ended.forward.bytes),
        (EndReason::LackOfResources, 2, 140_000)
    );
    assert_eq!((ended.interface, ended.forward.vlan, ended.forward.ttl_min), (3, 7, 64));
    // The meter it left has its full counters free again.
    one.process(&(0..4096).map(|host| jumbogram(3, 100 + host)).collect::<Vec<_>>(), &mut out);
    assert_eq!((one.open_records().flows, out.len()), (4096, 1));
}

#[test]
fn fragment_that_was_looked_up_is_not_looked_up_again() {
    let (mut meter, mut out) = (Meter::new(config()).unwrap(), Vec::new());
    let fragment = |flags| Packet { flags: Flags(flags), identification: 5, ..udp(0, 1) };
    let later = |flags| Packet { source_port: 0, destination_port: 0, ..fragment(flags) };
    // The partitioner has looked up the last one and did not find it.
    meter.process(&[fragment(Flags::FRAGMENT_FIRST), later(Flags::FRAGMENT_LATER)], &mut out);
    meter.process(&[later(Flags::FRAGMENT_LATER | Flags::LOOKED_UP)], &mut out);
    // A first fragment that the partitioner remembers is not remembered here.
    meter.process(&[Packet { identification: 6, ..fragment(Flags::FRAGMENT_FIRST | Flags::LOOKED_UP) }], &mut out);
    meter.process(&[Packet { identification: 6, ..later(Flags::FRAGMENT_LATER) }], &mut out);
    assert_eq!(
        (meter.counters().anomalies.get(PacketAnomaly::FragmentUnattributed), meter.open_records().flows),
        (2, 2)
    );
    meter.drain(&mut out);
    let mut found: Vec<_> = out.iter().map(|flow| (flow.source_port, flow.packets(), flow.approximate.0)).collect();
    found.sort_unstable();
    assert_eq!(found, [(0, 2, Approximate::FRAGMENTS), (4000, 3, 0)]);
}

/// A segment of a connection, 100 octets each.
fn segment(time_ns: u64, number: u32) -> Packet {
    Packet {
        protocol: 6,
        control: 0x10,
        sequence: 100 * number,
        ip_bytes: 140,
        frame_bytes: 154,
        flags: Flags(Flags::PORTS | Flags::TCP),
        ..udp(time_ns, 7)
    }
}

#[test]
fn connection_that_was_not_analysed_stays_so_until_its_record_ends() {
    let marked = |flow: &FlowRecord| (flow.tcp.is_some(), flow.approximate.has(Approximate::UNANALYSED));
    for analysed in [true, false] {
        let [mut one, mut other] = [(); 2].map(|()| Meter::new(config()).unwrap());
        let mut out = Vec::new();
        one.set_detail(Detail { tcp_analysis: analysed, ..Detail::ALL });
        one.process(&[segment(0, 1), segment(S, 2)], &mut out);
        one.set_detail(Detail::ALL);
        migrate_all(&mut one, &mut other, &mut out);
        (2..62).for_each(|at| other.process(&[segment(at * S, 1 + at as u32)], &mut out));
        assert_eq!(out.len(), 1, "the active timeout");
        assert_eq!(marked(&out[0]), (analysed, !analysed));
        other.drain(&mut out);
        assert_eq!(marked(&out[1]), (true, false), "its next record is analysed");
        // It leaves nothing behind for the next flow in its slot.
        one.process(&[segment(3 * S, 9)], &mut out);
        one.drain(&mut out);
        assert_eq!(marked(&out[2]), (true, false));
    }
}
