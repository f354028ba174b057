//! The walk along one block of the ring: frames as the kernel laid them, one behind the other.
//!
//! In: a block, as octets. Out: frames that borrow from it.
//! Always true: lengths and places in a block are compared with its size before they are used. A VLAN tag that the kernel took
//! off is put back, into the room before the frame: the addresses move 4 octets to the front.

use crate::{Burst, Frame};
use std::mem::offset_of;

/// Octets of the header of a frame, and of both addresses of Ethernet.
const HEADER: usize = size_of::<libc::tpacket3_hdr>();
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// EtherType of a tag, if the kernel does not say which.
const CUSTOMER_TAG: u16 = 0x8100;

/// What does not change from frame to frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// LINKTYPE number.
    pub link_type: u16,
    /// Octets kept of a frame, at most.
    pub snap: Option<u32>,
    /// The system's number of the interface.
    pub interface: u32,
}

/// How far a block has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    /// Frames to come.
    pub left: u32,
    /// Where the next one begins.
    at: usize,
}

impl Walk {
    /// From the start of a block.
    pub fn new(block: &[u8]) -> Self {
        let of = |at: usize| word(block, offset_of!(libc::tpacket_block_desc, hdr) + at).unwrap_or(0);
        Self {
            left: of(offset_of!(libc::tpacket_hdr_v1, num_pkts)),
            at: of(offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt)) as usize,
        }
    }

    /// Puts frames into a burst until it is full or the block is at its end, or until one does not go (its time, ns, decides). Returns
    /// how many could not be read, because the block makes no sense from some place on.
    #[inline]
    pub fn fill<'a>(
        &mut self,
        block: &'a mut [u8],
        format: Format,
        burst: &mut Burst<'a>,
        mut goes: impl FnMut(u64) -> bool,
    ) -> u32 {
        let mut rest = block.get_mut(self.at..).unwrap_or_default();
        while self.left > 0 && !burst.is_full() {
            if time_ns(rest).is_some_and(|time_ns| !goes(time_ns)) {
                return 0;
            }
            let octets = match word(rest, offset_of!(libc::tpacket3_hdr, tp_next_offset)) {
                // The last frame says 0.
                Some(0) if self.left == 1 => rest.len(),
                next => next.unwrap_or(0) as usize,
            };
            if octets < HEADER || octets > rest.len() {
                return std::mem::take(&mut self.left);
            }
            let (frame, behind) = std::mem::take(&mut rest).split_at_mut(octets);
            rest = behind;
            let Some(frame) = read(frame, format) else { return std::mem::take(&mut self.left) };
            burst.push(frame);
            self.at += octets;
            self.left -= 1;
        }
        0
    }

    /// The latest time among the next frames, so many at most. The walk stays where it is.
    pub fn latest_ns(self, block: &[u8], frames: usize) -> Option<u64> {
        let mut at = self.at;
        let ahead = (self.left as usize).min(frames);
        let times = (0..ahead).map_while(|_| {
            let frame = block.get(at..)?;
            at += word(frame, offset_of!(libc::tpacket3_hdr, tp_next_offset))? as usize;
            time_ns(frame)
        });
        times.max()
    }
}

/// When a frame came, ns since 1970 UTC, by its header.
fn time_ns(frame: &[u8]) -> Option<u64> {
    let seconds = word(frame, offset_of!(libc::tpacket3_hdr, tp_sec))?;
    let nanoseconds = word(frame, offset_of!(libc::tpacket3_hdr, tp_nsec))?;
    Some(u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds))
}

/// A frame with its header before it; `None` if the header makes no sense.
fn read(octets: &mut [u8], format: Format) -> Option<Frame<'_>> {
    let header = |at| word(octets, at);
    let status = header(offset_of!(libc::tpacket3_hdr, tp_status))?;
    let time_ns = time_ns(octets)?;
    let mut wire_bytes = header(offset_of!(libc::tpacket3_hdr, tp_len))?;
    let mut kept = header(offset_of!(libc::tpacket3_hdr, tp_snaplen))? as usize;
    let mut start = usize::from(half(octets, offset_of!(libc::tpacket3_hdr, tp_mac))?);
    if status & libc::TP_STATUS_VLAN_VALID != 0 && kept >= ADDRESSES && start >= HEADER + TAG {
        let variant = offset_of!(libc::tpacket3_hdr, hv1);
        let tag = header(variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci))? as u16;
        let kind = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => CUSTOMER_TAG,
            _ => half(octets, variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid))?,
        };
        octets.get(start..start + ADDRESSES)?;
        octets.copy_within(start..start + ADDRESSES, start - TAG);
        start -= TAG;
        octets[start + ADDRESSES..][..2].copy_from_slice(&kind.to_be_bytes());
        octets[start + ADDRESSES + 2..][..2].copy_from_slice(&tag.to_be_bytes());
        wire_bytes += TAG as u32;
        kept += TAG;
    }
    let kept = format.snap.map_or(kept, |snap| kept.min(snap as usize));
    let bytes = &octets.get(start..)?.get(..kept)?;
    let wire_bytes = wire_bytes.max(kept as u32);
    Some(Frame {
        bytes,
        time_ns,
        wire_bytes,
        link_type: format.link_type,
        time_clamped: false,
        interface: format.interface,
    })
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn half(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|half| u16::from_ne_bytes(*half))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BURST;

    const FORMAT: Format = Format { link_type: 1, snap: None, interface: 7 };

    /// EtherType and identifier of a tag that was taken off.
    type Tag = Option<(u16, u16)>;

    /// A block as the kernel would lay it: frames with a tag or without one.
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

    fn walk(block: &mut [u8], format: Format) -> (Vec<(Vec<u8>, u32, u64)>, u32) {
        let (mut walk, mut frames, mut unreadable) = (Walk::new(block), Vec::new(), 0);
        while walk.left > 0 {
            let mut burst = Burst::new();
            unreadable += walk.fill(block, format, &mut burst, |_| true);
            frames.extend(burst.iter().map(|frame| (frame.bytes.to_vec(), frame.wire_bytes, frame.time_ns)));
        }
        (frames, unreadable)
    }

    #[test]
    fn every_frame_comes_in_order_in_bursts_that_end_where_they_are_full() {
        let bytes: Vec<Vec<u8>> = (0..3 * BURST + 5).map(|n| vec![n as u8; 14 + n]).collect();
        let mut block = block(&bytes.iter().map(|bytes| (&bytes[..], None)).collect::<Vec<_>>());
        let (frames, unreadable) = walk(&mut block, FORMAT);
        assert_eq!((frames.len(), unreadable), (bytes.len(), 0));
        for (number, (frame, wire_bytes, time_ns)) in frames.iter().enumerate() {
            assert_eq!((frame, *wire_bytes), (&bytes[number], bytes[number].len() as u32 + 5));
            assert_eq!(*time_ns, (1000 + number as u64) * 1_000_000_000 + 7);
        }
        assert_eq!(walk(&mut self::block(&[]), FORMAT), (Vec::new(), 0));
    }

    #[test]
    fn a_tag_is_put_back_where_it_was_and_counted() {
        let plain: Vec<u8> = (0..60).collect();
        let mut block = block(&[(&plain, None), (&plain, Some((0x88a8, 0x6064))), (&plain, Some((0x8100, 7)))]);
        let (frames, _) = walk(&mut block, FORMAT);
        assert_eq!((&frames[0].0, frames[0].1), (&plain, 65));
        let tagged = [&plain[..12], &[0x88, 0xa8, 0x60, 0x64], &plain[12..]].concat();
        assert_eq!((&frames[1].0, frames[1].1), (&tagged, 69));
        assert_eq!(frames[2].0[12..18], [0x81, 0, 0, 7, 12, 13]);
    }

    #[test]
    fn a_snap_length_holds_for_what_is_handed_over_tag_and_all() {
        let plain: Vec<u8> = (0..64).collect();
        let mut block = block(&[(&plain, Some((0x8100, 7)))]);
        let (frames, _) = walk(&mut block, Format { snap: Some(64), ..FORMAT });
        assert_eq!((frames[0].0.len(), frames[0].1), (64, 73));
    }

    #[test]
    fn a_block_that_lies_ends_where_it_does_and_what_is_missing_is_counted() {
        let plain = [1; 60];
        let good = block(&[(&plain, None), (&plain, Some((0x8100, 7))), (&plain, None)]);
        // Any of the places and lengths of the block and of the second frame's header, as anything.
        for at in [12, 16, 208, 208 + 12, 208 + 24] {
            for value in [0, 1, 47, 97, 160, 208, 400, 0xffff, u32::MAX] {
                let mut bad = good.clone();
                bad[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                let told = u32::from_ne_bytes(bad[12..16].try_into().unwrap());
                if told > 1000 {
                    continue;
                }
                let (frames, unreadable) = walk(&mut bad, FORMAT);
                assert_eq!(frames.len() as u32 + unreadable, told, "{value} at {at}");
            }
        }
        for cut in 0..good.len() {
            let mut cut = good[..cut].to_vec();
            let (frames, unreadable) = walk(&mut cut, FORMAT);
            assert!(frames.len() as u32 + unreadable == 3 || cut.len() < 20);
        }
    }
}
