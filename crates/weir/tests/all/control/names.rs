//! `--names` of `weir view`, `weir probe` and `weir top`: names of hosts and services over HTTP.

use crate::read::names::{capture, question_and_answer};
use serde_json::{Value, json};
use testbed::namespace::until;
use testbed::served::Served;
use testbed::viewed::Viewed;
use testbed::{assert_usage_errors, command, success, text_of};

#[test]
fn a_view_knows_the_names_of_its_captures_and_stores() {
    let capture = capture(&[b"www"]);
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows").to_str().unwrap().to_owned();
    success(["read", "-q", capture.name(), "-o", &format!("parquet:{store}")]);
    for input in [capture.name(), &store] {
        let view = Viewed::start(&[input, "--names"]);
        assert_eq!(view.get("/about").json()["names"], true);
        let mut answer = Value::Null;
        until("the store is read", || {
            answer = view.get("/names?of=198.51.100.20,192.0.2.99,443/tcp,443/udp,53,40000/tcp").json();
            answer["complete"] == true
        });
        let names = &answer["names"];
        assert_eq!(names["198.51.100.20"], "www.example");
        assert_eq!(
            [&names["443/tcp"], &names["192.0.2.99"], &names["40000/tcp"]],
            [&json!("https"), &Value::Null, &Value::Null]
        );
        assert_eq!(names["53"], "domain");
        for wrong in ["", "?of=", "?of=x", "?of=1.2.3.4,", "?other=1"] {
            assert_eq!(view.get(&format!("/names{wrong}")).status, 400, "{wrong}");
        }
    }
    let view = Viewed::start(&[capture.name()]);
    assert_eq!(view.get("/about").json()["names"], false);
    assert_eq!(view.get("/names?of=1.2.3.4").status, 409);
}

#[test]
fn a_probe_learns_names_from_ended_flows() {
    let Some(mut served) = Served::start(&["--names", "--idle", "300ms"]) else { return };
    for frame in question_and_answer(1, b"www") {
        served.sender.send(&frame);
    }
    // An answer of an attacker, whose name acts on a terminal.
    for frame in question_and_answer(2, b"a\x1b[2J") {
        served.sender.send(&frame);
    }
    let mut name = String::new();
    until("both answers are learned", || {
        let names = served.get("/names?of=198.51.100.20").json();
        assert_eq!(names["complete"], true);
        name = names["names"]["198.51.100.20"].as_str().unwrap_or_default().into();
        name.ends_with(" …")
    });
    assert!(!name.contains('\u{1b}') && name.contains(".example"), "{name:?}");
    assert_eq!(served.get("/about").json()["names"], true);
    served.probe.stop(0);
    assert_usage_errors(&[
        (&["probe", "-i", "synth:mix", "--names"], "--listen"),
        (&["probe", "-i", "synth:mix", "--listen", "0", "--names", "--anonymise", "key"], "--anonymise"),
    ]);
}

#[test]
fn top_shows_names_and_local_time() {
    let capture = capture(&[b"www"]);
    let top = |arguments: &[&str]| {
        let mut command = command();
        command.arg("top").args(["--once", capture.name()]).args(arguments);
        let (code, out, err) = text_of(&command.env("TZ", "Asia/Kathmandu").env("COLUMNS", "200").output().unwrap());
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        out
    };
    let has = |out: &str, texts: &[&str]| {
        assert!(out.lines().any(|line| texts.iter().all(|text| line.contains(text))), "{texts:?}: {out}");
    };
    has(&top(&["--names"]), &["198.51.100.20 ", "www.example"]);
    has(&top(&["--names", "--list", "servers"]), &["198.51.100.20:443 ", "www.example:https"]);
    has(&top(&["--names", "--list", "flows"]), &["192.0.2.1:40000 → 198.51.100.20:443 ", "- → www.example:https"]);
    assert!(!top(&[]).contains("www.example"));
    let (utc, local) = (top(&["--list", "flows"]), top(&["--list", "flows", "--local-time"]));
    assert!(utc.contains("start UTC") && local.contains("start local") && local.contains("Asia/Kathmandu"), "{local}");
    let time = |text: &str| {
        let line = text.lines().find(|line| line.contains("198.51.100.20:443")).unwrap();
        let time = line.split_whitespace().last().unwrap();
        let parts: Vec<u32> = time.split([':', '.']).map(|part| part.parse().unwrap()).collect();
        parts[0] * 60 + parts[1]
    };
    // Nepal is 5:45 ahead of UTC.
    assert_eq!((time(&local) + 1440 - time(&utc)) % 1440, 345, "{utc}{local}");
    let view = Viewed::start(&[capture.name()]);
    let url = format!("http://{}", view.address);
    assert!(success(["top", "--once", "--names", &url]).contains("no names: "), "it was started without --names");
}
