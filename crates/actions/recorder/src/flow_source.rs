//! The frames of the flows of a search, each once where several recorders have it.
//!
//! ```text
//! Search -> frames of all inputs by time -> those of the flows -> without the copies of another input
//! ```
//! Two recorders of a probe may record the same packet, each in its folder. A frame is a copy of another one if both have
//! the same time, interface, lengths and octets, and are of different inputs: an input that has a frame twice keeps both.
//! Frames that one of the recorders has cut are no copies. Memory: about 100 octets for each of the last [`MAX_KNOWN`]
//! frames at most, and nothing with one input.

use crate::plan::Search;
use crate::recording::Opener;
use crate::select::{FrameSelector, SelectedRecords};
use ahash::{AHashMap, RandomState};
use weir_capture::{Burst, Error, Frame, Losses, Progress, Source};

/// Frames whose copies are known: copies have the same time, and frames come in the order of their times.
const MAX_KNOWN: usize = 1 << 14;

/// What copies have in common: time, octets on the wire, link type, the place of the name of the interface, and a hash of
/// the octets with a secret of the run.
type FrameName = (u64, u32, u16, usize, u64);

/// A source of the frames of the flows that are searched. A burst may be empty, so that a reader can look at the time.
pub struct FlowSource {
    source: Box<dyn Source + Send>,
    selector: FrameSelector,
    copies: Option<Copies>,
    /// A copy of the frames of a burst; as in `weir_capture::merge`, a number is the end of the octets of a frame.
    octets: Vec<u8>,
    frames: Vec<(Frame<'static>, usize)>,
}

/// Which frames were there.
#[derive(Default)]
struct Copies {
    hasher: RandomState,
    /// Names of interfaces.
    names: Vec<String>,
    /// How often each frame is in the input that has it most often.
    most: AHashMap<FrameName, u32>,
    /// How often it is there of each interface. Those of different inputs have different numbers.
    of_interface: AHashMap<(FrameName, u32), u32>,
    left_out: u64,
}

impl FlowSource {
    /// The frames of a search that needs no records. `open` opens whole captures.
    pub fn new(search: &Search, open: &Opener, leaves_out_copies: bool) -> Self {
        Self {
            source: search.source(open),
            selector: FrameSelector::new(&search.query, SelectedRecords::default()),
            copies: leaves_out_copies.then(Copies::default),
            octets: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Copies that were left out.
    pub fn copies_left_out(&self) -> u64 {
        self.copies.as_ref().map_or(0, |copies| copies.left_out)
    }
}

impl Copies {
    /// Whether a frame with these octets is a copy of one of another input. `names` are those of the interfaces.
    fn is_copy(&mut self, frame: &Frame<'_>, octets: &[u8], names: &[(u32, String)]) -> bool {
        let name = names.iter().find(|(number, _)| *number == frame.interface).map_or("", |(_, name)| name);
        let at = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        if self.most.len() >= MAX_KNOWN {
            self.forget(frame.time_ns);
        }
        let name = (frame.time_ns, frame.wire_bytes, frame.link_type, at, self.hasher.hash_one(octets));
        let times = self.of_interface.entry((name, frame.interface)).or_default();
        let most = self.most.entry(name).or_default();
        *times += 1;
        let is_copy = *times <= *most;
        *most = (*most).max(*times);
        self.left_out += u64::from(is_copy);
        is_copy
    }
}

impl Copies {
    /// Forgets frames before this time, whose copies were there; if too many are left, all.
    fn forget(&mut self, time_ns: u64) {
        self.most.retain(|name, _| name.0 >= time_ns);
        if self.most.len() > MAX_KNOWN / 2 {
            self.most.clear();
        }
        let most = &self.most;
        self.of_interface.retain(|(name, _), _| most.contains_key(name));
    }
}

impl Source for FlowSource {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        self.octets.clear();
        self.frames.clear();
        let Some(read) = self.source.burst()? else { return Ok(false) };
        for frame in &read {
            if self.selector.selects(frame) {
                self.octets.extend_from_slice(frame.bytes);
                self.frames.push((Frame { bytes: &[], ..*frame }, self.octets.len()));
            }
        }
        drop(read);
        let names = match self.copies.is_some() && !self.frames.is_empty() {
            true => self.source.interfaces(),
            false => Vec::new(),
        };
        let mut start = 0;
        for (frame, end) in &self.frames {
            let octets = &self.octets[start..*end];
            start = *end;
            if self.copies.as_mut().is_none_or(|copies| !copies.is_copy(frame, octets, &names)) {
                burst.push(Frame { bytes: octets, ..*frame });
            }
        }
        Ok(true)
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.source.interfaces()
    }

    fn recorded_losses(&self) -> Losses {
        self.source.recorded_losses()
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_of_another_input_and_as_often_as_there() {
        let mut copies = Copies::default();
        let names = [(1, "eth0".to_owned()), (2, "eth0".to_owned()), (3, "eth1".to_owned())];
        let mut is_copy = |time_ns, octets: &[u8], interface| {
            let wire_bytes = octets.len() as u32;
            let frame = Frame { bytes: &[], wire_bytes, time_ns, interface, link_type: 1, time_assumed: false };
            copies.is_copy(&frame, octets, &names)
        };
        // Twice in one input, and twice in the other one.
        assert_eq!([is_copy(1, b"a", 1), is_copy(1, b"a", 1)], [false, false]);
        assert_eq!([is_copy(1, b"a", 2), is_copy(1, b"a", 2), is_copy(1, b"a", 2)], [true, true, false]);
        assert!(is_copy(1, b"a", 1));
        // Another time, other octets, and another interface.
        assert!(!is_copy(2, b"a", 2) && !is_copy(1, b"b", 2) && !is_copy(1, b"a", 3));
        assert_eq!(copies.left_out, 3);
    }

    #[test]
    fn no_copy_is_missed_where_frames_are_forgotten() {
        let mut copies = Copies::default();
        let names = [(1, "eth0".to_owned()), (2, "eth0".to_owned())];
        let frames = 3 * MAX_KNOWN as u64;
        for time_ns in 0..frames {
            for interface in [1, 2] {
                let frame = Frame { bytes: &[], wire_bytes: 1, time_ns, interface, link_type: 1, time_assumed: false };
                assert_eq!(copies.is_copy(&frame, b"a", &names), interface == 2, "{time_ns}");
                // The limit is reached between a frame and its copy, too.
                let other = Frame { wire_bytes: 2, ..frame };
                if time_ns % 3 == 0 && interface == 1 {
                    copies.is_copy(&other, b"b", &names);
                }
            }
            assert!(copies.most.len() <= MAX_KNOWN && copies.of_interface.len() <= 2 * MAX_KNOWN);
        }
        assert_eq!(copies.left_out, frames);
    }
}
