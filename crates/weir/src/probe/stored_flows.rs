//! Answers questions of the HTTP interface from a store of the probe (`/stored`).
//!
//! Input: the finished files of the store; flows in the flow cache and those that the sink has not written are not in
//! it. Output: flows, or sums of groups, as `weir read` writes them as JSON. It runs on a thread of its own, and looks
//! between batches whether its time is over.

use crate::stored_reader::select;
use crate::table::{LargestFlows, ViewTable};
use std::path::Path;
use weir_control::{StoredAnswer, StoredError, StoredQuestion, Wanted};
use weir_export::{ViewFormat, append_json_record};
use weir_fields::{Column, Field, field};
use weir_flow::FlowRecord;
use weir_query::{GroupField, Metric, RecordOrder, View, ViewSettings};
use weir_store::{Damage, FlowReader};

/// Flows that are read before the time is looked at.
const BATCH: usize = 1024;
/// Problems that an answer names one by one.
const MAX_PROBLEMS: usize = 100;

/// Answers a question from the store in a folder.
///
/// # Errors
/// The store cannot be read, or its flows do not have a field of the question.
pub fn ask(folder: &Path, question: &StoredQuestion) -> Result<StoredAnswer, StoredError> {
    let found = FlowReader::open(&[folder.into()], Some(question.starts_ns.clone()));
    let found = found.map_err(|error| StoredError::Store(format!("the store cannot be read: {error}")))?;
    let mut reader = found.reader;
    let mut rows = Rows::new(question, reader.known())?;
    select(&mut reader, Some(question.starts_ns.clone()), question.expression.as_ref());
    reader.keep_only(&rows.fields(question));
    let mut problems = Problems::default();
    found.damaged.into_iter().for_each(|damage| problems.add(damage));
    let mut matching = 0;
    let mut records = Vec::with_capacity(BATCH);
    let is_cut = loop {
        if question.is_over() {
            break true;
        }
        records.clear();
        match reader.read(&mut records, BATCH) {
            Ok(true) => {}
            Ok(false) => break false,
            Err(damage) => problems.add(damage),
        }
        rows.add(&records, matching);
        matching += records.len() as u64;
    };
    let is_complete = !is_cut && problems.count == 0;
    let read = matching + reader.others;
    Ok(StoredAnswer { rows: rows.json(), matching, read, is_complete, problems: problems.texts() })
}

/// The rows of an answer.
enum Rows {
    /// In the order of the question, or the newest first.
    Flows {
        first: Box<LargestFlows>,
        columns: Vec<&'static Column>,
        is_newest: bool,
    },
    Groups(Box<ViewTable>),
}

impl Rows {
    fn new(question: &StoredQuestion, known: &[&'static Column]) -> Result<Self, StoredError> {
        let not_stored = |place: &str, name: &str| {
            StoredError::Question(format!("{place}: the stored flows of this time do not all have the field {name}"))
        };
        let check = |place: &str, name: &str| match field(name) {
            Some(of) if !known.contains(&of.column()) => Err(not_stored(place, name)),
            _ => Ok(()),
        };
        let compared = question.expression.iter().flat_map(|expression| expression.fields());
        compared.into_iter().try_for_each(|name| check("where", name))?;
        match &question.wanted {
            Wanted::Flows { order, columns } => {
                order.iter().try_for_each(|order| check("sort", order.name()))?;
                let stored: Vec<_> = columns.iter().copied().filter(|column| known.contains(column)).collect();
                if let (true, Some(column)) = (stored.is_empty(), columns.first()) {
                    return Err(not_stored("fields", column.name));
                }
                let by = (*order).unwrap_or_else(RecordOrder::newest);
                let first = Box::new(LargestFlows::new(question.top, Some(by), None));
                Ok(Self::Flows { first, columns: stored, is_newest: order.is_none() })
            }
            Wanted::Groups(settings) => {
                settings.fields.iter().try_for_each(|field| check("by", GroupField::name(field)))?;
                let settings = ViewSettings { unknown: Metric::unknown(known), ..settings.clone() };
                let view = View::new(settings).map_err(|error| StoredError::Question(format!("sort: {error}")))?;
                Ok(Self::Groups(Box::new(ViewTable { view, format: ViewFormat::Json, top: Some(question.top) })))
            }
        }
    }

    /// The fields that records need.
    fn fields(&self, question: &StoredQuestion) -> Vec<&'static Column> {
        let (mut columns, names): (Vec<_>, Vec<&str>) = match (self, &question.wanted) {
            (Self::Flows { columns, .. }, Wanted::Flows { order, .. }) => {
                (columns.clone(), order.iter().map(RecordOrder::name).collect())
            }
            (Self::Groups(table), _) => {
                let fields = &table.view.settings().fields;
                (View::summed_fields().collect(), fields.iter().map(GroupField::name).collect())
            }
            (Self::Flows { columns, .. }, Wanted::Groups(_)) => (columns.clone(), Vec::new()),
        };
        let compared = question.expression.iter().flat_map(|expression| expression.fields());
        columns.extend(names.into_iter().chain(compared).filter_map(field).flat_map(Field::columns));
        columns
    }

    /// Adds flows that match. `before` are those that matched before.
    fn add(&mut self, flows: &[FlowRecord], before: u64) {
        match self {
            Self::Flows { first, .. } => (before..).zip(flows).for_each(|(number, flow)| first.insert(flow, number)),
            Self::Groups(table) => table.add(flows),
        }
    }

    /// JSON objects, a line each.
    fn json(self) -> Vec<u8> {
        match self {
            Self::Flows { first, columns, is_newest } => {
                let mut flows: Vec<FlowRecord> = first.into_flows().collect();
                if is_newest {
                    flows.reverse();
                }
                let mut out = Vec::new();
                for flow in &flows {
                    append_json_record(&columns, flow, &mut out);
                    out.push(b'\n');
                }
                out
            }
            Self::Groups(table) => table.machine_text().0,
        }
    }
}

/// What is wrong with files.
#[derive(Default)]
struct Problems {
    first: Vec<String>,
    count: usize,
}

impl Problems {
    fn add(&mut self, Damage { path, error }: Damage) {
        self.count += 1;
        if self.first.len() < MAX_PROBLEMS {
            self.first.push(format!("{}: {error}", path.display()));
        }
    }

    fn texts(self) -> Vec<String> {
        let others = self.count - self.first.len();
        let others = (others > 0).then(|| format!("{others} more files cannot be read to their ends"));
        self.first.into_iter().chain(others).collect()
    }
}
