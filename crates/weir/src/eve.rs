//! Lines of Suricata's EVE file: which of them select a flow, and the override of it.
//!
//! Input: a line, which is JSON of strangers in part (Suricata copies names from packets). Output: the body of
//! `POST /overrides`. Not done here: reading the file, posting.

use crate::arguments::{Bypass, BypassAction, EveEvent};
use serde_json::{Value, json};

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// It cannot be used, and why.
    Broken(&'static str),
    /// An event that is not selected.
    Other,
    /// An event of a flow.
    Selected {
        /// The body of the request.
        body: String,
        /// The flow is of ICMP, named by its Community ID: the probe has to search for it.
        is_icmp: bool,
    },
}

/// Reads a line; `None` is one that was cut.
pub fn read(line: Option<&[u8]>, arguments: &Bypass) -> Line {
    let event = line.and_then(|line| serde_json::from_slice::<Value>(line).ok()).filter(Value::is_object);
    let Some(event) = event else { return Line::Broken("no JSON object, cut, or longer than 1 MiB") };
    if !is_selected(&event, arguments) {
        return Line::Other;
    }
    let Some(flow) = flow(&event) else { return Line::Broken("the event names no flow") };
    let action = match arguments.action {
        BypassAction::Shunt => "shunt",
        BypassAction::Drop => "drop",
        BypassAction::Forward => "forward",
    };
    let &Bypass { more, expiry_seconds, .. } = arguments;
    let is_icmp = flow.get("community_id").is_some();
    let body = json!({"flow": flow, "action": action, "more": more, "expiry": expiry_seconds});
    Line::Selected { body: body.to_string(), is_icmp }
}

/// Whether an event is one of those that select a flow.
fn is_selected(event: &Value, arguments: &Bypass) -> bool {
    let alert = &event["alert"];
    let is_of_signature = || {
        let id = alert["signature_id"].as_u64();
        arguments.signature.is_empty() || id.is_some_and(|id| arguments.signature.contains(&id))
    };
    arguments.on.iter().any(|on| match on {
        EveEvent::Alert => event["event_type"] == "alert" && is_of_signature(),
        EveEvent::Drop => {
            let is_drop = event["event_type"] == "drop";
            (is_drop || event["event_type"] == "alert" && alert["action"] == "blocked") && is_of_signature()
        }
        EveEvent::Bypassed => {
            let flow = &event["flow"];
            event["event_type"] == "flow" && (flow["state"] == "bypassed" || flow["bypass"].is_string())
        }
    })
}

/// The flow of an event, as the HTTP interface names it. ICMP has types in place of ports, which an
/// event has for one direction only: its Community ID names the flow. The probe refuses a flow whose
/// ports are missing.
fn flow(event: &Value) -> Option<Value> {
    let text = |name: &str| event[name].as_str();
    let protocol = text("proto")?.to_ascii_lowercase();
    // Suricata writes numbers with three digits.
    let protocol = protocol.parse::<u8>().map_or(protocol, |number| number.to_string());
    let is_icmp = protocol == "icmp" || protocol == "ipv6-icmp";
    match (text("src_ip"), text("dest_ip"), text("community_id")) {
        (_, _, Some(id)) if is_icmp => Some(json!({"community_id": id})),
        (Some(source), Some(destination), _) if !is_icmp => {
            let mut flow = json!({"src_ip": source, "dst_ip": destination, "protocol": protocol});
            for (of_event, name) in [("src_port", "src_port"), ("dest_port", "dst_port")] {
                if let Some(port) = event.get(of_event) {
                    flow[name] = port.as_u64().filter(|&port| port <= u16::MAX.into())?.into();
                }
            }
            Some(flow)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;
    use std::path::Path;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        bypass: Bypass,
    }

    #[test]
    fn lines_of_the_fuzzer_are_broken_or_bodies_of_requests() {
        const OPTIONS: [&str; 7] =
            ["bypass", "--eve", "eve.json", "--token-file", "token", "--on", "alert,drop,bypassed"];
        let arguments = Arguments::parse_from(OPTIONS).bypass;
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/eve");
        let (mut selected, mut broken) = (0, 0);
        for seed in fs::read_dir(seeds).unwrap() {
            let text = fs::read(seed.unwrap().path()).unwrap();
            for line in text.split(|&octet| octet == b'\n') {
                match read(Some(line), &arguments) {
                    Line::Broken(_) => broken += 1,
                    Line::Other => {}
                    Line::Selected { body, is_icmp } => {
                        let body: Value = serde_json::from_str(&body).unwrap();
                        assert_eq!(body["flow"].get("community_id").is_some(), is_icmp, "{body}");
                        selected += 1;
                    }
                }
            }
        }
        assert!(selected > 0 && broken > 0, "{selected} lines select a flow, {broken} are broken");
    }
}
