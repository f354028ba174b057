use super::*;
use crate::account::totals;
use crate::export_handle::EMPTY_BATCHES;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// A sink that sleeps, fails or panics from some batch on.
struct FaultySink {
    counters: SinkCounters,
    batches: u32,
    first_faulty: u32,
    fault: Fault,
}

#[derive(PartialEq)]
enum Fault {
    Sleep,
    Fail,
    Panic,
    Hang(Gate),
}

/// A hanging sink continues when the gate is open.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn faulty(first_faulty: u32, fault: Fault) -> Box<dyn Sink + Send> {
    let counters = SinkCounters { sink: "faulty".into(), ..SinkCounters::default() };
    Box::new(FaultySink { counters, batches: 0, first_faulty, fault })
}

impl Sink for FaultySink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        self.batches += 1;
        let is_faulty = self.batches >= self.first_faulty;
        if is_faulty && self.fault == Fault::Panic {
            panic!("a sink that panics");
        } else if is_faulty && self.fault == Fault::Fail {
            self.counters.add_lost(ExportLossReason::WriteFailed, totals(flows));
            return Err(Error::Io { sink: "faulty".into(), error: io::ErrorKind::StorageFull.into() });
        } else if self.fault == Fault::Sleep {
            thread::sleep(Duration::from_millis(1));
        } else if let Fault::Hang(gate) = &self.fault {
            while !gate.0.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.counters.exported.merge(totals(flows));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

fn batch(flows: usize) -> Vec<FlowRecord> {
    let mut flow = FlowRecord::default();
    (flow.forward.packets, flow.forward.frame_bytes) = (2, 100);
    vec![flow; flows]
}

#[test]
fn pipeline_waits_for_a_slow_sink_and_the_ledger_balances_at_any_moment() {
    let mut exporter =
        Exporter::new(vec![faulty(1, Fault::Sleep)], CpuAffinity::default(), BackPressure::Block).unwrap();
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for sent in 1..100_u64 {
        account.sent.merge(totals(&batch(3)));
        handle.write(batch(3)).unwrap();
        let ledger = exporter.ledger([account.clone()]);
        let counters = &ledger.sinks[0];
        assert_eq!(counters.exported.flows + counters.waiting.flows, 3 * sent);
        assert_eq!(counters.exported.packets + counters.waiting.packets, 6 * sent);
        assert!(counters.waiting.flows <= 3 * (QUEUE_BATCHES as u64 + 2), "{} records wait", counters.waiting.flows);
    }
    drop(handle);
    exporter.finish();
    let ledger = exporter.ledger([account]);
    assert_eq!((ledger.sinks[0].exported.flows, ledger.sinks[0].waiting), (297, RecordTotals::default()));
    assert_eq!(ledger.live, RecordTotals::default());
}

#[test]
fn write_fails_if_all_queues_are_full_and_the_pipeline_does_not_wait() {
    let mut exporter =
        Exporter::new(vec![faulty(1, Fault::Sleep)], CpuAffinity::default(), BackPressure::Drop).unwrap();
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for _ in 0..2 * QUEUE_BATCHES_LIVE {
        match handle.write(batch(3)) {
            Ok(empty) => {
                assert!(empty.is_empty());
                account.sent.merge(totals(&batch(3)));
            }
            Err(empty) => {
                assert!(empty.is_empty());
                account.lost.merge(totals(&batch(3)));
            }
        }
    }
    drop(handle);
    exporter.finish();
    let counters = &exporter.ledger([account]).sinks[0];
    let lost = counters.lost[ExportLossReason::ExporterBehind.key()];
    assert!(lost.flows > 0);
    let offered = 6 * QUEUE_BATCHES_LIVE as u64;
    assert_eq!((counters.total().flows, counters.total().packets), (offered, 2 * offered));
}

#[test]
fn a_hanging_sink_loses_records_and_does_not_delay_the_others() {
    let gate = Gate::default();
    let sinks = vec![faulty(1, Fault::Hang(gate.clone())), faulty(u32::MAX, Fault::Fail)];
    let mut exporter = Exporter::new(sinks, CpuAffinity::default(), BackPressure::Drop).unwrap();
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for sent in 1..2 * QUEUE_BATCHES_LIVE as u64 {
        handle.write(batch(3)).unwrap();
        account.sent.merge(totals(&batch(3)));
        // The other sink gets every batch, and the counters of both add up.
        loop {
            let ledger = exporter.ledger([account.clone()]);
            assert!(ledger.sinks.iter().all(|sink| sink.total().flows == 3 * sent), "{:?}", ledger.sinks);
            assert_eq!((ledger.live.flows, ledger.sinks[0].exported.flows), (0, 0));
            if ledger.sinks[1].exported.flows == 3 * sent {
                break;
            }
            thread::yield_now();
        }
    }
    // Another sink replaces both. The hanging sink continues before the end and is waited for.
    exporter.replace_sinks(vec![SinkChange::Open(faulty(u32::MAX, Fault::Fail))]).unwrap();
    handle.start_draining();
    handle.write(batch(3)).unwrap();
    account.sent.merge(totals(&batch(3)));
    gate.0.store(true, Ordering::Relaxed);
    drop(handle);
    exporter.finish();
    let sinks = exporter.ledger([account]).sinks;
    let offered = 3 * (2 * QUEUE_BATCHES_LIVE as u64 - 1);
    let lost = sinks[0].lost[ExportLossReason::ExporterBehind.key()].flows;
    assert!(lost > 0 && lost < offered, "{lost} of {offered}");
    assert_eq!(sinks[0].exported.flows, offered - lost);
    assert_eq!((sinks[1].exported.flows, sinks[2].exported.flows), (offered, 3));
    assert!(sinks.iter().all(|sink| sink.total().flows == offered + 3 && sink.waiting.flows == 0), "{sinks:?}");
}

#[test]
fn replaced_sinks_keep_their_counters_and_the_ledger_balances() {
    let mut exporter =
        Exporter::new(vec![faulty(u32::MAX, Fault::Fail)], CpuAffinity::default(), BackPressure::Block).unwrap();
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for round in 0..3_u32 {
        for _ in 0..=round {
            account.sent.merge(totals(&batch(2)));
            handle.write(batch(2)).unwrap();
        }
        if round < 2 {
            exporter.replace_sinks(vec![SinkChange::Open(faulty(u32::MAX, Fault::Fail))]).unwrap();
        }
    }
    drop(handle);
    exporter.finish();
    let sinks = exporter.ledger([account]).sinks;
    let flows = |sink: &SinkCounters| [sink.exported, sink.not_open, sink.total()].map(|records| records.flows);
    assert_eq!(sinks.iter().map(flows).collect::<Vec<_>>(), [[2, 10, 12], [4, 8, 12], [6, 6, 12]]);
}

#[test]
fn kept_sinks_continue_while_others_are_opened_and_closed() {
    let named = |name: &str| {
        let counters = SinkCounters { sink: name.into(), ..SinkCounters::default() };
        Box::new(FaultySink { counters, batches: 0, first_faulty: u32::MAX, fault: Fault::Fail })
            as Box<dyn Sink + Send>
    };
    let mut exporter =
        Exporter::new(vec![named("a"), named("b")], CpuAffinity::default(), BackPressure::Block).unwrap();
    let (mut handle, mut account) = (exporter.handle(), Account::default());
    let mut write = |flows| {
        account.sent.merge(totals(&batch(flows)));
        handle.write(batch(flows)).unwrap();
    };
    write(1);
    exporter.replace_sinks(vec![SinkChange::Open(named("c")), SinkChange::Keep(1)]).unwrap();
    write(10);
    exporter.replace_sinks(vec![SinkChange::Keep(1), SinkChange::Keep(0)]).unwrap();
    write(100);
    drop(handle);
    exporter.finish();
    let sinks = exporter.ledger([account]).sinks;
    let flows = sinks.iter().map(|sink| (sink.sink.as_str(), sink.exported.flows, sink.not_open.flows));
    assert_eq!(flows.collect::<Vec<_>>(), [("a", 1, 110), ("b", 111, 0), ("c", 110, 1)]);
}

#[test]
fn memory_of_batches_is_reused() {
    let exporter = Exporter::new(vec![], CpuAffinity::default(), BackPressure::Block).unwrap();
    let mut handle = exporter.handle();
    let (mut batch, mut new) = (Vec::with_capacity(7), 0);
    for _ in 0..1000 {
        // A new batch has capacity 7, one that is reused has 9.
        batch.reserve_exact(7);
        let empty = handle.write(batch).unwrap();
        new += u32::from(empty.capacity() == 7);
        batch = empty;
        batch.reserve_exact(9);
    }
    assert!(new < 2 * EMPTY_BATCHES as u32, "{new} of 1000 batches were new");
}

#[test]
fn error_of_a_failed_sink_is_reported_once_and_the_others_continue() {
    let mut exporter = Exporter::new(
        vec![faulty(3, Fault::Fail), faulty(u32::MAX, Fault::Fail)],
        CpuAffinity::default(),
        BackPressure::Block,
    )
    .unwrap();
    let mut handle = exporter.handle();
    let sent = totals(&batch(10));
    for _ in 0..10 {
        handle.write(batch(1)).unwrap();
    }
    drop(handle);
    exporter.finish();
    assert_eq!((exporter.take_errors().len(), exporter.take_errors().len()), (1, 0));
    assert!(!exporter.all_sinks_failed());
    let sinks = exporter.ledger([Account { sent, ..Account::default() }]).sinks;
    assert_eq!(sinks.iter().map(|sink| sink.exported.flows).collect::<Vec<_>>(), [2, 10]);
    assert_eq!(sinks[0].lost.values().map(|lost| lost.flows).sum::<u64>(), 8);
    let mut alone = Exporter::new(vec![faulty(1, Fault::Fail)], CpuAffinity::default(), BackPressure::Block).unwrap();
    alone.handle().write(batch(1)).unwrap();
    alone.finish();
    assert!(alone.all_sinks_failed());
}

#[test]
#[should_panic(expected = "a sink that panics")]
fn panic_of_a_sink_is_passed_on_and_nothing_waits_for_that_sink() {
    let mut exporter =
        Exporter::new(vec![faulty(2, Fault::Panic)], CpuAffinity::default(), BackPressure::Block).unwrap();
    let mut handle = exporter.handle();
    while handle.write(batch(1)).is_ok() {}
    exporter.finish();
}
