//! Several captures as one, in the order of time.
//!
//! ```text
//! fetch: every input that has run dry hands over one burst, which is copied
//! burst: take the oldest of the inputs' next frames, until a burst is full or an input has run dry
//! ```
//! Always true: the next frame is the oldest of all inputs' next frames, of equal ones that of the input named
//! first. Within an input the order stays as it is, even where its time goes back: nothing is sorted.
//! Cost: a copy of each frame, and a heap of as many places as there are inputs. A single input is handed through.

use crate::{BURST, Burst, Error, Frame, Progress, Source};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Joins inputs into one stream in the order of time. A single input is handed through as it is.
///
/// Interfaces of different inputs stay distinct: they are numbered from 0 in the order in which their first frames
/// appear in the joined stream. Damage in one input is told once; the others go on, and so does that one where it can.
pub fn merge(mut inputs: Vec<Box<dyn Source + Send>>) -> Box<dyn Source + Send> {
    match inputs.pop() {
        Some(only) if inputs.is_empty() => only,
        last => {
            inputs.extend(last);
            let dry = (0..inputs.len()).rev().collect();
            let inputs = inputs.into_iter().map(Copied::new).collect();
            Box::new(Merge { inputs, dry, heads: BinaryHeap::new(), numbers: HashMap::new() })
        }
    }
}

/// Inputs, and which of them comes next.
struct Merge {
    inputs: Vec<Copied>,
    /// Inputs whose next frame is not known, so that nothing may be handed out before they are asked; the one
    /// to be asked first is last.
    dry: Vec<usize>,
    /// Time of the next frame of every other input that has not ended, oldest on top.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Numbers of interfaces by input and number there.
    numbers: HashMap<(usize, u32), u32>,
}

/// An input with a copy of its last burst.
struct Copied {
    source: Box<dyn Source + Send>,
    bytes: Vec<u8>,
    /// The burst, in which `bytes` of a frame are still empty, with where they end in the copy.
    frames: Vec<(Frame<'static>, usize)>,
    /// The frame that comes next.
    next: usize,
    /// The interface seen last, in the input and in the joined stream.
    interface: Option<(u32, u32)>,
}

impl Copied {
    fn new(source: Box<dyn Source + Send>) -> Self {
        Self { source, bytes: Vec::new(), frames: Vec::with_capacity(BURST), next: 0, interface: None }
    }

    /// Copies the next burst. `false` at the end.
    fn fetch(&mut self) -> Result<bool, Error> {
        self.bytes.clear();
        self.frames.clear();
        self.next = 0;
        let Some(burst) = self.source.burst()? else { return Ok(false) };
        for frame in &burst {
            self.bytes.extend_from_slice(frame.bytes);
            self.frames.push((Frame { bytes: &[], ..*frame }, self.bytes.len()));
        }
        Ok(true)
    }

    /// Time of the next frame, if that is known.
    fn head(&self) -> Option<u64> {
        self.frames.get(self.next).map(|(frame, _)| frame.time_ns)
    }
}

impl Source for Merge {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        while let Some(&input) = self.dry.last() {
            // After an error the input stays dry and is asked again next time.
            if self.inputs[input].fetch()? {
                self.heads.extend(self.inputs[input].head().map(|time_ns| Reverse((time_ns, input))));
            }
            self.dry.pop();
        }
        // What each input hands out in this burst, in order; the octets are looked up at the end, when
        // nothing is written any more.
        let mut chosen = arrayvec::ArrayVec::<(usize, usize, u32), BURST>::new();
        while !chosen.is_full()
            && self.dry.is_empty()
            && let Some(mut top) = self.heads.peek_mut()
        {
            let Reverse((_, number)) = *top;
            let input = &mut self.inputs[number];
            let (frame, _) = input.frames[input.next];
            let interface = match input.interface {
                Some((there, here)) if there == frame.interface => here,
                _ => {
                    let free = self.numbers.len() as u32;
                    *self.numbers.entry((number, frame.interface)).or_insert(free)
                }
            };
            input.interface = Some((frame.interface, interface));
            chosen.push((number, input.next, interface));
            input.next += 1;
            match input.head() {
                Some(time_ns) => *top = Reverse((time_ns, number)),
                None => {
                    std::collections::binary_heap::PeekMut::pop(top);
                    self.dry.push(number);
                }
            }
        }
        burst.extend(chosen.iter().map(|&(number, at, interface)| {
            let input = &self.inputs[number];
            let start = at.checked_sub(1).map_or(0, |before| input.frames[before].1);
            let (frame, end) = &input.frames[at];
            Frame { bytes: &input.bytes[start..*end], interface, ..*frame }
        }));
        Ok(!burst.is_empty())
    }

    fn progress(&self) -> Progress {
        let each = self.inputs.iter().map(|input| input.source.progress());
        Progress {
            done_bytes: each.clone().map(|progress| progress.done_bytes).sum(),
            total_bytes: each.map(|progress| progress.total_bytes).sum(),
        }
    }
}
