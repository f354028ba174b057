//! What the server serves, and what its paths have in common.

use super::answer::{Refusal, failure, json_text, no_rules};
use crate::about::ViewOf;
use crate::access::Access;
use crate::answers::{AnswerMemory, NoMemory, SharedAnswer};
use crate::doctor::DoctorFindings;
use crate::history::History;
use crate::names::AskNames;
use crate::overrides::list;
use crate::packets::{AskPackets, Packets};
use crate::recent::RecentFlows;
use crate::report::{Client, REPORT_AGE, Snapshot};
use crate::stored::{FlowSource, Stores};
use axum::body::Bytes;
use axum::http::StatusCode;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::Semaphore;
use weir_probe::{Overrides, RecordEnricher};

pub(super) const NO_REPORT: &str = "the probe has not reported for 3 s: its main thread is busy or blocked";
pub(super) const NO_PROBE: &str = "no probe is running: weir view shows stored flows, by GET /about, /fields, /stored, /packets and \
                        /explain";
/// Paths that need a running probe.
pub(super) const OF_PROBE: [&str; 11] = [
    "/ready",
    "/status",
    "/history",
    "/metrics",
    "/flows",
    "/rules",
    "/lists",
    "/timeouts",
    "/doctor",
    "/overrides",
    "/reload",
];

/// What answers requests.
pub(super) struct Api {
    pub(super) client: Client,
    pub(super) access: Access,
    pub(super) address: SocketAddr,
    pub(super) document: Bytes,
    pub(super) of: Served,
    pub(super) searches: SearchPlaces,
    pub(super) stores: Stores,
    pub(super) packets: Packets,
    /// The last hour.
    pub(super) history: Arc<History>,
    /// Memory of answers.
    pub(super) memory: AnswerMemory,
    /// `/rules` of a report.
    pub(super) rules: SharedAnswer<Weak<Snapshot>>,
    /// `/overrides`, with the number of changes.
    pub(super) list: SharedAnswer<u64>,
}

/// One search at a time: a thread that meters does one. One with token replaces one without.
pub(super) struct SearchPlaces {
    pub(super) without_token: Semaphore,
    pub(super) with_token: Semaphore,
    /// Number of searches with token since the start.
    pub(super) begun_with_token: AtomicU64,
}

impl Default for SearchPlaces {
    fn default() -> Self {
        let [without_token, with_token] = [(); 2].map(|()| Semaphore::new(1));
        Self { without_token, with_token, begun_with_token: AtomicU64::new(0) }
    }
}

/// What the server shows.
pub enum Served {
    Probe(ProbeParts),
    View(ViewOf),
}

/// What the server uses of a probe, beside its reports.
#[derive(Default)]
pub struct ProbeParts {
    /// Adds places and tags to records, as for sinks.
    pub enricher: Option<RecordEnricher>,
    /// Only with rules.
    pub overrides: Option<Overrides>,
    /// The last flows that have ended, if they are kept.
    pub recent: Option<Arc<RecentFlows>>,
    /// What answers questions for packets.
    pub packets: AskPackets,
    /// What knows names.
    pub names: AskNames,
    /// What is wrong with the machine.
    pub doctor: DoctorFindings,
}

impl Served {
    /// What knows names.
    pub(super) fn names(&self) -> &AskNames {
        match self {
            Self::Probe(probe) => &probe.names,
            Self::View(view) => &view.names,
        }
    }

    /// What answers questions for packets.
    pub fn packets(&self) -> AskPackets {
        match self {
            Self::Probe(probe) => probe.packets.clone(),
            Self::View(view) => view.packets.clone(),
        }
    }
}

/// Whether a request has the token.
#[derive(Clone, Copy)]
pub(super) struct HasToken(pub(super) bool);

impl Api {
    /// The last report of the probe.
    pub(super) async fn report(&self) -> Result<Arc<Snapshot>, Refusal> {
        let silent = || failure(StatusCode::SERVICE_UNAVAILABLE, NO_REPORT);
        self.client.report().await.ok_or_else(silent)
    }

    pub(super) fn probe(&self) -> Result<&ProbeParts, Refusal> {
        match &self.of {
            Served::Probe(probe) => Ok(probe),
            Served::View(_) => Err(failure(StatusCode::CONFLICT, NO_PROBE)),
        }
    }

    pub(super) fn overrides(&self) -> Result<&Overrides, Refusal> {
        self.probe()?.overrides.as_ref().ok_or_else(no_rules)
    }

    pub(super) fn is_view(&self) -> bool {
        matches!(self.of, Served::View(_))
    }

    /// The stores, in the order of the parameter `store`.
    pub(super) async fn stores(&self) -> Result<Vec<PathBuf>, Refusal> {
        match &self.of {
            Served::View(view) => Ok(view.stores.clone()),
            Served::Probe(_) => Ok(self.report().await?.report.in_effect.stores.clone()),
        }
    }

    /// The same of transactions.
    pub(super) async fn stores_of_transactions(&self) -> Result<Vec<PathBuf>, Refusal> {
        match &self.of {
            Served::View(view) => Ok(view.transactions.clone()),
            Served::Probe(_) => Ok(self.report().await?.report.in_effect.transactions.clone()),
        }
    }

    /// What transactions are read from, by the parameter `store`. A view has one source of all files.
    pub(super) fn sources_of_transactions(&self, stores: &[PathBuf]) -> Vec<FlowSource> {
        match &self.of {
            Served::View(_) if stores.is_empty() => Vec::new(),
            Served::View(_) => vec![FlowSource::Files(stores.to_vec())],
            Served::Probe(_) => stores.iter().map(|path| FlowSource::Files(vec![path.clone()])).collect(),
        }
    }

    /// What flows that have ended are read from, by the parameter `store`.
    pub(super) fn sources(&self, stores: &[PathBuf]) -> Vec<FlowSource> {
        match &self.of {
            // Transactions alone were given to it.
            Served::View(view) if view.files.is_empty() => Vec::new(),
            Served::View(view) => vec![FlowSource::Files(view.files.clone())],
            Served::Probe(probe) if stores.is_empty() => probe.recent.iter().cloned().map(FlowSource::Memory).collect(),
            Served::Probe(_) => stores.iter().map(|path| FlowSource::Files(vec![path.clone()])).collect(),
        }
    }

    /// The list of overrides. A copy serves for [`REPORT_AGE`], unless one has changed, or a report has
    /// newer figures.
    pub(super) fn list(&self, overrides: &Overrides, has_token: bool) -> Result<Bytes, NoMemory> {
        let (changes, reported) = (overrides.changes(), self.client.snapshot().published);
        let serves =
            |of_copy: &u64, made: Instant| *of_copy == changes && reported <= made && made.elapsed() < REPORT_AGE;
        self.list.get(&self.memory, has_token, serves, || (changes, json_text(&list(overrides))))
    }
}
