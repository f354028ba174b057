//! Stored flows as a source of `weir read`.

use super::{files, json_rows, sink};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use testbed::{
    Pcap, START, arguments, assert_usage_errors, capture_files, ledger_of, number, request_and_response, success, weir,
};

const LOSSY: &str = "synth:lossy,flows=100,packets=40k,ipv6=40%,seed=4";

/// Captures, and traffic of applications and with losses.
fn inputs() -> Vec<Vec<OsString>> {
    let captures = capture_files().into_iter().map(|path| vec![path.into_os_string()]);
    let synth = ["synth:apps,flows=300,packets=20k,seed=3", LOSSY].map(|spec| vec!["-i".into(), spec.into()]);
    captures.chain(synth).collect()
}

/// A store of the lossy traffic.
fn lossy(folder: &Path) -> PathBuf {
    let store = folder.join("store");
    success(arguments!["read", "-q", "-i", LOSSY, "-o", sink(&store, "")]);
    store
}

#[test]
fn stored_flows_have_the_fields_of_metered_ones() {
    let folder = tempfile::tempdir().unwrap();
    for (at, input) in inputs().into_iter().enumerate() {
        let [store, metered, stored] =
            ["store", "json", "again.json"].map(|name| folder.path().join(format!("{at}.{name}")));
        let mut read: Vec<OsString> = ["read", "-q", "--decap", "--layer2", "--dpi-fields"].map(Into::into).into();
        read.extend(input.clone());
        read.extend(["-o", &sink(&store, "?fields=all"), "-o"].map(Into::into));
        read.push(format!("json:{}?fields=all", metered.display()).into());
        let (code, _, err) = weir(&read);
        assert!(matches!(code, 0 | 2), "{input:?}: {err}");
        let (code, _, err) =
            weir(arguments!["read", "-q", store, "--fields", "all", "-o", format!("json:{}", stored.display())]);
        assert!(code == 0 && err.contains("the stored flows do not have these"), "{input:?}: {err}");
        let stored = json_rows(&stored);
        let known: BTreeSet<&String> = stored[0].keys().collect();
        assert!(known.len() > 200, "{}", known.len());
        let mut expected = json_rows(&metered);
        expected.iter_mut().for_each(|row| row.retain(|name, _| known.contains(name)));
        expected.sort_by_cached_key(|row| format!("{row:?}"));
        assert!(stored == expected, "{input:?}");
    }
}

#[test]
fn views_conditions_and_orders_of_stored_flows_are_those_of_metered_ones() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    success(arguments!["store", "-q", store, "--compact"]);
    let options: [&[&str]; 8] = [
        &["--by", "host", "-o", "json:-"],
        &["--by", "src_ip/24,service_port", "--sort", "retransmission", "-o", "csv:-"],
        &["--by", "server_ip,vlan,flags,ip_version", "-o", "csv:-"],
        &["--every", "1s", "-o", "csv:-"],
        &["--sort", "rtt", "--top", "7", "--fields", "src_ip,dst_ip,rtt,response,retransmitted_share,bps"],
        &["--where", "bytes > 10k and retransmitted > 0", "--top", "9"],
        &["--where", "host 198.18.0.0 and bytes > 1000", "--by", "protocol,application"],
        &["--uniflow", "--by", "dst_ip", "-o", "csv:-"],
    ];
    for options in options {
        let metered =
            success(arguments!["read", "-q", "-i", LOSSY].into_iter().chain(options.iter().map(AsRef::as_ref)));
        let stored = success(arguments!["read", "-q", store].into_iter().chain(options.iter().map(AsRef::as_ref)));
        assert!(metered.lines().count() > 1, "{options:?}");
        assert_eq!(stored, metered, "{options:?}");
    }
    let text = success(arguments!["read", store, "--top", "1"]);
    assert!(text.contains("packets    40000 in stored flows"), "{text}");
}

#[test]
fn the_ledger_has_the_packets_of_stored_flows() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    let copy = sink(&folder.path().join("copy"), "");
    let where_ = "port 443";
    let (code, err, metered) =
        ledger_of(arguments!["read", "-q", "-i", LOSSY, "-o", "csv:/dev/null", "--where", where_]);
    assert_eq!(code, 0, "{err}");
    let (code, err, stored) = ledger_of(arguments!["read", "-q", store, "-o", copy, "--where", where_]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(stored["balanced"], true);
    for at in ["/packets/received", "/bytes/received", "/flows/created", "/flows/exported", "/flows/filtered"] {
        assert_eq!(stored.pointer(at), metered.pointer(at), "{at}");
    }
    let read_again = success(arguments!["read", "-q", folder.path().join("copy"), "--top", "0"]);
    assert_eq!(read_again, success(arguments!["read", "-q", store, "--top", "0", "--where", where_]));
}

#[test]
fn records_of_templates_have_the_elements_that_were_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    let fields = "start_time,end_time,src_ip,dst_ip,src_port,dst_port,protocol_number,packets,bytes,fwd_tcp_retransmitted_packets,\
                  fwd_tcp_handshake_rtt_ns,end_reason";
    let records = |input: &[&str], name: &str, settings: &str| {
        let path = folder.path().join(name);
        let output = format!("ipfix:{}{settings}", path.display());
        success(["read", "-q"].iter().chain(input).chain(&["-o", &output]));
        let mut records = testbed::decode::Decoder::new().file(&fs::read(path).unwrap());
        records.sort_by_cached_key(|record| format!("{record:?}"));
        records
    };
    let store = store.to_str().unwrap();
    let selected = format!("?fields={fields}");
    let stored = records(&[store], "stored.ipfix", &selected);
    assert_eq!(stored, records(&["-i", LOSSY], "metered.ipfix", &selected));
    // By default, none that the store does not have.
    let names: BTreeSet<String> =
        records(&[store], "all.ipfix", "").into_iter().flat_map(|record| record.into_keys()).collect();
    assert!(names.contains("tcpHandshakeRoundTrip") && names.contains("reverse packetDeltaCount"), "{names:?}");
    assert!(!names.contains("ipClassOfService") && !names.contains("minimumTTL"), "{names:?}");
}

#[test]
fn damaged_files_are_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for seed in 1..=3 {
        let traffic = format!("synth:mix,flows=100,packets=2k,seed={seed}");
        success(arguments!["read", "-q", "-i", traffic, "-o", sink(&store, "")]);
    }
    let paths = files(&store);
    let rows = |paths: &[PathBuf]| super::rows_of(paths).len() as u64;
    let whole = fs::read(&paths[1]).unwrap();
    let mut middle = whole.clone();
    middle[whole.len() / 3..whole.len() / 2].fill(0xa5);
    for octets in [&whole[..whole.len() / 2], &middle, b""] {
        fs::write(&paths[1], octets).unwrap();
        let (code, err, ledger) = ledger_of(arguments!["read", "-q", store, "-o", "csv:/dev/null"]);
        assert!(code == 2 && err.contains(&*paths[1].to_string_lossy()), "{code} {err}");
        let others = rows(&[paths[0].clone(), paths[2].clone()]);
        let read = number(&ledger["flows"]["created"]);
        assert!(ledger["balanced"] == true && (others..others + 500).contains(&read), "{ledger}");
    }
}

#[test]
fn single_files_are_read_and_columns_that_only_some_have_are_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let [all, some] = ["all.parquet", "some.parquet"].map(|name| folder.path().join(name));
    success(arguments!["read", "-q", "-i", LOSSY, "-o", all]);
    success(arguments!["read", "-q", "-i", LOSSY, "-o", some, "--fields", "basic"]);
    let (code, _, err) = weir(arguments!["read", "-q", all, some, "--where", "retransmitted > 0"]);
    assert!(code == 1 && err.contains("--where: the stored flows have no retransmitted"), "{err}");
    let flows = |paths: &[&PathBuf]| {
        let paths = paths.iter().map(|path| path.as_os_str());
        let json = success(arguments!["read", "-q", "-o", "json:-"].into_iter().chain(paths));
        json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let both = flows(&[&all, &some]);
    let mut each = [flows(&[&all]), flows(&[&some])].concat();
    // Without the types of ICMP, Community IDs are not known.
    each.iter_mut().for_each(|flow| drop(flow.as_object_mut().unwrap().remove("community_id")));
    assert!(both == each, "{} and {} flows", both.len(), each.len());
    // A view says that it has no TCP analysis.
    let (code, _, err) = weir(arguments!["read", "-q", some, "--by", "protocol"]);
    assert!(code == 0 && err.contains("the stored flows have no TCP analysis"), "{err}");
}

#[test]
fn what_stored_flows_cannot_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    let store = store.to_str().unwrap();
    let few = folder.path().join("few.parquet");
    let few = few.to_str().unwrap();
    success(["read", "-q", "-i", LOSSY, "-o", few, "--fields", "src_ip,dst_ip,bytes"]);
    let capture = capture_files().remove(0);
    let same = sink(Path::new(store), "");
    assert_usage_errors(&[
        (&["read", store, "--filter", "tcp"], "--filter needs packets: stored flows are metered already"),
        (&["read", store, "--idle", "5s"], "--idle needs packets"),
        (&["read", store, "--dpi", "off"], "--dpi needs packets"),
        (&["read", store, "-o", "packets:x"], "-o packets:FILE needs packets"),
        (&["read", store, capture.to_str().unwrap()], "flows and packets cannot be read together"),
        (&["read", store, "--where", "fwd_ttl_min > 5"], "--where: the stored flows have no fwd_ttl_min"),
        (&["read", store, "--by", "tunnel"], "--by: the stored flows have no tunnel"),
        (&["read", store, "--sort", "fwd_iat_max_ns"], "--sort: the stored flows have no fwd_iat_max_ns"),
        (&["read", store, "-o", "csv:-?fields=fwd_tos"], "the stored flows have no fwd_tos"),
        (&["read", store, "-o", "netflow5+udp://127.0.0.1:9"], "type of service"),
        (&["read", store, "-o", &same], "is also the input"),
        (&["read", few], "records without the column start_time cannot be read as flows"),
        (&["read", folder.path().to_str().unwrap()], "is no store of Weir"),
        (&["read", "nowhere.parquet"], "No such file"),
        (&["tcp", store], "is a directory"),
    ]);
}

#[test]
fn times_limit_the_stored_flows_and_the_packets_that_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let hours = (0..30_u32).fold(Pcap::new(), |capture, hour| {
        let frames = request_and_response(hour as u16);
        frames.iter().fold(capture, |capture, frame| capture.frame(START + 3600 * hour, 0, frame))
    });
    let capture = hours.save(folder.path(), "hours.pcap");
    success(arguments!["read", "-q", capture, "-o", sink(&store, "")]);
    let time = |hour: i64| {
        let time = jiff::Timestamp::from_second(i64::from(START) + 3600 * hour).unwrap();
        time.strftime("%Y-%m-%dT%H:%M:%S").to_string()
    };
    let ports = |input: &Path, options: &[&str]| {
        let options = options.iter().map(AsRef::as_ref);
        let csv =
            success(arguments!["read", "-q", input, "-o", "csv:-", "--fields", "src_port"].into_iter().chain(options));
        let ports: Vec<u16> = csv.lines().skip(1).map(|port| port.parse().unwrap()).collect();
        ports.len()
    };
    for input in [&store, &capture] {
        assert_eq!(ports(input, &[]), 30);
        assert_eq!(ports(input, &["--from", &time(5), "--to", &time(9)]), 5);
        assert_eq!(ports(input, &["--from", &time(29)]), 1);
        assert_eq!(ports(input, &["--to", &time(0)]), 1);
        assert_eq!(ports(input, &["--from", "-2h"]), 0);
        assert_eq!(ports(input, &["--to", "00:00:01"]), 30);
    }
    let (code, err, ledger) = ledger_of(arguments!["read", "-q", capture, "--from", time(20), "-o", "csv:/dev/null"]);
    assert_eq!(
        (code, number(&ledger["packets"]["filtered"]), number(&ledger["packets"]["metered"])),
        (0, 40, 20),
        "{err}"
    );
    let store = store.to_str().unwrap();
    assert_usage_errors(&[
        (&["read", store, "--from", &time(2), "--to", &time(1)], "--from is later than --to"),
        (&["read", store, "--from", "noon"], "not a time"),
    ]);
}
