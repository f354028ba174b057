//! `--explain`: the capture is read again, for one connection.
//!
//! In: the findings of the first pass, and the same sources. Out: the connection segment by segment. Always true: no
//! pass takes packets that the first one had not, and what saw different packets is not compared.

use super::Findings;
use super::between::Search;
use super::connection::Connection;
use super::explain::{CHANGED, Explanation, Verdict};
use super::input::{self, First, Intake, Taker, not_written};
use super::key;
use crate::{Outcome, Refusal, files, progress, say};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_tcp::Degradation;

/// Writes the segments of the connection that a key means, as the first pass numbered them.
pub fn explain(
    findings: &Findings,
    key: &str,
    sources: &[&OsStr],
    settings: &input::Settings,
    stop: &Arc<AtomicBool>,
    out: impl Write,
) -> Result<Outcome, Refusal> {
    if findings.intake.interrupted {
        say(&format!("--explain {key}: nothing is explained, as not all was read"));
        return Ok(Outcome::Flawed);
    }
    let at = key::find(&findings.connections, key).map_err(Refusal)?;
    let connection = &findings.connections[at];
    let frames = findings.intake.ledger.packets.received;
    let read = |taker: &mut dyn Taker| -> Result<Intake, Refusal> {
        let mut source = files::open_sources(sources, stop)?;
        let line = progress::Line::new(true);
        Ok(input::read(&mut source, settings.clone(), stop, line, false, &mut First { frames, taker }))
    };
    let is_alone = findings.connections.iter().filter(|other| other.ends() == connection.ends()).count() == 1;
    let mut number = 0;
    if !is_alone {
        let mut search = Search::new(connection);
        let interrupted = read(&mut search)?.interrupted;
        let why = match search.finish() {
            Some(found) => {
                number = found;
                None
            }
            _ if interrupted => Some("interrupted".into()),
            _ => Some(format!("it was not found again: {}", short_of_room(connection).unwrap_or(CHANGED))),
        };
        if let Some(why) = why {
            say(&format!("--explain {key}: nothing is explained: {why}"));
            return Ok(Outcome::Flawed);
        }
    }
    let mut explanation = Explanation::new(connection, at + 1, number, out);
    let again = read(&mut explanation)?;
    let frames_again = again.ledger.packets.received;
    // What one file has gained lies behind all that was read; what one of several has may lie between.
    let changed = frames_again < frames || frames_again > frames && sources.len() > 1;
    let (verdict, failed) = if again.interrupted {
        (Verdict::NotCompared, explanation.interrupt())
    } else {
        explanation.finish(if changed { Some(CHANGED) } else { short_of_room(connection) })
    };
    match failed {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&not_written("standard output", &error));
            return Ok(Outcome::Flawed);
        }
        _ => {}
    }
    if again.interrupted {
        say("interrupted: the connection was not explained to its end");
    } else if changed || verdict == Verdict::OtherPackets {
        say(&format!("--explain {key}: {CHANGED}"));
    } else if verdict == Verdict::Differs {
        say("the engine and the reference do not agree about this connection; please report this");
    } else {
        return Ok(Outcome::Done);
    }
    Ok(Outcome::Flawed)
}

/// Why the engine's word on a connection may differ, if it had no memory for all of it.
fn short_of_room(connection: &Connection) -> Option<&'static str> {
    let marked = connection.reports().iter().any(|report| report.degradation.has(Degradation::POOL_FULL));
    marked.then_some("it had no memory left for what is out of the ordinary in this connection (marked room)")
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use std::fs;
    use std::path::Path;
    use weir_capture::{PcapWriter, Source};
    use weir_tcp_batch::{Backend, Engine, EngineOptions};

    /// Connections in trouble, as a capture of the first packets of those that a seed makes.
    fn capture(path: &Path, [seed, packets]: [usize; 2]) {
        let specification = format!("lossy,flows=3,packets=2k,loss=5%,duplicate=3%,seed={seed}");
        let mut synth = weir_trafficgen::synth(&specification).unwrap();
        let mut writer = PcapWriter::new(fs::File::create(path).unwrap(), 1, 262_144).unwrap();
        let mut number = 0;
        while let Some(burst) = synth.burst().unwrap() {
            for frame in &burst {
                if number < packets {
                    writer.write(frame).unwrap();
                }
                number += 1;
            }
        }
        writer.finish().unwrap();
    }

    /// What is said of the largest connection of a capture that becomes another one between the passes.
    fn explained(first: [usize; 2], later: [usize; 2], in_trouble: usize) -> (Outcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capture.pcap");
        let arguments = ["weir".as_ref(), "tcp".as_ref(), path.as_os_str(), "--sort=packets".as_ref(), "-q".as_ref()];
        let Some(Command::Tcp(tcp)) = Arguments::try_parse_from(arguments).unwrap().command else { panic!() };
        let stop = Arc::default();
        capture(&path, first);
        let sources = [path.as_os_str()];
        let source = files::open_sources(&sources, &stop).unwrap();
        let engine = Engine::open(EngineOptions {
            backend: Backend::Cpu,
            max_anomalies: in_trouble,
            ..EngineOptions::default()
        })
        .unwrap();
        let settings = input::Settings { filter: None, decode: weir_packet::DecodeOptions { decapsulate: false } };
        let findings = find(&tcp, &sources, source, settings.clone(), engine, 1000, &stop);
        capture(&path, later);
        let mut out = Vec::new();
        let outcome = explain(&findings, "#1", &sources, &settings, &stop, &mut out).unwrap();
        (outcome, String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_capture_that_grew_is_read_no_further_than_before() {
        let (outcome, as_it_was) = explained([9, 1500], [9, 1500], 1000);
        assert!(outcome == Outcome::Done && as_it_was.ends_with("\nthe engine says the same\n"), "{as_it_was}");
        assert_eq!(explained([9, 1500], [9, 2000], 1000), (Outcome::Done, as_it_was));
    }

    #[test]
    fn a_capture_that_changed_is_not_compared() {
        for later in [[9, 1400], [8, 1500]] {
            let (outcome, text) = explained([9, 1500], later, 1000);
            assert_eq!(outcome, Outcome::Flawed);
            let last = text.lines().last().unwrap();
            assert!(last.starts_with("not compared") && last.ends_with(CHANGED), "{text}");
        }
    }

    #[test]
    fn a_connection_for_which_there_was_no_room_is_not_compared() {
        let (outcome, text) = explained([9, 1500], [9, 1500], 0);
        assert_eq!(outcome, Outcome::Done);
        assert!(text.ends_with("no memory left for what is out of the ordinary in this connection (marked room)\n"));
    }
}
