//! `weir probe`: pipelines on captures and on interfaces, status lines, signals, privileges.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use testbed::namespace::{Sender, ip, until};
use testbed::running::{Running, add_second_wire, send_requests, wire};
use testbed::served::{Served, sum};
use testbed::{
    JsonOutput, Nfcapd, Pcap, SMALL_PACKETS, START, command, failure, free_port, is_installed, metered, number,
    permit_all_users, read_flows, request_and_response, signal, small, success, udp, weir,
};

const LAYOUTS: [&str; 3] = ["fused", "split", "spread"];

fn packets(flows: &[Value]) -> u64 {
    flows.iter().map(testbed::packets).sum()
}

#[test]
fn every_source_is_a_pipeline_and_the_ledger_adds_them_up() {
    for layout in LAYOUTS {
        let capture = small().saved();
        let synthetic = ["-i", "synth:mix,flows=100,packets=20k", "-i", "synth:velan,flows=10,packets=20k"];
        let rest = ["-i", capture.name(), "--layout", layout];
        let (code, err, flows, ledger) = metered(&[&["probe"], &synthetic[..], &rest].concat());
        assert_eq!(code, 0, "{err}");
        assert_eq!(ledger["packets"]["received"], 40_000 + SMALL_PACKETS, "{ledger}");
        assert_eq!(packets(&flows), ledger["packets"]["metered"]);
        assert_eq!(flows.len(), ledger["flows"]["exported"]);
    }
}

#[test]
fn every_receive_queue_is_a_pipeline_and_no_flow_is_split() {
    let Some(mut sender) = wire() else { return };
    for layout in LAYOUTS {
        let probe = Running::probe("af_packet:right,queues=4", &["--layout", layout]);
        for _ in 0..5 {
            send_requests(&mut sender, 0..1000);
            probe.wait_for("active=1000 ");
        }
        probe.signal(libc::SIGUSR1);
        probe.wait_for("the ledger balances");
        let (err, flows, ledger) = probe.stop(0);
        assert_eq!(ledger["packets"]["received"], 10_000, "{ledger}");
        assert_eq!((flows.len(), packets(&flows)), (1000, 10_000));
        let is_whole = |flow: &Value| flow["fwd_packets"] == 5 && flow["rev_packets"] == 5;
        assert!(flows.iter().all(is_whole), "a flow has packets of one direction");
        if layout == "spread" {
            assert!(err.contains("4 queues") && err.contains("busiest meter"), "{err}");
            continue;
        }
        for queue in 0..4 {
            assert!(err.contains(&format!("\naf_packet:right@{queue} ")), "{queue}: {err}");
        }
    }
}

#[test]
fn both_directions_of_a_network_tap_are_one_flow() {
    let Some(mut client) = wire() else { return };
    // The tap delivers each direction on an interface of its own.
    add_second_wire();
    let mut server = Sender::new("left2");
    for (layout, queues) in [("fused", 1), ("split", 1), ("fused", 2), ("spread", 2)] {
        let source = format!("af_packet:right+right2,queues={queues}");
        let probe = Running::probe(&source, &["--layout", layout]);
        for number in 0..500 {
            let [request, response] = request_and_response(number);
            client.send(&request);
            server.send(&response);
        }
        let (_, flows, ledger) = probe.stop(0);
        assert_eq!(ledger["packets"]["received"], 1000, "{ledger}");
        assert_eq!((flows.len(), packets(&flows)), (500, 1000));
        let is_whole = |flow: &Value| flow["fwd_packets"] == 1 && flow["rev_packets"] == 1;
        assert!(flows.iter().all(is_whole), "a flow has packets of one direction");
        assert!(flows.iter().all(|flow| flow["dst_port"] == 53), "a response is the forward direction");
        let right = ip("-o link show dev right");
        let index: u64 = right.split(':').next().unwrap().parse().unwrap();
        assert!(flows.iter().all(|flow| flow["interface"] == index), "interface {index} received the requests");
    }
}

#[test]
fn idle_flows_of_a_quiet_link_are_exported_without_another_packet() {
    let Some(mut sender) = wire() else { return };
    for layout in LAYOUTS {
        let probe = Running::probe("af_packet:right", &["--idle", "300ms", "--layout", layout]);
        send_requests(&mut sender, 1..2);
        until("the flow record is exported", || probe.flows().len() == 1);
        let flow = &probe.flows()[0];
        assert_eq!((&flow["fwd_packets"], &flow["rev_packets"]), (&1.into(), &1.into()));
        assert_eq!(flow["end_reason"], "idle");
        probe.stop(0);
    }
}

#[test]
fn a_restarted_probe_appends_to_its_files() {
    let capture = small().saved();
    let path = capture.beside("flows");
    for (scheme, incomplete) in
        [("csv", "2026-"), ("json", "{\"start_time\""), ("ipfix", "\0\x0a\x01\0"), ("table", "")]
    {
        let sink = format!("{scheme}:{}", path.display());
        let run = || {
            let (code, _, err) = weir(["probe", "-i", capture.name(), "-q", "-o", &sink]);
            assert_eq!(code, 0, "{err}");
            (fs::read(&path).unwrap(), err)
        };
        let (first, err) = run();
        assert_eq!(err, "");
        // The beginning of a record that a crash left.
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(incomplete.as_bytes()).unwrap();
        let (both, err) = run();
        let removed = format!("removed the incomplete last record of the file sink={sink} octets={}", incomplete.len());
        assert_eq!(err.matches(&removed).count(), usize::from(!incomplete.is_empty()), "{err}");
        let header = if scheme == "csv" { first.iter().position(|&octet| octet == b'\n').unwrap() + 1 } else { 0 };
        if scheme == "ipfix" {
            // The export times differ.
            assert_eq!((&both[..first.len()], both.len()), (&first[..], 2 * first.len()));
        } else {
            assert_eq!(both, [&first[..], &first[header..]].concat(), "{scheme}");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn tshark_decodes_every_record_of_a_continued_ipfix_file() {
    if !is_installed("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.ipfix");
    let sink = format!("ipfix:{}", path.display());
    let mut records = 0;
    for name in ["web.pcap", "vxlan-over-gre.pcap", "sctp.pcap", "web.pcap"] {
        let capture = testbed::captures().join(name);
        let csv = success(["probe", "-i", capture.to_str().unwrap(), "-q", "--uniflow", "-o", &sink, "-o", "csv:-"]);
        records += csv.lines().count() - 1;
        let output = Command::new("tshark")
            .args(["-r", path.to_str().unwrap(), "-o", "cflow.max_template_fields:0"])
            .args(["-T", "fields", "-E", "occurrence=a", "-e", "cflow.packets"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).count(),
            records,
            "{name}"
        );
    }
}

#[test]
fn a_probe_appends_to_no_file_with_another_content() {
    let capture = small().saved();
    let path = capture.beside("flows");
    for scheme in ["csv", "json", "ipfix"] {
        for content in ["start,end\n1,2\n", "{\"other\":1}\n", "x", "\0\x09\0\x04and no IPFIX message"] {
            fs::write(&path, content).unwrap();
            let err = failure(1, ["probe", "-i", capture.name(), "-o", &format!("{scheme}:{}", path.display())]);
            assert!(
                err.contains("other columns, or is damaged, so records cannot be appended; name another file"),
                "{err}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }
}

#[test]
fn a_damaged_file_is_not_taken_for_one_with_an_incomplete_last_record() {
    let capture = small().saved();
    let path = capture.beside("flows");
    for (scheme, damage) in [("csv", vec![0; 70_000]), ("json", vec![0; 65_536]), ("ipfix", vec![])] {
        let sink = format!("{scheme}:{}", path.display());
        let run = ["probe", "-i", capture.name(), "-q", "-o", &sink];
        success(run);
        success(run);
        let mut content = fs::read(&path).unwrap();
        if scheme == "ipfix" {
            // The first message is longer than the file.
            content[2..4].fill(0xff);
        }
        content.extend(damage);
        fs::write(&path, &content).unwrap();
        let err = failure(1, run);
        assert!(err.contains("or is damaged, so records cannot be appended; name another file"), "{err}");
        assert!(fs::read(&path).unwrap() == content, "{scheme}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn sighup_applies_timeouts_filter_and_sinks_and_loses_no_record() {
    let Some(mut sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before.json", "after.json"].map(|name| folder.path().join(name));
    let file = folder.path().join("probe.toml");
    let write = |sink: &Path, more: &str| {
        fs::write(&file, format!("output = [\"json:{}\"]\n{more}", sink.display())).unwrap();
    };
    // The probe reopens both as user nobody.
    for path in [&before, &after] {
        fs::write(path, "").unwrap();
        permit_all_users(path);
    }
    permit_all_users(folder.path());
    write(&before, "idle = \"300ms\"\n");
    permit_all_users(&file);
    let probe = Running::probe("af_packet:right", &["--config", file.to_str().unwrap(), "--log-level", "debug"]);
    send_requests(&mut sender, 0..100);
    until("the first sink has the records", || read_flows(&before).len() == 100);

    write(&after, "idle = \"300ms\"\nfilter = \"udp and host 10.0.0.200\"\n");
    probe.signal(libc::SIGHUP);
    probe.wait_for("configuration reloaded");
    probe.wait_for("reload: sink opened");
    probe.wait_for("reload: sink is closed");
    send_requests(&mut sender, 100..300);
    until("the second sink has the filtered records", || read_flows(&after).len() == 1);

    probe.signal(libc::SIGHUP);
    until("the unchanged configuration is reloaded", || probe.times("configuration reloaded") == 2);
    assert_eq!(read_flows(&after).len(), 1, "an unchanged sink was reopened");
    probe.wait_for("reload: sink stays open");
    write(&before, "idle = \"300ms\"\n");
    probe.signal(libc::SIGHUP);
    until("the first sink is open again", || probe.times("configuration reloaded") == 3);
    send_requests(&mut sender, 300..310);
    until("the first sink has more records", || read_flows(&before).len() == 110);

    write(&before, "idle = \"300ms\"\nuniflow = true\n");
    probe.signal(libc::SIGHUP);
    probe.wait_for("uniflow, domain and where of an open sink cannot change, nor the settings of a store");

    fs::write(&file, "output = [\"json:/nonexistent/folder/x\"]\n").unwrap();
    probe.signal(libc::SIGHUP);
    probe.wait_for("continuing with the old one");
    let (err, _, ledger) = probe.stop(0);
    assert_eq!((read_flows(&before).len(), read_flows(&after).len()), (110, 1), "{err}");
    let line = &ledger["packets"];
    assert_eq!([&line["received"], &line["filtered"], &line["metered"]], [620, 398, 222], "{ledger}");
    let sinks = ledger["sinks"].as_array().unwrap();
    let counts: Vec<_> = sinks.iter().map(|sink| [&sink["exported"]["flows"], &sink["not_open"]["flows"]]).collect();
    assert_eq!(counts, [[110, 1], [1, 110]], "{ledger}");
}

#[test]
fn nfcapd_receives_every_record_across_reload_overload_and_stop() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let Some(mut sender) = wire() else { return };
    ip("link set lo up");
    let port = free_port();
    let mut collector = Nfcapd::start(port);
    until("nfcapd listens", || UdpSocket::bind(("127.0.0.1", port)).is_err());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    fs::write(&file, format!("output = [\"netflow9+udp://127.0.0.1:{port}\"]\nuniflow = true\nidle = \"1s\"\n"))
        .unwrap();
    permit_all_users(folder.path());
    permit_all_users(&file);
    let probe = Running::probe("af_packet:right,queues=2,block=64k,blocks=4", &["--config", file.to_str().unwrap()]);
    let mut round = |clients| send_requests(&mut sender, clients);
    round(0..2000);
    probe.signal(libc::SIGHUP);
    round(2000..3000);
    probe.wait_for("configuration reloaded");
    round(3000..4000);
    probe.signal(libc::SIGSTOP);
    round(4000..12_000);
    probe.signal(libc::SIGCONT);
    round(12_000..13_000);
    let (err, _, ledger) = probe.stop(2);
    let of = |line: &str, what: &str| ledger[line][what].as_u64().unwrap();
    assert_eq!(of("packets", "received"), 26_000, "{err}");
    let lost = of("packets", "dropped_kernel");
    assert!(lost > 0, "no overload: {ledger}");
    let sinks = ledger["sinks"].as_array().unwrap();
    let sum = |what: fn(&Value) -> &Value| sinks.iter().map(|sink| what(sink).as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(|sink| &sink["exported"]["packets"]), 26_000 - lost, "{ledger}");
    let dump = collector.dump(&["-N", "-o", "fmt:%pkt"]);
    let records: Vec<u64> = dump.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert_eq!(
        [records.len() as u64, records.iter().sum()],
        [sum(|sink| &sink["wire_records"]), 26_000 - lost],
        "{ledger}"
    );
}

#[test]
fn exported_datagrams_are_not_metered() {
    let Some(_sender) = wire() else { return };
    ip("link set lo up");
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = collector.local_addr().unwrap().port();
    // With type information, which makes two datagrams at least.
    let sink = format!("ipfix+udp://127.0.0.1:{port}?template=full");
    let probe = Running::probe("af_packet:lo", &["-o", &sink, "--idle", "200ms", "--active", "200ms"]);
    let (client, server) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for _ in 0..10 {
        client.send_to(b"request", server.local_addr().unwrap()).unwrap();
    }
    let (mut datagrams, mut buffer) = (0, [0; 2000]);
    collector.set_read_timeout(Some(testbed::namespace::BOUND)).unwrap();
    // If they were metered, each datagram would create another record.
    while datagrams < 2 {
        match collector.recv(&mut buffer) {
            Ok(_) => datagrams += 1,
            // A stop of the machine interrupts a call that has a timeout (signal(7)).
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
    let (_, _, ledger) = probe.stop(0);
    let line = &ledger["packets"];
    assert_eq!(line["metered"], 10, "{ledger}");
    assert!(number(&line["filtered"]) >= 2, "{ledger}");
    assert_eq!(number(&line["received"]), 10 + number(&line["filtered"]), "{ledger}");
    assert_eq!(ledger["flows"]["created"], 1, "{ledger}");
}

#[test]
fn a_running_probe_has_no_privileges() {
    let Some(mut sender) = wire() else { return };
    let probe = Running::probe("af_packet:right", &[]);
    assert_ne!(probe.status("Uid:"), "0");
    assert_ne!(probe.status("Gid:"), "0");
    assert_eq!(probe.status("CapEff:"), "0000000000000000");
    assert_eq!(probe.status("NoNewPrivs:"), "1");
    // Field 19 of a thread's stat file. The thread's name is in parentheses before it.
    let nice = |name: &str| {
        let tasks = fs::read_dir(format!("/proc/{}/task", probe.process.0.id())).unwrap();
        let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
        let stat = stats.into_iter().find(|stat| stat.contains(&format!("({name})"))).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    let permitted = Command::new("nice").args(["-n", "-10", "nice"]).output().unwrap().stdout == b"-10\n";
    if permitted {
        assert_eq!(["weir-0", "weir-export"].map(nice), [-10, 5], "priorities set before the privileges were dropped");
    } else {
        eprintln!("SKIPPED: raising the priority of a process is not permitted here");
    }
    send_requests(&mut sender, 1..2);
    probe.wait_for("active=1 ");
    probe.stop(0);
}

#[test]
fn queue_lost_counts_the_packets_lost_during_a_flow() {
    for layout in ["fused", "split"] {
        let source = "af_packet:right,block=4k,blocks=2";
        let Some(mut served) = Served::start_on(source, &["--layout", layout]) else { return };
        // Packets that are received or counted as lost, and flows that are open.
        let figures = |served: &Served| {
            let metrics = served.metrics();
            ["weir_packets_received_total", "weir_flows_active"].map(|name| sum(&metrics, name, ""))
        };
        // Loss snapshots are taken several times between two status lines.
        let wait_for_snapshots = |served: &Served| {
            let before = served.probe.times("active=");
            until("four more status lines", || served.probe.times("active=") >= before + 4);
        };
        let wait_until_read = |served: &Served, packets: u64| {
            until("all packets are read or lost", || figures(served)[0] == packets);
        };
        send_requests(&mut served.sender, 1..3);
        wait_until_read(&served, 4);
        wait_for_snapshots(&served);
        served.probe.signal(libc::SIGSTOP);
        send_requests(&mut served.sender, 1000..3000);
        served.probe.signal(libc::SIGCONT);
        wait_until_read(&served, 4004);
        // Flow 1 continues, and flow 3 begins.
        let flows = figures(&served)[1];
        send_requests(&mut served.sender, 1..2);
        wait_until_read(&served, 4006);
        assert_eq!(figures(&served)[1], flows, "{layout}");
        wait_for_snapshots(&served);
        send_requests(&mut served.sender, 3..4);
        wait_until_read(&served, 4008);
        wait_for_snapshots(&served);
        let (err, flows, ledger) = served.probe.stop(2);
        let of = |line: &str| ledger["packets"][line].as_u64().unwrap();
        assert_eq!(of("received"), 2 + 2 + 4000 + 2 + 2, "{err}");
        let lost = of("dropped_kernel") + of("dropped_queue") + of("dropped_nic");
        assert!(lost > 1000 && err.contains("dropped by the kernel"), "{err}");
        assert_eq!(of("metered") + lost, of("received"), "{ledger}");
        let queue_lost = |host: u64| {
            let of_host = |flow: &&Value| flow["src_ip"] == format!("10.0.0.{host}");
            flows.iter().find(of_host).unwrap()["queue_lost"].as_u64().unwrap()
        };
        assert_eq!(queue_lost(1), lost, "active during all of the loss");
        assert_eq!([queue_lost(2), queue_lost(3)], [0, 0], "before and after: {layout}");
        let largest = flows.iter().map(|flow| flow["queue_lost"].as_u64().unwrap()).max();
        assert_eq!(largest, Some(lost), "a record counts more than was lost");
    }
}

#[test]
fn records_are_exported_while_a_pipe_is_silent() {
    for layout in LAYOUTS {
        let output = JsonOutput::new();
        let stderr = output.folder.path().join("stderr");
        let read_stderr = || fs::read_to_string(&stderr).unwrap();
        let mut child = command()
            .args(["probe", "-i", "-", "--interval", "100ms", "--idle", "1s", "--flows", "10k", "--layout", layout])
            .args(["-o", &output.sink])
            .stdin(Stdio::piped())
            .stderr(fs::File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // Each part ends the flows of the part before it.
        for part in 0..3_u32 {
            let mut pcap = Pcap::new();
            if part > 0 {
                pcap.0.clear();
            }
            for number in 0..500 {
                let [request, response] = request_and_response(number);
                let seconds = START + 10 * part + u32::from(number / 100);
                pcap = pcap.frame(seconds, 0, &request).frame(seconds, 1, &response);
            }
            pipe.write_all(&pcap.0).unwrap();
            let silent_lines = || read_stderr().matches(" silent=1").count();
            let before = silent_lines();
            until("a status line reports the silent source", || silent_lines() > before);
        }
        drop(pipe);
        let code = child.wait().unwrap().code();
        let err = read_stderr();
        assert_eq!(code, Some(0), "{err}");
        assert!(!err.contains("panicked") && !err.contains("NOT BALANCE"), "{err}");
        let flows = output.flows();
        assert_eq!((flows.len(), packets(&flows)), (1500, 3000));
    }
}

#[test]
fn a_damaged_capture_is_reported_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut cut = Pcap::new().frame(START, 0, &udp(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2), 10));
    cut.0.extend([1, 2, 3]);
    let (cut, whole) = (cut.save(folder.path(), "cut.pcap"), small().save(folder.path(), "whole.pcap"));
    let [cut, whole] = [&cut, &whole].map(|path| path.to_str().unwrap());
    let (code, out, err) = weir(["probe", "-i", cut, "-i", whole, "-o", "table:-"]);
    assert_eq!(code, 2);
    assert!(err.contains("cut.pcap"), "{err}");
    assert!(out.contains(&format!("packets    {} received", 1 + SMALL_PACKETS)), "{out}");
}

#[test]
fn sighup_opens_and_closes_sinks_and_names_options_that_need_a_restart() {
    let Some(mut sender) = wire() else { return };
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let [kept, added, file] = ["kept.json", "added.json", "probe.toml"].map(|name| folder.path().join(name));
    let write = |sinks: &[&Path], more: &str| {
        let sinks: Vec<_> = sinks.iter().map(|sink| format!("\"json:{}\"", sink.display())).collect();
        fs::write(&file, format!("output = [{}]\nidle = \"200ms\"\n{more}", sinks.join(", "))).unwrap();
        permit_all_users(&file);
    };
    write(&[&kept], "");
    let probe = Running::probe("af_packet:right", &["--config", file.to_str().unwrap()]);
    let reload = |times: usize| {
        probe.signal(libc::SIGHUP);
        until("the configuration is reloaded", || probe.times("configuration reloaded") == times);
    };
    send_requests(&mut sender, 0..50);
    until("the first sink has the records", || read_flows(&kept).len() == 50);
    write(&[&added, &kept], "decap = true\nfull = \"drop\"\nbatch = 9\n");
    probe.signal(libc::SIGHUP);
    probe.wait_for("a change needs a restart: decap, full, batch");
    assert!(!added.exists(), "nothing is changed");
    write(&[&added, &kept], "");
    reload(1);
    send_requests(&mut sender, 50..100);
    until("both sinks have the records", || [&kept, &added].map(|sink| read_flows(sink).len()) == [100, 50]);
    write(&[&kept], "");
    reload(2);
    send_requests(&mut sender, 100..150);
    until("the first sink has all records", || read_flows(&kept).len() == 150);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(read_flows(&added).len(), 50);
    assert!(err.contains("flows      150\n"), "records counted twice: {err}");
    let sinks = ledger["sinks"].as_array().unwrap();
    let flows_of = |records: &Value| number(&records["flows"]);
    let counts: Vec<_> = sinks.iter().map(|sink| [&sink["exported"], &sink["not_open"]].map(flows_of)).collect();
    assert_eq!(counts, [[50, 100], [150, 0]], "{ledger}");
}

#[test]
fn two_signals_at_once_are_one_and_every_flow_is_exported() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let Some(mut sender) = wire() else { return };
        let probe = Running::probe("af_packet:right", &[]);
        send_requests(&mut sender, 0..300);
        probe.signal(libc::SIGTERM);
        probe.signal(number);
        let (code, err, flows, ledger) = probe.wait();
        assert_eq!((code, flows.len()), (0, 300), "{err}");
        assert_eq!(ledger["packets"]["metered"], 600, "{err}");
    }
}

#[test]
fn the_probe_waits_for_the_readers_of_its_output_pipes_until_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for options in [&["-o", &format!("json:{pipe}")][..], &["-o", "json:/dev/null", "--stats", pipe]] {
        let start = || {
            let mut command = command();
            command.args(["probe", "-i", "synth:velan,flows=10,packets=1000"]).args(options);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut without_reader = start();
        let mut lines = BufReader::new(without_reader.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.next().unwrap();
        assert!(line.contains("waiting for a program that reads this pipe"), "{line}");
        signal(&without_reader, libc::SIGTERM);
        assert_eq!(without_reader.wait().unwrap().code(), Some(1));
        let line = lines.next().unwrap();
        assert!(line.contains("no program reads this pipe"), "{line}");
        let mut with_reader = start();
        let text = fs::read_to_string(pipe).unwrap();
        assert_eq!(with_reader.wait().unwrap().code(), Some(0));
        let records = if options.contains(&"--stats") { "\"balanced\": true" } else { "\"src_ip\"" };
        assert!(text.contains(records), "{text}");
    }
}
