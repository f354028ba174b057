//! STUN (RFC 8489) and TURN (RFC 8656) over UDP and TCP.
//!
//! The magic cookie and the length are certain. Messages without it (RFC 3489) are a pattern on
//! port 3478.

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Datagram, Findings, Streams, Verdict};

const PORT: u16 = 3478;
const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const HEADER_OCTETS: u32 = 20;
const BINDING_REQUEST: u16 = 0x0001;
const BINDING_RESPONSE: u16 = 0x0101;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let (_, length) = header(streams.first)?;
    require(length % 4 == 0)?;
    Start(streams.first.get(4..).unwrap_or_default()).expect(&MAGIC_COOKIE)?;
    Start(streams.first).take(HEADER_OCTETS as usize)?;
    findings.recognise(Application::Stun, Confidence::Message);
    Ok(Verdict::Complete)
}

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    let (kind, length) = header(datagram.payload)?;
    require(datagram.wire_octets == HEADER_OCTETS + u32::from(length))?;
    // Some programs do not pad their attributes, so that the length need not be a multiple of 4.
    let has_cookie = datagram.payload.get(4..8) == Some(&MAGIC_COOKIE);
    let has_id = datagram.payload.get(4..HEADER_OCTETS as usize).is_some_and(|id| id != [0; 16]);
    let is_classic = matches!(kind, BINDING_REQUEST | BINDING_RESPONSE) && datagram.ports.contains(&PORT) && has_id;
    require(has_cookie || is_classic)?;
    findings.recognise(Application::Stun, if has_cookie { Confidence::Message } else { Confidence::Pattern });
    Ok(Verdict::Complete)
}

/// Type and length of the attributes (RFC 8489 section 5).
fn header(octets: &[u8]) -> Read<(u16, u16)> {
    let mut octets = Start(octets);
    octets.require_next(|first| first < 0x40)?;
    Ok((octets.u16()?, octets.u16()?))
}
