//! Assignment of the benchmark's threads to CPU cores.

use weir_probe::CpuAffinity;

/// Nice value of pipeline threads, as in `weir probe`.
const NICE: i32 = -10;

/// CPU cores of the sender and of the receiving threads.
#[derive(Clone, Debug)]
pub struct CoreAssignment {
    /// Core of the sender.
    pub sender: usize,
    /// Cores of the receiving threads: all other cores, or the sender's if it is the only one.
    pub receivers: Vec<usize>,
}

impl CoreAssignment {
    /// Reads the affinity mask of this process and gives its first core to the sender.
    pub fn read() -> Self {
        let mask = rustix::thread::sched_getaffinity(None);
        let in_mask = |core: &usize| mask.as_ref().is_ok_and(|mask| mask.is_set(*core));
        let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(in_mask);
        let sender = cores.next().unwrap_or(0);
        let mut receivers: Vec<_> = cores.collect();
        if receivers.is_empty() {
            receivers.push(sender);
        }
        Self { sender, receivers }
    }

    /// Affinity of the sender thread.
    pub fn sender_affinity(&self) -> CpuAffinity {
        CpuAffinity { cores: vec![self.sender], nice: NICE }
    }

    /// Affinities of a pipeline's capture and meter threads.
    pub fn pipeline_affinities(&self, pinned: bool) -> [CpuAffinity; 2] {
        [0, 1].map(|thread| {
            let core = self.receivers[thread % self.receivers.len()];
            CpuAffinity { cores: if pinned { vec![core] } else { Vec::new() }, nice: NICE }
        })
    }
}
