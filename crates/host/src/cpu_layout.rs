//! Which processor does what.
//!
//! A pipeline has three stages: capture, meter, export. *Split*, each has a thread: capture is alone on its core, and the
//! other two share the hardware threads of the next core, and with them its cache (NAPA-FP); without SMT each has a core.
//! *Fused*, capture and meter are one thread on one core, and all exporters share one more core (Cento).
//! Always true: all of a layout lies on one node, and no core serves two pipelines.

use crate::machine::Machine;
use serde::Serialize;

/// How stages are laid on threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutMode {
    /// A thread for each stage.
    Split,
    /// Capture and meter on one thread.
    Fused,
}

/// The processors of one pipeline, as the kernel numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PipelineCpus {
    /// The receive queue it reads.
    pub queue: u32,
    /// Where frames are taken and decoded.
    pub capture: u32,
    /// Where flows are kept.
    pub meter: u32,
    /// Where records are encoded and sent; not its own in a fused layout.
    pub export: u32,
}

/// Pipelines on the processors of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuLayout {
    /// How stages are laid on threads.
    pub mode: LayoutMode,
    /// The node; `None` if the machine does not tell.
    pub node: Option<u32>,
    /// One per queue, in order of queues; fewer than wanted if there are too few cores.
    pub pipelines: Vec<PipelineCpus>,
}

impl CpuLayout {
    /// So many pipelines on a node, or anywhere; split if there are cores enough, else fused, as many as fit.
    pub fn of(machine: &Machine, node: Option<u32>, wanted: usize) -> Self {
        let cores = machine.cores(node);
        let each = cores_of_split(&cores);
        if wanted > 0 && wanted.saturating_mul(each) <= cores.len() {
            let pipelines = cores.chunks_exact(each).take(wanted).zip(0..).map(|(cores, queue)| {
                let [capture, meter] = [cores[0][0], cores[1][0]];
                let export = if each == 2 { cores[1][1] } else { cores[2][0] };
                PipelineCpus { queue, capture, meter, export }
            });
            return Self { mode: LayoutMode::Split, node, pipelines: pipelines.collect() };
        }
        let most = most_fused(cores.len());
        let export = cores.last().map_or(0, |core| core[0]);
        let pipelines = cores.iter().take(wanted.min(most)).zip(0..).map(|(core, queue)| {
            let capture = core[0];
            PipelineCpus { queue, capture, meter: capture, export }
        });
        Self { mode: LayoutMode::Fused, node, pipelines: pipelines.collect() }
    }
}

/// Cores that a split pipeline takes.
pub fn cores_of_split(cores: &[Vec<u32>]) -> usize {
    if cores.iter().all(|core| core.len() > 1) { 2 } else { 3 }
}

/// Fused pipelines that so many cores take: one is for the exporters, unless there is only one.
pub fn most_fused(cores: usize) -> usize {
    cores.saturating_sub(1).max(cores.min(1))
}
