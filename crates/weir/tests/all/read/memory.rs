//! Limits of memory: control groups, address space, locked memory.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testbed::namespace::{ip, network, until};
use testbed::{Pcap, command, failure, is_root, number, permit_all_users, read_ledger, signal, text_of};

const NOBODY_ID: u32 = 65534;
/// Most of the 2 M packets begin a flow. A full flow cache of the default size takes more than 200 MB.
const FLOOD: &str = "synth:velan,flows=4M,packets=2M";

/// A control group with a limit of memory. Removed when it is dropped.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// `None`, with a notice, if this machine does not let the test make one.
    fn new(name: &str, limit_bytes: u64) -> Option<Self> {
        let hierarchies = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        let make = |(root, limit): (&str, &str)| -> io::Result<Self> {
            if !Path::new(root).join("cgroup.procs").exists() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let group = Path::new(root).join(format!("weir-test-{name}-{}", std::process::id()));
            fs::create_dir(&group)?;
            let group = Self(group);
            fs::write(group.0.join(limit), limit_bytes.to_string())?;
            Ok(group)
        };
        let made = hierarchies.into_iter().map(make).find_map(Result::ok);
        if made.is_none() {
            eprintln!("SKIPPED: no control group with the memory controller can be made (needs root)");
        }
        made
    }

    /// The binary, in the group.
    fn command(&self, arguments: &[&str]) -> Command {
        let script = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(&self.0).arg(env!("CARGO_BIN_EXE_weir")).args(arguments);
        shell
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_flood_in_a_control_group_fills_a_smaller_flow_cache_and_nothing_is_killed() {
    let Some(group) = ControlGroup::new("flood", 300_000_000) else { return };
    for run in [&["read"][..], &["probe", "--interval", "1h"], &["probe", "--layout", "split", "--interval", "1h"]] {
        let folder = tempfile::tempdir().unwrap();
        permit_all_users(folder.path());
        let stats = folder.path().join("ledger.json");
        let options = ["-i", FLOOD, "-o", "json:/dev/null", "--stats", stats.to_str().unwrap()];
        let (code, _, err) = text_of(&group.run(&[run, &options].concat()));
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("the flow cache has fewer slots than by default"), "{err}");
        assert!(err.contains(group.0.to_str().unwrap()), "{err}");
        let ledger = read_ledger(&stats);
        assert_eq!(ledger["packets"]["metered"], 2_000_000, "{ledger}");
        assert!(number(&ledger["anomalies"]["overflow"]) > 0, "{ledger}");
    }
}

#[test]
fn requested_flow_caches_larger_than_a_control_group_are_refused_with_figures() {
    let Some(group) = ControlGroup::new("refusal", 400_000_000) else { return };
    for run in [&["read"][..], &["probe"], &["probe", "--layout", "spread", "--meters", "3"]] {
        let (code, out, err) = text_of(&group.run(&[run, &["-i", FLOOD, "--flows", "1M"]].concat()));
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        let caches = if run.len() > 1 { "the 3 flow caches" } else { "the flow cache" };
        let limit = format!("{}/memory.", group.0.display());
        for part in ["--flows 1000000: ", caches, "is 400 MB", &limit, "fits, or raise the limit"] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
}

#[test]
fn queues_of_live_sinks_leave_memory_for_flows() {
    // Traffic of other tests on lo could overflow the small ring.
    if !network() {
        return;
    }
    ip("link set lo up");
    let Some(group) = ControlGroup::new("queues", 410_000_000) else { return };
    let sinks: Vec<String> = (0..300).map(|port| format!("ipfix+udp://127.0.0.1:{}", 20_000 + port)).collect();
    let run = |sinks: &[String]| {
        let outputs = sinks.iter().flat_map(|sink| ["-o", sink]);
        let live = ["probe", "-i", "af_packet:right,blocks=4", "--interval", "1h", "--duration", "100ms"];
        text_of(&group.run(&live.into_iter().chain(outputs).collect::<Vec<_>>()))
    };
    let (code, _, err) = run(&sinks[..3]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("flows=131072"), "{err}");
    let (code, _, err) = run(&sinks);
    assert_eq!(code, 1, "{err}");
    for part in ["the default, reduced to 4096 flows: ", "name fewer sinks, or raise the limit"] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

#[test]
fn queues_of_packets_out_leave_memory_for_flows_or_are_refused() {
    let Some(group) = ControlGroup::new("egress", 400_000_000) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let run = |outputs: &[String]| {
        let rules = folder.path().join("rules.toml");
        fs::write(&rules, format!("[egress.ids]\noutputs = {outputs:?}\n")).unwrap();
        let options = ["-o", "json:/dev/null", "--rules", rules.to_str().unwrap()];
        text_of(&group.run(&[&["read", "-i", "synth:mix,packets=1000"], &options[..]].concat()))
    };
    let (code, _, err) = run(&[format!("pcap:{path}/one.pcap"), format!("folder:{path}/one?total=4GiB")]);
    assert_eq!(code, 0, "{err}");
    for scheme in ["pcap", "folder"] {
        // 16 MiB each.
        let outputs: Vec<_> = (0..30).map(|number| format!("{scheme}:{path}/{scheme}{number}")).collect();
        let (code, _, err) = run(&outputs);
        assert_eq!(code, 1, "{scheme}: {err}");
        for part in ["the default, reduced to 4096 flows: ", "raise the limit"] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
}

#[test]
fn a_reload_with_sinks_that_do_not_fit_is_refused_with_figures() {
    let Some(group) = ControlGroup::new("reload", 400_000_000) else { return };
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let [config, log] = ["probe.toml", "log"].map(|name| folder.path().join(name));
    let write = |first: u16, count| {
        let sinks: Vec<_> = (first..first + count).map(|port| format!("\"ipfix+udp://127.0.0.1:{port}\"")).collect();
        let text = format!("input = [\"-\"]\nflows = 1000\noutput = [{}]\n# {first} {count}\n", sinks.join(", "));
        fs::write(&config, text).unwrap();
        permit_all_users(&config);
    };
    write(20_000, 70);
    let mut probe = group.command(&["probe", "--config", config.to_str().unwrap()]);
    let mut probe = probe.stdin(Stdio::piped()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut input = probe.stdin.take().unwrap();
    input.write_all(&Pcap::new().0).unwrap();
    let logged = || fs::read_to_string(&log).unwrap();
    until("the probe runs", || logged().contains("active="));
    for (first, count, text) in [
        (20_000, 300, "the queues of 300 sinks (0 are being closed) can grow to "),
        // Sinks that are closed keep their queues until they have written their last records.
        (30_000, 70, "the queues of 140 sinks (70 are being closed) can grow to "),
        (20_000, 3, "configuration reloaded"),
    ] {
        write(first, count);
        signal(&probe, libc::SIGHUP);
        until(text, || logged().contains(text));
        assert!(
            logged().contains("name fewer sinks, change them in several reloads, or raise the limit and"),
            "{}",
            logged()
        );
    }
    drop(input);
    assert_eq!(probe.wait().unwrap().code(), Some(0), "{}", logged());
}

#[test]
fn a_reload_with_a_view_that_does_not_fit_is_refused_with_figures() {
    let Some(group) = ControlGroup::new("views", 400_000_000) else { return };
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let [config, log] = ["probe.toml", "log"].map(|name| folder.path().join(name));
    let write = |views: usize| {
        let view = |number| format!("\"table:{}/{number}.txt\"", folder.path().display());
        let views = (0..views).map(view).collect::<Vec<_>>();
        let text = format!(
            "input = [\"-\"]\nflows = 1000\nby = \"host\"\ngroups = \"1M\"\noutput = [{}]\n# {}\n",
            views.join(", "),
            views.len()
        );
        fs::write(&config, text).unwrap();
        permit_all_users(&config);
    };
    write(1);
    let mut probe = group.command(&["probe", "--config", config.to_str().unwrap()]);
    let mut probe = probe.stdin(Stdio::piped()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut input = probe.stdin.take().unwrap();
    input.write_all(&Pcap::new().0).unwrap();
    let logged = || fs::read_to_string(&log).unwrap();
    until("the probe runs", || logged().contains("active="));
    write(2);
    signal(&probe, libc::SIGHUP);
    until("the reload is refused", || logged().contains(" of groups of more views (--groups), and "));
    assert!(!logged().contains("configuration reloaded"), "{}", logged());
    drop(input);
    assert_eq!(probe.wait().unwrap().code(), Some(0), "{}", logged());
}

#[test]
fn requested_flow_caches_larger_than_the_memory_of_the_machine_are_refused() {
    for command in ["read", "probe"] {
        let err = failure(1, [command, "-i", "synth:velan,packets=1", "--flows", "2G"]);
        assert!(err.contains("do not fit into the memory that is free"), "{err}");
    }
}

#[test]
fn groups_of_views_that_do_not_fit_are_refused_with_figures() {
    let run = |command: &str, options: &str| {
        let script = format!("ulimit -v 500000; exec \"$0\" {command} -i {FLOOD} --by src_ip,src_port {options} -q");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]);
        text_of(&shell.output().unwrap())
    };
    let (code, _, err) = run("probe", "--groups 100M");
    assert!(code == 1 && err.contains(" and 100000000 groups of views "), "{err}");
    let (code, out, err) = run("read", "--groups 100M");
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    for part in
        [" and 100000000 groups of views ", " GB (--groups); these do not fit", "(ulimit -v is 512 MB); --groups "]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
    let advice = err.rsplit("; ").next().unwrap().split(' ').nth(1).unwrap().to_string();
    let (code, _, err) = run("read", &format!("--groups {advice} --where 'port 1'"));
    assert_eq!(code, 0, "--groups {advice}: {err}");
    let (code, _, err) = run("read", "");
    assert_eq!(code, 0, "{err}");
}

#[test]
fn a_default_flow_cache_fits_into_a_limited_address_space() {
    let rest = "exec \"$0\" probe -i synth:velan,packets=1k --interval 1h -o table:/dev/null";
    for (kilobytes, limit) in [(220_000, "225 MB"), (300_000, "307 MB"), (500_000, "512 MB")] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {kilobytes}; {rest}"), env!("CARGO_BIN_EXE_weir")]);
        let (code, _, err) = text_of(&shell.output().unwrap());
        assert_eq!(code, 0, "{err}");
        let limit = format!("ulimit -v is {limit}");
        assert!(err.contains("fewer slots than by default") && err.contains(&limit), "{err}");
    }
}

#[test]
fn locked_memory_is_touched_at_the_start() {
    if !is_root() {
        return eprintln!("SKIPPED: the limit of locked memory needs root");
    }
    let mut probe = command();
    probe.args(["probe", "-i", "-", "-q", "--flows", "100k", "--lock-memory", "-o", "table:/dev/null"]);
    let mut probe = probe.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = probe.stdin.take().unwrap();
    input.write_all(&Pcap::new().0).unwrap();
    let kilobytes = |key: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", probe.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    until("all memory is locked", || kilobytes("VmLck:") > 150_000 && kilobytes("VmRSS:") > 150_000);
    drop(input);
    let (code, _, err) = text_of(&probe.wait_with_output().unwrap());
    assert_eq!(code, 0, "{err}");
}

#[test]
fn memory_that_cannot_be_locked_is_refused_with_the_limit() {
    let script = "ulimit -l 64 && exec \"$0\" probe -i synth:velan,packets=1k -q --flows 1k -o table:/dev/null \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_weir"), "--lock-memory"]);
    if is_root() {
        shell.uid(NOBODY_ID).gid(NOBODY_ID);
    }
    let output = match shell.output() {
        Ok(output) if output.status.code() != Some(126) => output,
        _ => return eprintln!("SKIPPED: the user `nobody` cannot execute the binary"),
    };
    let (code, out, err) = text_of(&output);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("--lock-memory: ") && err.contains("(ulimit -l)") && err.contains("LimitMEMLOCK"), "{err}");
    assert!(failure(1, ["read", "-", "--lock-memory"]).contains("--lock-memory"));
}
