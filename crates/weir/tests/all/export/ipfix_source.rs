//! IPFIX files as a source of `weir read`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::ipfix::{CERT, FLOW, Field, Message, REVERSE, VARIABLE, flow};
use testbed::{
    arguments, assert_usage_errors, capture_files, captures, is_installed, ledger_of, number, success, weir,
};

const LOSSY: &str = "synth:lossy,flows=100,packets=40k,ipv6=40%,seed=4";
const APPS: &str = "synth:apps,flows=300,packets=20k,seed=3";

type Row = BTreeMap<String, Value>;

fn inputs() -> Vec<Vec<OsString>> {
    let captures = capture_files().into_iter().map(|path| vec![path.into_os_string()]);
    captures.chain([APPS, LOSSY].map(|spec| vec!["-i".into(), spec.into()])).collect()
}

fn json_rows(path: &Path) -> Vec<Row> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

/// A file of the lossy traffic.
fn lossy(folder: &Path, settings: &str, options: &[&str]) -> PathBuf {
    let file = folder.join("lossy.ipfix");
    let sink = format!("ipfix:{}{settings}", file.display());
    success(["read", "-q", "-i", LOSSY, "-o", &sink].iter().chain(options));
    file
}

/// Writes messages into a file.
fn write(folder: &Path, name: &str, messages: &[Message]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, messages.iter().flat_map(Message::octets).collect::<Vec<_>>()).unwrap();
    path
}

#[test]
fn flows_of_files_have_the_fields_of_metered_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut known: Option<BTreeSet<String>> = None;
    let mut all = BTreeSet::new();
    for (at, input) in inputs().into_iter().enumerate() {
        let [file, metered, read] =
            ["ipfix", "json", "again.json"].map(|name| folder.path().join(format!("{at}.{name}")));
        let mut meter: Vec<OsString> = ["read", "-q", "--decap", "--layer2", "--dpi-fields"].map(Into::into).into();
        meter.extend(input.clone());
        meter.extend(["-o".into(), format!("ipfix:{}", file.display()).into()]);
        meter.extend(["-o".into(), format!("json:{}?fields=all", metered.display()).into()]);
        let (code, _, err) = weir(&meter);
        assert!(matches!(code, 0 | 2), "{input:?}: {err}");
        let (code, _, err) =
            weir(arguments!["read", "-q", file, "--fields", "all", "-o", format!("json:{}", read.display())]);
        assert!(code == 0 && err.contains("the stored flows do not have these"), "{input:?}: {err}");
        let (read, mut expected) = (json_rows(&read), json_rows(&metered));
        let of_file: BTreeSet<String> = read[0].keys().cloned().collect();
        all.extend(expected[0].keys().cloned());
        expected.iter_mut().for_each(|row| row.retain(|name, _| of_file.contains(name)));
        assert!(sorted(read) == sorted(expected), "{input:?}");
        known = Some(known.map_or(of_file.clone(), |known| &known & &of_file));
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ipfix-files.md")).unwrap();
    let list = page.split("<!-- not known -->").nth(1).expect("the page has a list");
    let listed: BTreeSet<String> = list.split('`').skip(1).step_by(2).map(String::from).collect();
    let unknown = &all - &known.unwrap();
    assert!(unknown == listed, "docs/ipfix-files.md must list:\n{}", wrapped(&unknown));
}

fn wrapped(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[test]
fn selected_elements_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let fields = "start_time,end_time,src_ip,dst_ip,src_port,dst_port,protocol_number,fwd_packets,rev_packets,\
                  fwd_bytes,rev_bytes,fwd_tcp_flags_number,rev_tcp_flags_number,end_reason,\
                  fwd_tcp_response_count,rev_tcp_response_count,fwd_tcp_response_mean_ns,rev_tcp_response_mean_ns,\
                  fwd_tcp_handshake_rtt_ns,rev_tcp_handshake_rtt_ns";
    let elements = "flowStartNanoseconds,flowEndNanoseconds,sourceIPv4Address,sourceIPv6Address,\
                    destinationIPv4Address,destinationIPv6Address,sourceTransportPort,destinationTransportPort,\
                    protocolIdentifier,packetDeltaCount,octetDeltaCount,tcpControlBits,flowEndReason,\
                    tcpResponseCount,tcpResponseTimeMean,tcpHandshakeRoundTrip";
    let file = lossy(folder.path(), &format!("?fields={elements}"), &[]);
    let json = |input: &[&str], name: &str| {
        let path = folder.path().join(name);
        let sink = format!("json:{}", path.display());
        success(["read", "-q", "--fields", fields, "-o", &sink].iter().chain(input));
        sorted(json_rows(&path))
    };
    let read = json(&[file.to_str().unwrap()], "read.json");
    assert!(read == json(&["-i", LOSSY], "metered.json"));
    let (code, _, err) = weir(arguments!["read", "-q", file, "--where", "fwd_ttl_min > 3"]);
    assert!(code == 1 && err.contains("--where: fwd_ttl_min is not known of the stored flows"), "{err}");
}

#[test]
fn views_have_what_full_records_omit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("full.ipfix");
    let captures = ["web.pcap", "loss.pcapng", "tls.pcap"].map(|name| captures().join(name));
    let sink = format!("ipfix:{}", file.display());
    success(arguments!["read", "-q", "-o", sink].into_iter().chain(captures.iter().map(AsRef::as_ref)));
    let segments = |inputs: &[PathBuf]| -> Vec<[Value; 3]> {
        let options = arguments!["read", "-q", "--log-level", "error", "--by", "host", "-o", "json:-"];
        let text = success(options.into_iter().chain(inputs.iter().map(AsRef::as_ref)));
        let row = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
        let numbers = |row: Value| ["host", "segments", "retransmitted"].map(|name| row[name].clone());
        text.lines().map(|line| numbers(row(line))).collect()
    };
    let of_captures = segments(&captures);
    assert!(of_captures.iter().any(|[_, segments, _]| segments.as_u64() > Some(1000)), "{of_captures:?}");
    assert_eq!(segments(&[file]), of_captures);
}

#[test]
fn views_conditions_and_orders_are_those_of_metered_flows() {
    let options: [&[&str]; 7] = [
        &["--every", "500ms", "--by", "server_ip", "-o", "json:-"],
        &["--by", "host", "-o", "csv:-", "--count", "ports"],
        &["--by", "src_ip/24,service_port", "--sort", "retransmission", "-o", "csv:-"],
        &["--by", "server_ip,flags,ip_version", "-o", "csv:-"],
        &["--sort", "rtt", "--top", "7", "--fields", "src_ip,dst_ip,rtt,retransmitted_share,bps"],
        &["--where", "bytes > 10k and retransmitted > 0", "--fields", "start_time,src_ip,bytes", "-o", "csv:-"],
        &["--where", "host 198.18.0.0 and bytes > 1000", "--by", "protocol", "-o", "csv:-"],
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = lossy(folder.path(), "?fields=all", &[]);
    for options in options {
        let run = |input: &[&str]| success(["read", "-q"].iter().chain(input).chain(options));
        let (metered, read) = (run(&["-i", LOSSY]), run(&[file.to_str().unwrap()]));
        assert!(metered.lines().count() > 1, "{options:?}");
        assert!(read == metered, "{options:?}\n{read}\n{metered}");
    }
    // Times select the flows that start then, as in Parquet files.
    let parquet = folder.path().join("lossy.parquet");
    success(arguments!["read", "-q", "-i", LOSSY, "-o", parquet]);
    let from = |file: &Path| {
        let times = ["--from", "2026-01-01T00:00:05", "--to", "2026-01-01T00:00:09"];
        let options = times.into_iter().chain(["--fields", "start_time,src_ip,bytes", "-o", "csv:-"]);
        success(arguments!["read", "-q", file].into_iter().chain(options.map(AsRef::as_ref)))
    };
    let [of_file, of_parquet] = [from(&file), from(&parquet)];
    let lines = |text: &str| text.lines().map(String::from).collect::<BTreeSet<_>>();
    assert!(lines(&of_file) == lines(&of_parquet) && of_file.lines().count() > 10, "{of_file}\n{of_parquet}");
    // Full records do not have the number of answers, so that a view has no mean of response times.
    fs::remove_file(&file).unwrap();
    let file = lossy(folder.path(), "", &[]);
    let (code, out, err) = weir(arguments!["read", "-q", file, "--by", "protocol", "-o", "csv:-"]);
    assert!(code == 0 && err.contains("these numbers of a view are not known"), "{err}");
    let column = out.lines().next().unwrap().split(',').position(|name| name == "response_mean_ns").unwrap();
    assert!(out.lines().skip(1).all(|line| line.split(',').nth(column) == Some("")), "{out}");
}

#[test]
fn the_ledger_has_the_packets_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (code, err, metered) = ledger_of(arguments!["read", "-q", "-i", LOSSY, "-o", "csv:/dev/null"]);
    assert_eq!(code, 0, "{err}");
    for (options, is_uniflow) in [(&[][..], false), (&["--uniflow"], true)] {
        let file = lossy(folder.path(), "", options);
        let copy = folder.path().join("copy.ipfix");
        let (code, err, read) = ledger_of(arguments!["read", "-q", file, "-o", copy, "--overwrite"]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(read["balanced"], true);
        for at in ["/packets/received", "/bytes/received"] {
            assert_eq!(read.pointer(at), metered.pointer(at), "{at}");
        }
        let [flows, expected] = [&read, &metered].map(|ledger| number(&ledger["flows"]["created"]));
        assert!(if is_uniflow { flows > expected } else { flows == expected }, "{flows} {expected}");
        // The copy has the same flows.
        let table = |file: &Path| success(arguments!["read", "-q", file, "--top", "0"]);
        assert!(table(&file) == table(&copy));
        let (code, _, err) = weir(arguments!["read", "-q", file, "--by", "service_port"]);
        assert_eq!(code == 1 && err.contains("service_port is not known"), is_uniflow, "{err}");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn compressed_files_and_several_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.ipfix", "b.ipfix.gz", "c.ipfix.zst", "d.fix"].map(|name| folder.path().join(name));
    for path in &paths {
        success(arguments!["read", "-q", "-i", LOSSY, "-o", format!("ipfix:{}", path.display())]);
    }
    let csv = |paths: &[&PathBuf]| {
        let paths = paths.iter().map(|path| path.as_os_str());
        success(arguments!["read", "-q", "-o", "csv:-"].into_iter().chain(paths))
    };
    let one = csv(&[&paths[0]]);
    assert!(one.lines().count() > 100);
    for path in &paths[1..] {
        assert!(csv(&[path]) == one, "{}", path.display());
    }
    let other = folder.path().join("flows");
    fs::rename(&paths[3], &other).unwrap();
    assert_eq!(success(arguments!["read", "-q", "-o", "csv:-", format!("ipfix:{}", other.display())]), one);
    let (flows, header) = (one.lines().count() - 1, one.lines().next().unwrap());
    let both = csv(&[&paths[0], &paths[1]]);
    assert_eq!((both.lines().count() - 1, both.lines().next().unwrap()), (2 * flows, header));
    // With a Parquet file: the fields that both have.
    let parquet = folder.path().join("flows.parquet");
    success(arguments!["read", "-q", "-i", LOSSY, "-o", parquet]);
    assert_eq!(csv(&[&parquet, &paths[0]]).lines().count() - 1, 2 * flows);
    // Cut in a frame: the records before are there.
    for path in &paths[1..3] {
        let octets = fs::read(path).unwrap();
        fs::write(path, &octets[..octets.len() - 100]).unwrap();
        let (code, out, err) = weir(arguments!["read", "-q", path, "-o", "csv:-"]);
        assert!(code == 2 && err.contains("cannot be read, or not to its end"), "{code} {err}");
        assert!(out.lines().count() > 1 && out.lines().all(|line| one.contains(line)), "{err}");
    }
}

/// A flow as YAF writes it: both directions, total counts, milliseconds, structured data.
fn of_yaf(folder: &Path) -> PathBuf {
    let fields: [(Field, Vec<u8>); 15] = [
        ((0, 152, 8), 1_700_000_010_000_u64.to_be_bytes().into()),
        ((0, 153, 8), 1_700_000_012_500_u64.to_be_bytes().into()),
        ((0, 85, 8), 600_u64.to_be_bytes().into()),
        ((REVERSE, 85, 8), 900_u64.to_be_bytes().into()),
        ((0, 86, 8), 6_u64.to_be_bytes().into()),
        ((REVERSE, 86, 4), 5_u32.to_be_bytes().into()),
        ((0, 8, 4), vec![192, 0, 2, 1]),
        ((0, 12, 4), vec![192, 0, 2, 2]),
        ((0, 7, 2), vec![0xc0, 0]),
        ((0, 11, 2), vec![0, 80]),
        ((0, 4, 1), vec![6]),
        ((0, 136, 1), vec![3]),
        ((CERT, 21, 4), 30_u32.to_be_bytes().into()),
        ((CERT, 36, VARIABLE), vec![4, b'a', b'b', b'c', b'd']),
        ((0, 293, VARIABLE), vec![255, 0, 9, 255, 0xc0, 3, 0, 8, 1, 2, 3, 4]),
    ];
    let template: Vec<Field> = fields.iter().map(|(field, _)| *field).collect();
    let record: Vec<u8> = fields.into_iter().flat_map(|(_, value)| value).collect();
    write(folder, "yaf.ipfix", &[Message::of(0).template(45_841, &template).set(45_841, &record)])
}

#[test]
fn a_file_of_yaf_has_bidirectional_flows_and_what_it_lacks_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let file = of_yaf(folder.path());
    let json = success(arguments!["read", "-q", file, "-o", "json:-"]);
    let flow: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&flow["src_ip"], &flow["dst_port"]), (&"192.0.2.1".into(), &80.into()));
    assert_eq!((number(&flow["packets"]), number(&flow["bytes"])), (11, 1500));
    assert_eq!((number(&flow["rev_packets"]), number(&flow["duration_ns"])), (5, 2_500_000_000));
    assert_eq!(flow["end_reason"], "end");
    for field in ["l2_bytes", "fwd_tcp_flags", "interface", "sampling_max", "queue_lost"] {
        assert!(flow.get(field).is_none(), "{field}: {json}");
    }
    for (place, arguments) in
        [("--where", ["--where", "interface = 1"]), ("--by", ["--by", "flags"]), ("--sort", ["--sort", "fwd_l2_bytes"])]
    {
        let (code, _, err) =
            weir(arguments!["read", "-q", file].into_iter().chain(arguments.iter().map(AsRef::as_ref)));
        assert!(code == 1 && err.contains(&format!("{place}: ")) && err.contains("is not known"), "{err}");
    }
    // All sinks take it, as they take Parquet files without these columns.
    for sink in ["csv:flows.csv", "ipfix:flows.out.ipfix", "parquet:flows.parquet", "table:flows.txt"] {
        let (kind, name) = sink.split_once(':').unwrap();
        success(arguments!["read", "-q", file, "-o", format!("{kind}:{}", folder.path().join(name).display())]);
    }
    if is_installed("ipfixDump") {
        let output = Command::new("ipfixDump").arg("--in").arg(&file).arg("--data").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("reversePacketTotalCount : 5") && text.contains("192.0.2.2"), "{text}");
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_records_before_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.ipfix");
    let ping = captures().join("vlan.pcap");
    let netflow: Vec<u8> = [&[0, 9, 0, 1][..], &[0; 30]].concat();
    let cases: [(&str, Vec<u8>); 4] = [
        ("this is NetFlow v9, not IPFIX", netflow),
        ("this is a capture of packets (pcap), not IPFIX", fs::read(ping).unwrap()),
        ("this is text, not IPFIX", b"start_time,end_time,src_ip\n1,2,3\n".to_vec()),
        ("is cut off", Message::of(1).template(300, &FLOW).octets()[..30].to_vec()),
    ];
    for (expected, octets) in cases {
        fs::write(&path, octets).unwrap();
        let (code, _, err) = weir(arguments!["read", "-q", path, "-o", "csv:-"]);
        assert!(code == 2 && err.contains(expected), "{expected}: {code} {err}");
    }
    // A run without flows writes an empty file.
    fs::write(&path, "").unwrap();
    let (code, out, err) = weir(arguments!["read", "-q", path, "-o", "csv:-"]);
    assert!(code == 0 && out.lines().count() <= 1 && err.is_empty(), "{code} {out}{err}");
    let whole = [1, 2, 3].map(|packets| Message::of(1).template(300, &FLOW).set(300, &flow(packets)).octets());
    for length in 1..whole[0].len() {
        fs::write(&path, [&whole[0], &whole[1], &whole[2][..length]].concat()).unwrap();
        // Some lengths are enough for the binary; the crate has a test of all.
        if length % 17 != 0 {
            continue;
        }
        let (code, out, err) = weir(arguments!["read", "-q", path, "-o", "csv:-", "--fields", "packets"]);
        assert_eq!((code, &*out), (2, "packets\n1\n2\n"), "{length}: {err}");
    }
    let unknown = Message::of(5).template(256, &[(9999, 1, 4), (9999, 2, 4)]).set(256, &[0; 24]);
    let path = write(folder.path(), "unknown.ipfix", &[unknown]);
    let (code, out, err) = weir(arguments!["read", "-q", path, "-o", "csv:-"]);
    assert!(code == 2 && out.lines().count() <= 1, "{out}");
    assert!(err.contains("3 records without sourceIPv4Address") && err.contains("template 256 of domain 5"), "{err}");
}

#[test]
fn what_files_cannot_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = lossy(folder.path(), "", &[]);
    let file = file.to_str().unwrap();
    let pipe = folder.path().join("pipe.ipfix");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let capture = capture_files().remove(0);
    assert_usage_errors(&[
        (&["read", file, "--filter", "tcp"], "--filter needs packets: stored flows are metered already"),
        (&["read", file, capture.to_str().unwrap()], "flows and packets cannot be read together"),
        (&["read", file, "--where", "application = dns"], "--where: application is not known of the stored flows"),
        (&["read", file, "--sort", "fwd_iat_std_ns"], "--sort: fwd_iat_std_ns is not known of the stored flows"),
        (&["read", file, "-o", &format!("ipfix:{file}")], "is also the input"),
        (&["read", pipe.to_str().unwrap()], "this is no regular file, and flows are read twice"),
        (&["read", "nowhere.ipfix"], "No such file"),
    ]);
}
