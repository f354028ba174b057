//! `weir health`: what a health check of a container asks.

use super::http::certificate;
use std::io::{Read, Write};
use std::net::TcpListener;
use testbed::namespace::{ip, until};
use testbed::served::{Served, TOKEN, token_file};
use testbed::{failure, is_installed, success, weir};

#[test]
fn a_probe_is_alive_and_ready_until_an_interface_is_down() {
    let Some(served) = Served::start(&[]) else { return };
    let url = format!("http://{}", served.address);
    assert_eq!(success(["health", &url]), format!("{url}: alive\n"));
    assert_eq!(success(["health", &url, "--ready"]), format!("{url}: ready\n"));
    ip("link set left down");
    until("the probe is not ready", || weir(["health", &url, "--ready"]).0 == 1);
    let err = failure(1, ["health", &url, "--ready"]);
    assert_eq!(err, format!("weir: {url}: not ready: interface right is down, or has no link\n"));
    assert_eq!(success(["health", &url]), format!("{url}: alive\n"));
    served.probe.stop(0);
    let err = failure(1, ["health", &url]);
    assert!(err.contains("nothing listens there (weir probe --listen PORT)"), "{err}");
}

#[test]
fn beyond_loopback_it_needs_the_certificates_and_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let (_token_folder, token) = token_file(TOKEN, 0o600);
    let token = token.to_str().unwrap();
    if !is_installed("openssl") {
        return eprintln!("SKIPPED: openssl is not installed");
    }
    let [cert, key] = certificate(folder.path());
    let options = ["--listen", "192.0.2.1:0", "--token-file", token, "--tls-cert", &cert, "--tls-key", &key];
    let Some(served) = Served::start(&options) else { return };
    let url = format!("https://{}", served.address);
    assert_eq!(success(["health", &url, "--ca", &cert, "--token-file", token]), format!("{url}: alive\n"));
    for (options, reason) in [
        (&[][..], "an https:// URL needs --ca FILE"),
        (&["--ca", &cert], "--token-file FILE has the token of the probe"),
        (&["--ca", "/nonexistent"], "--ca: /nonexistent"),
    ] {
        let err = failure(1, [&["health", &url], options].concat());
        assert!(err.split_whitespace().collect::<Vec<_>>().join(" ").contains(reason), "{err}");
    }
    let err = failure(1, ["health", "http://192.0.2.1:9477", "--token-file", token]);
    assert!(err.contains("over http the token could be read on the way"), "{err}");
    served.probe.stop(0);
}

#[test]
fn what_is_no_probe_or_does_not_answer_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let err = failure(1, ["health", &url, "--timeout", "200ms"]);
    assert!(err.contains("no answer within 200ms"), "{err}");
    let other = std::thread::spawn(move || {
        // The connection that was not answered comes first.
        let bodies = ["<html>", "<html>", "{\"status\":\"DOWN\"}", "{\"error\":\"gone\"}"];
        for (body, stream) in bodies.into_iter().zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    for _ in 0..3 {
        let err = failure(1, ["health", &url]);
        assert!(err.contains("answers GET /health with status 200, and is no HTTP interface of weir"), "{err}");
    }
    other.join().unwrap();
}
