//! What a probe says when something around it is missing: one sentence, with what to do.

use std::fs;
use std::process::Command;
use testbed::namespace::{ip, network};
use testbed::running::{Running, wire};
use testbed::served::Served;
use testbed::{failure, refused, success, text_of, weir};

/// The message of a command that fails, without line breaks.
fn refusal(command: &mut Command, arguments: &[&str]) -> String {
    let (code, _, err) = text_of(&command.args(arguments).output().unwrap());
    assert_eq!(code, 1, "{err}");
    err.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_kernel_without_af_xdp_names_the_other_source() {
    if !network() {
        return;
    }
    let mut command = refused(&[(libc::SYS_socket, Some(libc::AF_XDP))], libc::EAFNOSUPPORT);
    let err = refusal(&mut command, &["probe", "-i", "af_xdp:right,attach=generic"]);
    assert!(err.contains("the kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use af_packet:"), "{err}");
}

#[test]
fn without_ipv6_an_ipv4_address_is_asked_for() {
    for (arguments, wanted) in [
        (
            &["probe", "--listen", "[::1]:9477", "-i"][..],
            "no IPv6 at this address (ip -6 address shows all): listen on 127.0.0.1",
        ),
        (&["probe", "-o", "ipfix+udp://[2001:db8::1]", "-i"], "name an IPv4 address of the collector"),
        (&["read", "-o", "ipfix+tcp://[2001:db8::1]", "-i"], "name an IPv4 address of the collector"),
    ] {
        let mut command = refused(&[(libc::SYS_socket, Some(libc::AF_INET6))], libc::EAFNOSUPPORT);
        let err = refusal(&mut command, &[arguments, &["synth:velan,flows=10,packets=100", "--quiet"]].concat());
        assert!(err.contains(wanted), "{err}");
    }
}

#[test]
fn a_probe_whose_machine_loses_ipv6_says_so_and_goes_on() {
    if !network() {
        return;
    }
    if fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").is_err() {
        return eprintln!("SKIPPED: this machine has no IPv6 to switch off");
    }
    let (code, _, err) =
        weir(["probe", "-i", "synth:velan,flows=10,packets=100", "--quiet", "-o", "ipfix+udp://[2001:db8::1]"]);
    assert_eq!(code, 2, "{err}");
    let wanted = "this machine has no IPv6, or no address for it: name an IPv4 address";
    assert!(err.contains("collector cannot be reached") && err.contains(wanted), "{err}");
}

#[test]
fn a_kernel_without_landlock_is_a_warning_of_a_quiet_probe() {
    let mut command = refused(&[(libc::SYS_landlock_create_ruleset, None)], libc::EOPNOTSUPP);
    command.args(["probe", "-i", "synth:velan,flows=10,packets=100", "--quiet", "-o", "json:/dev/null"]);
    let (code, _, err) = text_of(&command.output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("warning: sandbox is incomplete") && err.contains("missing=Landlock"), "{err}");
}

#[test]
fn what_a_probe_lacks_is_among_the_findings_of_its_interface() {
    let Some(sender) = wire() else { return };
    ip("link set lo up");
    let command = refused(&[(libc::SYS_landlock_create_ruleset, None)], libc::EOPNOTSUPP);
    let probe = Running::start_in(command, &["probe", "-i", "af_packet:right", "--listen", "0"]);
    let doctor = Served::of(probe, sender).get("/doctor").json();
    let mut findings = doctor["findings"].as_array().unwrap().iter();
    let found = findings.find(|finding| finding["check"] == "sandbox").unwrap_or_else(|| panic!("{doctor}"));
    assert!(found["severity"] == "warning" && found["summary"].to_string().contains("Landlock"), "{found}");
}

/// `/etc` of a machine may be read-only, and `/srv` of a service is.
#[test]
fn a_probe_needs_no_writable_configuration_and_says_what_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let script = format!(
        "mount -t tmpfs none {path} && echo \"input = ['synth:velan,flows=10,packets=100']\" >{path}/probe.toml
         mount -o remount,ro {path} && echo ready >&2
         {weir} probe --config {path}/probe.toml --check >/dev/null && {weir} probe --config {path}/probe.toml --quiet -o json:/dev/null
         echo $? >&2; exec {weir} probe --config {path}/probe.toml --quiet --user root -o parquet:{path}/flows",
        weir = env!("CARGO_BIN_EXE_weir")
    );
    let Ok(output) = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output() else {
        return eprintln!("SKIPPED: no namespaces");
    };
    let (code, _, err) = text_of(&output);
    let Some((_, err)) = err.split_once("ready\n") else { return eprintln!("SKIPPED: no namespaces: {err}") };
    // The first probe has ended with 0.
    assert!(code == 1 && err.lines().any(|line| line == "0"), "{code}: {err}");
    assert!(err.contains("Read-only file system") && err.contains("in a service ReadWritePaths="), "{err}");
}

/// The keys of a file that `--print-config` has printed: those that have no value are comments.
fn keys(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim_start_matches("# "));
    let of_line = |line: &str| {
        let (key, _) = line.split_once(" =")?;
        let is_key = key.bytes().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-');
        (is_key && !key.is_empty()).then(|| key.to_owned())
    };
    lines.filter_map(of_line).collect()
}

/// A new version adds its file, printed by `weir probe --print-config`.
#[test]
fn files_of_earlier_versions_are_read_or_say_what_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let now = keys(&success(["probe", "--print-config"]));
    assert!(now.len() > 50 && now.iter().any(|key| key == "listen"), "{now:?}");
    for (version, text) in [("0.1.0", include_str!("configurations/0.1.0.toml"))] {
        let file = folder.path().join(format!("{version}.toml"));
        let file = file.to_str().unwrap();
        let (gone, left): (Vec<_>, Vec<_>) = keys(text).into_iter().partition(|key| !now.contains(key));
        assert!(left.len() > 50, "{version}: {left:?}");
        for key in gone {
            fs::write(file, format!("{key} = 1\n")).unwrap();
            let err = failure(1, ["probe", "--config", file, "--check"]);
            assert!(err.contains("this option was"), "{version}: {err}");
        }
        fs::write(file, text).unwrap();
        let (code, _, err) = weir(["probe", "--config", file, "-i", "synth:velan,flows=1", "--check"]);
        assert!(code == 0 || err.contains("this option was"), "{version}: {err}");
    }
}

#[test]
fn a_file_of_another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    let printed = success(["probe", "--print-config"]).replacen(env!("CARGO_PKG_VERSION"), "9.8.7", 1);
    fs::write(&file, format!("{printed}zzzz-of-the-future = 1\n")).unwrap();
    for check in [&[][..], &["--check"]] {
        let err = failure(1, [&["probe", "--config", file.to_str().unwrap()], check].concat());
        let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = concat!("the file is of weir 9.8.7, and this is weir ", env!("CARGO_PKG_VERSION"));
        assert!(err.contains("zzzz-of-the-future: unknown option: ") && err.contains(wanted), "{err}");
    }
}
