//! `weir packets`: finds the packets of flows in recorded folders and captures.

use crate::arguments::Packets;
use crate::console::progress::Progress;
use crate::error::{Error, InputError, OutputError, SourceError};
use crate::files::{self, CompressedFile, Target};
use crate::input::{self, BURSTS_BETWEEN_CHECKS, DamageLog};
use crate::memory::{MemoryUse, ViewMemory};
use crate::outputs::write_json;
use crate::run_status::RunStatus;
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings::start_error;
use crate::signals::StopSignal;
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{error, info, warn};
use weir_capture::{Burst, Content, Source, SourceSpec};
use weir_dpi::InspectionSettings;
use weir_export::{Compression, FileMode, UnusedFile};
use weir_flow::Config;
use weir_ledger::PacketTotals;
use weir_probe::BackPressure;
use weir_recorder::{FrameSelector, Opener, PacketFile, RecordSearch, Search, SelectedRecords};
use weir_text::units;

pub fn run(packets: &Packets) -> Result<RunStatus, Error> {
    let sources = inputs(&packets.files);
    input::check_sources(&sources, "packets")?;
    if packets.from_ns.zip(packets.to_ns).is_some_and(|(from, to)| from > to) {
        return Err(InputError::FromAfterTo.into());
    }
    let output = output_target(packets, &sources)?;
    let query = packets.query();
    let stop_signal = StopSignal::register()?;
    let stop = stop_signal.flag();
    let unreadable = |error| Error::Sources(vec![SourceError::Capture(error)]);
    let search = Search::plan(&packets.files, query.clone()).map_err(unreadable)?;
    // A capture that cannot be read at all is an error of usage, of which the search would be told late.
    let check = |path: &&PathBuf| !path.is_dir() && !input::is_pipe_at(path);
    packets.files.iter().filter(check).try_for_each(|path| weir_capture::open(path).map(drop)).map_err(unreadable)?;
    let records = query.needs_records().then(|| record_search(packets, &search)).transpose()?;
    let (writer, stats) = open_outputs(packets, output, &stop)?;
    if !packets.hardening.no_sandbox {
        enter_sandbox(&packets.files);
    }
    stop_signal.start_thread();
    for (path, notice) in &search.notices {
        warn!(file = path.display().to_string(), "{notice}");
    }

    let mut status = RunStatus::Success;
    let (passes, mut selected) = (1 + usize::from(records.is_some()), SelectedRecords::default());
    if let Some(mut records) = records {
        let metered = read_all(&search, &stop, packets.quiet, true, |step| {
            if let Step::Frames(burst) = step {
                records.add(burst);
            }
            Ok(())
        });
        status = metered.map_or(RunStatus::Problems, |status| status);
        selected = records.finish();
    }
    warn_of_overflow(selected.overflow_records);
    let found_records = selected.records;
    let mut selector = FrameSelector::new(&query, selected);
    let (mut written, mut frames) = (PacketTotals::default(), 0_u64);
    let mut file = writer.map_err(|error| Error::file(&packets.output, error))?;
    // Nothing is known of flows that the first pass has not read to their end.
    let is_known = passes == 1 || !stop.load(Ordering::Relaxed);
    // What is damaged was logged by the first pass.
    let mut copy = |step: Step<'_>| {
        let burst = match step {
            Step::Frames(burst) => burst,
            Step::Source(source) => return file.flush(|| source.interfaces()),
        };
        for frame in burst {
            frames += 1;
            if selector.selects(frame) {
                file.add(frame)?;
                written.add(frame.bytes.len());
            }
        }
        Ok(())
    };
    let result = if is_known { read_all(&search, &stop, packets.quiet, passes == 1, &mut copy) } else { Ok(status) };
    let result = result.and_then(|read| file.finish().map(|()| read));
    status = status.and(result.unwrap_or_else(|error| log_incomplete(&packets.output, error)));
    let totals = Totals { passes, frames, records: found_records, written };
    log_totals(packets, &search, &totals);
    if let Some(path) = &packets.stats {
        let json = serde_json::to_vec_pretty(&totals.json(&search)).expect("numbers with constant names");
        status = status.and(write_json(json, path, stats, "cannot write the totals"));
    }
    Ok(status)
}

/// The target of the output, which is no input and not shared.
fn output_target(packets: &Packets, sources: &[SourceSpec]) -> Result<Target, Error> {
    let output = Target::of_path(&packets.output);
    let mut targets = vec![(format!("-o {}", packets.output.display()), output.clone())];
    if let Some(path) = &packets.stats {
        targets.push((format!("--stats {}", path.display()), Target::of_path(path)));
    }
    files::check_targets(sources, &targets)?;
    if output == Target::StandardOutput && io::stdout().is_terminal() {
        return Err(OutputError::CaptureToTerminal.into());
    }
    Ok(output)
}

fn enter_sandbox(files: &[PathBuf]) {
    // Something in each folder: the sandbox permits the folders of files.
    let of_folder = |path: &PathBuf| if path.is_dir() { path.join("file") } else { path.clone() };
    let read_again: Vec<PathBuf> = files.iter().map(of_folder).collect();
    let read_again: Vec<&Path> = read_again.iter().map(PathBuf::as_path).collect();
    Sandbox::enter(&[], &[], &read_again, Restrictions::FilesAndCalls { accepts: false });
}

fn warn_of_overflow(records: u64) {
    if records > 0 {
        warn!(
            records,
            "records that match sum up several flows, because the flow cache was full; their packets are not found"
        );
    }
}

/// Logs why the output is incomplete, unless its reader has enough.
fn log_incomplete(output: &Path, error: io::Error) -> RunStatus {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return RunStatus::Success;
    }
    let is_of_pcap = error.kind() == io::ErrorKind::InvalidInput;
    let advice = if is_of_pcap { "; name the output .pcapng, which has room for it" } else { "" };
    error!(error = format_args!("{}{advice}", Error::file(output, error)), "the file is incomplete");
    RunStatus::Problems
}

/// What was read and found.
struct Totals {
    passes: usize,
    frames: u64,
    /// Records that match.
    records: u64,
    written: PacketTotals,
}

impl Totals {
    fn json(&self, search: &Search) -> serde_json::Value {
        json!({
            "files": search.files,
            "indexed_files": search.indexed_files,
            "octets": search.octets,
            "octets_read": search.octets_read(),
            "passes": self.passes,
            "packets_read": self.frames,
            "records": if self.passes > 1 { json!(self.records) } else { json!(null) },
            "packets": self.written.packets,
            "packet_octets": self.written.octets,
        })
    }
}

fn log_totals(packets: &Packets, search: &Search, Totals { passes, frames, written, .. }: &Totals) {
    let quantity = |octets| units::quantity(octets, "B");
    info!(
        files = search.files,
        indexed = search.indexed_files,
        passes,
        "read {} of {} ({})",
        quantity(search.octets_read() / *passes as u64),
        quantity(search.octets),
        units::quantity(*frames, "packets")
    );
    let target = packets.output.display().to_string();
    if written.packets == 0 {
        info!(file = target, "no packet was found");
    } else {
        info!(packets = written.packets, octets = written.octets, file = target, "packets written");
    }
}

/// All files that may be read, so that none is overwritten.
fn inputs(paths: &[PathBuf]) -> Vec<SourceSpec> {
    let in_folder = |path: &PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = paths.iter().filter(|path| path.is_dir()).flat_map(in_folder);
    paths.iter().cloned().chain(files).map(SourceSpec::Capture).collect()
}

fn record_search(packets: &Packets, search: &Search) -> Result<RecordSearch, Error> {
    if let Some(pipe) = search.pipe() {
        return Err(Error::PacketsOfPipe(pipe.display().to_string()));
    }
    let mut config = Config { inspection: Some(InspectionSettings::default()), ..Config::default() };
    let (sinks, back_pressure, views) = (0, BackPressure::Block, ViewMemory::default());
    let memory = MemoryUse {
        meters: 1,
        reads_captures: true,
        reading_threads: 0,
        sinks,
        back_pressure,
        views,
        enrichment_bytes: 0,
    };
    memory.fit(&mut config, false)?;
    RecordSearch::new(&packets.query(), config).map_err(|error| start_error(&config, false, error))
}

/// The capture file and that of the totals. If one is refused, none is left empty.
fn open_outputs(
    packets: &Packets,
    output: Target,
    stop: &AtomicBool,
) -> Result<(io::Result<PacketFile>, Option<File>), Error> {
    let (mode, mut unused) = (packets.output_files.mode(), Vec::new());
    // A capture begins with a header, so it comes last.
    let stats_file = packets.stats.as_deref().filter(|path| *path != Path::new("-"));
    let mut open_stats = |path| files::open_unused(path, files::keeping_content(mode), stop, &mut unused);
    let stats = stats_file.map(&mut open_stats).transpose()?;
    let writer = open_output(&packets.output, output, mode, stop, &mut unused)?;
    unused.into_iter().for_each(UnusedFile::keep);
    Ok((writer, stats))
}

fn open_output(
    path: &Path,
    target: Target,
    mode: FileMode,
    stop: &AtomicBool,
    unused: &mut Vec<UnusedFile>,
) -> Result<io::Result<PacketFile>, Error> {
    /// Content of a frame of a compressed file, octets.
    const FRAME_OCTETS: usize = 1 << 20;
    let name = path.to_string_lossy();
    let compression = Compression::of(&name);
    let output: Box<dyn Write> = match (target, compression) {
        (Target::File(path), None) => Box::new(files::open_unused(&path, mode, stop, unused)?),
        (Target::File(path), Some(compression)) => {
            let file = CompressedFile(files::open_unused(&path, mode, stop, unused)?, compression);
            Box::new(BufWriter::with_capacity(FRAME_OCTETS, file))
        }
        _ => Box::new(io::stdout()),
    };
    let plain = compression.map_or(&*name, |_| name.rsplit_once('.').map_or(&*name, |(plain, _)| plain));
    Ok(if plain.ends_with(".pcap") { Ok(PacketFile::pcap(output)) } else { PacketFile::pcapng(output) })
}

/// What [`read_all`] hands over.
enum Step<'a> {
    Frames(&'a Burst<'a>),
    /// The source after the frames, which now has the names of their interfaces.
    Source(&'a dyn Source),
}

/// Reads all that the search names, until its end or a signal. Damage is logged if `log_problems`.
///
/// # Errors
/// That of `handle`.
fn read_all(
    search: &Search,
    stop: &Arc<AtomicBool>,
    quiet: bool,
    log_problems: bool,
    mut handle: impl FnMut(Step<'_>) -> io::Result<()>,
) -> io::Result<RunStatus> {
    let stop_of_pipes = stop.clone();
    let open: Opener = Arc::new(move |path| input::open_capture(path, Content::Capture, &stop_of_pipes));
    let (mut source, mut progress) = (search.source(&open), Progress::new(quiet));
    let (mut damage, mut packets, mut result) = (DamageLog::default(), 0, Ok(()));
    for bursts in 1_u64.. {
        match source.burst() {
            Ok(Some(burst)) => {
                packets += burst.len() as u64;
                result = handle(Step::Frames(&burst));
            }
            Ok(None) => break,
            Err(error) if log_problems => damage.log(&error),
            Err(_) => {}
        }
        result = result.and_then(|()| handle(Step::Source(&*source)));
        if result.is_err() {
            break;
        }
        if bursts % BURSTS_BETWEEN_CHECKS == 0 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.update(source.progress(), || packets);
        }
    }
    progress.clear();
    result?;
    let interrupted = stop.load(Ordering::Relaxed);
    if log_problems {
        damage.log_end();
    }
    if interrupted {
        input::log_interrupted();
    }
    Ok(RunStatus::from_problems(damage.count() > 0 || interrupted))
}
