//! What questions about current and about stored flows have in common: parameters, why they are refused, rows of answers.

use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;
use weir_fields::{Column, InvalidFields, InvalidSumField, SumField, select_columns};
use weir_query::{
    CountField, Expression, ExpressionError, GroupField, InvalidGroupField, InvalidOrder, Metric, Order, View,
    ViewSettings,
};
use weir_text::units::ParseError;
use weir_text::zone::{TimeError, Zone};

/// Flows of an answer, unless a request names another number, and at most.
const DEFAULT_TOP: usize = 20;
const MAX_TOP: usize = 1000;
/// Names and patterns of fields: more than there are fields.
const MAX_FIELDS: usize = 512;
/// Groups in memory, if they fit into the memory of all of them.
const MAX_GROUPS: usize = 100_000;
const MAX_GROUPS_BYTES: u64 = 128 << 20;
/// Fields of a group, and numbers of different values.
const MAX_GROUP_FIELDS: usize = 4;
/// Sums beside those of every group.
const MAX_SUMS: usize = 16;

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
    #[error("sum: {0}")]
    Sum(#[from] InvalidSumField),
    #[error("sum: at most {MAX_SUMS} names")]
    TooManySums,
    #[error("sum: only groups and intervals have sums")]
    SumOfFlows,
    #[error("numbers: there is no number {0:?}; use some of {names}", names = Metric::ALL.map(Metric::name).join(", "))]
    Number(String),
    #[error("numbers: only groups and intervals have numbers; flows have fields")]
    NumbersOfFlows,
    #[error("flow: name one: its Community ID, or as in 192.0.2.1:40000-192.0.2.2:443/tcp")]
    NoFlow,
    #[error("at: {0}")]
    At(TimeError),
    #[error("top: use a number from 0 to {0}")]
    Segments(usize),
    /// Of `/names`.
    #[error("of: name addresses and ports as in 192.0.2.1,443/tcp, up to {0}")]
    Named(usize),
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
    #[error("records: use flows or transactions")]
    Records,
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

/// A time: as `weir read` takes it, in UTC without a zone.
pub fn time(text: &str) -> Result<u64, TimeError> {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    Zone::UTC.parse_relative(text, now_ns).or_else(|error| {
        // An offset may begin with a plus, which stands for a space in the query of a URL.
        let with_plus = text.rsplit_once(' ').map(|(time, offset)| format!("{time}+{offset}"));
        with_plus.and_then(|text| Zone::UTC.parse_relative(&text, now_ns).ok()).ok_or(error)
    })
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
    if limit <= MAX_TOP { Ok(limit) } else { Err(InvalidQuery::Top) }
}

/// The view of groups, of intervals, or of both. Its groups have a limit of memory.
pub fn sums(
    by: Option<&str>,
    every_ns: Option<u64>,
    count: Option<&str>,
    sum: Option<&str>,
    order: Option<Order>,
) -> Result<ViewSettings, InvalidQuery> {
    let names = |text: Option<&'_ str>| text.map(|text| text.split(',').map(String::from).collect::<Vec<_>>());
    let (by, count) = (names(by).unwrap_or_default(), names(count).unwrap_or_default());
    if by.len() > MAX_GROUP_FIELDS {
        return Err(InvalidQuery::TooManyGroupFields(MAX_GROUP_FIELDS));
    }
    if count.len() > MAX_GROUP_FIELDS {
        return Err(InvalidQuery::TooManyCounts(MAX_GROUP_FIELDS));
    }
    if !count.is_empty() && (every_ns.is_some() || by.is_empty()) {
        return Err(InvalidQuery::CountOfFlows);
    }
    let fields = by.iter().map(|name| name.parse::<GroupField>()).collect::<Result<Vec<_>, _>>()?;
    let counts = count.iter().map(|name| name.parse::<CountField>()).collect::<Result<Vec<_>, _>>();
    let counts = counts.map_err(InvalidQuery::Count)?;
    let sums = names(sum).unwrap_or_default();
    if sums.len() > MAX_SUMS {
        return Err(InvalidQuery::TooManySums);
    }
    let sums = sums.iter().map(|name| name.parse::<SumField>()).collect::<Result<Vec<_>, _>>()?;
    if let Some(name) = View::repeated_column(&fields, &counts, &sums) {
        return Err(InvalidQuery::ColumnTwice(name));
    }
    let one = ViewSettings { fields, counts, sums, every_ns, order, groups: 1, ..ViewSettings::default() };
    let groups = (MAX_GROUPS_BYTES / one.max_memory_bytes()).min(MAX_GROUPS as u64) as usize;
    let settings = ViewSettings { groups, ..one };
    View::new(settings.clone())?;
    Ok(settings)
}

/// The parameter `numbers`: a view with these only, and the one by which it is sorted.
pub fn with_numbers(settings: ViewSettings, numbers: &str) -> Result<ViewSettings, InvalidQuery> {
    let number = |name: &str| Metric::of_name(name).ok_or_else(|| InvalidQuery::Number(name.into()));
    let mut wanted = numbers.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
    wanted.extend(View::new(settings.clone())?.order_metric());
    let unknown = Metric::ALL.into_iter().filter(|metric| !wanted.contains(metric)).collect();
    Ok(ViewSettings { unknown, ..settings })
}

/// Appends a list of JSON objects, each of which has a line break behind it.
pub fn append_rows(rows: &[u8], out: &mut Vec<u8>) {
    out.extend(b"[\n");
    // No row has a line break.
    for (number, row) in rows.split_inclusive(|octet| *octet == b'\n').enumerate() {
        out.extend((number > 0).then_some(b','));
        out.extend(row);
    }
    out.push(b']');
}
