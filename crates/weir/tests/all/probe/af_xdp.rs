//! AF_XDP sources: live flow records equal those of a file, the ledger accounts for every packet,
//! and no XDP program stays attached.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use testbed::namespace::{LEFT, Sender, ip, network_of, until};
use testbed::running::{Running, flows_of_file, send_requests, without_times};
use testbed::{arp, command, failure, permit_all_users, read_ledger, signal, udp};

/// Takes the test into a network namespace with four queues. Tests with such a namespace run one at
/// a time, because a process that another test starts inherits the open descriptors of this one
/// until it executes. Prints the reason and returns `None` without AF_XDP or the privileges.
fn network() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !network_of(4, 1500) {
        return None;
    }
    let opened = "af_xdp:right"
        .parse::<weir_capture::LiveSpec>()
        .and_then(|live| live.open())
        .map(drop)
        .map_err(|error| error.to_string());
    if let Err(error) = opened {
        eprintln!("SKIPPED: {error}");
        return None;
    }
    // A process that another test has just forked may still have it open.
    until("the XDP program is detached", || !ip("link show dev right").contains("xdp"));
    Some(alone)
}

/// Frames of TCP and UDP over IPv4 that are no fragments. The sending veth device chooses the queue
/// by a hash of addresses and ports for these alone, so that both directions of a flow share a
/// queue; the IPv6 flow label and the ICMP type differ by direction.
fn frames() -> Vec<Vec<u8>> {
    let has_ports = |bytes: &Vec<u8>| {
        let is_fragment = bytes[20] & 0x3f != 0 || bytes[21] != 0;
        bytes[12..14] == [8, 0] && matches!(bytes[23], 6 | 17) && !is_fragment
    };
    let names = ["web.pcap", "dns.pcap.gz", "tls.pcap", "ssh.pcap", "synth:mix,flows=300,packets=10k"];
    names.into_iter().flat_map(testbed::running::frames).filter(has_ports).collect()
}

#[test]
fn flow_records_of_four_queues_equal_those_of_a_file_with_and_without_snap_length() {
    let Some(_alone) = network() else { return };
    let frames = frames();
    let expected = flows_of_file(&frames, &["--layer2"]);
    assert!(expected.len() > 300, "{}", expected.len());

    for options in ["", ",attach=generic", ",snap=128", ",attach=generic,snap=128"] {
        let probe = Running::probe(&format!("af_xdp:right{options}"), &["--layer2"]);
        let mut sender = Sender::new(LEFT);
        frames.iter().for_each(|frame| sender.send(frame));
        let (err, flows, ledger) = probe.stop(0);
        let flows = without_times(&flows);
        assert!(err.lines().next().unwrap().contains("do not reach this host's network stack"), "{err}");
        assert_eq!(ledger["packets"]["received"], frames.len(), "{options}: {ledger}");
        assert_eq!(ledger["bytes"]["received"], frames.iter().map(Vec::len).sum::<usize>(), "{options}");
        let without = |some: &[String], others: &[String]| -> Vec<String> {
            some.iter().filter(|line| !others.contains(line)).cloned().collect()
        };
        let (only_live, only_file) = (without(&flows, &expected), without(&expected, &flows));
        assert!(flows == expected, "{options}: only live: {only_live:#?}; only in the file: {only_file:#?}");
        assert!(!ip("link show dev right").contains("xdp"), "an XDP program is still attached");
    }
}

#[test]
fn weir_read_reads_one_queue_until_sigterm() {
    let Some(_alone) = network() else { return };
    let err = failure(1, ["read", "-i", "af_xdp:right"]);
    assert!(err.contains("use weir probe"), "{err}");

    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("ledger.json");
    let mut child = command()
        .args(["read", "-i", "af_xdp:right,queues=0", "--stats", stats.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("do not reach"), "{line}");
    let mut sender = Sender::new(LEFT);
    // The hash decides which flows arrive on queue 0: of 64 flows some do, and some do not.
    let flows = (0..64).map(|port| udp(([192, 0, 2, 1], 1000 + port), ([192, 0, 2, 2], 53), 20));
    let sent = flows.map(|frame| sender.send(&frame)).count() as u64;
    signal(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let ledger = read_ledger(&stats);
    let received = ledger["packets"]["received"].as_u64().unwrap();
    assert!(0 < received && received < sent, "{received} of {sent}");
}

#[test]
fn several_queues_of_an_interface_are_not_attached_again() {
    let Some(_alone) = network() else { return };
    let err = failure(1, ["probe", "-i", "af_xdp:right", "--wait"]);
    assert!(err.contains("cannot attach to an interface again"), "{err}");
    let probe = Running::probe("af_xdp:right,queues=1", &["--wait"]);
    probe.stop(0);
}

#[test]
fn the_kernel_detaches_the_xdp_program_of_a_killed_probe() {
    let Some(_alone) = network() else { return };
    let mut probe = Running::probe("af_xdp:right", &[]);
    assert!(ip("link show dev right").contains("xdp"));
    probe.signal(libc::SIGKILL);
    probe.process.0.wait().unwrap();
    until("the XDP program is detached", || !ip("link show dev right").contains("xdp"));
}

/// Adds the seconds in the file `$WEIR_TEST_CLOCK` to the real-time clock of a process.
const SETTABLE_CLOCK: &str = r#"
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <time.h>
    extern "C" int clock_gettime(clockid_t id, struct timespec *time) noexcept {
        static auto real = reinterpret_cast<int (*)(clockid_t, timespec *)>(dlsym(RTLD_NEXT, "clock_gettime"));
        static auto seconds = static_cast<volatile long *>(
            mmap(nullptr, sizeof(long), PROT_READ, MAP_SHARED, open(getenv("WEIR_TEST_CLOCK"), O_RDONLY), 0));
        int result = real(id, time);
        if (id == CLOCK_REALTIME) time->tv_sec += *seconds;
        return result;
    }"#;

#[test]
fn flows_go_on_when_the_clock_is_set_and_their_records_have_its_time() {
    let Some(_alone) = network() else { return };
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let [library, clock] = ["clock.so", "clock"].map(|name| folder.path().join(name));
    std::fs::write(folder.path().join("clock.cc"), SETTABLE_CLOCK).unwrap();
    let mut compiler = std::process::Command::new("c++");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(folder.path().join("clock.cc")).arg("-ldl");
    if !compiler.status().is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED: no C++ compiler (make test installs it)");
    }
    // The kernel, which stamps the frames of AF_PACKET, keeps its clock.
    let steps = [(1, "steps_forward"), (-1, "steps_backward")];
    for (source, (hours, key)) in
        ["af_xdp:right", "af_packet:right"].into_iter().flat_map(|name| steps.map(|step| (name, step)))
    {
        std::fs::write(&clock, 0_i64.to_ne_bytes()).unwrap();
        permit_all_users(&clock);
        let mut weir = command();
        weir.env("LD_PRELOAD", &library).env("WEIR_TEST_CLOCK", &clock);
        let output = folder.path().join("out.pcap");
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, format!("[egress.all]\noutputs = [\"pcap:{}\"]\n", output.display())).unwrap();
        let options = ["--interval", "100ms", "--status", "json", "--flows", "10k", "--rules", rules.to_str().unwrap()];
        let probe = Running::start_in(weir, &[&["probe", "-i", source], &options[..]].concat());
        probe.wait_for("packets_per_second");
        let mut sender = Sender::new(LEFT);
        send_requests(&mut sender, 0..10);
        probe.wait_for_packets(20);
        // In place, because the file is mapped.
        let file = std::fs::OpenOptions::new().write(true).open(&clock).unwrap();
        file.write_all_at(&i64::to_ne_bytes(3600 * hours), 0).unwrap();
        probe.wait_for("the system's clock was set");
        // Forwarded packets have the new time a little later. These are in no record.
        let mut sent = 20;
        until("forwarded packets have the new time", || {
            sender.send(&arp());
            sent += 1;
            let set_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64 + 3600 * hours;
            times_of(&output, is_arp).last().is_some_and(|time| (time - set_s).abs() < 60)
        });
        send_requests(&mut sender, 0..10);
        probe.wait_for_packets(sent + 20);
        let (err, flows, ledger) = probe.stop(0);
        assert_eq!((flows.len(), &ledger["clock"][key]), (10, &serde_json::json!(1)), "{err} {ledger}");
        assert_eq!(ledger["anomalies"], serde_json::json!({}), "{ledger}");
        let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64 + 3600 * hours;
        for flow in flows {
            let [start_s, end_s] = ["start_time", "end_time"].map(|name| seconds(flow[name].as_str().unwrap()));
            assert!(start_s <= end_s && end_s - start_s < 60 && (now_s - end_s).abs() < 60, "{flow}");
            assert_eq!((testbed::packets(&flow), &flow["approximate"]), (4, &serde_json::json!("clock_set")), "{flow}");
        }
        // Forwarded packets have the time that the system's clock has.
        let times = times_of(&output, |frame| !is_arp(frame));
        assert_eq!(times.len(), 40);
        for (times, expected) in times.chunks(times.len() / 2).zip([now_s - 3600 * hours, now_s]) {
            assert!(times.iter().all(|time| (time - expected).abs() < 60), "{times:?} {expected}");
        }
    }
}

fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6]
}

/// Times of the frames in a capture, of which the last may be incomplete, seconds since 1970.
fn times_of(capture: &Path, selects: impl Fn(&[u8]) -> bool) -> Vec<i64> {
    let mut times = Vec::new();
    let Ok(mut source) = weir_capture::open(capture) else { return times };
    while let Ok(Some(burst)) = source.burst() {
        let selected = burst.iter().filter(|frame| selects(frame.bytes));
        times.extend(selected.map(|frame| (frame.time_ns / 1_000_000_000) as i64));
    }
    times
}

/// Seconds since 1970 of a time in a flow record.
fn seconds(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_second()
}
