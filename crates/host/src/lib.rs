//! The machine under a probe: what it is, what is wrong with it, and which core should do what.
//!
//! In: a [`Sysroot`]: this machine, a folder that looks like one, or a recording of one. Out: a [`Machine`] of what could
//! be read; [`examine`] says what is wrong with it, in words; [`plan()`] lays pipelines out on its cores, and
//! [`place`] those of a probe that starts.
//! Always true: nothing is guessed. What cannot be read is absent, and whoever needs it says "not known". Reading
//! never fails and never changes anything; only [`Step::apply`] does, when it is asked to.
//! It knows no other room: what it says of Weir's needs are figures of docs/performance.md.
#![forbid(unsafe_code)]

mod assignment;
mod checks;
mod cpu;
mod cpu_layout;
mod ethernet;
mod ethtool;
mod finding;
mod lists;
mod machine;
mod nic;
mod pcie;
mod plan;
mod recording;
mod sysroot;
mod toeplitz;
mod units;

pub use assignment::{CpuAssignment, SourceThreads, assign_cpus, nearby_cpus};
pub use checks::examine;
pub use cpu::{Cpu, HugePages, IdleState, NumaNode};
pub use cpu_layout::{CpuLayout, LayoutMode, PipelineCpus};
pub use ethernet::line_rate;
pub use ethtool::{Channels, Reading, RingSize, RssConfig};
pub use finding::{Finding, Remedy, Severity, Step};
pub use machine::Machine;
pub use nic::{Irq, Nic};
pub use pcie::{PcieLink, bus_octets};
pub use plan::{Demand, Export, Memory, Plan, plan};
pub use sysroot::{Error, Sysroot};
pub use toeplitz::{STANDARD_KEY, SYMMETRIC_PATTERN, Toeplitz};
pub use units::default_mpps_per_core;
