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
    /// Takes a frame, which may be cut. Copies it at most once, and never waits: a frame that cannot
    /// be taken is counted as dropped.
    fn send(&mut self, frame: &Frame<'_>);

    /// The end of a burst, or nothing has come for 100 ms: hands over what was gathered.
    fn flush(&mut self);

    /// What became of the frames so far.
    fn counters(&self) -> OutputCounters;

    /// Hands over the rest, and waits for it no longer than some seconds.
    fn finish(&mut self) {
        self.flush();
    }
}
