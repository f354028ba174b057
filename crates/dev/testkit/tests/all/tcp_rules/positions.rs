//! Where positions start, restart and end: SYN, jumps, segments out of window.

use super::*;

#[test]
fn syn_with_payload_of_a_window_is_out_of_window() {
    let mut checked = CheckedConnection::established();
    for number in [0, 7] {
        assert_eq!(checked.enter(0, segment(10 * MS, number, 1 << 30, SYN)), OutOfWindow);
    }
    assert_eq!(checked.enter(0, data(11 * MS, 1, 10)), InOrder);
    assert_eq!((checked.report(0).count(OutOfWindow).bytes, checked.report(0).unique_bytes), (2 << 30, 10));
}

#[test]
fn distance_of_a_window_is_out_of_window() {
    let class_of = |sequence: u32, payload: u32| {
        let mut checked = CheckedConnection::new();
        checked.enter(0, data(0, 0, 100));
        checked.enter(0, data(MS, sequence, payload))
    };
    assert_eq!(class_of(100 + MAX_WINDOW - 11, 10), InOrder);
    assert_eq!(class_of(100 + MAX_WINDOW - 10, 10), OutOfWindow);
    assert_eq!(class_of(100_u32.wrapping_sub(MAX_WINDOW - 1), 10), OutOfOrder);
    assert_eq!(class_of(100_u32.wrapping_sub(MAX_WINDOW), 10), OutOfWindow);
    assert_eq!(class_of(100_u32.wrapping_add(1 << 31), 10), OutOfWindow);
    assert_eq!(class_of(0, MAX_WINDOW), Retransmission, "moves by less");
    let mut checked = CheckedConnection::new();
    assert_eq!(checked.enter(0, data(0, 0, MAX_WINDOW)), OutOfWindow);
    assert_eq!(checked.enter(0, data(MS, 0, MAX_WINDOW - 1)), InOrder);
}

#[test]
fn data_before_the_syn_is_out_of_window() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 1, 10));
    assert_eq!(checked.enter(0, data(11 * MS, 0, 5)), OutOfWindow);
    assert_eq!(checked.enter(0, data(12 * MS, 1, 5)), Retransmission);
}

/// From a real capture: the first payload again, starting at the number of the SYN.
#[test]
fn segment_from_before_the_syn_into_the_stream_keeps_the_positions() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 1, 6));
    for number in 0..3 {
        assert_eq!(checked.enter(0, data((11 + number) * MS, 0, 6)), OutOfWindow);
    }
    assert_eq!(checked.enter(0, data(15 * MS, 7, 6)), InOrder);
    // Segments entirely before the SYN do restart the positions.
    assert_eq!(checked.enter(0, data(16 * MS, 1_u32.wrapping_sub(6), 6)), OutOfWindow);
    assert_eq!(checked.degraded(0), Vec::<&str>::new());
    assert_eq!(checked.enter(0, data(17 * MS, 1_u32.wrapping_sub(6), 6)), InOrder);
    assert_eq!(checked.degraded(0), ["jump"]);
}

#[test]
fn two_agreeing_segments_out_of_window_restart_the_positions() {
    for (second, class) in [
        (3_000_000_000 + MAX_WINDOW - 1, InOrder),
        (3_000_000_000 + MAX_WINDOW, OutOfWindow),
        (3_000_000_000 - MAX_WINDOW + 1, InOrder),
    ] {
        let mut checked = CheckedConnection::established();
        checked.enter(0, data(10 * MS, 1, 10));
        checked.enter(0, data(11 * MS, 21, 10));
        assert_eq!(checked.enter(0, data(12 * MS, 3_000_000_000, 10)), OutOfWindow);
        // An acknowledgment in between does not matter.
        checked.enter(0, acknowledgment(13 * MS, 31, 1001));
        assert_eq!(checked.enter(0, data(14 * MS, second, 10)), class, "{second}");
        let jumped = class == InOrder;
        assert_eq!(checked.degraded(0), if jumped { vec!["jump"] } else { vec![] });
        // The octets of the hole still count as missing.
        assert_eq!(checked.report(0).missing_bytes, 10);
        if jumped {
            assert_eq!(checked.enter(0, data(15 * MS, second, 10)), Retransmission);
            // Without a known SYN there is no size.
            checked.enter(0, segment(16 * MS, second.wrapping_add(10), 0, FIN));
            assert_eq!(checked.report(0).size_by_sequence_bytes, None);
        }
    }
}

#[test]
fn segment_in_window_between_two_out_of_window_keeps_the_positions() {
    let mut checked = CheckedConnection::established();
    for (number, sequence) in [3_000_000_000, 1, 3_000_000_000, 11].into_iter().enumerate() {
        let class = checked.enter(0, data((10 + number as u64) * MS, sequence, 10));
        assert_eq!(class, if sequence > 11 { OutOfWindow } else { InOrder });
    }
    assert_eq!(checked.degraded(0), Vec::<&str>::new());
    // A zero-window probe also counts as in window. The stray segment is remembered across records.
    checked.enter(0, data(20 * MS, 3_000_000_000, 10));
    checked.start_next_record();
    checked.enter(1, Packet { window: 0, ..acknowledgment(21 * MS, 1001, 21) });
    assert_eq!(checked.enter(0, data(22 * MS, 21, 1)), ZeroWindowProbe);
    assert_eq!(checked.enter(0, data(23 * MS, 3_000_000_000, 10)), OutOfWindow);
    checked.start_next_record();
    assert_eq!(checked.enter(0, data(24 * MS, 2_000_000_010, 10)), InOrder);
    assert_eq!(checked.degraded(0), ["jump"]);
}

#[test]
fn positions_below_a_mid_stream_start_are_unknown() {
    let mut checked = CheckedConnection::new();
    checked.enter(0, data(10 * MS, 1000, 10));
    assert_eq!(checked.enter(0, data(13 * MS, 900, 10)), OutOfOrder);
    assert_eq!(checked.report(0).missing_bytes, 90);
    assert_eq!(checked.enter(0, data(14 * MS, 950, 10)), UnseenRetransmission);
    assert_eq!(checked.enter(0, data(15 * MS, 990, 10)), UnseenRetransmission);
    assert_eq!(checked.enter(0, data(16 * MS, 890, 120)), Retransmission);
    let report = checked.report(0);
    assert_eq!((report.missing_bytes, report.largest_hole_bytes, report.unique_bytes), (0, 0, 120));
    assert_eq!((report.retransmitted_bytes, report.partial_retransmissions), (40, 1));
}

#[test]
fn syn_with_another_number_restarts_the_positions() {
    for ends in [None, Some((0, FIN)), Some((1, FIN)), Some((0, RST)), Some((1, RST))] {
        let mut checked = CheckedConnection::established();
        checked.enter(0, data(10 * MS, 11, 10));
        if let Some((side, control)) = ends {
            checked.enter(side, segment(11 * MS, if side == 0 { 21 } else { 1001 }, 0, control));
        }
        assert_eq!(checked.enter(0, segment(12 * MS, 5000, 0, SYN)), Syn);
        assert_eq!(checked.degraded(0), if ends.is_none() { vec!["reused"] } else { vec![] }, "{ends:?}");
        assert_eq!(checked.enter(0, data(13 * MS, 5001, 10)), InOrder);
        let report = checked.report(0);
        assert_eq!((report.missing_bytes, report.largest_hole_bytes, report.syns()), (10, 10, 2));
        checked.enter(0, segment(14 * MS, 5011, 0, FIN));
        assert_eq!((checked.report(0).size_by_sequence_bytes, checked.report(0).duration_by_sequence_ns), (None, None));
    }
}

#[test]
fn overtaken_syn_extends_the_positions_downward() {
    let mut checked = CheckedConnection::new();
    checked.enter(0, data(10 * MS, 101, 10));
    assert_eq!(checked.enter(0, segment(11 * MS, 50, 0, SYN)), Syn);
    assert_eq!((checked.report(0).missing_bytes, checked.degraded(0)), (50, vec![]));
    assert_eq!(checked.enter(0, data(13 * MS, 51, 20)), OutOfOrder);
    assert_eq!(checked.enter(0, data(14 * MS, 71, 30)), UnseenRetransmission);
    checked.enter(0, segment(15 * MS, 111, 0, FIN));
    let report = checked.report(0);
    assert_eq!((report.size_by_sequence_bytes, report.duration_by_sequence_ns), (Some(60), Some(4 * MS)));
    assert_eq!((report.missing_bytes, report.largest_hole_bytes), (0, 0));

    // The limits: the SYN is right below the lowest position, or less than 2^30 below it.
    for (sequence, overtaken) in
        [(100, true), (101, false), (100 - MAX_WINDOW as i64, false), (101 - MAX_WINDOW as i64, true)]
    {
        let mut checked = CheckedConnection::new();
        checked.enter(0, data(10 * MS, 101, 10));
        checked.enter(0, segment(11 * MS, sequence as u32, 0, SYN));
        assert_eq!(checked.degraded(0).is_empty(), overtaken, "{sequence}");
    }
}

#[test]
fn syn_may_carry_payload_and_fin() {
    let mut checked = CheckedConnection::new();
    assert_eq!(checked.enter(0, segment(0, 0, 7, SYN)), Syn);
    assert_eq!(checked.enter(0, segment(MS, 0, 9, SYN)), SynRetransmission);
    assert_eq!(checked.enter(0, data(2 * MS, 5, 10)), Retransmission);
    let report = checked.report(0);
    assert_eq!((report.unique_bytes, report.retransmitted_bytes, report.partial_retransmissions), (14, 12, 1));
    assert_eq!((report.count(Syn).bytes, report.count(SynRetransmission).bytes), (7, 9));
    let mut checked = CheckedConnection::new();
    checked.enter(0, segment(0, 0, 7, SYN | FIN));
    assert_eq!((checked.report(0).fins, checked.report(0).size_by_sequence_bytes), (1, Some(7)));
}

#[test]
fn connection_may_exceed_32_bit_sequence_numbers() {
    let (payload, segments) = (64_000_u32, 140_000_u32);
    let mut checked = CheckedConnection::new();
    checked.enter(0, segment(0, u32::MAX - 5, 0, SYN));
    checked.enter(1, Packet { acknowledgment: u32::MAX - 4, ..segment(MS, 0, 0, SYN | ACK) });
    let mut sequence = u32::MAX - 4;
    for number in 0..segments {
        let time_ns = u64::from(number) * 1000 + 2 * MS;
        let packet = Packet { acknowledgment: 1, ..segment(time_ns, sequence, payload, ACK) };
        checked.reference.enter(0, &packet);
        if !checked.connection.classify_fast(0, &packet, &checked.pool, MeasuredTimes::enter) {
            checked.connection.classify(0, &packet, &mut checked.pool);
        }
        checked.packets[0] += 1;
        sequence = sequence.wrapping_add(payload);
    }
    checked.enter(0, segment(1_000_000 * MS, sequence, 0, FIN | ACK));
    let octets = u64::from(payload) * u64::from(segments);
    assert!(octets > 2 << 32);
    let report = checked.report(0);
    assert_eq!((report.size_by_sequence_bytes, report.unique_bytes), (Some(octets), octets));
    assert_eq!(report.count(InOrder).segments, u64::from(segments) + 1);
}
