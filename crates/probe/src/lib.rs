//! Pipelines: a source, the meter and the sinks joined, and the ledger kept.
//!
//! In: an open source, a meter's configuration, open sinks. Out: the [`Ledger`](weir_ledger::Ledger) of the run.
//! Always true: the ledger balances at the end, or the run says by how much it does not.
#![forbid(unsafe_code)]

mod account;
mod affinity;
mod balance;
mod desk;
mod exporter;
mod history;
mod ladder;
mod looks;
mod mesh;
mod metering;
mod mover;
mod pipeline;
mod probe;
mod reader;
mod sampler;
mod self_traffic;
mod settings;
mod work;

pub use account::Account;
pub use affinity::CpuAffinity;
pub use exporter::{BackPressure, ExportHandle, Exporter, SinkChange};
pub use ladder::{LevelSettings, Overload};
pub use pipeline::Pipeline;
pub use probe::{FinalReport, LoadBalance, PipelineStatus, Probe, ReceiveQueue, WorkerGroup};
pub use self_traffic::SelfTrafficFilter;
pub use settings::Settings;
