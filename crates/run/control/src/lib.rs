//! The HTTP interface of a running probe: health, status, metrics, flows, and changes for those who have
//! the token. Also that of a view of stored flows, without a probe.
//!
//! In: a [`Report`] whenever a client asks for one, at most one per [`REPORT_AGE`], whatever the
//! number of clients, and one a second for the history. Out: answers to programs, a page for browsers
//! (`page.rs`), and requests to reload, which the probe answers. The server has
//! one thread. It shares no memory with the threads that meter; it sees what the probe reports
//! anyway.
//!
//! Limits: connections (`connections.rs`), the time of each of them, octets of headers and bodies
//! (`server.rs`), octets of answers (`answers.rs`). Access: beyond loopback only with TLS and a token; each change needs the token (`access.rs`).
//! Not done here: what a reload does (`weir`), figures of intervals (`weir`).
//!
//! Source: RFC 9110, RFC 9112 and RFC 6750; the text format 0.0.4 of Prometheus.
#![forbid(unsafe_code)]

mod about;
mod access;
mod address;
mod answers;
mod api;
mod connections;
mod doctor;
mod error;
mod fields;
mod flows;
mod history;
mod in_effect;
mod intervals;
mod json;
mod metrics;
mod names;
mod overrides;
mod packets;
mod page;
mod page_file;
mod parameters;
mod recent;
mod remote;
mod report;
mod server;
mod sessions;
mod stored;
mod stream;

pub use about::ViewOf;
pub use access::Access;
pub use address::{InvalidAddress, parse_address};
pub use api::ProbeParts;
#[doc(hidden)]
pub use api::search_json;
pub use axum::http::Method;
pub use doctor::DoctorFindings;
pub use error::Error;
pub use in_effect::{InEffect, ListFile, RulesFile, Timeouts};
pub use names::{AskNames, FindName, NamedItem};
pub use packets::{
    AskPackets, FindPackets, FoundPackets, ListSegments, PacketError, PacketQuestion, SegmentQuestion, Segments,
    TimeLimit,
};
pub use page_file::{PageAnswers, PageFile, PageQuestion};
pub use recent::{FlowsThen, RecentFlows};
pub use remote::{InvalidUrl, ProbeUrl, RemoteAnswer, RemoteProbe};
pub use report::{Control, FlowReplies, REPORT_AGE, ReloadReply, Report, Request};
pub use server::Server;
pub use stored::{
    AnswerQuestion, AskStore, FindTimes, FlowSource, FlowTimes, StoredAnswer, StoredError, StoredQuestion, Wanted,
};
