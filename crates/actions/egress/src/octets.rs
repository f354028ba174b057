//! The octets that wait in a queue: pcap records, of which the last may be incomplete.
//!
//! The queue is a ring, so that they are two slices.

use std::io::IoSlice;
use std::ops::Range;

/// Octets of a record before the frame.
pub(crate) const HEADER_OCTETS: usize = 16;

/// The octets of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets<'a>(pub &'a [u8], pub &'a [u8]);

/// The header of a record, as the queue's other end wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub time_ns: u64,
    /// Octets of the frame that follow the header.
    pub octets: usize,
}

impl<'a> Octets<'a> {
    pub fn len(self) -> usize {
        self.0.len() + self.1.len()
    }

    /// The record that begins at an offset, if all of it is there.
    pub fn record(self, at: usize) -> Option<Record> {
        let mut header = [0; HEADER_OCTETS];
        if at + HEADER_OCTETS <= self.0.len() {
            header.copy_from_slice(&self.0[at..at + HEADER_OCTETS]);
        } else {
            let mut octets = self
                .0
                .get(at..)
                .unwrap_or_default()
                .iter()
                .chain(self.1.get(at.saturating_sub(self.0.len())..).unwrap_or_default());
            for octet in &mut header {
                *octet = *octets.next()?;
            }
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = header;
        let number = |octets| u64::from(u32::from_le_bytes(octets));
        let time_ns = number([a, b, c, d]) * 1_000_000_000 + number([e, f, g, h]);
        let record = Record { time_ns, octets: number([i, j, k, l]) as usize };
        (at + HEADER_OCTETS + record.octets <= self.len()).then_some(record)
    }

    /// A range of the octets, as one or two slices.
    pub fn slices(self, range: Range<usize>) -> impl Iterator<Item = IoSlice<'a>> {
        let Self(first, second) = self;
        let part = |octets: &'a [u8], offset: usize| {
            let at = |place: usize| place.saturating_sub(offset).min(octets.len());
            &octets[at(range.start)..at(range.end)]
        };
        let parts = [part(first, 0), part(second, first.len())];
        parts.into_iter().filter(|part| !part.is_empty()).map(IoSlice::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_capture::{Frame, pcap_record_header};

    #[test]
    fn records_are_read_wherever_the_ring_wraps() {
        let frame = Frame {
            bytes: &[1, 2, 3, 4, 5],
            time_ns: 3_000_000_004,
            wire_bytes: 60,
            link_type: 1,
            time_assumed: false,
            interface: 1,
        };
        let mut octets = vec![9; 7];
        octets.extend(pcap_record_header(&frame));
        octets.extend(frame.bytes);
        for wrap in 0..=octets.len() {
            let (first, second) = octets.split_at(wrap);
            let ring = Octets(first, second);
            assert_eq!(ring.record(7), Some(Record { time_ns: 3_000_000_004, octets: 5 }), "{wrap}");
            assert_eq!(ring.slices(7 + 16..28).flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(), frame.bytes);
            for cut in 7..octets.len() {
                let cut = Octets(&first[..cut.min(wrap)], &second[..cut.saturating_sub(wrap)]);
                assert_eq!(cut.record(7), None);
            }
        }
    }
}
