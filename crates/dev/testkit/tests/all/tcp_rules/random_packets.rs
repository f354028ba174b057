//! Random packets: [`Connection`](weir_tcp::Connection) and the reference give equal results.

use super::coverage::Coverage;
use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use weir_testkit::tcp_packets::{TcpPacket, packets, step};

fn compare(packets: &[TcpPacket], coverage: &mut Coverage) {
    let mut checked = CheckedConnection::new();
    for &TcpPacket { side, packet, fast, next_record } in packets {
        if next_record {
            coverage.add(&checked.reference);
            checked.start_next_record();
        }
        checked.enter_by(side, packet, fast);
        for side in 0..2 {
            assert_eq!(checked.report(side).segments(), checked.packets[side]);
        }
    }
    coverage.add(&checked.reference);
    checked.connection.reset(&mut checked.pool);
    assert_eq!(checked.pool.used(), 0);
}

#[test]
fn implementations_agree_on_random_packets() {
    let wraps = any::<bool>();
    let steps =
        prop_oneof![4 => 1..120_usize, 1 => 120..400_usize].prop_flat_map(|steps| prop::collection::vec(step(), steps));
    let strategy = (any::<[u32; 2]>(), wraps, steps);
    let coverage = RefCell::new(Coverage::default());
    let config = ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&strategy, |(base, wraps, steps)| {
        let base = if wraps { [u32::MAX - 20, 5] } else { base };
        compare(&packets(base, &steps), &mut coverage.borrow_mut());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // These need several rare steps together; the simulated network reaches them.
    coverage.borrow().assert_complete_except(&[
        "SYN overtaken, holes full",
        "hole settled below others",
        "unseen by the handshake",
        "out of window: not next to the other",
        "duplicate at the 64th place",
        "no duplicate: behind 64 others",
        "duplicate of a first fragment",
        "deep history cleared by a jump",
        "deep history cleared by a restart",
    ]);
}
