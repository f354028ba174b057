//! `weir bench`: measures the meter on this machine.

use crate::arguments::{Bench, BenchCommand, BenchLive};
use crate::console::print;
use crate::error::{Error, MachineError};
use crate::files;
use crate::run_status::RunStatus;
use crate::signals::StopSignal;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};
use tracing::{error, info};
use weir_bench::{LiveOptions, Options, TABLES};
use weir_export::FileMode;
use weir_text::zone::Zone;

pub fn run(bench: &Bench) -> Result<RunStatus, Error> {
    match &bench.command {
        Some(BenchCommand::Live(arguments)) => run_live(arguments),
        None => run_tables(bench),
    }
}

fn run_live(arguments: &BenchLive) -> Result<RunStatus, Error> {
    let options = LiveOptions {
        sources: arguments.sources.clone(),
        rounds: arguments.rounds.into(),
        seconds: arguments.seconds,
        frames: arguments.frames.clone(),
        soak: arguments.soak.map(|minutes| Duration::from_secs_f64(60.0 * minutes)),
        soak_rate_share: f64::from(arguments.at) / 100.0,
        interval: Duration::from_nanos(arguments.interval_ns),
        date: date(),
        stop: StopSignal::register()?.start_thread(),
    };
    let measure = |show: &mut dyn FnMut(&str)| weir_bench::live(&options, &mut log_line, show);
    let (report, status) =
        measure_and_write((arguments.json.as_deref(), arguments.output_files.mode()), measure, weir_bench::json)?;
    match report {
        Some(report) if !report.passed() => Err(MachineError::Soak.into()),
        _ => Ok(status),
    }
}

fn run_tables(bench: &Bench) -> Result<RunStatus, Error> {
    if bench.list {
        let lines = TABLES.iter().map(|(name, what, _)| format!("{name:9} {what}\n"));
        return Ok(print(lines.collect::<String>().as_bytes()));
    }
    let mut tables = bench.tables.clone();
    if tables.is_empty() && !bench.to.is_empty() {
        tables.push("encode".into());
    }
    let (rounds, sinks) = (bench.rounds.into(), bench.to.clone());
    let options = Options { tables, rounds, quick: bench.quick, sinks, date: date() };
    let measure = |show: &mut dyn FnMut(&str)| weir_bench::run(&TABLES, &options, &mut log_line, show);
    Ok(measure_and_write((bench.json.as_deref(), bench.output_files.mode()), measure, weir_bench::json)?.1)
}

/// Runs `measure`, prints its tables, and writes its report as JSON. The report is `None` if the
/// figures are invalid or the measurement was interrupted.
fn measure_and_write<R>(
    (json, mode): (Option<&Path>, FileMode),
    measure: impl FnOnce(&mut dyn FnMut(&str)) -> Result<R, weir_bench::Error>,
    to_json: fn(&R) -> String,
) -> Result<(Option<R>, RunStatus), Error> {
    let json_on_standard_output = json == Some(Path::new("-"));
    let file = match json.filter(|_| !json_on_standard_output) {
        // Before the measurement, which takes long.
        Some(path) => Some((path, files::open_report(path, mode, &AtomicBool::new(false))?)),
        None => None,
    };
    let mut status = RunStatus::Success;
    let mut show = |text: &str| {
        if !json_on_standard_output {
            status = status.and(print(text.as_bytes()));
        }
    };
    let report = match measure(&mut show) {
        Ok(report) => report,
        Err(error @ (weir_bench::Error::LostCount { .. } | weir_bench::Error::Interrupted)) => {
            error!(%error, "no result");
            return Ok((None, RunStatus::Problems));
        }
        Err(error) => return Err(MachineError::Bench(error).into()),
    };
    if json_on_standard_output {
        status = print((to_json(&report) + "\n").as_bytes());
    }
    if let Some((path, file)) = file {
        let written = files::truncate(file).and_then(|mut file| file.write_all(to_json(&report).as_bytes()));
        if let Err(error) = written {
            error!(error = %Error::file(path, error), "cannot write the report");
            status = RunStatus::Problems;
        }
    }
    Ok((Some(report), status))
}

fn log_line(line: &str) {
    info!("{line}");
}

fn date() -> String {
    let now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64);
    let (day, time) = Zone::UTC.date_and_time(now_ns);
    format!("{day} {} UTC", &time[..5])
}
