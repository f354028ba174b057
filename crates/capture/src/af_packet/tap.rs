//! Several interfaces as one, in the order of time: a tap gives each direction of a link on an interface of its own, and a flow is
//! both.
//!
//! ```text
//! af_packet:eth0+eth1      queue 0: of eth0 and of eth1; queue 1: of eth0 and of eth1; ...
//! ```
//! In: a queue of each interface. Out: their frames, the older ones first, where they lie.
//! A frame waits until no older one can come: while another interface is quiet, as long as the kernel may hold one back there (100 ms).
//! Always true: no frame waits longer than [`LONGEST`], or while a ring is half full, for what is not there yet: then order gives way,
//! and loss does not begin. Before its first frame nothing is known of a card that stamps, and it is not waited for.
//! Cost: each header is looked at twice. Nothing is copied.

use super::queue::{Ahead, Queue};
use crate::{BURST, Burst, Error, LiveSource, Losses, POLL_TIMEOUT, Progress, Source};
use std::thread;
use std::time::{Duration, Instant};

/// How long nothing is asked for after there was nothing to hand over: from the first to the last, doubling.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(5)];
/// A clock that was set back must not hold frames up.
const LONGEST: Duration = Duration::from_millis(300);

/// The interfaces of a tap.
pub(super) struct Tap {
    queues: Vec<Queue>,
    /// Since when there are frames that wait.
    waiting: Option<Instant>,
    /// How often in a row nothing was handed over.
    silent: u32,
    /// Longest sleep of a call that delivers nothing.
    poll_timeout: Duration,
}

impl Tap {
    /// Of at most [`BURST`] queues.
    pub fn new(queues: Vec<Queue>) -> Self {
        Self { queues, waiting: None, silent: 0, poll_timeout: POLL_TIMEOUT }
    }
}

impl Source for Tap {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let each = BURST / self.queues.len().max(1);
        // Up to when nothing older can come: behind the frames that are there, and where there are none.
        let (mut there_ns, mut none_ns, mut all_ended) = (None, u64::MAX, true);
        for queue in &mut self.queues {
            match queue.ahead(each)? {
                Ahead::Frames(last_ns) => there_ns = Some(there_ns.unwrap_or(u64::MAX).min(last_ns)),
                Ahead::NoneBefore(now_ns) => none_ns = none_ns.min(now_ns),
                Ahead::Ended => continue,
            }
            all_ended = false;
        }
        if all_ended {
            return Ok(false);
        }
        let gives_way =
            self.waiting.is_some_and(|since| since.elapsed() > LONGEST) || self.queues.iter().any(Queue::is_half_full);
        if let Some(there_ns) = there_ns {
            let until_ns = if gives_way { there_ns } else { there_ns.min(none_ns) };
            self.queues.iter_mut().for_each(|queue| queue.take(each, until_ns, burst));
            // It keeps the order of equal ones, and needs no memory for so few.
            burst.sort_by_key(|frame| frame.time_ns);
        }
        if burst.is_empty() {
            self.waiting = there_ns.and(self.waiting.or_else(|| Some(Instant::now())));
            thread::sleep(NAPS[1].min(NAPS[0] * (1 << self.silent.min(10))).min(self.poll_timeout));
            self.silent = self.silent.saturating_add(1);
        } else {
            // What gives way goes on until it has caught up.
            self.waiting = self.waiting.filter(|_| gives_way);
            self.silent = 0;
        }
        Ok(true)
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

    fn losses(&mut self) -> Losses {
        self.queues.iter_mut().map(LiveSource::losses).fold(Losses::default(), Losses::plus)
    }

    fn stop(&mut self) {
        self.queues.iter_mut().for_each(LiveSource::stop);
    }
}
