//! `weir doctor` and `weir plan`: their text for recorded machines equals the expected files, and
//! they read this machine.
//!
//! `BLESS=1 cargo test -p weir --test all doctor` writes the expected files beside the recordings.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::{ledger_of, weir};

/// Recorded machines: name, exit code of `doctor`, exit code of `plan` for 100 Gbit/s.
const MACHINES: [(&str, i32, i32); 10] = [
    ("one-node", 0, 2),
    ("wrong-node", 2, 0),
    ("four-nodes", 0, 0),
    ("eight-nodes", 2, 0),
    ("x8-slot", 2, 2),
    ("few-queues", 2, 2),
    ("asymmetric-rss", 2, 0),
    ("gro-on", 2, 0),
    ("no-memory", 2, 2),
    ("virtual", 0, 2),
];

/// Checks of what a probe needs, which are no part of a recording.
const SERVICE: [&str; 8] =
    ["interface", "sandbox", "af_xdp", "ipv6", "capabilities", "configuration", "store", "space"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/host/fixtures").join(name)
}

/// Runs a command on a recorded machine, compares its text with the expected file, and returns the
/// exit code.
fn exit_code(name: &str, kind: &str, arguments: &[&str]) -> i32 {
    let machine = fixture(&format!("{name}.txt"));
    let (code, out, err) = weir([arguments, &["--sysroot", machine.to_str().unwrap(), "-v"]].concat());
    assert_eq!(err, "", "{name}");
    let expected_path = fixture(&format!("{name}.{kind}"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&expected_path, &out).unwrap();
    }
    let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
    assert_eq!(out, expected, "{name}.{kind}; BLESS=1 if this is right");
    code
}

/// Exit code and JSON of a command that finds problems (2) or none (0).
fn json_of(arguments: &[&str]) -> (i32, Value) {
    let (code, out, err) = weir(arguments);
    assert!((code == 0 || code == 2) && err.is_empty(), "{code}: {err}");
    (code, serde_json::from_str(&out).unwrap())
}

#[test]
fn doctor_prints_the_expected_text_for_each_recorded_machine() {
    for (name, code, _) in MACHINES {
        assert_eq!(exit_code(name, "doctor", &["doctor"]), code, "{name}");
    }
}

#[test]
fn plan_prints_the_expected_text_for_each_recorded_machine() {
    for (name, _, code) in MACHINES {
        let plan = ["plan", "--link", "100G", "--packet", "700", "--flows", "2M"];
        assert_eq!(exit_code(name, "plan", &plan), code, "{name}");
    }
}

#[test]
fn json_contains_every_finding_with_its_commands() {
    let machine = fixture("asymmetric-rss.txt");
    let (code, report) = json_of(&["doctor", "--json", "--sysroot", machine.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert_eq!((report["critical"].as_u64(), report["warning"].as_u64()), (Some(3), Some(1)));
    let findings = report["findings"].as_array().unwrap();
    let irq = findings.iter().find(|finding| finding["check"] == "irq").unwrap();
    assert_eq!(irq["severity"], "critical");
    assert_eq!(irq["remedy"]["commands"].as_array().unwrap().len(), 8);
    assert_eq!(irq["remedy"]["steps"][0]["write"]["path"], "/proc/irq/101/smp_affinity_list");
    assert_eq!(report["machine"]["nics"][0]["ring"]["maximum"], 8192);

    let virtual_machine = fixture("virtual.txt");
    let (_, report) = json_of(&["doctor", "--json", "--sysroot", virtual_machine.to_str().unwrap()]);
    let ring = &report["machine"]["nics"][0]["ring"];
    assert_eq!(ring["unavailable"], "ethtool is not installed (apt install ethtool)", "{ring}");
}

#[test]
fn fix_on_a_recording_prints_the_commands_and_changes_nothing() {
    let machine = fixture("gro-on.txt");
    let (code, out, err) = weir(["doctor", "--fix", "--sysroot", machine.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (2, ""));
    let (_, steps) = out.split_once("--fix on that machine would run:\n").unwrap();
    assert!(
        steps.starts_with("  # ethtool -G eth0 rx 8192\n  # ethtool -K eth0 gro off lro off rx-gro-hw off\n"),
        "{steps}"
    );
    assert_eq!(steps.lines().filter(|line| line.contains("scaling_governor")).count(), 16, "{steps}");
    assert!(!steps.contains("done") && !steps.contains("failed"), "{steps}");
    for excluded in ["ethtool -L", "ethtool -X", "swapoff", "systemctl", "isolcpus", "nr_hugepages"] {
        assert!(!steps.contains(excluded), "{excluded}: {steps}");
    }
}

#[test]
fn a_recording_of_this_machine_gives_the_same_findings() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("machine.txt");
    let (code, out, err) = weir(["doctor", "--record", recording.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("machine.txt"), "{err}");
    let (_, live) = json_of(&["doctor", "--json"]);
    let (_, recorded) = json_of(&["doctor", "--json", "--sysroot", recording.to_str().unwrap()]);
    assert_eq!(live["interfaces"], recorded["interfaces"]);
    let texts = |report: &Value| {
        let findings = report["findings"].as_array().unwrap();
        // What is tried on this machine is not in a recording.
        let is_read = |finding: &&Value| !SERVICE.contains(&finding["check"].as_str().unwrap());
        let texts = findings.iter().filter(is_read);
        let texts = texts.map(|finding| (finding["severity"].clone(), finding["check"].clone()));
        texts.collect::<Vec<_>>()
    };
    assert_eq!(texts(&live), texts(&recorded));
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(live["machine"]["cpus"].as_array().unwrap().len() >= cpus, "{live}");
    let (_, plain) = json_of(&["plan", "--link", "10G", "--json"]);
    let (_, recording) = json_of(&["plan", "--link", "10G", "--json", "--transactions"]);
    let memory = |report: &Value, of: &str| report["plan"]["memory"][of].as_u64().unwrap();
    let pipelines = recording["plan"]["pipelines"].as_u64().unwrap();
    let each = memory(&recording, "transaction_bytes") / pipelines;
    assert!((64 << 20..=176 << 20).contains(&each), "{each} of the 64 and 112 MiB of docs/transactions.md");
    assert_eq!(memory(&plain, "transaction_bytes"), 0);
    assert_eq!(memory(&recording, "total_bytes") - memory(&plain, "total_bytes"), each * pipelines);
}

#[test]
fn control_characters_of_a_recording_are_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("machine.txt");
    let text =
        "# weir machine\n/proc/cpuinfo:\n model name : \u{1b}[31mred\u{7}\n/sys/class/net/eth\u{1b}c/mtu = 1500\n";
    std::fs::write(&recording, text).unwrap();
    for arguments in [&["doctor", "-v"][..], &["plan", "--link", "10G"]] {
        let (_, out, err) = weir([arguments, &["--sysroot", recording.to_str().unwrap()]].concat());
        assert!(!out.contains('\u{1b}') && !out.contains('\u{7}') && out.contains("red"), "{out}{err}");
    }
}

#[test]
fn plan_uses_the_rate_of_a_bench_report_and_names_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let bench = folder.path().join("bench.json");
    let figure = |row: &str, x: f64, mpps: f64| serde_json::json!({ "row": row, "x": x, "series": "weir", "mpps": { "median": mpps, "min": mpps, "max": mpps } });
    let table = |name: &str, figures: Vec<Value>| serde_json::json!({ "name": name, "figures": figures });
    let plan = |tables: Vec<Value>, quick: bool| {
        let report = serde_json::json!({ "conditions": { "quick": quick }, "tables": tables });
        std::fs::write(&bench, report.to_string()).unwrap();
        let machine = fixture("one-node.txt");
        let (bench, machine) = (bench.to_str().unwrap(), machine.to_str().unwrap());
        let arguments = ["plan", "--link", "10G", "--flows", "200k", "--json", "--bench", bench, "--sysroot", machine];
        weir(arguments)
    };
    let flows = || table("flows", vec![figure("131072", 131_072.0, 40.0), figure("1048576", 1_048_576.0, 30.0)]);
    let mix = table("mix", vec![figure("trimmed to 96", 0.0, 16.0), figure("whole", 0.0, 12.0)]);
    let (code, out, _) = plan(vec![flows(), mix], false);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report["plan"]["demand"]["mpps_per_core"].as_f64()), (0, Some(6.0)));
    let (_, out, _) = plan(vec![flows()], false);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["plan"]["demand"]["mpps_per_core"].as_f64(), Some(15.0));
    let source = report["mpps_per_core_source"].as_str().unwrap();
    assert!(source.contains("table flows, row 1048576"), "{source}");
    let (code, _, err) = plan(vec![], false);
    assert!(code == 1 && err.contains("no figures"), "{err}");
    let (code, _, err) = plan(vec![flows()], true);
    assert!(code == 1 && err.contains("--quick"), "{err}");
}

/// Octets of a record with its share of headers, those of IP and UDP too.
fn octets_per_record(inputs: &[&str], sink: &str) -> f64 {
    let arguments = [&["read"], inputs, &["-q", "--overwrite", "-o", sink]].concat();
    let (_, err, ledger) = ledger_of(arguments);
    let sink = &ledger["sinks"][0];
    let [octets, messages, flows] =
        [&sink["octets"], &sink["messages"], &sink["exported"]["flows"]].map(|value| value.as_f64().unwrap_or(0.0));
    assert!(flows > 0.0, "{err} {ledger}");
    let headers = if sink["sink"].as_str().unwrap().contains("+udp:") { 28.0 } else { 0.0 };
    (octets + headers * messages) / flows
}

#[test]
fn the_octets_of_a_record_in_a_plan_are_those_that_are_written() {
    let machine = fixture("one-node.txt");
    let (_, plan) =
        json_of(&["plan", "--link", "10G", "--records", "1", "--json", "--sysroot", machine.to_str().unwrap()]);
    let planned = |name: &str, divisor: f64| plan["plan"]["export"][name].as_f64().unwrap() / divisor;
    // It receives nothing, so the kernel drops what does not fit into its buffer.
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = collector.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let captures: Vec<String> = testbed::capture_files().iter().map(|path| path.display().to_string()).collect();
    let captures: Vec<&str> = captures.iter().map(|path| &path[..]).collect();
    for (name, divisor, sink) in [
        ("ipfix_bits_per_second", 8.0, format!("ipfix+udp://127.0.0.1:{port}?rate=0")),
        ("ipfix_full_bits_per_second", 8.0, format!("ipfix+udp://127.0.0.1:{port}?rate=0&template=full")),
        ("ipfix_bytes_per_day", 86_400.0, file("flows.ipfix")),
        ("csv_bytes_per_day", 86_400.0, file("flows.csv")),
    ] {
        let planned = planned(name, divisor);
        // The shipped captures have few flows, so that templates and type information weigh more.
        for (inputs, tolerance) in [(&["synth:mix,flows=10k,packets=300k"][..], 0.1), (&captures, 0.5)] {
            let measured = octets_per_record(inputs, &sink);
            println!("{name}: {planned} planned, {measured:.1} measured, {} inputs", inputs.len());
            let difference = (measured / planned - 1.0).abs();
            assert!(
                difference <= tolerance,
                "{name}: {planned} planned, {measured:.1} measured, {} inputs",
                inputs.len()
            );
        }
    }
}

/// Runs in network and mount namespaces where everything else of the machine is read-only.
#[test]
fn fix_prints_each_command_with_its_result() {
    let weir = env!("CARGO_BIN_EXE_weir");
    let script = format!(
        "set -e; mount -t sysfs -o ro none /sys; mount --bind /proc/sys /proc/sys; mount -o remount,ro,bind /proc/sys
         mount --bind /proc/irq /proc/irq; mount -o remount,ro,bind /proc/irq
         ip link add name v0 type veth peer name v1; ethtool -K v0 gro on; echo ready
         {weir} doctor v0 --fix || true; ethtool -k v0 | grep generic-receive"
    );
    let output = Command::new("unshare").args(["--net", "--mount", "sh", "-c", &script]).output();
    let text = output.map_or_else(
        |error| format!("unshare: {error}"),
        |output| String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    );
    let Some((_, text)) = text.split_once("ready\n") else {
        eprintln!("SKIPPED: no namespaces, or no ethtool: {text}");
        return;
    };
    assert!(text.contains("  # ethtool -K v0 gro off\n    done\n"), "{text}");
    assert!(text.ends_with("generic-receive-offload: off\n"), "{text}");
    // A failed write is reported, and the run continues.
    if text.contains("# echo -1 > /proc/sys/kernel/sched_rt_runtime_us") {
        assert!(text.contains("sched_rt_runtime_us\n    failed: "), "{text}");
    }
    // The other findings depend on this machine.
    assert!(text.contains("\nnow: "), "{text}");
}

#[test]
fn plan_divides_a_break_out_link_among_its_ports() {
    let machine = fixture("four-nodes.txt");
    let plan = |link: &str| json_of(&["plan", "--link", link, "--json", "--sysroot", machine.to_str().unwrap()]).1;
    let [one, four] = ["100G", "4x25G"].map(plan);
    for key in ["packets_per_second", "bus_bits_per_second"] {
        assert_eq!(one["plan"][key], four["plan"][key], "{key}");
    }
    // 17.36 M packets/s need 3 cores; each port of 4.34 M packets/s needs one.
    let needed = |report: &Value| report["plan"]["needed_pipelines"].as_u64();
    assert_eq!((needed(&one), needed(&four), needed(&plan("2x50G"))), (Some(3), Some(4), Some(4)));
    assert_eq!(needed(&plan("10x10G")), Some(10));
    let (_, out, _) = weir(["plan", "--link", "4x25G", "--sysroot", machine.to_str().unwrap()]);
    assert!(out.contains("100 Gbit/s on 4 ports of 700-octet frames"), "{out}");
    for wrong in ["0x25G", "65x25G", "4x", "x25G", "4x25"] {
        assert_eq!(weir(["plan", "--link", wrong]).0, 1, "{wrong}");
    }
}

#[test]
fn plan_shows_cores_by_packet_size_and_losses_and_plots_them() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, plot) = (fixture("x8-slot.txt"), folder.path().join("cores.svg"));
    let [machine, plot] = [&machine, &plot].map(|path| path.to_str().unwrap());
    let arguments = ["plan", "--link", "100G", "-v", "--sysroot", machine, "--svg", plot];
    let (_, out, err) = weir(arguments);
    assert_eq!(err, "");
    let row =
        |name: &str| out.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{out}"));
    // 148.8 M packets/s at 7.4 M packets/s per core.
    assert_eq!(row("64  ").split_whitespace().collect::<Vec<_>>(), ["64", "148.81", "21"]);
    assert!(row("256  ").contains("45.29"), "{out}");
    // 8 lanes of generation 3 carry no line rate of whole frames of 100 Gbit/s, and of trimmed ones they do.
    assert!(row("whole").contains("never") && !row("trimmed to 64").contains("never"), "{out}");
    assert!(row("descriptors").contains("lost in 1 ms") && out.contains("no kernel has run on a GPU"), "{out}");
    let svg = std::fs::read_to_string(plot).unwrap();
    let svg = roxmltree::Document::parse(&svg).unwrap();
    assert!(svg.descendants().any(|node| node.has_tag_name("polyline")));
    // Without -v the tables are in the JSON only.
    let (_, out, _) = weir(["plan", "--link", "100G", "--sysroot", machine]);
    assert!(!out.contains("frame octets   M packets"), "{out}");
    let (_, report) = json_of(&["plan", "--link", "100G", "--json", "--sysroot", machine]);
    let capacity = &report["plan"]["capacity"];
    assert_eq!(capacity["sizes"].as_array().unwrap().len(), 7, "{capacity}");
    assert_eq!(capacity["pipelines"].as_array().unwrap().last().unwrap()["lost_share"], 0.0);
    let (code, _, err) = weir(["plan", "--link", "100G", "--sysroot", machine, "--svg", "/nonexistent/cores.svg"]);
    assert!(code == 1 && err.contains("/nonexistent/cores.svg"), "{err}");
}
