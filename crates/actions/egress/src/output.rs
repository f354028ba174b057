//! What every output offers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_capture::Frame;
use weir_ledger::{OutputCounters, OutputDropReason, PacketTotals, Timing};

/// What a pipe or a file does with a packet for which its queue has no room.
#[derive(Clone, Debug)]
pub enum WhenFull {
    /// Drops it, as live traffic needs.
    Drop,
    /// Waits for the reader, as long as there is one and until this flag is set: for captures.
    Wait(Arc<AtomicBool>),
}

impl WhenFull {
    /// Whether to wait now.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Wait(stop) if !stop.load(Ordering::Relaxed))
    }
}

/// How the outputs of a run wait.
#[derive(Clone, Debug)]
pub struct OutputSettings {
    /// What pipes and files do with packets for which they have no room.
    pub when_full: WhenFull,
    /// From a failed attempt to use an output to the next one.
    pub retry: Duration,
    /// At the end of a run, the reader of a pipe gets this time for the packets that wait.
    pub finish_timeout: Duration,
}

impl OutputSettings {
    /// The part of the times of a run that concerns outputs.
    pub fn new(when_full: WhenFull, timing: &Timing) -> Self {
        Self { when_full, retry: timing.output_retry, finish_timeout: timing.output_finish }
    }
}

impl Default for OutputSettings {
    fn default() -> Self {
        Self::new(WhenFull::Drop, &Timing::default())
    }
}

/// What is known about an interface that frames come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceReport {
    /// Its number in the frames.
    pub number: u32,
    /// Empty if it has none.
    pub name: String,
    /// What one pipeline has received from it so far; `None` for captures.
    pub received: Option<ReceivedPackets>,
}

/// Packets of an interface since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedPackets {
    /// Received, without those that the NIC has lost.
    pub received: u64,
    /// Lost by the NIC or its driver.
    pub dropped_nic: u64,
    /// Lost by the kernel or by Weir after that.
    pub dropped_system: u64,
}

/// Packets that an output did not take, by number of the reason.
#[derive(Default)]
pub(crate) struct Refused([PacketTotals; OutputDropReason::ALL.len()]);

impl Refused {
    #[inline]
    pub fn add(&mut self, reason: OutputDropReason, octets: usize) {
        self.0[reason as usize].add(octets);
    }

    pub fn add_to(&self, counters: &mut OutputCounters) {
        for (&reason, &packets) in OutputDropReason::ALL.iter().zip(&self.0).filter(|(_, packets)| packets.packets > 0)
        {
            counters.add_dropped(reason, packets);
        }
    }
}

/// Where packets go. Each pipeline has its own.
pub trait PacketOutput: Send {
    /// Takes the frames of a burst, any number in their order; frames may be cut. Copies each at most
    /// once, and never waits, except with [`WhenFull::Wait`]: a frame that cannot be taken is counted
    /// as dropped. The first call, which may have no frames, starts the thread of the output, if it
    /// has one.
    fn send(&mut self, frames: &[Frame<'_>]);

    /// Takes what is known about an interface: right after the burst with its first frame, and for live
    /// traffic from time to time and at the end.
    fn describe(&mut self, _: &InterfaceReport) {}

    /// Called several times a second while there are few packets: forwards what `send` has kept, if it
    /// can be taken. Never waits.
    fn flush(&mut self) {}

    /// The outcome of the frames so far. Allocates, so once per report rather than per burst.
    fn counters(&self) -> OutputCounters;

    /// Forwards the rest, and waits for it at most some seconds. Nothing is waiting then.
    fn finish(&mut self) {}
}
