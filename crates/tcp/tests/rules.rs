//! `docs/tcp.md` rule by rule: what [`Reference`] and [`Connection`] say of a few segments.

use weir_packet::{Flags, Network, Packet};
use weir_tcp::{AnomalyPool, Connection, Degradation, MAX_HOLES, Reference, SegmentClass, TcpReport};

const MS: u64 = 1_000_000;
/// A step of the clock that copies are judged by, ns.
const TICK: u64 = 1 << 20;
const ACK: u16 = Packet::ACK;
const SYN: u16 = Packet::SYN;
const FIN: u16 = Packet::FIN;
const RST: u16 = Packet::RST;
const QUARTER: u32 = 1 << 30;

/// A connection that both judge.
struct Talk {
    reference: Reference,
    connection: Connection,
    room: AnomalyPool,
    packets: [u64; 2],
}

impl Talk {
    fn new() -> Self {
        let room = AnomalyPool::new(2).unwrap();
        Self { reference: Reference::default(), connection: Connection::NEW, room, packets: [0; 2] }
    }

    /// One that began with a handshake: the first octets are number 1 of side 0 and 1001 of side 1, the round trip takes 6 ms.
    fn begun() -> Self {
        let mut talk = Self::new();
        assert_eq!(talk.enter(0, segment(0, 0, 0, SYN)), SegmentClass::Syn);
        assert_eq!(
            talk.enter(1, Packet { acknowledgment: 1, ..segment(4 * MS, 1000, 0, SYN | ACK) }),
            SegmentClass::Syn
        );
        assert_eq!(talk.enter(0, acknowledgment(6 * MS, 1, 1001)), SegmentClass::Acknowledgment);
        talk
    }

    fn enter(&mut self, side: usize, packet: Packet) -> SegmentClass {
        let class = self.reference.enter(side, &packet);
        if !self.connection.enter_fast(side, &packet, &self.room) {
            assert_eq!(self.connection.enter(side, &packet, &mut self.room), class, "{packet:?}");
        }
        self.packets[side] += 1;
        self.report(side);
        class
    }

    fn report(&self, side: usize) -> TcpReport {
        let report = self.reference.report(side);
        assert_eq!(self.connection.report(side, self.packets[side], &self.room), report);
        report
    }

    fn next_record(&mut self) {
        self.reference.start_next_record();
        self.connection.start_next_record(&mut self.room);
        self.packets = [0; 2];
    }

    fn degraded(&self, side: usize) -> Vec<&'static str> {
        self.report(side).degradation.names().collect()
    }
}

/// A segment of IPv4. No two of other times have the same identification, but for one in 60 000.
fn segment(time_ns: u64, sequence: u32, payload_bytes: u32, control: u16) -> Packet {
    Packet {
        time_ns,
        network: Network::Ipv4,
        protocol: 6,
        flags: Flags(Flags::TCP | Flags::PORTS),
        sequence,
        payload_bytes,
        control,
        window: 500,
        ttl: 64,
        identification: (time_ns / 1000 % 60_000) as u32 + 1,
        ..Packet::default()
    }
}

fn data(time_ns: u64, sequence: u32, payload_bytes: u32) -> Packet {
    segment(time_ns, sequence, payload_bytes, 0)
}

fn acknowledgment(time_ns: u64, sequence: u32, acknowledgment: u32) -> Packet {
    Packet { acknowledgment, ..segment(time_ns, sequence, 0, ACK) }
}

#[test]
fn what_equals_one_of_the_last_four_is_a_copy() {
    for between in 0..6 {
        let mut talk = Talk::begun();
        let original = data(10 * MS, 1, 10);
        talk.enter(0, original);
        for number in 0..between {
            talk.enter(0, data(11 * MS + u64::from(number) * MS, 11 + 10 * number, 10));
        }
        let copy = Packet { time_ns: 20 * MS, ..original };
        assert_eq!(
            talk.enter(0, copy),
            if between < 4 { SegmentClass::Duplicate } else { SegmentClass::Retransmission }
        );
        // The fourth place tells that there may have been others.
        let marked: &[&str] = if between == 3 { &["duplicates"] } else { &[] };
        assert_eq!(talk.degraded(0), marked, "{between} between");
        assert_eq!(talk.report(0).retransmitted_bytes, if between < 4 { 0 } else { 10 });
    }
}

/// A direction in which a copy was found.
fn with_a_copy() -> Talk {
    let mut talk = Talk::begun();
    let original = data(10 * MS, 1, 10);
    assert_eq!(talk.enter(0, original), SegmentClass::InOrder);
    assert_eq!(talk.enter(0, Packet { time_ns: 11 * MS, ..original }), SegmentClass::Duplicate);
    talk
}

/// So many segments in order.
fn more(talk: &mut Talk, from_ns: u64, from: u32, segments: u32) {
    for number in 0..segments {
        let packet = data(from_ns + u64::from(number) * 10_000, from + 10 * number, 10);
        assert_eq!(talk.enter(0, packet), SegmentClass::InOrder, "{number}");
    }
}

#[test]
fn where_a_copy_was_found_64_are_remembered() {
    for between in 0..80 {
        for ttl in [64, 63] {
            let mut talk = with_a_copy();
            let original = data(12 * MS, 11, 10);
            talk.enter(0, original);
            more(&mut talk, 13 * MS, 21, between);
            let class = match (between < 64, ttl) {
                (true, 64) => SegmentClass::Duplicate,
                (true, _) => SegmentClass::RoutedDuplicate,
                _ => SegmentClass::Retransmission,
            };
            assert_eq!(talk.enter(0, Packet { time_ns: 20 * MS, ttl, ..original }), class, "{between} between");
            // A place in the older half tells that there may have been others, and the fourth does no longer.
            let marked: &[&str] = if (32..64).contains(&between) { &["duplicates"] } else { &[] };
            assert_eq!(talk.degraded(0), marked, "{between} between");
        }
    }
}

#[test]
fn what_was_remembered_at_the_first_copy_still_is() {
    for before in 1..7 {
        let mut talk = Talk::begun();
        more(&mut talk, 10 * MS, 1, before);
        let copy_of = |number: u32, time_ns: u64| Packet {
            time_ns,
            ..data(10 * MS + u64::from(number) * 10_000, 1 + 10 * number, 10)
        };
        assert_eq!(talk.enter(0, copy_of(before - 1, 12 * MS)), SegmentClass::Duplicate);
        more(&mut talk, 13 * MS, 1 + 10 * before, 30);
        for number in 0..before {
            let class = if number + 4 < before { SegmentClass::Retransmission } else { SegmentClass::Duplicate };
            assert_eq!(talk.enter(0, copy_of(number, 15 * MS)), class, "{number} of {before}");
        }
    }
}

#[test]
fn of_several_equal_ones_the_latest_is_the_original() {
    let mut talk = with_a_copy();
    // Not near enough to be copies of each other, and with another TTL.
    let original = data(12 * MS, 11, 10);
    talk.enter(0, original);
    more(&mut talk, 13 * MS, 21, 20);
    let again = Packet { time_ns: 12 * MS + 60 * TICK, ttl: 60, ..original };
    assert_eq!(talk.enter(0, again), SegmentClass::Retransmission);
    assert_eq!(talk.enter(0, Packet { time_ns: 12 * MS + 40 * TICK, ..again }), SegmentClass::Duplicate);
    assert_eq!(
        talk.enter(0, Packet { time_ns: 12 * MS + 5 * TICK, ..original }),
        SegmentClass::Duplicate,
        "the other is far"
    );
}

#[test]
fn one_side_remembers_more_and_the_other_does_not() {
    let mut talk = with_a_copy();
    let original = data(12 * MS, 1001, 10);
    talk.enter(1, original);
    for number in 0..4 {
        talk.enter(1, data(13 * MS + number * MS, 1011 + 10 * number as u32, 10));
    }
    assert_eq!(talk.enter(1, Packet { time_ns: 20 * MS, ..original }), SegmentClass::Retransmission);
}

#[test]
fn it_remembers_more_in_later_records() {
    let mut talk = with_a_copy();
    let original = data(12 * MS, 11, 10);
    talk.enter(0, original);
    more(&mut talk, 13 * MS, 21, 20);
    talk.next_record();
    assert_eq!((talk.room.used(), talk.report(0).has_anomalies()), (1, false));
    more(&mut talk, 14 * MS, 221, 20);
    assert_eq!(talk.enter(0, Packet { time_ns: 20 * MS, ..original }), SegmentClass::Duplicate);
    assert_eq!(talk.report(0).count(SegmentClass::Duplicate).segments, 1);
    talk.connection.reset(&mut talk.room);
    assert_eq!(talk.room.used(), 0);
}

#[test]
fn what_lets_copies_be_forgotten_does_so_with_64_and_leaves_it_at_that() {
    let leap = |talk: &mut Talk| _ = talk.enter(0, acknowledgment(16 * MS, 11, 1001 + (1 << 28)));
    let syn = |talk: &mut Talk| assert_eq!(talk.enter(0, segment(16 * MS, 0x1000_0000, 0, SYN)), SegmentClass::Syn);
    let jump = |talk: &mut Talk| {
        assert_eq!(talk.enter(0, data(15 * MS, 0x8000_0000, 10)), SegmentClass::OutOfWindow);
        assert_eq!(talk.enter(0, data(16 * MS, 0x8000_000a, 10)), SegmentClass::InOrder);
    };
    let nothing = |_: &mut Talk| {};
    type Forgets<'a> = (&'a str, &'a dyn Fn(&mut Talk), u32);
    let all: [Forgets; 4] =
        [("nothing", &nothing, 41), ("leap", &leap, 41), ("syn", &syn, 0x1000_0001), ("jump", &jump, 0x8000_0014)];
    for (what, forget, next) in all {
        let mut talk = with_a_copy();
        let original = Packet { acknowledgment: 1001, ..segment(12 * MS, 11, 10, ACK) };
        assert_eq!(talk.enter(0, original), SegmentClass::InOrder);
        more(&mut talk, 13 * MS, 21, 2);
        forget(&mut talk);
        // Its places are not those of another time.
        let copy = talk.enter(0, Packet { time_ns: 17 * MS, ..original });
        assert_eq!(copy == SegmentClass::Duplicate, what == "nothing", "{what}: {copy:?}");
        let original = data(18 * MS, next, 10);
        assert_eq!(talk.enter(0, original), SegmentClass::InOrder, "{what}");
        more(&mut talk, 19 * MS, next + 10, 40);
        assert_eq!(talk.enter(0, Packet { time_ns: 22 * MS, ..original }), SegmentClass::Duplicate, "{what}");
    }
}

#[test]
fn without_room_four_are_remembered_and_it_says_so() {
    let mut full = AnomalyPool::new(0).unwrap();
    let mut connection = Connection::NEW;
    let mut packets = 0;
    let mut enter = |connection: &mut Connection, packet: Packet| {
        packets += 1;
        (connection.enter(0, &packet, &mut full), connection.report(0, packets, &full).degradation)
    };
    let room = Degradation(Degradation::POOL_FULL);
    for number in 0..10 {
        let first = data(10 * MS + number * MS, 1 + 10 * number as u32, 10);
        let degraded = if number == 0 { Degradation(0) } else { room };
        assert_eq!(enter(&mut connection, first), (SegmentClass::InOrder, degraded));
        assert_eq!(enter(&mut connection, Packet { ttl: 63, ..first }), (SegmentClass::RoutedDuplicate, room));
    }
    let (fourth, fifth) = (data(16 * MS, 61, 10), data(15 * MS, 51, 10));
    assert_eq!(enter(&mut connection, fourth).0, SegmentClass::Duplicate);
    assert_eq!(enter(&mut connection, fifth).0, SegmentClass::Retransmission);
    assert_eq!(connection.anomaly_indices(), [None, None]);
    // As soon as there is some, it remembers more.
    let mut some = AnomalyPool::new(1).unwrap();
    let original = data(20 * MS, 101, 10);
    connection.enter(0, &original, &mut some);
    connection.enter(0, &original, &mut some);
    for number in 0..10 {
        connection.enter(0, &data(21 * MS + number * MS, 111 + 10 * number as u32, 10), &mut some);
    }
    assert_eq!(connection.enter(0, &Packet { time_ns: 40 * MS, ..original }, &mut some), SegmentClass::Duplicate);
}

#[test]
fn memory_of_another_direction_holds_no_originals_of_this_one() {
    let mut talk = with_a_copy();
    let original = data(12 * MS, 11, 10);
    talk.enter(0, original);
    more(&mut talk, 13 * MS, 21, 2);
    talk.connection.reset(&mut talk.room);
    (talk.reference, talk.packets) = (Reference::default(), [0; 2]);
    // The very same segments but that one, so that its place is as it was left.
    let first = data(10 * MS, 1, 10);
    talk.enter(0, first);
    assert_eq!(talk.enter(0, Packet { time_ns: 11 * MS, ..first }), SegmentClass::Duplicate);
    more(&mut talk, 13 * MS, 21, 2);
    assert_ne!(talk.enter(0, Packet { time_ns: 20 * MS, ..original }), SegmentClass::Duplicate);
}

#[test]
fn a_copy_is_none_if_it_differs_in_anything_but_the_ttl() {
    let original = Packet { acknowledgment: 1001, ..segment(10 * MS, 1, 10, ACK) };
    let later = Packet { time_ns: 11 * MS, ..original };
    let judged = |packet: Packet| {
        let mut talk = Talk::begun();
        talk.enter(0, original);
        talk.enter(0, packet)
    };
    assert_eq!(judged(later), SegmentClass::Duplicate);
    assert_eq!(judged(Packet { ttl: 63, ..later }), SegmentClass::RoutedDuplicate);
    let others = [
        Packet { acknowledgment: 1000, ..later },
        Packet { payload_bytes: 9, ..later },
        Packet { control: ACK | 8, ..later },
        Packet { window: 501, ..later },
        Packet { icmp_or_checksum: [1, 0], ..later },
        Packet { identification: 7, ..later },
    ];
    for other in others {
        assert_eq!(judged(other), SegmentClass::Retransmission, "{other:?}");
    }
}

#[test]
fn a_copy_is_near_in_time() {
    let judged = |original: Packet, ticks: u64| {
        let mut talk = Talk::new();
        let begin_ns = 5 * TICK;
        assert!(!matches!(talk.enter(0, Packet { time_ns: begin_ns, ..original }), SegmentClass::Duplicate));
        let other = talk.clone_enter(Packet { time_ns: begin_ns - 3 * TICK, ..original });
        assert_eq!(other, talk.clone_enter(Packet { time_ns: begin_ns + 3 * TICK, ..original }), "back as forward");
        talk.enter(0, Packet { time_ns: begin_ns + ticks * TICK, ..original })
    };
    let identified = data(0, 1, 10);
    let without = Packet { identification: 0, ..identified };
    let of_ipv6 = Packet { network: Network::Ipv6, ..identified };
    assert_eq!(judged(identified, 48), SegmentClass::Duplicate);
    assert_eq!(judged(identified, 49), SegmentClass::Retransmission);
    for packet in [without, of_ipv6] {
        assert_eq!(judged(packet, 1), SegmentClass::Duplicate);
        assert_eq!(judged(packet, 2), SegmentClass::Retransmission);
        // Ticks come around after 2^24.
        assert_eq!(judged(packet, (1 << 24) - 1), SegmentClass::Duplicate);
        assert_eq!(judged(packet, (1 << 24) - 2), SegmentClass::Retransmission);
    }
    // Without identification what is often sent twice is no copy.
    for control in [ACK, RST, RST | FIN] {
        let bare = Packet { control, payload_bytes: 0, ..without };
        assert_ne!(judged(bare, 0), SegmentClass::Duplicate, "{control}");
        assert_eq!(judged(Packet { identification: 9, ..bare }, 0), SegmentClass::Duplicate, "{control}");
    }
    for control in [SYN, FIN, SYN | ACK] {
        assert_eq!(judged(Packet { control, payload_bytes: 0, ..without }, 0), SegmentClass::Duplicate, "{control}");
    }
}

impl Talk {
    /// What would be said of a segment of side 0.
    fn clone_enter(&self, packet: Packet) -> SegmentClass {
        self.reference.clone().enter(0, &packet)
    }
}

#[test]
fn a_copy_changes_nothing() {
    let mut talk = Talk::begun();
    let closed = Packet { window: 0, ..acknowledgment(10 * MS, 1001, 1) };
    talk.enter(1, closed);
    talk.enter(1, acknowledgment(11 * MS, 1001, 1));
    assert_eq!(talk.enter(1, Packet { time_ns: 12 * MS, ..closed }), SegmentClass::Duplicate);
    assert_eq!(talk.report(1).zero_windows, 1);
    // The window is still open.
    assert_eq!(talk.enter(0, data(13 * MS, 1, 1)), SegmentClass::InOrder);
}

#[test]
fn a_copy_of_an_acknowledgment_before_the_syn_is_forgotten() {
    let mut talk = Talk::new();
    let early = acknowledgment(0, 1, 2000);
    talk.enter(0, early);
    assert_eq!(talk.enter(0, segment(MS, 0, 0, SYN)), SegmentClass::Syn);
    talk.enter(0, acknowledgment(2 * MS, 1, 1990));
    assert_eq!(talk.enter(0, Packet { time_ns: 3 * MS, ..early }), SegmentClass::Acknowledgment);
}

#[test]
fn what_is_out_of_window_is_no_original_of_a_copy() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 1, 10));
    let stray = data(11 * MS, 1 << 31, 10);
    assert_eq!(talk.enter(0, stray), SegmentClass::OutOfWindow);
    talk.enter(0, data(12 * MS, 11, 10));
    assert_eq!(talk.enter(0, Packet { time_ns: 13 * MS, ..stray }), SegmentClass::OutOfWindow);
}

#[test]
fn a_leap_of_acknowledgments_lets_copies_be_forgotten() {
    for (leap, class) in [((1 << 28) - 1, SegmentClass::Duplicate), (1 << 28, SegmentClass::Retransmission)] {
        let mut talk = Talk::begun();
        let original = Packet { acknowledgment: 1001, ..segment(10 * MS, 1, 10, ACK) };
        talk.enter(0, original);
        talk.enter(0, acknowledgment(11 * MS, 11, 1001 + leap));
        assert_eq!(talk.enter(0, Packet { time_ns: 12 * MS, ..original }), class, "{leap}");
    }
}

#[test]
fn a_keep_alive_repeats_the_last_octet_or_none() {
    let mut talk = Talk::begun();
    // Right behind the handshake there is none, but the number before the first is that of the SYN.
    assert_eq!(talk.enter(0, acknowledgment(9 * MS, 0, 1001)), SegmentClass::KeepAlive);
    talk.enter(0, data(10 * MS, 1, 10));
    assert_eq!(talk.enter(0, data(20 * MS, 10, 1)), SegmentClass::KeepAlive);
    assert_eq!(talk.enter(0, data(21 * MS, 10, 0)), SegmentClass::KeepAlive);
    assert_eq!(talk.enter(0, data(22 * MS, 9, 2)), SegmentClass::Retransmission);
    assert_eq!(talk.enter(0, data(23 * MS, 9, 1)), SegmentClass::Retransmission);
    assert_eq!(talk.enter(0, segment(24 * MS, 10, 1, FIN)), SegmentClass::Retransmission);
    let report = talk.report(0);
    assert_eq!(
        (report.retransmitted_bytes, report.count(SegmentClass::KeepAlive).bytes, report.partial_retransmissions),
        (4, 1, 1)
    );
}

#[test]
fn one_octet_into_a_closed_window_is_a_probe() {
    let mut talk = Talk::begun();
    assert_eq!(talk.enter(0, data(10 * MS, 1, 1)), SegmentClass::InOrder);
    talk.enter(1, Packet { window: 0, ..acknowledgment(11 * MS, 1001, 2) });
    assert_eq!(talk.enter(0, data(12 * MS, 2, 1)), SegmentClass::ZeroWindowProbe);
    // Again, and as systems do that send none of it.
    assert_eq!(talk.enter(0, data(13 * MS, 2, 1)), SegmentClass::ZeroWindowProbe);
    assert_eq!(talk.enter(0, acknowledgment(14 * MS, 2, 1001)), SegmentClass::KeepAlive);
    assert_eq!(talk.enter(0, data(15 * MS, 3, 2)), SegmentClass::InOrder);
    assert_eq!(talk.enter(0, segment(16 * MS, 5, 1, FIN)), SegmentClass::InOrder);
    let report = talk.report(0);
    assert_eq!((report.unique_bytes, report.retransmitted_bytes), (5, 1));
    assert_eq!(
        (report.count(SegmentClass::ZeroWindowProbe).segments, report.count(SegmentClass::ZeroWindowProbe).bytes),
        (2, 2)
    );
    assert_eq!(talk.report(1).zero_windows, 1);
}

#[test]
fn in_front_of_the_first_octet_a_probe_is_none() {
    let mut talk = Talk::begun();
    talk.enter(1, Packet { window: 0, ..acknowledgment(10 * MS, 1001, 1) });
    for payload in [0, 1] {
        assert_eq!(talk.enter(0, data(11 * MS, 0, payload)), SegmentClass::KeepAlive);
    }
    assert_eq!(talk.enter(0, data(12 * MS, 1, 1)), SegmentClass::ZeroWindowProbe);
    assert_eq!(talk.report(0).missing_bytes, 0);
}

#[test]
fn a_reset_and_what_is_out_of_window_announce_no_window() {
    let mut talk = Talk::begun();
    talk.enter(0, data(9 * MS, 1, 10));
    assert_eq!(talk.enter(0, Packet { window: 0, ..data(10 * MS, 1 << 31, 5) }), SegmentClass::OutOfWindow);
    assert_eq!(talk.enter(0, Packet { window: 0, ..segment(11 * MS, 11, 0, RST) }), SegmentClass::Reset);
    assert_eq!(talk.report(0).zero_windows, 0);
    assert_eq!(talk.enter(1, data(12 * MS, 1001, 1)), SegmentClass::InOrder);
}

#[test]
fn a_duplicate_acknowledgment_repeats_number_and_window_while_more_is_on_the_way() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 1, 10));
    talk.enter(0, data(11 * MS, 11, 10));
    let mut time_ns = 12 * MS;
    let mut judged = |packet: Packet| {
        time_ns += MS;
        let identification = (time_ns / MS) as u32;
        talk.enter(1, Packet { time_ns, identification, ..packet })
    };
    let plain = acknowledgment(0, 1001, 11);
    assert_eq!(judged(plain), SegmentClass::Acknowledgment);
    assert_eq!(judged(plain), SegmentClass::DuplicateAcknowledgment);
    assert_eq!(judged(Packet { window: 600, ..plain }), SegmentClass::Acknowledgment);
    assert_eq!(judged(plain), SegmentClass::Acknowledgment);
    assert_eq!(judged(Packet { acknowledgment: 10, ..plain }), SegmentClass::Acknowledgment);
    assert_eq!(judged(plain), SegmentClass::DuplicateAcknowledgment);
    assert_eq!(judged(Packet { control: 0, ..plain }), SegmentClass::Acknowledgment);
    assert_eq!(judged(Packet { window: 0, ..plain }), SegmentClass::Acknowledgment);
    assert_eq!(judged(Packet { window: 0, ..plain }), SegmentClass::Acknowledgment);
    // With payload it is none, and its window is another matter.
    assert_eq!(judged(Packet { window: 700, payload_bytes: 5, ..plain }), SegmentClass::InOrder);
    assert_eq!(judged(Packet { window: 700, sequence: 1006, ..plain }), SegmentClass::Acknowledgment);
    let all = Packet { acknowledgment: 21, window: 700, sequence: 1006, ..plain };
    assert_eq!(judged(all), SegmentClass::Acknowledgment);
    assert_eq!(judged(all), SegmentClass::Acknowledgment);
}

#[test]
fn a_syn_with_more_than_a_window_is_out_of_window() {
    let mut talk = Talk::begun();
    for number in [0, 7] {
        assert_eq!(talk.enter(0, segment(10 * MS, number, 1 << 30, SYN)), SegmentClass::OutOfWindow);
    }
    assert_eq!(talk.enter(0, data(11 * MS, 1, 10)), SegmentClass::InOrder);
    assert_eq!((talk.report(0).count(SegmentClass::OutOfWindow).bytes, talk.report(0).unique_bytes), (2 << 30, 10));
}

#[test]
fn far_away_is_out_of_window() {
    let judged = |sequence: u32, payload: u32| {
        let mut talk = Talk::new();
        talk.enter(0, data(0, 0, 100));
        talk.enter(0, data(MS, sequence, payload))
    };
    assert_eq!(judged(100 + QUARTER - 11, 10), SegmentClass::InOrder);
    assert_eq!(judged(100 + QUARTER - 10, 10), SegmentClass::OutOfWindow);
    assert_eq!(judged(100_u32.wrapping_sub(QUARTER - 1), 10), SegmentClass::OutOfOrder);
    assert_eq!(judged(100_u32.wrapping_sub(QUARTER), 10), SegmentClass::OutOfWindow);
    assert_eq!(judged(100_u32.wrapping_add(1 << 31), 10), SegmentClass::OutOfWindow);
    assert_eq!(judged(0, QUARTER), SegmentClass::Retransmission, "moves by less");
    let mut talk = Talk::new();
    assert_eq!(talk.enter(0, data(0, 0, QUARTER)), SegmentClass::OutOfWindow);
    assert_eq!(talk.enter(0, data(MS, 0, QUARTER - 1)), SegmentClass::InOrder);
}

#[test]
fn before_the_syn_is_out_of_window() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 1, 10));
    assert_eq!(talk.enter(0, data(11 * MS, 0, 5)), SegmentClass::OutOfWindow);
    assert_eq!(talk.enter(0, data(12 * MS, 1, 5)), SegmentClass::Retransmission);
}

/// Seen in a capture: the first payload again, from the number of the SYN on.
#[test]
fn what_reaches_into_the_stream_from_before_the_syn_lets_it_stay() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 1, 6));
    for number in 0..3 {
        assert_eq!(talk.enter(0, data((11 + number) * MS, 0, 6)), SegmentClass::OutOfWindow);
    }
    assert_eq!(talk.enter(0, data(15 * MS, 7, 6)), SegmentClass::InOrder);
    // Wholly before it is another matter.
    assert_eq!(talk.enter(0, data(16 * MS, 1_u32.wrapping_sub(6), 6)), SegmentClass::OutOfWindow);
    assert_eq!(talk.degraded(0), Vec::<&str>::new());
    assert_eq!(talk.enter(0, data(17 * MS, 1_u32.wrapping_sub(6), 6)), SegmentClass::InOrder);
    assert_eq!(talk.degraded(0), ["jump"]);
}

#[test]
fn two_out_of_window_that_agree_begin_anew() {
    for (second, class) in [
        (3_000_000_000 + QUARTER - 1, SegmentClass::InOrder),
        (3_000_000_000 + QUARTER, SegmentClass::OutOfWindow),
        (3_000_000_000 - QUARTER + 1, SegmentClass::InOrder),
    ] {
        let mut talk = Talk::begun();
        talk.enter(0, data(10 * MS, 1, 10));
        talk.enter(0, data(11 * MS, 21, 10));
        assert_eq!(talk.enter(0, data(12 * MS, 3_000_000_000, 10)), SegmentClass::OutOfWindow);
        // What is no payload does not matter.
        talk.enter(0, acknowledgment(13 * MS, 31, 1001));
        assert_eq!(talk.enter(0, data(14 * MS, second, 10)), class, "{second}");
        let jumped = class == SegmentClass::InOrder;
        assert_eq!(talk.degraded(0), if jumped { vec!["jump"] } else { vec![] });
        // The hole is given up, not forgotten.
        assert_eq!(talk.report(0).missing_bytes, 10);
        if jumped {
            assert_eq!(talk.enter(0, data(15 * MS, second, 10)), SegmentClass::Retransmission);
            // No SYN is known any more, so there is no size.
            talk.enter(0, segment(16 * MS, second.wrapping_add(10), 0, FIN));
            assert_eq!(talk.report(0).size_by_sequence_bytes, None);
        }
    }
}

#[test]
fn one_in_window_between_two_out_of_it_lets_all_stay() {
    let mut talk = Talk::begun();
    for (number, sequence) in [3_000_000_000, 1, 3_000_000_000, 11].into_iter().enumerate() {
        let class = talk.enter(0, data((10 + number as u64) * MS, sequence, 10));
        assert_eq!(class, if sequence > 11 { SegmentClass::OutOfWindow } else { SegmentClass::InOrder });
    }
    assert_eq!(talk.degraded(0), Vec::<&str>::new());
    // A probe is payload in window, too; the mark of the stray stays over the end of a record.
    talk.enter(0, data(20 * MS, 3_000_000_000, 10));
    talk.next_record();
    talk.enter(1, Packet { window: 0, ..acknowledgment(21 * MS, 1001, 21) });
    assert_eq!(talk.enter(0, data(22 * MS, 21, 1)), SegmentClass::ZeroWindowProbe);
    assert_eq!(talk.enter(0, data(23 * MS, 3_000_000_000, 10)), SegmentClass::OutOfWindow);
    talk.next_record();
    assert_eq!(talk.enter(0, data(24 * MS, 2_000_000_010, 10)), SegmentClass::InOrder);
    assert_eq!(talk.degraded(0), ["jump"]);
}

#[test]
fn a_hole_is_filled_out_of_order_within_the_limit() {
    let judged = |mut talk: Talk, age_ns| {
        talk.enter(0, data(10 * MS, 1, 10));
        talk.enter(0, data(20 * MS, 21, 10));
        assert_eq!((talk.report(0).missing_bytes, talk.report(0).largest_hole_bytes), (10, 10));
        let class = talk.enter(0, data(20 * MS + age_ns, 15, 3));
        assert_eq!(talk.report(0).missing_bytes, 7);
        talk.enter(0, data(40 * MS, 11, 4));
        talk.enter(0, data(41 * MS, 18, 3));
        assert_eq!(talk.report(0).missing_bytes, 0);
        class
    };
    assert_eq!(judged(Talk::new(), 3 * MS), SegmentClass::OutOfOrder);
    assert_eq!(judged(Talk::new(), 3 * MS + 1), SegmentClass::UnseenRetransmission);
    assert_eq!(judged(Talk::begun(), 6 * MS), SegmentClass::OutOfOrder);
    assert_eq!(judged(Talk::begun(), 6 * MS + 1), SegmentClass::UnseenRetransmission);
}

#[test]
fn below_a_beginning_amid_is_unknown() {
    let mut talk = Talk::new();
    talk.enter(0, data(10 * MS, 1000, 10));
    assert_eq!(talk.enter(0, data(13 * MS, 900, 10)), SegmentClass::OutOfOrder);
    assert_eq!(talk.report(0).missing_bytes, 90);
    assert_eq!(talk.enter(0, data(14 * MS, 950, 10)), SegmentClass::UnseenRetransmission);
    assert_eq!(talk.enter(0, data(15 * MS, 990, 10)), SegmentClass::UnseenRetransmission);
    assert_eq!(talk.enter(0, data(16 * MS, 890, 120)), SegmentClass::Retransmission);
    let report = talk.report(0);
    assert_eq!((report.missing_bytes, report.largest_hole_bytes, report.unique_bytes), (0, 0, 120));
    assert_eq!((report.retransmitted_bytes, report.partial_retransmissions), (40, 1));
}

#[test]
fn a_retransmission_may_bring_more_or_nothing_needed() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 1, 10));
    talk.enter(0, data(11 * MS, 11, 10));
    talk.enter(1, acknowledgment(12 * MS, 1001, 15));
    // Cut anew, acknowledged and not; joined with what is new.
    assert_eq!(talk.enter(0, data(13 * MS, 5, 10)), SegmentClass::Retransmission);
    assert_eq!((talk.report(0).spurious_retransmissions, talk.report(0).partial_retransmissions), (1, 0));
    assert_eq!(talk.enter(0, data(14 * MS, 5, 11)), SegmentClass::Retransmission);
    assert_eq!(talk.enter(0, data(15 * MS, 20, 2)), SegmentClass::Retransmission);
    assert_eq!((talk.report(0).spurious_retransmissions, talk.report(0).partial_retransmissions), (1, 1));
    // A FIN counts as seen, also by payload on its position.
    assert_eq!(talk.enter(0, segment(16 * MS, 22, 0, FIN)), SegmentClass::InOrder);
    assert_eq!(talk.enter(0, segment(17 * MS, 22, 0, FIN)), SegmentClass::Retransmission);
    assert_eq!(talk.enter(0, data(18 * MS, 22, 2)), SegmentClass::Retransmission);
    let report = talk.report(0);
    assert_eq!((report.partial_retransmissions, report.fins, report.size_by_sequence_bytes), (2, 2, Some(21)));
    assert_eq!((report.unique_bytes, report.retransmitted_bytes), (22, 23));
}

/// Beyond the first octet, one in two does not come by.
fn scatter(talk: &mut Talk, holes: u32) {
    for number in 0..=holes {
        assert_eq!(talk.enter(0, data(u64::from(number) * MS + 100 * MS, 1 + 2 * number, 1)), SegmentClass::InOrder);
    }
}

#[test]
fn of_more_than_32_holes_the_lowest_is_settled() {
    let holes = MAX_HOLES as u32;
    for acknowledged in [2, 3] {
        let mut talk = Talk::begun();
        talk.enter(1, acknowledgment(10 * MS, 1001, acknowledged));
        scatter(&mut talk, holes);
        assert_eq!((talk.report(0).missing_bytes, talk.report(0).degradation), (32, Degradation(0)));
        assert_eq!(talk.enter(0, data(200 * MS, 2 * holes + 3, 1)), SegmentClass::InOrder);
        assert_eq!(talk.degraded(0), ["holes"]);
        assert_eq!(talk.report(0).missing_bytes, 33);
        // Taken as seen from now on; the others are as they were.
        assert_eq!(talk.enter(0, data(201 * MS, 2, 1)), SegmentClass::Retransmission);
        assert_eq!(talk.enter(0, data(202 * MS, 4, 1)), SegmentClass::UnseenRetransmission);
        assert_eq!(talk.report(0).missing_bytes, 32);
        talk.next_record();
        assert_eq!((talk.report(0).missing_bytes, talk.report(0).degradation), (31, Degradation(0)));
    }
    // Nobody answered: nothing was acknowledged.
    let mut talk = Talk::new();
    scatter(&mut talk, holes + 1);
    assert_eq!(talk.degraded(0), ["holes"]);
}

#[test]
fn a_segment_in_the_middle_of_a_hole_makes_two_of_it() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 101, 10));
    for number in 0..31 {
        talk.enter(0, data((11 + number) * MS, 90 - 2 * number as u32, 1));
    }
    assert_eq!((talk.report(0).missing_bytes, talk.report(0).degradation), (69, Degradation(0)));
    assert_eq!(talk.enter(0, data(60 * MS, 4, 1)), SegmentClass::UnseenRetransmission);
    // Three octets below are settled.
    assert_eq!((talk.report(0).missing_bytes, talk.degraded(0)), (68, vec!["holes"]));
    assert_eq!(talk.enter(0, data(61 * MS, 1, 1)), SegmentClass::Retransmission);
}

#[test]
fn another_syn_begins_anew() {
    for ends in [None, Some((0, FIN)), Some((1, FIN)), Some((0, RST)), Some((1, RST))] {
        let mut talk = Talk::begun();
        talk.enter(0, data(10 * MS, 11, 10));
        if let Some((side, control)) = ends {
            talk.enter(side, segment(11 * MS, if side == 0 { 21 } else { 1001 }, 0, control));
        }
        assert_eq!(talk.enter(0, segment(12 * MS, 5000, 0, SYN)), SegmentClass::Syn);
        assert_eq!(talk.degraded(0), if ends.is_none() { vec!["reused"] } else { vec![] }, "{ends:?}");
        assert_eq!(talk.enter(0, data(13 * MS, 5001, 10)), SegmentClass::InOrder);
        let report = talk.report(0);
        assert_eq!((report.missing_bytes, report.largest_hole_bytes, report.syns()), (10, 10, 2));
        talk.enter(0, segment(14 * MS, 5011, 0, FIN));
        assert_eq!((talk.report(0).size_by_sequence_bytes, talk.report(0).duration_by_sequence_ns), (None, None));
    }
}

#[test]
fn a_syn_overtaken_by_what_follows_it_begins_below() {
    let mut talk = Talk::new();
    talk.enter(0, data(10 * MS, 101, 10));
    assert_eq!(talk.enter(0, segment(11 * MS, 50, 0, SYN)), SegmentClass::Syn);
    assert_eq!((talk.report(0).missing_bytes, talk.degraded(0)), (50, vec![]));
    assert_eq!(talk.enter(0, data(13 * MS, 51, 20)), SegmentClass::OutOfOrder);
    assert_eq!(talk.enter(0, data(14 * MS, 71, 30)), SegmentClass::UnseenRetransmission);
    talk.enter(0, segment(15 * MS, 111, 0, FIN));
    let report = talk.report(0);
    assert_eq!((report.size_by_sequence_bytes, report.duration_by_sequence_ns), (Some(60), Some(4 * MS)));
    assert_eq!((report.missing_bytes, report.largest_hole_bytes), (0, 0));

    // The octet behind it is the lowest position: nothing lies between. One more is a quarter of a turn, and one less above.
    for (sequence, overtaken) in
        [(100, true), (101, false), (100 - QUARTER as i64, false), (101 - QUARTER as i64, true)]
    {
        let mut talk = Talk::new();
        talk.enter(0, data(10 * MS, 101, 10));
        talk.enter(0, segment(11 * MS, sequence as u32, 0, SYN));
        assert_eq!(talk.degraded(0).is_empty(), overtaken, "{sequence}");
    }
}

#[test]
fn a_syn_may_bring_payload_and_a_fin() {
    let mut talk = Talk::new();
    assert_eq!(talk.enter(0, segment(0, 0, 7, SYN)), SegmentClass::Syn);
    assert_eq!(talk.enter(0, segment(MS, 0, 9, SYN)), SegmentClass::SynRetransmission);
    assert_eq!(talk.enter(0, data(2 * MS, 5, 10)), SegmentClass::Retransmission);
    let report = talk.report(0);
    assert_eq!((report.unique_bytes, report.retransmitted_bytes, report.partial_retransmissions), (14, 12, 1));
    assert_eq!((report.count(SegmentClass::Syn).bytes, report.count(SegmentClass::SynRetransmission).bytes), (7, 9));
    let mut talk = Talk::new();
    talk.enter(0, segment(0, 0, 7, SYN | FIN));
    assert_eq!((talk.report(0).fins, talk.report(0).size_by_sequence_bytes), (1, Some(7)));
}

#[test]
fn a_handshake_takes_its_time_on_both_sides_of_the_probe() {
    let talk = Talk::begun();
    assert_eq!((talk.report(0).handshake_rtt_ns, talk.report(1).handshake_rtt_ns), (Some(2 * MS), Some(4 * MS)));

    // SYN and its answer repeated: from the last one on.
    let mut talk = Talk::new();
    let answer = Packet { acknowledgment: 1, ..segment(0, 1000, 0, SYN | ACK) };
    talk.enter(0, segment(0, 0, 0, SYN));
    talk.enter(0, segment(1000 * MS, 0, 0, SYN));
    talk.enter(1, Packet { time_ns: 1004 * MS, ..answer });
    talk.enter(1, Packet { time_ns: 2004 * MS, identification: 7, ..answer });
    talk.enter(0, acknowledgment(2005 * MS, 1, 1001));
    talk.enter(0, acknowledgment(3000 * MS, 1, 1001));
    assert_eq!((talk.report(0).handshake_rtt_ns, talk.report(1).handshake_rtt_ns), (Some(MS), Some(4 * MS)));
    assert_eq!(talk.report(0).count(SegmentClass::SynRetransmission).segments, 1);

    // Of records that follow, too.
    talk.next_record();
    assert_eq!(talk.report(0).handshake_rtt_ns, Some(MS));

    // An answer to something else is none; nor is what lies before.
    for (number, known) in [(0, false), (1, true), (2, false)] {
        let mut talk = Talk::new();
        talk.enter(0, segment(10 * MS, 0, 0, SYN));
        talk.enter(1, Packet { time_ns: 11 * MS, acknowledgment: number, ..answer });
        assert_eq!(talk.report(1).handshake_rtt_ns.is_some(), known, "{number}");
    }
    let mut talk = Talk::new();
    talk.enter(0, segment(10 * MS, 0, 0, SYN));
    talk.enter(1, Packet { time_ns: 9 * MS, ..answer });
    assert_eq!(talk.report(1).handshake_rtt_ns, None);
}

#[test]
fn options_are_of_the_last_syn_that_began() {
    let mut talk = Talk::new();
    let options = |size: u32, scale: u16, window: u16, packet: Packet| Packet {
        identification: packet.identification | size << 16,
        control: packet.control | (scale + 1) << 12,
        window,
        ..packet
    };
    let told = |talk: &Talk| {
        let report = talk.report(0);
        (report.maximum_segment_size, report.window_scale, report.syn_window)
    };
    talk.enter(0, data(0, 1, 10));
    assert_eq!(told(&talk), (None, None, None));
    talk.enter(0, options(1460, 0, 100, segment(MS, 0, 0, SYN)));
    assert_eq!(told(&talk), (Some(1460), Some(0), Some(100)));
    talk.enter(0, options(1400, 3, 101, segment(2 * MS, 0, 0, SYN)));
    assert_eq!(told(&talk), (Some(1460), Some(0), Some(100)), "repeated");
    talk.enter(0, options(65_535, 14, 0, segment(3 * MS, 9000, 0, SYN)));
    assert_eq!(told(&talk), (Some(65_535), Some(14), Some(0)));
    talk.enter(0, segment(4 * MS, 19_000, 0, SYN));
    assert_eq!(told(&talk), (None, None, Some(500)));
}

#[test]
fn a_fin_elsewhere_leaves_no_size() {
    let mut talk = Talk::begun();
    talk.enter(0, segment(10 * MS, 1, 9, FIN));
    talk.enter(0, segment(20 * MS, 10, 0, FIN));
    assert_eq!(
        (talk.report(0).size_by_sequence_bytes, talk.report(0).duration_by_sequence_ns),
        (Some(9), Some(10 * MS))
    );
    talk.enter(0, segment(30 * MS, 11, 0, FIN));
    assert_eq!((talk.report(0).size_by_sequence_bytes, talk.report(0).fins), (None, 3));
    // Neither does one that is out of window count, nor one with RST.
    talk.enter(1, segment(31 * MS, 1 << 31, 0, FIN));
    talk.enter(1, segment(32 * MS, 1001, 0, FIN | RST));
    assert_eq!(talk.report(1).fins, 0);
}

#[test]
fn a_connection_may_be_longer_than_its_numbers() {
    let (payload, segments) = (64_000_u32, 140_000_u32);
    let mut talk = Talk::new();
    talk.enter(0, segment(0, u32::MAX - 5, 0, SYN));
    talk.enter(1, Packet { acknowledgment: u32::MAX - 4, ..segment(MS, 0, 0, SYN | ACK) });
    let mut sequence = u32::MAX - 4;
    for number in 0..segments {
        let time_ns = u64::from(number) * 1000 + 2 * MS;
        let packet = Packet { acknowledgment: 1, ..segment(time_ns, sequence, payload, ACK) };
        talk.reference.enter(0, &packet);
        if !talk.connection.enter_fast(0, &packet, &talk.room) {
            talk.connection.enter(0, &packet, &mut talk.room);
        }
        talk.packets[0] += 1;
        sequence = sequence.wrapping_add(payload);
    }
    talk.enter(0, segment(1_000_000 * MS, sequence, 0, FIN | ACK));
    let octets = u64::from(payload) * u64::from(segments);
    assert!(octets > 2 << 32);
    let report = talk.report(0);
    assert_eq!((report.size_by_sequence_bytes, report.unique_bytes), (Some(octets), octets));
    assert_eq!(report.count(SegmentClass::InOrder).segments, u64::from(segments) + 1);
}

#[test]
fn what_is_repeated_often_is_counted_in_full() {
    let mut talk = Talk::begun();
    for number in 0..600_u32 {
        let time_ns = u64::from(number) * 2000 * MS + 100 * MS;
        assert_eq!(talk.enter(0, segment(time_ns, 1, 0, RST)), SegmentClass::Reset);
        assert_eq!(
            talk.enter(0, segment(time_ns + MS, number * 100, 0, SYN)),
            if number == 0 { SegmentClass::SynRetransmission } else { SegmentClass::Syn }
        );
        talk.enter(0, segment(time_ns + 2 * MS, number * 100 + 1, 0, FIN));
    }
    let report = talk.report(0);
    assert_eq!((report.count(SegmentClass::Reset).segments, report.syns(), report.fins), (600, 601, 600));
}

#[test]
fn packets_without_a_header_are_unread() {
    let mut talk = Talk::begun();
    let later = Packet { flags: Flags(Flags::FRAGMENT_LATER), ..data(10 * MS, 1, 900) };
    assert_eq!(talk.enter(0, later), SegmentClass::Unread);
    let report = talk.report(0);
    assert_eq!(
        (report.count(SegmentClass::Unread).segments, report.count(SegmentClass::Unread).bytes, report.unique_bytes),
        (1, 0, 0)
    );
    assert_eq!((talk.degraded(0), talk.degraded(1)), (vec!["unread"], vec![]));
    talk.next_record();
    assert_eq!(talk.degraded(0), Vec::<&str>::new());
}

#[test]
fn a_first_fragment_is_as_long_as_it_says_and_marks_that_more_is_missing() {
    let whole = Packet { acknowledgment: 1001, ..segment(10 * MS, 1, 10, ACK) };
    for (flags, marked) in [
        (Flags(Flags::TCP | Flags::PORTS), vec![]),
        (Flags(Flags::TCP | Flags::PORTS | Flags::FRAGMENT_FIRST), vec!["unread"]),
    ] {
        // With payload, without, as SYN, and as a copy.
        for packet in [
            whole,
            Packet { payload_bytes: 0, sequence: 1, acknowledgment: 1002, ..whole },
            segment(10 * MS, 0, 5, SYN),
        ] {
            let mut talk = Talk::begun();
            let class = talk.enter(0, Packet { flags, ..packet });
            assert_ne!(class, SegmentClass::Unread);
            assert_eq!((talk.degraded(0), talk.degraded(1)), (marked.clone(), vec![]), "{packet:?}");
            assert_eq!(talk.report(0).count(SegmentClass::Unread).segments, 0);
            talk.next_record();
            assert_eq!(talk.enter(0, Packet { flags, time_ns: 11 * MS, ..packet }), SegmentClass::Duplicate);
            assert_eq!(talk.degraded(0), marked);
        }
    }
    let mut talk = Talk::begun();
    let first = Packet { flags: Flags(Flags::TCP | Flags::PORTS | Flags::FRAGMENT_FIRST), ..whole };
    assert!(!talk.connection.clone().enter_fast(0, &first, &talk.room));
    assert!(talk.connection.clone().enter_fast(0, &whole, &talk.room));
    assert_eq!(talk.enter(0, first), SegmentClass::InOrder);
    let report = talk.report(0);
    assert_eq!((report.unique_bytes, report.missing_bytes), (10, 0));
    assert_eq!(talk.enter(0, data(12 * MS, 21, 10)), SegmentClass::InOrder);
    assert_eq!(talk.report(0).missing_bytes, 10, "what the others brought");
}

#[test]
fn without_room_the_packets_still_add_up() {
    for capacity in [0, 1] {
        let mut room = AnomalyPool::new(capacity).unwrap();
        let mut connection = Connection::NEW;
        let mut packets = [0; 2];
        let mut enter = |connection: &mut Connection, room: &mut AnomalyPool, side: usize, packet: Packet| {
            packets[side] += 1;
            connection.enter(side, &packet, room);
            (0..2).map(|side| connection.report(side, packets[side], room)).collect::<Vec<_>>()
        };
        for side in 0..2 {
            enter(&mut connection, &mut room, side, segment(0, 0, 0, SYN));
            enter(&mut connection, &mut room, side, data(MS, 1, 10));
            enter(&mut connection, &mut room, side, data(2 * MS, 21, 10));
            enter(&mut connection, &mut room, side, data(3 * MS, 21, 10));
            enter(&mut connection, &mut room, side, Packet { window: 0, ..data(4 * MS, 0x8000_0000, 10) });
            enter(&mut connection, &mut room, side, data(5 * MS, 11, 5));
            let reports = enter(&mut connection, &mut room, side, Packet { flags: Flags(0), ..data(6 * MS, 11, 5) });
            let report = reports[side];
            assert_eq!(report.segments(), 7);
            let is_short = capacity <= side;
            assert_eq!(report.degradation.has(Degradation::POOL_FULL), is_short, "{capacity}, side {side}");
            assert_eq!(report.degradation.has(Degradation::UNREAD), !is_short);
            assert_eq!(report.count(SegmentClass::Retransmission).segments, u64::from(!is_short));
            assert_eq!(report.missing_bytes, if is_short { 0 } else { 5 });
        }
        assert_eq!(room.used(), capacity);
        connection.reset(&mut room);
        assert_eq!(room.used(), 0);
    }
}

#[test]
fn a_hole_that_was_not_kept_is_told_of_in_later_records() {
    let mut full = AnomalyPool::new(0).unwrap();
    let mut room = AnomalyPool::new(1).unwrap();
    let mut connection = Connection::NEW;
    connection.enter(0, &data(0, 1, 10), &mut full);
    connection.enter(0, &data(MS, 21, 10), &mut full);
    connection.start_next_record(&mut full);
    assert_eq!(connection.enter(0, &data(2 * MS, 11, 10), &mut room), SegmentClass::Retransmission, "by mistake");
    assert_eq!(connection.report(0, 1, &room).degradation.names().collect::<Vec<_>>(), ["room"]);
}

#[test]
fn room_is_given_back_at_the_end_of_a_record_that_leaves_no_hole() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 1, 10));
    talk.enter(0, data(20 * MS, 1, 10));
    assert_eq!(talk.room.used(), 1);
    talk.next_record();
    assert_eq!((talk.room.used(), talk.connection.anomaly_indices()), (0, [None, None]));
    talk.enter(0, data(30 * MS, 21, 10));
    talk.next_record();
    assert_eq!(talk.room.used(), 1, "for the hole");
    assert_eq!((talk.report(0).missing_bytes, talk.report(0).segments()), (10, 0));
    assert_eq!(talk.enter(0, data(50 * MS, 11, 10)), SegmentClass::UnseenRetransmission);
    talk.next_record();
    assert_eq!(talk.room.used(), 0);
}

#[test]
fn it_has_ended_by_a_fin_of_both_or_a_reset_of_one() {
    let mut talk = Talk::begun();
    talk.enter(0, segment(10 * MS, 1, 0, FIN));
    assert!(!talk.connection.has_ended());
    talk.enter(1, segment(11 * MS, 1001, 0, FIN));
    assert!(talk.connection.has_ended());
    for side in 0..2 {
        let mut talk = Talk::begun();
        talk.enter(side, segment(10 * MS, 1, 0, RST));
        assert!(talk.connection.has_ended());
    }
}

#[test]
fn a_report_knows_whether_there_was_trouble() {
    let mut talk = Talk::begun();
    talk.enter(0, data(10 * MS, 1, 10));
    talk.enter(0, segment(11 * MS, 11, 0, FIN));
    talk.enter(0, segment(12 * MS, 12, 0, RST));
    assert!(!talk.report(0).has_anomalies());
    let troubles = [
        data(20 * MS, 5, 3),
        data(20 * MS, 30, 3),
        Packet { window: 0, ..acknowledgment(20 * MS, 12, 1001) },
        Packet { flags: Flags(0), ..data(20 * MS, 5, 3) },
        // Their octets are in no count that is always told.
        Packet { payload_bytes: 3, ..segment(20 * MS, 12, 0, RST) },
        Packet { payload_bytes: 3, ..segment(20 * MS, 4_000_000, 0, SYN) },
    ];
    for packet in troubles {
        let mut reference = talk.reference.clone();
        reference.enter(0, &packet);
        assert!(reference.report(0).has_anomalies(), "{packet:?}");
    }
}
