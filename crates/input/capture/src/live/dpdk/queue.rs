//! One receive queue of a port as a source.
//!
//! ```text
//! packets available -> deliver; none -> spin briefly, then sleep an eighth of the idle time, at most 1 ms
//! ```
//! Budget: one call into DPDK and one clock query per burst; per packet only the frame is built.
//! After a stop, a queue delivers at most what its descriptors hold, and ends.

use super::driver::{PortCounts, Receiver};
use super::settings::Settings;
use crate::clock;
use crate::error::Error;
use crate::link_type::ETHERNET;
use crate::source::{Burst, FIRST_INTERFACE, Frame, LiveSource, Losses, POLL_TIMEOUT, Progress, Source};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Idle time during which a queue is polled without a sleep.
const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep between two polls; an idle link then takes a few percent of a core.
const SLEEP: Duration = Duration::from_millis(1);

/// Losses of a port when its first queue was stopped, shared by its queues. Drops after that do not
/// count as losses.
pub(super) type LossesAtStop = Arc<Mutex<Option<Losses>>>;

pub(crate) struct Queue {
    /// DPDK's name of the device.
    name: String,
    receiver: Receiver,
    pub(super) losses_at_stop: LossesAtStop,
    /// Snap length in bytes.
    snap: usize,
    /// Largest number of packets that wait in the queue.
    descriptors: usize,
    /// Time of the first empty poll since the last packet.
    idle_since: Option<Instant>,
    /// Packets that it still delivers after a stop.
    left: Option<usize>,
    /// Losses reported so far; they never decrease.
    reported: Losses,
    done_bytes: u64,
    poll_timeout: Duration,
}

impl Queue {
    pub(super) fn new(
        settings: &Settings,
        receiver: Receiver,
        losses_at_stop: LossesAtStop,
        descriptors: usize,
    ) -> Self {
        Self {
            name: settings.device.name().into(),
            receiver,
            losses_at_stop,
            snap: settings.snap,
            descriptors,
            idle_since: None,
            left: None,
            reported: Losses::default(),
            done_bytes: 0,
            poll_timeout: POLL_TIMEOUT,
        }
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> PortCounts {
        self.receiver.port().counts().expect("a port of the tests can count")
    }

    /// Receives packets. Returns false if none arrived within the poll timeout.
    fn wait(&mut self) -> bool {
        if self.receiver.receive() > 0 {
            self.idle_since = None;
            return true;
        }
        let started = Instant::now();
        let idle_since = *self.idle_since.get_or_insert(started);
        loop {
            let now = Instant::now();
            if now - started >= self.poll_timeout {
                return false;
            }
            let idle = now - idle_since;
            if idle < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep((idle / 8).min(SLEEP));
            }
            if self.receiver.receive() > 0 {
                self.idle_since = None;
                return true;
            }
        }
    }

    fn interface(&self) -> u32 {
        FIRST_INTERFACE + self.receiver.port().number()
    }

    /// Returns the losses of the port; none if it has no counters.
    fn count(&self) -> Losses {
        self.receiver.port().counts().map(losses).unwrap_or_default()
    }
}

/// Splits the counters of a port: the NIC loses packets without a free descriptor and damaged ones,
/// Weir those without a buffer. (Most drivers that find no buffer leave the packet in the ring, and
/// the NIC misses a later one. There are more buffers than descriptors, so this does not happen; if
/// it does, a loss is counted twice rather than not at all.)
fn losses(counts: PortCounts) -> Losses {
    Losses { nic: counts.missed + counts.damaged, kernel: 0, queue: counts.without_memory }
}

impl Source for Queue {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if let Some(left) = self.left {
            let received = if left == 0 { 0 } else { self.receiver.receive() };
            if received == 0 {
                self.left = Some(0);
                return Ok(false);
            }
            self.left = Some(left.saturating_sub(received));
        } else if !self.wait() {
            return Ok(true);
        }
        let interface = self.interface();
        let (snap, mut done_bytes) = (self.snap, 0);
        self.receiver.packets(clock::now_ns(), |packet| {
            done_bytes += packet.bytes.len() as u64;
            burst.push(Frame {
                bytes: &packet.bytes[..packet.bytes.len().min(snap)],
                time_ns: packet.time_ns,
                wire_bytes: packet.wire_bytes,
                link_type: ETHERNET,
                time_assumed: false,
                interface,
            });
        });
        self.done_bytes += done_bytes;
        Ok(true)
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        vec![(self.interface(), self.name.clone())]
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.done_bytes, total_bytes: None }
    }
}

impl LiveSource for Queue {
    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.poll_timeout = timeout;
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn wait_for_interface(&mut self) -> bool {
        false
    }

    /// The first queue reports the losses of the whole port.
    fn query_losses(&mut self) -> Losses {
        if self.receiver.queue() != 0 {
            return Losses::default();
        }
        let losses_at_stop = *self.losses_at_stop.lock();
        let losses = losses_at_stop.unwrap_or_else(|| self.count());
        self.reported.nic = self.reported.nic.max(losses.nic);
        self.reported.queue = self.reported.queue.max(losses.queue);
        self.reported
    }

    fn stop(&mut self) {
        if self.left.is_none() {
            self.left = Some(self.descriptors);
            let losses = self.count();
            self.losses_at_stop.lock().get_or_insert(losses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nic_loses_missed_and_damaged_packets_and_the_ring_those_without_buffer() {
        let counts = PortCounts { received: 1000, missed: 20, damaged: 3, without_memory: 4 };
        assert_eq!(losses(counts), Losses { nic: 23, kernel: 0, queue: 4 });
    }
}
