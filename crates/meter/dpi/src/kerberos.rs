//! Kerberos 5 (RFC 4120) over UDP and TCP: requests to and responses of a KDC.
//!
//! A message is certain: its lengths agree, and its tag, version 5 and message type belong together.

use crate::ber::{Element, GENERAL_STRING, INTEGER, SEQUENCE};
use crate::start::{Read, Start, after_field, require};
use crate::{Application, Confidence, Datagram, Fact, Findings, MAX_TEXT_OCTETS, Streams, Verdict};
use arrayvec::ArrayVec;

/// Octets of a message over TCP.
const MAX_MESSAGE_OCTETS: u32 = 1 << 20;

const AS_REQ: u8 = 10;
const TGS_REQ: u8 = 12;
const KRB_ERROR: u8 = 30;

/// Reads the start of a connection. A message follows its length in 4 octets (RFC 4120 section 7.2.2).
pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let mut octets = Start(streams.first);
    let length = octets.u32()?;
    require(length <= MAX_MESSAGE_OCTETS)?;
    read(octets, length as usize, findings)
}

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    read(Start(datagram.payload), datagram.wire_octets as usize, findings)
}

fn read(mut octets: Start<'_>, length: usize, findings: &mut Findings) -> Read<Verdict> {
    // Tags of the class APPLICATION, constructed: the message type.
    let tag = { octets }.u8()?;
    let kind = tag & 0x1f;
    require((0x60..=0x7e).contains(&tag) && matches!(kind, AS_REQ..=13 | KRB_ERROR))?;
    let message = Element::read(&mut octets)?;
    require(message.total == length)?;
    let mut fields = message.only(SEQUENCE)?.content;
    // Requests number their fields from 1, responses from 0.
    let first = if matches!(kind, AS_REQ | TGS_REQ) { 0xa1 } else { 0xa0 };
    for (tag, value) in [(first, 5), (first + 1, kind)] {
        let field = Element::expect(&mut fields, tag)?;
        require(field.length == 3)?;
        require(Element::small_number(&mut Start(field.content.0), INTEGER)? == value)?;
    }
    findings.recognise(Application::Kerberos, Confidence::Message);
    Ok(if kind == AS_REQ { after_field(read_client(fields, findings)) } else { Verdict::Complete })
}

/// Finds the name of the client in an AS-REQ (RFC 4120 section 5.4.1).
fn read_client(mut fields: Start<'_>, findings: &mut Findings) -> Read<()> {
    let mut field = Element::read(&mut fields)?;
    if field.tag == 0xa3 {
        field.whole()?;
        field = Element::read(&mut fields)?;
    }
    require(field.tag == 0xa4)?;
    let mut body = field.only(SEQUENCE)?.content;
    Element::expect(&mut body, 0xa0)?.whole()?;
    let mut name = Element::expect(&mut body, 0xa1)?.only(SEQUENCE)?.content;
    Element::expect(&mut name, 0xa0)?.whole()?;
    let mut strings = Start(Element::expect(&mut name, 0xa1)?.only(SEQUENCE)?.whole()?);
    let mut text = ArrayVec::<u8, { MAX_TEXT_OCTETS + 1 }>::new();
    while !strings.0.is_empty() {
        let string = Element::expect(&mut strings, GENERAL_STRING)?.whole()?;
        let separator: &[u8] = if text.is_empty() { b"" } else { b"/" };
        let octets = separator.iter().chain(string).copied();
        text.extend(octets.take(text.remaining_capacity()));
    }
    findings.set_text(Fact::User, &text);
    Ok(())
}
