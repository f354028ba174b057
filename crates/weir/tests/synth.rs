//! `weir synth`: captures from nothing, and their truth.

mod common;
use common::{parts, weir};
use serde_json::Value;

#[test]
fn what_is_written_is_metered_again_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, truth) = (folder.path().join("mix.pcap"), folder.path().join("truth.csv"));
    let (code, out, err) = parts(&weir([
        "synth".as_ref(),
        "mix,flows=100,packets=20k,seed=7".as_ref(),
        "-o".as_ref(),
        capture.as_os_str(),
        "--truth".as_ref(),
        truth.as_os_str(),
    ]));
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("packets=20000"), "{err}");
    let from_file = ledger(&capture.display().to_string());
    let from_memory = ledger("synth:mix,flows=100,packets=20k,seed=7");
    assert_eq!(from_file["packets"]["received"], 20_000);
    assert_eq!(from_file, from_memory);
    let truth = std::fs::read_to_string(truth).unwrap();
    assert!(truth.lines().next().unwrap().contains("src_ip"), "{truth}");
    assert!(truth.lines().count() > 100);
}

#[test]
fn the_truth_of_a_lossy_network_has_a_column_for_each_event() {
    let folder = tempfile::tempdir().unwrap();
    let truth = folder.path().join("truth.csv");
    let (code, _, err) = parts(&weir([
        "synth".as_ref(),
        "lossy,flows=100,new=50,packets=20k,loss=5%,duplicate=5%".as_ref(),
        "-o".as_ref(),
        folder.path().join("lossy.pcap").as_os_str(),
        "--truth".as_ref(),
        truth.as_os_str(),
    ]));
    assert_eq!(code, 0, "{err}");
    let truth = std::fs::read_to_string(truth).unwrap();
    let (names, flows) = truth.split_once('\n').unwrap();
    let names: Vec<&str> = names.split(',').collect();
    let sum = |name: &str| -> u64 {
        let at = names.iter().position(|&column| column == name).expect(name);
        flows.lines().map(|flow| flow.split(',').nth(at).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert!(flows.lines().all(|flow| flow.split(',').count() == names.len()));
    assert_eq!((sum("tcp_segments"), sum("rev_tcp_segments")), (sum("packets"), sum("rev_packets")));
    assert_eq!(sum("packets") + sum("rev_packets"), 20_000);
    assert!(
        sum("rev_tcp_retransmissions") > 100 && sum("rev_tcp_unseen") > 100 && sum("rev_tcp_switched_copies") > 100
    );
}

#[test]
fn a_capture_can_be_piped() {
    let (code, out, err) = parts_of_bytes(&weir(["synth", "velan,flows=10,size=64,packets=100", "-o", "-", "-q"]));
    assert_eq!((code, err.as_str()), (0, ""));
    let (code, table, _) = parts(&common::weir_with_input(["read", "-", "--top", "0"], &out));
    assert_eq!(code, 0);
    assert!(table.contains("100 received, 100 metered"), "{table}");
}

#[test]
fn a_full_disk_is_exit_code_2_and_a_missing_folder_1() {
    let (code, _, err) = parts(&weir(["synth", "velan,flows=10,size=64,packets=10k", "-o", "/dev/full"]));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("No space left"), "{err}");
    let (code, _, _) = parts(&weir(["synth", "velan,packets=10", "-o", "/nonexistent/folder/x.pcap"]));
    assert_eq!(code, 1);
}

#[test]
fn a_wrong_specification_names_what_exists() {
    let (code, _, err) = parts(&weir(["synth", "velan,flow=10", "-o", "/dev/null"]));
    assert_eq!(code, 1);
    assert!(err.contains("flows"), "{err}");
}

/// The ledger of a run over a source.
fn ledger(source: &str) -> Value {
    let (code, out, err) = parts(&weir(["read", "-i", source, "--stats", "-", "-q"]));
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str(&out).unwrap()
}

fn parts_of_bytes(output: &std::process::Output) -> (i32, Vec<u8>, String) {
    (output.status.code().unwrap(), output.stdout.clone(), String::from_utf8(output.stderr.clone()).unwrap())
}
