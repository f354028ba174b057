//! Threads of a probe that panic or hang: the probe says which, and ends in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{Burst, Input, Progress, Source};
use weir_export::Sink;
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters, Timing};
use weir_probe::{
    BackPressure, CpuAffinity, FinalReport, Probe, ReceiveQueue, RecordObserver, Settings, WorkerGroupSpec,
    while_waiting,
};
use weir_trafficgen::TrafficGenerator;

/// Generated traffic with something that happens before each burst, which is given its number.
struct Traffic<F> {
    traffic: TrafficGenerator,
    bursts: u32,
    before_burst: F,
}

fn traffic(before_burst: impl FnMut(u32) + Send + 'static) -> Input<'static> {
    let traffic = TrafficGenerator::new("mix,flows=500,packets=1G").unwrap();
    Input::File(Box::new(Traffic { traffic, bursts: 0, before_burst }))
}

impl<F: FnMut(u32)> Source for Traffic<F> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, weir_capture::Error> {
        self.bursts += 1;
        (self.before_burst)(self.bursts);
        self.traffic.fill(burst)
    }

    fn progress(&self) -> Progress {
        self.traffic.progress()
    }
}

/// A sink with something that happens before each batch.
struct TestSink<F> {
    counters: SinkCounters,
    before_batch: F,
}

fn sink(name: &str, before_batch: impl FnMut() + Send + 'static) -> Box<dyn Sink + Send> {
    let counters = SinkCounters { sink: name.into(), ..SinkCounters::default() };
    Box::new(TestSink { counters, before_batch })
}

impl<F: FnMut()> Sink for TestSink<F> {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
        (self.before_batch)();
        flows.iter().for_each(|flow| self.counters.exported.add(flow.packets(), flow.frame_bytes()));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), weir_export::Error> {
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

/// A probe with a group for each source, each with a number of metering threads.
fn probe(sources: Vec<Input<'static>>, meters: usize, sinks: Vec<Box<dyn Sink + Send>>) -> Probe {
    observed_probe(sources, meters, sinks, None)
}

fn observed_probe(
    sources: Vec<Input<'static>>,
    meters: usize,
    sinks: Vec<Box<dyn Sink + Send>>,
    observer: Option<RecordObserver>,
) -> Probe {
    let group = |source| WorkerGroupSpec {
        name: "group".into(),
        queues: vec![ReceiveQueue { source, affinity: CpuAffinity::default(), actions: None }],
        meters: vec![CpuAffinity::default(); meters],
    };
    let meter = weir_flow::Config { flows: 10_000, ..weir_flow::Config::default() };
    let timing = Timing { sink_tick: Duration::from_millis(20), ..Timing::default() };
    let settings = Settings { meter, observer, timing, ..Settings::default() };
    let groups = sources.into_iter().map(group).collect();
    Probe::start(groups, settings, sinks, None, CpuAffinity::default(), BackPressure::Block).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_reading_thread_that_panics_is_named_and_all_flows_are_exported() {
    for (meters, name) in [(0, "weir-1"), (1, "weir-read-1"), (2, "weir-read-1")] {
        let panicking = traffic(|burst| assert!(burst < 100, "burst {burst}"));
        let mut probe = probe(vec![traffic(|_| {}), panicking], meters, vec![sink("good", || {})]);
        let mut panics = Vec::new();
        until("the panic is reported", || {
            panics = probe.take_panics();
            !panics.is_empty()
        });
        assert_eq!((panics[0].thread.as_str(), panics[0].message.as_str()), (name, "burst 100"));
        let report = probe.finish();
        assert_eq!((report.ledger.check(), report.panics), (vec![], vec![]));
        // The bursts before the panic are in records.
        assert_eq!(report.groups[1].account.ledger.packets.metered, 99 * 64, "{meters} meters");
        let exported = report.ledger.sinks[0].exported;
        assert_eq!(exported.packets, report.ledger.packets.metered);
        assert_eq!((exported.flows, report.ledger.live), (report.ledger.flows_created, RecordTotals::default()));
    }
}

#[test]
fn a_metering_thread_that_panics_is_named_and_the_flows_of_the_others_are_exported() {
    for meters in [1, 2] {
        let has_panicked = AtomicBool::new(false);
        // The first metering thread that exports a batch panics.
        let observer: RecordObserver = Arc::new(move |_: &[FlowRecord]| {
            assert!(has_panicked.swap(true, Ordering::Relaxed), "a bug");
        });
        let sources = vec![traffic(|_| {}), traffic(|_| {})];
        let mut probe = observed_probe(sources, meters, vec![sink("good", || {})], Some(observer));
        let mut panics = Vec::new();
        until("the panic is reported", || {
            panics = probe.take_panics();
            !panics.is_empty()
        });
        assert!(panics[0].thread.starts_with("weir-meter-"), "{}", panics[0].thread);
        assert_eq!((panics.len(), panics[0].message.as_str()), (1, "a bug"));
        let report = probe.finish();
        assert_eq!((report.ledger.check(), report.panics.len()), (vec![], 0));
        let (exported, packets) = (report.ledger.sinks[0].exported, report.ledger.packets);
        // What the thread had is lost, and counted.
        assert!(packets.dropped_queue > 0 && exported.packets == packets.metered, "{packets:?}");
        assert_eq!((exported.flows, report.ledger.live), (report.ledger.flows_created, RecordTotals::default()));
        assert!(exported.flows > 0);
    }
}

#[test]
fn a_sink_that_panics_is_named_and_its_records_are_counted_as_lost() {
    let panicking = sink("panicking", || panic!("a bug"));
    let mut probe = probe(vec![traffic(|_| {})], 0, vec![panicking, sink("good", || {})]);
    let mut panics = Vec::new();
    until("the panic is reported", || {
        panics = probe.take_panics();
        !panics.is_empty()
    });
    assert_eq!((panics[0].thread.as_str(), panics[0].message.as_str()), ("weir-export of panicking", "a bug"));
    let report = probe.finish();
    assert_eq!((report.ledger.check(), report.sink_errors.len()), (vec![], 1));
    let [panicking, good] = &report.ledger.sinks[..] else { panic!("two sinks") };
    let lost = panicking.lost[ExportLossReason::InternalError.key()];
    assert_eq!((panicking.exported.flows, lost, good.lost.len()), (0, good.exported, 0));
    assert_eq!(good.exported.packets, report.ledger.packets.metered);
}

/// Lets a thread hang until the sender is dropped.
fn hang() -> (Sender<()>, Receiver<()>) {
    channel()
}

#[test]
fn a_thread_that_hangs_is_named_but_not_one_that_waits() {
    const STUCK_TIME: Duration = Duration::from_millis(500);
    let [(resume, hangs), (more_data, no_data), (free_space, full)] = [hang(), hang(), hang()];
    let hanging = traffic(move |burst| {
        if burst == 50 {
            hangs.recv().unwrap_or_default()
        }
    });
    let silent = traffic(move |burst| {
        if burst == 50 {
            while_waiting(|| no_data.recv().unwrap_or_default())
        }
    });
    let blocked = sink("blocked", move || full.recv().unwrap_or_default());
    let mut probe = probe(vec![hanging, silent, traffic(|_| {})], 1, vec![blocked, sink("idle", || {})]);
    // On a busy machine, others may not have advanced for a while.
    until("the thread that hangs is stuck, and no other", || probe.stuck_threads(STUCK_TIME) == ["weir-read-0"]);
    drop(resume);
    until("it advances again", || probe.stuck_threads(STUCK_TIME).is_empty());
    drop((more_data, free_space));
    assert_eq!(probe.finish().ledger.check(), []);
}

fn late_flows(report: &FinalReport) -> u64 {
    report.ledger.sinks[0].lost.get(ExportLossReason::DrainTimeout.key()).map_or(0, |lost| lost.flows)
}

/// Makes the thread that calls the function hang as soon as the probe has flows, and ends the probe:
/// the thread is abandoned, and every record is counted. Tries again with twice the time if the machine is
/// so slow that other threads are abandoned, too, or `holds` does not yet.
fn end_in_time(start: impl Fn(Box<dyn Fn() + Send + Sync>) -> Probe, holds: impl Fn(&FinalReport) -> bool) {
    let mut reports = Vec::new();
    for attempt in 0..6 {
        let (resume, hangs) = hang();
        let (hung, is_hung) = channel();
        let may_hang = Arc::new(AtomicBool::new(false));
        let (of_thread, hangs) = (may_hang.clone(), Mutex::new(hangs));
        let probe = start(Box::new(move || {
            if of_thread.swap(false, Ordering::Relaxed) {
                hung.send(thread::current().name().unwrap().to_owned()).unwrap();
                hangs.lock().unwrap().recv().unwrap_or_default();
            }
        }));
        // The last report of the thread is from before.
        until("there are flows", || probe.status().0.live.flows > 0);
        may_hang.store(true, Ordering::Relaxed);
        let stuck = is_hung.recv().unwrap();
        let deadline = Instant::now() + Duration::from_millis(500 << attempt);
        let report = probe.finish_until(|| Some(deadline));
        assert!(report.stuck_threads.contains(&stuck), "{:?}", report.stuck_threads);
        let wrong = report.ledger.check();
        assert!(wrong.is_empty(), "attempt {attempt}, {:?}: {wrong:?} {:#?}", report.stuck_threads, report.ledger);
        assert_eq!(report.ledger.live, RecordTotals::default());
        drop(resume);
        if report.stuck_threads == [stuck] && holds(&report) {
            return;
        }
        reports.push((report.stuck_threads, report.ledger));
    }
    panic!("{reports:#?}");
}

#[test]
fn a_reading_thread_that_hangs_is_abandoned_at_the_deadline_and_meters_export_their_flows() {
    for meters in [0, 1, 2] {
        let sources = |hang: Box<dyn Fn() + Send + Sync>| vec![traffic(move |_| hang()), traffic(|_| {})];
        let start = |hang| probe(sources(hang), meters, vec![sink("good", || {})]);
        // A thread that reads and meters keeps its flows.
        end_in_time(start, |report| (late_flows(report) > 0) == (meters == 0));
    }
}

#[test]
fn a_metering_thread_that_hangs_is_abandoned_at_the_deadline_and_its_queue_is_counted_as_lost() {
    for meters in [1, 2] {
        let start = |hang: Box<dyn Fn() + Send + Sync>| {
            let observer = Arc::new(move |_: &[FlowRecord]| hang());
            observed_probe(vec![traffic(|_| {})], meters, vec![sink("good", || {})], Some(observer))
        };
        // What is in the queue of the meter.
        end_in_time(start, |report| report.ledger.packets.dropped_queue > 0);
    }
}
