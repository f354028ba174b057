//! `weir probe` in bad surroundings: what cannot be opened, what goes away and comes back, outputs that hang, and whoever looks after it.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{Pcap, START, parts, udp, weir};
use live::{Probe, flows};
use network::{BOUND, LEFT, Sender, ip, network, network_of, until, until_wired};
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65534;

/// A question and its answer between two hosts.
fn talk(number: u16) -> [Vec<u8>; 2] {
    let [high, low] = number.to_be_bytes();
    let (client, server) = (([10, 0, high, low], 4000), ([10, 1, 0, 1], 53));
    [udp(client, server, 40), udp(server, client, 400)]
}

fn send(sender: &mut Sender, numbers: std::ops::Range<u16>) {
    numbers.for_each(|number| talk(number).iter().for_each(|frame| sender.send(frame)));
}

/// A second wire, from `left2` to `right2`.
fn second_wire() {
    ip("link add left2 mtu 65535 type veth peer name right2 mtu 65535");
    ["left2", "right2"].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
    until("the other wire carries frames", || ip("link show dev right2").contains("state UP"));
}

#[test]
fn what_cannot_be_opened_is_refused_with_what_to_do() {
    // No larger, or the driver takes no program, of which it is not asked here.
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
        let (code, out, told) = parts(&weir(["probe"].iter().chain(arguments)));
        assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}: {told}");
        assert!(reasons.iter().all(|reason| told.contains(reason)), "{arguments:?}: {told}");
    }
    ip("link set right down");
    let (code, _, told) = parts(&weir(["probe", "-i", "af_packet:right"]));
    assert_eq!(code, 1);
    assert!(told.contains("ip link set dev right up"), "{told}");
}

#[test]
fn where_threads_run_and_why_is_told_before_anything_is_opened() {
    for (arguments, told) in [
        (&["-i", "af_packet:lo"][..], "on cores: any (lo has no PCI device)\n"),
        (&["-i", "af_packet:lo", "--cores", "0"], "with one thread, on cores: 0\n"),
        (&["-i", "synth:mix"], "on cores: any (a source is not a NIC)\n"),
    ] {
        let (code, out, _) = parts(&weir(["probe", "--check"].iter().chain(arguments)));
        assert_eq!(code, 0);
        assert!(out.contains(told), "{arguments:?}: {out}");
    }
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn without_dpdk_it_says_how_to_have_it() {
    let (code, _, told) = parts(&weir(["probe", "-i", "dpdk:net_null0"]));
    assert_eq!(code, 1);
    assert!(told.contains("built without DPDK") && told.contains("--features dpdk"), "{told}");
}

#[cfg(feature = "dpdk")]
#[test]
fn without_huge_pages_it_says_how_to_have_them() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    if !meminfo.lines().any(|line| line.starts_with("HugePages_Free:") && line.ends_with(" 0")) {
        eprintln!("SKIPPED: this machine has huge pages");
        return;
    }
    let (code, _, told) = parts(&weir(["probe", "-i", "dpdk:net_null0,hugepages=on"]));
    assert_eq!(code, 1);
    assert!(told.contains("nr_hugepages") && told.contains("hugepages=off"), "{told}");
}

#[test]
fn whoever_is_not_permitted_is_told_which_capability_it_takes() {
    if !network() {
        return;
    }
    for (source, capabilities) in [
        ("af_packet:right", &["CAP_NET_RAW", "setcap"][..]),
        ("af_xdp:right", &["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = match command.args(["probe", "-i", source]).uid(NOBODY).gid(NOBODY).output() {
            Ok(output) => output,
            Err(error) => return eprintln!("SKIPPED: nobody may not run the program where it was built: {error}"),
        };
        let (code, _, told) = parts(&output);
        assert_eq!(code, 1, "{told}");
        assert!(capabilities.iter().all(|capability| told.contains(capability)), "{told}");
    }
}

#[test]
fn an_interface_that_goes_down_changes_its_mtu_and_comes_back_keeps_its_flows() {
    if !network() {
        return;
    }
    for source in ["af_packet:right,queues=2", "af_xdp:right,attach=generic"] {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("flows.json");
        let probe = Probe::start(source, &["-o", &format!("json:{}", output.display())]);
        let mut sender = Sender::new(LEFT);
        for round in 1..=3 {
            send(&mut sender, 0..100);
            until("they are metered", || probe.told().contains("flows 100 active"));
            let times = |what: &str| probe.told().matches(what).count();
            ip("link set right down");
            until("it is told", || times("interface is down or has no link, waiting for it interface=right") == round);
            ip(&format!("link set right mtu {}", 1500 + round));
            ip("link set right up");
            until_wired();
            until("it is told", || times("interface has a link again interface=right") == round);
        }
        send(&mut sender, 0..100);
        let (code, told, ledger) = probe.end();
        assert_eq!(code, 0, "{told}");
        assert_eq!(ledger["packets"]["received"], 800, "{source}: {ledger}");
        let flows = flows(&output);
        assert_eq!(flows.len(), 100, "{source}");
        assert!(flows.iter().all(|flow| flow["packets"] == 4 && flow["rev_packets"] == 4), "{source}");
    }
}

#[test]
fn an_interface_that_is_removed_is_told_its_flows_are_kept_and_the_others_go_on() {
    if !network() {
        return;
    }
    second_wire();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.json");
    let sink = format!("json:{}", output.display());
    let probe = Probe::start("af_packet:right", &["-i", "af_packet:right2", "-o", &sink]);
    send(&mut Sender::new("left2"), 0..50);
    ip("link delete right2");
    until("it is told", || probe.told().contains("af_packet:right2: the interface was removed"));
    send(&mut Sender::new(LEFT), 100..150);
    let (code, told, ledger) = probe.end();
    assert_eq!((code, told.matches("was removed").count()), (2, 1), "{told}");
    assert_eq!(ledger["packets"]["metered"], 200, "{ledger}");
    assert_eq!(flows(&output).len(), 100);
}

#[test]
fn two_probes_of_one_interface_both_see_all_of_it() {
    if !network() {
        return;
    }
    let probes = [1, 2].map(|queues| Probe::start(&format!("af_packet:right,queues={queues}"), &[]));
    send(&mut Sender::new(LEFT), 0..500);
    for probe in probes {
        let (code, told, ledger) = probe.end();
        assert_eq!(code, 0, "{told}");
        assert_eq!(
            (&ledger["packets"]["metered"], &ledger["flows"]["created"]),
            (&1000.into(), &500.into()),
            "{ledger}"
        );
    }
}

#[test]
fn a_second_probe_at_the_same_af_xdp_socket_is_refused_and_the_first_goes_on() {
    if !network() {
        return;
    }
    let first = Probe::start("af_xdp:right,attach=generic", &[]);
    let (code, _, told) = parts(&weir(["probe", "-i", "af_xdp:right,attach=generic"]));
    assert_eq!(code, 1);
    assert!(told.contains("another XDP program is attached to it (ip link show dev right tells which)"), "{told}");
    send(&mut Sender::new(LEFT), 0..500);
    let (code, told, ledger) = first.end();
    assert_eq!(code, 0, "{told}");
    assert_eq!(ledger["packets"]["metered"], 1000, "{ledger}");
}

#[test]
fn an_output_that_hangs_holds_up_no_other_and_is_given_up_at_the_end() {
    if !network() {
        return;
    }
    const FLOWS: u16 = 2000;
    let folder = tempfile::tempdir().unwrap();
    let [pipe, output] = ["pipe", "flows.json"].map(|name| folder.path().join(name));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Somebody opens it, and never reads.
    let _reader = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let sinks = [&pipe, &output].map(|path| format!("json:{}", path.display()));
    let probe = Probe::start("af_packet:right", &["-o", &sinks[0], "-o", &sinks[1], "--idle", "300ms"]);
    send(&mut Sender::new(LEFT), 0..FLOWS);
    until("the other output has every flow while it runs", || flows(&output).len() == usize::from(FLOWS));
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("took nothing for 10 s"), "{told}");
    let of = |sink: usize, what: &str| ledger["sinks"][sink][what]["flows"].as_u64().unwrap_or(0);
    let lost = ledger["sinks"][0]["lost"]["exporter_behind"]["flows"].as_u64().unwrap();
    assert_eq!((of(0, "exported") + lost, of(1, "exported")), (FLOWS.into(), FLOWS.into()), "{ledger}");
    assert_eq!(ledger["sinks"][1]["lost"], serde_json::json!({}), "{ledger}");
}

#[test]
fn a_table_holds_records_back_and_the_account_balances_meanwhile() {
    if !network() {
        return;
    }
    let probe = Probe::start("af_packet:right", &["-o", "table:-", "--idle", "200ms"]);
    send(&mut Sender::new(LEFT), 0..100);
    until("they end", || probe.told().contains("100 ended"));
    let lines = probe.told().lines().count();
    until("it goes on", || probe.told().lines().count() > lines + 2);
    // Which also sees that nothing was said of an imbalance.
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 0, "{told}");
    assert_eq!(ledger["sinks"][0]["exported"]["flows"], 100, "{ledger}");
}

#[test]
fn a_service_manager_is_told_when_it_is_ready_how_it_goes_that_it_lives_and_that_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    // The probe notifies the service manager as user nobody.
    for path in [folder.path(), &path] {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    manager.set_read_timeout(Some(BOUND)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["probe", "-i", "-", "-q", "--interval", "100ms", "-o", "json:/dev/null"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let heard = || {
        let mut buffer = [0; 1000];
        loop {
            match manager.recv(&mut buffer) {
                Ok(octets) => return String::from_utf8(buffer[..octets].to_vec()).unwrap().trim_end().to_owned(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
            }
        }
    };
    let wait_for = |what: &str| {
        let started = std::time::Instant::now();
        while !heard().starts_with(what) {
            assert!(started.elapsed() < BOUND, "{what}");
        }
    };
    pipe.write_all(&Pcap::new().frame(START, 0, &talk(1)[0]).0).unwrap();
    assert_eq!(heard(), "READY=1");
    wait_for("WATCHDOG=1");
    wait_for("STATUS=");
    wait_for("WATCHDOG=1");
    drop(pipe);
    wait_for("STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
