//! Duplicates, and the segments that are remembered as their originals.

use super::*;

#[test]
fn segment_equal_to_one_of_the_last_four_is_a_duplicate() {
    for between in 0..6 {
        let mut checked = CheckedConnection::established();
        let original = data(10 * MS, 1, 10);
        checked.enter(0, original);
        for number in 0..between {
            checked.enter(0, data(11 * MS + u64::from(number) * MS, 11 + 10 * number, 10));
        }
        let duplicate = Packet { time_ns: 20 * MS, ..original };
        assert_eq!(checked.enter(0, duplicate), if between < 4 { Duplicate } else { Retransmission });
        // At the fourth place, older duplicates may have been missed.
        let marked: &[&str] = if between == 3 { &["duplicates"] } else { &[] };
        assert_eq!(checked.degraded(0), marked, "{between} between");
        assert_eq!(checked.report(0).retransmitted_bytes, if between < 4 { 0 } else { 10 });
    }
}

/// A connection with a duplicate on side 0.
fn with_duplicate() -> CheckedConnection {
    let mut checked = CheckedConnection::established();
    let original = data(10 * MS, 1, 10);
    assert_eq!(checked.enter(0, original), InOrder);
    assert_eq!(checked.enter(0, Packet { time_ns: 11 * MS, ..original }), Duplicate);
    checked
}

/// Enters a number of segments in order.
fn enter_in_order(checked: &mut CheckedConnection, from_ns: u64, from: u32, segments: u32) {
    for number in 0..segments {
        let packet = data(from_ns + u64::from(number) * 10_000, from + 10 * number, 10);
        assert_eq!(checked.enter(0, packet), InOrder, "{number}");
    }
}

#[test]
fn after_the_first_duplicate_64_segments_are_remembered() {
    for between in 0..80 {
        for ttl in [64, 63] {
            let mut checked = with_duplicate();
            let original = data(12 * MS, 11, 10);
            checked.enter(0, original);
            enter_in_order(&mut checked, 13 * MS, 21, between);
            let class = match (between < 64, ttl) {
                (true, 64) => Duplicate,
                (true, _) => RoutedDuplicate,
                _ => Retransmission,
            };
            assert_eq!(checked.enter(0, Packet { time_ns: 20 * MS, ttl, ..original }), class, "{between} between");
            // In the older half, older duplicates may have been missed; the fourth place no longer
            // counts.
            let marked: &[&str] = if (32..64).contains(&between) { &["duplicates"] } else { &[] };
            assert_eq!(checked.degraded(0), marked, "{between} between");
        }
    }
}

#[test]
fn deep_history_keeps_the_segments_remembered_before() {
    for before in 1..7 {
        let mut checked = CheckedConnection::established();
        enter_in_order(&mut checked, 10 * MS, 1, before);
        let duplicate_of = |number: u32, time_ns: u64| Packet {
            time_ns,
            ..data(10 * MS + u64::from(number) * 10_000, 1 + 10 * number, 10)
        };
        assert_eq!(checked.enter(0, duplicate_of(before - 1, 12 * MS)), Duplicate);
        enter_in_order(&mut checked, 13 * MS, 1 + 10 * before, 30);
        for number in 0..before {
            let class = if number + 4 < before { Retransmission } else { Duplicate };
            assert_eq!(checked.enter(0, duplicate_of(number, 15 * MS)), class, "{number} of {before}");
        }
    }
}

#[test]
fn latest_of_several_equal_segments_is_the_original() {
    let mut checked = with_duplicate();
    // Too far from the first to be its duplicate, and with another TTL.
    let original = data(12 * MS, 11, 10);
    checked.enter(0, original);
    enter_in_order(&mut checked, 13 * MS, 21, 20);
    let again = Packet { time_ns: 12 * MS + 60 * TICK, ttl: 60, ..original };
    assert_eq!(checked.enter(0, again), Retransmission);
    assert_eq!(checked.enter(0, Packet { time_ns: 12 * MS + 40 * TICK, ..again }), Duplicate);
    assert_eq!(
        checked.enter(0, Packet { time_ns: 12 * MS + 5 * TICK, ..original }),
        Duplicate,
        "the other original is too far away"
    );
}

#[test]
fn deep_history_is_per_side() {
    let mut checked = with_duplicate();
    let original = data(12 * MS, 1001, 10);
    checked.enter(1, original);
    for number in 0..4 {
        checked.enter(1, data(13 * MS + number * MS, 1011 + 10 * number as u32, 10));
    }
    assert_eq!(checked.enter(1, Packet { time_ns: 20 * MS, ..original }), Retransmission);
}

#[test]
fn deep_history_continues_in_later_records() {
    let mut checked = with_duplicate();
    let original = data(12 * MS, 11, 10);
    checked.enter(0, original);
    enter_in_order(&mut checked, 13 * MS, 21, 20);
    checked.start_next_record();
    assert_eq!((checked.pool.used(), checked.report(0).has_anomalies()), (1, false));
    enter_in_order(&mut checked, 14 * MS, 221, 20);
    assert_eq!(checked.enter(0, Packet { time_ns: 20 * MS, ..original }), Duplicate);
    assert_eq!(checked.report(0).count(Duplicate).segments, 1);
    checked.connection.reset(&mut checked.pool);
    assert_eq!(checked.pool.used(), 0);
}

#[test]
fn clearing_a_deep_history_keeps_it_deep() {
    let jump = [(data(15 * MS, 0x8000_0000, 10), OutOfWindow), (data(16 * MS, 0x8000_000a, 10), InOrder)];
    let all = [
        ("nothing", vec![], 41),
        ("acknowledgment jump", vec![(acknowledgment(16 * MS, 11, 1001 + (1 << 28)), Acknowledgment)], 41),
        ("syn", vec![(segment(16 * MS, 0x1000_0000, 0, SYN), Syn)], 0x1000_0001),
        ("jump", jump.to_vec(), 0x8000_0014),
    ];
    for (name, clearing, next) in all {
        let mut checked = with_duplicate();
        let original = Packet { acknowledgment: 1001, ..segment(12 * MS, 11, 10, ACK) };
        assert_eq!(checked.enter(0, original), InOrder);
        enter_in_order(&mut checked, 13 * MS, 21, 2);
        for (packet, class) in clearing {
            assert_eq!(checked.enter(0, packet), class, "{name}");
        }
        // The original is gone.
        let class = checked.enter(0, Packet { time_ns: 17 * MS, ..original });
        assert_eq!(class == Duplicate, name == "nothing", "{name}: {class:?}");
        let original = data(18 * MS, next, 10);
        assert_eq!(checked.enter(0, original), InOrder, "{name}");
        enter_in_order(&mut checked, 19 * MS, next + 10, 40);
        assert_eq!(checked.enter(0, Packet { time_ns: 22 * MS, ..original }), Duplicate, "{name}");
    }
}

#[test]
fn full_pool_keeps_four_segments_and_marks_the_report() {
    let mut full = AnomalyPool::new(0).unwrap();
    let mut connection = Connection::NEW;
    let mut packets = 0;
    let mut enter = |connection: &mut Connection, packet: Packet| {
        packets += 1;
        (connection.classify(0, &packet, &mut full), connection.report(0, packets, &full).degradation)
    };
    let pool_full = Degradation(Degradation::POOL_FULL);
    for number in 0..10 {
        let first = data(10 * MS + number * MS, 1 + 10 * number as u32, 10);
        let degraded = if number == 0 { Degradation(0) } else { pool_full };
        assert_eq!(enter(&mut connection, first), (InOrder, degraded));
        assert_eq!(enter(&mut connection, Packet { ttl: 63, ..first }), (RoutedDuplicate, pool_full));
    }
    let (fourth, fifth) = (data(16 * MS, 61, 10), data(15 * MS, 51, 10));
    assert_eq!(enter(&mut connection, fourth).0, Duplicate);
    assert_eq!(enter(&mut connection, fifth).0, Retransmission);
    assert_eq!([0, 1].map(|side| connection.entry_index(side)), [None, None]);
    // With a pool entry the history becomes deep.
    let mut some = AnomalyPool::new(1).unwrap();
    let original = data(20 * MS, 101, 10);
    connection.classify(0, &original, &mut some);
    connection.classify(0, &original, &mut some);
    for number in 0..10 {
        connection.classify(0, &data(21 * MS + number * MS, 111 + 10 * number as u32, 10), &mut some);
    }
    assert_eq!(connection.classify(0, &Packet { time_ns: 40 * MS, ..original }, &mut some), Duplicate);
}

#[test]
fn reused_pool_entry_has_no_history_of_another_direction() {
    let mut checked = with_duplicate();
    let original = data(12 * MS, 11, 10);
    checked.enter(0, original);
    enter_in_order(&mut checked, 13 * MS, 21, 2);
    checked.connection.reset(&mut checked.pool);
    (checked.reference, checked.packets) = (TcpReference::default(), [0; 2]);
    // The same segments again, without the original: its old history entry must not count.
    let first = data(10 * MS, 1, 10);
    checked.enter(0, first);
    assert_eq!(checked.enter(0, Packet { time_ns: 11 * MS, ..first }), Duplicate);
    enter_in_order(&mut checked, 13 * MS, 21, 2);
    assert_ne!(checked.enter(0, Packet { time_ns: 20 * MS, ..original }), Duplicate);
}

#[test]
fn duplicate_may_differ_only_in_ttl() {
    let original = Packet { acknowledgment: 1001, ..segment(10 * MS, 1, 10, ACK) };
    let later = Packet { time_ns: 11 * MS, ..original };
    let class_of = |packet: Packet| {
        let mut checked = CheckedConnection::established();
        checked.enter(0, original);
        checked.enter(0, packet)
    };
    assert_eq!(class_of(later), Duplicate);
    assert_eq!(class_of(Packet { ttl: 63, ..later }), RoutedDuplicate);
    let others = [
        Packet { acknowledgment: 1000, ..later },
        Packet { payload_bytes: 9, ..later },
        Packet { control: ACK | 8, ..later },
        Packet { window: 501, ..later },
        Packet { icmp_or_checksum: [1, 0], ..later },
        Packet { identification: 7, ..later },
    ];
    for other in others {
        assert_eq!(class_of(other), Retransmission, "{other:?}");
    }
}

#[test]
fn duplicate_is_near_in_time() {
    let class_of = |original: Packet, ticks: u64| {
        let mut checked = CheckedConnection::new();
        let begin_ns = 5 * TICK;
        assert!(!matches!(checked.enter(0, Packet { time_ns: begin_ns, ..original }), Duplicate));
        let [earlier, later] = [begin_ns - 3 * TICK, begin_ns + 3 * TICK]
            .map(|time_ns| checked.reference.clone().enter(0, &Packet { time_ns, ..original }));
        assert_eq!(earlier, later, "the order does not matter");
        checked.enter(0, Packet { time_ns: begin_ns + ticks * TICK, ..original })
    };
    let identified = data(0, 1, 10);
    let without = Packet { identification: 0, ..identified };
    let of_ipv6 = Packet { network: Network::Ipv6, ..identified };
    assert_eq!(class_of(identified, 48), Duplicate);
    assert_eq!(class_of(identified, 49), Retransmission);
    for packet in [without, of_ipv6] {
        assert_eq!(class_of(packet, 1), Duplicate);
        assert_eq!(class_of(packet, 2), Retransmission);
        // Ticks wrap after 2^24.
        assert_eq!(class_of(packet, (1 << 24) - 1), Duplicate);
        assert_eq!(class_of(packet, (1 << 24) - 2), Retransmission);
    }
    // Pure acknowledgments and RST without identification are never duplicates.
    for control in [ACK, RST, RST | FIN] {
        let bare = Packet { control, payload_bytes: 0, ..without };
        assert_ne!(class_of(bare, 0), Duplicate, "{control}");
        assert_eq!(class_of(Packet { identification: 9, ..bare }, 0), Duplicate, "{control}");
    }
    for control in [SYN, FIN, SYN | ACK] {
        assert_eq!(class_of(Packet { control, payload_bytes: 0, ..without }, 0), Duplicate, "{control}");
    }
}

#[test]
fn duplicate_changes_no_state() {
    let mut checked = CheckedConnection::established();
    let closed = Packet { window: 0, ..acknowledgment(10 * MS, 1001, 1) };
    checked.enter(1, closed);
    checked.enter(1, acknowledgment(11 * MS, 1001, 1));
    assert_eq!(checked.enter(1, Packet { time_ns: 12 * MS, ..closed }), Duplicate);
    assert_eq!(checked.report(1).zero_windows, 1);
    // The window is still open.
    assert_eq!(checked.enter(0, data(13 * MS, 1, 1)), InOrder);
}

#[test]
fn syn_clears_the_history() {
    let mut checked = CheckedConnection::new();
    let early = acknowledgment(0, 1, 2000);
    checked.enter(0, early);
    assert_eq!(checked.enter(0, segment(MS, 0, 0, SYN)), Syn);
    checked.enter(0, acknowledgment(2 * MS, 1, 1990));
    assert_eq!(checked.enter(0, Packet { time_ns: 3 * MS, ..early }), Acknowledgment);
}

#[test]
fn segment_out_of_window_is_not_remembered() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 1, 10));
    let stray = data(11 * MS, 1 << 31, 10);
    assert_eq!(checked.enter(0, stray), OutOfWindow);
    checked.enter(0, data(12 * MS, 11, 10));
    assert_eq!(checked.enter(0, Packet { time_ns: 13 * MS, ..stray }), OutOfWindow);
}

#[test]
fn acknowledgment_jump_clears_the_history() {
    for (jump, class) in [((1 << 28) - 1, Duplicate), (1 << 28, Retransmission)] {
        let mut checked = CheckedConnection::established();
        let original = Packet { acknowledgment: 1001, ..segment(10 * MS, 1, 10, ACK) };
        checked.enter(0, original);
        checked.enter(0, acknowledgment(11 * MS, 11, 1001 + jump));
        assert_eq!(checked.enter(0, Packet { time_ns: 12 * MS, ..original }), class, "{jump}");
    }
}
