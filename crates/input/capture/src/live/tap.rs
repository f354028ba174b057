//! Several interfaces as one source. A network tap delivers each direction of a link on its own
//! interface, and a flow has both directions.
//!
//! ```text
//! af_xdp:eth0+eth1      queue 0: of eth0 and of eth1; queue 1: of eth0 and of eth1; ...
//! ```
//! In: a queue of each interface. Out: their frames, merged by a [`Merge`].

use crate::clock::ClockSteps;
use crate::error::Error;
use crate::live_error::LiveError;
use crate::source::{Burst, LiveSource, Losses, MAX_BURST_FRAMES, POLL_TIMEOUT, Progress, Source};
use std::time::Duration;

/// How the frames of several queues, at most [`MAX_BURST_FRAMES`], are merged.
pub(crate) trait Merge<Q>: Default + Send {
    /// As [`Source::fill`]. Sleeps for at most the poll timeout. That of the queues is 0.
    fn fill<'a>(&mut self, queues: &'a mut [Q], poll_timeout: Duration, burst: &mut Burst<'a>) -> Result<bool, Error>;
}

pub(crate) struct Tap<Q, M> {
    queues: Vec<Q>,
    merge: M,
    poll_timeout: Duration,
}

/// Regroups the queues of several interfaces: first queue of each, second queue of each, and so on.
///
/// # Errors
/// The interfaces have different numbers of queues, or are more than a burst has frames.
pub(crate) fn queue_by_queue<S>(opened: Vec<Vec<S>>) -> Result<Vec<Vec<S>>, LiveError> {
    if opened.len() > MAX_BURST_FRAMES {
        return Err(LiveError::TooManyInterfaces(MAX_BURST_FRAMES));
    }
    let fewest = opened.iter().map(Vec::len).min().unwrap_or(0);
    if opened.iter().any(|queues| queues.len() != fewest) {
        return Err(LiveError::QueueCountsDiffer);
    }
    let mut interfaces: Vec<_> = opened.into_iter().map(Vec::into_iter).collect();
    Ok((0..fewest).map(|_| interfaces.iter_mut().filter_map(Iterator::next).collect()).collect())
}

/// Sleeps after this number of consecutive polls without a frame: first 50 us, twice as long each
/// time, at most 5 ms or the poll timeout.
pub(crate) fn sleep(empty_polls: u32, poll_timeout: Duration) {
    let length = Duration::from_micros(50) * (1 << empty_polls.min(10));
    std::thread::sleep(length.min(Duration::from_millis(5)).min(poll_timeout));
}

impl<Q: LiveSource, M: Default> Tap<Q, M> {
    pub fn new(mut queues: Vec<Q>) -> Self {
        queues.iter_mut().for_each(|queue| queue.set_poll_timeout(Duration::ZERO));
        Self { queues, merge: M::default(), poll_timeout: POLL_TIMEOUT }
    }
}

impl<Q: LiveSource, M: Merge<Q>> Source for Tap<Q, M> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        self.merge.fill(&mut self.queues, self.poll_timeout, burst)
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.queues.iter().flat_map(Source::interfaces).collect()
    }

    fn progress(&self) -> Progress {
        let done_bytes = self.queues.iter().map(|queue| queue.progress().done_bytes).sum();
        Progress { done_bytes, total_bytes: None }
    }
}

impl<Q: LiveSource, M: Merge<Q>> LiveSource for Tap<Q, M> {
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
        for queue in &mut self.queues {
            queue.set_poll_timeout(POLL_TIMEOUT);
            queue.stop();
        }
    }
}

/// For drivers that stamp frames on delivery (AF_XDP): the bursts of the queues in turn. Frames of one
/// interface stay in order, and the times of all frames ascend. The order of frames that arrived at
/// two interfaces between two polls is unknown. Counters of each direction do not depend on it; TCP
/// analysis that compares both directions may (round-trip times, spurious retransmissions, duplicate
/// acknowledgments, window probes).
#[derive(Default)]
pub(crate) struct InTurn {
    /// A bit for each queue that has ended.
    ended: u64,
    next: usize,
    empty_polls: u32,
}

impl<Q: LiveSource> Merge<Q> for InTurn {
    fn fill<'a>(&mut self, queues: &'a mut [Q], poll_timeout: Duration, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let count = queues.len();
        let mut in_turn = (0..count).map(|more| (self.next + more) % count);
        let Some(at) = in_turn.find(|&at| self.ended >> at & 1 == 0) else { return Ok(false) };
        // Complete rounds in which no queue had a frame.
        let rounds = self.empty_polls / count as u32;
        if rounds > 0 && self.empty_polls.is_multiple_of(count as u32) {
            sleep(rounds, poll_timeout);
        }
        self.next = at + 1;
        self.empty_polls = self.empty_polls.saturating_add(1);
        if !queues[at].fill(burst)? {
            self.ended |= 1 << at;
            return Ok((self.ended.count_ones() as usize) < count);
        }
        if !burst.is_empty() {
            self.empty_polls = 0;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A live source that never receives a frame and never waits for one.
    struct Silent;

    impl Source for Silent {
        fn fill<'a>(&'a mut self, _burst: &mut Burst<'a>) -> Result<bool, Error> {
            Ok(true)
        }

        fn progress(&self) -> Progress {
            Progress::default()
        }
    }

    impl LiveSource for Silent {
        fn set_poll_timeout(&mut self, _timeout: Duration) {}

        fn query_losses(&mut self) -> Losses {
            Losses::default()
        }

        fn now_ns(&self) -> u64 {
            0
        }

        fn wait_for_interface(&mut self) -> bool {
            false
        }

        fn stop(&mut self) {}
    }

    #[test]
    fn tap_with_poll_timeout_zero_does_not_sleep() {
        let mut tap = Tap::<_, InTurn>::new(vec![Silent, Silent]);
        tap.set_poll_timeout(Duration::ZERO);
        let started = Instant::now();
        for _ in 0..4000 {
            assert!(tap.burst().unwrap().is_some_and(|burst| burst.is_empty()));
        }
        // With the default poll timeout the 2000 rounds sleep for about 10 s.
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}
