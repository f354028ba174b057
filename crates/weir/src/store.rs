//! `weir store`: what a store has, and its upkeep without a probe.

use crate::arguments::Store;
use crate::console::{self, print_styled, style};
use crate::error::{Error, StoreError};
use crate::run_status::RunStatus;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{info, warn};
use weir_store::{Compacted, Content, Folder, StoredFile, compact_hour, count_rows, verify};
use weir_text::columns::{Column, fit, lines};
use weir_text::units;

/// What is none of the store is named up to this number.
const MAX_NAMED: usize = 10;

pub fn run(store: &Store) -> Result<RunStatus, Error> {
    let folder = Folder::new(&store.folder, None);
    let mut status = RunStatus::Success;
    if store.compact || store.keep.is_some() {
        // A folder that does not exist must not become a store.
        content(store, &folder)?;
        let _lock = folder.lock().map_err(StoreError::from)?;
        status = status.and(look_after(store, &folder)?);
    }
    folder.check_content().map_err(StoreError::from)?;
    let content = content(store, &folder)?;
    name_others(&content.strange, "this is none of the store, so it is left out");
    name_others(&content.foreign, "this is of another program, its records are left out");
    for (path, error) in &content.unreadable {
        warn!(path = %path.display(), %error, "this folder cannot be read, its records are left out");
    }
    let (days, damaged) = days(&content, store.verify);
    let damaged = damaged || !content.unreadable.is_empty() || !content.foreign.is_empty();
    status = status.and(RunStatus::from_problems(damaged));
    if store.quiet {
        return Ok(status);
    }
    if days.is_empty() {
        return Ok(status.and(console::print(b"no flows\n")));
    }
    Ok(status.and(print_styled(&table(&days), style::table)))
}

/// Names what is none of the store.
fn name_others(others: &[PathBuf], what: &str) {
    for path in others.iter().take(MAX_NAMED) {
        warn!(path = %path.display(), "{what}");
    }
    if let more @ 1.. = others.len().saturating_sub(MAX_NAMED) {
        warn!(more, "there are others that are none of the store");
    }
}

fn content(store: &Store, folder: &Folder) -> Result<Content, Error> {
    let path = store.folder.display().to_string();
    Ok(folder.content().map_err(|error| StoreError::Folder { path, error })?)
}

/// Removes what is too old or too much, and sorts hours.
fn look_after(store: &Store, folder: &Folder) -> Result<RunStatus, Error> {
    let name = store.folder.display().to_string();
    let mut failed = false;
    if let Some(keep) = &store.keep {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        failed |= keep.apply(&name, folder, &content(store, folder)?, now_ns).failed > 0;
    }
    let content = content(store, folder)?;
    let hours = content.files.chunk_by(|a, b| a.hour == b.hour).filter(|_| store.compact);
    for files in hours {
        let hour = files[0].hour;
        let path = hour.path();
        match compact_hour(folder, hour, files, &Default::default(), &AtomicBool::new(false)) {
            Ok(Compacted::Nothing) => {}
            Ok(Compacted::Into { files: after, octets, damaged }) => {
                info!(hour = %path.display(), files = files.len(), into = after, octets, "sorted an hour of the store");
                for file in damaged {
                    failed = true;
                    warn!(file = %file.display(), "this file is damaged, it stays unsorted");
                }
            }
            Err(error) => {
                failed = true;
                warn!(hour = %path.display(), %error, "cannot sort an hour of the store, it stays as it is");
            }
        }
    }
    Ok(RunStatus::from_problems(failed))
}

/// The files of a day.
#[derive(Default)]
struct Day {
    name: String,
    hours: u64,
    files: u64,
    sorted: u64,
    rows: u64,
    octets: u64,
}

/// The days, and whether a file is damaged.
fn days(content: &Content, reads_all: bool) -> (Vec<Day>, bool) {
    let (mut days, mut damaged) = (Vec::<Day>::new(), false);
    let mut last_hour = None;
    for StoredFile { hour, path, octets, is_sorted } in &content.files {
        let name = hour.date();
        if days.last().is_none_or(|day| day.name != name) {
            days.push(Day { name, ..Day::default() });
        }
        let Some(day) = days.last_mut() else { continue };
        day.hours += u64::from(last_hour.replace(*hour) != Some(*hour));
        day.files += 1;
        day.sorted += u64::from(*is_sorted);
        day.octets += octets;
        match if reads_all { verify(path) } else { count_rows(path) } {
            Ok(rows) => day.rows += rows,
            Err(error) => {
                damaged = true;
                warn!(file = %path.display(), %error, "this file is damaged, its records are left out");
            }
        }
    }
    (days, damaged)
}

fn table(days: &[Day]) -> String {
    let total = Day {
        name: "all".into(),
        hours: days.iter().map(|day| day.hours).sum(),
        files: days.iter().map(|day| day.files).sum(),
        sorted: days.iter().map(|day| day.sorted).sum(),
        rows: days.iter().map(|day| day.rows).sum(),
        octets: days.iter().map(|day| day.octets).sum(),
    };
    let rows = || days.iter().chain((days.len() > 1).then_some(&total));
    let number = |heading, cell: fn(&Day) -> String| Column::new(heading, true, rows().map(cell));
    let mut columns = vec![
        Column::new("day (UTC)", false, rows().map(|day| day.name.clone())),
        number("hours", |day| day.hours.to_string()),
        number("files", |day| day.files.to_string()),
        number("sorted", |day| day.sorted.to_string()),
        number("records", |day| day.rows.to_string()),
        number("size", |day| units::quantity(day.octets, "B")),
        number("B/record", |day| format!("{:.1}", day.octets as f64 / day.rows.max(1) as f64)).optional(1),
    ];
    let width = console::terminal_columns();
    let left_out = fit(&mut columns, width);
    lines(&columns, columns.len(), width) + &left_out
}
