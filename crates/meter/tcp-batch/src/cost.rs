//! The time of each stage of the engine, by the wall clock on the thread of its caller: it starts none.

use std::time::{Duration, Instant};

/// Time of each stage of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Packing packets into batches.
    pub pack: Duration,
    /// Hashing their keys.
    pub hash: Duration,
    /// Sorting by hash.
    pub sort: Duration,
    /// Bringing the packed packets into the sorted order.
    pub gather: Duration,
    /// Finding connections and classifying segments.
    pub classify: Duration,
    /// On a GPU instead of the four before: copying, launching, and waiting for results.
    pub device: Duration,
}

impl StageTimes {
    /// Names and times of the stages, in their order.
    pub fn stages(&self) -> [(&'static str, Duration); 6] {
        let Self { pack, hash, sort, gather, classify, device } = *self;
        [("pack", pack), ("hash", hash), ("sort", sort), ("gather", gather), ("classify", classify), ("device", device)]
    }

    /// Adds other times.
    pub(crate) fn add(&mut self, other: &Self) {
        self.pack += other.pack;
        self.hash += other.hash;
        self.sort += other.sort;
        self.gather += other.gather;
        self.classify += other.classify;
        self.device += other.device;
    }

    /// Time of all stages.
    pub fn total(&self) -> Duration {
        self.stages().iter().map(|(_, time)| *time).sum()
    }
}

/// A stopwatch: the time since it was last read.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}
