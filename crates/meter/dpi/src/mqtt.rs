//! MQTT 3.1, 3.1.1 and 5.0 (OASIS): the packet CONNECT of a client.

use crate::start::{Read, Start, after_field, require};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict};

const CONNECT: u8 = 0x10;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(streams.first);
    rest.expect(&[CONNECT])?;
    // Variable byte integers (MQTT 5.0 section 1.5.5).
    rest.integer7()?;
    let version = match rest.u16()? {
        4 => {
            rest.expect(b"MQTT")?;
            let version = rest.u8()?;
            require(matches!(version, 4 | 5))?;
            version
        }
        6 => {
            rest.expect(b"MQIsdp\x03")?;
            3
        }
        _ => return Err(Verdict::No),
    };
    // The lowest bit of the flags is reserved (MQTT 3.1.1 section 3.1.2.3).
    require(rest.u8()? & 1 == 0)?;
    findings.recognise(Application::Mqtt, Confidence::Message);
    Ok(after_field(read_client(rest, version, findings)))
}

/// Finds the client identifier, behind the keep-alive and the properties.
fn read_client(mut rest: Start<'_>, version: u8, findings: &mut Findings) -> Read<()> {
    rest.u16()?;
    if version == 5 {
        let length = rest.integer7()?;
        rest.take(length)?;
    }
    let client = rest.vector16()?;
    if !client.is_empty() {
        findings.set_text(Fact::User, client);
    }
    Ok(())
}
