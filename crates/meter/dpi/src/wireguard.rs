//! WireGuard: the handshake (<https://www.wireguard.com/protocol/>).
//!
//! Its messages have a type, three zeros and a fixed length, a key and a first MAC that are not
//! zeros. They are certain if the second MAC is zeros, which it is unless a server is under load,
//! and else a pattern.

use crate::start::{Read, require};
use crate::{Application, Confidence, Datagram, Findings, Verdict};

const INITIATION_OCTETS: u32 = 148;
const RESPONSE_OCTETS: u32 = 92;
const MAC_OCTETS: usize = 16;
/// Where the key is: behind the type and the indexes, of which a response has two.
const KEY_AT: [usize; 2] = [8, 12];
const KEY_OCTETS: usize = 32;

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    let payload = datagram.payload;
    let key_at = match (payload, datagram.wire_octets) {
        ([1, 0, 0, 0, ..], INITIATION_OCTETS) => KEY_AT[0],
        ([2, 0, 0, 0, ..], RESPONSE_OCTETS) => KEY_AT[1],
        _ => return Err(Verdict::No),
    };
    let is_zero = |octets: &[u8]| octets.iter().all(|octet| *octet == 0);
    let is_whole = payload.len() as u32 == datagram.wire_octets;
    let [first_mac, second_mac] = match payload.split_last_chunk::<{ 2 * MAC_OCTETS }>() {
        Some((_, macs)) if is_whole => [&macs[..MAC_OCTETS], &macs[MAC_OCTETS..]],
        // They were not captured.
        _ => [&[1][..]; 2],
    };
    require(!payload.get(key_at..key_at + KEY_OCTETS).is_none_or(is_zero) && !is_zero(first_mac))?;
    let confidence = if is_zero(second_mac) { Confidence::Message } else { Confidence::Pattern };
    findings.recognise(Application::Wireguard, confidence);
    Ok(Verdict::Complete)
}
