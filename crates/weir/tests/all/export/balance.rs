//! Sinks that divide the flows: `balance:SINK,SINK`.

use super::tcp_export::{Collector, capture, lines};
use std::fs;
use std::path::Path;
use testbed::{Pcap, SavedCapture, assert_usage_errors, ledger_of, number, read_flows, request_and_response};

#[test]
fn each_flow_goes_to_one_of_the_sinks() {
    let (folder, capture) = (tempfile::tempdir().unwrap(), capture(900));
    let path = |name: &str| folder.path().join(name);
    let (collector, address) = Collector::tcp("127.0.0.1:0");
    let fields = "start_time,src_ip,src_port,dst_ip,dst_port";
    let balance = format!(
        "balance:{}?fields={fields},json+tcp://{address}?fields={fields},json:{}?fields={fields}",
        path("a.json").display(),
        path("c").display()
    );
    let all = format!("json:{}?fields={fields}", path("all.json").display());
    let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &balance, "-o", &all]);
    assert!(code == 0 && !err.contains("balance does not"), "{err}");
    let received = lines(&collector.stop()[0]);
    let parts = [read_flows(&path("a.json")), received, read_flows(&path("c"))];
    let text = |flows: &[serde_json::Value]| {
        let mut texts: Vec<String> = flows.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    };
    assert_eq!(text(&parts.concat()), text(&read_flows(&path("all.json"))));
    for (at, part) in parts.iter().enumerate() {
        // About a third of them.
        assert!((200..400).contains(&part.len()), "{}", part.len());
        let sink = &ledger["sinks"][at];
        assert_eq!(number(&sink["exported"]["flows"]), part.len() as u64);
        assert_eq!(number(&sink["filtered"]["flows"]), 900 - part.len() as u64);
    }
    assert_eq!(ledger["sinks"].as_array().unwrap().len(), 4);
}

/// The clients of the first of two sinks.
fn first_half(capture: &SavedCapture, folder: &Path, client: &str) -> Vec<String> {
    let [first, second] = ["first.json", "second.json"].map(|name| folder.join(name).display().to_string());
    let sink = format!("balance:json:{first}?where=bytes > 0,json:{second}");
    let (code, err, _) = ledger_of(["read", capture.name(), "-o", &sink, "--overwrite"]);
    assert_eq!(code, 0, "{err}");
    let name =
        |flow: &serde_json::Value| format!("{} {}", flow[format!("{client}_ip")], flow[format!("{client}_port")]);
    let mut clients: Vec<String> = read_flows(first.as_ref()).iter().map(name).collect();
    clients.sort();
    assert_eq!(clients.len() + fs::read_to_string(second).unwrap().lines().count(), 300);
    clients
}

#[test]
fn both_directions_of_a_flow_have_one_sink() {
    let folder = tempfile::tempdir().unwrap();
    let direction = |at: usize| {
        Pcap::of(&(0..300).map(|client| request_and_response(client)[at].clone()).collect::<Vec<_>>()).saved()
    };
    let requests = first_half(&direction(0), folder.path(), "src");
    let responses = first_half(&direction(1), folder.path(), "dst");
    assert!((100..200).contains(&requests.len()), "{}", requests.len());
    assert_eq!(requests, responses);
}

#[test]
fn lists_of_sinks_that_cannot_be_divided_are_refused() {
    let refused = |sink: &'static str| ["read", "no.pcap", "-o", sink];
    assert_usage_errors(&[
        (&refused("balance:"), "balance:: this is not a list of sinks; write balance:SINK,SINK"),
        (&refused("balance:json+tcp://h:1,"), "this is not a list of sinks; write balance:SINK,SINK"),
        (&refused("balance:json+tcp://h:1,h:2"), "this is not a list of sinks; write balance:SINK,SINK"),
        (&refused("balance:json:a"), "this is not a list of sinks; write balance:SINK,SINK"),
        (&refused("balance:a.json,b.json"), "this is not a list of sinks; write balance:SINK,SINK"),
        (&refused("balance:json:a,json:a"), "balance: json:a is there twice"),
        (
            &refused("balance:ipfix+tcp://h,ipfix+tcp://h:4739?buffer=1MiB"),
            "balance: ipfix+tcp://h:4739?buffer=1MiB is there",
        ),
        (&refused("balance:json:a,balance:json:b,json:c"), "balance: balance:json:b cannot be one of its sinks"),
        (&refused("balance:json:a,packets:b"), "balance: packets:b cannot be one of its sinks"),
        (&refused("balance:json:a,jsn+tcp://h:1"), "there is no sink jsn+tcp://; use "),
    ]);
}
