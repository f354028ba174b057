//! Files that are built here, whole, wrong and hostile.

use crate::{Found, IpfixReader, Problem, What};
use std::fs;
use std::path::PathBuf;
use testbed::ipfix::{CERT, FLOW, Field, Message, REVERSE, VARIABLE, flow};
use weir_fields::column;
use weir_flow::FlowRecord;

struct Outcome {
    flows: Vec<FlowRecord>,
    problems: Vec<String>,
    known: Vec<&'static str>,
}

impl Outcome {
    fn packets(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.forward.packets).collect()
    }

    fn values(&self, name: &str) -> Vec<String> {
        assert!(self.known.contains(&name), "{name} is not known: {:?}", self.known);
        let text = |flow| {
            let mut text = Vec::new();
            column(name).unwrap().read(flow).append_text(&mut text);
            String::from_utf8(text).unwrap()
        };
        self.flows.iter().map(text).collect()
    }
}

fn text_of(problem: &Problem) -> String {
    match &problem.what {
        What::Ended(error) => error.to_string(),
        What::LeftOut(records) => records.clone(),
    }
}

/// Opens a file, changes it, and reads its records.
fn read_changed(octets: &[u8], change: impl FnOnce(&PathBuf)) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.ipfix");
    fs::write(&path, octets).unwrap();
    let Found { mut reader, .. } = IpfixReader::open(std::slice::from_ref(&path), None).unwrap();
    let known = reader.known().iter().map(|column| column.name).collect();
    change(&path);
    let (mut flows, mut problems) = (Vec::new(), Vec::new());
    loop {
        match reader.read(&mut flows, 3) {
            Ok(true) => {}
            Ok(false) => break,
            Err(problem) => problems.push(text_of(&problem)),
        }
    }
    Outcome { flows, problems, known }
}

fn read(octets: &[u8]) -> Outcome {
    read_changed(octets, |_| {})
}

fn file(messages: &[Message]) -> Vec<u8> {
    messages.iter().flat_map(Message::octets).collect()
}

/// A template and one message for each of its records.
fn small() -> Vec<u8> {
    let records = [1, 2, 3].map(|packets| Message::of(7).set(300, &flow(packets)));
    [Message::of(7).template(300, &FLOW).octets(), file(&records)].concat()
}

#[test]
fn a_file_that_is_cut_anywhere_has_the_records_before() {
    let whole = small();
    let message = Message::of(7).set(300, &flow(1)).octets().len();
    let template = whole.len() - 3 * message;
    for length in 0..=whole.len() {
        let outcome = read(&whole[..length]);
        let count = length.saturating_sub(template) / message;
        assert_eq!(outcome.packets(), &[1, 2, 3][..count], "{length}");
        // An empty file is one of a run without flows.
        let is_between = length == 0 || length >= template && (length - template).is_multiple_of(message);
        assert_eq!(outcome.problems.len(), usize::from(!is_between), "{length}: {:?}", outcome.problems);
    }
}

#[test]
fn every_changed_octet_gives_records_or_problems() {
    let whole = small();
    for at in 0..whole.len() {
        for value in [0, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            assert!(read(&changed).flows.len() <= 60, "{at} {value}");
        }
    }
}

#[test]
fn templates_are_of_their_domain_and_can_be_replaced_and_withdrawn() {
    let mut shuffled = FLOW;
    shuffled.reverse();
    let reversed = |packets: u32| {
        let record = flow(packets);
        let (mut rest, mut fields) = (&record[..], Vec::new());
        for (.., length) in FLOW {
            let (value, after) = rest.split_at(length.into());
            (rest, fields) = (after, [vec![value.to_vec()], fields].concat());
        }
        fields.concat()
    };
    let octets = file(&[
        Message::of(1).template(300, &FLOW),
        Message::of(2).template(300, &shuffled),
        Message::of(1).set(300, &flow(1)),
        Message::of(2).set(300, &reversed(2)),
        Message::of(1).template(300, &shuffled).set(300, &reversed(3)),
        Message::of(2).withdrawal(300).set(300, &reversed(4)),
        Message::of(1).set(300, &reversed(5)).set(2, &[0, 2, 0, 0]).set(300, &reversed(6)),
    ]);
    let outcome = read(&octets);
    assert_eq!(outcome.packets(), [1, 2, 3, 5]);
    assert_eq!(outcome.problems, ["2 sets without a template, the first with ID 300 of domain 2"]);
}

#[test]
fn records_that_are_no_flows_are_counted_and_named() {
    let unknown: [Field; 2] = [(9999, 1, VARIABLE), (9999, 2, 2)];
    let values = [&[3, 1, 2, 3, 9, 9][..], &[255, 0, 1, 7, 9, 9]].concat();
    let outcome = read(&file(&[Message::of(1).template(256, &unknown).set(256, &values)]));
    let expected = "2 records without sourceIPv4Address or sourceIPv6Address (the first with template 256 of domain 1)";
    assert_eq!((outcome.packets(), outcome.problems), (vec![], vec![expected.into()]));
    let without = |number: u16| FLOW.into_iter().filter(|field| field.1 != number).collect::<Vec<_>>();
    for (number, name) in [(4, "protocolIdentifier"), (2, "packetDelta"), (1, "octetDelta"), (153, "flowEnd")] {
        let fields = without(number);
        let octets: usize = fields.iter().map(|field| usize::from(field.2)).sum();
        let outcome = read(&file(&[Message::of(1).template(256, &fields).set(256, &vec![0; octets])]));
        assert!(outcome.problems.len() == 1 && outcome.problems[0].contains(name), "{name}: {:?}", outcome.problems);
    }
    // No packets, and an end before the start.
    let mut backwards = flow(1);
    backwards[21..29].copy_from_slice(&5000_u64.to_be_bytes());
    let octets = file(&[Message::of(1).template(256, &FLOW).set(256, &[flow(0), flow(2), backwards].concat())]);
    let outcome = read(&octets);
    assert_eq!(outcome.packets(), [2]);
    assert!(outcome.problems[0].starts_with("2 records whose times or counts"), "{:?}", outcome.problems);
}

#[test]
fn counts_that_no_flow_has_are_refused() {
    let fields = [&FLOW[..5], &[(0, 2, 8), (REVERSE, 2, 8), (0, 1, 8), (REVERSE, 1, 8)], &FLOW[7..]].concat();
    let record = |count: u64| [&flow(1)[..13], &count.to_be_bytes().repeat(4), &flow(1)[21..]].concat();
    let records = [record(u64::MAX), record(9)].concat();
    let outcome = read(&file(&[Message::of(1).template(256, &fields).set(256, &records)]));
    assert_eq!(outcome.packets(), [9]);
    let expected = "1 records with an invalid value of fwd_packets (the first with template 256 of domain 1)";
    assert_eq!(outcome.problems, [expected]);
}

#[test]
fn malformed_messages_are_left_out_from_there_on() {
    let template = Message::of(1).template(300, &FLOW);
    let mut long_set = Message::of(1).set(300, &flow(1)).set(300, &flow(2)).octets();
    let second = 16 + 4 + flow(1).len();
    long_set[second + 2] = 0xff;
    let mut short_set = long_set.clone();
    short_set[second + 2..second + 4].copy_from_slice(&[0, 3]);
    let after = Message::of(1).set(300, &flow(3)).octets();
    for wrong in [long_set, short_set] {
        let outcome = read(&[&template.octets()[..], &wrong, &after].concat());
        assert_eq!(outcome.packets(), [1, 3]);
        assert!(outcome.problems[0].starts_with("1 malformed messages, the first at octet"), "{:?}", outcome.problems);
    }
    let templates: [(&str, Message); 4] = [
        ("more fields than octets", Message::of(1).set(2, &[1, 0, 0xff, 0xff, 0, 1, 0, 4])),
        ("no octets", Message::of(1).template(256, &[(0, 1, 0), (0, 2, 0)])),
        ("reserved ID", Message::of(1).template(7, &FLOW)),
        ("reserved set", Message::of(1).set(9, &[0; 8])),
    ];
    for (name, message) in templates {
        let outcome = read(&[message.octets(), template.octets(), after.clone()].concat());
        assert_eq!((outcome.packets(), outcome.problems.len()), (vec![3], 1), "{name}: {:?}", outcome.problems);
    }
    // A variable length that is longer than the set.
    let variable: Vec<Field> = FLOW.into_iter().chain([(9999, 1, VARIABLE)]).collect();
    let record = [flow(1), vec![255, 0xff, 0xff, 1]].concat();
    let outcome = read(&file(&[Message::of(1).template(256, &variable).set(256, &record)]));
    assert_eq!((outcome.packets(), outcome.problems.len()), (vec![], 1));
    // Padding.
    let padded = [flow(1), vec![0; 3]].concat();
    let outcome = read(&file(&[Message::of(1).template(300, &FLOW).set(300, &padded)]));
    assert_eq!((outcome.packets(), outcome.problems.len()), (vec![1], 0));
}

#[test]
fn templates_have_a_limit() {
    let messages: Vec<Message> =
        (0..5000_u32).map(|number| Message::of(number).template(256, &[(number + 1, 1, 4), (9999, 2, 4)])).collect();
    let outcome = read(&file(&messages));
    assert_eq!(outcome.problems, ["the file has more than 4096 different templates"]);
}

#[test]
fn a_file_that_changes_while_it_is_read_keeps_its_records_or_says_so() {
    let whole = small();
    let added = Message::of(7).set(300, &flow(9)).octets();
    let longer = read_changed(&whole, |path| fs::write(path, [&whole[..], &added].concat()).unwrap());
    assert_eq!((longer.packets(), longer.problems.len()), (vec![1, 2, 3], 0));
    let shorter = read_changed(&whole, |path| fs::write(path, &whole[..whole.len() - added.len()]).unwrap());
    assert_eq!((shorter.packets(), &*shorter.problems[0]), (vec![1, 2], "the file has changed while it was read"));
    let other = Message::of(7).template(300, &FLOW[1..]).octets();
    let replaced = read_changed(&whole, |path| fs::write(path, [other, whole.clone()].concat()).unwrap());
    assert_eq!((replaced.packets(), &*replaced.problems[0]), (vec![], "the file has changed while it was read"));
    let removed = read_changed(&whole, |path| fs::remove_file(path).unwrap());
    assert_eq!((removed.packets(), removed.problems.len()), (vec![], 1));
}

/// Template of a flow as YAF writes it, and its octets: both directions, milliseconds, reduced lengths, elements of
/// CERT, and structured data.
fn of_yaf() -> (Vec<Field>, Vec<u8>) {
    let fields: Vec<(Field, Vec<u8>)> = vec![
        ((0, 152, 8), 10_000_u64.to_be_bytes().into()),
        ((0, 153, 8), 12_500_u64.to_be_bytes().into()),
        ((0, 85, 8), 600_u64.to_be_bytes().into()),
        ((REVERSE, 85, 8), 900_u64.to_be_bytes().into()),
        ((0, 86, 8), 6_u64.to_be_bytes().into()),
        ((REVERSE, 86, 4), 5_u32.to_be_bytes().into()),
        ((0, 27, 16), [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].into()),
        ((0, 28, 16), [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2].into()),
        ((0, 7, 2), vec![0xc0, 0]),
        ((0, 11, 2), vec![0, 80]),
        ((0, 4, 1), vec![6]),
        ((0, 136, 1), vec![3]),
        ((0, 58, 2), vec![0, 0]),
        ((REVERSE, 58, 2), vec![0, 9]),
        ((0, 10, 4), 2_u32.to_be_bytes().into()),
        ((CERT, 14, 1), vec![0x02]),
        ((CERT, 15, 1), vec![0x19]),
        ((CERT, 14 | 0x4000, 1), vec![0x12]),
        ((CERT, 15 | 0x4000, 1), vec![0x11]),
        ((CERT, 21, 4), 30_u32.to_be_bytes().into()),
        ((CERT, 36, VARIABLE), vec![4, b'a', b'b', b'c', b'd']),
        // subTemplateMultiList: semantics, then a template with its length and content.
        ((0, 293, VARIABLE), vec![255, 0, 9, 255, 0xc0, 3, 0, 8, 1, 2, 3, 4]),
    ];
    (fields.iter().map(|(field, _)| *field).collect(), fields.into_iter().flat_map(|(_, value)| value).collect())
}

#[test]
fn a_flow_of_yaf_has_both_directions() {
    let (fields, record) = of_yaf();
    let options: [Field; 3] = [(0, 149, 4), (0, 160, 8), (0, 41, 8)];
    let octets = file(&[Message::of(0)
        .options_template(400, 1, &options)
        .set(400, &[0; 20])
        .template(45_841, &fields)
        .set(45_841, &[&record[..], &record].concat())]);
    let outcome = read(&octets);
    assert_eq!((outcome.flows.len(), &outcome.problems), (2, &vec![]));
    let expected = [
        ("start_time", "1970-01-01T00:00:10.000000000Z"),
        ("end_time", "1970-01-01T00:00:12.500000000Z"),
        ("duration_ns", "2500000000"),
        ("src_ip", "2001:db8::1"),
        ("dst_ip", "2001:db8::2"),
        ("src_port", "49152"),
        ("service_port", "80"),
        ("protocol", "tcp"),
        ("packets", "11"),
        ("fwd_packets", "6"),
        ("rev_packets", "5"),
        ("fwd_bytes", "600"),
        ("rev_bytes", "900"),
        ("fwd_tcp_flags", "SAPF"),
        ("rev_tcp_flags", "SAF"),
        ("end_reason", "end"),
        ("interface", "2"),
        ("fwd_vlan_id", ""),
        ("rev_vlan_id", "9"),
    ];
    for (name, value) in expected {
        assert_eq!(outcome.values(name), [value; 2], "{name}");
    }
    for name in ["l2_bytes", "fwd_ttl_min", "sampling_max", "queue_lost", "application", "fwd_tcp_mss", "approximate"] {
        assert!(!outcome.known.contains(&name), "{name}");
    }
    // The answer began 30 ms after the flow.
    assert_eq!(outcome.flows[0].reverse.first_ns - outcome.flows[0].forward.first_ns, 30_000_000);
}

#[test]
fn times_of_all_kinds_are_those_of_the_flow() {
    let ntp = |seconds: u64| ((seconds + 2_208_988_800) << 32).to_be_bytes().to_vec();
    let cases: [(&str, [Field; 2], Vec<u8>); 6] = [
        ("seconds", [(0, 150, 4), (0, 151, 4)], [900_u32, 902].map(u32::to_be_bytes).concat()),
        ("microseconds", [(0, 154, 8), (0, 155, 8)], [ntp(900), ntp(902)].concat()),
        ("nanoseconds", [(0, 156, 8), (0, 157, 8)], [ntp(900), ntp(902)].concat()),
        ("before export", [(0, 158, 4), (0, 159, 4)], [100_000_000_u32, 98_000_000].map(u32::to_be_bytes).concat()),
        ("start and duration", [(0, 150, 4), (0, 161, 4)], [900_u32, 2000].map(u32::to_be_bytes).concat()),
        ("duration and end", [(0, 162, 4), (0, 151, 4)], [2_000_000_u32, 902].map(u32::to_be_bytes).concat()),
    ];
    for (name, fields, values) in cases {
        let template = [&FLOW[..7], &fields].concat();
        let record = [&flow(1)[..21], &values].concat();
        let outcome = read(&file(&[Message::of(1).template(256, &template).set(256, &record)]));
        let flow = outcome.flows.first().unwrap_or_else(|| panic!("{name}: {:?}", outcome.problems));
        assert_eq!((flow.start_ns(), flow.end_ns()), (900_000_000_000, 902_000_000_000), "{name}");
    }
    // The uptime needs the start of the exporter: in the record, or in an options record of the domain.
    let template = [&FLOW[..7], &[(0, 22, 4), (0, 21, 4)]].concat();
    let record = [&flow(1)[..21], &[500_u32, 2500].map(u32::to_be_bytes).concat()].concat();
    let data = || Message::of(1).template(256, &template).set(256, &record);
    let outcome = read(&file(&[data()]));
    assert!(outcome.problems[0].contains("1 records without systemInitTimeMilliseconds"), "{:?}", outcome.problems);
    let init = Message::of(1).options_template(400, 1, &[(0, 149, 4), (0, 160, 8)]);
    let init = init.set(400, &[&1_u32.to_be_bytes()[..], &899_500_u64.to_be_bytes()].concat());
    assert_eq!(read(&file(&[init, data()])).flows[0].start_ns(), 900_000_000_000);
}

#[test]
fn control_bits_have_no_data_offset_and_none_that_one_octet_lacks() {
    let numbers = |octets: &[u8]| {
        let fields: Vec<Field> = FLOW.into_iter().chain([(0, 6, octets.len() as u16)]).collect();
        let mut record = [&flow(1)[..], octets].concat();
        record[12] = 6;
        let outcome = read(&file(&[Message::of(1).template(256, &fields).set(256, &record)]));
        (outcome.values("fwd_tcp_flags_number"), outcome.values("fwd_tcp_flags"))
    };
    assert_eq!(numbers(&[0x00, 0x12]), (vec!["18".to_owned()], vec!["SA".to_owned()]));
    assert_eq!(numbers(&[0xf0, 0x12]), numbers(&[0x00, 0x12]));
    assert_eq!(numbers(&[0x5f, 0x12]), numbers(&[0x0f, 0x12]));
    assert_eq!(numbers(&[0x12]), numbers(&[0x00, 0x12]));
    assert_ne!(numbers(&[0x0f, 0x12]), numbers(&[0x00, 0x12]));
}

#[test]
fn a_field_is_known_if_all_records_have_it_or_it_does_not_apply() {
    let icmp: Vec<Field> = FLOW.into_iter().filter(|field| !matches!(field.1, 7 | 11)).chain([(0, 32, 2)]).collect();
    let record = |packets: u32, protocol: u8| {
        let mut record = flow(packets);
        record[12] = protocol;
        record
    };
    let of_icmp = [&record(1, 1)[..8], &record(1, 1)[12..], &[3, 1]].concat();
    let all = Message::of(1).template(256, &FLOW).template(257, &icmp);
    let outcome = read(&file(&[all.set(256, &record(2, 17)).set(257, &of_icmp)]));
    assert_eq!(outcome.values("src_port"), ["12345", "0"]);
    assert_eq!(outcome.values("fwd_icmp_type"), ["", "3"]);
    assert_eq!(outcome.values("fwd_icmp_code"), ["", "1"]);
    // No record is of TCP.
    assert_eq!(outcome.values("fwd_tcp_flags"), ["", ""]);
    // Directions of flows do not say which port is that of the service.
    assert!(!outcome.known.contains(&"service_port") && !outcome.known.contains(&"end_reason"));
    // One record of TCP, whose template has no flags.
    let outcome = read(&file(&[Message::of(1).template(256, &FLOW).set(256, &[record(2, 17), record(3, 6)].concat())]));
    assert!(!outcome.known.contains(&"fwd_tcp_flags") && outcome.known.contains(&"src_port"));
    // A value that no field has makes the field unknown, and keeps the record.
    let with_reason: Vec<Field> = FLOW.into_iter().chain([(0, 136, 1)]).collect();
    let reasons = |codes: [u8; 2]| {
        let records = codes.map(|code| [flow(1), vec![code]].concat()).concat();
        read(&file(&[Message::of(1).template(256, &with_reason).set(256, &records)]))
    };
    assert_eq!(reasons([1, 5]).values("end_reason"), ["idle", "resources"]);
    let invalid = reasons([1, 31]);
    assert!(!invalid.known.contains(&"end_reason") && invalid.flows.len() == 2 && invalid.problems.is_empty());
}
