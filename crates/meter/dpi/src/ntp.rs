//! NTP (RFC 5905) and its control messages (RFC 9327).
//!
//! A packet has few fixed values, so that only port 123 and all of them together are a pattern.

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Datagram, Findings, Verdict};

const PORT: u16 = 123;
/// Octets of a packet without extensions and authentication.
const PACKET_OCTETS: u32 = 48;
/// Octets of the header of a control message.
const CONTROL_OCTETS: u32 = 12;
/// Octets of the header of a private message, as ntpdc sends it.
const PRIVATE_OCTETS: u32 = 8;
const MAX_STRATUM: u8 = 16;
/// Modes 1 to 5 are those of clients, servers and peers.
const CONTROL: u8 = 6;
const PRIVATE: u8 = 7;

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    let header: [u8; 8] = Start(datagram.payload).array()?;
    let (version, mode, length) = ((header[0] >> 3) & 7, header[0] & 7, datagram.wire_octets);
    let is_good = match mode {
        1..=5 => {
            let [_, stratum, poll, precision, ..] = header;
            length >= PACKET_OCTETS
                && length % 4 == 0
                && stratum <= MAX_STRATUM
                && (-6..=17).contains(&(poll as i8))
                && (-32..=32).contains(&(precision as i8))
        }
        CONTROL => {
            let count: [u8; 2] = Start(datagram.payload.get(10..).unwrap_or_default()).array()?;
            header[0] >> 6 == 0 && length >= CONTROL_OCTETS + u32::from(u16::from_be_bytes(count))
        }
        PRIVATE => {
            let [_, _, implementation, _, _, items, item_octets_high, item_octets] = header;
            let octets = u32::from(items) * u32::from(item_octets);
            matches!(implementation, 0 | 2 | 3) && item_octets_high == 0 && length >= PRIVATE_OCTETS + octets
        }
        _ => false,
    };
    require(datagram.ports.contains(&PORT) && (1..=4).contains(&version) && is_good)?;
    findings.recognise(Application::Ntp, Confidence::Pattern);
    Ok(Verdict::Complete)
}
