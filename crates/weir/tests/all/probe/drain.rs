//! `--drain-timeout`: the end of a probe with slow sinks, or results that no program reads.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testbed::namespace::{BOUND, until};
use testbed::running::{Running, send_requests, wire};
use testbed::{Background, Pcap, command, number, read_flows, read_ledger, request_and_response, signal};

/// A probe that meters a pipe, in a folder of its own.
struct Probe {
    process: Background,
    input: Option<ChildStdin>,
    folder: tempfile::TempDir,
}

impl Probe {
    fn start(input: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command();
        command.args(["probe", "--interval", "100ms", "--log-level", "info", "-i", input]).args(options);
        command.arg("--stats").arg(folder.path().join("ledger")).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(fs::File::create(folder.path().join("log")).unwrap());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        Self { process: Background(child), input, folder }
    }

    /// A probe with this number of flows in its flow cache, or more.
    fn with_flows(flows: u64, options: &[&str]) -> Self {
        let mut probe = Self::start("-", options);
        let frames: Vec<_> = (0..flows as u16).flat_map(request_and_response).collect();
        let mut next = Pcap::of(&frames).0;
        let last = Pcap::of(&frames[..1]).0[24..].to_vec();
        until("all flows are metered", || {
            probe.input.as_mut().unwrap().write_all(&next).unwrap();
            next.clone_from(&last);
            probe.created_flows() == flows
        });
        probe
    }

    /// Flows that have begun, from the totals on SIGUSR1 that were last requested.
    fn created_flows(&self) -> u64 {
        let log = self.log();
        if log.contains("packets/s") {
            signal(&self.process.0, libc::SIGUSR1);
        }
        let created = log.lines().rev().find_map(|line| line.strip_prefix("created "));
        created.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Stops the probe with a signal: how long it takes, the log and the sinks in the ledger.
    fn stop(mut self) -> (Duration, String, Vec<Value>) {
        let started = Instant::now();
        signal(&self.process.0, libc::SIGTERM);
        let code = self.process.0.wait().unwrap().code();
        let (duration, log) = (started.elapsed(), self.log());
        // The input was not read to its end.
        assert_eq!(code, Some(2), "{log}");
        (duration, log, read_ledger(&self.folder.path().join("ledger"))["sinks"].as_array().unwrap().clone())
    }
}

fn exported(sink: &Value) -> u64 {
    number(&sink["exported"]["flows"])
}

fn late(sink: &Value) -> u64 {
    number(&sink["lost"]["drain_timeout"]["flows"])
}

/// A pipe whose reader never reads.
fn blocked_pipe(folder: &Path) -> (PathBuf, fs::File) {
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    (pipe, reader)
}

/// A pipe whose reader never reads, and that takes nothing any more.
fn full_pipe(folder: &Path) -> (PathBuf, fs::File) {
    let (pipe, reader) = blocked_pipe(folder);
    let mut writer = fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    while writer.write(&[b'x'; 512]).is_ok() {}
    (pipe, reader)
}

#[test]
fn the_rate_limit_rises_so_that_a_collector_gets_all_records_in_time() {
    const FLOWS: u64 = 10_000;
    for scheme in ["ipfix+udp", "netflow5+udp"] {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        // Some 800 datagrams, which need 80 s at this rate.
        let sink = format!("{scheme}://{}?rate=10", collector.local_addr().unwrap());
        let probe = Probe::with_flows(FLOWS, &["-o", &sink, "--drain-timeout", "12s"]);
        let has_ended = Arc::new(AtomicBool::new(false));
        let of_collector = has_ended.clone();
        let received = thread::spawn(move || {
            let (mut datagram, mut times) = ([0; 2000], Vec::new());
            loop {
                let is_last = of_collector.load(Ordering::Relaxed);
                while collector.recv(&mut datagram).is_ok() {
                    times.push(Instant::now());
                }
                if is_last {
                    return times;
                }
            }
        });
        let (duration, log, sinks) = probe.stop();
        has_ended.store(true, Ordering::Relaxed);
        assert_eq!((exported(&sinks[0]), late(&sinks[0])), (FLOWS, 0), "{scheme}: {log}");
        assert!(duration < Duration::from_secs(12) + BOUND, "{scheme}: {duration:?}");
        // The collector is not flooded: the datagrams are spread over 80 % of the time.
        let times = received.join().unwrap();
        let spread = *times.last().unwrap() - times[0];
        assert!(times.len() > 300 && spread > Duration::from_secs(2), "{scheme}: {} in {spread:?}", times.len());
    }
}

#[test]
fn a_blocked_output_loses_records_at_the_deadline_and_the_other_outputs_get_all() {
    thread::scope(|scope| {
        for layout in ["fused", "split", "spread"] {
            scope.spawn(move || assert_only_the_blocked_output_loses(layout));
        }
    });
}

fn assert_only_the_blocked_output_loses(layout: &str) {
    const FLOWS: u64 = 4000;
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _reader) = blocked_pipe(folder.path());
    let file = folder.path().join("flows");
    let sinks = [&pipe, &file].map(|path| format!("json:{}", path.display()));
    let options = ["-o", &sinks[0], "-o", &sinks[1], "--drain-timeout", "5s", "--layout", layout];
    let (duration, log, sinks) = Probe::with_flows(FLOWS, &options).stop();
    assert!(duration < Duration::from_secs(5) + BOUND, "{layout}: {duration:?}");
    assert!(late(&sinks[0]) > FLOWS / 2, "{layout}: {sinks:?}");
    assert_eq!(exported(&sinks[0]) + late(&sinks[0]), FLOWS, "{layout}: {sinks:?}");
    assert_eq!((exported(&sinks[1]), read_flows(&file).len()), (FLOWS, FLOWS as usize), "{layout}: {sinks:?}");
    let message = "records that sinks did not accept in time (--drain-timeout 5.00s, or another signal) are lost";
    assert_eq!(log.matches(message).count(), 1, "{log}");
    assert!(log.contains(&format!("{} of json:{}", late(&sinks[0]), pipe.display())), "{log}");
    // The summary is of all records, whatever a sink loses.
    assert!(log.contains(&format!("\nflows      {FLOWS}\n")), "{layout}: {log}");
}

/// Sinks of different speeds beside a blocked one.
#[test]
fn a_blocked_output_costs_files_and_collectors_no_records() {
    const FLOWS: u64 = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _reader) = blocked_pipe(folder.path());
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = |name| folder.path().join(name).display().to_string();
    let sinks = [
        format!("csv:{}", path("csv")),
        format!("ipfix:{}", path("ipfix")),
        format!("json:{}", path("json")),
        format!("json:{}", pipe.display()),
        format!("ipfix+udp://{}", collector.local_addr().unwrap()),
    ];
    let mut options: Vec<_> = sinks.iter().flat_map(|sink| ["-o", sink]).collect();
    // A file on a busy disk is not stalled.
    options.extend(["--drain-timeout", "20s", "--timing", "sink_stall=2s"]);
    let (_, log, sinks) = Probe::with_flows(FLOWS, &options).stop();
    for (number, sink) in sinks.iter().enumerate() {
        let lost = if number == 3 { late(sink) } else { 0 };
        assert_eq!(exported(sink) + lost, FLOWS, "{log}");
    }
    assert!(late(&sinks[3]) > FLOWS / 2, "{log}");
}

/// Starts a probe whose standard output takes nothing. The second file is its standard error.
fn probe_with_full_output(folder: &Path, pipe: &Path, options: &[&str]) -> (Background, PathBuf) {
    let log = folder.join("log");
    let mut command = command();
    command.args(["probe", "--drain-timeout", "1s"]).args(options).stdin(Stdio::piped());
    command.stdout(fs::File::options().write(true).open(pipe).unwrap()).stderr(fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.as_mut().unwrap().write_all(&Pcap::of(&[]).0);
    (Background(child), log)
}

#[test]
fn results_that_are_not_read_do_not_delay_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _reader) = full_pipe(folder.path());
    let ledger = folder.path().join("ledger");
    let (stats, pipe_option) = (ledger.to_str().unwrap(), format!("--stats {}", pipe.display()));
    for (options, output) in [
        (&["--stats", stats][..], "standard output"),
        (&["-o", "json:/dev/null", "--stats", "-"], "--stats -"),
        (&["-o", "json:/dev/null", "--stats", pipe.to_str().unwrap()], &pipe_option),
    ] {
        let started = Instant::now();
        let options = [&["-i", "-", "--duration", "300ms"], options].concat();
        let (mut probe, log) = probe_with_full_output(folder.path(), &pipe, &options);
        let code = probe.0.wait().unwrap().code();
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(code, Some(2), "{options:?}: {log}");
        assert!(started.elapsed() < BOUND, "{options:?}: {:?}", started.elapsed());
        let message = "this output is not read: it did not get everything in time (--drain-timeout)";
        assert!(log.contains(&format!("{message} output={output:?}")), "{options:?}: {log}");
        let has_ledger = log.contains("the ledger balances");
        assert_eq!(has_ledger, output != "standard output", "{log}");
    }
    assert_eq!(read_ledger(&ledger)["packets"]["received"], 0);
}

#[test]
fn a_signal_limits_the_wait_for_the_reader_of_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _reader) = full_pipe(folder.path());
    let (mut probe, log) = probe_with_full_output(
        folder.path(),
        &pipe,
        &["-i", "synth:mix,packets=1k", "-o", "json:/dev/null", "--stats", "-"],
    );
    let tasks = format!("/proc/{}/task", probe.0.id());
    until("the ledger is being written", || {
        let mut tasks = fs::read_dir(&tasks).unwrap().flatten();
        tasks.any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "weir-output\n"))
    });
    let started = Instant::now();
    signal(&probe.0, libc::SIGTERM);
    let code = probe.0.wait().unwrap().code();
    assert_eq!(code, Some(2), "{}", fs::read_to_string(log).unwrap());
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
}

#[test]
fn a_signal_limits_the_end_of_a_capture_that_was_read() {
    const FLOWS: u64 = 4000;
    let frames: Vec<_> = (0..FLOWS as u16).flat_map(request_and_response).collect();
    let capture = Pcap::of(&frames).saved();
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _reader) = blocked_pipe(folder.path());
    let probe = Probe::start(capture.name(), &["-o", &format!("json:{}", pipe.display()), "--drain-timeout", "500ms"]);
    // The capture was read, and its last records wait.
    until("the pipeline waits for the sink", || probe.log().contains(" silent=1"));
    let (duration, log, sinks) = probe.stop();
    assert!(duration < BOUND, "{duration:?}");
    assert!(late(&sinks[0]) > 0 && exported(&sinks[0]) + late(&sinks[0]) == FLOWS, "{log}");
}

/// Flows of [`live_with_blocked_output`].
const LIVE_FLOWS: u64 = 4000;

/// A live probe with these flows, an output that is blocked, and a file. `check` stops it, and returns its log and its
/// ledger.
fn live_with_blocked_output(timeout: &str, check: impl FnOnce(Running) -> (String, Value)) {
    let Some(mut sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _reader) = blocked_pipe(folder.path());
    let file = folder.path().join("flows.json");
    let sinks = [&pipe, &file].map(|path| format!("json:{}", path.display()));
    let probe = Running::probe("af_packet:right", &["-o", &sinks[0], "-o", &sinks[1], "--drain-timeout", timeout]);
    send_requests(&mut sender, 0..LIVE_FLOWS as u16);
    probe.wait_for(&format!("active={LIVE_FLOWS} "));
    let (log, ledger) = check(probe);
    let sinks = &ledger["sinks"];
    assert!(late(&sinks[0]) > 0, "{log}");
    for sink in [&sinks[0], &sinks[1]] {
        assert_eq!(exported(sink) + late(sink), LIVE_FLOWS, "{log}");
    }
    assert_eq!(exported(&sinks[1]), read_flows(&file).len() as u64, "{log}");
    assert_eq!(ledger["balanced"], true, "{ledger:#}");
}

#[test]
fn a_live_probe_with_a_blocked_output_ends_at_the_deadline() {
    live_with_blocked_output("5s", |probe| {
        let started = Instant::now();
        let (log, _, ledger) = probe.stop(2);
        assert!(started.elapsed() < Duration::from_secs(5) + BOUND, "{:?}", started.elapsed());
        assert_eq!(exported(&ledger["sinks"][1]), LIVE_FLOWS, "{log}");
        (log, ledger)
    });
}

#[test]
fn a_second_signal_gives_up_only_what_a_blocked_output_has_not_taken() {
    live_with_blocked_output("1h", |probe| {
        probe.signal(libc::SIGTERM);
        probe.wait_for("another signal loses the records that outputs have not accepted by then");
        let (log, _, ledger) = probe.stop(2);
        (log, ledger)
    });
}
