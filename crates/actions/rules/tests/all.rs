//! The decisions of rules, and the problems of rules files.

use weir_flow::{Config, FlowRecord, Meter};
use weir_packet::{Flags, Packet, ipv4_mapped};
use weir_rules::{Action, Rules, Slice};

const IDS: u32 = 1;
const OTHER: u32 = 2;
const RECORDER: u32 = 4;
const EGRESSES: &str = r#"
[egress.ids]
outputs = ["pcap:ids", "pcap:ids2"]
[egress.other]
outputs = "pcap:other"
[recorder]
outputs = ["folder:packets"]
"#;

fn rules(text: &str) -> Rules {
    Rules::new(&format!("{EGRESSES}{text}")).unwrap_or_else(|error| panic!("{error}"))
}

fn problems(text: &str) -> String {
    Rules::new(text).expect_err("the file has problems").to_string()
}

/// A flow from 10.0.0.1 to 192.0.2.1, of this protocol and port.
fn flow(protocol: u8, port: u16) -> FlowRecord {
    let packet = Packet {
        source: ipv4_mapped([10, 0, 0, 1]),
        destination: ipv4_mapped([192, 0, 2, 1]),
        source_port: 50_000,
        destination_port: port,
        protocol,
        flags: Flags(Flags::PORTS),
        ..Packet::default()
    };
    let (mut meter, mut records) = (Meter::new(Config { flows: 1, ..Config::default() }).unwrap(), Vec::new());
    meter.process(&[packet], &mut records);
    meter.drain(&mut records);
    records.remove(0)
}

fn action(rules: &Rules, protocol: u8, port: u16) -> Action {
    rules.decide(&flow(protocol, port), true).expect("inspection has ended").action
}

#[test]
fn without_rules_everything_goes_everywhere() {
    let rules = rules("");
    let all =
        Action { forward: true, shunt: None, slice: Slice::Whole, slice_after: 0, egresses: IDS | OTHER | RECORDER };
    assert_eq!(rules.decide(&flow(6, 443), false).unwrap().action, all);
    assert_eq!(rules.without_flow().action, all);
    assert!(!rules.needs_inspection());
}

#[test]
fn a_later_level_sets_what_it_names_and_keeps_the_rest() {
    let rules = rules(
        r#"
[default]
action = "drop"
shunt = 100
[[source]]
action = "forward"
to = "ids"
[[network]]
where = "dst net 192.0.2.0/24"
shunt = 10
record = false
[[network]]
where = "port 443"
shunt = 3
[[application]]
where = "protocol = udp"
slice = "l4"
slice_after = 5
"#,
    );
    let expected = Action { forward: true, shunt: Some(10), slice: Slice::Whole, slice_after: 0, egresses: IDS };
    assert_eq!(action(&rules, 6, 443), expected);
    assert_eq!(action(&rules, 17, 443), Action { slice: Slice::Transport, slice_after: 5, ..expected });
    let decision = rules.decide(&flow(17, 443), false).unwrap();
    let names: Vec<&str> = decision.rules.iter().flatten().map(|&rule| &*rules.rules[usize::from(rule)].name).collect();
    assert_eq!(names, ["others", "dst net 192.0.2.0/24", "protocol = udp"]);
    // Frames of no flow get the default.
    assert!(!rules.without_flow().action.forward);
}

#[test]
fn a_rule_that_drops_is_final_and_a_default_is_not() {
    let rules = rules(
        r#"
[[network]]
name = "banned"
where = "dst host 192.0.2.1 and port 25"
action = "drop"
[[application]]
action = "forward"
"#,
    );
    assert!(!action(&rules, 6, 25).forward);
    assert!(action(&rules, 6, 80).forward);
}

#[test]
fn memory_of_waiting_packets_is_bounded_and_the_recorder_is_no_egress() {
    for octets in ["17179869185", "9000000000000000000", "18446744073709551615"] {
        let found = problems(&format!("[hold]\noctets = {octets}\n"));
        assert_eq!(found.trim_end(), "line 2: 'octets' must be at most 17179869184 (16 GiB)");
    }
    let found = problems("[egress.a]\noutputs = ['pcap:a']\n[egress.recorder]\noutputs = ['pcap:b']\n");
    assert_eq!(
        found.trim_end(),
        "line 3: an egress cannot have this name; the recorder is a table of its own: [recorder]"
    );
}

#[test]
fn a_decision_waits_for_inspection_only_if_a_rule_needs_it() {
    let rules = rules(
        "[[network]]\nwhere = 'port 22'\naction = 'drop'\n[[application]]\nwhere = 'application = tls'\nshunt = 5",
    );
    assert!(rules.needs_inspection());
    assert_eq!(rules.decide(&flow(6, 443), false), None);
    assert_eq!(action(&rules, 6, 443).shunt, None);
    assert!(!rules.decide(&flow(6, 22), false).unwrap().action.forward, "no application brings it back");
}

#[test]
fn every_problem_has_its_line_and_a_near_match() {
    let text = r#"
[egress.ids]
outputs = ["pcap:ids"]
balnce = "mirror"
[defaults]
[[network]]
where = "sni = x"
[[network]]
where = "port 80 and"
[[application]]
where = "packets > 10"
to = "idz"
[[application]]
action = "drop"
shunt = 3
[[application]]
action = "pass"
shunt = 0
slice = "l5"
record = true
slice_after = 0
[[application]]
where = "port 5"
slice_after = 3
[[application]]
where = "port 6"
action = "drop"
record = true
"#;
    let found = problems(text);
    for (line, part) in [
        (4, "there is no 'balnce' in [egress.ids] (did you mean balance?); there are: outputs, balance"),
        (5, "there is no 'defaults' in a rules file (did you mean default?)"),
        (7, "where: 'sni' is known after some packets only; use it in [[application]]"),
        (9, "where: "),
        (11, "where: 'packets' changes while a flow lasts, and each flow is decided once"),
        (12, "there is no egress 'idz' (did you mean ids?)"),
        (13, "action = \"drop\" contradicts 'shunt'"),
        (16, "no packet reaches this rule: line 13 matches whatever it matches"),
        (17, "'action' must be \"forward\" or \"drop\""),
        (18, "for none write action = \"drop\""),
        (19, "'slice' must be \"l3\", \"l4\" or a number of octets, at least 14"),
        (20, "record = true needs a recorder"),
        (21, "'slice_after' must be 1 to 4294967295 packets, beside 'slice'"),
        (24, "'slice_after' must be 1 to 4294967295 packets, beside 'slice'"),
        (25, "action = \"drop\" contradicts 'record': to record packets and hand them on to no egress, write to = []"),
    ] {
        let start = format!("line {line}: ");
        assert!(found.lines().any(|found| found.starts_with(&start) && found.contains(part)), "{line} {part}\n{found}");
    }
}

#[test]
fn rules_that_no_packet_reaches_are_found_and_no_others() {
    let rule = |(level, condition, keys): (&str, &str, &str)| {
        let condition = if condition.is_empty() { String::new() } else { format!("where = '{condition}'\n") };
        format!("[[{level}]]\n{condition}{keys}\n")
    };
    let found = |rules: &[(&'static str, &'static str, &'static str)]| {
        let text: String = rules.iter().copied().map(rule).collect();
        Rules::new(&text).err().map_or_else(String::new, |error| error.to_string())
    };
    let drop = "action = 'drop'";
    for (rules, expected) in [
        (
            &[("network", "port 1", ""), ("network", "port 1", "")][..],
            "line 4: no packet reaches this rule: line 1 matches",
        ),
        (&[("network", "", ""), ("network", "vlan 1", "")], "line 3: no packet reaches this rule: line 1 matches"),
        (
            &[("source", "", drop), ("network", "port 1", "")],
            "line 3: no packet reaches this rule: line 1 drops whatever",
        ),
        (
            &[("source", "", drop), ("application", "", "")],
            "line 3: no packet reaches this rule: line 1 drops whatever",
        ),
        (
            &[("network", "net 10.0.0.0/8", drop), ("application", "net 10.0.0.0/8", "")],
            "line 4: no packet reaches this rule: line 1 drops whatever",
        ),
    ] {
        let problems = found(rules);
        assert!(problems.starts_with(expected) && problems.lines().count() == 1, "{expected}: {problems}");
    }
    for rules in [
        &[("network", "port 1 and port 2", ""), ("network", "port 1", "")][..],
        // The other level is asked in any case, and a drop behind a rule that does not drop is not final for all.
        &[("source", "port 1", ""), ("network", "port 1", "")],
        &[("source", "vlan 5", ""), ("source", "", drop), ("network", "port 1", "")],
        &[("network", "ip_version = 4", ""), ("network", "ip_version = 6", ""), ("network", "", "")],
    ] {
        assert_eq!(found(rules), "");
    }
    // An invalid condition is no rule for every flow.
    assert_eq!(found(&[("network", "prot 1", ""), ("network", "port 1", "")]).matches("no packet").count(), 0);
}

#[test]
fn an_egress_that_no_rule_uses_is_found() {
    let unused = |text: &str| rules(text).unused_egresses().map(|egress| egress.name.clone()).collect::<Vec<_>>();
    assert_eq!(unused(""), [""; 0]);
    assert_eq!(unused("[default]\nto = 'ids'\nrecord = false"), ["other", "recorder"]);
    let used = "[default]\nto = 'ids'\nrecord = false\n[[network]]\nwhere = 'port 1'\nto = 'other'\nrecord = true";
    assert_eq!(unused(used), [""; 0]);
}

#[test]
fn too_many_rules_are_refused_at_once_at_the_first_of_them() {
    let started = std::time::Instant::now();
    let rule = |number: u32| {
        format!("[[network]]\nname = 'n{number}'\nwhere = 'host 10.{}.{}.1 and port 1'\n", number >> 8, number & 255)
    };
    let problems = problems(&(0..20_000).map(rule).collect::<String>());
    assert_eq!(problems, "line 12289: there are 20000 rules, at most 4096 are allowed");
    rules(&(0..4096).map(rule).collect::<String>());
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn a_file_that_is_no_toml_has_the_line() {
    assert!(problems("[egress.a\noutputs = 1").starts_with("line 1: "));
    assert!(problems("x = 1\ny =").contains("line 2: "));
    assert!(problems("[[network]]\nwhere = 3").contains("line 2: 'where' must be text in quotation marks"));
    assert!(problems("[egress.x]\n").contains("line 1: 'outputs' must be a list of outputs"));
}
