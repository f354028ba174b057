use super::*;
use crate::account::totals;
use crate::exporter::export_handle::EMPTY_BATCHES;
use crate::test_sink::sink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

fn good() -> Box<dyn Sink + Send> {
    sink("good", |_| true)
}

fn slow() -> Box<dyn Sink + Send> {
    sink("slow", |_| {
        thread::sleep(Duration::from_millis(1));
        true
    })
}

/// A sink that fails from some batch on.
fn failing(first_failure: u32) -> Box<dyn Sink + Send> {
    let mut batches = 0;
    sink("failing", move |_| {
        batches += 1;
        batches < first_failure
    })
}

/// A sink that hangs until the gate is open.
fn hanging(gate: Arc<AtomicBool>) -> Box<dyn Sink + Send> {
    sink("hanging", move |_| {
        while !gate.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        true
    })
}

fn exporter(sinks: Vec<Box<dyn Sink + Send>>, back_pressure: BackPressure) -> Exporter {
    Exporter::new(sinks, CpuAffinity::default(), back_pressure, &Settings::default()).unwrap()
}

fn batch(flows: usize) -> Vec<FlowRecord> {
    let mut flow = FlowRecord::default();
    (flow.forward.packets, flow.forward.frame_bytes) = (2, 100);
    vec![flow; flows]
}

fn replace(exporter: &Exporter, changes: Vec<SinkChange>) {
    exporter.replace_sinks(exporter.start_sinks(changes, None).unwrap());
}

/// Exports a batch that at least one sink accepts.
fn write(handle: &mut ExportHandle, account: &mut Account, flows: usize) {
    account.sent.merge(totals(&batch(flows)));
    handle.write(batch(flows)).unwrap();
}

#[test]
fn pipeline_waits_for_a_slow_sink_and_the_ledger_balances_at_any_moment() {
    let mut exporter = exporter(vec![slow()], BackPressure::Block);
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for sent in 1..100_u64 {
        write(&mut handle, &mut account, 3);
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
    let mut exporter = exporter(vec![slow()], BackPressure::Drop);
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for _ in 0..2 * QUEUE_BATCHES_LIVE {
        let (counter, empty) = match handle.write(batch(3)) {
            Ok(empty) => (&mut account.sent, empty),
            Err(empty) => (&mut account.lost, empty),
        };
        assert!(empty.is_empty());
        counter.merge(totals(&batch(3)));
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
    let gate = Arc::new(AtomicBool::default());
    let mut exporter = exporter(vec![hanging(gate.clone()), good()], BackPressure::Drop);
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for sent in 1..2 * QUEUE_BATCHES_LIVE as u64 {
        write(&mut handle, &mut account, 3);
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
    replace(&exporter, vec![SinkChange::Open(good())]);
    handle.start_draining(3);
    write(&mut handle, &mut account, 3);
    gate.store(true, Ordering::Relaxed);
    drop(handle);
    exporter.finish();
    let mut sinks = exporter.ledger([account]).sinks;
    // A sink that has ended when it is replaced is listed first.
    sinks.sort_by_key(|sink| sink.sink != "hanging");
    let offered = 3 * (2 * QUEUE_BATCHES_LIVE as u64 - 1);
    let lost = sinks[0].lost[ExportLossReason::ExporterBehind.key()].flows;
    assert!(lost > 0 && lost < offered, "{lost} of {offered}");
    assert_eq!(sinks[0].exported.flows, offered - lost);
    // The two good sinks were open one after the other, and have one name.
    assert_eq!((sinks[1].exported.flows, sinks.len()), (offered + 3, 2));
    assert!(sinks.iter().all(|sink| sink.total().flows == offered + 3 && sink.waiting.flows == 0), "{sinks:?}");
}

/// A drain of this number of batches, in as many seconds, with this sink, a slow one and a good one: what
/// became of the records of each.
fn drained(
    sink: Box<dyn Sink + Send>,
    (batches, seconds): (u64, u64),
    then: impl FnOnce(&Exporter, &mut ExportHandle, &mut Account),
) -> Vec<[u64; 2]> {
    let mut exporter = exporter(vec![sink, slow(), good()], BackPressure::Block);
    let (mut handle, mut account) = (exporter.handle(), Account::default());
    exporter.drain_until(Instant::now() + Duration::from_secs(seconds));
    handle.start_draining(batches);
    (0..batches).for_each(|_| write(&mut handle, &mut account, 1));
    then(&exporter, &mut handle, &mut account);
    drop(handle);
    exporter.finish_until(Some(&mut || None));
    let late = |sink: &SinkCounters| sink.lost.get(ExportLossReason::DrainTimeout.key()).map_or(0, |lost| lost.flows);
    exporter.ledger([account]).sinks.iter().map(|sink| [sink.exported.flows, late(sink)]).collect()
}

#[test]
fn a_hanging_sink_costs_the_others_no_records_in_the_drain_and_is_waited_for_when_it_goes_on() {
    let gate = Arc::new(AtomicBool::default());
    let goes_on = |exporter: &Exporter, handle: &mut ExportHandle, account: &mut Account| {
        gate.store(true, Ordering::Relaxed);
        while exporter.ledger([account.clone()]).sinks[0].waiting.flows > 0 {
            thread::yield_now();
        }
        (0..200).for_each(|_| write(handle, account, 1));
    };
    // One batch is being written and 8 wait; the other 191 of the first 200 do not fit.
    assert_eq!(drained(hanging(gate.clone()), (200, 5), goes_on), [[209, 191], [400, 0], [400, 0]]);
}

#[test]
fn a_sink_that_is_too_slow_costs_the_others_no_records_in_the_drain() {
    let crawling = sink("crawling", |_| {
        thread::sleep(Duration::from_millis(210));
        true
    });
    // In 80 % of the time it writes some 76 batches. The others, two dozen, leave 160 ms for each.
    let sinks = drained(crawling, (100, 20), |_, _, _| {});
    assert_eq!(sinks[1..], [[100, 0], [100, 0]], "{sinks:?}");
    // It is waited for in most of the time.
    assert!((30..100).contains(&sinks[0][0]) && sinks[0].iter().sum::<u64>() == 100, "{sinks:?}");
}

/// Sinks opened again with each reload: one entry and, after a while, no memory for each.
#[test]
fn a_sink_that_is_opened_again_and_again_has_one_sum_and_the_ledger_balances() {
    let mut exporter = exporter(vec![good(), good()], BackPressure::Block);
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for _ in 0..20 {
        write(&mut handle, &mut account, 2);
        replace(&exporter, vec![SinkChange::Open(good()), SinkChange::Open(good())]);
        while !exporter.sinks.lock().closed.is_empty() {
            replace(&exporter, vec![SinkChange::Keep(0), SinkChange::Keep(1)]);
        }
    }
    replace(&exporter, vec![SinkChange::Keep(0)]);
    write(&mut handle, &mut account, 1);
    drop(handle);
    exporter.finish();
    let sinks = exporter.ledger([account]).sinks;
    let flows = |sink: &SinkCounters| [sink.exported, sink.not_open, sink.total()].map(|records| records.flows);
    assert_eq!(sinks.iter().map(flows).collect::<Vec<_>>(), [[41, 0, 41], [40, 1, 41]]);
}

#[test]
fn kept_sinks_continue_while_others_are_opened_and_closed() {
    let named = |name| sink(name, |_| true);
    let mut exporter = exporter(vec![named("a"), named("b")], BackPressure::Block);
    let (mut handle, mut account) = (exporter.handle(), Account::default());
    write(&mut handle, &mut account, 1);
    replace(&exporter, vec![SinkChange::Open(named("c")), SinkChange::Keep(1)]);
    write(&mut handle, &mut account, 10);
    replace(&exporter, vec![SinkChange::Keep(1), SinkChange::Keep(0)]);
    write(&mut handle, &mut account, 100);
    drop(handle);
    exporter.finish();
    let sinks = exporter.ledger([account]).sinks;
    let flows = sinks.iter().map(|sink| (sink.sink.as_str(), sink.exported.flows, sink.not_open.flows));
    assert_eq!(flows.collect::<Vec<_>>(), [("a", 1, 110), ("b", 111, 0), ("c", 110, 1)]);
}

#[test]
fn memory_of_batches_is_reused() {
    let exporter = exporter(vec![], BackPressure::Block);
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
    let mut both = exporter(vec![failing(3), good()], BackPressure::Block);
    let mut handle = both.handle();
    let sent = totals(&batch(10));
    for _ in 0..10 {
        handle.write(batch(1)).unwrap();
    }
    drop(handle);
    both.finish();
    assert_eq!((both.take_errors().len(), both.take_errors().len()), (1, 0));
    assert!(!both.all_sinks_failed());
    let sinks = both.ledger([Account { sent, ..Account::default() }]).sinks;
    assert_eq!(sinks.iter().map(|sink| sink.exported.flows).collect::<Vec<_>>(), [2, 10]);
    assert_eq!(sinks[0].lost.values().map(|lost| lost.flows).sum::<u64>(), 8);
    let mut alone = exporter(vec![failing(1)], BackPressure::Block);
    alone.handle().write(batch(1)).unwrap();
    alone.finish();
    assert!(alone.all_sinks_failed());
}

#[test]
fn a_sink_that_panics_loses_its_records_and_nothing_waits_for_it() {
    let mut batches = 0;
    let panicking = sink("panicking", move |_| {
        batches += 1;
        assert!(batches < 2, "a sink that panics");
        true
    });
    let mut exporter = exporter(vec![panicking, good()], BackPressure::Block);
    let (mut handle, mut account) = (exporter.handle(), Account::default());
    for _ in 0..100 {
        write(&mut handle, &mut account, 1);
    }
    drop(handle);
    exporter.finish();
    let mut panics = Vec::new();
    exporter.check_pulses(|pulse| panics.extend(pulse.take_panic()));
    assert!(panics.len() == 1 && panics[0].thread == "weir-export of panicking", "{panics:?}");
    let error = exporter.take_errors().remove(0).to_string();
    assert_eq!(error, "panicking: its thread panicked; its remaining records are lost");
    let sinks = exporter.ledger([account]).sinks;
    let lost = sinks[0].lost[ExportLossReason::InternalError.key()].flows;
    assert_eq!([sinks[0].exported.flows, lost, sinks[1].exported.flows], [1, 99, 100]);
}

/// A sink that hangs until the gate is open, and keeps the latest status.
struct StatusSink {
    inner: Box<dyn Sink + Send>,
    status: Arc<Mutex<MeteringStatus>>,
}

impl Sink for StatusSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        self.inner.write(flows)
    }

    fn set_metering_status(&mut self, status: &MeteringStatus) {
        self.status.lock().clone_from(status);
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.inner.finish()
    }

    fn counters(&self) -> &SinkCounters {
        self.inner.counters()
    }
}

/// A sink that wants to be called after some time.
struct WakingSink {
    inner: Box<dyn Sink + Send>,
    wakes_at: Option<Instant>,
    ticks: Arc<AtomicU64>,
}

impl Sink for WakingSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        self.inner.write(flows)
    }

    fn tick(&mut self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        self.wakes_at = (self.ticks.load(Ordering::Relaxed) < 5).then(|| Instant::now() + Duration::from_millis(20));
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.wakes_at
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.inner.finish()
    }

    fn counters(&self) -> &SinkCounters {
        self.inner.counters()
    }
}

#[test]
fn a_sink_without_records_is_called_when_it_wants_to_be_and_not_otherwise() {
    let (first, second) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let waking = |ticks: &Arc<AtomicU64>, wakes_at| -> Box<dyn Sink + Send> {
        Box::new(WakingSink { inner: good(), wakes_at, ticks: ticks.clone() })
    };
    // A time that has passed is one, too.
    let sinks = vec![waking(&first, Some(Instant::now())), waking(&second, None)];
    let settings = Settings {
        timing: Timing { sink_tick: Duration::from_secs(3600), ..Timing::default() },
        ..Settings::default()
    };
    let mut exporter = Exporter::new(sinks, CpuAffinity::default(), BackPressure::Drop, &settings).unwrap();
    while first.load(Ordering::Relaxed) < 5 {
        thread::sleep(Duration::from_millis(1));
    }
    exporter.finish();
    assert_eq!([first, second].map(|ticks| ticks.load(Ordering::Relaxed)), [5, 0]);
}

#[test]
fn the_last_status_of_a_sink_has_the_losses_of_the_ledger() {
    let gate = Arc::new(AtomicBool::new(false));
    let status = Arc::<Mutex<MeteringStatus>>::default();
    let sink = StatusSink { inner: hanging(gate.clone()), status: status.clone() };
    let mut exporter = exporter(vec![Box::new(sink), good()], BackPressure::Drop);
    let mut handle = exporter.handle();
    let mut account = Account::default();
    for _ in 0..QUEUE_BATCHES_LIVE + 40 {
        // Records that no sink accepts are lost for all.
        let accepted = handle.write(batch(3)).is_ok();
        let counted = if accepted { &mut account.sent } else { &mut account.lost };
        counted.merge(totals(&batch(3)));
        thread::sleep(Duration::from_micros(100));
    }
    (account.ledger.packets.dropped_kernel, account.ledger.packets.sampled_out) = (7, 90);
    exporter.report_status([&account], 10, vec![(2, "eth0".into())]);
    // The records in the queue come too late.
    exporter.drain_until(Instant::now());
    gate.store(true, Ordering::Relaxed);
    exporter.finish();
    let lost = &exporter.ledger([account]).sinks[0].lost;
    let [behind, late] =
        [ExportLossReason::ExporterBehind, ExportLossReason::DrainTimeout].map(|reason| lost[reason.key()]);
    let status = status.lock().clone();
    assert_eq!(status.lost_before_sink.flows, behind.flows + late.flows);
    assert!(behind.flows > 30 && late.flows > 100, "{lost:?}");
    assert_eq!((status.sampling_population, status.ignored_packets), (10, 7));
    assert_eq!(status.interfaces, [(2, "eth0".to_owned())]);
}

#[test]
fn records_are_enriched_once_for_all_sinks_on_the_thread_of_one() {
    let (ports, threads) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let collecting = |name| {
        let ports = ports.clone();
        sink(name, move |flows| {
            ports.lock().extend(flows.iter().map(|flow| flow.source_port));
            true
        })
    };
    let by_thread = threads.clone();
    let enrich = move |flows: &mut [FlowRecord]| {
        by_thread.lock().push(thread::current().name().map(String::from));
        flows.iter_mut().for_each(|flow| flow.source_port += 1);
    };
    let settings = Settings { enricher: Some(Arc::new(enrich)), ..Settings::default() };
    let sinks = vec![collecting("a"), collecting("b")];
    let mut exporter = Exporter::new(sinks, CpuAffinity::default(), BackPressure::Block, &settings).unwrap();
    let (mut handle, mut account) = (exporter.handle(), Account::default());
    for _ in 0..3 {
        write(&mut handle, &mut account, 5);
    }
    drop(handle);
    exporter.finish();
    let counters = exporter.ledger([account]).sinks;
    assert!(counters.iter().all(|sink| sink.exported.flows == 15), "{counters:?}");
    assert_eq!(*ports.lock(), [1; 30]);
    assert_eq!(*threads.lock(), vec![Some("weir-export".to_owned()); 3]);
}
