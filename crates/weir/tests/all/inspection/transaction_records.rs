//! `--transactions`: a record of each question of DNS and each request of HTTP/1.

use super::payload_readers::{connection, datagram};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testbed::{Pcap, capture_files, captures, failure, ipv4, is_installed, success};

/// A message of DNS about a name, whose labels have a length each: a question, or an answer with a code.
fn dns(id: u16, name: &[u8], code: Option<u8>) -> Vec<u8> {
    let flags = code.map_or(0x0100, |code| 0x8180 | u16::from(code));
    let header = [id, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], name, b"\0\0\x01\0\x01"].concat()
}

/// The datagram from the server to port 4000.
fn answer(payload: &[u8]) -> Vec<u8> {
    let words = [53, 4000, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    ipv4(17, [198, 51, 100, 7], [192, 0, 2, 1], &[&words, payload].concat())
}

/// The transactions of a capture, in the order of their times, and the ledger.
fn transactions(capture: &str, options: &[&str]) -> (Vec<Value>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let [records, stats] = ["t.json", "s.json"].map(|name| folder.path().join(name).display().to_string());
    let sink = format!("json:{records}");
    let all = ["read", capture, "-q", "--transactions", &sink, "--stats", &stats, "-o", "csv:/dev/null"];
    success([&all[..], options].concat());
    let text = fs::read_to_string(records).unwrap();
    let mut records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    records.sort_by_key(|record| record["start_time"].to_string());
    let ledger: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    let counters = &ledger["transactions"];
    assert_eq!((&ledger["balanced"], &counters["open"]), (&true.into(), &0.into()), "{ledger}");
    assert_eq!(counters["sinks"][0]["exported"]["flows"], records.len());
    (records, ledger)
}

/// The values of some fields, as text.
fn values<const N: usize>(records: &[Value], fields: [&str; N]) -> Vec<[String; N]> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    records.iter().map(|record| fields.map(|field| text(&record[field]))).collect()
}

#[test]
fn each_question_has_its_own_answer_and_a_repeated_one_is_one_record() {
    let (first, second) = (&b"\x01a\x07example"[..], &b"\x01B\x07example"[..]);
    let messages = [
        (0, datagram([4000, 53], &dns(1, first, None))),
        (100, datagram([4000, 53], &dns(2, second, None))),
        (150, datagram([4000, 53], &dns(1, first, None))),
        (400, answer(&dns(2, second, Some(3)))),
        (900, answer(&dns(1, first, Some(0)))),
        // The same id for another name, before an answer.
        (1000, datagram([4000, 53], &dns(7, first, None))),
        (1100, datagram([4000, 53], &dns(7, second, None))),
        (1200, answer(&dns(9, second, Some(0)))),
    ];
    let capture = messages.iter().fold(Pcap::new(), |capture, (us, frame)| capture.frame(1, *us, frame)).saved();
    let (records, _) = transactions(capture.name(), &[]);
    let fields = ["src_ip", "dst_port", "application", "dns_name", "dns_type", "dns_rcode", "dns_response_ns"];
    let row = |name, code, ns| ["192.0.2.1", "53", "dns", name, "1", code, ns].map(String::from);
    let expected = [
        row("a.example", "0", "900000"),
        row("B.example", "3", "300000"),
        row("a.example", "null", "null"),
        row("B.example", "null", "null"),
    ];
    assert_eq!(values(&records, fields), expected);
    let sink = "json:-?fields=dns_queries,dns_unanswered";
    let counts = success(["read", capture.name(), "-q", "--transactions", sink]);
    let counts: Vec<Value> = counts.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |field: &str| counts.iter().map(|record| record[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!([sum("dns_queries"), sum("dns_unanswered")], [5, 2]);
}

#[test]
fn each_request_of_a_connection_has_method_host_path_and_status() {
    let absolute = b"GET http://user:secret@b.example/x HTTP/1.1\r\nHost: other\r\n\r\n";
    let segments: [(bool, &[u8]); 9] = [
        (true, b"GET /a?b HTTP/1.1\r\nAccept: x\r\nHOST: a.example:8080\r\n\r\n"),
        (false, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nGET"),
        (true, absolute),
        (true, b"POST /p HTTP/1.1\r\nHost: folded\r\n .example\r\nContent-Length: 2\r\n\r\nok"),
        (false, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"),
        (false, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
        (true, b"HEAD /sp"),
        (true, b"lit HTTP/1.1\r\nHo"),
        (true, b"st: c.example\r\n\r\n"),
    ];
    let capture = Pcap::of(&connection(5000, &segments)).saved();
    let fields = ["http_method", "http_host", "http_path", "http_status"];
    let (records, _) = transactions(capture.name(), &["--dpi-fields"]);
    let expected = [
        ["GET", "a.example:8080", "/a?b", "200"],
        ["GET", "b.example", "/x", "404"],
        ["POST", "null", "/p", "500"],
        ["HEAD", "c.example", "/split", "null"],
    ];
    assert_eq!(values(&records, fields), expected);
    // Paths are personal data.
    let text = success(["read", capture.name(), "-q", "--transactions", "json:-"]);
    assert!(!text.contains("/split") && !text.contains("secret") && text.contains("c.example"), "{text}");
}

#[test]
fn transactions_add_up_to_the_counts_of_flows() {
    for capture in capture_files() {
        let capture = capture.to_str().unwrap();
        let sum = |sink: [&str; 2]| -> [u64; 4] {
            let text = success([&["read", capture, "-q", "--decap"][..], &sink].concat());
            let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            ["dns_queries", "dns_nxdomain", "dns_unanswered", "http_requests"]
                .map(|field| records.iter().filter_map(|record| record[field].as_u64()).sum())
        };
        let fields = "json:-?fields=dns_queries,dns_nxdomain,dns_unanswered,http_requests";
        assert_eq!(sum(["--transactions", fields]), sum(["-o", fields]), "{capture}");
    }
}

#[test]
fn names_and_hosts_are_those_of_tshark() {
    if !is_installed("tshark") {
        return println!("SKIPPED: tshark is not installed");
    }
    for (capture, filter, fields, ours) in [
        ("dns.pcap.gz", "dns.flags.response == 0", ["dns.qry.name", "dns.qry.type"], ["dns_name", "dns_type"]),
        ("web.pcap", "http.request", ["http.host", "http.request.uri"], ["http_host", "http_path"]),
    ] {
        let path = captures().join(capture);
        let shown = ["-Y", filter, "-T", "fields", "-e", fields[0], "-e", fields[1]];
        let output = Command::new("tshark").arg("-r").arg(&path).args(shown).output().expect("tshark runs");
        let mut theirs: Vec<[String; 2]> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| line.split('\t').map(String::from).collect::<Vec<_>>().try_into().unwrap())
            .collect();
        let (records, _) = transactions(path.to_str().unwrap(), &["--dpi-fields"]);
        let mut ours = values(&records, ours);
        theirs.sort();
        ours.sort();
        assert!(!ours.is_empty());
        assert_eq!(ours, theirs, "{capture}");
    }
}

#[test]
fn hostile_questions_are_recorded_within_limits() {
    let long: Vec<u8> = [b"\x3f", &[b'x'; 63][..]].concat().repeat(3);
    let mut frames: Vec<_> = (0..40).map(|id| datagram([4000, 53], &dns(id, &long, None))).collect();
    frames.push(datagram([4000, 53], &dns(50, b"\x04\x1b[3m\x03a,\"", None)));
    // Names that point to themselves, and messages that are cut.
    frames.push(datagram([4000, 53], &dns(51, b"\xc0\x0c", None)));
    frames.extend((0..19).map(|length| datagram([4000, 53], &dns(52, b"\x01a", None)[..length])));
    let line = [b"GET /", &[b'y'; 3000][..], b" HTTP/1.1\r\nHost: ", &[b'h'; 600], b"\r\n\r\n"].concat();
    frames.extend(connection(5000, &[(true, b"GET / HTTP/1.1\r\n\r\n"), (true, &line)]));
    let capture = Pcap::of(&frames).saved();
    let (records, ledger) = transactions(capture.name(), &["--dpi-fields"]);
    assert_eq!(ledger["transactions"]["begun"], records.len());
    let names = values(&records, ["dns_name", "application_notes"]);
    let of_long = names.iter().filter(|[name, _]| name.len() == 191).count();
    assert_eq!(of_long, 40, "{names:?}");
    assert!(names.iter().any(|[name, notes]| name.len() == 191 && notes == "limit"), "{names:?}");
    assert!(names.iter().any(|[name, _]| name == "\\x1b[3m.a,\""), "{names:?}");
    let paths = values(&records, ["http_path", "http_host", "application_notes"]);
    assert!(paths.iter().any(|[path, host, notes]| path.len() == 255 && host == "null" && notes == "cut"), "{paths:?}");
}

#[test]
fn a_full_memory_of_transactions_leaves_some_out_and_says_so() {
    let mut frames = Vec::new();
    // 16 of each flow are open; a cache of this size has room for 1024.
    for port in 0..100 {
        frames.extend((0..16).map(|id| datagram([5000 + port, 53], &dns(id, b"\x01a", None))));
    }
    let capture = Pcap::of(&frames).saved();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("s.json").display().to_string();
    let sink = format!("csv:{}", folder.path().join("t.csv").display());
    let all = ["read", capture.name(), "-q", "--flows", "16k", "--transactions", &sink, "--stats", &stats];
    let all = [&all[..], &["-o", "csv:/dev/null"]].concat();
    failure(2, all);
    let ledger: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    let counters = &ledger["transactions"];
    assert_eq!((&counters["begun"], &counters["left_out"]), (&1600.into(), &576.into()), "{counters}");
    assert_eq!((&counters["sinks"][0]["exported"]["flows"], &ledger["balanced"]), (&1024.into(), &true.into()));
}

#[test]
fn stores_of_transactions_have_views() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("transactions").display().to_string();
    let sink = format!("parquet:{store}");
    let [dns, web] = ["dns.pcap.gz", "web.pcap"].map(|name| captures().join(name).display().to_string());
    success(["read", &dns, &web, "-q", "--dpi-fields", "--transactions", &sink, "-o", "csv:/dev/null"]);
    let where_code = ["--where", "dns_rcode = NXDOMAIN", "--by", "dns_name", "--sort", "flows", "-o", "csv:-"];
    let of_store = ["read", &store, "-q", "--log-level", "error"];
    let view = success([&of_store[..], &where_code].concat());
    let first = view.lines().nth(1).unwrap_or_default();
    assert!(first.starts_with("not-there.example,0,2,"), "{view}");
    let slowest = ["--sort", "http_response_mean_ns", "--top", "1", "--fields", "http_path"];
    let table = success([&["read", &store, "-q"][..], &slowest].concat());
    assert!(table.contains("/20-kilobytes"), "{table}");
    let urls =
        success(["read", &store, "-q", "--where", "http_path = /not-there", "--fields", "http_status", "-o", "csv:-"]);
    assert_eq!(urls, "http_status\n404\n");
    // Packets and octets of transactions are not known, and no sum of a flow is in the group of its first question.
    let table = success(["read", &store, "--where", "dns_rcode = NXDOMAIN"]);
    for part in ["not-there.example", "2 transactions, by start_time", "records    2 transactions of "] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(["bytes", "packets", "http_host", "0B"].iter().all(|part| !table.contains(part)), "{table}");
    let failed = success(["read", &store, "--by", "dns_name", "--sort", "dns_failed"]);
    assert!(!failed.contains("of its first"), "{failed}");
    // As `--transactions csv:` writes them, but for the Community ID, which a store does not have.
    let written = ["--transactions", "csv:-", "-o", "csv:/dev/null"];
    let direct = success([&["read", &dns, &web, "-q", "--dpi-fields"][..], &written].concat());
    let without_id = |line: &str| {
        line.split(',').enumerate().filter(|(at, _)| *at != 6).map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
    };
    let direct: String = direct.lines().map(|line| without_id(line) + "\n").collect();
    let stored = success(["read", &store, "-q", "-o", "csv:-"]);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines[1..].sort_unstable();
        lines
    };
    assert_eq!(sorted(&stored), sorted(&direct));
    for place in [&["-o", "csv:-?fields=bytes"][..], &["--fields", "bytes"]] {
        let error = failure(1, [&["read", &store][..], place].concat());
        assert!(error.contains("transactions do not have bytes"), "{error}");
    }
    let error = failure(1, ["read", &store, "--sort", "response"]);
    assert!(error.contains("transactions do not have response: dns_response_ns, http_response_mean_ns"), "{error}");
}

#[test]
fn sums_of_a_store_of_transactions_are_those_of_its_records_and_of_the_flows() {
    let folder = tempfile::tempdir().unwrap();
    let [flows, store] = ["flows", "transactions"].map(|name| folder.path().join(name).display().to_string());
    let [to_flows, to_store] = [&flows, &store].map(|path| format!("parquet:{path}"));
    let [dns, web] = ["dns.pcap.gz", "web.pcap"].map(|name| captures().join(name).display().to_string());
    success(["read", &dns, &web, "-q", "--dpi-fields", "--transactions", &to_store, "-o", &to_flows]);
    let rows = |options: &[&str]| -> Vec<Value> {
        let text = success([&["read", "-q", "-o", "json:-"], options].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let of_all = ["dns_queries", "dns_failed", "dns_nxdomain", "dns_unanswered", "http_requests", "http_errors"];
    let names = of_all.join(",");
    let sum = |rows: &[Value], name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
    let [of_flows, of_records] = [&flows, &store].map(|path| rows(&[path, "--by", "protocol", "--sum", &names]));
    for name in of_all {
        assert_eq!(sum(&of_flows, name), sum(&of_records, name), "{name}");
    }
    assert!(["dns_nxdomain", "http_errors"].iter().all(|name| sum(&of_records, name) > 0), "{of_records:?}");
    let urls = rows(&[
        &store,
        "--where",
        "http_requests > 0",
        "--by",
        "http_host,http_path",
        "--sort",
        "http_response_max_ns",
        "--sum",
        "http_requests,http_response_mean_ns",
    ]);
    let records = rows(&[&store, "--where", "http_method", "--fields", "http_host,http_path,http_response_mean_ns"]);
    assert_eq!(sum(&urls, "http_requests"), records.len() as u64);
    for url in &urls {
        let is_of_url = |record: &&Value| ["http_host", "http_path"].iter().all(|name| record[*name] == url[*name]);
        let of_path = records.iter().filter(is_of_url);
        let times: Vec<u64> = of_path.filter_map(|record| record["http_response_mean_ns"].as_u64()).collect();
        let mean = times.iter().sum::<u64>() / times.len() as u64;
        assert_eq!(url["http_response_mean_ns"], mean, "{url}");
        assert_eq!(url["http_response_max_ns"].as_u64(), times.iter().max().copied(), "{url}");
    }
    let text = success(["read", &store, "-q", "--by", "dns_name", "--sort", "nxdomain", "--top", "1"]);
    assert!(text.lines().nth(1).unwrap().starts_with("not-there.example "), "{text}");
}

#[test]
fn all_fields_are_those_that_a_transaction_has() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("transactions").display().to_string();
    let dns = captures().join("dns.pcap.gz").display().to_string();
    let names = |fields: &str| -> Vec<String> {
        let text = success(["read", &dns, "-q", "--transactions", &format!("json:-?fields={fields}")]);
        let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        first.as_object().unwrap().keys().cloned().collect()
    };
    let all = names("all");
    for name in ["start_time", "dns_name", "dns_unanswered", "http_path", "udp_response_ns", "src_country"] {
        assert!(all.iter().any(|of_all| of_all == name), "{name}: {all:?}");
    }
    assert!(!all.iter().any(|name| name == "packets" || name.contains("tcp")), "{all:?}");
    let mut times = names("*_time,dns_name");
    times.sort();
    assert_eq!(times, ["dns_name", "end_time", "start_time"]);
    assert!(names("basic").contains(&"community_id".into()));
    // A store has what it needs to be read again, too.
    success(["read", &dns, "-q", "--transactions", &format!("parquet:{store}?fields=all"), "-o", "csv:/dev/null"]);
    let view = success(["read", &store, "-q", "--log-level", "error", "--by", "dns_rcode", "-o", "csv:-"]);
    assert!(view.lines().count() > 2, "{view}");
    let error = failure(1, ["read", &dns, "-q", "--transactions", "json:-?fields=dns_name,*tcp_*"]);
    assert!(error.contains("a transaction has no *tcp_*; see weir help transactions"), "{error}");
}

#[test]
fn anonymised_transactions_have_no_name_and_no_address() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, (0..32).collect::<Vec<u8>>()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let (capture, key) = (captures().join("dns.pcap.gz").display().to_string(), key.display().to_string());
    let text = success(["read", &capture, "-q", "--anonymise", &key, "--transactions", "csv:-"]);
    assert!(!text.contains("example") && !text.contains("192.0.2."), "{text}");
    assert!(text.lines().count() > 10);
}

#[test]
fn what_leaves_nothing_to_record_is_refused() {
    let capture = captures().join("dns.pcap.gz").display().to_string();
    for options in [
        &["--transactions", "json:-", "--dpi", "off"][..],
        &["--transactions", "json:-", "--dpi-transactions", "off"],
        &["--transactions", "ipfix:x"],
        &["--transactions", "table:-"],
        &["--transactions", "csv:-?fields=bytes"],
        &["--transactions", "json:-", "-o", "json:-"],
        &["--transactions", "json:t.json", "-o", "packets:p"],
    ] {
        let error = failure(1, [&["read", &capture, "-q"], options].concat());
        assert!(error.contains("transaction") || error.contains("packets:"), "{options:?}: {error}");
    }
}

#[test]
fn a_probe_records_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (records, stats) = (format!("json:{}", path("t.json")), path("s.json"));
    let (flows, capture) = (format!("json:{}", path("f.json")), captures().join("dns.pcap.gz").display().to_string());
    let all = ["probe", "-q", "-i", &capture, "-o", &flows, "--transactions", &records, "--stats", &stats];
    success([&all[..], &["--user", "root"]].concat());
    let ledger: Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
    let lines = fs::read_to_string(path("t.json")).unwrap().lines().count();
    assert_eq!(ledger["transactions"]["begun"], lines);
    assert_eq!(ledger["balanced"], true);
    let checked = success([&all[..], &["--check"]].concat());
    assert!(checked.contains(&format!("transactions {records}")), "{checked}");
}
