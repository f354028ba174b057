//! Help texts, usage errors, completions and manual pages.

mod common;
use common::{arguments, weir, weir_with_closed_output};

const COMMANDS: [&str; 10] =
    ["read", "probe", "tcp", "synth", "bench", "doctor", "plan", "fields", "completions", "man"];

#[test]
fn without_a_command_it_prints_short_help() {
    let (code, out, err) = weir::<[&str; 0], _>([]);
    assert_eq!((code, err.as_str()), (0, ""));
    for command in COMMANDS {
        assert!(out.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {out}");
    }
}

#[test]
fn every_command_has_help_with_examples() {
    for command in COMMANDS {
        let (code, out, _) = weir([command, "--help"]);
        assert_eq!(code, 0);
        assert!(out.contains("Examples:") && out.contains(&format!("weir {command}")), "{out}");
    }
    let (code, out, _) = weir(["bench", "live", "--help"]);
    assert!(code == 0 && out.contains("Examples:") && out.contains("weir bench live"), "{out}");
    let (code, out, _) = weir(["--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("Exit codes:"), "{out}");
}

#[test]
fn examples_in_help_texts_are_not_wrapped() {
    for command in COMMANDS {
        let (_, help, _) = weir([command, "--help"]);
        let (_, examples) = help.split_once("Examples:").unwrap();
        // clap wraps at 100 columns and does not indent continuation lines.
        let lines: Vec<&str> = examples.lines().collect();
        let wrapped =
            lines.windows(2).find(|pair| pair[0].starts_with(' ') && !pair[1].is_empty() && !pair[1].starts_with(' '));
        assert_eq!(wrapped, None, "{command}");
    }
}

#[test]
fn the_version_is_one_line() {
    assert_eq!(weir(["--version"]), (0, format!("weir {}\n", env!("CARGO_PKG_VERSION")), String::new()));
}

#[test]
fn usage_errors_have_exit_code_1_and_a_reason() {
    for (arguments, reason) in [
        (&["nonsense"][..], "nonsense"),
        (&["read"], "nothing to read"),
        (&["read", "-", "-"], "only once"),
        (&["read", "-", "--idle", "5d"], "unit of time"),
        (&["read", "-", "--idle", "0"], "longer than 0"),
        (&["read", "-", "--active", "soon"], "soon"),
        (&["read", "-", "--flows", "0"], "must be from 1"),
        (&["read", "-", "--flows", "5G"], "must be from 1"),
        (&["read", "-", "--top", "-1"], "-1"),
        (&["read", "-", "--key", "vlan,color"], "color"),
        (&["read", "-", "--full", "panic"], "panic"),
        (&["read", "-", "--domain", "4294967296"], "4294967296"),
        (&["read", "-", "--unknown"], "--unknown"),
        (&["read", "-", "-o", "table:-", "-o", "json:-"], "mixed"),
        (&["read", "-", "-o", "csv:-", "--stats", "-"], "mixed"),
        (&["read", "-i", "synth:nonsense"], "synth:nonsense"),
        (&["read", "packets:x"], "This version reads files, pipes, generated traffic and af_packet:"),
        (&["read", "af_packet:weir-none"], "there is no interface 'weir-none'; there are: "),
        (&["read", "af_xdp:weir-none"], "there is no interface 'weir-none'"),
        (&["read", "-i", "af_xdp:lo,queue=2"], "did you mean queues?"),
        (&["read", "-i", "af_packet:lo,queue=2"], "did you mean queues?"),
        (&["read", "-", "-i", "af_packet:lo"], "af_packet:lo: live traffic is read alone"),
        (&["tcp", "af_packet:lo"], "weir tcp reads captures, not live traffic"),
        (&["synth", "nonsense", "-o", "x.pcap"], "nonsense"),
        (&["synth", "velan"], "--output"),
        (&["bench", "speed"], "flows"),
        (&["bench", "--rounds", "0"], "--rounds"),
        (&["doctor", "nonsense0"], "no interface 'nonsense0'"),
        (&["doctor", "--sysroot", "/nonsense"], "/nonsense"),
        (&["doctor", "--sysroot", "/dev/null"], "neither a folder nor a recording"),
        (&["doctor", "--fix", "--json"], "--fix"),
        (&["plan"], "--link"),
        (&["plan", "--link", "fast"], "suffix"),
        (&["plan", "--link", "0"], "must be from 1"),
        (&["plan", "--link", "10G", "--packet", "63"], "63"),
        (&["plan", "--link", "10G", "--mpps-per-core", "0"], "0.001"),
        (&["plan", "--link", "10G", "--mpps-per-core", "NaN"], "0.001"),
        (&["plan", "--link", "10G", "--iface", "nonsense0"], "no interface"),
        (&["plan", "--link", "10G", "--bench", "/dev/null"], "not JSON"),
        (&["completions", "dos"], "dos"),
    ] {
        let (code, out, err) = weir(arguments);
        assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}: {err}");
        assert!(err.contains(reason), "{arguments:?}: {err}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, out, _) = weir(["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("decap"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let (code, out, _) = weir(["man"]);
    assert_eq!(code, 0);
    assert!(out.contains(".TH weir 1"), "{out}");
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let (code, _, err) = weir(arguments!["man", "-o", pages]);
    assert_eq!(code, 0, "{err}");
    for page in ["", "-read", "-tcp", "-synth", "-bench", "-bench-live", "-doctor", "-plan", "-fields", "-man"] {
        let page = format!("weir{page}");
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains("Examples:"), "{page}");
    }
}

#[test]
fn the_fields_are_listed_with_their_names() {
    let (code, out, _) = weir(["fields"]);
    assert_eq!(code, 0);
    for field in ["src_ip", "rev_packets", "community_id", "iat_mean_ns"] {
        assert!(out.contains(field), "{field}: {out}");
    }
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    for arguments in [&["--help"][..], &["fields"], &["completions", "bash"], &["man"]] {
        let (code, err) = weir_with_closed_output(arguments);
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    }
}
