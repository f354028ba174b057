//! Reads the frames of one block of the ring.
//!
//! In: the bytes of a block. Out: frames that borrow from it. Invariants: lengths and offsets in a
//! block are compared with its size before they are used. A VLAN tag that the kernel stripped is
//! restored in the headroom of the frame: the addresses move 4 bytes to the front.

use crate::source::{Burst, Frame};
use crate::system::{u16_at, u32_at};
use std::mem::offset_of;

/// Bytes of a frame's TPACKET_V3 header, of both Ethernet addresses, and of a VLAN tag.
const HEADER_BYTES: usize = size_of::<libc::tpacket3_hdr>();
const ADDRESS_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
/// EtherType of a tag for which the kernel gives none.
const DEFAULT_TPID: u16 = 0x8100;

/// Properties that all frames of a source share.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameProperties {
    /// LINKTYPE number.
    pub link_type: u16,
    /// Snap length in bytes.
    pub snap_bytes: Option<u32>,
    /// Interface index.
    pub interface: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockCursor {
    /// Frames that are not read yet.
    pub left: u32,
    /// Offset of the next one.
    at: usize,
}

impl BlockCursor {
    /// The start of a block.
    pub fn new(block: &[u8]) -> Self {
        let of = |at: usize| u32_at(block, offset_of!(libc::tpacket_block_desc, hdr) + at).unwrap_or(0);
        Self {
            left: of(offset_of!(libc::tpacket_hdr_v1, num_pkts)),
            at: of(offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt)) as usize,
        }
    }

    /// Adds frames to a burst until it is full, the block ends, or `accepts` refuses the time (ns)
    /// of a frame. Returns the number of frames that cannot be read because the rest of the block
    /// is invalid.
    #[inline]
    pub fn fill<'a>(
        &mut self,
        block: &'a mut [u8],
        properties: FrameProperties,
        burst: &mut Burst<'a>,
        mut accepts: impl FnMut(u64) -> bool,
    ) -> u32 {
        let mut rest = block.get_mut(self.at..).unwrap_or_default();
        while self.left > 0 && !burst.is_full() {
            if time_ns(rest).is_some_and(|time_ns| !accepts(time_ns)) {
                return 0;
            }
            let record_bytes = match u32_at(rest, offset_of!(libc::tpacket3_hdr, tp_next_offset)) {
                // The last frame has the offset 0.
                Some(0) if self.left == 1 => rest.len(),
                next => next.unwrap_or(0) as usize,
            };
            if record_bytes < HEADER_BYTES || record_bytes > rest.len() {
                return std::mem::take(&mut self.left);
            }
            let (frame, behind) = std::mem::take(&mut rest).split_at_mut(record_bytes);
            rest = behind;
            let Some(frame) = read(frame, properties) else { return std::mem::take(&mut self.left) };
            burst.push(frame);
            self.at += record_bytes;
            self.left -= 1;
        }
        0
    }

    /// Returns the latest converted time among the next frames, at most `frames` of them.
    pub fn latest_ns(self, block: &[u8], frames: usize, convert: impl FnMut(u64) -> u64) -> Option<u64> {
        let mut at = self.at;
        let ahead = (self.left as usize).min(frames);
        let times = (0..ahead).map_while(|_| {
            let frame = block.get(at..)?;
            at += u32_at(frame, offset_of!(libc::tpacket3_hdr, tp_next_offset))? as usize;
            time_ns(frame)
        });
        times.map(convert).max()
    }
}

/// Returns the time in a frame's header, ns since 1970 UTC.
fn time_ns(frame: &[u8]) -> Option<u64> {
    let seconds = u32_at(frame, offset_of!(libc::tpacket3_hdr, tp_sec))?;
    let nanoseconds = u32_at(frame, offset_of!(libc::tpacket3_hdr, tp_nsec))?;
    Some(u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds))
}

/// Reads a frame after its header; `None` if the header is invalid.
fn read(record: &mut [u8], properties: FrameProperties) -> Option<Frame<'_>> {
    let header = |at| u32_at(record, at);
    let status = header(offset_of!(libc::tpacket3_hdr, tp_status))?;
    let time_ns = time_ns(record)?;
    let mut wire_bytes = header(offset_of!(libc::tpacket3_hdr, tp_len))?;
    let mut captured = header(offset_of!(libc::tpacket3_hdr, tp_snaplen))? as usize;
    let mut start = usize::from(u16_at(record, offset_of!(libc::tpacket3_hdr, tp_mac))?);
    if status & libc::TP_STATUS_VLAN_VALID != 0 && captured >= ADDRESS_BYTES && start >= HEADER_BYTES + TAG_BYTES {
        let variant = offset_of!(libc::tpacket3_hdr, hv1);
        let tci = header(variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci))? as u16;
        let tpid = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => DEFAULT_TPID,
            _ => u16_at(record, variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid))?,
        };
        record.get(start..start + ADDRESS_BYTES)?;
        record.copy_within(start..start + ADDRESS_BYTES, start - TAG_BYTES);
        start -= TAG_BYTES;
        record[start + ADDRESS_BYTES..][..2].copy_from_slice(&tpid.to_be_bytes());
        record[start + ADDRESS_BYTES + 2..][..2].copy_from_slice(&tci.to_be_bytes());
        wire_bytes += TAG_BYTES as u32;
        captured += TAG_BYTES;
    }
    let captured = properties.snap_bytes.map_or(captured, |snap| captured.min(snap as usize));
    let bytes = &record.get(start..)?.get(..captured)?;
    let wire_bytes = wire_bytes.max(captured as u32);
    Some(Frame {
        bytes,
        time_ns,
        wire_bytes,
        link_type: properties.link_type,
        time_assumed: false,
        interface: properties.interface,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MAX_BURST_FRAMES;

    const PROPERTIES: FrameProperties = FrameProperties { link_type: 1, snap_bytes: None, interface: 7 };

    /// TPID and TCI of a tag that was stripped.
    type Tag = Option<(u16, u16)>;

    /// A block in the kernel's layout: frames with or without a stripped tag.
    fn block(frames: &[(&[u8], Tag)]) -> Vec<u8> {
        const FIRST: usize = 48;
        let mut block = vec![0; FIRST];
        block[12..16].copy_from_slice(&(frames.len() as u32).to_ne_bytes());
        block[16..20].copy_from_slice(&(FIRST as u32).to_ne_bytes());
        for (number, (bytes, tag)) in frames.iter().enumerate() {
            let start = block.len();
            let mac = 98;
            let mut frame = vec![0; mac];
            frame.extend_from_slice(bytes);
            frame.resize(frame.len().next_multiple_of(16), 0xee);
            let next = if number + 1 < frames.len() { frame.len() } else { 0 };
            let status = if tag.is_some() { 0x51 } else { 1 };
            let words = [next as u32, 1000 + number as u32, 7, bytes.len() as u32, bytes.len() as u32 + 5, status];
            for (at, word) in words.iter().enumerate() {
                frame[4 * at..][..4].copy_from_slice(&word.to_ne_bytes());
            }
            frame[24..26].copy_from_slice(&(mac as u16).to_ne_bytes());
            let (kind, tag) = tag.unwrap_or_default();
            frame[32..36].copy_from_slice(&u32::from(tag).to_ne_bytes());
            frame[36..38].copy_from_slice(&kind.to_ne_bytes());
            block.extend(frame);
            assert_eq!((block.len() - start) % 16, 0);
        }
        block.resize(block.len() + 64, 0xdd);
        block
    }

    fn read_block(block: &mut [u8], properties: FrameProperties) -> (Vec<(Vec<u8>, u32, u64)>, u32) {
        let (mut cursor, mut frames, mut unreadable) = (BlockCursor::new(block), Vec::new(), 0);
        while cursor.left > 0 {
            let mut burst = Burst::new();
            unreadable += cursor.fill(block, properties, &mut burst, |_| true);
            frames.extend(burst.iter().map(|frame| (frame.bytes.to_vec(), frame.wire_bytes, frame.time_ns)));
        }
        (frames, unreadable)
    }

    #[test]
    fn all_frames_are_read_in_order_in_full_bursts() {
        let bytes: Vec<Vec<u8>> = (0..3 * MAX_BURST_FRAMES + 5).map(|n| vec![n as u8; 14 + n]).collect();
        let mut block = block(&bytes.iter().map(|bytes| (&bytes[..], None)).collect::<Vec<_>>());
        let (frames, unreadable) = read_block(&mut block, PROPERTIES);
        assert_eq!((frames.len(), unreadable), (bytes.len(), 0));
        for (number, (frame, wire_bytes, time_ns)) in frames.iter().enumerate() {
            assert_eq!((frame, *wire_bytes), (&bytes[number], bytes[number].len() as u32 + 5));
            assert_eq!(*time_ns, (1000 + number as u64) * 1_000_000_000 + 7);
        }
        assert_eq!(read_block(&mut self::block(&[]), PROPERTIES), (Vec::new(), 0));
    }

    #[test]
    fn stripped_vlan_tag_is_restored_and_counted() {
        let plain: Vec<u8> = (0..60).collect();
        let mut block = block(&[(&plain, None), (&plain, Some((0x88a8, 0x6064))), (&plain, Some((0x8100, 7)))]);
        let (frames, _) = read_block(&mut block, PROPERTIES);
        assert_eq!((&frames[0].0, frames[0].1), (&plain, 65));
        let tagged = [&plain[..12], &[0x88, 0xa8, 0x60, 0x64], &plain[12..]].concat();
        assert_eq!((&frames[1].0, frames[1].1), (&tagged, 69));
        assert_eq!(frames[2].0[12..18], [0x81, 0, 0, 7, 12, 13]);
    }

    #[test]
    fn snap_length_includes_a_restored_tag() {
        let plain: Vec<u8> = (0..64).collect();
        let mut block = block(&[(&plain, Some((0x8100, 7)))]);
        let (frames, _) = read_block(&mut block, FrameProperties { snap_bytes: Some(64), ..PROPERTIES });
        assert_eq!((frames[0].0.len(), frames[0].1), (64, 73));
    }

    #[test]
    fn frames_after_an_invalid_header_are_counted_as_unreadable() {
        let plain = [1; 60];
        let good = block(&[(&plain, None), (&plain, Some((0x8100, 7))), (&plain, None)]);
        // Every offset and length of the block and of the second frame's header, with other values.
        for at in [12, 16, 208, 208 + 12, 208 + 24] {
            for value in [0, 1, 47, 97, 160, 208, 400, 0xffff, u32::MAX] {
                let mut bad = good.clone();
                bad[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                let claimed = u32::from_ne_bytes(bad[12..16].try_into().unwrap());
                if claimed > 1000 {
                    continue;
                }
                let (frames, unreadable) = read_block(&mut bad, PROPERTIES);
                assert_eq!(frames.len() as u32 + unreadable, claimed, "{value} at {at}");
            }
        }
        for cut in 0..good.len() {
            let mut cut = good[..cut].to_vec();
            let (frames, unreadable) = read_block(&mut cut, PROPERTIES);
            assert!(frames.len() as u32 + unreadable == 3 || cut.len() < 20);
        }
    }
}
