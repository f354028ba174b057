//! Files of packet records: decoded packets instead of frames (docs/packet-records.md). Reader and writer.
//!
//! ```text
//! file header | record | record | ... | end record
//! ```
//! All records have [`RECORD_BYTES`] bytes: a head, which this module reads and writes, and a body,
//! which is that of a packet, and which the decoder reads like a frame of [`DECODED_LINK_TYPE`]. So
//! nothing is parsed here, as in the rest of this crate.
//!
//! Invariants: numbers are little-endian on every machine. A damaged record is reported and skipped,
//! because the next one begins where it ends. A file that ends without its end record, or with another
//! number of packets than that says, is reported.
//!
//! Not done: checksums. A damaged value that a packet can have is not noticed.

use crate::error::{Damage, FormatError};
use crate::files::format::{DECODED_LINK_TYPE, Format, Step, foreign_link_type};
use crate::files::pcapng::printable_name;
use crate::source::{Burst, Frame, Losses};
use std::io::{self, BufWriter, Write};
use std::ops::Range;

/// Bytes of the body of a packet record.
pub const BODY_BYTES: usize = 116;

/// Bytes of the file header, and of each record.
pub(crate) const FILE_HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = HEAD_BYTES + BODY_BYTES;
const HEAD_BYTES: usize = 20;

const MAGIC: [u8; 8] = *b"WeirPkt\n";
const BYTE_ORDER: u32 = 0x0102_0304;
const VERSION: u16 = 1;
/// Flag of the file header: the packets are those inside tunnels.
const DECAPSULATED: u32 = 1;

// Kinds of records.
const PACKET: u8 = 1;
const UNDECODED: u8 = 2;
const INTERFACE: u8 = 3;
const END: u8 = 4;
/// Flag of a record: the time is an assumption.
const TIME_ASSUMED: u8 = 1;

/// Longest name, or part of a name, of one record.
const MAX_PART_BYTES: usize = BODY_BYTES - 1;
/// Longer names are cut, and more are not kept.
const MAX_NAME_BYTES: usize = 256;
const MAX_NAMES: usize = 256;

/// No run loses more packets; sums of such numbers do not overflow.
const MAX_LOST: u64 = 1 << 48;

const BUFFER_BYTES: usize = 256 << 10;

/// A file of packet records behind its file header.
#[derive(Default)]
pub(crate) struct PacketsFile {
    names: Vec<(u32, String)>,
    /// Records that were skipped, and may have been packets.
    damaged: u64,
    /// Packets and losses by the end record.
    end: Option<(u64, Losses)>,
}

impl PacketsFile {
    /// Returns whether these are the first bytes of a file of packet records.
    pub(crate) fn detect(head: &[u8]) -> bool {
        head.starts_with(&MAGIC)
    }

    /// Reads the file header. `decapsulated` is whether the packets must be those inside tunnels.
    ///
    /// # Errors
    /// It is not a file of packet records, cut in its header, of another version, or has other packets.
    pub(crate) fn new(head: &[u8], decapsulated: bool) -> Result<Self, FormatError> {
        if !Self::detect(head) {
            return Err(FormatError::NoPackets);
        }
        let header: &[u8; FILE_HEADER_BYTES] =
            head.first_chunk().ok_or(FormatError::PacketsHeaderCut(head.len(), FILE_HEADER_BYTES))?;
        let order = u32_at(header, 8);
        if order == BYTE_ORDER.swap_bytes() {
            return Err(FormatError::PacketsByteOrder);
        }
        let (version, record_bytes) = (u16_at(header, 12), u16_at(header, 14));
        let is_of_version = (order, version, usize::from(record_bytes)) == (BYTE_ORDER, VERSION, RECORD_BYTES);
        let (flags, reserved) = (u32_at(header, 16), u32_at(header, 20));
        if !is_of_version || flags & !DECAPSULATED != 0 || reserved != 0 {
            return Err(FormatError::PacketsVersion { version, record_bytes, flags });
        }
        match (flags & DECAPSULATED != 0, decapsulated) {
            (false, true) => Err(FormatError::PacketsOutside),
            (true, false) => Err(FormatError::PacketsInside),
            _ => Ok(Self::default()),
        }
    }

    fn add_name(&mut self, record: &[u8; RECORD_BYTES]) -> Option<()> {
        let length = usize::from(record[HEAD_BYTES]);
        let part = printable_name(record[HEAD_BYTES + 1..].get(..length)?);
        let number = u32_at(record, 16);
        let known = self.names.iter().position(|(other, _)| *other == number);
        match known {
            Some(at) if self.names[at].1.len() + part.len() <= MAX_NAME_BYTES => self.names[at].1.push_str(&part),
            None if self.names.len() < MAX_NAMES => self.names.push((number, part)),
            _ => {}
        }
        Some(())
    }
}

impl Format for PacketsFile {
    #[inline(never)]
    fn read_common<'a>(&self, rest: &'a [u8], burst: &mut Burst<'a>) -> usize {
        if self.end.is_some() {
            return 0;
        }
        let (records, _) = rest.as_chunks::<RECORD_BYTES>();
        let before = burst.len();
        let frames = records.iter().take(burst.remaining_capacity()).map_while(packet);
        burst.extend(frames);
        (burst.len() - before) * RECORD_BYTES
    }

    fn step<'a>(&mut self, rest: &'a [u8]) -> Step<'a> {
        let Some(record) = rest.first_chunk::<RECORD_BYTES>() else { return Step::More };
        if self.end.is_some() {
            return Step::Damaged { cause: Damage::BehindEnd, skip: None };
        }
        if let Some(frame) = packet(record) {
            return Step::Frame(frame, RECORD_BYTES);
        }
        match record[0] {
            INTERFACE if self.add_name(record).is_some() => Step::Skip(RECORD_BYTES),
            END if [16, 24, 32].iter().all(|&at| u64_at(record, at) <= MAX_LOST) => {
                let [nic, kernel, queue] = [16, 24, 32].map(|at| u64_at(record, at));
                self.end = Some((u64_at(record, 8), Losses { nic, kernel, queue }));
                Step::Skip(RECORD_BYTES)
            }
            kind => {
                self.damaged += 1;
                Step::Damaged { cause: Damage::Record(kind), skip: Some(RECORD_BYTES) }
            }
        }
    }

    fn record_bytes(&self, _: &[u8]) -> Option<usize> {
        Some(RECORD_BYTES)
    }

    /// Records are next to each other, where the CPU prefetches by itself.
    fn guess(&self, _: &[u8], _: Range<usize>) -> Option<usize> {
        None
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.names.clone()
    }

    fn losses(&self) -> Losses {
        self.end.map_or_else(Losses::default, |(_, losses)| losses)
    }

    fn truncation(&self, rest: &[u8]) -> Damage {
        match self.end {
            Some(_) => Damage::BehindEnd,
            None => Damage::Cut("a packet record", rest.len(), Some(RECORD_BYTES)),
        }
    }

    fn check_end(&self, packets: u64) -> Option<Damage> {
        match self.end {
            None => Some(Damage::NoEnd),
            Some((written, _)) if packets.checked_add(self.damaged) != Some(written) => {
                Some(Damage::Packets { written, read: packets, damaged: self.damaged })
            }
            Some(_) => None,
        }
    }
}

/// The frame of a record that is a packet.
#[inline]
fn packet(record: &[u8; RECORD_BYTES]) -> Option<Frame<'_>> {
    let is_packet = record[0] == PACKET;
    if !is_packet && record[0] != UNDECODED || record[1] & !TIME_ASSUMED != 0 {
        return None;
    }
    Some(Frame {
        // Within the record, because a reading thread passes on where the bytes are.
        bytes: if is_packet { &record[HEAD_BYTES..] } else { &record[HEAD_BYTES..HEAD_BYTES] },
        time_ns: u64_at(record, 8),
        wire_bytes: u32_at(record, 4),
        link_type: if is_packet { DECODED_LINK_TYPE } else { foreign_link_type(u16_at(record, 2)) },
        time_assumed: record[1] & TIME_ASSUMED != 0,
        interface: u32_at(record, 16),
    })
}

#[inline]
fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("the offset is a constant within the record"))
}

#[inline]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the offset is a constant within the record"))
}

#[inline]
fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the offset is a constant within the record"))
}

/// Writes a file of packet records through a buffer.
///
/// Call [`PacketsWriter::finish`] at the end: without its end record, a file counts as cut.
pub struct PacketsWriter<W: Write> {
    output: BufWriter<W>,
    packets: u64,
}

impl<W: Write> PacketsWriter<W> {
    /// Begins a file. `decapsulated` says whether its packets are those inside tunnels.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(output: W, decapsulated: bool) -> io::Result<Self> {
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        output.write_all(&MAGIC)?;
        output.write_all(&BYTE_ORDER.to_le_bytes())?;
        output.write_all(&VERSION.to_le_bytes())?;
        output.write_all(&(RECORD_BYTES as u16).to_le_bytes())?;
        output.write_all(&(if decapsulated { DECAPSULATED } else { 0 }).to_le_bytes())?;
        output.write_all(&[0; 4])?;
        Ok(Self { output, packets: 0 })
    }

    /// Writes the name of an interface, before the first packet of it.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_name(&mut self, interface: u32, name: &str) -> io::Result<()> {
        let mut rest = name;
        while !rest.is_empty() {
            let end = (1..=MAX_PART_BYTES).rev().find(|&end| rest.is_char_boundary(end)).unwrap_or(rest.len());
            let (part, others) = rest.split_at(end);
            rest = others;
            let mut body = [0; BODY_BYTES];
            body[0] = part.len() as u8;
            body[1..=part.len()].copy_from_slice(part.as_bytes());
            let frame = Frame { bytes: &[], time_ns: 0, wire_bytes: 0, link_type: 0, time_assumed: false, interface };
            self.write_record(INTERFACE, &frame, &body)?;
        }
        Ok(())
    }

    /// Writes what was decoded from a frame; its bytes are not used.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write(&mut self, frame: &Frame<'_>, body: &[u8; BODY_BYTES]) -> io::Result<()> {
        self.packets += 1;
        self.write_record(PACKET, frame, body)
    }

    /// Writes that a frame has a link type that is not decoded.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_undecoded(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.packets += 1;
        self.write_record(UNDECODED, frame, &[0; BODY_BYTES])
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Writes the end record and the buffer, and returns the output.
    ///
    /// # Errors
    /// The output cannot be written: the file is incomplete.
    pub fn finish(mut self, losses: Losses) -> io::Result<W> {
        let mut record = [0; RECORD_BYTES];
        record[0] = END;
        for (at, number) in [(8, self.packets), (16, losses.nic), (24, losses.kernel), (32, losses.queue)] {
            record[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        self.output.write_all(&record)?;
        self.output.flush()?;
        self.output.into_inner().map_err(io::IntoInnerError::into_error)
    }

    fn write_record(&mut self, kind: u8, frame: &Frame<'_>, body: &[u8; BODY_BYTES]) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[1] = if frame.time_assumed { TIME_ASSUMED } else { 0 };
        head[2..4].copy_from_slice(&frame.link_type.to_le_bytes());
        head[4..8].copy_from_slice(&frame.wire_bytes.to_le_bytes());
        head[8..16].copy_from_slice(&frame.time_ns.to_le_bytes());
        head[16..20].copy_from_slice(&frame.interface.to_le_bytes());
        self.output.write_all(&head)?;
        self.output.write_all(body)
    }
}
