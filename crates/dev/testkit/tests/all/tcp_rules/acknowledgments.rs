//! Acknowledgments, keep-alives, zero-window probes.

use super::*;

#[test]
fn keep_alive_repeats_the_last_octet_or_none() {
    let mut checked = CheckedConnection::established();
    // After the handshake, the position before the first octet is that of the SYN.
    assert_eq!(checked.enter(0, acknowledgment(9 * MS, 0, 1001)), KeepAlive);
    checked.enter(0, data(10 * MS, 1, 10));
    assert_eq!(checked.enter(0, data(20 * MS, 10, 1)), KeepAlive);
    assert_eq!(checked.enter(0, data(21 * MS, 10, 0)), KeepAlive);
    assert_eq!(checked.enter(0, data(22 * MS, 9, 2)), Retransmission);
    assert_eq!(checked.enter(0, data(23 * MS, 9, 1)), Retransmission);
    assert_eq!(checked.enter(0, segment(24 * MS, 10, 1, FIN)), Retransmission);
    let report = checked.report(0);
    assert_eq!((report.retransmitted_bytes, report.count(KeepAlive).bytes, report.partial_retransmissions), (4, 1, 1));
}

#[test]
fn one_octet_into_a_closed_window_is_a_zero_window_probe() {
    let mut checked = CheckedConnection::established();
    assert_eq!(checked.enter(0, data(10 * MS, 1, 1)), InOrder);
    checked.enter(1, Packet { window: 0, ..acknowledgment(11 * MS, 1001, 2) });
    assert_eq!(checked.enter(0, data(12 * MS, 2, 1)), ZeroWindowProbe);
    // The probe again, and then without its octet.
    assert_eq!(checked.enter(0, data(13 * MS, 2, 1)), ZeroWindowProbe);
    assert_eq!(checked.enter(0, acknowledgment(14 * MS, 2, 1001)), KeepAlive);
    assert_eq!(checked.enter(0, data(15 * MS, 3, 2)), InOrder);
    assert_eq!(checked.enter(0, segment(16 * MS, 5, 1, FIN)), InOrder);
    let report = checked.report(0);
    assert_eq!((report.unique_bytes, report.retransmitted_bytes), (5, 1));
    assert_eq!((report.count(ZeroWindowProbe).segments, report.count(ZeroWindowProbe).bytes), (2, 2));
    assert_eq!(checked.report(1).zero_windows, 1);
}

#[test]
fn octet_at_the_syn_is_a_keep_alive_not_a_probe() {
    let mut checked = CheckedConnection::established();
    checked.enter(1, Packet { window: 0, ..acknowledgment(10 * MS, 1001, 1) });
    for payload in [0, 1] {
        assert_eq!(checked.enter(0, data(11 * MS, 0, payload)), KeepAlive);
    }
    assert_eq!(checked.enter(0, data(12 * MS, 1, 1)), ZeroWindowProbe);
    assert_eq!(checked.report(0).missing_bytes, 0);
}

#[test]
fn rst_and_segments_out_of_window_announce_no_window() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(9 * MS, 1, 10));
    assert_eq!(checked.enter(0, Packet { window: 0, ..data(10 * MS, 1 << 31, 5) }), OutOfWindow);
    assert_eq!(checked.enter(0, Packet { window: 0, ..segment(11 * MS, 11, 0, RST) }), Reset);
    assert_eq!(checked.report(0).zero_windows, 0);
    assert_eq!(checked.enter(1, data(12 * MS, 1001, 1)), InOrder);
}

#[test]
fn duplicate_acknowledgment_repeats_number_and_window_while_data_is_outstanding() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 1, 10));
    checked.enter(0, data(11 * MS, 11, 10));
    let mut time_ns = 12 * MS;
    let mut class_of = |packet: Packet| {
        time_ns += MS;
        let identification = (time_ns / MS) as u32;
        checked.enter(1, Packet { time_ns, identification, ..packet })
    };
    let plain = acknowledgment(0, 1001, 11);
    assert_eq!(class_of(plain), Acknowledgment);
    assert_eq!(class_of(plain), DuplicateAcknowledgment);
    assert_eq!(class_of(Packet { window: 600, ..plain }), Acknowledgment);
    assert_eq!(class_of(plain), Acknowledgment);
    assert_eq!(class_of(Packet { acknowledgment: 10, ..plain }), Acknowledgment);
    assert_eq!(class_of(plain), DuplicateAcknowledgment);
    assert_eq!(class_of(Packet { control: 0, ..plain }), Acknowledgment);
    assert_eq!(class_of(Packet { window: 0, ..plain }), Acknowledgment);
    assert_eq!(class_of(Packet { window: 0, ..plain }), Acknowledgment);
    // Segments with payload are no duplicate acknowledgments, and their window is ignored.
    assert_eq!(class_of(Packet { window: 700, payload_bytes: 5, ..plain }), InOrder);
    assert_eq!(class_of(Packet { window: 700, sequence: 1006, ..plain }), Acknowledgment);
    let all = Packet { acknowledgment: 21, window: 700, sequence: 1006, ..plain };
    assert_eq!(class_of(all), Acknowledgment);
    assert_eq!(class_of(all), Acknowledgment);
}
