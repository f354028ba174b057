//! Current flows: the parameters of a search, and its answer: flows, or sums of groups.

use crate::stored;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout_at;
use utoipa::{IntoParams, ToSchema};
use weir_export::{ViewFormat, append_json_record};
use weir_fields::{Column, FieldValue, InvalidFields, column, select_columns};
use weir_flow::FlowRecord;
use weir_probe::{FlowRank, FlowSearch, FoundFlows, Ranking, RecordEnricher};
use weir_query::{
    Expression, ExpressionError, InvalidGroupField, InvalidOrder, Order, RecordOrder, View, ViewSettings,
};
use weir_text::units::ParseError;
use weir_text::zone::TimeError;

/// Time after which threads answer with what they have found.
const SEARCH_TIME: Duration = Duration::from_secs(10);
/// Time beyond that for threads that wait for packets.
const REPLY_TIME: Duration = Duration::from_secs(1);
/// Flows of an answer, unless a request names another number, and at most.
const DEFAULT_TOP: usize = 20;
const MAX_TOP: usize = 1000;
/// Names and patterns of fields: more than there are fields.
const MAX_FIELDS: usize = 512;
/// Groups that a thread keeps: at most about 10 MB.
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

/// Why a search is refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidQuery {
    #[error("where: {}", .0.sentence())]
    Where(ExpressionError),
    #[error("sort: {0}")]
    Sort(#[from] InvalidOrder),
    #[error("fields: {0}")]
    Fields(#[from] InvalidFields),
    #[error("fields: at most {MAX_FIELDS} names")]
    TooManyFields,
    #[error("by: the view would have two columns with the name {0}")]
    ColumnTwice(String),
    #[error("top: use a number from 0 to {MAX_TOP}")]
    Top,
    #[error("offset: use a number; offset and top are up to {0} together: select fewer flows by where or time")]
    Offset(usize),
    #[error("offset: groups and intervals have no offset, use top")]
    OffsetOfGroups,
    #[error("every: {0}")]
    Every(ParseError),
    #[error("every: must be at least 1ms: rates of shorter intervals mean nothing")]
    ShortInterval,
    #[error("count: {0}")]
    Count(InvalidGroupField),
    #[error("count: at most {0} fields")]
    TooManyCounts(usize),
    #[error("count: only groups have numbers of different values: with by, without every")]
    CountOfFlows,
    #[error("from: {0}")]
    From(TimeError),
    #[error("to: {0}")]
    To(TimeError),
    #[error("from: there is no time between from and to")]
    FromAfterTo,
    #[error("by: {0}")]
    By(#[from] InvalidGroupField),
    #[error("by: at most {0} fields")]
    TooManyGroupFields(usize),
    #[error("fields: with by or every, the answer has sums, not fields of flows")]
    FieldsOfGroups,
    #[error("store: use the number of a store, from 1")]
    Store,
    #[error("community_id: a Community ID begins with 1: and has 30 characters")]
    CommunityId,
}

impl InvalidQuery {
    /// Where an expression is wrong.
    pub fn place(&self) -> Option<Place> {
        let Self::Where(error) = self else { return None };
        let (text, before, length) = error.place();
        Some(Place { text: text.into(), before, length })
    }
}

/// Where an expression is wrong.
#[derive(Serialize, ToSchema)]
pub struct Place {
    /// The part of the expression that has the place.
    text: String,
    /// Characters of it before the place.
    before: usize,
    /// Characters of the place, at least 1; it may be the end of the text.
    length: usize,
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

/// The parameter `where`.
pub fn expression(text: Option<&str>) -> Result<Option<Expression>, InvalidQuery> {
    text.map(Expression::new).transpose().map_err(InvalidQuery::Where)
}

/// The parameter `fields`.
pub fn columns(fields: Option<&str>) -> Result<Vec<&'static Column>, InvalidQuery> {
    let fields = fields.unwrap_or("basic");
    if fields.split(',').count() > MAX_FIELDS {
        return Err(InvalidQuery::TooManyFields);
    }
    Ok(select_columns(fields)?)
}

/// The parameter `top`.
pub fn limit(top: Option<&str>) -> Result<usize, InvalidQuery> {
    let limit = top.map_or(Ok(DEFAULT_TOP), str::parse).map_err(|_| InvalidQuery::Top)?;
    if limit <= MAX_TOP { Ok(limit) } else { Err(InvalidQuery::Top) }
}

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
        let expression = expression(self.r#where.as_deref())?.map(Arc::new);
        let top = limit(self.top.as_deref())?;
        let order: Order = self.sort.as_deref().unwrap_or("bytes").parse()?;
        // `+` in the query of a URL stands for a space, which a Community ID does not have.
        let id = self.community_id.map(|id| Arc::<str>::from(id.replace(' ', "+")));
        if id.as_ref().is_some_and(|id| !is_community_id(id)) {
            return Err(InvalidQuery::CommunityId);
        }
        let (wanted, rank_of): (_, Box<dyn Fn() -> RankOf + Send + Sync>) = match (self.by, self.fields) {
            (Some(_), Some(_)) => return Err(InvalidQuery::FieldsOfGroups),
            (Some(by), None) => {
                let settings = stored::sums(Some(&by), None, None, Some(order))?;
                let parts = Parts::default();
                (Wanted::Groups(settings.clone(), parts.clone()), Box::new(move || adding(&settings, &parts)))
            }
            (None, fields) => {
                let order = RecordOrder::new(&order)?;
                let columns = columns(fields.as_deref())?;
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
        let search = FlowSearch { rank: Arc::new(begin), limit, deadline: Instant::now() + SEARCH_TIME };
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
        stored::append_rows(&rows, &mut out);
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
        all.merge(std::mem::replace(&mut *part.lock(), view()));
    }
    let mut rows = Vec::new();
    all.append_rows(ViewFormat::Json, top, &mut rows);
    rows
}
