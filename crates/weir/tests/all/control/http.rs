//! The HTTP interface of `weir probe`: what it answers, what it refuses, and that metering goes on.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testbed::namespace::{BOUND, until, until_within};
use testbed::running::send_requests;
use testbed::served::{Answer, Served, TOKEN, samples, sum, token_file};
use testbed::{command, failure, is_installed, number, permit_all_users};

/// Asserts that every counter of a page equals the ledger of the run.
fn assert_equal_to_ledger(metrics: &BTreeMap<String, f64>, ledger: &Value) {
    for what in ["packets", "bytes"] {
        for key in ["received", "metered", "filtered", "sampled_out"] {
            let name = format!("weir_{what}_{key}_total");
            assert_eq!(sum(metrics, &name, ""), number(&ledger[what][key]), "{name}");
        }
        for (place, key) in [("nic", "nic"), ("kernel", "kernel"), ("queue", "queue"), ("flow_cache", "cache_full")] {
            let dropped = sum(metrics, &format!("weir_{what}_dropped_total"), &format!("place=\"{place}\""));
            assert_eq!(dropped, number(&ledger[what][format!("dropped_{key}")]), "{what} {place}");
        }
        let refused = ledger[what]["refused"].as_object().unwrap();
        let name = format!("weir_{what}_refused_total");
        assert_eq!(sum(metrics, &name, ""), refused.values().map(number).sum::<u64>());
        for (reason, count) in refused {
            assert_eq!(sum(metrics, &name, &format!("reason=\"{reason}\"")), number(count), "{reason}");
        }
    }
    let anomalies = ledger["anomalies"].as_object().unwrap();
    assert_eq!(sum(metrics, "weir_packets_anomalous_total", ""), anomalies.values().map(number).sum::<u64>());
    assert_eq!(sum(metrics, "weir_flows_created_total", ""), number(&ledger["flows"]["created"]));
    for sink in ledger["sinks"].as_array().unwrap() {
        let label = format!("sink={}", sink["sink"]);
        let exported = sum(metrics, "weir_records_exported_total", &label);
        assert_eq!(exported, number(&sink["exported"]["flows"]), "{label}");
        assert_eq!(sum(metrics, "weir_sink_bytes_total", &label), number(&sink["octets"]), "{label}");
        let lost = sink["lost"].as_object().unwrap();
        let all = lost.values().map(|lost| number(&lost["flows"])).sum::<u64>();
        assert_eq!(sum(metrics, "weir_records_lost_total", &label), all, "{label}");
    }
}

#[test]
fn the_metrics_of_the_end_equal_the_ledger() {
    for layout in ["fused", "spread"] {
        let options = ["--idle", "300ms", "--layout", layout, "-o", "json:/dev/null", "-o", "csv:/dev/null"];
        let Some(mut served) = Served::start(&[&options[..], &["-f", "not dst port 1030"]].concat()) else { return };
        let before = served.metrics();
        assert_eq!(sum(&before, "weir_packets_received_total", ""), 0);
        for _ in 0..3 {
            send_requests(&mut served.sender, 0..500);
            served.sender.send(&testbed::arp());
            let metrics = served.metrics();
            assert!(before.keys().all(|series| metrics.contains_key(series)), "series do not come and go");
        }
        until("all records are exported", || {
            let metrics = served.metrics();
            let waiting = ["weir_flows_active", "weir_records_waiting"].map(|name| sum(&metrics, name, ""));
            sum(&metrics, "weir_packets_received_total", "") == 3003 && waiting == [0, 0]
        });
        let (metrics, status) = (served.metrics(), served.get("/status").json());
        let (err, _, ledger) = served.probe.stop(0);
        assert!(
            number(&ledger["packets"]["refused"]["non_ip"]) == 3 && number(&ledger["packets"]["filtered"]) > 0,
            "{err}"
        );
        assert_equal_to_ledger(&metrics, &ledger);
        assert_eq!(status["ledger"]["packets"], ledger["packets"]);
        assert_eq!(status["ledger"]["balanced"], true);
        assert_eq!(status["interval"]["pipelines"][0]["state"], "running", "{status}");
    }
}

#[test]
fn prometheus_reads_the_page() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..100);
    let page = served.get("/metrics");
    assert!(page.head.contains("content-type: text/plain; version=0.0.4"), "{}", page.head);
    if !is_installed("promtool") {
        return eprintln!("SKIPPED: promtool is not installed (apt-get install prometheus)");
    }
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(page.body.as_bytes()).unwrap();
    let result = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&result.stderr).into_owned() + &String::from_utf8_lossy(&result.stdout);
    assert!(result.status.success() && said.is_empty(), "{said}");
    served.probe.stop(0);
}

#[test]
fn the_alerts_fire_for_their_causes_and_name_metrics_of_the_page() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let rules = fs::read_to_string(root.join("deploy/prometheus/weir-alerts.yml")).unwrap();
    let page = fs::read_to_string(root.join("docs/control.md")).unwrap();
    let words = rules.split(|letter: char| !(letter.is_ascii_lowercase() || letter == '_'));
    let metrics: Vec<_> = words.filter(|word| word.starts_with("weir_")).collect();
    assert!(metrics.len() >= 8);
    metrics.iter().for_each(|metric| {
        assert!(page.contains(&format!("| `{metric}`")) || page.contains(&format!(", `{metric}`")), "{metric}")
    });
    if !is_installed("promtool") {
        return eprintln!("SKIPPED: promtool is not installed (apt-get install prometheus)");
    }
    let mut test = Command::new("promtool");
    test.args(["test", "rules", "weir-alerts-test.yml"]).current_dir(root.join("deploy/prometheus"));
    let result = test.output().unwrap();
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
}

/// The values that Prometheus has for an expression.
fn query(port: u16, expression: &str) -> Vec<f64> {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return vec![] };
    write!(stream, "GET /api/v1/query?query={expression} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let Some((_, body)) = text.split_once("\r\n\r\n") else { return vec![] };
    let Ok(answer) = serde_json::from_str::<Value>(body) else { return vec![] };
    let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
    series.iter().map(|series| series["value"][1].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn prometheus_stores_what_the_ledger_has() {
    assert_prometheus_stores_the_ledger(8, &[]);
}

#[test]
#[ignore = "takes 70 s"]
fn prometheus_stores_for_a_minute_what_the_ledger_has_of_rules() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let [rules, output] = ["rules.toml", "out.pcap"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let text = "[[network]]\nwhere = 'port 1030'\naction = 'drop'\n[[network]]\nwhere = 'port 1031'\nshunt = 1\n";
    fs::write(&rules, format!("[egress.ids]\noutputs = 'pcap:{output}'\n{text}")).unwrap();
    assert_prometheus_stores_the_ledger(60, &["--rules", &rules]);
}

/// Sends packets until Prometheus has read the metrics this number of times, a second apart.
fn assert_prometheus_stores_the_ledger(scrapes: u32, further: &[&str]) {
    if !is_installed("prometheus") {
        return eprintln!("SKIPPED: prometheus is not installed (apt-get install prometheus)");
    }
    let options = [&["--idle", "300ms", "-o", "json:/dev/null"], further].concat();
    let Some(mut served) = Served::start(&options) else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = folder.path().join("prometheus.yml");
    let target = served.address;
    fs::write(
        &config,
        format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: weir\n    static_configs:\n      \
             - targets: [\"{target}\"]\n"
        ),
    )
    .unwrap();
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", config.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let _prometheus = testbed::Background(prometheus.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    until("it scrapes", || query(port, "up") == [1.0]);
    let mut sent = 0.0;
    until_within(BOUND + Duration::from_secs(2) * scrapes, "it has read often enough", || {
        send_requests(&mut served.sender, 0..50);
        sent += 100.0;
        query(port, "count_over_time(up[5m])").first().is_some_and(|&count| count >= scrapes.into())
    });
    until("all packets are stored", || query(port, "weir_packets_received_total") == [sent]);
    // Pipelines and sinks are asked one after another: a record between them is in neither figure.
    until("all flows are exported", || {
        query(port, "weir_flows_active") == [0.0]
            && query(port, "sum(weir_records_exported_total)") == query(port, "sum(weir_flows_created_total)")
    });
    let of = |metric: &str| query(port, &format!("sum({metric})")).first().map(|&value| value as u64).unwrap();
    let stored = ["weir_packets_metered_total", "weir_bytes_metered_total", "weir_records_exported_total"].map(of);
    let of_rules = ["weir_action_packets_total", "weir_rule_packets_matched_total", "weir_output_packets_sent_total"];
    let of_rules = of_rules.map(|metric| query(port, &format!("sum({metric})")).first().map(|&value| value as u64));
    // No counter went back. (On a busy machine a scrape may take longer than the second that it has.)
    assert_eq!(query(port, "sum(resets(weir_packets_received_total[5m]))"), [0.0]);
    let (_, _, ledger) = served.probe.stop(0);
    if let Some(actions) = ledger["actions"].as_object() {
        let all = |key: &str, what: &str| {
            let rows = actions[key].as_array().unwrap().iter();
            Some(rows.map(|row| number(&row[what]["packets"])).sum::<u64>())
        };
        let forwarded = ["forwarded", "dropped", "shunted"].map(|action| number(&actions[action]["packets"]));
        let scrapes = query(port, "count_over_time(up[5m])");
        println!("{scrapes:?} scrapes, {stored:?} stored, of rules {of_rules:?}, {forwarded:?}");
        assert_eq!(of_rules, [Some(forwarded.iter().sum()), all("rules", "matched"), all("outputs", "sent")]);
    }
    let expected = [&ledger["packets"]["metered"], &ledger["bytes"]["metered"], &ledger["flows"]["exported"]];
    assert_eq!(stored, expected.map(number));
}

#[test]
fn every_path_of_the_document_answers_as_it_says_and_no_other_path_does() {
    let Some(served) = Served::start(&[]) else { return };
    let document = served.get("/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{document}");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 21);
    for (path, methods) in paths {
        for method in ["get", "put", "post", "delete", "patch", "options"] {
            let answer = served.request(&method.to_uppercase(), path, "Content-Length: 0\r\n");
            let Some(operation) = methods.get(method) else {
                // Without a token, all that changes something is refused.
                assert_eq!(answer.status, if method == "get" { 405 } else { 403 }, "{method} {path}");
                assert!(answer.json()["error"].is_string() && operation_is_listed(&answer, methods), "{}", answer.head);
                continue;
            };
            let described = &operation["responses"][answer.status.to_string()];
            let content =
                described["content"].as_object().unwrap_or_else(|| panic!("{method} {path}: {}", answer.status));
            let media = content.keys().next().unwrap();
            assert!(answer.head.contains(&format!("content-type: {media}")), "{method} {path}: {}", answer.head);
            assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
            let Some(name) = content[media]["schema"]["$ref"].as_str() else { continue };
            // `#/components/schemas/NAME`
            let schema = document.pointer(&name[1..]).unwrap();
            let body = answer.json();
            for required in schema["required"].as_array().unwrap() {
                assert!(body.get(required.as_str().unwrap()).is_some(), "{method} {path}: {body}");
            }
        }
        let head = served.request("HEAD", path, "");
        assert_eq!((head.status, head.body.as_str()), (served.get(path).status, ""), "{path}");
    }
    for path in [
        "/metrics/",
        "/metrics/..",
        "/../metrics",
        "/%2e%2e/metrics",
        "/./metrics",
        "//metrics",
        "/metrics%00",
        "/Metrics",
        "/metrics%2f",
        "/etc/passwd",
        "/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/\\..\\etc",
        "/reload/",
        "/openapi",
        "*",
        "/;metrics",
    ] {
        let answer = served.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(!answer.body.contains("root:"), "{path}");
    }
    assert_eq!(served.get("/metrics?format=json").status, 400, "a query that means nothing is not ignored");
    served.probe.stop(0);
}

/// Whether status 405 names the methods of a path.
fn operation_is_listed(answer: &Answer, methods: &Value) -> bool {
    let allow = answer.head.lines().find_map(|line| line.strip_prefix("allow: "));
    answer.status != 405
        || methods.as_object().unwrap().keys().all(|method| allow.is_some_and(|of| of.contains(method)))
}

#[test]
fn flows_of_the_moment_are_found_and_go_on() {
    for layout in ["fused", "spread"] {
        let Some(mut served) = Served::start(&["--layout", layout]) else { return };
        send_requests(&mut served.sender, 0..500);
        (0..3).for_each(|_| send_requests(&mut served.sender, 7..9));
        until("all packets are counted", || sum(&served.metrics(), "weir_packets_received_total", "") == 1012);
        let flows = |query: &str| {
            let ask = || {
                let answer = served.get(&format!("/flows?{query}"));
                assert_eq!(answer.status, 200, "{}", answer.body);
                answer.json()
            };
            let mut body = ask();
            if layout == "spread" {
                // A flow that moves to another meter may be missing, or there twice.
                until("no flow moves", || {
                    body = ask();
                    number(&body["searched"]) == 500
                });
            }
            assert_eq!((&body["complete"], number(&body["searched"])), (&true.into(), 500), "{query}: {body}");
            (number(&body["matching"]), body["flows"].as_array().unwrap().clone())
        };
        let (matching, found) = flows("");
        assert_eq!((matching, found.len()), (500, 20));
        let (matching, found) = flows("top=3&sort=packets&fields=all");
        let packets: Vec<u64> = found.iter().map(|flow| number(&flow["packets"])).collect();
        assert_eq!((matching, packets), (500, vec![8, 8, 2]));
        let (matching, found) = flows("where=src_port%20%3D%201031&top=1000");
        assert_eq!((matching, found.len(), number(&found[0]["src_port"])), (1, 1, 1031));
        assert_eq!(number(&found[0]["packets"]), 8);
        // The same flow by its Community ID, whose letters are not escaped.
        let (_, found) = flows("fields=basic,community_id&sort=packets:asc&top=400");
        for flow in found.iter().step_by(97) {
            let id = flow["community_id"].as_str().unwrap();
            let (matching, same) = flows(&format!("community_id={id}&fields=basic,community_id"));
            assert_eq!((matching, &same[0]), (1, flow));
        }
        assert_eq!(flows("community_id=1:LQU9qZlK%2BB5F3KDmev6m5PMibrg%3D").0, 0);
        for (query, reason) in [
            ("where=src_prt%20%3D%201", "where: "),
            ("sort=nonsense", "sort: there is no field"),
            ("sort=bytes:up", "sort: "),
            ("top=1001", "top: use a number from 0 to 1000"),
            ("top=x", "top: use a number from 0 to 1000"),
            ("fields=nonsense", "fields: "),
            (&format!("fields={}zz", "*".repeat(15_500)), "fields: "),
            (&format!("fields={}", "*s".repeat(7_000)), "fields: "),
            (&format!("fields={}*", "*,".repeat(600)), "fields: at most 512 names"),
            ("community_id=1:x", "community_id: "),
            ("nonsense=1", "nonsense: there is no such parameter; there are: where, community_id, by, sort, sum, top"),
            ("top=1&top=2", "top: it is there twice"),
        ] {
            let answer = served.get(&format!("/flows?{query}"));
            assert!(
                answer.status == 400 && answer.json()["error"].as_str().unwrap().contains(reason),
                "{query}: {}",
                answer.body
            );
        }
        // Searches change no record.
        let (_, flows, ledger) = served.probe.stop(0);
        assert_eq!((flows.len(), number(&ledger["packets"]["metered"])), (500, 1012));
        let packets = |flow: &Value| number(&flow["packets"]);
        assert_eq!(flows.iter().map(packets).sum::<u64>(), 1012);
        assert_eq!(flows.iter().filter(|flow| packets(flow) == 8).count(), 2);
    }
}

#[test]
fn malformed_requests_are_refused_and_the_next_one_is_answered() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..100);
    let host = served.address;
    let long = "x".repeat(20_000);
    let many = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect::<String>();
    let header = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {long}\r\n\r\n");
    let headers = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{many}\r\n");
    let path = format!("GET /{long} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let body = format!("GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000));
    let smuggled =
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let lengths = format!("GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n");
    let other_host = "GET /metrics HTTP/1.1\r\nHost: attacker.example\r\nConnection: close\r\n\r\n";
    let of_other_page = |header: &str| format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{header}\r\n\r\n");
    let [cross_site, other_origin] =
        ["Sec-Fetch-Site: cross-site", "Origin: http://attacker.example"].map(of_other_page);
    let cases: [(&[u8], &[u16]); 15] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", &[400]),
        (b"garbage\r\n\r\n", &[400]),
        (b"\0\0\0\0\r\n\r\n", &[400]),
        (b"GET / HTTP/9.9\r\n\r\n", &[400, 505]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400, 505]),
        (header.as_bytes(), &[431]),
        (headers.as_bytes(), &[431]),
        (path.as_bytes(), &[414, 431]),
        (body.as_bytes(), &[413]),
        (smuggled.as_bytes(), &[200, 400]),
        (lengths.as_bytes(), &[400]),
        (other_host.as_bytes(), &[421]),
        (cross_site.as_bytes(), &[403]),
        (other_origin.as_bytes(), &[403]),
        (b"GET /health HTTP/1.0\r\n\r\n", &[200]),
    ];
    for (octets, expected) in cases {
        let text = served.raw(octets);
        let text_of = String::from_utf8_lossy(&octets[..octets.len().min(60)]);
        // A connection that is closed with octets unread may lose its answer.
        assert!(text.is_empty() || expected.contains(&Answer::parse(&text).status), "{text_of:?}: {text}");
        assert_eq!(served.get("/health").status, 200, "after {text_of:?}");
    }
    let pipelined = format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(50)
        + &format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answers = served.raw(pipelined.as_bytes());
    assert_eq!(answers.matches("\"alive\"").count(), 50);
    assert!(answers.contains("GET  /openapi.json"));
    let (_, _, ledger) = served.probe.stop(0);
    assert_eq!(number(&ledger["packets"]["metered"]), 200);
}

/// The main thread looks around every 6 s only, and a report has to be there within 3 s: a request wakes it.
#[test]
fn requests_do_not_wait_until_the_main_thread_looks_around() {
    let Some(served) = Served::start(&["--timing", "probe_check=6s"]) else { return };
    for path in ["/flows", "/status", "/metrics", "/flows"] {
        let answer = served.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
    served.probe.stop(0);
}

#[test]
fn a_thousand_connections_and_slow_clients_do_no_harm() {
    let (_folder, token) = token_file(TOKEN, 0o600);
    let timing = "http_header=2s,http_keep_alive=3s,http_total=4s";
    let Some(mut served) = Served::start(&["--token-file", token.to_str().unwrap(), "--timing", timing]) else {
        return;
    };
    let mut open: Vec<TcpStream> = (0..1000).map(|_| served.connect()).collect();
    send_requests(&mut served.sender, 0..500);
    // They send an octet now and then, and keep no other client out.
    open.iter_mut().for_each(|stream| drop(stream.write(b"G")));
    assert_eq!(served.get("/health").status, 200);
    drop(open);
    // A body that never comes, and an answer that is never read.
    let mut slow = served.connect();
    write!(slow, "POST /reload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 10\r\n\r\nabc")
        .unwrap();
    let mut unread = served.connect();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    unread.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for _ in 0..2000 {
        if unread.write_all(request.as_bytes()).is_err() {
            break;
        }
    }
    send_requests(&mut served.sender, 0..500);
    until("all packets are counted", || sum(&served.metrics(), "weir_packets_received_total", "") == 2000);
    until("slow clients are disconnected", || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", served.probe.process.0.id())).unwrap();
        let sockets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let connections = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let port = format!(":{:04X}", served.address.port());
        let established = connections.lines().filter(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1].ends_with(&port) && fields[3] == "01"
        });
        sockets.count() > 0 && established.count() == 0
    });
    let (_, _, ledger) = served.probe.stop(0);
    assert_eq!(number(&ledger["packets"]["metered"]), 2000);
}

#[test]
fn a_reload_over_http_needs_the_token_and_answers_with_its_result() {
    let (folder, token) = token_file(&format!("{TOKEN}\n"), 0o600);
    permit_all_users(folder.path());
    let file = folder.path().join("probe.toml");
    let write = |text: &str| {
        fs::write(&file, text).unwrap();
        permit_all_users(&file);
    };
    write("output = [\"json:/dev/null\"]\nidle = \"200ms\"\n");
    let options = ["--config", file.to_str().unwrap(), "--token-file", token.to_str().unwrap()];
    let Some(mut served) = Served::start(&options) else { return };
    assert_eq!(served.get("/metrics").status, 200, "reading is free on loopback");
    for (wrong, status) in [("", 401), ("wrong", 401), (&TOKEN[1..], 401), (&format!("{TOKEN}x"), 401)] {
        let answer = served.reload(wrong);
        assert_eq!(answer.status, status, "{wrong}");
        assert!(answer.head.contains("www-authenticate: bearer") && answer.json()["error"].is_string());
    }
    assert_eq!(served.request("DELETE", "/reload", "").status, 401);
    assert_eq!(served.probe.times("configuration reloaded"), 0);
    let too_long = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: 20000\r\n");
    assert_eq!(served.request("POST", "/reload", &too_long).status, 413);
    let chunk = format!("4E20\r\n{}\r\n0\r\n\r\n", "x".repeat(20_000));
    let chunked = served.raw(
        format!(
            "POST /reload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n{chunk}"
        )
        .as_bytes(),
    );
    assert!(chunked.is_empty() || Answer::parse(&chunked).status == 413, "{chunked}");
    assert_eq!(served.probe.times("configuration reloaded"), 0);

    write("output = [\"json:/dev/null\"]\nidle = \"100ms\"\n");
    let answer = served.reload(TOKEN);
    assert_eq!((answer.status, &answer.json()["result"]), (200, &"configuration reloaded".into()), "{}", answer.body);
    assert_eq!(served.probe.times("configuration reloaded"), 1);
    write("output = [\"json:/dev/null\"]\nidle = \"later\"\n");
    let answer = served.reload(TOKEN);
    assert_eq!(answer.status, 422);
    assert!(answer.json()["error"].as_str().unwrap().contains("later"), "{}", answer.body);
    assert_eq!(served.probe.times("continuing with the old one"), 1);
    assert!(!served.probe.stderr().contains(TOKEN), "no log has the token");
    send_requests(&mut served.sender, 0..10);
    served.probe.stop(0);
}

/// Makes a certificate for 192.0.2.1: its file, and that of its key.
pub fn certificate(folder: &Path) -> [String; 2] {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=probe", "-addext", "subjectAltName=IP:192.0.2.1", "-keyout", &key, "-out", &cert])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    [cert, key]
}

#[test]
fn beyond_loopback_there_is_tls_and_the_token_only() {
    if !is_installed("openssl") || !is_installed("curl") {
        return eprintln!("SKIPPED: openssl and curl are not installed");
    }
    let (folder, token) = token_file(TOKEN, 0o600);
    let [cert, key] = certificate(folder.path());
    let options =
        ["--listen", "192.0.2.1:0", "--token-file", token.to_str().unwrap(), "--tls-cert", &cert, "--tls-key", &key];
    let options = [&options[..], &["--timing", "http_header=10m,http_total=20m"]].concat();
    let Some(served) = Served::start(&options) else { return };
    let curl = |header: &str| {
        let url = format!("https://{}/metrics", served.address);
        let out =
            Command::new("curl").args(["-sS", "--cacert", &cert, "-H", header, "-w", "%{http_code}", &url]).output();
        String::from_utf8(out.unwrap().stdout).unwrap()
    };
    // Handshakes that do not end keep no other client out.
    let half: Vec<TcpStream> = (0..100).map(|_| served.connect()).collect();
    half.iter().for_each(|mut stream| drop(stream.write(b"\x16\x03\x01\x02\x00")));
    assert!(curl("X: 1").ends_with("401"));
    assert!(curl("Authorization: Bearer wrong").ends_with("401"));
    let page = curl(&format!("Authorization: Bearer {TOKEN}"));
    assert!(page.contains("weir_packets_received_total{") && page.ends_with("200"), "{page}");
    let plain = served.raw(b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(!plain.contains("weir_"), "{plain}");
    // The server has all it needs in the sandbox.
    let seccomp = fs::read_dir(format!("/proc/{}/task", served.probe.process.0.id())).unwrap();
    for task in seccomp {
        assert!(fs::read_to_string(task.unwrap().path().join("status")).unwrap().contains("Seccomp:\t2"));
    }
    served.probe.stop(0);
}

#[test]
fn an_interface_that_cannot_be_served_is_refused_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (_folder, good) = token_file(TOKEN, 0o600);
    let (_folder, open) = token_file(TOKEN, 0o644);
    let (_folder, short) = token_file("short", 0o600);
    let [good, open, short] = [&good, &open, &short].map(|path: &std::path::PathBuf| path.to_str().unwrap());
    let no_pem = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let no_pem = no_pem.to_str().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["--listen", "0.0.0.0:9477"], "reachable from other machines, which needs TLS and a token"),
        (&["--listen", "0.0.0.0:9477", "--token-file", good], "give --tls-cert, --tls-key and --token-file"),
        (&["--listen", ":9477"], "write 9477 to listen on loopback only"),
        (&["--listen", "probe.example:1"], "write a port, as in 9477"),
        (&["--token-file", good], "--listen"),
        (&["--listen", "0", "--token-file", open], "other users may read this file (mode 644)"),
        (&["--listen", "0", "--token-file", short], "one line of 16 to 1024"),
        (&["--listen", "0", "--token-file", "/nonexistent"], "--token-file: /nonexistent: No such file"),
        (&["--listen", "0", "--tls-cert", no_pem, "--tls-key", no_pem], "--tls-cert: "),
    ];
    for (options, reason) in cases {
        for check in [&[][..], &["--check"]] {
            let out =
                command().args(["probe", "-i", "synth:mix,packets=1k"]).args(options).args(check).output().unwrap();
            let err = String::from_utf8(out.stderr).unwrap().replace('\n', " ").replace("  ", " ");
            assert!(out.status.code() == Some(1) && err.contains(reason), "{options:?} {check:?}: {err}");
        }
    }
    let (_folder, others) = token_file(TOKEN, 0o600);
    match std::os::unix::fs::chown(&others, Some(4_321), None) {
        Ok(()) => {
            let others = others.to_str().unwrap();
            let err = failure(1, ["probe", "-i", "synth:mix,packets=1k", "--listen", "0", "--token-file", others]);
            assert!(err.contains("this file belongs to another user (uid 4321)"), "{err}");
        }
        Err(error) => eprintln!("SKIPPED: a token of another user: {error}"),
    }
    let listen = ["probe", "-i", "synth:mix,packets=1k", "--listen", &taken];
    let err = failure(1, listen);
    assert!(err.contains("another program listens there"), "{err}");
    // A probe that has the port may be running.
    let plan = testbed::success([&listen[..], &["--check", "--token-file", good]].concat());
    assert!(plan.contains(&format!("http://{taken}, changes with the token of {good}")), "{plan}");
}

#[test]
fn a_probe_that_does_not_respond_is_not_ready() {
    let stderr = tempfile::NamedTempFile::new().unwrap();
    let mut probe = command();
    probe.args(["probe", "-i", "-", "-o", "json:/dev/null", "--listen", "0"]).stdin(Stdio::piped());
    let mut probe = testbed::Background(probe.stderr(stderr.reopen().unwrap()).spawn().unwrap());
    let mut pipe = probe.0.stdin.take().unwrap();
    pipe.write_all(&testbed::small().0).unwrap();
    let err = || fs::read_to_string(stderr.path()).unwrap();
    until("the server is ready", || err().contains("HTTP interface is ready"));
    let address = err().split_once("address=").unwrap().1.split_whitespace().next().unwrap().to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::parse(&text)
    };
    let mut ready = get("/ready");
    until("the pipeline waits for the pipe", || {
        ready = get("/ready");
        ready.status == 503
    });
    assert_eq!(ready.json()["ready"], false);
    assert!(ready.json()["reasons"][0].as_str().unwrap().contains("waits for a pipe"), "{}", ready.body);
    assert_eq!(get("/health").status, 200);
    assert_eq!(sum(&samples(&get("/metrics").body), "weir_pipeline_up", ""), 0);
    drop(pipe);
    assert_eq!(probe.0.wait().unwrap().code(), Some(0), "{}", err());
}

/// Names of metrics in a text.
fn metric_names(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("weir_") || word.starts_with("process_")).map(String::from).collect()
}

#[test]
fn dashboard_and_page_name_the_metrics_that_there_are() {
    let Some(served) = Served::start(&[]) else { return };
    let page = served.get("/metrics").body;
    let help = page.lines().filter_map(|line| line.strip_prefix("# HELP ")).map(|line| line.split(' ').next().unwrap());
    let all: std::collections::BTreeSet<String> = help.map(String::from).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(metric_names(&fs::read_to_string(root.join("docs/control.md")).unwrap()), all, "docs/control.md");
    for (file, number) in [("weir.json", 16), ("weir-clickhouse.json", 3)] {
        let text = fs::read_to_string(root.join("deploy/grafana").join(file)).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
        let expressions: Vec<_> = targets.filter_map(|target| target["expr"].as_str()).collect();
        assert_eq!(expressions.len(), number, "{file}");
        for expression in expressions {
            let names = metric_names(expression);
            assert!(names.len() == 1 && names.is_subset(&all), "{expression}");
        }
    }
    served.probe.stop(0);
}
