//! Packet, octet and flow record accounting: what was received, what became of it, and the reason
//! for every loss.
//!
//! Input: counters of every stage. Output: one [`Ledger`] that balances for packets, octets and
//! flow records.
//! Invariants: `received = dropped + refused + filtered + sampled out + metered`, and
//! `metered = exported + filtered + lost + live`. [`Ledger::check`] reports each equation that fails.
//! Not done here: parsing, storage, transmission.
//!
//! Also [`Timing`]: retry intervals and timeouts of the stages.
//!
//! Source: RFC 7011 section 4 (an exporter reports what it ignored and what it did not send) and
//! `docs/metering.md`.
#![forbid(unsafe_code)]

mod counters;
mod ledger;
mod reasons;
mod timing;

pub use counters::{
    ActionCounters, ClockCounters, EarlierCounters, InspectionCounters, MemberCounters, OutputCounters,
    OverloadCounters, PacketTotals, RecordTotals, RecorderCounters, RuleCounters, SinkCounters, TrafficCounters,
    TransactionCounters,
};
pub use ledger::{Imbalance, Ledger};
pub use reasons::{ExportLossReason, OutputDropReason, PacketAnomaly, ReasonCounters, RefusalReason};
pub use timing::Timing;
