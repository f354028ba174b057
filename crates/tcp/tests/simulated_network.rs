//! Connections as a probe in a simulated network captures them: [`Connection`], the reference and
//! the exhaustive model give equal results, and the records of a connection add up.

mod exhaustive;
mod network;

use exhaustive::{Coverage, Exhaustive};
use network::{Choices, capture};
use weir_packet::Packet;
use weir_tcp::{AnomalyPool, Connection, SegmentClass, SegmentEvent, TcpReport};
use weir_testkit::reference::TcpReference;
use weir_testkit::traffic::seeds;

const SEEDS: u64 = 4000;

/// Asserts the equation of `docs/tcp.md` section 4.
fn assert_octets_add_up(report: &TcpReport) {
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

/// Adds the counters of a record.
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

/// The counters of a report, without open holes, which every record repeats.
fn counters_of(report: TcpReport) -> TcpReport {
    let mut counted = TcpReport::default();
    add(&mut counted, &report);
    counted
}

/// All implementations. The `whole` ones see one record, the others several.
#[derive(Default)]
struct Comparison {
    exhaustive: Exhaustive,
    reference: TcpReference,
    /// Takes every packet by the slow path, observed.
    slow: Option<Connection>,
    /// Tries the fast path first.
    fast: Option<Connection>,
    pool: AnomalyPool,
    whole: Exhaustive,
    whole_reference: TcpReference,
    packets: [u64; 2],
    sums: [TcpReport; 2],
}

impl Comparison {
    fn new() -> Self {
        let pool = AnomalyPool::new(4).unwrap();
        Self { pool, slow: Some(Connection::NEW), fast: Some(Connection::NEW), ..Self::default() }
    }

    fn enter(&mut self, side: usize, packet: &Packet) {
        let (slow, fast) = (self.slow.as_mut().unwrap(), self.fast.as_mut().unwrap());
        let class = self.exhaustive.enter(side, packet);
        let before = self.reference.report(side);
        assert_eq!(self.reference.enter(side, packet), class, "reference: {packet:?}");
        let mut events = Vec::new();
        let observed = slow.classify_observed(side, packet, &mut self.pool, |event| events.push(event));
        assert_eq!(observed, class, "slow path: {packet:?}");
        assert_events_match(&events, &before, &self.reference.report(side), packet);
        if fast.classify_fast(side, packet, &self.pool) {
            assert!(
                matches!(class, SegmentClass::InOrder | SegmentClass::Acknowledgment),
                "fast path, but {class:?}: {packet:?}"
            );
        } else {
            assert_eq!(fast.classify(side, packet, &mut self.pool), class, "not the fast path: {packet:?}");
        }
        assert_eq!(self.whole.enter(side, packet), class, "one record: {packet:?}");
        assert_eq!(self.whole_reference.enter(side, packet), class, "one record, reference: {packet:?}");
        self.packets[side] += 1;
    }

    /// Compares the reports of a side.
    fn compare(&self, side: usize) -> TcpReport {
        let report = self.exhaustive.report(side);
        let packets = self.packets[side];
        assert_eq!(self.reference.report(side), report, "reference, side {side}");
        for connection in [self.slow.as_ref().unwrap(), self.fast.as_ref().unwrap()] {
            assert_eq!(connection.report(side, packets, &self.pool), report, "connection, side {side}");
        }
        assert_eq!(report.segments(), packets);
        assert_octets_add_up(&report);
        report
    }

    fn start_next_record(&mut self) {
        for side in 0..2 {
            let report = self.compare(side);
            add(&mut self.sums[side], &report);
        }
        self.exhaustive.start_next_record();
        self.reference.start_next_record();
        self.slow.as_mut().unwrap().start_next_record(&mut self.pool);
        self.fast.as_mut().unwrap().start_next_record(&mut self.pool);
        self.packets = [0; 2];
    }

    /// Asserts that the records add up to the one record of the whole connection.
    fn finish(mut self) -> Exhaustive {
        let last = [self.compare(0), self.compare(1)];
        self.start_next_record();
        for (side, last) in last.iter().enumerate() {
            let whole = self.whole.report(side);
            assert_eq!(self.whole_reference.report(side), whole);
            assert_eq!(counters_of(whole), self.sums[side], "the records of side {side} add up");
            let of_connection = |report: &TcpReport| {
                (
                    (report.syn_window, report.maximum_segment_size, report.window_scale, report.handshake_rtt_ns),
                    (report.size_by_sequence_bytes, report.duration_by_sequence_ns),
                )
            };
            assert_eq!(of_connection(last), of_connection(&whole), "fields of the connection, side {side}");
        }
        self.slow.as_mut().unwrap().reset(&mut self.pool);
        self.fast.as_mut().unwrap().reset(&mut self.pool);
        assert_eq!(self.pool.used(), 0, "all entries are released");
        self.whole
    }
}

/// Asserts that the events of a packet explain what it changed in the report of its side.
fn assert_events_match(events: &[SegmentEvent], before: &TcpReport, after: &TcpReport, packet: &Packet) {
    let count = |event| events.iter().filter(|&&one| one == event).count() as u64;
    let sum = |length: fn(&SegmentEvent) -> Option<u64>| events.iter().filter_map(length).sum::<u64>();
    let repeated = sum(|event| match event {
        SegmentEvent::Repeated { start, end } => Some(end - start),
        _ => None,
    });
    assert_eq!(before.retransmitted_bytes + repeated, after.retransmitted_bytes, "{packet:?}: {events:?}");
    let opened = sum(|event| match event {
        SegmentEvent::HoleOpened { start, end } => Some(end - start),
        _ => None,
    });
    let filled = sum(|event| match event {
        SegmentEvent::HoleFilled { start, end } => Some(end - start),
        _ => None,
    });
    assert_eq!(before.missing_bytes + opened, after.missing_bytes + filled, "{packet:?}: {events:?}");
    let counters =
        |report: &TcpReport| [report.partial_retransmissions, report.spurious_retransmissions, report.zero_windows];
    let counted = [SegmentEvent::PartialRetransmission, SegmentEvent::SpuriousRetransmission, SegmentEvent::ZeroWindow];
    for ((event, before), after) in counted.into_iter().zip(counters(before)).zip(counters(after)) {
        assert_eq!(before + count(event), after, "{packet:?}: {events:?}");
    }
    let degradation = events.iter().fold(before.degradation.0, |bits, event| match event {
        SegmentEvent::Degraded(bit) => bits | bit,
        _ => bits,
    });
    assert_eq!(degradation, after.degradation.0, "{packet:?}: {events:?}");
    if before.handshake_rtt_ns != after.handshake_rtt_ns
        && let Some(rtt_ns) = after.handshake_rtt_ns
    {
        assert!(events.contains(&SegmentEvent::HandshakeAnswered { rtt_ns }), "{packet:?}: {events:?}");
    }
}

#[test]
fn implementations_agree_on_captured_connections() {
    let mut coverage = Coverage::default();
    for seed in seeds(SEEDS) {
        let mut random = Choices::new(seed);
        let packets = capture(&mut random);
        let result = std::panic::AssertUnwindSafe(|| {
            let mut comparison = Comparison::new();
            let record_length = random.pick(&[2, 10, 1000]);
            for (number, (side, packet)) in packets.iter().enumerate() {
                if random.one_in(record_length) {
                    comparison.start_next_record();
                }
                comparison.enter(*side, packet);
                if number % 16 == 0 {
                    comparison.compare(*side);
                }
            }
            comparison.finish()
        });
        match std::panic::catch_unwind(result) {
            Ok(model) => coverage.add(&model),
            Err(_) => panic!("seed {seed} with {} packets; run it alone with WEIR_SEEDS={seed}", packets.len()),
        }
    }
    if seeds(SEEDS).count() as u64 >= SEEDS {
        coverage.assert_complete_except(&[]);
    }
}
