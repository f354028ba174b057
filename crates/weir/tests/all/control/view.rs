//! `weir view`: the page of captures and stored flows, and that nothing of it is left.

use crate::export::store::source::split_groups;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use testbed::namespace::until;
use testbed::viewed::{Starting, Viewed};
use testbed::{Pcap, arguments, assert_usage_errors, captures, failure, number, request_and_response, signal, success};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
/// From when flows are asked for.
const ALL: &str = "from=1970-01-01";

fn web() -> String {
    captures().join("web.pcap").to_str().unwrap().into()
}

fn rows(view: &Viewed, query: &str, name: &str) -> Vec<Value> {
    let answer = view.get(&format!("/stored?{ALL}&{query}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()[name].as_array().unwrap().clone()
}

/// What `weir read` writes.
fn read(options: &[&str]) -> Vec<Value> {
    let out = success([&["read", "-q", "-o", "json:-"], options].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sorted(rows: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_capture_is_shown_as_weir_read_reads_it_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().to_str().unwrap();
    for signal in [SIGINT, SIGTERM] {
        let view = Starting::new(&[&web()], &[("TMPDIR", temporary)]).viewed();
        assert!(!is_empty(folder.path()));
        let about = view.get("/about").json();
        assert_eq!([&about["mode"], &about["history"], &about["inputs"][0]], ["view", "store", &web()]);
        assert_eq!(about["stores"], Value::Array(Vec::new()));
        let flows = rows(&view, "top=1000", "flows");
        assert_eq!(sorted(&flows), sorted(&read(&[&web()])));
        for (query, options) in [
            ("by=host&top=3", &["--by", "host", "--top", "3"][..]),
            ("every=1s", &["--every", "1s"]),
            ("by=service_port&count=hosts", &["--by", "service_port", "--count", "hosts"]),
        ] {
            assert_eq!(rows(&view, query, "groups"), read(&[&[&*web()], options].concat()), "{query}");
        }
        let first = flows[0]["start_time"].as_str().unwrap();
        let at = rows(&view, &format!("to={first}"), "flows");
        assert!(!at.is_empty() && at.len() < flows.len());
        let (code, out, err) = view.stop(signal);
        assert_eq!((code, &*out), (0, ""), "{err}");
        assert!(is_empty(folder.path()), "{err}");
    }
}

/// The first flows are collected on several threads, and row groups without one of them are only counted.
#[test]
fn the_first_flows_of_many_row_groups_are_those_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, small] = ["whole.parquet", "small.parquet"].map(|name| folder.path().join(name));
    let fields = "start_time,src_ip,src_port,dst_ip,packets,bytes,retransmitted,rtt";
    success(arguments!["read", "-q", "-i", "synth:lossy,flows=400,packets=9k,seed=4", "-o", whole]);
    split_groups(&whole, &small, 9);
    let small = small.to_str().unwrap();
    let view = Viewed::start(&[small]);
    let whole = read(&[small]).len() as u64;
    for condition in ["", "retransmitted > 0", "src_port in 1000-40000 and not rtt"] {
        let mut options = vec![small, "--fields", fields];
        options.extend(["--where", condition].iter().filter(|_| !condition.is_empty()));
        let all = read(&options);
        for order in ["", "start_time:asc", "bytes", "retransmitted", "rtt", "rtt:asc", "src_port", "packets:asc"] {
            let (name, is_ascending) = match order.split_once(':') {
                _ if order.is_empty() => ("start_time", false),
                None => (order, false),
                Some((name, _)) => (name, true),
            };
            for (top, offset) in [(0, 0), (1, 0), (7, 0), (50, 30), (1000, 0)] {
                let sort = if order.is_empty() { String::new() } else { format!("&sort={order}") };
                let condition = condition.replace(' ', "%20").replace('>', "%3E");
                let query = format!("/stored?{ALL}&top={top}&offset={offset}&where={condition}{sort}&fields={fields}");
                let query = if condition.is_empty() { query.replace("&where=", "") } else { query };
                let answer = view.get(&query).json();
                assert_eq!(
                    [number(&answer["matching"]), number(&answer["read"])],
                    [all.len() as u64, whole],
                    "{query}"
                );
                let key = |row: &Value| (row[name].is_null(), row[name].to_string().len(), row[name].to_string());
                let mut expected: Vec<_> = all.iter().map(key).collect();
                expected.sort_by(|one, other| {
                    let by_number = (one.1, &one.2).cmp(&(other.1, &other.2));
                    one.0.cmp(&other.0).then(if is_ascending { by_number } else { by_number.reverse() })
                });
                let found = answer["flows"].as_array().unwrap();
                let mut keys: Vec<_> = found.iter().map(key).collect();
                if order.is_empty() {
                    keys.reverse();
                }
                assert!(keys.iter().eq(expected.iter().skip(offset).take(top)), "{query}: {}", answer["flows"]);
                assert!(found.iter().all(|row| all.contains(row)), "{query}");
            }
        }
    }
}

/// In one pass, and in two if there are more rows than fit into memory.
#[test]
fn groups_in_intervals_are_the_same_in_one_pass_and_in_two() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows");
    let to = format!("parquet:{}", store.display());
    success(["read", "-q", "-i", "synth:velan,flows=2k,order=round,packets=200k,rate=20k", "-o", &to]);
    let store = store.to_str().unwrap();
    let view = Viewed::start(&[store]);
    let about = view.get("/about").json();
    let spans = (about["to_ns"].as_u64().unwrap() - about["from_ns"].as_u64().unwrap()) / 1_000_000;
    let mut longest = 0;
    for every in [1, 2, 50].map(|part| (spans / 1000 + 1) * part) {
        for (by, top) in [("src_ip", 3), ("protocol", 2), ("src_ip,src_port", 4), ("src_ip,dst_ip", 4)] {
            let every = format!("{every}ms");
            let found = rows(&view, &format!("by={by}&every={every}&top={top}&numbers=bytes,flows"), "groups");
            let read = read(&[store, "--by", by, "--every", &every, "--top", &top.to_string()]);
            let names = ["interval_start", "src_ip", "src_port", "dst_ip", "protocol", "bytes", "flows"];
            let row = |row: &Value| names.map(|name| row[name].to_string());
            assert!(found.iter().map(row).eq(read.iter().map(row)), "{by} {every}");
            longest = longest.max(found.len());
        }
    }
    assert!(longest > 100, "{longest}");
}

#[test]
fn each_number_alone_is_that_among_all() {
    const NAMES: [&str; 13] = [
        "flows",
        "packets",
        "bytes",
        "l2_bytes",
        "first_time",
        "last_time",
        "segments",
        "retransmitted",
        "retransmitted_share",
        "rtt_mean_ns",
        "rtt_max_ns",
        "response_mean_ns",
        "response_max_ns",
    ];
    let view = Viewed::start(&[&web(), "-q"]);
    let all = rows(&view, "by=server_ip&sort=flows", "groups");
    for name in NAMES {
        assert!(all.iter().any(|row| !row[name].is_null()), "{name}");
        let alone = rows(&view, &format!("by=server_ip&sort=flows&numbers={name}"), "groups");
        let values = |rows: &[Value]| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
        assert_eq!(values(&alone), values(&all), "{name}");
    }
}

#[test]
fn what_needs_a_probe_is_refused_and_the_rest_works() {
    let view = Viewed::start(&[&web(), "-q"]);
    for (method, path) in [
        ("GET", "/status"),
        ("GET", "/history"),
        ("GET", "/flows"),
        ("GET", "/metrics"),
        ("GET", "/rules"),
        ("GET", "/lists"),
        ("GET", "/timeouts"),
        ("GET", "/overrides"),
        ("GET", "/ready"),
        ("GET", "/doctor"),
    ] {
        let answer = view.request(method, path);
        assert!(answer.status == 409 && answer.body.contains("no probe is running"), "{path}: {}", answer.body);
    }
    for path in ["/health", "/fields", "/openapi.json", "/about", "/"] {
        assert_eq!(view.get(path).status, 200, "{path}");
    }
    for (method, path, status, reason) in [
        ("POST", "/reload", 403, "weir view shows what is stored, and permits no changes"),
        ("POST", "/overrides", 403, "permits no changes"),
        ("GET", "/flows", 409, "GET /about, /fields, /stored, /packets and /explain"),
        ("GET", "/stored?store=2", 400, "weir view answers from all that it shows together; leave store out"),
        ("GET", "/stored?store=0", 400, "use the number of a store, from 1"),
        ("GET", "/stored?by=mac", 400, "by: "),
        ("GET", "/stored?where=src_mac%20%3D%2002:00:00:00:00:01", 400, "do not all have the field src_mac"),
        ("GET", "/no-such-path", 404, "GET / lists all"),
        ("GET", "/about?x=1", 400, "remove what follows the ?"),
        ("DELETE", "/stored", 403, "permits no changes"),
    ] {
        let answer = view.request(method, path);
        assert!(answer.status == status && answer.body.contains(reason), "{method} {path}: {}", answer.body);
    }
    // The list of paths has those that work.
    let list = view.get("/").body;
    assert!(list.starts_with("Weir: stored flows, served by weir view\n") && list.contains("GET  /stored "), "{list}");
    assert!(!list.contains("/metrics") && !list.contains("/overrides") && !list.contains("/reload"), "{list}");
    assert_eq!(view.stop(SIGTERM), (0, String::new(), String::new()));
}

#[test]
fn transactions_are_shown_apart_from_flows() {
    let folder = tempfile::tempdir().unwrap();
    let [flows, records] = ["flows", "transactions"].map(|name| folder.path().join(name).display().to_string());
    let [to_flows, to_records] = [&flows, &records].map(|path| format!("parquet:{path}"));
    let dns = captures().join("dns.pcap.gz").display().to_string();
    success(["read", "-q", &dns, "-o", &to_flows, "--transactions", &to_records]);
    let query = "records=transactions&by=dns_name&sum=dns_queries&sort=dns_failed&top=5";
    let options = ["--by", "dns_name", "--sum", "dns_queries", "--sort", "dns_failed", "--top", "5"];
    let expected = read(&[&[&*records][..], &options].concat());
    for inputs in [&[&*flows, &*records][..], &[&*records]] {
        let view = Viewed::start(&[&["-q"], inputs].concat());
        let about = view.get("/about").json();
        assert_eq!(about["transactions"], Value::from(vec![records.clone()]), "{about}");
        assert!(about["from_ns"].is_u64(), "{about}");
        assert_eq!(rows(&view, query, "groups"), expected);
        for (question, wanted) in [
            ("by=dns_name&where=bytes%20%3E%20100", "where: transactions do not have the field bytes"),
            ("where=retransmitted%20%3E%201", "where: transactions do not have the field retransmitted"),
            ("by=end_reason", "by: transactions do not have the field end_reason"),
            ("by=dns_name&sort=bytes", "sort: "),
            ("sort=bytes", "sort: transactions do not have the field bytes"),
            ("fields=packets,bytes", "fields: transactions do not have the field packets"),
        ] {
            let refused = view.get(&format!("/stored?records=transactions&{question}"));
            assert!(refused.status == 400 && refused.body.contains(wanted), "{question}: {}", refused.body);
        }
        let of_groups = &rows(&view, "records=transactions&by=dns_name", "groups")[0];
        assert!(of_groups["flows"].is_u64() && of_groups["bytes"].is_null() && of_groups["packets"].is_null());
        let only = rows(&view, "records=transactions&fields=packets,dns_name&top=1", "flows");
        assert_eq!(only[0].as_object().unwrap().keys().collect::<Vec<_>>(), ["dns_name"], "{only:?}");
        if inputs.len() == 2 {
            assert_eq!(about["stores"], Value::from(vec![flows.clone()]));
            assert_eq!(sorted(&rows(&view, "top=1000", "flows")), sorted(&read(&[&flows])));
        } else {
            assert_eq!(about["history"], "none");
            assert_eq!(view.get("/stored").status, 409);
        }
        assert_eq!(view.stop(SIGTERM).0, 0);
    }
    let refused = failure(1, ["read", "-q", &records, "--where", "bytes > 100"]);
    assert!(refused.contains("--where: transactions do not have bytes"), "{refused}");
    for options in [&["--by", "dns_name"][..], &["--every", "1m"], &["--by", "dns_name", "--every", "1m"]] {
        let table = success([&["read", "-q", &records], options].concat());
        assert!(table.contains("flows") && !table.contains("bytes") && !table.contains("packets"), "{table}");
    }
    let view = Viewed::start(&["-q", &flows]);
    let answer = view.get("/stored?records=transactions");
    assert!(answer.status == 409 && answer.body.contains("no transactions are stored"), "{}", answer.body);
    assert!(view.get("/stored?records=packets").body.contains("records: use flows or transactions"));
    view.stop(SIGTERM);
}

#[test]
fn a_view_answers_from_all_it_has_unless_a_time_is_named() {
    let capture = Pcap::new().frame(1_000_000_000, 0, &request_and_response(7)[0]).saved();
    let view = Viewed::start(&[capture.name(), "-q"]);
    assert_eq!(number(&view.get("/stored").json()["matching"]), 1);
    assert_eq!(number(&view.get("/stored?by=host").json()["matching"]), 1);
    assert_eq!(number(&view.get("/stored?from=-1h").json()["matching"]), 0);
    assert_eq!(view.stop(SIGTERM).0, 0);
    // --from and --to limit what it says it has, too.
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows");
    success(["read", "-q", capture.name(), "-o", &format!("parquet:{}", store.display())]);
    let view = Viewed::start(&[store.to_str().unwrap(), "--from", "2002-01-01"]);
    assert_eq!(
        (number(&view.get("/stored").json()["matching"]), &view.get("/about").json()["from_ns"]),
        (0, &Value::Null)
    );
    assert_eq!(view.stop(SIGTERM).0, 0);
}

#[test]
fn a_view_of_many_flows_says_when_the_newest_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows").display().to_string();
    // Hours of three days, with flows each second.
    for day in [1_700_000_000, 1_700_100_000, 1_700_200_000] {
        let mut capture = Pcap::new();
        for second in 0..50 {
            capture = capture.frame(day + second, 0, &request_and_response(second as u16)[0]);
        }
        success(arguments!["read", "-q", capture.saved().name(), "-o", format!("parquet:{store}")]);
    }
    let newest = |options: &[&str]| {
        let view = Viewed::start(&[&["-q", &store], options].concat());
        let about = view.get("/about").json();
        assert_eq!(view.stop(SIGTERM).0, 0);
        about["newest_from_ns"].clone()
    };
    let near = |found: &Value, seconds: u64| {
        let (found, expected) = (number(found), seconds * 1_000_000_000);
        assert!(found.abs_diff(expected) < 2_000_000_000, "{found} is not near {expected}");
    };
    near(&newest(&["--newest", "20"]), 1_700_200_030);
    near(&newest(&["--newest", "75"]), 1_700_100_025);
    // Of the flows of a time.
    near(&newest(&["--newest", "20", "--to", "2023-11-16T10:00"]), 1_700_100_030);
    // There are no more, or all are wanted.
    for all in ["150", "1000", "0"] {
        assert_eq!(newest(&["--newest", all]), Value::Null, "{all}");
    }
    assert_eq!(newest(&[]), Value::Null);
}

#[test]
fn a_hangup_ends_a_view_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let view = Starting::new(&[&web(), "-q"], &[("TMPDIR", folder.path().to_str().unwrap())]).viewed();
    let (code, out, err) = view.stop(SIGHUP);
    assert_eq!((code, &*out), (0, ""), "{err}");
    assert!(err.contains("SIGHUP ends weir view, which has nothing to reload"), "{err}");
    assert!(is_empty(folder.path()));
}

#[test]
fn a_store_is_shown_while_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows");
    let write = |name: &str, seconds: u32| {
        let capture = Pcap::new().frame(seconds, 0, &request_and_response(7)[0]).save(folder.path(), name);
        success(arguments!["read", "-q", capture, "-o", format!("parquet:{}", store.display())]);
    };
    write("one.pcap", 1_700_000_000);
    let view = Viewed::start(&[store.to_str().unwrap()]);
    assert_eq!(view.get("/about").json()["stores"][0], store.to_str().unwrap());
    assert_eq!(rows(&view, "", "flows").len(), 1);
    write("two.pcap", 1_700_100_000);
    assert_eq!(rows(&view, "", "flows").len(), 2);
    let about = view.get("/about").json();
    let [from, to] = ["from_ns", "to_ns"].map(|name| about[name].as_u64().unwrap() / 1_000_000_000);
    assert_eq!([from, to], [1_700_000_000, 1_700_100_000]);
    assert_eq!(view.stop(SIGINT).0, 0);
    // Only flows of a time that match.
    let view = Viewed::start(&[store.to_str().unwrap(), "--from", "2023-11-15", "--where", "udp"]);
    assert_eq!(rows(&view, "where=port%2053", "flows").len(), 1);
    assert_eq!(rows(&view, "where=port%2054", "flows").len(), 0);
    let view = Viewed::start(&[store.to_str().unwrap(), "--where", "tcp"]);
    assert_eq!(rows(&view, "", "flows").len(), 0);
}

#[test]
fn a_pipe_is_shown_when_it_has_ended() {
    let mut starting = Starting::new(&["-", "-f", "tcp", "-q"], &[]);
    starting.input().write_all(&fs::read(web()).unwrap()).unwrap();
    let view = starting.viewed();
    assert_eq!(sorted(&rows(&view, "top=1000", "flows")), sorted(&read(&[&web(), "-f", "tcp"])));
    assert_eq!(view.stop(SIGTERM).0, 0);
}

#[test]
fn captures_stores_and_other_flows_are_shown_together() {
    let folder = tempfile::tempdir().unwrap();
    let [store, ipfix] = ["flows", "flows.ipfix"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    success(["read", "-q", &web(), "-o", &format!("parquet:{store}"), "-o", &ipfix]);
    let one = read(&[&web()]).len();
    let view = Viewed::start(&[&web(), &store, &ipfix]);
    assert_eq!(number(&view.get(&format!("/stored?{ALL}")).json()["matching"]), 3 * one as u64);
    assert_eq!(view.stop(SIGTERM).0, 0);
}

#[test]
fn a_truncated_capture_is_shown_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    let octets = fs::read(web()).unwrap();
    fs::write(&path, &octets[..octets.len() * 2 / 3]).unwrap();
    let view = Viewed::start(&[path.to_str().unwrap()]);
    let body = view.get(&format!("/stored?{ALL}")).json();
    let problems = body["problems"].as_array().unwrap();
    assert!(number(&body["matching"]) > 0 && problems.len() == 1, "{body}");
    assert!(problems[0].as_str().unwrap().contains("cut.pcap") && body["complete"] == false, "{body}");
    let (code, _, err) = view.stop(SIGTERM);
    assert!(code == 2 && err.contains("damaged input"), "{code} {err}");
    // Without packets.
    let empty = Pcap::new().save(folder.path(), "empty.pcap");
    let view = Viewed::start(&[empty.to_str().unwrap()]);
    let about = view.get("/about").json();
    assert_eq!((about["from_ns"].clone(), rows(&view, "every=1s", "groups").len()), (Value::Null, 0));
    assert_eq!(view.stop(SIGTERM).0, 0);
}

#[test]
fn a_signal_while_a_pipe_is_read_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut starting = Starting::new(&["-"], &[("TMPDIR", folder.path().to_str().unwrap())]);
    let mut input = starting.input();
    input.write_all(&fs::read(web()).unwrap()).unwrap();
    until("it has its folder", || !is_empty(folder.path()));
    signal(&starting.child, SIGINT);
    signal(&starting.child, SIGTERM);
    let (code, err) = starting.ended();
    assert!(code == 2 && err.contains("interrupted"), "{code} {err}");
    assert!(is_empty(folder.path()));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let (other, text) = (folder.path().join("other"), folder.path().join("text.pcap"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "x").unwrap();
    fs::write(&text, "this is no capture, and long enough to be one").unwrap();
    let [other, text] = [&other, &text].map(|path| path.to_str().unwrap());
    let store = folder.path().join("store");
    success(["read", "-q", &web(), "-o", &format!("parquet:{}", store.display())]);
    let store = store.to_str().unwrap();
    assert_usage_errors(&[
        (&["view"], "nothing to read"),
        (&["view", "/no/such/file"], "/no/such/file: No such file"),
        (&["view", other], "is no store of Weir"),
        (&["view", "af_packet:eth0"], "weir probe -i af_packet:eth0 --listen 9477"),
        (&["view", store, "-f", "tcp"], "--filter needs packets"),
        (&["view", store, "--geo", "x.mmdb"], "--geo: the flows of a store have what they were stored with"),
        (&["view", store, "--listen", "192.0.2.1:1"], "--listen: 192.0.2.1:1 is reachable from other machines"),
        (&["view", store, "--token-file", "/no/such/file"], "--token-file: /no/such/file: No such file"),
        (&["view", store, "--token-file", "/"], "--token-file: /: is a directory; name a file in it"),
        (&["view", store, "--tls-cert", text, "--tls-key", text], "--tls-cert: "),
        (&["view", "http://127.0.0.1:9477"], "open it in a browser, or watch it with 'weir top http://127.0.0.1:9477'"),
        (&["view", store, "--from", "2024-01-02", "--to", "2024-01-01"], "--from is later than --to"),
        (&["view", store, "--where", "src_prt = 1"], "src_prt"),
    ]);
    let (code, err) = Starting::new(&[text], &[("TMPDIR", temporary.to_str().unwrap())]).ended();
    assert!(code == 1 && err.contains("text.pcap"), "{err}");
    assert!(is_empty(&temporary));
    let err = failure(1, ["view", store, "--tls-cert", "x"]);
    assert!(err.contains("--tls-key"), "{err}");
}

#[test]
fn the_page_is_opened_in_the_browser_of_the_desktop() {
    let folder = tempfile::tempdir().unwrap();
    let (program, told) = (folder.path().join("xdg-open"), folder.path().join("told"));
    fs::write(&program, format!("#!/bin/sh\necho \"$1\" > '{}.part'; mv '{0}.part' '{0}'\n", told.display())).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let view = Starting::new(&[&web(), "--open"], &[("PATH", &path)]).viewed();
    until("the browser has the address", || told.exists());
    assert_eq!(fs::read_to_string(&told).unwrap(), format!("http://{}/\n", view.address));
    assert_eq!(view.stop(SIGTERM).0, 0);
    let (code, err) = Starting::new(&[&web(), "--open"], &[("PATH", "/no/such/folder")]).ended();
    assert!(code == 1 && err.contains("no program xdg-open"), "{err}");
}
