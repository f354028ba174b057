//! `weir top`: keys, sizes and endings on a terminal, `--once` without one; with a probe, an interface and a capture.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use testbed::namespace::until;
use testbed::running::{Running, send_requests, wire};
use testbed::served::Served;
use testbed::viewed::Viewed;
use testbed::{
    Background, Pcap, assert_usage_errors, captures, command, failure, number, request_and_response, signal, success,
    tcp, text_of,
};

/// A terminal with `weir top` on it.
pub(super) struct Terminal {
    process: Background,
    master: OwnedFd,
    /// The other side, so that its settings can be read when the command has ended.
    slave: File,
    pub(super) written: Arc<Mutex<Vec<u8>>>,
    reading: Arc<AtomicBool>,
    reader: JoinHandle<()>,
    before: Termios,
    size: (u16, u16),
}

impl Terminal {
    pub(super) fn start(arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let slave = open();
        let before = tcgetattr(&slave).unwrap();
        let mut top = command();
        top.arg("top").args(arguments).env("TERM", "xterm").env_remove("NO_COLOR");
        resize(&master, (80, 24));
        let process = Background(top.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap());
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let (reader, all) = (File::from(master.try_clone().unwrap()), written.clone());
        let reading = Arc::new(AtomicBool::new(true));
        let goes_on = reading.clone();
        let reader = thread::spawn(move || read(reader, &all, &goes_on));
        Self { process, master, slave, written, reading, reader, before, size: (80, 24) }
    }

    /// Removes the terminal, as the end of a connection does, and returns the exit code.
    fn hang_up(mut self) -> Option<i32> {
        self.reading.store(false, Relaxed);
        self.reader.join().unwrap();
        drop(self.master);
        self.process.0.wait().unwrap().code()
    }

    fn resize(&mut self, size: (u16, u16)) {
        resize(&self.master, size);
        self.size = size;
    }

    pub(super) fn keys(&self, keys: &str) {
        File::from(self.master.try_clone().unwrap()).write_all(keys.as_bytes()).unwrap();
    }

    fn screen(&self) -> Vec<String> {
        shown(&String::from_utf8_lossy(&self.written.lock().unwrap()), self.size)
    }

    /// Waits until a line of the screen has a text.
    pub(super) fn wait_for(&self, text: &str) {
        let started = std::time::Instant::now();
        while !self.screen().iter().any(|line| line.contains(text)) {
            assert!(started.elapsed() < testbed::namespace::BOUND, "no {text:?}: {:#?}", self.screen());
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// The processes that it has started.
    fn children(&self) -> Vec<u32> {
        let id = self.process.0.id();
        let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let all: Vec<String> = threads.map(of_thread).collect();
        all.join(" ").split_whitespace().map(|child| child.parse().unwrap()).collect()
    }

    /// Waits for the end, and asserts that the terminal is as it was.
    pub(super) fn end(mut self, code: Option<i32>) {
        assert_eq!(self.process.0.wait().unwrap().code(), code, "{:#?}", self.screen());
        let after = tcgetattr(&self.slave).unwrap();
        let modes =
            |termios: &Termios| format!("{:?}", (termios.input_modes, termios.output_modes, termios.local_modes));
        assert_eq!(modes(&self.before), modes(&after));
        let is_restored = || {
            let text = String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned();
            let [enter, leave, show] = ["\u{1b}[?1049h", "\u{1b}[?1049l", "\u{1b}[?25h"].map(|code| text.rfind(code));
            leave.is_some() && enter < leave && show.is_some() && !text.contains("panicked")
        };
        until("the screen from before is back", is_restored);
    }
}

/// Reads what is written to a terminal.
fn read(mut reader: File, all: &Mutex<Vec<u8>>, goes_on: &AtomicBool) {
    let mut octets = [0; 4096];
    let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while goes_on.load(Relaxed) {
        if let Ok(0) = poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&wait)) {
            continue;
        }
        let Ok(length @ 1..) = reader.read(&mut octets) else { return };
        all.lock().unwrap().extend(&octets[..length]);
    }
}

fn resize(master: &OwnedFd, (columns, rows): (u16, u16)) {
    tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// What a terminal shows after these octets.
fn shown(written: &str, (columns, rows): (u16, u16)) -> Vec<String> {
    let (mut cells, mut row, mut column) = (vec![vec![' '; columns.into()]; rows.into()], 0_usize, 0_usize);
    let mut rest = written.chars();
    while let Some(letter) = rest.next() {
        if letter != '\u{1b}' {
            if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                *cell = letter;
            }
            column += 1;
            continue;
        }
        // What is written last may not be whole yet.
        let Some(bracket) = rest.next() else { break };
        assert_eq!(bracket, '[');
        let parameters: String = rest.by_ref().take_while(|letter| !letter.is_ascii_alphabetic()).collect();
        let end = written[..written.len() - rest.as_str().len()].chars().next_back();
        match (end, parameters.split_once(';')) {
            (Some('H'), Some((to_row, to_column))) => {
                (row, column) = (to_row.parse::<usize>().unwrap() - 1, to_column.parse::<usize>().unwrap() - 1);
            }
            (Some('J'), _) => cells.iter_mut().for_each(|line| line.fill(' ')),
            _ => {}
        }
    }
    cells.into_iter().map(|line| String::from_iter(line).trim_end().to_owned()).collect()
}

#[test]
fn keys_choose_what_a_probe_is_asked_for_and_sizes_change() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..50);
    let url = format!("http://{}", served.address);
    let mut terminal = Terminal::start(&[&url, "--interval", "200ms"]);
    terminal.wait_for("10.1.0.1 ");
    terminal.wait_for("no record waits for 1 sink");
    terminal.wait_for("[1 hosts]  2 pairs");
    terminal.keys("2");
    terminal.wait_for(" → 10.1.0.1 ");
    terminal.keys("3");
    terminal.wait_for("10.1.0.1:53 ");
    terminal.keys("/byts > 1\r");
    terminal.wait_for("did you mean bytes?");
    assert_eq!(terminal.screen()[22], "       ^^^^");
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
    until("it is too small", || terminal.screen()[0] == "40x12 is the least");
    terminal.resize((200, 60));
    terminal.wait_for("1-6 list");
    assert!(terminal.screen()[59].starts_with("1-6 list"), "{:#?}", terminal.screen());
    terminal.keys("q");
    terminal.end(Some(0));
    served.probe.stop(0);
}

#[test]
fn the_probe_of_an_interface_ends_with_the_screen_however_that_ends() {
    let Some(mut sender) = wire() else { return };
    testbed::namespace::ip("link set lo up");
    for (ending, code) in [("q", Some(0)), ("\u{3}", Some(0)), ("INT", Some(0)), ("TERM", Some(0)), ("KILL", None)] {
        let mut terminal = Terminal::start(&["right", "--interval", "200ms"]);
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
            Some(_) => terminal.end(code),
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
    let terminal = Terminal::start(&[&format!("http://{address}"), "--interval", "200ms"]);
    terminal.wait_for("10.1.0.1 ");
    served.probe.stop(0);
    terminal.wait_for("trying again");
    terminal.wait_for("weir top  OLD  ");
    terminal.wait_for("10.1.0.1 ");
    let again = Running::probe("af_packet:right", &["--listen", &address]);
    let is_old = || terminal.screen().iter().any(|line| line.contains("trying again") || line.contains("OLD"));
    until("it answers", || !is_old());
    signal(&terminal.process.0, libc::SIGTERM);
    terminal.end(Some(0));
    again.stop(0);
}

#[test]
fn a_probe_that_hangs_is_named_and_goes_on() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..20);
    let url = format!("http://{}", served.address);
    let terminal = Terminal::start(&[&url, "--interval", "200ms"]);
    terminal.wait_for("10.1.0.1 ");
    served.probe.signal(libc::SIGSTOP);
    terminal.wait_for("no answer for ");
    terminal.wait_for("weir top  OLD  ");
    terminal.wait_for("10.1.0.1 ");
    let err = failure(1, ["top", &url, "--once", "--timing", "top_first=200ms"]);
    assert!(err.contains("no answer within 200ms: is the address right, and is the probe stopped"), "{err}");
    served.probe.signal(libc::SIGCONT);
    let is_silent = || terminal.screen().iter().any(|line| line.contains("no answer") || line.contains("OLD"));
    until("it answers", || !is_silent());
    signal(&terminal.process.0, libc::SIGTERM);
    terminal.end(Some(0));
    served.probe.stop(0);
}

#[test]
fn the_probe_of_an_interface_that_ends_leaves_its_last_figures() {
    let Some(mut sender) = wire() else { return };
    testbed::namespace::ip("link set lo up");
    let terminal = Terminal::start(&["af_packet:right", "--interval", "200ms"]);
    terminal.wait_for("active flows");
    send_requests(&mut sender, 0..20);
    terminal.wait_for("10.1.0.1 ");
    let child = rustix::process::Pid::from_raw(terminal.children()[0] as i32).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    terminal.wait_for("trying again");
    terminal.wait_for("10.1.0.1 ");
    terminal.keys("q");
    terminal.end(Some(2));
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
    let terminal = Terminal::start(&[path]);
    terminal.wait_for("damaged: this is what could be read");
    terminal.wait_for("192.0.2.1 ");
    terminal.keys("q");
    terminal.end(Some(0));
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
    assert!(out.contains("failed: 0 current; of the last 15 min: 2 ended, 30 in 1 scan\n"), "{out}");
    assert_eq!(rows(&out, "  start UTC")[0][2..8].join(" "), "10.0.0.66 → 30 hosts, 1 port", "{out}");
    assert_eq!(out.matches(" tcp ").count(), 3, "{out}");
    assert!(out.contains(" scan: no answer ×30") && out.contains(" 10.0.0.7:40000 → 10.1.0.1:22 no answer"), "{out}");
    let out = list(&["--top", "1", "--where", "not src_ip = 10.0.0.66"]);
    assert!(out.contains("of the last 15 min: 2 ended\n") && !out.contains("scan"), "{out}");
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
    let terminal = Terminal::start(&[web.to_str().unwrap()]);
    terminal.wait_for("192.0.2.1 ");
    terminal.keys("6");
    terminal.wait_for("refused");
    let children = terminal.children();
    terminal.keys("\r");
    terminal.wait_for("end_time ");
    terminal.keys("q");
    terminal.end(Some(0));
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
    let terminal = Terminal::start(&[web.to_str().unwrap()]);
    terminal.wait_for("192.0.2.1 ");
    let children = terminal.children();
    assert_eq!(terminal.hang_up(), Some(1));
    until("the view has ended", || fs::metadata(format!("/proc/{}", children[0])).is_err());
}
