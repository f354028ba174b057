//! Pipelines: a source, the meter and the sinks joined, and the ledger kept.
//!
//! In: an open source, a meter's configuration, open sinks. Out: the [`Ledger`](weir_ledger::Ledger) of the run.
//! Always true: the ledger balances at the end, or the run says by how much it does not.
#![forbid(unsafe_code)]

mod account;
mod balance;
mod desk;
mod exporter;
mod history;
mod ladder;
mod looks;
mod mesh;
mod metering;
mod mover;
mod own;
mod pipeline;
mod place;
mod probe;
mod reader;
mod sampler;
mod settings;
mod work;

pub use account::Account;
pub use exporter::{Behind, Change, Entrance, Exporter};
pub use ladder::{Measures, Overload};
pub use own::Own;
pub use pipeline::Pipeline;
pub use place::Place;
pub use probe::{Answer, Balance, End, Probe, Queue, Team};
pub use settings::Settings;
