//! `weir bypass`: the flows that Suricata names in its EVE file are overridden. The events are as in
//! Suricata's documentation of EVE.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use testbed::namespace::{BOUND, until};
use testbed::served::{Overridden, Served, TOKEN, token_file};
use testbed::{Background, assert_usage_errors, command, failure, is_installed, request_and_response, signal};

/// An alert about the flow of a client, from the server's side.
fn alert(client: u16, signature: u32) -> String {
    let [high, low] = client.to_be_bytes();
    format!(
        "{{\"timestamp\":\"2026-11-23T02:13:41.532140+0000\",\"flow_id\":16767501156126{client:02},\"in_iface\":\"ids0\",\
         \"event_type\":\"alert\",\"src_ip\":\"10.1.0.1\",\"src_port\":53,\"dest_ip\":\"10.0.{high}.{low}\",\"dest_port\":{},\
         \"proto\":\"UDP\",\"pkt_src\":\"wire/pcap\",\"alert\":{{\"action\":\"allowed\",\"gid\":1,\
         \"signature_id\":{signature},\"rev\":1,\"signature\":\"large answers\",\"category\":\"Misc\",\"severity\":3}},\
         \"app_proto\":\"dns\"}}\n",
        1024 + client
    )
}

/// A running `weir bypass` and its standard error.
struct Bypass(Background, std::path::PathBuf);

impl Bypass {
    fn start(folder: &Path, arguments: &[&str], input: Stdio) -> Self {
        let err = folder.join("bypass.err");
        let mut bypass = command();
        bypass.arg("bypass").args(arguments).stdin(input).stdout(Stdio::piped());
        Self(Background(bypass.stderr(File::create(&err).unwrap()).spawn().unwrap()), err)
    }

    fn err(&self) -> String {
        fs::read_to_string(&self.1).unwrap()
    }

    fn wait_for(&self, text: &str) {
        until(text, || self.err().contains(text));
    }

    /// Waits for its end: exit code, and the counts of its summary.
    fn end(&mut self) -> (Option<i32>, Vec<u64>) {
        let code = self.0.0.wait().unwrap().code();
        let mut text = String::new();
        self.0.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        (code, text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect())
    }
}

#[test]
fn the_packets_of_flows_with_an_alert_stop_and_the_file_may_be_rotated_and_truncated() {
    let Some(mut probe) = Overridden::start("") else { return };
    let folder = tempfile::tempdir().unwrap();
    let eve = folder.path().join("eve.json");
    let append = |text: &str| File::options().append(true).create(true).open(&eve).unwrap().write_all(text.as_bytes());
    // Events from before are left out, as is one about another flow.
    append(&alert(9, 1)).unwrap();
    let url = format!("http://{}", probe.served.address);
    let options = [
        "--eve",
        eve.to_str().unwrap(),
        "--to",
        &url,
        "--token-file",
        probe.token.to_str().unwrap(),
        "--signature",
        "1,2",
    ];
    let mut bypass = Bypass::start(folder.path(), &options, Stdio::null());
    bypass.wait_for("following");
    let status = fs::read_to_string(format!("/proc/{}/status", bypass.0.0.id())).unwrap();
    assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
    probe.send(&[1, 2, 3, 4, 9]);
    append(&(alert(1, 1) + "{\"event_type\":\"stats\"}\nnonsense\n\n \r\n" + &alert(4, 3))).unwrap();
    // A line that comes in two parts.
    let line = alert(2, 2);
    let (first, second) = line.split_at(100);
    append(first).unwrap();
    until("the first flow is overridden", || probe.list().len() == 1);
    append(second).unwrap();
    until("the second flow is overridden", || probe.list().len() == 2);
    // Suricata writes to the old file until a signal makes it open the new one.
    let mut old = File::options().append(true).open(&eve).unwrap();
    fs::rename(&eve, folder.path().join("eve.json.1")).unwrap();
    append("").unwrap();
    bypass.wait_for("the file was rotated");
    // On a day without events, the empty one is rotated, too.
    fs::rename(&eve, folder.path().join("eve.json.2")).unwrap();
    append("").unwrap();
    until("the second rotation is noticed", || bypass.err().matches("the file was rotated").count() == 2);
    old.write_all(alert(3, 1).as_bytes()).unwrap();
    until("the third flow is overridden", || probe.list().len() == 3);
    old.write_all(alert(4, 3).as_bytes()).unwrap();
    append(&alert(5, 1)).unwrap();
    until("the next flow is overridden", || probe.list().len() == 4);
    probe.send(&[1, 2, 3, 4, 9]);
    File::create(&eve).unwrap();
    bypass.wait_for("the file was truncated");
    append(&alert(9, 1).replace("\"src_ip\"", "\"source\"")).unwrap();
    append(&alert(9, 1).replace(":53,", ":65536,")).unwrap();
    append(&alert(9, 1).replace("\"src_port\":53,", "")).unwrap();
    append(&alert(9, 1)).unwrap();
    until("the last but one flow is overridden", || probe.list().len() == 5);
    probe.send(&[9]);
    // Truncated, and longer than before when it is looked at.
    let others = "{\"event_type\":\"stats\"}\n".repeat(100);
    fs::write(&eve, alert(6, 1) + &others).unwrap();
    until("the last flow is overridden", || probe.list().len() == 6);
    until("the truncation is noticed", || bypass.err().matches("the file was truncated").count() == 2);
    signal(&bypass.0.0, libc::SIGTERM);
    let (code, counts) = bypass.end();
    // Lines, broken, other, ICMP repeated and dropped, refused, undelivered, posted.
    assert_eq!((code, &counts[..]), (Some(2), &[113, 3, 103, 0, 0, 1, 0, 6][..]), "{}", bypass.err());
    assert!(bypass.err().contains("line=3") && !bypass.err().contains(TOKEN), "{}", bypass.err());
    assert_eq!(probe.stop().0, BTreeMap::from([(1, 2), (2, 2), (3, 2), (4, 4), (9, 4)]));
}

/// A certificate of 192.0.2.1 and its key.
fn make_certificate(cert: &str, key: &str) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=probe", "-addext", "subjectAltName=IP:192.0.2.1", "-keyout", key, "-out", cert])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn an_encrypted_probe_is_told_from_standard_input() {
    if !is_installed("openssl") {
        return eprintln!("SKIPPED: openssl is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    make_certificate(&cert, &key);
    let tls = ["--listen", "192.0.2.1:0", "--tls-cert", &cert, "--tls-key", &key];
    let Some(mut probe) = Overridden::start_with("", &tls) else { return };
    let url = format!("https://{}", probe.served.address);
    let token = probe.token.to_str().unwrap().to_owned();
    // The certificate of another probe, and the same address under another name.
    let [other, other_key] = ["other.pem", "other_key.pem"].map(|name| folder.path().join(name).display().to_string());
    make_certificate(&other, &other_key);
    for (url, ca, reason) in [
        (url.clone(), &other, "invalid peer certificate"),
        (url.replace("192.0.2.1", "[::ffff:192.0.2.1]"), &cert, "certificate not valid for name"),
    ] {
        let err = failure(1, ["bypass", "--eve", "-", "--to", &url, "--token-file", &token, "--ca", ca]);
        assert!(err.replace("\n      ", " ").contains(reason), "{err}");
    }
    let plain = url.replace("https", "http");
    let err = failure(1, ["bypass", "--eve", "-", "--to", &plain, "--token-file", &token]);
    assert!(err.replace("\n      ", " ").contains("write https:// and add --ca FILE"), "{err}");
    let options = ["--eve", "-", "--to", &url, "--token-file", &token, "--ca", &cert, "--on", "drop,bypassed"];
    let options = [&options[..], &["--action", "drop", "--expiry", "1h"]].concat();
    let mut bypass = Bypass::start(folder.path(), &options, Stdio::piped());
    bypass.wait_for("following");
    let mut input = bypass.0.0.stdin.take().unwrap();
    let blocked = alert(1, 1).replace("allowed", "blocked");
    let bypassed =
        alert(2, 1).replace("\"event_type\":\"alert\"", "\"event_type\":\"flow\",\"flow\":{\"state\":\"bypassed\"}");
    // Without an end of the last line.
    input.write_all((blocked + &alert(3, 1) + bypassed.trim_end()).as_bytes()).unwrap();
    drop(input);
    assert_eq!(bypass.end(), (Some(0), vec![3, 0, 1, 0, 0, 0, 0, 2]), "{}", bypass.err());
    [1, 2, 3]
        .iter()
        .flat_map(|&client| request_and_response(client))
        .for_each(|frame| probe.served.sender.send(&frame));
    until("all packets are metered", || probe.served.probe.stderr().contains("active=3"));
    assert_eq!(probe.stop().0, BTreeMap::from([(3, 2)]));
}

/// Answers requests, each on a connection of its own, with these statuses. Returns the bodies.
fn serve(listener: &TcpListener, statuses: &[u16]) -> Vec<String> {
    let serve = |&status: &u16| {
        let (stream, body) = receive(listener);
        answer(stream, status);
        body
    };
    statuses.iter().map(serve).collect()
}

/// The next request: its connection and its body.
fn receive(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let (mut text, mut octets) = (String::new(), [0; 4096]);
    while !is_whole(&text) {
        match stream.read(&mut octets) {
            Ok(length) => text += std::str::from_utf8(&octets[..length]).unwrap(),
            // A signal of another test: the system does not go on by itself, because there is a time limit.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
        }
    }
    (stream, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn answer(mut stream: TcpStream, status: u16) {
    let head = format!("HTTP/1.1 {status} x\r\nContent-Length: 13\r\nConnection: close\r\n\r\n");
    write!(stream, "{head}{{\"error\":\"y\"}}").unwrap();
}

/// An alert about a flow of ICMP.
fn icmp_alert(number: u32) -> String {
    format!(
        "{{\"event_type\":\"alert\",\"src_ip\":\"10.0.0.1\",\"dest_ip\":\"10.0.0.2\",\"proto\":\"ICMP\",\"icmp_type\":8,\
         \"icmp_code\":0,\"community_id\":\"1:{number:027}=\",\"alert\":{{\"action\":\"allowed\",\"signature_id\":1}}}}\n"
    )
}

/// The number of a request for a flow of ICMP; `None` for others.
fn icmp_number(body: &str) -> Option<u32> {
    let (_, id) = body.split_once("\"community_id\":\"1:")?;
    Some(id[..27].parse().unwrap())
}

#[test]
fn events_of_icmp_hold_up_no_other_and_the_newest_are_posted() {
    let (folder, token) = token_file(TOKEN, 0o600);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = ["--eve", "-", "--to", &url, "--token-file", token.to_str().unwrap()];
    let mut bypass = Bypass::start(folder.path(), &options, Stdio::piped());
    serve(&listener, &[404]);
    let mut input = bypass.0.0.stdin.take().unwrap();
    // Requests until one that is not about ICMP, which is accepted. The others are not answered.
    let until_other = || {
        let mut of_icmp = Vec::new();
        loop {
            let (stream, body) = receive(&listener);
            match icmp_number(&body) {
                Some(number) => of_icmp.push((stream, number)),
                None => {
                    answer(stream, 201);
                    return of_icmp;
                }
            }
        }
    };
    let events: String = (0..40).map(icmp_alert).collect();
    input.write_all((events + &alert(1, 1)).as_bytes()).unwrap();
    let mut searches = until_other();
    if searches.is_empty() {
        let (stream, body) = receive(&listener);
        searches.push((stream, icmp_number(&body).unwrap()));
    }
    let again = if searches.iter().any(|(_, number)| *number == 30) { 31 } else { 30 };
    input.write_all((icmp_alert(again) + &alert(2, 1)).as_bytes()).unwrap();
    searches.extend(until_other());
    assert_eq!(searches.len(), 1, "one search at a time");
    let (stream, first) = searches.remove(0);
    answer(stream, 404);
    // 16 wait. The last event was one of them if the first search is about it.
    let waiting = if first == 39 { 15 } else { 16 };
    let posted = serve(&listener, &[404; 16][..waiting]);
    let posted: Vec<u32> = posted.iter().map(|body| icmp_number(body).unwrap()).collect();
    let newest = (0..40).rev().filter(|number| ![first, again].contains(number));
    assert_eq!(posted, [again].into_iter().chain(newest).take(waiting).collect::<Vec<_>>());
    drop(input);
    let (code, counts) = bypass.end();
    assert_eq!(
        (code, &counts[..]),
        (Some(2), &[43, 0, 0, 1, 39 - waiting as u64, 1 + waiting as u64, 0, 2][..]),
        "{}",
        bypass.err()
    );
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let head = head.to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |text| text.parse().unwrap());
    body.len() >= length
}

#[test]
fn nothing_is_lost_while_the_probe_is_away_or_busy() {
    let (folder, token) = token_file(TOKEN, 0o600);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{address}");
    let options = ["--eve", "-", "--to", &url, "--token-file", token.to_str().unwrap(), "--more", "7"];
    let mut bypass = Bypass::start(folder.path(), &options, Stdio::piped());
    bypass.wait_for("cannot be reached yet");
    let mut input = bypass.0.0.stdin.take().unwrap();
    (1..=4).for_each(|client| input.write_all(alert(client, 1).as_bytes()).unwrap());
    bypass.wait_for("the probe is away");
    let listener = TcpListener::bind(address).unwrap();
    // Busy, accepted, refused, accepted; then the token has changed.
    let bodies = serve(&listener, &[503, 201, 429, 200, 401]);
    let port = |body: &String| serde_json::from_str::<serde_json::Value>(body).unwrap()["flow"]["dst_port"].as_u64();
    assert_eq!(bodies.iter().map(port).collect::<Vec<_>>(), [1025, 1025, 1026, 1027, 1028].map(Some));
    assert!(bodies[0].contains("\"more\":7") && bodies[0].contains("\"expiry\":300"), "{}", bodies[0]);
    let (code, counts) = bypass.end();
    assert_eq!((code, &counts[..]), (Some(2), &[4, 0, 0, 0, 0, 1, 1, 2][..]), "{}", bypass.err());
    // A signal ends the wait for a probe; so does one that has begun to use TLS.
    drop(listener);
    let mut bypass = Bypass::start(folder.path(), &options, Stdio::piped());
    bypass.wait_for("following");
    bypass.0.0.stdin.as_mut().unwrap().write_all(alert(1, 1).as_bytes()).unwrap();
    bypass.wait_for("the probe is away");
    signal(&bypass.0.0, libc::SIGINT);
    assert_eq!(bypass.end(), (Some(2), vec![1, 0, 0, 0, 0, 0, 1, 0]), "{}", bypass.err());
    let mut bypass = Bypass::start(folder.path(), &options, Stdio::piped());
    bypass.wait_for("following");
    bypass.0.0.stdin.as_mut().unwrap().write_all(alert(1, 1).as_bytes()).unwrap();
    bypass.wait_for("the probe is away");
    let listener = TcpListener::bind(address).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0]).unwrap();
    // An alert: decode error.
    stream.write_all(&[21, 3, 3, 0, 2, 2, 50]).unwrap();
    assert_eq!(bypass.end(), (Some(2), vec![1, 0, 0, 0, 0, 0, 1, 0]), "{}", bypass.err());
    assert!(bypass.err().contains("write https:// and add --ca FILE"), "{}", bypass.err());
}

#[test]
fn a_signal_does_not_wait_for_a_name_server() {
    if !is_installed("openssl") || !testbed::namespace::network() {
        return;
    }
    testbed::namespace::ip("link set lo up");
    let server = UdpSocket::bind("127.0.0.1:53").unwrap();
    let (folder, token) = token_file(TOKEN, 0o600);
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name).display().to_string());
    make_certificate(&cert, &key);
    let resolver = folder.path().join("resolv.conf");
    // A query is repeated after half a minute, four times.
    fs::write(&resolver, "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n").unwrap();
    // The mount is of this process and its children.
    let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    let mut bypass = Command::new("unshare");
    bypass.args(["--mount", "sh", "-c", script]).arg(&resolver).arg(command().get_program());
    let to = ["bypass", "--eve", "-", "--to", "https://probe.example:9477", "--ca", &cert, "--token-file"];
    bypass.args(to).arg(&token);
    let mut bypass = Background(bypass.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    server.set_read_timeout(Some(BOUND)).unwrap();
    let mut query = [0; 512];
    // A signal of another test may interrupt it.
    while let Err(error) = server.recv(&mut query) {
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
    signal(&bypass.0, libc::SIGINT);
    assert_eq!(bypass.0.wait().unwrap().code(), Some(0));
    server.set_nonblocking(true).unwrap();
    // For an IPv4 and an IPv6 address.
    let others = std::iter::from_fn(|| server.recv(&mut query).ok()).count();
    assert!(others <= 1, "it has waited until {others} queries were repeated");
}

#[test]
fn a_signal_ends_the_wait_for_a_writer_and_for_an_answer() {
    let (folder, token) = token_file(TOKEN, 0o600);
    let fifo = folder.path().join("eve.fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let [fifo, token] = [&fifo, &token].map(|path| path.to_str().unwrap());
    let options = ["--to", "http://127.0.0.1:1", "--token-file", token];
    let mut bypass = Bypass::start(folder.path(), &[&options[..], &["--eve", fifo]].concat(), Stdio::null());
    bypass.wait_for("following");
    signal(&bypass.0.0, libc::SIGINT);
    assert_eq!(bypass.end(), (Some(0), vec![0; 8]), "{}", bypass.err());
    // Its writer comes later, and its end is the end.
    let mut bypass = Bypass::start(folder.path(), &[&options[..], &["--eve", fifo]].concat(), Stdio::null());
    bypass.wait_for("following");
    fs::write(fifo, "{}\n{}").unwrap();
    assert_eq!(bypass.end(), (Some(0), vec![2, 0, 2, 0, 0, 0, 0, 0]), "{}", bypass.err());
    // Accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let options = ["--to", &url, "--token-file", token, "--eve", "-"];
    let mut bypass = Bypass::start(folder.path(), &options, Stdio::null());
    let stream = silent.accept().unwrap().0;
    stream.peek(&mut [0]).unwrap();
    signal(&bypass.0.0, libc::SIGTERM);
    assert_eq!(bypass.end(), (Some(0), vec![0; 8]), "{}", bypass.err());
    assert!(!bypass.err().contains("cannot be reached"), "it did not wait: {}", bypass.err());
}

#[test]
fn what_cannot_be_followed_or_told_is_refused_at_the_start() {
    let (_folder, token) = token_file(TOKEN, 0o600);
    let token = token.to_str().unwrap();
    let eve = ["bypass", "--eve", "-", "--token-file", token];
    assert_usage_errors(&[
        (&["bypass", "--eve", "-"], "--token-file"),
        (&[&eve[..], &["--to", "127.0.0.1:1"]].concat(), "write http://HOST:PORT"),
        (&[&eve[..], &["--to", "https://127.0.0.1:1"]].concat(), "needs --ca FILE"),
        (&[&eve[..], &["--more", "1", "--action", "drop"]].concat(), "--more needs --action shunt"),
        (&[&eve[..], &["--expiry", "2d"]].concat(), "from 1s to 1d"),
        (&[&eve[..], &["--expiry", "0"]].concat(), "from 1s to 1d"),
        (&[&eve[..], &["--on", "bypassed", "--signature", "1"]].concat(), "--signature needs --on alert"),
        (&[&eve[..], &["--on", "alerts"]].concat(), "alerts"),
    ]);
    let gone = failure(1, ["bypass", "--eve", "/nonexistent/eve.json", "--token-file", token]);
    assert!(gone.contains("/nonexistent/eve.json: No such file"), "{gone}");
    let folder = failure(1, ["bypass", "--eve", "/tmp", "--token-file", token]);
    assert!(folder.contains("/tmp: is a directory"), "{folder}");
    let Some(served) = Served::start(&["--token-file", token]) else { return };
    let url = format!("http://{}", served.address);
    let err = failure(1, [&eve[..], &["--to", &url]].concat());
    assert!(err.replace("\n      ", " ").contains("start it with --rules"), "{err}");
    let (_folder, other) = token_file("another-long-token", 0o600);
    let err = failure(1, ["bypass", "--eve", "-", "--to", &url, "--token-file", other.to_str().unwrap()]);
    assert!(err.contains("Authorization"), "{err}");
    served.probe.stop(0);
}
