//! Packets out: what a pipeline hands on to interfaces, pipes and folders.
//!
//! Input: frames of a burst, cut already. Output: the same frames at an interface, in a pipe or in a
//! file. Invariant: each frame is counted as sent or as dropped with a reason.
//! Not done here: which packets go where (rules).
#![forbid(unsafe_code)]

use weir_capture::Frame;
use weir_ledger::OutputCounters;

/// Where packets go. Each pipeline has its own.
pub trait PacketOutput: Send {
    /// Takes the frames of a burst, any number in their order; frames may be cut. Copies each at most
    /// once, and never waits: a frame that cannot be taken is counted as dropped.
    fn send(&mut self, frames: &[Frame<'_>]);

    /// What became of the frames so far. Allocates, so once per report rather than per burst.
    fn counters(&self) -> OutputCounters;

    /// Hands over the rest, and waits for it no longer than some seconds. Nothing is waiting then.
    fn finish(&mut self) {}
}
