//! `weir read`: sources through one pipeline into sinks.

use crate::actions::Actions;
use crate::anonymisation;
use crate::arguments::{Metering, Output, Read};
use crate::console::progress::Progress;
use crate::enrichment::Enricher;
use crate::error::Error;
use crate::files;
use crate::input::{self, BURSTS_BETWEEN_CHECKS, DamageLog};
use crate::memory::{self, MemoryUse};
use crate::missing_options;
use crate::names::SharedNames;
use crate::outputs::{Outputs, log_sink_failure};
use crate::packet_records;
use crate::page_file::{self, PageOutput};
use crate::run_status::{Ended, RunStatus};
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings::{record_transactions, settings, start_error};
use crate::signals::StopSignal;
use crate::stored;
use crate::summary::{self, TrafficSummary};
use crate::table::{LiveTable, LiveTraffic};
use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::error;
use weir_capture::{Input, ReadingThreads, Source, SourceSpec};
use weir_egress::WhenFull;
use weir_export::Sink;
use weir_ledger::Ledger;
use weir_probe::{
    BackPressure, CpuAffinity, Exporter, PacketActions, Pipeline, RecordObserver, Searches, Settings, search_channel,
};
use weir_query::ViewSettings;

/// Time between two reports of the metering process to the sinks.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

pub fn run(read: &Read) -> Result<RunStatus, Error> {
    let sources = read.sources();
    if let Some(stored) = stored::paths(&sources)? {
        return stored::run(read, &stored, || register(read)).map(|ended| ended.status);
    }
    for output in &read.sinks.outputs {
        if let Output::Packets(path) = output {
            return packet_records::run(read, path);
        }
    }
    run_pipeline(read, &sources, || register(read)).map(|ended| ended.status)
}

/// The page has a folder, which each ending removes.
fn register(read: &Read) -> Result<StopSignal, Error> {
    if read.html.is_some() { StopSignal::register_without_end() } else { StopSignal::register() }
}

/// Meters packets. `register` says what signals do.
pub fn run_pipeline(
    read: &Read,
    sources: &[SourceSpec],
    register: impl FnOnce() -> Result<StopSignal, Error>,
) -> Result<Ended, Error> {
    input::check_sources(sources, "read")?;
    input::check_loopback(sources, read.force)?;
    input::check_packets(sources, &read.metering.selection, read.rules.is_some())?;
    anonymisation::check(&read.sinks, read.rules.as_deref())?;
    let metering = &input::metering_of(sources, &read.metering)?;
    let timing = read.times.timing();
    let mut page = read.html.as_deref().map(|path| PageOutput::new(path, false)).transpose()?;
    let outputs = outputs(read, sources, metering, page.as_ref())?;
    let actions = read.rules.as_deref().map(Actions::load).transpose()?;
    actions.iter().try_for_each(|actions| actions.check(sources, &outputs.targets, metering, &read.enrichment))?;
    let mut settings = settings(metering)?;
    missing_options::warn_of_inspection(metering, metering.inspects());
    record_transactions(&mut settings, &read.sinks);
    settings.meter.marks = actions.is_some();
    settings.times_ns = read.times_ns()?;
    missing_options::warn(&outputs.sinks, &read.sinks, metering, metering.inspects(), &read.enrichment);
    let enricher = Enricher::load(&read.enrichment)?;
    if let (Some(actions), Some(enricher)) = (&actions, &enricher) {
        missing_options::check_tags(&actions.rules, metering, &enricher.current())?;
    }
    let (outputs, searches) = with_additions(read, sources, outputs, enricher.as_ref());
    let stop_signal = register()?;
    let stop = stop_signal.flag();
    let reading_threads = reading_threads(read, sources.len());
    let threads = if read.threads.is_some() { ReadingThreads::UpTo } else { ReadingThreads::IfUseful };
    let mut source = input::open_on_threads(sources, settings.decode, &stop, threads(reading_threads))?;
    let reads_captures = matches!(source, Input::File(_));
    let reading_threads = if reads_captures { reading_threads } else { 0 };
    let (sinks, back_pressure) = (outputs.sinks.len(), BackPressure::Block);
    let enrichment_bytes = enricher.as_ref().map_or(0, |of| of.reserve_bytes(sinks, back_pressure, false));
    let views = outputs.memory();
    let enrichment_bytes = enrichment_bytes + actions.as_ref().map_or(0, |actions| actions.memory_bytes(1));
    let memory =
        MemoryUse { meters: 1, reads_captures, reading_threads, sinks, back_pressure, views, enrichment_bytes };
    let is_requested = metering.flows.is_some();
    memory.fit(&mut settings.meter, is_requested)?;
    let config = settings.meter;
    // Before any output is opened: opening empties files.
    weir_flow::Meter::new(config).map_err(|error| start_error(&config, is_requested, error))?;
    let pipes: Vec<PathBuf> = actions.iter().flat_map(Actions::writable_paths).collect();
    let sends_by_dpdk = actions.as_ref().is_some_and(Actions::use_dpdk);
    let when_full = if reads_captures { WhenFull::Wait(stop.clone()) } else { WhenFull::Drop };
    let filter = metering.selection.filter.as_deref();
    let actions = actions.map(|actions| actions.open(sources, 1, &when_full, &timing, filter)).transpose()?;
    let mut open = page_file::open(read, &outputs, page.as_mut(), config.key, &stop)?;
    if !read.hardening.no_sandbox {
        Sandbox::enter(&outputs.later_targets(), &pipes, &[], Restrictions::of(sources, sends_by_dpdk, false));
    }
    let progress = progress(read, &outputs);
    open.set_without_payload(sources.iter().any(|source| matches!(source, SourceSpec::Packets(_))));
    let observer = Some(observer(&open.summary, outputs.additions.names.clone()));
    let (sinks, transactions) = (std::mem::take(&mut open.sinks), open.transactions.take());
    let interface_names = enricher.as_ref().and_then(Enricher::interface_names);
    let enricher = enricher.as_ref().map(Enricher::record_enricher);
    // With one reading thread, two threads are busy, and this one while the number of flows grows.
    let memory_thread = (reading_threads > 0).then(CpuAffinity::default);
    let transaction_enricher = enricher.clone();
    let settings =
        Settings { observer, interface_names, enricher, transaction_enricher, memory_thread, timing, ..settings };
    let (pipeline, exporter) = start_pipeline(settings, sinks, transactions, actions, is_requested)?;
    stop_signal.start_thread_with(&timing, page_file::or_abandon(exporter.end_soon(), page.as_ref()));
    let metered = meter(&mut source, pipeline.with_searches(searches), exporter, &stop, progress);
    outputs.additions.names.iter().for_each(SharedNames::log_left_out);
    Ok(page_file::report(read, &outputs, open, page, metered))
}

/// The outputs, which are valid, and no input.
fn outputs(
    read: &Read,
    sources: &[SourceSpec],
    metering: &Metering,
    page: Option<&PageOutput>,
) -> Result<Outputs, Error> {
    let mut outputs = Outputs::new(&read.sinks, metering, &read.enrichment, read.reporting.stats.as_deref());
    if let Some(page) = page {
        outputs.add_page(page.target(), page.store(metering, &read.enrichment), &read.sinks);
    }
    Error::of(outputs.problems(&read.sinks))?;
    outputs.check_transactions(metering, true)?;
    files::check_targets(sources, &outputs.targets)?;
    let anonymiser = anonymisation::load(&read.sinks)?;
    Ok(Outputs { anonymiser, timing: read.times.timing(), ..outputs })
}

/// Sums up all records, and learns names from them.
fn observer(summary: &Arc<Mutex<TrafficSummary>>, names: Option<SharedNames>) -> RecordObserver {
    let observe = summary::observer(summary);
    match names {
        Some(names) => names.before(observe),
        None => observe,
    }
}

/// The progress of the run, unless something else is on the terminal.
fn progress(read: &Read, outputs: &Outputs) -> Progress {
    let streams = outputs.on_standard_output.is_some() && !outputs.table_on_standard_output();
    let is_terminal_taken = streams && io::stdout().is_terminal() || outputs.additions.live.is_some();
    Progress::new(read.reporting.quiet || is_terminal_taken)
}

/// The outputs, whose tables have names with `--names`, and whose table is refreshed if live traffic goes to one on a
/// terminal; then also what lets it see current flows.
fn with_additions(
    read: &Read,
    sources: &[SourceSpec],
    mut outputs: Outputs,
    enricher: Option<&Enricher>,
) -> (Outputs, Option<Searches>) {
    outputs.additions.names = read.names.then(SharedNames::load);
    let is_live = sources.iter().any(|source| input::is_live(&source));
    if !is_live || read.reporting.quiet || !outputs.table_on_standard_output() || !io::stdout().is_terminal() {
        return (outputs, None);
    }
    let (searcher, searches) = search_channel();
    let enricher = enricher.map(Enricher::record_enricher);
    outputs.additions.live = Some(LiveTraffic { searcher, enricher });
    if let Some(view) = &mut outputs.view {
        let group_bytes = ViewSettings { groups: 1, ..view.clone() }.max_memory_bytes() * LiveTable::VIEWS;
        if read.sinks.groups.is_none() {
            view.groups = memory::default_groups(group_bytes);
        }
        (outputs.view_memory.groups, outputs.view_memory.bytes) = (view.groups, view.groups as u64 * group_bytes);
    }
    (outputs, Some(searches))
}

fn start_pipeline(
    settings: Settings,
    sinks: Vec<Box<dyn Sink + Send>>,
    transactions: Option<Vec<Box<dyn Sink + Send>>>,
    actions: Option<Vec<PacketActions>>,
    flows_requested: bool,
) -> Result<(Pipeline, Exporter), Error> {
    let exporter =
        Exporter::new(sinks, CpuAffinity::default(), BackPressure::Block, &settings).map_err(Error::Thread)?;
    let exporter = match transactions {
        Some(sinks) => exporter.with_transactions(sinks, &settings).map_err(Error::Thread)?,
        None => exporter,
    };
    let (config, handle) = (settings.meter, exporter.handle());
    let pipeline = Pipeline::new(settings, handle, actions.into_iter().flatten().next());
    let pipeline = pipeline.map_err(|error| start_error(&config, flows_requested, error))?;
    Ok((pipeline, exporter))
}

/// Threads that may read ahead of the one that meters.
fn reading_threads(read: &Read, sources: usize) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    (read.threads.map_or_else(cores, usize::from) - 1).min(weir_capture::useful_threads(sources))
}

/// Runs the source through the pipeline until its end, a signal, or until no sink is left. There
/// are problems if input was damaged or not read to its end, or if a sink failed.
fn meter(
    source: &mut Input<'_>,
    mut pipeline: Pipeline,
    mut exporter: Exporter,
    stop: &AtomicBool,
    mut progress: Progress,
) -> (Ledger, Ended) {
    let (mut damage, mut filter_failed) = (DamageLog::default(), false);
    let mut status_reported = Instant::now();
    let (mut interrupted, mut no_sink_left, mut sink_failed) = (false, false, false);
    // A signal is the regular end of live traffic, and an interruption of everything else.
    let is_live = matches!(source, Input::Live(_));
    let is_interrupted = || !is_live && stop.load(Ordering::Relaxed);
    let mut log_sink_errors = |errors: Vec<weir_export::Error>| {
        // A closed pipe is no failure.
        for error in errors.iter().filter(|error| !error.is_closed_pipe()) {
            sink_failed = true;
            log_sink_failure(error);
        }
    };
    exporter.report_status([&pipeline.account()], 1, source.interfaces());
    for bursts in 1_u64.. {
        if let Input::Live(live) = source
            && stop.load(Ordering::Relaxed)
        {
            live.stop();
        }
        match pipeline.process_burst(source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => damage.log(&error),
        }
        if bursts % BURSTS_BETWEEN_CHECKS == 0 {
            log_sink_errors(exporter.take_errors());
            filter_failed |= input::log_filter_errors(&pipeline.take_filter_errors());
            if status_reported.elapsed() >= STATUS_INTERVAL {
                status_reported = Instant::now();
                exporter.report_status([&pipeline.account()], 1, source.interfaces());
            }
            no_sink_left = exporter.all_sinks_failed();
            interrupted = is_interrupted();
            if no_sink_left || interrupted {
                break;
            }
            progress.update(source.progress(), || pipeline.account().ledger.packets.received);
        }
    }
    interrupted |= is_interrupted();
    filter_failed |= input::log_filter_errors(&pipeline.take_filter_errors());
    damage.log_end();
    if interrupted {
        input::log_interrupted();
    }
    // The table is written when the pipeline finishes.
    progress.clear();
    let account = pipeline.finish();
    exporter.report_status([&account], 1, source.interfaces());
    exporter.finish();
    log_sink_errors(exporter.take_errors());
    let ledger = exporter.ledger([account]);
    if no_sink_left && sink_failed {
        error!("all outputs have failed: the rest of the input was not read");
    }
    let status = RunStatus::from_problems(damage.count() > 0 || interrupted || filter_failed || sink_failed);
    let mut problems = damage.into_texts();
    problems.extend(interrupted.then(|| input::INTERRUPTED.into()));
    problems.extend(filter_failed.then(|| "the filter has no meaning for some packets, which are left out".into()));
    problems.extend(sink_failed.then(|| "some flows could not be written; the log has the reason".into()));
    (ledger, Ended { status, problems })
}
