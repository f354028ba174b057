//! [`Reference`] and [`Connection`] against a program that keeps every position in a set, on connections as a probe sees
//! them.

mod judge;
mod network;

use judge::{Coverage, Judge};
use network::{Random, history};
use weir_packet::Packet;
use weir_tcp::{AnomalyPool, Connection, Reference, SegmentClass, TcpReport};

const SEEDS: u64 = 4000;

/// Seeds to test: `WEIR_SEEDS` is one of them, or two with `..` between.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("WEIR_SEEDS") else { return 0..SEEDS };
    let number = |text: &str| text.parse::<u64>().expect("WEIR_SEEDS is a number or two with .. between");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

/// The equation of section 4.
fn octets_add_up(report: &TcpReport) {
    let taken = [
        SegmentClass::Syn,
        SegmentClass::SynRetransmission,
        SegmentClass::ZeroWindowProbe,
        SegmentClass::InOrder,
        SegmentClass::Retransmission,
        SegmentClass::OutOfOrder,
        SegmentClass::UnseenRetransmission,
    ];
    let taken: u64 = taken.iter().map(|&class| report.count(class).bytes).sum();
    assert_eq!(taken, report.unique_bytes + report.retransmitted_bytes, "{report:?}");
}

/// Adds what a record counted.
fn add(sum: &mut TcpReport, record: &TcpReport) {
    for (sum, count) in sum.classes.iter_mut().zip(&record.classes) {
        sum.segments += count.segments;
        sum.bytes += count.bytes;
    }
    sum.retransmitted_bytes += record.retransmitted_bytes;
    sum.unique_bytes += record.unique_bytes;
    sum.partial_retransmissions += record.partial_retransmissions;
    sum.spurious_retransmissions += record.spurious_retransmissions;
    sum.fins += record.fins;
    sum.zero_windows += record.zero_windows;
    sum.largest_hole_bytes = sum.largest_hole_bytes.max(record.largest_hole_bytes);
    sum.degradation.0 |= record.degradation.0;
}

/// What is of the record alone, holes left out: those that are open are told by every record.
fn countable(report: TcpReport) -> TcpReport {
    let mut counted = TcpReport::default();
    add(&mut counted, &report);
    counted
}

/// All that judge a history. Records are cut in some of them.
#[derive(Default)]
struct Bench {
    judge: Judge,
    reference: Reference,
    entering: Option<Connection>,
    advancing: Option<Connection>,
    room: AnomalyPool,
    whole: Judge,
    whole_reference: Reference,
    packets: [u64; 2],
    sums: [TcpReport; 2],
}

impl Bench {
    fn new() -> Self {
        let room = AnomalyPool::new(4).unwrap();
        Self { room, entering: Some(Connection::NEW), advancing: Some(Connection::NEW), ..Self::default() }
    }

    fn enter(&mut self, side: usize, packet: &Packet) {
        let (entering, advancing) = (self.entering.as_mut().unwrap(), self.advancing.as_mut().unwrap());
        let class = self.judge.enter(side, packet);
        assert_eq!(self.reference.enter(side, packet), class, "by the reference: {packet:?}");
        assert_eq!(entering.enter(side, packet, &mut self.room), class, "entered: {packet:?}");
        if advancing.enter_fast(side, packet, &self.room) {
            assert!(
                matches!(class, SegmentClass::InOrder | SegmentClass::Acknowledgment),
                "usual, but {class:?}: {packet:?}"
            );
        } else {
            assert_eq!(advancing.enter(side, packet, &mut self.room), class, "not usual: {packet:?}");
        }
        assert_eq!(self.whole.enter(side, packet), class, "in one record: {packet:?}");
        assert_eq!(self.whole_reference.enter(side, packet), class, "in one record by the reference: {packet:?}");
        self.packets[side] += 1;
    }

    /// Compares the reports.
    fn compare(&self, side: usize) -> TcpReport {
        let report = self.judge.report(side);
        let packets = self.packets[side];
        assert_eq!(self.reference.report(side), report, "by the reference, side {side}");
        for connection in [self.entering.as_ref().unwrap(), self.advancing.as_ref().unwrap()] {
            assert_eq!(connection.report(side, packets, &self.room), report, "by the connection, side {side}");
        }
        assert_eq!(report.segments(), packets);
        octets_add_up(&report);
        report
    }

    fn next_record(&mut self) {
        for side in 0..2 {
            let report = self.compare(side);
            add(&mut self.sums[side], &report);
        }
        self.judge.next_record();
        self.reference.start_next_record();
        self.entering.as_mut().unwrap().start_next_record(&mut self.room);
        self.advancing.as_mut().unwrap().start_next_record(&mut self.room);
        self.packets = [0; 2];
    }

    /// The records add up to what there is without cuts.
    fn end(mut self) -> Judge {
        let last = [self.compare(0), self.compare(1)];
        self.next_record();
        for (side, last) in last.iter().enumerate() {
            let whole = self.whole.report(side);
            assert_eq!(self.whole_reference.report(side), whole);
            assert_eq!(countable(whole), self.sums[side], "the records of side {side} add up");
            let kept = |report: &TcpReport| {
                (
                    (report.syn_window, report.maximum_segment_size, report.window_scale, report.handshake_rtt_ns),
                    (report.size_by_sequence_bytes, report.duration_by_sequence_ns),
                )
            };
            assert_eq!(kept(last), kept(&whole), "of the connection, side {side}");
        }
        self.entering.as_mut().unwrap().reset(&mut self.room);
        self.advancing.as_mut().unwrap().reset(&mut self.room);
        assert_eq!(self.room.used(), 0, "all is given back");
        self.whole
    }
}

#[test]
fn of_connections_as_a_probe_sees_them() {
    let mut coverage = Coverage::default();
    for seed in seeds() {
        let mut random = Random::new(seed);
        let history = history(&mut random);
        let all = history.len();
        let told = std::panic::AssertUnwindSafe(|| {
            let mut bench = Bench::new();
            let cut = random.pick(&[2, 10, 1000]);
            for (number, (side, packet)) in history.iter().enumerate() {
                if random.one_in(cut) {
                    bench.next_record();
                }
                bench.enter(*side, packet);
                if number % 16 == 0 {
                    bench.compare(*side);
                }
            }
            bench.end()
        });
        match std::panic::catch_unwind(told) {
            Ok(judge) => coverage.add(&judge),
            Err(_) => panic!("seed {seed} of {all} packets (WEIR_SEEDS={seed} runs it alone)"),
        }
    }
    if seeds().count() as u64 >= SEEDS {
        coverage.is_whole_but(&[]);
    }
}
