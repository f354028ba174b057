//! What a probe without a store answers: sums of current flows, and the last flows that have ended, from memory.

use serde_json::Value;
use std::fs;
use testbed::namespace::until;
use testbed::running::{frames, send_requests};
use testbed::served::Served;
use testbed::{number, permit_all_users, read_flows};

/// The rows of an answer, which is there.
fn rows(served: &Served, path: &str, name: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    until("the probe answers", || {
        let answer = served.get(path);
        assert!(matches!(answer.status, 200 | 503), "{path}: {}", answer.body);
        let body = answer.json();
        rows = body[name].as_array().cloned().unwrap_or_default();
        answer.status == 200
    });
    rows
}

fn stored(served: &Served, query: &str) -> Value {
    served.get(&format!("/stored?{query}")).json()
}

#[test]
fn sums_of_current_flows_are_those_of_their_records() {
    for layout in ["fused", "spread"] {
        let Some(mut served) = Served::start(&["--layout", layout, "--idle", "1h"]) else { return };
        send_requests(&mut served.sender, 0..500);
        until("all packets are metered", || number(&served.get("/flows?top=0").json()["matching"]) == 500);
        let body = served.get("/flows?by=protocol").json();
        assert_eq!((number(&body["matching"]), number(&body["searched"]), &body["complete"]), (500, 500, &true.into()));
        let group = &body["groups"][0];
        assert_eq!(
            [number(&group["flows"]), number(&group["packets"]), number(&group["other_groups"])],
            [500, 1000, 0]
        );
        assert_eq!(body["groups"].as_array().unwrap().len(), 1, "{body}");
        let flows = rows(&served, "/flows?top=1000&fields=bytes,src_port", "flows");
        let groups = rows(&served, "/flows?by=src_port&top=1000", "groups");
        assert_eq!((flows.len(), groups.len()), (500, 500));
        let bytes = |rows: &[Value]| rows.iter().map(|row| number(&row["bytes"])).sum::<u64>();
        assert_eq!(bytes(&flows), bytes(&groups));
        // Sums that are asked for are those of the flows.
        let of = "dns_queries,dns_unanswered";
        let flows = rows(&served, &format!("/flows?top=1000&fields={of}"), "flows");
        let groups = rows(&served, &format!("/flows?by=src_port&top=7&sum={of}&sort=dns_failed"), "groups");
        let all = |rows: &[Value], name: &str| rows.iter().map(|row| row[name].as_u64().unwrap_or(0)).sum::<u64>();
        for name in of.split(',') {
            assert_eq!(all(&flows, name), all(&groups, name), "{name}: {groups:?}");
        }
        assert_eq!(all(&groups, "dns_failed"), all(&flows, "dns_unanswered"), "{groups:?}");
        // The others are a row, and conditions select.
        let few = rows(&served, "/flows?by=src_port&top=2&where=src_port%3C1034", "groups");
        let flows: Vec<u64> = few.iter().map(|row| number(&row["flows"])).collect();
        assert_eq!((flows, number(&few[2]["other_groups"])), (vec![1, 1, 8], 8), "{few:?}");
        for (query, reason) in [
            ("by=nonsense", "by: there is no field"),
            ("by=host&fields=basic", "fields: with by"),
            ("by=host&sort=nonsense", "sort: a view has no number"),
            ("sum=dns_failed", "sum: only groups"),
            ("by=host&every=1m", "every: there is no such parameter"),
            ("by=host,src_ip,dst_ip,protocol,dst_port", "by: at most 4 fields"),
        ] {
            let answer = served.get(&format!("/flows?{query}"));
            assert!(answer.status == 400 && answer.body.contains(reason), "{query}: {}", answer.body);
        }
        served.probe.stop(0);
    }
}

#[test]
fn without_a_store_the_last_flows_are_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let file = folder.path().join("flows.json");
    let sink = format!("json:{}", file.display());
    let options = ["--idle", "2s", "--listen-records", "300", "-o", &sink];
    let Some(mut served) = Served::start(&options) else { return };
    let about = served.get("/about").json();
    assert_eq!([&about["history"], &about["from_ns"]], [&Value::from("memory"), &Value::Null], "{about}");
    send_requests(&mut served.sender, 0..100);
    until("all flows have ended", || number(&stored(&served, "")["matching"]) == 100);
    let body = stored(&served, "top=1000");
    assert_eq!((&body["source"], &body["complete"]), (&"memory".into(), &true.into()), "{body}");
    let about = served.get("/about").json();
    assert!(about["from_ns"].as_u64() <= about["to_ns"].as_u64() && about["to_ns"].is_u64(), "{about}");
    let sums = stored(&served, "by=protocol&every=1h&from=-1d")["groups"].clone();
    let flows = sums.as_array().unwrap().iter().map(|row| number(&row["flows"])).sum::<u64>();
    assert_eq!(flows, 100, "{sums}");
    assert_eq!(number(&stored(&served, "where=src_port%3C1034")["matching"]), 10);
    assert_eq!(number(&stored(&served, "from=2100-01-01")["matching"]), 0);
    assert_eq!(served.get("/stored?store=2").status, 400);
    // The same records as those of the sink, and only the last ones.
    until("the sink has written them", || read_flows(&file).len() == 100);
    let mut written: Vec<String> = read_flows(&file).iter().map(Value::to_string).collect();
    let mut kept: Vec<String> = body["flows"].as_array().unwrap().iter().map(Value::to_string).collect();
    written.sort();
    kept.sort();
    assert_eq!(kept, written);
    send_requests(&mut served.sender, 100..500);
    // On a busy machine, a request and its answer may be two flows, and all flows end together, in any order.
    let mut ended = 0;
    until("all flows have ended", || {
        let flows = served.get("/status").json()["ledger"]["flows"].clone();
        ended = number(&flows["exported"]);
        number(&flows["live"]) == 0 && ended >= 500
    });
    until("the sink has written them", || read_flows(&file).len() as u64 == ended);
    until("the memory is full", || number(&stored(&served, "")["matching"]) == 300);
    let all: Vec<String> = read_flows(&file).iter().map(Value::to_string).collect();
    let mut last = all[all.len() - 300..].to_vec();
    let body = stored(&served, "top=1000");
    let mut kept: Vec<String> = body["flows"].as_array().unwrap().iter().map(Value::to_string).collect();
    last.sort();
    kept.sort();
    assert_eq!(kept, last);
    served.probe.stop(0);
}

#[test]
fn the_memory_has_anonymised_records() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
    let options = ["--idle", "300ms", "--anonymise", key.to_str().unwrap(), "-o", "json:/dev/null"];
    let Some(mut served) = Served::start(&options) else { return };
    send_requests(&mut served.sender, 0..50);
    until("all flows have ended", || number(&stored(&served, "")["matching"]) == 50);
    let body = stored(&served, "top=1000&fields=src_ip,dst_ip");
    assert!(!body.to_string().contains("\"10."), "{body}");
    assert_eq!(number(&stored(&served, "where=host%2010.1.0.1")["matching"]), 0);
    served.probe.stop(0);
}

#[test]
fn records_of_transactions_are_no_flows_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let file = folder.path().join("transactions.json");
    let sink = format!("json:{}", file.display());
    let Some(mut served) = Served::start(&["--idle", "300ms", "--transactions", &sink]) else { return };
    frames("dns.pcap.gz").iter().for_each(|frame| served.sender.send(frame));
    until("transactions are written", || !read_flows(&file).is_empty());
    let flows = || served.get("/status").json()["ledger"]["flows"].clone();
    until("all flows have ended", || number(&flows()["created"]) > 0 && number(&flows()["live"]) == 0);
    assert_eq!(number(&stored(&served, "")["matching"]), number(&flows()["created"]));
    served.probe.stop(0);
}
