//! SIGHUP with configuration files that are broken, incomplete or slow to read: nothing changes, and
//! nothing waits. The other tests of SIGHUP are in `probe.rs`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use tempfile::TempDir;
use testbed::namespace::{BOUND, until};
use testbed::running::Running;
use testbed::{Pcap, START, command, failure, permit_all_users, read_flows, request_and_response, small};

const REFUSED: &str = "cannot reload the configuration, continuing with the old one";

/// A probe that reads a capture from a named pipe and its options from a file.
struct Probe {
    running: Running,
    folder: TempDir,
    input: File,
    seconds: u32,
}

impl Probe {
    fn start() -> Self {
        Self::with_timing("config_settled=50ms")
    }

    fn with_timing(timing: &str) -> Self {
        Self::with(timing, lines)
    }

    /// With this configuration, and a file `key`.
    fn with(timing: &str, lines: fn(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("key"), [7; 32]).unwrap();
        permit_all_users(folder.path());
        let pipe = make_pipe(folder.path(), "input");
        let mut input = File::options().read(true).write(true).open(&pipe).unwrap();
        input.write_all(&Pcap::new().0).unwrap();
        let config = folder.path().join("probe.toml");
        write_config(&config, &lines(folder.path()));
        let arguments = [
            "probe",
            "--config",
            config.to_str().unwrap(),
            "--interval",
            "100ms",
            "--flows",
            "10k",
            "--timing",
            timing,
        ];
        let running = Running::start_in(command(), &arguments);
        let mut probe = Self { running, folder, input, seconds: START };
        probe.send_flows(1);
        probe.running.wait_for("packets/s");
        probe
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration file, not in one step.
    fn write_config(&self, text: &str) {
        write_config(&self.path("probe.toml"), text);
    }

    fn reload(&self, message: &str, texts: [&str; 2]) {
        let times = self.running.times(message);
        self.running.signal(libc::SIGHUP);
        self.running.wait_for_another(message, times);
        assert!(self.running.stderr().contains(texts[1]), "{texts:?}: {}", self.running.stderr());
    }

    /// Sends flows, which end those of the call before.
    fn send_flows(&mut self, count: u16) {
        self.seconds += 10;
        let frames = (0..count).flat_map(request_and_response);
        let pcap = frames.fold(Pcap(Vec::new()), |pcap, frame| pcap.frame(self.seconds, 0, &frame));
        self.input.write_all(&pcap.0).unwrap();
    }

    /// Open files and threads.
    fn resources(&self) -> [usize; 2] {
        let count = |name| fs::read_dir(format!("/proc/{}/{name}", self.running.process.0.id())).unwrap().count();
        ["fd", "task"].map(count)
    }
}

fn make_pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    permit_all_users(&path);
    path
}

fn write_config(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    permit_all_users(path);
}

/// The configuration with which the probe starts.
fn lines(folder: &Path) -> String {
    let [input, output] = ["input", "flows.json"].map(|name| folder.join(name).display().to_string());
    format!("input = [\"{input}\"]\noutput = [\"json:{output}\"]\nidle = \"1s\"\nactive = 60\n")
}

#[test]
fn broken_files_change_nothing_and_leave_nothing_open() {
    let mut probe = Probe::start();
    let good = lines(probe.folder.path());
    let [input, output, idle, _] = good.lines().collect::<Vec<_>>()[..] else { unreachable!() };
    let hosts: Vec<_> = (0..2000).map(|n| format!("host 10.{}.{}.1", n / 250, n % 250)).collect();
    let new_sink = probe.path("new.json");
    probe.reload("configuration reloaded", ["the file at the start", "configuration reloaded"]);
    let before = probe.resources();
    let failing_sinks = format!("output = [\"json:{}\", \"json:/nonexistent/x\"]", new_sink.display());
    for [text, reason] in [
        ["", "the file is empty"],
        [&good[..good.len() - 2], "the last line does not end with a line feed"],
        [&format!("{input}\n{output}\n{idle}\n"), "the beginning of the configuration in effect"],
        [&format!("{output}\n{idle}\n"), "nothing to read: name a source"],
        [&format!("{input}\n# other\n{idle}\n"), "the file names no output"],
        [&format!("{good}decap = true\n"), "needs a restart: decap"],
        [&format!("{good}idle = \n"), "TOML parse error"],
        [&format!("{good}filter = \"udp and and\"\n"), "syntax error"],
        [&format!("{good}filter = \"{}\"\n", hosts.join(" or ")), "5999 words"],
        [&format!("{input}\n{failing_sinks}\n"), "/nonexistent/x"],
        [&format!("{input}\noutput = [\"json:{0}\", \"csv:{0}\"]\n", new_sink.display()), "mixed in one file"],
    ] {
        probe.write_config(text);
        probe.reload(REFUSED, [text, reason]);
    }
    // Without a program that writes to the pipe, reading it would wait for ever.
    fs::remove_file(probe.path("probe.toml")).unwrap();
    make_pipe(probe.folder.path(), "probe.toml");
    probe.reload(REFUSED, ["a named pipe", "not a regular file"]);
    fs::remove_file(probe.path("probe.toml")).unwrap();
    probe.reload(REFUSED, ["no file", "probe.toml: No such file or directory"]);
    until("no file and no thread is left", || probe.resources() == before);
    probe.send_flows(300);
    probe.send_flows(1);
    until("the sink has the flows", || read_flows(&probe.path("flows.json")).len() >= 128);
    assert_eq!(probe.running.times("configuration reloaded"), 1);
    probe.write_config(&good.replace("60", "50"));
    probe.reload("configuration reloaded", ["a good file", "active=50.0s"]);
    drop(probe.input);
    let (code, err, _, ledger) = probe.running.wait();
    assert_eq!((code, ledger["sinks"].as_array().unwrap().len()), (0, 1), "{err}");
    assert_eq!(read_flows(&probe.folder.path().join("flows.json")).len(), 1 + 300 + 1, "{err}");
}

#[test]
fn the_summary_counts_only_what_a_sink_was_open_for() {
    let mut probe = Probe::start();
    let good = lines(probe.folder.path());
    let sink = format!("json:{}?where=bytes > 10M", probe.path("large.json").display());
    probe.write_config(&good.replace("\"]\nidle", &format!("\", \"{sink}\"]\nidle")));
    probe.reload("configuration reloaded", ["another sink", "large.json"]);
    probe.send_flows(300);
    probe.send_flows(1);
    until("the sinks have flows", || read_flows(&probe.path("flows.json")).len() >= 128);
    let bad = sink.replace("bytes >", "byts >");
    probe.write_config(&good.replace("\"]\nidle", &format!("\", \"{bad}\"]\nidle")));
    probe.reload(REFUSED, ["the expression of an open sink", "there is no field \"byts\"; did you mean bytes?"]);
    probe.write_config(&good);
    probe.reload("configuration reloaded", ["without the sink", "configuration reloaded"]);
    drop(probe.input);
    let (code, err, _, ledger) = probe.running.wait();
    let sinks = ledger["sinks"].as_array().unwrap();
    let large = sinks.iter().find(|counts| counts["sink"] == *sink).unwrap();
    let flows = |name: &str| large[name]["flows"].as_u64().unwrap();
    assert!(code == 0 && flows("filtered") >= 128 && flows("not_open") > 0, "{err}");
    let selected = format!("selected   0 of {} flows for {sink}: 0 packets, 0 bytes on the wire", flows("filtered"));
    // The lines are wrapped.
    assert!(err.split_whitespace().collect::<Vec<_>>().join(" ").contains(&selected.replace("   ", " ")), "{err}");
}

/// Writes a configuration file again and again, until the sender is dropped.
fn rewrite(path: PathBuf, text: String) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = channel::<()>();
    let writer = thread::spawn(move || {
        for round in 0.. {
            write_config(&path, &format!("{text}# round {round}\n"));
            if stopped.recv_timeout(BOUND / 1000) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    });
    (stop, writer)
}

#[test]
fn a_slow_reload_stops_neither_status_nor_the_end() {
    let probe = Probe::with_timing("config_settled=1h,config_limit=1h");
    probe.running.signal(libc::SIGHUP);
    let lines = probe.running.stderr().lines().count();
    until("status lines are printed", || probe.running.stderr().lines().count() > lines + 2);
    let (err, _, _) = probe.running.stop(2);
    assert!(!err.contains("configuration reloaded") && !err.contains(REFUSED), "{err}");
}

#[test]
fn a_file_that_is_written_again_and_again_is_refused() {
    let probe = Probe::with_timing("config_settled=1h,config_limit=500ms");
    let (stop, writer) = rewrite(probe.path("probe.toml"), lines(probe.folder.path()));
    probe.running.signal(libc::SIGHUP);
    until("the reload gives up", || probe.running.times("a program is still writing to this file") > 0);
    drop(stop);
    writer.join().unwrap();
    assert_eq!(probe.running.times("configuration reloaded"), 0);
}

#[test]
fn a_signal_during_a_reload_is_remembered() {
    let probe = Probe::with_timing("config_settled=2s,config_limit=1h");
    let text = lines(probe.folder.path());
    let (stop, writer) = rewrite(probe.path("probe.toml"), text.clone());
    for _ in 0..2 {
        let lines = probe.running.stderr().lines().count();
        probe.running.signal(libc::SIGHUP);
        // The probe has seen the signal then.
        until("status lines are printed", || probe.running.stderr().lines().count() > lines + 2);
    }
    drop(stop);
    writer.join().unwrap();
    write_config(&probe.path("probe.toml"), &text);
    until("both signals are obeyed", || probe.running.times("configuration reloaded") == 2);
}

#[test]
fn a_filter_that_compiles_for_minutes_is_refused_at_once() {
    let hosts: Vec<_> = (0..2000).map(|n| format!("host 10.{}.{}.1", n / 250, n % 250)).collect();
    let capture = small().saved();
    for command in [&["read", capture.name()][..], &["tcp", capture.name()], &["probe", "-i", capture.name()]] {
        let err = failure(1, command.iter().copied().chain(["-f", &hosts.join(" or ")]));
        assert!(err.contains("is too long: it has 5999 words, the limit is 1000"), "{err}");
    }
}

/// The same, anonymised.
fn anonymised_lines(folder: &Path) -> String {
    format!("anonymise = \"{}\"\n{}", folder.join("key").display(), lines(folder))
}

#[test]
fn a_reload_does_not_change_anonymisation_and_new_sinks_have_it() {
    let mut probe = Probe::with("config_settled=50ms", anonymised_lines);
    let lines = anonymised_lines(probe.folder.path());
    // The key is read at the start only.
    fs::remove_file(probe.path("key")).unwrap();
    let more =
        lines.replace("flows.json\"]", &format!("flows.json\", \"json:{}\"]", probe.path("more.json").display()));
    probe.write_config(&more);
    probe.reload("configuration reloaded", ["another sink", "more.json"]);
    probe.send_flows(3);
    let without = more.split_once('\n').unwrap().1;
    for changed in [without, &more.replace("/key\"", "/other\"")] {
        probe.write_config(changed);
        probe.reload(REFUSED, [changed, "needs a restart: anonymise"]);
    }
    let rules = format!("{more}rules = \"{}\"\n", probe.path("rules").display());
    probe.write_config(&rules);
    probe.reload(REFUSED, ["rules", "--anonymise: --rules passes on whole packets"]);
    drop(probe.input);
    let (code, err, _, _) = probe.running.wait();
    assert_eq!(code, 0, "{err}");
    for (file, number) in [("flows.json", 4), ("more.json", 3)] {
        let flows = read_flows(&probe.folder.path().join(file));
        assert!(flows.len() >= number, "{file}: {err}");
        for flow in flows {
            let addresses = [&flow["src_ip"], &flow["dst_ip"]].map(|address| address.as_str().unwrap());
            assert!(!addresses.iter().any(|at| at.starts_with("10.")), "{flow}");
        }
    }
}
