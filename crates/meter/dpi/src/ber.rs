//! BER (ITU-T X.690): the elements of SNMP, Kerberos and LDAP, with definite lengths.

use crate::Verdict;
use crate::start::{Read, Start, require};

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const GENERAL_STRING: u8 = 0x1b;
pub(crate) const SEQUENCE: u8 = 0x30;

/// Octets of the length of an element.
const MAX_LENGTH_OCTETS: u8 = 4;

/// An element whose content may continue.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    /// Octets of the content on the wire.
    pub(crate) length: usize,
    /// The content, as far as it is there.
    pub(crate) content: Start<'a>,
    /// Octets of the whole element on the wire.
    pub(crate) total: usize,
}

impl<'a> Element<'a> {
    /// Reads the next element; what is left is what follows it.
    pub(crate) fn read(octets: &mut Start<'a>) -> Read<Self> {
        let before = octets.0.len();
        let (tag, length) = head(octets, MAX_LENGTH_OCTETS)?;
        let total = before - octets.0.len() + length;
        Ok(Self { tag, length, content: Start(octets.take_up_to(length)), total })
    }

    /// Reads the next element, which has to have this tag.
    pub(crate) fn expect(octets: &mut Start<'a>, tag: u8) -> Read<Self> {
        octets.require_next(|first| first == tag)?;
        Self::read(octets)
    }

    /// The content. `More`: it is not there as a whole.
    pub(crate) fn whole(&self) -> Read<&'a [u8]> {
        if self.content.0.len() < self.length { Err(Verdict::More) } else { Ok(self.content.0) }
    }

    /// Reads the only element of the content, which has to have this tag and fill it.
    pub(crate) fn only(&self, tag: u8) -> Read<Self> {
        let mut content = self.content;
        let element = Self::expect(&mut content, tag)?;
        require(element.total == self.length)?;
        Ok(element)
    }

    /// The value of an INTEGER or ENUMERATED of one octet.
    pub(crate) fn small_number(octets: &mut Start<'a>, tag: u8) -> Read<u8> {
        let element = Self::expect(octets, tag)?;
        require(element.length == 1)?;
        Start(element.content.0).u8()
    }
}

/// Reads the tag and the length of an element.
pub(crate) fn head(octets: &mut Start<'_>, max_length_octets: u8) -> Read<(u8, usize)> {
    let tag = octets.u8()?;
    let length = match octets.u8()? {
        short @ 0..0x80 => usize::from(short),
        long => {
            let count = long & 0x7f;
            require((1..=max_length_octets).contains(&count))?;
            octets.take(count.into())?.iter().fold(0, |length, &octet| length << 8 | usize::from(octet))
        }
    };
    Ok((tag, length))
}
