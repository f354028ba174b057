//! The fields of records: which columns outputs have, and how programs for data analysis read them.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::{
    arguments, assert_usage_errors, capture_files, captures, failure, is_installed, read_flows, read_ledger, small,
    success, weir,
};

/// The names in the first line.
fn header(csv: &str) -> Vec<&str> {
    csv.lines().next().expect("a header line").split(',').collect()
}

#[test]
fn json_and_csv_have_the_basic_fields_and_those_of_the_flow_key() {
    let capture = small().saved();
    let csv = |options: &[&str]| success([&["read", capture.name(), "-q", "-o", "csv:-"], options].concat());
    let basic = csv(&[]);
    assert_eq!(header(&basic).len(), 27);
    assert_eq!(header(&csv(&["--fields", "basic"])), header(&basic));
    for (options, more) in [
        (&["--layer2"][..], "ethertype src_mac dst_mac"),
        (&["--key", "vlan"], "fwd_vlan_id rev_vlan_id fwd_inner_vlan_id rev_inner_vlan_id"),
    ] {
        let all = csv(options);
        assert_eq!(
            header(&all).into_iter().filter(|name| !header(&basic).contains(name)).collect::<Vec<_>>().join(" "),
            more,
            "{options:?}"
        );
    }
    let json = success(["read", capture.name(), "-q", "-o", "json:-"]);
    let object: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let names: BTreeSet<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, header(&basic).into_iter().collect());
}

#[test]
fn every_sink_may_select_its_fields() {
    let capture = small().saved();
    let [csv, json, ipfix, table] = [("csv", "a.csv"), ("json", "a?.json"), ("ipfix", "a.ipfix"), ("table", "a.txt")]
        .map(|(scheme, name)| (scheme, capture.beside(name)));
    let sink =
        |(scheme, path): &(&str, std::path::PathBuf), fields: &str| format!("{scheme}:{}{fields}", path.display());
    success(arguments![
        "read",
        capture,
        "-q",
        "--fields",
        "dst_port,src_*p*,dst_port",
        "-o",
        sink(&csv, ""),
        "-o",
        sink(&json, "?fields=packets,rev_bytes"),
        "-o",
        sink(&ipfix, "?fields=src_ip,packets,tcpHandshakeRoundTrip"),
        "-o",
        sink(&table, "?fields=dst_ip,protocol,bytes"),
    ]);
    let text = std::fs::read_to_string(&csv.1).unwrap();
    assert_eq!(header(&text), ["dst_port", "src_ip", "src_port"], "in the order of the selection, once");
    for flow in read_flows(&json.1) {
        assert_eq!(flow.as_object().unwrap().keys().collect::<Vec<_>>(), ["packets", "rev_bytes"]);
    }
    let allowed = [
        "sourceIPv4Address",
        "packetDeltaCount",
        "reverse packetDeltaCount",
        "tcpHandshakeRoundTrip",
        "reverseTcpHandshakeRoundTrip",
    ];
    let records = testbed::decode::Decoder::new().file(&std::fs::read(&ipfix.1).unwrap());
    assert_eq!(records.len(), 3);
    for record in records {
        assert!(record.keys().all(|name| allowed.contains(&name.as_str())), "{record:?}");
        assert!(record.contains_key("sourceIPv4Address") && record.contains_key("packetDeltaCount"), "{record:?}");
    }
    let table = std::fs::read_to_string(&table.1).unwrap();
    assert_eq!(table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["dst_ip", "protocol", "bytes"]);
    let table = success(["read", capture.name(), "-q", "--fields", "packets,dst_port"]);
    assert_eq!(table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["packets", "dst_port"]);
}

#[test]
fn times_in_a_table_of_fields_have_their_units() {
    let web = testbed::captures().join("web.pcap");
    let web = web.to_str().unwrap();
    let table = success(["read", web, "-q", "--fields", "src_port,rtt,duration_ns", "--where", "rtt", "--top", "1"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(row[1..].iter().all(|time| time.ends_with("µs") || time.ends_with("ms")), "{table}");
    let usual = success(["read", web, "-q", "--where", "rtt", "--top", "1"]);
    assert!(usual.contains(&format!(" {} ", row[2])), "{usual}{table}");
}

#[test]
fn flows_without_ip_are_called_so_among_protocols() {
    let arp = testbed::captures().join("layer2.pcap");
    let table = success(["read", arp.to_str().unwrap(), "-q", "--layer2", "--by", "protocol"]);
    assert!(table.lines().any(|line| line.trim_start().starts_with("no IP ")) && !table.contains("\n- "), "{table}");
}

#[test]
fn fields_that_do_not_exist_are_refused_with_a_near_match() {
    let capture = small().saved();
    let name = capture.name();
    assert_usage_errors(&[
        (&["read", name, "--fields", "start"], "there is no field \"start\" (did you mean start_time?)"),
        (&["read", name, "--fields", "basic,fwd_packet"], "did you mean fwd_packets?"),
        (&["read", name, "--fields", "*_mos"], "no field matches \"*_mos\""),
        (&["fields", "rev_*,dest_ip"], "did you mean dst_ip?"),
    ]);
    for (sink, expected) in [
        ("csv:-?fields=scr_ip", "there is no field \"scr_ip\" (did you mean src_ip?)"),
        ("table:-?fields=scr_ip", "there is no field \"scr_ip\" (did you mean src_ip?)"),
        ("json:-?field=src_ip", "\"field=src_ip\" is not a setting of a file"),
        ("ipfix+udp://127.0.0.1?fields=scr_ip", "there is no field or element \"scr_ip\" (did you mean src_ip?)"),
        ("netflow9+udp://127.0.0.1?fields=community_id", "NetFlow v9 has no element for \"community_id\""),
        ("netflow5+udp://127.0.0.1?fields=src_ip", "NetFlow v5 has no templates"),
    ] {
        let err = failure(1, ["read", name, "-o", sink]);
        assert!(err.contains(expected), "{sink}: {err}");
        let err = failure(1, ["probe", "-i", "synth:mix,packets=9", "-o", sink, "--check"]);
        assert!(err.contains(expected), "{sink}: {err}");
    }
}

#[test]
fn case_does_not_matter_and_the_heading_app_is_a_name() {
    let capture = small().saved();
    let csv = |fields: &str| success(["read", capture.name(), "-q", "-o", "csv:-", "--fields", fields]);
    assert_eq!(csv("TCP"), csv("tcp"));
    assert_eq!(csv("Src_IP,FWD_*"), csv("src_ip,fwd_*"));
    for field in ["app", "application"] {
        assert_eq!(header(&csv(field)), ["application"]);
    }
    assert!(header(&csv("applications")).len() > 60);
    for sink in ["csv:-", "json:-", "table:-"] {
        let selected = |fields: &str| success(["read", capture.name(), "-q", "-o", &format!("{sink}?fields={fields}")]);
        assert_eq!(selected("TCP"), selected("tcp"), "{sink}");
    }
    let by = |field: &str, order: &str| {
        success(["read", capture.name(), "-q", "-o", "csv:-", "--by", field, "--sort", order])
    };
    assert_eq!(by("app", "flows"), by("application", "flows"));
    assert_eq!(by("application", "app"), by("application", "application"));
    assert_eq!(by("App", "app:asc"), by("application", "application:asc"));
}

#[test]
fn the_number_of_basic_fields_is_that_of_the_documents() {
    let fields = success(["fields", "basic"]).lines().count() - 1;
    assert!(
        include_str!("../../../../../docs/outputs.md").contains(&format!("| the {fields} most used: ")),
        "{fields}"
    );
}

#[test]
fn the_configuration_file_selects_fields() {
    let capture = small().saved();
    let [config, csv] = ["probe.toml", "flows.csv"].map(|name| capture.beside(name));
    let text = format!(
        "input = [\"synth:mix,flows=10,packets=100\"]\noutput = [\"csv:{}\"]\nfields = \"basic,*_rtt_ns\"\n",
        csv.display()
    );
    std::fs::write(&config, text).unwrap();
    let printed = success(arguments!["probe", "--config", config, "--print-config"]);
    assert!(printed.contains("\nfields = \"basic,*_rtt_ns\"\n"), "{printed}");
    success(arguments!["probe", "--config", config, "-q"]);
    let text = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(header(&text)[26..], ["application", "fwd_tcp_handshake_rtt_ns", "rev_tcp_handshake_rtt_ns"]);
    std::fs::write(&config, "input = [\"synth:mix\"]\nfields = \"pakets\"\n").unwrap();
    let err = failure(1, arguments!["probe", "--config", config, "--check"]);
    assert!(err.contains("line 2") && err.contains("did you mean packets?"), "{err}");
}

#[test]
fn weir_fields_lists_profiles() {
    let line = |field: &str| {
        let out = success(["fields"]);
        out.lines().find(|line| line.starts_with(&format!("{field} "))).unwrap_or_default().to_owned()
    };
    assert!(line("fwd_bytes").contains(" basic,tcp,applications,store ") && line("src_mac").contains(" layer2 "));
    assert!(line("rev_tcp_mss").contains(" tcp ") && line("fwd_tos").contains(" all "));
    let some = success(["fields", "rev_packets,*_port"]);
    let names: Vec<&str> = some.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["field", "rev_packets", "src_port", "dst_port", "service_port"]);
}

/// The folder with pandas and DuckDB. Prints that the test is skipped if they are not installed.
pub fn python_packages() -> Option<PathBuf> {
    // Beside the folder of temporary files of tests, in the target folder.
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
    if !is_installed("python3") {
        return None;
    }
    if !(packages.join("pandas").is_dir() && packages.join("duckdb").is_dir()) {
        eprintln!("SKIPPED: pandas and duckdb are not in {} (make test installs them)", packages.display());
        return None;
    }
    Some(packages)
}

/// The kind of each field by `weir fields`, as pandas and DuckDB have it: text for all but three.
fn kinds() -> BTreeMap<String, String> {
    let kind = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, kind) = (words.next().unwrap(), words.next().unwrap());
        let is_text = !["integer", "number", "time"].contains(&kind);
        (name.to_owned(), if is_text { "text".into() } else { kind.to_owned() })
    };
    success(["fields"]).lines().skip(1).map(kind).collect()
}

/// Writes the records of each list of inputs in all formats. Returns the files with their inputs and ledgers.
fn write_all_formats(
    folder: &Path,
    inputs: impl Iterator<Item = Vec<PathBuf>>,
) -> BTreeMap<String, (Vec<PathBuf>, PathBuf)> {
    let mut files = BTreeMap::new();
    for (at, inputs) in inputs.enumerate() {
        let stats = folder.join(format!("{at}.ledger"));
        let mut sinks = Vec::new();
        let formats = [("csv", "basic"), ("json", "basic"), ("csv", "all"), ("json", "all"), ("parquet", "all")];
        for (format, profile) in formats {
            let ending = if format == "parquet" { "store" } else { format };
            let path = folder.join(format!("{at}-{profile}.{ending}")).to_str().unwrap().to_owned();
            sinks.extend(["-o".to_owned(), format!("{format}:{path}?fields={profile}")]);
            files.insert(path, (inputs.clone(), stats.clone()));
        }
        let read = arguments!["read", "-q", "--decap", "--stats", stats].into_iter();
        let paths = inputs.iter().map(|path| path.as_os_str()).chain(sinks.iter().map(|sink| sink.as_ref()));
        let (code, _, err) = weir(read.chain(paths));
        assert!(matches!(code, 0 | 2), "{err}");
    }
    files
}

#[test]
fn pandas_and_duckdb_read_the_right_types_and_sums() {
    let Some(packages) = python_packages() else { return };
    let folder = tempfile::tempdir().unwrap();
    let synth = ["synth:mix,flows=1000,packets=20k,ipv6=30%,rst=20%,seed=5", "synth:lossy,flows=50,packets=20k,seed=3"];
    // Each program starts slowly, so captures share files, as they do when a user reads a folder.
    let captures = capture_files();
    let inputs = captures.chunks(5).map(<[PathBuf]>::to_vec).chain(synth.map(|spec| vec![spec.into()]));
    let files = write_all_formats(folder.path(), inputs);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/read/fields/pandas_duckdb.py");
    let has_records = |path: &&String| match path.ends_with(".store") {
        true => std::fs::read_dir(path).unwrap().count() > 1,
        false => std::fs::read_to_string(path).unwrap().lines().count() > 1,
    };
    let with_records = files.keys().filter(has_records);
    let output = Command::new("python3").arg(script).args(with_records).env("PYTHONPATH", packages).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kinds = kinds();
    let mut results = 0;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let result: Value = serde_json::from_str(line).unwrap();
        let (path, program) = (result["path"].as_str().unwrap(), &result["program"]);
        let (inputs, ledger) = &files[path];
        let context = format!("{program} {path} of {inputs:?}");
        let ledger = read_ledger(ledger);
        let exported = &ledger["sinks"][0]["exported"];
        assert_eq!(result["rows"], exported["flows"], "{context}");
        let sums = &result["sums"];
        assert_eq!((&sums["packets"], &sums["l2_bytes"]), (&exported["packets"], &exported["bytes"]), "{context}");
        assert_eq!(
            sums["fwd_packets"].as_u64().unwrap() + sums["rev_packets"].as_u64().unwrap(),
            sums["packets"].as_u64().unwrap(),
            "{context}"
        );
        let missing: BTreeSet<&str> =
            result["missing"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        for (name, kind) in result["kinds"].as_object().unwrap() {
            // Without nullable types pandas has no integers beside missing values.
            // The nanoseconds of a time in a store.
            if name.ends_with("_ns_rest") {
                assert_eq!(kind, "integer", "{context}: {name}");
                continue;
            }
            let with_gaps = program == "pandas" && missing.contains(name.as_str()) && kinds[name] == "integer";
            // It makes integers of numbers that are all whole.
            let whole = program != "duckdb" && kinds[name] == "number" && kind == "integer";
            let expected = if with_gaps { "number" } else { &kinds[name] };
            // It knows times by their names, or where the user says so.
            let as_text = program != "duckdb" && name.starts_with("cert_not_") && kind == "text";
            assert!(kind == expected || whole || as_text, "{context}: {name} is {kind}, not {expected}");
        }
        if program == "pandas, nullable" {
            assert!(result["wrong"].as_array().unwrap().is_empty(), "{context}: {}", result["wrong"]);
        }
        if path.contains("basic") {
            let gaps: Vec<&&str> = missing.iter().filter(|name| kinds[**name] != "text").collect();
            assert!(gaps.is_empty(), "{context}: {gaps:?}");
        }
        results += 1;
    }
    assert!(results > 80, "{results} results");
}

/// What is computed from several fields, as the address of the server, is that of the flow, not of its direction.
#[test]
fn both_directions_of_a_flow_have_its_server_and_its_times() {
    let capture = captures().join("loss.pcapng");
    let fields = "server_ip,client_ip,service_port,rtt,response,retransmitted,bps";
    let rows = |option: &[&str]| -> Vec<String> {
        let read = ["read", capture.to_str().unwrap(), "-q", "-o", "csv:-", "--fields", fields];
        let text = success([&read[..], option].concat());
        text.lines().skip(1).map(String::from).collect()
    };
    let (flows, directions) = (rows(&[]), rows(&["--uniflow"]));
    assert!(directions.len() > flows.len());
    assert!(flows.iter().all(|flow| directions.contains(flow)) && directions.iter().all(|row| flows.contains(row)));
}
