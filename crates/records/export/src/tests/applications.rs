//! Applications, facts and places in IPFIX and NetFlow v9: any findings are read again as they are
//! in CSV.

use crate::tests::flows::{answered, flow, plain, within_uptime};
use crate::tests::{export_file, send, sum};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use testbed::decode::{Decoder, Record, Value};
use weir_dpi::{Application, Confidence, Fact, Findings, Note};
use weir_export::ExportOptions;
use weir_fields::{Column, FieldValue, Origin, select_columns};
use weir_flow::{FlowRecord, Places};

/// Facts that are numbers, with the octets of their elements.
const NUMBERS: [(Fact, u32); 11] = [
    (Fact::TlsVersion, 2),
    (Fact::TlsCipher, 2),
    (Fact::TlsEch, 1),
    (Fact::TlsAlert, 2),
    (Fact::CertificateNotBefore, 4),
    (Fact::CertificateNotAfter, 4),
    (Fact::QuicVersion, 4),
    (Fact::DnsType, 2),
    (Fact::DnsRcode, 2),
    (Fact::DnsResponseNs, 8),
    (Fact::HttpStatus, 2),
];
/// Facts without a field of their own.
const OTHERS: [Fact; 5] =
    [Fact::TlsClientHello, Fact::TlsServerHello, Fact::DnsQuestion, Fact::DnsSecondQuestion, Fact::DnsSecondAnswer];

/// Any findings: an application or none, and facts of any application.
fn findings() -> impl Strategy<Value = Findings> {
    let application = prop::option::of(prop::sample::select(Application::ALL));
    let notes = prop::collection::vec(prop::sample::select(&[Note::Gap, Note::Conflict, Note::Limit][..]), 0..2);
    let text = prop_oneof![
        2 => "[a-z.]{0,20}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..300),
        1 => "\\PC{0,100}".prop_map(String::into_bytes),
    ];
    let facts = prop::collection::vec((prop::sample::select(Fact::ALL), text, any::<u64>()), 0..12);
    let by = prop::sample::select(&Confidence::ALL[..]);
    (application, by, notes, facts).prop_map(|(application, by, notes, facts)| {
        let mut findings = Findings::new(true);
        if let Some(application) = application {
            findings.recognise(application, by);
        }
        notes.into_iter().for_each(|note| findings.note(note));
        for (fact, text, number) in facts.into_iter().filter(|(fact, ..)| !OTHERS.contains(fact)) {
            match NUMBERS.iter().find(|(of, _)| *of == fact) {
                Some((_, octets)) => findings.set_number(fact, number >> (64 - 8 * octets)),
                None => findings.set_text(fact, &text),
            }
        }
        findings
    })
}

/// Boxed, because the stack of a test does not hold both strategies.
fn flow_with_findings() -> BoxedStrategy<FlowRecord> {
    let both = (flow().boxed(), prop::option::weighted(0.8, findings().boxed()));
    let with_findings = both.prop_map(|(mut flow, findings)| {
        flow.findings = findings.map(Arc::new);
        within_uptime(&mut flow);
        flow
    });
    with_findings.boxed()
}

/// The columns of applications and places, and the elements of IPFIX that docs/fields.md gives
/// them.
fn columns() -> Vec<(&'static Column, Vec<String>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/fields.md");
    let page = std::fs::read_to_string(page).unwrap();
    let elements = |column: &Column| {
        let row = page.lines().find(|line| line.starts_with("| `") && line.contains(&format!("`{}`", column.name)));
        let cell = row.unwrap().split(" | ").nth(5).unwrap();
        cell.split(", ").map(|element| element.split(' ').next().unwrap().to_owned()).collect()
    };
    let wanted =
        |column: &&Column| column.is_of(Origin::Inspection) || select_columns("places").unwrap().contains(column);
    let all = select_columns("all").unwrap();
    all.into_iter().filter(wanted).map(|column| (column, elements(column))).collect()
}

/// Compares an element with the value of its column.
fn assert_element(record: &Record, element: &str, value: &FieldValue<'_>, flow: &FlowRecord) {
    let expected = match *value {
        FieldValue::NotApplicable => {
            // No element, or one without a value.
            let found = record.get(element);
            let none = [None, Some(&Value::Unsigned(0)), Some(&Value::Text(String::new()))];
            assert!(none.contains(&found), "{element} {found:?}: {flow:?}");
            return;
        }
        FieldValue::Unsigned(number) => Value::Unsigned(number),
        FieldValue::Time(ns) => Value::Unsigned(ns / 1_000_000),
        FieldValue::Text(ref text) => Value::Text(text.to_string()),
        FieldValue::Code(number, _) if element == "applicationId" => Value::Octets(vec![6, 0, 0, number]),
        FieldValue::Code(_, name) if element == "applicationName" => Value::Text(name.into()),
        FieldValue::Code(number, _) => Value::Unsigned(number.into()),
        FieldValue::Notes(notes) => Value::Unsigned(notes.0.into()),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(record.get(element), Some(&expected), "{element}: {flow:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_finding_is_read_as_in_csv(flows in prop::collection::vec(flow_with_findings(), 1..40), udp: bool) {
        // With a key, so that each flow has one record.
        let fields = "fields=src_ip,src_mac,applications,places";
        let (counters, records) = if udp {
            let settings = format!("?rate=0&mtu=9000&template=full&{fields}");
            let (counters, datagrams) = send("ipfix+udp", &settings, &ExportOptions::default(), &flows);
            let mut decoder = Decoder::new();
            (counters, datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect::<Vec<_>>())
        } else {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("flows");
            let sink = format!("ipfix:{}?{fields}", path.display());
            let mut sink = super::open(&sink, &ExportOptions::default()).unwrap();
            sink.write(&flows).unwrap();
            sink.finish().unwrap();
            (sink.counters().clone(), Decoder::new().file(&std::fs::read(path).unwrap()))
        };
        prop_assert!(counters.altered.is_empty(), "{:?}", counters.altered);
        prop_assert_eq!(records.len(), flows.len());
        prop_assert_eq!(counters.exported, sum(&flows));
        for (flow, record) in flows.iter().zip(&records) {
            // A flow of the responder alone has its ends exchanged.
            if flow.forward.packets == 0 {
                continue;
            }
            for (column, elements) in columns() {
                for element in elements {
                    assert_element(record, element.split('†').next().unwrap(), &column.read(flow), flow);
                }
            }
        }
    }

    /// Small messages: texts are cut, no message is too long, and no flow is lost.
    #[test]
    fn records_that_do_not_fit_have_cut_texts(flows in prop::collection::vec(flow_with_findings(), 1..40)) {
        let settings = "?rate=0&mtu=1232&fields=applications,places";
        let (counters, datagrams) = send("ipfix+udp", settings, &ExportOptions::default(), &flows);
        prop_assert!(datagrams.iter().all(|datagram| datagram.len() <= 1232));
        let mut decoder = Decoder::new();
        let records: Vec<Record> = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
        prop_assert_eq!((records.len() as u64, counters.exported), (counters.wire_records, sum(&flows)));
        prop_assert!(counters.altered.keys().all(|key| *key == "cut_text"), "{:?}", counters.altered);
        let cut = records.iter().filter(|record| match record.get("applicationNotes") {
            Some(Value::Unsigned(notes)) => notes & Note::Cut as u64 != 0,
            _ => false,
        });
        prop_assert!(cut.count() as u64 >= counters.altered.get("cut_text").copied().unwrap_or(0));
    }
}

fn with_texts(mut flow: FlowRecord, facts: &[(Fact, &[u8])]) -> FlowRecord {
    let mut findings = Findings::new(true);
    findings.recognise(Application::Tls, Confidence::Message);
    facts.iter().for_each(|(fact, text)| findings.set_text(*fact, text));
    flow.findings = Some(Arc::new(findings));
    flow
}

fn decode(datagrams: &[Vec<u8>]) -> (Decoder, Vec<Record>) {
    let mut decoder = Decoder::new();
    let records = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
    (decoder, records)
}

#[test]
fn texts_are_cut_to_the_first_length_that_fits() {
    let long = [b'x'; 250];
    let facts = [Fact::ServerName, Fact::CertificateNames, Fact::CertificateSubject].map(|fact| (fact, &long[..]));
    let flow = with_texts(answered(1, 1), &facts);
    let fields = "src_ip,dst_ip,packets,applicationId,application_notes,sni,cert_names,cert_subject";
    for (settings, records, octets, altered) in [
        (format!("?mtu=1232&fields={fields}"), 2, 128, 1),
        (format!("?mtu=9000&fields={fields}"), 2, 250, 0),
        // One record for both directions.
        (format!("?mtu=1232&template=full&fields={fields}"), 1, 250, 0),
    ] {
        let (counters, datagrams) =
            send("ipfix+udp", &settings, &ExportOptions::default(), std::slice::from_ref(&flow));
        let (_, found) = decode(&datagrams);
        assert_eq!((found.len(), counters.altered.get("cut_text").copied().unwrap_or(0)), (records, altered));
        for name in ["TLS_SERVER_NAME", "tlsCertificateNames", "tlsCertificateSubject"] {
            let expected = Value::Text("x".repeat(octets));
            assert!(found.iter().all(|record| record[name] == expected), "{settings} {found:?}");
        }
        let notes = found[0].get("applicationNotes");
        assert_eq!(notes, (altered > 0).then_some(&Value::Unsigned(Note::Cut as u64)));
    }
}

#[test]
fn a_text_of_many_octets_has_a_longer_length() {
    let mut flow = plain(1, 1);
    let places = |octets: usize| Places { tags: Some("t".repeat(octets).into()), ..Places::default() };
    for octets in [0, 1, 254, 255, 256, 60_000] {
        flow.places = Some(Arc::new(places(octets)));
        let (counters, octets_of_file) = {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("flows");
            let sink = format!("ipfix:{}?fields=src_ip,dst_ip,tags", path.display());
            let mut sink = super::open(&sink, &ExportOptions::default()).unwrap();
            sink.write(std::slice::from_ref(&flow)).unwrap();
            sink.finish().unwrap();
            (sink.counters().clone(), std::fs::read(path).unwrap())
        };
        let records = Decoder::new().file(&octets_of_file);
        assert_eq!(records[0]["flowTags"], Value::Text("t".repeat(octets)));
        assert!(counters.altered.is_empty());
    }
}

/// A set that only has texts could begin with padding.
#[test]
fn records_that_may_be_shorter_than_padding_are_basic_records() {
    let flow = with_texts(plain(1, 1), &[(Fact::ServerName, b"www.example.test")]);
    let (counters, datagrams) = send("ipfix+udp", "?fields=sni", &ExportOptions::default(), &[flow]);
    let (_, records) = decode(&datagrams);
    assert_eq!(counters.altered.get("basic_template"), Some(&1));
    assert!(records[0].contains_key("sourceIPv4Address"));
}

#[test]
fn flows_of_an_application_have_the_same_template() {
    let texts =
        [Fact::ServerName, Fact::AlpnOffered, Fact::AlpnSelected, Fact::CertificateSubject, Fact::CertificateNames];
    let flows: Vec<FlowRecord> = (0..32)
        .map(|number| {
            let facts = texts.iter().enumerate().filter(|(at, _)| number >> at & 1 == 1);
            with_texts(plain(number, 1), &facts.map(|(_, fact)| (*fact, &b"text"[..])).collect::<Vec<_>>())
        })
        .collect();
    let (_, octets) = export_file("ipfix", &ExportOptions::default(), &flows);
    assert_eq!(Decoder::new().file(&octets).len(), 32);
    let settings = "?template=full&fields=applications";
    let (_, datagrams) = send("ipfix+udp", settings, &ExportOptions::default(), &flows);
    let (decoder, records) = decode(&datagrams);
    assert_eq!((decoder.templates.len(), records.len()), (1, 32));
}

#[test]
fn records_of_basic_templates_have_the_application_if_payload_is_inspected() {
    let flows = [with_texts(plain(1, 1), &[]), plain(2, 1)];
    for (scheme, applications) in
        [("ipfix+udp", true), ("netflow9+udp", true), ("ipfix+udp", false), ("netflow9+udp", false)]
    {
        let options = ExportOptions { applications, ..ExportOptions::default() };
        let (_, datagrams) = send(scheme, "", &options, &flows);
        let (decoder, records) = decode(&datagrams);
        let ids: Vec<_> = records.iter().map(|record| record.get("applicationId").cloned()).collect();
        let expected = [vec![6, 0, 0, 1], vec![0; 4]].map(|octets| applications.then_some(Value::Octets(octets)));
        assert_eq!(ids, expected, "{scheme}");
        let named: BTreeSet<(Vec<u8>, String)> = decoder
            .options
            .iter()
            .filter_map(|record| match (record.get("applicationId")?, &record["applicationName"]) {
                (Value::Octets(id), Value::Text(name)) => Some((id.clone(), name.clone())),
                other => panic!("{other:?}"),
            })
            .collect();
        let all = Application::ALL.iter().map(|&of| (vec![6, 0, 0, of as u8], of.name().to_owned()));
        assert_eq!(named, all.filter(|_| applications).collect());
        let described = decoder.options.iter().filter_map(|record| record.get("applicationDescription"));
        let is_sentence = |text: &Value| matches!(text, Value::Text(text) if text.ends_with('.'));
        assert!(described.clone().all(is_sentence));
        assert_eq!(described.count() > 0, applications && scheme == "netflow9+udp");
    }
}
