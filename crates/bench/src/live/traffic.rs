//! What is sent: frames in memory, again and again, each time around between other hosts.

use crate::Error;
use std::path::Path;
use weir_capture::{BURST, Source};

/// The frames if nobody names others: some 600 conversations, most of them from SYN to FIN.
pub const MIX: &str = "synth:mix,flows=200,packets=32k";
/// Longest frame that the wire carries, octets without FCS.
const LONGEST: usize = 1514;
/// Octets that are kept of all frames at most: more of a large capture is not sent.
const ROOM: usize = 512 << 20;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Frames, and how often they went around.
pub struct Traffic {
    octets: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
    /// The frame that comes next.
    next: usize,
    round: u16,
    /// What they are, in words.
    pub about: String,
}

impl Traffic {
    /// Frames of a capture, or of `synth:...`.
    pub fn load(source: &str) -> Result<Self, Error> {
        let mut frames: Box<dyn Source> = match source.strip_prefix("synth:") {
            Some(specification) => Box::new(weir_trafficgen::TrafficGenerator::new(specification)?),
            None => weir_capture::open(Path::new(source))?,
        };
        let (mut octets, mut ends, mut others) = (Vec::new(), Vec::new(), 0_u64);
        while octets.len() < ROOM
            && let Some(burst) = frames.burst()?
        {
            for frame in &burst {
                if frame.link_type == ETHERNET && (14..=LONGEST).contains(&frame.bytes.len()) {
                    octets.extend_from_slice(frame.bytes);
                    ends.push(octets.len());
                } else {
                    others += 1;
                }
            }
        }
        if ends.is_empty() {
            return Err(Error::Live(format!(
                "{source}: no Ethernet frame of 14 to {LONGEST} octets, which could be sent"
            )));
        }
        let mean = octets.len() / ends.len();
        let mut about = format!("{} frames of {source}, {mean} octets on average, sent again and again", ends.len());
        about += ", each time between other hosts (two octets of their addresses count up)";
        if others > 0 {
            about += &format!("; {others} that are not Ethernet or too long are left out");
        }
        Ok(Self { octets, ends, next: 0, round: 0, about })
    }

    /// Octets of a frame, on average.
    pub fn mean_octets(&self) -> f64 {
        self.octets.len() as f64 / self.ends.len() as f64
    }

    /// The first frames, as they were loaded if nothing was sent yet.
    pub fn first(&self, most: usize) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len().min(most)).map(|number| &self.octets[self.start(number)..self.ends[number]])
    }

    fn start(&self, number: usize) -> usize {
        number.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The frames that come next, so many at most, and at most [`BURST`].
    pub fn burst<'a>(&'a mut self, most: usize, burst: &mut [&'a [u8]; BURST]) -> usize {
        if self.next == self.ends.len() {
            (self.next, self.round) = (0, self.round.wrapping_add(1));
        }
        let numbers = self.next..(self.next + most.min(BURST)).min(self.ends.len());
        let (changed, begin) = (self.round ^ self.round.wrapping_sub(1), self.start(self.next));
        for number in numbers.clone().filter(|_| self.round > 0) {
            let start = self.start(number);
            elsewhere(&mut self.octets[start..self.ends[number]], changed.to_be_bytes());
        }
        let (mut start, count) = (begin, numbers.len());
        for (place, number) in burst.iter_mut().zip(numbers.clone()) {
            *place = &self.octets[start..self.ends[number]];
            start = self.ends[number];
        }
        self.next = numbers.end;
        count
    }
}

/// Changes the same two octets of both addresses, so that both directions are still one flow. Checksums, which nobody looks at, are
/// those from before.
fn elsewhere(frame: &mut [u8], changed: [u8; 2]) {
    let places = match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, ..] => [27, 31],
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] => [26, 42],
        _ => return,
    };
    for place in places {
        if let Some(octets) = frame.get_mut(place..place + 2) {
            octets.iter_mut().zip(changed).for_each(|(octet, changed)| *octet ^= changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_again_with_other_addresses_and_as_many() {
        let mut traffic = Traffic::load("synth:mix,flows=20,packets=1000").unwrap();
        let mut rounds: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
        for round in &mut rounds {
            while round.len() < 1000 {
                let mut burst = [&[][..]; BURST];
                let count = traffic.burst(37, &mut burst);
                assert!((1..=37).contains(&count));
                round.extend(burst[..count].iter().map(|frame| frame.to_vec()));
            }
            assert_eq!(round.len(), 1000);
        }
        // The first two octets of an IPv4 address and its last stay, as do ports and lengths.
        for (number, frame) in rounds[0].iter().enumerate() {
            let lengths = rounds.iter().map(|round| round[number].len());
            assert!(lengths.min() == Some(frame.len()) && rounds[3][number].len() == frame.len());
            assert_ne!(rounds[1][number], rounds[2][number]);
            let mut again = rounds[3][number].clone();
            elsewhere(&mut again, 3_u16.to_be_bytes());
            assert_eq!(&again, frame, "frame {number}");
        }
    }
}
