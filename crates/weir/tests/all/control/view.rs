//! `weir view`: the page of captures and stored flows, and that nothing of it is left.

use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use testbed::namespace::until;
use testbed::viewed::{Starting, Viewed};
use testbed::{Pcap, arguments, assert_usage_errors, captures, failure, number, request_and_response, signal, success};

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
    assert_eq!(view.request("POST", "/reload").status, 403);
    assert_eq!(view.get("/stored?store=2").status, 400);
    assert_eq!(view.stop(SIGTERM), (0, String::new(), String::new()));
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
        (&["view", store, "--listen", "192.0.2.1:1"], "--listen: "),
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
