use super::*;
use crate::control_mailbox::ControlMailbox;
use crate::exporter::Exporter;
use crate::loss_channel::LossHistories;
use crate::metering_stage::MeteringStage;
use crate::migration::connect;
use crate::pipeline::Pipeline;
use crate::reading_stage::ReadingStage;
use crate::settings::{BackPressure, Settings};
use crate::test_sink::sink;
use crate::thread::CpuAffinity;
use crate::worker::{self, StopSignal};
use parking_lot::Mutex;
use weir_capture::{Input, POLL_TIMEOUT};
use weir_flow::FlowRecord;
use weir_trafficgen::TrafficGenerator;

fn settings() -> Settings {
    let meter = weir_flow::Config {
        secret: Some(1),
        flows: 1 << 17,
        idle_timeout_ns: 50_000_000,
        active_timeout_ns: 200_000_000,
        ..Default::default()
    };
    Settings { meter, ..Settings::default() }
}

/// An exporter whose sink keeps every record.
fn exporter() -> (Exporter, Arc<Mutex<Vec<FlowRecord>>>) {
    let flows = Arc::<Mutex<Vec<FlowRecord>>>::default();
    let records = flows.clone();
    let memory = sink("memory", move |flows| {
        records.lock().extend_from_slice(flows);
        true
    });
    (Exporter::new(vec![memory], CpuAffinity::default(), BackPressure::Block, &settings()).unwrap(), flows)
}

fn sorted_text(flows: &Mutex<Vec<FlowRecord>>) -> Vec<String> {
    let mut text: Vec<_> = flows.lock().iter().map(|flow| format!("{flow:?}")).collect();
    text.sort();
    text
}

/// The records of one meter.
fn with_one_meter(mut source: Input<'_>) -> Vec<String> {
    let (mut exporter, flows) = exporter();
    let mut pipeline = Pipeline::new(settings(), exporter.handle(), None).unwrap();
    while pipeline.process_burst(&mut source).unwrap() {}
    pipeline.finish();
    exporter.finish();
    sorted_text(&flows)
}

/// Buckets moved, and the records of meters between which random buckets move without pause.
fn with_several_meters(sources: Vec<Input<'static>>, meters: usize) -> (u64, Vec<String>) {
    let (mut exporter, flows) = exporter();
    let settings = settings();
    let connections =
        connect(sources.len(), meters, BackPressure::Block, POLL_TIMEOUT, (1, settings.meter.key)).unwrap();
    let mut rebalancer = Rebalancer::new(connections.group);
    let mut random = fastrand::Rng::with_seed(7);
    thread::scope(|scope| {
        for (input, receivers) in connections.inputs {
            let histories = LossHistories::from_receivers(receivers);
            let metering = MeteringStage::new(&settings, exporter.handle(), histories).unwrap();
            scope.spawn(move || worker::run_meter(metering, input, false, &ControlMailbox::default()));
        }
        for (source, dispatcher) in sources.into_iter().zip(connections.dispatchers) {
            let (reader, stop) = (ReadingStage::new(&settings), StopSignal::new(Arc::default()));
            scope.spawn(move || worker::run_reader(source, reader, dispatcher, &ControlMailbox::default(), stop));
        }
        loop {
            let new_meter = random.u8(..meters as u8);
            let buckets: BTreeSet<u16> = (0..=random.usize(..40)).map(|_| random.u16(..BUCKETS as u16)).collect();
            let moves = buckets.into_iter().map(|bucket| (bucket, new_meter));
            let moves: Vec<_> =
                moves.filter(|&(bucket, _)| rebalancer.table[usize::from(bucket)] != new_meter).collect();
            if !moves.is_empty() && rebalancer.migrate(&moves).is_err() {
                break;
            }
        }
    });
    exporter.finish();
    assert!(exporter.take_errors().is_empty());
    (rebalancer.group.moved_buckets.load(Ordering::Relaxed), sorted_text(&flows))
}

#[test]
fn several_meters_with_permanent_migration_export_the_records_of_one_meter() {
    // How many buckets move in one run depends on the machine.
    let mut moved_in_all = 0;
    for specification in ["mix,flows=3000,packets=400k", "lossy,flows=200,packets=200k"] {
        let generator =
            || TrafficGenerator::new(specification).unwrap_or_else(|error| panic!("{specification}: {error}"));
        let source = || Input::File(Box::new(generator()));
        let expected = with_one_meter(source());
        for meters in [2, 3, 5] {
            let (moved, records) = with_several_meters(vec![source()], meters);
            moved_in_all += moved;
            assert_eq!(records.len(), expected.len(), "{specification}, {meters} meters, {moved} buckets moved");
            assert!(records == expected, "{specification}, {meters} meters, {moved} buckets moved");
        }
    }
    assert!(moved_in_all > 50, "{moved_in_all} buckets moved");
}
