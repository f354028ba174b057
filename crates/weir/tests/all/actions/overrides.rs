//! Overrides: what an IDS says about single flows over HTTP. docs/control.md.

use std::collections::BTreeMap;
use testbed::namespace::until;
use testbed::served::{Overridden, Served, TOKEN, flow, sum, token_file};
use testbed::{ipv4, number, request_and_response};

/// The same as parameters.
fn query(client: u16) -> String {
    let [high, low] = client.to_be_bytes();
    let port = 1024 + client % 5000;
    format!("src_ip=10.0.{high}.{low}&src_port={port}&dst_ip=10.1.0.1&dst_port=53&protocol=17")
}

/// What an action has decided and what of it was forwarded, in packets.
fn row(actions: &serde_json::Value, action: &str) -> [u64; 2] {
    let rows = actions["rules"].as_array().unwrap();
    let row = rows.iter().find(|row| row["level"] == "override" && row["rule"] == action).unwrap();
    ["matched", "forwarded"].map(|key| number(&row[key]["packets"]))
}

#[test]
fn an_override_decides_in_place_of_the_rules_until_it_ends() {
    let Some(mut probe) = Overridden::start("[[network]]\nwhere = 'port 1030'\naction = 'drop'\n") else { return };
    assert!(probe.list().is_empty());
    // Before the first packet of the flow, and for one that the rules drop (client 6).
    let (status, body) = probe.add(0, "\"action\":\"drop\"");
    assert_eq!((status, body["packets"].as_u64(), body["expires_in"].as_u64()), (201, Some(0), Some(300)), "{body}");
    assert_eq!(probe.add(1, "\"action\":\"shunt\",\"more\":3,\"expiry\":86400").0, 201);
    assert_eq!(probe.add(2, "\"action\":\"shunt\"").0, 201);
    assert_eq!(probe.add(6, "\"action\":\"forward\"").0, 201);
    let all = [0, 1, 2, 3, 6];
    (0..2).for_each(|_| probe.send(&all));
    // In the middle of a flow, in place of another one, and by Community ID.
    let (status, body) = probe.add(0, "\"action\":\"forward\"");
    assert_eq!((status, &body["action"], body["packets"].as_u64()), (200, &"forward".into(), Some(0)), "{body}");
    let found = probe.served.get("/flows?where=port%201027&fields=community_id").json();
    let id = found["flows"][0]["community_id"].as_str().unwrap().to_owned();
    let by_id = format!("{{\"flow\":{{\"community_id\":\"{id}\"}},\"action\":\"drop\"}}");
    let answer = probe.served.change("POST", "/overrides", &by_id);
    assert_eq!((answer.status, answer.json()["flow"]["community_id"].as_str()), (201, Some(&*id)), "{}", answer.body);
    probe.send(&all);
    let list = probe.list();
    let of_client = |client: u16| {
        let port = u64::from(1024 + client);
        let has = |flow: &serde_json::Value| flow["src_port"] == port || flow["dst_port"] == port;
        let found = list.iter().find(|present| has(&present["flow"])).unwrap();
        assert!(number(&found["octets"]) > number(&found["packets"]) * 60, "{found}");
        [number(&found["packets"]), number(&found["more"])]
    };
    assert_eq!([0, 1, 2, 3, 6].map(of_client), [[2, 0], [6, 0], [6, 0], [2, 0], [6, 0]], "{list:?}");
    // Taken back: the rules decide again.
    for query in [&*query(0), &query(1), &query(2), &query(6), &format!("community_id={}", id.replace('+', "%2B"))] {
        let answer = probe.served.change("DELETE", &format!("/overrides?{query}"), "");
        assert!(answer.status == 200 && number(&answer.json()["packets"]) >= 2, "{query}: {}", answer.body);
        assert_eq!(probe.served.change("DELETE", &format!("/overrides?{query}"), "").status, 404);
    }
    assert!(probe.list().is_empty());
    probe.send(&all);
    // One that expires.
    assert_eq!(probe.add(3, "\"action\":\"drop\",\"expiry\":1").0, 201);
    probe.send(&[3]);
    until("it has ended", || probe.list().is_empty());
    probe.send(&[3]);
    let metrics = probe.served.metrics();
    let (clients, actions) = probe.stop();
    // Client 0: twice dropped, forwarded, forwarded by the rules, which drop client 6.
    assert_eq!(clients, BTreeMap::from([(0, 4), (1, 5), (2, 2), (3, 8), (6, 6)]));
    assert_eq!([row(&actions, "drop"), row(&actions, "shunt"), row(&actions, "forward")], [[8, 0], [12, 3], [8, 8]]);
    assert_eq!(number(&actions["shunted"]["packets"]), 9);
    for (action, [matched, forwarded]) in [("drop", [8, 0]), ("shunt", [12, 3]), ("forward", [8, 8])] {
        let label = format!("level=\"override\",rule=\"{action}\"");
        assert_eq!(sum(&metrics, "weir_rule_packets_matched_total", &label), matched);
        assert_eq!(sum(&metrics, "weir_rule_packets_forwarded_total", &label), forwarded);
    }
}

#[test]
fn an_override_ends_before_and_during_the_wait_for_the_application() {
    let rules = "[hold]\nms = 60000\n[[application]]\nwhere = 'application = mysql'\naction = 'drop'\n";
    let Some(mut probe) = Overridden::start(rules) else { return };
    // The request of a client waits for the application. The override lets it go, and takes the response.
    for (client, action) in [(0, "forward"), (1, "drop"), (2, "shunt")] {
        let [request, response] = request_and_response(client);
        let before = probe.received();
        assert_eq!(probe.add(client, &format!("\"action\":\"{action}\",\"expiry\":60")).0, 201);
        probe.served.sender.send(&request);
        until("the request is metered", || probe.received() == before + 1);
        let answer = probe.served.change("DELETE", &format!("/overrides?{}", query(client)), "");
        assert_eq!((answer.status, number(&answer.json()["packets"])), (200, 1), "{}", answer.body);
        probe.served.sender.send(&response);
        until("the response is metered", || probe.received() == before + 2);
    }
    let (clients, actions) = probe.stop();
    assert_eq!(clients, BTreeMap::from([(0, 2), (1, 1), (2, 1)]), "{actions:#}");
}

#[test]
fn an_override_that_cannot_be_is_refused_in_plain_words() {
    let Some(probe) = Overridden::start("") else { return };
    let f = flow(1);
    let ipv6 = "{\"src_ip\":\"::1\",\"dst_ip\":\"10.0.0.1\",\"protocol\":\"tcp\"}";
    let as_array = "[\"10.0.0.1\",1,\"10.0.0.2\",2,\"udp\",null]";
    let of = |protocol: &str, ports: &str| {
        format!(
            "{{\"flow\":{{\"src_ip\":\"10.0.0.1\",\"dst_ip\":\"10.0.0.2\",\"protocol\":\"{protocol}\"{ports}}},\"action\":\"drop\"}}"
        )
    };
    let ports = ",\"src_port\":1,\"dst_port\":2";
    let unknown = "{\"flow\":{\"community_id\":\"1:LQU9qZlK+B5F3KDmev6m5PMibrg=\"},\"action\":\"drop\"}";
    let cases = [
        (String::new(), 400, "the body is no override"),
        ("[]".into(), 400, "the body is no override"),
        (format!("{{\"flow\":{f}}}"), 400, "action"),
        (format!("{{\"flow\":{f},\"action\":\"ban\"}}"), 400, "use forward, drop or shunt"),
        (format!("{{\"flow\":{f},\"action\":\"drop\",\"expires\":3}}"), 400, "unknown field"),
        (format!("{{\"flow\":{f},\"action\":\"drop\",\"expiry\":0}}"), 400, "expiry: use a number of seconds"),
        (format!("{{\"flow\":{f},\"action\":\"drop\",\"expiry\":86401}}"), 400, "expiry: use a number of seconds"),
        (format!("{{\"flow\":{f},\"action\":\"drop\",\"more\":1}}"), 400, "more: only action shunt"),
        ("{\"flow\":{},\"action\":\"drop\"}".into(), 400, "name the flow by"),
        (f.replace("\"dst_ip", "\"action\":\"drop\",\"dst_ip"), 400, "the body is no override"),
        (format!("{{\"flow\":{},\"action\":\"drop\"}}", f.replace("udp", "udq")), 400, "\"udq\" is not a protocol"),
        (format!("{{\"flow\":{},\"action\":\"drop\"}}", f.replace("10.1.0.1", "10.1.0.256")), 400, "IP address"),
        (format!("{{\"flow\":{ipv6},\"action\":\"drop\"}}"), 400, "different versions of IP"),
        ("{\"flow\":{\"community_id\":\"1:x\"},\"action\":\"drop\"}".into(), 400, "begins with 1: and has 30"),
        (format!("[{f},\"drop\"]"), 400, "expected an object"),
        (format!("{{\"flow\":{as_array},\"action\":\"drop\"}}"), 400, "expected an object"),
        (format!("{{\"flow\":{f},\"action\":{{\"drop\":null}}}}"), 400, "expected a string"),
        (format!("{{\"flow\":{f},\"action\":\"drop\",\"expiry\":-1}}"), 400, "expected a whole number"),
        (format!("{{\"flow\":{f},\"action\":\"drop\"}}{f}"), 400, "trailing characters"),
        (of("udp", ""), 400, "protocol udp has ports: write src_port and dst_port"),
        (of("tcp", ",\"src_port\":1"), 400, "protocol tcp has ports"),
        (of("132", ",\"dst_port\":0"), 400, "protocol 132 has ports"),
        (of("udplite", ""), 400, "has ports"),
        (of("dccp", ""), 400, "has ports"),
        (of("udp", ",\"src_port\":1,\"dst_port\":65536"), 400, "expected a whole number from 0 to 65535"),
        (of("udp", ",\"src_port\":1,\"dst_port\":\"2\""), 400, "expected a whole number from 0 to 65535"),
        (of("udp", ",\"src_port\":1,\"dst_port\":2.5"), 400, "expected a whole number from 0 to 65535"),
        (of("gre", ports), 400, "protocol gre has no ports: leave src_port and dst_port out"),
        (of("icmp", ports), 400, "name an ICMP flow by its community_id"),
        (of("icmp6", ""), 400, "name an ICMP flow by its community_id"),
        (of("1", ""), 400, "name an ICMP flow by its community_id"),
        (of("+17", ports), 400, "\"+17\" is not a protocol"),
        (of("017", ports), 400, "\"017\" is not a protocol"),
        (of("", ports), 400, "\"\" is not a protocol"),
        (unknown.into(), 404, "no current flow has this Community ID"),
        (format!("{{\"flow\":{f},\"action\":\"drop\"}}{}", " ".repeat(20_000)), 413, "the body is longer"),
    ];
    for (body, status, reason) in cases {
        let answer = probe.served.change("POST", "/overrides", &body);
        let text = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(answer.status == status && text.contains(reason), "{body}: {} {text}", answer.status);
        let of_rust = ["u16", "u32", "u64", "struct", "enum", "FlowName", "NewOverride"];
        assert!(!of_rust.iter().any(|name| text.contains(name)), "{text}");
    }
    let whole = format!("{{\"flow\":{f},\"action\":\"drop\"}}");
    assert_eq!(probe.served.change("POST", "/overrides?dry_run=1", &whole).status, 400);
    assert_eq!(probe.served.change("POST", "/reload?file=x", "").status, 400);
    for path in ["/overrides?limit=1", "/rules?level=network", "/lists?x", "/timeouts?x=", "/status?a", "/health?b"] {
        let answer = probe.served.get(path);
        assert!(answer.status == 400 && answer.body.contains("has no parameters"), "{path}: {}", answer.body);
    }
    assert_eq!((probe.served.get("/rules?").status, probe.served.get("/none?x=1").status), (200, 404));
    for (query, status) in [("", 400), ("src_ip=x", 400), ("nonsense=1", 400), (&*query(1), 404)] {
        assert_eq!(probe.served.change("DELETE", &format!("/overrides?{query}"), "").status, status, "{query}");
    }
    for method in ["POST", "DELETE"] {
        assert_eq!(probe.served.request(method, "/overrides", "").status, 401);
    }
    assert!(probe.list().is_empty());
    let (clients, _) = probe.stop();
    assert!(clients.is_empty());
}

#[test]
fn one_override_too_many_replaces_the_oldest() {
    let Some(probe) = Overridden::start("") else { return };
    let request = |client: u16, end: &str| {
        let body = format!("{{\"flow\":{},\"action\":\"drop\"}}", flow(client));
        format!(
            "POST /overrides HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n{end}\r\n{body}",
            body.len()
        )
    };
    let clients: Vec<u16> = (0..16_385).collect();
    let mut added = 0;
    for part in clients.chunks(400) {
        let text: String = part.iter().map(|&client| request(client, "")).collect();
        let answers = probe.served.raw((text + &request(part[0], "Connection: close\r\n")).as_bytes());
        added += answers.split("HTTP/1.1 ").filter(|answer| answer.starts_with("201")).count();
    }
    let list = probe.list();
    let has = |client: u16| list.iter().any(|present| present["flow"]["src_ip"] == format!("10.0.0.{client}"));
    // That of client 0 was added twice.
    assert_eq!((added, list.len()), (16_385, 16_384));
    assert_eq!([0, 1, 2].map(has), [true, false, true]);
    let (clients, _) = probe.stop();
    assert!(clients.is_empty());
}

#[test]
fn a_flow_without_ports_is_named_without_them_and_icmp_by_its_community_id() {
    let Some(mut probe) = Overridden::start("") else { return };
    let echo = |kind: u8, ends: [[u8; 4]; 2]| ipv4(1, ends[0], ends[1], &[kind, 0, 0, 0, 0, 1, 0, 1]);
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let gre = ipv4(47, ends[0], ends[1], &[0, 0, 8, 0, 1, 2, 3, 4]);
    // An echo with its reply, a redirect, which has no counterpart, and GRE.
    for frame in [echo(8, ends), echo(0, [ends[1], ends[0]]), echo(5, ends), gre] {
        probe.served.sender.send(&frame);
    }
    until("all packets are counted", || probe.received() == 4);
    let tuple = "\"src_ip\":\"10.0.0.2\",\"dst_ip\":\"10.0.0.1\",\"protocol\":\"47\"";
    for ports in ["", ",\"src_port\":0,\"dst_port\":0"] {
        let body = format!("{{\"flow\":{{{tuple}{ports}}},\"action\":\"drop\"}}");
        let answer = probe.served.change("POST", "/overrides", &body);
        assert!([200, 201].contains(&answer.status), "{}", answer.body);
    }
    let found = probe.served.get("/flows?where=icmp&fields=community_id").json();
    let flows = found["flows"].as_array().unwrap().clone();
    assert_eq!(flows.len(), 2, "{found}");
    for flow in flows {
        let id = flow["community_id"].as_str().unwrap();
        let body = format!("{{\"flow\":{{\"community_id\":\"{id}\"}},\"action\":\"drop\"}}");
        let answer = probe.served.change("POST", "/overrides", &body);
        assert_eq!((answer.status, answer.json()["flow"]["community_id"].as_str()), (201, Some(id)));
    }
    let list = probe.list();
    assert_eq!(list.len(), 3);
    for present in &list {
        let flow = present["flow"].as_object().unwrap();
        assert!(!flow.contains_key("src_port") && !flow.contains_key("dst_port"), "{present}");
        let id = flow["community_id"].as_str().unwrap().replace('+', "%2B");
        let path = format!("/overrides?community_id={id}");
        assert_eq!(probe.served.change("DELETE", &path, "").status, 200, "{present}");
    }
    probe.served.probe.stop(0);
}

#[test]
fn a_community_id_that_flows_share_names_none_of_them() {
    let Some(mut probe) = Overridden::start("") else { return };
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    // UDP-Lite and DCCP: two flows of each differ in a port, which their Community ID does not have.
    let lite = |port: u8| ipv4(136, ends[0], ends[1], &[0, port, 0, 80, 0, 0, 0, 0, 1, 2, 3, 4]);
    let dccp = |port: u8| ipv4(33, ends[0], ends[1], &[0, port, 0, 80, 3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    for port in [1, 2] {
        [lite(port), dccp(port)].iter().for_each(|frame| probe.served.sender.send(frame));
    }
    until("all packets are counted", || probe.received() == 4);
    for protocol in ["udplite", "dccp"] {
        let found = probe.served.get(&format!("/flows?where=protocol%20{protocol}&fields=community_id")).json();
        let ids: Vec<&str> =
            found["flows"].as_array().unwrap().iter().map(|flow| flow["community_id"].as_str().unwrap()).collect();
        assert!(ids.len() == 2 && ids[0] == ids[1], "{found}");
        let body = format!("{{\"flow\":{{\"community_id\":\"{}\"}},\"action\":\"drop\"}}", ids[0]);
        let answer = probe.served.change("POST", "/overrides", &body);
        let reason = format!("has no ports of {protocol}: name the flow by addresses, ports");
        assert!(answer.status == 400 && answer.body.to_lowercase().contains(&reason), "{}", answer.body);
        assert!(probe.list().is_empty());
        // By its ports, one flow is named.
        let tuple = format!("\"src_ip\":\"10.0.0.2\",\"dst_ip\":\"10.0.0.1\",\"protocol\":\"{protocol}\"");
        let body = format!("{{\"flow\":{{{tuple},\"src_port\":80,\"dst_port\":2}},\"action\":\"drop\"}}");
        let answer = probe.served.change("POST", "/overrides", &body);
        assert_eq!((answer.status, answer.json()["flow"]["community_id"].as_str()), (201, Some(ids[0])));
        let path = format!("/overrides?community_id={}", ids[0].replace('+', "%2B"));
        assert_eq!(probe.served.change("DELETE", &path, "").status, 400);
        let query = format!("src_ip=10.0.0.1&src_port=2&dst_ip=10.0.0.2&dst_port=80&protocol={protocol}");
        assert_eq!(probe.served.change("DELETE", &format!("/overrides?{query}"), "").status, 200);
    }
    probe.served.probe.stop(0);
}

#[test]
fn without_rules_there_is_nothing_to_override() {
    let (_folder, token) = token_file(TOKEN, 0o600);
    let Some(served) = Served::start(&["--token-file", token.to_str().unwrap()]) else { return };
    let body = format!("{{\"flow\":{},\"action\":\"drop\"}}", flow(1));
    for answer in [served.get("/overrides"), served.change("POST", "/overrides", &body)] {
        assert!(answer.status == 409 && answer.body.contains("start it with --rules"), "{}", answer.body);
    }
    served.probe.stop(0);
}
