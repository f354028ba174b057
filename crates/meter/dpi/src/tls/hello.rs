//! Messages of the TLS handshake that are not encrypted: ClientHello, ServerHello, Certificate
//! (RFC 8446 sections 4.1.2 and 4.1.3, RFC 5246 section 7.4.2). QUIC and DTLS have the same ones.

use super::certificate;
use super::fingerprint::{ClientHello, MAX_LIST, ServerHello, is_grease, values};
use crate::cursor::Cursor;
use crate::{Application, Confidence, Fact, Findings, Note};
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

/// How far a ClientHello was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The octets are none.
    Foreign,
    /// Too few octets to decide.
    Undecided,
    /// Octets of it are missing. The extracted fields before are set.
    Incomplete,
    /// It was read, as far as it is of its form.
    Finished,
}

/// What follows a message of the server.
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

/// Reads a ClientHello, which may be cut (`whole` is false). Recognises the application before the
/// cipher suites, when version and lengths have agreed.
pub(crate) fn read_client_hello(
    body: &[u8],
    whole: bool,
    application: Application,
    findings: &mut Findings,
) -> Reading {
    client_hello(body, whole, application, findings).err().unwrap_or(Reading::Finished)
}

fn client_hello(body: &[u8], whole: bool, application: Application, findings: &mut Findings) -> Result<(), Reading> {
    let missing = if whole { Reading::Foreign } else { Reading::Undecided };
    let mut cursor = Cursor(body);
    let mut hello = ClientHello { application: application as u8, ..ClientHello::default() };
    hello.version = cursor.u16().ok_or(missing)?;
    let is_datagram = application == Application::Dtls;
    ensure(hello.version >> 8 == if is_datagram { 0xfe } else { 3 }, Reading::Foreign)?;
    cursor.take(32).ok_or(missing)?;
    let session_octets = cursor.u8().ok_or(missing)?;
    ensure(session_octets <= 32, Reading::Foreign)?;
    cursor.take(session_octets.into()).ok_or(missing)?;
    if is_datagram {
        cursor.vector8().ok_or(missing)?;
    }
    let ciphers_octets = cursor.u16().ok_or(missing)?;
    ensure(ciphers_octets > 0 && ciphers_octets % 2 == 0, Reading::Foreign)?;
    findings.recognise(application, Confidence::Message);
    let missing = if whole { Reading::Finished } else { Reading::Incomplete };
    hello.lists[0] = cursor.take(ciphers_octets.into()).ok_or(missing)?;
    cursor.vector8().ok_or(missing)?;
    let mut types = ArrayVec::<u8, { 2 * MAX_LIST }>::new();
    // SSL 3.0 and TLS 1.0 have hellos that end here.
    if !(whole && cursor.0.is_empty()) {
        let octets = cursor.u16().ok_or(missing)?;
        let mut extensions = Cursor(cursor.take_up_to(octets.into()));
        while !extensions.0.is_empty() {
            let number = extensions.u16().ok_or(missing)?;
            let content = extensions.vector16().ok_or(missing)?;
            if !is_grease(number) && types.try_extend_from_slice(&number.to_be_bytes()).is_err() {
                hello.is_cut = true;
            }
            client_extension(number, content, &mut hello, findings);
        }
    }
    if !whole {
        return Err(Reading::Incomplete);
    }
    hello.lists[1] = &types;
    match hello.encode() {
        Some(fields) => findings.set_octets(Fact::TlsClientHello, &fields),
        None => findings.note(Note::Cut),
    }
    Ok(())
}

/// An extension whose content is not of its form has no extracted fields, but is listed in the fingerprints.
fn client_extension<'a>(number: u16, content: &'a [u8], hello: &mut ClientHello<'a>, findings: &mut Findings) {
    let mut content = Cursor(content);
    match number {
        0 => {
            let mut names = Cursor(content.vector16().unwrap_or_default());
            while let (Some(kind), Some(name)) = (names.u8(), names.vector16()) {
                if kind == 0 && !name.is_empty() {
                    return findings.set_text(Fact::ServerName, name);
                }
            }
        }
        10 => hello.lists[2] = content.vector16().unwrap_or_default(),
        11 => hello.point_formats = content.vector8().unwrap_or_default(),
        13 => hello.lists[3] = content.vector16().unwrap_or_default(),
        16 => {
            let mut protocols = Cursor(content.vector16().unwrap_or_default());
            let mut first = protocols;
            if let Some([first, .., last] | [first @ last]) = first.vector8() {
                hello.alpn = [*first, *last];
            }
            if !protocols.0.is_empty() {
                findings.set_list(Fact::AlpnOffered, std::iter::from_fn(|| protocols.vector8()));
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

/// Reads a message of a server's first flight, which may be cut (`whole` is false).
pub(crate) fn read_server_message(
    kind: u8,
    body: &[u8],
    whole: bool,
    application: Application,
    findings: &mut Findings,
) -> Next {
    match kind {
        SERVER_HELLO => server_hello(body, whole, application, findings).unwrap_or_else(|next| next),
        CERTIFICATE => {
            let mut list = Cursor(body);
            list.u24();
            let Some(octets) = list.u24() else { return if whole { Next::Nothing } else { Next::Incomplete } };
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
    let missing = if whole { Next::Foreign } else { Next::Undecided };
    let mut cursor = Cursor(body);
    let mut hello = ServerHello { version: cursor.u16().ok_or(missing)?, ..ServerHello::default() };
    ensure(hello.version >> 8 == if application == Application::Dtls { 0xfe } else { 3 }, Next::Foreign)?;
    let random = cursor.take(32).ok_or(missing)?;
    let session_octets = cursor.u8().ok_or(missing)?;
    ensure(session_octets <= 32, Next::Foreign)?;
    cursor.take(session_octets.into()).ok_or(missing)?;
    hello.cipher = cursor.u16().ok_or(missing)?;
    cursor.u8().ok_or(missing)?;
    findings.recognise(application, Confidence::Message);
    let missing = if whole { Next::Nothing } else { Next::Incomplete };
    findings.set_number(Fact::TlsCipher, hello.cipher.into());
    let mut version = hello.version;
    if !(whole && cursor.0.is_empty()) {
        let octets = cursor.u16().ok_or(missing)?;
        let mut extensions = Cursor(cursor.take_up_to(octets.into()));
        while !extensions.0.is_empty() {
            let number = extensions.u16().ok_or(missing)?;
            let mut content = Cursor(extensions.vector16().ok_or(missing)?);
            hello.is_cut |= hello.extensions.try_push(number).is_err();
            match number {
                16 => {
                    if let Some(protocol) = Cursor(content.vector16().unwrap_or_default()).vector8() {
                        findings.set_text(Fact::AlpnSelected, protocol);
                    }
                }
                43 => version = content.u16().unwrap_or(version),
                _ => {}
            }
        }
    }
    if !whole {
        return Err(Next::Incomplete);
    }
    findings.set_number(Fact::TlsVersion, version.into());
    if random == HELLO_RETRY_REQUEST {
        return Ok(Next::ServerHello);
    }
    match hello.encode() {
        Some(fields) => findings.set_octets(Fact::TlsServerHello, &fields),
        None => findings.note(Note::Cut),
    }
    // TLS 1.3 (and its drafts, 0x7fNN) and DTLS 1.3 encrypt the rest.
    let is_encrypted = if version >> 8 == 0xfe { version <= 0xfefc } else { version >= 0x304 };
    Ok(if is_encrypted { Next::Nothing } else { Next::Message })
}

fn ensure<E>(holds: bool, error: E) -> Result<(), E> {
    if holds { Ok(()) } else { Err(error) }
}
