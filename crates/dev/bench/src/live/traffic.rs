//! Frames to send: held in memory and repeated, with other host addresses in each repetition.

use crate::error::Error;
use std::ops::Range;
use std::path::Path;
use weir_capture::{MAX_BURST_FRAMES, Source};

/// Default frames: about 600 conversations, most of them from SYN to FIN.
pub const MIX: &str = "synth:mix,flows=200,packets=32k";
/// Largest frame the veth pair carries, bytes without FCS.
const MAX_FRAME_BYTES: usize = 1514;
/// Limit for the sum of all frames, bytes. The rest of a larger capture is not sent.
const MAX_TRAFFIC_BYTES: usize = 512 << 20;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Frames and the state of their repetition.
pub struct Traffic {
    octets: Vec<u8>,
    /// Place of each frame in `octets`.
    frames: Vec<Range<usize>>,
    /// Index of the next frame.
    next: usize,
    round: u16,
    /// Description for the report.
    pub description: String,
}

impl Traffic {
    /// Loads the frames of a capture file or of `synth:...`.
    pub fn load(source: &str) -> Result<Self, Error> {
        let mut capture: Box<dyn Source> = match source.strip_prefix("synth:") {
            Some(specification) => Box::new(weir_trafficgen::TrafficGenerator::new(specification)?),
            None => weir_capture::open(Path::new(source))?,
        };
        let (mut octets, mut frames, mut skipped) = (Vec::new(), Vec::new(), 0_u64);
        while octets.len() < MAX_TRAFFIC_BYTES
            && let Some(burst) = capture.burst()?
        {
            for frame in &burst {
                if frame.link_type == ETHERNET && (14..=MAX_FRAME_BYTES).contains(&frame.bytes.len()) {
                    frames.push(octets.len()..octets.len() + frame.bytes.len());
                    octets.extend_from_slice(frame.bytes);
                } else {
                    skipped += 1;
                }
            }
        }
        if frames.is_empty() {
            return Err(Error::NoFrames(source.into(), MAX_FRAME_BYTES));
        }
        let mean = octets.len() / frames.len();
        let mut description = format!("{} frames of {source}, {mean} octets on average, repeated", frames.len());
        description += ", each time with other host addresses (two octets count up)";
        if skipped > 0 {
            description += &format!("; {skipped} frames skipped (not Ethernet, or too long)");
        }
        Ok(Self { octets, frames, next: 0, round: 0, description })
    }

    /// Mean size of a frame, bytes.
    pub fn mean_frame_bytes(&self) -> f64 {
        self.octets.len() as f64 / self.frames.len() as f64
    }

    /// Returns the first `most` frames, with their original addresses if none was sent yet.
    pub fn first(&self, most: usize) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().take(most).map(|place| &self.octets[place.clone()])
    }

    /// Puts the next frames into `burst`, at most `most` and [`MAX_BURST_FRAMES`]. Returns their number.
    pub fn burst<'a>(&'a mut self, most: usize, burst: &mut [&'a [u8]; MAX_BURST_FRAMES]) -> usize {
        if self.next == self.frames.len() {
            (self.next, self.round) = (0, self.round.wrapping_add(1));
        }
        let end = (self.next + most.min(MAX_BURST_FRAMES)).min(self.frames.len());
        let frames = &self.frames[self.next..end];
        if self.round > 0 {
            let changed = (self.round ^ self.round.wrapping_sub(1)).to_be_bytes();
            frames.iter().for_each(|place| change_addresses(&mut self.octets[place.clone()], changed));
        }
        burst.iter_mut().zip(frames).for_each(|(slot, place)| *slot = &self.octets[place.clone()]);
        self.next = end;
        frames.len()
    }
}

/// Changes the same two octets of both addresses, so that both directions remain one flow. Leaves the
/// checksums as they are; no receiver here verifies them.
fn change_addresses(frame: &mut [u8], changed: [u8; 2]) {
    let offsets = match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, ..] => [27, 31],
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] => [26, 42],
        _ => return,
    };
    for offset in offsets {
        if let Some(octets) = frame.get_mut(offset..offset + 2) {
            octets.iter_mut().zip(changed).for_each(|(octet, changed)| *octet ^= changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_have_other_addresses_and_the_same_frames() {
        let mut traffic = Traffic::load("synth:mix,flows=20,packets=1000").unwrap();
        let mut rounds: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
        for round in &mut rounds {
            while round.len() < 1000 {
                let mut burst = [&[][..]; MAX_BURST_FRAMES];
                let count = traffic.burst(37, &mut burst);
                assert!((1..=37).contains(&count));
                round.extend(burst[..count].iter().map(|frame| frame.to_vec()));
            }
            assert_eq!(round.len(), 1000);
        }
        // Ports, lengths and the other octets of the addresses stay the same.
        for (number, frame) in rounds[0].iter().enumerate() {
            let lengths = rounds.iter().map(|round| round[number].len());
            assert!(lengths.min() == Some(frame.len()) && rounds[3][number].len() == frame.len());
            assert_ne!(rounds[1][number], rounds[2][number]);
            let mut again = rounds[3][number].clone();
            change_addresses(&mut again, 3_u16.to_be_bytes());
            assert_eq!(&again, frame, "frame {number}");
        }
    }
}
