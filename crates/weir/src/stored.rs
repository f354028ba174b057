//! `weir read` of flows that were stored: from stores, and from single files of Parquet, IPFIX and nfdump.

use crate::anonymisation;
use crate::arguments::{Arguments, Command, Output, Read, RecordSink, Sinks};
use crate::console::progress::Progress;
use crate::enrichment::Enricher;
use crate::error::{Error, InputError};
use crate::files;
use crate::input;
use crate::outputs::{Outputs, log_sink_failure};
use crate::page_file::{self, PageOutput};
use crate::run_status::{Ended, RunStatus};
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings::key_options;
use crate::signals::StopSignal;
use crate::stored_reader::{StoredPaths, StoredProblem, StoredReader};
use crate::stored_sums;
use crate::summary;
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;
use weir_capture::SourceSpec;
use weir_export::ViewFormat;
use weir_fields::{Column, Field, Origin, field, is_of_transactions};
use weir_ledger::{Ledger, RecordTotals};
use weir_probe::{BackPressure, CpuAffinity, Exporter, Settings, StoredPipeline};
use weir_query::{Expression, GroupField, RecordOrder, View};

/// The paths of stored flows, if these are the sources.
///
/// # Errors
/// There are packets, too.
pub fn paths(sources: &[SourceSpec]) -> Result<Option<StoredPaths>, Error> {
    let mut paths = StoredPaths::default();
    let packets: Vec<_> = sources.iter().filter(|source| !paths.add(source)).collect();
    match packets.first() {
        _ if paths.all().next().is_none() => Ok(None),
        Some(packets) => Err(InputError::FlowsAndPackets(packets.to_string()).into()),
        None => Ok(Some(paths)),
    }
}

/// Reads flows. `register` says what signals do.
pub fn run(
    read: &Read,
    stored: &StoredPaths,
    register: impl FnOnce() -> Result<StopSignal, Error>,
) -> Result<Ended, Error> {
    check_options(read)?;
    raise_limit_of_files();
    let mut reader = StoredReader::open(stored, read.times_ns()?)?;
    let paths: Vec<PathBuf> = stored.all().cloned().collect();
    let mut page = read.html.as_deref().map(|path| PageOutput::new(path, true)).transpose()?;
    let outputs = outputs(read, &paths, &reader, page.as_ref())?;
    reader.select(selection(read));
    if let Some(fields) = needed_fields(read, &outputs)? {
        reader.keep_only(&fields);
    }
    let enricher = Enricher::load(&read.enrichment)?;
    if reader.form.is_anonymised && read.enrichment.columns().next().is_some() {
        warn!("stored flows are anonymised: places and tags are those of the addresses that they have instead");
    }
    let lists = enricher.as_ref().map(|enricher| enricher.current().lists(|_| true));
    if lists.is_some_and(|lists| lists.has_findings) {
        warn!("--tags: fingerprints are not known of stored flows, and names only if they were stored");
    }
    let stop_signal = register()?;
    let stop = stop_signal.flag();
    let mut open = page_file::open(read, &outputs, page.as_mut(), key_options(&read.metering), &stop)?;
    // Files are opened one after the other.
    if !read.hardening.no_sandbox {
        // Of a folder, all files.
        let inside: Vec<PathBuf> =
            paths.iter().map(|path| if path.is_dir() { path.join("inside") } else { path.clone() }).collect();
        let inside: Vec<&Path> = inside.iter().map(PathBuf::as_path).collect();
        Sandbox::enter(&outputs.later_targets(), &[], &inside, Restrictions::of(&read.sources(), false, false));
    }
    let streams_to_terminal = outputs.on_standard_output.is_some() && !outputs.table_on_standard_output();
    let mut progress = Progress::new(read.reporting.quiet || (streams_to_terminal && io::stdout().is_terminal()));
    {
        let mut summary = open.summary.lock().unwrap_or_else(PoisonError::into_inner);
        summary.is_stored = true;
        summary.of_transactions = reader.form.is_transactions;
    }
    let timing = read.times.timing();
    let settings = Settings {
        observer: Some(summary::observer(&open.summary)),
        enricher: enricher.as_ref().map(Enricher::record_enricher),
        timing,
        ..Settings::default()
    };
    let sinks = std::mem::take(&mut open.sinks);
    let exporter =
        Exporter::new(sinks, CpuAffinity::default(), BackPressure::Block, &settings).map_err(Error::Thread)?;
    stop_signal.start_thread_with(&timing, page_file::or_abandon(exporter.end_soon(), page.as_ref()));
    let sums = stored_sums::sum_up(read, &outputs, &mut reader, &stop, &mut progress);
    let sums = sums.map(|sums| sums.pass_on(&outputs, &open));
    let exported = export(&mut reader, sums, exporter, &stop, &mut progress);
    open.summary.lock().unwrap_or_else(PoisonError::into_inner).not_selected = reader.others();
    Ok(page_file::report(read, &outputs, open, page, exported))
}

/// Passes all records to the sinks, until their end, a signal, or until no sink is left. If the sinks have the sums of
/// flows, there are no records.
fn export(
    reader: &mut StoredReader,
    summed: Option<RecordTotals>,
    mut exporter: Exporter,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> (Ledger, Ended) {
    let mut pipeline = StoredPipeline::new(exporter.handle());
    let mut problems: Vec<String> = reader.problems.iter().map(StoredProblem::text).collect();
    reader.problems.iter().for_each(StoredProblem::log);
    let mut has_problems = !problems.is_empty();
    let log_errors = |errors: Vec<weir_export::Error>| {
        // A closed pipe is no failure.
        let failures = errors.iter().filter(|error| !error.is_closed_pipe());
        failures.map(log_sink_failure).count() > 0
    };
    exporter.report_status([pipeline.account()], 1, Vec::new());
    if let Some(flows) = summed {
        pipeline.count(flows);
    }
    for batches in (1_u64..).take_while(|_| summed.is_none()) {
        match pipeline.export(|records| reader.read(records, StoredPipeline::BATCH)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(problem) => {
                problems.push(problem.text());
                problem.log();
            }
        }
        if batches % input::BURSTS_BETWEEN_CHECKS == 0 {
            has_problems |= log_errors(exporter.take_errors());
            if exporter.all_sinks_failed() || stop.load(Ordering::Relaxed) {
                break;
            }
            let total_bytes = Some(reader.total_octets());
            let done = weir_capture::Progress { done_bytes: reader.done_octets(), total_bytes };
            progress.update(done, || pipeline.account().ledger.packets.received);
        }
    }
    if stop.load(Ordering::Relaxed) {
        problems.push(input::INTERRUPTED.into());
        input::log_interrupted();
    }
    progress.clear();
    exporter.report_status([pipeline.account()], 1, Vec::new());
    exporter.finish();
    has_problems |= log_errors(exporter.take_errors());
    let status = RunStatus::from_problems(has_problems || !problems.is_empty());
    (exporter.ledger([pipeline.account().clone()]), Ended { status, problems })
}

/// The files of an hour are open at the same time.
pub fn raise_limit_of_files() {
    let limit = getrlimit(Resource::Nofile);
    // With the old limit, an hour of many files cannot be read, which is an error then.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Refuses what selects or changes packets.
fn check_options(read: &Read) -> Result<(), Error> {
    if read.sinks.outputs.iter().any(|output| matches!(output, Output::Packets(_))) {
        return Err(InputError::NeedsPackets("-o packets:FILE").into());
    }
    // With the defaults of all options.
    let usual = Arguments::parse_from(["weir", "read", "-"]);
    let Some(Command::Read(usual)) = usual.command else { return Ok(()) };
    let (given, usual) = (&read.metering, &usual.metering);
    let options = [
        (given.selection.filter.is_some(), "--filter"),
        (given.selection.decap, "--decap"),
        (given.layer2, "--layer2"),
        (given.mac_addresses, "--mac-addresses"),
        (!given.key.is_empty(), "--key"),
        (given.uniflow_key, "--uniflow-key"),
        (given.idle_ns != usual.idle_ns, "--idle"),
        (given.active_ns != usual.active_ns, "--active"),
        (given.flows.is_some(), "--flows"),
        (given.dpi.is_some(), "--dpi"),
        (given.dpi_packets != usual.dpi_packets, "--dpi-packets"),
        (given.dpi_octets != usual.dpi_octets, "--dpi-octets"),
        (given.dpi_fields, "--dpi-fields"),
        (given.dpi_transactions != usual.dpi_transactions, "--dpi-transactions"),
        (given.dpi_ports, "--dpi-ports"),
        (!read.sinks.transactions.is_empty(), "--transactions"),
        (given.full != usual.full, "--full"),
        (read.rules.is_some(), "--rules"),
        (read.threads.is_some(), "--threads"),
        (read.enrichment.interface_names, "--interface-names"),
        (read.names, "--names"),
    ];
    let option = options.into_iter().find_map(|(is_given, option)| is_given.then_some(option));
    option.map_or(Ok(()), |option| Err(InputError::NeedsPackets(option).into()))
}

/// The outputs: of the fields that stored flows have.
fn outputs(read: &Read, paths: &[PathBuf], reader: &StoredReader, page: Option<&PageOutput>) -> Result<Outputs, Error> {
    // Records of transactions have more columns, which are 0.
    let is_of_all = |column: &&'static Column| !reader.form.is_transactions || is_of_transactions(column);
    let known: Vec<&'static Column> = reader.known().iter().copied().filter(is_of_all).collect();
    let enriched: Vec<_> = read.enrichment.columns().collect();
    let has = |column: &&'static Column| known.contains(column) || enriched.contains(column);
    let mut outputs = Outputs::new(&read.sinks, &read.metering, &read.enrichment, read.reporting.stats.as_deref());
    outputs.stored_form = reader.form;
    if reader.form.is_transactions && read.sinks.fields.is_none() {
        outputs.columns = weir_fields::transaction_columns(false, true);
        outputs.columns.extend(read.enrichment.columns());
    }
    if let Some(page) = page {
        let mut store = page.store(&read.metering, &read.enrichment);
        store.columns.retain(has);
        outputs.add_page(page.target(), store, &read.sinks);
    }
    if let Some(view) = &mut outputs.view {
        view.set_known(&known);
        view.of_transactions = reader.form.is_transactions;
        // Transactions have no TCP analysis in any case.
        let numbers = view.unknown_names(!reader.form.is_transactions);
        if !numbers.is_empty() {
            warn!(numbers = numbers.join(","), "these numbers of a view are not known of the stored flows");
        }
    }
    Error::of(outputs.problems(&read.sinks))?;
    files::check_targets(&read.sources(), &outputs.targets)?;
    files::check_outside(paths, &outputs.targets)?;
    if let Some(fields) = &read.sinks.fields {
        let missing: Vec<_> = fields.0.iter().filter(|column| !has(column)).map(|column| column.name).collect();
        if missing.len() == fields.0.len() {
            return Err(not_stored("--fields".into(), &missing.join(", "), &outputs).into());
        }
        if !missing.is_empty() {
            warn!(fields = missing.join(","), "--fields: the stored flows do not have these, so they are left out");
        }
    }
    outputs.columns.retain(has);
    outputs.stored_columns.retain(|column| reader.known().contains(column) || enriched.contains(column));
    for sink in &outputs.sinks {
        let mut columns = sink.spec.columns().into_iter().flatten();
        if let Some(column) = columns.find(|column| !has(column)) {
            return Err(not_stored(format!("-o {}", sink.spec.name()), column.name, &outputs).into());
        }
    }
    check_fields(read, &outputs, has)?;
    if read.sinks.uniflow && outputs.sinks.iter().any(|sink| !outputs.shows_view(sink)) {
        warn!("--uniflow: the times of each direction are not stored, so both records have those of the flow");
    }
    outputs.known = Some(known.iter().copied().chain(enriched.iter().copied()).collect());
    outputs.anonymiser = anonymisation::load(&read.sinks)?;
    outputs.timing = read.times.timing();
    Ok(outputs)
}

/// The fields of expressions, views and orders, with their places.
fn used_fields(read: &Read, outputs: &Outputs) -> Result<Vec<(String, &'static str)>, Error> {
    let Sinks { by, counts, records, order, .. } = &read.sinks;
    let mut used: Vec<(String, &str)> = by.iter().map(|field| ("--by".into(), GroupField::name(field))).collect();
    used.extend(counts.iter().flat_map(|count| count.names_in(by)).map(|name| ("--count".into(), name)));
    let condition = |sink: &RecordSink| Some((format!("-o {}: where", sink.spec.name()), sink.condition.clone()?));
    let of_all = records.iter().map(|expression| ("--where".to_owned(), expression.clone()));
    for (place, expression) in of_all.chain(outputs.sinks.iter().filter_map(condition)) {
        used.extend(expression.fields().into_iter().map(|name| (place.clone(), name)));
    }
    let order = order.as_ref().filter(|_| outputs.view.is_none()).map(RecordOrder::new).transpose()?;
    used.extend(order.iter().map(|order| ("--sort".into(), order.name())));
    Ok(used)
}

fn check_fields(read: &Read, outputs: &Outputs, has: impl Fn(&&'static Column) -> bool) -> Result<(), Error> {
    for (place, name) in used_fields(read, outputs)? {
        if field(name).is_some_and(|field| !has(&field.column())) {
            return Err(not_stored(place, name, outputs).into());
        }
    }
    Ok(())
}

/// That the records do not have a field; of transactions, which ones have its name in theirs.
fn not_stored(place: String, name: &str, outputs: &Outputs) -> InputError {
    let field = name.to_owned();
    if !outputs.stored_form.is_transactions {
        return InputError::NotStored { place, field };
    }
    let columns = weir_fields::transaction_columns(false, true);
    let near: Vec<_> = columns.iter().map(|column| column.name).filter(|other| other.contains(name)).collect();
    let near = if near.is_empty() { String::new() } else { format!(": {}", near.join(", ")) };
    InputError::NotOfTransactions { place, field, near }
}

/// The condition of `--where`, if stored fields decide about it. Otherwise records are enriched before.
fn selection(read: &Read) -> Option<&Expression> {
    let is_stored = |name| field(name).is_some_and(|field| field.properties().origin != Origin::Enrichment);
    read.sinks.records.as_ref().filter(|condition| condition.fields().into_iter().all(is_stored))
}

/// The fields that outputs, conditions and the summary read; `None` for all.
fn needed_fields(read: &Read, outputs: &Outputs) -> Result<Option<Vec<&'static Column>>, Error> {
    // The usual columns of a table are those that have values.
    let reads_all = |sink: &RecordSink| match sink.spec.view_format() {
        None => true,
        Some(ViewFormat::Table) => !outputs.shows_view(sink) && sink.spec.columns().is_none(),
        Some(_) => false,
    };
    if outputs.page.is_some() || !read.enrichment.tags.is_empty() || outputs.sinks.iter().any(reads_all) {
        return Ok(None);
    }
    let mut needed: Vec<&'static Column> = Vec::new();
    for sink in &outputs.sinks {
        match sink.spec.columns() {
            _ if outputs.shows_view(sink) => {}
            Some(columns) => needed.extend(columns),
            None => needed.extend(&outputs.columns),
        }
    }
    match &outputs.view {
        Some(view) => needed.extend(view.summed_columns()),
        None if !read.reporting.quiet => needed.extend(View::summed_fields()),
        None => {}
    }
    let used = used_fields(read, outputs)?;
    let used = used.iter().map(|(_, name)| *name);
    let of_places = (read.enrichment.columns().next().is_some()).then_some("host");
    needed.extend(used.chain(of_places).filter_map(field).flat_map(Field::columns));
    Ok(Some(needed))
}
