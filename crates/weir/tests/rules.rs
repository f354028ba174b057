//! Rules: which packets of a capture are handed on, to which outputs, in which order, and how much
//! of them. docs/rules.md.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{Pcap, START, command, failure, ledger_of, number, success, weir};
use live::Running;
use network::until;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weir_packet::{DecodeOptions, Packet};

/// A flow: protocol, and both endpoints in order.
type Flow = (u8, ([u8; 16], u16), ([u8; 16], u16));

/// The frames of a pcap file with nanosecond times: time, captured octets, octets on the wire.
fn frames(path: &Path) -> Vec<(u64, Vec<u8>, u32)> {
    let octets = std::fs::read(path).unwrap();
    let number = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
    let (mut at, mut frames) = (24, Vec::new());
    while at < octets.len() {
        let captured = number(at + 8) as usize;
        let time = u64::from(number(at)) * 1_000_000_000 + u64::from(number(at + 4));
        frames.push((time, octets[at + 16..at + 16 + captured].to_vec(), number(at + 12)));
        at += 16 + captured;
    }
    frames
}

fn flow_of(frame: &[u8], wire: u32) -> Flow {
    let mut packet = Packet::default();
    weir_packet::decode(1, frame, wire, DecodeOptions { decapsulate: false }, &mut packet).expect("it is IP");
    let mut ends = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
    ends.sort();
    (packet.protocol, ends[0], ends[1])
}

fn by_flow(frames: Vec<(u64, Vec<u8>, u32)>) -> BTreeMap<Flow, Vec<(u64, Vec<u8>, u32)>> {
    let mut flows: BTreeMap<Flow, Vec<_>> = BTreeMap::new();
    for frame in frames {
        flows.entry(flow_of(&frame.1, frame.2)).or_default().push(frame);
    }
    flows
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with a capture of many applications, and a rules file.
    fn new(rules: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let capture = folder.path("apps.pcap");
        success(["synth", "apps,flows=200,packets=12k,seed=4", "-q", "-o", capture.to_str().unwrap()]);
        let rules = rules.replace("FOLDER", folder.0.path().to_str().unwrap());
        std::fs::write(folder.path("rules.toml"), rules).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Meters the capture with the rules, and returns the ledger.
    fn read(&self) -> serde_json::Value {
        let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| self.text(name));
        let (code, err, ledger) =
            ledger_of(["read", &capture, "-q", "-o", "csv:/dev/null", "--rules", &rules, "--no-sandbox"]);
        assert_eq!((code, &*err), (0, ""));
        assert_eq!(ledger["balanced"], true, "{ledger:#}");
        ledger
    }
}

/// The flows of each application, by `weir read` alone.
fn applications(folder: &Folder) -> BTreeMap<String, Option<String>> {
    let (_, _, records, _) =
        common::metered(&["read", &folder.text("apps.pcap"), "-q", "--fields", "community_id,application"]);
    let text = |value: &serde_json::Value| value.as_str().map(String::from);
    records.iter().map(|record| (text(&record["community_id"]).unwrap(), text(&record["application"]))).collect()
}

/// The Community ID of each flow of a capture.
fn community_ids(folder: &Folder) -> BTreeMap<Flow, String> {
    let fields = "community_id,src_ip,dst_ip,src_port,dst_port,protocol_number";
    let (_, _, records, _) = common::metered(&["read", &folder.text("apps.pcap"), "-q", "--fields", fields]);
    let address = |text: &serde_json::Value| match text.as_str().unwrap().parse().unwrap() {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(address) => address.octets(),
    };
    let flow = |record: &serde_json::Value| {
        let port = |name: &str| record[name].as_u64().unwrap_or(0) as u16;
        let mut ends = [(address(&record["src_ip"]), port("src_port")), (address(&record["dst_ip"]), port("dst_port"))];
        ends.sort();
        (record["protocol_number"].as_u64().unwrap() as u8, ends[0], ends[1])
    };
    records.iter().map(|record| (flow(record), record["community_id"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn each_flow_is_handed_on_by_its_application_from_its_first_packet_on_and_in_order() {
    let folder = Folder::new(
        r#"
[egress.ids]
outputs = ["pcap:FOLDER/ids1.pcap", "pcap:FOLDER/ids2.pcap"]
[egress.names]
outputs = ["pcap:FOLDER/names.pcap"]
[default]
to = "ids"
[hold]
ms = 60000
[[network]]
name = "banned"
where = "port 22"
action = "drop"
[[application]]
where = "application = tls"
shunt = 5
slice = "l4"
[[application]]
where = "application = dns"
to = ["ids", "names"]
[[application]]
where = "application = quic"
action = "drop"
"#,
    );
    let ledger = folder.read();
    let actions = &ledger["actions"];
    assert!(number(&actions["decided_late"]) == 0 && number(&actions["decided_full"]) == 0, "{actions:#}");
    let applications = applications(&folder);
    let ids = community_ids(&folder);
    let original = by_flow(frames(&folder.path("apps.pcap")));
    let outputs = ["ids1.pcap", "ids2.pcap", "names.pcap"].map(|name| by_flow(frames(&folder.path(name))));
    let (mut tls, mut dropped, mut others, mut cut) = (0, 0, 0, 0);
    for (flow, packets) in &original {
        let found: Vec<_> = outputs[..2].iter().filter_map(|output| output.get(flow)).collect();
        let application = applications[&ids[flow]].as_deref();
        let is_banned = flow.1.1 == 22 || flow.2.1 == 22;
        if is_banned || application == Some("quic") {
            assert!(found.is_empty(), "{flow:?}");
            dropped += 1;
            continue;
        }
        let [forwarded] = &found[..] else { panic!("{flow:?} is at {} consumers", found.len()) };
        if application == Some("tls") {
            assert_eq!(forwarded.len(), packets.len().min(5), "{flow:?}");
            for (sent, of_capture) in forwarded.iter().zip(packets) {
                assert!(of_capture.1.starts_with(&sent.1) && (sent.0, sent.2) == (of_capture.0, of_capture.2));
                // All headers, and nothing behind them.
                let header = |frame: &[u8]| {
                    let mut packet = Packet::default();
                    weir_packet::decode(1, frame, sent.2, DecodeOptions { decapsulate: false }, &mut packet).unwrap();
                    (packet.payload_bytes, packet.sequence, packet.control)
                };
                assert_eq!(header(&sent.1), header(&of_capture.1), "lengths inside stay as sent");
                let payload = header(&of_capture.1).0 as usize;
                assert!(sent.1.len() >= 54 && (payload == 0 || sent.1.len() == of_capture.1.len() - payload));
                cut += usize::from(sent.1.len() < of_capture.1.len());
            }
            tls += 1;
        } else {
            assert_eq!(*forwarded, packets, "{flow:?} {application:?}");
            others += 1;
        }
        assert_eq!(outputs[2].get(flow), (application == Some("dns")).then_some(packets), "{flow:?}");
    }
    assert!(tls > 20 && dropped > 10 && others > 20 && cut > 50, "{tls} {dropped} {others} {cut}");
    assert_eq!(number(&actions["cut"]), cut as u64);
    let sent = |name: &str| {
        let outputs = actions["outputs"].as_array().unwrap();
        number(
            &outputs.iter().find(|output| output["output"].as_str().unwrap().ends_with(name)).unwrap()["sent"]["packets"],
        )
    };
    for (name, output) in ["ids1.pcap", "ids2.pcap", "names.pcap"].iter().zip(&outputs) {
        assert_eq!(sent(name), output.values().map(Vec::len).sum::<usize>() as u64, "{name}");
    }
    assert_eq!(sent("ids1.pcap") + sent("ids2.pcap"), number(&actions["forwarded"]["packets"]));
}

#[test]
fn packets_that_wait_leave_in_order_if_time_or_memory_ends() {
    for (hold, counter) in
        [("ms = 1", "decided_late"), ("octets = 20000\nms = 100000", "decided_full"), ("octets = 100", "decided_full")]
    {
        let folder = Folder::new(&format!(
            "[egress.all]\noutputs = 'pcap:FOLDER/all.pcap'\n[hold]\n{hold}\n[[application]]\nwhere = 'application = mysql'\n\
             shunt = 1\n"
        ));
        let ledger = folder.read();
        assert!(number(&ledger["actions"][counter]) > 10, "{hold}: {:#}", ledger["actions"]);
        let (original, sent) = ("apps.pcap", "all.pcap");
        let [original, sent] = [original, sent].map(|name| by_flow(frames(&folder.path(name))));
        assert_eq!(original, sent, "{hold}");
    }
}

#[test]
fn flows_that_overload_leaves_uninspected_are_decided_at_once_and_counted() {
    let folder = Folder::new(
        "[egress.all]\noutputs = 'pcap:FOLDER/all.pcap'\n[[application]]\nwhere = 'application = tls'\nshunt = 1\n",
    );
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let actions = |level: &str| {
        let arguments = ["probe", "-i", &capture, "-q", "-o", "csv:/dev/null", "--rules", &rules, "--overload", level];
        let (code, err, ledger) = ledger_of([&arguments[..], &["--no-sandbox", "--flows", "10k"]].concat());
        assert_eq!((code, &*err), (0, ""));
        std::fs::remove_file(folder.path("all.pcap")).unwrap();
        let shunted = number(&ledger["actions"]["shunted"]["packets"]);
        (number(&ledger["actions"]["decided_uninspected"]), number(&ledger["flows"]["created"]), shunted)
    };
    let (uninspected, flows, shunted) = actions("0");
    assert!(uninspected == 0 && flows > 150 && shunted > 100, "{uninspected} {flows} {shunted}");
    assert_eq!(actions("1"), (flows, flows, 0));
}

#[test]
fn without_a_rule_for_applications_the_copy_is_the_capture() {
    let folder = Folder::new(
        "[egress.all]\noutputs = 'pcap:FOLDER/all.pcap'\n[egress.short]\noutputs = 'pcap:FOLDER/short.pcap'\n",
    );
    folder.read();
    let mode = std::fs::metadata(folder.path("all.pcap")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "packets are not for everybody");
    let original = frames(&folder.path("apps.pcap"));
    assert!(original == frames(&folder.path("all.pcap")) && original == frames(&folder.path("short.pcap")));
}

#[test]
fn a_check_says_what_each_rule_would_do_and_sends_nothing() {
    let folder = Folder::new(
        "[egress.ids]\noutputs = 'pcap:FOLDER/ids.pcap'\n[[network]]\nname = 'web'\nwhere = 'port 443'\nshunt = 3\n[[network]]\n\
         name = 'rest'\naction = 'drop'\n",
    );
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let valid = success(["rules", "check", &rules]);
    assert!(valid.ends_with("rules.toml: valid, 2 rules, 1 output group\n"), "{valid}");
    let text = success(["rules", "check", &rules, "--with", &capture]);
    assert!(text.contains("network web") && text.contains("- shunted") && !folder.path("ids.pcap").exists(), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&success(["rules", "check", &rules, "--with", &capture, "--json"])).unwrap();
    let ledger = folder.read();
    for key in ["forwarded", "dropped", "shunted", "rules"] {
        assert_eq!(json[key], ledger["actions"][key], "{key}");
    }
    assert_eq!(json["outputs"][0]["sent"], ledger["actions"]["outputs"][0]["sent"]);
}

#[test]
fn every_problem_of_a_rules_file_is_told_with_its_line() {
    let folder = Folder::new("[egress.ids]\noutputs = ['pcp:x', 'pcap:FOLDER/y']\nbalance = 'miror'\n");
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let err = failure(1, ["rules", "check", &rules]);
    for part in ["rules.toml: line 1: pcp:x: not an output (did you mean pcap?)", "line 1: balance: 'miror'"] {
        assert!(err.replace("\n      ", " ").contains(part), "{err}");
    }
    std::fs::write(&rules, "[[network]]\nwhere = 'prot 22'\n[[networks]]\naction = 'drop'\n").unwrap();
    for arguments in
        [&["read", &capture, "--rules", &rules][..], &["probe", "-i", &capture, "--rules", &rules, "--check"]]
    {
        let (code, _, err) = weir(arguments);
        assert_eq!(code, 1, "{err}");
        for part in ["line 2: where:", "line 3: there is no 'networks' in a rules file (did you mean network?)"] {
            assert!(err.contains(part), "{err}");
        }
    }
    let missing = failure(1, ["rules", "check", "missing.toml"]);
    assert!(missing.contains("missing.toml: No such file"), "{missing}");
    std::fs::write(&rules, "[[application]]\nwhere = 'sni = x'\naction = 'drop'\n").unwrap();
    let err = failure(1, ["read", &capture, "--rules", &rules, "--dpi", "off"]);
    assert!(err.contains("--rules: line 1: 'sni = x' asks for what inspection"), "{err}");
    std::fs::write(&rules, "").unwrap();
    let err = failure(1, ["probe", "-i", &capture, "--rules", &rules, "--layout", "split"]);
    assert!(err.contains("--rules needs --layout fused"), "{err}");
}

#[test]
fn rules_are_loaded_again_without_losing_a_flow() {
    let folder = tempfile::tempdir().unwrap();
    common::permit_all_users(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert!(std::process::Command::new("mkfifo").arg(path("input")).status().unwrap().success());
    common::permit_all_users(Path::new(&path("input")));
    let mut input = std::fs::File::options().read(true).write(true).open(path("input")).unwrap();
    input.write_all(&Pcap::new().0).unwrap();
    let output = path("out.pcap");
    let egress = format!("[egress.all]\noutputs = 'pcap:{output}'\n");
    let write = |text: &str| std::fs::write(path("rules.toml"), text).unwrap();
    write(&egress);
    let [input_name, rules] = ["input", "rules.toml"].map(path);
    let arguments =
        ["probe", "-i", &input_name, "--rules", &rules, "--interval", "100ms", "--flows", "10k", "-o", "csv:/dev/null"];
    let running = Running::start_in(command(), &arguments);
    running.wait_for("packets/s");
    let mut send = |second: u32| {
        let frames = (0..5).flat_map(common::request_and_response);
        let pcap = frames.fold(Pcap(Vec::new()), |pcap, frame| pcap.frame(START + second, 0, &frame));
        input.write_all(&pcap.0).unwrap();
    };
    let written = || frames(Path::new(&output)).len();
    send(0);
    until("ten packets are handed on", || Path::new(&output).exists() && written() == 10);
    write(&format!("{egress}[default]\naction = 'drop'\n"));
    running.signal(libc::SIGHUP);
    running.wait_for("rules loaded again");
    send(1);
    for (text, message) in [
        ("[egress", "cannot load the rules again, continuing with the old ones"),
        (&*egress.replace("all]", "other]"), "outputs cannot change while the probe runs"),
    ] {
        write(text);
        running.signal(libc::SIGHUP);
        running.wait_for(message);
    }
    send(2);
    write(&egress);
    let times = running.times("rules loaded again");
    running.signal(libc::SIGHUP);
    until("the rules are loaded", || running.times("rules loaded again") > times);
    send(3);
    until("ten more packets are handed on", || written() == 20);
    drop(input);
    let (code, err, _, ledger) = running.wait();
    assert_eq!(code, 0, "{err}");
    let actions = &ledger["actions"];
    assert_eq!(
        [number(&actions["forwarded"]["packets"]), number(&actions["dropped"]["packets"])],
        [20, 20],
        "{actions:#}"
    );
    assert!(ledger["balanced"] == true && number(&ledger["flows"]["created"]) == 5, "{ledger:#}");
}
