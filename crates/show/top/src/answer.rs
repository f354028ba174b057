//! Answers, and the rows in them.

use crate::columns;
use crate::list::List;
use crate::names;
use crate::question::Topic;
use crate::row::Row;
use serde_json::{Map, Value};
use weir_dpi::printable;

/// What was answered to a question.
#[derive(Debug)]
pub struct Reply {
    /// The generation of the questions.
    pub generation: u64,
    /// What was asked.
    pub topic: Topic,
    /// When the answer came, ns of a clock that never goes back.
    pub time_ns: u64,
    /// Status and JSON, or why there is no answer.
    pub result: Result<(u16, Value), String>,
}

/// The sentence of an answer that is an error, or that this target has sent none.
pub fn sentence(target: &str, status: u16, body: &Value) -> String {
    let none = || format!("{target} answers with status {status} and no reason: is it the --listen address of weir?");
    body["error"].as_str().map_or_else(|| printable(&none()), printable)
}

/// The rows of an answer.
#[derive(Debug, Default)]
pub struct Rows {
    /// The rows, in the order of the answer.
    pub rows: Vec<Row>,
    /// Flows that match.
    pub matching: u64,
    /// Flows that were looked at.
    pub searched: u64,
    /// Whether all were.
    pub is_complete: bool,
    /// What is wrong with files.
    pub problems: Vec<String>,
    /// Why names are missing.
    pub no_names: Option<String>,
}

impl Rows {
    /// Reads an answer.
    pub fn new(list: List, body: &Value, has_ended: bool) -> Self {
        let rows = ["groups", "flows"].into_iter().find_map(|key| body[key].as_array());
        let objects = rows.into_iter().flatten().filter_map(Value::as_object);
        let row = |values: &Map<String, Value>| {
            let (values, empty) = (values.clone(), String::new);
            let mut row = Row { values, key: empty(), name: empty(), bits_per_second: None, has_ended };
            row.key = columns::key(list, &row);
            row.name = names::of_row(list, &row, &body["names"]);
            row
        };
        let number = |key: &str| body[key].as_u64();
        let problems = body["problems"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Self {
            rows: objects.map(row).collect(),
            matching: number("matching").unwrap_or_default(),
            searched: number("searched").or(number("read")).unwrap_or_default(),
            is_complete: body["complete"].as_bool().unwrap_or(true),
            problems: problems.map(printable).collect(),
            no_names: body["no_names"].as_str().map(printable),
        }
    }
}
