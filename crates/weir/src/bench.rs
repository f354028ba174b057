//! `weir bench`: the meter measured on this machine.

use crate::arguments::Bench;
use crate::files;
use crate::{Outcome, Refusal, print, say, units};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;
use weir_bench::{Error, Options, TABLES};

/// Where captures lie in a copy of the repository.
const CAPTURES: &str = "testdata/captures";

/// Measures, and writes what came out.
pub fn run(bench: &Bench) -> Result<Outcome, Refusal> {
    if bench.list {
        let lines = TABLES.iter().map(|(name, what, _)| format!("{name:9} {what}\n"));
        return Ok(print(lines.collect::<String>().as_bytes()));
    }
    let json = match &bench.json {
        Some(path) if path != Path::new("-") => Some((path, files::open_for_later(path)?)),
        _ => None,
    };
    if let Some(folder) = &bench.svg {
        // Not after half an hour.
        let trial = folder.join(".weir-bench");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&trial, ""))
            .and_then(|()| fs::remove_file(&trial))
            .map_err(|error| Refusal(format!("{}: {error}{}", folder.display(), files::advice(&error))))?;
    }
    let now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64);
    let (day, time) = units::utc(now_ns);
    if let Some(folder) = bench.captures.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(Refusal(format!("{}: no folder of captures", folder.display())));
    }
    let captures = Path::new(CAPTURES);
    let options = Options {
        tables: bench.tables.clone(),
        rounds: bench.rounds.into(),
        quick: bench.quick,
        captures: bench.captures.clone().or_else(|| captures.is_dir().then(|| captures.to_owned())),
        date: format!("{day} {} UTC", &time[..5]),
    };
    let to_output = bench.json.as_deref() == Some(Path::new("-"));
    let mut outcome = Outcome::Done;
    let mut show = |text: &str| {
        if !to_output && matches!(print(text.as_bytes()), Outcome::Flawed) {
            outcome = Outcome::Flawed;
        }
    };
    let report = match weir_bench::run(&options, &mut say, &mut show) {
        Ok(report) => report,
        Err(error @ Error::LostCount { .. }) => {
            say(&error.to_string());
            return Ok(Outcome::Flawed);
        }
        Err(error) => return Err(Refusal(error.to_string())),
    };
    if to_output {
        outcome = print((report.json() + "\n").as_bytes());
    }
    let mut written = |path: &Path, result: std::io::Result<()>| {
        if let Err(error) = result {
            say(&format!("{}: {error}{}", path.display(), files::advice(&error)));
            outcome = Outcome::Flawed;
        }
    };
    if let Some((path, mut file)) = json {
        // A pipe has no length.
        let emptied = if path.is_file() { file.set_len(0) } else { Ok(()) };
        written(path, emptied.and_then(|()| file.write_all(report.json().as_bytes())));
    }
    if let Some(folder) = &bench.svg {
        written(folder, weir_bench::write_plots(&report, folder).map(|_| ()));
    }
    Ok(outcome)
}
