//! `weir bench live`: runs, accounts for every frame, and leaves no interface or namespace behind.
//! No test judges its speed.

use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use testbed::{assert_usage_errors, captures, command, is_root, signal, text_of};

/// Generous limit for one run.
const TIMEOUT: Duration = Duration::from_secs(300);

fn bench(arguments: &[&str]) -> Command {
    let mut command = command();
    command.args(["bench", "live"]).args(arguments);
    command
}

/// Exit code and outputs; `None`, with a notice, without the privileges for a namespace or a
/// source.
fn measured(output: &Output) -> Option<(i32, String, String)> {
    let (code, out, err) = text_of(output);
    for reason in ["network namespace", "ip link", "not permitted", "CONFIG_XDP_SOCKETS"] {
        if code == 1 && err.contains(reason) {
            eprintln!("SKIPPED: {err}");
            return None;
        }
    }
    Some((code, out, err))
}

/// Asserts that the balance of all trials is printed and adds up.
fn assert_balanced(report: &Value, text: &str) {
    assert_eq!(report["balanced"], true);
    for source in report["sources"].as_array().unwrap() {
        let balance = &source["balance"];
        let of = |name: &str| balance[name].as_u64().unwrap();
        let fates = ["metered", "undecoded", "filtered", "refused", "veth", "nic", "kernel", "queue", "cache"];
        assert!(of("sent") > 0, "{balance}");
        assert_eq!(of("sent"), fates.into_iter().map(of).sum::<u64>(), "{balance}");
        let line = format!(
            "balance      {}, {} trials: {} sent = ",
            source["source"].as_str().unwrap(),
            of("runs"),
            of("sent")
        );
        assert!(text.contains(&line), "{line}: {text}");
    }
}

/// Number of named network namespaces, and of interfaces in this one.
fn networks() -> [usize; 2] {
    ["/run/netns", "/sys/class/net"].map(|folder| fs::read_dir(folder).map_or(0, Iterator::count))
}

fn source_is_measured(source: &str) -> Option<(Value, String)> {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("live.json");
    let before = networks();
    let quick = [source, "--seconds", "0.05", "--rounds", "2", "--json", json.to_str().unwrap()];
    let (code, out, err) = measured(&bench(&quick).output().unwrap())?;
    assert_eq!(code, 0, "{err}");
    assert_eq!(networks(), before);
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_balanced(&report, &out);
    let measured = &report["sources"][0];
    let consumers = ["null consumer", "fused", "split"];
    for (table, cost) in [("rates", "pps"), ("costs", "ns")] {
        let cases = measured[table].as_array().unwrap();
        for (consumer, pinned) in consumers.iter().flat_map(|consumer| [(consumer, true), (consumer, false)]) {
            let of = cases.iter().find(|case| case["consumer"] == **consumer && case["pinned"] == pinned).unwrap();
            assert!(of[cost].is_number() || of[cost]["median"].as_f64().unwrap() > 0.0, "{of}");
            assert_eq!(of["ratio_to_null"].is_object(), table == "costs" && *consumer != "null consumer", "{of}");
        }
    }
    for stage in ["source", "decode", "meter", "export"] {
        assert!(measured["stages"].as_array().unwrap().iter().any(|of| of["stage"] == stage), "{stage}: {measured}");
    }
    for (idle, consumer) in measured["idle"].as_array().unwrap().iter().zip(consumers) {
        assert_eq!(idle["consumer"], consumer);
        assert!(idle["load"].as_f64().unwrap() >= 0.0, "{idle}");
    }
    Some((report, out))
}

#[test]
fn af_packet_is_measured_and_every_frame_is_accounted_for() {
    let Some((report, out)) = source_is_measured("af_packet") else { return };
    for consumer in &report["sources"][0]["idle"].as_array().unwrap()[1..] {
        assert_eq!(consumer["flows"], 2, "{consumer}");
    }
    for words in ["loss-free rate", "x null consumer", "idle link", "delay of a flow's record"] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn af_xdp_is_measured_and_every_frame_is_accounted_for() {
    source_is_measured("af_xdp");
}

#[cfg(feature = "dpdk")]
#[test]
fn dpdk_is_measured_and_every_frame_is_accounted_for() {
    assert!(source_is_measured("dpdk").is_some());
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn build_without_dpdk_reports_it_before_any_measurement() {
    let (code, _, err) = text_of(&bench(&["dpdk"]).output().unwrap());
    assert!(code == 1 && err.contains("built without DPDK"), "{code}: {err}");
}

#[test]
fn soak_run_prints_status_lines_and_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("live.json");
    let capture = captures().join("web.pcap");
    let mut command = bench(&["af_packet", "--seconds", "0.05", "--rounds", "1", "--soak", "0.03", "--at", "10"]);
    command.args(["--interval", "200ms", "--frames"]).arg(capture).arg("--json").arg(&json);
    let Some((code, out, err)) = measured(&command.output().unwrap()) else { return };
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_balanced(&report, &out);
    let soak = &report["sources"][0]["soak"];
    let lost: u64 = ["refused", "veth", "nic", "kernel", "queue", "cache"]
        .iter()
        .map(|place| soak["balance"][place].as_u64().unwrap())
        .sum();
    assert_eq!(soak["passed"], lost == 0, "{soak}");
    assert_eq!(code, i32::from(lost > 0), "{err}");
    let [metered, sent] = ["metered", "sent"].map(|of| soak["balance"][of].as_u64().unwrap());
    assert!(sent > 0 && metered + lost == sent, "{soak}");
    // The run is too short to judge its memory.
    assert!(soak["memory_constant"].is_null() && out.contains("verdict"), "{out}");
    assert!(out.lines().filter(|line| line.contains(" metered  lost: ")).count() >= 1, "{out}");
}

#[test]
fn interrupted_run_exits_and_leaves_nothing_behind() {
    let before = networks();
    let mut child = bench(&["af_packet", "--seconds", "1", "--rounds", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ours = network_of("self");
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() && network_of(&child.id().to_string()) == ours {
        assert!(began.elapsed() < TIMEOUT, "no namespace was created");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, libc::SIGINT);
    let Some((code, _, err)) = measured(&child.wait_with_output().unwrap()) else { return };
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert_eq!(networks(), before);
}

/// Identity of a process's network namespace; `None` once the process has ended.
fn network_of(process: &str) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

#[test]
fn missing_privileges_are_named() {
    if !is_root() {
        eprintln!("SKIPPED: not root, so the test cannot switch to another user");
        return;
    }
    // A directory that every user can read.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let weir = folder.path().join("weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &weir).unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(weir);
    command.args(["bench", "live", "af_packet"]).uid(65534).gid(65534);
    let (code, _, err) = text_of(&command.output().unwrap());
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("CAP_SYS_ADMIN") && err.contains("run as root"), "{err}");
}

#[test]
fn usage_errors_are_reported_before_any_measurement() {
    assert_usage_errors(&[
        (&["bench", "live", "eth0"], "unknown live source 'eth0'; the sources are af_packet, af_xdp, dpdk"),
        (&["bench", "live", "--rounds", "0"], "--rounds"),
        (&["bench", "live", "--seconds", "0"], "use a number from 0.01"),
        (&["bench", "live", "--at", "101"], "101"),
        (&["bench", "live", "--frames", "/nonsense.pcap"], "/nonsense.pcap"),
        (&["bench", "live", "--frames", "synth:nonsense"], "nonsense"),
    ]);
}
