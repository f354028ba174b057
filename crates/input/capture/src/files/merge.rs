//! Merges several captures in time order.
//!
//! ```text
//! fetch: copy one burst of every input whose frames are used up
//! fill:  take the oldest of the inputs' next frames, until the burst is full or an input is used up
//! ```
//! Invariants: the next frame is the oldest of all inputs' next frames; of frames with equal times,
//! that of the input named first. Within an input the order does not change, even where its time
//! goes back: nothing is sorted. Cost: a copy of each frame, and a heap with one entry per input. A
//! single input is not copied.

use crate::error::Error;
use crate::source::{Burst, FIRST_INTERFACE, Frame, Losses, MAX_BURST_FRAMES, Progress, Source};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Merges inputs into one source in time order. A single input is returned as it is.
///
/// Interfaces of different inputs stay distinct: they are numbered from 0 in the order of their
/// first frames in the merged source. Damage in one input is reported once; the others continue,
/// and so does that one where possible.
pub fn merge(mut inputs: Vec<Box<dyn Source + Send>>) -> Box<dyn Source + Send> {
    match inputs.pop() {
        Some(only) if inputs.is_empty() => only,
        last => {
            inputs.extend(last);
            let empty = (0..inputs.len()).rev().collect();
            let inputs = inputs.into_iter().map(BufferedInput::new).collect();
            Box::new(Merge { inputs, empty, heads: BinaryHeap::new(), numbers: HashMap::new() })
        }
    }
}

struct Merge {
    inputs: Vec<BufferedInput>,
    /// Inputs whose next frame is not known, so that nothing may be delivered before they are read;
    /// the next one to read is last.
    empty: Vec<usize>,
    /// Time of the next frame of every other input that has not ended, oldest on top.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Interface numbers by input and number in the input.
    numbers: HashMap<(usize, u32), u32>,
}

/// An input with a copy of its last burst.
struct BufferedInput {
    source: Box<dyn Source + Send>,
    bytes: Vec<u8>,
    /// The burst. `bytes` of a frame is empty here; the number is the end of its bytes in the copy.
    frames: Vec<(Frame<'static>, usize)>,
    next: usize,
    /// Number of the last frame's interface, in the input and in the merged source.
    interface: Option<(u32, u32)>,
}

impl BufferedInput {
    fn new(source: Box<dyn Source + Send>) -> Self {
        Self { source, bytes: Vec::new(), frames: Vec::with_capacity(MAX_BURST_FRAMES), next: 0, interface: None }
    }

    /// Copies the next burst. Returns false at the end.
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

    /// Time of the next frame, if it is known.
    fn head(&self) -> Option<u64> {
        self.frames.get(self.next).map(|(frame, _)| frame.time_ns)
    }
}

impl Source for Merge {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        while let Some(&input) = self.empty.last() {
            // After an error the input stays in the list and is read again at the next call.
            if self.inputs[input].fetch()? {
                self.heads.extend(self.inputs[input].head().map(|time_ns| Reverse((time_ns, input))));
            }
            self.empty.pop();
        }
        // Frames of this burst in order: input, index and interface. Their bytes are borrowed at
        // the end, when the inputs are not changed any more.
        let mut chosen = arrayvec::ArrayVec::<(usize, usize, u32), MAX_BURST_FRAMES>::new();
        while !chosen.is_full()
            && self.empty.is_empty()
            && let Some(mut top) = self.heads.peek_mut()
        {
            let Reverse((_, number)) = *top;
            let input = &mut self.inputs[number];
            let (frame, _) = input.frames[input.next];
            let interface = match input.interface {
                Some((original, merged)) if original == frame.interface => merged,
                _ => {
                    let free = FIRST_INTERFACE + self.numbers.len() as u32;
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
                    self.empty.push(number);
                }
            }
        }
        burst.extend(chosen.iter().map(|&(number, at, interface)| {
            let input = &self.inputs[number];
            let start = at.checked_sub(1).map_or(0, |previous| input.frames[previous].1);
            let (frame, end) = &input.frames[at];
            Frame { bytes: &input.bytes[start..*end], interface, ..*frame }
        }));
        Ok(!burst.is_empty())
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        let of_input = |(at, input): (usize, &BufferedInput)| {
            let named = input.source.interfaces().into_iter();
            named.filter_map(move |(number, name)| Some((*self.numbers.get(&(at, number))?, name)))
        };
        self.inputs.iter().enumerate().flat_map(of_input).collect()
    }

    fn recorded_losses(&self) -> Losses {
        self.inputs.iter().map(|input| input.source.recorded_losses()).fold(Losses::default(), Losses::plus)
    }

    fn progress(&self) -> Progress {
        let each = self.inputs.iter().map(|input| input.source.progress());
        Progress {
            done_bytes: each.clone().map(|progress| progress.done_bytes).sum(),
            total_bytes: each.map(|progress| progress.total_bytes).sum(),
        }
    }
}
