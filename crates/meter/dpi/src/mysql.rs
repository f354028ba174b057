//! MySQL and MariaDB: the greeting of the server (protocol 10) and the response of the client
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html>).

use crate::start::{Read, Start, after_field, require};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict, tls};

const PROTOCOL: u8 = 10;
const ERROR: u8 = 0xff;
const MAX_VERSION_OCTETS: usize = 128;
const MAX_USER_OCTETS: usize = 128;
/// Octets of the greeting before the version and after it, at least.
const MIN_GREETING_OCTETS: u32 = 20;
/// Octets of the response of a client that continues with TLS, and of the head of a packet.
const SSL_REQUEST_OCTETS: usize = 36;
const HEAD_OCTETS: usize = 4;
/// The client continues with TLS.
const CLIENT_SSL: u32 = 0x800;
/// The client uses the protocol that follows here.
const CLIENT_PROTOCOL_41: u32 = 0x200;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let verdict = read_greeting(streams.first, findings)?;
    if verdict != Verdict::Recognised {
        return Ok(verdict);
    }
    if is_ssl_request(streams.second) {
        let client = &streams.second[SSL_REQUEST_OCTETS..];
        let greeting_octets = streams.first.first_chunk().map_or(0, |&[low, high, ..]: &[u8; HEAD_OCTETS]| {
            HEAD_OCTETS + usize::from(u16::from_le_bytes([low, high]))
        });
        let server = streams.first.get(greeting_octets..).unwrap_or_default();
        return Ok(tls::read_upgrade(client, server, findings));
    }
    Ok(after_field(read_response(streams.second, findings)))
}

/// Whether a client asks for TLS, in a packet of 32 octets.
fn is_ssl_request(octets: &[u8]) -> bool {
    matches!(octets, [32, 0, 0, 1, a, b, _, _, ..]
        if octets.len() >= SSL_REQUEST_OCTETS && u32::from(u16::from_le_bytes([*a, *b])) & CLIENT_SSL != 0)
}

fn read_greeting(octets: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(octets);
    let [low, middle, high, number] = rest.array()?;
    let length = u32::from_le_bytes([low, middle, high, 0]);
    require(high == 0 && number == 0)?;
    match rest.u8()? {
        PROTOCOL => {}
        // Instead of a greeting: the host is blocked, or there are too many connections.
        ERROR => {
            let code = u16::from_le_bytes(rest.array()?);
            require((1000..5000).contains(&code) && (4..512).contains(&length))?;
            require(rest.take(length as usize - 3)?.iter().all(|octet| !octet.is_ascii_control()))?;
            findings.recognise(Application::Mysql, Confidence::Pattern);
            return Ok(Verdict::Complete);
        }
        _ => return Err(Verdict::No),
    }
    let version = rest.until(0, MAX_VERSION_OCTETS)?;
    require(version.first().is_some_and(u8::is_ascii_digit) && version.iter().all(u8::is_ascii_graphic))?;
    require(length >= MIN_GREETING_OCTETS + version.len() as u32)?;
    // Connection id, the first part of a nonce, and a zero.
    rest.take(4 + 8)?;
    rest.expect(&[0])?;
    findings.recognise(Application::Mysql, Confidence::Message);
    findings.set_text(Fact::ServerSoftware, version);
    Ok(Verdict::Recognised)
}

/// Finds the user, behind capabilities, maximum size, character set and 23 zeros.
fn read_response(octets: &[u8], findings: &mut Findings) -> Read<()> {
    let mut rest = Start(octets);
    let [_, _, _, number] = rest.array()?;
    let capabilities = u32::from_le_bytes(rest.array()?);
    require(number == 1 && capabilities & CLIENT_PROTOCOL_41 != 0)?;
    rest.take(4 + 1 + 23)?;
    require(capabilities & CLIENT_SSL == 0)?;
    findings.set_text(Fact::User, rest.until(0, MAX_USER_OCTETS)?);
    Ok(())
}
