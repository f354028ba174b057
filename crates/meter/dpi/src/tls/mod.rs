//! TLS over TCP: SSL 3.0 (RFC 6101), TLS 1.0 to 1.3 (RFC 2246, 4346, 5246, 8446).
//!
//! ```text
//! stream -> records -> messages of the handshake -> extracted fields of ClientHello, ServerHello, Certificate
//! ```
//! Reads the ClientHello, the ServerHello, and up to TLS 1.2 the first certificate of the server,
//! until the handshake is encrypted. A message may span records, and a record may hold several.
//! Records that a peer passes over may come before and between them: see [`pass_over`]. If the
//! capture begins after the hellos, records alone recognise TLS ([`Confidence::Pattern`]). An
//! extension `encrypted_client_hello` is reported, but a real one cannot be distinguished from one that the
//! client sends as GREASE. SSL 2.0 is not read, but a ClientHello in its form that asks for SSL 3.0
//! or newer is recognised (RFC 5246 appendix E.2). Read by hand, and not by a library: the work per
//! packet is bounded, nothing is allocated, and messages that are cut are read as far as they are there.

mod certificate;
mod fingerprint;
pub(crate) mod hello;
#[cfg(test)]
mod tests;

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Note, Streams, Verdict};
use arrayvec::ArrayVec;
pub use fingerprint::{ja3, ja3s, ja4};
use hello::{CLIENT_HELLO, Next, SERVER_HELLO, read_client_hello, read_server_message};

pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;
const HEARTBEAT: u8 = 24;
/// Levels of alerts.
const WARNING: u8 = 1;
const FATAL: u8 = 2;
/// Octets of a record at most: 2^14, and what compression and encryption add up to TLS 1.2.
pub(crate) const MAX_RECORD_OCTETS: u16 = (1 << 14) + 2048;
/// Octets of handshake messages over several records that are read at most.
const MAX_FLIGHT_OCTETS: usize = 1 << 14;
/// The highest of the three octets of a hello's length at most: its parts have less than 2^17.
const MAX_LENGTH_HIGH: u8 = 1;
/// Signs of TLS that recognise it without a hello.
const MIN_SIGNS: usize = 2;

/// What one direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Not TLS.
    Foreign,
    /// Perhaps TLS, with as many signs of it.
    Undecided(usize),
    /// Records before a hello, as many signs of TLS. The hello is still to come.
    BeforeHello(usize),
    /// TLS. `finished`: there is nothing more to read.
    Hello { finished: bool },
}

/// Reads the start of both directions of a TCP connection.
pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let mut first = read_side(streams.first, false, findings);
    if first == Side::Foreign && is_start(streams.first) {
        // A damaged hello: the other side may prove TLS.
        first = Side::Undecided(0);
    }
    if first == Side::Foreign {
        return Verdict::No;
    }
    let is_answer = matches!(first, Side::Hello { .. });
    let sides = [first, read_side(streams.second, is_answer, findings)];
    let has_hello = sides.iter().any(|side| matches!(side, Side::Hello { .. }));
    if !has_hello {
        if sides[1] == Side::Foreign {
            return Verdict::No;
        }
        if sides.iter().map(Side::signs).sum::<usize>() < MIN_SIGNS {
            return Verdict::More;
        }
        findings.recognise(Application::Tls, Confidence::Pattern);
    }
    let has_begin = has_hello || sides.iter().any(|side| matches!(side, Side::BeforeHello(_)));
    let is_finished = |at: usize| match sides[at] {
        Side::Hello { finished } => finished || streams.ended[at],
        Side::Undecided(signs) => !has_begin || signs > 0 || streams.ended[at],
        Side::BeforeHello(_) => streams.ended[at],
        Side::Foreign => true,
    };
    let needs_more = |at: usize| matches!(sides[at], Side::Hello { finished: false } | Side::BeforeHello(_));
    if (0..2).any(|at| streams.limited[at] && needs_more(at)) {
        findings.note(Note::Limit);
    }
    if is_finished(0) && is_finished(1) { Verdict::Complete } else { Verdict::Recognised }
}

impl Side {
    /// Signs of TLS, if there is no hello.
    fn signs(&self) -> usize {
        match *self {
            Self::Undecided(signs) | Self::BeforeHello(signs) => signs,
            Self::Foreign | Self::Hello { .. } => 0,
        }
    }
}

/// Whether octets are the start of TLS in the middle of a connection: a record of the handshake, or
/// one that may come before it.
pub(crate) fn is_start(octets: &[u8]) -> bool {
    matches!(octets, [CHANGE_CIPHER_SPEC..=HANDSHAKE] | [CHANGE_CIPHER_SPEC..=HANDSHAKE, 3, ..])
}

/// Reads the start of TLS in the middle of a connection: `STARTTLS`, tunnels. `client` and `server`
/// are what these sides sent from there on; both may be empty. The application that the connection
/// began with stays.
pub(crate) fn read_upgrade(client: &[u8], server: &[u8], findings: &mut Findings) -> Verdict {
    let application = findings.application();
    let streams = Streams { first: client, second: server, ..Streams::default() };
    let verdict = read_streams(&streams, findings);
    findings.application = application;
    match verdict {
        Verdict::More | Verdict::Recognised => Verdict::Recognised,
        Verdict::No | Verdict::Complete => Verdict::Complete,
    }
}

/// `is_answer`: the other side sent a hello.
fn read_side(stream: &[u8], is_answer: bool, findings: &mut Findings) -> Side {
    if let Some(side) = read_ssl2_client_hello(stream, findings) {
        return side;
    }
    let hello = pass_over(stream, true);
    let is_first = hello.len() == stream.len();
    if is_answer {
        read_alert(stream, findings);
    }
    let side = match split_record(hello) {
        Ok(Record { kind: HANDSHAKE, content: [CLIENT_HELLO | SERVER_HELLO, high, ..], .. })
            if *high > MAX_LENGTH_HIGH =>
        {
            Side::Foreign
        }
        // It was read with an earlier segment.
        Ok(Record { kind: HANDSHAKE, content: [CLIENT_HELLO, ..], .. })
            if !is_answer && findings.has(Fact::TlsClientHello) =>
        {
            Side::Hello { finished: true }
        }
        Ok(Record { kind: HANDSHAKE, content: [CLIENT_HELLO, ..], .. }) => read_client(hello, findings),
        Ok(Record { kind: HANDSHAKE, content: [SERVER_HELLO, ..], .. }) => read_server(hello, findings),
        Err(Verdict::More)
        | Ok(Record { kind: CHANGE_CIPHER_SPEC | ALERT, after: None, .. } | Record { content: [], .. })
            if !is_first =>
        {
            match count_records(stream) {
                Side::Undecided(signs) => Side::BeforeHello(signs),
                side => side,
            }
        }
        Ok(Record { kind: CHANGE_CIPHER_SPEC | ALERT, after: None, .. }) if is_answer => Side::Undecided(0),
        Ok(Record { kind: ALERT, content: [WARNING | FATAL, _], .. }) if is_answer => Side::Hello { finished: true },
        _ => count_records(stream),
    };
    // After a ChangeCipherSpec, encrypted messages may look like the begin of a hello.
    if side == Side::Foreign && !is_first { count_records(stream) } else { side }
}

/// Reads a ClientHello, the first message of a client. What follows has no extracted fields.
fn read_client(stream: &[u8], findings: &mut Findings) -> Side {
    let mut copy = ArrayVec::new();
    let (messages, _) = split_flight(stream, &mut copy);
    let Ok(message) = split_message(&mut Start(messages)) else { return Side::Undecided(0) };
    let is_proven = has_heads_of_hello(stream, findings);
    match read_client_hello(message, Application::Tls, findings) {
        Next::Foreign if !is_proven => Side::Foreign,
        Next::Undecided if !is_proven => Side::Undecided(0),
        next => Side::Hello { finished: !matches!(next, Next::Undecided | Next::Incomplete) },
    }
}

/// Recognises TLS by the heads of a record and of the hello in it, if the one fills the other: the
/// rest may be cut or damaged. Returns whether they do.
fn has_heads_of_hello(stream: &[u8], findings: &mut Findings) -> bool {
    let &[HANDSHAKE, 3, _, a, b, CLIENT_HELLO | SERVER_HELLO, 0, c, d, 3, ref rest @ ..] = stream else {
        return false;
    };
    let [record, message] = [[a, b], [c, d]].map(u16::from_be_bytes);
    let is_proven = !rest.is_empty() && rest[0] <= 4 && record.checked_sub(4) == Some(message);
    if is_proven {
        findings.recognise(Application::Tls, Confidence::Message);
    }
    is_proven
}

/// Reads the first flight of a server, and after a HelloRetryRequest the second.
fn read_server(stream: &[u8], findings: &mut Findings) -> Side {
    let (mut rest, mut next) = (stream, Next::Undecided);
    let is_proven = has_heads_of_hello(stream, findings);
    loop {
        let mut copy = ArrayVec::new();
        let (messages, after) = split_flight(rest, &mut copy);
        let mut messages = Start(messages);
        rest = after;
        while let Ok(message) = split_message(&mut messages) {
            next = match (next, read_server_message(message, Application::Tls, findings)) {
                (Next::Undecided, Next::Foreign) if is_proven => return Side::Hello { finished: true },
                (Next::Undecided, Next::Undecided) if is_proven => return Side::Hello { finished: false },
                (Next::Undecided, Next::Foreign) => return Side::Foreign,
                (Next::Undecided, Next::Undecided) => return Side::Undecided(0),
                (_, Next::Foreign | Next::Nothing) => return Side::Hello { finished: true },
                (_, Next::Undecided) => Next::Incomplete,
                (_, next) => next,
            };
        }
        if next == Next::Undecided {
            return Side::Undecided(0);
        }
        rest = pass_over(rest, next == Next::ServerHello);
        match split_record(rest) {
            Err(Verdict::More) | Ok(Record { kind: CHANGE_CIPHER_SPEC | ALERT, after: None, .. }) => {
                return Side::Hello { finished: false };
            }
            Ok(Record { kind: HANDSHAKE, .. }) => {}
            _ => {
                read_alert(rest, findings);
                return Side::Hello { finished: true };
            }
        }
    }
}

/// What follows records that a peer drops: empty ones, and warnings. `before_hello`: also
/// ChangeCipherSpec, which elsewhere begins what is encrypted.
///
/// RFC 5246 section 7.2 permits warnings, and RFC 8446 section 5 a ChangeCipherSpec after the
/// ClientHello. Both forbid empty records. OpenSSL drops up to 32 of them, those of ChangeCipherSpec
/// included.
fn pass_over(mut stream: &[u8], before_hello: bool) -> &[u8] {
    while let Ok(Record { kind, content, after: Some(after) }) = split_record(stream) {
        match (kind, content) {
            (HANDSHAKE, []) | (ALERT, [WARNING, 1..=u8::MAX]) => stream = after,
            (CHANGE_CIPHER_SPEC, [] | [1]) if before_hello => stream = after,
            _ => break,
        }
    }
    stream
}

/// Counts the signs of TLS in records that begin with no hello: those of a connection that began
/// before the capture. A head of a record is one, and so is a length that is that of the octets
/// after it.
fn count_records(stream: &[u8]) -> Side {
    let (mut rest, mut count) = (stream, 0);
    loop {
        match split_record(rest) {
            Ok(Record { kind, content, after }) if kind != HANDSHAKE || !content.is_empty() || after.is_some() => {
                count += 1;
                match after {
                    Some([]) if kind != HANDSHAKE => return Side::Undecided(count + 1),
                    Some(after) => rest = after,
                    None => return Side::Undecided(count),
                }
            }
            Ok(_) | Err(Verdict::More) => return Side::Undecided(count),
            Err(_) => return Side::Foreign,
        }
    }
}

/// Reads the alert of a server that refuses the ClientHello, or warns.
fn read_alert(mut stream: &[u8], findings: &mut Findings) {
    while let Ok(Record { kind, content, after: Some(after) }) = split_record(stream) {
        match (kind, content) {
            // An encrypted alert is longer.
            (ALERT, &[level @ (WARNING | FATAL), description]) => {
                return findings.set_number(Fact::TlsAlert, u16::from_be_bytes([level, description]).into());
            }
            (HANDSHAKE, []) | (CHANGE_CIPHER_SPEC, _) => stream = after,
            _ => return,
        }
    }
}

/// Reads a ClientHello of SSL 2.0 that asks for SSL 3.0 or newer. It has none of the extracted fields. `None`:
/// it is none.
fn read_ssl2_client_hello(stream: &[u8], findings: &mut Findings) -> Option<Side> {
    let is_start = |at: usize, expected: fn(u8) -> bool| stream.get(at).is_none_or(|octet| expected(*octet));
    if stream.is_empty() || !is_start(0, |octet| octet & 0x80 != 0) || !is_start(2, |octet| octet == CLIENT_HELLO) {
        return None;
    }
    if !is_start(3, |octet| octet == 3) || !is_start(4, |octet| octet <= 3) {
        return None;
    }
    let mut hello = Start(stream);
    let (Ok(head), Ok(_), Ok(_), Ok(ciphers), Ok(session), Ok(challenge)) =
        (hello.u16(), hello.u8(), hello.u16(), hello.u16(), hello.u16(), hello.u16())
    else {
        return Some(Side::Undecided(0));
    };
    let octets = [ciphers, session, challenge].iter().map(|octets| u32::from(*octets)).sum::<u32>();
    let is_hello = octets + 9 == u32::from(head & 0x7fff)
        && (ciphers > 0 && ciphers % 3 == 0)
        && [0, 16].contains(&session)
        && (16..=32).contains(&challenge);
    is_hello.then(|| {
        findings.recognise(Application::Tls, Confidence::Message);
        Side::Hello { finished: true }
    })
}

/// A message of the handshake.
pub(crate) struct Message<'a> {
    pub(crate) kind: u8,
    /// Its octets, as far as they are there.
    pub(crate) body: &'a [u8],
    /// All of them are there.
    pub(crate) whole: bool,
}

/// Splits off a message.
pub(crate) fn split_message<'a>(messages: &mut Start<'a>) -> Read<Message<'a>> {
    let (kind, octets) = (messages.u8()?, messages.u24()?);
    let body = messages.take_up_to(octets);
    Ok(Message { kind, body, whole: body.len() == octets })
}

/// Splits off the messages of the handshake that are in consecutive records. The rest begins with
/// another record.
fn split_flight<'stream: 'copy, 'copy>(
    stream: &'stream [u8],
    copy: &'copy mut ArrayVec<u8, MAX_FLIGHT_OCTETS>,
) -> (&'copy [u8], &'stream [u8]) {
    let Ok(Record { kind: HANDSHAKE, content: first, after }) = split_record(stream) else {
        return (&[], stream);
    };
    let mut rest = pass_over(after.unwrap_or_default(), false);
    if !matches!(split_record(rest), Ok(Record { kind: HANDSHAKE, .. })) {
        return (first, rest);
    }
    let mut content = first;
    loop {
        let fitting = &content[..content.len().min(copy.remaining_capacity())];
        copy.try_extend_from_slice(fitting).expect("they fit");
        match split_record(rest) {
            Ok(Record { kind: HANDSHAKE, content: next, after }) => {
                (content, rest) = (next, pass_over(after.unwrap_or_default(), false));
            }
            _ => return (copy, rest),
        }
    }
}

struct Record<'a> {
    kind: u8,
    /// Its octets, as far as they are there.
    content: &'a [u8],
    /// What follows. `None`: octets of this one are missing.
    after: Option<&'a [u8]>,
}

/// Splits off a record. `More`: too few octets, which may be those of a record.
fn split_record(octets: &[u8]) -> Read<Record<'_>> {
    let (kind, rest) = match octets {
        [] | [CHANGE_CIPHER_SPEC..=HEARTBEAT] | [CHANGE_CIPHER_SPEC..=HEARTBEAT, 3] => return Err(Verdict::More),
        [kind @ CHANGE_CIPHER_SPEC..=HEARTBEAT, 3, 0..=4, rest @ ..] => (*kind, rest),
        // A server accepts any minor version here (RFC 5246 appendix E.1).
        [HANDSHAKE, 3, _, rest @ ..] => (HANDSHAKE, rest),
        _ => return Err(Verdict::No),
    };
    let mut rest = Start(rest);
    let length = rest.u16()?;
    require(length <= MAX_RECORD_OCTETS)?;
    require(length > 0 || matches!(kind, CHANGE_CIPHER_SPEC | HANDSHAKE | APPLICATION_DATA))?;
    let content = rest.take_up_to(length.into());
    Ok(Record { kind, content, after: (content.len() == length.into()).then_some(rest.0) })
}
