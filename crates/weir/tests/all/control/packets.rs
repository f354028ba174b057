//! The packets of a flow, its segments, and the findings of `weir doctor`, over HTTP.

use serde_json::Value;
use std::fs;
use std::path::Path;
use testbed::namespace::until;
use testbed::running::send_requests;
use testbed::served::{Answer, Overridden, Served};
use testbed::viewed::{Starting, Viewed};
use testbed::{Pcap, arguments, assert_usage_errors, captures, ipv4, number, permit_all_users, success, tcp, weir};

const SIGTERM: i32 = 15;
const FLOW: &str = "192.0.2.1:38702-192.0.2.2:80";

fn web() -> String {
    captures().join("web.pcap").to_str().unwrap().into()
}

/// A capture of an answer, as octets; and its head.
fn capture(view: &Viewed, query: &str) -> (String, Vec<u8>) {
    let request = format!("GET /packets?{query} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", view.address);
    let answer = view.octets(request.as_bytes());
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
    assert!(head.contains(" 200 ok"), "{head} {}", String::from_utf8_lossy(&answer[end..]));
    (head, answer[end + 4..].to_vec())
}

/// Octets and times of the frames of a capture.
fn frames(capture: Vec<u8>) -> Vec<(Vec<u8>, u64)> {
    let mut source = weir_capture::from_bytes(Path::new("answer"), capture).unwrap();
    let mut frames = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        frames.extend(burst.iter().map(|frame| (frame.bytes.to_vec(), frame.time_ns)));
    }
    frames
}

/// What `weir packets` finds.
fn found(files: &[&str], options: &[&str]) -> Vec<(Vec<u8>, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("found.pcapng");
    success([&["packets", "-q", "-o", output.to_str().unwrap()], files, options].concat());
    frames(fs::read(output).unwrap())
}

fn refusal(view: &Viewed, path: &str) -> (u16, String) {
    let answer = view.get(path);
    (answer.status, answer.json()["error"].as_str().unwrap().into())
}

#[test]
fn a_view_of_captures_finds_the_packets_of_a_flow_as_weir_packets_does() {
    let loss = captures().join("loss.pcapng").to_str().unwrap().to_owned();
    let inputs = [&*web(), &*loss];
    let view = Viewed::start(&inputs);
    let about = view.get("/about").json();
    assert_eq!([&about["no_packets"], &about["no_segments"]], [&Value::Null, &Value::Null]);
    let flows = view.get("/stored?from=1970-01-01&top=1000&fields=community_id,start_time,end_time,packets").json();
    let flows = flows["flows"].as_array().unwrap();
    assert!(flows.len() > 10);
    for flow in flows.iter().filter(|flow| !flow["community_id"].is_null()) {
        let text = |name: &str| flow[name].as_str().unwrap();
        let id = text("community_id");
        let (from, to) = (text("start_time"), text("end_time"));
        let (head, file) = capture(&view, &format!("flow={}&from={from}&to={to}", id.replace('+', "%2B")));
        let frames = frames(file);
        assert_eq!(frames, found(&inputs, &["--flow", id, "--from", from, "--to", to]), "{id}");
        assert!(head.contains(&format!("weir-packets: {}\r\n", frames.len())), "{head}");
        assert!(!head.contains("weir-incomplete") && head.contains("flow.pcapng"), "{head}");
    }
    assert_eq!(refusal(&view, "/packets?flow=192.0.2.1:1-192.0.2.2:2").0, 404);
    for (query, error) in
        [("", "flow: name one"), ("?flow=x", "flow: not a flow"), (&format!("?flow={FLOW}&to=x"), "to: ")]
    {
        let (status, text) = refusal(&view, &format!("/packets{query}"));
        assert!(status == 400 && text.contains(error), "{query}: {status} {text}");
    }
    assert_eq!(view.stop(SIGTERM).0, 0);
}

#[test]
fn a_capture_that_does_not_fit_says_so() {
    let view = Viewed::start(&[&web(), "--listen-packets", "2kB"]);
    let (head, file) = capture(&view, &format!("flow={FLOW}"));
    let why = "only the first packets, 2000 b with their headers";
    assert!(head.contains(&format!("weir-incomplete: {why}")), "{head}");
    assert!(String::from_utf8_lossy(&file).to_lowercase().contains(&format!("incomplete: {why}")));
    let (cut, all) = (frames(file), found(&[&web()], &["--flow", FLOW]));
    assert!(cut.len() > 3 && cut.len() < all.len() && all.starts_with(&cut));
    drop(view);
    let view = Viewed::start(&[&web(), "--listen-packets", "0"]);
    assert_eq!(refusal(&view, &format!("/packets?flow={FLOW}")), (409, "--listen-packets 0 permits no packets".into()));
    assert!(view.get(&format!("/explain?flow={FLOW}")).json()["segments"].is_number());
    assert_usage_errors(&[
        (&["view", &web(), "--listen-packets", "100"], "use 0, or a size with its unit"),
        (&["view", &web(), "--packets", "/no/such/folder"], "/no/such/folder"),
    ]);
}

#[test]
fn the_segments_are_those_of_weir_tcp() {
    let view = Viewed::start(&[&web()]);
    let (_, expected, _) = weir(["tcp", &web(), "--explain", FLOW, "-q"]);
    let expected: Vec<&str> = expected.lines().skip(1).collect();
    assert!(expected.len() > 10 && expected.last() == Some(&"the batch engine reports the same"), "{expected:?}");
    let id = "1:".to_owned() + &community_id(&view);
    for name in [FLOW, "192.0.2.2:80-192.0.2.1:38702/tcp", &id.replace('+', "%2B")] {
        let body = view.get(&format!("/explain?flow={name}")).json();
        let lines: Vec<&str> = body["text"].as_str().unwrap().lines().collect();
        assert!(lines[0].starts_with("192.0.2.1:38702 → 192.0.2.2:80, from 20"), "{}", lines[0]);
        assert_eq!(&lines[1..], expected, "{name}");
        assert_eq!([number(&body["left_out"]), u64::from(body["incomplete"].is_null())], [0, 1]);
    }
    let all = view.get(&format!("/explain?flow={FLOW}")).json();
    let few = view.get(&format!("/explain?flow={FLOW}&top=3")).json();
    assert_eq!(few["segments"], all["segments"]);
    let left_out = number(&few["segments"]) - 3;
    assert_eq!(number(&few["left_out"]), left_out);
    let few: Vec<&str> = few["text"].as_str().unwrap().lines().skip(1).collect();
    let note = format!("{left_out} segments more, which have no line here");
    let at = few.iter().position(|line| *line == note).unwrap();
    assert_eq!(few[..at], expected[..at]);
    // The sums are of all.
    assert!(expected.ends_with(&few[at + 1..]));
    for (query, status) in [("flow=x", 400), ("flow=192.0.2.1:1-192.0.2.2:2", 404), ("", 400)] {
        assert_eq!(view.get(&format!("/explain?{query}")).status, status, "{query}");
    }
    assert_eq!(view.get(&format!("/explain?flow={FLOW}&at=2020-01-01")).status, 404);
    assert_eq!(view.stop(SIGTERM).0, 0);
}

/// The digest of the flow, by its record.
fn community_id(view: &Viewed) -> String {
    let flows = view.get("/stored?from=1970-01-01&where=port%2038702&fields=community_id").json();
    flows["flows"][0]["community_id"].as_str().unwrap()[2..].into()
}

#[test]
fn flows_without_packets_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows").to_str().unwrap().to_owned();
    success(["read", "-q", &web(), "-o", &format!("parquet:{store}")]);
    let view = Viewed::start(&[&store]);
    let about = view.get("/about").json();
    assert!(about["no_packets"].as_str().unwrap().contains("--packets"), "{about}");
    for path in ["/packets", "/explain"] {
        let (status, error) = refusal(&view, &format!("{path}?flow={FLOW}"));
        assert!(status == 409 && error.contains("--packets"), "{status} {error}");
    }
    drop(view);
    // With a capture that has them, their packets and segments are found.
    let view = Viewed::start(&[&store, "--packets", &web()]);
    let (_, file) = capture(&view, &format!("flow={FLOW}"));
    let all = found(&[&web()], &["--flow", FLOW]);
    assert_eq!(frames(file), all);
    let body = view.get(&format!("/explain?flow={FLOW}")).json();
    assert_eq!(number(&body["segments"]), all.len() as u64);
    // A frame has its number among those of the flow, as in the capture above.
    let mut lines = body["text"].as_str().unwrap().lines().skip_while(|line| !line.ends_with("class: details"));
    let first = lines.nth(1).unwrap();
    assert_eq!(first.split_whitespace().next(), Some("1"), "{first}");
    drop(view);
    let mut starting = Starting::new(&["-"], &[]);
    std::io::Write::write_all(&mut starting.input(), &fs::read(web()).unwrap()).unwrap();
    let view = starting.viewed();
    for path in ["/packets", "/explain"] {
        let (status, error) = refusal(&view, &format!("{path}?flow={FLOW}"));
        assert!(status == 409 && error.contains("- cannot be read again"), "{status} {error}");
    }
    let view = Viewed::start(&[&web(), "--decap"]);
    assert!(refusal(&view, &format!("/packets?flow={FLOW}")).1.contains("--decap"));
    assert!(view.get(&format!("/explain?flow={FLOW}")).status == 200);
}

#[test]
fn a_probe_finds_packets_in_the_folder_of_its_recorder() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let recorded = folder.path().join("recorded");
    let rules = format!("[recorder]\noutputs = ['folder:{}']\n", recorded.display());
    let Some(mut probe) = Overridden::start_with(&rules, &[]) else { return };
    probe.send(&[7, 8]);
    let flow = "10.1.0.1:53-10.0.0.7:1031/udp";
    let mut answer = probe.served.get(&format!("/packets?flow={flow}"));
    // Until the recorder has written them.
    until("the packets are found", || {
        answer = probe.served.get(&format!("/packets?flow={flow}"));
        answer.head.contains("weir-packets: 2\r\n")
    });
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(probe.served.get("/packets?flow=10.1.0.1:53-10.0.0.9:1033/udp").status, 404);
    assert_eq!(probe.served.get("/about").json()["no_packets"], Value::Null);
    let Answer { status, body, .. } = probe.served.get("/explain?flow=10.1.0.1:53-10.0.0.7:1031");
    assert!(status == 404 && body.contains("no segment"), "{status} {body}");
}

#[test]
fn a_packet_that_two_recorders_have_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name).display().to_string());
    let rules = format!("[egress.other]\noutputs = ['folder:{other}']\n[recorder]\noutputs = ['folder:{one}']\n");
    let Some(mut probe) = Overridden::start_with(&rules, &[]) else { return };
    probe.send(&[7]);
    // Of a segment that is there twice, one is a retransmission.
    let segment = tcp(([10, 0, 0, 7], 1031), ([10, 1, 0, 1], 80), 0x18, 10);
    (0..2).for_each(|_| probe.served.sender.send(&segment));
    until("the segments are counted", || probe.received() == 4);
    let mut answer = probe.served.get("/health");
    until("both recorders have written the packets", || {
        answer = probe.served.get("/packets?flow=10.1.0.1:53-10.0.0.7:1031/udp");
        answer.head.contains("weir-packets: 2\r\n") && answer.head.contains("weir-copies: 2\r\n")
    });
    assert!(answer.body.contains("copies left out: 2"), "{}", answer.body);
    let mut body = Value::Null;
    until("both recorders have written the segments", || {
        body = probe.served.get("/explain?flow=10.0.0.7:1031-10.1.0.1:80/tcp").json();
        body["copies"] == 2
    });
    assert_eq!((number(&body["segments"]), &body["incomplete"]), (2, &Value::Null), "{body}");
}

#[test]
fn all_reasons_why_an_answer_is_incomplete_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let octets = fs::read(web()).unwrap();
    // Two captures that end within a packet, and too little room for what is left.
    let cut = [1, 2].map(|number| {
        let path = folder.path().join(format!("cut{number}.pcap"));
        fs::write(&path, &octets[..octets.len() - number]).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let view = Viewed::start(&[&web(), "--packets", &cut[0], "--packets", &cut[1]]);
    let (head, _) = capture(&view, &format!("flow={FLOW}"));
    let why = head.lines().find_map(|line| line.strip_prefix("weir-incomplete: ")).unwrap();
    assert!(why.contains("cut1.pcap") && why.contains("cut2.pcap") && why.contains("; "), "{why}");
    let body = view.get(&format!("/explain?flow={FLOW}")).json();
    let why = body["incomplete"].as_str().unwrap();
    assert!(why.contains("cut1.pcap") && why.contains("cut2.pcap"), "{why}");
    // Both have the same packets.
    assert!(number(&body["copies"]) > 10, "{body}");
}

#[test]
fn messages_of_a_host_with_itself_are_those_of_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let [here, there] = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let echo = [8, 0, 0, 0, 0, 1, 0, 1];
    let frames_of = [(here, here), (here, there), (there, here), (there, there)];
    let frames_of = frames_of.map(|(source, destination)| ipv4(1, source, destination, &echo));
    let path = Pcap::of(&frames_of).save(folder.path(), "icmp.pcap");
    let path = path.to_str().unwrap();
    let view = Viewed::start(&[path]);
    for (flow, packets) in [("10.0.0.1-10.0.0.1/icmp", 1), ("10.0.0.1-10.0.0.2/icmp", 2)] {
        let (_, file) = capture(&view, &format!("flow={flow}"));
        let frames = frames(file);
        assert_eq!(frames.len(), packets, "{flow}");
        assert_eq!(frames, found(&[path], &["--flow", flow]), "{flow}");
    }
}

#[test]
fn a_probe_without_recorder_has_no_packets_and_its_machine_is_examined() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..2);
    let Answer { status, body, .. } = served.get(&format!("/packets?flow={FLOW}"));
    assert!(status == 409 && body.contains("records no packets"), "{status} {body}");
    let doctor = served.get("/doctor").json();
    assert!(number(&doctor["examined"]) > 1_700_000_000, "{doctor}");
    // In the namespace of a test, /sys may have the interfaces of the machine.
    let (code, out, _) = weir(["doctor", "right", "--json"]);
    let out = if code == 1 { weir(["doctor", "--json"]).1 } else { out };
    let expected: Value = serde_json::from_str(&out).unwrap();
    let is_examined = doctor["interfaces"][0] == "right";
    assert_eq!(is_examined, code != 1, "{doctor}");
    assert_eq!(doctor["notes"].to_string().contains("right was not checked"), !is_examined, "{doctor}");
    let of_machine = |findings: &Value| -> Vec<Value> {
        let all = findings.as_array().unwrap().iter();
        // The space of its folders is that of the probe.
        let is_of_both =
            |one: &&Value| one["subject"] == "machine" && one["severity"] != "ok" && one["check"] != "space";
        all.filter(is_of_both).cloned().collect()
    };
    // Figures in summaries change while other tests take huge pages.
    let without_summary = |mut finding: Value| {
        finding["summary"].take();
        finding
    };
    let [found, others] = [&doctor, &expected].map(|of| of_machine(&of["findings"]).into_iter().map(without_summary));
    assert!(found.eq(others), "{doctor}\n{expected}");
    let (_, text, _) = weir(arguments!["doctor"]);
    for finding in of_machine(&doctor["findings"]) {
        let summary = finding["summary"].as_str().unwrap();
        let end = summary.rsplitn(4, ' ').take(3).collect::<Vec<_>>();
        let end = end.into_iter().rev().collect::<Vec<_>>().join(" ");
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&end), "{summary}\n{text}");
    }
    served.probe.stop(0);
}

#[test]
fn a_probe_that_reads_no_interface_has_no_findings() {
    let Some(served) = Served::start_on("synth:mix,duration=1h", &[]) else { return };
    let doctor = served.get("/doctor").json();
    assert_eq!((&doctor["examined"], &doctor["findings"]), (&Value::Null, &Value::Array(Vec::new())));
    assert!(doctor["notes"][0].as_str().unwrap().contains("reads no live traffic"), "{doctor}");
}
