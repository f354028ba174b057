//! The machine under a probe: what it is, what is wrong with it, and which core should do what.
//!
//! In: a [`Root`]: this machine, a folder that looks like one, or a recording of one. Out: a [`Machine`] of what could
//! be read; [`examine`] says what is wrong with it, in words; [`plan()`] lays pipelines out on its cores, and
//! [`place`] those of a probe that starts.
//! Always true: nothing is guessed. What cannot be read is absent, and whoever needs it says "not known". Reading
//! never fails and never changes anything; only [`Step::apply`] does, when it is asked to.
//! It knows no other room: what it says of Weir's needs are figures of docs/performance.md.
#![forbid(unsafe_code)]

mod card;
mod checks;
mod ethernet;
mod ethtool;
mod figures;
mod finding;
mod layout;
mod machine;
mod numbers;
mod pcie;
mod placement;
mod plan;
mod processor;
mod recording;
mod root;
mod toeplitz;

pub use card::{Card, Irq};
pub use checks::examine;
pub use ethernet::line_rate;
pub use ethtool::{Channels, Known, Ring, Rss};
pub use figures::default_mpps_per_core;
pub use finding::{Finding, Remedy, Severity, Step};
pub use layout::{Layout, Pipeline, Shape};
pub use machine::Machine;
pub use pcie::{Link, bus_octets};
pub use placement::{Placement, Work, beside, place};
pub use plan::{Demand, Export, Memory, Plan, plan};
pub use processor::{Cpu, Idle, Node, Pages};
pub use root::{Error, Root};
pub use toeplitz::{SYMMETRIC_PATTERN, Toeplitz};
