//! Where a thread runs: on which cores, and how urgent it is.

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

/// Cores and urgency of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuAffinity {
    /// Cores that it may run on; none: all.
    pub cores: Vec<usize>,
    /// How much less urgent it is than others, as `nice` has it: -20 to 19.
    pub nice: i32,
}

impl CpuAffinity {
    /// Takes this place for the thread that runs this. What the system does not permit is left as it is.
    pub fn apply(&self) {
        if !self.cores.is_empty() {
            let mut cores = CpuSet::new();
            self.cores.iter().filter(|&&core| core < CpuSet::MAX_CPU).for_each(|&core| cores.set(core));
            let _ = sched_setaffinity(None, &cores);
        }
        if self.nice != 0 && getpriority_process(Some(gettid())).is_ok() {
            let _ = setpriority_process(Some(gettid()), self.nice);
        }
    }
}
