//! Octets of a frame from some place on: those that were captured, and how many there were on the wire.
//!
//! A snap length makes the two differ. Headers are split from what was captured; lengths are
//! judged by what was on the wire.

/// What is left of a frame. Always true: no more was captured than was on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets<'a> {
    captured: &'a [u8],
    wire: u32,
}

impl<'a> Octets<'a> {
    /// A whole frame of `frame_bytes` octets on the wire.
    #[inline]
    pub fn of_frame(captured: &'a [u8], frame_bytes: u32) -> Self {
        Self { captured, wire: u32::MAX }.end_at(frame_bytes)
    }

    /// What was captured of them.
    #[inline]
    pub fn captured(self) -> &'a [u8] {
        self.captured
    }

    /// How many there were on the wire.
    #[inline]
    pub fn wire(self) -> u32 {
        self.wire
    }

    /// The first `N` octets and whatever follows them; `None` if the capture ends before.
    #[inline]
    pub fn split<const N: usize>(self) -> Option<(&'a [u8; N], Self)> {
        let (first, captured) = self.captured.split_first_chunk::<N>()?;
        Some((first, self.with_rest(captured)))
    }

    /// What follows the first `count` octets; `None` if the capture ends before.
    #[inline]
    pub fn skip(self, count: usize) -> Option<Self> {
        let (_, captured) = self.captured.split_at_checked(count)?;
        Some(self.with_rest(captured))
    }

    /// The first `length` octets: what a header says belongs to it. Padding is left behind here.
    #[inline]
    pub fn end_at(self, length: u32) -> Self {
        let captured = usize::try_from(length).ok().and_then(|length| self.captured.get(..length));
        Self { captured: captured.unwrap_or(self.captured), wire: self.wire.min(length) }
    }

    /// `captured` is the end of what was captured: as much is gone from the wire.
    #[inline]
    fn with_rest(self, captured: &'a [u8]) -> Self {
        // No more was captured than was on the wire, so the difference fits and cannot go below 0.
        let gone = (self.captured.len() - captured.len()) as u32;
        Self { captured, wire: self.wire - gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_and_wire_shrink_together() {
        let octets = Octets::of_frame(&[1, 2, 3, 4], 10);
        let (first, rest) = octets.split::<3>().unwrap();
        assert_eq!((first, rest.captured(), rest.wire()), (&[1, 2, 3], &[4][..], 7));
        assert!(rest.split::<2>().is_none());
        assert_eq!(rest.skip(1).unwrap().wire(), 6);
        assert!(rest.skip(2).is_none());
        assert_eq!(octets.end_at(3).captured(), [1, 2, 3]);
        assert_eq!(octets.end_at(7).captured(), [1, 2, 3, 4]);
        assert_eq!((octets.end_at(7).wire(), octets.end_at(11).wire()), (7, 10));
    }

    #[test]
    fn nothing_is_captured_beyond_the_frame() {
        assert_eq!(Octets::of_frame(&[1, 2, 3, 4], 2).captured(), [1, 2]);
    }
}
