//! The ledger: what came in, where it went, and why anything did not go further.
//!
//! In: counts from every stage. Out: one balance that holds for packets, bytes and flow records.
//! Always true: `received = dropped + refused + filtered + sampled out + metered`, and
//! `metered = exported + spooled + lost + live`. [`Ledger::check`] says by how much it fails.
//! It parses, stores and sends nothing. Source: RFC 7011 section 4 (what an exporter must tell of
//! what it ignored and did not send) and `docs/metering.md`.
#![forbid(unsafe_code)]

mod balance;
mod reasons;

pub use balance::{Imbalance, Ledger, Overload, RecordTotals, SinkCounters, TrafficCounters};
pub use reasons::{ExportLossReason, PacketAnomaly, ReasonCounters, RefusalReason};
