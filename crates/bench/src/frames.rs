//! Traffic in memory, walked without copying: frames one behind the other, and beside them their times and lengths.
//!
//! Times and lengths are kept apart, as a card's descriptors are, so that where a frame begins is known before the
//! frame before it has come from memory. (In a capture file it is not: a walk over large frames then waits for each.)

use crate::error::Error;
use crate::huge::Huge;
use weir_capture::{BURST, Burst, Frame, Progress, Source};
use weir_flow::prefetch;
use weir_trafficgen::TrafficGenerator;

/// Room that any burst of a synthetic load finds enough.
const ROOM: usize = 1 << 17;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Frames whose headers are fetched ahead, as drivers of cards do (or the card itself, into a near cache).
const AHEAD: usize = 16;

/// Captured octets of a frame.
#[inline(always)]
fn captured(head: &[u64; 2]) -> usize {
    (head[1] >> 32) as usize
}

/// Frames, and where the next ones come from.
pub struct Frames {
    octets: Huge<u8>,
    /// Time, ns; captured octets in the upper half of a word, length on the wire in the lower.
    heads: Huge<[u64; 2]>,
    /// Number of frames.
    pub packets: u64,
    /// Octets of them on the wire.
    pub wire_bytes: u64,
    /// Capture time that they span, with the gap to the next.
    span_ns: u64,
    /// Added to all times.
    shift_ns: u64,
    source: TrafficGenerator,
    refilled: bool,
}

impl Frames {
    /// The first `packets` frames of a synthetic load, which should have no end of its own. Each further round plays
    /// the same frames again, later.
    pub fn new(specification: &str, packets: usize) -> Result<Self, Error> {
        let specification = format!("{specification},packets=100G");
        let source = weir_trafficgen::TrafficGenerator::new(&specification)?;
        // The first frames tell how long they are.
        let (mut trial, mut longest) = (weir_trafficgen::TrafficGenerator::new(&specification)?, 0);
        for _ in 0..64 {
            let burst = trial.burst()?.unwrap_or_default();
            longest = burst.iter().map(|frame| frame.bytes.len()).fold(longest, usize::max);
        }
        let mut frames = Self {
            octets: Huge::new(packets * longest + ROOM)?,
            heads: Huge::new(packets.next_multiple_of(BURST))?,
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

    /// The same, but each further round has the frames that come next in the load.
    pub fn that_go_on(specification: &str, packets: usize) -> Result<Self, Error> {
        Ok(Self { refilled: true, ..Self::new(specification, packets)? })
    }

    /// Takes the next frames from the load, as far as there is room.
    fn fill(&mut self) -> Result<(), Error> {
        (self.packets, self.wire_bytes) = (0, 0);
        let mut rest = &mut self.octets[..];
        for heads in self.heads.chunks_exact_mut(BURST) {
            if rest.len() < ROOM {
                break;
            }
            let Some(burst) = self.source.burst()? else { break };
            for (head, frame) in heads.iter_mut().zip(&burst) {
                let (octets, behind) = rest.split_at_mut(frame.bytes.len());
                octets.copy_from_slice(frame.bytes);
                rest = behind;
                *head = [frame.time_ns, (frame.bytes.len() as u64) << 32 | u64::from(frame.wire_bytes)];
                self.wire_bytes += u64::from(frame.wire_bytes);
            }
            self.packets += burst.len() as u64;
        }
        let (first, last) = (self.heads[0][0], self.heads[self.packets as usize - 1][0]);
        self.span_ns = (last - first) * (self.packets + 1) / self.packets + 1;
        Ok(())
    }

    /// On to the next round.
    pub fn next_round(&mut self) -> Result<(), Error> {
        if self.refilled {
            return self.fill();
        }
        self.shift_ns += self.span_ns;
        Ok(())
    }

    /// Capture time that a round spans, ns.
    pub fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// The frames, one after the other.
    #[inline(always)]
    pub fn walk(&self) -> Walk<'_> {
        let heads = &self.heads[..self.packets as usize];
        let (near, coming) = heads.split_at(heads.len().min(AHEAD));
        let near: usize = near.iter().map(captured).sum();
        let octets = &self.octets[..];
        Walk { heads: heads.iter(), octets, coming: (coming.iter(), &octets[near..]), shift_ns: self.shift_ns }
    }

    /// The frames as a source for a pipeline.
    pub fn replay(&self) -> Replay<'_> {
        Replay(self.walk())
    }
}

/// The frames, one after the other.
#[derive(Clone)]
pub struct Walk<'a> {
    heads: std::slice::Iter<'a, [u64; 2]>,
    octets: &'a [u8],
    /// The same from [`AHEAD`] frames further on.
    coming: (std::slice::Iter<'a, [u64; 2]>, &'a [u8]),
    shift_ns: u64,
}

impl<'a> Iterator for Walk<'a> {
    type Item = Frame<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame<'a>> {
        let head = self.heads.next()?;
        let &[time_ns, lengths] = head;
        let (bytes, octets) = self.octets.split_at_checked(captured(head))?;
        self.octets = octets;
        if let Some(head) = self.coming.0.next()
            && let Some((bytes, octets)) = self.coming.1.split_at_checked(captured(head))
        {
            self.coming.1 = octets;
            // Headers may lie across two lines.
            [bytes.first(), bytes.get(63)].into_iter().flatten().for_each(prefetch);
        }
        Some(Frame {
            bytes,
            time_ns: time_ns + self.shift_ns,
            wire_bytes: lengths as u32,
            link_type: ETHERNET,
            time_clamped: false,
            interface: 0,
        })
    }
}

/// [`Walk`] a burst at a time.
pub struct Replay<'a>(Walk<'a>);

impl Source for Replay<'_> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, weir_capture::Error> {
        burst.extend(std::iter::from_fn(|| self.0.next()).take(BURST));
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
    fn what_is_walked_is_what_was_made() {
        for specification in ["velan,flows=10,new=1M", "mix,flows=50,snap=96", "mix,flows=50"] {
            let mut made = weir_trafficgen::TrafficGenerator::new(&format!("{specification},packets=100G")).unwrap();
            let mut frames = Frames::that_go_on(specification, 640).unwrap();
            for _ in 0..3 {
                let mut walk = frames.walk();
                assert!(frames.packets >= 64);
                for _ in 0..frames.packets / 64 {
                    for frame in &made.burst().unwrap().unwrap() {
                        assert_eq!(walk.next().unwrap(), *frame);
                    }
                }
                assert!(walk.next().is_none());
                frames.next_round().unwrap();
            }
        }
    }

    #[test]
    fn the_same_frames_again_are_later() {
        let mut frames = Frames::new("velan,flows=10,rate=10M", 1280).unwrap();
        let last = frames.walk().last().unwrap().time_ns;
        assert_eq!(frames.span_ns(), 128_000);
        frames.next_round().unwrap();
        let first = frames.walk().next().unwrap().time_ns;
        assert!((last + 1..last + 200).contains(&first), "{last} {first}");
    }
}
