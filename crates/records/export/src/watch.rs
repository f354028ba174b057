//! What a sink that waits for its collector and the thread that watches it tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The two ends of a watch are clones of each other.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    must_end: AtomicBool,
    keeps: AtomicBool,
    is_saving: AtomicBool,
    steps: AtomicU64,
}

impl Watch {
    /// Asks the sink to end at once: it waits for nothing any longer, keeps what it can, and loses the rest.
    pub fn end(&self) {
        self.0.must_end.store(true, Ordering::Relaxed);
    }

    /// Whether the sink has to end at once.
    pub fn must_end(&self) -> bool {
        self.0.must_end.load(Ordering::Relaxed)
    }

    /// The sink has a spool: also after [`Watch::end`] it takes records, and keeps them there.
    pub fn keep(&self) {
        self.0.keeps.store(true, Ordering::Relaxed);
    }

    /// Whether the sink keeps what its collector does not take.
    pub fn keeps(&self) -> bool {
        self.0.keeps.load(Ordering::Relaxed)
    }

    /// The sink writes to its spool what waits, which takes as long as the disk.
    pub fn save(&self) {
        self.0.is_saving.store(true, Ordering::Relaxed);
    }

    /// Whether the sink saves what waits.
    pub fn is_saving(&self) -> bool {
        self.0.is_saving.load(Ordering::Relaxed)
    }

    /// The collector has taken something.
    pub fn step(&self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has.
    pub fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }
}
