//! What `weir doctor` finds about a probe that is to run as a service: its configuration, and what the kernel, the
//! permissions and the folders of the machine have for it.

use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use testbed::namespace::until;
use testbed::{Background, command, free_port, is_root, permit_all_users, refused, text_of};

const OTHER_USER: u32 = 65_534;

/// Severity and sentence of the findings of a check.
fn findings<'a>(report: &'a Value, check: &str) -> Vec<(&'a str, &'a str)> {
    let all = report["findings"].as_array().unwrap();
    let of_check = all.iter().filter(|finding| finding["check"] == check);
    of_check.map(|finding| (finding["severity"].as_str().unwrap(), finding["summary"].as_str().unwrap())).collect()
}

/// The report of `weir doctor --json --config`.
fn report(mut command: Command, config: &str) -> Value {
    let output = command.args(["doctor", "--json", "--config", config]).output().unwrap();
    let (code, out, err) = text_of(&output);
    assert!(code == 0 || code == 2, "{code}: {err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

#[test]
fn all_that_is_wrong_with_configurations_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows").display().to_string();
    let text = format!("input = ['af_packet:lo']\noutput = ['parquet:{store}']\n");
    for (name, more) in [("a.toml", ""), ("b.toml", ""), ("c.toml", "lissten = '9477'\nidle = '5w'\n")] {
        fs::write(folder.path().join(name), format!("{text}{more}")).unwrap();
    }
    fs::write(folder.path().join("notes.txt"), "x").unwrap();
    let report = report(command(), folder.path().to_str().unwrap());
    let configurations = findings(&report, "configuration");
    let wrong: Vec<&str> =
        configurations.iter().filter(|(severity, _)| *severity == "critical").map(|(_, text)| *text).collect();
    assert_eq!(configurations.len(), 4, "{configurations:?}");
    assert!(wrong[0].contains("c.toml: line 4: idle: invalid value '5w'"), "{wrong:?}");
    assert!(wrong[1].contains("c.toml: line 3: lissten: unknown option; did you mean listen?"), "{wrong:?}");
    let [(severity, text)] = findings(&report, "store")[..] else { panic!("{report}") };
    assert_eq!(severity, "critical");
    assert!(text.contains("a.toml and ") && text.contains("b.toml both write to"), "{text}");
    assert!(findings(&report, "interface").is_empty(), "{report}");
    // The interfaces of the sources are examined.
    assert!(report["interfaces"].as_array().unwrap().iter().any(|name| name == "lo"), "{report}");
}

#[test]
fn a_file_of_rules_beside_that_of_its_probe_is_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let [probe, rules] = ["probe.toml", "rules.toml"].map(|name| folder.path().join(name));
    fs::write(&probe, format!("input = [\"synth:mix\"]\nrules = \"{}\"\n", rules.display())).unwrap();
    fs::write(&rules, "[recorder]\noutputs = [\"folder:/tmp/packets?total=4GiB\"]\n").unwrap();
    let path = folder.path().to_str().unwrap();
    let beside = report(command(), path);
    let of_files = findings(&beside, "configuration");
    assert!(of_files.len() == 1 && of_files[0].0 == "ok", "{of_files:?}");
    fs::write(&rules, "[recorder]\noutputs = [\"folder:/tmp/packets?total=much\"]\n").unwrap();
    let invalid = report(command(), path);
    let of_rules = findings(&invalid, "configuration")[0];
    assert!(of_rules.0 == "critical" && of_rules.1.contains("rules.toml: line 2"), "{of_rules:?}");
    fs::remove_file(&probe).unwrap();
    fs::remove_file(&rules).unwrap();
    let without = report(command(), path);
    assert_eq!(findings(&without, "configuration")[0].0, "critical", "{without}");
}

#[test]
fn an_interface_that_does_not_exist_is_a_finding_and_a_warning_if_the_probe_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    for (more, severity) in [("", "critical"), ("wait = true\n", "warning")] {
        fs::write(&file, format!("input = ['af_packet:lo', 'af_packet:none9']\n{more}")).unwrap();
        let report = report(command(), file.to_str().unwrap());
        let wanted = [(severity, "there is no interface none9, which a configuration names")];
        assert_eq!(findings(&report, "interface"), wanted, "{report}");
    }
}

#[test]
fn a_user_without_capabilities_is_told_which_are_missing() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can start a program as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let file = folder.path().join("probe.toml");
    fs::write(&file, "input = ['af_xdp:lo']\nforce = true\n").unwrap();
    let mut unprivileged = command();
    unprivileged.uid(OTHER_USER).gid(OTHER_USER);
    if unprivileged.arg("--version").output().is_err() {
        return eprintln!("SKIPPED: user {OTHER_USER} cannot execute the binary");
    }
    let mut unprivileged = command();
    unprivileged.uid(OTHER_USER).gid(OTHER_USER);
    let report = report(unprivileged, file.to_str().unwrap());
    let [(severity, text)] = findings(&report, "capabilities")[..] else { panic!("{report}") };
    assert_eq!(severity, "warning");
    assert_eq!(text, "this user may not capture: CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF is missing");
    assert!(report.to_string().contains("AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF"), "{report}");
}

#[test]
fn a_kernel_without_landlock_af_xdp_and_ipv6_is_told_with_what_needs_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    fs::write(
        &file,
        "input = ['af_xdp:lo']\nforce = true\noutput = ['ipfix+udp://[2001:db8::1]']\nlisten = '[::1]:9477'\n",
    )
    .unwrap();
    let xdp = (libc::SYS_socket, Some(libc::AF_XDP));
    let ipv6 = (libc::SYS_socket, Some(libc::AF_INET6));
    let with_families = report(refused(&[xdp, ipv6], libc::EAFNOSUPPORT), file.to_str().unwrap());
    for check in ["af_xdp", "ipv6"] {
        let [(severity, text)] = findings(&with_families, check)[..] else { panic!("{with_families}") };
        assert_eq!(severity, "critical", "{text}");
    }
    let text = with_families.to_string();
    assert!(
        text.contains("listen = \\\"[::1]:9477\\\" needs it") && text.contains("Use af_packet: in its place"),
        "{text}"
    );
    let landlock = (libc::SYS_landlock_create_ruleset, None);
    let without_landlock = report(refused(&[landlock], libc::EOPNOTSUPP), file.to_str().unwrap());
    let [(severity, text)] = findings(&without_landlock, "sandbox")[..] else { panic!("{without_landlock}") };
    assert_eq!(severity, "warning");
    assert!(text.contains("the kernel does not offer Landlock"), "{text}");
}

#[test]
fn full_and_read_only_folders_are_findings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let config = folder.path().join("probe.toml");
    for name in ["full", "read-only"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    fs::write(
        &config,
        format!(
            "input = ['af_packet:lo']\noutput = ['parquet:{path}/full/flows', 'json:{path}/read-only/flows.json']
             rules = '{path}/rules.toml'\n"
        ),
    )
    .unwrap();
    let rules = format!("[recorder]\noutputs = [\"folder:{path}/full/packets?total=4GiB\"]\n");
    fs::write(folder.path().join("rules.toml"), rules).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k none {path}/full && mount -t tmpfs -o ro none {path}/read-only && echo ready >&2
         head -c 1M /dev/zero >{path}/full/file 2>/dev/null; exec {} doctor --json --config {}",
        env!("CARGO_BIN_EXE_weir"),
        config.display()
    );
    let Ok(output) = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output() else {
        return eprintln!("SKIPPED: no namespaces");
    };
    let (_, out, err) = text_of(&output);
    if !err.contains("ready") {
        return eprintln!("SKIPPED: no namespaces: {err}");
    }
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let space = findings(&report, "space");
    assert!(space.len() == 3 && space.iter().all(|(severity, _)| *severity == "critical"), "{space:?}");
    assert!(space[0].1.ends_with("full/flows is full"), "{space:?}");
    assert!(space[1].1.ends_with("is on a file system that is mounted read-only"), "{space:?}");
    assert!(space[2].1.ends_with("full/packets is full"), "{space:?}");
}

#[test]
fn the_process_that_writes_to_a_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("probe.toml");
    let path = folder.path().display();
    let (store, spool) = (format!("{path}/flows"), format!("{path}/spool"));
    let text = format!(
        "input = ['synth:mix,duration=1h']
         output = ['parquet:{store}', 'ipfix+tcp://127.0.0.1:{}?spool={spool}']\n",
        free_port()
    );
    fs::write(&config, text).unwrap();
    let probe = Background::start(command().args(["probe", "-q", "--user", "root", "--config"]).arg(&config));
    let id = probe.0.id();
    for folder in [&store, &spool] {
        let wanted = ("ok", &*format!("process {id} writes to {folder}"));
        until("the folder is locked", || {
            findings(&report(command(), config.to_str().unwrap()), "store").contains(&wanted)
        });
    }
}
