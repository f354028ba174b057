//! pcapng files (draft-ietf-opsawg-pcapng).
//!
//! In: sections, each with a byte order and interfaces of its own, made of blocks that say how long they are.
//! Out: frames of enhanced, simple and obsolete packet blocks; every other block is skipped.
//! Always true: a block that is damaged inside costs that block alone, because its length leads to the next one;
//! where the length itself makes no sense, the file ends. A damaged interface block still takes its number, so
//! that no packet is given to another interface. Interfaces are numbered over the whole file: those of later
//! sections come after those of the sections before.
//! Options are ignored but for the resolution and the offset of an interface's times.
//!
//! The crate pcap-parser is not used here: it allocates a vector of options for every packet and does not say
//! where in a block the damage is, nor how to get behind it. It is the judge of this module in the tests.

use crate::Frame;
use crate::reader::{Format, MAX_CAPTURED, Step};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const END_OF_OPTIONS: u16 = 0;
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;

/// Type and length before a block's body, and the length again behind it.
const BLOCK_FRAME: usize = 12;
/// Byte order, version and section length.
const SECTION_BODY: usize = 16;
/// A block that is longer is damaged: the largest packet with its headers, rounded up.
const MAX_BLOCK: u32 = MAX_CAPTURED + 64 * 1024;
/// Interfaces of one section, at most: a bound for what a stream can make us remember.
const MAX_INTERFACES: usize = 65_536;

/// How an interface counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// A unit is so many nanoseconds.
    Coarse(u64),
    /// A nanosecond is so many units.
    Fine(u64),
    /// A second is 2 to the power of this many units.
    Binary(u8),
}

impl Resolution {
    /// Microseconds, unless the interface says otherwise.
    const DEFAULT: Self = Self::Coarse(1000);

    /// Reads the option `if_tsresol`.
    fn new(octet: u8) -> Self {
        let power = octet & 0x7f;
        match power {
            _ if octet & 0x80 != 0 => Self::Binary(power),
            0..=9 => Self::Coarse(10_u64.pow(u32::from(9 - power))),
            // 64 bits of units finer than 10^-28 s hold no nanosecond: any divisor that large gives 0.
            _ => Self::Fine(10_u64.checked_pow(u32::from(power - 9)).unwrap_or(u64::MAX)),
        }
    }

    /// Whole nanoseconds in so many units.
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

/// What an interface description block says.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_bytes: u32,
    resolution: Resolution,
    offset_s: i64,
}

impl Interface {
    /// Nanoseconds since 1970 and whether they had to be clamped.
    #[inline]
    fn time(&self, units: u64) -> (u64, bool) {
        let ns = self.resolution.nanoseconds(units) as i128 + i128::from(self.offset_s) * 1_000_000_000;
        match u64::try_from(ns) {
            Ok(ns) => (ns, false),
            Err(_) => (if ns < 0 { 0 } else { u64::MAX }, true),
        }
    }
}

/// Words in the byte order of a section.
#[derive(Clone, Copy)]
struct Order {
    swapped: bool,
}

impl Order {
    /// By the byte order mark of a section header block.
    fn detect(mark: [u8; 4]) -> Option<Self> {
        let mark = u32::from_ne_bytes(mark);
        [false, true].into_iter().map(|swapped| Self { swapped }).find(|order| order.fix32(mark) == BYTE_ORDER)
    }

    #[inline]
    fn fix32(self, value: u32) -> u32 {
        if self.swapped { value.swap_bytes() } else { value }
    }

    #[inline]
    fn word<const N: usize>(self, octets: &[u8; N], at: usize) -> u32 {
        self.fix32(u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]))
    }

    #[inline]
    fn half<const N: usize>(self, octets: &[u8; N], at: usize) -> u16 {
        let value = u16::from_ne_bytes([octets[at], octets[at + 1]]);
        if self.swapped { value.swap_bytes() } else { value }
    }
}

/// A pcapng file.
pub(crate) struct Pcapng {
    order: Order,
    /// The interfaces of this section; `None` where the block was damaged.
    interfaces: Vec<Option<Interface>>,
    /// Interfaces of the sections before.
    earlier: u32,
    /// A section of another major version: its blocks are skipped.
    foreign: bool,
    /// Time of the packet before, for packets without one.
    previous_ns: u64,
}

/// What the first block looks like.
pub(crate) enum First {
    /// A section header that can be read.
    Whole,
    /// It goes on beyond what is there.
    Cut,
    /// It cannot be read, and why.
    Strange(String),
}

impl Pcapng {
    /// Whether a file that begins like this is a pcapng file.
    pub(crate) fn detect(head: &[u8]) -> bool {
        head.first_chunk().is_some_and(|&magic| u32::from_ne_bytes(magic) == SECTION_HEADER)
    }

    /// Looks at the first block of a file.
    pub(crate) fn first(head: &[u8]) -> First {
        let Some(start) = head.first_chunk::<BLOCK_FRAME>() else { return First::Cut };
        let Some(order) = Order::detect([start[8], start[9], start[10], start[11]]) else {
            return First::Strange("it begins like a pcapng file, but has no valid byte order mark".into());
        };
        let length = order.word(start, 4);
        if let Err(what) = check_length(SECTION_HEADER, length) {
            return First::Strange(format!("it begins like a pcapng file, but {what}"));
        }
        if head.len() < length as usize { First::Cut } else { First::Whole }
    }

    /// Before the first section.
    pub(crate) fn new() -> Self {
        Self { order: Order { swapped: false }, interfaces: Vec::new(), earlier: 0, foreign: false, previous_ns: 0 }
    }

    /// Enters a section.
    fn section(&mut self, order: Order, body: &[u8]) -> Result<(), String> {
        self.earlier = self.earlier.saturating_add(self.interfaces.len() as u32);
        self.interfaces.clear();
        self.order = order;
        self.foreign = false;
        let header = body.first_chunk::<SECTION_BODY>().ok_or("the section header is too short")?;
        let (major, minor) = (order.half(header, 4), order.half(header, 6));
        if major != 1 {
            self.foreign = true;
            return Err(format!("a section of version {major}.{minor}, of which Weir knows 1.x only: it is skipped"));
        }
        Ok(())
    }

    /// Takes note of an interface.
    fn interface(&mut self, body: &[u8]) -> Result<(), String> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(format!("more than {MAX_INTERFACES} interfaces in one section"));
        }
        self.interfaces.push(None);
        let (header, mut options) = body.split_first_chunk::<8>().ok_or("the interface description is too short")?;
        let mut interface = Interface {
            link_type: self.order.half(header, 0),
            snap_bytes: self.order.word(header, 4),
            resolution: Resolution::DEFAULT,
            offset_s: 0,
        };
        while !options.is_empty() {
            let (head, rest) = options.split_first_chunk::<4>().ok_or("an interface option is cut")?;
            let (code, length) = (self.order.half(head, 0), usize::from(self.order.half(head, 2)));
            if code == END_OF_OPTIONS {
                break;
            }
            // The last option may lack its padding: nothing follows that it would align.
            let (value, rest) = rest.split_at_checked(length).ok_or("an interface option is cut")?;
            match (code, value) {
                (TIME_RESOLUTION, &[octet]) => interface.resolution = Resolution::new(octet),
                (TIME_RESOLUTION, _) => return Err("the time resolution of an interface is not one octet".into()),
                (TIME_OFFSET, _) => {
                    let octets = value.try_into().map_err(|_| "the time offset of an interface is not 8 octets")?;
                    let offset = u64::from_ne_bytes(octets);
                    interface.offset_s = if self.order.swapped { offset.swap_bytes() } else { offset } as i64;
                }
                _ => {}
            }
            options = rest.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        }
        self.interfaces.pop();
        self.interfaces.push(Some(interface));
        Ok(())
    }

    /// The interface of a packet. Number and description.
    #[inline]
    fn of(&self, number: u32) -> Result<(u32, &Interface), String> {
        match self.interfaces.get(number as usize) {
            Some(Some(interface)) => Ok((self.earlier.saturating_add(number), interface)),
            Some(None) => Err(format!("the packet is from interface {number}, whose description is damaged")),
            None => {
                let known = self.interfaces.len();
                Err(format!("the packet is from interface {number}, but the section has described {known}"))
            }
        }
    }

    #[inline]
    fn enhanced<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, String> {
        let (header, data) = body.split_first_chunk::<20>().ok_or("the packet block is too short")?;
        self.timed(self.order.word(header, 0), header, data)
    }

    fn obsolete<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, String> {
        let (header, data) = body.split_first_chunk::<20>().ok_or("the packet block is too short")?;
        self.timed(u32::from(self.order.half(header, 0)), header, data)
    }

    /// A packet with a time: both kinds of block differ in the interface's number alone.
    #[inline]
    fn timed<'a>(&mut self, interface: u32, header: &[u8; 20], data: &'a [u8]) -> Result<Frame<'a>, String> {
        let word = |at: usize| self.order.word(header, at);
        let (interface, description) = self.of(interface)?;
        let (time_ns, time_clamped) = description.time(u64::from(word(4)) << 32 | u64::from(word(8)));
        let bytes = captured(data, word(12))?;
        let wire_bytes = word(16).max(word(12));
        let frame = Frame { bytes, time_ns, wire_bytes, link_type: description.link_type, time_clamped, interface };
        self.previous_ns = time_ns;
        Ok(frame)
    }

    /// A packet without time or captured length, from the section's first interface.
    fn simple<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, String> {
        let (header, data) = body.split_first_chunk::<4>().ok_or("the packet block is too short")?;
        let (interface, description) = self.of(0)?;
        let wire_bytes = self.order.word(header, 0);
        let limit = if description.snap_bytes == 0 { u32::MAX } else { description.snap_bytes };
        let bytes = captured(data, wire_bytes.min(limit))?;
        let link_type = description.link_type;
        Ok(Frame { bytes, time_ns: self.previous_ns, wire_bytes, link_type, time_clamped: true, interface })
    }
}

/// The captured octets of a packet block, without padding and options.
#[inline]
fn captured(data: &[u8], octets: u32) -> Result<&[u8], String> {
    data.get(..octets as usize)
        .ok_or_else(|| format!("the packet claims {octets} captured octets, its block has room for {}", data.len()))
}

/// Whether a block of that type can be that long.
#[inline]
fn check_length(kind: u32, length: u32) -> Result<(), String> {
    let shortest = if kind == SECTION_HEADER { BLOCK_FRAME + SECTION_BODY } else { BLOCK_FRAME } as u32;
    if (shortest..=MAX_BLOCK).contains(&length) && length.is_multiple_of(4) {
        return Ok(());
    }
    Err(format!(
        "its block claims a length of {length} octets, which must be a multiple of 4 from {shortest} to {MAX_BLOCK}"
    ))
}

impl Format for Pcapng {
    #[inline]
    fn next<'a>(&mut self, rest: &'a [u8]) -> Step<'a> {
        let Some(head) = rest.first_chunk::<8>() else { return Step::More };
        let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        // A section's header reads the same in both byte orders, and brings the order of all that follows.
        let (kind, order) = if kind == SECTION_HEADER {
            let Some(start) = rest.first_chunk::<BLOCK_FRAME>() else { return Step::More };
            match Order::detect([start[8], start[9], start[10], start[11]]) {
                Some(order) => (SECTION_HEADER, order),
                None => return Step::Damaged { what: "a section without a valid byte order mark".into(), skip: None },
            }
        } else {
            (self.order.fix32(kind), self.order)
        };
        let length = order.word(head, 4);
        if let Err(what) = check_length(kind, length) {
            return Step::Damaged { what, skip: None };
        }
        let length = length as usize;
        let Some(block) = rest.get(..length) else { return Step::More };
        let (body, tail) = block[8..].split_last_chunk::<4>().expect("12 octets at least");
        let tail = order.word(tail, 0) as usize;
        let intact = tail == length;

        // Sections and interfaces count even if their length is told twice in different ways: without
        // them, the packets that follow would be read wrongly.
        let result = match kind {
            SECTION_HEADER => self.section(order, body),
            _ if self.foreign => Ok(()),
            INTERFACE_DESCRIPTION => self.interface(body),
            ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET if intact => {
                let frame = match kind {
                    ENHANCED_PACKET => self.enhanced(body),
                    SIMPLE_PACKET => self.simple(body),
                    _ => self.obsolete(body),
                };
                match frame {
                    Ok(frame) => return Step::Frame(frame, length),
                    Err(what) => Err(what),
                }
            }
            _ => Ok(()),
        };
        let result = result.and_then(|()| match intact {
            true => Ok(()),
            false => Err(format!("the block's length is {length} in front and {tail} at its end")),
        });
        match result {
            Ok(()) => Step::Skip(length),
            Err(what) => Step::Damaged { what, skip: Some(length) },
        }
    }

    fn cut(&self, rest: &[u8]) -> String {
        let there = rest.len();
        let Some(head) = rest.first_chunk::<BLOCK_FRAME>() else {
            return format!("the file is cut in a block, after {there} octets");
        };
        let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let order = match Order::detect([head[8], head[9], head[10], head[11]]) {
            Some(order) if kind == SECTION_HEADER => order,
            _ => self.order,
        };
        format!("the file is cut in a block, after {there} of {} octets", order.word(head, 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(resolution: u8, offset_s: i64) -> Interface {
        Interface { link_type: 1, snap_bytes: 0, resolution: Resolution::new(resolution), offset_s }
    }

    #[test]
    fn powers_of_ten_from_seconds_to_beyond_nanoseconds() {
        assert_eq!(interface(0, 0).time(7), (7_000_000_000, false));
        assert_eq!(interface(6, 0).time(1_234_567), (1_234_567_000, false));
        assert_eq!(interface(9, 0).time(u64::MAX), (u64::MAX, false));
        assert_eq!(interface(12, 0).time(1_234_999), (1_234, false));
        assert_eq!(interface(28, 0).time(u64::MAX), (1, false), "10^19 units are a nanosecond");
        for resolution in 29..=127 {
            assert_eq!(interface(resolution, 0).time(u64::MAX), (0, false));
        }
    }

    #[test]
    fn powers_of_two_to_the_last() {
        assert_eq!(interface(0x80, 0).time(3), (3_000_000_000, false));
        assert_eq!(interface(0x80 | 10, 0).time(1536), (1_500_000_000, false));
        assert_eq!(interface(0x80 | 64, 0).time(u64::MAX), (999_999_999, false));
        assert_eq!(interface(0xff, 0).time(u64::MAX), (0, false));
    }

    #[test]
    fn times_outside_64_bits_of_nanoseconds_are_clamped_and_flagged() {
        assert_eq!(interface(6, 0).time(u64::MAX), (u64::MAX, true));
        assert_eq!(interface(9, -1).time(999_999_999), (0, true));
        assert_eq!(interface(9, -1).time(1_000_000_000), (0, false));
        assert_eq!(interface(0, i64::MIN).time(u64::MAX), (u64::MAX, true));
        assert_eq!(interface(0, i64::MIN).time(0), (0, true));
        assert_eq!(interface(0, i64::MAX).time(u64::MAX), (u64::MAX, true));
    }

    #[test]
    fn a_negative_offset_brings_a_late_clock_back() {
        assert_eq!(interface(6, -3_600).time(3_601_000_000), (1_000_000_000, false));
    }
}
