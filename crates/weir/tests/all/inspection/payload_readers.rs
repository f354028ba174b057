//! What `weir read` says of payload that is damaged, cut, or longer than the limits of inspection.

use serde_json::Value;
use testbed::{Pcap, ipv4, metered, success};

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [198, 51, 100, 7];
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A frame of a client's port and the server's port 4000. `from_client`: the side that sends it.
pub(super) fn segment(port: u16, from_client: bool, sequence: u32, control: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination, ports) =
        if from_client { (CLIENT, SERVER, [port, 4000]) } else { (SERVER, CLIENT, [4000, port]) };
    let numbers = [sequence, 1].map(u32::to_be_bytes).concat();
    let rest = [0x50, control, 0xff, 0xff, 0, 0, 0, 0];
    ipv4(6, source, destination, &[&ports.map(u16::to_be_bytes).concat()[..], &numbers, &rest, payload].concat())
}

/// The frames of a connection: the client's SYN, then segments of the client (`true`) and the
/// server.
pub(super) fn connection(port: u16, segments: &[(bool, &[u8])]) -> Vec<Vec<u8>> {
    let mut frames = vec![segment(port, true, 0, SYN, b""), segment(port, false, 0, SYN | ACK, b"")];
    let mut sequences = [1, 1];
    for &(from_client, payload) in segments {
        let sequence = &mut sequences[usize::from(from_client)];
        frames.push(segment(port, from_client, *sequence, ACK, payload));
        *sequence += payload.len() as u32;
    }
    frames
}

pub(super) fn datagram(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let words = [ports[0], ports[1], 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    ipv4(17, CLIENT, SERVER, &[&words, payload].concat())
}

/// The values of some fields of the only record of these frames. `null` is an empty text.
pub(super) fn read<const N: usize>(frames: &[Vec<u8>], options: &[&str], fields: [&str; N]) -> [String; N] {
    let capture = Pcap::of(frames).saved();
    let list = fields.join(",");
    let (code, err, records, _) = metered(&[&["read", capture.name(), "-q", "--fields", &list], options].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let [record] = &records[..] else { panic!("one record: {records:#?}") };
    fields.map(|field| match &record[field] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

/// A vector after its length in `N` octets.
fn vector<const N: usize>(content: &[u8]) -> Vec<u8> {
    [&content.len().to_be_bytes()[size_of::<usize>() - N..], content].concat()
}

/// A ClientHello with a server name and protocols (ALPN), in one record.
fn client_hello(name: &[u8], protocols: &[&[u8]]) -> Vec<u8> {
    let name = vector::<2>(&[&[0], &vector::<2>(name)[..]].concat());
    let protocols: Vec<u8> = protocols.iter().flat_map(|protocol| vector::<1>(protocol)).collect();
    let extensions = [&[0, 0][..], &vector::<2>(&name), &[0, 16], &vector::<2>(&vector::<2>(&protocols))].concat();
    let body = [&[3, 3][..], &[7; 32], &vector::<1>(&[1; 32]), &[0, 2, 0x13, 1, 1, 0], &vector::<2>(&extensions)];
    let hello = [&[1], &vector::<3>(&body.concat())[..]].concat();
    [&[22, 3, 1], &vector::<2>(&hello)[..]].concat()
}

#[test]
fn damaged_line_of_a_side_does_not_undo_what_the_other_one_proves() {
    let fields = ["application", "application_by", "ssh_client", "ssh_server", "http_status"];
    for (client_is_first, first, second, expected) in [
        (true, &b"SSH-2.0-x\x1b\r\n"[..], &b"SSH-2.0-y\r\n"[..], ["ssh", "message", "", "SSH-2.0-y", ""]),
        (false, b"SSH-2.0-y\x1b\r\n", b"SSH-2.0-x\r\n", ["ssh", "message", "SSH-2.0-x", "", ""]),
        (true, b"GET /\x1b HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad\r\n\r\n", ["http", "message", "", "", "400"]),
        (false, b"220 \x1b\r\n", b"EHLO a.example\r\n", ["smtp", "message", "", "", ""]),
        (true, b"\x16\x03\x01\0\x09\x01\x09\x09", b"220 a.example\r\n", ["", "", "", "", ""]),
    ] {
        let frames = connection(5000, &[(client_is_first, first), (!client_is_first, second)]);
        assert_eq!(read(&frames, &[], fields), expected, "{:?}", String::from_utf8_lossy(first));
    }
}

#[test]
fn hello_that_the_capture_cut_has_a_gap() {
    let hello = client_hello(b"a.example", &[]);
    for (octets, application, notes) in [(46, "tls", "gap"), (11, "tls", "gap"), (10, "", "gap"), (0, "", "gap")] {
        let frames = connection(5000, &[(true, &hello)]);
        let cut = &frames[2][..14 + 20 + 20 + octets];
        let whole = frames[2].len() as u32;
        let capture = Pcap::new().frame(1, 0, &frames[0]).frame(1, 1, &frames[1]).record(1, 2, cut, whole).saved();
        let (_, _, records, _) = metered(&["read", capture.name(), "-q", "--fields", "application,application_notes"]);
        let text = |field: &str| records[0][field].as_str().unwrap_or_default();
        assert_eq!((text("application"), text("application_notes")), (application, notes), "{octets}");
    }
}

#[test]
fn a_field_that_is_folded_over_lines_is_no_fact_and_hides_none() {
    for (head, host) in [
        (&b"GET / HTTP/1.1\r\nX: 1\r\n Host: b.example\r\nHost: a.example\r\n\r\n"[..], "a.example"),
        (b"GET / HTTP/1.1\r\nHost: a.example\r\n\tb\r\nAccept: *\r\n\r\n", ""),
    ] {
        let frames = connection(5000, &[(true, head)]);
        assert_eq!(read(&frames, &[], ["application", "http_host"]), ["http", host]);
    }
}

#[test]
fn statuses_and_paths_are_exact_or_none() {
    for (request, response, expected) in [
        (&b"GET  / HTTP/1.1\r\n\r\n"[..], &b"HTTP/1.1 99999 x\r\n\r\n"[..], ["http", "/", ""]),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 099 x\r\n\r\n", ["http", "/", ""]),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404\r\n\r\n", ["http", "/", "404"]),
        (b"GET  HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 x\r\n\r\n", ["http", "", "400"]),
    ] {
        let frames = connection(5000, &[(true, request), (false, response)]);
        assert_eq!(read(&frames, &["--dpi-fields"], ["application", "http_path", "http_status"]), expected);
    }
}

#[test]
fn end_of_inspection_at_a_limit_is_told() {
    let fields = ["application", "sni", "http_host", "application_notes"];
    let hello = client_hello(b"a.example", &[]);
    let long_hello = client_hello(&[b'a'; 10_000], &[]);
    let long_head = [b"GET / HTTP/1.1\r\nCookie: ".as_slice(), &[b'a'; 9000], b"\r\nHost: a.example\r\n\r\n"].concat();
    let by = |octets: usize, payload: &[u8]| -> Vec<Vec<u8>> {
        let segments: Vec<(bool, &[u8])> = payload.chunks(octets).map(|octets| (true, octets)).collect();
        connection(5000, &segments)
    };
    for (frames, options, expected) in [
        (by(1400, &hello), &[][..], ["tls", "a.example", "", ""]),
        (by(1400, &long_hello), &[], ["tls", "", "", "limit"]),
        (by(1400, &hello), &["--dpi-octets", "64"], ["tls", "", "", "limit"]),
        (by(1, &hello), &[], ["tls", "", "", "limit"]),
        (by(1, &hello), &["--dpi-packets", "8"], ["", "", "", "limit"]),
        (by(1400, &long_head), &[], ["http", "", "", "limit"]),
        (by(1400, &long_head), &["--dpi-octets", "16384"], ["http", "", "a.example", ""]),
        (by(1400, &[0xff; 9000]), &[], ["", "", "", ""]),
    ] {
        assert_eq!(read(&frames, options, fields), expected, "{options:?} {}", frames.len());
    }
}

#[test]
fn zeros_are_no_message() {
    let mut initiation = vec![0; 148];
    initiation[0] = 1;
    for (port, payload) in [(53, &[0; 12][..]), (5353, &[0; 12]), (5355, &[0; 12]), (51_820, &initiation)] {
        assert_eq!(
            read(&[datagram([5000, port], payload)], &[], ["application", "application_by"]),
            ["", ""],
            "{port}"
        );
    }
}

#[test]
fn commas_and_quotes_in_entries_are_told_from_those_of_the_list() {
    let hello = client_hello(b"a,b.example", &[b"h2,http/1.1", b"h3"]);
    let fields = ["sni", "alpn_offered"];
    assert_eq!(read(&connection(5000, &[(true, &hello)]), &[], fields), ["a,b.example", "h2\\x2chttp/1.1,h3"]);
    let record = |data: &[u8]| [&[0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 9][..], &vector::<2>(&vector::<1>(data))].concat();
    let header = [0, 7, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0];
    let answer = [&header[..], b"\x01a\0\0\x10\0\x01", &record(b"x\",\"y"), &record(b"z")].concat();
    assert_eq!(read(&[datagram([53, 5000], &answer)], &[], ["dns_records"]), ["\"x\\x22\\x2c\\x22y\",\"z\""]);
}

#[test]
fn certificate_without_an_end_has_the_last_time_and_a_note() {
    let der = |tag: u8, content: &[u8]| [&[tag, 0x82][..], &vector::<2>(content)].concat();
    let validity = der(0x30, &[der(0x17, b"260101000000Z"), der(0x18, b"99991231235959Z")].concat());
    let names = der(0x30, &[der(0x82, b"a,b.example"), der(0x82, b"c.example")].concat());
    let extension = der(0x30, &[der(6, &[0x55, 0x1d, 17]), der(4, &names)].concat());
    let extensions = der(0xa3, &der(0x30, &extension));
    let empty = der(0x30, b"");
    let fields = [der(2, &[1]), empty.clone(), empty.clone(), validity, empty.clone(), empty, extensions].concat();
    let certificate = der(0x30, &der(0x30, &fields));
    let record =
        |kind: u8, body: &[u8]| [&[22, 3, 3][..], &vector::<2>(&[&[kind], &vector::<3>(body)[..]].concat())].concat();
    let hello = record(2, &[&[3, 3][..], &[7; 32], &[0, 0xc0, 0x2f, 0]].concat());
    let server = [hello, record(11, &vector::<3>(&vector::<3>(&certificate)))].concat();
    let frames = connection(5000, &[(true, &client_hello(b"a.example", &[])), (false, &server)]);
    let fields = ["cert_not_before", "cert_not_after", "cert_names", "application_notes"];
    let expected =
        ["2026-01-01T00:00:00.000000000Z", "2554-07-21T23:34:33.000000000Z", "a\\x2cb.example,c.example", "cut"];
    assert_eq!(read(&frames, &[], fields), expected);
}

#[test]
fn unknown_command_of_redis_and_name_that_loops_are_not_certain() {
    let redis = connection(5000, &[(true, b"*1\r\n$7\r\nFOOBARX\r\n")]);
    assert_eq!(read(&redis, &[], ["application", "application_by"]), ["redis", "pattern"]);
    // The name of the record points to its time to live, which points behind itself.
    let record = [0xc0, 12, 0, 5, 0, 1, 0xc0, 27, 0xc0, 25, 0, 2, 0xc0, 25];
    let answer = [&[0, 7, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..], b"\x01a\0\0\x05\0\x01", &record].concat();
    assert_eq!(read(&[datagram([53, 5000], &answer)], &[], ["dns_records"]), ["TYPE5"]);
}

/// Names come from strangers: none of them adds a key to JSON or a column to CSV.
#[test]
fn odd_names_stay_one_value_in_every_format_of_views() {
    let names = ["x\",\"flows\":999999,\"sni\":\"good.example", "a,b", "say \"hi\"", "back\\slash", "tab\there"];
    let mut frames = Vec::new();
    for (port, name) in (1000..).zip(names) {
        let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nUser-Agent: {name}\r\n\r\n");
        frames.extend(connection(port, &[(true, &client_hello(name.as_bytes(), &[b"h2"]))]));
        frames.extend(connection(100 + port, &[(true, request.as_bytes())]));
    }
    let capture = Pcap::of(&frames).saved();
    for field in ["sni", "http_host", "http_user_agent"] {
        let of = |sink: &str| success(["read", capture.name(), "-q", "--dpi-fields", "--by", field, "-o", sink]);
        let lines = of("json:-");
        let found: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let keys: Vec<&String> = found[0].as_object().unwrap().keys().collect();
        let mut read: Vec<&str> = found.iter().filter_map(|group| group[field].as_str()).collect();
        read.sort();
        // A field has control characters as \xNN, and therefore two backslashes for one.
        let mut expected = names.map(|name| name.replace('\\', "\\\\").replace('\t', "\\x09"));
        expected.sort();
        assert_eq!(read, expected, "{field}: {lines}");
        assert!(found.iter().all(|group| group.as_object().unwrap().len() == keys.len()), "{field}: {lines}");
        assert_eq!(found.iter().map(|group| group["flows"].as_u64().unwrap()).sum::<u64>(), 10, "{field}: {lines}");
        let text = of("csv:-");
        let mut table = csv::ReaderBuilder::new().flexible(false).from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = table.records().map(|row| row.expect(&text)).collect();
        assert_eq!(rows.len(), found.len(), "{field}: {text}");
        for name in &expected {
            assert!(rows.iter().any(|row| row.iter().any(|value| value == name)), "{field}: {name}: {text}");
        }
    }
}
