//! What the HTTP interface reports about rules, lists, timeouts and interfaces, and the metrics of
//! rules and outputs. docs/control.md.

use serde_json::Value;
use std::fs;
use testbed::namespace::{ip, until};
use testbed::served::{Overridden, Served, sum};
use testbed::{number, permit_all_users, success};

const RULES: &str = "[[network]]\nname = 'web'\nwhere = 'port 1030'\naction = 'drop'\n\
                     [[network]]\nwhere = 'port 1031'\nshunt = 1\nslice = 'l4'\n";

#[test]
fn rules_lists_and_timeouts_are_those_in_effect() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let list = folder.path().join("bad.txt");
    fs::write(&list, "10.0.0.0/24\nnonsense\n2001:db8::/32\n").unwrap();
    let tags = format!("bad={}", list.display());
    let options = ["--tags", &tags, "--idle", "7s", "--active", "2m", "--interval", "300ms"];
    let Some(mut probe) = Overridden::start_with(RULES, &options) else { return };
    probe.send(&[5, 6, 7]);
    let state = probe.served.get("/rules").json();
    assert!(state["text"].as_str().unwrap().ends_with(RULES) && state["error"].is_null(), "{state}");
    let rule = |state: &Value, level: &str, name: &str| {
        let rules = state["rules"].as_array().unwrap();
        let found = rules.iter().find(|rule| rule["level"] == level && rule["rule"] == name);
        let found = found.unwrap_or_else(|| panic!("{level} {name}: {state}"));
        [&found["line"], &found["packets_matched"], &found["packets_forwarded"]].map(Value::as_u64)
    };
    assert_eq!(rule(&state, "network", "web"), [Some(3), Some(2), Some(0)]);
    assert_eq!(rule(&state, "network", "port 1031"), [Some(7), Some(2), Some(1)]);
    assert_eq!(rule(&state, "default", "no rule matched"), [None, Some(2), Some(2)]);
    assert_eq!(rule(&state, "override", "drop"), [None, Some(0), Some(0)]);
    let lists = probe.served.get("/lists").json();
    let [of_list] = &lists["lists"].as_array().unwrap()[..] else { panic!("{lists}") };
    assert_eq!((&of_list["option"], &of_list["file"]), (&"--tags bad".into(), &list.display().to_string().into()));
    assert_eq!((number(&of_list["entries"]), number(&of_list["lines_left_out"])), (2, 1), "{lists}");
    assert!(number(&of_list["loaded"]) > 1_700_000_000 && of_list["error"].is_null(), "{lists}");
    let timeouts = probe.served.get("/timeouts").json();
    let values = ["idle", "active", "drain", "interval"].map(|name| timeouts[name].as_f64().unwrap());
    assert_eq!(values, [7.0, 120.0, 20.0, 0.3]);

    // What cannot be loaded leaves what was there, with the reason.
    let good = fs::read_to_string(&probe.rules).unwrap();
    fs::write(&probe.rules, format!("{good}[[network]]\nwhere = 'prt 1'\n")).unwrap();
    fs::remove_file(&list).unwrap();
    assert_eq!(probe.served.change("POST", "/reload", "").status, 422);
    let (rules, lists) = (probe.served.get("/rules").json(), probe.served.get("/lists").json());
    assert!(rules["error"].as_str().unwrap().contains("prt"), "{rules}");
    assert_eq!((&rules["text"], &rules["loaded"]), (&good.clone().into(), &state["loaded"]));
    assert!(lists["lists"][0]["error"].as_str().unwrap().contains("No such file"), "{lists}");
    assert_eq!((number(&lists["lists"][0]["entries"]), &lists["lists"][0]["loaded"]), (2, &of_list["loaded"]));
    let new = good.replace("'web'", "'www'");
    fs::write(&probe.rules, &new).unwrap();
    fs::write(&list, "10.0.0.0/24\n").unwrap();
    assert_eq!(probe.served.change("POST", "/reload", "").status, 200);
    let (rules, lists) = (probe.served.get("/rules").json(), probe.served.get("/lists").json());
    assert_eq!((&rules["text"], &rules["error"]), (&new.into(), &Value::Null));
    // The earlier rule has its counters, and is not in the file any more.
    assert_eq!(rule(&rules, "network", "web"), [None, Some(2), Some(0)]);
    assert_eq!(rule(&rules, "network", "www"), [Some(3), Some(0), Some(0)]);
    assert_eq!((number(&lists["lists"][0]["entries"]), &lists["lists"][0]["error"]), (1, &Value::Null));
    probe.stop();

    let Some(served) = Served::start(&[]) else { return };
    let answer = served.get("/rules");
    assert!(answer.status == 409 && answer.body.contains("--rules"), "{}", answer.body);
    assert_eq!(served.get("/lists").json()["lists"], Value::Array(vec![]));
    served.probe.stop(0);
}

#[test]
fn an_interface_without_a_link_is_in_all_answers_about_the_state() {
    let Some(served) = Served::start(&[]) else { return };
    let up = || sum(&served.metrics(), "weir_interface_up", "interface=\"right\"");
    assert_eq!(up(), 1);
    ip("link set left down");
    until("the interface has no link", || up() == 0);
    let ready = served.get("/ready");
    assert!(ready.status == 503 && ready.body.contains("interface right is down"), "{}", ready.body);
    assert_eq!(served.get("/status").json()["not_ready"], ready.json()["reasons"]);
    let url = format!("http://{}", served.address);
    let top = success(["top", &url, "--once", "--interval", "200ms"]);
    assert!(top.ends_with("not ready: interface right is down, or has no link\n"), "{top}");
    ip("link set left up");
    until("the interface is up", || up() == 1);
    assert_eq!(served.get("/ready").status, 200);
    served.probe.stop(0);
}

#[test]
fn the_metrics_of_rules_and_outputs_equal_the_ledger() {
    let Some(mut probe) = Overridden::start(RULES) else { return };
    assert_eq!(probe.add(8, "\"action\":\"shunt\"").0, 201);
    (0..20).for_each(|_| probe.send(&[5, 6, 7, 8, 9]));
    let metrics = probe.served.metrics();
    let (_, actions) = probe.stop();
    for action in ["forwarded", "dropped", "shunted"] {
        let of_action = sum(&metrics, "weir_action_packets_total", &format!("action=\"{action}\""));
        assert_eq!(of_action, number(&actions[action]["packets"]), "{action}");
        assert!(of_action > 30, "{action} {of_action}");
    }
    let rules = actions["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 6, "two rules, none, three overrides: {actions:#}");
    for rule in rules {
        let label = format!("{{level={},rule={}}}", rule["level"], rule["rule"]);
        for (what, key) in [("matched", "matched"), ("forwarded", "forwarded")] {
            let of_rule = sum(&metrics, &format!("weir_rule_packets_{what}_total"), &label);
            assert_eq!(of_rule, number(&rule[key]["packets"]), "{label} {what}");
        }
    }
    let output = &actions["outputs"][0];
    let label = format!("output={}", output["output"]);
    let sent =
        ["weir_output_packets_sent_total", "weir_output_bytes_sent_total"].map(|name| sum(&metrics, name, &label));
    assert_eq!(sent, ["packets", "octets"].map(|key| number(&output["sent"][key])));
    assert_eq!(sum(&metrics, "weir_output_packets_dropped_total", ""), 0);
    // Packets of the level of networks and of no rule, and those that an override took, are all.
    let all: u64 = ["forwarded", "dropped", "shunted"].map(|key| number(&actions[key]["packets"])).iter().sum();
    assert_eq!(sum(&metrics, "weir_rule_packets_matched_total", ""), all);
}
