//! `weir probe --autotune`: the candidates, the log, and exact flow records afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use testbed::namespace::until;
use testbed::running::{Running, wire};
use testbed::{failure, metered, packets, small, udp, weir};

#[test]
fn all_candidates_are_measured_and_then_every_packet_is_metered() {
    let (code, err, flows, ledger) =
        metered(&["probe", "-i", "synth:mix,flows=500,packets=1500k", "--dpi", "off", "--autotune=100ms"]);
    assert_eq!(code, 0, "{err}");
    for candidate in ["--layout fused", "--layout split", "--layout spread", "--cores", "--batch 64", "--batch 16"] {
        assert!(err.contains(&format!(" autotune: {candidate}")), "{candidate}: {err}");
    }
    // The figures of a table are aligned below their units.
    let heading = err.lines().find(|line| line.contains("capacity Mpackets/s")).unwrap();
    let (fused, end) = (err.lines().find(|line| line.contains("autotune: --layout fused")).unwrap(), heading.len());
    assert!(heading.ends_with("CPU ns/packet") && fused.len() == end, "{err}");
    assert_eq!(err.matches("autotune: chosen").count(), 3, "one choice per dimension: {err}");
    assert!(err.contains("autotune: finished options=\"--layout"), "{err}");
    assert!(!err.contains("--busy-poll"), "captures have no busy polling: {err}");
    assert_eq!(ledger["packets"]["metered"], 1_500_000);
    assert_eq!(flows.iter().map(packets).sum::<u64>(), 1_500_000);
}

#[test]
fn layouts_without_inspection_are_tried_only_if_it_is_off() {
    let (code, err, ..) = metered(&["probe", "-i", "synth:mix,flows=500,packets=1M", "--autotune=30ms"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("to try them, use --dpi off") && !err.contains("--layout spread"), "{err}");
}

#[test]
fn layouts_that_hand_no_packets_on_are_not_tried_with_rules() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, output) = (folder.path().join("rules.toml"), folder.path().join("out.pcap"));
    let text = format!("[egress.all]\noutputs = [\"pcap:{}\"]\n", output.display());
    std::fs::write(&rules, text).unwrap();
    let rules = rules.to_str().unwrap();
    let probe = ["probe", "-i", "synth:mix,flows=500,packets=300k", "--dpi", "off", "--autotune=30ms"];
    let (_, err, _, ledger) = metered(&[&probe[..], &["--rules", rules]].concat());
    assert!(err.contains("leave --rules out") && !err.contains("--layout spread"), "{err}");
    assert_eq!(ledger["actions"]["forwarded"]["packets"], 300_000, "{err}");
}

#[test]
fn standard_input_and_short_captures_are_not_measured() {
    let capture = small().saved();
    let err = failure(1, ["probe", "-i", "-", "--autotune"]);
    assert!(err.contains("- can be read only once"), "{err}");
    let (code, _, err) = weir(["probe", "-i", capture.name(), "--autotune=30ms", "-q"]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = weir(["probe", "-i", capture.name(), "--autotune"]);
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
    let Some(mut sender) = wire() else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let stop = &stop;
        scope.spawn(move || {
            for number in (0..u16::MAX).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                sender.send(&udp(([10, 0, 0, 1], number), ([10, 1, 0, 1], 53), 40));
            }
        });
        let probe = Running::probe("af_packet:right", &["--autotune=100ms", "--flows", "100k", "--dpi", "off"]);
        until("autotune ends", || {
            ["options are unchanged", "autotune: finished"].iter().any(|text| probe.stderr().contains(text))
        });
        probe.wait_for(" active=");
        probe.signal(libc::SIGTERM);
        let (code, err, _, ledger) = probe.wait();
        assert!(code == 0 || code == 2, "{err}");
        assert!(err.contains("autotune: --layout split"), "{err}");
        if err.contains("too few packets arrived") {
            eprintln!("SKIPPED: this machine sends too few packets to compare candidates");
        } else {
            for candidate in ["af_packet: block=64k,blocks=1024", "--busy-poll"] {
                assert!(err.contains(&format!("autotune: {candidate}")), "{candidate}: {err}");
            }
        }
        assert!(ledger["packets"]["metered"].as_u64().unwrap() > 0, "{ledger}");
    });
}
