//! The limits of the HTTP interface: clients that do not read, do not send or search take nothing from
//! others.

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use testbed::namespace::until;
use testbed::running::send_requests;
use testbed::served::{Answer, Overridden, Served, TOKEN, sum, token_file};
use testbed::{Background, command};

/// Times that do not end during a test.
const LONG: &str = "http_header=10m,http_keep_alive=10m,http_total=10m,http_stall=10m,http_wait=10m";

/// A request whose answer is not read.
fn request_unread(served: &Served, path: &str) -> TcpStream {
    let mut stream = served.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", served.address).unwrap();
    stream
}

fn get_with_token(served: &Served, path: &str) -> Answer {
    served.request("GET", path, &format!("Authorization: Bearer {TOKEN}\r\n"))
}

/// Largest memory of the process so far, MiB.
fn peak_memory(served: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.probe.process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Connections of the server that have not ended.
fn established(served: &Served) -> usize {
    let port = format!(":{:04X}", served.address.port());
    let connections = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let fields = connections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[1].ends_with(&port) && fields[3] == "01").count()
}

fn long_rules() -> String {
    format!("# {}\n", "x".repeat(3 << 20))
}

#[test]
fn clients_that_do_not_read_share_an_answer_and_keep_no_other_out() {
    let Some(probe) = Overridden::start_with(&long_rules(), &["--timing", LONG]) else { return };
    let served = &probe.served;
    let before = peak_memory(served);
    assert!(served.get("/rules").json()["text"].as_str().unwrap().len() > 3 << 20);
    let unread: Vec<TcpStream> = (0..120).map(|_| request_unread(served, "/rules")).collect();
    for path in ["/health", "/metrics", "/status"] {
        assert_eq!((served.get(path).status, get_with_token(served, path).status), (200, 200), "{path}");
    }
    assert!(get_with_token(served, "/rules").body.len() > 3 << 20);
    let grown = peak_memory(served) - before;
    assert!(grown < 100, "{grown} MiB more for answers of 3 MiB");
    drop(unread);
    probe.stop();
}

#[test]
fn an_answer_that_is_not_read_ends_the_connection() {
    let timing = LONG.replace("http_stall=10m", "http_stall=300ms");
    let Some(probe) = Overridden::start_with(&long_rules(), &["--timing", &timing]) else { return };
    let mut unread: Vec<TcpStream> = (0..5).map(|_| request_unread(&probe.served, "/rules")).collect();
    for stream in &mut unread {
        stream.read_exact(&mut [0; 8]).unwrap();
    }
    until("they are closed", || established(&probe.served) == 0);
    let mut answer = Vec::new();
    let _ = unread[0].read_to_end(&mut answer);
    assert!(answer.len() < 3 << 20);
    probe.stop();
}

#[test]
fn answers_that_wait_have_a_limit_and_requests_with_token_one_of_their_own() {
    let (_folder, token) = token_file(TOKEN, 0o600);
    let options = ["--token-file", token.to_str().unwrap(), "--timing", LONG];
    let Some(mut served) = Served::start(&options) else { return };
    send_requests(&mut served.sender, 0..1000);
    until("all packets are counted", || sum(&served.metrics(), "weir_packets_received_total", "") == 2000);
    let path = "/flows?top=1000&fields=all";
    let length = get_with_token(&served, path).body.len();
    assert!(length > 1 << 20, "{length}");
    let mut unread = Vec::new();
    let refusal = loop {
        let mut stream = request_unread(&served, path);
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        match &start {
            b"HTTP/1.1 503" => break stream,
            b"HTTP/1.1 200" => unread.push(stream),
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
        assert!(unread.len() * length < 9 << 20, "{} answers of {length} octets wait", unread.len());
    };
    let mut text = vec![0; 1000];
    let read = (&refusal).read(&mut text).unwrap();
    assert!(String::from_utf8_lossy(&text[..read]).contains("too many answers have not been read"));
    assert_eq!(get_with_token(&served, path).status, 200);
    assert_eq!(served.get("/metrics").status, 200);
    // The one that was stalled longest has been closed for the next request.
    until("there is memory again", || served.get(path).status == 200);
    served.probe.stop(0);
}

#[test]
fn strangers_that_send_nothing_or_half_a_request_keep_no_other_out() {
    let (_folder, token) = token_file(TOKEN, 0o600);
    let options = ["--token-file", token.to_str().unwrap(), "--timing", LONG];
    let Some(served) = Served::start(&options) else { return };
    let mut open = Vec::new();
    for number in 0..200 {
        let mut stream = served.connect();
        // One of three has got an answer, and is idle.
        let text = match number % 3 {
            0 => "",
            1 => "GET /health HTTP/1.1\r\nX: ",
            _ => "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        };
        let _ = stream.write_all(text.as_bytes());
        open.push(stream);
        if number % 20 == 19 {
            assert_eq!(served.get("/health").status, 200, "with {number}");
            assert_eq!(get_with_token(&served, "/health").status, 200, "with {number}");
        }
    }
    assert!(established(&served) <= 64);
    served.probe.stop(0);
}

#[test]
fn a_search_with_token_does_not_wait_for_one_without() {
    let (folder, token) = token_file(TOKEN, 0o600);
    let err = folder.path().join("err");
    let mut probe = command();
    probe.args(["probe", "-i", "-", "-o", "json:/dev/null", "--listen", "0", "--token-file"]).arg(&token);
    let mut probe = Background(probe.stdin(Stdio::piped()).stderr(fs::File::create(&err).unwrap()).spawn().unwrap());
    let mut pipe = probe.0.stdin.take().unwrap();
    pipe.write_all(&testbed::small().0).unwrap();
    let err = || fs::read_to_string(&err).unwrap();
    until("the server is ready", || err().contains("HTTP interface is ready"));
    let address = err().split_once("address=").unwrap().1.split_whitespace().next().unwrap().to_owned();
    let send = |header: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /flows HTTP/1.0\r\n{header}\r\n").unwrap();
        stream
    };
    let status = |mut stream: TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let answer = Answer::parse(&text);
        (answer.status, if answer.status == 200 { answer.json()["complete"].clone() } else { Value::Null })
    };
    // The pipeline waits for the pipe, so that it answers no search.
    let mut first = None;
    until("a search waits", || {
        let stream = send("");
        let is_refused = status(send("")).0 == 429;
        if is_refused {
            first = Some(stream);
        }
        is_refused
    });
    let with_token = send(&format!("Authorization: Bearer {TOKEN}\r\n"));
    assert_eq!(status(with_token), (200, false.into()));
    assert_eq!(status(first.unwrap()), (429, Value::Null), "another has taken its place");
    drop(pipe);
    assert_eq!(probe.0.wait().unwrap().code(), Some(0), "{}", err());
}
