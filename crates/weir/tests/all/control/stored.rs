//! `/stored`: a running probe answers from the files of its store as `weir read` does.

use crate::export::store::files;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use testbed::namespace::until;
use testbed::running::{frames, send_requests};
use testbed::served::Served;
use testbed::{Pcap, number, permit_all_users, success};

/// A probe with a store, which has a file for each second in which flows ended.
struct Storing {
    served: Served,
    store: PathBuf,
    _folder: TempDir,
}

impl Storing {
    fn start(options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        permit_all_users(folder.path());
        let store = folder.path().join("flows");
        let sink = format!("parquet:{}?interval=1s", store.display());
        let served = Served::start(&[&["--idle", "2s", "-o", &sink], options].concat())?;
        Some(Self { served, store, _folder: folder })
    }

    /// The answer to a question, which is valid.
    fn ask(&self, query: &str) -> Value {
        let mut body = Value::Null;
        // On a busy machine the probe may not have reported for some seconds.
        until("the probe answers", || {
            let answer = self.served.get(&format!("/stored?{query}"));
            assert!(matches!(answer.status, 200 | 503), "{query}: {}", answer.body);
            body = answer.json();
            answer.status == 200
        });
        body
    }

    /// Sends packets of 500 flows, and waits until the store has them.
    fn send_flows(&mut self) {
        send_requests(&mut self.served.sender, 0..500);
        until("all flows are stored", || number(&self.ask("")["read"]) == 500);
    }

    /// What `weir read` writes of the store.
    fn read(&self, options: &[&str]) -> Vec<Value> {
        let store = self.store.to_str().unwrap();
        let out = success([&["read", store, "-o", "json:-", "-q"], options].concat());
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn sorted(rows: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}

#[test]
fn the_answer_is_that_of_weir_read_and_of_the_ledger() {
    let Some(mut probe) = Storing::start(&[]) else { return };
    let empty = probe.ask("");
    assert_eq!(
        empty.to_string(),
        r#"{"complete":true,"flows":[],"matching":0,"problems":[],"read":0,"source":"store"}"#
    );
    probe.send_flows();
    let rows = |body: &Value, name: &str| body[name].as_array().unwrap().clone();
    let all = probe.ask("top=1000");
    assert_eq!(
        (number(&all["matching"]), &all["complete"], &all["problems"]),
        (500, &true.into(), &Value::from(vec![0; 0]))
    );
    let flows = rows(&all, "flows");
    assert_eq!(sorted(&flows), sorted(&probe.read(&[])));
    let starts: Vec<&str> = flows.iter().map(|flow| flow["start_time"].as_str().unwrap()).collect();
    assert!(starts.is_sorted(), "the newest is the last");
    assert_eq!(rows(&probe.ask(""), "flows"), flows[480..]);
    let largest = rows(&probe.ask("sort=src_port:asc&top=3&fields=src_port"), "flows");
    assert_eq!(Value::from(largest).to_string(), r#"[{"src_port":1024},{"src_port":1025},{"src_port":1026}]"#);
    let found = probe.ask("where=src_port%20in%20%7B1031,1032%7D");
    assert_eq!([&found["matching"], &found["read"]].map(number), [2, 500]);
    for (query, options) in [
        ("by=src_ip/24&top=1000", &["--by", "src_ip/24"][..]),
        ("by=host,protocol&top=7&sort=packets", &["--by", "host,protocol", "--top", "7", "--sort", "packets"]),
        ("by=dst_port&where=src_port%3C1034", &["--by", "dst_port", "--where", "src_port<1034", "--top", "20"]),
        (
            "by=host&count=hosts,ports&sort=hosts&top=3",
            &["--by", "host", "--count", "hosts,ports", "--sort", "hosts", "--top", "3"],
        ),
        (
            "by=server_ip&sum=failed,dns_queries,server_rtt_mean_ns&sort=no_answer&top=4",
            &[
                "--by",
                "server_ip",
                "--sum",
                "failed,dns_queries,server_rtt_mean_ns",
                "--sort",
                "no_answer",
                "--top",
                "4",
            ],
        ),
        ("every=1h&sum=dns_queries", &["--every", "1h", "--sum", "dns_queries"]),
        ("every=1h", &["--every", "1h"]),
        ("every=1s&sort=packets", &["--every", "1s", "--sort", "packets"]),
    ] {
        let body = probe.ask(query);
        assert_eq!((rows(&body, "groups"), number(&body["read"])), (probe.read(options), 500), "{query}");
    }
    // Other times.
    assert_eq!(number(&probe.ask("from=2100-01-01")["read"]), 0);
    assert_eq!(number(&probe.ask("from=2001-02-03T04:05&to=-1h")["read"]), 0);
    // A plus in the query of a URL stands for a space.
    for from in ["2001-02-03T04:05%2B02:00", "2001-02-03T04:05+02:00", "2001-02-03+04:05"] {
        assert_eq!(number(&probe.ask(&format!("from={from}"))["read"]), 500, "{from}");
    }
    let (_, _, ledger) = probe.served.probe.stop(0);
    assert_eq!(number(&ledger["flows"]["exported"]), 500);
}

#[test]
fn a_probe_answers_from_its_store_of_transactions_and_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let records = folder.path().join("transactions");
    let sink = format!("parquet:{}?interval=1s", records.display());
    let Some(mut probe) = Storing::start(&["--transactions", &sink, "--dpi-fields"]) else { return };
    let none = probe.ask("records=transactions");
    assert_eq!((number(&none["read"]), &none["source"]), (0, &"store".into()), "{none}");
    let sent: Vec<Vec<u8>> = ["dns.pcap.gz", "web.pcap"].iter().flat_map(|name| frames(name)).collect();
    sent.iter().for_each(|frame| probe.served.sender.send(frame));
    // The same number as in a file of these frames.
    let capture = Pcap::of(&sent).saved();
    let expected = success(["read", "-q", capture.name(), "--dpi-fields", "--transactions", "json:-"]);
    let expected = expected.lines().count() as u64;
    until("all transactions are stored", || number(&probe.ask("records=transactions")["read"]) == expected);
    let groups = probe.ask("records=transactions&by=dns_name&sort=nxdomain&top=1000")["groups"].clone();
    let out =
        success(["read", records.to_str().unwrap(), "-q", "-o", "json:-", "--by", "dns_name", "--sort", "nxdomain"]);
    let of_file: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(groups, Value::from(of_file));
    assert_eq!(probe.served.get("/about").json()["transactions"][0], records.to_str().unwrap());
    for line in [
        format!("weir_transactions_begun_total {expected}"),
        "weir_transactions_left_out_total 0".into(),
        format!("weir_transactions_exported_total{{sink=\"{sink}\"}} {expected}"),
    ] {
        until(&line, || probe.served.get("/metrics").body.lines().any(|found| found == line));
    }
    let (_, _, ledger) = probe.served.probe.stop(0);
    assert_eq!(number(&ledger["transactions"]["begun"]), expected);
}

#[test]
fn groups_in_intervals_and_pages_are_those_of_weir_read() {
    let Some(mut probe) = Storing::start(&[]) else { return };
    probe.send_flows();
    let rows = |body: &Value, name: &str| body[name].as_array().unwrap().clone();
    let flows = rows(&probe.ask("top=1000"), "flows");
    // Groups in intervals. The others of an interval have the number of all others.
    let by_time = |rows: Vec<Value>| -> Vec<Value> {
        let cut = |mut row: Value| {
            row["other_groups"] = (row["other_groups"] != 0).into();
            row
        };
        rows.into_iter().map(cut).collect()
    };
    for (by, top) in [("dst_ip", 3), ("host", 1), ("src_port,protocol", 40), ("protocol", 7)] {
        let body = probe.ask(&format!("by={by}&every=1s&top={top}"));
        let read = probe.read(&["--by", by, "--every", "1s", "--top", &top.to_string()]);
        assert_eq!((by_time(rows(&body, "groups")), number(&body["read"])), (by_time(read), 500), "{by}");
    }
    // Some numbers, and the one by which they are sorted.
    let some = rows(&probe.ask("by=src_port&sort=packets&numbers=flows,rev_bytes&top=3"), "groups");
    let all = rows(&probe.ask("by=src_port&sort=packets&top=3"), "groups");
    for (some, all) in some.iter().zip(&all) {
        for (name, value) in all.as_object().unwrap() {
            let is_asked = ["src_port", "other_groups", "flows", "rev_bytes", "packets"].contains(&&**name);
            assert_eq!(&some[name], if is_asked { value } else { &Value::Null }, "{name}");
        }
    }
    assert_eq!((some.len(), all.len()), (4, 4));
    // A number that is not asked for, by which flows are grouped.
    let by_frames = rows(&probe.ask("by=fwd_l2_bytes&numbers=flows&top=1000"), "groups");
    assert_eq!(by_frames[0]["fwd_l2_bytes"], rows(&probe.ask("by=fwd_l2_bytes&top=1"), "groups")[0]["fwd_l2_bytes"]);
    assert!(number(&by_frames[0]["fwd_l2_bytes"]) > 0, "{by_frames:?}");
    // Pages of flows, and none.
    let by_port = |query: &str| rows(&probe.ask(&format!("sort=src_port:asc&fields=src_port&{query}")), "flows");
    let pages: Vec<Value> = (0..5).flat_map(|page| by_port(&format!("top=100&offset={}", 100 * page))).collect();
    assert_eq!((pages.len(), pages), (500, by_port("top=1000")));
    assert!(by_port("offset=500").is_empty() && by_port("offset=99000&top=1000").is_empty());
    assert_eq!(rows(&probe.ask("offset=490"), "flows"), flows[..10]);
    let none = probe.ask("top=0");
    assert_eq!((number(&none["matching"]), rows(&none, "flows").len()), (500, 0));
    let none = rows(&probe.ask("top=0&by=src_ip"), "groups");
    assert_eq!((none.len(), &none[0]["src_ip"], number(&none[0]["flows"])), (1, &Value::Null, 500));
    // What it is.
    let about = probe.served.get("/about").json();
    let first = probe.ask("sort=start_time:asc&top=1&fields=start_time");
    assert_eq!(
        [&about["mode"], &about["history"], &about["stores"][0], &about["inputs"][0]],
        ["probe", "store", probe.store.to_str().unwrap(), "af_packet:right"]
    );
    let from = about["from_ns"].as_u64().unwrap();
    assert!(from > 1_600_000_000_000_000_000 && about["to_ns"].as_u64().unwrap() >= from, "{about} {first}");
    probe.served.probe.stop(0);
}

#[test]
fn questions_that_cannot_be_answered_are_refused_with_the_reason() {
    let Some(mut probe) = Storing::start(&[]) else { return };
    probe.send_flows();
    for (query, reason) in [
        ("where=src_prt%20%3D%201", "where: "),
        (
            "where=src_mac%20%3D%2002:00:00:00:00:01",
            "where: the stored flows of this time do not all have the field src_mac",
        ),
        ("by=src_mac", "by: the stored flows of this time do not all have the field src_mac"),
        ("fields=src_mac", "fields: the stored flows of this time do not all have the field src_mac"),
        ("sort=nonsense", "sort: there is no field"),
        ("by=host&sort=nonsense", "sort: "),
        ("by=host&sum=nonsense", "sum: there is no sum \"nonsense\""),
        ("sum=dns_failed", "sum: only groups"),
        ("by=dns_nxdomain&sum=dns_nxdomain", "by: the view would have two columns with the name dns_nxdomain"),
        ("by=nonsense", "by: "),
        ("by=src_ip/24,src_ip", "by: the view would have two columns with the name src_ip"),
        ("by=", "by: "),
        ("by=host,src_ip,dst_ip,protocol,dst_port", "by: at most 4 fields"),
        ("by=host&fields=basic", "fields: with by"),
        ("by=host&count=nonsense", "count: there is no field"),
        ("by=host&count=src_mac", "count: the stored flows of this time do not all have the field src_mac"),
        ("by=host&count=hosts,hosts", "by: the view would have two columns with the name hosts"),
        ("by=host&count=hosts&every=1m", "count: only groups have"),
        ("count=hosts", "count: only groups have"),
        ("by=host&count=hosts,ports,sni,application,protocol", "count: at most 4 fields"),
        ("by=host&numbers=bytes,octets", "numbers: there is no number \"octets\"; use some of flows, packets, bytes,"),
        ("numbers=bytes", "numbers: only groups and intervals have numbers"),
        ("every=1us", "every: must be at least 1ms"),
        ("every=soon", "every: 'soon' is not a unit of time"),
        ("every=1m&fields=basic", "fields: with by or every"),
        ("every=1m&offset=1", "offset: groups and intervals have no offset"),
        ("by=host&offset=1", "offset: groups and intervals have no offset"),
        ("offset=x", "offset: use a number; offset and top are up to 100000 together"),
        ("offset=99990&top=11", "offset: use a number; offset and top are up to 100000 together"),
        ("top=1001", "top: use a number from 0 to 1000"),
        ("fields=nonsense", "fields: "),
        ("from=soon", "from: \"soon\" is not a time"),
        ("to=-99999999999d", "to: "),
        ("to=2001-01-01", "from: there is no time between"),
        ("store=0", "store: use the number of a store, from 1"),
        ("store=x", "store: use the number of a store, from 1"),
        ("store=2", "store: the probe has 1"),
        (
            "community_id=1:x",
            "there are: where, from, to, by, every, count, sum, numbers, sort, top, offset, fields, records, store",
        ),
    ] {
        let answer = probe.served.get(&format!("/stored?{query}"));
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 && error.contains(reason), "{query}: {}", answer.body);
    }
    // It is a question, and no change.
    assert_eq!(probe.served.change("POST", "/stored", "").status, 403);
    probe.served.probe.stop(0);
    let Some(served) = Served::start(&["--listen-records", "0"]) else { return };
    assert_eq!(served.get("/about").json()["history"], "none");
    let answer = served.get("/stored");
    assert!(answer.status == 409 && answer.body.contains("-o parquet:FOLDER"), "{}", answer.body);
    served.probe.stop(0);
}

#[test]
fn too_many_intervals_are_refused_with_a_length_that_fits() {
    let Some(mut probe) = Storing::start(&[]) else { return };
    probe.send_flows();
    // The flows decide, not the time that is asked for.
    assert_eq!(number(&probe.ask("every=1s&from=2001-01-01")["read"]), 500);
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = [1_700_000_000, 1_700_007_200];
    let request = testbed::request_and_response(7);
    let capture = testbed::Pcap::new().frame(one, 0, &request[0]).frame(other, 0, &request[0]);
    let capture = capture.save(folder.path(), "two.pcap");
    probe.served.probe.stop(0);
    let view = testbed::viewed::Viewed::start(&[capture.to_str().unwrap()]);
    for (query, reason) in [
        ("every=1s", "these are 7201 intervals, more than 2000; use every=5s, a shorter time"),
        ("every=5s&by=host&top=1000", "more than 19 for 1000 groups (of 20000 rows); use every=10m"),
    ] {
        let answer = view.get(&format!("/stored?from=1970-01-01&{query}"));
        assert!(answer.status == 400 && answer.body.contains(reason), "{query}: {}", answer.body);
    }
    assert_eq!(view.get("/stored?from=1970-01-01&every=5s").json()["groups"].as_array().unwrap().len(), 2);
}

#[test]
fn damaged_files_are_named_and_the_others_are_read() {
    let Some(mut probe) = Storing::start(&[]) else { return };
    probe.send_flows();
    let file = files(&probe.store).pop().unwrap();
    let beside = |name: &str| file.with_file_name(name);
    let text = fs::read(&file).unwrap();
    let (garbage, cut) =
        (beside("flows-20010101T000000.000000Z.parquet"), beside("flows-20010101T000001.000000Z.parquet"));
    fs::write(&garbage, "no Parquet").unwrap();
    fs::write(&cut, &text[..text.len() / 2]).unwrap();
    let body = probe.ask("");
    let problems: Vec<&str> = body["problems"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let is_named = |path: &Path| problems.iter().any(|problem| problem.starts_with(path.to_str().unwrap()));
    assert!(problems.len() == 2 && is_named(&garbage) && is_named(&cut), "{body}");
    assert_eq!((number(&body["read"]), &body["complete"]), (500, &false.into()), "{body}");
    fs::remove_file(garbage).unwrap();
    fs::remove_file(cut).unwrap();
    assert_eq!(probe.ask("")["complete"], true);
    probe.served.probe.stop(0);
}

#[test]
fn questions_and_answers_have_anonymised_values_as_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
    let Some(mut probe) = Storing::start(&["--anonymise", key.to_str().unwrap()]) else { return };
    probe.send_flows();
    assert_eq!(number(&probe.ask("where=host%2010.1.0.1")["matching"]), 0);
    let flows = probe.ask("top=1000");
    let flows = flows["flows"].as_array().unwrap();
    assert_eq!(sorted(flows), sorted(&probe.read(&[])));
    for field in ["src_ip", "dst_ip"] {
        let address = flows[7][field].as_str().unwrap();
        assert!(!address.starts_with("10."), "{address}");
        assert!(number(&probe.ask(&format!("where={field}%20%3D%20{address}"))["matching"]) > 0, "{address}");
    }
    probe.served.probe.stop(0);
}
