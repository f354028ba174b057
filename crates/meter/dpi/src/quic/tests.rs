use super::initial::{Keys, Secrets};
use super::packet::TAG_OCTETS;
use super::*;
use aes_gcm::aead::AeadInOut;

/// The ClientHello of RFC 9001 appendix A.2.
const CLIENT_HELLO_OCTETS: &[u8] = b"\x01\0\0\xed\x03\x03\xeb\xf8\xfa\x56\xf1\x29\x39\xb9\x58\x4a\x38\x96\x47\x2e\xc4\x0b\
    \xb8\x63\xcf\xd3\xe8\x68\x04\xfe\x3a\x47\xf0\x6a\x2b\x69\x48\x4c\0\0\x04\x13\x01\x13\x02\x01\0\0\xc0\0\0\0\x10\0\x0e\
    \0\0\x0bexample.com\xff\x01\0\x01\0\0\x0a\0\x08\0\x06\0\x1d\0\x17\0\x18\0\x10\0\x07\0\x05\x04alpn\0\x05\0\x05\x01\0\0\
    \0\0\0\x33\0\x26\0\x24\0\x1d\0\x20\x93\x70\xb2\xc9\xca\xa4\x7f\xba\xba\xf4\x55\x9f\xed\xba\x75\x3d\xe1\x71\xfa\x71\
    \xf5\x0f\x1c\xe1\x5d\x43\xe9\x94\xec\x74\xd7\x48\0\x2b\0\x03\x02\x03\x04\0\x0d\0\x10\0\x0e\x04\x03\x05\x03\x06\x03\
    \x02\x03\x08\x04\x08\x05\x08\x06\0\x2d\0\x02\x01\x01\0\x1c\0\x02\x40\x01\0\x39\0\x32\x04\x08\xff\xff\xff\xff\xff\xff\
    \xff\xff\x05\x04\x80\0\xff\xff\x07\x04\x80\0\xff\xff\x08\x01\x10\x01\x04\x80\0\x75\x30\x09\x01\x10\x0f\x08\x83\x94\
    \xc8\xf0\x3e\x51\x57\x08\x06\x04\x80\0\xff\xff";
const ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

/// An Initial packet of version 1.
fn initial(id: &[u8], sender: Sender, number: u16, frames: &[u8]) -> Vec<u8> {
    initial_of(1, id, sender, number, frames)
}

fn initial_of(version_number: u32, id: &[u8], sender: Sender, number: u16, frames: &[u8]) -> Vec<u8> {
    let version = version::version(version_number).unwrap();
    let keys = Keys::new(version, &Secrets::new(version, id), sender);
    let length = (2 + frames.len() + TAG_OCTETS) as u16 | 0x4000;
    let first = [0xc1 | version.initial_type << 4];
    let ids = [&[id.len() as u8][..], id, &[0, 0]].concat();
    let header = [&first[..], &version_number.to_be_bytes(), &ids, &length.to_be_bytes()].concat();
    let header = [&header[..], &number.to_be_bytes()].concat();
    let mut payload = frames.to_vec();
    let nonce = keys.nonce(&number.to_be_bytes());
    let tag = keys.cipher().encrypt_inout_detached(&nonce.into(), &header, payload.as_mut_slice().into()).unwrap();
    let number_at = header.len() - 2;
    let mut packet = [&header[..], &payload, &tag].concat();
    let mask = keys.mask(packet[number_at + 4..].first_chunk().unwrap());
    packet[0] ^= mask[0] & 0x0f;
    packet[number_at] ^= mask[1];
    packet[number_at + 1] ^= mask[2];
    packet
}

/// A CRYPTO frame of octets of the ClientHello.
fn crypto(range: std::ops::Range<usize>) -> Vec<u8> {
    let [offset, length] = [range.start, range.len()].map(|value| (value as u16 | 0x4000).to_be_bytes());
    [&[6], &offset[..], &length, &CLIENT_HELLO_OCTETS[range]].concat()
}

fn read_all<'a>(datagrams: impl IntoIterator<Item = (bool, &'a [u8])>) -> (Vec<Verdict>, Findings) {
    let (mut state, mut findings) = (State::default(), Findings::new(false));
    let verdicts = datagrams.into_iter().map(|(from_first, payload)| {
        let wire_octets = payload.len() as u32;
        let ports = if from_first { [40_000, 443] } else { [443, 40_000] };
        let datagram = Datagram { payload, wire_octets, from_first, ports, time_ns: 0 };
        read(&mut state, &datagram, &mut findings)
    });
    (verdicts.collect(), findings)
}

#[test]
fn frames_may_come_in_any_order_over_several_datagrams() {
    let ack = [2, 5, 0, 1, 0, 0, 0];
    let ack_with_ecn = [3, 5, 0, 0, 0, 1, 2, 3];
    let first = [&crypto(200..241)[..], &[0; 50], &crypto(3..40), &[1], &crypto(100..160)].concat();
    let second = [&ack[..], &crypto(20..110), &ack_with_ecn, &[0; 9], &crypto(150..200)].concat();
    let packets = [(1, &first[..]), (2, &second), (3, &crypto(0..3))]
        .map(|(number, frames)| initial(&ID, Sender::Client, number, frames));
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (verdicts, findings) = read_all(order.map(|at: usize| (true, &packets[at][..])));
        assert_eq!(verdicts, [Verdict::Recognised; 3]);
        assert_eq!(findings.text(Fact::ServerName), Some("example.com"), "{order:?}");
        assert!(findings.has(Fact::TlsClientHello));
    }
    // Several packets in one datagram.
    let (_, findings) = read_all([(true, &packets.concat()[..])]);
    assert!(findings.has(Fact::TlsClientHello));
    let (_, findings) = read_all([(true, &packets[..2].concat()[..])]);
    assert!(!findings.has(Fact::TlsClientHello));
    assert_eq!(findings.application(), Some((Application::Quic, Confidence::Message)));
}

#[test]
fn other_octets_in_the_same_place_are_a_conflict() {
    let mut other = crypto(3..40);
    other[10] ^= 1;
    for (second, notes) in [(other, "conflict"), (crypto(3..40), "")] {
        let packets = [crypto(0..100), second, crypto(90..241)];
        let packets = [0, 1, 2].map(|number: u16| initial(&ID, Sender::Client, number, &packets[usize::from(number)]));
        let (_, findings) = read_all(packets.iter().map(|packet| (true, &packet[..])));
        assert_eq!(findings.text(Fact::ServerName), Some("example.com"));
        assert_eq!(findings.notes().names().collect::<String>(), notes);
    }
}

#[test]
fn negotiated_versions_are_a_pattern_if_one_is_known() {
    let datagram = |versions: &[u32]| {
        let versions: Vec<u8> = versions.iter().flat_map(|version| version.to_be_bytes()).collect();
        [&[0x80, 0, 0, 0, 0, 1, 7, 1, 8][..], &versions].concat()
    };
    for (versions, is_claimed) in [
        (&[0x0a1a_2a3a, 1][..], true),
        (&[0xff00_001d], true),
        (&[0x0a1a_2a3a], false),
        (&[0x5130_3530, 0x0a1a_2a3a], false),
        (&[], false),
    ] {
        let (_, findings) = read_all([(false, &datagram(versions)[..])]);
        let expected = is_claimed.then_some((Application::Quic, Confidence::Pattern));
        assert_eq!(findings.application(), expected, "{versions:x?}");
    }
}

#[test]
fn a_retry_that_was_not_captured_is_no_obstacle() {
    let first = initial(&ID, Sender::Client, 0, &crypto(0..100));
    let second = initial(b"other id", Sender::Client, 1, &crypto(0..241));
    let (_, findings) = read_all([(true, &first[..]), (true, &second)]);
    assert!(findings.has(Fact::TlsClientHello));
}

#[test]
fn a_packet_that_cannot_be_decrypted_is_a_pattern() {
    let mut packet = initial(&ID, Sender::Client, 0, &crypto(0..241));
    let last = packet.len() - 1;
    packet[last] ^= 1;
    let server = initial(&ID, Sender::Server, 0, &[0; 100]);
    for packet in [packet, server] {
        let (verdicts, findings) = read_all([(true, &packet[..])]);
        assert_eq!(verdicts, [Verdict::Recognised]);
        assert_eq!(findings.application(), Some((Application::Quic, Confidence::Pattern)));
        assert_eq!(findings.number(Fact::QuicVersion), Some(1));
    }
}

#[test]
fn a_datagram_that_was_cut_by_the_capture_is_not_refused() {
    let packet = initial(&ID, Sender::Client, 0, &crypto(0..241));
    for octets in 0..packet.len() {
        let datagram = Datagram {
            payload: &packet[..octets],
            wire_octets: packet.len() as u32,
            from_first: true,
            ..Datagram::default()
        };
        let verdict = read(&mut State::default(), &datagram, &mut Findings::new(false));
        assert_eq!(verdict, if octets < 18 { Verdict::More } else { Verdict::Recognised }, "{octets}");
        let whole = Datagram { wire_octets: octets as u32, ..datagram };
        assert_eq!(read(&mut State::default(), &whole, &mut Findings::new(false)), Verdict::No);
    }
}

#[test]
fn a_short_header_ends_reading_and_begins_nothing() {
    let packet = initial(&ID, Sender::Client, 0, &crypto(0..241));
    let (verdicts, _) = read_all([(true, &packet[..]), (false, &[0x40; 30])]);
    assert_eq!(verdicts, [Verdict::Recognised, Verdict::Complete]);
    // Not before the ClientHello is complete.
    let [first, second] =
        [(0, 0..100), (1, 100..241)].map(|(at, range)| initial(&ID, Sender::Client, at, &crypto(range)));
    let (verdicts, findings) = read_all([(true, &first[..]), (true, b"?\x01"), (true, &second)]);
    assert_eq!(verdicts, [Verdict::Recognised, Verdict::No, Verdict::Recognised]);
    assert_eq!(findings.text(Fact::ServerName), Some("example.com"));
    assert_eq!(read_all([(true, &[0x40; 30][..])]).0, [Verdict::No]);
}

#[test]
fn state_can_be_used_again() {
    let packet = initial(&ID, Sender::Client, 0, &crypto(0..241));
    let mut state = State::default();
    for from_first in [true, false, true] {
        let mut findings = Findings::new(false);
        let datagram =
            Datagram { payload: &packet, wire_octets: packet.len() as u32, from_first, ..Datagram::default() };
        assert_eq!(read(&mut state, &datagram, &mut findings), Verdict::Recognised);
        assert!(findings.has(Fact::TlsClientHello));
        state.clear();
    }
}

/// Whether a work limit was reached, and the ClientHello is complete.
fn read_limited(datagrams: &[Vec<u8>]) -> (bool, bool) {
    let (_, mut findings) = read_all(datagrams.iter().map(|datagram| (true, &datagram[..])));
    let is_limited = findings.take_work_limited();
    assert_eq!(findings.notes().has(Note::Limit), is_limited);
    (is_limited, findings.has(Fact::TlsClientHello))
}

#[test]
fn keys_of_a_datagram_are_derived_twice_at_most() {
    const VERSION_2: u32 = 0x6b33_43cf;
    let one = |range| initial_of(1, &ID, Sender::Client, 0, &crypto(range));
    let two = |range| initial_of(VERSION_2, &ID, Sender::Client, 0, &crypto(range));
    let [start, end] = [one(0..100), one(100..241)];
    // A server may change to another version.
    assert_eq!(read_limited(&[[&start[..], &two(100..241)].concat()]), (false, true));
    // The second packet of version 1 would need a third derivation.
    let alternating = [&start[..], &two(0..10), &end].concat();
    assert_eq!(read_limited(std::slice::from_ref(&alternating)), (true, false));
    // The next datagram is read again.
    assert_eq!(read_limited(&[alternating, end.clone()]), (true, true));
    // After a Retry that was not captured, the packets have another id; keys of one version suffice.
    let [other_start, other_end] =
        [0..100, 100..241].map(|range| initial(b"other id", Sender::Client, 1, &crypto(range)));
    assert_eq!(read_limited(&[start, [other_start, other_end].concat()]), (false, true));
}

#[test]
fn packets_of_a_datagram_are_limited() {
    let part = |number: usize, count: usize| {
        let [begin, end] = [number, number + 1].map(|at| at * CLIENT_HELLO_OCTETS.len() / count);
        initial(&ID, Sender::Client, number as u16, &crypto(begin..end))
    };
    for (count, is_limited) in [(1, false), (MAX_INITIALS, false), (MAX_INITIALS + 1, true)] {
        let parts: Vec<_> = (0..count).map(|number| part(number, count)).collect();
        assert_eq!(read_limited(&[parts.concat()]), (is_limited, !is_limited), "{count}");
        assert_eq!(read_limited(&parts), (false, true), "{count} datagrams");
    }
    // 0-RTT.
    let other = [&[0xd0, 0, 0, 0, 1, ID.len() as u8][..], &ID, &[0, 0x40, 20], &[7; 20]].concat();
    for (count, is_limited) in [(MAX_PACKETS - 1, false), (MAX_PACKETS, true)] {
        let datagram = [&other.repeat(count)[..], &part(0, 1)].concat();
        assert_eq!(read_limited(&[datagram]), (is_limited, !is_limited), "{count}");
    }
}
