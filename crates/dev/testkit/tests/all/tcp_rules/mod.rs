//! The rules of `docs/tcp.md`: [`Connection`] and the reference classify a few segments for each
//! rule, random packets, and what a simulated network captures.

mod acknowledgments;
mod coverage;
mod duplicates;
mod holes;
mod network;
mod positions;
mod random_packets;
mod simulated_network;
mod times;

use weir_packet::{Flags, Network, Packet};
use weir_tcp::SegmentClass::*;
use weir_tcp::{AnomalyPool, Connection, Degradation, MAX_HOLES, MeasuredTimes, SegmentClass, TcpReport};
use weir_testkit::reference::TcpReference;

const MS: u64 = 1_000_000;
/// Resolution of the times that decide about duplicates, ns.
const TICK: u64 = 1 << 20;
const ACK: u16 = Packet::ACK;
const SYN: u16 = Packet::SYN;
const FIN: u16 = Packet::FIN;
const RST: u16 = Packet::RST;
/// Largest possible window (RFC 7323 section 2.3).
const MAX_WINDOW: u32 = 1 << 30;

/// A connection whose results are checked against the reference.
struct CheckedConnection {
    reference: TcpReference,
    connection: Connection,
    pool: AnomalyPool,
    packets: [u64; 2],
}

impl CheckedConnection {
    fn new() -> Self {
        let pool = AnomalyPool::new(2).unwrap();
        Self { reference: TcpReference::default(), connection: Connection::NEW, pool, packets: [0; 2] }
    }

    /// After a handshake with a round trip of 6 ms. The first octet of side 0 has number 1, that of
    /// side 1 1001.
    fn established() -> Self {
        let mut checked = Self::new();
        assert_eq!(checked.enter(0, segment(0, 0, 0, SYN)), Syn);
        assert_eq!(checked.enter(1, Packet { acknowledgment: 1, ..segment(4 * MS, 1000, 0, SYN | ACK) }), Syn);
        assert_eq!(checked.enter(0, acknowledgment(6 * MS, 1, 1001)), Acknowledgment);
        checked
    }

    /// Enters a packet of a side, by the fast path if that takes it.
    fn enter(&mut self, side: usize, packet: Packet) -> SegmentClass {
        self.enter_by(side, packet, true)
    }

    fn enter_by(&mut self, side: usize, packet: Packet, fast: bool) -> SegmentClass {
        let class = self.reference.enter(side, &packet);
        if fast && self.connection.classify_fast(side, &packet, &self.pool, MeasuredTimes::enter) {
            assert!(matches!(class, InOrder | Acknowledgment), "fast path, but {class:?}: {packet:?}");
        } else {
            assert_eq!(self.connection.classify(side, &packet, &mut self.pool), class, "{packet:?}");
        }
        self.packets[side] += 1;
        self.report(side);
        class
    }

    fn report(&self, side: usize) -> TcpReport {
        let report = self.reference.report(side);
        assert_eq!(self.connection.report(side, self.packets[side], &self.pool), report);
        report
    }

    fn start_next_record(&mut self) {
        self.reference.start_next_record();
        self.connection.start_next_record(&mut self.pool);
        self.packets = [0; 2];
    }

    fn degraded(&self, side: usize) -> Vec<&'static str> {
        self.report(side).degradation.names().collect()
    }
}

/// A segment over IPv4. Its identification depends on its time.
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
fn handshake_rtt_is_measured_on_both_sides_of_the_probe() {
    let checked = CheckedConnection::established();
    assert_eq!((checked.report(0).handshake_rtt_ns, checked.report(1).handshake_rtt_ns), (Some(2 * MS), Some(4 * MS)));

    // SYN and SYN-ACK retransmitted: the time counts from the last one.
    let mut checked = CheckedConnection::new();
    let answer = Packet { acknowledgment: 1, ..segment(0, 1000, 0, SYN | ACK) };
    checked.enter(0, segment(0, 0, 0, SYN));
    checked.enter(0, segment(1000 * MS, 0, 0, SYN));
    checked.enter(1, Packet { time_ns: 1004 * MS, ..answer });
    checked.enter(1, Packet { time_ns: 2004 * MS, identification: 7, ..answer });
    checked.enter(0, acknowledgment(2005 * MS, 1, 1001));
    checked.enter(0, acknowledgment(3000 * MS, 1, 1001));
    assert_eq!((checked.report(0).handshake_rtt_ns, checked.report(1).handshake_rtt_ns), (Some(MS), Some(4 * MS)));
    assert_eq!(checked.report(0).count(SynRetransmission).segments, 1);

    // Later records keep it.
    checked.start_next_record();
    assert_eq!(checked.report(0).handshake_rtt_ns, Some(MS));

    // An acknowledgment of something else is no answer, and neither is an earlier packet.
    for (number, known) in [(0, false), (1, true), (2, false)] {
        let mut checked = CheckedConnection::new();
        checked.enter(0, segment(10 * MS, 0, 0, SYN));
        checked.enter(1, Packet { time_ns: 11 * MS, acknowledgment: number, ..answer });
        assert_eq!(checked.report(1).handshake_rtt_ns.is_some(), known, "{number}");
    }
    let mut checked = CheckedConnection::new();
    checked.enter(0, segment(10 * MS, 0, 0, SYN));
    checked.enter(1, Packet { time_ns: 9 * MS, ..answer });
    assert_eq!(checked.report(1).handshake_rtt_ns, None);
}

#[test]
fn acknowledgment_half_the_sequence_space_away_does_not_answer_the_syn() {
    let mut checked = CheckedConnection::new();
    checked.enter(0, segment(0, 0, 0, SYN));
    checked.enter(1, Packet { acknowledgment: 1 + (1 << 31), ..segment(0, 0, 0, SYN | ACK) });
    assert_eq!(checked.report(1).handshake_rtt_ns, None);
}

#[test]
fn options_are_those_of_the_last_new_syn() {
    let mut checked = CheckedConnection::new();
    let options = |size: u32, scale: u16, window: u16, packet: Packet| Packet {
        identification: packet.identification | size << 16,
        control: packet.control | (scale + 1) << 12,
        window,
        ..packet
    };
    let options_of = |checked: &CheckedConnection| {
        let report = checked.report(0);
        (report.maximum_segment_size, report.window_scale, report.syn_window)
    };
    checked.enter(0, data(0, 1, 10));
    assert_eq!(options_of(&checked), (None, None, None));
    checked.enter(0, options(1460, 0, 100, segment(MS, 0, 0, SYN)));
    assert_eq!(options_of(&checked), (Some(1460), Some(0), Some(100)));
    checked.enter(0, options(1400, 3, 101, segment(2 * MS, 0, 0, SYN)));
    assert_eq!(options_of(&checked), (Some(1460), Some(0), Some(100)), "SYN retransmission");
    checked.enter(0, options(65_535, 14, 0, segment(3 * MS, 9000, 0, SYN)));
    assert_eq!(options_of(&checked), (Some(65_535), Some(14), Some(0)));
    checked.enter(0, segment(4 * MS, 19_000, 0, SYN));
    assert_eq!(options_of(&checked), (None, None, Some(500)));
}

#[test]
fn second_fin_position_leaves_no_size() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, segment(10 * MS, 1, 9, FIN));
    checked.enter(0, segment(20 * MS, 10, 0, FIN));
    assert_eq!(
        (checked.report(0).size_by_sequence_bytes, checked.report(0).duration_by_sequence_ns),
        (Some(9), Some(10 * MS))
    );
    checked.enter(0, segment(30 * MS, 11, 0, FIN));
    assert_eq!((checked.report(0).size_by_sequence_bytes, checked.report(0).fins), (None, 3));
    // A FIN out of window or with RST does not count.
    checked.enter(1, segment(31 * MS, 1 << 31, 0, FIN));
    checked.enter(1, segment(32 * MS, 1001, 0, FIN | RST));
    assert_eq!(checked.report(1).fins, 0);
}

#[test]
fn counters_exceed_8_bits() {
    let mut checked = CheckedConnection::established();
    for number in 0..600_u32 {
        let time_ns = u64::from(number) * 2000 * MS + 100 * MS;
        assert_eq!(checked.enter(0, segment(time_ns, 1, 0, RST)), Reset);
        assert_eq!(
            checked.enter(0, segment(time_ns + MS, number * 100, 0, SYN)),
            if number == 0 { SynRetransmission } else { Syn }
        );
        checked.enter(0, segment(time_ns + 2 * MS, number * 100 + 1, 0, FIN));
    }
    let report = checked.report(0);
    assert_eq!((report.count(Reset).segments, report.syns(), report.fins), (600, 601, 600));
}

#[test]
fn packets_without_tcp_header_are_unread() {
    let mut checked = CheckedConnection::established();
    let later = Packet { flags: Flags(Flags::FRAGMENT_LATER), ..data(10 * MS, 1, 900) };
    assert_eq!(checked.enter(0, later), Unread);
    let report = checked.report(0);
    assert_eq!((report.count(Unread).segments, report.count(Unread).bytes, report.unique_bytes), (1, 0, 0));
    assert_eq!((checked.degraded(0), checked.degraded(1)), (vec!["unread"], vec![]));
    checked.start_next_record();
    assert_eq!(checked.degraded(0), Vec::<&str>::new());
}

#[test]
fn first_fragment_counts_its_own_length_and_marks_the_report() {
    let whole = Packet { acknowledgment: 1001, ..segment(10 * MS, 1, 10, ACK) };
    for (flags, marked) in [
        (Flags(Flags::TCP | Flags::PORTS), vec![]),
        (Flags(Flags::TCP | Flags::PORTS | Flags::FRAGMENT_FIRST), vec!["unread"]),
    ] {
        // With payload, without, as SYN, and as a duplicate.
        for packet in [
            whole,
            Packet { payload_bytes: 0, sequence: 1, acknowledgment: 1002, ..whole },
            segment(10 * MS, 0, 5, SYN),
        ] {
            let mut checked = CheckedConnection::established();
            let class = checked.enter(0, Packet { flags, ..packet });
            assert_ne!(class, Unread);
            assert_eq!((checked.degraded(0), checked.degraded(1)), (marked.clone(), vec![]), "{packet:?}");
            assert_eq!(checked.report(0).count(Unread).segments, 0);
            checked.start_next_record();
            assert_eq!(checked.enter(0, Packet { flags, time_ns: 11 * MS, ..packet }), Duplicate);
            assert_eq!(checked.degraded(0), marked);
        }
    }
    let mut checked = CheckedConnection::established();
    let first = Packet { flags: Flags(Flags::TCP | Flags::PORTS | Flags::FRAGMENT_FIRST), ..whole };
    assert!(!checked.connection.clone().classify_fast(0, &first, &checked.pool, MeasuredTimes::enter));
    assert!(checked.connection.clone().classify_fast(0, &whole, &checked.pool, MeasuredTimes::enter));
    assert_eq!(checked.enter(0, first), InOrder);
    let report = checked.report(0);
    assert_eq!((report.unique_bytes, report.missing_bytes), (10, 0));
    assert_eq!(checked.enter(0, data(12 * MS, 21, 10)), InOrder);
    assert_eq!(checked.report(0).missing_bytes, 10, "the payload of the later fragments");
}

#[test]
fn with_a_full_pool_segments_still_add_up() {
    for capacity in [0, 1] {
        let mut pool = AnomalyPool::new(capacity).unwrap();
        let mut connection = Connection::NEW;
        let mut packets = [0; 2];
        let mut enter = |connection: &mut Connection, pool: &mut AnomalyPool, side: usize, packet: Packet| {
            packets[side] += 1;
            connection.classify(side, &packet, pool);
            (0..2).map(|side| connection.report(side, packets[side], pool)).collect::<Vec<_>>()
        };
        for side in 0..2 {
            enter(&mut connection, &mut pool, side, segment(0, 0, 0, SYN));
            enter(&mut connection, &mut pool, side, data(MS, 1, 10));
            enter(&mut connection, &mut pool, side, data(2 * MS, 21, 10));
            enter(&mut connection, &mut pool, side, data(3 * MS, 21, 10));
            enter(&mut connection, &mut pool, side, Packet { window: 0, ..data(4 * MS, 0x8000_0000, 10) });
            enter(&mut connection, &mut pool, side, data(5 * MS, 11, 5));
            let reports = enter(&mut connection, &mut pool, side, Packet { flags: Flags(0), ..data(6 * MS, 11, 5) });
            let report = reports[side];
            assert_eq!(report.segments(), 7);
            let is_short = capacity <= side;
            assert_eq!(report.degradation.has(Degradation::POOL_FULL), is_short, "{capacity}, side {side}");
            assert_eq!(report.degradation.has(Degradation::UNREAD), !is_short);
            assert_eq!(report.count(Retransmission).segments, u64::from(!is_short));
            assert_eq!(report.missing_bytes, if is_short { 0 } else { 5 });
        }
        assert_eq!(pool.used(), capacity);
        connection.reset(&mut pool);
        assert_eq!(pool.used(), 0);
    }
}

#[test]
fn pool_entry_is_released_with_a_record_without_holes() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 1, 10));
    checked.enter(0, data(20 * MS, 1, 10));
    assert_eq!(checked.pool.used(), 1);
    checked.start_next_record();
    assert_eq!((checked.pool.used(), [0, 1].map(|side| checked.connection.entry_index(side))), (0, [None, None]));
    checked.enter(0, data(30 * MS, 21, 10));
    checked.start_next_record();
    assert_eq!(checked.pool.used(), 1, "for the hole");
    assert_eq!((checked.report(0).missing_bytes, checked.report(0).segments()), (10, 0));
    assert_eq!(checked.enter(0, data(50 * MS, 11, 10)), UnseenRetransmission);
    checked.start_next_record();
    assert_eq!(checked.pool.used(), 0);
}

#[test]
fn connection_ends_with_fin_of_both_or_rst_of_one() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, segment(10 * MS, 1, 0, FIN));
    assert!(!checked.connection.has_ended());
    checked.enter(1, segment(11 * MS, 1001, 0, FIN));
    assert!(checked.connection.has_ended());
    for side in 0..2 {
        let mut checked = CheckedConnection::established();
        checked.enter(side, segment(10 * MS, 1, 0, RST));
        assert!(checked.connection.has_ended());
    }
}

#[test]
fn report_tells_whether_it_has_anomalies() {
    let mut checked = CheckedConnection::established();
    checked.enter(0, data(10 * MS, 1, 10));
    checked.enter(0, segment(11 * MS, 11, 0, FIN));
    checked.enter(0, segment(12 * MS, 12, 0, RST));
    assert!(!checked.report(0).has_anomalies());
    let anomalies = [
        data(20 * MS, 5, 3),
        data(20 * MS, 30, 3),
        Packet { window: 0, ..acknowledgment(20 * MS, 12, 1001) },
        Packet { flags: Flags(0), ..data(20 * MS, 5, 3) },
        // Payload of RST and SYN is in no field that is always exported.
        Packet { payload_bytes: 3, ..segment(20 * MS, 12, 0, RST) },
        Packet { payload_bytes: 3, ..segment(20 * MS, 4_000_000, 0, SYN) },
    ];
    for packet in anomalies {
        let mut reference = checked.reference.clone();
        reference.enter(0, &packet);
        assert!(reference.report(0).has_anomalies(), "{packet:?}");
    }
}
