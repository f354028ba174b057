//! `weir tcp`: reads captures through [`weir_tcp_report`], and writes the report.

use crate::arguments::{EngineChoice, FailedChoice, GroupChoice, Tcp, times_ns};
use crate::console::progress::Progress;
use crate::console::{self, print_styled_with, print_with, style};
use crate::error::{Error, TcpError};
use crate::files::{self, CompressedFile, Target};
use crate::input::{self, BURSTS_BETWEEN_CHECKS, DamageLog};
use crate::ledger_text::has_problems;
use crate::memory::free_bytes;
use crate::names::SharedNames;
use crate::outputs::{open_stats, print_ledger, write_stats};
use crate::run_status::RunStatus;
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings;
use crate::signals::StopSignal;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{error, info, warn};
use weir_capture::{Source, SourceSpec};
use weir_enrich::{Enrichment, Sources};
use weir_export::{Compression, FileMode};
use weir_flow::FlowRecord;
use weir_query::Expression;
use weir_tcp_batch::{Backend, DeviceError, Engine, EngineOptions, Fallback};
use weir_tcp_report::{
    Analysis, CaptureReport, EndNames, ExplainError, GroupOrder, Grouping, Limits, LookupError, NetworkNames,
    PacketConsumer, PacketReader, PacketSelection, Pass, RecordTest, ReportOptions, SortOrder, TimeLines,
    find_connection, has_field,
};
use weir_text::units;
use weir_text::zone::Zone;

pub fn run(tcp: &Tcp) -> Result<RunStatus, Error> {
    let sources = &tcp.files[..];
    input::check_sources(sources, "tcp")?;
    if let Some(key) = &tcp.explain
        && let Some(pipe) = sources.iter().find(|source| input::is_pipe(source))
    {
        return Err(TcpError::ExplainOfPipe { key: key.clone(), pipe: pipe.to_string() }.into());
    }
    let names = tcp.names.then(SharedNames::load);
    let report_options = ReportOptions { end_names: names.clone().map(end_names), ..report_options(tcp)? };
    check_fields(tcp)?;
    let (outputs, stats_path) = (outputs(tcp), tcp.reporting.stats.as_deref());
    files::check_targets(sources, &targets(&outputs, stats_path))?;
    input::check_packets(sources, &tcp.selection, false)?;
    let selection = selection(tcp)?;
    let stop_signal = StopSignal::register()?;
    let stop = stop_signal.flag();
    let mut source = input::open_sources(sources, selection.decode, &stop)?;
    // After opening: mapped files need address space, too.
    let limits = Limits::new(free_bytes(), tcp.connections).map_err(TcpError::Memory)?;
    let (backend, batch_size, max_anomalies) = (backend(tcp), limits.batch_size, limits.anomalies);
    let options = EngineOptions { backend, batch_size, max_anomalies };
    let engine = Engine::open(options).map_err(TcpError::Engine)?;
    let (files, stats) = open_outputs(tcp, &outputs, &stop)?;
    // The driver of a GPU opens devices and makes system calls of its own.
    if (backend == Backend::Cpu || engine.counters().fallback.is_some()) && !tcp.hardening.no_sandbox {
        enter_sandbox(tcp, sources);
    }
    let mut analysis = Analysis::new(engine, limits.connections, tcp.compare);
    let mut reader = PacketReader::new(selection.clone()).with_dns(names.as_ref().map(SharedNames::dns_observer));
    stop_signal.start_thread();
    let read = read_all(&mut source, &mut reader, &mut analysis, &stop, Progress::new(tcp.reporting.quiet), true);
    let condition = tcp.connections_where.as_ref();
    let test = condition.map(|condition| |connection: &FlowRecord| condition.matches(connection));
    let test = test.as_ref().map(|test| test as RecordTest);
    let report = analysis.finish(reader.into_counts(), report_options, test);
    log_engine(tcp, &report);
    let mut status = RunStatus::from_problems(read.has_problems || has_problems(&report.counts.ledger));
    if let Some(warning) = report.incomplete() {
        warn!("{warning}");
    }
    let again = SecondReading { sources, selection: &selection, stop: &stop };
    let report = match &tcp.explain {
        Some(key) if read.interrupted => {
            error!("--explain {key}: nothing is explained, because the input was not read to its end");
            status = RunStatus::Problems;
            report
        }
        Some(key) => {
            status = status.and(again.explain(&report, key)?);
            report
        }
        None => {
            let (report, written) = write_reports(tcp, report, &outputs, files, read.interrupted, &again);
            status = status.and(written);
            report
        }
    };
    names.iter().for_each(SharedNames::log_left_out);
    let ledger = &report.counts.ledger;
    status = stats_path.map_or(status, |path| status.and(write_stats(ledger, path, stats)));
    print_ledger(ledger, tcp.reporting.verbose, status);
    Ok(status)
}

/// Writes all reports, to files and standard output.
fn write_reports(
    tcp: &Tcp,
    mut report: CaptureReport,
    outputs: &[Output],
    files: Vec<Option<File>>,
    interrupted: bool,
    again: &SecondReading,
) -> (CaptureReport, RunStatus) {
    let mut status = RunStatus::Success;
    if tcp.html.is_some() {
        status = status.and(again.read_time_lines(&mut report, interrupted));
    }
    let plots = tcp.svg.as_deref().map(|directory| (directory, tcp.output_files.mode()));
    status = status.and(write_outputs(&report, outputs, files, plots));
    let targets = targets(outputs, tcp.reporting.stats.as_deref());
    if !tcp.reporting.quiet && !targets.iter().any(|(_, target)| *target == Target::StandardOutput) {
        let write = |output: &mut dyn Write| report.write_text(console::terminal_columns(), output);
        status = status.and(print_styled_with(style::tcp_report, write));
    }
    (report, status)
}

/// How the report is ordered and limited.
fn report_options(tcp: &Tcp) -> Result<ReportOptions, Error> {
    let default = || SortOrder::named("retransmitted").expect("there is this order");
    let (mut sort, mut grouping) = (default(), None);
    match (tcp.by, &tcp.sort) {
        (None, None) => {}
        (None, Some(order)) => {
            let error = |error| TcpError::ConnectionOrder { text: order.text.clone(), error };
            sort = order.connections.clone().map_err(error)?;
        }
        (Some(by), order) => {
            let order = order.as_ref().map_or(Ok(GroupOrder::default()), |order| {
                let error = |error| TcpError::GroupOrder { text: order.text.clone(), error };
                order.groups.clone().map_err(error)
            })?;
            grouping = Some(Grouping { by: by.into(), order });
        }
    }
    Ok(ReportOptions {
        sources: tcp.files.iter().map(SourceSpec::to_string).collect(),
        sort,
        min_packets: tcp.min_packets.unwrap_or(sort.default_min_packets()),
        top: tcp.top,
        group_failures: tcp.failed == FailedChoice::Grouped,
        grouping,
        network_names: tcp.networks.as_deref().map(|path| network_names(tcp, path)).transpose()?,
        end_names: None,
    })
}

/// Names of hosts and services.
fn end_names(names: SharedNames) -> EndNames {
    Arc::new(move |address, port| names.lock().of_end(Some(address), port, "tcp"))
}

/// The names of the networks of a table.
fn network_names(tcp: &Tcp, path: &Path) -> Result<NetworkNames, Error> {
    if tcp.by != Some(GroupChoice::Network) {
        return Err(TcpError::NetworksWithoutNetwork.into());
    }
    let sources = Sources { networks: Some(path.into()), ..Sources::default() };
    let (tables, _) = Enrichment::load(&sources).map_err(Error::Enrichment)?;
    Ok(Arc::new(move |address| {
        let name = &tables.network(address)?.name;
        (!name.is_empty()).then(|| Arc::from(&**name))
    }))
}

/// Refuses conditions on what no connection has: they would select nothing, silently.
fn check_fields(tcp: &Tcp) -> Result<(), TcpError> {
    let fields = tcp.connections_where.iter().flat_map(Expression::fields);
    let is_known = |name: &&str| weir_fields::field(name).is_some_and(has_field);
    let unknown = fields.map(|field| (field, is_known(&field))).find(|(_, is_known)| !is_known);
    unknown.map_or(Ok(()), |(field, _)| Err(TcpError::UnknownField { field }))
}

/// Which packets are read.
fn selection(tcp: &Tcp) -> Result<PacketSelection, Error> {
    let (filter, decode) = settings::selection(&tcp.selection)?;
    Ok(PacketSelection { filter, times_ns: times_ns(tcp.from_ns, tcp.to_ns)?, decode })
}

/// Where reports go, with the options that name them.
fn targets(outputs: &[Output], stats: Option<&Path>) -> Vec<(String, Target)> {
    let paths = outputs.iter().map(|&(option, path, _)| (option, path)).chain(stats.map(|path| ("--stats", path)));
    paths.map(|(option, path)| (format!("{option} {}", path.display()), Target::of_path(path))).collect()
}

fn backend(tcp: &Tcp) -> Backend {
    match tcp.engine {
        None | Some(EngineChoice::Auto) => Backend::Auto,
        Some(EngineChoice::Cpu) => Backend::Cpu,
        Some(EngineChoice::Gpu) => Backend::Gpu,
    }
}

fn enter_sandbox(tcp: &Tcp, sources: &[SourceSpec]) {
    let plots: Vec<_> = tcp.svg.iter().map(|folder| Target::File(folder.join("plot"))).collect();
    let reads_again = tcp.explain.is_some() || tcp.html.is_some();
    let read_again: Vec<&Path> = sources.iter().filter(|_| reads_again).filter_map(SourceSpec::path).collect();
    Sandbox::enter(&plots, &[], &read_again, Restrictions::FilesAndCalls { accepts: false });
}

/// Why a key does not identify one connection, and the connections that it may mean.
fn connection_error(report: &CaptureReport, key: &str, error: LookupError) -> TcpError {
    /// Most connections to list.
    const LISTED: usize = 20;
    let mut candidates = String::new();
    if let LookupError::Ambiguous { matches } = &error {
        for &index in matches.iter().take(LISTED) {
            let connection = &report.connections[index];
            let (day, time) = Zone::current().date_and_time(connection.first_ns);
            let packets = units::count(connection.total_packets(), "packet");
            candidates += &format!("\n  '#{}'  {}  {day} {time}, {packets}", connection.number, connection.name());
        }
        if let more @ 1.. = matches.len().saturating_sub(LISTED) {
            candidates += &format!("\n  and {more} more");
        }
    }
    TcpError::Connection { key: key.into(), error, candidates }
}

/// How reading ended.
struct ReadResult {
    /// Input was damaged or not read to its end. Known only if problems are logged.
    has_problems: bool,
    /// A signal ended it.
    interrupted: bool,
}

/// Reads a source until its end or a signal. Logs problems if `log_problems`.
fn read_all(
    source: &mut dyn Source,
    reader: &mut PacketReader,
    consumer: &mut dyn PacketConsumer,
    stop: &AtomicBool,
    mut progress: Progress,
    log_problems: bool,
) -> ReadResult {
    let mut damage = DamageLog::default();
    for bursts in 1_u64.. {
        match reader.read_burst(source, consumer) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if log_problems => damage.log(&error),
            Err(_) => {}
        }
        if bursts % BURSTS_BETWEEN_CHECKS == 0 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.update(source.progress(), || reader.frames());
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let filter_errors = reader.filter_errors();
    if log_problems {
        input::log_filter_errors(&filter_errors);
        damage.log_end();
        if interrupted {
            input::log_interrupted();
        }
    }
    progress.clear();
    ReadResult { has_problems: damage.count() > 0 || interrupted || !filter_errors.is_empty(), interrupted }
}

/// What another reading of the sources needs.
struct SecondReading<'a> {
    sources: &'a [SourceSpec],
    selection: &'a PacketSelection,
    stop: &'a Arc<AtomicBool>,
}

impl SecondReading<'_> {
    /// Reads the sources again for the time lines of the page, if that is possible.
    fn read_time_lines(&self, report: &mut CaptureReport, interrupted: bool) -> RunStatus {
        if interrupted {
            report.time_lines = TimeLines::missing("There are none, because the input was not read to its end.");
        } else if self.sources.iter().any(input::is_pipe) {
            report.time_lines =
                TimeLines::missing("There are none: they need a second reading, and a pipe is read once.");
        } else if let Err(error) = report.read_time_lines(|consumer| self.read(consumer)) {
            error!(%error, "the page has no time lines: cannot read the capture again");
            report.time_lines = TimeLines::missing("There are none, because the capture could not be read again.");
            return RunStatus::Problems;
        }
        RunStatus::Success
    }

    /// Reads the sources once more.
    fn read(&self, consumer: &mut dyn PacketConsumer) -> Result<Pass, Error> {
        let mut source = input::open_sources(self.sources, self.selection.decode, self.stop)?;
        let mut reader = PacketReader::new(self.selection.clone());
        let interrupted =
            read_all(&mut source, &mut reader, consumer, self.stop, Progress::new(true), false).interrupted;
        Ok(Pass { frames: reader.frames(), interrupted })
    }

    /// Prints one connection segment by segment.
    fn explain(&self, report: &CaptureReport, key: &str) -> Result<RunStatus, Error> {
        let index = find_connection(&report.connections, key).map_err(|error| connection_error(report, key, error))?;
        let read = |consumer: &mut dyn PacketConsumer| self.read(consumer);
        let output = BufWriter::new(io::stdout().lock());
        match report.explain(index, self.sources.len(), read, console::terminal_columns(), output) {
            Ok(()) => return Ok(RunStatus::Success),
            Err(ExplainError::Source(error)) => return Err(error),
            Err(ExplainError::Output(error)) => console::log_output_error(&error),
            Err(error) => error!(%error, "--explain {key}"),
        }
        Ok(RunStatus::Problems)
    }
}

/// Logs the engine in use, and why it is not a GPU.
fn log_engine(tcp: &Tcp, report: &CaptureReport) {
    let counters = &report.engine_counters;
    // A machine without a GPU is mentioned on request only; a GPU that does not work, always.
    let on_request = tcp.reporting.verbose || tcp.engine.is_some();
    let no_driver = Fallback::Unavailable(DeviceError::NoDriver);
    if let Some(fallback) = counters.fallback.as_ref().filter(|&fallback| on_request || *fallback != no_driver) {
        info!("{fallback}");
    }
    if tcp.reporting.verbose {
        let segments = counters.entered.max(1) as f64;
        info!(
            engine = report.engine.to_string(),
            batches = counters.batches,
            threads = 1,
            memory = units::quantity(counters.memory_bytes, "B"),
            "analysis finished"
        );
        for (stage, time) in counters.times.stages().into_iter().filter(|(_, time)| !time.is_zero()) {
            info!(ns_per_segment = format!("{:.1}", time.as_nanos() as f64 / segments), "stage {stage}");
        }
    }
}

type Format = fn(&CaptureReport, &mut dyn Write) -> io::Result<()>;

/// A report besides the text report: option, path, format.
type Output<'a> = (&'static str, &'a Path, Format);

fn outputs(tcp: &Tcp) -> Vec<Output<'_>> {
    let all: [(_, _, Format); 4] = [
        ("--json", &tcp.json, CaptureReport::write_json),
        ("--csv", &tcp.csv, CaptureReport::write_csv),
        ("--arrow", &tcp.arrow, CaptureReport::write_arrow),
        ("--html", &tcp.html, CaptureReport::write_html),
    ];
    all.into_iter().filter_map(|(option, path, format)| Some((option, path.as_deref()?, format))).collect()
}

/// Opens the files of reports and of the ledger; `None` is standard output. Makes the directory of plots.
fn open_outputs(tcp: &Tcp, outputs: &[Output], stop: &AtomicBool) -> Result<(Vec<Option<File>>, Option<File>), Error> {
    let mode = tcp.output_files.mode();
    let open = |&(_, path, _): &Output| match Target::of_path(path) {
        Target::File(path) => files::open_report(&path, mode, stop).map(Some),
        _ => Ok(None),
    };
    let files = outputs.iter().map(open).collect::<Result<_, _>>()?;
    if let Some(directory) = &tcp.svg {
        make_plot_directory(directory, mode)?;
    }
    let open = || open_stats(tcp.reporting.stats.as_deref(), mode, None);
    Ok((files, files::wait_for_reader("--stats", stop, open)?))
}

/// Makes the directory of plots. In one that exists, `mode` may refuse the plots of an earlier run.
fn make_plot_directory(directory: &Path, mode: FileMode) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(|error| Error::file(directory, error))?;
    let mut plots =
        CaptureReport::PLOTS.map(|name| plot_path(directory, name)).into_iter().filter(|path| path.exists());
    plots.try_for_each(|path| files::open_report(&path, mode, &AtomicBool::new(false)).map(drop))
}

fn plot_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.svg"))
}

/// Writes a report to its file, compressed if the name ends so.
fn write_report(report: &CaptureReport, path: &Path, format: Format, file: File) -> io::Result<()> {
    /// Content of a frame of a compressed report, octets.
    const FRAME_OCTETS: usize = 1 << 20;
    let Some(compression) = Compression::of(&path.to_string_lossy()) else {
        let mut file = BufWriter::new(file);
        return format(report, &mut file).and_then(|()| file.flush());
    };
    let mut frames = BufWriter::with_capacity(FRAME_OCTETS, CompressedFile(file, compression));
    format(report, &mut frames)?;
    // A report without lines is an empty frame.
    if frames.get_ref().0.metadata()?.len() == 0 && frames.buffer().is_empty() {
        frames.get_mut().0.write_all(&compression.compress(&[]))?;
    }
    frames.flush()
}

fn write_outputs(
    report: &CaptureReport,
    outputs: &[Output],
    files: Vec<Option<File>>,
    plots: Option<(&Path, FileMode)>,
) -> RunStatus {
    let mut status = RunStatus::Success;
    let mut write_file = |result: Result<(), Error>| {
        if let Err(error) = result {
            error!(%error, "cannot write the report");
            status = RunStatus::Problems;
        }
    };
    let mut printed = RunStatus::Success;
    for (&(_, path, format), file) in outputs.iter().zip(files) {
        let Some(file) = file else {
            printed = print_with(|output| format(report, output));
            continue;
        };
        let written = files::truncate(file).and_then(|file| write_report(report, path, format, file));
        write_file(written.map_err(|error| Error::file(path, error)));
    }
    if let Some((directory, mode)) = plots {
        for (name, plot) in report.plots() {
            let path = plot_path(directory, name);
            write_file(files::write(&path, mode, &weir_plot::standalone(&plot)));
        }
    }
    status.and(printed)
}
