//! `weir probe`: several pipelines at work, on captures and on the wire; its lines, its settings, its signals, its rights.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{Pcap, START, parts, small, udp, weir};
use live::{Probe, flows};
use network::{LEFT, Sender, ip, network, until};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn packets(flows: &[Value]) -> u64 {
    let of = |flow: &Value, field: &str| flow[field].as_u64().unwrap_or(0);
    flows.iter().map(|flow| of(flow, "packets") + of(flow, "rev_packets")).sum()
}

/// A question and its answer between two hosts.
fn talk(number: u16) -> [Vec<u8>; 2] {
    let [high, low] = number.to_be_bytes();
    let (client, server) = (([10, 0, high, low], 1024 + number % 5000), ([10, 1, 0, 1], 53));
    [udp(client, server, 40), udp(server, client, 400)]
}

#[test]
fn every_source_is_a_pipeline_and_all_add_up() {
    for layout in ["fused", "split", "spread"] {
        every_source_is_a_pipeline(layout);
    }
}

fn every_source_is_a_pipeline(layout: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (capture, ledger) = (small().save(folder.path(), "small.pcap"), folder.path().join("ledger.json"));
    let (output, stats) = (folder.path().join("flows.json"), ledger.to_str().unwrap());
    let sink = format!("json:{}", output.display());
    let (code, _, told) = parts(&weir([
        "probe",
        "-i",
        capture.to_str().unwrap(),
        "-i",
        "synth:mix,flows=100,packets=20k",
        "-i",
        "synth:velan,flows=10,packets=20k",
        "-o",
        &sink,
        "--stats",
        stats,
        "--layout",
        layout,
    ]));
    assert_eq!(code, 0, "{told}");
    let ledger: Value = serde_json::from_slice(&fs::read(&ledger).unwrap()).unwrap();
    assert_eq!(ledger["packets"]["received"], 40_000 + common::SMALL_PACKETS, "{ledger}");
    assert_eq!(ledger["balanced"], true, "{ledger}");
    assert_eq!(packets(&flows(&output)), ledger["packets"]["metered"].as_u64().unwrap());
    assert_eq!(flows(&output).len() as u64, ledger["flows"]["exported"].as_u64().unwrap());
}

#[test]
fn what_is_set_can_be_checked_printed_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    let path = file.to_str().unwrap();
    let (code, text, told) =
        parts(&weir(["probe", "-i", "synth:mix,packets=10", "--idle", "7s", "--cores", "0-0", "--print-config"]));
    assert_eq!((code, told.as_str()), (0, ""));
    fs::write(&file, &text).unwrap();
    let (code, plan, told) = parts(&weir(["probe", "--config", path, "--active", "9s", "--check"]));
    assert_eq!((code, told.as_str()), (0, ""));
    for fact in [
        "source     synth:mix,packets=10",
        "idle 7.00s, active 9.00s",
        "on cores: 0\n",
        "nobody after sources and sinks are open",
    ] {
        assert!(plan.contains(fact), "{fact}: {plan}");
    }
    let (code, _, told) = parts(&weir(["probe", "--config", path, "-q"]));
    assert_eq!((code, told.as_str()), (0, ""));

    fs::write(&file, "input = [\"synth:mix\"]\nflws = 7\n").unwrap();
    let (code, out, told) = parts(&weir(["probe", "--config", path, "--check"]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(told.contains("line 2: flws: unknown option; did you mean flows?"), "{told}");
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.csv");
    let sink = format!("csv:{}", output.display());
    for (arguments, reason) in [
        (&["probe"][..], "nothing to read"),
        (&["probe", "-i", "af_packet:nowhere0"], "nowhere0"),
        (&["probe", "-i", "synth:mix", "--cores", "3-1"], "neither a core number nor a range"),
        (&["probe", "-i", "synth:mix", "--cores", "1023"], "core 1023 is not available"),
        (&["probe", "-i", "synth:mix", "--config", "/nonexistent"], "/nonexistent"),
        (&["probe", "-i", "synth:mix", "--filter", "host ("], "filter"),
    ] {
        let (code, out, told) = parts(&weir(arguments.iter().copied().chain(["-o", &sink])));
        assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}: {told}");
        assert!(told.contains(reason), "{arguments:?}: {told}");
        assert!(!output.exists(), "{arguments:?}");
    }
    if rustix_is_root() {
        let (code, _, told) = parts(&weir(["probe", "-i", "synth:mix,packets=10", "--user", "no-such-user"]));
        assert_eq!(code, 1);
        assert!(told.contains("no such user"), "{told}");
    }
}

fn rustix_is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn queues_of_an_interface_are_pipelines_and_a_flow_is_in_one_of_them() {
    if !network() {
        return;
    }
    for layout in ["fused", "split", "spread"] {
        queues_are_pipelines(layout);
    }
}

fn queues_are_pipelines(layout: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.json");
    let sink = format!("json:{}", output.display());
    let probe = Probe::start("af_packet:right,queues=4", &["-o", &sink, "--layout", layout]);
    let mut sender = Sender::new(LEFT);
    for round in 0..5 {
        for number in 0..1000 {
            talk(number).iter().for_each(|frame| sender.send(frame));
        }
        until("the line tells of them", || probe.told().lines().any(|line| line.contains("flows 1000 active")));
        assert!(round < 5);
    }
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 0, "{told}");
    assert_eq!(ledger["packets"]["received"], 10_000, "{ledger}");
    let flows = flows(&output);
    assert_eq!((flows.len(), packets(&flows)), (1000, 10_000));
    assert!(flows.iter().all(|flow| flow["packets"] == 5 && flow["rev_packets"] == 5), "both directions meet");
    if layout == "spread" {
        assert!(told.contains("4 queues") && told.contains("busiest meter"), "{told}");
        return;
    }
    for queue in 0..4 {
        let name = format!("af_packet:right@{queue}");
        assert!(told.contains(&name), "{name}: {told}");
    }
    assert!(told.contains(" all "), "{told}");
}

#[test]
fn both_directions_of_a_tap_are_one_flow() {
    if !network() {
        return;
    }
    // What the one side of the link sends comes by one wire, what the other sends by another.
    ip("link add left2 mtu 65535 type veth peer name right2 mtu 65535");
    for end in ["left2", "right2"] {
        ip(&format!("link set {end} arp off up"));
    }
    until("the other wire carries frames", || ip("link show dev right2").contains("state UP"));
    let folder = tempfile::tempdir().unwrap();
    for (layout, queues) in [("fused", 1), ("split", 1), ("fused", 2), ("spread", 2)] {
        let output = folder.path().join(format!("{layout}{queues}.json"));
        let sink = format!("json:{}", output.display());
        let source = format!("af_packet:right+right2,queues={queues}");
        let probe = Probe::start(&source, &["-o", &sink, "--layout", layout]);
        let (mut one, mut other) = (Sender::new(LEFT), Sender::new("left2"));
        for number in 0..500 {
            let [question, answer] = talk(number);
            one.send(&question);
            other.send(&answer);
        }
        let (code, told, ledger) = probe.end();
        assert_eq!(code, 0, "{told}");
        assert_eq!(ledger["packets"]["received"], 1000, "{ledger}");
        let flows = flows(&output);
        assert_eq!((flows.len(), packets(&flows)), (500, 1000));
        assert!(flows.iter().all(|flow| flow["packets"] == 1 && flow["rev_packets"] == 1), "both directions meet");
        assert!(flows.iter().all(|flow| flow["dst_port"] == 53), "questions come before their answers");
        let right = ip("-o link show dev right");
        let number: u64 = right.split(':').next().unwrap().parse().unwrap();
        assert!(flows.iter().all(|flow| flow["interface"] == number), "{number} saw the questions");
    }
}

#[test]
fn every_packet_that_af_xdp_takes_in_is_in_a_record() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.json");
    let sink = format!("json:{}", output.display());
    let probe = Probe::start("af_xdp:right,attach=generic", &["-o", &sink]);
    assert!(probe.told().contains("do not reach this host's network stack"), "{}", probe.told());
    let mut sender = Sender::new(LEFT);
    for number in 0..500 {
        talk(number).iter().for_each(|frame| sender.send(frame));
    }
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 0, "{told}");
    assert_eq!(ledger["packets"]["received"], 1000, "{ledger}");
    let flows = flows(&output);
    assert_eq!((flows.len(), packets(&flows)), (500, 1000));
}

#[test]
fn the_first_flow_of_a_quiet_link_is_seen_without_another_packet() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.json");
    let sink = format!("json:{}", output.display());
    for layout in ["fused", "split", "spread"] {
        fs::write(&output, "").unwrap();
        a_flow_ends_by_itself(&output, &sink, layout);
    }
}

fn a_flow_ends_by_itself(output: &Path, sink: &str, layout: &str) {
    let probe = Probe::start("af_packet:right", &["-o", sink, "--idle", "300ms", "--layout", layout]);
    talk(1).iter().for_each(|frame| Sender::new(LEFT).send(frame));
    until("the flow ends by itself", || flows(output).len() == 1);
    let flow = &flows(output)[0];
    assert_eq!((&flow["packets"], &flow["rev_packets"]), (&1.into(), &1.into()));
    assert_eq!(flow["end_reason"], "idle");
    probe.end();
}

#[test]
fn sighup_takes_over_timeouts_filter_and_sinks_and_every_record_is_somewhere() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before.json", "after.json"].map(|name| folder.path().join(name));
    let file = folder.path().join("probe.toml");
    let write = |sink: &Path, more: &str| {
        fs::write(&file, format!("output = [\"json:{}\"]\n{more}", sink.display())).unwrap();
    };
    // Both are there, and may be written by whoever it becomes.
    for path in [&before, &after] {
        fs::write(path, "").unwrap();
        open_to_all(path);
    }
    open_to_all(folder.path());
    write(&before, "idle = \"300ms\"\n");
    open_to_all(&file);
    let probe = Probe::start("af_packet:right", &["--config", file.to_str().unwrap()]);
    let mut sender = Sender::new(LEFT);
    let mut round = |from: u16| {
        for number in from..from + 100 {
            talk(number).iter().for_each(|frame| sender.send(frame));
        }
    };
    round(0);
    until("the first sink has them", || flows(&before).len() == 100);

    write(&after, "idle = \"300ms\"\nfilter = \"udp and host 10.0.0.200\"\n");
    probe.signal(libc::SIGHUP);
    until("it is read again", || probe.told().contains("configuration reloaded"));
    round(100);
    round(200);
    until("the second sink has what the filter keeps", || flows(&after).len() == 1);

    let times = |what: &str| probe.told().matches(what).count();
    probe.signal(libc::SIGHUP);
    until("it is read again, and nothing is new", || times("configuration reloaded") == 2);
    assert_eq!(flows(&after).len(), 1, "a sink that is the same is not opened again");
    write(&before, "idle = \"300ms\"\n");
    probe.signal(libc::SIGHUP);
    until("what was written is not emptied", || times("would empty it") == 1);

    fs::write(&file, "output = [\"json:/nonexistent/folder/x\"]\n").unwrap();
    probe.signal(libc::SIGHUP);
    until("it goes on", || probe.told().contains("continuing with the old one"));
    let (_, told, ledger) = probe.end();
    assert_eq!((flows(&before).len(), flows(&after).len()), (100, 1), "{told}");
    let line = &ledger["packets"];
    assert_eq!([&line["received"], &line["filtered"], &line["metered"]], [600, 398, 202], "{ledger}");
    let sinks = ledger["sinks"].as_array().unwrap();
    let told: Vec<_> = sinks.iter().map(|sink| [&sink["exported"]["flows"], &sink["not_open"]["flows"]]).collect();
    assert_eq!(told, [[100, 1], [1, 100]], "{ledger}");
}

/// A collector that others wrote; ends with the test.
struct Nfcapd {
    child: Child,
    files: tempfile::TempDir,
}

impl Nfcapd {
    fn start(port: u16) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut command = Command::new("nfcapd");
        command
            .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", "-B", "4000000", "-w"])
            .arg(files.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // It listens when the port is taken.
        until("nfcapd listens", || UdpSocket::bind(("127.0.0.1", port)).is_err());
        Self { child, files }
    }

    /// Ends it: how many records it has, and packets in them.
    fn end(mut self) -> [u64; 2] {
        // SAFETY: the process was started here, and nobody has waited for it yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) }, 0);
        self.child.wait().unwrap();
        let mut nfdump = Command::new("nfdump");
        nfdump.args(["-q", "-N", "-o", "fmt:%pkt", "-R"]).arg(self.files.path());
        let text = String::from_utf8(nfdump.output().unwrap().stdout).unwrap();
        let packets: Vec<u64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        [packets.len() as u64, packets.iter().sum()]
    }
}

#[test]
fn a_collector_has_every_record_of_a_probe_that_was_reloaded_overloaded_and_stopped() {
    for judge in ["nfcapd", "nfdump"] {
        if Command::new(judge).arg("-V").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: {judge} is not installed");
            return;
        }
    }
    if !network() {
        return;
    }
    ip("link set lo up");
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let collector = Nfcapd::start(port);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    fs::write(&file, format!("output = [\"netflow9+udp://127.0.0.1:{port}\"]\nuniflow = true\nidle = \"1s\"\n"))
        .unwrap();
    open_to_all(folder.path());
    open_to_all(&file);
    let probe = Probe::start("af_packet:right,queues=2,block=64k,blocks=4", &["--config", file.to_str().unwrap()]);
    let mut sender = Sender::new(LEFT);
    let mut round = |numbers: std::ops::Range<u16>| {
        numbers.for_each(|number| talk(number).iter().for_each(|frame| sender.send(frame)));
    };
    round(0..2000);
    probe.signal(libc::SIGHUP);
    round(2000..3000);
    until("it is read again", || probe.told().contains("configuration reloaded"));
    round(3000..4000);
    probe.signal(libc::SIGSTOP);
    round(4000..12_000);
    probe.signal(libc::SIGCONT);
    round(12_000..13_000);
    let (code, told, ledger) = probe.end();
    let of = |line: &str, what: &str| ledger[line][what].as_u64().unwrap();
    assert_eq!(of("packets", "received"), 26_000, "{told}");
    let lost = of("packets", "dropped_kernel");
    assert!(lost > 0, "it was overloaded: {ledger}");
    assert_eq!(code, 2, "{told}");
    let sinks = ledger["sinks"].as_array().unwrap();
    let sum = |what: fn(&Value) -> &Value| sinks.iter().map(|sink| what(sink).as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(|sink| &sink["exported"]["packets"]), 26_000 - lost, "{ledger}");
    assert_eq!(collector.end(), [sum(|sink| &sink["wire_records"]), 26_000 - lost], "{ledger}");
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn it_never_meters_what_it_sends_itself() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = collector.local_addr().unwrap().port();
    let sink = format!("ipfix+udp://127.0.0.1:{port}");
    let probe = Probe::start("af_packet:lo", &["-o", &sink, "--idle", "200ms", "--active", "200ms"]);
    let (client, server) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for _ in 0..10 {
        client.send_to(b"question", server.local_addr().unwrap()).unwrap();
    }
    let (mut datagrams, mut buffer) = (0, [0; 2000]);
    collector.set_read_timeout(Some(network::BOUND)).unwrap();
    // Its records would have records, and these as well.
    while datagrams < 2 {
        collector.recv(&mut buffer).unwrap();
        datagrams += 1;
    }
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 0, "{told}");
    let line = &ledger["packets"];
    assert_eq!(line["metered"], 10, "{ledger}");
    assert!(line["filtered"].as_u64().unwrap() >= 2, "{ledger}");
    assert_eq!(line["received"].as_u64().unwrap(), 10 + line["filtered"].as_u64().unwrap(), "{ledger}");
    assert_eq!(ledger["flows"]["created"], 1, "{ledger}");
}

#[test]
fn it_keeps_no_rights_that_it_does_not_need() {
    if !network() {
        return;
    }
    let probe = Probe::start("af_packet:right", &[]);
    assert_ne!(probe.status("Uid:"), "0");
    assert_ne!(probe.status("Gid:"), "0");
    assert_eq!(probe.status("CapEff:"), "0000000000000000");
    assert_eq!(probe.status("NoNewPrivs:"), "1");
    // Field 19 of a thread's stat; its name stands in brackets before.
    let nice = |name: &str| {
        let tasks = fs::read_dir(format!("/proc/{}/task", probe.child.id())).unwrap();
        let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
        let stat = stats.into_iter().find(|stat| stat.contains(&format!("({name})"))).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    let permitted = Command::new("nice").args(["-n", "-10", "nice"]).output().unwrap().stdout == b"-10\n";
    if permitted {
        assert_eq!(["weir-0", "weir-export"].map(nice), [-10, 5], "raised before the rights were gone");
    } else {
        eprintln!("SKIPPED: to be raised above other programs is not permitted here");
    }
    talk(1).iter().for_each(|frame| Sender::new(LEFT).send(frame));
    until("it goes on all the same", || probe.told().contains("flows 1 active"));
    let (code, told, _) = probe.end();
    assert_eq!(code, 0, "{told}");
}

#[test]
fn what_a_queue_lost_is_in_the_account() {
    if !network() {
        return;
    }
    // A ring of two blocks, and a sink that nobody reads: a pipe. The table waits for the end, so it is the ring that overflows
    // only if the pipeline is stopped: it is, for a while.
    let probe = Probe::start("af_packet:right,block=4k,blocks=2", &[]);
    probe.signal(libc::SIGSTOP);
    let frames: Vec<_> = (0..2000).flat_map(talk).collect();
    let mut sender = Sender::new(LEFT);
    frames.iter().for_each(|frame| sender.send(frame));
    probe.signal(libc::SIGCONT);
    let (code, told, ledger) = probe.end();
    let line = &ledger["packets"];
    let dropped = line["dropped_kernel"].as_u64().unwrap();
    assert_eq!(line["received"], 4000, "{ledger}");
    assert!(dropped > 3000, "{ledger}");
    assert_eq!(line["metered"].as_u64().unwrap() + dropped, 4000, "{ledger}");
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("dropped by the kernel"), "{told}");
}

#[test]
fn a_record_says_how_many_packets_its_queue_lost_during_its_life() {
    if !network() {
        return;
    }
    for layout in ["fused", "split"] {
        what_a_record_says_of_losses(layout);
    }
}

fn what_a_record_says_of_losses(layout: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.json");
    let sink = format!("json:{}", output.display());
    let probe = Probe::start("af_packet:right,block=4k,blocks=2", &["-o", &sink, "--layout", layout]);
    let mut sender = Sender::new(LEFT);
    let mut talk_of = |number| talk(number).iter().for_each(|frame| sender.send(frame));
    // Looks are made several times a second, and the line tells that they were.
    let told = |flows: u32| {
        let what = format!("flows {flows} active");
        until("it was looked at", || {
            probe.told().lines().rev().take(4).filter(|line| line.contains(&what)).count() == 4
        });
    };
    (1..=2).for_each(&mut talk_of);
    told(2);
    probe.signal(libc::SIGSTOP);
    (1000..3000).for_each(&mut talk_of);
    probe.signal(libc::SIGCONT);
    until("it tells of losses", || {
        probe.told().lines().any(|line| line.contains("drops") && !line.contains(" 0 kernel"))
    });
    // The first one goes on, and another begins.
    talk_of(1);
    let active = |text: &str| -> Option<u32> {
        let line = text.lines().rev().find(|line| line.contains("flows "))?;
        line.split("flows ").nth(1)?.split(' ').next()?.parse().ok()
    };
    let before = active(&probe.told()).unwrap();
    told(before);
    talk_of(3);
    told(before + 1);
    let (_, told, ledger) = probe.end();
    let of = |line: &str| ledger["packets"][line].as_u64().unwrap();
    assert_eq!(of("received"), 2 + 2 + 4000 + 2 + 2, "{told}");
    let lost = of("dropped_kernel") + of("dropped_ring") + of("dropped_card");
    assert!(lost > 1000, "{ledger}");
    let flows = flows(&output);
    let says = |host: u64| {
        let of_host = |flow: &&Value| flow["src_ip"] == format!("10.0.0.{host}");
        flows.iter().find(of_host).unwrap()["queue_lost"].as_u64().unwrap()
    };
    assert_eq!(says(1), lost, "it lived through all of it");
    assert_eq!([says(2), says(3)], [0, 0], "before and after: {layout}");
    let largest = flows.iter().map(|flow| flow["queue_lost"].as_u64().unwrap()).max();
    assert_eq!(largest, Some(lost), "no record says more than was lost");
}

#[test]
fn a_pipeline_that_waits_for_a_pipe_holds_nobody_up() {
    use std::io::Write;
    for layout in ["fused", "split", "spread"] {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["probe", "-i", "-", "--interval", "100ms", "--idle", "1s", "--flows", "10k", "--layout", layout])
            .arg("-o")
            .arg(format!("json:{}", folder.path().join("flows.json").display()))
            .stdin(Stdio::piped())
            .stderr(fs::File::create(&told).unwrap())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // Each part ends the flows of the one before, so that records leave while nobody asks.
        for part in 0..3_u32 {
            let mut pcap = Pcap::new();
            if part > 0 {
                pcap.0.clear();
            }
            for number in 0..500 {
                let [question, answer] = talk(number);
                let seconds = START + 10 * part + u32::from(number / 100);
                pcap = pcap.frame(seconds, 0, &question).frame(seconds, 1, &answer);
            }
            pipe.write_all(&pcap.0).unwrap();
            let silent = |text: String| text.matches("no response").count();
            let before = silent(fs::read_to_string(&told).unwrap());
            until("it is asked while it waits", || silent(fs::read_to_string(&told).unwrap()) > before);
        }
        drop(pipe);
        let code = child.wait().unwrap().code();
        let told = fs::read_to_string(&told).unwrap();
        assert_eq!(code, Some(0), "{told}");
        assert!(!told.contains("panicked") && !told.contains("NOT BALANCE"), "{told}");
        let flows = flows(&folder.path().join("flows.json"));
        assert_eq!((flows.len(), packets(&flows)), (1500, 3000));
    }
}

#[test]
fn a_capture_that_is_damaged_is_told_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut cut = Pcap::new().frame(START, 0, &udp(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2), 10));
    cut.0.extend([1, 2, 3]);
    let (cut, whole) = (cut.save(folder.path(), "cut.pcap"), small().save(folder.path(), "whole.pcap"));
    let (code, out, told) =
        parts(&weir(["probe", "-i", cut.to_str().unwrap(), "-i", whole.to_str().unwrap(), "-o", "table:-"]));
    assert_eq!(code, 2);
    assert!(told.contains("cut.pcap"), "{told}");
    assert!(out.contains(&format!("packets    {} received", 1 + common::SMALL_PACKETS)), "{out}");
}

#[test]
fn sighup_opens_and_closes_sinks_beside_one_that_stays_and_names_what_needs_another_start() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let [stays, comes, file] = ["stays.json", "comes.json", "probe.toml"].map(|name| folder.path().join(name));
    let write = |sinks: &[&Path], more: &str| {
        let sinks: Vec<_> = sinks.iter().map(|sink| format!("\"json:{}\"", sink.display())).collect();
        fs::write(&file, format!("output = [{}]\nidle = \"200ms\"\n{more}", sinks.join(", "))).unwrap();
        open_to_all(&file);
    };
    write(&[&stays], "");
    let probe = Probe::start("af_packet:right", &["--config", file.to_str().unwrap()]);
    let mut sender = Sender::new(LEFT);
    let mut round = |from: u16| (from..from + 50).for_each(|at| talk(at).iter().for_each(|frame| sender.send(frame)));
    let reload = |times: usize| {
        probe.signal(libc::SIGHUP);
        until("it is read again", || probe.told().matches("configuration reloaded").count() == times);
    };
    round(0);
    until("the first has them", || flows(&stays).len() == 50);
    write(&[&comes, &stays], "decap = true\nfull = \"drop\"\nbatch = 9\n");
    reload(1);
    assert!(
        probe.told().contains("need a restart and were not applied options=\"decap, full, batch\""),
        "{}",
        probe.told()
    );
    round(50);
    until("both have them", || [&stays, &comes].map(|sink| flows(sink).len()) == [100, 50]);
    write(&[&stays], "");
    reload(2);
    round(100);
    until("the one that stays has them", || flows(&stays).len() == 150);
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 0, "{told}");
    assert_eq!(told.matches("need a restart").count(), 1, "nothing is otherwise any more: {told}");
    assert_eq!(flows(&comes).len(), 50);
    assert!(told.contains("flows      150\n"), "each record is added up once: {told}");
    let sinks = ledger["sinks"].as_array().unwrap();
    let flows_of = |records: &Value| records["flows"].as_u64().unwrap_or(0);
    let told: Vec<_> = sinks.iter().map(|sink| [&sink["exported"], &sink["not_open"]].map(flows_of)).collect();
    assert_eq!(told, [[50, 100], [150, 0]], "{ledger}");
}

#[test]
fn a_pipe_that_nobody_reads_yet_is_waited_for_until_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let sink = format!("json:{}", pipe.display());
    let begin = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["probe", "-i", "synth:velan,flows=10,packets=1000", "-q", "-o", &sink]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut waits = begin();
    let mut told = std::io::BufReader::new(waits.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut told, &mut line).unwrap();
    assert!(line.contains("waiting for a program that reads this pipe"), "{line}");
    // SAFETY: the process was started here, and nobody has waited for it yet.
    assert_eq!(unsafe { libc::kill(waits.id() as i32, libc::SIGTERM) }, 0);
    assert_eq!(waits.wait().unwrap().code(), Some(1));
    // Who is read goes on.
    let mut read = begin();
    let text = fs::read_to_string(&pipe).unwrap();
    assert_eq!((read.wait().unwrap().code(), text.lines().count()), (Some(0), 10));
}

#[test]
fn what_would_be_ignored_is_refused_and_what_would_be_done_is_told() {
    let (code, _, told) = parts(&weir(["probe", "-i", "synth:mix", "--meters", "3"]));
    assert!(code == 1 && told.contains("needs --layout spread"), "{told}");
    let more = ["--layout", "spread", "--meters", "3", "--autotune=2s", "--busy-poll", "--batch", "9"];
    let (code, plan, _) = parts(&weir(["probe", "-i", "synth:mix", "--check"].into_iter().chain(more)));
    assert_eq!(code, 0);
    for fact in ["3 metering threads", "2.00s per trial", "busy", "9 packets"] {
        assert!(plan.contains(fact), "{fact}: {plan}");
    }
    if rustix_is_root() && Command::new("setpriv").arg("--version").output().is_ok() {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--clear-groups",
            env!("CARGO_BIN_EXE_weir"),
            "probe",
            "-i",
            "synth:mix,packets=9",
        ]);
        let output = command.args(["--user", "daemon", "-o", "json:/dev/null"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        // Where that user may not even run it there is nothing to see.
        if output.status.code() != Some(126) && !told.contains("failed to execute") {
            assert!(output.status.code() == Some(1) && told.contains("only root can become another user"), "{told}");
        }
    }
}
