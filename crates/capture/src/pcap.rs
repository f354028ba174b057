//! pcap files (draft-ietf-opsawg-pcap), as tcpdump writes them since 1988.
//!
//! In: a file header of 24 octets, then records: a header of 16 octets and the captured octets.
//! Read in all their forms: both byte orders; micro- and nanoseconds; the "modified" records of 24 octets that
//! Alexey Kuznetzov's patch to libpcap wrote (Red Hat 6.1); the lengths the other way round before version 2.4.
//! Always true: the sum of seconds and fraction is the time, also where the fraction is a second or more, as many
//! tools write it; the seconds have no sign, so every time lies between 1970 and 2106.
//! A record that makes no sense ends the file: nothing says where the next one begins.

use crate::map::prefetch;
use crate::reader::{Format, MAX_CAPTURED, Step};
use crate::{Burst, Frame};

/// Octets further on in a file that are fetched ahead; without, the walk mostly waits for the next header.
const AHEAD: usize = 2048;

/// Octets of the file header.
pub(crate) const FILE_HEADER: usize = 24;
/// Octets of a record header: time, fraction, captured length, original length.
const RECORD_HEADER: usize = 16;
/// The same with the interface's index, the protocol, the packet's type and padding after it.
const MODIFIED_RECORD_HEADER: usize = 24;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// A pcap file, behind its header.
pub(crate) struct Pcap {
    /// The file's byte order is not ours.
    swapped: bool,
    /// Octets of a record header.
    header_bytes: usize,
    /// Nanoseconds in a unit of the fraction.
    unit_ns: u64,
    /// Before version 2.4 the lengths may stand the other way round.
    either_way_round: bool,
    link_type: u16,
    /// Anything but records of 16 octets in our byte order.
    unusual: bool,
}

impl Pcap {
    /// Whether a file that begins like this is a pcap file.
    pub(crate) fn detect(head: &[u8]) -> bool {
        Self::kind(head).is_some()
    }

    /// Magic number in our byte order, and whether it had to be swapped.
    fn kind(head: &[u8]) -> Option<(u32, bool)> {
        let magic = u32::from_ne_bytes(*head.first_chunk()?);
        [(magic, false), (magic.swap_bytes(), true)]
            .into_iter()
            .find(|(magic, _)| matches!(*magic, MICROSECONDS | NANOSECONDS | MODIFIED))
    }

    /// Reads the file header.
    ///
    /// # Errors
    /// Why it is none that can be read.
    pub(crate) fn new(head: &[u8]) -> Result<Self, String> {
        let Some(((magic, swapped), header)) = Self::kind(head).zip(head.first_chunk::<FILE_HEADER>()) else {
            return Err(format!(
                "it looks like a pcap file that was cut in its file header, after {} of {FILE_HEADER} octets",
                head.len()
            ));
        };
        let half = |at: usize| {
            let value = u16::from_ne_bytes([header[at], header[at + 1]]);
            if swapped { value.swap_bytes() } else { value }
        };
        let (major, minor) = (half(4), half(6));
        let link_type = u32::from_ne_bytes([header[20], header[21], header[22], header[23]]);
        // 543 was in files of some early tcpdump programs, whose records are like those of 2.2.
        if major != 2 && major != 543 {
            return Err(format!("it looks like a pcap file of version {major}.{minor}, of which Weir knows 2.x only"));
        }
        Ok(Self {
            swapped,
            unusual: swapped || magic == MODIFIED,
            header_bytes: if magic == MODIFIED { MODIFIED_RECORD_HEADER } else { RECORD_HEADER },
            unit_ns: if magic == NANOSECONDS { 1 } else { 1000 },
            either_way_round: major == 543 || minor < 4,
            // The upper half holds the length of the frame check sequence, if there is one.
            link_type: (if swapped { link_type.swap_bytes() } else { link_type }) as u16,
        })
    }

    /// Seconds, fraction, captured length, original length.
    #[inline]
    fn words(&self, header: &[u8; RECORD_HEADER]) -> [u32; 4] {
        let (words, _) = header.as_chunks::<4>();
        let words = [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes);
        if self.swapped { words.map(u32::swap_bytes) } else { words }
    }

    #[cold]
    #[inline(never)]
    fn impossible(captured: u32) -> Step<'static> {
        let what = format!("the record claims {captured} captured octets, more than any packet has ({MAX_CAPTURED})");
        Step::Damaged { what, skip: None }
    }
}

impl Format for Pcap {
    // A function of its own has all registers.
    #[inline(never)]
    fn plain<'a>(&self, rest: &'a [u8], burst: &mut Burst<'a>) -> usize {
        if self.unusual {
            return 0;
        }
        let (unit_ns, link_type, mut behind) = (self.unit_ns, self.link_type, rest);
        let next = || {
            let (header, after) = behind.split_first_chunk::<RECORD_HEADER>()?;
            let (words, _) = header.as_chunks::<4>();
            let [seconds, fraction, captured, wire] = [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes);
            if captured > wire {
                return None;
            }
            let (bytes, after) = after.split_at_checked(captured as usize)?;
            behind = after;
            if let Some(coming) = after.get(AHEAD) {
                prefetch(coming);
            }
            let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit_ns;
            Some(Frame { bytes, time_ns, wire_bytes: wire, link_type, time_clamped: false, interface: 0 })
        };
        burst.extend(std::iter::from_fn(next).take(burst.remaining_capacity()));
        rest.len() - behind.len()
    }

    #[inline]
    fn next<'a>(&mut self, rest: &'a [u8]) -> Step<'a> {
        let Some(header) = rest.first_chunk::<RECORD_HEADER>() else { return Step::More };
        let [seconds, fraction, mut captured, mut wire] = self.words(header);
        if captured > wire {
            if self.either_way_round {
                std::mem::swap(&mut captured, &mut wire);
            } else {
                wire = captured;
            }
        }
        if captured > MAX_CAPTURED {
            return Self::impossible(captured);
        }
        let end = self.header_bytes + captured as usize;
        let Some(bytes) = rest.get(self.header_bytes..end) else { return Step::More };
        let frame = Frame {
            bytes,
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns,
            wire_bytes: wire,
            link_type: self.link_type,
            time_clamped: false,
            interface: 0,
        };
        Step::Frame(frame, end)
    }

    fn cut(&self, rest: &[u8]) -> String {
        let there = rest.len();
        match rest.first_chunk::<RECORD_HEADER>().filter(|_| there >= self.header_bytes) {
            None => format!("the file is cut in a record header, after {there} of {} octets", self.header_bytes),
            Some(header) => {
                let [.., first, second] = self.words(header);
                let captured = if self.either_way_round { first.min(second) } else { first };
                let there = there - self.header_bytes;
                format!("the file is cut in a packet, after {there} of {captured} captured octets")
            }
        }
    }
}
