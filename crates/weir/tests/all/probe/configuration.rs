//! The configuration of `weir probe`: `--print-config`, `--check`, and options that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use testbed::{assert_usage_errors, failure, is_root, permit_all_users, success, weir};

#[test]
fn the_configuration_can_be_printed_read_again_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    let path = file.to_str().unwrap();
    let text = success(["probe", "-i", "synth:mix,packets=10", "--idle", "7s", "--cores", "0-0", "--print-config"]);
    fs::write(&file, &text).unwrap();
    let plan = success(["probe", "--config", path, "--active", "9s", "--check"]);
    for fact in [
        "source     synth:mix,packets=10",
        "idle 7.00s, active 9.00s",
        "cores      reading and metering 0; export any\n",
        "flow cache 1048576 slots per pipeline\n",
        "user       if started as root, drop to nobody after opening sources and sinks\n",
        "log        info and above, as text\n",
    ] {
        assert!(plan.contains(fact), "{fact}: {plan}");
    }
    success(["probe", "--config", path, "-q"]);

    fs::write(&file, "input = [\"synth:mix\"]\nflws = 7\n").unwrap();
    let err = failure(1, ["probe", "--config", path, "--check"]);
    assert!(err.contains("line 2: flws: unknown option; did you mean flows?"), "{err}");

    for (sink, problem) in [
        ("ipfix+udp://127.0.0.1:9?fields=octetDeltaCount,octetDeltacount", "(did you mean octetDeltaCount?)"),
        ("netflow9+udp://127.0.0.1:9?template=nfdum", "template must be basic, full, nfdump,"),
    ] {
        fs::write(&file, format!("input = [\"synth:mix\"]\noutput = [\"{sink}\"]\n")).unwrap();
        let err = failure(1, ["probe", "--config", path, "--check"]);
        assert!(err.contains(sink) && err.contains(problem), "{err}");
    }
}

#[test]
fn control_characters_of_the_configuration_file_are_not_printed() {
    const VALUE: &str = r"\u001b]0;owned\u0007\u009b2J\u007f\nuser       root";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    let path = file.to_str().unwrap();
    for text in [
        format!("input = [\"{VALUE}\"]\noutput = [\"json:flows{VALUE}\"]\nuser = \"{VALUE}\"\n"),
        format!("input = [\"a\"]\n\"{VALUE}\" = 1\n"),
        format!("input = [\"a\"]\nidle = \"{VALUE}\"\n"),
        "input = [\"a\"] \u{1b}]0;owned\u{9b}2J".into(),
    ] {
        fs::write(&file, &text).unwrap();
        for option in ["--check", "--print-config"] {
            let (_, out, err) = weir(["probe", "--config", path, option]);
            let all = out.clone() + &err;
            assert!(!all.is_empty());
            assert!(!all.chars().any(|letter| letter.is_control() && letter != '\n'), "{all:?}");
            assert!(!out.contains("\nuser       root"), "{out}");
        }
    }
    // The printed file has the same values.
    fs::write(&file, format!("input = [\"{VALUE}\"]\nuser = 'a\"\\b'\n")).unwrap();
    let printed = success(["probe", "--config", path, "--print-config"]);
    assert!(printed.contains(&format!("input = [\"{}\"]", VALUE.replace(r"\n", r"\u000a"))), "{printed}");
    fs::write(&file, &printed).unwrap();
    assert_eq!(success(["probe", "--config", path, "--print-config"]), printed);
}

#[test]
fn configuration_files_of_the_fuzzer_are_refused_or_printed_and_read_again() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/config");
    let printed = tempfile::NamedTempFile::new().unwrap();
    let mut accepted = 0;
    for seed in fs::read_dir(seeds).unwrap().map(|seed| seed.unwrap().path()) {
        let print = |file: &Path| weir(["probe", "--config", file.to_str().unwrap(), "--print-config"]);
        let (code, text, err) = print(&seed);
        assert!(code == 0 || code == 1 && err.starts_with("weir: "), "{}: {code}\n{err}", seed.display());
        if code == 0 {
            fs::write(printed.path(), &text).unwrap();
            assert_eq!(print(printed.path()), (0, text, String::new()), "{}", seed.display());
            accepted += 1;
        }
    }
    assert!(accepted > 0, "no seed is a valid configuration");
}

#[test]
fn check_lists_the_problems_of_all_outputs_and_changes_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(path("folder")).unwrap();
    let old = success(["read", "-q", "synth:mix,packets=9", "-o", "csv:-"]);
    for (name, content) in [
        ("text.csv", "date\n"),
        ("columns.csv", "start_time,end_time\n"),
        ("text.ipfix", "date\n"),
        ("old.csv", old.as_str()),
        ("cut.csv", &old[..old.len() - 9]),
        ("ledger.json", "{}\n"),
    ] {
        fs::write(path(name), content).unwrap();
    }
    std::os::unix::fs::symlink(path("ledger.json"), path("link.csv")).unwrap();
    std::os::unix::fs::symlink(path("nothing"), path("dangling.json")).unwrap();
    let before = names_and_contents(folder.path());
    let other = "the file exists and has another format or other columns, or is damaged, so records cannot be appended; \
                 name another file, or move this one away";
    let problems = [
        (format!("csv:{}", path("folder")), "Is a directory (os error 21); name a file in it"),
        (path("text.csv"), other),
        (path("columns.csv"), other),
        (path("text.ipfix"), other),
        (path("link.csv"), "this is a symbolic link; name the file itself, or - for standard output"),
        (path("dangling.json"), "this is a symbolic link; name the file itself, or - for standard output"),
        ("/proc/x.csv".into(), "No such file or directory (os error 2); does its directory exist?"),
        (path("none/f-%Y%m%d-%H.csv?rotate=1h"), "No such file or directory (os error 2); does its directory exist?"),
    ];
    let valid =
        [path("old.csv"), path("cut.csv"), path("new.csv.gz"), "csv:-".into(), path("f-%Y%m%d-%H.json?rotate=1h")];
    let check = |sinks: &[&String], stats: &str| {
        let sinks = sinks.iter().flat_map(|sink| ["-o", sink.as_str()]);
        let user = ["probe", "-i", "synth:mix,packets=9", "--check", "--user", "root", "--stats", stats];
        weir(user.into_iter().chain(sinks))
    };
    let all: Vec<&String> = problems.iter().map(|(sink, _)| sink).chain(&valid).collect();
    let (code, out, err) = check(&all, &path("folder"));
    assert!(code == 1 && out.contains("flow cache"), "{code}: {out}{err}");
    let with_scheme = |sink: &str| match sink.rsplit_once('.') {
        Some((_, ending)) if !sink.starts_with("csv:") => format!("{}:{sink}", ending.split('?').next().unwrap()),
        _ => sink.into(),
    };
    let mut expected: Vec<_> =
        problems.iter().map(|(sink, problem)| format!("weir: {}: {problem}", with_scheme(sink))).collect();
    expected.push(format!("weir: {}: Is a directory (os error 21); name a file in it", path("folder")));
    assert_eq!(err.lines().collect::<Vec<_>>(), expected);
    // As a running probe does.
    let locked = fs::File::open(path("old.csv")).unwrap();
    locked.lock().unwrap();
    let (code, _, err) = check(&valid.iter().collect::<Vec<_>>(), &path("ledger.json"));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(names_and_contents(folder.path()), before);
}

/// All files of a folder.
fn names_and_contents(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap_or_default()))
        .collect();
    files.sort();
    files
}

#[test]
fn check_lists_all_invalid_options() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    fs::write(&file, "flws = 7\nactive = \"x\"\nlayer2 = 1\nmeters = 3\n").unwrap();
    let arguments = "probe --check -i synth:mix -i a.pcap -i a.pcap -i af_packet:lo,timestamps=hardware --idle 5w \
                     --user weir-none --by hots,src_ip -o xml:a -o ipfix+udp://192.0.2.1:8O --cores 1023 --wait \
                     -o table:/weir-none/t --networks /weir-none/n.csv --geo /weir-none/g.mmdb \
                     --tags a=/weir-none/a --tags b=/weir-none/b --config";
    let with_spaces = [file.to_str().unwrap(), "--where=port x", "-f", "foo bar", "-o", "csv:b?where=port 8O"];
    let (code, out, err) = weir(arguments.split(' ').chain(with_spaces));
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    let beginnings = [
        "invalid value '5w' for '--idle <TIME>': ",
        "invalid value 'port x' for '--where <EXPRESSION>': ",
        "invalid value 'hots' for '--by <FIELD>': ",
        "FILE: line 2: active: ",
        "FILE: line 1: flws: unknown option; did you mean flows?",
        "FILE: line 3: layer2: use true or false",
        "--user weir-none: no such user; ",
        "filter \"foo bar\": ",
        "xml:a: there is no sink xml:; ",
        "csv:b: where: \"8O\" is not a number, and port is a port, from 0 to 65535",
        "ipfix+udp://192.0.2.1:8O: the port must be a number from 1 to 65535",
        "a.pcap is named twice: ",
        "--cores: core 1023 is not available",
        "--meters needs --layout spread: ",
        "a.pcap: No such file or directory",
        "af_packet:lo,timestamps=hardware: timestamps=hardware: the NIC cannot time-stamp every frame",
        "table:/weir-none/t: No such file or directory",
        "--wait: af_packet:lo,timestamps=hardware cannot attach to an interface again; ",
        "--networks /weir-none/n.csv: No such file or directory",
        "--geo /weir-none/g.mmdb: No such file or directory",
        "--tags a /weir-none/a: No such file or directory",
        "--tags b /weir-none/b: No such file or directory",
    ];
    let err = err.replace(file.to_str().unwrap(), "FILE");
    let lines: Vec<_> = err.lines().map(|line| line.strip_prefix("weir: ").unwrap()).collect();
    for beginning in beginnings {
        assert_eq!(lines.iter().filter(|line| line.starts_with(beginning)).count(), 1, "{beginning}: {err}");
    }
    assert_eq!(lines.len(), beginnings.len(), "{err}");
}

#[test]
fn check_lists_what_is_wrong_with_a_sink_beside_an_invalid_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    for (view, order) in [("", "there is no field \"foo\""), ("by = \"host\"\n", "a view has no number \"foo\"")] {
        let text = "input = [\"synth:mix\"]\nsort = \"foo\"\nstatus = \"xml\"\n\
                    output = [\"table:/nonexist/a\", \"f-%H.csv?rotate=5m\", \"csv:b?fields=x\"]\n";
        fs::write(&file, format!("{text}{view}")).unwrap();
        let err = failure(1, ["probe", "--check", "--config", file.to_str().unwrap()]);
        let err = err.replace(file.to_str().unwrap(), "FILE");
        for problem in [
            &format!("--sort: {order}"),
            "table:/nonexist/a: No such file or directory",
            "f-%H.csv?rotate=5m: ",
            "csv:b?fields=x: ",
            "FILE: line 3: status: invalid value 'xml' for '--status <FORMAT>' [possible values: text, json]",
        ] {
            let is_named = |line: &&str| line.contains(problem);
            assert_eq!(err.lines().filter(is_named).count(), 1, "{problem}: {err}");
        }
        assert_eq!(err.lines().count(), 5, "{err}");
    }
}

#[test]
fn check_refuses_wait_for_a_source_that_cannot_wait() {
    // No interface has to exist.
    for (source, can_wait) in [
        ("af_packet:weir-none", true),
        ("af_packet:weir-none,queues=2", false),
        ("af_packet:weir-none+weir-other,fanout=7", false),
        ("af_packet:weir-none,timestamps=hardware", false),
        ("af_xdp:weir-none,queues=0", true),
        ("af_xdp:weir-none,queues=0-1", false),
    ] {
        let check = ["probe", "-i", source, "--wait", "-o", "csv:/dev/null", "--check"];
        if can_wait {
            success(check);
        } else {
            let err = failure(1, check);
            assert!(err.contains(&format!("--wait: {source} cannot attach to an interface again; ")), "{err}");
            // Without --check, too, before anything is waited for.
            assert_eq!(failure(1, &check[..6]), err);
        }
    }
}

#[test]
fn a_folder_of_rotated_files_that_the_user_of_the_probe_cannot_write_is_refused() {
    if !is_root() {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let sink = format!("csv:{}/f-%Y%m%d-%H%M%S.csv?rotate=1s", folder.path().display());
    let probe = ["probe", "-i", "synth:mix,packets=9", "-o", &sink];
    for more in [&["--check"][..], &[]] {
        let (code, _, err) = weir(probe.iter().chain(more));
        assert!(
            code == 1 && err.contains(" (--user), who cannot create files in this folder: Permission denied"),
            "{code}: {err}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    permit_all_users(folder.path());
    success(probe.iter().chain(&["--check"]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn usage_errors_are_reported_before_any_output_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.csv");
    let sink = format!("csv:{}", output.display());
    for (arguments, reason) in [
        (&["probe"][..], "nothing to read"),
        (&["probe", "-i", "af_packet:nowhere0"], "nowhere0"),
        (&["probe", "-i", "synth:mix", "--cores", "3-1"], "neither a core number nor a range"),
        (&["probe", "-i", "synth:mix", "--cores", "1023"], "core 1023 is not available"),
        (&["probe", "-i", "synth:mix", "--config", "/nonexistent"], "(os error 2); is the name right?"),
        (&["probe", "-i", "synth:mix", "--filter", "host ("], "filter"),
    ] {
        let err = failure(1, arguments.iter().copied().chain(["-o", &sink]));
        assert!(err.contains(reason), "{arguments:?}: {err}");
        assert!(!output.exists(), "{arguments:?}");
    }
    if is_root() {
        assert_usage_errors(&[(&["probe", "-i", "synth:mix,packets=10", "--user", "no-such-user"], "no such user")]);
    }
}

#[test]
fn options_without_effect_are_refused_and_check_prints_the_plan() {
    assert_usage_errors(&[
        (&["probe", "-i", "synth:mix", "--meters", "3"], "needs --layout spread"),
        (
            &["probe", "-i", "synth:mix", "--layout", "split", "--dpi", "light"],
            "--dpi light and full need --layout fused",
        ),
    ]);
    let more = ["--layout", "spread", "--meters", "3", "--autotune=2s", "--busy-poll", "--batch", "9", "--sample", "5"];
    let plan = success(["probe", "-i", "synth:mix", "--check"].into_iter().chain(more));
    for fact in [
        "3 metering threads",
        "inspection none, because metering threads get no payload",
        "2.00s per trial",
        "busy",
        "9 packets",
        "sampling   meter one packet in 5\n",
    ] {
        assert!(plan.contains(fact), "{fact}: {plan}");
    }
    let sinks = ["-o", "ipfix+udp://192.0.2.1?mtu=1300&where=tcp", "-o", "csv:-?fields=src_ip", "-o", "json:/dev/null"];
    let plan = success(["probe", "-i", "synth:mix", "--check"].into_iter().chain(sinks));
    for facts in [
        "sink       ipfix+udp://192.0.2.1?mtu=1300&where=tcp\n\
         settings   ipfix+udp: template=basic, refresh=60, mtu=1300, rate=10000\n",
        "sink       csv:-?fields=src_ip\nsettings   csv: fields=src_ip\n",
        "sink       json:/dev/null\nsettings   json: none\n",
    ] {
        assert!(plan.contains(facts), "{facts}: {plan}");
    }
    if is_root() && Command::new("setpriv").arg("--version").output().is_ok() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_weir"), "probe"]);
        command.args(["-i", "synth:mix,packets=9"]);
        let output = command.args(["--user", "daemon", "-o", "json:/dev/null"]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        // That user may have no permission to execute the binary.
        if output.status.code() != Some(126) && !err.contains("failed to execute") {
            assert!(output.status.code() == Some(1) && err.contains("only root can become another user"), "{err}");
        }
    }
}
