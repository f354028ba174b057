//! RDP: the connection request of the client and its confirmation (MS-RDPBCGR sections 2.2.1.1, 2.2.1.2).
//!
//! Other protocols have the same envelope (RFC 1006, ITU-T X.224), so that the cookie or the
//! negotiation behind it are certain, and a request without both is a pattern.

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict, tls};

/// Octets of the envelope behind the length of X.224.
const ENVELOPE_OCTETS: usize = 6;
const MAX_COOKIE_OCTETS: usize = 256;
const CONNECTION_REQUEST: u8 = 0xe0;
const CONNECTION_CONFIRM: u8 = 0xd0;
const NEGOTIATION_REQUEST: u8 = 1;
const NEGOTIATION_RESPONSE: u8 = 2;
const NEGOTIATION_FAILURE: u8 = 3;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    match read(streams.first, findings)? {
        Verdict::Complete if streams.first.get(5) == Some(&CONNECTION_REQUEST) => Ok(read_tls(streams, findings)),
        verdict => Ok(verdict),
    }
}

/// Reads TLS, which follows the confirmation if the server selected it (MS-RDPBCGR section 5.4.2).
fn read_tls(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let mut server = Start(streams.second);
    match server.array::<{ 5 + ENVELOPE_OCTETS + 8 }>() {
        Ok([3, 0, .., NEGOTIATION_RESPONSE, _, 8, 0, selected, _, _, _]) if selected != 0 => {}
        Err(Verdict::More) => return Verdict::Recognised,
        _ => return Verdict::Complete,
    }
    let length = streams.first.get(2..4).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])));
    tls::read_upgrade(streams.first.get(length..).unwrap_or_default(), server.0, findings)
}

fn read(octets: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(octets);
    rest.expect(&[3, 0])?;
    let length = usize::from(rest.u16()?);
    require(usize::from(rest.u8()?) + 5 == length)?;
    let code = rest.u8()?;
    require(matches!(code, CONNECTION_REQUEST | CONNECTION_CONFIRM))?;
    if code == CONNECTION_REQUEST {
        rest.expect(&[0, 0])?;
    } else {
        rest.take(2)?;
    }
    rest.take(2)?;
    rest.expect(&[0])?;
    let variable = length.checked_sub(5 + ENVELOPE_OCTETS).ok_or(Verdict::No)?;
    let mut rest = Start(rest.0.get(..variable.min(rest.0.len())).unwrap_or_default());
    let mut confidence = Confidence::Pattern;
    if variable > 0 {
        confidence = Confidence::Message;
        let first = rest.0.first().copied().ok_or(Verdict::More)?;
        if code == CONNECTION_REQUEST && first == b'C' {
            rest.expect(b"Cookie: mst")?;
            let cookie = rest.until(b'\n', MAX_COOKIE_OCTETS)?.trim_ascii_end();
            if let Some(user) = cookie.strip_prefix(b"shash=") {
                findings.set_text(Fact::User, user);
            }
        } else {
            let kinds: &[u8] = match code {
                CONNECTION_REQUEST => &[NEGOTIATION_REQUEST],
                _ => &[NEGOTIATION_RESPONSE, NEGOTIATION_FAILURE],
            };
            require(kinds.contains(&rest.u8()?))?;
            rest.u8()?;
            rest.expect(&[8, 0])?;
        }
    }
    require(code == CONNECTION_REQUEST || variable > 0)?;
    findings.recognise(Application::Rdp, confidence);
    Ok(Verdict::Complete)
}
