//! Rules of the formats that no other test shows: docs/conformance.md.

use crate::tests::flows::{answered, plain};
use crate::tests::send;
use std::collections::{BTreeMap, BTreeSet};
use testbed::decode::{Decoder, Record, Value};
use weir_export::ExportOptions;
use weir_fields::{DataType, Semantics, elements, fields, template_fields};
use weir_flow::{Direction, FlowRecord};

/// The registry of IANA: name and type of each number.
fn registry() -> BTreeMap<u16, (&'static str, &'static str)> {
    let text = include_str!("../../../../../data/iana/ipfix-elements.csv");
    let rows = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    rows.map(|row| (row[0].parse().expect("a number"), (row[1], row[2]))).collect()
}

/// Octets of the type in full, and whether it may have fewer (RFC 7011 section 6.2). `None`: any number.
fn type_octets(data_type: &str) -> Option<(u16, bool)> {
    Some(match data_type {
        "unsigned8" | "signed8" | "boolean" => (1, false),
        "unsigned16" | "signed16" => (2, true),
        "unsigned32" | "signed32" => (4, true),
        "unsigned64" | "signed64" => (8, true),
        "float32" | "ipv4Address" | "dateTimeSeconds" => (4, false),
        "macAddress" => (6, false),
        "ipv6Address" => (16, false),
        "float64" | "dateTimeMilliseconds" | "dateTimeMicroseconds" | "dateTimeNanoseconds" => (8, false),
        "string" | "octetArray" => return None,
        other => panic!("{other} is not sent"),
    })
}

/// A template record: the numbers, octets and enterprise numbers of its fields.
#[derive(Debug, PartialEq)]
struct Template {
    /// `None` of a template that is no options template.
    scopes: Option<u16>,
    fields: Vec<(u16, u16, Option<u32>)>,
}

fn word(octets: &mut &[u8]) -> u16 {
    let (word, rest) = octets.split_at(2);
    *octets = rest;
    u16::from_be_bytes([word[0], word[1]])
}

/// The templates of an IPFIX message, by ID.
fn templates(message: &[u8]) -> Vec<(u16, Template)> {
    let mut rest = &message[16..];
    let mut templates = Vec::new();
    while !rest.is_empty() {
        let (id, length) = (word(&mut rest), usize::from(word(&mut rest)));
        let (mut set, after) = rest.split_at(length - 4);
        rest = after;
        assert!([2, 3].contains(&id) || id >= 256, "set {id}");
        while id < 256 && set.len() >= 4 {
            let (template, count) = (word(&mut set), word(&mut set));
            let scopes = (id == 3).then(|| word(&mut set));
            let field = |_| {
                let (number, octets) = (word(&mut set), word(&mut set));
                let enterprise =
                    (number & 0x8000 != 0).then(|| u32::from(word(&mut set)) << 16 | u32::from(word(&mut set)));
                (number & 0x7fff, octets, enterprise)
            };
            templates.push((template, Template { scopes, fields: (0..count).map(field).collect() }));
        }
    }
    templates
}

#[test]
fn templates_have_ids_scopes_and_lengths_of_the_format() {
    let flows: Vec<FlowRecord> =
        (1..40).flat_map(|number| [plain(number, 2), answered(number, u64::from(number) << 30)]).collect();
    let options = ExportOptions { observation_domain: 7, applications: true, ..ExportOptions::default() };
    let registry = registry();
    // The scopes that an options template with this element needs (RFC 7011 section 4, RFC 5476 section 6.5.2, RFC
    // 5610 section 3.9).
    let scopes: [(u16, &[u16]); 6] =
        [(41, &[149]), (164, &[149]), (166, &[144]), (173, &[145]), (304, &[302]), (339, &[346, 303])];
    for settings in ["", "?template=full", "?template=full&fields=all"] {
        let (_, messages) = send("ipfix+udp", settings, &options, &flows);
        let mut known: BTreeMap<u16, Template> = BTreeMap::new();
        for (id, template) in messages.iter().flat_map(|message| templates(message)) {
            assert!(id >= 256 && !template.fields.is_empty(), "no reserved ID and no withdrawal: {id}");
            assert!(template.scopes.is_none_or(|scopes| (1..template.fields.len()).contains(&scopes.into())));
            for &(number, octets, enterprise) in &template.fields {
                assert!(enterprise.is_none_or(|of| [29305, 32473, 35632].contains(&of)), "enterprise of {number}");
                // Reverse elements have the types of the forward ones.
                let is_iana = [None, Some(29305)].contains(&enterprise);
                if let Some((full, is_reducible)) = is_iana.then(|| type_octets(registry[&number].1)).flatten() {
                    assert!(octets == full || is_reducible && (1..full).contains(&octets), "{number}: {octets} octets");
                }
            }
            if let Some(known) = known.get(&id) {
                assert_eq!(*known, template, "an ID keeps its template");
            }
            known.insert(id, template);
        }
        for (element, scopes) in scopes {
            let has =
                |template: &&Template| template.scopes.is_some() && template.fields.iter().any(|f| f.0 == element);
            let found: Vec<&Template> = known.values().filter(has).collect();
            let is_sent = element != 339 || !settings.is_empty();
            assert_eq!(found.len(), usize::from(is_sent), "{element} {settings}");
            for template in found {
                let numbers: Vec<u16> = template.fields.iter().map(|field| field.0).collect();
                assert_eq!((template.scopes, &numbers[..scopes.len()]), (Some(scopes.len() as u16), scopes));
            }
        }
    }
}

#[test]
fn own_elements_have_legal_types_and_no_reverse_element_is_illegal() {
    let iana: BTreeSet<&str> = registry().values().map(|&(name, _)| name).collect();
    let mut names = BTreeSet::new();
    for element in elements() {
        let Some((semantics, _)) = element.weir else { continue };
        let name = element.name;
        assert!(names.insert(name) && !iana.contains(name), "{name} is a name of its own");
        assert!(name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(|c| c.is_ascii_alphanumeric()));
        // RFC 5610 section 3.10.
        let is_legal = match element.data_type {
            DataType::Unsigned8 | DataType::Unsigned16 | DataType::Unsigned32 | DataType::Unsigned64 => true,
            DataType::Float64 => ![Semantics::Identifier, Semantics::Flags].contains(&semantics),
            _ => semantics == Semantics::Default,
        };
        assert!(is_legal, "{name}: {:?} with {semantics:?}", element.data_type);
        let is_reducible =
            matches!(element.data_type, DataType::Unsigned16 | DataType::Unsigned32 | DataType::Unsigned64);
        let is_any = matches!(element.data_type, DataType::String | DataType::OctetArray);
        assert!(is_any || is_reducible || element.octets == element.data_type.octets(), "{name} has its length");
    }
    // RFC 5103 section 6.1, which names sections 5.1 to 5.3 and 5.12.1 of RFC 5102.
    let not_reversible = [
        148, 145, 149, 137, 130, 131, 217, 211, 212, 213, 214, 215, 216, 173, 41, 40, 42, 163, 164, 165, 166, 167, 168,
        210, 239,
    ];
    for field in fields().chain(template_fields()).filter(|field| field.is_of_direction()) {
        for element in field.elements.iter().filter(|element| element.weir.is_none()) {
            assert!(!not_reversible.contains(&element.number), "{} is not reversible", element.name);
        }
    }
}

fn decode(scheme: &str, settings: &str, flows: &[FlowRecord]) -> Vec<Record> {
    let (_, messages) = send(scheme, settings, &ExportOptions::default(), flows);
    let mut decoder = Decoder::new();
    messages.iter().flat_map(|message| decoder.message(message)).collect()
}

#[test]
fn a_record_of_both_directions_names_an_endpoint() {
    let flows = [answered(1, 5)];
    let reverse = "reverse octetDeltaCount";
    for key in ["sourceIPv4Address", "destinationTransportPort"] {
        let records = decode("ipfix+udp", &format!("?template=full&fields=octetDeltaCount,{key}"), &flows);
        assert!(records.len() == 1 && records[0].contains_key(reverse) && records[0].contains_key(key), "{key}");
    }
    // The protocol is a key of both sides, and the MAC address of a flow of IP is no key.
    for others in ["flowStartMilliseconds", "protocolIdentifier", "protocolIdentifier,sourceMacAddress"] {
        let (counters, messages) = send(
            "ipfix+udp",
            &format!("?template=full&fields=octetDeltaCount,{others}"),
            &ExportOptions::default(),
            &flows,
        );
        let mut decoder = Decoder::new();
        let records: Vec<Record> = messages.iter().flat_map(|message| decoder.message(message)).collect();
        assert_eq!(records.len(), 2, "{others}");
        assert!(records.iter().all(|record| !record.contains_key(reverse)), "{records:?}");
        assert_eq!((counters.exported.flows, counters.altered.len()), (1, 0), "the flow is exported as it is");
    }
}

#[test]
fn all_control_bits_are_exported_as_observed() {
    let flow = |bits| {
        let direction = Direction { tcp_flags: bits, ..plain(1, 3).forward };
        FlowRecord { protocol: 6, forward: direction, ..plain(1, 3) }
    };
    for bits in [0, 0x02, 0xff, 0x100, 0x1ff, 0xe00, 0xfff] {
        let sent = |scheme: &str, settings: &str| match decode(scheme, settings, &[flow(bits)])[0]["tcpControlBits"] {
            Value::Unsigned(sent) => sent,
            ref other => panic!("{other:?}"),
        };
        assert_eq!(sent("ipfix+udp", "?template=full"), u64::from(bits));
        assert_eq!(sent("netflow9+udp", "?template=full"), u64::from(bits));
        // In one octet: those from CWR to FIN.
        assert_eq!(sent("ipfix+udp", ""), u64::from(bits & 0xff));
    }
}
