//! Which CPU runs which stage of a pipeline: capture, meter, export.
//!
//! *Split*: each stage has a thread. Capture has a core for itself; meter and export share the
//! hardware threads of another core, and thereby its cache (NAPA-FP). Without SMT each stage has a
//! core. *Fused*: capture and meter are one thread on one core, and all exporters share one more
//! core (nProbe Cento). All CPUs of a layout are on one NUMA node, and no core runs two pipelines.

use crate::machine::Machine;
use serde::Serialize;

/// How the stages of a pipeline map to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutMode {
    /// One thread per stage.
    Split,
    /// One thread for capture and meter.
    Fused,
}

/// The CPUs of one pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PipelineCpus {
    /// The receive queue it reads.
    pub queue: u32,
    /// The CPU that receives and decodes frames.
    pub capture: u32,
    /// The CPU of the meter.
    pub meter: u32,
    /// The CPU that encodes and sends records; shared by all pipelines if fused.
    pub export: u32,
}

/// The CPUs of all pipelines, on one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuLayout {
    /// How the stages map to threads.
    pub mode: LayoutMode,
    /// The NUMA node; `None` if unknown.
    pub node: Option<u32>,
    /// One entry per receive queue; fewer if there are too few cores.
    pub pipelines: Vec<PipelineCpus>,
}

impl CpuLayout {
    /// A layout for a number of pipelines on a node, or on any: split if there are enough cores,
    /// else fused with as many pipelines as possible.
    pub fn new(machine: &Machine, node: Option<u32>, pipelines: usize) -> Self {
        let cores = machine.cores(node);
        let cores_each = cores_per_split_pipeline(&cores);
        if pipelines > 0 && pipelines.saturating_mul(cores_each) <= cores.len() {
            let split = cores.chunks_exact(cores_each).take(pipelines).zip(0..).map(|(cores, queue)| {
                let [capture, meter] = [cores[0][0], cores[1][0]];
                let export = if cores_each == 2 { cores[1][1] } else { cores[2][0] };
                PipelineCpus { queue, capture, meter, export }
            });
            return Self { mode: LayoutMode::Split, node, pipelines: split.collect() };
        }
        let limit = max_fused_pipelines(cores.len());
        let export = cores.last().map_or(0, |core| core[0]);
        let fused = cores.iter().take(pipelines.min(limit)).zip(0..).map(|(core, queue)| {
            let capture = core[0];
            PipelineCpus { queue, capture, meter: capture, export }
        });
        Self { mode: LayoutMode::Fused, node, pipelines: fused.collect() }
    }
}

fn cores_per_split_pipeline(cores: &[Vec<u32>]) -> usize {
    if cores.iter().all(|core| core.len() > 1) { 2 } else { 3 }
}

/// Largest number of fused pipelines. The exporters use one core, unless there is only one.
pub fn max_fused_pipelines(cores: usize) -> usize {
    cores.saturating_sub(1).max(cores.min(1))
}
