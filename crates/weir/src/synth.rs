//! `weir synth`: writes generated traffic to a capture file.

use crate::arguments::Synth;
use crate::console::progress::Progress;
use crate::error::{Error, OutputError};
use crate::files::{self, Target};
use crate::packet_records;
use crate::run_status::RunStatus;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::AtomicBool;
use tracing::info;
use weir_capture::{PcapWriter, Source};
use weir_export::UnusedFile;

/// Bursts between two updates of the progress line.
const BURSTS_BETWEEN_UPDATES: u64 = 64;
const LINKTYPE_ETHERNET: u16 = 1;
const SNAP_LENGTH: u32 = 65_535;

pub fn run(synth: &Synth) -> Result<RunStatus, Error> {
    let spec = synth.spec.strip_prefix("synth:").unwrap_or(&synth.spec);
    let mut source = weir_trafficgen::TrafficGenerator::new(spec)?;
    if synth.truth.is_some() {
        source = source.with_expected_flows();
    }
    let packets_file = weir_capture::packets_path(synth.output.as_os_str());
    let output = packets_file.map_or_else(|| Ok(Target::of_path(&synth.output)), packet_records::target)?;
    let mut targets = vec![(format!("-o {}", synth.output.display()), output.clone())];
    if let Some(path) = &synth.truth {
        targets.push((format!("--truth {}", path.display()), Target::of_path(path)));
    }
    files::check_targets(&[], &targets)?;
    if output == Target::StandardOutput && io::stdout().is_terminal() {
        return Err(OutputError::CaptureToTerminal.into());
    }
    let mode = synth.output_files.mode();
    let mut unused = Vec::new();
    let mut open = |target| -> Result<Box<dyn Write>, Error> {
        match target {
            Target::File(path) => Ok(Box::new(files::open_unused(&path, mode, &AtomicBool::new(false), &mut unused)?)),
            _ => Ok(Box::new(io::stdout())),
        }
    };
    let writer = open(output)?;
    let truth = synth.truth.as_deref().map(|path| open(Target::of_path(path))).transpose()?.map(BufWriter::new);
    unused.into_iter().for_each(UnusedFile::keep);

    let mut progress = Progress::new(synth.quiet);
    let (path, kind) = packets_file.map_or((&*synth.output, "capture"), |path| (path, "file of packet records"));
    let result = match packets_file {
        None => write_capture(&mut source, writer, &mut progress),
        Some(_) => packet_records::copy(&mut source, writer, &mut progress),
    };
    progress.clear();
    let mut status = RunStatus::Success;
    match result {
        Ok(packets) => info!(packets, file = path.display().to_string(), "{kind} written"),
        Err(error) => status = packet_records::log_incomplete(path, error),
    }
    if let (Some(mut truth), Some(path)) = (truth, &synth.truth)
        && let Err(error) = weir_trafficgen::write_expected_flows(
            source.expected_flows(),
            source.expected_tcp(),
            source.expected_applications(),
            &mut truth,
        )
        .and_then(|()| truth.flush())
    {
        status = status.and(packet_records::log_incomplete(path, error));
    }
    Ok(status)
}

/// Copies the source to the capture file. Returns the number of packets.
fn write_capture(source: &mut dyn Source, writer: Box<dyn Write>, progress: &mut Progress) -> io::Result<u64> {
    let mut writer = PcapWriter::new(writer, LINKTYPE_ETHERNET, SNAP_LENGTH)?;
    let mut packets = 0;
    for bursts in 1_u64.. {
        let Some(burst) = source.burst().map_err(|error| io::Error::other(error.to_string()))? else { break };
        for frame in &burst {
            writer.write(frame)?;
        }
        packets += burst.len() as u64;
        drop(burst);
        if bursts % BURSTS_BETWEEN_UPDATES == 0 {
            progress.update(source.progress(), || packets);
        }
    }
    writer.finish()?;
    Ok(packets)
}
