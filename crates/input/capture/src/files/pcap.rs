//! pcap files (draft-ietf-opsawg-pcap), as tcpdump writes them since 1988.
//!
//! In: a file header of 24 bytes, then records: a header of 16 bytes and the captured bytes. All
//! variants are supported: both byte orders; micro- and nanoseconds; the "modified" records of 24
//! bytes that Alexey Kuznetzov's patch to libpcap wrote (Red Hat 6.1); swapped lengths before
//! version 2.4.
//!
//! Invariants: the time of a frame is the sum of seconds and fraction, even where the fraction is a
//! second or more, as many tools write it; the seconds are unsigned, so every time is between 1970
//! and 2106. An impossible record ends the file, because nothing says where the next one begins.
//!
//! Why no library: libpcap and the crate pcap-parser copy or allocate per packet, and neither
//! reports the place of damage.

use crate::error::{Damage, FormatError};
use crate::files::format::{Format, MAX_CAPTURED_BYTES, Step, foreign_link_type};
use crate::files::prefetch::prefetch;
use crate::source::{Burst, FIRST_INTERFACE, Frame};
use memchr::memmem;
use std::ops::Range;

/// Distance in bytes at which short records are prefetched; long ones are read ahead.
const PREFETCH_BYTES: usize = 2048;

/// Bytes of the file header.
pub(crate) const FILE_HEADER_BYTES: usize = 24;
/// Bytes of a record header: seconds, fraction, captured length, original length.
const RECORD_HEADER_BYTES: usize = 16;
/// The same followed by the interface index, the protocol, the packet type and padding.
const MODIFIED_RECORD_HEADER_BYTES: usize = 24;

/// Packets are mostly shorter than this.
const LIKELY_BYTES: u32 = 256 * 1024;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// A pcap file behind its file header.
pub(crate) struct Pcap {
    /// The file's byte order is not that of this machine.
    swapped: bool,
    /// Bytes of a record header.
    header_bytes: usize,
    /// Unit of the fraction, ns.
    unit_ns: u64,
    /// Before version 2.4 the two lengths may be swapped.
    swapped_lengths: bool,
    link_type: u16,
    /// Anything but records of 16 bytes in this machine's byte order.
    unusual: bool,
}

impl Pcap {
    /// Returns whether these are the first bytes of a pcap file.
    pub(crate) fn detect(head: &[u8]) -> bool {
        Self::magic(head).is_some()
    }

    /// Returns the magic number in this machine's byte order, and whether it had to be swapped.
    fn magic(head: &[u8]) -> Option<(u32, bool)> {
        let magic = u32::from_ne_bytes(*head.first_chunk()?);
        [(magic, false), (magic.swap_bytes(), true)]
            .into_iter()
            .find(|(magic, _)| matches!(*magic, MICROSECONDS | NANOSECONDS | MODIFIED))
    }

    /// Reads the file header.
    ///
    /// # Errors
    /// The header is cut, or of an unsupported version.
    pub(crate) fn new(head: &[u8]) -> Result<Self, FormatError> {
        let Some(((magic, swapped), header)) = Self::magic(head).zip(head.first_chunk::<FILE_HEADER_BYTES>()) else {
            return Err(FormatError::PcapHeaderCut(head.len(), FILE_HEADER_BYTES));
        };
        let half = |at: usize| {
            let value = u16::from_ne_bytes([header[at], header[at + 1]]);
            if swapped { value.swap_bytes() } else { value }
        };
        let (major, minor) = (half(4), half(6));
        let link_type = u32::from_ne_bytes([header[20], header[21], header[22], header[23]]);
        // Some early tcpdump programs wrote version 543; their records are those of 2.2.
        if major != 2 && major != 543 {
            return Err(FormatError::PcapVersion(major, minor));
        }
        Ok(Self {
            swapped,
            unusual: swapped || magic == MODIFIED,
            header_bytes: if magic == MODIFIED { MODIFIED_RECORD_HEADER_BYTES } else { RECORD_HEADER_BYTES },
            unit_ns: if magic == NANOSECONDS { 1 } else { 1000 },
            swapped_lengths: major == 543 || minor < 4,
            // The upper half holds the length of the frame check sequence, if there is one.
            link_type: foreign_link_type((if swapped { link_type.swap_bytes() } else { link_type }) as u16),
        })
    }

    /// Returns seconds, fraction, captured length and original length.
    #[inline]
    fn words(&self, header: &[u8; RECORD_HEADER_BYTES]) -> [u32; 4] {
        let (words, _) = header.as_chunks::<4>();
        let words = [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes);
        if self.swapped { words.map(u32::swap_bytes) } else { words }
    }

    #[cold]
    #[inline(never)]
    fn impossible(captured: u32) -> Step<'static> {
        Step::Damaged { cause: Damage::CapturedLength(captured, MAX_CAPTURED_BYTES), skip: None }
    }
}

impl Format for Pcap {
    // Not inlined: a function of its own has all registers.
    #[inline(never)]
    fn read_common<'a>(&self, rest: &'a [u8], burst: &mut Burst<'a>) -> usize {
        if self.unusual {
            return 0;
        }
        let (unit_ns, link_type, mut behind) = (self.unit_ns, self.link_type, rest);
        let next = || {
            let (header, after) = behind.split_first_chunk::<RECORD_HEADER_BYTES>()?;
            let (words, _) = header.as_chunks::<4>();
            let [seconds, fraction, captured, wire] = [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes);
            if captured > wire {
                return None;
            }
            let (bytes, after) = after.split_at_checked(captured as usize)?;
            behind = after;
            if let Some(coming) = after.get(PREFETCH_BYTES) {
                prefetch(coming);
            }
            let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit_ns;
            Some(Frame { bytes, time_ns, wire_bytes: wire, link_type, time_assumed: false, interface: FIRST_INTERFACE })
        };
        burst.extend(std::iter::from_fn(next).take(burst.remaining_capacity()));
        rest.len() - behind.len()
    }

    #[inline]
    fn step<'a>(&mut self, rest: &'a [u8]) -> Step<'a> {
        let Some(header) = rest.first_chunk::<RECORD_HEADER_BYTES>() else { return Step::More };
        let [seconds, fraction, mut captured, mut wire] = self.words(header);
        if captured > wire {
            if self.swapped_lengths {
                std::mem::swap(&mut captured, &mut wire);
            } else {
                wire = captured;
            }
        }
        if captured > MAX_CAPTURED_BYTES {
            return Self::impossible(captured);
        }
        let end = self.header_bytes + captured as usize;
        let Some(bytes) = rest.get(self.header_bytes..end) else { return Step::More };
        let frame = Frame {
            bytes,
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns,
            wire_bytes: wire,
            link_type: self.link_type,
            time_assumed: false,
            interface: FIRST_INTERFACE,
        };
        Step::Frame(frame, end)
    }

    #[inline]
    fn record_bytes(&self, rest: &[u8]) -> Option<usize> {
        let [_, fraction, captured, wire] = self.words(rest.first_chunk()?);
        // A fraction is less than a second. Larger lengths are rare.
        let is_likely = captured <= wire && wire < LIKELY_BYTES && u64::from(fraction) * self.unit_ns < 1_000_000_000;
        is_likely.then_some(self.header_bytes + captured as usize)
    }

    fn guess(&self, area: &[u8], places: Range<usize>) -> Option<usize> {
        // All but the lowest byte of the seconds are the same for 256 s.
        let at = usize::from(!self.swapped);
        let seconds = area.get(at..at + 3)?;
        let is_record = |place: usize| {
            let next = place + self.record_bytes(area.get(place..)?)?;
            (area.get(next + at..next + at + 3)? == seconds).then_some(())?;
            self.record_bytes(area.get(next..)?)
        };
        let mut found = memmem::find_iter(area.get(places.clone())?, seconds);
        found.find_map(|found| (places.start + found).checked_sub(at).filter(|&place| is_record(place).is_some()))
    }

    fn truncation(&self, rest: &[u8]) -> Damage {
        let bytes = rest.len();
        match rest.first_chunk::<RECORD_HEADER_BYTES>().filter(|_| bytes >= self.header_bytes) {
            None => Damage::Cut("a record header", bytes, Some(self.header_bytes)),
            Some(header) => {
                let [.., first, second] = self.words(header);
                let captured = if self.swapped_lengths { first.min(second) } else { first };
                Damage::Cut("the captured bytes of a packet", bytes - self.header_bytes, Some(captured as usize))
            }
        }
    }
}
