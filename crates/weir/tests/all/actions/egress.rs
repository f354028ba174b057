//! Packets that a probe forwards by rules: what other programs read of them. docs/egress.md.

use serde_json::Value;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use testbed::namespace::{LEFT, Sender, ip, is_captured, network_of, received_frames, until, until_wired};
use testbed::running::{Running, frames, wire};
use testbed::{
    Background, Tcpdump, command, failure, is_root, number, permit_all_users, read_ledger, success, until_it_sleeps,
    weir,
};

/// Outputs that cannot be used are tried again after this time.
const RETRY: Duration = Duration::from_millis(50);
const TIMING: [&str; 2] = ["--timing", "output_retry=50ms"];

/// A rules file that hands all packets on.
fn rules(folder: &Path, outputs: &[&str], balance: &str) -> String {
    let path = folder.join("rules.toml");
    fs::write(&path, format!("[egress.ids]\noutputs = {outputs:?}\nbalance = \"{balance}\"\n")).unwrap();
    path.to_str().unwrap().into()
}

/// Adds veth pairs from `out0`, `out1`, ... to `ids0`, `ids1`, ...
fn add_wires(number: usize) {
    for wire in 0..number {
        ip(&format!("link add out{wire} mtu 65535 type veth peer name ids{wire} mtu 65535"));
        ["out", "ids"].iter().for_each(|end| drop(ip(&format!("link set {end}{wire} arp off up"))));
    }
    until("the wires carry frames", || {
        (0..number).all(|wire| ip(&format!("link show dev ids{wire}")).contains("state UP"))
    });
}

/// A source with two pipelines, if each can have the output: AF_XDP needs a queue for each.
fn source(output: &str) -> &'static str {
    if output.starts_with("af_xdp") { "af_packet:right" } else { "af_packet:right,queues=2" }
}

/// Frames of a capture, of which the last may be incomplete.
fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    if let Ok(mut source) = weir_capture::open(path) {
        while let Ok(Some(burst)) = source.burst() {
            frames.extend(burst.iter().map(|frame| frame.bytes.to_vec()));
        }
    }
    frames
}

/// The counters of an output in the ledger.
fn output<'a>(ledger: &'a Value, name: &str) -> &'a Value {
    let outputs = ledger["actions"]["outputs"].as_array().unwrap();
    outputs.iter().find(|output| output["output"] == name).unwrap_or_else(|| panic!("{name}: {ledger:#}"))
}

/// Packets of an output, all of which were sent or dropped.
fn handed(output: &Value) -> u64 {
    assert_eq!(number(&output["waiting"]["packets"]), 0, "{output}");
    let dropped = output["dropped"].as_object().unwrap().values();
    number(&output["sent"]["packets"]) + dropped.map(|dropped| number(&dropped["packets"])).sum::<u64>()
}

fn mkfifo(folder: &Path) -> PathBuf {
    let path = folder.join("ids.fifo");
    assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&path).status().unwrap().success());
    path
}

#[test]
fn consumers_get_all_packets_unchanged_and_each_address_pair_stays_at_one() {
    let Some(mut sender) = wire() else { return };
    add_wires(2);
    let folder = tempfile::tempdir().unwrap();
    let dumps: Option<Vec<_>> = (0..2).map(|wire| Tcpdump::at(folder.path(), &format!("ids{wire}"))).collect();
    let Some(mut dumps) = dumps else { return };
    let rules = rules(folder.path(), &["af_packet:out0", "af_packet:out1"], "address-pair");
    let probe = Running::probe("af_packet:right,queues=2", &["--rules", &rules]);
    let sent: Vec<Vec<u8>> =
        ["synth:mix,flows=300,packets=6k", "ping.pcap.zst", "traceroute.pcap", "layer2.pcap", "vlan.pcap"]
            .into_iter()
            .flat_map(frames)
            .collect();
    sender.send_forwarded(&sent, || dumps.iter_mut().map(Tcpdump::count).sum());
    let (_, _, ledger) = probe.stop(0);
    assert_eq!(number(&ledger["actions"]["forwarded"]["packets"]), sent.len() as u64, "{:#}", ledger["actions"]);
    let mut consumer_of = HashMap::new();
    let mut arrived = Vec::new();
    for (consumer, dump) in dumps.into_iter().enumerate() {
        let counters = output(&ledger, &format!("af_packet:out{consumer}"));
        let frames = dump.frames(handed(counters) as usize);
        assert_eq!(
            (frames.len() as u64, handed(counters)),
            (number(&counters["sent"]["packets"]), frames.len() as u64)
        );
        assert!(frames.len() > 100, "consumer {consumer} has {}", frames.len());
        for bytes in &frames {
            let mut packet = weir_packet::Packet::default();
            let options = weir_packet::DecodeOptions::default();
            if weir_packet::decode(1, bytes, bytes.len() as u32, options, &mut packet).is_ok() {
                let pair = [packet.source.min(packet.destination), packet.source.max(packet.destination)];
                assert_eq!(*consumer_of.entry(pair).or_insert(consumer), consumer, "{pair:?}");
            }
        }
        arrived.extend(frames);
    }
    let sorted = |mut frames: Vec<Vec<u8>>| {
        frames.sort();
        frames
    };
    assert!(sorted(arrived) == sorted(sent), "the consumers together have other frames than were sent");
}

/// What p0f says of a capture or of an interface, without times.
fn p0f_findings(log: &Path) -> Vec<String> {
    let log = fs::read_to_string(log).unwrap_or_default();
    let findings = log.lines().filter_map(|line| line.split_once("] ")).map(|(_, finding)| finding.to_owned());
    // The uptime follows from the times of the packets, which are others here.
    let mut findings: Vec<String> = findings.filter(|finding| !finding.starts_with("mod=uptime")).collect();
    findings.sort();
    findings
}

#[test]
fn p0f_at_the_far_end_finds_what_it_finds_in_the_capture() {
    if !testbed::is_installed("p0f") {
        return eprintln!("SKIPPED: p0f is not installed");
    }
    let Some(mut sender) = wire() else { return };
    add_wires(1);
    let folder = tempfile::tempdir().unwrap();
    let [of_capture, of_wire] = ["capture.log", "wire.log"].map(|name| folder.path().join(name));
    let capture = testbed::captures().join("web.pcap");
    let p0f = |input: [&Path; 2], log: &Path| {
        let mut p0f = Command::new("p0f");
        p0f.args(input).arg("-o").arg(log).stdout(File::create(log.with_extension("out")).unwrap()).spawn().unwrap()
    };
    assert!(p0f(["-r".as_ref(), &capture], &of_capture).wait().unwrap().success());
    let expected = p0f_findings(&of_capture);
    assert!(expected.len() >= 18, "{expected:#?}");
    let mut reader = p0f(["-i".as_ref(), "ids0".as_ref()], &of_wire);
    until("p0f listens", || {
        fs::read_to_string(of_wire.with_extension("out")).unwrap().contains("Entered main event loop")
    });
    let rules = rules(folder.path(), &["af_packet:out0"], "address-pair");
    let probe = Running::probe("af_packet:right", &["--rules", &rules]);
    frames("web.pcap").iter().for_each(|frame| sender.send(frame));
    probe.stop(0);
    until("p0f has found as much", || p0f_findings(&of_wire).len() >= expected.len());
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_eq!(p0f_findings(&of_wire), expected);
}

#[test]
fn reader_of_a_pipe_comes_late_goes_and_comes_back_while_the_probe_is_sandboxed() {
    let Some(mut sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let fifo = mkfifo(folder.path());
    let name = format!("pcap:{}", fifo.display());
    let rules = rules(folder.path(), &[&name], "address-pair");
    let probe = Running::probe("af_packet:right", &[&["--rules", &rules][..], &TIMING].concat());
    let frames = frames("synth:mix,flows=20,packets=200");
    let (mut all, mut read_frames) = (0, 0);
    for reader in ["first", "second"] {
        let arguments = ["-r", fifo.to_str().unwrap()];
        let Some(mut tcpdump) = Tcpdump::start(folder.path(), reader, &arguments) else { return };
        // The writer looks for a reader now and then.
        until("the reader gets packets", || {
            sender.send(&frames[0]);
            all += 1;
            tcpdump.count() > 0
        });
        frames.iter().for_each(|frame| sender.send(frame));
        all += frames.len();
        until("the reader has all frames in their order", || tcpdump.read().ends_with(&frames));
        let read = tcpdump.read();
        let (first, rest) = read.split_at(read.len() - frames.len());
        assert!(first.iter().all(|frame| *frame == frames[0]) && rest == frames, "{}", probe.stderr());
        read_frames += read.len();
        drop(tcpdump);
        // A next reader before that would go on in the stream of this one.
        until("the writer has closed the pipe", || !probe.has_open(&fifo));
    }
    // These have no reader.
    frames.iter().for_each(|frame| sender.send(frame));
    all += frames.len();
    let (_, _, ledger) = probe.stop(0);
    let counters = output(&ledger, &name);
    assert_eq!(
        (handed(counters), number(&counters["sent"]["packets"])),
        (all as u64, read_frames as u64),
        "{counters}"
    );
    let closed = number(&counters["dropped"]["closed"]["packets"]);
    assert!(closed as usize == all - read_frames && closed >= frames.len() as u64, "{counters}");
}

#[test]
fn pipe_that_the_user_of_the_probe_cannot_write_is_refused() {
    if !is_root() {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let fifo = mkfifo(folder.path());
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o644)).unwrap();
    let rules = rules(folder.path(), &[&format!("pcap:{}", fifo.display())], "address-pair");
    for check in [&[][..], &["--check"]] {
        let (code, _, err) = weir([&["probe", "-i", "synth:mix,packets=9", "--rules", &rules], check].concat());
        assert_eq!(code, 1, "{err}");
        let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(err.contains("who cannot write into this pipe") && err.contains("give that user the pipe"), "{err}");
    }
    // As root it can.
    let reader = thread::spawn(move || fs::read(fifo).unwrap());
    let (code, _, err) = weir(["probe", "-i", "synth:mix,packets=9", "--rules", &rules, "--user", "root", "--check"]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = weir(["probe", "-i", "synth:mix,packets=9", "--rules", &rules, "--user", "root", "-q"]);
    assert_eq!(code, 0, "{err}");
    assert!(reader.join().unwrap().len() > 24);
}

#[test]
fn stopped_consumer_loses_only_its_own_packets() {
    let Some(mut sender) = wire() else { return };
    add_wires(1);
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let fifo = mkfifo(folder.path());
    let name = format!("pcap:{}", fifo.display());
    let Some(mut dump) = Tcpdump::at(folder.path(), "ids0") else { return };
    // It opens the pipe, and reads nothing for now.
    let stopped = thread::spawn(move || File::open(fifo).unwrap());
    let rules = rules(folder.path(), &[&name, "af_packet:out0"], "mirror");
    let probe = Running::probe("af_packet:right", &["--rules", &rules, "--timing", "output_finish=100ms"]);
    let mut stopped = stopped.join().unwrap();
    let long: Vec<Vec<u8>> = (0..1000_u32).map(long_frame).collect();
    sender.send_forwarded(&long, || dump.count());
    let (err, _, ledger) = probe.stop(2);
    assert!(!err.contains("panicked"), "{err}");
    assert_eq!(
        number(&ledger["packets"]["metered"]) + number(&ledger["packets"]["refused"]["non_ip"]),
        1000,
        "{ledger:#}"
    );
    let (slow, fast) = (output(&ledger, &name), output(&ledger, "af_packet:out0"));
    assert_eq!((handed(slow), number(&fast["sent"]["packets"])), (1000, 1000), "{slow} {fast}");
    assert!(number(&slow["dropped"]["queue_full"]["packets"]) > 500, "{slow}");
    assert!(dump.frames(1000) == long);
    // What the pipe holds is read later.
    let mut rest = Vec::new();
    stopped.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 60_000);
}

/// A frame of 60 000 octets without IP, with a number.
fn long_frame(number: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.resize(60_000, 7);
    frame
}

#[test]
fn output_interface_that_goes_away_costs_its_packets_and_not_the_probe() {
    let Some(mut sender) = wire() else { return };
    add_wires(1);
    let folder = tempfile::tempdir().unwrap();
    for output_name in ["af_packet:out0", "af_xdp:out0"] {
        if output_name == "af_xdp:out0" {
            ip("link delete out0");
            ip("link add out0 mtu 1500 type veth peer name ids0 mtu 1500");
            ["out0", "ids0"].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
            until("the wire carries frames", || ip("link show dev ids0").contains("state UP"));
        }
        let rules = rules(folder.path(), &[output_name], "address-pair");
        let probe =
            Running::probe(source(output_name), &[&["--rules", &rules, "--status", "json"][..], &TIMING].concat());
        let frames = frames("synth:mix,flows=20,packets=100,seed=7");
        let (mut sent, arrived_before) = (0, received_frames("ids0"));
        let [removed, back] = ["the interface of an output was removed", "the interface of an output is back"];
        let mut send = |frames: &[Vec<u8>]| {
            frames.iter().for_each(|frame| sender.send(frame));
            sent += frames.len() as u64;
            probe.wait_for_packets(sent);
        };
        send(&frames);
        until("they have arrived", || received_frames("ids0") == arrived_before + 100);
        ip("link delete out0");
        send(&frames);
        assert_eq!(probe.times(removed), 1);
        ip("link add out0 type veth peer name ids0");
        ["out0", "ids0"].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
        until("the wire carries frames", || ip("link show dev ids0").contains("state UP"));
        // It looks for the interface when a packet comes after the time between two attempts.
        thread::sleep(2 * RETRY);
        send(&frames[..1]);
        send(&frames);
        assert_eq!(received_frames("ids0"), 101);
        let (err, _, ledger) = probe.stop(2);
        let counters = output(&ledger, output_name);
        assert_eq!(handed(counters), 301, "{counters}");
        assert_eq!(number(&counters["dropped"]["interface_refused"]["packets"]), 100, "{counters}");
        for text in [removed, back] {
            assert_eq!(err.matches(text).count(), 1, "{err}");
        }
        assert_eq!(number(&ledger["packets"]["received"]), 301);
    }
}

#[test]
fn output_interface_that_is_down_costs_its_packets_and_the_others_get_theirs() {
    let Some(mut sender) = wire() else { return };
    add_wires(2);
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(folder.path(), &["af_packet:out0", "af_packet:out1"], "mirror");
    let probe = Running::probe("af_packet:right", &["--rules", &rules, "--status", "json"]);
    let frames = frames("synth:mix,flows=20,packets=100,seed=7");
    let mut sent = 0;
    let mut send = || {
        frames.iter().for_each(|frame| sender.send(frame));
        sent += frames.len() as u64;
        probe.wait_for_packets(sent);
    };
    send();
    ip("link set out0 down");
    send();
    ip("link set out0 up");
    until("the wire carries frames", || ip("link show dev ids0").contains("state UP"));
    send();
    let (_, _, ledger) = probe.stop(2);
    let refused = |name| number(&output(&ledger, name)["dropped"]["interface_refused"]["packets"]);
    assert_eq!([refused("af_packet:out0"), refused("af_packet:out1")], [100, 0], "{ledger:#}");
    assert_eq!(["af_packet:out0", "af_packet:out1"].map(|name| handed(output(&ledger, name))), [300; 2]);
    assert_eq!(number(&ledger["packets"]["metered"]), number(&ledger["packets"]["received"]));
}

#[test]
fn output_interface_that_goes_down_and_up_is_logged_once() {
    let Some(mut sender) = wire() else { return };
    add_wires(1);
    let folder = tempfile::tempdir().unwrap();
    for output_name in ["af_packet:out0", "af_xdp:out0"] {
        if output_name == "af_xdp:out0" {
            ip("link set out0 mtu 1500");
        }
        let rules = rules(folder.path(), &[output_name], "address-pair");
        let probe = Running::probe(source(output_name), &["--rules", &rules, "--status", "json"]);
        let frames = frames("synth:mix,flows=20,packets=100,seed=7");
        let mut sent = 0;
        let mut send = |done: &str| {
            until(done, || {
                sender.send(&frames[0]);
                sent += 1;
                probe.times(done) > 0
            });
            frames.iter().for_each(|frame| sender.send(frame));
            sent += frames.len() as u64;
            probe.wait_for_packets(sent);
        };
        ip("link set out0 down");
        send("the interface of an output is down");
        ip("link set out0 up");
        send("the interface of an output is up again");
        for text in ["the interface of an output is down", "the interface of an output is up again"] {
            assert_eq!(probe.times(text), 1, "{}", probe.stderr());
        }
        probe.stop(if output_name == "af_packet:out0" { 2 } else { 0 });
    }
}

#[test]
fn frames_of_an_af_xdp_source_leave_through_af_xdp_as_they_came_and_an_output_that_is_down_costs_only_its_own() {
    if !network_of(1, 1500) {
        return;
    }
    add_wires(2);
    let folder = tempfile::tempdir().unwrap();
    let Some(mut dump) = Tcpdump::at(folder.path(), "ids0") else { return };
    let outputs = ["af_xdp:out0", "af_xdp:out1"];
    let text = fs::read_to_string(rules(folder.path(), &outputs, "mirror")).unwrap();
    let rules = folder.path().join("sliced.toml");
    fs::write(&rules, text + "[[network]]\nwhere = 'protocol udp'\nslice = 'l4'\n").unwrap();
    let mut sender = Sender::new(LEFT);
    let frames = frames("synth:mix,flows=300,packets=3k");
    let expected = |frame: &Vec<u8>| {
        let mut packet = weir_packet::Packet::default();
        let length = frame.len() as u32;
        weir_packet::decode(1, frame, length, weir_packet::DecodeOptions::default(), &mut packet).unwrap();
        let octets = weir_packet::header_octets(1, frame, &packet, weir_packet::DecodeOptions::default())[1];
        if packet.protocol == 17 { frame[..octets].to_vec() } else { frame.clone() }
    };
    let probe = Running::probe("af_xdp:right", &["--rules", rules.to_str().unwrap()]);
    sender.send_forwarded(&frames, || dump.count());
    ip("link set out1 down");
    sender.send_forwarded(&frames, || dump.count());
    let (err, _, ledger) = probe.stop(2);
    let sent: Vec<_> = [&frames, &frames].into_iter().flatten().map(expected).collect();
    let [first, second] = outputs.map(|name| output(&ledger, name));
    assert_eq!((number(&first["sent"]["packets"]), handed(first)), (sent.len() as u64, sent.len() as u64), "{err}");
    assert!(number(&second["dropped"]["interface_refused"]["packets"]) > 0, "{second}");
    assert_eq!(handed(second), sent.len() as u64);
    assert_eq!(number(&ledger["packets"]["metered"]), sent.len() as u64, "{ledger}");
    assert!(dump.frames(sent.len()) == sent);
}

#[test]
fn too_little_locked_memory_for_an_af_xdp_output_is_refused_with_what_to_do() {
    if !network_of(1, 1500) {
        return;
    }
    add_wires(1);
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(folder.path(), &["af_xdp:out0"], "mirror");
    let script = "ulimit -l 64; exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock \"$0\" \"$@\"";
    let weir = ["-c", script, env!("CARGO_BIN_EXE_weir"), "probe", "-i", "af_packet:right", "--rules", &rules];
    let output = Command::new("sh").args(weir).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("af_xdp:out0: the limit of locked memory is too low") && err.contains("8 MiB"), "{err}");
    assert!(err.contains("raise the limit (ulimit -l) or give CAP_IPC_LOCK"), "{err}");
}

/// Lets an interface of another name take the place of one that is gone.
fn rename(interface: &str, name: &str) {
    ip(&format!("link set {interface} down"));
    ip(&format!("link set {interface} name {name}"));
    ip(&format!("link set {name} arp off up"));
    until("the wire carries frames", || ip(&format!("link show dev {name}")).contains("state UP"));
}

#[test]
fn output_interface_that_comes_back_as_a_loop_gets_nothing() {
    for (scheme, renamed) in [("af_packet", "left"), ("af_xdp", "left"), ("af_packet", "right")] {
        // The namespace of this thread, with other interfaces of the same names.
        let Some(mut sender) = wire() else { return };
        add_wires(1);
        let folder = tempfile::tempdir().unwrap();
        if scheme == "af_xdp" {
            ["out0", "ids0"].iter().for_each(|end| drop(ip(&format!("link set {end} mtu 1500"))));
        }
        let output_name = format!("{scheme}:out0");
        let rules = rules(folder.path(), &[&output_name], "address-pair");
        let probe =
            Running::probe(source(&output_name), &[&["--rules", &rules, "--status", "json"][..], &TIMING].concat());
        let frames = frames("synth:mix,flows=4,packets=8,seed=7");
        let mut sent = 0;
        let mut send = |frames: &[Vec<u8>]| {
            frames.iter().for_each(|frame| sender.send(frame));
            sent += frames.len() as u64;
            probe.wait_for_packets(sent);
        };
        send(&frames);
        ip("link delete out0");
        send(&frames[..1]);
        probe.wait_for("the interface of an output was removed");
        rename(renamed, "out0");
        // After this time, each packet leads to a look at the interface.
        thread::sleep(2 * RETRY);
        send(&frames);
        let through = if renamed == "left" { "right" } else { "out0" };
        let refused = format!(
            "{output_name}: this is a loop: its packets leave through {through}, which {} monitors, and would be",
            source(&output_name)
        );
        until("the loop is refused", || probe.stderr().contains(&refused));
        for _ in 0..2 {
            thread::sleep(2 * RETRY);
            send(&frames);
        }
        assert_eq!(probe.times(&refused), 1, "{}", probe.stderr());
        let (err, _, ledger) = probe.stop(2);
        let counters = output(&ledger, &output_name);
        assert_eq!(handed(counters), number(&ledger["packets"]["received"]), "{err} {ledger:#}");
        assert!(number(&counters["sent"]["packets"]) <= 8, "{err} {counters}");
        assert!(!err.contains("the interface of an output is back"), "{err}");
    }
}

#[test]
fn source_that_comes_back_at_the_other_end_of_an_output_is_no_endless_loop() {
    if wire().is_none() {
        return;
    }
    add_wires(1);
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(folder.path(), &["af_packet:out0"], "address-pair");
    let probe = Running::probe("af_packet:right", &["--rules", &rules, "--wait", "--status", "json"]);
    ip("link delete left");
    probe.wait_for("waiting for it");
    rename("ids0", "right");
    until("it is attached", || is_captured("right"));
    let mut sender = testbed::namespace::Sender::new("out0");
    let frames = frames("synth:mix,flows=4,packets=8,seed=7");
    sender.send(&frames[0]);
    probe.wait_for("af_packet:out0: this is a loop: its packets leave through right, which af_packet:right monitors");
    frames.iter().for_each(|frame| sender.send(frame));
    probe.wait_for_packets(9);
    let (err, _, ledger) = probe.stop(2);
    let sent = number(&output(&ledger, "af_packet:out0")["sent"]["packets"]);
    assert!(sent < 10, "{err} {ledger:#}");
}

#[test]
fn capture_is_handed_on_whole_to_a_slow_reader() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let fifo = mkfifo(folder.path());
    // More than queue and pipe hold.
    success(["synth", "mix,packets=60k", "-q", "-o", capture.to_str().unwrap()]);
    assert!(fs::metadata(&capture).unwrap().len() > 25_000_000);
    let (may_read, wait) = channel::<()>();
    let reader = {
        let fifo = fifo.clone();
        thread::spawn(move || {
            let mut file = File::open(fifo).unwrap();
            wait.recv().unwrap_or_default();
            let mut octets = Vec::new();
            file.read_to_end(&mut octets).unwrap();
            octets
        })
    };
    until("the FIFO has a reader", || OpenOptions::new().write(true).open(&fifo).is_ok());
    let rules = rules(folder.path(), &[&format!("pcap:{}", fifo.display())], "address-pair");
    let (mut weir, stats) = read_with_rules(folder.path(), &capture, &rules, &[]);
    // The pipe and the queue are full: the run waits for the reader.
    until_it_sleeps(&mut weir.0);
    drop(may_read);
    assert_eq!(weir.0.wait().unwrap().code(), Some(0));
    assert_eq!(number(&read_ledger(&stats)["actions"]["forwarded"]["packets"]), 60_000);
    let copy = folder.path().join("copy.pcap");
    fs::write(&copy, reader.join().unwrap()).unwrap();
    assert!(read(&copy) == read(&capture));
}

/// `weir read` with rules: the process, and the file of its ledger.
fn read_with_rules(folder: &Path, capture: &Path, rules: &str, options: &[&str]) -> (Background, PathBuf) {
    let stats = folder.join("ledger.json");
    let mut weir = command();
    weir.args(["read", capture.to_str().unwrap(), "-q", "-o", "csv:/dev/null", "--rules", rules]).args(options);
    (Background(weir.arg("--stats").arg(&stats).stderr(Stdio::null()).spawn().unwrap()), stats)
}

#[test]
fn signal_ends_the_wait_for_a_reader_that_has_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let fifo = mkfifo(folder.path());
    // More than queue and pipe hold.
    success(["synth", "mix,packets=60k", "-q", "-o", capture.to_str().unwrap()]);
    // It never reads.
    let mut reader = Command::new("sleep").arg("600").stdin(open_both(&fifo)).spawn().unwrap();
    let rules = rules(folder.path(), &[&format!("pcap:{}", fifo.display())], "address-pair");
    let (mut weir, stats) = read_with_rules(folder.path(), &capture, &rules, &["--timing", "output_finish=100ms"]);
    // The pipe and the queue are full: the run waits for the reader.
    until_it_sleeps(&mut weir.0);
    testbed::signal(&weir.0, libc::SIGINT);
    until("the run ends", || weir.0.try_wait().unwrap().is_some());
    assert_eq!(weir.0.wait().unwrap().code(), Some(2));
    let ledger = read_ledger(&stats);
    let output = &ledger["actions"]["outputs"][0];
    assert!(number(&output["dropped"]["queue_full"]["packets"]) > 0, "{ledger}");
    assert_eq!(handed(output), number(&ledger["actions"]["forwarded"]["packets"]), "{ledger}");
    assert_eq!(number(&ledger["packets"]["received"]), number(&ledger["packets"]["metered"]), "{ledger}");
    reader.kill().unwrap();
    reader.wait().unwrap();
}

/// A FIFO, opened for both directions, so that opening it does not wait.
fn open_both(fifo: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(fifo).unwrap()
}

#[test]
fn packets_and_records_are_not_mixed_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    success(["synth", "mix,packets=100", "-q", "-o", capture.to_str().unwrap()]);
    let before = fs::read(&capture).unwrap();
    let capture = capture.to_str().unwrap();
    let to_standard_output = rules(folder.path(), &["pcap:-"], "address-pair");
    for options in [&[][..], &["-o", "json:-"], &["-o", "csv:/dev/null", "--stats", "-"]] {
        for command in [&["read", capture][..], &["probe", "-i", capture]] {
            let arguments = [command, &["--rules", &to_standard_output], options].concat();
            let refused = failure(1, &arguments);
            assert!(refused.contains("pcap:- of the rules and "), "{arguments:?}: {refused}");
            assert!(refused.contains("would be mixed in one file or folder; give each one of its own"), "{refused}");
        }
    }
    // Under other names: a link to a file that does not exist yet, and standard output, here a pipe.
    let (records, through_a_link) = (folder.path().join("records.csv"), folder.path().join("link.pcap"));
    std::os::unix::fs::symlink("records.csv", &through_a_link).unwrap();
    let records = format!("csv:{}", records.display());
    for (output, sink) in [(through_a_link.to_str().unwrap(), &*records), ("/dev/stdout", "csv:-")] {
        let rules = rules(folder.path(), &[&format!("pcap:{output}")], "address-pair");
        let refused = failure(1, ["read", capture, "--rules", &rules, "-o", sink]);
        assert!(refused.contains("would be mixed in one file"), "{refused}");
    }
    let to_standard_output = rules(folder.path(), &["pcap:-"], "address-pair");
    // The packets alone.
    let (code, out, err) = {
        let options = ["-q", "-o", "csv:/dev/null", "--rules", &to_standard_output];
        let output = command().args(["read", capture]).args(options).output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(code, Some(0), "{err}");
    let copy = folder.path().join("copy.pcap");
    fs::write(&copy, out).unwrap();
    assert!(read(&copy) == read(Path::new(capture)));
    // A capture is not overwritten by its own packets.
    let onto_itself = rules(folder.path(), &[&format!("pcap:{capture}")], "address-pair");
    let refused = failure(1, ["read", capture, "-o", "csv:/dev/null", "--rules", &onto_itself]);
    assert!(refused.contains("of the rules"), "{refused}");
    assert_eq!(fs::read(capture).unwrap(), before);
}

#[test]
fn weir_read_waits_for_the_reader_of_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let fifo = mkfifo(folder.path());
    success(["synth", "mix,packets=1k", "-q", "-o", capture.to_str().unwrap()]);
    let rules = rules(folder.path(), &[&format!("pcap:{}", fifo.display())], "address-pair");
    let start = || Running::start_in(testbed::command(), &["read", capture.to_str().unwrap(), "--rules", &rules]);
    let waiting = start();
    waiting.wait_for("waiting for a program that reads this pipe");
    let reader = thread::spawn(move || fs::read(fifo).unwrap());
    let (code, err, _, ledger) = waiting.wait();
    assert_eq!((code, number(&ledger["actions"]["outputs"][0]["sent"]["packets"])), (0, 1000), "{err}");
    assert!(reader.join().unwrap().len() > 24_000);
    // Ctrl-C ends the wait.
    let waiting = start();
    waiting.wait_for("waiting for a program that reads this pipe");
    waiting.signal(libc::SIGINT);
    until("weir ends", || waiting.status("State:") == "Z");
    assert!(waiting.stderr().contains("no program reads this pipe"), "{}", waiting.stderr());
}

#[test]
fn loops_are_refused() {
    if wire().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (output, through) in [("af_packet:right", "right"), ("af_xdp:right", "right"), ("af_packet:left", "right")] {
        let rules = rules(folder.path(), &[output], "address-pair");
        let err = failure(1, ["probe", "-i", "af_packet:right", "--rules", &rules]);
        let expected =
            format!("{output}: this is a loop: its packets leave through {through}, which af_packet:right monitors");
        assert!(err.contains(&expected), "{err}");
    }
    until_wired();
}

/// The values of an option with a count in the statistics blocks of a pcapng file.
fn statistics(octets: &[u8], code: u16) -> Vec<u64> {
    let begins = [code.to_le_bytes(), 8_u16.to_le_bytes()].concat();
    let mut values = Vec::new();
    let mut at = 0;
    while let Some(header) = octets.get(at..at + 8) {
        let [kind, length] = [0, 4].map(|at| u32::from_le_bytes(header[at..at + 4].try_into().unwrap()));
        let block = &octets[at..at + length as usize];
        let found = block.windows(12).skip(20).step_by(4).find(|option| option.starts_with(&begins));
        values.extend(found.filter(|_| kind == 5).map(|option| u64::from_le_bytes(option[4..].try_into().unwrap())));
        at += length as usize;
    }
    values
}

#[test]
fn recordings_say_how_many_packets_their_interface_received() {
    let Some(mut sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let recording = folder.path().join("packets");
    let output = format!("folder:{}", recording.display());
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, format!("[recorder]\noutputs = [{output:?}]\n[[network]]\nwhere = 'udp'\naction = 'drop'\n"))
        .unwrap();
    let probe = Running::probe("af_packet:right,queues=2", &["--rules", rules.to_str().unwrap()]);
    let sent = frames("synth:mix,flows=300,packets=6k");
    sent.iter().for_each(|frame| sender.send(frame));
    let (_, _, ledger) = probe.stop(0);
    let file = recording.join(
        fs::read_dir(&recording)
            .unwrap()
            .find_map(|entry| {
                let name = entry.unwrap().file_name().into_string().unwrap();
                name.ends_with(".pcapng").then_some(name)
            })
            .unwrap(),
    );
    let octets = fs::read(file).unwrap();
    assert!(octets.windows(5).any(|window| window == b"right"));
    let packets = &ledger["packets"];
    let number_of = |name: &str| number(&packets[name]);
    let lost = number_of("dropped_kernel") + number_of("dropped_queue");
    assert_eq!(statistics(&octets, 4), [number_of("received") - number_of("dropped_nic")], "{packets:#}");
    assert_eq!((statistics(&octets, 5), statistics(&octets, 7)), (vec![number_of("dropped_nic")], vec![lost]));
    let recorded = number(&ledger["actions"]["outputs"][0]["sent"]["packets"]);
    assert!(recorded > 0 && recorded < number_of("received"), "{recorded}");
    assert_eq!(statistics(&octets, 8), [recorded]);
}

#[test]
fn a_check_names_interfaces_that_outputs_cannot_use() {
    let Some(_sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    add_wires(1);
    let probe = |rules: &str| {
        ["probe", "-i", "af_packet:right", "-o", "csv:/dev/null", "--rules", rules, "--check"].map(String::from)
    };
    success(probe(&rules(folder.path(), &["af_packet:out0"], "address-pair")));
    let outputs = ["af_packet:out7", "af_xdp:out8"];
    // The settings are printed all the same.
    let (code, _, err) = weir(probe(&rules(folder.path(), &outputs, "address-pair")));
    assert!(code == 1 && outputs.iter().all(|output| err.contains(output)), "{err}");
}

#[test]
fn a_check_names_files_that_outputs_cannot_use_and_lists_rules_and_outputs() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [file, other, new] = ["old.pcap", "notes.txt", "new.pcap"].map(path);
    fs::write(&file, [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]).unwrap();
    fs::write(&other, "not packets").unwrap();
    let check =
        |rules: &str| weir(["probe", "-i", "synth:mix,packets=9", "-o", "csv:/dev/null", "--rules", rules, "--check"]);
    let usable = [format!("pcap:{file}"), format!("pcap:{new}"), format!("folder:{}", path("packets"))];
    let valid = rules(folder.path(), &usable.each_ref().map(String::as_str), "mirror");
    let (code, plan, err) = check(&valid);
    assert_eq!(code, 0, "{err}");
    for fact in
        [format!("rules      0 rules of {valid}\n"), format!("egress     ids: {} (mirror)\n", usable.join(", "))]
    {
        assert!(plan.contains(&fact), "{fact}: {plan}");
    }
    success(["rules", "check", &valid]);
    // Nothing was created or changed.
    assert!(!Path::new(&new).exists() && !folder.path().join("packets").exists());
    assert_eq!(fs::read(&file).unwrap().len(), 8);
    let unusable = [
        format!("pcap:{}", path("none/x.pcap")),
        format!("pcap:{other}"),
        format!("pcap:{}", folder.path().display()),
        format!("folder:{}", path("none/a")),
        format!("folder:{other}"),
    ];
    let invalid = rules(folder.path(), &unusable.each_ref().map(String::as_str), "mirror");
    let (check_code, out, of_rules) = weir(["rules", "check", &invalid]);
    assert!(check_code == 2 && out.contains("5 outputs cannot be opened here"), "{out}");
    let (code, _, of_probe) = check(&invalid);
    assert_eq!(code, 1);
    for err in [of_rules, of_probe] {
        let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
        for reason in [
            format!("{}: it cannot be created in {}: No such file", unusable[0], path("none")),
            format!("{}: the file has other content", unusable[1]),
            format!("{}: is a directory", unusable[2]),
            format!("{}: No such file", path("none/a")),
            format!("{other}: not a directory"),
        ] {
            assert!(err.contains(&reason), "{reason}: {err}");
        }
    }
}

#[test]
fn packets_share_no_pipe_and_are_not_mixed_with_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = mkfifo(folder.path());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&fifo, &link).unwrap();
    let [fifo, link] = [fifo, link].map(|path| path.display().to_string());
    let read = |rules: &str, sink: &str| {
        let err = failure(1, ["read", "synth:mix,packets=9", "--rules", rules, "-o", sink]);
        err.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let one = rules(folder.path(), &[&format!("pcap:{fifo}")], "mirror");
    let err = read(&one, &format!("csv:{link}"));
    assert!(err.contains("would be mixed in one file"), "{err}");
    let two = rules(folder.path(), &[&format!("pcap:{fifo}"), &format!("pcap:{link}")], "mirror");
    let err = read(&two, "csv:/dev/null");
    assert!(err.contains("would be mixed in one file"), "{err}");
    let log = rules(folder.path(), &["pcap:/dev/stderr"], "mirror");
    let err = read(&log, "csv:/dev/null");
    assert!(err.contains("pcap:/dev/stderr of the rules: packets would be mixed with the log"), "{err}");
}
