//! Random packets: [`Connection`], the reference and the exhaustive model give equal results.

mod exhaustive;

use exhaustive::{Coverage, Exhaustive};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use weir_packet::{Flags, Packet};
use weir_tcp::{AnomalyPool, Connection};
use weir_testkit::reference::TcpReference;
use weir_testkit::tcp_packets::{TcpPacket, packets, step};

fn compare(packets: &[TcpPacket], coverage: &mut Coverage) {
    let mut exhaustive = Some(Exhaustive::default());
    let mut pool = AnomalyPool::new(2).unwrap();
    let (mut connection, mut reference) = (Connection::NEW, TcpReference::default());
    let mut entered = [0; 2];
    for (number, &TcpPacket { side, packet, fast, next_record }) in packets.iter().enumerate() {
        if next_record {
            connection.start_next_record(&mut pool);
            reference.start_next_record();
            entered = [0; 2];
            if let Some(exhaustive) = &mut exhaustive {
                coverage.add(exhaustive);
                exhaustive.start_next_record();
            }
        }
        let class = reference.enter(side, &packet);
        entered[side] += 1;
        // The exhaustive model is too slow for large payloads.
        if packet.payload_bytes >= 1 << 12
            && let Some(exhaustive) = exhaustive.take()
        {
            coverage.add(&exhaustive);
        }
        if let Some(exhaustive) = &mut exhaustive {
            assert_eq!(exhaustive.enter(side, &packet), class, "packet {number}: {packet:?}");
        }
        if !fast || !connection.classify_fast(side, &packet, &pool) {
            assert_eq!(connection.classify(side, &packet, &mut pool), class, "packet {number}: {packet:?}");
        }
        for (side, &entered) in entered.iter().enumerate() {
            let report = reference.report(side);
            if let Some(exhaustive) = &exhaustive
                && number % 8 == 0
            {
                assert_eq!(exhaustive.report(side), report, "packet {number}, side {side}: {packet:?}");
            }
            assert_eq!(connection.report(side, entered, &pool), report, "packet {number}, side {side}: {packet:?}");
            assert_eq!(report.segments(), entered);
        }
    }
    if let Some(exhaustive) = &exhaustive {
        coverage.add(exhaustive);
    }
    connection.reset(&mut pool);
    assert_eq!(pool.used(), 0);
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
        "hole given up below others",
        "unseen by the handshake",
        "out of window: not next to the other",
        "duplicate at the 64th place",
        "no duplicate: behind 64 others",
        "duplicate of a first fragment",
        "deep history cleared by a jump",
        "deep history cleared by a restart",
    ]);
}

#[test]
fn acknowledgment_half_the_sequence_space_away_does_not_answer_the_syn() {
    let segment = Packet { protocol: 6, flags: Flags(Flags::TCP | Flags::PORTS), window: 100, ..Packet::default() };
    let syn = Packet { control: Packet::SYN, ..segment };
    let answer = Packet { control: Packet::SYN | Packet::ACK, acknowledgment: 1 + (1 << 31), ..segment };
    let packets =
        [(0, syn), (1, answer)].map(|(side, packet)| TcpPacket { side, packet, fast: false, next_record: false });
    compare(&packets, &mut Coverage::default());
}
