//! TCP analysis: packets of one connection.

use weir_tcp::{AnomalyPool, Connection, MeasuredTimes, SegmentClass};
use weir_testkit::input::Input;
use weir_testkit::reference::TcpReference;
use weir_testkit::tcp_packets::{Step, TcpPacket, packets};

/// More packets take the reference long.
const MAX_PACKETS: usize = 300;

/// Classifies the packets of a connection. Invariants: classes and reports of both sides equal those
/// of the reference, every packet has one class, and the pool is empty afterwards.
///
/// # Panics
/// An invariant does not hold.
pub fn tcp(input: &[u8]) {
    let mut input = Input(input);
    let base = [input.u32(), input.u32()];
    let mut steps = Vec::new();
    while !input.is_empty() && steps.len() < MAX_PACKETS {
        steps.push(Step::cut(&mut input));
    }
    let mut reference = TcpReference::default();
    let mut connection = Connection::NEW;
    let mut pool = AnomalyPool::new(2).expect("there is memory for two entries");
    let mut counts = [0_u64; 2];
    for TcpPacket { side, packet, fast, next_record } in packets(base, &steps) {
        if next_record {
            reference.start_next_record();
            connection.start_next_record(&mut pool);
            counts = [0; 2];
        }
        let class = reference.enter(side, &packet);
        if fast && connection.classify_fast(side, &packet, &pool, MeasuredTimes::enter) {
            let is_ordinary = matches!(class, SegmentClass::InOrder | SegmentClass::Acknowledgment);
            assert!(is_ordinary, "fast path, but {class:?}: {packet:?}");
        } else {
            assert_eq!(connection.classify(side, &packet, &mut pool), class, "{packet:?}");
        }
        counts[side] += 1;
        for (side, &count) in counts.iter().enumerate() {
            let report = reference.report(side);
            assert_eq!(connection.report(side, count, &pool), report);
            assert_eq!(report.segments(), count);
        }
    }
    connection.reset(&mut pool);
    assert_eq!(pool.used(), 0);
}
