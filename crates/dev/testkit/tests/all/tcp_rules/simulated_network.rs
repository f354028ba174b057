//! Connections as a probe in a simulated network captures them: [`Connection`] and the reference
//! give equal results, and the records of a connection add up.

use super::coverage::Coverage;
use super::network::{Choices, capture};
use super::*;
use std::ops::Range;
use weir_tcp::SegmentEvent;
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

/// The counters of a report, without open holes, which every record repeats.
fn counters_of(report: &TcpReport) -> TcpReport {
    let mut counted = TcpReport::default();
    counted.add(report);
    TcpReport { missing_bytes: 0, ..counted }
}

/// All implementations. `whole` sees one record, the others several.
struct Comparison {
    /// Tries the fast path first.
    checked: CheckedConnection,
    /// Takes every packet by the slow path, observed.
    slow: Connection,
    whole: TcpReference,
    sums: [TcpReport; 2],
}

impl Comparison {
    fn new() -> Self {
        let checked = CheckedConnection { pool: AnomalyPool::new(4).unwrap(), ..CheckedConnection::new() };
        Self { checked, slow: Connection::NEW, whole: TcpReference::default(), sums: Default::default() }
    }

    fn enter(&mut self, side: usize, packet: Packet) {
        let before = self.checked.reference.report(side);
        let class = self.checked.enter(side, packet);
        let mut events = Vec::new();
        let pool = &mut self.checked.pool;
        let observed = self.slow.classify_observed(side, &packet, pool, |event| events.push(event));
        assert_eq!(observed, class, "slow path: {packet:?}");
        assert_events_match(&events, &before, &self.checked.report(side), &packet);
        assert_eq!(self.whole.enter(side, &packet), class, "one record: {packet:?}");
    }

    /// Compares the reports of a side.
    fn compare(&self, side: usize) -> TcpReport {
        let report = self.checked.report(side);
        let packets = self.checked.packets[side];
        assert_eq!(self.slow.report(side, packets, &self.checked.pool), report, "slow path, side {side}");
        assert_eq!(report.segments(), packets);
        assert_octets_add_up(&report);
        report
    }

    fn start_next_record(&mut self) {
        for side in 0..2 {
            let report = self.compare(side);
            self.sums[side].add(&counters_of(&report));
        }
        self.checked.start_next_record();
        self.slow.start_next_record(&mut self.checked.pool);
    }

    /// Asserts that the records add up to the one record of the whole connection.
    fn finish(mut self) -> TcpReference {
        let last = [self.compare(0), self.compare(1)];
        self.start_next_record();
        for (side, last) in last.iter().enumerate() {
            let whole = self.whole.report(side);
            assert_eq!(counters_of(&whole), self.sums[side], "the records of side {side} add up");
            let of_connection = |report: &TcpReport| {
                (
                    (report.syn_window, report.maximum_segment_size, report.window_scale, report.handshake_rtt_ns),
                    (report.size_by_sequence_bytes, report.duration_by_sequence_ns),
                )
            };
            assert_eq!(of_connection(last), of_connection(&whole), "fields of the connection, side {side}");
        }
        let CheckedConnection { mut connection, mut pool, .. } = self.checked;
        self.slow.reset(&mut pool);
        connection.reset(&mut pool);
        assert_eq!(pool.used(), 0, "all entries are released");
        self.whole
    }
}

/// Asserts that the events of a packet explain what it changed in the report of its side.
fn assert_events_match(events: &[SegmentEvent], before: &TcpReport, after: &TcpReport, packet: &Packet) {
    let count = |event| events.iter().filter(|&one| *one == event).count() as u64;
    let sum = |range_of: fn(&SegmentEvent) -> Option<&Range<u64>>| -> u64 {
        events.iter().filter_map(range_of).map(|range| range.end - range.start).sum()
    };
    let repeated = sum(|event| if let SegmentEvent::Repeated(range) = event { Some(range) } else { None });
    assert_eq!(before.retransmitted_bytes + repeated, after.retransmitted_bytes, "{packet:?}: {events:?}");
    let opened = sum(|event| if let SegmentEvent::HoleOpened(range) = event { Some(range) } else { None });
    let filled = sum(|event| if let SegmentEvent::HoleFilled(range) = event { Some(range) } else { None });
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
                comparison.enter(*side, *packet);
                if number % 16 == 0 {
                    comparison.compare(*side);
                }
            }
            comparison.finish()
        });
        match std::panic::catch_unwind(result) {
            Ok(reference) => coverage.add(&reference),
            Err(_) => panic!("seed {seed} with {} packets; run it alone with WEIR_SEEDS={seed}", packets.len()),
        }
    }
    if seeds(SEEDS).count() as u64 >= SEEDS {
        // Random packets reach these.
        coverage.assert_complete_except(&["round trip: time runs backwards", "answer: time runs backwards"]);
    }
}
