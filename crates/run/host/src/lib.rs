//! Checks the machine on which a probe runs for settings that lose packets, and assigns the stages
//! of pipelines to CPUs.
//!
//! In: a [`Sysroot`]: this machine, a directory with a copy of its files, or a recording. Out: a
//! [`Machine`] with everything that could be read. [`examine`] finds what is wrong with it,
//! [`plan()`] computes what a link needs, and [`assign_cpus`] chooses CPUs for a starting probe.
//!
//! Nothing is guessed: a value that cannot be read is absent, and findings about it are
//! [`Severity::Unknown`]. Only [`Step::apply`] changes the machine. The crate uses no other crate
//! of Weir; the needs of Weir are figures from docs/performance.md.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_host;

mod assignment;
mod capacity;
mod checks;
mod cpu;
mod cpu_layout;
mod ethernet;
mod ethtool;
mod finding;
mod lists;
mod machine;
mod memory_bounds;
mod nic;
mod pcie;
mod plan;
mod recording;
mod sysroot;
#[cfg(test)]
mod tests;
mod toeplitz;
mod units;

pub use assignment::{AssignmentError, CpuAssignment, SourceThreads, assign_cpus, nearby_cpus};
pub use capacity::{Capacity, GpuCost, PAUSE_MS, PipelineLoss, Ring, SizeNeed, Trimming};
pub use checks::examine;
pub use cpu::{Cpu, HugePages, IdleState, NumaNode};
pub use cpu_layout::{CpuLayout, LayoutMode, PipelineCpus};
pub use ethtool::{Channels, Reading, RingSize, RssConfig};
pub use finding::{Finding, MACHINE, Remedy, Severity, Step, StepError};
pub use machine::Machine;
pub use memory_bounds::{MemoryBound, MemoryBoundKind, memory_bounds};
pub use nic::{Irq, Nic};
pub use pcie::PcieLink;
pub use plan::{Demand, Export, Memory, Plan, plan};
pub use sysroot::{Error, Sysroot};
pub use units::default_mpps_per_core;
