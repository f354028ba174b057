//! What a server says that is no ClickHouse, or one that has no time: the sink says it in a sentence, and does not wait
//! for ever.

use super::tcp_export::capture;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use testbed::{failure, weir};

/// Answers each request by these octets, which end the connection. Returns the sink.
fn server(answer: impl Fn(&mut TcpStream) + Send + Sync + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = format!("clickhouse+http://{}/weir.flows", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|octets| octets > 2) {
                    line.clear();
                }
                answer(reader.get_mut());
                // What else is sent is read, so that the answer is not lost.
                let _ = reader.get_mut().shutdown(std::net::Shutdown::Write);
                let _ = reader.read_to_end(&mut Vec::new());
            });
        }
    });
    sink
}

fn of_text(answer: &'static str) -> String {
    server(move |stream| stream.write_all(answer.as_bytes()).unwrap())
}

#[test]
fn a_sentence_says_what_a_server_answers() {
    let capture = capture(1);
    for (answer, sentence) in [
        (
            "HTTP/1.1 401 X\r\nContent-Length: 4\r\n\r\nnope",
            "the server says, with the status 401 (Unauthorized): nope; user=NAME and password-file=FILE name who may write",
        ),
        (
            "HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy",
            "the server says, with the status 503 (Service Unavailable): busy",
        ),
        (
            "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
            "the server answers with the status 500 (Internal Server Error)",
        ),
        (
            "HTTP/1.1 404 X\r\nX-ClickHouse-Exception-Code: 60\r\nContent-Length: 0\r\n\r\n",
            "the server answers with the error 60 (UNKNOWN_TABLE)",
        ),
        (
            "HTTP/1.1 500 X\r\nX-ClickHouse-Exception-Code: 241\r\nContent-Length: 0\r\n\r\n",
            "the server answers with the error 241 (MEMORY_LIMIT_EXCEEDED)",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n<html>\nnothing to see</html>",
            "the server does not answer as ClickHouse does, but with \"<html>\"",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nMerge", "the server closed the connection within its answer"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "it does not answer in HTTP"),
    ] {
        let sink = of_text(answer);
        let err = failure(1, ["read", capture.name(), "-o", &sink]);
        assert!(err.contains(sentence) && err.lines().count() == 1, "{answer:?}: {err}");
        let (code, _, err) = weir(["clickhouse", "check", &sink]);
        assert!(code != 0 && err.contains(sentence), "{answer:?}: {err}");
    }
}

#[test]
fn an_answer_without_end_is_not_read_for_ever() {
    let capture = capture(1);
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let is_chunked = head.contains("chunked");
        let sink = server(move |stream| {
            let octets = [b'a'; 1 << 16];
            let mut alive = stream.write_all(head.as_bytes()).is_ok();
            while alive {
                alive = (!is_chunked || stream.write_all(b"10000\r\n").is_ok())
                    && stream.write_all(&octets).is_ok()
                    && (!is_chunked || stream.write_all(b"\r\n").is_ok());
            }
        });
        let err = failure(1, ["read", capture.name(), "-o", &sink]);
        assert!(err.contains("its answer has more than 1 MiB; this is no ClickHouse server"), "{err}");
    }
    // One octet after the other: the answer is late, whatever comes.
    let sink = server(|stream| {
        let mut alive = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_ok();
        while alive {
            thread::sleep(std::time::Duration::from_millis(50));
            alive = stream.write_all(b"a").is_ok();
        }
    });
    let times = "sink_dead=500ms,sink_outage=500ms";
    let err = failure(2, ["probe", "-i", capture.name(), "-o", &sink, "--timing", times]);
    assert!(err.contains("the server does not answer in time"), "{err}");
}
