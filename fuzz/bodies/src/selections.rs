//! What users and HTTP clients select with: queries of `/flows`, and fields of sinks.

use super::flows::flow;
use weir_export::{SinkSpec, append_json_record};
use weir_fields::select_columns;
use weir_testkit::input::Input;

/// Selections that are read as they are: longer ones cost more than they show.
const MAX_TEXT: usize = 4096;

/// Splits an input into a text and the octets of records: the first two octets are the length of the text.
fn text_and_records(input: &[u8]) -> (String, Input<'_>) {
    let mut input = Input(input);
    let length = usize::from(input.u16()).min(MAX_TEXT);
    (String::from_utf8_lossy(input.take(length)).into_owned(), input)
}

/// Answers `GET /flows?QUERY` over two records. Invariants: the answer is JSON, it has at most as many flows as there
/// are and as match, and a refusal says why.
///
/// # Panics
/// An invariant does not hold.
pub fn query(input: &[u8]) {
    let (text, mut records) = text_and_records(input);
    let records = [flow(&mut records), flow(&mut records)];
    match weir_control::search_json(&text, &records) {
        Ok(answer) => {
            let answer: serde_json::Value = serde_json::from_slice(&answer).expect("the answer is JSON");
            let (flows, matching) = (answer["flows"].as_array().map(Vec::len), answer["matching"].as_u64());
            assert!(flows.zip(matching).is_some_and(|(flows, matching)| flows as u64 <= matching && matching <= 2));
        }
        Err(refusal) => assert!(!refusal.is_empty(), "{text:?}"),
    }
}

/// Selects fields as columns of JSON and as elements of IPFIX and NetFlow. Invariants: each column is selected once, a
/// record with these columns is a JSON object with their names, and a refusal says why.
///
/// # Panics
/// An invariant does not hold.
pub fn fields(input: &[u8]) {
    let (text, mut records) = text_and_records(input);
    for sink in ["ipfix:127.0.0.1:4739", "netflow9:127.0.0.1:2055", "csv:flows.csv"] {
        if let Err(error) = format!("{sink}?fields={text}").parse::<SinkSpec>() {
            assert!(!error.to_string().is_empty());
        }
    }
    let columns = match select_columns(&text) {
        Ok(columns) => columns,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut names: Vec<_> = columns.iter().map(|column| column.name).collect();
    let mut out = Vec::new();
    append_json_record(&columns, &flow(&mut records), &mut out);
    let object: serde_json::Map<_, _> = serde_json::from_slice(&out).expect("a record is a JSON object");
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{text:?}: {names:?}");
    assert!(object.keys().all(|name| names.contains(&name.as_str())), "{text:?}: {object:?}");
}
