//! `weir read`: sources through one pipeline into sinks, and what came of it.

use crate::arguments::{Full, KeyPart, Read};
use crate::files::{self, Target};
use crate::progress;
use crate::summary::{self, Observed, Totals};
use crate::{Outcome, Refusal, say, units};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_capture::Source;
use weir_flow::{KeyOptions, Policy};
use weir_ledger::Ledger;
use weir_probe::{Behind, Exporter, Pipeline, Settings};

/// Bursts between looks at the outside: the signal, the sinks, the clock.
pub(crate) const BURSTS_BETWEEN_LOOKS: u64 = 16;
/// Damaged places that are told one by one.
pub(crate) const DAMAGES_TOLD: u64 = 20;

/// Opens everything, meters, and tells.
pub fn run(read: &Read) -> Result<Outcome, Refusal> {
    let sources: Vec<&OsStr> = read.files.iter().chain(&read.inputs).map(|source| source.as_os_str()).collect();
    check_sources(&sources, "read")?;
    let outputs = Outputs::of(read);
    files::check_targets(&sources, &outputs.targets)?;
    let settings = settings(read);

    // Tried before any output is opened, which would empty files for nothing.
    <weir_flow::Meter>::try_new(settings.meter).map_err(|_| no_room(&settings.meter))?;
    let stop = stop_signal()?;
    let mut source = files::open_sources(&sources, &stop)?;
    let mut sinks = outputs.sinks.iter().map(|sink| files::open_sink(sink, read)).collect::<Result<Vec<_>, _>>()?;
    let stats = match &read.stats {
        Some(path) if *path != Path::new("-") => Some(files::create(path)?),
        _ => None,
    };
    let totals = Arc::new(Mutex::new(Totals::default()));
    let first = sinks.remove(0);
    sinks.insert(0, Box::new(Observed { sink: first, totals: totals.clone() }));

    let streams_to_terminal = outputs.on_standard_output.is_some() && !outputs.table_on_standard_output();
    let line = progress::Line::new(read.quiet || (streams_to_terminal && io::stdout().is_terminal()));
    let exporter = Exporter::new(sinks).map_err(|error| Refusal(format!("cannot start a thread: {error}")))?;
    let pipeline = Pipeline::new(settings, exporter.entrance(Behind::Wait));
    let pipeline = pipeline.map_err(|_| no_room(&settings.meter))?;
    let run = meter(&mut *source, pipeline, exporter, &stop, line);
    let mut flawed = run.flawed || summary::flawed(&run.ledger);
    let reader_left = run.readers_left == run.ledger.sinks.len();
    if run.abandoned && !reader_left {
        say("no output is left: the rest of the input was not read");
    }

    if !read.quiet && !reader_left {
        let text = summary::summary(&run.ledger, &totals.lock().unwrap_or_else(PoisonError::into_inner));
        let table = outputs.on_standard_output.as_ref().filter(|_| outputs.table_on_standard_output());
        if run.ledger.sinks.iter().any(|sink| Some(&sink.sink) == table && sink.lost.is_empty()) {
            let gap = if run.ledger.created > 0 { "\n" } else { "" };
            flawed |= crate::print(format!("{gap}{}", crate::harmless(&text)).as_bytes()) == Outcome::Flawed;
        } else {
            let _ = crate::tell(&text);
        }
    }
    if read.verbose || summary::flawed(&run.ledger) {
        let _ = crate::tell(&summary::ledger_in_words(&run.ledger));
    }
    if let Some(path) = &read.stats {
        flawed |= write_stats(&run.ledger, path, stats) == Outcome::Flawed;
    }
    Ok(if flawed { Outcome::Flawed } else { Outcome::Done })
}

/// Refuses sources that a command cannot read.
pub(crate) fn check_sources(sources: &[&OsStr], command: &str) -> Result<(), Refusal> {
    if sources.is_empty() {
        let help = format!("(weir {command} --help)");
        return Err(Refusal(format!("nothing to read: name a capture file, or - for standard input {help}")));
    }
    if sources.iter().filter(|&&source| source == "-").count() > 1 {
        return Err(Refusal("standard input (-) can be read only once".into()));
    }
    Ok(())
}

/// Why metering could not begin.
fn no_room(config: &weir_flow::Config) -> Refusal {
    let flows = config.flows;
    let octets = units::quantity(weir_flow::Meter::memory_for(config) as u64, "B");
    Refusal(format!(
        "--flows {flows}: a table of that size, with TCP analysis, may need up to {octets} of memory, which this machine does \
         not give: choose fewer"
    ))
}

/// What a run left behind.
struct Run {
    ledger: Ledger,
    /// Input was damaged or not read to its end, or a sink failed on the way.
    flawed: bool,
    /// It ended early because no sink was left.
    abandoned: bool,
    /// Sinks that ended because nobody reads them any more.
    readers_left: usize,
}

/// Lets the source run through the pipeline to its end, or until a signal, or until no sink is left.
fn meter(
    source: &mut dyn Source,
    mut pipeline: Pipeline,
    mut exporter: Exporter,
    stop: &AtomicBool,
    mut line: progress::Line,
) -> Run {
    let (mut damages, mut interrupted, mut abandoned) = (0, false, false);
    let (mut readers_left, mut failed_sinks) = (0, 0);
    let mut note = |errors: Vec<weir_export::Error>, line: &progress::Line| {
        for error in errors {
            if error.is_closed_pipe() {
                readers_left += 1;
            } else {
                failed_sinks += 1;
                line.say(&sink_trouble(&error));
            }
        }
    };
    for bursts in 1_u64.. {
        match pipeline.step(source) {
            Ok(true) => {}
            Ok(false) => break,
            // A pipe that ends because of the signal may end within a packet.
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                damages += 1;
                if damages <= DAMAGES_TOLD {
                    line.say(&error.to_string());
                }
            }
        }
        if bursts % BURSTS_BETWEEN_LOOKS == 0 {
            note(exporter.errors(), &line);
            abandoned = exporter.abandoned();
            interrupted = stop.load(Ordering::Relaxed);
            if abandoned || interrupted {
                break;
            }
            line.update(source.progress(), || pipeline.account().ledger.packets.received);
        }
    }
    interrupted |= stop.load(Ordering::Relaxed);
    if damages > 0 {
        line.say("what could be read was metered; if the file was cut while it was written or copied, copy it again");
    }
    if damages > DAMAGES_TOLD {
        line.say(&format!("{} more damaged places", damages - DAMAGES_TOLD));
    }
    if interrupted {
        line.say("interrupted: the rest of the input was not read");
    }
    // The table is written when the pipeline finishes.
    line.clear();
    let account = pipeline.finish();
    exporter.finish();
    note(exporter.errors(), &line);
    let ledger = exporter.ledger([account]);
    Run { ledger, flawed: damages > 0 || interrupted || failed_sinks > 0, abandoned, readers_left }
}

/// What to say of a sink that failed.
fn sink_trouble(error: &weir_export::Error) -> String {
    let what_to_do = match error {
        weir_export::Error::Io { error, .. } => files::advice(error),
        weir_export::Error::Spec { .. } => "",
    };
    format!("{error}{what_to_do}; what was not written is counted as lost")
}

/// The sinks, and what goes to standard output.
struct Outputs {
    sinks: Vec<String>,
    /// Everything that is written, as the user wrote it.
    targets: Vec<(String, Target)>,
    /// The sink on standard output.
    on_standard_output: Option<String>,
}

impl Outputs {
    fn of(read: &Read) -> Self {
        let ledger_on_standard_output = read.stats.as_deref() == Some(Path::new("-"));
        let sinks = match read.outputs.as_slice() {
            // The ledger takes the table's place; there is still a sink, so that it can balance.
            [] if ledger_on_standard_output => vec!["table:/dev/null".into()],
            [] => vec!["table:-".into()],
            sinks => sinks.to_vec(),
        };
        let mut targets: Vec<_> = sinks.iter().map(|sink| (format!("-o {sink}"), Target::of_sink(sink))).collect();
        if let Some(path) = &read.stats {
            targets.push((format!("--stats {}", path.display()), Target::of_path(path)));
        }
        let on_standard_output = sinks.iter().find(|sink| Target::of_sink(sink) == Target::Standard).cloned();
        Self { sinks, targets, on_standard_output }
    }

    fn table_on_standard_output(&self) -> bool {
        self.on_standard_output.as_ref().is_some_and(|sink| sink.starts_with("table:"))
    }
}

fn settings(read: &Read) -> Settings {
    let has = |part| read.key.contains(&part);
    let key = KeyOptions {
        vlan: has(KeyPart::Vlan),
        interface: has(KeyPart::Interface),
        tunnel: has(KeyPart::Tunnel),
        unidirectional: read.uniflow_key,
    };
    let policy = match read.full {
        Full::Overflow => Policy::Overflow,
        Full::EvictOldestIdle => Policy::EvictOldestIdle,
        Full::Drop => Policy::Drop,
    };
    let default = weir_flow::Config::default();
    let flows = read.flows.unwrap_or(default.flows);
    Settings {
        meter: weir_flow::Config { flows, idle_ns: read.idle, active_ns: read.active, key, policy, ..default },
        decode: weir_packet::Options { decapsulate: read.decap },
        layer2: read.layer2,
    }
}

/// Set by the first SIGINT or SIGTERM; the second one ends the program at once.
pub(crate) fn stop_signal() -> Result<Arc<AtomicBool>, Refusal> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Refusal(format!("cannot listen for signals: {error}")))?;
    }
    Ok(stop)
}

/// Writes the ledger as JSON to its file, or to standard output.
pub(crate) fn write_stats(ledger: &Ledger, path: &Path, file: Option<File>) -> Outcome {
    let mut json =
        serde_json::to_vec_pretty(&ledger.json()).expect("the ledger has string keys and plain numbers only");
    json.push(b'\n');
    let Some(mut file) = file else { return crate::print(&json) };
    match file.write_all(&json) {
        Ok(()) => Outcome::Done,
        Err(error) => {
            say(&format!("--stats {}: {error}{}", path.display(), files::advice(&error)));
            Outcome::Flawed
        }
    }
}
