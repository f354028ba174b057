//! `weir probe` under adverse conditions: sources that cannot be opened or disappear, outputs that
//! block, several probes on one interface, and a service manager.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use testbed::namespace::{BOUND, Sender, ip, network, network_of, until, until_wired};
use testbed::running::{Running, add_second_wire, send_requests, statuses, sum, wire};
use testbed::{
    Background, JsonOutput, Pcap, START, command, failure, is_root, number, permit_all_users, read_flows, read_ledger,
    request_and_response, signal, success, text_of,
};

/// Number of the user and group nobody.
const NOBODY_ID: u32 = 65534;

#[test]
fn sources_that_cannot_be_opened_are_refused_with_advice() {
    // With a larger MTU the veth driver accepts no XDP program, which would be another error.
    if !network_of(1, 1500) {
        return;
    }
    for (arguments, reasons) in [
        (&["-i", "af_packet:eth9"][..], &["there is no interface 'eth9'; there are: lo, "][..]),
        (&["-i", "af_xdp:eth9"], &["there is no interface 'eth9'"]),
        (&["-i", "af_xdp:right,queues=0-3"], &["right has only queue 0", "ethtool -l right"]),
        (&["-i", "af_packet:right,queues=500"], &["queues"]),
        (&["-i", "af_packet:right,timestamps=hardware"], &["cannot time-stamp every frame (ethtool -T right"]),
        (&["-i", "af_xdp:right,mode=zerocopy"], &["no zero copy", "mode=copy works with every driver"]),
        (&["-i", "af_packet:right,queues=2", "-i", "af_packet:right"], &["af_packet:right is named twice"]),
        (&["-i", "af_packet:left+right", "-i", "af_packet:right"], &["af_packet:right is named twice"]),
    ] {
        let err = failure(1, ["probe"].iter().chain(arguments));
        assert!(reasons.iter().all(|reason| err.contains(reason)), "{arguments:?}: {err}");
    }
    ip("link set right down");
    let err = failure(1, ["probe", "-i", "af_packet:right"]);
    assert!(err.contains("ip link set dev right up"), "{err}");
}

#[test]
fn check_prints_the_cores_and_their_reason() {
    for (arguments, cores) in [
        (&["-i", "af_packet:lo"][..], "cores      not assigned: lo has no PCI device\n"),
        (&["-i", "af_packet:lo", "--cores", "0"], "cores      reading and metering 0; export any\n"),
        (&["-i", "synth:mix"], "cores      not assigned: synth:mix is not a NIC\n"),
    ] {
        let out = success(["probe", "--check"].iter().chain(arguments));
        assert!(out.contains(cores), "{arguments:?}: {out}");
    }
}

#[test]
fn check_reports_all_that_would_keep_the_probe_from_starting() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows.csv");
    let sinks = ["json:/weir-none/flows.json", file.to_str().unwrap(), "ipfix+udp://weir-none.invalid"];
    let inputs = ["af_packet:weir-none", "af_xdp:right,queues=3", "weir-none.pcap", "af_packet:right", "synth:mix"];
    let (code, out, err) = testbed::weir(
        ["probe", "--check"]
            .into_iter()
            .chain(inputs.iter().flat_map(|input| ["-i", input]))
            .chain(sinks.iter().flat_map(|sink| ["-o", sink])),
    );
    assert!(code == 1 && out.contains("source     af_packet:right\n"), "{code}: {out}{err}");
    let problems = [
        "weir: af_packet:weir-none: there is no interface 'weir-none'; there are: ",
        "weir: af_xdp:right,queues=3: queues=3: right has only queue 0",
        "weir: weir-none.pcap: No such file or directory (os error 2); is the name right?",
        "weir: json:/weir-none/flows.json: No such file or directory (os error 2); does its directory exist?",
        "weir: ipfix+udp://weir-none.invalid: ",
    ];
    assert_eq!(err.lines().count(), problems.len(), "{err}");
    for (line, problem) in err.lines().zip(problems) {
        assert!(line.starts_with(problem), "{line}");
    }
    assert!(!file.exists());
    // The probe would wait for the interface.
    success(["probe", "--check", "--wait", "-i", "af_packet:weir-none", "-o", sinks[1]]);
    assert!(!file.exists());
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn a_build_without_dpdk_names_the_cargo_feature() {
    let err = failure(1, ["probe", "-i", "dpdk:net_null0"]);
    assert!(err.contains("built without DPDK") && err.contains("--features dpdk"), "{err}");
}

#[cfg(feature = "dpdk")]
#[test]
fn missing_huge_pages_are_reported_with_advice() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    if !meminfo.lines().any(|line| line.starts_with("HugePages_Free:") && line.ends_with(" 0")) {
        eprintln!("SKIPPED: this machine has huge pages");
        return;
    }
    let err = failure(1, ["probe", "-i", "dpdk:net_null0,hugepages=on"]);
    assert!(err.contains("nr_hugepages") && err.contains("hugepages=off"), "{err}");
}

#[test]
fn missing_capabilities_are_named() {
    if !network() {
        return;
    }
    for (source, capabilities) in [
        ("af_packet:right", &["CAP_NET_RAW", "setcap"][..]),
        ("af_xdp:right", &["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"]),
    ] {
        let output = match command().args(["probe", "-i", source]).uid(NOBODY_ID).gid(NOBODY_ID).output() {
            Ok(output) => output,
            Err(error) => return eprintln!("SKIPPED: the user `nobody` cannot execute the binary: {error}"),
        };
        let (code, _, err) = text_of(&output);
        assert_eq!(code, 1, "{err}");
        assert!(capabilities.iter().all(|capability| err.contains(capability)), "{err}");
    }
}

#[test]
fn flows_survive_a_link_that_goes_down_and_returns_with_another_mtu() {
    let Some(mut sender) = wire() else { return };
    for source in ["af_packet:right,queues=2", "af_xdp:right,attach=generic"] {
        let probe = Running::probe(source, &[]);
        for round in 1..=3 {
            send_requests(&mut sender, 0..100);
            probe.wait_for("active=100 ");
            ip("link set right down");
            until("the loss of link is logged", || {
                probe.times("interface is down or has no link, waiting for it interface=right") == round
            });
            ip(&format!("link set right mtu {}", 1500 + round));
            ip("link set right up");
            until_wired();
            until("the new link is logged", || probe.times("interface has a link again interface=right") == round);
        }
        send_requests(&mut sender, 0..100);
        let (_, flows, ledger) = probe.stop(0);
        assert_eq!(ledger["packets"]["received"], 800, "{source}: {ledger}");
        assert_eq!(flows.len(), 100, "{source}");
        assert!(flows.iter().all(|flow| flow["fwd_packets"] == 4 && flow["rev_packets"] == 4), "{source}");
    }
}

#[test]
fn removal_of_one_interface_is_logged_and_the_other_is_still_metered() {
    let Some(mut sender) = wire() else { return };
    add_second_wire();
    let probe = Running::probe("af_packet:right", &["-i", "af_packet:right2"]);
    send_requests(&mut Sender::new("left2"), 0..50);
    ip("link delete right2");
    probe.wait_for("af_packet:right2: the interface was removed");
    send_requests(&mut sender, 100..150);
    let (err, flows, ledger) = probe.stop(2);
    assert_eq!(err.matches("was removed").count(), 1, "{err}");
    assert_eq!(ledger["packets"]["metered"], 200, "{ledger}");
    assert_eq!(flows.len(), 100);
}

#[test]
fn with_wait_a_removed_interface_is_attached_again() {
    for source in ["af_packet:right", "af_xdp:right,attach=generic"] {
        // A namespace of its own.
        std::thread::scope(|scope| scope.spawn(|| assert_is_attached_again(source)).join().unwrap());
    }
}

/// Whether the kernel permits to capture from interface `right`. Prints the reason if not.
fn can_capture(source: &str) -> bool {
    if let Err(error) = source.parse::<weir_capture::LiveSpec>().and_then(|live| live.open()) {
        eprintln!("SKIPPED: {error}");
        return false;
    }
    // A process that another test has just forked may still have it open.
    until("the XDP program is detached", || !ip("link show dev right").contains("xdp"));
    true
}

fn assert_is_attached_again(source: &str) {
    let Some(mut sender) = wire() else { return };
    if !can_capture(source) {
        return;
    }
    let probe = Running::probe(source, &["--wait"]);
    send_requests(&mut sender, 0..50);
    for round in 1..3 {
        ip("link delete right");
        until("it is missing", || probe.times("waiting for it") == usize::from(round));
        ip("link add left mtu 65535 type veth peer name right mtu 65535");
        ["left", "right"].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
        until_wired();
        until("it is attached", || testbed::namespace::is_captured("right"));
        send_requests(&mut Sender::new("left"), 50 * round..50 * round + 50);
        until("it is logged", || probe.times("has a link again") == usize::from(round));
    }
    let (err, flows, ledger) = probe.stop(0);
    assert_eq!((&ledger["packets"]["metered"], flows.len()), (&300.into(), 150), "{err} {ledger}");
}

#[test]
fn with_wait_a_probe_starts_before_its_interface() {
    let Some(_sender) = wire() else { return };
    let source = "af_packet:right2";
    let probe =
        Running::start_in(command(), &["probe", "-i", source, "--wait", "--interval", "200ms", "--flows", "10k"]);
    probe.wait_for("waiting for the interface");
    add_second_wire();
    probe.wait_for("packets/s");
    send_requests(&mut Sender::new("left2"), 0..50);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(ledger["packets"]["metered"], 100, "{err}");
    for source in ["af_packet:right,queues=2", "af_packet:left+right,queues=2"] {
        let err = failure(1, ["probe", "-i", source, "--wait"]);
        assert!(err.contains("cannot attach to an interface again"), "{err}");
    }
}

#[test]
fn with_wait_an_interface_that_vanishes_while_it_is_opened_is_waited_for() {
    let Some(_sender) = wire() else { return };
    let source = "af_packet:right2";
    let probe =
        Running::start_in(command(), &["probe", "-i", source, "--wait", "--interval", "200ms", "--flows", "10k"]);
    probe.wait_for("waiting for the interface");
    for round in 0..40 {
        ip("link add left2 type veth peer name right2");
        ["left2", "right2"].iter().for_each(|end| drop(ip(&format!("link set {end} up"))));
        // Opening begins at some time within 100 ms.
        std::thread::sleep(Duration::from_millis(round * 7 % 100));
        ip("link delete right2");
        assert_ne!(probe.status("State:"), "Z", "weir has exited: {}", probe.stderr());
    }
    add_second_wire();
    until("it is attached", || testbed::namespace::is_captured("right2"));
    send_requests(&mut Sender::new("left2"), 0..50);
    probe.wait_for("packets/s");
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(ledger["packets"]["metered"], 100, "{err}");
}

#[test]
fn with_wait_an_interface_that_returns_from_another_namespace_is_attached_again() {
    for source in ["af_packet:right", "af_xdp:right,attach=generic"] {
        std::thread::scope(|scope| scope.spawn(|| assert_returns_from_a_namespace(source)).join().unwrap());
    }
}

fn assert_returns_from_a_namespace(source: &str) {
    let Some(mut sender) = wire() else { return };
    if !can_capture(source) {
        return;
    }
    let probe = Running::probe(source, &["--wait"]);
    send_requests(&mut sender, 0..50);
    let other = Background::start(Command::new("unshare").args(["-n", "sleep", "60"]));
    let other = other.0.id().to_string();
    let own = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
    until("the other namespace exists", || own(&other) != own("thread-self"));
    ip(&format!("link set right netns {other}"));
    until("it is missing", || probe.times("waiting for it") == 1);
    // SAFETY: the call takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() }.to_string();
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["-t", &other, "-n", "ip", "link", "set", "right", "netns", &thread]);
    assert!(nsenter.status().unwrap().success());
    ip("link set right arp off up");
    until_wired();
    until("it is attached", || testbed::namespace::is_captured("right"));
    send_requests(&mut Sender::new("left"), 50..100);
    until("it is logged", || probe.times("has a link again") == 1);
    let (err, flows, ledger) = probe.stop(0);
    assert_eq!((&ledger["packets"]["metered"], flows.len()), (&200.into(), 100), "{err} {ledger}");
}

#[test]
fn with_wait_an_interface_of_another_kind_is_passed_over() {
    for source in ["af_packet:right", "af_xdp:right,attach=generic"] {
        std::thread::scope(|scope| scope.spawn(|| assert_other_kind_is_passed_over(source)).join().unwrap());
    }
}

fn assert_other_kind_is_passed_over(source: &str) {
    let Some(mut sender) = wire() else { return };
    if !can_capture(source) {
        return;
    }
    let probe = Running::probe(source, &["--wait"]);
    send_requests(&mut sender, 0..50);
    ip("link delete right");
    until("it is missing", || probe.times("waiting for it") == 1);
    if !Command::new("ip").args(["tuntap", "add", "right", "mode", "tun"]).status().unwrap().success() {
        return eprintln!("SKIPPED: no tun interfaces");
    }
    ip("link set right up");
    probe.wait_for("interface cannot be captured");
    // Time for several attempts.
    std::thread::sleep(Duration::from_millis(500));
    ip("link delete right");
    ip("link add left mtu 65535 type veth peer name right mtu 65535");
    ["left", "right"].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
    until_wired();
    until("it is attached", || testbed::namespace::is_captured("right"));
    send_requests(&mut Sender::new("left"), 50..100);
    until("it is logged", || probe.times("has a link again") >= 1);
    let (err, flows, ledger) = probe.stop(0);
    assert_eq!(err.matches("interface cannot be captured").count(), 1, "{err}");
    assert_eq!((&ledger["packets"]["metered"], flows.len()), (&200.into(), 100), "{err} {ledger}");
}

#[test]
fn two_probes_on_one_interface_both_receive_every_packet() {
    let Some(mut sender) = wire() else { return };
    let probes = [1, 2].map(|queues| Running::probe(&format!("af_packet:right,queues={queues}"), &[]));
    send_requests(&mut sender, 0..500);
    for probe in probes {
        let (_, _, ledger) = probe.stop(0);
        assert_eq!(
            (&ledger["packets"]["metered"], &ledger["flows"]["created"]),
            (&1000.into(), &500.into()),
            "{ledger}"
        );
    }
}

#[test]
fn a_second_af_xdp_probe_on_an_interface_is_refused_and_the_first_continues() {
    let Some(mut sender) = wire() else { return };
    let first = Running::probe("af_xdp:right,attach=generic", &[]);
    let err = failure(1, ["probe", "-i", "af_xdp:right,attach=generic"]);
    assert!(err.contains("another XDP program is attached to it (ip link show dev right shows which)"), "{err}");
    send_requests(&mut sender, 0..500);
    let (_, _, ledger) = first.stop(0);
    assert_eq!(ledger["packets"]["metered"], 1000, "{ledger}");
}

#[test]
fn a_blocked_output_delays_no_other_and_is_abandoned_at_the_end() {
    let Some(mut sender) = wire() else { return };
    const FLOWS: u16 = 2000;
    let folder = tempfile::tempdir().unwrap();
    let [pipe, output] = ["pipe", "flows.json"].map(|name| folder.path().join(name));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A reader that never reads.
    let _reader = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let sinks = [&pipe, &output].map(|path| format!("json:{}", path.display()));
    let options = ["-o", &sinks[0], "-o", &sinks[1], "--idle", "300ms", "--timing", "sink_timeout=2s"];
    let probe = Running::probe("af_packet:right", &options);
    send_requests(&mut sender, 0..FLOWS);
    until("the other output has every flow", || read_flows(&output).len() == usize::from(FLOWS));
    let (err, _, ledger) = probe.stop(2);
    assert!(err.contains("accepted no records for 2 s"), "{err}");
    let of = |sink: usize, what: &str| number(&ledger["sinks"][sink][what]["flows"]);
    let lost = ledger["sinks"][0]["lost"]["exporter_behind"]["flows"].as_u64().unwrap();
    assert_eq!((of(0, "exported") + lost, of(1, "exported")), (FLOWS.into(), FLOWS.into()), "{ledger}");
    assert_eq!(ledger["sinks"][1]["lost"], serde_json::json!({}), "{ledger}");
}

/// A capture on standard input of a probe, which ends flows after 1 s without packets.
struct Input {
    pipe: ChildStdin,
    seconds: u32,
}

impl Input {
    fn new(pipe: ChildStdin) -> Self {
        let mut input = Self { pipe, seconds: START };
        input.pipe.write_all(&Pcap::new().0).unwrap();
        input
    }

    /// Sends 300 flows, which end the flows sent before.
    fn send_flows(&mut self) {
        self.seconds += 10;
        let header_bytes = Pcap::new().0.len();
        let frames = (0..300).flat_map(request_and_response);
        let pcap = frames.fold(Pcap::new(), |pcap, frame| pcap.frame(self.seconds, 0, &frame));
        self.pipe.write_all(&pcap.0[header_bytes..]).unwrap();
    }
}

#[test]
fn a_file_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows");
    let sink = format!("csv:{}", path.display());
    let mut first = command()
        .args(["probe", "-i", "-", "-q", "--flows", "1k", "--idle", "1s", "-o", &sink])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = Input::new(first.stdin.take().unwrap());
    until("the first probe writes", || {
        input.send_flows();
        std::fs::metadata(&path).is_ok_and(|file| file.len() > 0)
    });
    let others = [("csv", "probe", "--quiet"), ("json", "read", "--overwrite"), ("table", "probe", "--quiet")];
    for (scheme, command, option) in others {
        let sink = format!("{scheme}:{}", path.display());
        let err = failure(1, [command, "-i", "synth:mix,packets=10", option, "-o", &sink]);
        assert!(err.contains("another program writes to this file; give each a file of its own"), "{command}: {err}");
    }
    drop(input);
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("start_time,"));
}

#[test]
fn the_ledger_balances_while_the_table_sink_holds_records() {
    let Some(mut sender) = wire() else { return };
    let probe = Running::probe("af_packet:right", &["-o", "table:-", "--idle", "200ms", "--status", "json"]);
    send_requests(&mut sender, 0..100);
    until("all flows have ended", || sum(&statuses(&probe.stderr()), "ended_flows") == 100);
    let lines = probe.stderr().lines().count();
    until("two more statuses are printed", || probe.stderr().lines().count() > lines + 2);
    // `stop` also asserts that no imbalance was logged.
    let (_, _, ledger) = probe.stop(0);
    assert_eq!(ledger["sinks"][0]["exported"]["flows"], 100, "{ledger}");
}

#[test]
fn a_probe_that_may_start_no_more_threads_ends_in_order() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can become a user without other processes");
    }
    let output = JsonOutput::new();
    let mut probe = command();
    probe.args(["probe", "-i", "-", "--duration", "300ms", "--user", "54321", "-o", &output.sink]);
    probe.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The main thread, a pipeline and a sink.
    let three = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
    // SAFETY: the call reads one limit.
    let limit = move || match unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const three) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: between fork and exec, it only makes this call.
    unsafe { probe.pre_exec(limit) };
    let mut child = probe.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&Pcap::new().frame(START, 0, &request_and_response(1)[0]).0).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(BOUND / 30);
        drop(pipe);
    });
    let (code, _, err) = text_of(&child.wait_with_output().unwrap());
    assert_eq!((code, output.flows().len()), (0, 1), "{err}");
}

#[test]
fn a_user_that_does_not_exist_is_refused() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can become another user");
    }
    // The largest number means "no change" to the system.
    for user in ["no-such-user", "4294967295", "4294967296", ""] {
        let err = failure(1, ["probe", "-i", "synth:mix,packets=9", "-o", "json:/dev/null", "--user", user]);
        assert!(err.contains(&format!("--user {user}: no such user")), "{err}");
    }
}

#[test]
fn the_limit_of_open_files_is_named() {
    let capture = testbed::small().saved();
    let sink = format!("json:{}", capture.beside("flows").display());
    let mut named = 0;
    for limit in 4..10 {
        let output = Command::new("sh")
            .args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_weir"))
            .args(["probe", "-i", capture.name(), "-o", &sink])
            .output()
            .unwrap();
        let (code, _, err) = text_of(&output);
        named += u32::from(code != 0 && err.contains("Too many open files"));
        assert!(code == 0 || err.contains("Too many open files"), "{limit}: {err}");
        assert!(!err.contains("no such user"), "{limit}: {err}");
    }
    assert!(named > 0, "the limits are high enough");
}

/// What systemd does for a service of the type `notify`.
struct ServiceManager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl ServiceManager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        // The probe notifies the service manager as user nobody.
        [folder.path(), &path].into_iter().for_each(permit_all_users);
        socket.set_read_timeout(Some(BOUND)).unwrap();
        Self { folder, socket }
    }

    /// A probe whose watchdog has a timeout of 200 ms.
    fn command(&self) -> Command {
        let mut command = command();
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify")).env("WATCHDOG_USEC", "200000");
        command.stdin(Stdio::piped());
        command
    }

    fn receive(&self) -> String {
        let mut buffer = [0; 1000];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(octets) => return String::from_utf8(buffer[..octets].to_vec()).unwrap().trim_end().to_owned(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
            }
        }
    }

    fn wait_for(&self, what: &str) {
        let started = std::time::Instant::now();
        while !self.receive().starts_with(what) {
            assert!(started.elapsed() < BOUND, "{what}");
        }
    }

    /// Notifications that have arrived and were not received.
    fn arrived(&self) -> Vec<String> {
        let mut buffer = [0; 1000];
        self.socket.set_nonblocking(true).unwrap();
        let receive = || {
            let octets = self.socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..octets].to_vec()).unwrap())
        };
        let arrived = std::iter::from_fn(receive).collect();
        self.socket.set_nonblocking(false).unwrap();
        arrived
    }
}

#[test]
fn the_service_manager_is_notified_of_readiness_status_watchdog_and_stop() {
    let manager = ServiceManager::new();
    let mut child = manager
        .command()
        .args(["probe", "-i", "-", "-q", "--interval", "100ms", "-o", "json:/dev/null"])
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&Pcap::new().frame(START, 0, &request_and_response(1)[0]).0).unwrap();
    assert_eq!(manager.receive(), "READY=1");
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("STATUS=");
    // The status of a silent pipe, ten times a second, does not delay the watchdog by a second each.
    let started = std::time::Instant::now();
    (0..20).for_each(|_| manager.wait_for("WATCHDOG=1"));
    assert!(started.elapsed() < BOUND / 4, "{:?}", started.elapsed());
    drop(pipe);
    manager.wait_for("STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_service_manager_that_reads_nothing_does_not_stop_the_probe() {
    let manager = ServiceManager::new();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"STATUS=full", manager.folder.path().join("notify")).is_ok() {}
    let mut probe =
        Running::start_in(manager.command(), &["probe", "-i", "-", "--interval", "100ms", "--log-level", "info"]);
    let mut pipe = probe.process.0.stdin.take().unwrap();
    let capture = Pcap::new().frame(START, 0, &request_and_response(1)[0]).0;
    let packet = &capture[Pcap::new().0.len()..];
    pipe.write_all(&capture).unwrap();
    until("the flow is metered", || {
        pipe.write_all(packet).unwrap();
        probe.times("active=1 ") > 0
    });
    signal(&probe.process.0, libc::SIGTERM);
    let (code, err, flows, _) = probe.wait();
    // The input was not read to its end.
    assert_eq!((code, flows.len()), (2, 1), "{err}");
}

#[test]
fn standard_error_that_is_not_read_stops_neither_metering_nor_watchdog_nor_the_end() {
    const TOTALS: usize = 25;
    for is_read_later in [false, true] {
        let manager = ServiceManager::new();
        let output = JsonOutput::new();
        let folder = output.folder.path();
        let (errors, ledger) = (folder.join("errors"), folder.join("ledger"));
        assert!(Command::new("mkfifo").arg(&errors).status().unwrap().success());
        let open = |options: &mut OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(&errors).unwrap();
        let mut reader = open(OpenOptions::new().read(true));
        let mut filler = open(OpenOptions::new().write(true));
        while filler.write(&[b'x'; 512]).is_ok() {}
        drop(filler);
        // Each of the totals has some 100 kB.
        let long_sinks = (1900..1916).flat_map(|parts| ["-o".into(), format!("csv:/dev/{}null", "./".repeat(parts))]);
        let mut command = manager.command();
        command.args(["probe", "-q", "-i", "-", "--drain-timeout", "2s", "-o", &output.sink]);
        command.args(long_sinks).arg("--stats").arg(&ledger);
        let mut probe = Background(command.stderr(File::options().write(true).open(&errors).unwrap()).spawn().unwrap());
        // It has the pipe open, too.
        drop(command);
        let mut pipe = probe.0.stdin.take().unwrap();
        let [request, response] = request_and_response(1);
        pipe.write_all(&Pcap::of(&[request, response]).0).unwrap();
        manager.wait_for("READY=1");
        for _ in 0..TOTALS {
            manager.arrived();
            signal(&probe.0, libc::SIGUSR1);
            // The totals were printed before the second one.
            (0..2).for_each(|_| manager.wait_for("WATCHDOG=1"));
        }
        let mut text = Vec::new();
        if is_read_later {
            until("the loss is reported", || {
                let _ = reader.read_to_end(&mut text);
                String::from_utf8_lossy(&text).contains(" lines are lost: standard error was not read")
            });
        }
        let started = std::time::Instant::now();
        signal(&probe.0, libc::SIGTERM);
        // The input was not read to its end.
        assert_eq!(probe.0.wait().unwrap().code(), Some(2));
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        assert_eq!((output.flows().len(), &read_ledger(&ledger)["packets"]["metered"]), (1, &2.into()));
        if is_read_later {
            reader.read_to_end(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let totals: Vec<_> = text.split("totals since the start\n").skip(1).collect();
            let lines_of_each = totals[0].lines().count();
            let notice = text.lines().find(|line| line.contains(" lines are lost")).unwrap();
            let lost: usize = notice.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
            assert_eq!(totals.len() * lines_of_each + lost, TOTALS * lines_of_each, "{notice}");
            assert!(text.find("the rest of the input was not read") > text.find(" lines are lost"), "{notice}");
        }
    }
}

/// A thread of another process that is stopped while the others run. It continues on drop.
struct StoppedThread(i32);

impl StoppedThread {
    /// `None`, loudly, where that is not permitted.
    fn new(process: u32, name: &str) -> Option<Self> {
        let mut tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|task| task.unwrap().path());
        let is_wanted = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap().trim() == name;
        let task = tasks.find(is_wanted).unwrap();
        let number: i32 = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
        // SAFETY: the call has no memory arguments.
        if unsafe { libc::ptrace(libc::PTRACE_ATTACH, number, 0, 0) } != 0 {
            eprintln!("SKIPPED: no permission to stop a thread (ptrace): {}", std::io::Error::last_os_error());
            return None;
        }
        // SAFETY: the status is not wanted; the thread is traced by this one.
        assert_eq!(unsafe { libc::waitpid(number, std::ptr::null_mut(), libc::__WALL) }, number);
        Some(Self(number))
    }
}

impl StoppedThread {
    /// Waits until the process has ended it. The process exists until then.
    fn wait_for_end(self) {
        // SAFETY: the status is not wanted; the thread is traced by this one.
        until("the process ends", || unsafe {
            libc::waitpid(self.0, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) != 0
        });
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // SAFETY: the call has no memory arguments.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

#[test]
fn the_watchdog_is_not_notified_while_a_thread_is_stuck() {
    const TOTALS: &str = "totals since the start";
    let manager = ServiceManager::new();
    let mut arguments = vec!["probe", "-i", "-", "--layout", "split", "--flows", "10k", "--interval", "1h"];
    arguments.extend(["--listen", "127.0.0.1:0"]);
    let mut probe = Running::start_in(manager.command(), &arguments);
    let mut pipe = probe.process.0.stdin.take().unwrap();
    pipe.write_all(&Pcap::new().frame(START, 0, &request_and_response(1)[0]).0).unwrap();
    // The reading thread waits for data all the time.
    manager.wait_for("READY=1");
    (0..40).for_each(|_| manager.wait_for("WATCHDOG=1"));
    let is_reported = |thread: &str| {
        let message = format!("threads do not advance, the watchdog is not notified until they do threads={thread}\n");
        until(&message, || {
            // A full socket would lose notifications.
            manager.arrived();
            probe.times(&message) > 0
        });
    };
    let Some(stopped) = StoppedThread::new(probe.process.0.id(), "weir-control") else { return };
    is_reported("weir-control");
    drop(stopped);
    manager.wait_for("WATCHDOG=1");
    let Some(stopped) = StoppedThread::new(probe.process.0.id(), "weir-meter-0") else { return };
    is_reported("weir-meter-0");
    // The next notification would be due, and after the first of the totals the probe looks whether it is.
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..2 {
        let before = probe.times(TOTALS);
        probe.signal(libc::SIGUSR1);
        until("the totals are printed", || probe.times(TOTALS) > before);
    }
    assert_eq!(manager.arrived(), [""; 0]);
    drop(stopped);
    probe.wait_for("all threads advance again");
    manager.wait_for("WATCHDOG=1");
    drop(pipe);
    let (code, err, flows, _) = probe.wait();
    assert_eq!((code, flows.len()), (0, 1), "{err}");
}

#[test]
fn a_probe_with_a_stuck_thread_ends_at_the_deadline() {
    const FLOWS: u64 = 300;
    for (layout, thread, metered) in [("fused", "weir-0", true), ("split", "weir-meter-0", false)] {
        let mut command = command();
        command.stdin(Stdio::piped());
        let options = ["--layout", layout, "--flows", "10k", "--interval", "100ms", "--drain-timeout", "1s"];
        let mut probe = Running::start_in(command, &[&["probe", "-i", "-"], &options[..]].concat());
        let mut pipe = probe.process.0.stdin.take().unwrap();
        let frames: Vec<_> = (0..FLOWS as u16).flat_map(request_and_response).collect();
        pipe.write_all(&Pcap::of(&frames).0).unwrap();
        let active = format!("active={FLOWS} ");
        until("all flows are metered", || {
            pipe.write_all(&Pcap::of(&frames[..1]).0[24..]).unwrap();
            probe.stderr().contains(&active)
        });
        let Some(stopped) = StoppedThread::new(probe.process.0.id(), thread) else { return };
        if !metered {
            // What the reading thread takes from now on stays in its queue.
            pipe.write_all(&Pcap::of(&frames).0[24..]).unwrap();
        }
        let started = std::time::Instant::now();
        probe.signal(libc::SIGTERM);
        stopped.wait_for_end();
        let (code, err, _, ledger) = probe.wait();
        assert!(started.elapsed() < BOUND, "{layout}: {:?}", started.elapsed());
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("threads did not end in time (--drain-timeout 1.00s)"), "{err}");
        assert!(err.contains(&format!("threads={thread}\n")), "{err}");
        assert_eq!(ledger["sinks"][0]["lost"]["drain_timeout"]["flows"], FLOWS, "{err}");
        assert!(metered || number(&ledger["packets"]["dropped_queue"]) > 0, "{ledger}");
    }
}
