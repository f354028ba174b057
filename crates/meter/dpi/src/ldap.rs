//! LDAP (RFC 4511) over TCP, and over UDP as domain controllers use it (MS-ADTS section 6.3.3).
//!
//! The first message is certain: the envelope, the tag of the operation, and the fields that this
//! operation begins with agree in their types and lengths.

use crate::ber::{ENUMERATED, Element, INTEGER, OCTET_STRING, SEQUENCE};
use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict, tls};

const BIND_REQUEST: u8 = 0x60;
const BIND_RESPONSE: u8 = 0x61;
const SEARCH_REQUEST: u8 = 0x63;
const SEARCH_RESULT_ENTRY: u8 = 0x64;
const SEARCH_RESULT_DONE: u8 = 0x65;
const EXTENDED_REQUEST: u8 = 0x77;
const EXTENDED_RESPONSE: u8 = 0x78;
const CONTROLS: u8 = 0xa0;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let verdict = read(streams.first, findings)?;
    if verdict != Verdict::Recognised {
        return Ok(verdict);
    }
    // After StartTLS and its response.
    let [client, server] = [streams.first, streams.second].map(|octets| {
        let first = Element::read(&mut Start(octets));
        first.ok().and_then(|message| octets.get(message.total..)).unwrap_or_default()
    });
    Ok(if tls::is_start(client) { tls::read_upgrade(client, server, findings) } else { verdict })
}

/// Reads the first message of a side, or a datagram.
pub(crate) fn read(octets: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let message = Element::expect(&mut Start(octets), SEQUENCE)?;
    let mut rest = message.content;
    let id = Element::expect(&mut rest, INTEGER)?;
    require((1..=4).contains(&id.length))?;
    require(id.whole()?[0] < 0x80)?;
    let operation = Element::read(&mut rest)?;
    let length = id.total + operation.total;
    require(length <= message.length)?;
    let mut fields = operation.content;
    let mut name: &[u8] = b"";
    match operation.tag {
        BIND_REQUEST => {
            let version = Element::small_number(&mut fields, INTEGER)?;
            let user = Element::expect(&mut fields, OCTET_STRING)?;
            name = user.whole()?;
            let password = Element::read(&mut fields)?;
            let is_simple_or_sasl = matches!(password.tag, 0x80 | 0xa3);
            let is_filled = 3 + user.total + password.total == operation.length;
            // SICILY (MS-ADTS section 5.1.1.1.3).
            let is_sicily = matches!(password.tag, 0x89..=0x8b);
            require(matches!(version, 2 | 3) && (is_simple_or_sasl || is_sicily) && is_filled)?;
        }
        SEARCH_REQUEST => {
            // Base, scope, dereferencing of aliases, limits of size and time, types only.
            Element::expect(&mut fields, OCTET_STRING)?.whole()?;
            require(Element::small_number(&mut fields, ENUMERATED)? <= 3)?;
            require(Element::small_number(&mut fields, ENUMERATED)? <= 3)?;
            for _ in 0..2 {
                require((1..=4).contains(&Element::expect(&mut fields, INTEGER)?.length))?;
            }
        }
        BIND_RESPONSE | SEARCH_RESULT_DONE | EXTENDED_RESPONSE => {
            Element::small_number(&mut fields, ENUMERATED)?;
            Element::expect(&mut fields, OCTET_STRING)?.whole()?;
            Element::expect(&mut fields, OCTET_STRING)?;
        }
        SEARCH_RESULT_ENTRY => {
            Element::expect(&mut fields, OCTET_STRING)?.whole()?;
            Element::expect(&mut fields, SEQUENCE)?;
        }
        EXTENDED_REQUEST => {
            let name = Element::expect(&mut fields, 0x80)?.whole()?;
            require(name.starts_with(b"1.") && name.iter().all(|octet| octet.is_ascii_digit() || *octet == b'.'))?;
        }
        _ => return Err(Verdict::No),
    }
    if length < message.length {
        operation.whole()?;
        require(length + Element::expect(&mut rest, CONTROLS)?.total == message.length)?;
    }
    findings.recognise(Application::Ldap, Confidence::Message);
    if !name.is_empty() {
        findings.set_text(Fact::User, name);
    }
    Ok(if matches!(operation.tag, EXTENDED_REQUEST) { Verdict::Recognised } else { Verdict::Complete })
}
