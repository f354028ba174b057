//! `weir top` with servers that are no probe: answers that act on a terminal, none at all, refusals, wide characters.

use super::top::start;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use testbed::{command, failure, text_of};

/// Status and body for a path.
type Answer = fn(&str) -> (u16, String);

/// A server on loopback with these answers, and its URL.
pub(super) fn server(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap(), answer));
        }
    });
    format!("http://{address}")
}

fn serve(mut stream: TcpStream, answer: Answer) {
    let (mut request, mut octet) = (Vec::new(), [0]);
    while let Ok(1) = stream.read(&mut octet) {
        request.push(octet[0]);
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut request)).unwrap();
        let (status, body) = answer(text.split(' ').nth(1).unwrap().split('?').next().unwrap());
        let length = body.len();
        let _ = write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}");
    }
}

fn ok(body: &Value) -> (u16, String) {
    (200, body.to_string())
}

fn about() -> (u16, String) {
    ok(&json!({"program": "weir", "mode": "probe", "inputs": ["af_packet:eth0"], "history": "none"}))
}

fn hostile(path: &str) -> (u16, String) {
    let evil = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}\u{202e}\r\nevil";
    ok(&match path {
        "/about" => json!({"program": "weir", "mode": "probe", "inputs": [evil], "history": evil}),
        "/status" => json!({"interval": {"packets_per_second": 1}, "ledger": {"sinks": [{"sink": evil,
            "waiting": {"flows": 1}}]}}),
        _ => json!({"groups": [{"host": evil, "bytes": 7}], "matching": 1, "complete": false, "problems": [evil]}),
    })
}

#[test]
fn no_octet_of_an_answer_acts_on_the_terminal() {
    let url = server(hostile);
    let arguments = ["top", &url, "--once", "--interval", "200ms"];
    let (code, out, err) = text_of(&command().args(arguments).output().unwrap());
    assert_eq!(code, 2, "not all was read: {err}");
    assert!(out.contains("\\x1b]0;x\\x07\\x1b[2J") && !out.contains(['\u{1b}', '\u{7}', '\u{9b}', '\r']), "{out:?}");
    let terminal = start(&[&url, "--interval", "200ms"]);
    terminal.wait_for("\\x1b]0;x\\x07\\x1b[2J");
    terminal.keys("q");
    let written = terminal.written.clone();
    terminal.end_restored(Some(0));
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert!(!text.contains(['\u{7}', '\u{9b}', '\u{202e}']), "{text:?}");
}

#[test]
fn what_is_no_probe_is_named_with_its_url() {
    for (answer, status) in
        [((|_| (404, "<html>not found</html>".into())) as Answer, 404), (|_| (200, "<html>welcome</html>".into()), 200)]
    {
        let url = server(answer);
        let err = failure(1, ["top", &url, "--once"]);
        let expected = format!("{url} answers GET /about with status {status}, and is no HTTP interface of weir; name");
        assert!(err.contains(&expected), "{err}");
    }
    // It has the path, but not the next one.
    let url = server(|path| if path == "/about" { about() } else { (404, String::new()) });
    let err = failure(1, ["top", &url, "--once", "--interval", "200ms"]);
    assert!(err.contains(&format!("{url} answers with status 404 and no reason: is it the --listen address")), "{err}");
}

#[test]
fn a_server_that_accepts_and_never_answers_is_named_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let err = failure(1, ["top", &url, "--once", "--timing", "top_first=100ms"]);
    assert!(err.contains(&format!("{url}: no answer within 100ms: is the address right")), "{err}");
}

#[test]
fn once_waits_for_a_busy_probe_as_long_as_it_may() {
    let url = server(|path| match path {
        "/about" => about(),
        "/status" => ok(&json!({"interval": null, "ledger": {}})),
        _ => (429, json!({"error": "another search is running"}).to_string()),
    });
    let err = failure(1, ["top", &url, "--once", "--interval", "200ms", "--timing", "top_once=100ms"]);
    assert!(err.contains("no new answer: another search is running"), "{err}");
}
