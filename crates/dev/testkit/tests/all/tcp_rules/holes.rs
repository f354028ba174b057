//! Holes, and the retransmissions that fill them.

use super::*;

#[test]
fn hole_is_filled_out_of_order_within_the_limit() {
    let class_of = |mut checked: CheckedConnection, age_ns| {
        checked.enter(0, data(10 * MS, 1, 10));
        checked.enter(0, data(20 * MS, 21, 10));
        assert_eq!((checked.report(0).missing_bytes, checked.report(0).largest_hole_bytes), (10, 10));
        let class = checked.enter(0, data(20 * MS + age_ns, 15, 3));
        assert_eq!(checked.report(0).missing_bytes, 7);
        checked.enter(0, data(40 * MS, 11, 4));
        checked.enter(0, data(41 * MS, 18, 3));
        assert_eq!(checked.report(0).missing_bytes, 0);
        class
    };
    assert_eq!(class_of(CheckedConnection::new(), 3 * MS), OutOfOrder);
    assert_eq!(class_of(CheckedConnection::new(), 3 * MS + 1), UnseenRetransmission);
    assert_eq!(class_of(CheckedConnection::established(), 6 * MS), OutOfOrder);
    assert_eq!(class_of(CheckedConnection::established(), 6 * MS + 1), UnseenRetransmission);
}

/// Fills a hole `age_ns` after it opened. The segments before it, behind it and in it have these
/// identifications. The round trip of the handshake is 6 ms.
fn class_by_identifications([before, opening, filling]: [u16; 3], age_ns: u64) -> SegmentClass {
    let mut checked = CheckedConnection::established();
    let with = |packet, identification: u16| Packet { identification: identification.into(), ..packet };
    checked.enter(0, with(data(10 * MS, 1, 10), before));
    checked.enter(0, with(data(20 * MS, 21, 10), opening));
    checked.enter(0, with(data(20 * MS + 1, 31, 10), opening.wrapping_add(1)));
    checked.enter(0, with(data(20 * MS + age_ns, 11, 10), filling))
}

#[test]
fn newer_identification_is_that_of_an_unseen_retransmission() {
    for (identifications, expected) in [
        // The next two octets of the counter, and across its end.
        ([40_000, 40_002, 40_004], UnseenRetransmission),
        ([65_533, 65_535, 1], UnseenRetransmission),
        ([65_534, 1, 3], UnseenRetransmission),
        ([40_000, 40_002, 40_002 + 8192], UnseenRetransmission),
        // Overtaken: the identification is older.
        ([40_000, 40_002, 40_001], OutOfOrder),
        ([65_534, 1, 65_535], OutOfOrder),
    ] {
        for age_ns in [1000, MS, 6 * MS, 6 * MS + 1, 50 * MS] {
            assert_eq!(class_by_identifications(identifications, age_ns), expected, "{identifications:?} {age_ns}");
        }
    }
}

#[test]
fn identification_that_does_not_count_leaves_the_decision_to_the_time() {
    for identifications in [
        // None, and always the same one.
        [0, 0, 0],
        [40_000, 0, 40_004],
        [40_000, 40_002, 0],
        [40_000, 40_000, 40_000],
        // Too far ahead of the segment before, or behind it: the sender draws them by lot.
        [40_000, 41_025, 41_026],
        [40_000, 39_999, 40_001],
        [40_000, 100, 102],
        // Too far from the segment that opened the hole.
        [40_000, 40_002, 48_195],
        [40_000, 40_002, 38_977],
        [40_000, 40_002, 40_002],
    ] {
        for (age_ns, expected) in [(MS, OutOfOrder), (6 * MS, OutOfOrder), (6 * MS + 1, UnseenRetransmission)] {
            assert_eq!(class_by_identifications(identifications, age_ns), expected, "{identifications:?} {age_ns}");
        }
    }
    // Over IPv6 there is none.
    let mut checked = CheckedConnection::established();
    let with = |packet, identification| Packet { network: Network::Ipv6, identification, ..packet };
    checked.enter(0, with(data(10 * MS, 1, 10), 40_000));
    checked.enter(0, with(data(20 * MS, 21, 10), 40_002));
    assert_eq!(checked.enter(0, with(data(21 * MS, 11, 10), 40_004)), OutOfOrder);
}

#[test]
fn older_identification_counts_for_200_ms() {
    assert_eq!(class_by_identifications([40_000, 40_002, 40_001], 200 * MS), OutOfOrder);
    assert_eq!(class_by_identifications([40_000, 40_002, 40_001], 200 * MS + 1), UnseenRetransmission);
}

#[test]
fn first_hole_after_the_handshake_is_decided_by_identification_too() {
    // The identification of a SYN with ACK of Linux is 0; the first payload has any.
    let with = |packet, identification| Packet { identification, ..packet };
    let mut checked = CheckedConnection::new();
    checked.enter(0, with(segment(0, 0, 0, SYN), 500));
    checked.enter(1, Packet { acknowledgment: 1, identification: 0, ..segment(4 * MS, 1000, 0, SYN | ACK) });
    checked.enter(0, with(acknowledgment(6 * MS, 1, 1001), 501));
    checked.enter(1, with(data(20 * MS, 1011, 10), 40_002));
    assert_eq!(checked.enter(1, with(data(25 * MS, 1001, 10), 40_003)), UnseenRetransmission);
    checked.enter(0, with(data(30 * MS, 11, 10), 503));
    assert_eq!(checked.enter(0, with(data(35 * MS, 1, 10), 504)), UnseenRetransmission);
    // The parts of a hole that is split have the identification of the whole.
    checked.enter(0, with(data(40 * MS, 51, 10), 508));
    assert_eq!(checked.enter(0, with(data(41 * MS, 31, 10), 506)), OutOfOrder);
    assert_eq!(checked.enter(0, with(data(42 * MS, 41, 10), 509)), UnseenRetransmission);
    assert_eq!(checked.enter(0, with(data(43 * MS, 21, 10), 505)), OutOfOrder);
}

#[test]
fn retransmission_may_be_partial_or_spurious() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 1, 10));
    checked.enter(0, data(11 * MS, 11, 10));
    checked.enter(1, acknowledgment(12 * MS, 1001, 15));
    // Re-segmented, acknowledged and not; joined with new octets.
    assert_eq!(checked.enter(0, data(13 * MS, 5, 10)), Retransmission);
    assert_eq!((checked.report(0).spurious_retransmissions, checked.report(0).partial_retransmissions), (1, 0));
    assert_eq!(checked.enter(0, data(14 * MS, 5, 11)), Retransmission);
    assert_eq!(checked.enter(0, data(15 * MS, 20, 2)), Retransmission);
    assert_eq!((checked.report(0).spurious_retransmissions, checked.report(0).partial_retransmissions), (1, 1));
    // The position of a FIN counts as seen, even when payload covers it.
    assert_eq!(checked.enter(0, segment(16 * MS, 22, 0, FIN)), InOrder);
    assert_eq!(checked.enter(0, segment(17 * MS, 22, 0, FIN)), Retransmission);
    assert_eq!(checked.enter(0, data(18 * MS, 22, 2)), Retransmission);
    let report = checked.report(0);
    assert_eq!((report.partial_retransmissions, report.fins, report.size_by_sequence_bytes), (2, 2, Some(21)));
    assert_eq!((report.unique_bytes, report.retransmitted_bytes), (22, 23));
}

/// Enters single octets with a hole after each.
fn enter_with_holes(checked: &mut CheckedConnection, holes: u32) {
    for number in 0..=holes {
        assert_eq!(checked.enter(0, data(u64::from(number) * MS + 100 * MS, 1 + 2 * number, 1)), InOrder);
    }
}

#[test]
fn lowest_of_more_than_32_holes_is_settled() {
    let holes = MAX_HOLES as u32;
    for acknowledged in [2, 3] {
        let mut checked = CheckedConnection::established();
        checked.enter(1, acknowledgment(10 * MS, 1001, acknowledged));
        enter_with_holes(&mut checked, holes);
        assert_eq!((checked.report(0).missing_bytes, checked.report(0).degradation), (32, Degradation(0)));
        assert_eq!(checked.enter(0, data(200 * MS, 2 * holes + 3, 1)), InOrder);
        assert_eq!(checked.degraded(0), ["holes"]);
        assert_eq!(checked.report(0).missing_bytes, 33);
        // The lowest hole counts as seen; the others stay.
        assert_eq!(checked.enter(0, data(201 * MS, 2, 1)), Retransmission);
        assert_eq!(checked.enter(0, data(202 * MS, 4, 1)), UnseenRetransmission);
        assert_eq!(checked.report(0).missing_bytes, 32);
        checked.start_next_record();
        assert_eq!((checked.report(0).missing_bytes, checked.report(0).degradation), (31, Degradation(0)));
    }
    // The other side is silent: nothing was acknowledged.
    let mut checked = CheckedConnection::new();
    enter_with_holes(&mut checked, holes + 1);
    assert_eq!(checked.degraded(0), ["holes"]);
}

#[test]
fn segment_inside_a_hole_splits_it() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 101, 10));
    for number in 0..31 {
        checked.enter(0, data((11 + number) * MS, 90 - 2 * number as u32, 1));
    }
    assert_eq!((checked.report(0).missing_bytes, checked.report(0).degradation), (69, Degradation(0)));
    assert_eq!(checked.enter(0, data(60 * MS, 4, 1)), UnseenRetransmission);
    // The lowest hole, of three octets, is settled.
    assert_eq!((checked.report(0).missing_bytes, checked.degraded(0)), (68, vec!["holes"]));
    assert_eq!(checked.enter(0, data(61 * MS, 1, 1)), Retransmission);
}

#[test]
fn later_records_keep_the_mark_of_an_unrecorded_hole() {
    let mut full = AnomalyPool::new(0).unwrap();
    let mut pool = AnomalyPool::new(1).unwrap();
    let mut connection = Connection::NEW;
    connection.classify(0, &data(0, 1, 10), &mut full);
    connection.classify(0, &data(MS, 21, 10), &mut full);
    connection.start_next_record(&mut full);
    assert_eq!(connection.classify(0, &data(2 * MS, 11, 10), &mut pool), Retransmission, "because the hole is unknown");
    assert_eq!(connection.report(0, 1, &pool).degradation.names().collect::<Vec<_>>(), ["room"]);
}
