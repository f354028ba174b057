//! Packets of QUIC with a long header (RFC 8999, RFC 9000 section 17.2, RFC 9369 section 3.2).

use super::version::{is_reserved, version};
use crate::cursor::Cursor;

/// Octets of a connection id at most.
pub(super) const MAX_ID_OCTETS: usize = 20;
const TAG_OCTETS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    VersionNegotiation,
    /// Of a version that is reserved to force a negotiation: its form is not known.
    Reserved,
}

/// A packet with a long header.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    pub(super) kind: Kind,
    pub(super) version: u32,
    pub(super) destination_id: &'a [u8],
    /// All of it.
    pub(super) octets: &'a [u8],
    /// Octets before the packet number.
    pub(super) number_at: usize,
}

/// Splits off a packet. `missing_octets` of the datagram were not captured. `None`: it has no long
/// header of a known version, or lengths do not agree.
pub(super) fn split<'a>(datagram: &mut Cursor<'a>, missing_octets: usize) -> Option<Packet<'a>> {
    let start = datagram.0;
    let mut cursor = *datagram;
    let first = cursor.u8()?;
    let number = u32::from(cursor.u16()?) << 16 | u32::from(cursor.u16()?);
    let destination_id = cursor.vector8()?;
    let source_id = cursor.vector8()?;
    if first & 0x80 == 0 || destination_id.len().max(source_id.len()) > MAX_ID_OCTETS {
        return None;
    }
    let kind = match (number, version(number)) {
        (0, _) => Kind::VersionNegotiation,
        (_, None) if is_reserved(number) => Kind::Reserved,
        (_, None) => return None,
        (_, Some(version)) => match (first >> 4).wrapping_sub(version.initial_type) & 3 {
            0 => Kind::Initial,
            1 => Kind::ZeroRtt,
            2 => Kind::Handshake,
            _ => Kind::Retry,
        },
    };
    // The bit after the first is fixed, though a server may clear it for a client that allows this
    // (RFC 9287), but not in the packets that are read here.
    if first & 0x40 == 0 && kind != Kind::VersionNegotiation {
        return None;
    }
    if kind == Kind::Initial {
        let token_octets = variable(&mut cursor)?;
        cursor.take(usize::try_from(token_octets).ok()?)?;
    }
    let mut number_at = 0;
    match kind {
        Kind::Initial | Kind::ZeroRtt | Kind::Handshake => {
            let octets = usize::try_from(variable(&mut cursor)?).ok()?;
            number_at = start.len() - cursor.0.len();
            if octets <= TAG_OCTETS || octets > cursor.0.len() + missing_octets {
                return None;
            }
            cursor.take_up_to(octets);
        }
        Kind::VersionNegotiation => {
            let (versions, rest) = cursor.0.as_chunks();
            // A reserved one has 16 fixed bits only, too few to be sure.
            let is_known = |octets: &[u8; 4]| version(u32::from_be_bytes(*octets)).is_some();
            if !rest.is_empty() || !versions.iter().any(is_known) {
                return None;
            }
            cursor = Cursor(&[]);
        }
        Kind::Retry if cursor.0.len() <= TAG_OCTETS => return None,
        Kind::Retry | Kind::Reserved => cursor = Cursor(&[]),
    }
    *datagram = cursor;
    Some(Packet { kind, version: number, destination_id, octets: &start[..start.len() - cursor.0.len()], number_at })
}

/// An integer of variable length (RFC 9000 section 16).
pub(super) fn variable(cursor: &mut Cursor<'_>) -> Option<u64> {
    let first = cursor.u8()?;
    let more = (1 << (first >> 6)) - 1;
    let rest = cursor.take(more)?;
    Some(rest.iter().fold(u64::from(first & 0x3f), |value, octet| value << 8 | u64::from(*octet)))
}
