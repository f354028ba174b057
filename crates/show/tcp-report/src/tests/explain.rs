//! `CaptureReport::explain` on captures that change between the passes.

use std::fs;
use std::path::Path;
use weir_capture::{PcapWriter, Source};
use weir_tcp_batch::{Backend, Engine, EngineOptions};
use weir_tcp_report::{
    Analysis, ExplainError, PacketConsumer, PacketCounts, PacketReader, PacketSelection, Pass, ReportOptions, SortOrder,
};

/// Writes the first packets of synthetic lossy connections.
fn capture(path: &Path, [seed, packets]: [usize; 2]) {
    let specification = format!("lossy,flows=3,packets=2k,loss=5%,duplicate=3%,seed={seed}");
    let mut generator = weir_trafficgen::TrafficGenerator::new(&specification).unwrap();
    let mut writer = PcapWriter::new(fs::File::create(path).unwrap(), 1, 262_144).unwrap();
    let mut number = 0;
    while let Some(burst) = generator.burst().unwrap() {
        for frame in &burst {
            if number < packets {
                writer.write(frame).unwrap();
            }
            number += 1;
        }
    }
    writer.finish().unwrap();
}

fn read(path: &Path, consumer: &mut dyn PacketConsumer) -> PacketCounts {
    let mut source = weir_capture::open(path).unwrap();
    let mut reader = PacketReader::new(PacketSelection {
        filter: None,
        times_ns: None,
        decode: weir_packet::DecodeOptions { decapsulate: false },
    });
    while reader.read_burst(&mut *source, consumer).unwrap() {}
    reader.into_counts()
}

/// Explains the largest connection of a capture that is replaced by a later one after the first
/// pass.
fn explained(first: [usize; 2], later: [usize; 2], max_anomalies: usize) -> (Result<(), ExplainError<()>>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    capture(&path, first);
    let engine =
        Engine::open(EngineOptions { backend: Backend::Cpu, max_anomalies, ..EngineOptions::default() }).unwrap();
    let mut analysis = Analysis::new(engine, 1000, false);
    let counts = read(&path, &mut analysis);
    let options = ReportOptions {
        sources: Vec::new(),
        sort: SortOrder::named("packets").unwrap(),
        min_packets: 1,
        top: 0,
        group_failures: true,
        grouping: None,
        network_names: None,
        end_names: None,
    };
    let report = analysis.finish(counts, options, None);
    capture(&path, later);
    let mut out = Vec::new();
    let pass = |consumer: &mut dyn PacketConsumer| {
        Ok(Pass { frames: read(&path, consumer).ledger.packets.received, interrupted: false })
    };
    let result = report.explain(0, 1, pass, None, &mut out);
    (result, String::from_utf8(out).unwrap())
}

#[test]
fn a_capture_that_grew_is_read_no_further_than_before() {
    let (result, before) = explained([9, 1500], [9, 1500], 1000);
    assert!(result.is_ok() && before.ends_with("\nthe batch engine reports the same\n"), "{before}");
    let (result, after) = explained([9, 1500], [9, 2000], 1000);
    assert!(result.is_ok() && before == after, "{after}");
}

#[test]
fn a_capture_that_changed_is_not_compared() {
    for later in [[9, 1400], [8, 1500]] {
        let (result, text) = explained([9, 1500], later, 1000);
        assert!(matches!(result, Err(ExplainError::CaptureChanged)), "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("not compared") && last.ends_with("changed while it was read"), "{text}");
    }
}

#[test]
fn a_connection_beyond_the_memory_limit_is_not_compared() {
    let (result, text) = explained([9, 1500], [9, 1500], 0);
    assert!(result.is_ok(), "{text}");
    assert!(text.ends_with("the anomaly pool was full when this connection needed it (marked \"room\")\n"));
}
