//! `weir synth`: synthetic traffic into a capture file.

use crate::arguments::Synth;
use crate::files::{self, Target};
use crate::{Outcome, Refusal, progress, say, units};
use std::io::{self, BufWriter, IsTerminal, Write};
use weir_capture::{PcapWriter, Source};

/// Bursts between looks at the clock.
const BURSTS_BETWEEN_LOOKS: u64 = 64;
/// LINKTYPE_ETHERNET: all that is made is Ethernet.
const ETHERNET_LINK: u16 = 1;
/// No frame is longer.
const SNAP_LENGTH: u32 = 65_535;

/// Writes the capture, and the true flows if asked.
pub fn run(synth: &Synth) -> Result<Outcome, Refusal> {
    let specification = synth.spec.strip_prefix("synth:").unwrap_or(&synth.spec);
    let mut source =
        weir_trafficgen::TrafficGenerator::new(specification).map_err(|error| Refusal(error.to_string()))?;
    if synth.truth.is_some() {
        source = source.with_expected_flows();
    }
    let output = Target::of_path(&synth.output);
    let mut targets = vec![(format!("-o {}", synth.output.display()), output.clone())];
    if let Some(path) = &synth.truth {
        targets.push((format!("--truth {}", path.display()), Target::of_path(path)));
    }
    files::check_targets(&[], &targets)?;
    let writer: Box<dyn Write> = match &output {
        Target::File(path) => Box::new(files::create(path)?),
        _ if io::stdout().is_terminal() => {
            return Err(Refusal("a capture is nothing for a terminal: name a file, or pipe it to a program".into()));
        }
        _ => Box::new(io::stdout()),
    };
    let truth: Option<Box<dyn Write>> = match &synth.truth {
        None => None,
        Some(path) => Some(match Target::of_path(path) {
            Target::File(path) => Box::new(BufWriter::new(files::create(&path)?)),
            _ => Box::new(BufWriter::new(io::stdout())),
        }),
    };

    let mut line = progress::Line::new(synth.quiet);
    let result = write_capture(&mut source, writer, &mut line);
    line.clear();
    let mut outcome = Outcome::Done;
    match result {
        Ok(packets) if !synth.quiet => {
            say(&format!("{} written to {}", units::count(packets, "packet"), synth.output.display()));
        }
        Ok(_) => {}
        Err(error) => outcome = failed(&synth.output, &error),
    }
    if let (Some(mut truth), Some(path)) = (truth, &synth.truth)
        && let Err(error) =
            weir_trafficgen::write_expected_flows(source.expected_flows(), source.expected_tcp(), &mut truth)
                .and_then(|()| truth.flush())
        && failed(path, &error) == Outcome::Flawed
    {
        outcome = Outcome::Flawed;
    }
    Ok(outcome)
}

/// Copies the source into the capture file; the number of packets.
fn write_capture(source: &mut dyn Source, writer: Box<dyn Write>, line: &mut progress::Line) -> io::Result<u64> {
    let mut writer = PcapWriter::new(writer, ETHERNET_LINK, SNAP_LENGTH)?;
    let mut packets = 0;
    for bursts in 1_u64.. {
        let Some(burst) = source.burst().map_err(|error| io::Error::other(error.to_string()))? else { break };
        for frame in &burst {
            writer.write(frame)?;
        }
        packets += burst.len() as u64;
        drop(burst);
        if bursts % BURSTS_BETWEEN_LOOKS == 0 {
            line.update(source.progress(), || packets);
        }
    }
    writer.finish()?;
    Ok(packets)
}

/// Tells of a file that could not be written to its end; a reader that had enough is no flaw.
fn failed(path: &std::path::Path, error: &io::Error) -> Outcome {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Outcome::Done;
    }
    say(&format!("{}: {error}{}; the file is not complete", path.display(), files::advice(error)));
    Outcome::Flawed
}
