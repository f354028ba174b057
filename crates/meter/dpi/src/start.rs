//! The start of a message that may continue, for readers of fixed forms.
//!
//! Every function returns [`Verdict::More`] if the octets end before the value, and [`Verdict::No`] if
//! they contradict. So a reader is a list of what has to come, with `?` after each.

use crate::{Datagram, Verdict};

/// Octets that were not read yet.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a>(pub(crate) &'a [u8]);

/// A value, or why there is none: `More` or `No`.
pub(crate) type Read<T> = Result<T, Verdict>;

impl<'a> Start<'a> {
    /// The next octets.
    pub(crate) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (octets, rest) = self.0.split_at_checked(count).ok_or(Verdict::More)?;
        self.0 = rest;
        Ok(octets)
    }

    /// The next octets, as many as the array has.
    pub(crate) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (octets, rest) = self.0.split_first_chunk().ok_or(Verdict::More)?;
        self.0 = rest;
        Ok(*octets)
    }

    /// The next octet.
    pub(crate) fn u8(&mut self) -> Read<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// The next number of two octets, the highest first.
    pub(crate) fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next number of four octets, the highest first.
    pub(crate) fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next octets have to be these.
    pub(crate) fn expect(&mut self, octets: &[u8]) -> Read<()> {
        if self.0.iter().zip(octets).any(|(octet, expected)| octet != expected) {
            return Err(Verdict::No);
        }
        self.take(octets.len()).map(drop)
    }

    /// The octets before the next one with a value, which is skipped. `No` if there is none within a number of octets.
    pub(crate) fn until(&mut self, end: u8, limit: usize) -> Read<&'a [u8]> {
        match self.0.iter().take(limit).position(|&octet| octet == end) {
            Some(at) => {
                let octets = &self.0[..at];
                self.0 = &self.0[at + 1..];
                Ok(octets)
            }
            None if self.0.len() >= limit => Err(Verdict::No),
            None => Err(Verdict::More),
        }
    }
}

/// `No` unless a condition holds.
pub(crate) fn require(condition: bool) -> Read<()> {
    if condition { Ok(()) } else { Err(Verdict::No) }
}

/// The verdict of a reader that ends early.
pub(crate) fn verdict(read: Read<Verdict>) -> Verdict {
    read.unwrap_or_else(|verdict| verdict)
}

/// The verdict on a datagram: nothing follows, so that `More` is `No`.
pub(crate) fn whole_verdict(read: Read<Verdict>) -> Verdict {
    match verdict(read) {
        Verdict::More => Verdict::No,
        verdict => verdict,
    }
}

/// Whether one of the ports of a datagram is this one.
pub(crate) fn has_port(datagram: &Datagram<'_>, port: u16) -> bool {
    [datagram.source_port, datagram.destination_port].contains(&port)
}
