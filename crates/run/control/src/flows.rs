//! Current flows: the parameters of a search, and its answer.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout_at;
use utoipa::{IntoParams, ToSchema};
use weir_export::append_json_record;
use weir_fields::{Column, FieldValue, InvalidFields, column, select_columns};
use weir_flow::FlowRecord;
use weir_probe::{FlowRank, FlowSearch, FoundFlows, RecordEnricher};
use weir_query::{Expression, ExpressionError, InvalidGroupField, InvalidOrder, Order, RecordOrder};
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

/// The parameters of a search.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only flows that match this expression, as --where (weir help expressions)
    r#where: Option<String>,
    /// Only the flow with this Community ID
    community_id: Option<String>,
    /// The number by which flows are sorted, the largest first; NUMBER:asc for the smallest first. Default: bytes
    sort: Option<String>,
    /// How many flows, up to 1000. Default: 20
    #[param(value_type = Option<usize>)]
    top: Option<String>,
    /// Fields of each flow, as --fields (weir help fields). Default: basic
    fields: Option<String>,
}

/// Current flows.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the answer, whose text is written by the encoder of JSON records")]
pub struct Flows {
    /// The first ones by the order of the request.
    #[schema(value_type = Vec<Object>)]
    flows: Vec<()>,
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
    #[error("top: use a number from 1 to {MAX_TOP}")]
    Top,
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
    #[error("fields: with by, the answer has groups, not fields of flows")]
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
    columns: Vec<&'static Column>,
}

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
    if (1..=MAX_TOP).contains(&limit) { Ok(limit) } else { Err(InvalidQuery::Top) }
}

/// Whether a text has the form of a Community ID.
pub fn is_community_id(text: &str) -> bool {
    text.starts_with("1:") && text.len() == 30
}

impl Query {
    /// The flow with this Community ID.
    pub fn of_community_id(id: String) -> Self {
        Self { r#where: None, community_id: Some(id), sort: None, top: Some("1".into()), fields: None }
    }

    /// Compiles it. The enricher adds places to records before they are compared.
    pub fn search(self, enricher: Option<RecordEnricher>) -> Result<Search, InvalidQuery> {
        let expression = expression(self.r#where.as_deref())?;
        let order = RecordOrder::new(&self.sort.as_deref().unwrap_or("bytes").parse::<Order>()?)?;
        let columns = columns(self.fields.as_deref())?;
        let limit = limit(self.top.as_deref())?;
        // `+` in the query of a URL stands for a space, which a Community ID does not have.
        let id = self.community_id.map(|id| id.replace(' ', "+"));
        if id.as_ref().is_some_and(|id| !is_community_id(id)) {
            return Err(InvalidQuery::CommunityId);
        }
        let id_column = column("community_id").expect("this column exists");
        let rank = move |record: &mut FlowRecord| -> Option<FlowRank> {
            if let Some(enrich) = &enricher {
                enrich(std::slice::from_mut(record));
            }
            let is_flow = |id: &String| {
                !matches!(id_column.read(record), FieldValue::NotApplicable)
                    && id_column.read(record).to_string() == *id
            };
            let matches = expression.as_ref().is_none_or(|expression| expression.matches(record));
            (matches && id.as_ref().is_none_or(is_flow)).then(|| order.rank(record))
        };
        let search = FlowSearch { rank: Arc::new(rank), limit, deadline: Instant::now() + SEARCH_TIME };
        Ok(Search { search, columns })
    }
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
        let rank = |record: &FlowRecord| {
            let mut record = Box::new(record.clone());
            (self.search.rank)(&mut record).map(|rank| (rank, record))
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
        let mut out =
            format!("{{\"matching\":{matching},\"searched\":{searched},\"complete\":{is_complete},\"flows\":[")
                .into_bytes();
        for (number, (_, record)) in records.iter().enumerate() {
            out.extend(if number == 0 { &b"\n"[..] } else { b",\n" });
            append_json_record(&self.columns, record, &mut out);
        }
        out.extend(b"]}\n");
        out
    }
}
