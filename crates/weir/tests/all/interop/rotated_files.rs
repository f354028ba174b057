//! Rotated IPFIX files: tshark and nfdump read each file by itself, because it begins with its
//! templates, and the sums of all files are those of the ledger.

use super::export::{wait_until_listening, wait_until_received};
use super::{TEMPLATES_OF_ANY_SIZE, nfdump, tshark_text};
use serde_json::Value;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::{Nfcapd, command, free_port, is_installed, read_flows, read_ledger};

/// Sums of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    packets: u64,
    bytes: u64,
}

/// Files of one run, and what they must hold.
struct Files {
    _folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
    records: usize,
    sums: Sums,
    l2_bytes: u64,
}

impl Files {
    /// Runs the binary with files that end at this size or after this time.
    fn of(rotate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let ipfix = format!("f-%Y%m%d-%H%M%S.ipfix?rotate={rotate}");
        let [ipfix, json, stats] = [ipfix, "own.json".into(), "stats.json".into()];
        let mut command = command();
        command.args(["read", "synth:mix,flows=1k,packets=50k,rst=20%,seed=5", "--idle", "1s", "-q"]);
        command.args(["-o", &path(&ipfix), "-o", &path(&json), "--stats", &path(&stats)]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let ledger = read_ledger(&folder.path().join(stats));
        let exported = |counter: &str| ledger["sinks"][0]["exported"][counter].as_u64().unwrap();
        let own = read_flows(&folder.path().join(json));
        let bytes = own.iter().map(|record: &Value| record["bytes"].as_u64().unwrap()).sum();
        assert_eq!((exported("flows"), exported("packets")), (own.len() as u64, 50_000));
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = names.filter(|path| path.extension().is_some_and(|ending| ending == "ipfix")).collect();
        paths.sort();
        assert!(paths.len() >= 3, "{paths:?}");
        let sums = Sums { packets: exported("packets"), bytes };
        Self { paths, records: own.len(), sums, l2_bytes: exported("bytes"), _folder: folder }
    }
}

const ROTATIONS: [&str; 2] = ["256KiB", "2s"];

#[test]
fn tshark_reads_each_rotated_file_by_itself() {
    if !is_installed("tshark") {
        return;
    }
    for rotate in ROTATIONS {
        let files = Files::of(rotate);
        let mut all = [0; 3];
        for path in &files.paths {
            let text = tshark_text(path, 4739, &TEMPLATES_OF_ANY_SIZE);
            let numbers = |name: &str| -> u64 {
                let lines = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
                lines.map(|value| value.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
            };
            let sums = ["Packets", "Octets", "Layer2 Octet Delta Count"].map(numbers);
            assert!(sums[0] > 0, "{}", path.display());
            (0..3).for_each(|field| all[field] += sums[field]);
        }
        assert_eq!(all, [files.sums.packets, files.sums.bytes, files.l2_bytes], "rotate={rotate}");
    }
}

/// Sends the messages of a file to nfcapd, as a program that replays files does.
fn replay(path: &Path, port: u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let octets = std::fs::read(path).unwrap();
    let mut rest = &octets[..];
    while let [_, _, high, low, ..] = *rest {
        let (message, after) = rest.split_at(usize::from(u16::from_be_bytes([high, low])));
        socket.send_to(message, ("127.0.0.1", port)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        rest = after;
    }
    assert!(rest.is_empty(), "{}", path.display());
    wait_until_received(port);
}

/// nfdump reads files of its own format only, so nfcapd receives the messages of the file.
#[test]
fn nfdump_reads_each_rotated_file_by_itself() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    for rotate in ROTATIONS {
        let files = Files::of(rotate);
        let (mut records, mut sums) = (0, Sums::default());
        for path in &files.paths {
            let port = free_port();
            let mut collector = Nfcapd::start(port);
            wait_until_listening(port);
            replay(path, port);
            let rows = nfdump(&collector.dump(&["-o", "json"]));
            assert!(!rows.is_empty(), "{}", path.display());
            let sum = |fields: [&str; 2]| -> u64 {
                rows.iter().flat_map(|row| fields.map(|field| row[field].parse::<u64>().unwrap())).sum()
            };
            records += rows.len();
            sums.packets += sum(["packets", "rev_packets"]);
            sums.bytes += sum(["bytes", "rev_bytes"]);
        }
        assert_eq!((records, sums), (files.records, files.sums), "rotate={rotate}");
    }
}
