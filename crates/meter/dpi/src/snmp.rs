//! SNMP versions 1, 2c (RFC 1157, 1901) and 3 (RFC 3412) over UDP.
//!
//! A message is certain: its length is that of the datagram, and the version, the community or the
//! security parameters, and the tag and length of the PDU agree.

use crate::ber::{Element, INTEGER, OCTET_STRING, SEQUENCE};
use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Datagram, Findings, Verdict};

const OBJECT_IDENTIFIER: u8 = 0x06;
const TRAP: u8 = 0xa4;

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    let message = Element::expect(&mut Start(datagram.payload), SEQUENCE)?;
    require(message.total == datagram.wire_octets as usize)?;
    let mut rest = message.content;
    let version = Element::small_number(&mut rest, INTEGER)?;
    // What the elements so far have of the message: the PDU has the rest.
    let mut octets = 3;
    match version {
        0 | 1 => {
            octets += Element::expect(&mut rest, OCTET_STRING)?.total;
            let pdu = Element::read(&mut rest)?;
            require((0xa0..=0xa8).contains(&pdu.tag) && octets + pdu.total == message.length)?;
            // A trap of version 1 begins with its enterprise, all others with a request id.
            let first = if pdu.tag == TRAP { OBJECT_IDENTIFIER } else { INTEGER };
            require(pdu.length > 2 && pdu.content.0.first().is_none_or(|tag| *tag == first))?;
        }
        3 => {
            // Message id, maximum size, flags, security model.
            let header = Element::expect(&mut rest, SEQUENCE)?;
            let mut fields = header.content;
            for (tag, length) in [(INTEGER, 1..=5), (INTEGER, 2..=5), (OCTET_STRING, 1..=1), (INTEGER, 1..=4)] {
                require(length.contains(&Element::expect(&mut fields, tag)?.length))?;
            }
            octets += header.total + Element::expect(&mut rest, OCTET_STRING)?.total;
            let data = Element::read(&mut rest)?;
            require(matches!(data.tag, SEQUENCE | OCTET_STRING) && octets + data.total == message.length)?;
        }
        _ => return Err(Verdict::No),
    }
    findings.recognise(Application::Snmp, Confidence::Message);
    Ok(Verdict::Complete)
}
