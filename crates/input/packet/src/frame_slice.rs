//! The rest of a frame from one header on: captured octets and length on the wire, which differ if
//! the snap length cut the frame. Functions that read the fields of a header.
//!
//! Headers are split from the captured octets; lengths are checked against the length on the wire.

/// The rest of a frame. Invariant: it has at most as many captured octets as octets on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSlice<'a> {
    captured: &'a [u8],
    wire_bytes: u32,
}

impl<'a> FrameSlice<'a> {
    /// A whole frame of `frame_bytes` octets on the wire. Captured octets beyond that are ignored.
    #[inline]
    pub fn new(captured: &'a [u8], frame_bytes: u32) -> Self {
        Self { captured, wire_bytes: u32::MAX }.limit(frame_bytes)
    }

    /// The captured octets.
    #[inline]
    pub fn captured(self) -> &'a [u8] {
        self.captured
    }

    /// Length on the wire, octets.
    #[inline]
    pub fn wire_bytes(self) -> u32 {
        self.wire_bytes
    }

    /// The first `N` octets and the rest after them; `None` if fewer were captured.
    #[inline]
    pub fn split<const N: usize>(self) -> Option<(&'a [u8; N], Self)> {
        let (first, captured) = self.captured.split_first_chunk::<N>()?;
        Some((first, self.with_rest(captured)))
    }

    /// The rest after the first `count` octets; `None` if fewer were captured.
    #[inline]
    pub fn skip(self, count: usize) -> Option<Self> {
        let (_, captured) = self.captured.split_at_checked(count)?;
        Some(self.with_rest(captured))
    }

    /// At most the first `length` octets. Cuts padding off where a header gives the length.
    #[inline]
    pub fn limit(self, length: u32) -> Self {
        let captured = usize::try_from(length).ok().and_then(|length| self.captured.get(..length));
        Self { captured: captured.unwrap_or(self.captured), wire_bytes: self.wire_bytes.min(length) }
    }

    /// `captured` is a suffix of the captured octets.
    #[inline]
    fn with_rest(self, captured: &'a [u8]) -> Self {
        // Captured octets are at most those on the wire: the difference fits in 32 bits and is
        // subtracted safely.
        let skipped = (self.captured.len() - captured.len()) as u32;
        Self { captured, wire_bytes: self.wire_bytes - skipped }
    }
}

/// `M` octets of a header, at a constant offset.
#[inline(always)]
pub(crate) fn array<const N: usize, const M: usize>(header: &[u8; N], at: usize) -> [u8; M] {
    *header[at..].first_chunk().expect("the offset is a constant within the header")
}

/// A field of 16 bits, at a constant offset.
#[inline(always)]
pub(crate) fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes(array(header, at))
}

/// A field of 32 bits, at a constant offset.
#[inline(always)]
pub(crate) fn be32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(array(header, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_shortens_captured_octets_and_wire_length_alike() {
        let slice = FrameSlice::new(&[1, 2, 3, 4], 10);
        let (first, rest) = slice.split::<3>().unwrap();
        assert_eq!((first, rest.captured(), rest.wire_bytes()), (&[1, 2, 3], &[4][..], 7));
        assert!(rest.split::<2>().is_none());
        assert_eq!(rest.skip(1).unwrap().wire_bytes(), 6);
        assert!(rest.skip(2).is_none());
        assert_eq!(slice.limit(3).captured(), [1, 2, 3]);
        assert_eq!(slice.limit(7).captured(), [1, 2, 3, 4]);
        assert_eq!((slice.limit(7).wire_bytes(), slice.limit(11).wire_bytes()), (7, 10));
    }

    #[test]
    fn captured_octets_beyond_the_wire_length_are_ignored() {
        assert_eq!(FrameSlice::new(&[1, 2, 3, 4], 2).captured(), [1, 2]);
    }
}
