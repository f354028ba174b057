//! What runs of the binary leave: flow records in JSON, and the ledger.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// Reads the ledger that `--stats` wrote. It must balance.
pub fn read_ledger(path: &Path) -> Value {
    let ledger: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(ledger["balanced"], true, "{ledger}");
    ledger
}

/// A number of a JSON object; 0 if it is absent.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Packets of a flow record in both directions.
pub fn packets(flow: &Value) -> u64 {
    number(&flow["packets"])
}

/// Reads JSON flow records, one per line. An incomplete last line is left out.
pub fn read_flows(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A file of JSON flow records in a folder of its own.
pub struct JsonOutput {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    /// The value for `-o`.
    pub sink: String,
}

impl JsonOutput {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.json");
        let sink = format!("json:{}?fields=all", path.display());
        Self { folder, path, sink }
    }

    /// The flow records written so far.
    pub fn flows(&self) -> Vec<Value> {
        read_flows(&self.path)
    }
}

impl Default for JsonOutput {
    fn default() -> Self {
        Self::new()
    }
}
