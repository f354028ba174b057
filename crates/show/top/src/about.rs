//! What answers: a probe, or stored flows.

use serde_json::Value;
use weir_dpi::printable;
use weir_text::zone::Zone;

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A running probe.
    Probe,
    /// `weir view`: stored flows, and no probe.
    View,
}

/// The answer of `/about`.
#[derive(Clone, Debug)]
pub struct About {
    /// What answers.
    pub mode: Mode,
    /// Whether a probe answers questions about ended flows.
    pub has_history: bool,
    /// The captures, interfaces and stores.
    pub inputs: String,
    /// First and last start of the stored flows, ns since 1970.
    pub range: Option<(u64, u64)>,
}

impl About {
    /// Whether an answer is that of Weir.
    pub fn is_of_weir(answer: &Value) -> bool {
        answer["program"] == "weir"
    }

    /// Reads the answer. A probe without this path has current flows only.
    pub fn new(answer: &Value) -> Self {
        let names = ["inputs", "stores"].into_iter().filter_map(|key| answer[key].as_array()).flatten();
        let mut inputs: Vec<String> = Vec::new();
        // A store that is looked at is both.
        for name in names.filter_map(Value::as_str).map(printable) {
            if !inputs.contains(&name) {
                inputs.push(name);
            }
        }
        Self {
            mode: if answer["mode"] == "view" { Mode::View } else { Mode::Probe },
            has_history: matches!(answer["history"].as_str(), Some("store" | "memory")),
            inputs: inputs.join(", "),
            range: answer["from_ns"].as_u64().zip(answer["to_ns"].as_u64()),
        }
    }

    /// When the stored flows began: the first and the last one.
    pub fn period(&self) -> String {
        let period = |(from_ns, to_ns)| Zone::current().period(from_ns, to_ns);
        self.range.map_or_else(|| "no flows".into(), period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_that_is_input_and_store_is_there_once() {
        let about = About::new(&json!({"mode": "view", "inputs": ["a", "b"], "stores": ["a", "b", "c"]}));
        assert_eq!(about.inputs, "a, b, c");
    }
}
