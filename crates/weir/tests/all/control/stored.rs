//! `/stored`: a running probe answers from the files of its store as `weir read` does.

use crate::export::store::files;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use testbed::namespace::until;
use testbed::running::send_requests;
use testbed::served::Served;
use testbed::{number, permit_all_users, success};

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
        let served = Served::start(&[&["--idle", "300ms", "-o", &sink], options].concat())?;
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
    assert_eq!(empty.to_string(), r#"{"complete":true,"flows":[],"matching":0,"problems":[],"read":0}"#);
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
        ("by=nonsense", "by: "),
        ("by=src_ip/24,src_ip", "by: the view would have two columns with the name src_ip"),
        ("by=", "by: "),
        ("by=host,src_ip,dst_ip,protocol,dst_port", "by: at most 4 fields"),
        ("by=host&fields=basic", "fields: with by"),
        ("top=0", "top: use a number from 1 to 1000"),
        ("top=1001", "top: use a number from 1 to 1000"),
        ("fields=nonsense", "fields: "),
        ("from=soon", "from: \"soon\" is not a time"),
        ("to=-99999999999d", "to: "),
        ("to=2001-01-01", "from: there is no time between"),
        ("store=0", "store: use the number of a store, from 1"),
        ("store=x", "store: use the number of a store, from 1"),
        ("store=2", "store: the probe has 1"),
        ("community_id=1:x", "there are: where, from, to, by, sort, top, fields, store"),
    ] {
        let answer = probe.served.get(&format!("/stored?{query}"));
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 && error.contains(reason), "{query}: {}", answer.body);
    }
    // It is a question, and no change.
    assert_eq!(probe.served.change("POST", "/stored", "").status, 403);
    probe.served.probe.stop(0);
    let Some(served) = Served::start(&[]) else { return };
    let answer = served.get("/stored");
    assert!(answer.status == 409 && answer.body.contains("-o parquet:FOLDER"), "{}", answer.body);
    served.probe.stop(0);
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
