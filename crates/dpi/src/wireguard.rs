//! WireGuard: the handshake (<https://www.wireguard.com/protocol/>).
//!
//! Its messages have a type, three zeros and a fixed length. They are certain if the second MAC is
//! zeros, which it is unless a server is under load, and else a pattern.

use crate::{Application, Confidence, Datagram, Findings, Verdict};

const INITIATION_OCTETS: u32 = 148;
const RESPONSE_OCTETS: u32 = 92;
const MAC_OCTETS: usize = 16;

/// Reads one datagram.
pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Verdict {
    match (datagram.payload, datagram.wire_octets) {
        ([1, 0, 0, 0, ..], INITIATION_OCTETS) | ([2, 0, 0, 0, ..], RESPONSE_OCTETS) => {
            let is_whole = datagram.payload.len() as u32 == datagram.wire_octets;
            let mac_is_zero = is_whole && datagram.payload.ends_with(&[0; MAC_OCTETS]);
            findings
                .recognise(Application::Wireguard, if mac_is_zero { Confidence::Message } else { Confidence::Pattern });
            Verdict::Complete
        }
        _ => Verdict::No,
    }
}
