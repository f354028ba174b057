//! BitTorrent: the peer protocol (BEP 3), the DHT (BEP 5) and uTP (BEP 29).
//!
//! The handshake of peers is certain, and so is a message of the DHT. The first packet of uTP is a
//! pattern.

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Datagram, Findings, Streams, Verdict};
use memchr::memmem;

const HANDSHAKE: &[u8] = b"\x13BitTorrent protocol";
/// Octets of the header of uTP.
const HEADER_OCTETS: usize = 20;
/// Type ST_SYN, version 1.
const SYN: u8 = 0x41;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    Start(streams.first).expect(HANDSHAKE)?;
    findings.recognise(Application::Bittorrent, Confidence::Message);
    Ok(Verdict::Complete)
}

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    let payload = datagram.payload;
    // A dictionary with a query, response or error, and the type of the message.
    let is_query = [&b"d1:a"[..], b"d1:e", b"d1:r", b"d2:ip"].iter().any(|start| payload.starts_with(start));
    if is_query
        && payload.ends_with(b"e")
        && [b"1:y1:q", b"1:y1:r", b"1:y1:e"].iter().any(|kind| memmem::find(payload, *kind).is_some())
    {
        findings.recognise(Application::Bittorrent, Confidence::Message);
        return Ok(Verdict::Complete);
    }
    read_utp(payload, findings)
}

/// The first packet of a connection acknowledges nothing, and knows no delay.
fn read_utp(payload: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(payload);
    rest.expect(&[SYN])?;
    let mut extension = rest.u8()?;
    let fields = rest.array::<{ HEADER_OCTETS - 2 }>()?;
    let [_, _, _, _, _, _, delay @ .., _, _, _, _, _, _, ack_high, ack_low] = fields;
    require(delay == [0; 4] && [ack_high, ack_low] == [0; 2] && fields[2..6] != [0; 4])?;
    // Each extension has the kind of the next, and its length.
    while extension != 0 {
        extension = rest.u8()?;
        let length = rest.u8()?;
        rest.take(usize::from(length))?;
    }
    require(rest.0.is_empty())?;
    findings.recognise(Application::Bittorrent, Confidence::Pattern);
    Ok(Verdict::Complete)
}
