//! Stored flows as a source of `weir read`.

use super::{files, json_rows, sink};
use parquet::basic::Type;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use testbed::{
    Pcap, START, arguments, assert_usage_errors, capture_files, captures, command, is_root, ledger_of, number,
    permit_all_users, request_and_response, success, text_of, weir,
};

const LOSSY: &str = "synth:lossy,flows=100,packets=40k,ipv6=40%,seed=4";
const APPLICATIONS: &str = "synth:apps,flows=300,packets=20k,seed=3";

/// Captures, and traffic of applications and with losses.
fn inputs() -> Vec<Vec<OsString>> {
    let captures = capture_files().into_iter().map(|path| vec![path.into_os_string()]);
    let synth = [APPLICATIONS, LOSSY].map(|spec| vec!["-i".into(), spec.into()]);
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
fn each_field_alone_has_the_values_that_it_has_beside_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let inputs =
        [&["-i", "synth:apps,flows=40,packets=3k,seed=3"][..], &["-i", "synth:lossy,flows=10,packets=2k,seed=4"]];
    let ping = captures().join("ping.pcap.zst");
    let inputs = inputs.into_iter().map(<[_]>::to_vec).chain([vec![ping.to_str().unwrap()]]);
    for (at, input) in inputs.enumerate() {
        let store = folder.path().join(at.to_string());
        let all = format!("parquet:{}?fields=all", store.display());
        success(["read", "-q", "--dpi-fields", "--mac-addresses", "-o", &all].iter().chain(&input));
        let store = store.to_str().unwrap();
        let rows = |fields: &str| -> Vec<Value> {
            let (code, out, err) = weir(["read", "-q", store, "-o", "json:-", "--fields", fields]);
            assert_eq!(code, 0, "{fields}: {err}");
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let all = rows("all");
        for name in all[0].as_object().unwrap().keys().filter(|name| !name.starts_with("rev_")) {
            let beside: Vec<&Value> = all.iter().map(|row| &row[name]).collect();
            let alone = rows(name);
            assert!(alone.iter().map(|row| &row[name]).eq(beside), "{name}");
        }
    }
}

#[test]
fn views_conditions_and_orders_of_stored_flows_are_those_of_metered_ones() {
    let options: [&[&str]; 12] = [
        &["--every", "500ms", "--by", "server_ip", "-o", "json:-"],
        &["--by", "host", "-o", "json:-"],
        &["--by", "src_ip/24,service_port", "--sort", "retransmission", "-o", "csv:-"],
        &["--by", "server_ip,vlan,flags,ip_version", "-o", "csv:-"],
        &["--every", "1s", "-o", "csv:-"],
        &["--sort", "rtt", "--top", "7", "--fields", "src_ip,dst_ip,rtt,response,retransmitted_share,bps"],
        &["--where", "bytes > 10k and retransmitted > 0", "--top", "9"],
        &["--where", "host 198.18.0.0 and bytes > 1000", "--by", "protocol,application"],
        &["--uniflow", "--by", "dst_ip", "-o", "csv:-"],
        &["--by", "protocol", "--count", "hosts,ports", "-o", "csv:-"],
        &["--by", "client_ip", "--count", "hosts", "-o", "csv:-"],
        &["--by", "host", "--count", "hosts,application", "-o", "csv:-"],
    ];
    for (at, traffic) in [LOSSY, APPLICATIONS].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        success(arguments!["read", "-q", "-i", traffic, "-o", sink(&store, "")]);
        success(arguments!["store", "-q", store, "--compact"]);
        for options in options {
            let run = |input: &[&str]| success(["read", "-q"].iter().chain(input).chain(options));
            let (metered, stored) = (run(&["-i", traffic]), run(&[store.to_str().unwrap()]));
            assert!(at > 0 || metered.lines().count() > 1, "{options:?}");
            assert!(stored == metered, "{traffic} {options:?}\n{stored}\n{metered}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let text = success(arguments!["read", lossy(folder.path()), "--top", "1"]);
    assert!(text.contains("packets    40000 in stored flows"), "{text}");
}

#[test]
fn conditions_select_the_same_of_stored_flows_as_of_metered_ones() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    success(arguments!["read", "-q", "-i", LOSSY, "-i", APPLICATIONS, "-o", sink(&store, "")]);
    success(arguments!["store", "-q", store, "--compact"]);
    let fields = ["--fields", "start_time,src_ip,src_port,dst_ip,dst_port,protocol,fwd_bytes,rev_bytes,sni"];
    let select = |input: &[&str], condition: &str| {
        let (code, out, err) = weir(["read", "--where", condition, "-o", "json:-"].iter().chain(input).chain(&fields));
        assert_eq!(code, 0, "{condition}: {err}");
        let mut rows: Vec<String> = out.lines().map(str::to_owned).collect();
        rows.sort_unstable();
        (rows, err)
    };
    let (all, _) = select(&[store.to_str().unwrap()], "packets > 0");
    let address: Value = serde_json::from_str(&all[all.len() / 2]).unwrap();
    let [source, start] = ["src_ip", "start_time"].map(|name| address[name].as_str().unwrap());
    let of_address = [
        format!("src_ip == {source}"),
        format!("not src_ip == {source}"),
        format!("src_ip != {source}"),
        format!("dst host {source} or src host {source}"),
        format!("not (dst_ip != {source} or src_port > 1)"),
        format!("start_time < {start}"),
        format!("not start_time <= {start}"),
        format!("start_time == {start}"),
    ];
    let others = [
        "host 192.0.2.77",
        "not host 192.0.2.77",
        "host in {10.0.0.0/8, 2001:db8::/32}",
        "port 443 and packets > 20",
        "not port 443",
        "port in {53, 80} or fwd_tcp_retransmitted_packets > 0",
        "dst_port == 65000",
        "src_port != 443 and not protocol tcp",
        "fwd_bytes > 4G",
        "fwd_tcp_retransmitted_packets == 0",
        "not fwd_tcp_retransmitted_packets == 0",
        "sni",
    ];
    for condition in of_address.iter().map(String::as_str).chain(others) {
        let (metered, _) = select(&["-i", LOSSY, "-i", APPLICATIONS], condition);
        let (stored, summary) = select(&[store.to_str().unwrap()], condition);
        assert!(stored == metered, "{condition}: {} and {}", stored.len(), metered.len());
        let selected = format!("flows      {} of {} in the files that were read", stored.len(), all.len());
        assert!(
            stored.len() == all.len() || stored.is_empty() || summary.contains(&selected),
            "{condition}: {summary}"
        );
    }
}

/// A Parquet file whose values are overwritten: its index and its Bloom filters stay.
fn without_values(folder: &Path) -> PathBuf {
    let path = folder.join("flows.parquet");
    success(arguments!["read", "-q", "-i", LOSSY, "-o", format!("parquet:{}?fields=store", path.display())]);
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let mut octets = fs::read(&path).unwrap();
    for group in reader.metadata().row_groups() {
        for column in group.columns() {
            let (first, length) = column.byte_range();
            octets[first as usize..][..length as usize].fill(0xff);
        }
    }
    fs::write(&path, octets).unwrap();
    path
}

#[test]
fn what_the_index_of_a_file_rules_out_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = without_values(folder.path());
    let read = |options: &[&str]| weir([&["read", file.to_str().unwrap()], options].concat());
    for condition in [
        // Between the addresses of the file in the order of their texts: only the Bloom filter says that it is not there.
        "src_ip == 198.18.0.250",
        "host 203.0.113.9 or dst_ip == 0.0.0.1",
        "dst_port == 1",
        "packets > 0 and fwd_packets > 1M",
        "not (dst_port != 1 or port != 2) and host 192.0.2.1",
        "start_time < 2001-01-01",
        "fwd_tcp_retransmitted_packets > 1G",
    ] {
        let (code, _, err) = read(&["--where", condition]);
        assert_eq!(code, 0, "{condition}: {err}");
    }
    let (code, _, err) = read(&["--from", "2001-01-01", "--to", "2001-01-02"]);
    assert_eq!(code, 0, "{err}");
    for condition in ["packets > 0", "not dst_port == 1", "dst_port != 1", "fwd_packets < 1M", "host 203.0.113.0/24"] {
        let (code, _, err) = read(&["--where", condition]);
        assert!(code == 2 && err.contains("cannot be read, or not to its end"), "{condition}: {err}");
    }
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
    let ping = captures().join("ping.pcap.zst");
    let icmp = folder.path().join("icmp");
    success(arguments!["read", "-q", ping, "-o", sink(&icmp, "")]);
    let type_and_code = |input: &Path| {
        let records =
            records(&[input.to_str().unwrap()], "icmp.ipfix", "?fields=src_ip,icmpTypeCodeIPv4,icmpTypeCodeIPv6");
        fs::remove_file(folder.path().join("icmp.ipfix")).unwrap();
        records
    };
    assert_eq!(type_and_code(&icmp), type_and_code(&ping));
    assert!(type_and_code(&icmp).len() > 1);
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
    assert!(code == 1 && err.contains("--where: retransmitted is not known of the stored flows"), "{err}");
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
    assert!(code == 0 && err.contains("these numbers of a view are not known of the stored flows"), "{err}");
}

#[test]
fn what_stored_flows_cannot_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    let store = store.to_str().unwrap();
    let few = folder.path().join("few.parquet");
    let few = few.to_str().unwrap();
    success(["read", "-q", "-i", LOSSY, "-o", few, "--fields", "src_ip,dst_ip,bytes"]);
    let [uniflow, some] = ["uniflow", "some"].map(|name| folder.path().join(format!("{name}.parquet")));
    let [uniflow, some] = [&uniflow, &some].map(|path| path.to_str().unwrap());
    success(["read", "-q", "-i", LOSSY, "-o", uniflow, "--uniflow"]);
    success(["read", "-q", "-i", LOSSY, "-o", some, "--fields", "basic,*_tcp_response_count"]);
    let link = folder.path().join("link");
    symlink(store, &link).unwrap();
    let (link, file) = (link.to_str().unwrap(), files(Path::new(store)).remove(0));
    let file = file.to_str().unwrap().to_owned();
    let capture = capture_files().remove(0);
    let same = sink(Path::new(store), "");
    assert_usage_errors(&[
        (&["read", store, "--filter", "tcp"], "--filter needs packets: stored flows are metered already"),
        (&["read", store, "--idle", "5s"], "--idle needs packets"),
        (&["read", store, "--dpi", "off"], "--dpi needs packets"),
        (&["read", store, "-o", "packets:x"], "-o packets:FILE needs packets"),
        (&["read", store, capture.to_str().unwrap()], "flows and packets cannot be read together"),
        (&["read", store, "--where", "fwd_ttl_min > 5"], "--where: fwd_ttl_min is not known of the stored flows"),
        (&["read", store, "--by", "tunnel"], "--by: tunnel is not known of the stored flows"),
        (&["read", store, "--sort", "fwd_iat_max_ns"], "--sort: fwd_iat_max_ns is not known of the stored flows"),
        (&["read", store, "-o", "csv:-?fields=fwd_tos"], "fwd_tos is not known of the stored flows"),
        (&["read", store, "-o", "netflow5+udp://127.0.0.1:9"], "type of service"),
        (&["read", store, "-o", &same], "is also the input"),
        (&["read", store, "-o", &format!("{same}/within")], "is also the input"),
        (&["read", store, "-o", &format!("{store}/flows.csv")], "is also the input"),
        (&["read", link, "-o", &same], "is also the input"),
        (&["read", &file, "-o", &same], "is also the input"),
        (&["read", uniflow, "--by", "service_port"], "--by: service_port is not known of the stored flows"),
        (&["read", few, "-o", "ipfix:x?fields=minimumTTL"], "without the column"),
        (&["read", store, "-o", "ipfix:x?fields=minimumTTL"], "IPFIX has no element"),
        (&["read", some, "--by", "host", "--sort", "rtt"], "rtt_mean_ns is not known of the stored flows"),
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

#[test]
fn an_hour_that_is_replaced_while_it_is_read_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for seed in 1..=3 {
        // More than pipes and queues hold.
        let traffic = format!("synth:mix,flows=4k,packets=100k,seed={seed}");
        success(arguments!["read", "-q", "-i", traffic, "-o", sink(&store, "")]);
    }
    let hours: Vec<Pcap> = (0..4_u32)
        .map(|hour| {
            let frames = request_and_response(hour as u16);
            frames.iter().fold(Pcap::new(), |capture, frame| capture.frame(START + 3600 * hour, 0, frame))
        })
        .collect();
    for capture in hours.iter().chain(&hours) {
        success(arguments!["read", "-q", capture.saved().name(), "-o", sink(&store, "")]);
    }
    let expected = super::rows_of(&files(&store)).len();
    let mut read = command();
    read.args(arguments!["read", "-q", store, "-o", "csv:-"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut read = read.spawn().unwrap();
    let mut first = [0; 100];
    let mut out = read.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    // It waits for the pipe, and the files that it has listed are replaced.
    success(arguments!["store", "-q", store, "--compact"]);
    let mut text = first.to_vec();
    out.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let output = read.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert_eq!(text.lines().count() - 1, expected, "{err}");
}

#[test]
fn what_is_none_of_the_store_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    let day = files(&store)[0].ancestors().nth(2).unwrap().to_owned();
    let moved = folder.path().join("moved");
    fs::rename(&day, &moved).unwrap();
    symlink(&moved, &day).unwrap();
    let (code, _, err) = weir(arguments!["read", "-q", store, "--top", "1"]);
    assert!(code == 0 && err.contains(&*day.to_string_lossy()) && err.contains("none of it"), "{err}");
}

/// Copies a Parquet file, and changes one column on the way.
pub fn copy_with(from: &Path, to: &Path, changed: &str, mut change: impl FnMut(&mut Changed)) {
    let reader = SerializedFileReader::new(File::open(from).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata();
    let properties = WriterProperties::builder().set_key_value_metadata(metadata.key_value_metadata().cloned());
    let root = Arc::new(metadata.schema().clone());
    let mut writer = SerializedFileWriter::new(File::create(to).unwrap(), root, properties.build().into()).unwrap();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).unwrap();
        let rows = group.metadata().num_rows() as usize;
        let mut copy = writer.next_row_group().unwrap();
        for at in 0..group.num_columns() {
            let is_changed = group.metadata().column(at).column_descr().name() == changed;
            let mut column = copy.next_column().unwrap().unwrap();
            macro_rules! copy_of {
                ($kind:ty, $values:ident, $present:ident => $changed:expr) => {{
                    let (mut $present, mut $values) = (Vec::new(), Vec::new());
                    let mut of = get_typed_column_reader::<$kind>(group.get_column_reader(at).unwrap());
                    of.read_records(rows, Some(&mut $present), None, &mut $values).unwrap();
                    if is_changed {
                        change(&mut $changed);
                    }
                    column.typed::<$kind>().write_batch(&$values, Some(&$present), None).unwrap();
                }};
            }
            match group.metadata().column(at).column_type() {
                Type::INT32 => copy_of!(Int32Type, values, present => Changed::Rest(&mut values)),
                Type::INT64 => copy_of!(Int64Type, values, present => Changed::Integers(&mut values, &mut present)),
                Type::DOUBLE => copy_of!(DoubleType, values, present => Changed::Numbers(&mut values)),
                _ => copy_of!(ByteArrayType, values, present => Changed::Texts(&mut values)),
            }
            column.close().unwrap();
        }
        copy.close().unwrap();
    }
    writer.close().unwrap();
}

/// Copies a Parquet file into row groups of a few rows.
pub fn split_groups(from: &Path, to: &Path, most: usize) {
    let reader = SerializedFileReader::new(File::open(from).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata();
    let properties = WriterProperties::builder().set_key_value_metadata(metadata.key_value_metadata().cloned());
    let root = Arc::new(metadata.schema().clone());
    let mut writer = SerializedFileWriter::new(File::create(to).unwrap(), root, properties.build().into()).unwrap();
    let group = reader.get_row_group(0).unwrap();
    let rows = group.metadata().num_rows() as usize;
    assert!(reader.num_row_groups() == 1 && rows > most, "{rows}");
    for first in (0..rows).step_by(most) {
        let mut part = writer.next_row_group().unwrap();
        for at in 0..group.num_columns() {
            let mut column = part.next_column().unwrap().unwrap();
            macro_rules! part_of {
                ($kind:ty) => {{
                    let (mut present, mut values) = (Vec::new(), Vec::new());
                    let mut of = get_typed_column_reader::<$kind>(group.get_column_reader(at).unwrap());
                    of.read_records(rows, Some(&mut present), None, &mut values).unwrap();
                    let values_of = |rows: &[i16]| rows.iter().filter(|level| **level > 0).count();
                    let before = values_of(&present[..first]);
                    let present = &present[first..rows.min(first + most)];
                    let values = &values[before..][..values_of(present)];
                    column.typed::<$kind>().write_batch(values, Some(present), None).unwrap();
                }};
            }
            match group.metadata().column(at).column_type() {
                Type::INT32 => part_of!(Int32Type),
                Type::INT64 => part_of!(Int64Type),
                Type::DOUBLE => part_of!(DoubleType),
                _ => part_of!(ByteArrayType),
            }
            column.close().unwrap();
        }
        part.close().unwrap();
    }
    writer.close().unwrap();
}

/// The values of a column; of integers also 1 for each row that has one.
pub enum Changed<'a> {
    Rest(&'a mut Vec<i32>),
    Integers(&'a mut Vec<i64>, &'a mut Vec<i16>),
    Numbers(&'a mut Vec<f64>),
    Texts(&'a mut Vec<ByteArray>),
}

type Change = Box<dyn FnMut(&mut Changed)>;

#[test]
fn values_that_no_flow_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [valid, hostile] = ["valid.parquet", "hostile.parquet"].map(|name| folder.path().join(name));
    success(arguments!["read", "-q", "-i", LOSSY, "-o", valid]);
    let read = |column: &str, change: &mut dyn FnMut(&mut Changed)| {
        copy_with(&valid, &hostile, column, change);
        weir(arguments!["read", "-q", hostile, "-o", "csv:-", "--fields", "all"])
    };
    let (code, out, err) = read("", &mut |_| {});
    let (_, expected, _) = weir(arguments!["read", "-q", valid, "-o", "csv:-", "--fields", "all"]);
    assert!(code == 0 && out == expected && out.lines().count() > 100, "{err}");
    let integer = |number: i64| {
        move |of: &mut Changed| {
            if let Changed::Integers(values, _) = of { values[3] = number } else { panic!("other type") }
        }
    };
    let text = |text: &'static str| {
        move |of: &mut Changed| {
            if let Changed::Texts(values) = of { values[3] = text.into() } else { panic!("other type") }
        }
    };
    let null = |of: &mut Changed| {
        let Changed::Integers(values, present) = of else { panic!("other type") };
        values.remove(3);
        present[3] = 0;
    };
    let rest = |of: &mut Changed| if let Changed::Rest(values) = of { values[3] = 5000 } else { panic!("other type") };
    let mean = |of: &mut Changed| {
        if let Changed::Numbers(values) = of { values[3] = f64::NAN } else { panic!("other type") }
    };
    let cases: [(&str, Change, &str); 12] = [
        ("start_time", Box::new(null), "the column start_time has rows without a value"),
        ("start_time_ns_rest", Box::new(rest), "the column start_time has an invalid value"),
        ("end_time", Box::new(integer(1)), "a row is no flow"),
        ("fwd_packets", Box::new(null), "the column fwd_packets has rows without a value"),
        ("fwd_bytes", Box::new(integer(-1)), "the column fwd_bytes has an invalid value"),
        ("src_port", Box::new(integer(70_000)), "the column src_port has an invalid value"),
        ("sampling_max", Box::new(integer(0)), "the column sampling_max has an invalid value"),
        ("src_ip", Box::new(text("192.0.2.256")), "the column src_ip has an invalid value"),
        ("protocol", Box::new(text("tpc")), "the column protocol has an invalid value"),
        ("fwd_tcp_flags", Box::new(text("S?")), "the column fwd_tcp_flags has an invalid value"),
        ("end_reason", Box::new(text("bored")), "the column end_reason has an invalid value"),
        ("rev_tcp_response_mean_ns", Box::new(mean), "the column rev_tcp_response_mean_ns has an invalid value"),
    ];
    for (column, mut change, reason) in cases {
        let (code, _, err) = read(column, &mut change);
        assert!(code == 2 && err.contains(reason), "{column}: {code} {err}");
    }
}

#[test]
fn directions_and_flows_of_an_hour_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    success(arguments!["read", "-q", "-i", LOSSY, "-o", sink(&store, ""), "--uniflow"]);
    success(arguments!["store", "-q", store, "--compact"]);
    assert_eq!(files(&store).len(), 2);
    let (code, _, err) = weir(arguments!["read", "-q", store, "--by", "service_port"]);
    assert!(code == 1 && err.contains("service_port is not known"), "{err}");
}

#[test]
fn a_folder_that_cannot_be_read_is_named() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can read as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let store = lossy(folder.path());
    let hour = files(&store)[0].parent().unwrap().to_owned();
    fs::set_permissions(&store, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(hour.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&hour, Permissions::from_mode(0o700)).unwrap();
    for arguments in [&arguments!["read", "-q", store, "--top", "1"][..], &arguments!["store", store]] {
        let output = command().args(arguments).uid(65_534).gid(65_534).output().unwrap();
        let (code, _, err) = text_of(&output);
        assert!(
            code == 2 && err.contains(&*hour.to_string_lossy()) && err.contains("Permission denied"),
            "{code} {err}"
        );
    }
}

#[test]
fn countries_and_networks_are_added_to_stored_flows() {
    let folder = tempfile::tempdir().unwrap();
    let store = lossy(folder.path());
    let [geo, networks] = ["geo.mmdb", "networks.csv"].map(|name| folder.path().join(name));
    let country = testbed::mmdb::country("DE");
    fs::write(&geo, testbed::mmdb::Database::of("Country", &[("100.64.0.0/10", country)]).octets()).unwrap();
    fs::write(&networks, "prefix,name,site,role,local\n198.18.0.0/15,bench,lab,test,true\n").unwrap();
    let options = ["--geo", geo.to_str().unwrap(), "--networks", networks.to_str().unwrap()];
    let fields = ["--by", "src_country,dst_network", "--where", "country = DE", "-o", "csv:-"];
    let run = |input: &[&str]| success(["read", "-q"].iter().chain(input).chain(&options).chain(&fields));
    let metered = run(&["-i", LOSSY]);
    assert!(metered.contains("DE,bench"), "{metered}");
    assert_eq!(run(&[store.to_str().unwrap()]), metered);
    // Into another store, as the documents show.
    let enriched = folder.path().join("enriched");
    let enrich = ["-o", &sink(&enriched, "")].map(String::from);
    success(
        ["read", "-q", store.to_str().unwrap()]
            .map(String::from)
            .iter()
            .chain(&options.map(String::from))
            .chain(&enrich),
    );
    assert!(super::rows(&enriched).iter().any(|row| row["src_country"] == "DE" && row["dst_site"] == "lab"));
    let tags = format!("bad={}", folder.path().join("list").display());
    fs::write(folder.path().join("list"), "00112233445566778899aabbccddeeff\n").unwrap();
    let (code, _, err) = weir(arguments!["read", "-q", store, "--tags", tags]);
    assert!(code == 0 && err.contains("fingerprints are not known of stored flows"), "{err}");
}
