//! Packets of QUIC with a long header (RFC 8999, RFC 9000 section 17.2, RFC 9369 section 3.2).

use super::version::{is_reserved, version};
use crate::Verdict;
use crate::start::{Read, Start, require};

/// Octets of a connection id at most.
pub(super) const MAX_ID_OCTETS: usize = 20;
pub(super) const TAG_OCTETS: usize = 16;

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

/// Splits off a packet. `missing_octets` of the datagram were not captured. An error: it has no long
/// header of a known version, or lengths do not agree.
pub(super) fn split<'a>(datagram: &mut Start<'a>, missing_octets: usize) -> Read<Packet<'a>> {
    let all = datagram.0;
    let mut rest = *datagram;
    let (first, number) = (rest.u8()?, rest.u32()?);
    let (destination_id, source_id) = (rest.vector8()?, rest.vector8()?);
    require(first & 0x80 != 0 && destination_id.len().max(source_id.len()) <= MAX_ID_OCTETS)?;
    let kind = match (number, version(number)) {
        (0, _) => Kind::VersionNegotiation,
        (_, None) if is_reserved(number) => Kind::Reserved,
        (_, None) => return Err(Verdict::No),
        (_, Some(version)) => match (first >> 4).wrapping_sub(version.initial_type) & 3 {
            0 => Kind::Initial,
            1 => Kind::ZeroRtt,
            2 => Kind::Handshake,
            _ => Kind::Retry,
        },
    };
    // The bit after the first is fixed, though a server may clear it for a client that allows this
    // (RFC 9287), but not in the packets that are read here.
    require(first & 0x40 != 0 || kind == Kind::VersionNegotiation)?;
    if kind == Kind::Initial {
        let token_octets = variable(&mut rest)?;
        rest.take(token_octets as usize)?;
    }
    let mut number_at = 0;
    match kind {
        Kind::Initial | Kind::ZeroRtt | Kind::Handshake => {
            let octets = variable(&mut rest)? as usize;
            number_at = all.len() - rest.0.len();
            require(octets > TAG_OCTETS && octets <= rest.0.len() + missing_octets)?;
            rest.take_up_to(octets);
        }
        Kind::VersionNegotiation => {
            let (versions, after) = rest.0.as_chunks();
            // A reserved one has 16 fixed bits only, too few to be sure.
            let is_known = |octets: &[u8; 4]| version(u32::from_be_bytes(*octets)).is_some();
            require(after.is_empty() && versions.iter().any(is_known))?;
            rest = Start(&[]);
        }
        Kind::Retry if rest.0.len() <= TAG_OCTETS => return Err(Verdict::No),
        Kind::Retry | Kind::Reserved => rest = Start(&[]),
    }
    *datagram = rest;
    Ok(Packet { kind, version: number, destination_id, octets: &all[..all.len() - rest.0.len()], number_at })
}

/// An integer of variable length (RFC 9000 section 16).
pub(super) fn variable(octets: &mut Start<'_>) -> Read<u64> {
    let first = octets.u8()?;
    let rest = octets.take((1 << (first >> 6)) - 1)?;
    Ok(rest.iter().fold(u64::from(first & 0x3f), |value, octet| value << 8 | u64::from(*octet)))
}
