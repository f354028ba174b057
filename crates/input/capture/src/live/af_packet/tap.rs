//! Merges the queues of a tap in time order, in place.
//!
//! A frame is delivered when no older one can arrive. While another interface is quiet, that takes as
//! long as the kernel may hold a frame back there ([`HELD_NS`]). Invariants: no frame waits longer
//! than [`LONGEST_WAIT`], or while a ring is half full; then the order may be violated, so that no
//! frame is lost. With time stamps of the NIC, an interface is not waited for before its first frame,
//! because its clock is unknown. Cost: each header is read twice. Nothing is copied.

use super::queue::{HELD_NS, Next, Queue};
use crate::error::Error;
use crate::live::tap::{self, Merge};
use crate::source::{Burst, MAX_BURST_FRAMES};
use std::time::{Duration, Instant};

/// Longest time that a frame waits for older ones: a clock that was set back must not delay frames
/// forever.
const LONGEST_WAIT: Duration = Duration::from_nanos(3 * HELD_NS);

#[derive(Default)]
pub(crate) struct TimeOrder {
    /// Time since which frames have been waiting.
    waiting: Option<Instant>,
    empty_polls: u32,
}

impl Merge<Queue> for TimeOrder {
    fn fill<'a>(
        &mut self,
        queues: &'a mut [Queue],
        poll_timeout: Duration,
        burst: &mut Burst<'a>,
    ) -> Result<bool, Error> {
        let each = MAX_BURST_FRAMES / queues.len().max(1);
        // No older frame can arrive before these times: after the available frames, and on idle
        // interfaces.
        let (mut available_ns, mut idle_ns, mut all_ended) = (None, u64::MAX, true);
        for queue in &mut *queues {
            match queue.peek(each)? {
                Next::Frames(last_ns) => available_ns = Some(available_ns.unwrap_or(u64::MAX).min(last_ns)),
                Next::NoneBefore(now_ns) => idle_ns = idle_ns.min(now_ns),
                Next::Ended => continue,
            }
            all_ended = false;
        }
        if all_ended {
            return Ok(false);
        }
        let is_urgent =
            self.waiting.is_some_and(|since| since.elapsed() > LONGEST_WAIT) || queues.iter().any(Queue::is_half_full);
        if let Some(available_ns) = available_ns {
            let until_ns = if is_urgent { available_ns } else { available_ns.min(idle_ns) };
            queues.iter_mut().for_each(|queue| queue.take(each, until_ns, burst));
            // A stable sort, which allocates nothing for so few.
            burst.sort_by_key(|frame| frame.time_ns);
        }
        if burst.is_empty() {
            self.waiting = available_ns.and(self.waiting.or_else(|| Some(Instant::now())));
            tap::sleep(self.empty_polls, poll_timeout);
            self.empty_polls = self.empty_polls.saturating_add(1);
        } else {
            // An urgent tap stays so until it has caught up.
            self.waiting = self.waiting.filter(|_| is_urgent);
            self.empty_polls = 0;
        }
        Ok(true)
    }
}
