//! Sources with many targets of which none answered: a row for each in place of their flows in the list of failures.
//!
//! In: sums of flows by source. Out: the [`Row`]s of scans, and the expressions that select or leave out their flows.

use crate::row::Row;
use serde_json::{Map, Value};

/// Fewest hosts or ports of a source that are a scan. `weir tcp` counts targets: pairs of both.
const FEWEST: u64 = 20;
/// What flows are summed up by.
pub const BY: &str = "src_ip";
/// Sources that are asked for.
pub const MOST: &str = "50";
/// The parameters of the question: which numbers each source has.
pub const COUNTS: &str = "hosts,ports";
/// The same.
pub const SUMS: &str = "no_answer,refused,half_open";
/// Selects connections that never opened.
pub const UNOPENED: &str = "tcp_failure in {no_answer, refused, half_open}";

/// The scans among sums by source.
pub fn scans(answer: &Value) -> Vec<Row> {
    answer["groups"].as_array().into_iter().flatten().filter_map(Value::as_object).filter_map(scan).collect()
}

fn scan(sums: &Map<String, Value>) -> Option<Row> {
    let number = |name: &str| sums.get(name).and_then(Value::as_u64).unwrap_or_default();
    let is_scan = number("other_groups") == 0 && number("hosts").max(number("ports")) >= FEWEST;
    let source = sums.get("src_ip")?.as_str().filter(|_| is_scan)?;
    let mut values = sums.clone();
    values.insert("start_time".into(), sums.get("first_time").cloned().unwrap_or_default());
    values.insert("protocol".into(), "tcp".into());
    Some(Row { values, key: format!("scan {source}"), bits_per_second: None, has_ended: true, name: String::new() })
}

/// Whether a row is a scan.
pub fn is_scan(row: &Row) -> bool {
    row.key.starts_with("scan ")
}

/// The flows of scans.
pub fn flows(scans: &[Row]) -> u64 {
    scans.iter().filter_map(|row| row.number("flows")).sum()
}

/// `192.0.2.1 → 254 hosts, 22 ports`
pub fn ends(row: &Row) -> String {
    let targets = [("hosts", "host"), ("ports", "port")].map(|(name, one)| {
        let number = row.number(name).unwrap_or_default();
        let is_estimate =
            row.values.get(&format!("{name}_error")).and_then(Value::as_f64).is_some_and(|error| error > 0.0);
        format!("{}{number} {one}{}", if is_estimate { "~" } else { "" }, if number == 1 { "" } else { "s" })
    });
    format!("{} → {}", row.text("src_ip"), targets.join(", "))
}

/// How its flows failed.
pub fn failure(row: &Row) -> String {
    let some = |name: &str| row.number(name).filter(|&number| number > 0);
    let parts = SUMS.split(',').filter_map(|name| Some(format!("{} {}", some(name)?, name.replace('_', " "))));
    format!("scan: {}", parts.collect::<Vec<_>>().join(", "))
}

/// Selects the flows of a scan.
pub fn condition(row: &Row) -> String {
    format!("src_ip = {} and {UNOPENED}", row.text("src_ip"))
}

/// Leaves out the flows of scans; `None` without any.
pub fn others(scans: &[Row]) -> Option<String> {
    let sources: Vec<String> = scans.iter().map(|row| row.text("src_ip")).collect();
    (!sources.is_empty()).then(|| format!("not (src_ip in {{{}}} and {UNOPENED})", sources.join(", ")))
}
