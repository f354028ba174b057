//! RESP, the protocol of Redis (<https://redis.io/docs/latest/develop/reference/protocol-spec/>): the first
//! command of a client as an array of strings.

use crate::start::{Read, Start, require, verdict};
use crate::{Application, Confidence, Findings, Streams, Verdict};

/// Octets of a number, and of the name of a command.
const MAX_DIGITS: usize = 8;
const MAX_COMMAND_OCTETS: usize = 64;

/// Reads the start of a connection.
pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    verdict(read(streams.first, findings))
}

fn read(octets: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(octets);
    require(number(&mut rest, b'*')? > 0)?;
    let length = number(&mut rest, b'$')?;
    require((1..=MAX_COMMAND_OCTETS).contains(&length))?;
    let is_command = |octet: &u8| octet.is_ascii_alphabetic() || b"._|-".contains(octet);
    require(rest.0.iter().take(length).all(is_command))?;
    rest.take(length)?;
    rest.expect(b"\r\n")?;
    findings.recognise(Application::Redis, Confidence::Message);
    Ok(Verdict::Complete)
}

/// A number behind the octet of its type.
fn number(octets: &mut Start<'_>, kind: u8) -> Read<usize> {
    octets.expect(&[kind])?;
    let mut value = 0;
    for _ in 0..MAX_DIGITS {
        match octets.u8()? {
            digit @ b'0'..=b'9' => value = value * 10 + usize::from(digit - b'0'),
            b'\r' => {
                octets.expect(b"\n")?;
                return Ok(value);
            }
            _ => return Err(Verdict::No),
        }
    }
    Err(Verdict::No)
}
