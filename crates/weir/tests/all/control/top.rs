//! `weir top`: keys, sizes and endings on a terminal, `--once` without one; with a probe, an interface and a capture.

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::Stdio;
use testbed::namespace::until;
use testbed::running::{Running, send_requests, wire};
use testbed::served::Served;
use testbed::terminal::Terminal;
use testbed::viewed::Viewed;
use testbed::{
    Background, Pcap, assert_usage_errors, captures, command, failure, number, request_and_response, signal, success,
    tcp, text_of,
};

/// `weir top` on a terminal.
pub(super) fn start(arguments: &[&str]) -> Terminal {
    Terminal::start(command().arg("top").args(arguments).env_remove("NO_COLOR"), (80, 24))
}

#[test]
fn keys_choose_what_a_probe_is_asked_for_and_sizes_change() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..50);
    let url = format!("http://{}", served.address);
    let mut terminal = start(&[&url, "--interval", "200ms"]);
    terminal.wait_for("10.1.0.1 ");
    terminal.wait_for("no record waits for 1 sink");
    terminal.wait_for("[1 hosts]  2 pairs");
    terminal.keys("2");
    terminal.wait_for(" → 10.1.0.1 ");
    terminal.keys("3");
    terminal.wait_for("10.1.0.1:53 ");
    terminal.keys("/byts > 1\r");
    terminal.wait_for("did you mean bytes?");
    assert_eq!(terminal.lines()[22], "       ^^^^");
    terminal.keys("\u{15}port 1030\r");
    terminal.wait_for("where port 1030  sums of current flows");
    terminal.keys("5");
    terminal.wait_for("10.0.0.6:1030 → 10.1.0.1:53");
    terminal.keys("\r");
    terminal.wait_for("community_id");
    terminal.keys("\u{1b}");
    terminal.wait_for("1-6 list");
    terminal.keys("?");
    terminal.wait_for("Keys and figures");
    terminal.keys("x");
    terminal.resize((20, 5));
    until("it is too small", || terminal.lines()[0] == "needs 40x12");
    terminal.resize((200, 60));
    terminal.wait_for("1-6 list");
    assert!(terminal.lines()[59].starts_with("1-6 list"), "{:#?}", terminal.lines());
    terminal.keys("q");
    terminal.end_restored(Some(0));
    served.probe.stop(0);
}

#[test]
fn the_probe_of_an_interface_ends_with_the_screen_however_that_ends() {
    let Some(mut sender) = wire() else { return };
    testbed::namespace::ip("link set lo up");
    for (ending, code) in [("q", Some(0)), ("\u{3}", Some(0)), ("INT", Some(0)), ("TERM", Some(0)), ("KILL", None)] {
        let mut terminal = start(&["right", "--interval", "200ms"]);
        terminal.wait_for("active flows");
        send_requests(&mut sender, 0..20);
        terminal.wait_for("10.1.0.1 ");
        let children = terminal.children();
        assert_eq!(children.len(), 1);
        match ending {
            "INT" => signal(&terminal.process.0, libc::SIGINT),
            "TERM" => signal(&terminal.process.0, libc::SIGTERM),
            "KILL" => terminal.process.0.kill().unwrap(),
            key => terminal.keys(key),
        }
        match code {
            Some(_) => terminal.end_restored(code),
            None => drop(terminal.process.0.wait()),
        }
        let has_ended = || {
            let status = fs::read_to_string(format!("/proc/{}/status", children[0])).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        };
        until("the probe has ended", has_ended);
    }
}

#[test]
fn a_probe_that_comes_back_is_asked_again() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..20);
    let address = served.address.to_string();
    let terminal = start(&[&format!("http://{address}"), "--interval", "200ms"]);
    terminal.wait_for("10.1.0.1 ");
    served.probe.stop(0);
    terminal.wait_for("trying again");
    terminal.wait_for("weir top  OLD  ");
    terminal.wait_for("10.1.0.1 ");
    let again = Running::probe("af_packet:right", &["--listen", &address]);
    let is_old = || terminal.lines().iter().any(|line| line.contains("trying again") || line.contains("OLD"));
    until("it answers", || !is_old());
    signal(&terminal.process.0, libc::SIGTERM);
    terminal.end_restored(Some(0));
    again.stop(0);
}

#[test]
fn a_probe_that_hangs_is_named_and_goes_on() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..20);
    let url = format!("http://{}", served.address);
    let terminal = start(&[&url, "--interval", "200ms"]);
    terminal.wait_for("10.1.0.1 ");
    served.probe.signal(libc::SIGSTOP);
    terminal.wait_for("no answer for ");
    terminal.wait_for("weir top  OLD  ");
    terminal.wait_for("10.1.0.1 ");
    let err = failure(1, ["top", &url, "--once", "--timing", "top_first=200ms"]);
    assert!(err.contains("no answer within 200ms: is the address right, and is the probe stopped"), "{err}");
    served.probe.signal(libc::SIGCONT);
    let is_silent = || terminal.lines().iter().any(|line| line.contains("no answer") || line.contains("OLD"));
    until("it answers", || !is_silent());
    signal(&terminal.process.0, libc::SIGTERM);
    terminal.end_restored(Some(0));
    served.probe.stop(0);
}

#[test]
fn the_probe_of_an_interface_that_ends_leaves_its_last_figures() {
    let Some(mut sender) = wire() else { return };
    testbed::namespace::ip("link set lo up");
    let terminal = start(&["af_packet:right", "--interval", "200ms"]);
    terminal.wait_for("active flows");
    send_requests(&mut sender, 0..20);
    terminal.wait_for("10.1.0.1 ");
    let child = rustix::process::Pid::from_raw(terminal.children()[0] as i32).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    terminal.wait_for("trying again");
    terminal.wait_for("10.1.0.1 ");
    terminal.keys("q");
    terminal.end_restored(Some(2));
}

/// The rows of `--once` behind the heading that begins with a word.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let rows = text.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    rows.map(|line| line.split_whitespace().map(String::from).collect()).collect()
}

#[test]
fn once_prints_what_a_capture_has() {
    let web = captures().join("web.pcap");
    let web = web.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let (code, out, err) = text_of(&command().arg("top").arg(web).arg("--once").args(arguments).output().unwrap());
        assert_eq!(code, 0, "{err}");
        assert!(out.lines().all(|line| line.chars().count() <= 80) && err.is_empty(), "{out}{err}");
        out
    };
    let hosts = run(&[]);
    let read = success(["read", web, "-q", "--by", "host", "-o", "json:-"]);
    let expected: Vec<Vec<String>> = read
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|row| ["host", "packets", "flows"].map(|key| row[key].to_string().replace('"', "")).to_vec())
        .collect();
    let found = rows(&hosts, "host ").into_iter().filter(|row| row.len() > 5 && row[0] != "too");
    let found: Vec<Vec<String>> = found.map(|row| [0, 2, 3].map(|at| row[at].clone()).to_vec()).collect();
    assert_eq!(found, expected, "{hosts}");
    assert!(hosts.contains("began   2026-11-21 02:51:17.845 to 02:51:18.097 UTC"), "{hosts}");
    let failures = run(&["--list", "failures"]);
    assert!(failures.contains("refused") && failures.contains("HTTP 4xx"), "{failures}");
    let one = run(&["--list", "pairs", "--top", "1", "--sort", "packets", "--where", "ip4"]);
    assert_eq!(rows(&one, "source ")[0][..3], ["192.0.2.1", "→", "192.0.2.2"]);
    let err = failure(1, ["top", web, "--once", "--where", "byts > 1"]);
    assert!(err.contains("did you mean bytes?") && err.contains("\nweir:   ^^^^\n"), "{err}");
    assert!(failure(1, ["top", web, "--once", "--sort", "nonsense"]).contains("sort: "));
    let generated = success(["top", "synth:mix,flows=100,packets=2k", "--once", "--list", "servers", "--top", "3"]);
    assert!(generated.contains("stored flows") && rows(&generated, "server ").len() > 3, "{generated}");
    let view = Viewed::start(&[web]);
    let url = format!("http://{}", view.address);
    for target in [web, &url] {
        let err = failure(1, ["top", target, "--once", "--list", "pairs", "--sort", "rate"]);
        assert!(err.contains("no rates; sort pairs by bytes, packets, flows, fwd_bytes, "), "{err}");
    }
    assert_eq!(view.stop(15).0, 0);
}

#[test]
fn a_damaged_capture_is_called_damaged_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    let octets = fs::read(captures().join("web.pcap")).unwrap();
    fs::write(&path, &octets[..octets.len() * 2 / 3]).unwrap();
    let path = path.to_str().unwrap();
    let (code, out, err) = text_of(&command().args(["top", path, "--once"]).output().unwrap());
    assert_eq!((code, &*err), (2, ""), "{out}");
    assert!(out.contains("damaged: this is what could be read") && !out.contains("in time"), "{out}");
    assert!(out.contains(&format!("{path}: at byte ")) && out.contains("192.0.2.1 "), "{out}");
    let terminal = start(&[path]);
    terminal.wait_for("damaged: this is what could be read");
    terminal.wait_for("192.0.2.1 ");
    terminal.keys("q");
    terminal.end_restored(Some(0));
}

#[test]
fn times_of_years_have_dates() {
    let frames = request_and_response(7);
    let capture = Pcap::new().frame(1_000_000_000, 0, &frames[0]).frame(1_400_000_000, 500_000, &frames[1]).saved();
    for list in ["hosts", "flows", "failures"] {
        let mut top = command();
        top.args(["top", capture.name(), "--once", "--list", list]).env("COLUMNS", "200");
        let (code, out, err) = text_of(&top.output().unwrap());
        assert_eq!((code, &*err), (0, ""));
        let rows = out.split_once(" UTC\n").or(out.split_once("failure")).unwrap().1;
        assert!(list == "failures" || rows.contains("2001-09-09 01:46:40.000"), "{out}");
        assert!(out.contains("began   2001-09-09 01:46:40.000 to 2014-05-13 16:53:20.500 UTC"), "{out}");
    }
}

#[test]
fn once_prints_what_a_probe_has_now() {
    let Some(mut served) = Served::start(&["--interval", "200ms"]) else { return };
    send_requests(&mut served.sender, 0..30);
    let url = format!("http://{}", served.address);
    let arguments = ["top", &url, "--once", "--interval", "200ms", "--list", "servers"];
    let (code, out, err) = text_of(&command().args(arguments).output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains(" packets/s  ") && out.contains("lost 0 packets"), "{out}");
    assert_eq!(rows(&out, "server ")[0][0], "10.1.0.1:53");
    assert_eq!(rows(&out, "server ")[0][1], "0", "no octets between two answers: {out}");
    served.probe.stop(0);
    assert!(failure(1, ["top", &url, "--once"]).contains("Connection refused"));
}

/// Two connections without an answer, and a scan, of which all have ended.
#[test]
fn failures_that_have_ended_are_counted_and_a_scan_is_a_row() {
    let Some(mut served) = Served::start(&["--interval", "200ms", "--idle", "200ms"]) else { return };
    let syn = |source: u8, port, target: u8| tcp(([10, 0, 0, source], port), ([10, 1, 0, target], 22), 2, 0);
    let scan = (1..=30).map(|target| syn(66, 50_000 + u16::from(target), target));
    [syn(7, 40_000, 1), syn(8, 40_000, 2)].into_iter().chain(scan).for_each(|frame| served.sender.send(&frame));
    let failed = || number(&served.get("/stored?where=tcp_failure&from=-15m").json()["matching"]);
    until("all have ended", || failed() == 32);
    let url = format!("http://{}", served.address);
    let list =
        |more: &[&str]| success([&["top", &url, "--once", "--interval", "200ms", "--list", "failures"], more].concat());
    let out = list(&[]);
    assert!(out.contains("failed: 0 current; of the last 15 min: 2 stored, 30 in 1 scan\n"), "{out}");
    assert_eq!(rows(&out, "  start UTC")[0][2..8].join(" "), "10.0.0.66 → 30 hosts, 1 port", "{out}");
    assert_eq!(out.matches(" tcp ").count(), 3, "{out}");
    assert!(out.contains(" scan: 30 no answer") && out.contains(" 10.0.0.7:40000 → 10.1.0.1:22 no answer"), "{out}");
    let out = list(&["--top", "1", "--where", "not src_ip = 10.0.0.66"]);
    assert!(out.contains("of the last 15 min: 2 stored\n") && !out.contains("scan"), "{out}");
    served.probe.stop(0);
}

#[test]
fn what_cannot_be_shown_is_an_error_with_a_sentence() {
    let web = captures().join("web.pcap");
    let web = web.to_str().unwrap();
    assert_usage_errors(&[
        (&["top", web], "standard output is no terminal: --once prints one screen as text"),
        (&["top", "no-such-thing", "--once"], "no-such-thing: no interface, no file and no folder has this name"),
        (&["top", "-", "--once"], "standard input has the keys"),
        (&["top", "http://127.0.0.1", "--once"], "write http://HOST:PORT"),
        (&["top", "https://127.0.0.1:1", "--once"], "needs --ca FILE"),
        (&["top", web, "--once", "--ca", "x"], "--token-file and --ca are for a URL"),
        (&["top", "synth:mux", "--once"], "there is no traffic profile 'mux'"),
        (&["top", "af_packet:no-such-thing", "--once"], "no-such-thing"),
        (&["top", web, "--top", "0"], "use a number from 1 to 1000"),
        (&["top", web, "--interval", "1ms"], "use a time from 200ms to 1h"),
    ]);
}

#[test]
fn a_view_ends_with_the_screen() {
    let web = captures().join("web.pcap");
    let terminal = start(&[web.to_str().unwrap()]);
    terminal.wait_for("192.0.2.1 ");
    terminal.keys("6");
    terminal.wait_for("refused");
    let children = terminal.children();
    terminal.keys("\r");
    terminal.wait_for("end_time ");
    terminal.keys("q");
    terminal.end_restored(Some(0));
    until("the view has ended", || fs::metadata(format!("/proc/{}", children[0])).is_err());
}

#[test]
fn a_child_ends_with_its_standard_input() {
    let web = captures().join("web.pcap");
    let mut view = command();
    view.args(["view", web.to_str().unwrap()]).env("WEIR_ENDS_WITH_STDIN", "1");
    let mut view = Background(view.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut first = [0; 5];
    view.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"page:");
    drop(view.0.stdin.take());
    assert_eq!(view.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_that_is_gone_ends_the_command_and_its_child() {
    let web = captures().join("web.pcap");
    let terminal = start(&[web.to_str().unwrap()]);
    terminal.wait_for("192.0.2.1 ");
    let children = terminal.children();
    assert_eq!(terminal.hang_up(), Some(1));
    until("the view has ended", || fs::metadata(format!("/proc/{}", children[0])).is_err());
}
