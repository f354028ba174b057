//! `weir probe --autotune`: the candidates, the log, and exact flow records afterwards.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{JsonOutput, arguments, packets, read_ledger, small, udp, weir};
use live::Probe;
use network::{LEFT, Sender, network, until};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn all_candidates_are_measured_and_then_every_packet_is_metered() {
    let output = JsonOutput::new();
    let stats = output.folder.path().join("ledger.json");
    let source = ["-i", "synth:mix,flows=500,packets=4M", "--autotune=300ms"];
    let (code, _, err) =
        weir(arguments!["probe", source[0], source[1], source[2], "-o", output.sink, "--stats", stats]);
    assert_eq!(code, 0, "{err}");
    for candidate in ["--layout fused", "--layout split", "--layout spread", "--cores", "--batch 64", "--batch 16"] {
        assert!(err.contains(&format!("autotune: measured candidate=\"{candidate}")), "{candidate}: {err}");
    }
    assert_eq!(err.matches("autotune: chosen").count(), 3, "one choice per dimension: {err}");
    assert!(err.contains("autotune: finished options=\"--layout"), "{err}");
    assert!(!err.contains("--busy-poll"), "captures have no busy polling: {err}");
    assert_eq!(read_ledger(&stats)["packets"]["metered"], 4_000_000);
    assert_eq!(output.flows().iter().map(packets).sum::<u64>(), 4_000_000);
}

#[test]
fn standard_input_and_short_captures_are_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let capture = small().save(folder.path(), "small.pcap");
    let (code, _, err) = weir(["probe", "-i", "-", "--autotune"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("- can be read only once"), "{err}");
    let (code, _, err) = weir(["probe", "-i", capture.to_str().unwrap(), "--autotune=30ms", "-q"]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = weir(["probe", "-i", capture.to_str().unwrap(), "--autotune"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("the capture is too short"), "{err}");
}

/// Stops the sending thread when the test ends, also by a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn candidates_are_measured_on_live_traffic() {
    if !network() {
        return;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            let (mut sender, mut number) = (Sender::new(LEFT), 0_u16);
            while !stop.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                sender.send(&udp(([10, 0, 0, 1], number), ([10, 1, 0, 1], 53), 40));
            }
        });
        let probe = Probe::start("af_packet:right", &["--autotune=300ms", "--flows", "100k"]);
        until("autotune ends", || {
            ["options are unchanged", "autotune: finished"].iter().any(|text| probe.stderr().contains(text))
        });
        until("the probe meters", || probe.stderr().contains(" active "));
        let (code, err, ledger) = probe.stop();
        assert!(code == 0 || code == 2, "{err}");
        assert!(err.contains("autotune: measured candidate=\"--layout split"), "{err}");
        if err.contains("too few packets arrived") {
            eprintln!("SKIPPED: this machine sends too few packets to compare candidates");
        } else {
            for candidate in ["af_packet: block=64k,blocks=1024", "--busy-poll"] {
                assert!(
                    err.contains(&format!("candidate={candidate}"))
                        || err.contains(&format!("candidate=\"{candidate}")),
                    "{candidate}: {err}"
                );
            }
        }
        assert!(ledger["packets"]["metered"].as_u64().unwrap() > 0, "{ledger}");
    });
}
