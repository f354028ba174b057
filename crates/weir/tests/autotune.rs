//! `weir probe --autotune`: what it tries, what it says of that, and that the records afterwards are those of every packet.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{parts, small, udp, weir};
use live::{Probe, flows};
use network::{LEFT, Sender, network, until};
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_capture_is_tried_in_every_way_and_then_metered_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (output, ledger) = (folder.path().join("flows.json"), folder.path().join("ledger.json"));
    let sink = format!("json:{}", output.display());
    let (code, _, told) = parts(&weir([
        "probe",
        "-i",
        "synth:mix,flows=500,packets=1M",
        "--autotune=300ms",
        "-o",
        &sink,
        "--stats",
        ledger.to_str().unwrap(),
    ]));
    assert_eq!(code, 0, "{told}");
    for tried in ["--layout fused", "--layout split", "--layout spread", "--cores", "--batch 64", "--batch 16"] {
        assert!(told.contains(&format!("autotune: measured candidate=\"{tried}")), "{tried}: {told}");
    }
    assert_eq!(told.matches("autotune: chosen").count(), 3, "one choice per dimension: {told}");
    assert!(told.contains("autotune: finished options=\"--layout"), "{told}");
    assert!(!told.contains("--busy-poll"), "a capture does not sleep: {told}");
    let ledger: Value = serde_json::from_slice(&fs::read(&ledger).unwrap()).unwrap();
    assert_eq!((&ledger["balanced"], &ledger["packets"]["metered"]), (&true.into(), &1_000_000.into()), "{ledger}");
    let packets = |flow: &Value| flow["packets"].as_u64().unwrap() + flow["rev_packets"].as_u64().unwrap_or(0);
    assert_eq!(flows(&output).iter().map(packets).sum::<u64>(), 1_000_000);
}

#[test]
fn what_can_be_read_only_once_is_not_tried() {
    let folder = tempfile::tempdir().unwrap();
    let capture = small().save(folder.path(), "small.pcap");
    let (code, _, told) = parts(&weir(["probe", "-i", "-", "--autotune"]));
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("- can be read only once"), "{told}");
    let (code, _, told) = parts(&weir(["probe", "-i", capture.to_str().unwrap(), "--autotune=30ms", "-q"]));
    assert_eq!(code, 0, "{told}");
    let (code, _, told) = parts(&weir(["probe", "-i", capture.to_str().unwrap(), "--autotune"]));
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("the capture is too short"), "{told}");
}

/// Tells the sender, whatever becomes of the test.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn live_traffic_is_tried_while_it_comes() {
    if !network() {
        return;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            let (mut sender, mut number) = (Sender::new(LEFT), 0_u16);
            while !stop.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                sender.send(&udp(([10, 0, 0, 1], number), ([10, 1, 0, 1], 53), 40));
            }
        });
        let probe = Probe::start("af_packet:right", &["--autotune=300ms", "--flows", "100k"]);
        until("it has chosen", || {
            ["options are unchanged", "autotune: finished"].iter().any(|said| probe.told().contains(said))
        });
        until("it meters", || probe.told().contains(" active "));
        let (code, told, ledger) = probe.end();
        assert!(code == 0 || code == 2, "{told}");
        assert!(told.contains("autotune: measured candidate=\"--layout split"), "{told}");
        if told.contains("too few packets arrived") {
            eprintln!("SKIPPED: the machine sends too little to tell one from another");
        } else {
            for tried in ["af_packet: block=64k,blocks=1024", "--busy-poll"] {
                assert!(
                    told.contains(&format!("candidate={tried}")) || told.contains(&format!("candidate=\"{tried}")),
                    "{tried}: {told}"
                );
            }
        }
        assert!(ledger["packets"]["metered"].as_u64().unwrap() > 0, "{ledger}");
    });
}
