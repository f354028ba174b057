//! One turn of `--autotune`: measures a candidate, and chooses the best of several.

use crate::probe::start::Started;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time at the start of a live trial that does not count: memory is touched for the first time.
const WARM_UP: Duration = Duration::from_millis(50);
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// A candidate is better if its capacity is larger by this factor.
const BETTER_FACTOR: f64 = 1.05;
/// Shares of lost packets that differ by no more than this count as equal.
const EQUAL_LOSS_PPM: u64 = 1000;
/// A capture must last this long, or the whole turn.
const MIN_CAPTURE: Duration = Duration::from_millis(100);
/// Live trials with fewer packets do not count.
const MIN_PACKETS: u64 = 1000;

/// A candidate measured for one turn; or its median turn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measurement {
    pub packets: u64,
    pub lost: u64,
    pub seconds: f64,
    /// CPU time of the busiest thread.
    pub busiest_seconds: f64,
    /// CPU time of all threads.
    pub cpu_seconds: f64,
    pub is_live: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    NothingBetter,
    LessLoss,
    /// More capacity, in percent, with no more loss.
    MoreCapacity(f64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingBetter => f.write_str("nothing else is clearly better"),
            Self::LessLoss => f.write_str("fewer packets lost"),
            Self::MoreCapacity(percent) => write!(f, "{percent:.0} % more capacity, and no more loss"),
        }
    }
}

impl Measurement {
    /// Lost packets per million.
    pub fn lost_ppm(&self) -> u64 {
        self.lost * 1_000_000 / (self.packets + self.lost).max(1)
    }

    pub fn lost_percent(&self) -> f64 {
        self.lost_ppm() as f64 / 10_000.0
    }

    pub fn packets_per_second(&self) -> f64 {
        self.packets as f64 / self.seconds.max(1e-9)
    }

    /// CPU time of all threads.
    pub fn cpu_ns_per_packet(&self) -> f64 {
        1e9 * self.cpu_seconds / self.packets.max(1) as f64
    }

    /// Whether the turn is too small to compare: too few live packets, or a short capture.
    pub fn is_too_small(&self, turn: Duration) -> bool {
        if self.is_live { self.packets < MIN_PACKETS } else { self.seconds < turn.min(MIN_CAPTURE).as_secs_f64() }
    }

    /// Packets per second that would fully load the busiest thread; for a capture, the rate.
    pub fn capacity(&self) -> f64 {
        self.packets as f64 / (if self.is_live { self.busiest_seconds } else { self.seconds }).max(1e-9)
    }
}

/// The median turn, by loss and then by capacity.
pub fn median(mut turns: Vec<Measurement>) -> Measurement {
    turns.sort_by(|one, other| {
        (other.lost_ppm(), one.capacity()).partial_cmp(&(one.lost_ppm(), other.capacity())).expect("numbers")
    });
    turns.get(turns.len() / 2).copied().unwrap_or_default()
}

/// Position of the best trial. The first one stays unless another one is clearly better.
pub fn choose(trials: &[Measurement]) -> (usize, Reason) {
    let (mut best, mut reason) = (0, Reason::NothingBetter);
    for (position, new) in trials.iter().enumerate().skip(1) {
        let now = &trials[best];
        if new.lost_ppm() + EQUAL_LOSS_PPM < now.lost_ppm() {
            (best, reason) = (position, Reason::LessLoss);
        } else if new.lost_ppm() <= now.lost_ppm() + EQUAL_LOSS_PPM && new.capacity() > now.capacity() * BETTER_FACTOR {
            let percent = 100.0 * (new.capacity() / now.capacity() - 1.0);
            (best, reason) = (position, Reason::MoreCapacity(percent));
        }
    }
    (best, reason)
}

/// Measures a running probe for the time of a turn, then stops it.
pub fn measure(Started { probe, is_live, .. }: Started, turn: Duration, stop: &AtomicBool) -> Measurement {
    let mut started = Instant::now();
    let mut before = Counters::default();
    if is_live {
        wait(&probe, WARM_UP.min(turn / 4), stop);
        (before, started) = (Counters::read(&probe), Instant::now());
    }
    wait(&probe, turn, stop);
    let (after, seconds) = (Counters::read(&probe), started.elapsed().as_secs_f64());
    drop(probe);
    let ns_before = |thread: usize| before.cpu_ns.get(thread).copied().unwrap_or(0);
    let cpu = after.cpu_ns.iter().enumerate();
    let cpu: Vec<f64> = cpu.map(|(thread, ns)| ns.saturating_sub(ns_before(thread)) as f64 / 1e9).collect();
    Measurement {
        packets: after.packets - before.packets,
        lost: after.lost - before.lost,
        seconds,
        busiest_seconds: cpu.iter().copied().fold(0.0, f64::max),
        cpu_seconds: cpu.iter().sum(),
        is_live,
    }
}

/// Waits for a time, the end of the probe, or `stop`.
fn wait(probe: &weir_probe::Probe, time: Duration, stop: &AtomicBool) {
    let started = Instant::now();
    while started.elapsed() < time && !stop.load(Ordering::Relaxed) && !probe.is_finished() {
        std::thread::sleep(CHECK_INTERVAL.min(time));
    }
}

/// Counters of a probe.
#[derive(Default)]
struct Counters {
    packets: u64,
    lost: u64,
    cpu_ns: Vec<u64>,
}

impl Counters {
    fn read(probe: &weir_probe::Probe) -> Self {
        let (ledger, pipelines) = probe.status();
        let packets = &ledger.packets;
        let lost = packets.dropped_nic + packets.dropped_kernel + packets.dropped_queue;
        let cpu_ns = pipelines.into_iter().flat_map(|pipeline| pipeline.cpu_time_ns).collect();
        Self { packets: packets.received - lost, lost, cpu_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(packets: u64, lost: u64, busiest_seconds: f64) -> Measurement {
        Measurement { packets, lost, seconds: 1.0, busiest_seconds, cpu_seconds: busiest_seconds, is_live: true }
    }

    #[test]
    fn candidate_with_less_loss_is_chosen_at_any_cpu_time() {
        let trials = [trial(90_000, 10_000, 0.1), trial(100_000, 0, 0.9), trial(100_000, 0, 0.89)];
        assert_eq!(choose(&trials), (1, Reason::LessLoss));
    }

    #[test]
    fn first_candidate_stays_unless_another_is_clearly_better() {
        let trials = [trial(100_000, 0, 0.50), trial(100_000, 0, 0.49), trial(100_000, 60, 0.51)];
        assert_eq!(choose(&trials), (0, Reason::NothingBetter));
        let trials = [trial(100_000, 0, 0.50), trial(100_000, 50, 0.25)];
        let (chosen, reason) = choose(&trials);
        assert_eq!((chosen, reason.to_string().as_str()), (1, "100 % more capacity, and no more loss"));
    }

    #[test]
    fn median_turn_counts() {
        let turns = vec![trial(100, 0, 0.1), trial(100, 0, 0.9), trial(100, 0, 0.2)];
        assert_eq!(median(turns), trial(100, 0, 0.2));
        let turns = vec![trial(100, 0, 0.1), trial(90, 10, 0.1), trial(50, 50, 0.1)];
        assert_eq!(median(turns), trial(90, 10, 0.1));
    }
}
