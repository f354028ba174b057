//! Attributes of a worker thread: CPU affinity, priority and consumed CPU time.

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPU affinity and priority of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuAffinity {
    /// Cores that the thread may use; empty for all.
    pub cores: Vec<usize>,
    /// Nice value, -20 (highest priority) to 19.
    pub nice: i32,
}

impl CpuAffinity {
    /// Applies both to the calling thread. Ignores what the system does not permit.
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

/// CPU time that the calling thread has consumed, ns.
pub(crate) fn cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
