//! docs/troubleshooting.md: the messages that it lists are those of the program.

use std::fs;
use std::net::TcpListener;
use testbed::failure;

const PAGE: &str = include_str!("../../../../../docs/troubleshooting.md");

/// The message in the list of the page that has these words. Dots stand for what differs.
fn message(words: &str) -> Vec<&'static str> {
    let messages =
        PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(message, _)| message));
    let message = messages.into_iter().find(|message| message.contains(words));
    message.unwrap_or_else(|| panic!("the page has no message with {words:?}")).split('…').map(str::trim).collect()
}

#[test]
fn messages_of_the_page_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let of_port = format!("listen = \"{port}\"\n");
    const TRAFFIC: &str = "input = [\"synth:mix,packets=10\"]\n";
    for (words, options) in [
        ("nothing to read", "flows = 4096\n"),
        ("unknown option", &format!("{TRAFFIC}ouput = [\"json:-\"]\n")),
        ("there is no interface", "input = [\"af_packet:eth9\"]\n"),
        ("needs TLS and a token", &format!("{TRAFFIC}listen = \"0.0.0.0:9477\"\n")),
        ("do not fit", &format!("{TRAFFIC}flows = \"2000M\"\n")),
        ("already in use", &format!("{TRAFFIC}{of_port}")),
    ] {
        fs::write(&file, options).unwrap();
        let err = failure(1, ["probe", "--config", file.to_str().unwrap()]);
        for part in message(words) {
            assert!(err.contains(part), "{part:?} is not in: {err}");
        }
    }
}
