//! Blocks of pcapng files, little-endian.
//!
//! Source: draft-ietf-opsawg-pcapng, sections 3.5 (options) and 4 (blocks).

use weir_capture::Frame;
use weir_egress::ReceivedPackets;

pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
pub(crate) const INTERFACE_STATISTICS: u32 = 5;
pub(crate) const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Offsets in an enhanced packet block.
pub(crate) const INTERFACE: usize = 8;
pub(crate) const DATA: usize = 28;

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;

/// Octets of a packet block beside the captured ones, at most: header, padding, an option with a
/// count, the end of options, and the length.
pub(crate) const PACKET_OVERHEAD: usize = DATA + 3 + 12 + 4 + 4;

/// Appends a block around what `body` writes, which is padded to 32 bits.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    pad(out, start);
    let length = (out.len() - start + 4) as u32;
    out.extend_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

fn pad(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    out.resize(start + length.next_multiple_of(4), 0);
}

/// Appends an option. A text that is too long for the format is cut.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    let start = out.len();
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, start);
}

/// Appends a section header block. The length of the section is not given.
pub(crate) fn section_header(out: &mut Vec<u8>, comment: &str, hardware: &str, system: &str, application: &str) {
    const HARDWARE: u16 = 2;
    const OPERATING_SYSTEM: u16 = 3;
    const APPLICATION: u16 = 4;
    block(out, SECTION_HEADER, |out| {
        out.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        let options =
            [(COMMENT, comment), (HARDWARE, hardware), (OPERATING_SYSTEM, system), (APPLICATION, application)];
        for (code, text) in options.into_iter().filter(|(_, text)| !text.is_empty()) {
            option(out, code, text.as_bytes());
        }
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Appends an interface description block with times in nanoseconds and without a snap length.
pub(crate) fn interface_description(out: &mut Vec<u8>, link_type: u16, name: &str, filter: Option<&str>) {
    const NAME: u16 = 2;
    const TIME_RESOLUTION: u16 = 9;
    const FILTER: u16 = 11;
    const NO_SNAP_LENGTH: u32 = 0;
    /// A filter in the syntax of libpcap.
    const FILTER_STRING: u8 = 0;
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&link_type.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&NO_SNAP_LENGTH.to_le_bytes());
        if !name.is_empty() {
            option(out, NAME, name.as_bytes());
        }
        option(out, TIME_RESOLUTION, &[9]);
        if let Some(filter) = filter {
            option(out, FILTER, &[&[FILTER_STRING], filter.as_bytes()].concat());
        }
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Appends an enhanced packet block. `dropped` packets of the interface are missing before it.
#[inline]
pub(crate) fn enhanced_packet(out: &mut Vec<u8>, interface: u32, frame: &Frame<'_>, dropped: u64) {
    const DROP_COUNT: u16 = 4;
    block(out, ENHANCED_PACKET, |out| {
        let captured = frame.bytes.len() as u32;
        let [high, low] = [(frame.time_ns >> 32) as u32, frame.time_ns as u32];
        for word in [interface, high, low, captured, frame.wire_bytes] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(frame.bytes);
        if dropped > 0 {
            out.resize(out.len().next_multiple_of(4), 0);
            option(out, DROP_COUNT, &dropped.to_le_bytes());
            option(out, END_OF_OPTIONS, &[]);
        }
    });
}

/// Appends an interface statistics block. `recorded` packets of the interface were recorded since the
/// recorder began, at `began_ns`.
pub(crate) fn interface_statistics(
    out: &mut Vec<u8>,
    interface: u32,
    [began_ns, now_ns]: [u64; 2],
    received: Option<ReceivedPackets>,
    recorded: u64,
) {
    const START: u16 = 2;
    const END: u16 = 3;
    const RECEIVED: u16 = 4;
    const INTERFACE_DROPS: u16 = 5;
    const SYSTEM_DROPS: u16 = 7;
    const DELIVERED: u16 = 8;
    // The high word comes first.
    let time = |ns: u64| ns.rotate_left(32).to_le_bytes();
    block(out, INTERFACE_STATISTICS, |out| {
        out.extend_from_slice(&interface.to_le_bytes());
        out.extend_from_slice(&time(now_ns));
        option(out, START, &time(began_ns));
        option(out, END, &time(now_ns));
        let counts = [
            (RECEIVED, received.map(|packets| packets.received)),
            (INTERFACE_DROPS, received.map(|packets| packets.dropped_nic)),
            (SYSTEM_DROPS, received.map(|packets| packets.dropped_system)),
            (DELIVERED, Some(recorded)),
        ];
        for (code, count) in counts.into_iter().filter_map(|(code, count)| Some((code, count?))) {
            option(out, code, &count.to_le_bytes());
        }
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// A 32-bit word of a block.
pub(crate) fn word(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// Splits the first block off: its type, and the octets of the block. `None` if there is no whole one.
pub(crate) fn split_block(octets: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let length = word(octets, 4)? as usize;
    if length < 12 || !length.is_multiple_of(4) || length > octets.len() {
        return None;
    }
    let (block, rest) = octets.split_at(length);
    (word(block, length - 4)? as usize == length).then_some((word(block, 0)?, block, rest))
}
