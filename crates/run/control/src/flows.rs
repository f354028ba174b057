//! Current flows: the parameters of a search, and its answer: flows, or sums of groups.

use crate::parameters::{self, InvalidQuery};
use parking_lot::Mutex;
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout_at;
use utoipa::{IntoParams, ToSchema};
use weir_export::{ViewFormat, append_json_record};
use weir_fields::{Column, FieldValue, column};
use weir_flow::FlowRecord;
use weir_probe::{FlowRank, FlowSearch, FoundFlows, Ranking, RecordEnricher};
use weir_query::{Order, RecordOrder, View, ViewSettings};

/// Time after which threads answer with what they have found.
const SEARCH_TIME: Duration = Duration::from_secs(10);
/// Time beyond that for threads that wait for packets.
const REPLY_TIME: Duration = Duration::from_secs(1);
/// Groups that a thread keeps: at most about 10 MB, and 8 MB more with all sums that may be asked for.
const MAX_THREAD_GROUPS: usize = 1 << 15;

/// The parameters of a search.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only flows that match this expression, as --where (weir help expressions)
    r#where: Option<String>,
    /// Only the flow with this Community ID
    community_id: Option<String>,
    /// Sums of flows by these fields in place of flows, as --by: up to 4, joined by commas
    by: Option<String>,
    /// The number by which flows or groups are sorted, the largest first; NUMBER:asc for the smallest first. Default: bytes
    sort: Option<String>,
    /// More sums of each group, as --sum: dns_failed, http_errors, failed and others (weir help views), up to 16, joined by
    /// commas. With by only
    sum: Option<String>,
    /// How many flows or groups, up to 1000; with 0 only how many there are, and their sums. Default: 20
    #[param(value_type = Option<usize>)]
    top: Option<String>,
    /// Fields of each flow, as --fields (weir help fields); without by only. Default: basic
    fields: Option<String>,
}

/// Current flows, or sums of them.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the answer, whose text is written by the encoders of records and views")]
pub struct Flows {
    /// The first ones by the order of the request. Without by only.
    #[schema(value_type = Option<Vec<Object>>)]
    flows: Option<Vec<()>>,
    /// The groups, each as weir read --by writes it as JSON. With by only.
    #[schema(value_type = Option<Vec<Object>>)]
    groups: Option<Vec<()>>,
    /// How many flows match.
    matching: u64,
    /// How many flows were looked at.
    searched: u64,
    /// Whether all flows were looked at in time.
    complete: bool,
}

/// A search that is valid.
pub struct Search {
    pub search: FlowSearch,
    /// How many flows or groups.
    top: usize,
    wanted: Wanted,
}

/// What of the flows is wanted.
enum Wanted {
    Flows(Vec<&'static Column>),
    /// The sums of each thread.
    Groups(ViewSettings, Parts),
}

/// A view of each thread, which no other uses until the thread has answered.
type Parts = Arc<Mutex<Vec<Arc<Mutex<View>>>>>;

/// The rank of a record that matches.
type RankOf = Box<dyn FnMut(&FlowRecord) -> FlowRank + Send>;

/// Whether a text has the form of a Community ID.
pub fn is_community_id(text: &str) -> bool {
    text.starts_with("1:") && text.len() == 30
}

impl Query {
    /// The flow with this Community ID.
    pub fn of_community_id(id: String) -> Self {
        Self { community_id: Some(id), top: Some("1".into()), ..Self::default() }
    }

    /// Compiles it. The enricher adds places to records before they are compared.
    pub fn search(self, enricher: Option<RecordEnricher>) -> Result<Search, InvalidQuery> {
        let expression = parameters::expression(self.r#where.as_deref())?.map(Arc::new);
        let top = parameters::limit(self.top.as_deref())?;
        let order: Order = self.sort.as_deref().unwrap_or("bytes").parse()?;
        // `+` in the query of a URL stands for a space, which a Community ID does not have.
        let id = self.community_id.map(|id| Arc::<str>::from(id.replace(' ', "+")));
        if id.as_ref().is_some_and(|id| !is_community_id(id)) {
            return Err(InvalidQuery::CommunityId);
        }
        if self.sum.is_some() && self.by.is_none() {
            return Err(InvalidQuery::SumOfFlows);
        }
        let (wanted, rank_of): (_, Box<dyn Fn() -> RankOf + Send + Sync>) = match (self.by, self.fields) {
            (Some(_), Some(_)) => return Err(InvalidQuery::FieldsOfGroups),
            (Some(by), None) => {
                let settings = parameters::sums(Some(&by), None, None, self.sum.as_deref(), Some(order))?;
                let parts = Parts::default();
                (Wanted::Groups(settings.clone(), parts.clone()), Box::new(move || adding(&settings, &parts)))
            }
            (None, fields) => {
                let order = RecordOrder::new(&order)?;
                let columns = parameters::columns(fields.as_deref())?;
                (Wanted::Flows(columns), Box::new(move || Box::new(move |record| order.rank(record))))
            }
        };
        let begin = move || -> Box<Ranking> {
            let (expression, id, enricher, mut rank_of) = (expression.clone(), id.clone(), enricher.clone(), rank_of());
            Box::new(move |record| {
                if let Some(enrich) = &enricher {
                    enrich(std::slice::from_mut(record));
                }
                let matches = expression.as_ref().is_none_or(|expression| expression.matches(record))
                    && id.as_ref().is_none_or(|id| has_community_id(record, id));
                matches.then(|| rank_of(record))
            })
        };
        let limit = if matches!(wanted, Wanted::Flows(_)) { top } else { 0 };
        let (rank, deadline) = (Arc::new(begin), Instant::now() + SEARCH_TIME);
        let search = FlowSearch { rank, limit, deadline, head_start: Duration::ZERO };
        Ok(Search { search, top, wanted })
    }
}

fn has_community_id(record: &FlowRecord, id: &str) -> bool {
    let value = column("community_id").expect("this column exists").read(record);
    !matches!(value, FieldValue::NotApplicable) && value.to_string() == id
}

/// Adds the records of one more thread to a view of its own, which has its memory before.
fn adding(settings: &ViewSettings, parts: &Parts) -> RankOf {
    let settings = ViewSettings { groups: settings.groups.min(MAX_THREAD_GROUPS), ..settings.clone() };
    let mut view = View::new(settings).expect("these settings are checked");
    view.reserve();
    let part = Arc::new(Mutex::new(view));
    parts.lock().push(part.clone());
    Box::new(move |record| {
        part.lock().add(std::slice::from_ref(record));
        FlowRank::default()
    })
}

impl Search {
    /// The answers of all threads together.
    pub async fn found(&self, mut answers: UnboundedReceiver<FoundFlows>) -> FoundFlows {
        let deadline = (self.search.deadline + REPLY_TIME).into();
        let mut all = FoundFlows { is_complete: true, ..FoundFlows::default() };
        loop {
            match timeout_at(deadline, answers.recv()).await {
                Ok(Some(found)) => {
                    all.records.extend(found.records);
                    all.matching += found.matching;
                    all.searched += found.searched;
                    all.is_complete &= found.is_complete;
                }
                // All threads have answered, or ended.
                Ok(None) => break,
                // A thread waits for a pipe, or is blocked.
                Err(_) => {
                    all.is_complete = false;
                    break;
                }
            }
        }
        self.order(&mut all);
        all
    }

    /// The answer for these records in place of those of the threads.
    pub fn json_of(&self, records: &[FlowRecord]) -> Vec<u8> {
        let mut rank_of = (self.search.rank)();
        let rank = |record: &FlowRecord| {
            let mut record = Box::new(record.clone());
            rank_of(&mut record).map(|rank| (rank, record))
        };
        let found: Vec<_> = records.iter().filter_map(rank).collect();
        let (matching, searched) = (found.len() as u64, records.len() as u64);
        let mut found = FoundFlows { records: found, matching, searched, is_complete: true };
        self.order(&mut found);
        self.json(found)
    }

    fn order(&self, found: &mut FoundFlows) {
        found.records.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        found.records.truncate(self.search.limit);
    }

    /// They as one object.
    pub fn json(&self, found: FoundFlows) -> Vec<u8> {
        let FoundFlows { records, matching, searched, is_complete } = found;
        let (name, rows) = match &self.wanted {
            Wanted::Flows(columns) => ("flows", flow_rows(columns, &records)),
            Wanted::Groups(settings, parts) => ("groups", group_rows(settings, parts, self.top)),
        };
        let mut out =
            format!("{{\"matching\":{matching},\"searched\":{searched},\"complete\":{is_complete},\"{name}\":")
                .into_bytes();
        parameters::append_rows(&rows, &mut out);
        out.extend(b"}\n");
        out
    }
}

/// JSON objects of flows, a line each.
fn flow_rows(columns: &[&'static Column], records: &[(FlowRank, Box<FlowRecord>)]) -> Vec<u8> {
    let mut rows = Vec::new();
    for (_, record) in records {
        append_json_record(columns, record, &mut rows);
        rows.push(b'\n');
    }
    rows
}

/// JSON objects of the groups of all threads together, a line each.
fn group_rows(settings: &ViewSettings, parts: &Parts, top: usize) -> Vec<u8> {
    let view = || View::new(settings.clone()).expect("these settings are checked");
    let mut all = view();
    for part in parts.lock().drain(..) {
        all.merge(&std::mem::replace(&mut *part.lock(), view()));
    }
    let mut rows = Vec::new();
    all.append_rows(ViewFormat::Json, top, &mut rows);
    rows
}
