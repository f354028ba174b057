//! OpenVPN over UDP and TCP: the first message of a handshake, HARD_RESET
//! (<https://openvpn.net/community-docs/openvpn-protocol.html>).
//!
//! Without keys, and with `tls-auth`, all fields are readable, and the message is certain. With
//! `tls-crypt`, the rest is encrypted, and the message a pattern.

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Datagram, Findings, Streams, Verdict};

/// Operation code in the higher five bits, key 0 in the lower three.
const CLIENT_V2: u8 = 7 << 3;
const SERVER_V2: u8 = 8 << 3;
const CLIENT_V3: u8 = 10 << 3;
const SESSION_ID_OCTETS: usize = 8;
/// Lengths of the HMAC of `tls-auth` by digest (none, MD5, SHA-1, SHA-224, SHA-256, SHA-384, SHA-512).
const HMAC_OCTETS: [usize; 7] = [0, 16, 20, 28, 32, 48, 64];
/// Octets of CLIENT_V2 with `tls-crypt`: packet number, time, HMAC-SHA-256, and 5 encrypted octets.
const CRYPT_OCTETS: usize = 1 + SESSION_ID_OCTETS + 4 + 4 + 32 + 5;
/// The same of CLIENT_V3, without its wrapped key.
const MAX_CRYPT_OCTETS: usize = 1500;

/// Reads the start of a connection. A packet follows its length in 2 octets.
pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let mut octets = Start(streams.first);
    let length = octets.u16()?;
    // The first octet refuses most other protocols.
    octets.require_next(|first| [CLIENT_V2, SERVER_V2, CLIENT_V3].contains(&first))?;
    require(usize::from(length) <= MAX_CRYPT_OCTETS)?;
    read(octets.take(length.into())?, findings)
}

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    require(datagram.payload.len() == datagram.wire_octets as usize)?;
    read(datagram.payload, findings)
}

fn read(packet: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(packet);
    let code = rest.u8()?;
    require([CLIENT_V2, SERVER_V2, CLIENT_V3].contains(&code))?;
    require(rest.array::<SESSION_ID_OCTETS>()? != [0; SESSION_ID_OCTETS])?;
    let confidence = if HMAC_OCTETS.iter().any(|&octets| is_reset(code, rest, octets).is_ok()) {
        Confidence::Message
    } else {
        // The first packet has number 1, and 0x0f000001 if the client can renegotiate keys early.
        let number = rest.u32()?;
        let is_crypt = match code {
            CLIENT_V2 => packet.len() == CRYPT_OCTETS,
            CLIENT_V3 => packet.len() > CRYPT_OCTETS,
            _ => false,
        };
        require(is_crypt && matches!(number, 1 | 0x0f00_0001))?;
        Confidence::Pattern
    };
    findings.recognise(Application::Openvpn, confidence);
    Ok(Verdict::Complete)
}

/// Acknowledged packets and the number of this one, which is 0, after an HMAC of this length.
fn is_reset(code: u8, mut rest: Start<'_>, hmac_octets: usize) -> Read<()> {
    if hmac_octets > 0 {
        rest.take(hmac_octets)?;
        require(rest.u32()? == 1)?;
        rest.take(4)?;
    }
    match (code, rest.u8()?) {
        (CLIENT_V2 | SERVER_V2, 0) => {}
        (SERVER_V2, 1) => {
            require(rest.u32()? == 0)?;
            rest.take(SESSION_ID_OCTETS)?;
        }
        _ => return Err(Verdict::No),
    }
    require(rest.u32()? == 0 && rest.0.is_empty())
}
