//! `weir synth`: synthetic captures and their ground truth.

use serde_json::Value;
use testbed::{arguments, assert_usage_errors, command, failure, ledger_of, success, weir, weir_with_input};

#[test]
fn a_written_capture_and_the_synthetic_source_give_the_same_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, truth) = (folder.path().join("mix.pcap"), folder.path().join("truth.csv"));
    let (code, out, err) =
        weir(arguments!["synth", "mix,flows=100,packets=20k,seed=7", "-o", capture, "--truth", truth]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("packets=20000"), "{err}");
    let from_file = ledger(&capture.display().to_string());
    let from_source = ledger("synth:mix,flows=100,packets=20k,seed=7");
    assert_eq!(from_file["packets"]["received"], 20_000);
    assert_eq!(from_file, from_source);
    let truth = std::fs::read_to_string(truth).unwrap();
    assert!(truth.lines().next().unwrap().contains("src_ip"), "{truth}");
    assert!(truth.lines().count() > 100);
}

#[test]
fn the_ground_truth_of_a_lossy_network_counts_each_event() {
    let folder = tempfile::tempdir().unwrap();
    let truth = folder.path().join("truth.csv");
    let lossy = "lossy,flows=100,new=50,packets=20k,loss=5%,duplicate=5%";
    success(arguments!["synth", lossy, "-q", "-o", folder.path().join("lossy.pcap"), "--truth", truth]);
    let truth = std::fs::read_to_string(truth).unwrap();
    let (names, flows) = truth.split_once('\n').unwrap();
    let names: Vec<&str> = names.split(',').collect();
    let sum = |name: &str| -> u64 {
        let at = names.iter().position(|&column| column == name).expect(name);
        flows.lines().map(|flow| flow.split(',').nth(at).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert!(flows.lines().all(|flow| flow.split(',').count() == names.len()));
    assert_eq!((sum("fwd_tcp_segments"), sum("rev_tcp_segments")), (sum("fwd_packets"), sum("rev_packets")));
    assert_eq!(sum("fwd_packets") + sum("rev_packets"), 20_000);
    assert!(
        sum("rev_tcp_retransmissions") > 100 && sum("rev_tcp_unseen") > 100 && sum("rev_tcp_switched_copies") > 100
    );
}

#[test]
fn a_capture_can_be_piped() {
    let output = command().args(["synth", "velan,flows=10,size=64,packets=100", "-o", "-", "-q"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &[][..]));
    let (code, table, _) = weir_with_input(["read", "-", "--top", "0"], &output.stdout);
    assert_eq!(code, 0);
    assert!(table.contains("100 received, 100 metered"), "{table}");
}

#[test]
fn a_full_disk_has_exit_code_2_and_a_missing_folder_1() {
    let err = failure(2, ["synth", "velan,flows=10,size=64,packets=10k", "-o", "/dev/full"]);
    assert!(err.contains("No space left"), "{err}");
    let nowhere = ["synth", "velan,packets=10", "-o", "/nonexistent/folder/x.pcap"];
    assert_usage_errors(&[(&nowhere, "does its directory exist?")]);
}

#[test]
fn an_unknown_parameter_is_refused_with_the_known_ones() {
    assert_usage_errors(&[(&["synth", "velan,flow=10", "-o", "/dev/null"], "flows")]);
}

/// The ledger of a run over a source.
fn ledger(source: &str) -> Value {
    let (code, err, ledger) = ledger_of(["read", "-i", source, "-q", "-o", "table:/dev/null"]);
    assert_eq!((code, err.as_str()), (0, ""));
    ledger
}
