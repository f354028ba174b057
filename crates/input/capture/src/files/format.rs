//! What a capture format says of the bytes at a cursor.

use crate::error::Damage;
use crate::source::{Burst, Frame, Losses};
use std::ops::Range;

/// Link type of frames whose bytes are the body of a packet record.
pub const DECODED_LINK_TYPE: u16 = 65_000;

/// The link type of a frame that is none of those: another one, which is not decoded either, for the
/// number that Weir uses itself.
pub(crate) fn foreign_link_type(link_type: u16) -> u16 {
    if link_type == DECODED_LINK_TYPE { u16::MAX } else { link_type }
}

/// Largest captured length that is accepted, in bytes. libpcap accepts 256 KiB, and up to 128 MiB of
/// link types that Weir does not meter (D-Bus, USB). The limit bounds the memory of a stream, which
/// holds a whole record: compressed, a long record can be a small file. The snap length in the file
/// header is not used: many writers set it to 0, or to less than the length of their packets. In a
/// damaged file, a random length exceeds this limit 255 times out of 256.
pub(crate) const MAX_CAPTURED_BYTES: u32 = 16 * 1024 * 1024;

pub(crate) enum Step<'a> {
    /// A packet, and the length of its record in bytes.
    Frame(Frame<'a>, usize),
    /// Bytes without a packet, by their number.
    Skip(usize),
    /// The window ends before the record does.
    More,
    Damaged {
        cause: Damage,
        /// Distance in bytes to the next record, if that can be known.
        skip: Option<usize>,
    },
}

pub(crate) trait Format {
    /// Fast path: reads frames from the start of `rest`, which is at most one burst, up to
    /// the first that is not of the most common form. Returns the length of their records in bytes.
    fn read_common<'a>(&self, _rest: &'a [u8], _burst: &mut Burst<'a>) -> usize {
        0
    }

    /// Reads one record at the start of `rest`. The caller may read a frame again; anything else it
    /// reads once, so an implementation may change its state.
    fn step<'a>(&mut self, rest: &'a [u8]) -> Step<'a>;

    /// Length in bytes of the record at the start of `rest`, if it looks like a packet.
    fn record_bytes(&self, rest: &[u8]) -> Option<usize>;

    /// Where in `places` a record may begin that looks like the one at the start of `area`.
    fn guess(&self, area: &[u8], places: Range<usize>) -> Option<usize>;

    /// Returns the names of interfaces by their numbers.
    fn interfaces(&self) -> Vec<(u32, String)> {
        Vec::new()
    }

    /// Packets that were lost when the file was written, once its end has been read.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// What is wrong with a file that ends behind a whole record, after this number of packets.
    fn check_end(&self, _packets: u64) -> Option<Damage> {
        None
    }

    /// Describes where a file was truncated that ends with `rest`: not empty, and no whole record.
    fn truncation(&self, rest: &[u8]) -> Damage;
}
