//! `weir read`: sources through one pipeline into sinks, and what came of it.

use crate::arguments::Read;
use crate::files;
use crate::outputs::{Ending, Outputs, settings};
use crate::progress;
use crate::summary;
use crate::{Outcome, Refusal, say, units};
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_capture::{FilterError, Input, Source};
use weir_ledger::Ledger;
use weir_probe::{BackPressure, CpuAffinity, Exporter, Pipeline};

/// Bursts between looks at the outside: the signal, the sinks, the clock.
pub(crate) const BURSTS_BETWEEN_LOOKS: u64 = 16;
/// Damaged places that are told one by one.
pub(crate) const DAMAGES_TOLD: u64 = 20;

/// Opens everything, meters, and tells.
pub fn run(read: &Read) -> Result<Outcome, Refusal> {
    let sources: Vec<&OsStr> = read.files.iter().chain(&read.inputs).map(|source| source.as_os_str()).collect();
    check_sources(&sources, "read")?;
    let outputs = Outputs::of(&read.sinks.outputs, read.stats.as_deref());
    files::check_targets(&sources, &outputs.targets)?;
    let settings = settings(&read.metering)?;

    // Tried before any output is opened, which would empty files for nothing.
    <weir_flow::Meter>::try_new(settings.meter).map_err(|_| no_room(&settings.meter))?;
    let stop = stop_signal()?;
    let mut source = files::open_sources(&sources, &stop)?;
    let mut opened = outputs.open(&read.sinks, &stop)?;
    let streams_to_terminal = outputs.on_standard_output.is_some() && !outputs.table_on_standard_output();
    let line = progress::Line::new(read.quiet || (streams_to_terminal && io::stdout().is_terminal()));
    let exporter = Exporter::new(opened.take_sinks(), CpuAffinity::default(), BackPressure::Block)
        .map_err(|error| Refusal(format!("cannot start a thread: {error}")))?;
    let config = settings.meter;
    let pipeline = Pipeline::new(settings, exporter.handle());
    let pipeline = pipeline.map_err(|_| no_room(&config))?;
    // To be told to stop is the end of live traffic, not an interruption of it.
    let interruption = if files::live(&sources).is_some() { Arc::default() } else { stop };
    let run = meter(&mut source, pipeline, exporter, &interruption, line);
    let mut flawed = run.flawed || summary::flawed(&run.ledger);
    let reader_left = run.readers_left == run.ledger.sinks.len();
    if run.abandoned && !reader_left {
        say("no output is left: the rest of the input was not read");
    }

    let ending = Ending { quiet: read.quiet || reader_left, verbose: read.verbose };
    flawed |= outputs.tell(&run.ledger, opened, &ending) == Outcome::Flawed;
    Ok(if flawed { Outcome::Flawed } else { Outcome::Done })
}

/// Refuses sources that a command cannot read.
pub(crate) fn check_sources(sources: &[&OsStr], command: &str) -> Result<(), Refusal> {
    if let Some(live) = files::live(sources).filter(|_| command == "tcp") {
        let how = "record some of it first, with tcpdump -w, or meter it with weir read";
        return Err(Refusal(format!("{live}: weir tcp reads captures, not live traffic; {how}")));
    }
    if sources.is_empty() {
        let help = format!("(weir {command} --help)");
        let what = if command == "probe" { "a source: -i af_packet:eth0, a capture" } else { "a capture file" };
        return Err(Refusal(format!("nothing to read: name {what}, or - for standard input {help}")));
    }
    if sources.iter().filter(|&&source| source == "-").count() > 1 {
        return Err(Refusal("standard input (-) can be read only once".into()));
    }
    Ok(())
}

/// Why metering could not begin.
pub(crate) fn no_room(config: &weir_flow::Config) -> Refusal {
    let flows = config.flows;
    let octets = units::quantity(weir_flow::Meter::memory_bytes_for(config) as u64, "B");
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
    source: &mut Input<'_>,
    mut pipeline: Pipeline,
    mut exporter: Exporter,
    stop: &AtomicBool,
    mut line: progress::Line,
) -> Run {
    let (mut damages, mut cut, mut unfiltered) = (0, false, false);
    let (mut interrupted, mut abandoned) = (false, false);
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
        match pipeline.process_burst(source) {
            Ok(true) => {}
            Ok(false) => break,
            // A pipe that ends because of the signal may end within a packet.
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                damages += 1;
                cut |= !matches!(error, weir_capture::Error::Live { .. });
                if damages <= DAMAGES_TOLD {
                    line.say(&error.to_string());
                }
            }
        }
        if bursts % BURSTS_BETWEEN_LOOKS == 0 {
            note(exporter.take_errors(), &line);
            unfiltered |= tell(pipeline.take_filter_errors(), &line);
            abandoned = exporter.all_sinks_failed();
            interrupted = stop.load(Ordering::Relaxed);
            if abandoned || interrupted {
                break;
            }
            line.update(source.progress(), || pipeline.account().ledger.packets.received);
        }
    }
    interrupted |= stop.load(Ordering::Relaxed);
    unfiltered |= tell(pipeline.take_filter_errors(), &line);
    if cut {
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
    note(exporter.take_errors(), &line);
    let ledger = exporter.ledger([account]);
    Run { ledger, flawed: damages > 0 || interrupted || unfiltered || failed_sinks > 0, abandoned, readers_left }
}

/// Tells of link types for which the filter means nothing, and whether there were any.
fn tell(errors: Vec<FilterError>, line: &progress::Line) -> bool {
    errors.iter().for_each(|error| line.say(&error.to_string()));
    !errors.is_empty()
}

/// What to say of a sink that failed.
pub(crate) fn sink_trouble(error: &weir_export::Error) -> String {
    let what_to_do = match error {
        weir_export::Error::Io { error, .. } => files::advice(error),
        weir_export::Error::Spec { .. } => "",
    };
    format!("{error}{what_to_do}; what was not written is counted as lost")
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
