//! `weir read … -o packets:FILE` and `weir synth … -o packets:FILE`: sources through the decoder into a
//! file of packet records (docs/packet-records.md).
//!
//! Every frame that matches the filter becomes a record of the file, also one that the decoder refuses,
//! so that metering the file gives the ledger of the source.

use crate::arguments::Read;
use crate::console::progress::Progress;
use crate::error::{Error, OutputError};
use crate::files::{self, Target};
use crate::input::{self, BURSTS_BETWEEN_CHECKS, DamageLog};
use crate::run_status::RunStatus;
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings;
use crate::signals::StopSignal;
use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use tracing::{error, info};
use weir_capture::{
    BODY_BYTES, DECODED_LINK_TYPE, Frame, Losses, MAX_BURST_FRAMES, PacketFilter, PacketsWriter, Source,
};
use weir_ledger::RefusalReason;
use weir_packet::{DecodeOptions, Packet, decode_with_mac_addresses, record};

const _: () = assert!(BODY_BYTES == record::RECORD_OCTETS && DECODED_LINK_TYPE == record::DECODED_LINK_TYPE);

/// The target of `-o packets:PATH`.
pub fn target(path: &Path) -> Result<Target, Error> {
    let target = Target::of_path(path);
    match target {
        _ if path.as_os_str().is_empty() => Err(OutputError::NoPacketsPath.into()),
        Target::StandardOutput if io::stdout().is_terminal() => Err(OutputError::CaptureToTerminal.into()),
        target => Ok(target),
    }
}

/// Writes the packets of the sources to a file of packet records, which is the only output.
pub fn run(read: &Read, path: &Path) -> Result<RunStatus, Error> {
    let output = format!("packets:{}", path.display());
    if read.sinks.anonymise.is_some() {
        return Err(OutputError::AnonymisedPackets("-o packets:FILE").into());
    }
    if let Some(option) = option_of_records(read) {
        return Err(OutputError::PacketsOutput { output, option }.into());
    }
    let sources = read.sources();
    input::check_sources(&sources, "read")?;
    input::check_loopback(&sources, read.force)?;
    input::check_packets(&sources, &read.metering.selection, false)?;
    let target = target(path)?;
    files::check_targets(&sources, &[(format!("-o {output}"), target.clone())])?;
    let (mut filter, decode) = settings::selection(&read.metering.selection)?;
    let stop_signal = StopSignal::register()?;
    let stop = stop_signal.flag();
    let mut source = input::open_sources(&sources, decode, &stop)?;
    let mode = read.output_files.mode();
    let file: Box<dyn Write> = match target {
        Target::File(path) => Box::new(files::open(&path, mode, &stop)?),
        _ => Box::new(io::stdout()),
    };
    if !read.hardening.no_sandbox {
        Sandbox::enter(&[], &[], &[], Restrictions::of(&sources, false, false));
    }
    stop_signal.start_thread();
    let mut progress = Progress::new(read.reporting.quiet);
    let (mut damage, mut interrupted) = (DamageLog::default(), false);
    let copied = PacketsOutput::new(file, decode).and_then(|mut output| {
        for bursts in 1_u64.. {
            match output.read_burst(&mut source, filter.as_mut()) {
                Ok(true) => output.write_burst(&source)?,
                Ok(false) => break,
                Err(error) => damage.log(&error),
            }
            if bursts % BURSTS_BETWEEN_CHECKS == 0 {
                progress.update(source.progress(), || output.writer.packets());
            }
            // A signal is the regular end of live traffic, and an interruption of everything else.
            if stop.load(Ordering::Relaxed) {
                let Some(live) = source.live() else {
                    interrupted = true;
                    break;
                };
                live.stop();
            }
        }
        // A signal that ended the source, such as a pipe that no one writes.
        interrupted |= source.live().is_none() && stop.load(Ordering::Relaxed);
        let losses = source.live().map_or(Losses::default(), |live| live.query_losses());
        let losses = losses.plus(source.recorded_losses());
        let filtered = output.filtered;
        Ok((output.finish(losses)?, filtered, losses.nic + losses.kernel + losses.queue))
    });
    progress.clear();
    damage.log_end();
    if interrupted {
        input::log_interrupted();
    }
    let filter_failed = input::log_filter_errors(&filter.map_or_else(Vec::new, |mut filter| filter.take_errors()));
    let status = RunStatus::from_problems(damage.count() > 0 || interrupted || filter_failed);
    Ok(match copied {
        Ok((packets, filtered, lost)) => {
            info!(packets, filtered, lost, file = path.display().to_string(), "file of packet records written");
            status.and(RunStatus::from_problems(lost > 0))
        }
        Err(error) => status.and(log_incomplete(path, error)),
    })
}

/// Logs that a file is incomplete. A closed pipe is not an error.
pub fn log_incomplete(path: &Path, error: io::Error) -> RunStatus {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return RunStatus::Success;
    }
    error!(error = %Error::file(path, error), "the file is incomplete");
    RunStatus::Problems
}

/// An option that is about records, which this output does not have.
fn option_of_records(read: &Read) -> Option<&'static str> {
    let sinks = &read.sinks;
    let given = [
        (sinks.outputs.len() > 1, "the other -o"),
        (read.rules.is_some(), "--rules"),
        (read.html.is_some(), "--html"),
        (read.reporting.stats.is_some(), "--stats"),
        (read.from_ns.is_some(), "--from"),
        (read.to_ns.is_some(), "--to"),
        (sinks.records.is_some(), "--where"),
        (sinks.fields.is_some(), "--fields"),
        (!sinks.by.is_empty(), "--by"),
        (sinks.every_ns.is_some(), "--every"),
        (read.metering.dpi.is_some(), "--dpi"),
        (!sinks.transactions.is_empty(), "--transactions"),
    ];
    given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
}

/// Copies generated traffic to a file of packet records. Returns the number of packets.
///
/// # Errors
/// The file cannot be written.
pub fn copy(source: &mut dyn Source, file: impl Write, progress: &mut Progress) -> io::Result<u64> {
    let mut output = PacketsOutput::new(file, DecodeOptions::default())?;
    for bursts in 1_u64.. {
        if !output.read_burst(source, None).map_err(|error| io::Error::other(error.to_string()))? {
            break;
        }
        output.write_burst(source)?;
        if bursts % BURSTS_BETWEEN_CHECKS == 0 {
            progress.update(source.progress(), || output.writer.packets());
        }
    }
    output.finish(Losses::default())
}

/// A file of packet records, and the burst that is written next.
struct PacketsOutput<W: Write> {
    writer: PacketsWriter<W>,
    decode: DecodeOptions,
    /// Frames without their bytes, and what was decoded; `None` for a link type that is not.
    burst: Vec<(Frame<'static>, Option<[u8; BODY_BYTES]>)>,
    /// Interfaces whose names are written, if they have any.
    named: HashSet<u32>,
    filtered: u64,
}

impl<W: Write> PacketsOutput<W> {
    fn new(output: W, decode: DecodeOptions) -> io::Result<Self> {
        let writer = PacketsWriter::new(output, decode.decapsulate)?;
        Ok(Self { writer, decode, burst: Vec::with_capacity(MAX_BURST_FRAMES), named: HashSet::new(), filtered: 0 })
    }

    /// Ends the file. Returns the number of packets.
    fn finish(self, losses: Losses) -> io::Result<u64> {
        let packets = self.writer.packets();
        self.writer.finish(losses)?;
        Ok(packets)
    }

    /// Reads and decodes a burst. Returns false at the end of the source.
    fn read_burst(
        &mut self,
        source: &mut dyn Source,
        mut filter: Option<&mut PacketFilter>,
    ) -> Result<bool, weir_capture::Error> {
        self.burst.clear();
        let Some(burst) = source.burst()? else { return Ok(false) };
        for frame in &burst {
            if filter.as_mut().is_some_and(|filter| !filter.matches(frame)) {
                self.filtered += 1;
                continue;
            }
            let mut packet = Packet::default();
            let Frame { link_type, bytes, wire_bytes, .. } = *frame;
            let decoded = decode_with_mac_addresses(link_type, bytes, wire_bytes, self.decode, &mut packet);
            let body = (decoded != Err(RefusalReason::LinkType)).then(|| record::write(decoded, &packet));
            self.burst.push((Frame { bytes: &[], ..*frame }, body));
        }
        Ok(true)
    }

    /// Writes the burst, and before it the names of its interfaces that are new.
    fn write_burst(&mut self, source: &dyn Source) -> io::Result<()> {
        for (frame, body) in &self.burst {
            if self.named.insert(frame.interface) {
                for (number, name) in source.interfaces() {
                    if number == frame.interface {
                        self.writer.write_name(number, &name)?;
                    }
                }
            }
            match body {
                Some(body) => self.writer.write(frame, body)?,
                None => self.writer.write_undecoded(frame)?,
            }
        }
        Ok(())
    }
}
