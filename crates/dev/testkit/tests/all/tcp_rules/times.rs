//! Response times, round trips of acknowledged payload.

use super::*;

/// Payload of a side with an acknowledgment number.
fn payload(time_ns: u64, sequence: u32, payload_bytes: u32, acknowledgment: u32) -> Packet {
    Packet { acknowledgment, ..segment(time_ns, sequence, payload_bytes, ACK) }
}

/// Count, first, longest and sum of the response times of a side, ms.
fn responses(checked: &CheckedConnection, side: usize) -> (u64, u64, u64, u64) {
    let times = checked.report(side).responses;
    (times.count, times.first_ns / MS, times.max_ns / MS, times.sum_ns / MS)
}

/// Count, shortest, longest and sum of the round trips of a side, ms.
fn round_trips(checked: &CheckedConnection, side: usize) -> (u64, u64, u64, u64) {
    let times = checked.report(side).round_trips;
    (times.count, times.min_ns / MS, times.max_ns / MS, times.sum_ns / MS)
}

#[test]
fn response_time_is_from_the_last_octet_of_the_request_to_the_first_of_the_answer() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, payload(10 * MS, 1, 100, 1001));
    checked.enter(0, payload(20 * MS, 101, 50, 1001));
    checked.enter(1, acknowledgment(25 * MS, 1001, 151));
    checked.enter(1, payload(320 * MS, 1001, 1000, 151));
    checked.enter(1, payload(330 * MS, 2001, 1000, 151));
    assert_eq!(responses(&checked, 1), (1, 300, 300, 300));
    // The next request comes 70 ms after the answer: the time that the client takes.
    checked.enter(0, payload(400 * MS, 151, 10, 3001));
    checked.enter(1, payload(420 * MS, 3001, 10, 161));
    assert_eq!((responses(&checked, 0), responses(&checked, 1)), ((1, 70, 70, 70), (2, 300, 300, 320)));
    // The first answer of the next record is the first of that record.
    checked.enter(0, payload(500 * MS, 161, 10, 3011));
    checked.start_next_record();
    checked.enter(1, payload(505 * MS, 3011, 10, 171));
    assert_eq!(responses(&checked, 1), (1, 5, 5, 5));
    assert_eq!(checked.report(1).responses.mean_ns(), Some(5e6));
    assert_eq!(checked.report(0).responses.mean_ns(), None);
}

#[test]
fn a_server_that_speaks_first_has_response_times_too() {
    let mut checked = CheckedConnection::established();
    checked.enter(1, payload(10 * MS, 1001, 20, 1));
    checked.enter(0, payload(15 * MS, 1, 20, 1021));
    checked.enter(1, payload(45 * MS, 1021, 20, 21));
    assert_eq!((responses(&checked, 0), responses(&checked, 1)), ((1, 5, 5, 5), (1, 30, 30, 30)));
}

#[test]
fn payload_that_does_not_acknowledge_the_whole_request_is_no_answer() {
    let mut checked = CheckedConnection::established();
    // Pipelining: the answer to the first request crosses the second one.
    checked.enter(0, payload(10 * MS, 1, 100, 1001));
    checked.enter(0, payload(20 * MS, 101, 100, 1001));
    checked.enter(1, payload(21 * MS, 1001, 100, 101));
    assert_eq!(responses(&checked, 1), (0, 0, 0, 0));
    checked.enter(1, payload(60 * MS, 1101, 100, 201));
    assert_eq!(responses(&checked, 1), (1, 40, 40, 40));
    // Neither is payload without an acknowledgment.
    checked.enter(0, payload(70 * MS, 201, 100, 1201));
    checked.enter(1, data(80 * MS, 1201, 100));
    assert_eq!(responses(&checked, 1).0, 1);
}

#[test]
fn a_retransmitted_request_counts_from_its_last_transmission_unless_it_was_acknowledged() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, payload(10 * MS, 1, 100, 1001));
    checked.enter(0, payload(210 * MS, 1, 100, 1001));
    checked.enter(1, payload(240 * MS, 1001, 100, 101));
    assert_eq!(responses(&checked, 1), (1, 30, 30, 30));
    checked.enter(0, payload(300 * MS, 101, 100, 1101));
    checked.enter(1, acknowledgment(310 * MS, 1101, 201));
    assert_eq!(checked.enter(0, payload(500 * MS, 101, 100, 1101)), Retransmission);
    checked.enter(1, payload(800 * MS, 1101, 100, 201));
    assert_eq!(responses(&checked, 1), (2, 30, 500, 530));
    // A retransmission of the answer is none, although the other side asked again meanwhile.
    checked.enter(0, payload(810 * MS, 201, 100, 1101));
    assert_eq!(checked.enter(1, payload(1010 * MS, 1101, 100, 301)), Retransmission);
    assert_eq!(responses(&checked, 1).0, 2);
}

#[test]
fn a_request_is_complete_with_its_late_part() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, payload(10 * MS, 101, 100, 1001));
    assert_eq!(checked.enter(0, payload(14 * MS, 1, 100, 1001)), OutOfOrder);
    checked.enter(1, payload(24 * MS, 1001, 100, 201));
    assert_eq!(responses(&checked, 1), (1, 10, 10, 10));
}

#[test]
fn keep_alives_probes_fin_and_rst_are_neither_request_nor_answer() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, payload(10 * MS, 1, 100, 1001));
    checked.enter(1, payload(20 * MS, 1001, 100, 101));
    assert_eq!(checked.enter(0, payload(30 * MS, 100, 1, 1101)), KeepAlive);
    checked.enter(1, segment(31 * MS, 1101, 0, ACK));
    checked.enter(1, Packet { window: 0, ..acknowledgment(32 * MS, 1101, 101) });
    assert_eq!(checked.enter(0, payload(40 * MS, 101, 1, 1101)), ZeroWindowProbe);
    assert_eq!(checked.enter(0, Packet { acknowledgment: 1101, ..segment(50 * MS, 102, 0, FIN | ACK) }), InOrder);
    checked.enter(1, payload(60 * MS, 1101, 100, 103));
    checked.enter(0, Packet { acknowledgment: 1201, ..segment(70 * MS, 103, 10, RST | ACK) });
    assert_eq!((responses(&checked, 0), responses(&checked, 1)), ((0, 0, 0, 0), (1, 10, 10, 10)));
}

#[test]
fn payload_of_a_syn_is_a_request() {
    let mut checked = CheckedConnection::new();
    checked.enter(0, segment(0, 0, 50, SYN));
    checked.enter(1, Packet { acknowledgment: 51, ..segment(4 * MS, 1000, 0, SYN | ACK) });
    checked.enter(1, payload(9 * MS, 1001, 10, 51));
    assert_eq!((responses(&checked, 1), round_trips(&checked, 1)), ((1, 9, 9, 9), (0, 0, 0, 0)));
}

#[test]
fn round_trip_ends_with_the_acknowledgment_of_the_whole_timed_segment() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, payload(10 * MS, 1, 100, 1001));
    // Not timed: the first one is.
    checked.enter(0, payload(12 * MS, 101, 100, 1001));
    checked.enter(1, acknowledgment(15 * MS, 1001, 51));
    checked.enter(1, acknowledgment(16 * MS, 1001, 100));
    assert_eq!(round_trips(&checked, 1), (0, 0, 0, 0));
    checked.enter(1, acknowledgment(30 * MS, 1001, 201));
    assert_eq!(round_trips(&checked, 1), (1, 20, 20, 20));
    checked.enter(1, acknowledgment(31 * MS, 1001, 201));
    // With payload, and of the other side.
    checked.enter(0, payload(40 * MS, 201, 100, 1001));
    checked.enter(1, payload(45 * MS, 1001, 100, 301));
    checked.enter(0, acknowledgment(46 * MS, 301, 1101));
    assert_eq!((round_trips(&checked, 0), round_trips(&checked, 1)), ((1, 1, 1, 1), (2, 5, 20, 25)));
    assert_eq!(checked.report(1).round_trips.mean_ns(), Some(12.5e6));
    // An acknowledgment far beyond the segment is not its acknowledgment.
    checked.enter(0, payload(50 * MS, 301, 100, 1101));
    checked.enter(1, acknowledgment(51 * MS, 1101, 401 + MAX_WINDOW));
    assert_eq!(round_trips(&checked, 1).0, 2);
    checked.start_next_record();
    checked.enter(1, acknowledgment(57 * MS, 1101, 401));
    assert_eq!(round_trips(&checked, 1), (1, 7, 7, 7));
}

#[test]
fn a_retransmission_discards_the_timed_segment() {
    let mut checked = CheckedConnection::established();
    for repeated in [1, 101] {
        let base = u64::from(repeated) * 1000 * MS;
        checked.enter(0, payload(base, repeated, 100, 1001));
        checked.enter(0, payload(base + 200 * MS, repeated, 100, 1001));
        checked.enter(1, acknowledgment(base + 210 * MS, 1001, repeated + 100));
    }
    assert_eq!(round_trips(&checked, 1), (0, 0, 0, 0));
    // Of an earlier segment: the acknowledgment of the timed one waited for it.
    checked.enter(0, payload(200_000 * MS, 301, 100, 1001));
    assert_eq!(checked.enter(0, payload(200_200 * MS, 201, 100, 1001)), UnseenRetransmission);
    checked.enter(1, acknowledgment(200_210 * MS, 1001, 401));
    assert_eq!(round_trips(&checked, 1), (0, 0, 0, 0));
    checked.enter(0, payload(200_300 * MS, 401, 100, 1001));
    checked.enter(0, payload(200_301 * MS, 501, 100, 1001));
    checked.enter(1, acknowledgment(200_310 * MS, 1001, 501));
    assert_eq!(round_trips(&checked, 1), (1, 10, 10, 10));
    // A duplicate discards nothing.
    checked.enter(0, payload(200_400 * MS, 601, 100, 1001));
    assert_eq!(checked.enter(0, Packet { time_ns: 200_401 * MS, ..payload(200_400 * MS, 601, 100, 1001) }), Duplicate);
    checked.enter(1, acknowledgment(200_405 * MS, 1001, 701));
    assert_eq!(round_trips(&checked, 1), (2, 5, 10, 15));
}

#[test]
fn what_a_side_waits_for_is_forgotten_when_its_positions_restart() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, payload(10 * MS, 1, 100, 1001));
    checked.enter(0, segment(1000 * MS, 5000, 0, SYN));
    checked.enter(1, payload(1010 * MS, 1001, 100, 5001));
    assert_eq!((responses(&checked, 1), round_trips(&checked, 1)), ((0, 0, 0, 0), (0, 0, 0, 0)));
}

#[test]
fn nothing_is_measured_where_time_runs_backwards() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, payload(10 * MS, 1, 100, 1001));
    checked.enter(1, payload(9 * MS, 1001, 100, 101));
    checked.enter(1, payload(20 * MS, 1101, 100, 101));
    assert_eq!((responses(&checked, 1), round_trips(&checked, 1)), ((0, 0, 0, 0), (0, 0, 0, 0)));
}
