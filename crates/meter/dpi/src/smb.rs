//! SMB versions 1 to 3 over TCP (MS-SMB2 section 2.1, MS-CIFS), also behind the session service of NetBIOS
//! (RFC 1002 section 4.3).

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Findings, Streams, Verdict};

const SESSION_MESSAGE: u8 = 0;
const SESSION_REQUEST: u8 = 0x81;
const SESSION_RESPONSE: u8 = 0x82;
/// Octets of the two names of a session request.
const NAMES_OCTETS: usize = 68;
/// Octets of the header of version 1, which is the shortest.
const HEADER_OCTETS: u32 = 32;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(streams.first);
    let mut kind = rest.u8()?;
    if matches!(kind, SESSION_REQUEST | SESSION_RESPONSE) {
        let names: usize = if kind == SESSION_REQUEST { NAMES_OCTETS } else { 0 };
        rest.expect(&[0, 0, names as u8])?;
        rest.take(names)?;
        kind = rest.u8()?;
    }
    require(kind == SESSION_MESSAGE)?;
    let [high, middle, low] = rest.array()?;
    require(u32::from_be_bytes([0, high, middle, low]) >= HEADER_OCTETS)?;
    // Version 1, 2 and 3; 3 encrypted; 3 compressed.
    require(rest.u8()? >= 0xfc)?;
    rest.expect(b"SMB")?;
    findings.recognise(Application::Smb, Confidence::Message);
    Ok(Verdict::Complete)
}
