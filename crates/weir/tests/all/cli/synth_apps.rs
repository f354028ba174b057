//! `synth:apps`: what `weir read` finds in each flow is what the generator put there, also if the
//! first packets are split, lost, reordered, repeated, overlapping, or come again with other
//! octets. tshark reads the same in the same packets.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::{arguments, is_installed, metered, success};

const TRAFFIC: &str = "apps,flows=300,new=3k,packets=40k,seed=5,split=30%,records=15%,missing=4%,loss=4%,\
                       duplicate=4%,overlap=4%,conflict=4%,reorder=4%,undecided=2%";
/// Facts that are columns of the ground truth and fields of a record.
const FACTS: [&str; 7] = ["sni", "alpn_offered", "alpn", "http_host", "dns_name", "ssh_client", "ssh_server"];

/// Both endpoints, in ascending order.
type Ends = [(String, String); 2];

fn ends(mut ends: Ends) -> Ends {
    ends.sort();
    ends
}

/// A line of the ground truth.
struct Flow {
    columns: HashMap<String, String>,
}

impl Flow {
    fn ends(&self) -> Ends {
        ends([("src_ip", "src_port"), ("dst_ip", "dst_port")].map(|(ip, port)| (self[ip].clone(), self[port].clone())))
    }

    /// Whether a column with a list of words has this one.
    fn has(&self, column: &str, word: &str) -> bool {
        self[column].split(' ').any(|has| has == word)
    }

    /// The fact that the captured octets show; `None`: the flow has none, or it is hidden.
    fn shown(&self, fact: &str) -> Option<&str> {
        Some(self[fact].as_str()).filter(|value| !value.is_empty() && !self.has("hidden", fact))
    }
}

impl std::ops::Index<&str> for Flow {
    type Output = String;

    fn index(&self, column: &str) -> &String {
        &self.columns[column]
    }
}

/// Writes the traffic and its truth. Returns the capture and the flows.
fn generated(folder: &Path) -> (PathBuf, Vec<Flow>) {
    let (capture, truth) = (folder.join("apps.pcap"), folder.join("truth.csv"));
    success(arguments!["synth", TRAFFIC, "-q", "-o", capture, "--truth", truth]);
    let text = std::fs::read_to_string(truth).unwrap();
    let (names, lines) = text.split_once('\n').unwrap();
    let flow = |line: &str| {
        // Only the list of protocols is in quotes.
        let mut values: Vec<String> = vec![String::new()];
        let mut is_quoted = false;
        for character in line.chars() {
            match character {
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => values.push(String::new()),
                character => values.last_mut().unwrap().push(character),
            }
        }
        assert_eq!(values.len(), names.split(',').count(), "{line}");
        Flow { columns: names.split(',').map(String::from).zip(values).collect() }
    };
    (capture, lines.lines().map(flow).collect())
}

#[test]
fn records_have_the_facts_of_every_flow() {
    let folder = tempfile::tempdir().unwrap();
    let (_, flows) = generated(folder.path());
    let traffic = format!("synth:{TRAFFIC}");
    let options = ["read", "-i", &traffic, "-q", "--idle", "1h", "--active", "1h", "--fields", "applications"];
    let (code, err, records, _) = metered(&options);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(records.len(), flows.len(), "each flow is one record");
    let text = |record: &Value, field: &str| match &record[field] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let key = |record: &Value| {
        ends([("src_ip", "src_port"), ("dst_ip", "dst_port")].map(|names| {
            let [ip, port] = [names.0, names.1].map(|name| text(record, name).expect("each record has it"));
            (ip, port)
        }))
    };
    let records: HashMap<Ends, &Value> = records.iter().map(|record| (key(record), record)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for flow in &flows {
        let record = records[&flow.ends()];
        let case = format!("{:?}: {record}", flow.columns);
        let application = Some(flow["application"].as_str()).filter(|name| !name.is_empty());
        let found = text(record, "application");
        let notes = text(record, "application_notes").unwrap_or_default();
        let has_note = |note: &str| notes.contains(note);
        if flow.has("first_packets", "cut") {
            // The traffic ended before: the octets may be too few for the application, but not for
            // a fact.
            assert!(found.is_none() || found.as_deref() == application, "{case}");
            for fact in FACTS {
                assert_eq!(text(record, fact).as_deref(), flow.shown(fact), "{fact} of {case}");
            }
            assert!(!has_note("conflict") || flow.has("first_packets", "conflict"), "{case}");
            *counts.entry("cut").or_default() += 1;
            continue;
        }
        assert_eq!(found.as_deref(), application, "{case}");
        for fact in FACTS {
            assert_eq!(text(record, fact).as_deref(), flow.shown(fact), "{fact} of {case}");
            *counts.entry("hidden facts").or_default() += usize::from(flow.has("hidden", fact));
            *counts.entry(fact).or_default() += usize::from(flow.shown(fact).is_some());
        }
        let is_conflict = flow.has("first_packets", "conflict") && application.is_some();
        assert_eq!(has_note("conflict"), is_conflict, "{case}");
        assert!(!has_note("gap") || flow.has("first_packets", "missing"), "{case}");
        // Missing octets of TCP are seen if others follow them.
        if !flow["hidden"].is_empty() && record["protocol"] == "tcp" && application.is_some() {
            assert!(has_note("gap"), "{case}");
            *counts.entry("gap").or_default() += 1;
        }
        for word in flow["first_packets"].split(' ').filter(|word| !word.is_empty()) {
            let known = ["split", "records", "missing", "loss", "duplicate", "overlap", "conflict", "reorder"];
            *counts.entry(known.into_iter().find(|known| *known == word).expect(word)).or_default() += 1;
        }
        *counts.entry(if application.is_some() { "known" } else { "of no application" }).or_default() += 1;
    }
    let few = counts.iter().filter(|(_, count)| **count < 5).collect::<Vec<_>>();
    assert!(few.is_empty() && counts.len() == 20, "the traffic has enough of everything: {counts:?}");
    assert!(counts["known"] > 500 && counts["cut"] < 60, "{counts:?}");
}

/// tshark reads a ClientHello only if it is whole, so that it has no name of one whose end is
/// missing.
#[test]
fn tshark_reads_the_same_names() {
    if !is_installed("tshark") {
        return;
    }
    const NAMES: [(&str, &str); 3] =
        [("sni", "tls.handshake.extensions_server_name"), ("http_host", "http.host"), ("dns_name", "dns.qry.name")];
    const ENDS: [[&str; 2]; 4] = [
        ["ip.src", "ipv6.src"],
        ["ip.dst", "ipv6.dst"],
        ["tcp.srcport", "udp.srcport"],
        ["tcp.dstport", "udp.dstport"],
    ];
    let folder = tempfile::tempdir().unwrap();
    let (capture, flows) = generated(folder.path());
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-o", "tcp.reassemble_out_of_order:TRUE", "-T", "fields", "-r"]).arg(capture);
    tshark.args(["-Y", &NAMES.map(|(_, field)| field).join(" or ")]);
    for field in ENDS.iter().flatten().copied().chain(NAMES.iter().map(|(_, field)| *field)) {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut read: HashMap<(Ends, &str), BTreeSet<String>> = HashMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let values: Vec<&str> = line.split('\t').collect();
        let end = |at: usize| [values[at], values[at + 1]].concat();
        let key = ends([(end(0), end(4)), (end(2), end(6))]);
        for ((name, _), value) in NAMES.iter().zip(&values[8..]) {
            let values = value.split(',').filter(|value| !value.is_empty()).map(String::from);
            read.entry((key.clone(), name)).or_default().extend(values);
        }
    }
    let mut compared = 0;
    for flow in flows.iter().filter(|flow| !flow.has("first_packets", "cut")) {
        for (name, _) in NAMES {
            let expected: BTreeSet<String> = flow.shown(name).map(String::from).into_iter().collect();
            let found = read.remove(&(flow.ends(), name)).unwrap_or_default();
            if !(found.is_empty() && flow.has("first_packets", "missing")) {
                assert_eq!(found, expected, "{name} of {:?}", flow.columns);
                compared += expected.len();
            }
        }
    }
    assert!(compared > 400, "{compared} names");
}
