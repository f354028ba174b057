//! Compares figures of captures with those of other tools, exactly.
//!
//! `testdata/differences.toml` lists the differences with both numbers and the rule that explains each.
//! The test fails on a difference that is not listed, and on a listed one that no longer exists.
//! `BLESS=1` rewrites the file: existing lines keep their rule; new ones get `unexplained`, on which the
//! test fails.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_flow::{Approximate, Config, FlowRecord, KeyOptions};
use weir_ledger::RefusalReason;
use weir_packet::{Network, TunnelType, ip_address};
use weir_probe::Settings;
use weir_testkit::compare;
use weir_testkit::real::{self, End};
use weir_testkit::truth::{self, Case, Conversation};

const UNEXPLAINED: &str = "unexplained";

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Difference {
    ours: String,
    theirs: String,
    #[serde(default)]
    rule: String,
}

/// Differences by figure.
type Differences = BTreeMap<String, Difference>;

#[derive(Debug, Default, Deserialize)]
struct Table {
    rules: BTreeMap<String, String>,
    #[serde(default)]
    files: BTreeMap<String, Differences>,
}

fn settings(decapsulate: bool) -> Settings {
    // One record per tunnel, so that none is hidden in another one's.
    let key = KeyOptions { tunnel: true, ..KeyOptions::default() };
    Settings {
        meter: Config { flows: 1 << 16, key, secret: Some(1), ..Config::default() },
        decode: weir_packet::DecodeOptions { decapsulate },
        ..Settings::default()
    }
}

fn metered(case: &Case, decapsulate: bool) -> real::Outcome {
    let source = weir_capture::open(&case.path).expect("every capture can be opened");
    let outcome = real::run(weir_capture::Input::File(source), settings(decapsulate));
    assert_eq!(outcome.ledger.check(), vec![], "{}: the ledger does not balance", case.name);
    let overflow = |flow: &FlowRecord| flow.approximate.0 & Approximate::OVERFLOW != 0;
    assert!(!outcome.flows.iter().any(overflow), "{}: the table is too small for this test", case.name);
    outcome
}

/// Packets in both directions between two endpoints, the lower endpoint first.
type Sums = BTreeMap<(End, End), (u64, u64)>;

fn add(sums: &mut Sums, from: End, to: End, there: u64, back: u64) {
    // Between an endpoint and itself there is one direction.
    let (there, back) = if from == to { (there + back, 0) } else { (there, back) };
    let (key, (one, other)) = if from <= to { ((from, to), (there, back)) } else { ((to, from), (back, there)) };
    let sum = sums.entry(key).or_default();
    sum.0 += one;
    sum.1 += other;
}

fn ends(flow: &FlowRecord, with_ports: bool) -> (End, End) {
    let ip = |octets| ip_address(flow.network, octets).expect("layer 2 is off");
    let port = |port| if with_ports { port } else { 0 };
    ((ip(flow.source), port(flow.source_port)), (ip(flow.destination), port(flow.destination_port)))
}

/// Packets per conversation of one kind: of the outermost layer, and of the innermost one inside tunnels.
fn ours<'a>(flows: impl Iterator<Item = &'a FlowRecord>, with_ports: bool) -> Sums {
    let mut sums = Sums::new();
    for flow in flows {
        let (from, to) = ends(flow, with_ports);
        add(&mut sums, from, to, flow.forward.packets, flow.reverse.packets);
    }
    sums
}

fn theirs(list: &[Conversation], with_ports: bool) -> Sums {
    let mut sums = Sums::new();
    let end = |text: &str| -> End {
        let (ip, port) = if with_ports { text.rsplit_once(':').expect("address:port") } else { (text, "0") };
        (ip.parse().expect("an address"), port.parse().expect("a port"))
    };
    for (from, to, there, back) in list {
        add(&mut sums, end(from), end(to), *there, *back);
    }
    sums
}

fn compared(case: &Case) -> Differences {
    let outer = metered(case, false);
    let inner = metered(case, true);
    let truth = &case.truth;
    let mut differences = Differences::new();
    let mut differ = |what: String, ours: String, theirs: String| {
        if ours != theirs {
            differences.insert(what, Difference { ours, theirs, rule: String::new() });
        }
    };
    let mut count = |what: &str, ours: u64, theirs: u64| differ(what.into(), ours.to_string(), theirs.to_string());

    let ledger = &outer.ledger;
    count("packets", ledger.packets.received, truth.exact.packets);
    count("packets by tshark", ledger.packets.received, truth.tshark.frames);
    count("octets on the wire", ledger.bytes.received, truth.exact.origlen);
    let captured = real::capture(&case.path).iter().map(|frame| frame.bytes.len() as u64).sum();
    count("octets captured", captured, truth.exact.caplen);
    count("frames without IP", ledger.packets.refused.get(RefusalReason::NonIp), truth.exact.non_ip);
    let packets = |wanted: &dyn Fn(&FlowRecord) -> bool| -> u64 {
        outer.flows.iter().filter(|flow| wanted(flow)).map(FlowRecord::packets).sum()
    };
    count("IPv4 packets", packets(&|flow| flow.network == Network::Ipv4), truth.exact.ip4);
    count("IPv6 packets", packets(&|flow| flow.network == Network::Ipv6), truth.exact.ip6);
    for number in 0..=255_u8 {
        let theirs = truth.exact.ip_protocols.get(&number.to_string()).copied().unwrap_or(0);
        count(&format!("packets of protocol {number}"), packets(&|flow| flow.protocol == number), theirs);
    }
    let pairs = |wanted: &dyn Fn(u8) -> bool| -> u64 {
        let wanted = outer.flows.iter().filter(|flow| wanted(flow.protocol));
        let pair = |flow: &FlowRecord| {
            let (one, other) = ends(flow, flow.has_ports());
            (flow.protocol, one.min(other), one.max(other))
        };
        wanted.map(pair).collect::<BTreeSet<_>>().len() as u64
    };
    let theirs_of = |name: &str| truth.exact.conversations.get(name).copied().unwrap_or(0);
    count("TCP conversations", pairs(&|protocol| protocol == 6), theirs_of("tcp"));
    count("UDP conversations", pairs(&|protocol| protocol == 17), theirs_of("udp"));
    count("other conversations", pairs(&|protocol| !matches!(protocol, 6 | 17)), theirs_of("other"));

    let all = || {
        outer.flows.iter().chain(
            inner
                .flows
                .iter()
                .filter(|f| f.forward.tunnel_type != TunnelType::None || f.reverse.tunnel_type != TunnelType::None),
        )
    };
    type Wanted<'a> = &'a dyn Fn(&&FlowRecord) -> bool;
    let kinds: [(&str, bool, Wanted<'_>); 5] = [
        ("tcp", true, &|flow| flow.protocol == 6),
        ("udp", true, &|flow| flow.protocol == 17),
        ("sctp", true, &|flow| flow.protocol == 132),
        ("ipv4", false, &|flow| flow.network == Network::Ipv4),
        ("ipv6", false, &|flow| flow.network == Network::Ipv6),
    ];
    for (kind, with_ports, wanted) in kinds {
        let ours = ours(all().filter(wanted), with_ports);
        let theirs = theirs(&truth.tshark_conversations(kind), with_ports);
        let pairs: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for pair in pairs {
            let show = |sums: &Sums| {
                let (there, back) = sums.get(pair).copied().unwrap_or_default();
                format!("{there} and {back}")
            };
            let end = |(ip, port): End| match (with_ports, ip) {
                (false, _) => ip.to_string(),
                (true, IpAddr::V4(ip)) => format!("{ip}:{port}"),
                (true, IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
            };
            differ(format!("{kind} {} and {}", end(pair.0), end(pair.1)), show(&ours), show(&theirs));
        }
    }
    differences
}

fn written(table: &Table) -> String {
    let mut text = String::from(
        "# Where Weir's figures differ from those of other tools, and why: each rule with its reason, then each\n\
         # difference with both numbers and its rule. The numbers are exact; the test\n\
         # crates/dev/testkit/tests/all/truth.rs fails on a difference that is missing here and on one that no longer exists.\n\n[rules]\n",
    );
    for (name, reason) in &table.rules {
        text += &format!("{name} = \"{reason}\"\n");
    }
    for (file, differences) in table.files.iter().filter(|(_, differences)| !differences.is_empty()) {
        text += &format!("\n[files.\"{file}\"]\n");
        for (what, Difference { ours, theirs, rule }) in differences {
            text += &format!("\"{what}\" = {{ ours = \"{ours}\", theirs = \"{theirs}\", rule = \"{rule}\" }}\n");
        }
    }
    text
}

#[test]
fn figures_equal_those_of_other_tools_or_the_difference_is_explained() {
    let path = truth::testdata().join("differences.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "[rules]\n".into());
    let mut table: Table = toml::from_str(&text).expect("differences.toml is TOML of its own shape");
    let cases = truth::cases();
    match truth::third_party() {
        Some(folder) => println!("third-party captures from {}", folder.display()),
        None => println!("no third-party captures: WEIR_CAPTURES is not set and there is no ../shared/captures"),
    }
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for case in &cases {
        let mut found = compared(case);
        let known = table.files.remove(&case.name).unwrap_or_default();
        println!("{}: {} packets, {} differences", case.name, case.truth.exact.packets, found.len());
        for (what, difference) in &mut found {
            let same = |old: &&Difference| (&old.ours, &old.theirs) == (&difference.ours, &difference.theirs);
            difference.rule = known.get(what).filter(same).map_or(UNEXPLAINED, |old| &old.rule).into();
            if !table.rules.contains_key(&difference.rule) {
                let Difference { ours, theirs, rule } = &*difference;
                wrong.push(format!("{}: {what}: {ours} against {theirs}, rule {rule}", case.name));
            }
        }
        for what in known.keys().filter(|what| !found.contains_key(*what)) {
            wrong.push(format!("{}: {what} no longer differs", case.name));
        }
        table.files.insert(case.name.clone(), found);
    }
    println!("{} captures", cases.len());
    let used: BTreeSet<&String> = table.files.values().flat_map(|d| d.values().map(|d| &d.rule)).collect();
    for rule in table.rules.keys().filter(|rule| !used.contains(rule)) {
        wrong.push(format!("unused rule {rule}"));
    }
    if bless {
        std::fs::write(&path, written(&table)).expect("differences.toml can be written");
    }
    assert!(wrong.is_empty(), "{} differences without a reason:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn records_of_every_capture_equal_the_reference() {
    for case in truth::cases() {
        // The reference searches all flows for every packet; the largest captures would take minutes.
        let frames: Vec<_> = real::capture(&case.path).into_iter().take(3000).collect();
        for decapsulate in [false, true] {
            compare::pipelines(&frames, weir_capture::MAX_BURST_FRAMES, settings(decapsulate))
                .unwrap_or_else(|difference| panic!("{}, decapsulate {decapsulate}: {difference}", case.name));
        }
    }
}
