//! PostgreSQL (<https://www.postgresql.org/docs/current/protocol.html>): the first messages of a client.

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict, tls};

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
/// Octets of a startup message that are accepted by servers.
const MAX_STARTUP_OCTETS: u32 = 10_000;
const MAX_PARAMETERS: usize = 32;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    match read(streams, findings) {
        // A request for encryption came before.
        Err(_) if findings.application().is_some() => Ok(Verdict::Recognised),
        read => read,
    }
}

fn read(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(streams.first);
    loop {
        // A first octet other than 0 refuses most other protocols.
        { rest }.expect(&[0, 0])?;
        let length = rest.u32()?;
        match rest.u32()? {
            SSL_REQUEST | GSS_REQUEST => require(length == 8)?,
            CANCEL_REQUEST => {
                require(length >= 16)?;
                findings.recognise(Application::Postgresql, Confidence::Message);
                return Ok(Verdict::Complete);
            }
            // Version 3, and minor versions up to 2.
            0x3_0000..=0x3_0002 => {
                require((9..=MAX_STARTUP_OCTETS).contains(&length))?;
                break;
            }
            _ => return Err(Verdict::No),
        }
        findings.recognise(Application::Postgresql, Confidence::Message);
        // A server that refuses encryption gets the startup message next. Else TLS follows.
        if tls::is_start(rest.0) {
            // The server said yes in one octet.
            return Ok(tls::read_upgrade(rest.0, streams.second.get(1..).unwrap_or_default(), findings));
        }
        if rest.0.is_empty() || rest.0[0] != 0 {
            return Ok(Verdict::Recognised);
        }
    }
    read_startup(rest, findings)
}

/// Names and values, each with a zero at the end.
fn read_startup(mut rest: Start<'_>, findings: &mut Findings) -> Read<Verdict> {
    for _ in 0..MAX_PARAMETERS {
        let name = rest.until(0, MAX_STARTUP_OCTETS as usize)?;
        if name.is_empty() {
            break;
        }
        require(name.iter().all(u8::is_ascii_graphic))?;
        let value = rest.until(0, MAX_STARTUP_OCTETS as usize)?;
        findings.recognise(Application::Postgresql, Confidence::Message);
        if name == b"user" {
            findings.set_text(Fact::User, value);
        }
    }
    require(findings.application().is_some())?;
    Ok(Verdict::Complete)
}
