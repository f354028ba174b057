//! `weir read`: sources through one pipeline into sinks.

use crate::arguments::Read;
use crate::console::progress::Progress;
use crate::error::{Error, sink_advice};
use crate::files;
use crate::input::{self, BURSTS_BETWEEN_CHECKS, DamageLog};
use crate::outputs::{Outputs, ReportOptions};
use crate::run_status::RunStatus;
use crate::settings::{settings, start_error};
use crate::signals::stop_signal;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{error, warn};
use weir_capture::{Input, Source};
use weir_ledger::Ledger;
use weir_probe::{BackPressure, CpuAffinity, Exporter, Pipeline};

/// Opens sources and sinks, meters, and reports.
pub fn run(read: &Read) -> Result<RunStatus, Error> {
    let sources: Vec<&OsStr> = read.files.iter().chain(&read.inputs).map(|source| source.as_os_str()).collect();
    input::check_sources(&sources, "read")?;
    let outputs = Outputs::new(&read.sinks.outputs, read.stats.as_deref());
    files::check_targets(&sources, &outputs.targets)?;
    let settings = settings(&read.metering)?;
    let config = settings.meter;

    // Before any output is opened: opening empties files.
    <weir_flow::Meter>::try_new(config).map_err(|error| start_error(&config, error))?;
    let stop = stop_signal()?;
    let mut source = input::open_sources(&sources, &stop)?;
    let mut open = outputs.open(&read.sinks, &stop)?;
    let streams_to_terminal = outputs.on_standard_output.is_some() && !outputs.table_on_standard_output();
    let progress = Progress::new(read.quiet || (streams_to_terminal && io::stdout().is_terminal()));
    let exporter = Exporter::new(std::mem::take(&mut open.sinks), CpuAffinity::default(), BackPressure::Block)
        .map_err(Error::Thread)?;
    let pipeline = Pipeline::new(settings, exporter.handle()).map_err(|error| start_error(&config, error))?;
    let run = meter(&mut source, pipeline, exporter, &stop, progress);
    let all_readers_left = run.closed_sinks == run.ledger.sinks.len();
    if run.no_sink_left && !all_readers_left {
        error!("all outputs have failed: the rest of the input was not read");
    }

    let options = ReportOptions { quiet: read.quiet || all_readers_left, verbose: read.verbose };
    Ok(outputs.report(&run.ledger, open, &options, RunStatus::from_problems(run.has_problems)))
}

struct Run {
    ledger: Ledger,
    /// Input was damaged or not read to its end, or a sink failed.
    has_problems: bool,
    /// The run ended early because no sink was left.
    no_sink_left: bool,
    /// Sinks whose reader has closed the pipe.
    closed_sinks: usize,
}

/// Runs the source through the pipeline until its end, a signal, or until no sink is left.
fn meter(
    source: &mut Input<'_>,
    mut pipeline: Pipeline,
    mut exporter: Exporter,
    stop: &AtomicBool,
    mut progress: Progress,
) -> Run {
    let (mut damage, mut is_truncated, mut filter_failed) = (DamageLog::default(), false, false);
    let (mut interrupted, mut no_sink_left) = (false, false);
    let (mut closed_sinks, mut failed_sinks) = (0, 0);
    // A signal is the regular end of live traffic, and an interruption of everything else.
    let is_live = matches!(source, Input::Live(_));
    let is_interrupted = || !is_live && stop.load(Ordering::Relaxed);
    let mut log_sink_errors = |errors: Vec<weir_export::Error>| {
        for error in errors {
            if error.is_closed_pipe() {
                closed_sinks += 1;
            } else {
                failed_sinks += 1;
                log_sink_failure(&error);
            }
        }
    };
    for bursts in 1_u64.. {
        if let Input::Live(live) = source
            && stop.load(Ordering::Relaxed)
        {
            live.stop();
        }
        match pipeline.process_burst(source) {
            Ok(true) => {}
            Ok(false) => break,
            // After a signal, a pipe may end within a packet.
            Err(_) if is_interrupted() => {}
            Err(error) => {
                is_truncated |= !matches!(error, weir_capture::Error::Live { .. });
                damage.log(&error);
            }
        }
        if bursts % BURSTS_BETWEEN_CHECKS == 0 {
            log_sink_errors(exporter.take_errors());
            filter_failed |= input::log_filter_errors(&pipeline.take_filter_errors());
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
    if is_truncated {
        warn!(
            "all readable packets were metered; if the file was truncated while being written or copied, copy it again"
        );
    }
    damage.log_suppressed();
    if interrupted {
        warn!("interrupted: the rest of the input was not read");
    }
    // The table is written when the pipeline finishes.
    progress.clear();
    let account = pipeline.finish();
    exporter.finish();
    log_sink_errors(exporter.take_errors());
    let ledger = exporter.ledger([account]);
    let has_problems = damage.count() > 0 || interrupted || filter_failed || failed_sinks > 0;
    Run { ledger, has_problems, no_sink_left, closed_sinks }
}

/// Logs that a sink has failed.
pub fn log_sink_failure(error: &weir_export::Error) {
    error!(error = format_args!("{error}{}", sink_advice(error)), "sink failed, unwritten records are counted as lost");
}
