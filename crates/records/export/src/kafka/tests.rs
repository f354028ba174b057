//! Keys, and every order of outcomes.

use super::in_hand::{FlowInHand, InHand, MessageOutcome, Origin};
use super::*;
use crate::spooled::{Item, OfSpool, Spooled};
use weir_ledger::{ExportLossReason, RecordTotals};
use weir_spool::{BatchId, Settings};

#[test]
fn both_directions_have_one_key() {
    let flow = FlowRecord { source: [1; 16], source_port: 80, protocol: 6, ..FlowRecord::default() };
    let back = FlowRecord {
        source: flow.destination,
        destination: flow.source,
        source_port: flow.destination_port,
        destination_port: flow.source_port,
        ..flow.clone()
    };
    let other = FlowRecord { source_port: 81, ..flow.clone() };
    assert_eq!(key(&flow), key(&back));
    assert_ne!(key(&flow), key(&other));
}

/// Each flow has other numbers, so that sums say which ones are in them.
fn totals(flow: u64) -> RecordTotals {
    RecordTotals { flows: 1, packets: 10_u64.pow(flow as u32), bytes: 2 * 10_u64.pow(flow as u32) }
}

fn queued(flow: u64, messages: usize) -> QueuedFlow {
    let values = vec![0..3; messages];
    let messages = Messages { key: &[flow as u8; 8], batch: b"r-0", probe: b"p", octets: b"abc", values: &values };
    QueuedFlow::new(&messages, totals(flow))
}

fn orders(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(of - 1);
    let all = shorter.iter().flat_map(|order| (0..of).map(move |at| [&order[..at], &[of - 1], &order[at..]].concat()));
    all.collect()
}

/// Gives a flow to a client that reports on its messages later.
fn hand_over(in_hand: &mut InHand, flow: QueuedFlow, origin: impl FnOnce(QueuedFlow) -> Origin) {
    let messages = flow.messages().values.len();
    let in_client = FlowInHand { octets: 3 * messages, messages, ..FlowInHand::new(flow.pending(), 100) };
    in_hand.add(FlowInHand { origin: origin(flow), ..in_client }, &mut SinkCounters::default());
}

const OUTCOMES: [MessageOutcome; 3] =
    [MessageOutcome::Delivered, MessageOutcome::Lost(ExportLossReason::CollectorRefused), MessageOutcome::Unsent];

#[test]
fn each_order_of_reports_has_the_same_outcome() {
    // Flow 0 is in memory, flows 1 and 2 are the first batch, flow 3 is the second. Flows 0 and 2 have two messages.
    let of_flow = [0, 0, 1, 2, 2, 3];
    for (at, order) in orders(6).into_iter().enumerate() {
        for outcomes in (0..27).map(|number| [number % 3, number / 3 % 3, number / 9, (number + at) % 3]) {
            let outcome_of = |message: usize| match (message, OUTCOMES[outcomes[of_flow[message]]]) {
                // The first of two messages is delivered.
                (0 | 3, _) => MessageOutcome::Delivered,
                (_, outcome) => outcome,
            };
            let (mut in_hand, mut counters) = (InHand::default(), SinkCounters::default());
            hand_over(&mut in_hand, queued(0, 2), Origin::Copy);
            let of = |id| OfSpool { batch: BatchId(id), is_earlier: false };
            let first = in_hand.begin_batch(of(1), 2);
            hand_over(&mut in_hand, queued(1, 1), |_| Origin::Spool(first, 0));
            hand_over(&mut in_hand, queued(2, 2), |_| Origin::Spool(first, 1));
            let second = in_hand.begin_batch(of(2), 1);
            hand_over(&mut in_hand, queued(3, 1), |_| Origin::Spool(second, 0));
            let (mut reported, mut finished) = ([0; 4], Vec::new());
            let first_number = in_hand.next_number() - 4;
            for message in order.iter().copied() {
                in_hand.report(first_number + of_flow[message], outcome_of(message), &mut counters);
                reported[of_flow[message]] += 1;
                while let Some(batch) = in_hand.finished_batch() {
                    assert!(reported[1] == 1 && reported[2] == 2, "not before its last flow");
                    finished.push(batch);
                }
            }
            let unsent = |flow: usize| outcomes[flow] == 2;
            assert!(in_hand.is_reported() && in_hand.bytes() == 0);
            let expected = if unsent(1) || unsent(2) {
                0
            } else if unsent(3) {
                1
            } else {
                2
            };
            assert_eq!(finished.len(), expected, "{order:?} {outcomes:?}");
            let mut sums = [RecordTotals::default(); 2];
            for batch in &finished {
                sums[0].merge(batch.delivered.flows);
                batch.lost.iter().for_each(|(_, records)| sums[1].merge(*records));
            }
            let in_batches = [1, 2].into_iter().chain((expected == 2).then_some(3)).take(3 * expected);
            let mut wanted = [RecordTotals::default(); 2];
            in_batches.for_each(|flow| wanted[outcomes[flow]].merge(totals(flow as u64)));
            assert_eq!(sums, wanted, "{order:?} {outcomes:?}");
            let [exported, lost] = [counters.exported, counters.lost.values().copied().next().unwrap_or_default()];
            let (rest, copies) = in_hand.take_all(ExportLossReason::DrainTimeout, &mut counters);
            assert_eq!((rest.len(), copies.len()), (2 - expected, usize::from(unsent(0))));
            let of_first = |outcome| if outcomes[0] == outcome { totals(0) } else { RecordTotals::default() };
            assert_eq!([exported, lost], [of_first(0), of_first(1)]);
        }
    }
}

/// All records of this run, and all of earlier ones, are in the ledger.
fn assert_balanced(counters: &SinkCounters, handed: &[u64]) {
    let mut all = counters.exported;
    all.merge(counters.spooled);
    counters.lost.values().for_each(|&lost| all.merge(lost));
    let mut wanted = RecordTotals::default();
    handed.iter().for_each(|&flow| wanted.merge(totals(flow)));
    assert_eq!(all, wanted);
    assert_eq!(counters.earlier.outcomes(), counters.earlier.found);
}

#[test]
fn the_ledger_of_a_spool_balances_after_each_report() {
    for (at, order) in orders(4).into_iter().enumerate() {
        let parent = tempfile::tempdir().unwrap();
        let open = || {
            let (folder, sink) = (parent.path().join("spool"), "kafka://k/t".into());
            let settings = Settings { folder, sink, limit: 1 << 20, segment_bytes: 1 << 20, owner: None };
            Spooled::<QueuedFlow>::open("k", settings).unwrap()
        };
        let (mut spool, mut counters) = (open(), SinkCounters::default());
        [0, 1].into_iter().for_each(|flow| assert!(spool.spill(vec![queued(flow, 1)]).is_empty()));
        assert_eq!(spool.end(Vec::new(), ExportLossReason::DrainTimeout, &mut counters), 2);
        drop(spool);
        let (mut spool, mut counters, mut in_hand) = (open(), SinkCounters::default(), InHand::default());
        [2, 3].into_iter().for_each(|flow| assert!(spool.spill(vec![queued(flow, 1)]).is_empty()));
        for _ in 0..4 {
            let flows = spool.next();
            let number = in_hand.begin_batch(flows[0].of_spool.unwrap(), flows.len());
            for flow in flows {
                hand_over(&mut in_hand, flow, |_| Origin::Spool(number, 0));
            }
        }
        for number in order.iter().copied() {
            in_hand.report(number, OUTCOMES[(number + at) % 2], &mut counters);
            while let Some(batch) = in_hand.finished_batch() {
                batch.count(&mut spool, &mut counters);
            }
            spool.settle(false, &mut counters);
            assert_balanced(&counters, &[2, 3]);
        }
        let [even, odd] = if at % 2 == 0 { [0, 1] } else { [1, 0] };
        assert_eq!(counters.earlier.delivered, totals(even));
        assert_eq!(counters.earlier.lost["collector_refused"], totals(odd));
        assert_eq!((counters.exported, counters.spooled), (totals(even + 2), RecordTotals::default()));
        assert_eq!(counters.lost["collector_refused"], totals(odd + 2));
        assert_eq!(counters.messages, 2);
    }
}
