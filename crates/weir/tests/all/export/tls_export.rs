//! Export over TLS: to collectors with certificates of all kinds, to one that is restarted, and to OpenSSL.

use super::certificates::{Authority, collect};
use super::tcp_export::{
    AGAIN, Collector, LOST, OPTIONS, UNREACHABLE, capture, count, decoded, exported, free_address, lines, records,
    wait_for_file,
};
use rustls::ServerConnection;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use testbed::decode::Decoder;
use testbed::namespace::{LEFT, RIGHT, Sender, ip, network, until};
use testbed::running::{Running, send_requests};
use testbed::{Background, command, is_installed, ledger_of, number, text_of, weir};

fn has_openssl() -> bool {
    let has = is_installed("openssl");
    if !has {
        eprintln!("SKIPPED: openssl is not installed");
    }
    has
}

#[test]
fn collectors_get_the_records_over_tls() {
    if !has_openssl() {
        return;
    }
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.sign("server", "DNS:collector.example,IP:127.0.0.1");
    authority.sign("client", "DNS:probe.example");
    let path = |name: &str| folder.path().join(name);
    let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| authority.path(name));
    let capture = capture(5000);
    let any = authority.server("server", None);
    let (ipfix, ipfix_address, ipfix_closed) = collect("127.0.0.1:0", any.clone());
    let (json, json_address, json_closed) = collect("127.0.0.1:0", authority.server("server", Some(&authority)));
    let json_address = json_address.replace("127.0.0.1", "localhost");
    let sinks = [
        format!("ipfix+tls://{ipfix_address}?template=full&ca={ca}"),
        format!("json+tls://{json_address}?ca={ca}&name=collector.example&cert={certificate}&key={key}"),
        format!("ipfix:{}", path("flows.ipfix").display()),
        format!("json:{}", path("flows.json").display()),
    ];
    let mut arguments = vec!["read", capture.name()];
    sinks.iter().for_each(|sink| arguments.extend(["-o", sink]));
    let (code, err, ledger) = ledger_of(&arguments);
    assert_eq!(code, 0, "{err}");
    // The sinks have waited until the collectors closed the connections.
    assert_eq!([&ipfix_closed, &json_closed].map(|closed| closed.load(Ordering::Relaxed)), [1, 1], "close_notify");
    let [ipfix, json] = [ipfix, json].map(Collector::stop);
    assert_eq!([ipfix.len(), json.len()], [1, 1]);
    let (records, decoder) = decoded(&ipfix[0]);
    assert!(records == Decoder::new().file(&fs::read(path("flows.ipfix")).unwrap()) && records.len() == 5000);
    assert_eq!(fs::read_to_string(path("flows.json")).unwrap().as_bytes(), json[0]);
    for (at, session) in [&ipfix[0], &json[0]].into_iter().enumerate() {
        let sink = &ledger["sinks"][at];
        assert_eq!(number(&sink["octets"]), session.len() as u64);
        assert_eq!(number(&sink["exported"]["flows"]), 5000);
    }
    assert_eq!(number(&ledger["sinks"][0]["messages"]), decoder.messages.len() as u64);
}

/// The error of `weir read` with a sink, of which nothing is exported.
fn refused(sink: &str, environment: &[(&str, &str)]) -> String {
    let capture = capture(1);
    let mut command = command();
    command.args(["read", capture.name(), "-o", sink]).envs(environment.iter().copied());
    let (code, _, err) = text_of(&command.output().unwrap());
    assert_eq!(code, 1, "{sink}: {err}");
    err
}

#[test]
fn a_sentence_says_what_is_wrong_with_certificates() {
    if !has_openssl() {
        return;
    }
    let [authority, other] = [Authority::new(), Authority::new()];
    authority.sign("server", "DNS:collector.example,IP:127.0.0.1");
    authority.sign_expired("expired", "IP:127.0.0.1");
    other.sign("client", "DNS:probe.example");
    let ca = authority.path("ca.pem");
    let (good, address, _) = collect("127.0.0.1:0", authority.server("server", None));
    let (expired, expired_address, _) = collect("127.0.0.1:0", authority.server("expired", None));
    let (demanding, demanding_address, _) = collect("127.0.0.1:0", authority.server("server", Some(&authority)));
    let client = format!("cert={}&key={}", other.path("client.pem"), other.path("client.key"));
    let other_ca = other.path("ca.pem");
    let cases: [(&str, String, &str); 5] = [
        (&address, format!("ca={other_ca}"), "signed the certificate of the collector; set ca= to the file of its CA"),
        (&address, format!("ca={ca}&name=other.example"), "the certificate of the collector is not for other.example;"),
        (&expired_address, format!("ca={ca}"), "the certificate of the collector has expired; renew it there"),
        (&demanding_address, format!("ca={ca}"), "the collector demands a client certificate; add cert=FILE and"),
        (&demanding_address, format!("ca={ca}&{client}"), "the collector refuses the client certificate of cert="),
    ];
    for (address, settings, sentence) in &cases {
        let err = refused(&format!("json+tls://{address}?{settings}"), &[]);
        assert!(err.contains(sentence), "{settings}: {err}");
    }
    let sink = format!("ipfix+tls://{address}");
    for (roots, sentence) in [
        (other_ca.as_str(), "no CA that this system trusts signed the certificate of the collector; add ca=FILE"),
        ("/dev/null", "this system has no certificates of authorities; install ca-certificates, or add ca=FILE"),
    ] {
        let err = refused(&sink, &[("SSL_CERT_FILE", roots), ("SSL_CERT_DIR", "/nowhere")]);
        assert!(err.contains(sentence), "{err}");
    }
    let (mut trusting, capture) = (command(), capture(1));
    trusting.args(["read", capture.name(), "-o", &sink]).env("SSL_CERT_FILE", &ca);
    let (code, _, err) = text_of(&trusting.output().unwrap());
    assert_eq!(code, 0, "{err}");
    let octets: usize = [expired, demanding].map(Collector::stop).iter().flatten().map(Vec::len).sum();
    assert_eq!(octets, 0);
    let octets: Vec<bool> = good.stop().iter().map(|session| !session.is_empty()).collect();
    assert_eq!(octets.iter().filter(|has| **has).count(), 1, "{octets:?}");
}

/// The usual first try: one certificate for both, made with the defaults of openssl, which makes that of a CA.
#[test]
fn a_certificate_of_a_ca_is_named_as_such() {
    if !has_openssl() {
        return;
    }
    let authority = Authority::new();
    let name = ["-addext", "subjectAltName=IP:127.0.0.1"];
    authority.openssl(
        &[&["req", "-x509", "-subj", "/CN=self", "-keyout", "self.key", "-out", "self.pem"][..], &name].concat(),
    );
    let (_collector, address, _) = collect("127.0.0.1:0", authority.server("self", None));
    let err = refused(&format!("json+tls://{address}?ca={}", authority.path("self.pem")), &[]);
    assert!(err.contains("is one of a CA, not of a server") && err.contains("basicConstraints=CA:FALSE"), "{err}");
}

/// The collector ends the session and reads nothing: what it lacks is not known, but that it lacks something.
#[test]
fn a_session_that_ends_unread_is_noticed() {
    if !has_openssl() {
        return;
    }
    let (authority, capture) = (Authority::new(), capture(8));
    authority.sign("server", "IP:127.0.0.1");
    let config = authority.server("server", None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut session = ServerConnection::new(config.clone()).unwrap();
            while session.is_handshaking() && session.complete_io(&mut stream).is_ok() {}
            // Records are there. The handshake may have read some of them: so the system says that others are unread.
            let _ = stream.peek(&mut [0]);
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            session.send_close_notify();
            let _ = session.write_tls(&mut stream);
        }
    });
    let sink = format!("json+tls://{address}?ca={}", authority.path("ca.pem"));
    let (_, _, err) = weir(["probe", "-i", capture.name(), "-o", &sink, "--timing", "sink_outage=200ms"]);
    assert!(err.contains("may lack the last records") || err.contains("connection to the collector is lost"), "{err}");
}

#[test]
fn files_of_tls_that_cannot_be_used_are_named() {
    if !has_openssl() {
        return;
    }
    let authority = Authority::new();
    ["client", "other"].iter().for_each(|name| authority.sign(name, "DNS:probe.example"));
    authority.openssl(&["ec", "-in", "client.key", "-out", "old.key", "-aes128", "-passout", "pass:weir"]);
    authority.openssl(&["pkcs8", "-topk8", "-in", "client.key", "-out", "new.key", "-passout", "pass:weir"]);
    let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| authority.path(name));
    let with_key = |name: &str| format!("ca={ca}&cert={certificate}&key={}", authority.path(name));
    for (settings, sentence) in [
        ("ca=/nowhere/ca.pem".to_owned(), "ca=/nowhere/ca.pem: No such file or directory"),
        (format!("ca={key}"), "there is no certificate in this file; name a file in PEM format"),
        (with_key("old.key"), "this key is encrypted; decrypt it with openssl pkey -in"),
        (with_key("new.key"), "this key is encrypted; decrypt it with openssl pkey -in"),
        (with_key("other.key"), "this key does not belong to the certificate of cert="),
        (with_key("client.pem"), "there is no private key in this file; name a file in PEM format"),
    ] {
        let err = refused(&format!("ipfix+tls://127.0.0.1:9?{settings}"), &[]);
        assert!(err.contains(sentence), "{settings}: {err}");
    }
}

#[test]
fn a_peer_without_tls_is_named() {
    if !has_openssl() {
        return;
    }
    let ca = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let sink = format!("json+tls://{}?ca={}", listener.local_addr().unwrap(), ca.path("ca.pem"));
    // A peer that says nothing is noticed by the time only.
    for (answer, sentence) in [
        (
            &b"220 welcome to a plain text server\r\n"[..],
            "the collector does not speak TLS on this port; name its port",
        ),
        (&b""[..], "the collector does not answer the TLS handshake; if it does not speak TLS on this port"),
    ] {
        let listener = listener.try_clone().unwrap();
        let collector = Collector::start(Box::new(move || {
            let (mut stream, _) = listener.accept().ok()?;
            stream.set_nonblocking(true).unwrap();
            stream.write_all(answer).unwrap();
            Some(Box::new(stream) as Box<dyn Read + Send>)
        }));
        let wait = if answer.is_empty() { "sink_connect=200ms" } else { "sink_connect=10m" };
        let capture = capture(1);
        let (code, _, err) = weir(["read", capture.name(), "-o", &sink, "--timing", wait]);
        assert!(code == 1 && err.contains(sentence), "{err}");
        collector.stop();
    }
}

#[test]
fn a_restarted_collector_gets_templates_and_what_has_waited() {
    if !has_openssl() || !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let authority = Authority::new();
    authority.sign("server", "IP:127.0.0.1");
    authority.sign_expired("expired", "IP:127.0.0.1");
    let [expired, good] = ["expired", "server"].map(|name| authority.server(name, None));
    for scheme in ["ipfix+tls", "json+tls"] {
        let folder = tempfile::tempdir().unwrap();
        let flows = folder.path().join("flows.json");
        let (collector, address, _) = collect("127.0.0.1:0", expired.clone());
        let sink = format!("{scheme}://{address}?ca={}", authority.path("ca.pem"));
        let json = format!("json:{}", flows.display());
        let sinks = ["-o", sink.as_str(), "-o", &json];
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
        probe.wait_for(UNREACHABLE);
        send_requests(&mut sender, 0..50);
        wait_for_file(&flows, 50);
        collector.stop();
        let (collector, _, _) = collect(&address, good.clone());
        probe.wait_for(AGAIN);
        until("the collector has the first records", || {
            collector.sessions().iter().map(|session| count(scheme, session)).sum::<usize>() == 50 * records(scheme)
        });
        collector.stop();
        probe.wait_for(LOST);
        send_requests(&mut sender, 50..100);
        wait_for_file(&flows, 100);
        let (collector, _, closed) = collect(&address, good.clone());
        probe.wait_for_another(AGAIN, 1);
        let times = [UNREACHABLE, LOST, AGAIN].map(|event| probe.times(event));
        let (err, _, ledger) = probe.stop(0);
        assert_eq!(times, [1, 1, 2], "{err}");
        assert!(err.contains("has expired; renew it") && err.contains("without an end of the TLS session"), "{err}");
        let sessions = collector.stop();
        assert_eq!(count(scheme, sessions.last().unwrap()), 50 * records(scheme), "{err}");
        assert_eq!((exported(&ledger), closed.load(Ordering::Relaxed)), (100, 1), "{ledger}");
        if scheme == "ipfix+tls" {
            let (_, decoder) = decoded(sessions.last().unwrap());
            assert!(decoder.templates_seen > 0 && sessions.last().unwrap()[16..18] == [0, 2]);
        }
    }
}

/// Whether a program listens at a port of 127.0.0.1.
fn is_listening(address: &str) -> bool {
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let sockets = fs::read_to_string("/proc/self/net/tcp").unwrap();
    sockets.lines().any(|line| line.contains(&format!(" 0100007F:{port:04X} 00000000:0000 0A ")))
}

#[test]
fn openssl_reads_all_records_with_each_version() {
    if !has_openssl() {
        return;
    }
    let (authority, capture) = (Authority::new(), capture(2000));
    authority.sign("server", "IP:127.0.0.1");
    authority.sign("client", "DNS:probe.example");
    let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| authority.path(name));
    for version in ["-tls1_2", "-tls1_3"] {
        let (address, out) = (free_address(), authority.path("out"));
        let mut server = Command::new("openssl");
        server.args(["s_server", "-quiet", "-naccept", "1", "-verify_return_error", "-Verify", "1", "-CAfile", &ca]);
        server.args(["-accept", &address, "-cert", &authority.path("server.pem")]);
        server.args(["-key", &authority.path("server.key"), version]);
        let log = authority.path("log");
        server.stdin(Stdio::piped()).stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&log).unwrap());
        let mut server = Background(server.spawn().unwrap());
        until("s_server listens", || is_listening(&address));
        let sink = format!("json+tls://{address}?ca={ca}&cert={certificate}&key={key}");
        let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink]);
        assert!(code == 0 && !err.contains("WARN"), "{version}: {err}{}", fs::read_to_string(&log).unwrap());
        server.0.wait().unwrap();
        assert_eq!((exported(&ledger), lines(&fs::read(&out).unwrap()).len()), (2000, 2000), "{version}");
    }
}
