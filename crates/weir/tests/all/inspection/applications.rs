//! Applications: what `weir read` finds in the payload of the captures of single flows.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use testbed::{Pcap, captures_of_applications, datagram, ipv4, metered, number, weir};

/// Facts of the list beside a capture, and the fields that have them.
const FIELDS: [(&str, &str); 20] = [
    ("ServerName", "sni"),
    ("AlpnOffered", "alpn_offered"),
    ("AlpnSelected", "alpn"),
    ("TlsCipher", "tls_cipher"),
    ("JA3", "ja3"),
    ("JA3S", "ja3s"),
    ("JA4", "ja4"),
    ("CertificateSubject", "cert_subject"),
    ("CertificateNames", "cert_names"),
    ("QuicVersion", "quic_version"),
    ("DnsName", "dns_name"),
    ("DnsType", "dns_type"),
    ("DnsRcode", "dns_rcode"),
    ("DnsAnswers", "dns_records"),
    ("HttpHost", "http_host"),
    ("HttpPath", "http_path"),
    ("HttpUserAgent", "http_user_agent"),
    ("HttpStatus", "http_status"),
    ("SshServer", "ssh_server"),
    ("Hassh", "hassh"),
];

/// Captures in which the server refuses the ClientHello.
const ALERTS: [(&str, &str); 3] = [
    ("tls-alert", "fatal protocol_version"),
    ("dtls-refused", "fatal handshake_failure"),
    ("quic-refused", "fatal no_application_protocol"),
];

/// The only record of a capture.
fn record(path: &Path, options: &[&str]) -> Value {
    let (code, err, records, _) = metered(&[&["read", path.to_str().unwrap(), "-q"], options].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{}", path.display());
    assert_eq!(records.len(), 1, "{}", path.display());
    records[0].clone()
}

#[test]
fn fields_have_the_facts_of_the_payload() {
    let captures = captures_of_applications();
    assert!(captures.len() > 10);
    for path in captures {
        let facts = std::fs::read_to_string(path.with_extension("facts")).expect("each capture has a list of facts");
        let record = record(&path, &["--fields", "applications", "--dpi-fields"]);
        let (application, by) = facts.lines().next().and_then(|line| line.split_once(" by ")).expect("the first line");
        assert_eq!((&record["application"], &record["application_by"]), (&application.into(), &by.into()));
        let facts: BTreeMap<&str, &str> = facts.lines().skip(1).filter_map(|line| line.split_once(' ')).collect();
        for (fact, field) in FIELDS {
            let expected = facts.get(fact).copied().unwrap_or("null");
            let value = &record[field];
            let value = value.as_str().map_or_else(|| value.to_string(), String::from);
            assert_eq!(value, expected, "{} {field}", path.display());
        }
        let name = path.file_stem().unwrap();
        let alert = ALERTS.iter().find(|(of, _)| *of == name).map(|(_, alert)| *alert);
        assert_eq!(record["tls_alert"].as_str(), alert, "{name:?}");
    }
}

#[test]
fn inspection_can_be_off_and_personal_facts_are_kept_on_request_only() {
    for path in captures_of_applications() {
        let without = record(&path, &["--fields", "applications", "--dpi", "off"]);
        assert!(without["application"].is_null() && without["sni"].is_null() && without["dns_name"].is_null());
        let default = record(&path, &["--fields", "applications"]);
        for field in ["http_path", "http_user_agent", "user_name"] {
            assert!(default[field].is_null(), "{} {field}", path.display());
        }
    }
}

#[test]
fn views_and_expressions_have_applications() {
    let of =
        |name: &str| captures_of_applications().into_iter().find(|path| path.file_stem().unwrap() == name).unwrap();
    let (tls, dns) = (of("tls-1.2"), of("dns-udp"));
    let files = ["read", tls.to_str().unwrap(), dns.to_str().unwrap(), "-q"];
    let read = |options: &[&str]| weir(files.iter().chain(options));
    let (code, table, err) = read(&["--by", "application"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(table.contains("tls") && table.contains("dns"), "{table}");
    let (_, selected, _) = read(&["-o", "csv:-", "--fields", "sni", "--where", "sni ends-with .example.test"]);
    assert_eq!(selected, "sni\nwww.example.test\n");
    let (code, _, err) = read(&["--where", "application = dsn"]);
    assert_eq!(code, 1);
    assert!(err.contains("application has no value \"dsn\"; did you mean dns?; there are tls, quic, dns"), "{err}");
}

#[test]
fn one_entry_of_a_list_is_enough() {
    let path =
        captures_of_applications().into_iter().find(|path| path.file_stem().unwrap() == "tls-client-certificate");
    let path = path.unwrap();
    for (expression, is_selected) in [
        ("cert_names = www.example.test", true),
        ("cert_names = WWW.example.test.", true),
        ("cert_names = 192.0.2.7", true),
        ("cert_names = 'www.example.test,*.cdn.example.test,192.0.2.7,2001:db8::7'", true),
        ("cert_names = example.test", false),
        ("cert_names != www.example.test", false),
        ("cert_names in {a.example, '*.cdn.example.test'}", true),
        ("cert_names starts-with '*.cdn.'", true),
        ("cert_names ends-with .cdn.example.test", true),
        ("cert_names ends-with .org", false),
        ("cert_names contains cdn", true),
        ("sni ends-with .test", true),
    ] {
        let options = ["read", path.to_str().unwrap(), "-q", "-o", "csv:-", "--fields", "sni", "--where", expression];
        let (code, text, err) = weir(options);
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(text.lines().count(), 1 + usize::from(is_selected), "{expression}");
    }
}

#[test]
fn most_flows_are_recognised_by_their_first_packet_with_payload() {
    let mut flows_by_packet = [0; 8];
    for path in captures_of_applications().iter().chain(&testbed::capture_files()) {
        let (_, _, ledger) = testbed::ledger_of(["read", path.to_str().unwrap(), "-q", "-o", "csv:/dev/null"]);
        let inspection = &ledger["inspection"];
        let counted = inspection["recognised_by_packet"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(counted.iter().map(number).sum::<u64>(), inspection["recognised"].as_u64().unwrap_or(0));
        flows_by_packet.iter_mut().zip(counted).for_each(|(sum, flows)| *sum += number(flows));
    }
    let [first, second, later @ ..] = flows_by_packet;
    assert!(first > 100 && second * 20 < first && later == [0; 6], "{flows_by_packet:?}");
}

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const OTHER: [u8; 4] = [192, 0, 2, 2];
const RESOLVER: [u8; 4] = [192, 0, 2, 53];
const SERVER: [u8; 4] = [198, 51, 100, 7];

/// A question for `a.example`, or the answer to it: one record with a time to live of 100 s.
fn dns(id: u8, kind: u8, answer: &[u8]) -> Vec<u8> {
    dns_of(b"\x01a\x07example", id, kind, answer)
}

/// The same for a name as it is on the wire, without the root.
fn dns_of(name: &[u8], id: u8, kind: u8, answer: &[u8]) -> Vec<u8> {
    let (flags, count) = if answer.is_empty() { ([1, 0], 0) } else { ([0x81, 0x80], 1) };
    let mut message = [&[0, id][..], &flags, &[0, 1, 0, count, 0, 0, 0, 0], name, &[0, 0, kind, 0, 1]].concat();
    if !answer.is_empty() {
        message.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 100, 0, answer.len() as u8]);
        message.extend(answer);
    }
    message
}

fn field<'a>(records: &'a [Value], name: &str, source_port: u16) -> &'a Value {
    let record = records.iter().find(|record| record["src_port"] == source_port);
    &record.unwrap_or_else(|| panic!("no record of port {source_port}: {records:#?}"))[name]
}

#[test]
fn dns_teaches_names_of_later_flows_of_the_same_client_for_the_lifetime_of_the_answer() {
    let to_server = |client, port| datagram((client, port), (SERVER, 9999), b"\xff\xff\xff\xff");
    let ask = |payload: &[u8]| datagram((CLIENT, 5000), (RESOLVER, 53), payload);
    let answer = |payload: &[u8]| datagram((RESOLVER, 53), (CLIENT, 5000), payload);
    // The questions for both types come first, as glibc asks; the answers come in the other order.
    let capture = Pcap::new()
        .frame(1, 0, &to_server(CLIENT, 6000))
        .frame(2, 0, &ask(&dns(1, 28, &[])))
        .frame(2, 1, &ask(&dns(2, 1, &[])))
        .frame(2, 2, &answer(&dns(2, 1, &SERVER)))
        .frame(2, 3, &answer(&dns(1, 28, &[0x20; 16])))
        .frame(3, 0, &to_server(CLIENT, 6001))
        .frame(4, 0, &to_server(OTHER, 6002))
        // An answer without a question.
        .frame(5, 0, &datagram((RESOLVER, 53), (OTHER, 5001), &dns(3, 1, &SERVER)))
        .frame(6, 0, &to_server(OTHER, 6003))
        .frame(101, 0, &to_server(CLIENT, 6004))
        .frame(103, 0, &to_server(CLIENT, 6005))
        .saved();
    let (code, err, records, _) = metered(&["read", capture.name(), "-q", "--fields", "applications"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for (port, expected) in
        [(6000, None), (6001, Some("a.example")), (6002, None), (6003, None), (6004, Some("a.example")), (6005, None)]
    {
        assert_eq!(field(&records, "dst_dns_name", port).as_str(), expected, "{port}");
        assert!(field(&records, "application", port).is_null());
    }
}

/// RFC 1035 section 4.1: the response repeats the question, and each record has its own name.
#[test]
fn dns_answers_to_another_question_and_names_of_other_records_do_not_count() {
    // The record, 16 octets with a pointer to the question, has a name of its own.
    let with_owner = |id: u8, owner: &[u8]| {
        let mut message = dns(id, 1, &SERVER);
        let at = message.len() - 16;
        message.splice(at..at + 2, owner.iter().copied());
        message
    };
    for (at, (answer, rcode, answers, name)) in [
        (dns(1, 1, &SERVER), Some(0), Some("198.51.100.7"), Some("a.example")),
        // Another name, another type, another id.
        (dns_of(b"\x01b\x07example", 1, 1, &SERVER), None, None, None),
        (dns(1, 28, &[0x20; 16]), None, None, None),
        (dns(2, 1, &SERVER), None, None, None),
        (with_owner(1, b"\x01A\x07Example\0"), Some(0), Some("198.51.100.7"), Some("a.example")),
        (with_owner(1, b"\x01c\x07example\0"), Some(0), Some("198.51.100.7"), None),
    ]
    .into_iter()
    .enumerate()
    {
        let client = [192, 0, 2, 100 + at as u8];
        let port = 5000 + at as u16;
        let capture = Pcap::of(&[
            datagram((client, port), (RESOLVER, 53), &dns(1, 1, &[])),
            datagram((RESOLVER, 53), (client, port), &answer),
            datagram((client, 6000), (SERVER, 9999), b"\xff\xff\xff\xff"),
        ])
        .saved();
        let (code, err, records, _) = metered(&["read", capture.name(), "-q", "--fields", "applications"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(field(&records, "dns_name", port), "a.example");
        assert_eq!(field(&records, "dns_rcode", port).as_u64(), rcode, "{at}");
        assert_eq!(field(&records, "dns_records", port).as_str(), answers, "{at}");
        assert_eq!(field(&records, "dst_dns_name", 6000).as_str(), name, "{at}");
    }
}

#[test]
fn octets_behind_the_length_of_udp_are_not_inspected() {
    // On port 4000 a message of DNS has to end with the datagram.
    let with_trailer = |port: u16, payload: &[u8], trailer: &[u8]| {
        let mut frame = datagram((CLIENT, port), (SERVER, 4000), &[payload, trailer].concat());
        frame[14 + 20 + 4..][..2].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        frame
    };
    let question = dns(1, 1, &[]);
    let frames = [with_trailer(5000, &question, b"x"), with_trailer(5001, b"", &question)];
    let capture = Pcap::of(&frames).saved();
    let (code, err, records, ledger) = metered(&["read", capture.name(), "-q", "--fields", "applications"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for (port, expected) in [(5000, Some("dns")), (5001, None)] {
        assert_eq!(field(&records, "application", port).as_str(), expected, "{port}");
        assert!(field(&records, "application_notes", port).is_null(), "{port}");
    }
    assert_eq!(ledger["inspection"]["flows"], 1);
}

#[test]
fn junk_does_not_hide_what_later_datagrams_or_the_other_side_prove() {
    const PSH_ACK: u8 = 0x18;
    const SERVER_HELLO: &[u8] = b"\x16\x03\x03\0\x2a\x02\0\0\x26\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0\xc0\x2f\0";
    let junk = b"?\x01\x02\x03 this is no protocol\r\n";
    let mut frames = Vec::new();
    for (port, count) in [(5000, 1), (5001, 2), (5002, 4)] {
        let datagrams = (0..count).map(|_| datagram((CLIENT, port), (SERVER, 4000), junk));
        frames.extend(datagrams.chain([datagram((CLIENT, port), (SERVER, 4000), &dns(1, 1, &[]))]));
    }
    let answer = datagram((SERVER, 4000), (CLIENT, 5003), &dns(1, 1, &SERVER));
    let ask = |payload| datagram((CLIENT, 5003), (SERVER, 4000), payload);
    frames.extend([ask(&dns(1, 1, &[])), ask(junk), answer]);
    for (port, first, answer) in [
        (6000, &b"PUR\tGE / HTTP/1.0\r\n\r\n"[..], &b"HTTP/1.0 400 Bad Request\r\n\r\n"[..]),
        (6001, junk, b"SSH-2.0-a\r\n"),
        (6002, junk, SERVER_HELLO),
        (6003, junk, junk),
        (6004, b"\r\n", b"SSH-2.0-a\r\n"),
    ] {
        frames.push(segment((CLIENT, port), (SERVER, 4000), PSH_ACK, first));
        frames.push(segment((SERVER, 4000), (CLIENT, port), PSH_ACK, answer));
    }
    let capture = Pcap::of(&frames).saved();
    let (code, err, records, ledger) = metered(&["read", capture.name(), "-q", "--fields", "applications"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for (port, expected) in [
        (5000, Some("dns")),
        (5001, None),
        (5002, None),
        (5003, Some("dns")),
        (6000, Some("http")),
        (6001, Some("ssh")),
        (6002, Some("tls")),
        (6003, None),
        (6004, Some("ssh")),
    ] {
        assert_eq!(field(&records, "application", port).as_str(), expected, "{port}");
        assert!(field(&records, "application_notes", port).is_null(), "{port}");
    }
    assert_eq!(field(&records, "dns_records", 5003), "198.51.100.7");
    assert_eq!(field(&records, "http_status", 6000), 400);
    assert_eq!(field(&records, "ssh_server", 6001), "SSH-2.0-a");
    assert_eq!(ledger["inspection"]["flows"], 9);
    assert_eq!(ledger["inspection"]["recognised_by_packet"], serde_json::json!([1, 5, 0, 0, 0, 0, 0, 0]));
}

/// A part of the response overtakes the request, as in captures that two interfaces made.
#[test]
fn octets_behind_a_gap_do_not_hide_the_request() {
    let (client, server) = ((CLIENT, 5000), (SERVER, 80));
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let (status, fields) = (b"HTTP/1.1 200 OK\r\n", b"Content-Type: a/b\r\n\r\n");
    let capture = Pcap::of(&[
        segment_at(6, client, server, 0x02, b""),
        segment_at(6, server, client, 0x12, b""),
        segment_at(7 + status.len() as u8, server, client, 0x18, fields),
        segment_at(7, client, server, 0x18, request),
        segment_at(7, server, client, 0x18, status),
    ])
    .saved();
    let record = record(Path::new(capture.name()), &["--fields", "applications"]);
    let facts = ["application", "http_host", "http_status", "http_content_type"].map(|name| record[name].to_string());
    assert_eq!(facts, ["\"http\"", "\"a.example\"", "200", "\"a/b\""]);
}

/// Octets of the header of a pcap file, and of a packet record.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// The packets of a capture in another order, at the same times: those with SYN, then those that
/// `is_first` chooses by their side and number, then the others.
fn reordered(path: &Path, is_first: impl Fn(bool, usize) -> bool) -> testbed::SavedCapture {
    let octets = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
    let (mut times, mut packets) = (Vec::new(), Vec::new());
    let (mut at, mut counts) = (FILE_HEADER, [0; 2]);
    let mut client_port = None;
    while at < octets.len() {
        let frame = &octets[at + RECORD_HEADER..][..word(at + 8) as usize];
        times.push((word(at), word(at + 4)));
        let tcp = &frame[14 + if frame[12..14] == [0x86, 0xdd] { 40 } else { 20 }..];
        let from_client = *client_port.get_or_insert([tcp[0], tcp[1]]) == [tcp[0], tcp[1]];
        let number = &mut counts[usize::from(from_client)];
        *number += 1;
        let is_syn = tcp[13] & 2 != 0;
        packets.push((!is_syn, !is_first(from_client, *number), frame));
        at += RECORD_HEADER + frame.len();
    }
    packets.sort_by_key(|(is_later, is_last, _)| (*is_later, *is_last));
    let add = |pcap: Pcap, ((seconds, microseconds), packet): (&(u32, u32), &(bool, bool, &[u8]))| {
        pcap.frame(*seconds, *microseconds, packet.2)
    };
    times.iter().zip(&packets).fold(Pcap::new(), add).saved()
}

#[test]
fn facts_of_sessions_with_greetings_do_not_depend_on_the_order_of_the_directions() {
    let fields = FIELDS.map(|(_, field)| field).into_iter().chain([
        "application",
        "application_by",
        "application_notes",
        "user_name",
        "server_software",
        "cert_issuer",
        "cert_not_after",
        "tls_alert",
    ]);
    let fields: Vec<&str> = fields.collect();
    let facts = |path: &Path| {
        let limits = ["--dpi-packets", "100", "--dpi-octets", "65536"];
        let record = record(path, &[&["--fields", "applications", "--dpi-fields"], &limits[..]].concat());
        fields.iter().map(|name| (*name, record[name].clone())).collect::<BTreeMap<_, _>>()
    };
    let mut captures = 0;
    for path in captures_of_applications() {
        let name = path.file_stem().unwrap().to_string_lossy();
        if !["smtp", "imap", "pop3", "ftp"].contains(&name.split('-').next().unwrap()) {
            continue;
        }
        captures += 1;
        let expected = facts(&path);
        assert!(expected["application"].is_string() && expected["server_software"].is_string(), "{name}");
        let orders: [&dyn Fn(bool, usize) -> bool; 5] = [
            &|from_client, _| from_client,
            &|from_client, _| !from_client,
            &|from_client, number| from_client && number < 6,
            &|from_client, number| from_client || number < 4,
            &|_, number| number < 5,
        ];
        for order in orders {
            let capture = reordered(&path, order);
            assert_eq!(facts(Path::new(capture.name())), expected, "{name}");
        }
    }
    assert!(captures >= 8);
}

/// Facts of HTTP, of the only record of a capture.
fn facts_of_http(frames: &[Vec<u8>]) -> [String; 5] {
    let capture = Pcap::of(frames).saved();
    let record = record(Path::new(capture.name()), &["--fields", "applications", "--dpi-fields"]);
    ["application", "http_method", "http_host", "http_status", "http_content_type"].map(|name| {
        let value = &record[name];
        value.as_str().map_or_else(|| value.to_string(), String::from)
    })
}

#[test]
fn headers_of_http2_continue_in_other_frames() {
    let (client, server) = ((CLIENT, 5000), (SERVER, 80));
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let (settings, window_update) = (frame(4, 0, 0, b""), frame(8, 0, 0, &[0, 1, 0, 0]));
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &window_update].concat();
    // HEADERS with padding and priority, and the name of the host over two CONTINUATION frames.
    let request = [&preface[..], &frame(1, 0x28, 1, b"\x02\0\0\0\0\x07\x82\x84\x01\x09a.ex\0\0")].concat();
    let rest = [frame(9, 0, 1, b"amp"), frame(9, 4, 1, b"le")].concat();
    let response = [settings, frame(1, 0, 1, b"\x8d\x0f"), frame(9, 4, 1, b"\x10\x09text/html")].concat();
    let facts = facts_of_http(&[
        segment_at(7, client, server, 0x18, &request),
        segment_at(7 + request.len() as u8, client, server, 0x18, &rest),
        segment_at(7, server, client, 0x18, &response),
    ]);
    assert_eq!(facts, ["http2", "GET", "a.example", "404", "text/html"]);
}

#[test]
fn rtp_is_recognised_where_sip_announced_it() {
    let invite = b"INVITE sip:b@b.example SIP/2.0\r\nFrom: <sip:a@a.example>\r\nContent-Type: application/sdp\r\n\r\n\
        v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\nm=video 40002 RTP/AVP 96\r\n\
        c=IN IP4 192.0.2.2\r\n";
    let rtp = [&[0x80, 0, 0, 1][..], &[7; 168]].concat();
    let media = |source, destination: ([u8; 4], u16)| datagram((SERVER, source), destination, &rtp);
    let capture = Pcap::new()
        .frame(1, 0, &media(7000, (CLIENT, 40000)))
        .frame(2, 0, &datagram((CLIENT, 5060), (SERVER, 5060), invite))
        .frame(3, 0, &media(7001, (CLIENT, 40000)))
        .frame(3, 1, &media(7002, (OTHER, 40002)))
        .frame(3, 2, &media(7003, (CLIENT, 40002)))
        .frame(3, 3, &datagram((SERVER, 7004), (CLIENT, 40000), &[0xff; 172]))
        .saved();
    let (code, err, records, _) = metered(&["read", capture.name(), "-q", "--fields", "applications"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for (port, expected) in [(7000, None), (7001, Some("rtp")), (7002, Some("rtp")), (7003, None), (7004, None)] {
        assert_eq!(field(&records, "application", port).as_str(), expected, "{port}");
        assert_eq!(field(&records, "application_by", port).as_str(), expected.map(|_| "announced"), "{port}");
    }
}

#[test]
fn port_is_a_guess_on_request_for_payload_that_tells_nothing() {
    let capture = Pcap::new()
        .frame(1, 0, &datagram((CLIENT, 6000), (SERVER, 443), b"\xff\xff\xff\xff"))
        .frame(1, 1, &datagram((CLIENT, 6001), (SERVER, 443), b""))
        .frame(1, 2, &datagram((CLIENT, 6002), (SERVER, 9999), b"\xff\xff\xff\xff"))
        .frame(1, 3, &datagram((CLIENT, 6003), (SERVER, 443), &dns(1, 1, &[])))
        .saved();
    for (option, expected) in [(&[][..], None), (&["--dpi-ports"], Some(("quic", "port")))] {
        let arguments = [&["read", capture.name(), "-q", "--fields", "applications"], option].concat();
        let (code, err, records, ledger) = metered(&arguments);
        assert_eq!((code, err.as_str()), (0, ""));
        for (port, expected) in [(6000, expected), (6001, None), (6002, None), (6003, Some(("dns", "message")))] {
            assert_eq!(field(&records, "application", port).as_str(), expected.map(|(name, _)| name), "{port}");
            assert_eq!(field(&records, "application_by", port).as_str(), expected.map(|(_, by)| by), "{port}");
        }
        assert_eq!(ledger["inspection"]["recognised"], 1);
    }
}

/// Questions of DNS for names on the wire, and a datagram that tells nothing. Clients have the ports
/// from 5000 on.
fn questions(names: &[&[u8]]) -> testbed::SavedCapture {
    let ask = |(at, name): (usize, &&[u8])| {
        datagram((CLIENT, 5000 + at as u16), (RESOLVER, 53), &dns_of(name, at as u8, 1, &[]))
    };
    let mut frames: Vec<Vec<u8>> = names.iter().enumerate().map(ask).collect();
    frames.push(datagram((CLIENT, 6000), (SERVER, 9999), b"\xff\xff\xff\xff"));
    Pcap::of(&frames).saved()
}

/// RFC 4343.
#[test]
fn names_of_hosts_are_compared_and_grouped_without_regard_to_case() {
    let capture = questions(&[b"\x01a\x07example", b"\x01A\x07Example", b"\x01b\x07EXAMPLE"]);
    let read = |options: &[&str]| {
        let (code, text, err) = weir(["read", capture.name(), "-q", "-o", "csv:-"].iter().chain(options));
        assert_eq!((code, err.as_str()), (0, ""), "{options:?}");
        text
    };
    for (expression, flows) in [
        ("dns_name = a.example", 2),
        ("dns_name = A.EXAMPLE.", 2),
        ("dns_name != a.example", 1),
        ("dns_name in {A.example, c.example}", 2),
        ("dns_name not in {A.example, c.example}", 1),
        ("dns_name starts-with A", 2),
        ("dns_name ends-with .example", 3),
        ("dns_name ends-with .EXAMPLE.", 3),
        ("dns_name contains EXAM", 3),
        ("dns_name = a.exampl", 0),
        ("community_id starts-with 1:", 4),
        ("dns_records contains x", 0),
    ] {
        assert_eq!(read(&["--where", expression]).lines().count(), 1 + flows, "{expression}");
    }
    let groups = read(&["--by", "dns_name", "--sort", "dns_name:asc"]);
    let rows: Vec<[&str; 2]> =
        groups.lines().skip(1).map(|row| [0, 2].map(|at| row.split(',').nth(at).unwrap())).collect();
    assert_eq!(rows, [["a.example", "2"], ["b.example", "1"], ["", "1"]], "{groups}");
    // Records have the name as it was sent.
    assert!(read(&["--fields", "dns_name"]).contains("\nA.Example\n"));
}

#[test]
fn a_field_alone_selects_flows_in_which_it_has_a_value() {
    let capture = questions(&[b"\x01a\x07example"]);
    let ports = |expression: &str| {
        let options = ["read", capture.name(), "-q", "-o", "csv:-", "--fields", "src_port", "--where", expression];
        let (code, text, err) = weir(options);
        assert_eq!((code, err.as_str()), (0, ""), "{expression}");
        text.lines().skip(1).map(String::from).collect::<Vec<_>>().join(" ")
    };
    for (expression, expected) in [
        ("application", "5000"),
        ("!application", "6000"),
        ("not app and port 9999", "6000"),
        ("dns_name", "5000"),
        ("dns_name and not dns_rcode", "5000"),
        ("(application_notes or not udp) or dns_type", "5000"),
        ("approximate", ""),
    ] {
        assert_eq!(ports(expression), expected, "{expression}");
    }
    let (code, _, err) = weir(["read", capture.name(), "--where", "application = \"\""]);
    assert_eq!(code, 1);
    assert!(err.contains("application has no empty value; for flows without a value write not application"), "{err}");
}

#[test]
fn characters_that_change_how_a_terminal_shows_a_name_are_escaped_everywhere() {
    // Right-to-left override, zero-width space, a control character of ISO 6429 in UTF-8, escape.
    let name = "\x10a\u{202e}\u{200b}\u{9b}\u{1b}[1mxyz\x07example".as_bytes();
    let name = &[&[name.len() as u8 - 9], &name[1..]].concat()[..];
    let ask = datagram((CLIENT, 5000), (RESOLVER, 53), &dns_of(name, 1, 1, &[]));
    let answer = datagram((RESOLVER, 53), (CLIENT, 5000), &dns_of(name, 1, 1, &SERVER));
    let later = datagram((CLIENT, 6000), (SERVER, 9999), b"\xff\xff\xff\xff");
    let capture = Pcap::of(&[ask, answer, later]).saved();
    let shown = r"a\xe2\x80\xae\xe2\x80\x8b\xc2\x9b\x1b[1mxyz.example";
    for output in ["table:-", "csv:-", "json:-"] {
        let options = ["-o", output, "--fields", "src_port,dns_name,dst_dns_name"];
        let (code, text, err) = weir(["read", capture.name(), "-q"].iter().chain(&options));
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(text.chars().all(|letter| letter == '\n' || letter.is_ascii_graphic() || letter == ' '), "{text:?}");
        // The name of the later flow is that text, too.
        let shown = if output == "json:-" { shown.replace('\\', r"\\") } else { shown.into() };
        assert_eq!(text.matches(&shown).count(), 2, "{text}");
    }
    let (_, groups, _) = weir(["read", capture.name(), "-q", "--by", "dns_name"]);
    assert!(groups.contains(shown), "{groups}");
    let expression = format!("dst_dns_name = '{shown}'");
    let (_, text, _) =
        weir(["read", capture.name(), "-q", "-o", "csv:-", "--fields", "src_port", "--where", &expression]);
    assert_eq!(text, "src_port\n6000\n");
}

#[test]
fn options_without_effect_are_named_when_inspection_is_off() {
    let capture = testbed::small().saved();
    let warnings = |options: &[&str]| {
        let (code, _, err) = weir(["read", capture.name(), "-q", "-o", "csv:/dev/null"].iter().chain(options));
        assert_eq!(code, 0, "{err}");
        err
    };
    for (options, names) in [
        (&["--dpi-ports"][..], "--dpi-ports"),
        (&["--dpi-fields", "--dpi-packets", "3"], "--dpi-packets, --dpi-fields"),
        (&["--dpi-octets", "100"], "--dpi-octets"),
    ] {
        let warning = "weir: warning: no payload is inspected, so these options have no effect";
        let expected = format!("{warning}: {names}\n");
        assert_eq!(warnings(&[options, &["--dpi", "off"]].concat()), expected);
        assert_eq!(warnings(options), "");
    }
    assert_eq!(warnings(&["--dpi", "off"]), "");
    let probe = ["probe", "-i", "synth:mix,packets=9", "--check", "-o", "csv:/dev/null", "--dpi-ports"];
    let (_, _, err) = weir(probe.iter().chain(&["--layout", "split"]));
    assert!(err.contains("no payload is inspected, so these options have no effect: --dpi-ports"), "{err}");
}

fn segment(source: ([u8; 4], u16), destination: ([u8; 4], u16), control: u8, payload: &[u8]) -> Vec<u8> {
    segment_at(7, source, destination, control, payload)
}

fn segment_at(
    sequence: u8,
    source: ([u8; 4], u16),
    destination: ([u8; 4], u16),
    control: u8,
    payload: &[u8],
) -> Vec<u8> {
    let ports = [source.1, destination.1].map(u16::to_be_bytes).concat();
    let header = [&ports[..], &[0, 0, 0, sequence, 0, 0, 0, 9, 0x50, control, 0xff, 0xff, 0, 0, 0, 0]].concat();
    ipv4(6, source.0, destination.0, &[&header, payload].concat())
}

#[test]
fn resets_are_not_inspected_and_the_limit_of_packets_is_noted() {
    const ACK: u8 = 0x10;
    const RST_ACK: u8 = 0x14;
    let request = b"GET HTTP://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n";
    let (mut frames, server) = (Vec::new(), (SERVER, 80));
    for (port, acknowledgments, last) in [
        (5000, 1, Some((ACK, &request[..]))),
        (5001, 1, Some((RST_ACK, request))),
        (5002, 16, Some((ACK, request))),
        (5003, 40, None),
    ] {
        frames.extend((0..acknowledgments).map(|_| segment((CLIENT, port), server, ACK, b"")));
        frames.extend(last.map(|(control, payload)| segment((CLIENT, port), server, control, payload)));
    }
    let capture = Pcap::of(&frames).saved();
    let (code, err, records, _) = metered(&["read", capture.name(), "-q", "--fields", "applications"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for (port, host, notes) in
        [(5000, Some("a.example"), None), (5001, None, None), (5002, None, Some("limit")), (5003, None, None)]
    {
        assert_eq!(field(&records, "application", port).as_str(), host.map(|_| "http"), "{port}");
        assert_eq!(field(&records, "http_host", port).as_str(), host, "{port}");
        assert_eq!(field(&records, "application_notes", port).as_str(), notes, "{port}");
    }
}

/// A ClientHello for `secret.foo`, and a ServerHello of TLS 1.2.
fn hellos_of_tls() -> [Vec<u8>; 2] {
    const CLIENT_HELLO: &[u8] =
        b"\x16\x03\x01\0\x42\x01\0\0\x3e\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0\0\x02\xc0\x2f\x01\0\
        \0\x13\0\0\0\x0f\0\x0d\0\0\x0asecret.foo";
    const SERVER_HELLO: &[u8] = b"\x16\x03\x03\0\x2a\x02\0\0\x26\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0\xc0\x2f\0";
    [CLIENT_HELLO.into(), SERVER_HELLO.into()]
}

/// RFC 8446 section 5.1 forbids empty records, and OpenSSL accepts them.
#[test]
fn empty_records_of_tls_hide_no_hello() {
    let [client, server] = hellos_of_tls();
    let empty = b"\x16\x03\x01\0\0";
    // The first 20 octets of the message are in one record, the rest in another.
    let split = |hello: &[u8]| {
        let (start, end) = hello[5..].split_at(20);
        [&b"\x16\x03\x01\0\x14"[..], start, empty, b"\x16\x03\x01\0", &[end.len() as u8], end].concat()
    };
    let mut frames = Vec::new();
    type Segments = Vec<Vec<u8>>;
    let conversations: [(u16, Segments, Segments); 5] = [
        (5000, vec![client.clone()], vec![server.clone()]),
        (5001, vec![[&empty.repeat(32), &client[..]].concat()], vec![[&empty[..], &server].concat()]),
        (5002, vec![empty.to_vec(), split(&client)], vec![empty.to_vec(), split(&server)]),
        (
            5003,
            vec![b"EHLO a\r\nSTARTTLS\r\n".to_vec(), [&empty[..], &client].concat()],
            vec![b"220 a ESMTP\r\n250-a\r\n250 STARTTLS\r\n220 go\r\n".to_vec(), [&empty[..], &server].concat()],
        ),
        // The hello comes behind the octets that are inspected.
        (5004, vec![[&empty.repeat(150), &client[..]].concat()], vec![server.clone()]),
    ];
    for (port, client_segments, server_segments) in conversations {
        let (client, server) = ((CLIENT, port), (SERVER, 4000));
        frames.push(segment_at(6, client, server, 0x02, b""));
        let mut sequences = [7_u16; 2];
        let mut send = |from: usize, payload: &[u8]| {
            let ends = if from == 0 { [client, server] } else { [server, client] };
            let header = [
                &[ends[0].1, ends[1].1, 0, sequences[from]].map(u16::to_be_bytes).concat()[..],
                &[0, 0, 0, 9, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0],
            ];
            sequences[from] += payload.len() as u16;
            frames.push(ipv4(6, ends[0].0, ends[1].0, &[&header.concat(), payload].concat()));
        };
        let is_greeting = port == 5003;
        for (question, answer) in client_segments.iter().zip(&server_segments) {
            let both = [(0, question), (1, answer)];
            let order = if is_greeting && answer.starts_with(b"220 a") { [both[1], both[0]] } else { both };
            order.iter().for_each(|(from, payload)| send(*from, payload));
        }
    }
    let capture = Pcap::of(&frames).saved();
    let options = ["-q", "--fields", "applications", "--dpi-octets", "700"];
    let (code, err, records, _) = metered(&[&["read", capture.name()], &options[..]].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let fingerprint = field(&records, "ja4", 5000).clone();
    assert!(fingerprint.is_string());
    for (port, application, by, has_facts, notes) in [
        (5000, "tls", "message", true, None),
        (5001, "tls", "message", true, None),
        (5002, "tls", "message", true, None),
        (5003, "smtp", "message", true, None),
        (5004, "tls", "message", false, Some("limit")),
    ] {
        let value = |name: &str| field(&records, name, port).clone();
        assert_eq!((value("application"), value("application_by")), (application.into(), by.into()), "{port}");
        assert_eq!(value("sni").as_str(), has_facts.then_some("secret.foo"), "{port}");
        assert_eq!(value("ja4"), if has_facts { fingerprint.clone() } else { Value::Null }, "{port}");
        assert_eq!(value("tls_cipher"), 0xc02f, "{port}");
        assert_eq!(value("application_notes").as_str(), notes, "{port}");
    }
}
