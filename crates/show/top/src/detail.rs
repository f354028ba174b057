//! The fields of one flow.

use crate::columns;
use crate::line::{HEADING, Line, PLAIN, cut, padded, width};
use crate::list::List;
use crate::row::{Row, shown};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use weir_dpi::printable;

/// Columns of a value before its meaning.
const VALUE: usize = 32;

/// Place, unit and meaning of each field.
pub type Meanings = BTreeMap<String, (usize, String, String)>;

/// A flow that is open.
#[derive(Debug)]
pub struct Detail {
    /// What it is called.
    pub title: String,
    /// Where it can be found again: start and Community ID.
    pub identity: Option<(String, String)>,
    /// Whether it has ended.
    pub has_ended: bool,
    /// The fields.
    values: Map<String, Value>,
    /// Lines above the screen.
    pub first: usize,
}

/// Reads the answer of `/fields`.
pub fn meanings(answer: &Value) -> Meanings {
    let text = |field: &Value, key: &str| field[key].as_str().map(printable).unwrap_or_default();
    let fields = answer["fields"].as_array().into_iter().flatten().enumerate();
    fields.map(|(place, field)| (text(field, "name"), (place, text(field, "unit"), text(field, "meaning")))).collect()
}

impl Detail {
    /// The flow of a row.
    pub fn new(row: &Row) -> Self {
        Self {
            title: columns::title(List::Flows, row),
            identity: columns::identity(row),
            has_ended: row.has_ended,
            values: row.values.clone(),
            first: 0,
        }
    }

    /// Takes the answer with all fields. False if the flow is not in it.
    pub fn take(&mut self, answer: &Value) -> bool {
        let flow = answer["flows"].as_array().and_then(|flows| flows.first()?.as_object());
        if let Some(flow) = flow {
            self.values = flow.clone();
        }
        flow.is_some()
    }

    /// A line for each field that has a value: its name, value and unit; on wide screens its meaning.
    pub fn lines(&self, meanings: &Meanings, columns: usize) -> Vec<Line> {
        let values = self.values.iter().map(|(name, value)| (printable(name), shown(value)));
        let mut values: Vec<(String, String)> = values.filter(|(_, value)| !value.is_empty()).collect();
        values.sort_by_key(|(name, _)| meanings.get(name).map_or(usize::MAX, |(place, ..)| *place));
        let names = values.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
        let room = columns.saturating_sub(names + 1);
        let line = |(name, value): &(String, String)| {
            let (_, unit, meaning) = meanings.get(name).cloned().unwrap_or_default();
            let value = if unit.is_empty() { value.clone() } else { format!("{value} {unit}") };
            let mut text = cut(&value, room);
            let left = room.saturating_sub(width(&text).max(VALUE) + 2);
            if left >= 40 && !meaning.is_empty() {
                text = format!("{}  {}", padded(&text, VALUE), cut(&meaning, left));
            }
            Line(vec![(padded(name, names + 1), HEADING), (text, PLAIN)])
        };
        values.iter().map(line).collect()
    }
}
