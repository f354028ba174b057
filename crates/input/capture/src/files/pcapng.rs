//! pcapng files (draft-ietf-opsawg-pcapng).
//!
//! In: sections, each with its own byte order and interfaces, made of blocks that carry their
//! length. Out: frames of enhanced, simple and obsolete packet blocks; every other block is
//! skipped.
//!
//! Invariants: damage inside a block costs that block alone, because its length leads to the next
//! one; an impossible length ends the file. A damaged interface block still takes its number, so
//! that no packet is attributed to another interface. Interfaces are numbered across the whole
//! file: those of a later section follow those of the earlier ones. Of the options, only the
//! resolution and the offset of an interface's times are read.
//!
//! Why no library: the crate pcap-parser allocates a vector of options per packet and reports
//! neither the place of damage in a block nor the way past it. The tests compare this module with
//! it.

use crate::error::Damage;
use crate::files::format::{Format, MAX_CAPTURED_BYTES, Step, foreign_link_type};
use crate::source::{FIRST_INTERFACE, Frame};
use std::ops::Range;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const END_OF_OPTIONS: u16 = 0;
const NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;

// Damaged options.
const CUT_OPTION: &str = "an interface option is cut";
const WRONG_RESOLUTION: &str = "the time resolution of an interface does not have 1 byte";
const WRONG_OFFSET: &str = "the time offset of an interface does not have 8 bytes";

/// A block without a body: type and length, and the length again.
const MIN_BLOCK_BYTES: usize = 12;
/// Byte order, version and section length.
const SECTION_BODY_BYTES: usize = 16;
/// A longer block is damaged: the largest packet with its headers, rounded up.
const MAX_BLOCK_BYTES: u32 = MAX_CAPTURED_BYTES + 64 * 1024;
/// Packet blocks are mostly shorter than this.
const LIKELY_BYTES: u32 = 256 * 1024;
/// Largest number of interfaces in a section: bounds the memory that a stream can make us use.
const MAX_INTERFACES: usize = 65_536;
/// Largest number of interfaces of a file whose names are kept.
const MAX_NAMES: usize = 256;
/// Longer names are cut.
const MAX_NAME_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// A unit is this number of nanoseconds.
    Coarse(u64),
    /// A nanosecond is this number of units.
    Fine(u64),
    /// A second is 2 to the power of this number of units.
    Binary(u8),
}

impl Resolution {
    /// Microseconds: the unit of an interface without the option.
    const DEFAULT: Self = Self::Coarse(1000);

    /// Reads the option `if_tsresol`.
    fn new(value: u8) -> Self {
        let power = value & 0x7f;
        match power {
            _ if value & 0x80 != 0 => Self::Binary(power),
            0..=9 => Self::Coarse(10_u64.pow(u32::from(9 - power))),
            // 2^64 units finer than 10^-28 s are less than a nanosecond: any divisor that large
            // gives 0.
            _ => Self::Fine(10_u64.checked_pow(u32::from(power - 9)).unwrap_or(u64::MAX)),
        }
    }

    /// Whole nanoseconds in a number of units.
    #[inline]
    fn nanoseconds(self, units: u64) -> u128 {
        match self {
            Self::Coarse(unit_ns) => u128::from(units) * u128::from(unit_ns),
            Self::Fine(u64::MAX) => 0,
            Self::Fine(units_per_ns) => u128::from(units / units_per_ns),
            Self::Binary(power) => (u128::from(units) * 1_000_000_000) >> power,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_bytes: u32,
    resolution: Resolution,
    offset_s: i64,
}

impl Interface {
    /// Time in ns since 1970, and whether it was clamped.
    #[inline]
    fn time(&self, units: u64) -> (u64, bool) {
        let ns = self.resolution.nanoseconds(units) as i128 + i128::from(self.offset_s) * 1_000_000_000;
        match u64::try_from(ns) {
            Ok(ns) => (ns, false),
            Err(_) => (if ns < 0 { 0 } else { u64::MAX }, true),
        }
    }
}

#[derive(Clone, Copy)]
struct ByteOrder {
    swapped: bool,
}

impl ByteOrder {
    /// Detects the order by the byte-order magic of a section header block.
    fn detect(magic: [u8; 4]) -> Option<Self> {
        let magic = u32::from_ne_bytes(magic);
        [false, true].into_iter().map(|swapped| Self { swapped }).find(|order| order.native(magic) == BYTE_ORDER_MAGIC)
    }

    #[inline]
    fn native(self, value: u32) -> u32 {
        if self.swapped { value.swap_bytes() } else { value }
    }

    #[inline]
    fn word<const N: usize>(self, bytes: &[u8; N], at: usize) -> u32 {
        self.native(u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
    }

    #[inline]
    fn half<const N: usize>(self, bytes: &[u8; N], at: usize) -> u16 {
        let value = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        if self.swapped { value.swap_bytes() } else { value }
    }
}

pub(crate) struct Pcapng {
    order: ByteOrder,
    /// Interfaces of this section; `None` where the block was damaged.
    interfaces: Vec<Option<Interface>>,
    /// Number of the section's first interface in [`Frame::interface`].
    first: u32,
    /// Names of the first interfaces, by number.
    names: Vec<(u32, String)>,
    /// The section has an unsupported major version: its blocks are skipped.
    unsupported: bool,
    /// Time of the previous packet, for packets without one.
    previous_ns: u64,
}

impl Pcapng {
    /// Returns whether these are the first bytes of a pcapng file.
    pub(crate) fn detect(head: &[u8]) -> bool {
        head.first_chunk().is_some_and(|&magic| u32::from_ne_bytes(magic) == SECTION_HEADER)
    }

    /// Returns whether the first block of a file is complete.
    ///
    /// # Errors
    /// It has no byte-order magic or an impossible length.
    pub(crate) fn has_first_block(head: &[u8]) -> Result<bool, Damage> {
        let Some(start) = head.first_chunk::<MIN_BLOCK_BYTES>() else { return Ok(false) };
        let order = ByteOrder::detect([start[8], start[9], start[10], start[11]]).ok_or(Damage::ByteOrder)?;
        let length = order.word(start, 4);
        check_length(SECTION_HEADER, length)?;
        Ok(head.len() >= length as usize)
    }

    pub(crate) fn new() -> Self {
        Self {
            order: ByteOrder { swapped: false },
            interfaces: Vec::new(),
            first: FIRST_INTERFACE,
            names: Vec::new(),
            unsupported: false,
            previous_ns: 0,
        }
    }

    fn begin_section(&mut self, order: ByteOrder, body: &[u8]) -> Result<(), Damage> {
        self.first = self.first.saturating_add(self.interfaces.len() as u32);
        self.interfaces.clear();
        self.order = order;
        self.unsupported = false;
        let header = body.first_chunk::<SECTION_BODY_BYTES>().ok_or(Damage::BlockShort("section header"))?;
        let (major, minor) = (order.half(header, 4), order.half(header, 6));
        if major != 1 {
            self.unsupported = true;
            return Err(Damage::SectionVersion(major, minor));
        }
        Ok(())
    }

    fn add_interface(&mut self, body: &[u8]) -> Result<(), Damage> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Damage::Interfaces(MAX_INTERFACES));
        }
        self.interfaces.push(None);
        let (header, mut options) = body.split_first_chunk::<8>().ok_or(Damage::BlockShort("interface description"))?;
        let mut interface = Interface {
            link_type: foreign_link_type(self.order.half(header, 0)),
            snap_bytes: self.order.word(header, 4),
            resolution: Resolution::DEFAULT,
            offset_s: 0,
        };
        let mut name = String::new();
        while !options.is_empty() {
            let (head, rest) = options.split_first_chunk::<4>().ok_or(Damage::InterfaceOption(CUT_OPTION))?;
            let (code, length) = (self.order.half(head, 0), usize::from(self.order.half(head, 2)));
            if code == END_OF_OPTIONS {
                break;
            }
            // The last option may lack its padding, because nothing follows it.
            let (value, rest) = rest.split_at_checked(length).ok_or(Damage::InterfaceOption(CUT_OPTION))?;
            match (code, value) {
                (TIME_RESOLUTION, &[value]) => interface.resolution = Resolution::new(value),
                (TIME_RESOLUTION, _) => return Err(Damage::InterfaceOption(WRONG_RESOLUTION)),
                (TIME_OFFSET, _) => {
                    let bytes = value.try_into().map_err(|_| Damage::InterfaceOption(WRONG_OFFSET))?;
                    let offset = u64::from_ne_bytes(bytes);
                    interface.offset_s = if self.order.swapped { offset.swap_bytes() } else { offset } as i64;
                }
                (NAME, _) => {
                    name = printable_name(&value[..value.len().min(MAX_NAME_BYTES)]);
                }
                _ => {}
            }
            options = rest.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        }
        self.interfaces.pop();
        if !name.is_empty() && self.names.len() < MAX_NAMES {
            self.names.push((self.first.saturating_add(self.interfaces.len() as u32), name));
        }
        self.interfaces.push(Some(interface));
        Ok(())
    }

    /// Returns number and description of a packet's interface.
    #[inline]
    fn interface_of(&self, number: u32) -> Result<(u32, &Interface), Damage> {
        match self.interfaces.get(number as usize) {
            Some(Some(interface)) => Ok((self.first.saturating_add(number), interface)),
            Some(None) => Err(Damage::DamagedInterface(number)),
            None => Err(Damage::UnknownInterface(number, self.interfaces.len())),
        }
    }

    #[inline]
    fn read_enhanced<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, Damage> {
        let (header, data) = body.split_first_chunk::<20>().ok_or(Damage::BlockShort("packet"))?;
        self.read_timed(self.order.word(header, 0), header, data)
    }

    fn read_obsolete<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, Damage> {
        let (header, data) = body.split_first_chunk::<20>().ok_or(Damage::BlockShort("packet"))?;
        self.read_timed(u32::from(self.order.half(header, 0)), header, data)
    }

    /// A packet with a time: the two kinds of block differ only in the size of the interface
    /// number.
    #[inline]
    fn read_timed<'a>(&mut self, interface: u32, header: &[u8; 20], data: &'a [u8]) -> Result<Frame<'a>, Damage> {
        let word = |at: usize| self.order.word(header, at);
        let (interface, description) = self.interface_of(interface)?;
        let (time_ns, time_assumed) = description.time(u64::from(word(4)) << 32 | u64::from(word(8)));
        let bytes = captured_bytes(data, word(12))?;
        let wire_bytes = word(16).max(word(12));
        let frame = Frame { bytes, time_ns, wire_bytes, link_type: description.link_type, time_assumed, interface };
        self.previous_ns = time_ns;
        Ok(frame)
    }

    /// A packet without time and captured length, of the section's first interface.
    fn read_simple<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, Damage> {
        let (header, data) = body.split_first_chunk::<4>().ok_or(Damage::BlockShort("packet"))?;
        let (interface, description) = self.interface_of(0)?;
        let wire_bytes = self.order.word(header, 0);
        let limit = if description.snap_bytes == 0 { u32::MAX } else { description.snap_bytes };
        let bytes = captured_bytes(data, wire_bytes.min(limit))?;
        let link_type = description.link_type;
        Ok(Frame { bytes, time_ns: self.previous_ns, wire_bytes, link_type, time_assumed: true, interface })
    }
}

/// Returns the captured bytes of a packet block, without padding and options.
#[inline]
fn captured_bytes(data: &[u8], captured: u32) -> Result<&[u8], Damage> {
    data.get(..captured as usize).ok_or(Damage::BlockCapturedLength(captured, data.len()))
}

/// Checks whether a block of this type can have this length.
#[inline]
fn check_length(kind: u32, length: u32) -> Result<(), Damage> {
    let shortest = if kind == SECTION_HEADER { MIN_BLOCK_BYTES + SECTION_BODY_BYTES } else { MIN_BLOCK_BYTES } as u32;
    if (shortest..=MAX_BLOCK_BYTES).contains(&length) && length.is_multiple_of(4) {
        return Ok(());
    }
    Err(Damage::BlockLength(length, shortest, MAX_BLOCK_BYTES))
}

impl Format for Pcapng {
    fn interfaces(&self) -> Vec<(u32, String)> {
        self.names.clone()
    }

    #[inline]
    fn record_bytes(&self, rest: &[u8]) -> Option<usize> {
        let head = rest.first_chunk::<8>()?;
        let length = self.order.word(head, 4);
        let is_likely =
            self.order.word(head, 0) == ENHANCED_PACKET && length < LIKELY_BYTES && length.is_multiple_of(4);
        (is_likely && length as usize > MIN_BLOCK_BYTES).then_some(length as usize)
    }

    fn guess(&self, area: &[u8], places: Range<usize>) -> Option<usize> {
        // Blocks begin at multiples of 4 bytes from each other.
        let is_block = |place: usize| {
            let end = place + self.record_bytes(area.get(place..)?)?;
            (area.get(end - 4..end)? == &area[place + 4..place + 8]).then_some(())
        };
        let mut found = places.step_by(4);
        found.find(|&place| is_block(place).is_some())
    }

    #[inline]
    fn step<'a>(&mut self, rest: &'a [u8]) -> Step<'a> {
        let Some(head) = rest.first_chunk::<8>() else { return Step::More };
        let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        // The type of a section header is the same in both byte orders; the block sets the order of
        // what follows.
        let (kind, order) = if kind == SECTION_HEADER {
            let Some(start) = rest.first_chunk::<MIN_BLOCK_BYTES>() else { return Step::More };
            match ByteOrder::detect([start[8], start[9], start[10], start[11]]) {
                Some(order) => (SECTION_HEADER, order),
                None => return Step::Damaged { cause: Damage::ByteOrder, skip: None },
            }
        } else {
            (self.order.native(kind), self.order)
        };
        let length = order.word(head, 4);
        if let Err(cause) = check_length(kind, length) {
            return Step::Damaged { cause, skip: None };
        }
        let length = length as usize;
        let Some(block) = rest.get(..length) else { return Step::More };
        let (body, tail) = block[8..].split_last_chunk::<4>().expect("a block has at least 12 bytes");
        let tail = order.word(tail, 0) as usize;
        let intact = tail == length;

        // Sections and interfaces count even if their two lengths differ: without them, the packets
        // that follow would be read wrongly.
        let result = match kind {
            SECTION_HEADER => self.begin_section(order, body),
            _ if self.unsupported => Ok(()),
            INTERFACE_DESCRIPTION => self.add_interface(body),
            ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET if intact => {
                let frame = match kind {
                    ENHANCED_PACKET => self.read_enhanced(body),
                    SIMPLE_PACKET => self.read_simple(body),
                    _ => self.read_obsolete(body),
                };
                match frame {
                    Ok(frame) => return Step::Frame(frame, length),
                    Err(cause) => Err(cause),
                }
            }
            _ => Ok(()),
        };
        let result = result.and(match intact {
            true => Ok(()),
            false => Err(Damage::BlockLengths(length, tail)),
        });
        match result {
            Ok(()) => Step::Skip(length),
            Err(cause) => Step::Damaged { cause, skip: Some(length) },
        }
    }

    fn truncation(&self, rest: &[u8]) -> Damage {
        let bytes = rest.len();
        let Some(head) = rest.first_chunk::<MIN_BLOCK_BYTES>() else {
            return Damage::Cut("a block", bytes, None);
        };
        let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let order = match ByteOrder::detect([head[8], head[9], head[10], head[11]]) {
            Some(order) if kind == SECTION_HEADER => order,
            _ => self.order,
        };
        Damage::Cut("a block", bytes, Some(order.word(head, 4) as usize))
    }
}

/// The name of an interface. Consumers of it, for example collectors, may print it to a terminal.
pub(crate) fn printable_name(name: &[u8]) -> String {
    // Others than control characters can change how a terminal shows the text around them.
    let is_filler = |letter| matches!(letter, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}');
    let is_invisible = |letter: char| !letter.is_ascii() && (letter.escape_debug().len() > 1 || is_filler(letter));
    String::from_utf8_lossy(name).replace(|letter: char| letter.is_control() || is_invisible(letter), "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_resolution_and_offset_and_are_clamped_to_64_bits() {
        for (resolution, offset_s, units, expected) in [
            // Decimal resolutions, from seconds to finer than nanoseconds.
            (0, 0, 7, (7_000_000_000, false)),
            (6, 0, 1_234_567, (1_234_567_000, false)),
            (9, 0, u64::MAX, (u64::MAX, false)),
            (12, 0, 1_234_999, (1_234, false)),
            // 10^19 units are a nanosecond.
            (28, 0, u64::MAX, (1, false)),
            (29, 0, u64::MAX, (0, false)),
            (127, 0, u64::MAX, (0, false)),
            // Binary resolutions, up to the largest power.
            (0x80, 0, 3, (3_000_000_000, false)),
            (0x80 | 10, 0, 1536, (1_500_000_000, false)),
            (0x80 | 64, 0, u64::MAX, (999_999_999, false)),
            (0xff, 0, u64::MAX, (0, false)),
            // An offset is added to the time; times outside 64 bits of nanoseconds are flagged.
            (6, -3_600, 3_601_000_000, (1_000_000_000, false)),
            (6, 0, u64::MAX, (u64::MAX, true)),
            (9, -1, 999_999_999, (0, true)),
            (9, -1, 1_000_000_000, (0, false)),
            (0, i64::MIN, u64::MAX, (u64::MAX, true)),
            (0, i64::MIN, 0, (0, true)),
            (0, i64::MAX, u64::MAX, (u64::MAX, true)),
        ] {
            let resolution = Resolution::new(resolution);
            let interface = Interface { link_type: 1, snap_bytes: 0, resolution, offset_s };
            assert_eq!(interface.time(units), expected, "{interface:?}");
        }
        assert!((29..=127).all(|power| Resolution::new(power).nanoseconds(u64::MAX) == 0));
    }
}
