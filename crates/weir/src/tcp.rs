//! `weir tcp`: reads captures through [`weir_tcp_report`], and writes the report.

use crate::arguments::{EngineChoice, Tcp};
use crate::files::{self, Target};
use crate::read::{BURSTS_BETWEEN_LOOKS, DAMAGES_TOLD};
use crate::{Outcome, Refusal, outputs, progress, read, say, summary, units};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_capture::{PacketFilter, Source};
use weir_tcp_batch::{Backend, DeviceError, Engine, EngineOptions, Fallback};
use weir_tcp_report::{
    Analysis, CaptureReport, ExplainError, Limits, LookupError, MemoryError, PacketConsumer, PacketReader, Pass,
    ReportOptions, find_connection, free_bytes,
};

/// Reads, analyses, and writes the report.
pub fn run(tcp: &Tcp) -> Result<Outcome, Refusal> {
    let sources: Vec<&OsStr> = tcp.files.iter().map(|source| source.as_os_str()).collect();
    read::check_sources(&sources, "tcp")?;
    if let Some(key) = &tcp.explain
        && let Some(pipe) = sources.iter().find(|source| files::is_pipe(source))
    {
        let pipe = pipe.display();
        return Err(Refusal(format!(
            "--explain {key} reads the capture more than once, which {pipe} cannot be: save it to a file"
        )));
    }
    let outputs = Outputs::of(tcp);
    files::check_targets(&sources, &outputs.targets())?;
    let backend = match tcp.engine {
        None | Some(EngineChoice::Auto) => Backend::Auto,
        Some(EngineChoice::Cpu) => Backend::Cpu,
        Some(EngineChoice::Gpu) => Backend::Gpu,
    };
    let decode = weir_packet::DecodeOptions { decapsulate: tcp.decap };
    let filter = outputs::filter(tcp.filter.as_deref())?;
    let stop = read::stop_signal()?;
    let mut source = files::open_sources(&sources, &stop)?;
    // After the files are open, because they take address space.
    let limits = Limits::new(free_bytes(), tcp.connections).map_err(not_enough_memory)?;
    let engine = Engine::open(EngineOptions {
        backend,
        batch_size: limits.batch_size,
        max_anomalies: limits.anomalies,
        ..EngineOptions::default()
    })
    .map_err(|error| Refusal(format!("--engine gpu: {error}; `--engine auto` continues without a GPU")))?;
    let mut outputs = outputs.open()?;

    let mut analysis = Analysis::new(engine, limits.connections, tcp.compare);
    let mut reader = PacketReader::new(filter.clone(), decode);
    let line = progress::Line::new(tcp.quiet);
    let input = read_all(&mut source, &mut reader, &mut analysis, &stop, line, true);
    let options = ReportOptions {
        sources: sources.iter().map(|source| source.to_string_lossy().into_owned()).collect(),
        sort: tcp.sort,
        min_packets: tcp.min_packets,
        top: tcp.top,
    };
    let report = analysis.finish(reader.into_counts(), options);
    say_engine(tcp, &report);
    let ledger = &report.counts.ledger;
    let mut flawed = input.flawed || summary::flawed(ledger);
    if let Some(warning) = report.incomplete() {
        say(&warning);
    }
    if let Some(key) = &tcp.explain {
        if input.interrupted {
            say(&format!("--explain {key}: nothing is explained, because the input was not read to its end"));
            flawed = true;
        } else {
            let index = find_connection(&report.connections, key).map_err(|error| not_found(&report, key, &error))?;
            flawed |= explain(&report, index, key, &sources, &filter, decode, &stop)? == Outcome::Flawed;
        }
    } else {
        flawed |= outputs.write(&report) == Outcome::Flawed;
        let text_is_wanted = !tcp.quiet && !outputs.on_standard_output;
        if text_is_wanted {
            let printed = crate::print_by(|out| report.write_text(files::terminal_columns(), out));
            flawed |= printed == Outcome::Flawed;
        }
    }
    if tcp.verbose || summary::flawed(ledger) {
        let _ = crate::tell(&summary::ledger_in_words(ledger));
    }
    if let Some((path, file)) = outputs.stats.take() {
        flawed |= outputs::write_stats(ledger, &path, file) == Outcome::Flawed;
    }
    Ok(if flawed { Outcome::Flawed } else { Outcome::Done })
}

/// How reading ended.
struct Input {
    /// Input was damaged or not read to its end.
    flawed: bool,
    /// A signal ended it.
    interrupted: bool,
}

/// Reads a source to its end, or until a signal.
fn read_all(
    source: &mut dyn Source,
    reader: &mut PacketReader,
    consumer: &mut dyn PacketConsumer,
    stop: &AtomicBool,
    mut line: progress::Line,
    report_errors: bool,
) -> Input {
    let mut damages = 0;
    for bursts in 1_u64.. {
        match reader.read_burst(source, consumer) {
            Ok(true) => {}
            Ok(false) => break,
            // A pipe that ends because of the signal may end within a packet.
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                damages += 1;
                if report_errors && damages <= DAMAGES_TOLD {
                    line.say(&error.to_string());
                }
            }
        }
        if bursts % BURSTS_BETWEEN_LOOKS == 0 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            line.update(source.progress(), || reader.frames());
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let filter_errors = reader.filter_errors();
    if report_errors {
        filter_errors.iter().for_each(|error| line.say(&error.to_string()));
        if damages > DAMAGES_TOLD {
            line.say(&format!("{} more damaged places", damages - DAMAGES_TOLD));
        }
        if interrupted {
            line.say("interrupted: the rest of the input was not read");
        }
    }
    line.clear();
    Input { flawed: damages > 0 || interrupted || !filter_errors.is_empty(), interrupted }
}

/// Writes one connection segment by segment.
fn explain(
    report: &CaptureReport,
    index: usize,
    key: &str,
    sources: &[&OsStr],
    filter: &Option<PacketFilter>,
    decode: weir_packet::DecodeOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Refusal> {
    let read = |consumer: &mut dyn PacketConsumer| {
        let mut source = files::open_sources(sources, stop)?;
        let mut reader = PacketReader::new(filter.clone(), decode);
        let interrupted =
            read_all(&mut source, &mut reader, consumer, stop, progress::Line::new(true), false).interrupted;
        Ok(Pass { frames: reader.frames(), interrupted })
    };
    let out = BufWriter::new(io::stdout().lock());
    match report.explain(index, sources.len(), read, out) {
        Ok(()) => return Ok(Outcome::Done),
        Err(ExplainError::Source(refusal)) => return Err(refusal),
        Err(ExplainError::Output(error)) => say(&not_written("standard output", &error)),
        Err(error) => say(&format!("--explain {key}: {error}")),
    }
    Ok(Outcome::Flawed)
}

/// Logs where the engine ran, and why not on a GPU.
fn say_engine(tcp: &Tcp, report: &CaptureReport) {
    // That there is no GPU is logged on request only; that a GPU does not work is always logged.
    let asked = tcp.verbose || tcp.engine.is_some();
    let no_driver = Fallback::Unavailable(DeviceError::NoDriver);
    let fallback = report.engine_counters.fallback.as_ref().filter(|&fallback| asked || *fallback != no_driver);
    if let Some(fallback) = fallback.filter(|_| !tcp.quiet) {
        say(&fallback.to_string());
    }
    if tcp.verbose {
        say(&format!("analysed on: {}; batches: {}", report.engine, report.engine_counters.batches));
    }
}

fn not_enough_memory(error: MemoryError) -> Refusal {
    Refusal(match error {
        MemoryError::TooManyConnections { .. } => {
            format!("--connections: {error}; choose fewer, split the capture, or filter fewer hosts or ports")
        }
        MemoryError::TooLittle { .. } => error.to_string(),
    })
}

/// Why a key does not mean one connection, and which ones it can mean.
fn not_found(report: &CaptureReport, key: &str, error: &LookupError) -> Refusal {
    /// Connections that are listed.
    const LISTED: usize = 20;
    let mut text = format!("--explain {key}: {error}");
    match error {
        LookupError::NotFound => text += "; weir tcp FILE --top 0 lists all",
        LookupError::Ambiguous { matches } => {
            text += "; choose one by its number:";
            for &index in matches.iter().take(LISTED) {
                let connection = &report.connections[index];
                let (day, time) = units::utc(connection.first_ns);
                let packets = units::count(connection.total_packets(), "packet");
                text += &format!("\n  '#{}'  {}  {day} {time}, {packets}", index + 1, connection.name());
            }
            if let more @ 1.. = matches.len().saturating_sub(LISTED) {
                text += &format!("\n  and {more} more");
            }
        }
        _ => {}
    }
    Refusal(text)
}

/// Writes a report in one format.
type Format = fn(&CaptureReport, &mut dyn Write) -> io::Result<()>;

/// The outputs other than the text.
struct Outputs<'a> {
    /// Option, path and format of each output.
    wanted: Vec<(&'static str, &'a Path, Format)>,
    /// Their files; `None` is standard output.
    files: Vec<Option<File>>,
    /// Directory for the plots.
    plots: Option<&'a Path>,
    /// Path and file of the ledger.
    stats: Option<(std::path::PathBuf, Option<File>)>,
    stats_path: Option<&'a Path>,
    on_standard_output: bool,
}

impl<'a> Outputs<'a> {
    fn of(tcp: &'a Tcp) -> Self {
        let all: [(_, _, Format); 3] = [
            ("--json", &tcp.json, CaptureReport::write_json),
            ("--csv", &tcp.csv, CaptureReport::write_csv),
            ("--html", &tcp.html, CaptureReport::write_html),
        ];
        let wanted: Vec<_> =
            all.into_iter().filter_map(|(option, path, format)| Some((option, path.as_deref()?, format))).collect();
        let (stats_path, standard) = (tcp.stats.as_deref(), Some(Path::new("-")));
        let on_standard_output = stats_path == standard || wanted.iter().any(|&(_, path, _)| Some(path) == standard);
        Self { wanted, files: Vec::new(), plots: tcp.svg.as_deref(), stats: None, stats_path, on_standard_output }
    }

    fn targets(&self) -> Vec<(String, Target)> {
        let all = self.wanted.iter().map(|&(option, path, _)| (option, path));
        let all = all.chain(self.stats_path.map(|path| ("--stats", path)));
        all.map(|(option, path)| (format!("{option} {}", path.display()), Target::of_path(path))).collect()
    }

    /// Opens all of them. The files keep their content until they are written.
    fn open(mut self) -> Result<Self, Refusal> {
        let open = |path: &Path| match Target::of_path(path) {
            Target::File(path) => files::open_for_later(&path).map(Some),
            _ => Ok(None),
        };
        self.files = self.wanted.iter().map(|(_, path, _)| open(path)).collect::<Result<_, _>>()?;
        if let Some(folder) = self.plots {
            fs::create_dir_all(folder).map_err(|error| Refusal(not_written(&folder.display().to_string(), &error)))?;
        }
        if let Some(path) = self.stats_path {
            self.stats = Some((
                path.into(),
                open(path)?
                    .map(truncate)
                    .transpose()
                    .map_err(|error| Refusal(not_written(&path.display().to_string(), &error)))?,
            ));
        }
        Ok(self)
    }

    fn write(&mut self, report: &CaptureReport) -> Outcome {
        let mut outcome = Outcome::Done;
        let mut written = |path: &Path, result: io::Result<()>| {
            if let Err(error) = result {
                say(&not_written(&path.display().to_string(), &error));
                outcome = Outcome::Flawed;
            }
        };
        let mut printed = Outcome::Done;
        for (&(_, path, format), file) in self.wanted.iter().zip(self.files.drain(..)) {
            match file {
                Some(file) => written(
                    path,
                    truncate(file)
                        .map(BufWriter::new)
                        .and_then(|mut file| format(report, &mut file).and_then(|()| file.flush())),
                ),
                None => printed = crate::print_by(|out| format(report, out)),
            }
        }
        if let Some(folder) = self.plots {
            for (name, plot) in report.plots() {
                let path = folder.join(format!("{name}.svg"));
                written(&path, fs::write(&path, weir_plot::standalone(&plot)));
            }
        }
        if printed == Outcome::Flawed { printed } else { outcome }
    }
}

/// Empties a file. A pipe has no length.
fn truncate(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

fn not_written(name: &str, error: &io::Error) -> String {
    format!("{name}: {error}{}", files::advice(error))
}
