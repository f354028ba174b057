//! One receive queue of a port as a source.
//!
//! ```text
//! packets there -> hand over; none -> spin a little, then sleep an eighth of the silence, at most 1 ms
//! ```
//! Budget: a call into DPDK per burst and a look at the clock; nothing per packet but the frame. Told to stop, a queue
//! hands over what it has, at most what its descriptors hold, and ends.

use super::driver::{self, Counts, Receiver};
use crate::{Burst, Error, Frame, LiveSource, Losses, POLL_TIMEOUT, Progress, Source};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Silence for which a queue is asked again at once.
const SPIN: Duration = Duration::from_micros(50);
/// The longest sleep between two questions: a quiet link costs some hundredths of a processor.
const SLEEP: Duration = Duration::from_millis(1);
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// What the queues of a port know together: what it had lost when the first of them was told to stop. What a card
/// drops after that, because nobody reads, is not lost: nobody wanted it.
pub(super) type AtStop = Arc<Mutex<Option<Losses>>>;

/// One queue of a port.
pub(super) struct Queue {
    receiver: Receiver,
    at_stop: AtStop,
    /// Octets of each packet to hand over at most.
    snap: usize,
    /// Packets that can be waiting in the queue.
    descriptors: usize,
    /// Since when nothing came, if nothing came at last.
    silent: Option<Instant>,
    /// Packets that it still hands over, once it was told to stop.
    left: Option<usize>,
    /// What was told of losses: they never get fewer.
    told: Losses,
    done_bytes: u64,
    poll_timeout: Duration,
}

impl Queue {
    pub(super) fn new(receiver: Receiver, at_stop: AtStop, snap: usize, descriptors: usize) -> Self {
        let told = Losses::default();
        Self {
            receiver,
            at_stop,
            snap,
            descriptors,
            silent: None,
            left: None,
            told,
            done_bytes: 0,
            poll_timeout: POLL_TIMEOUT,
        }
    }

    /// What its port counted since it was opened.
    #[cfg(test)]
    pub(super) fn counts(&self) -> Counts {
        self.receiver.port().counts().expect("a port of the tests can count")
    }

    /// Receives packets, as soon as there are some; false if none came for as long as it waits.
    fn wait(&mut self) -> bool {
        if self.receiver.receive() > 0 {
            self.silent = None;
            return true;
        }
        let asked = Instant::now();
        let silent = *self.silent.get_or_insert(asked);
        loop {
            let now = Instant::now();
            if now - asked >= self.poll_timeout {
                return false;
            }
            let silence = now - silent;
            if silence < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep((silence / 8).min(SLEEP));
            }
            if self.receiver.receive() > 0 {
                self.silent = None;
                return true;
            }
        }
    }

    /// What the port lost so far; nothing if it cannot say.
    fn count(&self) -> Losses {
        self.receiver.port().counts().map(losses).unwrap_or_default()
    }
}

/// Who lost what: the card, for which no descriptor was free or which found it damaged; or we, who had no buffer for it.
/// (A driver that finds no buffer mostly leaves the packet where it is, and the card misses a later one. There are more
/// buffers than descriptors, so that this does not happen; if it does all the same it is better told twice than not.)
fn losses(counts: Counts) -> Losses {
    Losses { nic: counts.missed + counts.damaged, kernel: 0, ring: counts.without_memory }
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
        for packet in self.receiver.packets(driver::now_ns()) {
            self.done_bytes += packet.bytes.len() as u64;
            let bytes = &packet.bytes[..packet.bytes.len().min(self.snap)];
            burst.push(Frame {
                bytes,
                time_ns: packet.time_ns,
                wire_bytes: packet.wire_bytes,
                link_type: ETHERNET,
                time_clamped: false,
                interface: self.receiver.port().number(),
            });
        }
        Ok(true)
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
        driver::now_ns()
    }

    fn latest_ns(&self) -> u64 {
        driver::now_ns()
    }

    /// Told by the first queue for all.
    fn losses(&mut self) -> Losses {
        if self.receiver.queue() != 0 {
            return Losses::default();
        }
        let at_stop = *self.at_stop.lock().unwrap_or_else(PoisonError::into_inner);
        let losses = at_stop.unwrap_or_else(|| self.count());
        self.told.card = self.told.card.max(losses.nic);
        self.told.ring = self.told.ring.max(losses.ring);
        self.told
    }

    fn stop(&mut self) {
        if self.left.is_none() {
            self.left = Some(self.descriptors);
            let losses = self.count();
            self.at_stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(losses);
        }
    }
}

/// What the tests make a port have lost.
#[cfg(test)]
pub(super) fn at_stop(queue: &Queue) -> std::sync::MutexGuard<'_, Option<Losses>> {
    queue.at_stop.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_loses_what_it_misses_and_finds_damaged_and_we_what_there_is_no_buffer_for() {
        let counts = Counts { received: 1000, missed: 20, damaged: 3, without_memory: 4 };
        assert_eq!(losses(counts), Losses { nic: 23, kernel: 0, ring: 4 });
    }
}
