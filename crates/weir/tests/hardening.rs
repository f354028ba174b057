//! What a running `weir` may still do: capabilities of all its threads, and the systemd unit.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{is_installed, is_root};
use live::{Running, send_requests, wire};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// The values that a line of `/proc/PID/task/*/status` has among the threads of a probe.
fn of_threads(probe: &Running, name: &str) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", probe.process.0.id())).unwrap();
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
        let options = ["-i", "af_packet:right,queues=2", "--layout", "split", "--interval", "200ms", "--flows", "1k"];
        let probe = Running::start_in(command, &[&["probe"], &options[..]].concat());
        probe.wait_for("packets/s");
        send_requests(&mut sender, 1..2);
        probe.wait_for("flows 1 active");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(of_threads(&probe, set), only("0000000000000000"), "{set} {start:?}");
        }
        let bounding = of_threads(&probe, "CapBnd:");
        assert_eq!(bounding == only("0000000000000000"), drops_bounding_set, "{bounding:?} {start:?}");
        assert_eq!(of_threads(&probe, "NoNewPrivs:"), only("1"), "{start:?}");
        probe.stop(0);
    }
}

#[test]
fn the_systemd_unit_exposes_little() {
    let mut analyze = Command::new("systemd-analyze");
    // Exposure 2.5 of 10; more is an error.
    analyze.args(["security", "--no-pager", "--offline=true", "--threshold=25"]);
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/weir.service");
    let Ok(output) = analyze.arg(unit).output() else { return eprintln!("SKIPPED: there is no systemd-analyze") };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("unrecognized option") {
        return eprintln!("SKIPPED: this systemd-analyze is older than version 250");
    }
    assert!(output.status.success() && out.contains("Overall exposure level"), "{out}{err}");
    // Unknown settings, for example.
    assert!(!err.contains("weir.service"), "{err}");
}
