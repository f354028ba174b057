use super::*;
use crate::Notes;

/// A vector after its length in `N` octets.
fn vector<const N: usize>(content: &[u8]) -> Vec<u8> {
    [&content.len().to_be_bytes()[size_of::<usize>() - N..], content].concat()
}

fn list(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn extension(number: u16, content: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &vector::<2>(content)].concat()
}

/// A ClientHello in one record.
fn client_hello(version: u16, ciphers: &[u16], extensions: &[Vec<u8>]) -> Vec<u8> {
    let extensions = extensions.concat();
    let body = [
        &version.to_be_bytes()[..],
        &[7; 32],
        &vector::<1>(&[1; 32]),
        &vector::<2>(&list(ciphers)),
        &vector::<1>(&[0]),
        &if extensions.is_empty() { Vec::new() } else { vector::<2>(&extensions) },
    ];
    record(22, &[&[CLIENT_HELLO], &vector::<3>(&body.concat())[..]].concat())
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1], &vector::<2>(content)[..]].concat()
}

fn read(first: &[u8], second: &[u8]) -> (Verdict, Findings) {
    let mut findings = Findings::new(false);
    let verdict = read_streams(&Streams { first, second, ..Streams::default() }, &mut findings);
    (verdict, findings)
}

fn text<const N: usize>(fingerprint: Option<[u8; N]>) -> String {
    fingerprint.map_or("none".into(), |octets| String::from_utf8(octets.into()).unwrap())
}

const CIPHERS: [u16; 15] = [
    0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d, 0x002f,
    0x0035,
];

/// The extensions of the example in the description of JA4.
fn extensions(signature_algorithms: &[u16]) -> Vec<Vec<u8>> {
    let content = |number| match number {
        0 => vector::<2>(&[&[0], &vector::<2>(b"www.example")[..]].concat()),
        0x0a => vector::<2>(&list(&[29, 23, 24])),
        0x0b => vector::<1>(&[0]),
        0x0d => vector::<2>(&list(signature_algorithms)),
        0x10 => vector::<2>(&[vector::<1>(b"h2"), vector::<1>(b"http/1.1")].concat()),
        0x2b => vector::<1>(&list(&[0x0303, 0x0304])),
        _ => Vec::new(),
    };
    let numbers = [0x1b, 0, 0x33, 0x10, 0x4469, 0x17, 0x2d, 0x0d, 5, 0x23, 0x12, 0x2b, 0xff01, 0x0b, 0x0a, 0x15];
    numbers.map(|number| extension(number, &content(number))).into()
}

const SIGNATURE_ALGORITHMS: [u16; 8] = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];

#[test]
fn fingerprints_are_those_of_their_descriptions() {
    let (verdict, findings) = read(&client_hello(0x0303, &CIPHERS, &extensions(&SIGNATURE_ALGORITHMS)), &[]);
    assert_eq!(verdict, Verdict::Recognised);
    assert_eq!(text(ja4(&findings)), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    let (_, findings) = read(&client_hello(0x0303, &CIPHERS, &extensions(&[])), &[]);
    assert_eq!(text(ja4(&findings)), "t13d1516h2_8daaf6152771_6d807ffa2a79");
    // The example in the description of JA3: 769,4-5-10-9-100-98-3-6-19-18-99,,, and its MD5.
    let ciphers = [4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99];
    let (_, findings) = read(&client_hello(0x0301, &ciphers, &[]), &[]);
    assert_eq!(text(ja3(&findings)), "de350869b8c85de67a350c8d186f11e6");
    assert_eq!(text(ja4(&findings)), "t10i110000_3609b414f052_000000000000");
}

#[test]
fn without_fingerprints_all_other_fields_are_found_and_the_note_says_so() {
    let client = client_hello(0x0303, &CIPHERS, &extensions(&SIGNATURE_ALGORITHMS));
    let (verdict, with) = read(&client, &[]);
    let mut findings = Findings::new(false);
    findings.set_without_fingerprints(true);
    for _ in 0..2 {
        let streams = Streams { first: &client, ..Streams::default() };
        assert_eq!(read_streams(&streams, &mut findings), verdict, "the hello counts as read");
    }
    assert_eq!((ja3(&findings), ja4(&findings)), (None, None));
    assert!(findings.notes().has(Note::Unfingerprinted) && !with.notes().has(Note::Unfingerprinted));
    assert_eq!(findings.text(Fact::ServerName), Some("www.example"));
    assert_eq!(findings.text(Fact::AlpnOffered), with.text(Fact::AlpnOffered));
}

#[test]
fn grease_changes_no_fingerprint() {
    let plain = client_hello(0x0303, &CIPHERS, &extensions(&SIGNATURE_ALGORITHMS));
    let mut ciphers = CIPHERS.to_vec();
    ciphers.insert(0, 0x3a3a);
    let mut signature_algorithms = SIGNATURE_ALGORITHMS.to_vec();
    signature_algorithms.push(0xfafa);
    let mut extensions = extensions(&signature_algorithms);
    extensions.insert(0, extension(0x0a0a, &[]));
    extensions[12] = extension(0x2b, &vector::<1>(&list(&[0xdada, 0x0304])));
    extensions[15] = extension(0x0a, &vector::<2>(&list(&[0x8a8a, 29, 23, 24])));
    let (_, expected) = read(&plain, &[]);
    let (_, found) = read(&client_hello(0x0303, &ciphers, &extensions), &[]);
    assert_eq!(found.octets(Fact::TlsClientHello), expected.octets(Fact::TlsClientHello));
}

#[test]
fn ja4_has_the_first_and_last_character_of_alpn() {
    for (protocol, expected) in [
        (&b"\xab"[..], "ab"),
        (b" ", "20"),
        (b"\xab\xcd", "ad"),
        (b" a", "21"),
        (b"0\xab", "3b"),
        (b"a ", "60"),
        (b"01\xab\xcd", "3d"),
        (b"0\xab\xcd1", "01"),
        (b"h", "hh"),
        (b"", "00"),
    ] {
        let alpn = extension(0x10, &vector::<2>(&vector::<1>(protocol)));
        let (_, findings) = read(&client_hello(0x0303, &[1], &[alpn]), &[]);
        assert_eq!(text(ja4(&findings))[8..10], *expected, "{protocol:02x?}");
    }
}

#[test]
fn encrypted_client_hello_is_recognised() {
    let hello = |number| read(&client_hello(0x0303, &CIPHERS, &[extension(number, &[0; 9])]), &[]).1;
    assert_eq!(hello(0xfe0d).number(Fact::TlsEch), Some(1));
    assert_eq!(hello(0xfe0c).number(Fact::TlsEch), None);
}

#[test]
fn the_server_name_is_found_before_the_hello_is_whole() {
    let hello = client_hello(0x0303, &CIPHERS, &extensions(&SIGNATURE_ALGORITHMS));
    let cut = hello.windows(11).position(|octets| octets == b"www.example").unwrap() + 11;
    for (octets, expected) in [(cut - 1, None), (cut, Some("www.example"))] {
        let (verdict, findings) = read(&hello[..octets], &[]);
        assert_eq!((verdict, findings.text(Fact::ServerName)), (Verdict::Recognised, expected));
        assert_eq!((ja3(&findings), ja4(&findings)), (None, None));
    }
}

#[test]
fn heads_of_record_and_hello_are_enough_if_the_one_fills_the_other() {
    let hello = client_hello(0x0303, &CIPHERS, &extensions(&SIGNATURE_ALGORITHMS));
    for octets in 0..hello.len() {
        let (verdict, findings) = read(&hello[..octets], &[]);
        let expected = if octets < 11 { Verdict::More } else { Verdict::Recognised };
        assert_eq!((verdict, findings.application().is_some()), (expected, octets >= 11), "{octets}");
    }
    // The same of a server, and of a hello whose session id is too long.
    let server = record(22, &[&[SERVER_HELLO], &vector::<3>(&[&[3, 3][..], &[7; 60]].concat())[..]].concat());
    assert_eq!(read(&server[..46], &[]).0, Verdict::Recognised);
    let mut damaged = hello.clone();
    damaged[43] = 99;
    assert_eq!(read(&damaged, &[]).1.application(), Some((Application::Tls, Confidence::Message)));
    // The record does not end with the hello.
    damaged[8] ^= 1;
    assert_eq!(read(&damaged, &[]).0, Verdict::More);
}

#[test]
fn client_hello_is_read_whatever_the_minor_version_of_its_records() {
    let hello =
        client_hello(0x303, &[0x1301], &[extension(0, &vector::<2>(&[&[0][..], &vector::<2>(b"a.example")].concat()))]);
    let (start, rest) = hello[5..].split_at(9);
    for minor in 0..=255 {
        let mut whole = hello.clone();
        whole[2] = minor;
        let mut parts = [record(22, start), record(22, rest)];
        parts.iter_mut().for_each(|part| part[2] = minor);
        for stream in [whole, parts.concat()] {
            let (_, findings) = read(&stream, b"");
            assert_eq!(findings.application(), Some((Application::Tls, Confidence::Message)), "{minor}");
            assert_eq!(findings.text(Fact::ServerName), Some("a.example"), "{minor}");
        }
    }
}

#[test]
fn damaged_hello_does_not_undo_that_of_the_other_side() {
    let mut client = client_hello(0x0303, &CIPHERS, &[]);
    client[6] = 9;
    let body = [&[3, 3][..], &[7; 32], &[0, 0xc0, 0x2f, 0]].concat();
    let server = record(22, &[&[SERVER_HELLO], &vector::<3>(&body)[..]].concat());
    assert_eq!(read(&client, &[]).0, Verdict::More);
    assert_eq!(read(&client, b"220 a.example\r\n").0, Verdict::No);
    let (verdict, findings) = read(&client, &server);
    assert_eq!((verdict, findings.number(Fact::TlsCipher)), (Verdict::Recognised, Some(0xc02f)));
}

#[test]
fn lists_that_are_too_long_have_no_fingerprint() {
    let extensions = [extension(0, &vector::<2>(&[&[0], &vector::<2>(b"a.example")[..]].concat()))];
    let mut cut = Notes::default();
    cut.add(Note::Cut);
    for (ciphers, notes) in [(240, Notes::default()), (250, cut), (300, cut)] {
        let (_, findings) = read(&client_hello(0x0303, &vec![1; ciphers], &extensions), &[]);
        assert_eq!(findings.notes(), notes);
        assert_eq!(ja3(&findings).is_none(), notes == cut);
        assert_eq!(findings.text(Fact::ServerName), Some("a.example"));
    }
}

#[test]
fn hello_of_ssl_2_is_recognised() {
    let hello = [&[0x80, 0x2e, 1, 3, 1, 0, 21, 0, 0, 0, 16][..], &[7; 37]].concat();
    let (verdict, findings) = read(&hello, &[]);
    assert_eq!((verdict, findings.application()), (Verdict::Recognised, Some((Application::Tls, Confidence::Message))));
    for octets in 0..11 {
        assert_eq!(read(&hello[..octets], &[]).0, Verdict::More);
    }
    for (at, value) in [(0, 0x2e), (1, 0x2f), (2, 2), (3, 0), (6, 20), (8, 1), (10, 15)] {
        let mut other = hello.clone();
        other[at] = value;
        assert_eq!(read(&other, &[]).0, Verdict::No, "{at}");
    }
}

#[test]
fn records_without_a_hello_are_a_pattern() {
    let data = record(23, &[9; 40]);
    let pattern = Some((Application::Tls, Confidence::Pattern));
    for (first, second, expected) in [
        (&data[..], &data[..], pattern),
        (&data, &[], pattern),
        (&data[..20], &[], None),
        (&data[..20], &data[..20], pattern),
        (&data[..20], b"HTTP/1.1 200 OK", None),
        (&[data.clone(), b"GET ".to_vec()].concat(), &[], None),
    ] {
        let (verdict, findings) = read(first, second);
        assert_eq!(findings.application(), expected);
        assert_eq!(verdict == Verdict::Complete, expected.is_some());
    }
}

#[test]
fn a_server_that_does_not_speak_tls_ends_reading() {
    let hello = client_hello(0x0303, &CIPHERS, &[]);
    let (verdict, findings) = read(&hello, b"HTTP/1.1 400 Bad Request\r\n");
    assert_eq!((verdict, ja4(&findings).is_some()), (Verdict::Complete, true));
}

/// A ServerHello of TLS 1.2, and an empty certificate.
fn server_messages() -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0, 0xc0, 0x2f, 0]].concat();
    [&[SERVER_HELLO], &vector::<3>(&body)[..], &[12, 0, 0, 0]].concat()
}

/// Splits a message into two records, with others before and between them.
fn with_records(message: &[u8], before: &[u8], between: &[u8]) -> Vec<u8> {
    let (start, end) = message.split_at(20);
    [before, &record(22, start), between, &record(22, end)].concat()
}

#[test]
fn records_that_peers_drop_hide_no_hello() {
    let message = &client_hello(0x0303, &CIPHERS, &extensions(&SIGNATURE_ALGORITHMS))[5..];
    let (empty, warning, change) = (record(22, &[]), record(21, &[1, 112]), record(20, &[1]));
    let empty_change = record(20, &[]);
    let expected = read(&record(22, message), &record(22, &server_messages())).1;
    assert!(expected.has(Fact::ServerName) && expected.has(Fact::TlsCipher));
    for (before, between, alert) in [
        (empty.clone(), empty.clone(), None),
        (empty.repeat(1000), empty.repeat(1000), None),
        ([&empty[..], &empty_change].concat().repeat(40), Vec::new(), None),
        (change.repeat(2), Vec::new(), None),
        (warning.clone(), warning.clone(), Some(0x170)),
        ([&change[..], &warning, &empty].concat(), [&empty[..], &warning].concat(), Some(0x170)),
    ] {
        let client = with_records(message, &before, &between);
        let server = with_records(&server_messages(), &before, &between);
        let mut findings = expected.clone();
        alert.into_iter().for_each(|alert| findings.set_number(Fact::TlsAlert, alert));
        let (verdict, found) = read(&client, &server);
        assert_eq!(verdict, Verdict::Complete);
        for &fact in Fact::ALL {
            assert_eq!(found.octets(fact), findings.octets(fact), "{fact:?}");
        }
        assert_eq!(found.application(), expected.application());
        // Whatever came so far, the next octet is needed.
        for octets in 0..client.len() {
            let verdict = read(&client[..octets], &[]).0;
            assert!(matches!(verdict, Verdict::More | Verdict::Recognised), "{verdict:?} after {octets}");
        }
        for octets in 0..server.len() - 4 {
            assert_eq!(read(&record(22, message), &server[..octets]).0, Verdict::Recognised, "{octets}");
        }
    }
}

#[test]
fn records_before_a_hello_that_does_not_come_are_a_pattern_with_a_note() {
    let empty = record(22, &[]);
    assert_eq!(read(&empty, &[]).0, Verdict::More);
    for (records, ended, limited, verdict, notes) in [
        (2, false, false, Verdict::Recognised, &[][..]),
        (2, true, false, Verdict::Complete, &[]),
        (1000, true, true, Verdict::Complete, &["limit"]),
    ] {
        let mut findings = Findings::new(false);
        let first = empty.repeat(records);
        let streams = Streams { first: &first, ended: [ended; 2], limited: [limited, false], ..Streams::default() };
        assert_eq!(read_streams(&streams, &mut findings), verdict);
        assert_eq!(findings.application(), Some((Application::Tls, Confidence::Pattern)));
        assert_eq!(findings.notes().names().collect::<Vec<_>>(), notes);
    }
    assert_eq!(read(&empty.repeat(2), b"220 a.example\r\n").0, Verdict::No);
}

#[test]
fn encrypted_messages_after_a_change_of_ciphers_are_no_hello() {
    for start in [[1, 0, 9, 9], [1, 9, 9, 9], [2, 0, 0, 40], [2, 9, 9, 9]] {
        let stream = [record(20, &[1]), record(22, &[&start[..], &[9; 36]].concat())].concat();
        assert_eq!(read(&stream, &[]).1.application(), Some((Application::Tls, Confidence::Pattern)), "{start:?}");
    }
}
