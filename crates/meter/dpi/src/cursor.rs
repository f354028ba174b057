//! Reads integers and vectors from the front of octets.

/// The octets that are not read yet. Each function returns `None`, and may have read a part, if too
/// few are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    /// The next `count` octets.
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    /// The next `count` octets, or all if fewer are left.
    pub(crate) fn take_up_to(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// An integer of 24 bits.
    pub(crate) fn u24(&mut self) -> Option<usize> {
        self.array().map(|[high, middle, low]| usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low))
    }

    /// A vector after its length in one octet.
    pub(crate) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A vector after its length in two octets.
    pub(crate) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}
