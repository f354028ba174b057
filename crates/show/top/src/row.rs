//! A row of an answer: a flow or a group.

use serde_json::{Map, Value};
use weir_dpi::printable;

/// A flow or a group.
#[derive(Clone, Debug)]
pub struct Row {
    /// The fields.
    pub values: Map<String, Value>,
    /// What distinguishes it from other rows.
    pub key: String,
    /// The names of its ends, if they are known.
    pub name: String,
    /// Its rate since the last answer.
    pub bits_per_second: Option<u64>,
    /// A flow that has ended.
    pub has_ended: bool,
}

impl Row {
    /// A number; `None` if the field does not apply.
    pub fn number(&self, name: &str) -> Option<u64> {
        let value = self.values.get(name)?;
        value.as_u64().or_else(|| value.as_f64().map(|number| number as u64))
    }

    /// A text that the terminal may show; empty if the field does not apply.
    pub fn text(&self, name: &str) -> String {
        self.values.get(name).map(shown).unwrap_or_default()
    }
}

/// A value as text that the terminal may show.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    }
}
