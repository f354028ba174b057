//! Several interfaces as one source, in time order. A network tap delivers each direction of a link
//! on its own interface, and a flow has both directions.
//!
//! ```text
//! af_packet:eth0+eth1      queue 0: of eth0 and of eth1; queue 1: of eth0 and of eth1; ...
//! ```
//! In: a queue of each interface. Out: their frames in time order, in place. A frame is delivered
//! when no older one can arrive. While another interface is quiet, that takes as long as the kernel
//! may hold a frame back there ([`HELD_NS`]). Invariants: no frame waits longer than
//! [`LONGEST_WAIT`], or while a ring is half full; then the order may be violated, so that no frame
//! is lost. With time stamps of the NIC, an interface is not waited for before its first frame,
//! because its clock is unknown. Cost: each header is read twice. Nothing is copied.

use super::queue::{HELD_NS, Next, Queue};
use crate::clock::ClockSteps;
use crate::error::Error;
use crate::live::tap;
use crate::source::{Burst, LiveSource, Losses, MAX_BURST_FRAMES, POLL_TIMEOUT, Progress, Source};
use std::time::{Duration, Instant};

/// Longest time that a frame waits for older ones: a clock that was set back must not delay frames
/// forever.
const LONGEST_WAIT: Duration = Duration::from_nanos(3 * HELD_NS);

pub(crate) struct Tap {
    queues: Vec<Queue>,
    /// Time since which frames have been waiting.
    waiting: Option<Instant>,
    empty_polls: u32,
    /// Longest sleep of a call that delivers nothing.
    poll_timeout: Duration,
}

impl Tap {
    /// A tap of at most [`MAX_BURST_FRAMES`] queues.
    pub fn new(queues: Vec<Queue>) -> Self {
        Self { queues, waiting: None, empty_polls: 0, poll_timeout: POLL_TIMEOUT }
    }
}

impl Source for Tap {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let each = MAX_BURST_FRAMES / self.queues.len().max(1);
        // No older frame can arrive before these times: after the available frames, and on idle
        // interfaces.
        let (mut available_ns, mut idle_ns, mut all_ended) = (None, u64::MAX, true);
        for queue in &mut self.queues {
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
        let is_urgent = self.waiting.is_some_and(|since| since.elapsed() > LONGEST_WAIT)
            || self.queues.iter().any(Queue::is_half_full);
        if let Some(available_ns) = available_ns {
            let until_ns = if is_urgent { available_ns } else { available_ns.min(idle_ns) };
            self.queues.iter_mut().for_each(|queue| queue.take(each, until_ns, burst));
            // A stable sort, which allocates nothing for so few.
            burst.sort_by_key(|frame| frame.time_ns);
        }
        if burst.is_empty() {
            self.waiting = available_ns.and(self.waiting.or_else(|| Some(Instant::now())));
            tap::sleep(self.empty_polls, self.poll_timeout);
            self.empty_polls = self.empty_polls.saturating_add(1);
        } else {
            // An urgent tap stays so until it has caught up.
            self.waiting = self.waiting.filter(|_| is_urgent);
            self.empty_polls = 0;
        }
        Ok(true)
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.queues.iter().flat_map(Source::interfaces).collect()
    }

    fn progress(&self) -> Progress {
        let done_bytes = self.queues.iter().map(|queue| queue.progress().done_bytes).sum();
        Progress { done_bytes, total_bytes: None }
    }
}

impl LiveSource for Tap {
    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.poll_timeout = timeout;
    }

    /// Time of the interface whose time is earliest.
    fn now_ns(&self) -> u64 {
        self.queues.iter().map(LiveSource::now_ns).min().unwrap_or_default()
    }

    fn latest_ns(&self) -> u64 {
        self.queues.iter().map(LiveSource::latest_ns).max().unwrap_or_default()
    }

    fn clock_steps(&self) -> ClockSteps {
        self.queues.first().map_or_else(ClockSteps::default, LiveSource::clock_steps)
    }

    fn wait_for_interface(&mut self) -> bool {
        self.queues.iter_mut().all(LiveSource::wait_for_interface)
    }

    fn query_losses(&mut self) -> Losses {
        self.queues.iter_mut().map(LiveSource::query_losses).fold(Losses::default(), Losses::plus)
    }

    fn stop(&mut self) {
        self.queues.iter_mut().for_each(LiveSource::stop);
    }
}
