//! Messages of the TLS handshake that are not encrypted: ClientHello, ServerHello, Certificate
//! (RFC 8446 sections 4.1.2 and 4.1.3, RFC 5246 section 7.4.2). QUIC and DTLS have the same ones.

use super::fingerprint::{ClientHello, MAX_LIST, ServerHello, is_grease, values};
use super::{Message, certificate};
use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Note, Verdict};
use arrayvec::ArrayVec;

/// Type of the handshake message ClientHello.
pub(crate) const CLIENT_HELLO: u8 = 1;
/// Type of the handshake message ServerHello, and of HelloRetryRequest.
pub(crate) const SERVER_HELLO: u8 = 2;
/// Type of the handshake message Certificate.
pub(crate) const CERTIFICATE: u8 = 11;
/// Messages that follow the place of the server's Certificate if it has none: NewSessionTicket
/// (resumption), ServerKeyExchange, CertificateRequest, ServerHelloDone, Finished.
const AFTER_CERTIFICATE: [u8; 5] = [4, 12, 13, 14, 20];

/// The random of a ServerHello that is a HelloRetryRequest.
const HELLO_RETRY_REQUEST: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// What follows a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The octets are not such a message.
    Foreign,
    /// Too few octets to decide.
    Undecided,
    /// Octets of this message are missing.
    Incomplete,
    /// Another message.
    Message,
    /// Another ServerHello, after the client's answer: this one was a HelloRetryRequest.
    ServerHello,
    /// Nothing to read: the rest is encrypted, has no extracted fields, or is not of its form.
    Nothing,
}

/// Reads a ClientHello, which may be cut. Recognises the application before the cipher suites, when
/// version and lengths have agreed. [`Next::Message`]: it was read, as far as it is of its form.
pub(crate) fn read_client_hello(message: Message<'_>, application: Application, findings: &mut Findings) -> Next {
    client_hello(message, application, findings).unwrap_or_else(|next| next)
}

fn client_hello(message: Message<'_>, application: Application, findings: &mut Findings) -> Result<Next, Next> {
    let Message { body, whole, .. } = message;
    let (mut octets, no_hello) = (Start(body), |verdict| no_hello(verdict, whole));
    let (version, _) = hello_head(&mut octets, application).map_err(no_hello)?;
    if application == Application::Dtls {
        octets.vector8().map_err(no_hello)?;
    }
    let ciphers_octets = octets.u16().map_err(no_hello)?;
    require(ciphers_octets > 0 && ciphers_octets % 2 == 0).map_err(no_hello)?;
    findings.recognise(application, Confidence::Message);
    let mut hello = ClientHello { application: application as u8, version, ..ClientHello::default() };
    let missing = if whole { Next::Message } else { Next::Incomplete };
    hello.lists[0] = octets.take(ciphers_octets.into()).or(Err(missing))?;
    octets.vector8().or(Err(missing))?;
    let without_fingerprint = findings.leaves_out_fingerprint();
    let mut types = ArrayVec::<u8, { 2 * MAX_LIST }>::new();
    let read = read_extensions(octets, whole, |number, content| {
        if !without_fingerprint && !is_grease(number) && types.try_extend_from_slice(&number.to_be_bytes()).is_err() {
            hello.is_cut = true;
        }
        client_extension(number, content, &mut hello, findings);
    });
    if read.is_err() || !whole {
        return Err(missing);
    }
    if without_fingerprint {
        findings.set_octets(Fact::TlsClientHello, &[]);
        return Ok(Next::Message);
    }
    hello.lists[1] = &types;
    match hello.encode() {
        Some(fields) => findings.set_octets(Fact::TlsClientHello, &fields),
        None => findings.note(Note::Cut),
    }
    Ok(Next::Message)
}

/// What octets are that do not begin as a hello.
fn no_hello(verdict: Verdict, whole: bool) -> Next {
    if verdict == Verdict::More && !whole { Next::Undecided } else { Next::Foreign }
}

/// Reads the version, the random and the session id, with which both hellos begin. Returns the first two.
fn hello_head<'a>(octets: &mut Start<'a>, application: Application) -> Read<(u16, &'a [u8])> {
    let version = octets.u16()?;
    require(version >> 8 == if application == Application::Dtls { 0xfe } else { 3 })?;
    let random = octets.take(32)?;
    let session_octets = octets.u8()?;
    require(session_octets <= 32)?;
    octets.take(session_octets.into())?;
    Ok((version, random))
}

/// Calls a function with the type and the content of each extension of a hello.
fn read_extensions<'a>(mut octets: Start<'a>, whole: bool, mut read: impl FnMut(u16, &'a [u8])) -> Read<()> {
    // SSL 3.0 and TLS 1.0 have hellos that end before them.
    if whole && octets.0.is_empty() {
        return Ok(());
    }
    let length = octets.u16()?;
    let mut extensions = Start(octets.take_up_to(length.into()));
    while !extensions.0.is_empty() {
        read(extensions.u16()?, extensions.vector16()?);
    }
    Ok(())
}

/// An extension whose content is not of its form has no extracted fields, but is listed in the fingerprints.
fn client_extension<'a>(number: u16, content: &'a [u8], hello: &mut ClientHello<'a>, findings: &mut Findings) {
    let mut content = Start(content);
    match number {
        0 => {
            let mut names = Start(content.vector16().unwrap_or_default());
            while let (Ok(kind), Ok(name)) = (names.u8(), names.vector16()) {
                if kind == 0 && !name.is_empty() {
                    return findings.set_text(Fact::ServerName, name);
                }
            }
        }
        10 => hello.lists[2] = content.vector16().unwrap_or_default(),
        11 => hello.point_formats = content.vector8().unwrap_or_default(),
        13 => hello.lists[3] = content.vector16().unwrap_or_default(),
        16 => {
            let mut protocols = Start(content.vector16().unwrap_or_default());
            let mut first = protocols;
            if let Ok([first, .., last] | [first @ last]) = first.vector8() {
                hello.alpn = [*first, *last];
            }
            if !protocols.0.is_empty() {
                findings.set_list(Fact::AlpnOffered, std::iter::from_fn(|| protocols.vector8().ok()));
            }
        }
        43 => {
            let versions = values(content.vector8().unwrap_or_default()).filter(|version| !is_grease(*version));
            // Versions of DTLS count down.
            let newest = if hello.version >> 8 == 3 { versions.max() } else { versions.min() };
            hello.newest_version = newest.unwrap_or(0);
        }
        0xfe0d => findings.set_number(Fact::TlsEch, 1),
        _ => {}
    }
}

/// Reads a message of a server's first flight, which may be cut.
pub(crate) fn read_server_message(message: Message<'_>, application: Application, findings: &mut Findings) -> Next {
    let Message { kind, body, whole } = message;
    match kind {
        SERVER_HELLO => server_hello(body, whole, application, findings).unwrap_or_else(|next| next),
        CERTIFICATE => {
            let mut list = Start(body);
            // The length of all certificates, then that of the first one.
            let (_, Ok(octets)) = (list.u24(), list.u24()) else {
                return if whole { Next::Nothing } else { Next::Incomplete };
            };
            let leaf = list.take_up_to(octets);
            certificate::read(leaf, findings);
            if leaf.len() == octets || whole { Next::Nothing } else { Next::Incomplete }
        }
        _ if AFTER_CERTIFICATE.contains(&kind) => Next::Nothing,
        _ if whole => Next::Message,
        _ => Next::Incomplete,
    }
}

fn server_hello(body: &[u8], whole: bool, application: Application, findings: &mut Findings) -> Result<Next, Next> {
    let (mut octets, no_hello) = (Start(body), |verdict| no_hello(verdict, whole));
    let (mut version, random) = hello_head(&mut octets, application).map_err(no_hello)?;
    let cipher = octets.u16().map_err(no_hello)?;
    octets.u8().map_err(no_hello)?;
    findings.recognise(application, Confidence::Message);
    findings.set_number(Fact::TlsCipher, cipher.into());
    let without_fingerprint = findings.leaves_out_fingerprint();
    let mut hello = ServerHello { version, cipher, ..ServerHello::default() };
    let read = read_extensions(octets, whole, |number, content| {
        let mut content = Start(content);
        hello.is_cut |= !without_fingerprint && hello.extensions.try_push(number).is_err();
        match number {
            16 => {
                if let Ok(protocol) = Start(content.vector16().unwrap_or_default()).vector8() {
                    findings.set_text(Fact::AlpnSelected, protocol);
                }
            }
            43 => version = content.u16().unwrap_or(version),
            _ => {}
        }
    });
    if read.is_err() || !whole {
        return Err(if whole { Next::Nothing } else { Next::Incomplete });
    }
    findings.set_number(Fact::TlsVersion, version.into());
    if random == HELLO_RETRY_REQUEST {
        return Ok(Next::ServerHello);
    }
    match hello.encode() {
        _ if without_fingerprint => {}
        Some(fields) => findings.set_octets(Fact::TlsServerHello, &fields),
        None => findings.note(Note::Cut),
    }
    // TLS 1.3 (and its drafts, 0x7fNN) and DTLS 1.3 encrypt the rest.
    let is_encrypted = if version >> 8 == 0xfe { version <= 0xfefc } else { version >= 0x304 };
    Ok(if is_encrypted { Next::Nothing } else { Next::Message })
}
