//! The start of one direction of a TCP connection, put together from segments.
//!
//! Octets that came first stay: a later segment with other octets in the same place changes nothing
//! and is noted. Octets behind a gap are kept until the gap is filled.

use crate::{Findings, Note};
use arrayvec::ArrayVec;

/// Octets before a gap, and separate ranges behind it, that are kept at most.
const MAX_RANGES: usize = 8;

/// The payload of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    /// Sequence number of the first octet.
    pub sequence: u32,
    /// The octets, as far as they were captured.
    pub octets: &'a [u8],
    /// Their number on the wire.
    pub wire_octets: u32,
    /// A FIN follows.
    pub fin: bool,
}

/// The start of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the first octet, once a segment came.
    start: Option<u32>,
    octets: Vec<u8>,
    /// The parts of `octets` that came, as begin and end, in order and apart from each other.
    ranges: ArrayVec<(u32, u32), MAX_RANGES>,
    /// Position after the last octet that can come: after FIN, or where the capture cut a segment.
    end: Option<u32>,
}

impl Stream {
    /// Forgets everything, and keeps at most this much memory.
    pub fn clear(&mut self, kept_octets: usize) {
        (self.start, self.end) = (None, None);
        self.octets.clear();
        self.octets.shrink_to(kept_octets);
        self.ranges.clear();
    }

    /// Ends it before its first octet: what comes is of no use.
    pub fn end(&mut self) {
        self.clear(usize::MAX);
        self.end = Some(0);
    }

    /// Sequence number of the first octet, once a segment came.
    pub fn start(&self) -> Option<u32> {
        self.start
    }

    /// Whether no segment came.
    pub fn is_new(&self) -> bool {
        self.start.is_none()
    }

    /// The octets without a gap from the first one.
    pub fn contiguous(&self) -> &[u8] {
        match self.ranges.first() {
            Some(&(0, end)) => &self.octets[..end as usize],
            _ => &[],
        }
    }

    /// Whether no octet will follow [`Stream::contiguous`]. `limit` is the number of octets that
    /// are kept.
    pub fn has_ended(&self, limit: u32) -> bool {
        self.contiguous().len() as u32 >= self.end.map_or(limit, |end| end.min(limit))
    }

    /// Whether [`Stream::contiguous`] has all octets that are kept.
    pub fn is_limited(&self, limit: u32) -> bool {
        self.contiguous().len() as u32 >= limit
    }

    /// Whether octets before others are missing.
    pub fn has_gap(&self) -> bool {
        self.ranges.last().is_some_and(|&(begin, _)| begin > 0)
    }

    /// Memory, octets.
    pub fn capacity(&self) -> usize {
        self.octets.capacity()
    }

    /// Adds the payload of a segment. `expected` is the sequence number of the first octet of the
    /// stream, if the SYN was seen; `limit` the number of octets that are kept.
    pub fn add(&mut self, segment: &Segment<'_>, expected: Option<u32>, limit: u32, findings: &mut Findings) {
        let Segment { sequence, octets: payload, wire_octets, fin } = *segment;
        if self.start.is_none() && expected.is_none() && wire_octets == 1 {
            // Probably a keep-alive: the capture began later than the connection, and the octet before
            // the next one came again.
            return;
        }
        let start = *self.start.get_or_insert(expected.unwrap_or(sequence));
        let mut position = sequence.wrapping_sub(start);
        if position > u32::MAX / 2 {
            let before = position.wrapping_neg();
            if expected.is_some() || before > limit {
                // A keep-alive, or from before the connection. What it has of the stream is kept.
                let Some(rest) = payload.get(before as usize..) else { return };
                if expected.is_some() && !rest.is_empty() {
                    self.insert(0, rest, limit, findings);
                }
                return;
            }
            self.shift(before, limit);
            self.start = Some(sequence);
            position = 0;
        }
        let cut = (payload.len() as u32) < wire_octets;
        if fin || cut {
            let end = position.saturating_add(payload.len() as u32);
            self.end = Some(self.end.map_or(end, |known| known.min(end)));
        }
        if cut && position < limit {
            findings.note(Note::Gap);
        }
        self.insert(position, payload, limit, findings);
    }

    /// Makes room for octets before the first one, which were overtaken.
    fn shift(&mut self, before: u32, limit: u32) {
        let kept = (limit - before).min(self.octets.len() as u32);
        self.octets.truncate(kept as usize);
        self.octets.splice(0..0, std::iter::repeat_n(0, before as usize));
        for (begin, end) in &mut self.ranges {
            (*begin, *end) = (begin.saturating_add(before).min(limit), end.saturating_add(before).min(limit));
        }
        self.ranges.retain(|(begin, end)| begin < end);
        self.end = self.end.map(|end| end.saturating_add(before));
    }

    fn insert(&mut self, position: u32, payload: &[u8], limit: u32, findings: &mut Findings) {
        let room = limit.saturating_sub(position) as usize;
        let payload = &payload[..payload.len().min(room)];
        if payload.is_empty() {
            return;
        }
        let (mut begin, mut end) = (position, position + payload.len() as u32);
        // In order and nothing kept behind a gap, which is usual.
        if self.octets.len() as u32 == begin && self.ranges.len() <= 1 && self.contiguous().len() == self.octets.len() {
            self.octets.extend(payload);
            self.ranges.clear();
            self.ranges.push((0, end));
            return;
        }
        let touches = move |&(from, to): &(u32, u32)| from <= end && begin <= to;
        if self.ranges.is_full() && !self.ranges.iter().any(touches) {
            return findings.note(Note::Gap);
        }
        if self.octets.len() < end as usize {
            self.octets.resize(end as usize, 0);
        }
        let places = |from: u32, to: u32| from as usize..to as usize;
        let part = |from: u32, to: u32| &payload[places(from - position, to - position)];
        // Octets that are new are those in no range.
        let mut at = begin;
        for &(from, to) in self.ranges.iter().filter(|range| touches(range)) {
            let (from, to) = (from.max(begin), to.min(end));
            self.octets[places(at, from)].copy_from_slice(part(at, from));
            if self.octets[places(from, to)] != *part(from, to) {
                findings.note(Note::Conflict);
            }
            at = to;
        }
        self.octets[places(at, end)].copy_from_slice(part(at, end));
        self.ranges.retain(|range| {
            if touches(range) {
                (begin, end) = (begin.min(range.0), end.max(range.1));
            }
            !touches(range)
        });
        let at = self.ranges.partition_point(|&(other_begin, _)| other_begin < begin);
        self.ranges.insert(at, (begin, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 64;

    fn segment(sequence: u32, octets: &[u8]) -> Segment<'_> {
        Segment { sequence, octets, wire_octets: octets.len() as u32, fin: false }
    }

    fn add(stream: &mut Stream, sequence: u32, octets: &[u8], findings: &mut Findings) {
        stream.add(&segment(sequence, octets), Some(100), LIMIT, findings);
    }

    /// Segments of a stream in any order, with overlaps and repetitions, give its octets.
    #[test]
    fn segments_in_any_order_give_the_stream() {
        let octets: Vec<u8> = (0..60).collect();
        let mut random: u32 = 1;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for expected in [Some(4_294_967_280_u32), None] {
            for _ in 0..2000 {
                let (mut stream, mut findings) = (Stream::default(), Findings::new(false));
                let mut came = [false; 60];
                let mut begun = expected.is_some();
                for _ in 0..1 + next(20) {
                    let from = next(60);
                    let to = from + 1 + next(60 - from);
                    let sequence = 4_294_967_280_u32.wrapping_add(from);
                    let payload = &octets[from as usize..to as usize];
                    stream.add(&segment(sequence, payload), expected, LIMIT, &mut findings);
                    begun |= to - from > 1;
                    came[from as usize..to as usize].fill(begun);
                }
                let Some(first) = came.iter().position(|came| *came) else { continue };
                let first = if expected.is_some() { 0 } else { first };
                let length = came[first..].iter().take_while(|came| **came).count();
                let all = stream.contiguous();
                if !findings.notes().names().any(|note| note == "gap") {
                    assert_eq!(all, &octets[first..first + length]);
                } else {
                    assert!(octets[first..].starts_with(all));
                }
                assert!(findings.notes().names().all(|note| note == "gap"));
            }
        }
    }

    #[test]
    fn octets_that_came_first_stay() {
        let (mut stream, mut findings) = (Stream::default(), Findings::new(false));
        add(&mut stream, 102, b"cd", &mut findings);
        assert_eq!(stream.contiguous(), b"");
        add(&mut stream, 100, b"abXXef", &mut findings);
        assert_eq!(stream.contiguous(), b"abcdef");
        assert_eq!(findings.notes().names().collect::<Vec<_>>(), ["conflict"]);
    }

    #[test]
    fn stream_ends_with_fin_at_the_limit_and_where_the_capture_cut() {
        let (mut stream, mut findings) = (Stream::default(), Findings::new(false));
        stream.add(&Segment { fin: true, ..segment(7, b"abc") }, None, LIMIT, &mut findings);
        assert!(stream.has_ended(LIMIT));
        stream.clear(0);
        add(&mut stream, 100, &[1; 63], &mut findings);
        assert!(!stream.has_ended(LIMIT));
        add(&mut stream, 163, &[2; 5], &mut findings);
        assert!(stream.has_ended(LIMIT));
        assert_eq!(stream.contiguous().len(), 64);
        assert_eq!(findings.notes().names().count(), 0);
        stream.clear(0);
        stream.add(&Segment { wire_octets: 5, ..segment(7, b"abc") }, None, LIMIT, &mut findings);
        assert!(stream.has_ended(LIMIT));
        stream.add(&segment(12, b"xyz"), None, LIMIT, &mut findings);
        assert_eq!(stream.contiguous(), b"abc");
        assert_eq!(findings.notes().names().collect::<Vec<_>>(), ["gap"]);
    }

    #[test]
    fn keep_alive_is_not_the_start_of_a_stream() {
        let (mut stream, mut findings) = (Stream::default(), Findings::new(false));
        stream.add(&segment(6, b"x"), None, LIMIT, &mut findings);
        stream.add(&segment(7, b"abc"), None, LIMIT, &mut findings);
        assert_eq!(stream.contiguous(), b"abc");
        stream.clear(0);
        add(&mut stream, 100, b"a", &mut findings);
        assert_eq!(stream.contiguous(), b"a");
    }

    #[test]
    fn segments_from_before_the_connection_are_left_out() {
        let (mut stream, mut findings) = (Stream::default(), Findings::new(false));
        add(&mut stream, 99, b"x", &mut findings);
        add(&mut stream, 99, b"xa", &mut findings);
        add(&mut stream, 50, b"old", &mut findings);
        add(&mut stream, 101, b"b", &mut findings);
        assert_eq!(stream.contiguous(), b"ab");
    }
}
