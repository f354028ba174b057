//! What answers: a probe, or a view of what is stored.

use crate::names::AskNames;
use crate::packets::AskPackets;
use crate::stored::{FlowSource, FlowTimes};
use serde::Serialize;
use std::path::PathBuf;
use utoipa::ToSchema;

/// What `weir view` serves.
#[derive(Clone, Default)]
pub struct ViewOf {
    /// What was given to it.
    pub inputs: Vec<String>,
    /// Those of them that are stores and Parquet files.
    pub stores: Vec<PathBuf>,
    /// Stores and files that questions are answered from.
    pub files: Vec<PathBuf>,
    /// Those of transactions.
    pub transactions: Vec<PathBuf>,
    /// What answers questions for packets.
    pub packets: AskPackets,
    /// What knows names.
    pub names: AskNames,
}

/// What answers.
#[derive(Serialize, ToSchema)]
pub struct About {
    /// Always `weir`.
    program: &'static str,
    /// Its version.
    version: &'static str,
    /// `probe`, or `view` if no probe is running.
    mode: &'static str,
    /// The sources of a probe, or what a view shows.
    inputs: Vec<String>,
    /// Folders of stores, in the order of the parameter `store`.
    stores: Vec<String>,
    /// What `/stored` answers from: `store`, `memory` or `none`.
    history: &'static str,
    /// Folders of stores of transactions, in the order of the parameter `store`.
    transactions: Vec<String>,
    /// When the first of these flows starts, or of the transactions without flows, ns since 1970 UTC; null without them.
    from_ns: Option<u64>,
    /// When the last one starts.
    to_ns: Option<u64>,
    /// From when on the newest of these flows start, as many as a view shows first, ns since 1970 UTC; null if there are no
    /// more.
    newest_from_ns: Option<u64>,
    /// Why `/packets` finds none; null if it searches some.
    no_packets: Option<String>,
    /// Why `/explain` lists no segments; null if it does.
    no_segments: Option<String>,
    /// Whether `/names` knows names.
    names: bool,
    /// Whether the request is in a session, which `DELETE /session` ends.
    session: bool,
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

impl About {
    /// With what `/stored` answers from, the times of its flows, and why there are no packets and segments.
    pub fn new(
        mode: &'static str,
        inputs: &[String],
        [stores, transactions]: [&[PathBuf]; 2],
        source: Option<&FlowSource>,
        times: Option<&FlowTimes>,
        [no_packets, no_segments]: [Option<String>; 2],
    ) -> Self {
        Self {
            program: "weir",
            version: env!("CARGO_PKG_VERSION"),
            mode,
            inputs: inputs.to_vec(),
            stores: names(stores),
            transactions: names(transactions),
            history: source.map_or("none", FlowSource::name),
            from_ns: times.map(|of| *of.starts_ns.start()),
            to_ns: times.map(|of| *of.starts_ns.end()),
            newest_from_ns: times.and_then(|of| of.newest_from_ns),
            no_packets,
            no_segments,
            names: false,
            session: false,
        }
    }

    /// The same: whether names are known, and whether the request is in a session.
    #[must_use]
    pub fn with(self, names: bool, session: bool) -> Self {
        Self { names, session, ..self }
    }
}
