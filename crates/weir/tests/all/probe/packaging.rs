//! What packages install beside the program: units of systemd and configuration files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::{permit_all_users, success};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of `packaging`, with an interface that every machine has and folders of the test.
fn for_here(name: &str, folder: &Path) -> String {
    let text = fs::read_to_string(root().join("packaging").join(name)).unwrap();
    let here = folder.to_str().unwrap();
    ["/etc/weir", "/var/lib/weir", "/var/cache/weir"]
        .iter()
        .fold(text, |text, place| text.replace(place, here))
        .replace(":eth0", ":lo")
        .replace("user = \"weir\"", "user = \"root\"")
}

/// Copies files, and checks the first one as a configuration.
fn checked(names: &[&str], edit: impl Fn(String) -> String) -> String {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    fs::write(folder.path().join("networks.csv"), "prefix,name\n192.0.2.0/24,office\n").unwrap();
    for name in names {
        let file = folder.path().join(Path::new(name).file_name().unwrap());
        fs::write(&file, edit(for_here(name, folder.path()))).unwrap();
    }
    let config = folder.path().join(Path::new(names[0]).file_name().unwrap());
    success(["probe", "--config", config.to_str().unwrap(), "--check"])
}

#[test]
fn the_shipped_configuration_needs_only_the_name_of_an_interface() {
    let input_only = |text: String| text.replace("#input", "input");
    let plan = checked(&["probe.toml"], input_only);
    assert!(plan.contains("source     af_packet:lo\n") && plan.contains("http://127.0.0.1:9477"), "{plan}");
    assert!(plan.contains("parquet:") && plan.contains("keep=30d,20G"), "{plan}");
}

#[test]
fn options_in_comments_of_the_shipped_configuration_are_valid() {
    let uncommented = |text: String| {
        let line = |line: &str| {
            let option = line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
            option.unwrap_or(line).to_owned() + "\n"
        };
        text.lines().map(line).collect()
    };
    let plan = checked(&["probe.toml"], uncommented);
    assert!(plan.contains("idle 2m00s, active 5m00s"), "{plan}");
}

#[test]
fn the_shipped_examples_are_valid() {
    checked(&["examples/recorder.toml", "examples/recorder-rules.toml"], |text| text);
    checked(&["examples/af_xdp.toml"], |text| text);
}

#[test]
fn the_systemd_units_expose_little() {
    let folder = tempfile::tempdir().unwrap();
    let single = fs::read_to_string(root().join("packaging/weir.service")).unwrap();
    let instance = Command::new(root().join("scripts/instance-unit")).output().unwrap();
    assert!(instance.status.success(), "{instance:?}");
    let instance = String::from_utf8(instance.stdout).unwrap();
    assert!(instance.contains("--config /etc/weir/%i.toml\n") && !instance.contains("probe.toml"), "{instance}");
    for (name, unit) in [("weir.service", single), ("weir@.service", instance)] {
        // The program is not installed here.
        let unit = unit.replace("/usr/bin/weir", env!("CARGO_BIN_EXE_weir"));
        let path = folder.path().join(name);
        fs::write(&path, unit).unwrap();
        for arguments in [
            // Exposure 2.0 of 10; more is an error.
            &["security", "--no-pager", "--offline=true", "--threshold=20"] as &[_],
            &["verify", "--man=no"],
        ] {
            let mut analyze = Command::new("systemd-analyze");
            let Ok(output) = analyze.args(arguments).arg(&path).output() else {
                return eprintln!("SKIPPED: there is no systemd-analyze");
            };
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            if err.contains("unrecognized option") {
                return eprintln!("SKIPPED: this systemd-analyze is older than version 250");
            }
            assert!(output.status.success(), "{arguments:?}: {out}{err}");
            // Unknown settings, for example.
            assert!(!err.contains("weir"), "{arguments:?}: {err}");
        }
    }
}
