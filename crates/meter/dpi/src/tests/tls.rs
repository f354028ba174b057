//! The captures of TLS, their records built again.

use super::fixtures::{self, Fixture};
use weir_dpi::{Application, Confidence, Fact, Findings, STREAM_READERS, Streams, Verdict};

fn captures() -> impl Iterator<Item = Fixture> {
    fixtures::all().into_iter().filter(|fixture| fixture.application() == "tls" && !fixture.streams[0].is_empty())
}

fn read(first: &[u8], second: &[u8]) -> Findings {
    let mut findings = Findings::new(true);
    let streams = Streams { first, second, ..Streams::default() };
    let claimed =
        STREAM_READERS.iter().filter(|reader| reader.read(&streams, &mut findings) == Verdict::Complete).count();
    assert_eq!(claimed, 1);
    findings
}

/// The stream with other records: consecutive records of the handshake become records of `octets`.
fn with_records_of(octets: usize, mut stream: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    let mut handshake = Vec::new();
    while !stream.is_empty() {
        let record = &stream[..5 + usize::from(u16::from_be_bytes([stream[3], stream[4]]))];
        stream = &stream[record.len()..];
        if record[0] == 22 {
            handshake.extend(&record[5..]);
        }
        if record[0] != 22 || stream.is_empty() {
            for content in handshake.chunks(octets) {
                made.extend([22, 3, 3]);
                made.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
                made.extend(content);
            }
            handshake.clear();
        }
        if record[0] != 22 {
            made.extend(record);
        }
    }
    made
}

#[test]
fn a_message_may_span_records_and_a_record_may_hold_messages() {
    for fixture in captures() {
        let [first, second] = &fixture.streams;
        let expected = read(first, second);
        for octets in [1, 2, 3, 50, 1000, 1 << 14] {
            let [first, second] = [first, second].map(|stream| with_records_of(octets, stream));
            assert_eq!(read(&first, &second), expected, "{}: records of {octets} octets", fixture.name);
        }
    }
}

#[test]
fn each_direction_alone_has_its_facts() {
    for fixture in captures() {
        let [first, second] = &fixture.streams;
        let both = read(first, second);
        for (stream, facts) in [
            (first, &[Fact::ServerName, Fact::AlpnOffered, Fact::TlsClientHello][..]),
            (second, &[Fact::TlsVersion, Fact::TlsCipher, Fact::AlpnSelected, Fact::CertificateNames]),
        ] {
            let mut alone = Findings::new(true);
            let streams = Streams { first: stream, ended: [true; 2], ..Streams::default() };
            for reader in STREAM_READERS {
                reader.read(&streams, &mut alone);
            }
            // An alert without a ClientHello is one record.
            let facts = if both.has(Fact::TlsAlert) { &[] } else { facts };
            for fact in facts {
                assert_eq!(alone.octets(*fact), both.octets(*fact), "{}: {fact:?}", fixture.name);
            }
        }
    }
}

#[test]
fn tls_after_the_negotiation_of_rdp_has_its_facts_and_the_flow_stays_rdp() {
    let request = b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0";
    let confirmation =
        |selected: u8| [&b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x02\0\x08\0"[..], &[selected, 0, 0, 0]].concat();
    for fixture in captures() {
        let [client, server] = &fixture.streams;
        let client = [&request[..], client].concat();
        for (selected, has_tls) in [(1, true), (0, false)] {
            let found = read(&client, &[&confirmation(selected)[..], server].concat());
            assert_eq!(found.application(), Some((Application::Rdp, Confidence::Message)));
            let alone = read(&fixture.streams[0], &fixture.streams[1]);
            for fact in [Fact::ServerName, Fact::TlsVersion, Fact::CertificateSubject] {
                assert_eq!(found.octets(fact), alone.octets(fact).filter(|_| has_tls), "{}: {fact:?}", fixture.name);
            }
        }
    }
}
