//! Reads integers and vectors from the start of a message that may continue.
//!
//! Every function returns [`Verdict::More`] if the octets end before the value, and [`Verdict::No`] if
//! they contradict. So a reader is a list of what has to come, with `?` after each.

use crate::Verdict;
use memchr::memchr;

/// Octets that were not read yet. A function that fails may have read a part.
#[derive(Clone, Copy, Debug)]
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

    /// The next octets, or all if fewer are left.
    pub(crate) fn take_up_to(&mut self, count: usize) -> &'a [u8] {
        let (octets, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        octets
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

    /// The next number of three octets, the highest first.
    pub(crate) fn u24(&mut self) -> Read<usize> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]) as usize)
    }

    /// The next number of four octets, the highest first.
    pub(crate) fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// An integer of 7 bits in each octet, the lowest first, whose last octet is below 0x80: at most 28 bits.
    pub(crate) fn integer7(&mut self) -> Read<usize> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let octet = self.u8()?;
            value += usize::from(octet & 0x7f) << shift;
            if octet < 0x80 {
                return Ok(value);
            }
        }
        Err(Verdict::No)
    }

    /// The octets after their number in one octet.
    pub(crate) fn vector8(&mut self) -> Read<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// The octets after their number in two octets.
    pub(crate) fn vector16(&mut self) -> Read<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    /// The next octet, which is not taken, has to hold a condition if it is there.
    pub(crate) fn require_next(&self, is_good: impl Fn(u8) -> bool) -> Read<()> {
        require(self.0.first().is_none_or(|octet| is_good(*octet)))
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
        match memchr(end, &self.0[..limit.min(self.0.len())]) {
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

/// The verdict on a message of a protocol, after its last extracted field was read.
pub(crate) fn after_field(read: Read<()>) -> Verdict {
    if read == Err(Verdict::More) { Verdict::Recognised } else { Verdict::Complete }
}
