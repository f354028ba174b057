//! Export to ClickHouse: to a small HTTP server of the test, which is slow, away, or refuses what it gets.

mod spool;

use super::tcp_export::{Collector, lines};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use testbed::namespace::{LEFT, RIGHT, Sender, ip, network, until};
use testbed::running::{Running, send_requests};
use testbed::{
    Pcap, SavedCapture, captures, command, failure, is_installed, ledger_of, number, read_ledger, request_and_response,
    signal, success, unzstd, wait_for_thread_of_signals,
};

/// What a request gets.
#[derive(Clone, Debug)]
enum Reply {
    Done,
    /// A status, and an error of ClickHouse.
    Error(u16, &'static str),
    /// 200, and then an error in the body.
    LateError,
    /// The connection is closed after the request was read.
    Lost,
    /// Something else than HTTP.
    Other,
    /// There is no answer as long as the server lives.
    Never,
}

/// An INSERT.
#[derive(Clone)]
struct Insert {
    settings: HashMap<String, String>,
    headers: HashMap<String, String>,
    /// Not compressed.
    rows: Vec<u8>,
    /// As it was sent.
    octets: Vec<u8>,
}

impl Insert {
    fn token(&self) -> &str {
        &self.settings["insert_deduplication_token"]
    }
}

#[derive(Default)]
struct Script {
    /// Replies to the first inserts; later ones are done.
    replies: Vec<Reply>,
    /// What every request gets.
    always: Option<Reply>,
    /// Columns of the table with their types; empty if there is none.
    columns: Vec<(String, String)>,
    engine: &'static str,
    inserts: Vec<Insert>,
    connections: usize,
}

/// A server that runs as long as the test.
struct Server {
    address: String,
    script: Arc<Mutex<Script>>,
}

const ENGINE: &str = "MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 1000";

impl Server {
    /// A server with a table of these fields.
    fn start(fields: &str, replies: &[Reply]) -> Self {
        let script = Script { columns: table(fields), replies: replies.into(), engine: ENGINE, ..Script::default() };
        Self::at("127.0.0.1:0", Arc::new(Mutex::new(script)))
    }

    fn at(address: &str, script: Arc<Mutex<Script>>) -> Self {
        Self::with_tls(address, script, None)
    }

    fn with_tls(address: &str, script: Arc<Mutex<Script>>, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = script.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, tls, stream) = (shared.clone(), tls.clone(), stream.unwrap());
                script.lock().unwrap().connections += 1;
                thread::spawn(move || match tls {
                    Some(tls) => serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream), &script),
                    None => serve(stream, &script),
                });
            }
        });
        Self { address, script }
    }

    fn sink(&self) -> String {
        format!("clickhouse+http://{}/weir.flows", self.address)
    }

    fn inserts(&self) -> Vec<Insert> {
        self.script.lock().unwrap().inserts.clone()
    }

    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    /// The rows that are there: of each token once, as a table with a window has them.
    fn rows(&self) -> Vec<Value> {
        let columns = self.script.lock().unwrap().columns.clone();
        let mut bodies: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for insert in self.inserts() {
            let before = bodies.insert(insert.token().into(), insert.rows.clone());
            assert!(before.is_none_or(|before| before == insert.rows), "a token has other rows");
        }
        bodies.into_values().flat_map(|rows| decode(&rows, &columns)).collect()
    }
}

/// The columns of a table with these fields, as `weir clickhouse schema` makes it.
fn table(fields: &str) -> Vec<(String, String)> {
    let text = success(["clickhouse", "schema", "--fields", fields]);
    let lines = text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(" COMMENT "));
    let column = |(definition, _): (&str, &str)| {
        let (name, of_type) = definition.split_once(' ').unwrap();
        (name.to_owned(), of_type.to_owned())
    };
    lines.map(column).collect()
}

fn serve(stream: impl Read + Write, script: &Mutex<Script>) {
    let mut reader = BufReader::new(stream);
    while let Some((path, headers, octets)) = request(&mut reader) {
        let settings = parameters(&path);
        let reply = {
            let mut script = script.lock().unwrap();
            let query = settings["query"].clone();
            if query.starts_with("INSERT") && script.always.is_none() {
                let rows = match headers.get("content-encoding").map(String::as_str) {
                    Some("zstd") => unzstd(&octets),
                    _ => octets.clone(),
                };
                script.inserts.push(Insert { settings, headers, rows, octets });
                let reply = if script.replies.is_empty() { Reply::Done } else { script.replies.remove(0) };
                (reply, String::new())
            } else {
                (script.always.clone().unwrap_or(Reply::Done), answer(&script, &query))
            }
        };
        let (status, code, body) = match reply {
            (Reply::Done, body) => (200, None, body),
            (Reply::Error(status, text), _) => (status, text.split(' ').nth(1), text.to_owned()),
            (Reply::LateError, _) => (200, None, "\nCode: 241. DB::Exception: Memory limit exceeded".into()),
            (Reply::Lost, _) => return,
            (Reply::Other, _) => return drop(reader.get_mut().write_all(b"SSH-2.0-OpenSSH_9.2\r\n")),
            (Reply::Never, _) => loop {
                thread::park();
            },
        };
        let code = code
            .map_or(String::new(), |code| format!("X-ClickHouse-Exception-Code: {}\r\n", code.trim_end_matches('.')));
        let head = format!("HTTP/1.1 {status} X\r\n{code}Content-Length: {}\r\n\r\n", body.len());
        let writer = reader.get_mut();
        if writer.write_all(format!("{head}{body}").as_bytes()).and_then(|()| writer.flush()).is_err() {
            return;
        }
    }
}

/// The next request of a connection: path, headers, body.
fn request(reader: &mut impl BufRead) -> Option<(String, HashMap<String, String>, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    // ClickHouse refuses a POST without a length.
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    Some((path, headers, body))
}

fn parameters(path: &str) -> HashMap<String, String> {
    let plain = |text: &str| {
        let mut parts = text.split('%');
        let mut octets = parts.next().unwrap().as_bytes().to_vec();
        for part in parts {
            octets.push(u8::from_str_radix(&part[..2], 16).unwrap());
            octets.extend(&part.as_bytes()[2..]);
        }
        String::from_utf8(octets).unwrap()
    };
    let pairs = path.split_once('?').unwrap().1.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), plain(value))).collect()
}

/// What the tables of the system say.
fn answer(script: &Script, query: &str) -> String {
    if script.always.is_some() {
        return String::new();
    }
    if query.contains("system.tables") {
        return if script.columns.is_empty() { String::new() } else { format!("{}\n", script.engine) };
    }
    assert!(query.contains("system.columns"), "{query}");
    script.columns.iter().map(|(name, of_type)| format!("{name}\t{of_type}\t\n")).collect()
}

/// Rows in the format RowBinary.
fn decode(mut rows: &[u8], columns: &[(String, String)]) -> Vec<Value> {
    let mut decoded = Vec::new();
    while !rows.is_empty() {
        let row = columns.iter().map(|(name, of_type)| (name.clone(), value(&mut rows, of_type)));
        decoded.push(Value::Object(row.collect::<Map<_, _>>()));
    }
    decoded
}

fn take<'a>(rows: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (octets, rest) = rows.split_at(length);
    *rows = rest;
    octets
}

fn length(rows: &mut &[u8]) -> usize {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let octet = take(rows, 1)[0];
        number |= usize::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            break;
        }
    }
    number
}

/// A value of a type, as JSON has it.
fn value(rows: &mut &[u8], of_type: &str) -> Value {
    let inner = |outer: &str| of_type.strip_prefix(outer)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(inner) = inner("Nullable") {
        return if take(rows, 1)[0] == 1 { Value::Null } else { value(rows, inner) };
    }
    if let Some(inner) = inner("LowCardinality") {
        return value(rows, inner);
    }
    if let Some(inner) = inner("Array") {
        return (0..length(rows)).map(|_| value(rows, inner)).collect();
    }
    let unsigned = |octets: &[u8]| octets.iter().rev().fold(0_u64, |number, octet| number << 8 | u64::from(*octet));
    match of_type {
        "String" => {
            let length = length(rows);
            std::str::from_utf8(take(rows, length)).unwrap().into()
        }
        "UInt8" | "UInt16" | "UInt32" | "UInt64" => {
            let bits: usize = of_type[4..].parse().unwrap();
            unsigned(take(rows, bits / 8)).into()
        }
        "Float64" => f64::from_le_bytes(take(rows, 8).try_into().unwrap()).into(),
        "IPv6" => {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(take(rows, 16)).unwrap());
            address.to_ipv4_mapped().map_or_else(|| address.to_string(), |address| address.to_string()).into()
        }
        "DateTime64(9, 'UTC')" => {
            let ns = i64::from_le_bytes(take(rows, 8).try_into().unwrap());
            format!("{:.9}", jiff::Timestamp::from_nanosecond(ns.into()).unwrap()).into()
        }
        _ => panic!("{of_type}"),
    }
}

/// A record of JSON as its row has it: what is none has the value of its type.
fn as_row(record: &Value, columns: &[(String, String)], probe: &str) -> Value {
    let of_column = |(name, of_type): &(String, String)| {
        let value = if name == "probe" { probe.into() } else { record[name].clone() };
        let text = || value.as_str().unwrap_or_default();
        let list = |separator: char| match text() {
            "" => json!([]),
            text => text.split(separator).collect::<Vec<_>>().into(),
        };
        let value = match of_type.as_str() {
            "Array(LowCardinality(String))" => list(' '),
            "Array(String)" => list(','),
            "String" | "LowCardinality(String)" => text().into(),
            "IPv6" if value.is_null() => "::".into(),
            _ => value,
        };
        (name.clone(), value)
    };
    Value::Object(columns.iter().map(of_column).collect())
}

/// The values as text, in an order.
fn sorted(rows: Vec<Value>) -> Vec<String> {
    let mut rows: Vec<_> = rows.iter().map(ToString::to_string).collect();
    rows.sort();
    rows
}

fn capture(flows: u16) -> SavedCapture {
    Pcap::of(&(0..flows).flat_map(request_and_response).collect::<Vec<_>>()).saved()
}

fn lost(ledger: &Value, reason: &str) -> u64 {
    number(&ledger["sinks"][0]["lost"][reason]["flows"])
}

fn exported(ledger: &Value) -> u64 {
    number(&ledger["sinks"][0]["exported"]["flows"])
}

const QUICK: [&str; 2] = ["--timing", "sink_reconnect=10ms,sink_reconnect_max=20ms,sink_tick=20ms,sink_retry=20ms"];
/// A sender that the machine stops for a moment between the packets of a flow makes no second flow.
const OF_PROBE: [&str; 4] = ["--idle", "1s", "--status", "json"];
const AGAIN: &str = "ClickHouse takes records again";
const UNREACHABLE: &str = "ClickHouse cannot be reached";
const REFUSED: &str = "ClickHouse refuses the records";

#[test]
fn rows_have_the_values_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let json_file = folder.path().join("flows.json");
    for (name, options) in [
        ("web.pcap", &["--dpi", "light", "--dpi-fields", "--dpi-transactions", "on"][..]),
        ("web.pcap", &["--uniflow"]),
        ("layer2.pcap", &["--layer2", "--mac-addresses"]),
        ("gtpu.pcap", &["--decap"]),
        ("dns.pcap.gz", &["--dpi", "light", "--dpi-fields", "--dpi-transactions", "on"]),
    ] {
        let source = captures().join(name);
        for compression in ["zstd", "none"] {
            let server = Server::start("all", &[]);
            let sink = format!("{}?fields=all&rows=7&compression={compression}&probe=p 1", server.sink());
            let json = format!("json:{}?fields=all", json_file.display());
            let arguments = ["read", source.to_str().unwrap(), "--overwrite", "-o", &sink, "-o", &json];
            let (code, err, ledger) = ledger_of([&arguments, options].concat());
            assert_eq!(code, 0, "{err}");
            let columns = server.script.lock().unwrap().columns.clone();
            let text = fs::read_to_string(&json_file).unwrap();
            let expected =
                text.lines().map(|line| as_row(&serde_json::from_str(line).unwrap(), &columns, "p 1")).collect();
            assert_eq!(sorted(server.rows()), sorted(expected), "{name} {options:?}");
            let inserts = server.inserts();
            let of_sink = |at: usize, name: &str| ledger["sinks"][at][name].clone();
            assert_eq!(of_sink(0, "exported"), of_sink(1, "exported"));
            assert_eq!(of_sink(0, "wire_records"), of_sink(1, "wire_records"));
            assert_eq!(number(&of_sink(0, "messages")), inserts.len() as u64);
            let octets: usize = inserts.iter().map(|insert| insert.octets.len()).sum();
            assert_eq!(number(&of_sink(0, "octets")), octets as u64);
            for insert in &inserts {
                assert_eq!(insert.settings["async_insert"], "0");
                assert!(insert.settings["query"].starts_with("INSERT INTO weir.flows (start_time, end_time, "));
            }
        }
    }
}

#[test]
fn a_batch_comes_again_with_its_token_until_it_is_inserted() {
    let source = capture(1000);
    let replies = [
        Reply::Lost,
        Reply::Other,
        Reply::Error(500, "Oops"),
        Reply::Error(500, "Code: 252. DB::Exception: Too many parts"),
        Reply::LateError,
        Reply::Done,
        Reply::Error(503, ""),
        Reply::Lost,
    ];
    let server = Server::start("store", &replies);
    let sink = format!("{}?rows=100", server.sink());
    let (code, err, ledger) = ledger_of([&["read", source.name(), "-o", &sink], &QUICK[..]].concat());
    assert_eq!((code, exported(&ledger)), (0, 1000), "{err}");
    let inserts = server.inserts();
    assert_eq!(inserts.len(), 17);
    let tokens: Vec<&str> = inserts.iter().map(Insert::token).collect();
    assert!(
        tokens[..6].iter().all(|token| *token == tokens[0]) && tokens[6..9].iter().all(|token| *token == tokens[6])
    );
    assert!(inserts[..6].iter().all(|insert| insert.octets == inserts[0].octets));
    assert_eq!(server.rows().len(), 1000);
    assert!(err.contains("ClickHouse takes records again"), "{err}");
    // Another run has other tokens.
    let again = Server::start("store", &[]);
    success(["read", source.name(), "-q", "-o", &format!("{}?rows=100", again.sink())]);
    assert!(again.inserts().iter().all(|insert| !tokens.contains(&insert.token())));
}

#[test]
fn what_the_server_refuses_for_good_ends_a_read() {
    let source = capture(300);
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    fs::write(&password, "SECRET-word\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start("store", &[]);
    let with_user = format!("{}?user=me&password-file={}", server.sink(), password.display());
    success(["read", source.name(), "-q", "-o", &with_user]);
    let headers = &server.inserts()[0].headers;
    assert_eq!([&headers["x-clickhouse-user"], &headers["x-clickhouse-key"]], ["me", "SECRET-word"]);
    server.set(|script| script.always = Some(Reply::Error(403, "Code: 516. DB::Exception: me: Authentication failed")));
    let err = failure(1, ["read", source.name(), "-o", &with_user]);
    assert!(err.contains("Authentication failed") && !err.contains("SECRET"), "{err}");
    let plain = |err: String| err.split_whitespace().collect::<Vec<_>>().join(" ");
    for (change, expected) in [
        (
            (|script: &mut Script| script.columns.retain(|(name, _)| name != "dst_port")) as fn(&mut Script),
            "it has no column dst_port, which must be UInt16",
        ),
        (
            |script| script.columns[0].1 = "DateTime".into(),
            "its column start_time is DateTime, not DateTime64(9, 'UTC')",
        ),
        (|script| script.columns.clear(), "there is no table weir.flows, or the user may not see it"),
    ] {
        let server = Server::start("store", &[]);
        server.set(change);
        let err = plain(failure(1, ["read", source.name(), "-o", &server.sink()]));
        assert!(err.contains(expected) && err.contains("weir clickhouse schema"), "{err}");
    }
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let err = plain(failure(1, ["read", source.name(), "-o", &with_user]));
    assert!(err.contains("other users may read this password file"), "{err}");
    // The table changes while records come.
    let server = Server::start("store", &[Reply::Done, Reply::Error(404, "Code: 60. DB::Exception: Table is gone")]);
    let sink = format!("{}?rows=100", server.sink());
    let (code, err, ledger) = ledger_of([&["read", source.name(), "-o", &sink], &QUICK[..]].concat());
    assert_eq!((code, exported(&ledger), lost(&ledger, "write_failed")), (2, 100, 200), "{err}");
    assert!(err.contains("Table is gone"), "{err}");
}

#[test]
fn a_read_ends_when_the_server_is_away() {
    let source = capture(300);
    let server = Server::start("store", &[]);
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let sink = format!("clickhouse+http://{address}/weir.flows");
    let err = failure(1, ["read", source.name(), "-o", &sink]);
    assert!(err.contains("Connection refused"), "{err}");
    // It answers once, and then never.
    server.set(|script| script.replies = vec![Reply::Error(500, ""); 100_000]);
    let sink = format!("{}?rows=100", server.sink());
    let quick = "sink_reconnect=10ms,sink_reconnect_max=20ms,sink_outage=100ms";
    let (code, err, ledger) = ledger_of(["read", source.name(), "-o", &sink, "--timing", quick]);
    assert_eq!((code, exported(&ledger), lost(&ledger, "collector_unreachable")), (2, 0, 300), "{err}");
    let server = Server::start("store", &[Reply::Never]);
    let sink = format!("{}?rows=100", server.sink());
    let quick = "sink_reconnect=10ms,sink_reconnect_max=20ms,sink_dead=500ms";
    let (code, err, ledger) = ledger_of(["read", source.name(), "-o", &sink, "--timing", quick]);
    assert_eq!((code, exported(&ledger)), (0, 300), "{err}");
    assert!(err.contains("the server does not answer in time"), "{err}");
}

#[test]
fn a_second_signal_ends_a_read_whose_server_does_not_answer() {
    let (source, folder) = (capture(300), tempfile::tempdir().unwrap());
    let [stats, log] = ["stats.json", "log"].map(|name| folder.path().join(name));
    let server = Server::start("store", &[Reply::Done, Reply::Never]);
    let mut child = command()
        .args(["read", source.name(), "-o", &format!("{}?rows=100", server.sink()), "--stats"])
        .arg(&stats)
        .args(["--timing", "same_signal=50ms,last_records=50ms,drain_grace=50ms"])
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let is_logged = |text: &str| until(text, || fs::read_to_string(&log).unwrap().contains(text));
    wait_for_thread_of_signals(&child);
    until("the server has two batches", || server.inserts().len() == 2);
    signal(&child, libc::SIGTERM);
    is_logged("another signal loses the records that outputs have not accepted by then");
    signal(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let ledger = read_ledger(&stats);
    // The sink is abandoned, perhaps before it has counted the first batch.
    let lost = lost(&ledger, "drain_timeout");
    assert!(exported(&ledger) + lost == 300 && lost >= 200, "{ledger:#}");
}

#[test]
fn rows_name_the_probe_if_the_table_has_the_column() {
    let source = capture(3);
    let server = Server::start("store", &[]);
    success(["read", source.name(), "-q", "-o", &server.sink()]);
    let host = rustix::system::uname();
    let probes = |server: &Server| server.rows().iter().map(|row| row["probe"].clone()).collect::<Vec<_>>();
    assert_eq!(probes(&server), vec![Value::from(host.nodename().to_str().unwrap()); 3]);
    // A table of before.
    let old = Server::start("store", &[]);
    old.set(|script| script.columns.retain(|(name, _)| name != "probe"));
    let plain = |err: String| err.split_whitespace().collect::<Vec<_>>().join(" ");
    for arguments in [&["read", source.name(), "-o"][..], &["clickhouse", "check", "-q"]] {
        let err = plain(failure(1, [arguments, &[&old.sink()]].concat()));
        let remedy = "ALTER TABLE weir.flows ADD COLUMN probe LowCardinality(String), or write probe= behind the table";
        assert!(err.contains("it has no column probe") && err.contains(remedy), "{err}");
    }
    assert_eq!(old.inserts().len(), 0);
    let without = format!("{}?probe=", old.sink());
    success(["clickhouse", "check", "-q", &without]);
    success(["read", source.name(), "-q", "-o", &without]);
    assert!(old.rows().len() == 3 && probes(&old).iter().all(Value::is_null));
    // Views make their sums by it.
    let text = success(["clickhouse", "schema", "--views"]);
    assert_eq!(text.matches(", probe)\nSETTINGS").count(), 4, "{text}");
}

#[test]
fn a_table_without_window_is_warned_of() {
    let source = capture(1);
    let server = Server::start("store", &[]);
    server.set(|script| script.engine = "MergeTree ORDER BY a");
    let (code, err, _) = ledger_of(["read", source.name(), "-o", &server.sink()]);
    assert!(code == 0 && err.contains("the table has no non_replicated_deduplication_window"), "{err}");
    let err = failure(1, ["clickhouse", "check", "-q", &server.sink()]);
    assert!(err.contains("non_replicated_deduplication_window"), "{err}");
    server.set(|script| (script.engine, script.columns[2].1) = (ENGINE, "Int8".into()));
    let err = failure(1, ["clickhouse", "check", "-q", &server.sink()]);
    assert!(err.contains("its column duration_ns is Int8, not UInt64"), "{err}");
    success(["clickhouse", "check", &format!("{}?fields=start_time,src_ip", server.sink())]);
    let server = Server::start("store", &[]);
    let text = success(["clickhouse", "check", &server.sink()]);
    assert!(text.contains("weir.flows: all") && text.contains("the last 1000 batches"), "{text}");
}

#[test]
fn a_probe_waits_for_a_server_that_is_away_or_refuses() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let script = Arc::new(Mutex::new(Script { columns: table("store"), engine: ENGINE, ..Script::default() }));
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let sink = format!("clickhouse+http://{address}/weir.flows?wait=20ms");
    let options = [&["-o", sink.as_str()][..], &OF_PROBE, &QUICK].concat();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
    send_requests(&mut sender, 0..50);
    probe.wait_for(UNREACHABLE);
    until("they wait", || number(&probe.ledger()["sinks"][0]["waiting"]["flows"]) == 50);
    let server = Server::at(&address, script);
    probe.wait_for(AGAIN);
    until("the server has them", || server.rows().len() == 50);
    // The table is removed, and made again.
    server.set(|script| script.always = Some(Reply::Error(404, "Code: 60. DB::Exception: no table")));
    send_requests(&mut sender, 50..100);
    probe.wait_for(REFUSED);
    send_requests(&mut sender, 100..150);
    until("they wait", || number(&probe.ledger()["sinks"][0]["waiting"]["flows"]) == 100);
    server.set(|script| script.always = None);
    probe.wait_for_another(AGAIN, 1);
    until("the server has all", || server.rows().len() == 150);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(exported(&ledger), 150, "{err}");
    assert_eq!(err.matches(REFUSED).count(), 1, "{err}");
}

#[test]
fn while_a_server_refuses_another_sink_gets_the_records() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let server = Server::start("store", &[]);
    server.set(|script| script.always = Some(Reply::Error(500, "Code: 999. DB::Exception: away")));
    let (collector, address) = Collector::tcp("127.0.0.1:0");
    let sink = format!("failover:{}?wait=20ms,json+tcp://{address}", server.sink());
    let timing = format!("{},sink_failover=100ms", QUICK[1]);
    let options = [&["-o", sink.as_str()][..], &OF_PROBE, &[QUICK[0], timing.as_str()]].concat();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
    send_requests(&mut sender, 0..50);
    probe.wait_for("a sink takes no records, they go to another one");
    send_requests(&mut sender, 50..100);
    let received = || lines(&collector.sessions().concat()).len();
    // The first batch stays with the server: it shows whether it takes batches again.
    until("the other sink has the rest", || {
        let ledger = probe.ledger();
        let waiting = number(&ledger["sinks"][0]["waiting"]["flows"]) as usize;
        received() >= 50 && waiting > 0 && received() + waiting == 100
    });
    server.set(|script| script.always = None);
    probe.wait_for("a sink takes records again, they go there");
    send_requests(&mut sender, 100..150);
    until("all are there", || server.rows().len() + received() == 150 && server.rows().len() > 50);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(exported(&ledger), 150, "{err}");
}

#[test]
fn at_the_end_nothing_stays_with_a_server_that_is_away() {
    let source = capture(300);
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (collector, address) = Collector::tcp("127.0.0.1:0");
    let sink = format!("failover:clickhouse+http://{away}/weir.flows?rows=100,json+tcp://{address}");
    let (code, err, ledger) = ledger_of(["read", source.name(), "-o", &sink]);
    assert_eq!((code, exported(&ledger)), (0, 300), "{err}");
    assert_eq!(lines(&collector.stop().concat()).len(), 300);
}

#[test]
fn a_probe_loses_the_oldest_batches_and_ends_while_the_server_refuses() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let server = Server::start("store", &[]);
    server.set(|script| script.replies = vec![Reply::Error(404, "Code: 60. DB::Exception: no table"); 100_000]);
    let sink = format!("{}?wait=20ms&buffer=64KiB&compression=none", server.sink());
    let quick = "sink_reconnect=10ms,sink_reconnect_max=20ms,sink_tick=20ms,sink_outage=100ms";
    let options = [&["-o", sink.as_str(), "--timing", quick][..], &OF_PROBE].concat();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
    send_requests(&mut sender, 0..1000);
    probe.wait_for(REFUSED);
    until("some are lost, and the others wait", || {
        let ledger = probe.ledger();
        let waiting = number(&ledger["sinks"][0]["waiting"]["flows"]);
        waiting > 0 && waiting + lost(&ledger, "buffer_full") == 1000 && waiting < 700
    });
    let (err, _, ledger) = probe.stop(2);
    assert_eq!(lost(&ledger, "buffer_full") + lost(&ledger, "collector_unreachable"), 1000, "{err}");
    assert!(lost(&ledger, "collector_unreachable") > 0 && lost(&ledger, "buffer_full") > 0, "{ledger}");
}

/// A server with a certificate for a name, and the file of the certificate.
fn with_certificate(folder: &Path) -> (Server, String) {
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=ch", "-addext", "subjectAltName=DNS:ch.example"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), certificate.as_os_str()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key).unwrap())
        .unwrap();
    let script = Script { columns: table("store"), engine: ENGINE, ..Script::default() };
    let server = Server::with_tls("127.0.0.1:0", Arc::new(Mutex::new(script)), Some(Arc::new(config)));
    (server, certificate.display().to_string())
}

#[test]
fn over_tls_the_certificate_of_the_server_is_checked() {
    if !is_installed("openssl") {
        return eprintln!("SKIPPED: openssl is not installed");
    }
    let (source, folder) = (capture(300), tempfile::tempdir().unwrap());
    let (server, certificate) = with_certificate(folder.path());
    let sink = |settings: &str| format!("clickhouse+https://{}/weir.flows?rows=100{settings}", server.address);
    let good = sink(&format!("&ca={certificate}&name=ch.example"));
    let (code, err, ledger) = ledger_of(["read", source.name(), "-o", &good]);
    assert_eq!((code, exported(&ledger), server.rows().len()), (0, 300, 300), "{err}");
    for (sink, expected) in [
        (sink(&format!("&ca={certificate}")), "not valid for name"),
        (sink("&name=ch.example"), "UnknownIssuer"),
        (sink("&ca=/nowhere"), "/nowhere"),
    ] {
        let err = failure(1, ["read", source.name(), "-o", &sink]);
        assert!(err.split_whitespace().collect::<String>().contains(&expected.replace(' ', "")), "{sink}: {err}");
    }
    let plain = Server::start("store", &[]);
    let sink = format!("clickhouse+https://{}/weir.flows?ca={certificate}&name=ch.example", plain.address);
    let err = failure(1, ["read", source.name(), "-o", &sink]);
    let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(err.contains("if it expects none, write clickhouse+http://"), "{err}");
}

#[test]
fn passwords_in_a_sink_are_refused_and_not_repeated() {
    let source = capture(1);
    for sink in
        ["clickhouse+http://me:SECRET@127.0.0.1/weir.flows", "clickhouse+http://127.0.0.1/weir.flows?password=SECRET"]
    {
        let err = failure(1, ["read", source.name(), "-o", sink]);
        assert!(err.contains("password-file=FILE") && !err.contains("SECRET"), "{err}");
        let err = failure(1, ["clickhouse", "check", sink]);
        assert!(err.contains("password-file=FILE") && !err.contains("SECRET"), "{err}");
    }
}

#[test]
fn schema_and_questions_are_printed_for_clickhouse() {
    let text = success(["clickhouse", "schema", "--database", "net", "--table", "f", "--ttl", "36h", "--views"]);
    for line in [
        "CREATE TABLE IF NOT EXISTS net.f",
        "PARTITION BY toYYYYMMDD(start_time)",
        "TTL toDateTime(start_time) + INTERVAL 36 HOUR",
        "CREATE MATERIALIZED VIEW IF NOT EXISTS net.f_hosts_view TO net.f_hosts AS",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let text = success(["clickhouse", "schema", "--kafka", "a,[::1],[::1]:9,b:9093/flows"]);
    let brokers = "kafka_broker_list = 'a:9092,[::1]:9092,[::1]:9,b:9093', kafka_topic_list = 'flows'";
    assert!(text.contains(brokers) && text.contains("weir.flows_kafka_view TO weir.flows AS"), "{text}");
    let err = failure(1, ["clickhouse", "schema", "--fields", "src_ip"]);
    assert!(err.contains("the table needs the field start_time"), "{err}");
    let err = failure(1, ["clickhouse", "schema", "--table", "a b"]);
    assert!(err.contains("names of databases and tables have letters"), "{err}");
    let text = success([
        "query",
        "host",
        "192.0.2.1",
        "--print-sql=clickhouse",
        "--table",
        "net.f",
        "--from",
        "1970-01-01T00:00:01Z",
    ]);
    assert!(text.starts_with(
        "with flows as (select * from net.f where start_time >= fromUnixTimestamp64Nano(1000000000, 'UTC'))"
    ));
    assert!(text.contains("toIPv6('192.0.2.1')") && text.ends_with("limit 20;\n"), "{text}");
    for (arguments, expected) in [
        (&["clickhouse", "schema", "--ttl", "36500d"][..], "rows stay at most 3650d"),
        (&["clickhouse", "schema", "--kafka", "kafka1"], "it must be BROKER/TOPIC"),
        (&["clickhouse", "schema", "--kafka", "a'/flows"], "brokers and topic have letters"),
        (&["query", "select 1", "--print-sql=clickhouse"][..], "prints a ready question"),
        (&["query", "failed", "--print-sql", "--table", "a.b"], "add --print-sql=clickhouse"),
        (&["query", "failed", "--print-sql=clickhouse", "--table", "x"], "name it DATABASE.TABLE"),
        (&["query", "host", "--print-sql=clickhouse"], "needs an address"),
    ] {
        let err = failure(1, arguments);
        assert!(err.contains(expected), "{err}");
    }
}
