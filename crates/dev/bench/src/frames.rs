//! Generated traffic in memory, iterated without copying: frames, and beside them their times and
//! lengths.
//!
//! Times and lengths are stored apart, like a NIC's descriptors, so that the position of a frame is
//! known before the previous frame has arrived from memory. (In a capture file it is not: an iteration
//! over large frames waits for each.)

use crate::error::Error;
use crate::mapped_array::MappedArray;
use weir_capture::{Burst, FIRST_INTERFACE, Frame, MAX_BURST_FRAMES, Progress, Source};
use weir_flow::prefetch;
use weir_trafficgen::TrafficGenerator;

/// Upper limit for the bytes of one burst.
const MAX_BURST_BYTES: usize = 1 << 17;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Distance of the header prefetch in frames, as NIC drivers do it (or the NIC itself, into the cache).
const PREFETCH_DISTANCE: usize = 16;

/// Captured length of a frame, bytes.
#[inline(always)]
fn captured(descriptor: &[u64; 2]) -> usize {
    (descriptor[1] >> 32) as usize
}

/// Frames of one round, and the generator of the next ones.
pub struct Frames {
    octets: MappedArray<u8>,
    /// Time, ns; then captured length (upper half) and length on the wire (lower half), bytes.
    descriptors: MappedArray<[u64; 2]>,
    /// Number of frames.
    pub packets: u64,
    /// Sum of their lengths on the wire, bytes.
    pub wire_bytes: u64,
    /// Capture time that they span, including the gap to the next round, ns.
    pub span_ns: u64,
    /// Offset of all times, ns.
    shift_ns: u64,
    source: TrafficGenerator,
    refilled: bool,
}

impl Frames {
    /// Loads the first `packets` frames of a synthetic load without an end of its own. Each further round
    /// repeats the same frames at later times.
    pub fn new(specification: &str, packets: usize) -> Result<Self, Error> {
        let specification = format!("{specification},packets=100G");
        let source = TrafficGenerator::new(&specification)?;
        // The first frames show the maximum length.
        let (mut trial, mut longest) = (TrafficGenerator::new(&specification)?, 0);
        for _ in 0..64 {
            let burst = trial.burst()?.unwrap_or_default();
            longest = burst.iter().map(|frame| frame.bytes.len()).fold(longest, usize::max);
        }
        let mut frames = Self {
            octets: MappedArray::new(packets * longest + MAX_BURST_BYTES)?,
            descriptors: MappedArray::new(packets.next_multiple_of(MAX_BURST_FRAMES))?,
            packets: 0,
            wire_bytes: 0,
            span_ns: 0,
            shift_ns: 0,
            source,
            refilled: false,
        };
        frames.fill()?;
        Ok(frames)
    }

    /// As [`Frames::new`], but each further round holds the next frames of the load.
    pub fn continuing(specification: &str, packets: usize) -> Result<Self, Error> {
        Ok(Self { refilled: true, ..Self::new(specification, packets)? })
    }

    fn fill(&mut self) -> Result<(), Error> {
        (self.packets, self.wire_bytes) = (0, 0);
        let mut rest = &mut self.octets[..];
        for descriptors in self.descriptors.chunks_exact_mut(MAX_BURST_FRAMES) {
            if rest.len() < MAX_BURST_BYTES {
                break;
            }
            let Some(burst) = self.source.burst()? else { break };
            for (descriptor, frame) in descriptors.iter_mut().zip(&burst) {
                let (octets, behind) = rest.split_at_mut(frame.bytes.len());
                octets.copy_from_slice(frame.bytes);
                rest = behind;
                *descriptor = [frame.time_ns, (frame.bytes.len() as u64) << 32 | u64::from(frame.wire_bytes)];
                self.wire_bytes += u64::from(frame.wire_bytes);
            }
            self.packets += burst.len() as u64;
        }
        let (first, last) = (self.descriptors[0][0], self.descriptors[self.packets as usize - 1][0]);
        self.span_ns = (last - first) * (self.packets + 1) / self.packets + 1;
        Ok(())
    }

    /// Advances to the next round.
    pub fn next_round(&mut self) -> Result<(), Error> {
        if self.refilled {
            return self.fill();
        }
        self.shift_ns += self.span_ns;
        Ok(())
    }

    /// Time of the frame with this index, or of the last one if there are fewer.
    pub fn time_ns(&self, index: u64) -> u64 {
        self.descriptors[index.min(self.packets - 1) as usize][0] + self.shift_ns
    }

    /// All frames of a round.
    #[inline(always)]
    pub fn iter(&self) -> FrameIter<'_> {
        let descriptors = &self.descriptors[..self.packets as usize];
        let (prefetched, ahead) = descriptors.split_at(descriptors.len().min(PREFETCH_DISTANCE));
        let prefetched: usize = prefetched.iter().map(captured).sum();
        let octets = &self.octets[..];
        FrameIter {
            descriptors: descriptors.iter(),
            octets,
            ahead: (ahead.iter(), &octets[prefetched..]),
            shift_ns: self.shift_ns,
        }
    }
}

/// Iterator over frames, and a source for a pipeline.
pub struct FrameIter<'a> {
    descriptors: std::slice::Iter<'a, [u64; 2]>,
    octets: &'a [u8],
    /// The same, [`PREFETCH_DISTANCE`] frames ahead.
    ahead: (std::slice::Iter<'a, [u64; 2]>, &'a [u8]),
    shift_ns: u64,
}

/// The next frames as a source of its own.
pub struct Chunk<'iter, 'frames> {
    /// Where the frames come from.
    pub frames: &'iter mut FrameIter<'frames>,
    /// Number of frames.
    pub packets: u64,
    /// The time of all of them, instead of their own.
    pub time_ns: Option<u64>,
    /// To this, the frames that are read and their octets on the wire are added.
    pub read: &'iter mut [u64; 2],
}

impl Source for Chunk<'_, '_> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, weir_capture::Error> {
        let packets = self.packets.min(MAX_BURST_FRAMES as u64);
        self.packets -= packets;
        for frame in self.frames.take(packets as usize) {
            self.read[0] += 1;
            self.read[1] += u64::from(frame.wire_bytes);
            burst.push(Frame { time_ns: self.time_ns.unwrap_or(frame.time_ns), ..frame });
        }
        Ok(!burst.is_empty())
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

impl<'a> Iterator for FrameIter<'a> {
    type Item = Frame<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame<'a>> {
        let descriptor = self.descriptors.next()?;
        let &[time_ns, lengths] = descriptor;
        let (bytes, octets) = self.octets.split_at_checked(captured(descriptor))?;
        self.octets = octets;
        if let Some(descriptor) = self.ahead.0.next()
            && let Some((bytes, octets)) = self.ahead.1.split_at_checked(captured(descriptor))
        {
            self.ahead.1 = octets;
            // Headers can span two cache lines.
            [bytes.first(), bytes.get(63)].into_iter().flatten().for_each(prefetch);
        }
        Some(Frame {
            bytes,
            time_ns: time_ns + self.shift_ns,
            wire_bytes: lengths as u32,
            link_type: ETHERNET,
            time_assumed: false,
            interface: FIRST_INTERFACE,
        })
    }
}

impl Source for FrameIter<'_> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, weir_capture::Error> {
        burst.extend(std::iter::from_fn(|| self.next()).take(MAX_BURST_FRAMES));
        Ok(!burst.is_empty())
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_returns_the_generated_frames() {
        for specification in ["velan,flows=10,new=1M", "mix,flows=50,snap=96", "mix,flows=50"] {
            let mut generated = TrafficGenerator::new(&format!("{specification},packets=100G")).unwrap();
            let mut frames = Frames::continuing(specification, 640).unwrap();
            for _ in 0..3 {
                let mut iter = frames.iter();
                assert!(frames.packets >= 64);
                for _ in 0..frames.packets / 64 {
                    for frame in &generated.burst().unwrap().unwrap() {
                        assert_eq!(iter.next().unwrap(), *frame);
                    }
                }
                assert!(iter.next().is_none());
                frames.next_round().unwrap();
            }
        }
    }

    #[test]
    fn repeated_frames_have_later_times() {
        let mut frames = Frames::new("velan,flows=10,rate=10M", 1280).unwrap();
        let last = frames.iter().last().unwrap().time_ns;
        assert_eq!(frames.span_ns, 128_000);
        frames.next_round().unwrap();
        let first = frames.iter().next().unwrap().time_ns;
        assert!((last + 1..last + 200).contains(&first), "{last} {first}");
    }
}
