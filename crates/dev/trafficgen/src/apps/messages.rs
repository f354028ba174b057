//! The messages with which a conversation begins, and where facts are in them.

use super::kind::Kind;
use super::quic::Ids;
use super::tls::{self, ClientHello, HANDSHAKE, RECORD_HEAD, Version, append_random, vector};
use crate::expected_application::{DNS_NAME, Fact, HTTP_HOST, PROTOCOL, PROTOCOLS_OFFERED, SSH_CLIENT, SSH_SERVER};
use crate::random::{Fraction, Random};
use arrayvec::ArrayVec;
use std::io::Write;

/// How the octets of a flight are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are: segments, or one datagram.
    Plain,
    /// In CRYPTO frames of Initial packets.
    Initial,
    /// A datagram of QUIC without readable octets.
    Handshake,
}

/// Messages that a side sends one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) side: u8,
    pub(super) form: Form,
    pub(super) start: u16,
    pub(super) end: u16,
    /// End of the octets that facts depend on; 0: none do.
    pub(super) facts_end: u16,
}

/// A fact, the side whose octets show it, and the position after them.
pub(super) type FactPlace = (Fact, u8, u16);

/// Names of services, before `apps.example`.
const NAMES: [&str; 4] = ["www", "mail", "cdn-edge-cache-with-a-rather-long-name", "api"];
const PROTOCOLS: [&[&str]; 3] = [&["h2", "http/1.1"], &["http/1.1"], &[]];
const SSH_CLIENTS: [&str; 2] = ["SSH-2.0-OpenSSH_9.6", "SSH-2.0-libssh2_1.11.0"];
const SSH_SERVERS: [&str; 2] = ["SSH-2.0-OpenSSH_9.2p1 Debian-2", "SSH-2.0-dropbear_2022.83"];
/// The lists of SSH_MSG_KEXINIT (RFC 4253 section 7.1).
const SSH_LISTS: [&str; 10] = [
    "sntrup761x25519-sha512@openssh.com,curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group16-sha512",
    "ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-512,rsa-sha2-256",
    "chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr,aes128-gcm@openssh.com",
    "chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr,aes128-gcm@openssh.com",
    "umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha2-512",
    "umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha2-512",
    "none,zlib@openssh.com",
    "none,zlib@openssh.com",
    "",
    "",
];
/// Octets that no protocol with a reader begins with.
const UNKNOWN: [u8; 4] = [0xee, 0xe7, 0xff, 0xff];
/// Octets after which a session of a reader is longest undecided.
const UNDECIDED_OCTETS: usize = 7_000;

/// The messages of one conversation, in memory that is used again for others.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) kind: Kind,
    pub(super) streams: [Vec<u8>; 2],
    pub(super) flights: ArrayVec<Flight, 6>,
    pub(super) facts: ArrayVec<FactPlace, 8>,
    /// The ClientHello is cut into several records or frames.
    pub(super) has_records: bool,
    /// Connection ids of QUIC.
    pub(super) ids: Ids,
    host: Vec<u8>,
    protocols: &'static [&'static str],
    ssh: [&'static str; 2],
    message: Vec<u8>,
}

impl Messages {
    /// Makes the messages of the conversation with this number. `records`: a ClientHello is cut.
    pub(super) fn make(&mut self, kind: Kind, number: u64, records: bool, random: &mut Random) {
        self.kind = kind;
        self.streams.iter_mut().for_each(Vec::clear);
        self.flights.clear();
        self.facts.clear();
        self.host.clear();
        self.has_records = records && matches!(kind, Kind::Tls12 | Kind::Tls13 | Kind::Quic);
        let name = NAMES[random.below(NAMES.len() as u64) as usize];
        write!(self.host, "{name}.n{number}.apps.example").expect("a vector takes everything");
        self.protocols = PROTOCOLS[random.below(PROTOCOLS.len() as u64) as usize];
        self.ids = Ids { first: random.next_u64().to_be_bytes(), server: random.next_u64().to_be_bytes() };
        match kind {
            Kind::Tls12 => self.tls12(random),
            Kind::Tls13 => self.tls13(random),
            Kind::Quic => self.quic(random),
            Kind::Http => self.http(random),
            Kind::DnsUdp | Kind::DnsTcp => self.dns(random),
            Kind::Ssh => self.ssh(random),
            Kind::UnknownTcp | Kind::UnknownUdp => self.unknown(random),
            Kind::Undecided => self.undecided(random),
        }
    }

    /// The value of a fact, if the conversation has it.
    pub(super) fn value(&self, fact: Fact) -> Option<String> {
        self.facts.iter().find(|place| place.0 == fact)?;
        Some(match fact {
            PROTOCOLS_OFFERED => self.protocols.join(","),
            PROTOCOL => self.protocols[0].into(),
            SSH_CLIENT => self.ssh[0].into(),
            SSH_SERVER => self.ssh[1].into(),
            _ => String::from_utf8_lossy(&self.host).into_owned(),
        })
    }

    fn stream(&mut self, side: u8) -> &mut Vec<u8> {
        &mut self.streams[usize::from(side)]
    }

    /// Ends a flight of a side, which has all octets of its stream since the last one. Facts depend on
    /// those before `facts_end`.
    fn flight(&mut self, side: u8, form: Form, facts_end: usize) {
        let start = self.flights.iter().filter(|flight| flight.side == side).map(|flight| flight.end).max();
        let end = self.stream(side).len() as u16;
        self.flights.push(Flight { side, form, start: start.unwrap_or(0), end, facts_end: facts_end as u16 });
    }

    /// Ends a flight in which facts depend on all octets so far.
    fn plain_flight(&mut self, side: u8) {
        self.flight(side, Form::Plain, self.streams[usize::from(side)].len());
    }

    /// Notes that the octets of a side so far show a fact.
    fn fact(&mut self, fact: Fact, side: u8) {
        self.facts.push((fact, side, self.streams[usize::from(side)].len() as u16));
    }

    /// Writes a ClientHello to the message buffer. Some have no server name. Returns its facts, and where
    /// the octets that show them end.
    fn client_hello(&mut self, version: Version, random: &mut Random) -> ArrayVec<(Fact, usize), 2> {
        let has_name = !random.chance(Fraction::percent(3));
        let hello = ClientHello {
            version,
            server_name: has_name.then_some(&*self.host),
            protocols: self.protocols,
            is_long: version != Version::Tls12 && random.chance(Fraction::percent(40)),
            name_is_last: random.below(4) == 0,
        };
        self.message.clear();
        hello.write(random, &mut self.message)
    }

    /// The first flight of a TLS client: the ClientHello in one record or several.
    fn tls_client(&mut self, version: Version, random: &mut Random) {
        let ends = self.client_hello(version, random);
        let octets = self.message.len();
        let cuts = if self.has_records { 1 + random.below(2) } else { 0 };
        let mut record_ends: ArrayVec<usize, 3> =
            (0..cuts).map(|_| 1 + random.below(octets as u64 - 1) as usize).chain([octets]).collect();
        record_ends.sort_unstable();
        let stream = &mut self.streams[0];
        let mut start = 0;
        for end in record_ends {
            if start < end {
                let head = stream.len();
                tls::record(stream, HANDSHAKE, |out| out.extend(&self.message[start..end]));
                // The record version of a first ClientHello.
                stream[head + 2] = 1;
                let shown = ends.iter().filter(|(_, at)| start < *at && *at <= end);
                self.facts.extend(shown.map(|(fact, at)| (*fact, 0, (head + RECORD_HEAD + at - start) as u16)));
            }
            start = end;
        }
        self.plain_flight(0);
    }

    fn tls12(&mut self, random: &mut Random) {
        self.tls_client(Version::Tls12, random);
        let protocol = self.protocols.first().copied();
        let stream = &mut self.streams[1];
        tls::record(stream, HANDSHAKE, |out| tls::server_hello(Version::Tls12, protocol, random, out));
        if protocol.is_some() {
            self.fact(PROTOCOL, 1);
        }
        let stream = &mut self.streams[1];
        tls::record(stream, HANDSHAKE, tls::certificate);
        let facts_end = stream.len();
        tls::record(stream, HANDSHAKE, |out| tls::server_key_exchange(random, out));
        self.flight(1, Form::Plain, facts_end);
        tls::record(&mut self.streams[0], HANDSHAKE, |out| tls::client_key_exchange(random, out));
        for side in [0, 1] {
            tls::encrypted(HANDSHAKE, 40, random, self.stream(side));
            self.flight(side, Form::Plain, 0);
        }
    }

    fn tls13(&mut self, random: &mut Random) {
        self.tls_client(Version::Tls13, random);
        let stream = &mut self.streams[1];
        tls::record(stream, HANDSHAKE, |out| tls::server_hello(Version::Tls13, None, random, out));
        let facts_end = stream.len();
        tls::encrypted(tls::APPLICATION_DATA, 900 + random.below(2500) as usize, random, stream);
        self.flight(1, Form::Plain, facts_end);
        tls::encrypted(tls::APPLICATION_DATA, 53, random, &mut self.streams[0]);
        self.flight(0, Form::Plain, 0);
    }

    fn quic(&mut self, random: &mut Random) {
        let ends = self.client_hello(Version::Quic, random);
        self.streams[0].extend(&self.message);
        self.facts.extend(ends.into_iter().map(|(fact, end)| (fact, 0, end as u16)));
        self.flight(0, Form::Initial, self.streams[0].len());
        tls::server_hello(Version::Quic, None, random, &mut self.streams[1]);
        self.flight(1, Form::Initial, 0);
        self.flight(0, Form::Handshake, 0);
    }

    fn http(&mut self, random: &mut Random) {
        let request = &mut self.streams[0];
        write!(request, "GET /{:x}?q={:x} HTTP/1.1\r\nHost: ", random.next_u64(), random.next_u64()).expect("as above");
        request.extend(&self.host);
        request.extend(b"\r\n");
        self.fact(HTTP_HOST, 0);
        let request = &mut self.streams[0];
        request.extend(b"User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\n");
        if random.below(3) == 0 {
            request.extend(b"Cookie: session=");
            for _ in 0..random.below(100) {
                write!(request, "{:016x}", random.next_u64()).expect("as above");
            }
            request.extend(b"\r\n");
        }
        request.extend(b"\r\n");
        self.plain_flight(0);
        let response = &mut self.streams[1];
        response.extend(b"HTTP/1.1 200 OK\r\nServer: apps\r\nContent-Type: application/octet-stream\r\n");
        response.extend(b"Content-Length: 1000000000\r\n\r\n");
        let head_end = response.len();
        append_random(random, 600, response);
        self.flight(1, Form::Plain, head_end);
    }

    fn dns(&mut self, random: &mut Random) {
        let is_tcp = self.kind == Kind::DnsTcp;
        let [high, low, ..] = random.next_u64().to_be_bytes();
        let is_v6 = random.below(3) == 0;
        for side in [0, 1] {
            let host = &self.host;
            let message = |out: &mut Vec<u8>| {
                out.extend([high, low]);
                out.extend(if side == 0 { [1, 0] } else { [0x81, 0x80] });
                out.extend([0, 1, 0, side, 0, 0, 0, 0]);
                for label in host.split(|octet| *octet == b'.') {
                    vector(out, 1, |out| out.extend(label));
                }
                let kind = if is_v6 { 28 } else { 1 };
                out.extend([0, 0, kind, 0, 1]);
                if side == 1 {
                    out.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 1, 44]);
                    let address = [0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 198, 18, high, low];
                    vector(out, 2, |out| out.extend(if is_v6 { &address[..] } else { &address[12..] }));
                }
            };
            let stream = &mut self.streams[usize::from(side)];
            if is_tcp {
                vector(stream, 2, message)
            } else {
                message(stream)
            }
            self.fact(DNS_NAME, side);
            self.plain_flight(side);
        }
    }

    fn ssh(&mut self, random: &mut Random) {
        self.ssh = [SSH_CLIENTS, SSH_SERVERS].map(|names| names[random.below(2) as usize]);
        for (side, fact) in [(1, SSH_SERVER), (0, SSH_CLIENT)] {
            let name = self.ssh[usize::from(side)];
            let stream = self.stream(side);
            stream.extend(name.as_bytes());
            stream.extend(b"\r\n");
            self.fact(fact, side);
            self.plain_flight(side);
        }
        for side in [1, 0] {
            let stream = self.stream(side);
            vector(stream, 4, |out| {
                const PADDING: u8 = 9;
                out.extend([PADDING, 20]);
                append_random(random, 16, out);
                SSH_LISTS.iter().for_each(|list| vector(out, 4, |out| out.extend(list.as_bytes())));
                out.extend([0; 5 + PADDING as usize]);
            });
            self.plain_flight(side);
        }
    }

    fn unknown(&mut self, random: &mut Random) {
        for side in [0, 1] {
            let octets = 16 + random.below(500) as usize;
            let stream = self.stream(side);
            stream.extend(UNKNOWN);
            append_random(random, octets, stream);
            self.plain_flight(side);
        }
    }

    /// The beginning of a message that does not end: of TLS, HTTP or DNS.
    fn undecided(&mut self, random: &mut Random) {
        let stream = &mut self.streams[0];
        match random.below(3) {
            0 => {
                // A ClientHello that ends before its cipher suites, in a record with another
                // message.
                stream.extend([HANDSHAKE, 3, 1, 2, 0, 1, 0, 1, 0xf0, 3, 3]);
                append_random(random, 20, stream);
            }
            1 => {
                stream.extend(b"GET /");
                for _ in 0..random.below(12) {
                    write!(stream, "{:016x}", random.next_u64()).expect("as above");
                }
            }
            _ => {
                // A response with a record that is longer than what is inspected.
                stream.extend([0x3f, 0xff]);
                stream.extend(random.next_u64().to_be_bytes().first_chunk::<2>().expect("it has 8 octets"));
                stream.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
                stream.extend(b"\x04apps\x07example\0\0\x10\0\x01");
                stream.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 1, 44, 0x3f, 0]);
                append_random(random, UNDECIDED_OCTETS, stream);
            }
        }
        self.flight(0, Form::Plain, 0);
    }
}
