//! [`Connection`] says what [`Reference`] says, of whatever comes, and both what a program says that keeps every position.

mod history;
mod judge;

use history::{packets, step};
use judge::{Coverage, Judge};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use weir_packet::{Flags, Packet};
use weir_tcp::{AnomalyPool, Connection, Reference};

fn agree(history: &[(usize, Packet, bool, bool)], coverage: &mut Coverage) {
    let mut judge = Some(Judge::default());
    let mut room = AnomalyPool::new(2).unwrap();
    let (mut connection, mut reference) = (Connection::NEW, Reference::default());
    let mut entered = [0; 2];
    for (number, &(side, packet, usual, next_record)) in history.iter().enumerate() {
        if next_record {
            connection.start_next_record(&mut room);
            reference.start_next_record();
            entered = [0; 2];
            if let Some(judge) = &mut judge {
                coverage.add(judge);
                judge.next_record();
            }
        }
        let class = reference.enter(side, &packet);
        entered[side] += 1;
        // Keeping every position takes its time.
        if packet.payload_bytes >= 1 << 12
            && let Some(judge) = judge.take()
        {
            coverage.add(&judge);
        }
        if let Some(judge) = &mut judge {
            assert_eq!(judge.enter(side, &packet), class, "packet {number}: {packet:?}");
        }
        if !usual || !connection.enter_fast(side, &packet, &room) {
            assert_eq!(connection.enter(side, &packet, &mut room), class, "packet {number}: {packet:?}");
        }
        for (side, &entered) in entered.iter().enumerate() {
            let report = reference.report(side);
            if let Some(judge) = &judge
                && number % 8 == 0
            {
                assert_eq!(judge.report(side), report, "packet {number}, side {side}: {packet:?}");
            }
            assert_eq!(connection.report(side, entered, &room), report, "packet {number}, side {side}: {packet:?}");
            assert_eq!(report.segments(), entered);
        }
    }
    if let Some(judge) = &judge {
        coverage.add(judge);
    }
    connection.reset(&mut room);
    assert_eq!(room.used(), 0);
}

#[test]
fn of_whatever_comes() {
    let wraps = any::<bool>();
    let steps =
        prop_oneof![4 => 1..120_usize, 1 => 120..400_usize].prop_flat_map(|steps| prop::collection::vec(step(), steps));
    let strategy = (any::<[u32; 2]>(), wraps, steps);
    let coverage = RefCell::new(Coverage::default());
    let config = ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&strategy, |(base, wraps, steps)| {
        let base = if wraps { [u32::MAX - 20, 5] } else { base };
        agree(&packets(base, &steps), &mut coverage.borrow_mut());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // What takes several things at once to happen is rare here; the oracle's test reaches it.
    coverage.borrow().is_whole_but(&[
        "SYN overtaken, holes full",
        "settled below others",
        "unseen by the handshake",
        "out of window: not next to the other",
        "copy at the 64th place",
        "no copy: behind 64 others",
        "copy of a first fragment",
        "many are forgotten by a leap",
        "many are forgotten by a beginning",
    ]);
}

#[test]
fn an_acknowledgment_half_a_turn_away_answers_no_syn() {
    let segment = Packet { protocol: 6, flags: Flags(Flags::TCP | Flags::PORTS), window: 100, ..Packet::default() };
    let syn = Packet { control: Packet::SYN, ..segment };
    let answer = Packet { control: Packet::SYN | Packet::ACK, acknowledgment: 1 + (1 << 31), ..segment };
    agree(&[(0, syn, false, false), (1, answer, false, false)], &mut Coverage::default());
}
