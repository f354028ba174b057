//! Pipelines: they join a source, a meter and the sinks, and keep the ledger.
//!
//! In: an open source, the settings, open sinks. Out: the [`Ledger`](weir_ledger::Ledger) of the
//! run. The ledger balances at the end; otherwise [`Ledger::check`](weir_ledger::Ledger::check)
//! reports the difference.
//!
//! The hot path is [`Pipeline::process_burst`]: source -> burst of frames -> `ReadingStage`
//! (admission, decoding) -> packets -> `MeteringStage` (meter, record output) -> [`ExportHandle`].
//! A [`Probe`] runs it on several threads. The module `migration` connects the readers of a source
//! with several meters, and keeps the load of the meters even.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_probe;

mod account;
mod admission;
mod control_mailbox;
mod exporter;
mod flow_search;
mod heartbeat;
mod interface_names;
mod load_shedder;
mod loss_channel;
mod loss_counter;
mod loss_history;
mod metering_stage;
mod migration;
mod overrides;
mod packet_actions;
mod pipeline;
mod probe;
mod reading_stage;
mod record_output;
mod settings;
mod stored_pipeline;
#[cfg(test)]
mod test_sink;
#[cfg(test)]
mod tests;
mod thread;
mod worker;
mod worker_group;

pub use account::Account;
pub use admission::SelfTrafficFilter;
pub use control_mailbox::PipelineError;
pub use exporter::{ExportHandle, Exporter, SinkChange};
pub use flow_search::{FlowRank, FlowReply, FlowSearch, FoundFlows, Ranking, Searcher, Searches, search_channel};
pub use heartbeat::{Heartbeat, ThreadPanic, beat, while_waiting};
pub use interface_names::InterfaceNames;
pub use load_shedder::{LevelSettings, OverloadPolicy, ShedOrder, ShedStep};
pub use overrides::{Override, OverrideAction, Overrides};
pub use packet_actions::PacketActions;
pub use pipeline::Pipeline;
pub use probe::{FinalReport, Probe};
pub use settings::{BackPressure, RecordEnricher, RecordObserver, Settings};
pub use stored_pipeline::StoredPipeline;
pub use thread::CpuAffinity;
pub use worker_group::{GroupStatus, LoadBalance, ReceiveQueue, WorkerGroupSpec};
