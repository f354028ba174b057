//! `weir bench`: the meter measured on this machine.

use crate::arguments::{Bench, BenchCommand, BenchLive};
use crate::{Outcome, Refusal, print, say, units};
use crate::{files, read};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};
use weir_bench::{Error, LiveOptions, LiveReport, Options, Report, TABLES};

/// Where captures lie in a copy of the repository.
const CAPTURES: &str = "testdata/captures";

/// Measures, and writes what came out.
pub fn run(bench: &Bench) -> Result<Outcome, Refusal> {
    match &bench.command {
        Some(BenchCommand::Live(arguments)) => live(arguments),
        None => tables(bench),
    }
}

/// Measures live sources.
fn live(arguments: &BenchLive) -> Result<Outcome, Refusal> {
    let options = LiveOptions {
        sources: arguments.sources.clone(),
        rounds: arguments.rounds.into(),
        seconds: arguments.seconds,
        frames: arguments.frames.clone(),
        soak: arguments.soak.map(|minutes| Duration::from_secs_f64(60.0 * minutes)),
        soak_rate_share: f64::from(arguments.at) / 100.0,
        interval: Duration::from_nanos(arguments.interval),
        date: date(),
        stop: read::stop_signal()?,
    };
    let measure = |show: &mut dyn FnMut(&str)| weir_bench::live(&options, &mut say, show);
    let (report, outcome) = tell(arguments.json.as_deref(), measure, LiveReport::json)?;
    let Some(report) = report else { return Ok(outcome) };
    if report.passed() { Ok(outcome) } else { Err(Refusal("the long run lost packets, or its memory grew".into())) }
}

/// Measures tables.
fn tables(bench: &Bench) -> Result<Outcome, Refusal> {
    if bench.list {
        let lines = TABLES.iter().map(|(name, what, _)| format!("{name:9} {what}\n"));
        return Ok(print(lines.collect::<String>().as_bytes()));
    }
    if let Some(folder) = &bench.svg {
        // Not after half an hour.
        let trial = folder.join(".weir-bench");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&trial, ""))
            .and_then(|()| fs::remove_file(&trial))
            .map_err(|error| Refusal(format!("{}: {error}{}", folder.display(), files::advice(&error))))?;
    }
    if let Some(folder) = bench.captures.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(Refusal(format!("{}: no folder of captures", folder.display())));
    }
    let captures = Path::new(CAPTURES);
    let options = Options {
        tables: bench.tables.clone(),
        rounds: bench.rounds.into(),
        quick: bench.quick,
        captures: bench.captures.clone().or_else(|| captures.is_dir().then(|| captures.to_owned())),
        date: date(),
    };
    let measure = |show: &mut dyn FnMut(&str)| weir_bench::run(&options, &mut say, show);
    let (report, mut outcome) = tell(bench.json.as_deref(), measure, Report::json)?;
    let Some(report) = report else { return Ok(outcome) };
    if let Some(folder) = &bench.svg
        && let Err(error) = weir_bench::write_plots(&report, folder)
    {
        say(&format!("{}: {error}{}", folder.display(), files::advice(&error)));
        outcome = Outcome::Flawed;
    }
    Ok(outcome)
}

/// Measures, tells as it goes, and writes the report: `None` of one that counts packets as lost, or was interrupted.
fn tell<R>(
    json: Option<&Path>,
    measure: impl FnOnce(&mut dyn FnMut(&str)) -> Result<R, Error>,
    as_json: fn(&R) -> String,
) -> Result<(Option<R>, Outcome), Refusal> {
    let file = open_json(json)?;
    let (to_output, mut outcome) = (is_output(json), Outcome::Done);
    let mut show = |text: &str| {
        if !to_output && matches!(print(text.as_bytes()), Outcome::Flawed) {
            outcome = Outcome::Flawed;
        }
    };
    let report = match measure(&mut show) {
        Ok(report) => report,
        Err(error @ (Error::LostCount { .. } | Error::Interrupted)) => {
            say(&error.to_string());
            return Ok((None, Outcome::Flawed));
        }
        Err(error) => return Err(Refusal(error.to_string())),
    };
    if to_output {
        outcome = print((as_json(&report) + "\n").as_bytes());
    }
    if !write_json(file, &as_json(&report)) {
        outcome = Outcome::Flawed;
    }
    Ok((Some(report), outcome))
}

/// Today, and what time it is.
fn date() -> String {
    let now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64);
    let (day, time) = units::utc(now_ns);
    format!("{day} {} UTC", &time[..5])
}

fn is_output(json: Option<&Path>) -> bool {
    json == Some(Path::new("-"))
}

/// Opens the file for a report before anything is measured, if it goes to one.
fn open_json(path: Option<&Path>) -> Result<Option<(&Path, File)>, Refusal> {
    path.filter(|path| !is_output(Some(path))).map(|path| Ok((path, files::open_for_later(path)?))).transpose()
}

/// Writes it. Whether that went well; if not, it was said.
fn write_json(json: Option<(&Path, File)>, text: &str) -> bool {
    let Some((path, mut file)) = json else { return true };
    // A pipe has no length.
    let emptied = if path.is_file() { file.set_len(0) } else { Ok(()) };
    match emptied.and_then(|()| file.write_all(text.as_bytes())) {
        Ok(()) => true,
        Err(error) => {
            say(&format!("{}: {error}{}", path.display(), files::advice(&error)));
            false
        }
    }
}
