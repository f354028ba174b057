//! Names of hosts and services beside addresses and ports (`weir top --names`).
//!
//! In: an answer with rows. Out: the questions for the names in it, and the answer with them, under `names`. Names are
//! what others claim: no character of them acts on the terminal.

use crate::list::List;
use crate::question::path;
use crate::row::Row;
use serde_json::{Map, Value};
use weir_dpi::printable;

/// Addresses and ports of a question, and questions for an answer, at most. Rows beyond have no names.
const MAX_ITEMS: usize = 256;
const MAX_QUESTIONS: usize = 8;

/// Addresses of rows.
const ADDRESSES: [&str; 4] = ["host", "src_ip", "dst_ip", "server_ip"];
/// Ports of rows.
const PORTS: [&str; 3] = ["src_port", "dst_port", "service_port"];

/// The paths of the questions for the names of an answer with rows.
pub fn names_paths(body: &Value) -> Vec<String> {
    let rows = ["groups", "flows"].into_iter().find_map(|key| body[key].as_array());
    let mut items: Vec<String> = Vec::new();
    for row in rows.into_iter().flatten().filter_map(Value::as_object) {
        items.extend(ADDRESSES.iter().filter_map(|name| row.get(*name)?.as_str().map(str::to_owned)));
        items.extend(PORTS.iter().filter_map(|name| service(row, name)));
    }
    let mut known = std::collections::HashSet::new();
    items.retain(|item| known.insert(item.clone()));
    let questions = items.chunks(MAX_ITEMS).take(MAX_QUESTIONS);
    questions.map(|items| path("/names", &[("of", &items.join(","))])).collect()
}

/// Adds an answer to one of these questions, or why there is none, to the answer with rows.
pub fn add_names(body: &mut Value, answer: Result<Value, String>) {
    let Some(body) = body.as_object_mut() else { return };
    match answer {
        Ok(mut answer) => {
            let names = body.entry("names").or_insert_with(|| Value::Object(Map::new()));
            if let (Some(names), Some(more)) = (names.as_object_mut(), answer["names"].as_object_mut()) {
                names.append(more);
            }
        }
        Err(reason) => drop(body.insert("no_names".into(), reason.into())),
    }
}

/// What is asked of a port.
fn service(row: &Map<String, Value>, name: &str) -> Option<String> {
    let port = row.get(name)?.as_u64()?;
    Some(match row.get("protocol").and_then(Value::as_str) {
        Some(protocol) => format!("{port}/{protocol}"),
        None => port.to_string(),
    })
}

/// The names of a row of a list; empty if it has none.
pub fn of_row(list: List, row: &Row, names: &Value) -> String {
    let known = |item: &str| names[item].as_str().map(printable).unwrap_or_default();
    let host = |name: &str| row.values.get(name).and_then(Value::as_str).map(known).unwrap_or_default();
    let end = |address: &str, port: &str| {
        let service = service(&row.values, port).map(|item| known(&item)).unwrap_or_default();
        if service.is_empty() { host(address) } else { format!("{}:{service}", host(address)) }
    };
    let pair = |ends: [String; 2]| match ends.each_ref().map(String::is_empty) {
        [true, true] => String::new(),
        are_empty => {
            let [one, other] = [0, 1].map(|at| if are_empty[at] { "-" } else { &ends[at] });
            format!("{one} → {other}")
        }
    };
    match list {
        List::Hosts => host("host"),
        List::Pairs => pair([host("src_ip"), host("dst_ip")]),
        List::Servers => end("server_ip", "service_port"),
        List::Applications => String::new(),
        List::Flows | List::Failures => pair([end("src_ip", "src_port"), end("dst_ip", "dst_port")]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_address_and_port_is_asked_for_once() {
        let flow =
            json!({"src_ip": "10.0.0.1", "src_port": 40000, "dst_ip": "10.0.0.2", "dst_port": 443, "protocol": "tcp"});
        let body = json!({"flows": [flow, flow]});
        assert_eq!(names_paths(&body), ["/names?of=10.0.0.1,10.0.0.2,40000%2Ftcp,443%2Ftcp"]);
        let many: Vec<Value> =
            (0..3000).map(|host| json!({"host": format!("10.0.{}.{}", host / 250, host % 250)})).collect();
        assert_eq!(names_paths(&json!({"groups": many})).len(), MAX_QUESTIONS);
        assert!(names_paths(&json!({"groups": [{"application": "dns"}]})).is_empty());
    }

    #[test]
    fn names_act_on_no_terminal() {
        let row = json!({"src_ip": "10.0.0.1", "dst_ip": "10.0.0.2", "dst_port": 443});
        let row = Row {
            values: row.as_object().unwrap().clone(),
            key: String::new(),
            name: String::new(),
            bits_per_second: None,
            has_ended: false,
        };
        let names = json!({"10.0.0.2": "a\u{1b}[2J", "443": "https"});
        assert_eq!(of_row(List::Flows, &row, &names), "- → a\\x1b[2J:https");
        assert_eq!(of_row(List::Pairs, &row, &Value::Null), "");
    }
}
