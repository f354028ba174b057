//! What a running `weir` may still do: capabilities and sandbox of all its threads.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use testbed::namespace::{BOUND, ip, until};
use testbed::running::{Running, send_requests, wire};
use testbed::{Background, Pcap, START, is_installed, is_root, permit_all_users, read_flows, request_and_response};

/// The values that a line of `/proc/PID/task/*/status` has among the threads of a process.
fn of_threads(process: u32, name: &str) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    let value = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("absent");
        line.trim().to_owned()
    };
    statuses.map(value).collect()
}

fn only(value: &str) -> BTreeSet<String> {
    [value.to_owned()].into()
}

#[test]
fn no_thread_of_a_running_probe_has_a_capability() {
    let Some(mut sender) = wire() else { return };
    if !is_root() || !is_installed("setpriv") {
        return eprintln!("SKIPPED: only root can start a probe with chosen capabilities");
    }
    let unprivileged = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let version =
        Command::new(unprivileged[0]).args(&unprivileged[1..]).args([env!("CARGO_BIN_EXE_weir"), "--version"]).output();
    if !version.unwrap().status.success() {
        return eprintln!("SKIPPED: user 65534 cannot execute the binary");
    }
    let raw = ["--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"];
    let setpcap = ["--inh-caps", "+net_raw,+setpcap", "--ambient-caps", "+net_raw,+setpcap"];
    // The bounding set can be dropped with CAP_SETPCAP only.
    for (start, drops_bounding_set) in
        [(vec![], true), ([&unprivileged[..], &raw].concat(), false), ([&unprivileged[..], &setpcap].concat(), true)]
    {
        let program = [&start[..], &[env!("CARGO_BIN_EXE_weir")]].concat();
        let mut command = Command::new(program[0]);
        command.args(&program[1..]);
        let mut options = vec!["-i", "af_packet:right,queues=2", "--layout", "split", "--interval", "200ms"];
        options.extend(["--flows", "1k"]);
        if start.is_empty() {
            // A thread with the capability for it locks the memory, and ends.
            options.push("--lock-memory");
        }
        let probe = Running::start_in(command, &[&["probe"], &options[..]].concat());
        probe.wait_for("packets/s");
        send_requests(&mut sender, 1..2);
        probe.wait_for("active=1 ");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(of_threads(probe.process.0.id(), set), only("0000000000000000"), "{set} {start:?}");
        }
        let bounding = of_threads(probe.process.0.id(), "CapBnd:");
        assert_eq!(bounding == only("0000000000000000"), drops_bounding_set, "{bounding:?} {start:?}");
        assert_eq!(of_threads(probe.process.0.id(), "NoNewPrivs:"), only("1"), "{start:?}");
        probe.stop(0);
    }
}

#[test]
fn every_thread_is_restricted_unless_no_sandbox_is_given() {
    let Some(mut sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    fs::write(&file, "no-sandbox = true\n").unwrap();
    for (source, options, mode) in [
        ("af_packet:right,queues=2", &["--layout", "spread"][..], "2"),
        ("af_xdp:right,attach=generic", &[], "2"),
        ("af_packet:right", &["--no-sandbox"], "0"),
        ("af_packet:right", &["--config", file.to_str().unwrap(), "-o", "json:/dev/null"], "0"),
    ] {
        let probe = Running::probe(source, options);
        send_requests(&mut sender, 1..2);
        probe.wait_for("active=1 ");
        assert_eq!(of_threads(probe.process.0.id(), "Seccomp:"), only(mode), "{source} {options:?}");
        let (err, ..) = probe.stop(0);
        assert!(!err.contains("sandbox is incomplete"), "{err}");
    }
}

#[test]
fn commands_that_read_captures_are_restricted() {
    for (command, option, mode) in
        [("read", "--quiet", "2"), ("tcp", "--quiet", "2"), ("read", "--no-sandbox", "0"), ("tcp", "--no-sandbox", "0")]
    {
        let mut program = testbed::command();
        program.args([command, "-", option]);
        if command == "tcp" {
            program.args(["--engine", "cpu"]);
        }
        let mut child = Background(program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let mut pipe = child.0.stdin.take().unwrap();
        // A capture is open when its header has been read.
        pipe.write_all(&Pcap::new().0).unwrap();
        let seccomp = || of_threads(child.0.id(), "Seccomp:");
        if mode == "2" {
            until("the command is restricted", || seccomp() == only("2"));
        }
        pipe.write_all(&Pcap::new().frame(START, 0, &request_and_response(1)[0]).0[24..]).unwrap();
        assert_eq!(seccomp(), only(mode), "{command} {option}");
        drop(pipe);
        assert!(child.0.wait().unwrap().success(), "{command} {option}");
    }
}

#[test]
fn a_reload_opens_files_only_in_the_directories_of_the_outputs() {
    let Some(mut sender) = wire() else { return };
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    [&folder, &other].iter().for_each(|folder| permit_all_users(folder.path()));
    let [first, second] = ["first.json", "second.json"].map(|name| folder.path().join(name));
    let (foreign, file) = (other.path().join("flows.json"), folder.path().join("probe.toml"));
    let write = |paths: &[&std::path::Path]| {
        let sinks: Vec<_> = paths.iter().map(|path| format!("\"json:{}\"", path.display())).collect();
        fs::write(&file, format!("output = [{}]\nidle = \"200ms\"\n", sinks.join(", "))).unwrap();
        permit_all_users(&file);
    };
    write(&[&first]);
    let probe = Running::probe("af_packet:right", &["--config", file.to_str().unwrap()]);
    write(&[&first, &foreign]);
    probe.signal(libc::SIGHUP);
    probe.wait_for("continuing with the old one");
    let reason = format!("was started with ({}); restart the probe, or name a file there", folder.path().display());
    assert!(probe.stderr().contains(&reason), "{}", probe.stderr());
    send_requests(&mut sender, 0..20);
    until("the first sink goes on", || read_flows(&first).len() == 20);
    write(&[&first, &second]);
    probe.signal(libc::SIGHUP);
    probe.wait_for("configuration reloaded");
    // The new sink has a thread of its own.
    assert_eq!(of_threads(probe.process.0.id(), "Seccomp:"), only("2"));
    send_requests(&mut sender, 20..40);
    until("both sinks have the records", || [&first, &second].map(|path| read_flows(path).len()) == [40, 20]);
    probe.stop(0);
    assert!(!foreign.exists());
}

/// A probe that root started on interface `right`, with a configuration file in a folder of its own.
struct Reloaded {
    probe: Running,
    folder: tempfile::TempDir,
}

impl Reloaded {
    fn start(outputs: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), outputs)
    }

    fn start_in(folder: tempfile::TempDir, outputs: &[&str]) -> Self {
        permit_all_users(folder.path());
        let file = folder.path().join("probe.toml");
        Self::write(&folder, outputs);
        let probe = Running::probe("af_packet:right", &["--config", file.to_str().unwrap()]);
        Self { probe, folder }
    }

    /// Names files in the folder, each after its scheme.
    fn write(folder: &tempfile::TempDir, outputs: &[&str]) {
        let sink = |output: &&str| {
            let (scheme, name) = output.split_once(':').unwrap();
            format!("\"{scheme}:{}\"", folder.path().join(name).display())
        };
        let sinks: Vec<_> = outputs.iter().map(sink).collect();
        let file = folder.path().join("probe.toml");
        fs::write(&file, format!("output = [{}]\nidle = \"200ms\"\n", sinks.join(", "))).unwrap();
        permit_all_users(&file);
    }

    fn reload(&self, outputs: &[&str], text: &str) {
        let times = self.probe.times(text);
        Self::write(&self.folder, outputs);
        self.probe.signal(libc::SIGHUP);
        until(text, || self.probe.times(text) > times);
    }
}

#[test]
fn a_reload_opens_a_new_file_of_the_start_again() {
    let Some(mut sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.json"));
    fs::write(&old, "").unwrap();
    let reloaded = Reloaded::start_in(folder, &["json:new.json", "json:old.json"]);
    let status = |path| {
        let file = fs::metadata(path).unwrap();
        (file.uid(), file.gid(), file.mode() & 0o777)
    };
    if is_root() {
        let mask = 0o640 & !umask();
        assert_eq!(status(&new), (65534, 65534, mask));
        assert_eq!(status(&old).0, 0);
    }
    send_requests(&mut sender, 0..10);
    until("the file has the records", || read_flows(&new).len() == 10);
    reloaded.reload(&["json:second.json"], "configuration reloaded");
    reloaded.reload(&["json:new.json"], "configuration reloaded");
    send_requests(&mut sender, 10..30);
    until("the file has more records", || read_flows(&new).len() == 30);
    if is_root() {
        reloaded.reload(
            &["json:old.json"],
            "A file that existed when root started the probe keeps its owner: give it to --user with chown",
        );
    }
    reloaded.probe.stop(0);
}

fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(mask.trim(), 8).unwrap()
}

#[test]
fn a_refused_reload_leaves_no_new_files() {
    let Some(mut sender) = wire() else { return };
    let reloaded = Reloaded::start(&["json:first.json"]);
    let path = |name| reloaded.folder.path().join(name);
    fs::write(path("empty.csv"), "").unwrap();
    permit_all_users(&path("empty.csv"));
    let outputs = ["json:new.json", "csv:new.csv", "ipfix:new.ipfix", "table:new.table", "csv:empty.csv"];
    reloaded.reload(&[&outputs[..], &["json:none/x.json"]].concat(), "continuing with the old one");
    let names = ["new.json", "new.csv", "new.ipfix", "new.table", "empty.csv"];
    assert_eq!(names.map(|name| path(name).exists()), [false, false, false, false, true]);
    // Without the last one all are opened. Also files without records stay then.
    reloaded.reload(&outputs, "configuration reloaded");
    send_requests(&mut sender, 0..10);
    until("the file has the records", || read_flows(&path("new.json")).len() == 10);
    reloaded.reload(&["json:first.json"], "configuration reloaded");
    let (err, ..) = reloaded.probe.stop(0);
    assert_eq!(names.map(|name| reloaded.folder.path().join(name).exists()), [true; 5], "{err}");
}

#[test]
fn a_restricted_probe_resolves_the_name_of_a_collector() {
    let Some(mut sender) = wire() else { return };
    ip("link set lo up");
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(BOUND)).unwrap();
    let sink = format!("ipfix+udp://localhost:{}", collector.local_addr().unwrap().port());
    let probe = Running::probe("af_packet:right", &["-o", &sink, "--idle", "200ms"]);
    send_requests(&mut sender, 0..20);
    assert!(collector.recv(&mut [0; 2000]).is_ok());
    probe.stop(0);
}

#[test]
fn a_kernel_without_seccomp_and_landlock_is_named_in_the_log() {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=seccomp,landlock_create_ruleset", "-e", "signal=none", "-o", "/dev/null"]);
    strace.args(["-e", "inject=seccomp:error=EINVAL", "-e", "inject=landlock_create_ruleset:error=EOPNOTSUPP"]);
    strace.args([env!("CARGO_BIN_EXE_weir"), "probe", "-i", "synth:velan,flows=10,packets=1000", "-o", "json:-"]);
    let Ok(output) = strace.output() else { return eprintln!("SKIPPED: there is no strace") };
    let err = String::from_utf8(output.stderr).unwrap();
    if err.contains("strace: ") {
        return eprintln!("SKIPPED: tracing a process is not permitted here: {err}");
    }
    assert!(output.status.success(), "{err}");
    let lines: Vec<_> = err.lines().filter(|line| line.contains("sandbox is incomplete")).collect();
    assert!(lines.len() == 1 && lines[0].contains("Landlock") && lines[0].contains("seccomp"), "{err}");
    assert_eq!(output.stdout.iter().filter(|&&octet| octet == b'\n').count(), 10);
}
