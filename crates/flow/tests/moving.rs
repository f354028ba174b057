//! Flows that move from one meter to another, one claim each. That all of it makes the records of one meter is shown in testkit.

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
    let mut parts = BucketSet::new();
    (0..BUCKETS as u16).for_each(|part| parts.insert(part));
    parts
}

fn released(meter: &mut Meter) -> Vec<MigratedFlow> {
    let mut moved = Vec::new();
    meter.migrate_out(|_, flow| moved.push(flow));
    moved
}

/// Moves all flows, and checks that nothing is left and nothing was added on the way.
fn move_all(from: &mut Meter, to: &mut Meter, out: &mut Vec<FlowRecord>) {
    let (before, there, created) = (from.live(), to.live(), to.counters().created);
    from.start_migration(all());
    released(from).into_iter().for_each(|flow| to.migrate_in(flow, out));
    let mut together = there;
    together.merge(before);
    assert_eq!((from.live(), to.live(), to.counters().created), (RecordTotals::default(), together, created));
}

#[test]
fn a_flow_can_be_sent_to_another_thread() {
    fn is_send<T: Send + std::fmt::Debug>() {}
    is_send::<MigratedFlow>();
}

#[test]
fn a_search_goes_on_beside_the_packets_a_few_places_at_a_time() {
    let (mut meter, mut out) = (Meter::new(config()), Vec::new());
    let packets: Vec<Packet> = (0..10_000).map(|host| udp(0, host)).collect();
    meter.process(&packets, &mut out);
    assert!(!meter.migration_ready(), "there is no search");
    meter.start_migration(all());
    let mut groups = 0;
    while !meter.migration_ready() {
        meter.process(&packets[..64], &mut out);
        groups += 1;
    }
    assert_eq!(groups, 10_000_usize.div_ceil(64));
    // Without packets it goes on, too.
    meter.start_migration(all());
    let mut waits = 0;
    while !meter.migration_ready() {
        meter.advance_time(S, &mut out);
        waits += 1;
    }
    assert!((2..=4).contains(&waits), "{waits}");
    assert_eq!(
        (released(&mut meter).len(), meter.live(), meter.migration_ready()),
        (10_000, RecordTotals::default(), false)
    );
    assert!(out.is_empty());
}

#[test]
fn what_opens_and_ends_during_a_search_is_known() {
    let (mut meter, mut out) = (Meter::new(config()), Vec::new());
    (0..100).for_each(|host| meter.process(&[udp(0, host)], &mut out));
    meter.start_migration(all());
    while !meter.migration_ready() {
        meter.advance_time(0, &mut out);
    }
    // Half of what was found goes on, the rest ends; some of the places are taken by others.
    (0..50).for_each(|host| meter.process(&[udp(5 * S, host)], &mut out));
    meter.process(&(200..230).map(|host| udp(10 * S, host)).collect::<Vec<_>>(), &mut out);
    assert_eq!((out.len(), meter.live().flows), (50, 80));
    assert!(meter.migration_ready(), "what opens is listed when it does");
    assert_eq!(released(&mut meter).len(), 80);
}

#[test]
fn only_what_is_sought_moves_and_a_search_that_is_given_up_moves_nothing() {
    let (mut meter, mut out) = (Meter::new(config()), Vec::new());
    meter.process(&(0..5000).map(|host| udp(0, host)).collect::<Vec<_>>(), &mut out);
    let mut some = BucketSet::new();
    (0..100).for_each(|part| some.insert(part));
    meter.start_migration(all());
    meter.advance_time(S, &mut out);
    meter.cancel_migration();
    assert!(released(&mut meter).is_empty());
    // Nothing is left of the search before.
    meter.start_migration(some);
    let mut flows = 0;
    meter.migrate_out(|part, _| {
        assert!(some.contains(part));
        flows += 1;
    });
    // By chance 977, and 28 is a deviation.
    assert!((800..1150).contains(&flows), "{flows}");
    assert_eq!(meter.live().flows, 5000 - flows);
}

#[test]
fn a_meter_that_has_seen_no_packet_takes_in_flows_and_ends_them_in_time() {
    for (time_ns, reason, records) in [(19 * S, EndReason::Forced, 1), (20 * S, EndReason::Idle, 2)] {
        let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config())), Vec::new());
        [0, 9, 10].into_iter().for_each(|second| one.process(&[udp(second * S, 1)], &mut out));
        move_all(&mut one, &mut other, &mut out);
        other.process(&[udp(time_ns, 1)], &mut out);
        other.drain(&mut out);
        assert_eq!((out.len(), out[0].end_reason), (records, reason));
        assert_eq!((out[0].start_ns(), out[0].packets()), (0, if records == 1 { 4 } else { 3 }));
    }
}

#[test]
fn a_flow_that_moved_ends_without_a_packet_of_its_own() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config())), Vec::new());
    one.process(&[udp(100 * S, 1)], &mut out);
    other.process(&[udp(40 * S, 2)], &mut out);
    move_all(&mut one, &mut other, &mut out);
    other.advance_time(110 * S - 1, &mut out);
    assert_eq!((out.len(), other.live().flows), (1, 1));
    other.advance_time(110 * S, &mut out);
    assert_eq!((out.len(), other.live().flows), (2, 0));
    // Of a meter that never had a packet, too.
    let mut third = Meter::new(config());
    one.process(&[udp(100 * S, 1)], &mut out);
    move_all(&mut one, &mut third, &mut out);
    third.advance_time(110 * S, &mut out);
    assert_eq!((out.len(), third.live().flows), (3, 0));
    // In a place that another flow has left, too.
    other.process(&[udp(120 * S, 1)], &mut out);
    move_all(&mut other, &mut one, &mut out);
    one.advance_time(130 * S, &mut out);
    assert_eq!((out.len(), one.live().flows), (4, 0));
}

#[test]
fn a_meter_that_is_behind_takes_in_a_flow_and_its_own_do_not_notice() {
    // Its first packet may be on its way still.
    for first in [true, false] {
        let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config())), Vec::new());
        one.process(&[udp(95 * S, 1), udp(100 * S, 1)], &mut out);
        if first {
            other.process(&[udp(80 * S, 2)], &mut out);
        }
        move_all(&mut one, &mut other, &mut out);
        for second in [80, 89, 98, 107] {
            other.process(&[udp(second * S, 2)], &mut out);
        }
        assert_eq!(out.len(), 0);
        other.process(&[udp(110 * S - 1, 1)], &mut out);
        // Its own active timeout is that of its first packet.
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
fn what_is_due_ends_where_it_came_to() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config())), Vec::new());
    // More than the hand can pass over with one packet.
    one.process(&(0..9000).map(|host| udp(0, host)).collect::<Vec<_>>(), &mut out);
    one.process(&[udp(10 * S, 10_000)], &mut out);
    let ended = out.len();
    assert!(ended <= 256);
    move_all(&mut one, &mut other, &mut out);
    (0..8).for_each(|_| other.advance_time(10 * S, &mut out));
    assert_eq!((out.len(), other.live().flows), (9000, 1));
    assert!(out.iter().all(|flow| flow.end_reason == EndReason::Idle));
}

#[test]
fn the_interface_of_a_record_is_that_of_the_meter_it_began_on() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config())), Vec::new());
    let on = |interface, packet| Packet { interface, ..packet };
    one.process(&[on(1, udp(0, 1))], &mut out);
    other.process(&[on(2, udp(0, 2))], &mut out);
    move_all(&mut one, &mut other, &mut out);
    other.process(&[on(1, udp(1, 1)), on(2, udp(1, 3))], &mut out);
    move_all(&mut other, &mut one, &mut out);
    one.drain(&mut out);
    let mut told: Vec<_> = out.iter().map(|flow| (flow.source[15], flow.interface, flow.approximate.0)).collect();
    told.sort_unstable();
    assert_eq!(told, [(1, 1, 0), (2, 2, 0), (3, 2, 0)]);
}

#[test]
fn a_search_sees_what_comes_from_another_meter_meanwhile() {
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config())), Vec::new());
    one.process(&[udp(0, 1)], &mut out);
    other.process(&[udp(0, 2)], &mut out);
    other.start_migration(all());
    one.start_migration(all());
    released(&mut one).into_iter().for_each(|flow| other.migrate_in(flow, &mut out));
    assert_eq!((released(&mut other).len(), other.live()), (2, RecordTotals::default()));
}

#[test]
fn what_has_no_room_beyond_the_ordinary_ends_with_all_that_was_known_of_it() {
    let giant = |time_ns, host| Packet { ip_bytes: 70_000, frame_bytes: 70_014, ..udp(time_ns, host) };
    let ([mut one, mut other], mut out) = ([(); 2].map(|()| Meter::new(config())), Vec::new());
    other.process(&(0..4096).map(|host| giant(0, 100 + host)).collect::<Vec<_>>(), &mut out);
    let tagged = Packet { vlan: 7, interface: 3, ..giant(1, 1) };
    one.process(&[udp(0, 2), tagged, giant(2, 1)], &mut out);
    let full = other.live();
    one.start_migration(all());
    released(&mut one).into_iter().for_each(|flow| other.migrate_in(flow, &mut out));
    assert_eq!((other.live().flows, out.len()), (full.flows + 1, 1));
    let ended = &out[0];
    assert_eq!(
        (ended.end_reason, ended.forward.packets, ended.forward.bytes),
        (EndReason::LackOfResources, 2, 140_000)
    );
    assert_eq!((ended.interface, ended.forward.vlan, ended.forward.ttl_min), (3, 7, 64));
    // The giver has room again.
    one.process(&(0..4096).map(|host| giant(3, 100 + host)).collect::<Vec<_>>(), &mut out);
    assert_eq!((one.live().flows, out.len()), (4096, 1));
}

#[test]
fn a_fragment_that_was_looked_up_is_not_looked_up_again() {
    let (mut meter, mut out) = (Meter::new(config()), Vec::new());
    let fragment = |flags| Packet { flags: Flags(flags), identification: 5, ..udp(0, 1) };
    let later = |flags| Packet { source_port: 0, destination_port: 0, ..fragment(flags) };
    // A first one of which the cache before the meter may no longer know: else it would be another part's.
    meter.process(&[fragment(Flags::FRAGMENT_FIRST), later(Flags::FRAGMENT_LATER)], &mut out);
    meter.process(&[later(Flags::FRAGMENT_LATER | Flags::LOOKED_UP)], &mut out);
    // One that was only remembered there is not remembered here.
    meter.process(&[Packet { identification: 6, ..fragment(Flags::FRAGMENT_FIRST | Flags::LOOKED_UP) }], &mut out);
    meter.process(&[Packet { identification: 6, ..later(Flags::FRAGMENT_LATER) }], &mut out);
    assert_eq!((meter.counters().anomalies.get(PacketAnomaly::FragmentUnattributed), meter.live().flows), (2, 2));
    meter.drain(&mut out);
    let mut told: Vec<_> = out.iter().map(|flow| (flow.source_port, flow.packets(), flow.approximate.0)).collect();
    told.sort_unstable();
    assert_eq!(told, [(0, 2, Approximate::FRAGMENTS), (4000, 3, 0)]);
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
fn a_connection_that_was_not_analysed_moves_as_such_until_its_record_ends() {
    let marked = |flow: &FlowRecord| (flow.tcp.is_some(), flow.approximate.has(Approximate::UNANALYSED));
    for seen_by_analysis in [true, false] {
        let [mut one, mut other] = [(); 2].map(|()| Meter::new(config()));
        let mut out = Vec::new();
        one.set_detail(Detail { tcp_analysis: seen_by_analysis, ..Detail::ALL });
        one.process(&[segment(0, 1), segment(S, 2)], &mut out);
        one.set_detail(Detail::ALL);
        move_all(&mut one, &mut other, &mut out);
        (2..62).for_each(|at| other.process(&[segment(at * S, 1 + at as u32)], &mut out));
        assert_eq!(out.len(), 1, "the active timeout");
        assert_eq!(marked(&out[0]), (seen_by_analysis, !seen_by_analysis));
        other.drain(&mut out);
        assert_eq!(marked(&out[1]), (true, false), "its next record is whole");
        // What was taken out left nothing behind for who comes next.
        one.process(&[segment(3 * S, 9)], &mut out);
        one.drain(&mut out);
        assert_eq!(marked(&out[2]), (true, false));
    }
}
