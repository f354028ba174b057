//! Applications, facts and places in IPFIX and NetFlow v9: the crate netflow_parser, tshark and
//! nfdump read what JSON has, from the captures of single flows in crates/meter/dpi/testdata.

use super::export::{receive, send, send_to_test, write_capture};
use super::{PORT, TEMPLATES_OF_ANY_SIZE, tshark_text};
use ::netflow_parser::variable_versions::ipfix::lookup::IPFixField;
use ::netflow_parser::variable_versions::{ipfix, v9};
use ::netflow_parser::{AutoScopedParser, FieldValue, NetflowPacket};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::path::PathBuf;
use testbed::{Nfcapd, captures_of_applications, command, free_port, is_installed, read_flows};
use weir_dpi::{Application, Confidence, Note};

const PROFILES: [&str; 2] = ["applications", "places"];
const WEIR: u32 = 32473;
const NTOP: u32 = 35632;
/// tshark shows elements of other enterprises as octets, of long ones the first.
const SHOWN_OCTETS: usize = 20;

/// An element of docs/fields.md.
struct Element {
    column: &'static str,
    /// The type of the column.
    kind: &'static str,
    name: &'static str,
    enterprise: u32,
    number: u16,
}

/// The elements of the columns of applications and places.
fn elements() -> Vec<Element> {
    let page: &'static str = include_str!("../../../../../docs/fields.md");
    let mut elements = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let is_application = cells[0] == "| `application`";
        if cells.len() < 7 || !(is_application || PROFILES.contains(&cells[3].trim_end_matches(",store"))) {
            continue;
        }
        for element in cells[5].split(", ") {
            let (name, rest) = element.split_once(" (").expect("a name and a number");
            let number = rest.split(')').next().unwrap();
            let (enterprise, number) = number.split_once('/').unwrap_or(("0", number));
            let column = cells[0].split('`').nth(1).unwrap();
            let (enterprise, number) = (enterprise.parse().unwrap(), number.parse().unwrap());
            elements.push(Element { column, kind: cells[1], name, enterprise, number });
        }
    }
    elements
}

/// A list of the fields that have a value in a record. netflow_parser 1.0.6 drops records with texts of
/// length 0, which RFC 7011 section 6.1.6 permits (docs/collectors.md).
fn selection(elements: &[Element], record: &Value) -> String {
    let with_value = elements.iter().filter(|element| !element.of_json(record).is_empty());
    // `application` selects both of its elements.
    let names = with_value.map(|of| if of.column == "application" { of.name } else { of.column });
    ["src_ip", "dst_ip"].into_iter().chain(names).collect::<Vec<_>>().join(",")
}

impl Element {
    fn is_text(&self) -> bool {
        ["text", "caseless", "hostname", "names"].contains(&self.kind) || self.name == "applicationName"
    }

    /// The value in JSON as this element has it; empty if there is none.
    fn of_json(&self, record: &Value) -> String {
        let value = match &record[self.column] {
            Value::Null => return String::new(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        match self.name {
            "applicationId" => {
                let application = Application::ALL.iter().find(|of| of.name() == value).unwrap();
                (6 << 24 | *application as u32).to_string()
            }
            "applicationConfidence" => {
                (Confidence::ALL.into_iter().find(|by| by.name() == value).unwrap() as u8).to_string()
            }
            "applicationNotes" => {
                let notes = Note::NAMES.into_iter().filter(|(_, name)| value.split(' ').any(|word| word == *name));
                notes.map(|(note, _)| note as u8).sum::<u8>().to_string()
            }
            _ if self.kind == "time" => value.parse::<jiff::Timestamp>().unwrap().as_millisecond().to_string(),
            _ => value,
        }
    }

    /// The same of the octets of an element. The country and the number of an autonomous system are
    /// 0 if the databases have none.
    fn of_octets(&self, octets: &[u8]) -> String {
        if self.is_text() {
            return String::from_utf8(octets.to_vec()).unwrap().trim_end_matches('\0').to_owned();
        }
        let number = octets.iter().fold(0, |number: u64, &octet| number << 8 | u64::from(octet));
        if number == 0 && self.name.starts_with("bgp") { String::new() } else { number.to_string() }
    }
}

/// `--networks`, `--geo` and `--tags` that match the captures.
struct Places {
    _folder: tempfile::TempDir,
    options: Vec<String>,
}

impl Places {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name).display().to_string()
        };
        let networks = write(
            "networks.csv",
            "prefix,name,site,role,local\n0.0.0.0/1,low,Köln,servers,true\n128.0.0.0/2,middle,,guests,false\n::/0,six,,,\n",
        );
        let tags = format!("half={}", write("half.txt", "0.0.0.0/1\n::/1\n*.example.test\nwww.example.test\n"));
        let options = ["--networks", &networks, "--tags", &tags, "--dpi-fields"].map(str::to_owned).to_vec();
        Self { _folder: folder, options }
    }

    fn options(&self) -> Vec<&str> {
        self.options.iter().map(String::as_str).collect()
    }
}

/// Octets of the elements of a record, by enterprise and number, or name for those of IANA.
type Octets = BTreeMap<(u32, u16), Vec<u8>>;

fn octets(field: &IPFixField, value: &FieldValue, elements: &[Element]) -> Option<((u32, u16), Vec<u8>)> {
    let mut octets = Vec::new();
    value.write_be_bytes(&mut octets).unwrap();
    let key = match field {
        IPFixField::Enterprise { enterprise_number, field_number } => (*enterprise_number, *field_number),
        IPFixField::IANA(iana) => {
            // `HttpRequestHost` is httpRequestHost.
            let name = format!("{iana:?}");
            let element = elements.iter().find(|of| of.enterprise == 0 && of.name.eq_ignore_ascii_case(&name))?;
            (0, element.number)
        }
        IPFixField::ReverseInformationElement(_) => return None,
        other => panic!("{other:?}"),
    };
    Some((key, octets))
}

/// The flow records in messages of IPFIX.
fn parsed<'a>(messages: impl IntoIterator<Item = &'a [u8]>, elements: &[Element]) -> Vec<Octets> {
    let mut parser = AutoScopedParser::new();
    let mut records = Vec::new();
    for message in messages {
        let parsed = parser.parse_from_source("127.0.0.1:1024".parse().unwrap(), message);
        assert!(parsed.error.is_none(), "{:?}", parsed.error);
        let [NetflowPacket::IPFix(message)] = &parsed.packets[..] else { panic!("{:?}", parsed.packets) };
        for set in &message.flowsets {
            match &set.body {
                ipfix::FlowSetBody::Data(data) => records.extend(data.fields.iter().map(|fields| {
                    fields.iter().filter_map(|(field, value)| octets(field, value, elements)).collect::<Octets>()
                })),
                ipfix::FlowSetBody::Template(_) | ipfix::FlowSetBody::Templates(_) => {}
                ipfix::FlowSetBody::OptionsTemplate(_) | ipfix::FlowSetBody::OptionsTemplates(_) => {}
                ipfix::FlowSetBody::OptionsData(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    records
}

/// Compares the records of one flow.
fn assert_record(what: &str, elements: &[Element], own: &Value, theirs: &Octets) {
    for element in elements {
        let octets = theirs.get(&(element.enterprise, element.number));
        let read = octets.map_or(String::new(), |octets| element.of_octets(octets));
        assert_eq!(read, element.of_json(own), "{what}: {}", element.name);
    }
}

/// The columns that had a value.
fn assert_values<'a>(elements: &'a [Element], records: impl IntoIterator<Item = &'a Value> + Clone) {
    let without = |element: &&Element| records.clone().into_iter().all(|record| element.of_json(record).is_empty());
    let without: BTreeSet<&str> = elements.iter().filter(without).map(|element| element.column).collect();
    // The tests of --geo have the databases, no capture has ECH or a name that DNS taught, and nDPI may
    // not be built in.
    let expected = ["src_country", "dst_country", "src_as", "dst_as", "src_as_org", "dst_as_org", "tls_ech"];
    let others = ["dst_dns_name", "interface_name", "ndpi_protocol", "ndpi_category", "ndpi_confidence", "ndpi_risks"];
    let expected = expected.into_iter().chain(others).collect();
    assert_eq!(without, expected, "columns without a value in any capture");
}

/// The own records of all captures, with the datagrams of each.
fn exported(sink: &str) -> Vec<(PathBuf, Vec<Value>, Vec<Vec<u8>>)> {
    let (folder, places) = (tempfile::tempdir().unwrap(), Places::new());
    let of_capture = |capture: PathBuf| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let sending = || send_to_test(&capture, 1, sink, port, folder.path(), &places.options()).records;
        let (records, datagrams) = receive(&socket, sending);
        (capture, records, datagrams)
    };
    captures_of_applications().into_iter().map(of_capture).collect()
}

/// The only record of each capture.
fn own_records(places: &Places) -> Vec<(PathBuf, Value)> {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("own.json");
    let of_capture = |capture: PathBuf| {
        let mut command = command();
        command.args(["read", "-q", "--overwrite", "-o", &format!("{}?fields=all", json.display())]);
        assert!(command.args(places.options()).arg(&capture).status().unwrap().success());
        let [record] = &read_flows(&json)[..] else { panic!("{}", capture.display()) };
        (capture, record.clone())
    };
    captures_of_applications().into_iter().map(of_capture).collect()
}

#[test]
fn netflow_parser_reads_every_fact_of_ipfix() {
    let (folder, places, elements) = (tempfile::tempdir().unwrap(), Places::new(), elements());
    let records = own_records(&places);
    for (capture, own) in &records {
        let fields = selection(&elements, own);
        let both = if own["rev_packets"] == 0 { 1 } else { 2 };
        for (sink, of_flow) in [("ipfix+udp?template=full", 1), ("ipfix+udp?mtu=9000", both)] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = socket.local_addr().unwrap().port();
            let sink = format!("{sink}&fields={fields}");
            let sending = || send_to_test(capture, 1, &sink, port, folder.path(), &places.options());
            let (_, datagrams) = receive(&socket, sending);
            let theirs = parsed(datagrams.iter().map(Vec::as_slice), &elements);
            assert_eq!(theirs.len(), of_flow, "{sink} {}", capture.display());
            // A second record has the ends of the flow exchanged.
            assert_record(&format!("{sink} {}", capture.display()), &elements, own, &theirs[0]);
        }
    }
    assert_values(&elements, records.iter().map(|(_, own)| own));
}

#[test]
fn netflow_parser_reads_every_fact_of_a_file() {
    let (folder, places, elements) = (tempfile::tempdir().unwrap(), Places::new(), elements());
    for (capture, own) in own_records(&places) {
        let file = folder.path().join("flows.ipfix");
        let sink = format!("{}?fields={}", file.display(), selection(&elements, &own));
        let mut command = command();
        command.args(["read", "-q", "--overwrite", "-o", &sink]).args(places.options()).arg(&capture);
        assert!(command.status().unwrap().success());
        let octets = std::fs::read(&file).unwrap();
        let mut rest = octets.as_slice();
        let messages = std::iter::from_fn(|| {
            let length = u16::from_be_bytes(rest.get(2..4)?.try_into().unwrap());
            let (message, after) = rest.split_at(length.into());
            rest = after;
            Some(message)
        });
        let [theirs] = &parsed(messages, &elements)[..] else { panic!("{}", capture.display()) };
        assert_record(&format!("{sink} {}", capture.display()), &elements, &own, theirs);
    }
}

/// Per record of NetFlow v9 the value of applicationId, and all names of options records.
#[test]
fn netflow_parser_reads_the_application_of_netflow9() {
    for (capture, own, datagrams) in exported("netflow9+udp") {
        let (mut parser, mut ids, mut names) = (AutoScopedParser::new(), Vec::new(), BTreeMap::new());
        for datagram in &datagrams {
            let parsed = parser.parse_from_source("127.0.0.1:1024".parse().unwrap(), datagram);
            let [NetflowPacket::V9(message)] = &parsed.packets[..] else { panic!("{:?}", parsed.packets) };
            let octets = |value: &FieldValue| {
                let mut octets = Vec::new();
                value.write_be_bytes(&mut octets).unwrap();
                octets
            };
            for set in &message.flowsets {
                match &set.body {
                    v9::FlowSetBody::Data(data) => ids.extend(data.fields.iter().map(|fields| {
                        let id = fields.iter().find(|(field, _)| format!("{field:?}") == "ApplicationTag");
                        octets(&id.expect("basic templates have it").1)
                    })),
                    v9::FlowSetBody::OptionsData(data) => {
                        for record in &data.fields {
                            let value = |name: &str| {
                                let found =
                                    record.options_fields.iter().find(|(field, _)| format!("{field:?}") == name);
                                found.map(|(_, value)| octets(value))
                            };
                            if let (Some(id), Some(name)) = (value("ApplicationTag"), value("ApplicationName")) {
                                names.insert(id, String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned());
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(names.len(), Application::ALL.len());
        let name = own[0]["application"].as_str().unwrap();
        assert!(!ids.is_empty() && ids.iter().all(|id| names[id] == name), "{} {ids:?}", capture.display());
    }
}

/// nfdump names the applications by the options records of NetFlow v9. nfdump 1.7.1 reads
/// applicationId of IPFIX with its octets in reverse order, without a name (docs/collectors.md).
#[test]
fn nfdump_names_the_application() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let mut collector = Nfcapd::start(port);
    let mut own = BTreeSet::new();
    for capture in captures_of_applications() {
        for record in send(&capture, 1, "netflow9+udp", port, folder.path(), &[]).records {
            let name = record["application"].as_str().unwrap().to_owned();
            let application = Application::ALL.iter().find(|of| of.name() == name).unwrap();
            own.insert(format!("6..{}|{name}/{}", *application as u8, application.description()));
        }
    }
    let text = collector.dump(&["-o", "fmt:%nbid|%nbnam"]);
    let theirs: BTreeSet<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    assert_eq!(theirs, own);
}

#[test]
fn tshark_reads_every_fact_of_ipfix() {
    if !is_installed("tshark") {
        return;
    }
    let (elements, folder) = (elements(), tempfile::tempdir().unwrap());
    let capture = folder.path().join("export.pcap");
    let mut own = Vec::new();
    let mut all = Vec::new();
    for (domain, (_, records, mut datagrams)) in
        (1_u32..).zip(exported("ipfix+udp?template=full&fields=applications,places"))
    {
        // Each capture was a run of its own, with its own templates.
        datagrams.iter_mut().for_each(|datagram| datagram[12..16].copy_from_slice(&domain.to_be_bytes()));
        own.extend(records);
        all.extend(datagrams);
    }
    write_capture(&all, PORT, &capture);
    let shown = tshark_text(&capture, PORT, &TEMPLATES_OF_ANY_SIZE);
    for element in &elements {
        let name = match element.enterprise {
            WEIR => format!(" Type {}: Value (hex bytes): ", element.number),
            NTOP => match element.name {
                "TLS_SERVER_NAME" => " SSL server name: ".into(),
                "L7_PROTO_NAME" => " Layer 7 protocol name: ".into(),
                _ => " DNS query: ".into(),
            },
            _ => continue,
        };
        let mut theirs: Vec<String> =
            shown.lines().filter_map(|line| Some(line.split_once(&name)?.1.to_owned())).collect();
        if element.enterprise == WEIR {
            let octets = |text: &String| -> Vec<u8> {
                let octets = text.split_whitespace().map_while(|octet| u8::from_str_radix(octet, 16).ok());
                octets.take(SHOWN_OCTETS).collect()
            };
            theirs = theirs.iter().map(|text| element.of_octets(&octets(text))).collect();
        }
        let mut expected: Vec<String> = own.iter().map(|record| element.of_json(record)).collect();
        if element.enterprise == WEIR && element.is_text() {
            expected.iter_mut().for_each(|text| text.truncate(SHOWN_OCTETS));
        }
        theirs.retain(|value| !value.is_empty());
        expected.retain(|value| !value.is_empty());
        theirs.sort();
        expected.sort();
        assert_eq!(theirs, expected, "{}", element.name);
    }
}
