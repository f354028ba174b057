//! Files of nfdump as a source of `weir read`: they have the flows that nfdump prints of them.

use super::export::{IPFIX_BASIC, NETFLOW5, NETFLOW9_FULL, assert_same, rows, send_all, wait_until_listening};
use super::{COMMON, IPFIX_TWO_WAY, Row, nfdump};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::{
    Nfcapd, arguments, assert_usage_errors, capture_files, captures, free_port, is_installed, ledger_of, number,
    success, weir,
};

const LOSSY: &str = "synth:lossy,flows=300,packets=20k,ipv6=40%,seed=4";
/// Fields of the rows of nfdump's JSON that Weir knows of its files, besides [`COMMON`].
const MORE: [&str; 4] = ["icmp_type", "icmp_code", "rev_packets", "rev_bytes"];

/// The records of a file, as Weir reads them.
fn read(file: &Path) -> Vec<Row> {
    let (code, text, err) = weir(arguments!["read", "-q", file, "--fields", "all", "-o", "json:-"]);
    assert_eq!(code, 0, "{err}");
    rows(&text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>())
}

fn nfdump_of(arguments: &[&str], file: &Path) -> String {
    let output = Command::new("nfdump").args(arguments).args(["-q", "-r"]).arg(file).env("TZ", "UTC").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that Weir and nfdump read the same from a file; `known`: fields besides [`COMMON`] and [`MORE`].
fn assert_like_nfdump(what: &str, file: &Path, known: &[&'static str]) {
    let theirs = nfdump(&nfdump_of(&["-o", "json"], file));
    assert!(!theirs.is_empty(), "{what}");
    assert_same(what, &[&COMMON[..], &MORE, known].concat(), &read(file), &theirs);
}

/// The same for flows of both directions. The flags and the type of service of a responder are not in the file, so
/// that those of the source are not known if it is the responder in some records.
fn assert_both_directions_like_nfdump(what: &str, file: &Path) {
    // nfdump does not print which side is the initiator.
    let oriented = |mut rows: Vec<Row>| {
        for row in &mut rows {
            if [&row["src"], &row["src_port"]] > [&row["dst"], &row["dst_port"]] {
                for (one, other) in
                    [("src", "dst"), ("src_port", "dst_port"), ("packets", "rev_packets"), ("bytes", "rev_bytes")]
                {
                    let (first, second) = (row[one].clone(), row[other].clone());
                    row.insert(one, second);
                    row.insert(other, first);
                }
            }
        }
        rows
    };
    let fields = ["src", "dst", "src_port", "dst_port", "protocol", "start_ms", "end_ms"];
    let fields = [&fields[..], &["packets", "bytes", "rev_packets", "rev_bytes"]].concat();
    let theirs = oriented(nfdump(&nfdump_of(&["-o", "json"], file)));
    assert!(theirs.iter().any(|row| row["rev_packets"] != "0"), "{what}");
    assert_same(what, &fields, &oriented(read(file)), &theirs);
}

/// A file of nfcapd that received these flows.
fn received(folder: &Path, input: &[&str]) -> PathBuf {
    let port = free_port();
    let mut collector = Nfcapd::start(port);
    wait_until_listening(port);
    let sink = format!("ipfix+udp://127.0.0.1:{port}?rate=500&template=full");
    let (code, _, err) = weir(input.iter().chain(&["-q", "-o", &sink]));
    assert!(matches!(code, 0 | 2), "{err}");
    super::export::wait_until_received(port);
    let files = collector.stop();
    let file = folder.join("nfcapd.202601010000");
    fs::copy(&files[0], &file).unwrap();
    file
}

#[test]
fn files_of_nfcapd_have_the_flows_that_nfdump_prints() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    for (sink, is_uniflow, known) in [
        (NETFLOW5.sink, true, &[][..]),
        // Their templates of flows without a VLAN tag do not have the element.
        (NETFLOW9_FULL.sink, true, &[]),
        (IPFIX_TWO_WAY.sink, false, &[]),
        (IPFIX_BASIC.sink, true, &["vlan"]),
        ("ipfix+udp?template=nfdump", true, &["vlan"]),
    ] {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut collector = Nfcapd::start(port);
        let options: &[&str] = if is_uniflow { &["--uniflow"] } else { &[] };
        let sent = send_all(sink, port, folder.path(), options);
        let files = collector.stop();
        assert_eq!(files.len(), 1, "{files:?}");
        if is_uniflow {
            assert_like_nfdump(sink, &files[0], known);
        } else {
            assert_both_directions_like_nfdump(sink, &files[0]);
        }
        // The ledger has what was sent, but for IPv6 in NetFlow v5.
        let (code, err, ledger) = ledger_of(arguments!["read", "-q", files[0], "-o", "csv:/dev/null"]);
        assert!(code == 0 && ledger["balanced"] == true, "{sink}: {err}");
        let is_sent = |record: &&Value| {
            let source = record["src_ip"].as_str().unwrap_or_default();
            !source.is_empty() && (sink != NETFLOW5.sink || !source.contains(':'))
        };
        let sum = |field: &str| sent.iter().filter(is_sent).map(|record| number(&record[field])).sum::<u64>();
        let expected = [sum("packets"), sum("bytes")];
        assert_eq!(["packets", "bytes"].map(|field| number(&ledger[field]["received"])), expected, "{sink}: {err}");
    }
}

#[test]
fn files_of_nfpcapd_and_of_softflowd_have_the_flows_that_nfdump_prints() {
    if !is_installed("nfpcapd") || !is_installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let is_read = |path: &PathBuf| path.extension().is_some_and(|end| end == "pcap");
    for capture in capture_files().into_iter().filter(is_read) {
        let files = tempfile::tempdir_in(folder.path()).unwrap();
        let mut nfpcapd = Command::new("nfpcapd");
        nfpcapd.arg("-r").arg(&capture).arg("-w").arg(files.path()).args(["-o", "fat"]).output().unwrap();
        for file in fs::read_dir(files.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if !nfdump_of(&["-o", "json"], &file).contains("src") {
                continue;
            }
            assert_like_nfdump(&format!("nfpcapd of {}", capture.display()), &file, &[]);
        }
    }
    if !is_installed("softflowd") || !is_installed("nfcapd") {
        return;
    }
    let port = free_port();
    let mut collector = Nfcapd::start(port);
    wait_until_listening(port);
    let capture = capture_files().into_iter().find(|path| path.ends_with("web.pcap")).unwrap();
    let to = format!("127.0.0.1:{port}");
    assert!(Command::new("softflowd").arg("-r").arg(capture).args(["-n", &to, "-v", "9"]).output().is_ok());
    super::export::wait_until_received(port);
    assert_like_nfdump("softflowd", &collector.stop()[0], &[]);
}

#[test]
fn labels_and_sampling_are_known_if_all_records_have_them() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = |name: &str| captures().join(name).display().to_string();
    let file = received(folder.path(), &["read", &capture("mpls.pcap"), "--uniflow", "--mac-addresses"]);
    assert_like_nfdump("labels", &file, &["mpls"]);
    let macs = success(arguments!["read", "-q", file, "--fields", "src_mac", "-o", "csv:-"]);
    assert!(macs.lines().skip(1).all(|mac| mac.starts_with("02:00:00:00:00:0")), "{macs}");
    // nfcapd multiplies the counters.
    let file = received(folder.path(), &["probe", "--sample", "4", "-i", &capture("web.pcap")]);
    let flows = success(arguments!["read", "-q", file, "--fields", "approximate,packets", "-o", "csv:-"]);
    let packets = |line: &str| line.strip_prefix("sampled,")?.parse::<u64>().ok();
    let packets: u64 = flows.lines().skip(1).map(|line| packets(line).expect(line)).sum();
    let line = format!("Packets: {packets}");
    assert!(packets > 0 && nfdump_of(&["-I"], &file).lines().any(|of| of == line), "{flows}");
}

#[test]
fn all_compressions_but_lzo_are_read() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = received(folder.path(), &["read", "-i", LOSSY]);
    let csv = |file: &Path| success(arguments!["read", "-q", file, "-o", "csv:-"]);
    let plain = csv(&file);
    assert!(plain.lines().count() > 200);
    let octets = fs::metadata(&file).unwrap().len();
    for method in ["2", "3", "0"] {
        nfdump_of(&["-J", method], &file);
        assert_eq!(fs::metadata(&file).unwrap().len() == octets, method == "0", "{method}");
        assert!(csv(&file) == plain, "{method}");
    }
    nfdump_of(&["-J", "1"], &file);
    let (code, out, err) = weir(arguments!["read", "-q", file, "-o", "csv:-"]);
    assert!(code == 2 && out.lines().count() <= 1 && err.contains("compressed with LZO"), "{code} {err}");
    // What the error advises.
    let (_, advice) = err.split_once("rewrites it with LZ4: nfdump -J ").unwrap();
    nfdump_of(&["-J", advice.split(' ').next().unwrap()], &file);
    assert!(csv(&file) == plain);
}

#[test]
fn views_conditions_and_sinks_are_those_of_ipfix_files() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = received(folder.path(), &["read", "-i", LOSSY]);
    let ipfix = folder.path().join("flows.ipfix");
    let fields = "flowStartMilliseconds,flowEndMilliseconds,sourceIPv4Address,sourceIPv6Address,\
                  destinationIPv4Address,destinationIPv6Address,sourceTransportPort,destinationTransportPort,\
                  protocolIdentifier,packetDeltaCount,octetDeltaCount,ipClassOfService,flowEndReason,tcpControlBits";
    success(arguments!["read", "-q", "-i", LOSSY, "-o", format!("ipfix:{}?fields={fields}", ipfix.display())]);
    let options: [&[&str]; 6] = [
        &["--by", "host", "--sort", "bytes", "-o", "csv:-"],
        &["--every", "1s", "-o", "csv:-"],
        &["--where", "bytes > 10k and dst port < 1000", "--fields", "src_ip,src_port,dst_ip,bytes", "-o", "csv:-"],
        &["--sort", "bytes", "--top", "7", "--fields", "src_ip,dst_ip,dst_port,bytes,bps"],
        &["--from", "2026-01-01T00:00:02", "--to", "2026-01-01T00:00:04", "--by", "protocol", "-o", "csv:-"],
        &["--by", "dst_ip/24", "--count", "ports", "--sort", "ports", "-o", "json:-"],
    ];
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    for options in options {
        let run = |input: &Path| {
            let options = options.iter().map(AsRef::as_ref);
            let (code, out, err) = weir(arguments!["read", "-q", input].into_iter().chain(options));
            assert_eq!(code, 0, "{err}");
            sorted(out)
        };
        let (expected, read) = (run(&ipfix), run(&file));
        assert!(expected.len() > 1 && read == expected, "{options:?}\n{read:#?}\n{expected:#?}");
    }
    // Any name with the scheme; with an IPFIX file, the fields that both have.
    let other = folder.path().join("flows");
    fs::rename(&file, &other).unwrap();
    let csv = |arguments: &[&OsStr]| {
        success(arguments.iter().copied().chain(["-o".as_ref(), "csv:-".as_ref()])).lines().count() - 1
    };
    let one = csv(&arguments!["read", "-q", format!("nfdump:{}", other.display())]);
    assert_eq!(csv(&arguments!["read", "-q", other, ipfix]), 2 * one);
    for sink in ["csv:flows.csv", "ipfix:flows.out.ipfix", "parquet:flows.parquet", "table:flows.txt"] {
        let (kind, name) = sink.split_once(':').unwrap();
        success(arguments!["read", "-q", other, "-o", format!("{kind}:{}", folder.path().join(name).display())]);
    }
    let (code, _, err) = weir(arguments!["read", "-q", other, "--where", "fwd_ttl_min > 3"]);
    assert!(code == 1 && err.contains("--where: fwd_ttl_min is not known of the stored flows"), "{err}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nfdump/vlan.nfcapd");
    let whole = success(arguments!["read", "-q", file, "-o", "csv:-"]);
    assert_eq!(whole.lines().count(), 22);
    // nfpcapd stores no end reason.
    let table = success(arguments!["read", "-q", file]);
    assert!(table.contains("flags") && !table.contains("end"), "{table}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nfcapd.202601010000");
    let octets = fs::read(&file).unwrap();
    for length in (2..3000).step_by(237) {
        fs::write(&path, &octets[..length]).unwrap();
        let (code, out, err) = weir(arguments!["read", "-q", path, "-o", "csv:-"]);
        assert!(code == 2 && out.lines().count() <= 1 && err.contains("is cut off"), "{length}: {code} {err}");
    }
    let mut old = octets;
    old[2] = 1;
    fs::write(&path, old).unwrap();
    let (code, _, err) = weir(arguments!["read", "-q", path, "-o", "csv:-"]);
    assert!(code == 2 && err.contains("nfdump 1.6") && err.contains("nfdump -r FILE -w NEW_FILE"), "{code} {err}");
    let file = file.to_str().unwrap();
    assert_usage_errors(&[
        (&["read", file, "--filter", "tcp"], "--filter needs packets: stored flows are metered already"),
        (&["read", file, capture_files()[0].to_str().unwrap()], "flows and packets cannot be read together"),
        (&["read", file, "--where", "application = dns"], "--where: application is not known of the stored flows"),
        (&["read", file, "-o", &format!("csv:{file}")], "is also the input"),
        (&["read", "nfdump:nowhere"], "No such file"),
    ]);
}
