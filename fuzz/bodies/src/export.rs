//! The encoders: any flow records, encoded, and decoded by parsers that share no code with Weir.

use super::flows::flow;
use netflow_parser::variable_versions::field_value::{DataNumber, FieldValue};
use netflow_parser::variable_versions::ipfix::lookup::{IANAIPFixField as Iana, IPFixField, ReverseInformationElement};
use netflow_parser::variable_versions::v9::lookup::V9Field;
use netflow_parser::variable_versions::{ipfix, v9};
use netflow_parser::{NetflowPacket, NetflowParser};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;
use weir_export::{ExportOptions, FileMode, SinkSpec};
use weir_flow::{Direction, FlowRecord};
use weir_ledger::{RecordTotals, SinkCounters};
use weir_packet::Network;
use weir_testkit::input::{Input, pick};

/// More records need more datagrams than a receive buffer holds.
const MAX_FLOWS: usize = 40;
/// Records per batch. Their datagrams are received before the next batch.
const BATCH: usize = 8;
/// NetFlow v5 splits a record with larger counters into too many.
const MAX_NETFLOW5_COUNTER: u64 = 3 << 33;

const SINKS: [&str; 16] = [
    "ipfix",
    "ipfix+udp?template=full&rate=0",
    "ipfix+udp?rate=0",
    "netflow9+udp?template=full&rate=0",
    "netflow9+udp?rate=0",
    "netflow5+udp?rate=0",
    "json",
    "csv",
    "ipfix+udp?template=nfdump&rate=0",
    "netflow9+udp?template=nfdump&rate=0",
    "ipfix+udp?template=pmacct&rate=0",
    "netflow9+udp?template=pmacct&rate=0",
    "ipfix+udp?template=goflow2&rate=0",
    "netflow9+udp?template=akvorado&rate=0",
    "ipfix+udp?template=ntopng&rate=0",
    "netflow9+udp?template=logstash&rate=0",
];

/// Exports flow records. Invariants: nothing panics; every record is exported, or counted as lost
/// with a reason; the parsers find the keys, packets and octets of every exported record.
///
/// # Panics
/// An invariant does not hold.
pub fn export(input: &[u8]) {
    let mut input = Input(input);
    let (sink, uniflow) = (pick(&SINKS, input.octet()), input.octet() & 1 != 0);
    let options = ExportOptions { uniflow, file_mode: FileMode::Overwrite, ..ExportOptions::default() };
    let mut flows = Vec::new();
    while !input.is_empty() && flows.len() < MAX_FLOWS {
        flows.push(flow(&mut input));
    }
    let is_netflow5 = sink.starts_with("netflow5");
    for direction in flows.iter_mut().flat_map(|flow| [&mut flow.forward, &mut flow.reverse]).filter(|_| is_netflow5) {
        direction.packets = direction.packets.min(MAX_NETFLOW5_COUNTER);
        direction.bytes = direction.bytes.min(MAX_NETFLOW5_COUNTER);
    }

    let (counters, mut rows) = match sink.split_once('?') {
        Some((scheme, settings)) => {
            let (counters, datagrams) = send(scheme, settings, &options, &flows);
            (counters, rows_of_messages(&datagrams))
        }
        None => {
            let (counters, text) = write(sink, &options, &flows);
            let rows = match sink {
                "json" => text.split(|&octet| octet == b'\n').filter(|line| !line.is_empty()).flat_map(json).collect(),
                "csv" => csv(&text),
                _ => rows_of_messages(&[text]),
            };
            (counters, rows)
        }
    };
    assert_eq!(counters.total(), sum(&flows), "every record is exported or lost: {counters:?}");
    if is_netflow5 {
        flows.retain(|flow| flow.network == Network::Ipv4);
        rows = merge_shares(rows);
    }
    assert_eq!(counters.exported, sum(&flows), "{counters:?}");
    let mut expected = flows.iter().flat_map(rows_of).collect::<Vec<_>>();
    if is_netflow5 {
        expected = merge_shares(expected);
    }
    assert_eq!(rows, expected);
}

fn sum(flows: &[FlowRecord]) -> RecordTotals {
    let mut records = RecordTotals::default();
    flows.iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
    records
}

/// Writes flows to a file.
fn write(scheme: &str, options: &ExportOptions, flows: &[FlowRecord]) -> (SinkCounters, Vec<u8>) {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a folder can be made");
    }
    let path = FOLDER.with(|folder| folder.path().join("flows"));
    let mut sink = format!("{scheme}:{}", path.display())
        .parse::<SinkSpec>()
        .expect("a sink")
        .open(options)
        .expect("the sink opens");
    flows.chunks(BATCH).for_each(|batch| sink.write(batch).expect("the sink accepts a batch"));
    sink.finish().expect("the sink finishes");
    (sink.counters().clone(), std::fs::read(path).expect("the file can be read"))
}

/// Sends flows over loopback.
fn send(scheme: &str, settings: &str, options: &ExportOptions, flows: &[FlowRecord]) -> (SinkCounters, Vec<Vec<u8>>) {
    let listener = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    listener.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    let address = listener.local_addr().expect("it is bound");
    let mut buffer = vec![0; 65_536];
    let mut datagrams = Vec::new();
    let mut sink = format!("{scheme}://{address}?{settings}")
        .parse::<SinkSpec>()
        .expect("a sink")
        .open(options)
        .expect("the sink opens");
    for batch in flows.chunks(BATCH) {
        sink.write(batch).expect("the sink accepts a batch");
        let messages = sink.counters().messages;
        while (datagrams.len() as u64) < messages {
            let octets = listener.recv(&mut buffer).expect("every datagram arrives");
            datagrams.push(buffer[..octets].to_vec());
        }
    }
    // A sink sends all records of a batch at once. To finish it takes 50 ms.
    (sink.counters().clone(), datagrams)
}

/// What every format has of one direction of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// IP address or MAC address.
    source: String,
    destination: String,
    /// 0 for protocols without ports.
    ports: [u64; 2],
    protocol: u64,
    packets: u64,
    bytes: u64,
}

impl Row {
    fn reversed(self, packets: u64, bytes: u64) -> Self {
        let [source_port, destination_port] = self.ports;
        let ports = [destination_port, source_port];
        Self { source: self.destination, destination: self.source, ports, packets, bytes, ..self }
    }
}

/// The expected rows of a flow: one for each direction with packets.
fn rows_of(flow: &FlowRecord) -> Vec<Row> {
    let text = |address: Option<std::net::IpAddr>, octets: [u8; 16]| match address {
        Some(address) => address.to_string(),
        None => octets[10..].iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":"),
    };
    let is_ip = flow.network != Network::Layer2;
    let has_ports = is_ip && [6, 17, 33, 132, 136].contains(&flow.protocol);
    let Direction { packets, bytes, .. } = flow.forward;
    let forward = Row {
        source: text(flow.source_ip(), flow.source),
        destination: text(flow.destination_ip(), flow.destination),
        ports: if has_ports { [flow.source_port.into(), flow.destination_port.into()] } else { [0, 0] },
        protocol: if is_ip { flow.protocol.into() } else { 0 },
        packets,
        bytes,
    };
    both(forward, flow.reverse.packets, flow.reverse.bytes)
}

/// The directions of a bidirectional record that have packets.
fn both(forward: Row, reverse_packets: u64, reverse_bytes: u64) -> Vec<Row> {
    let reverse = forward.clone().reversed(reverse_packets, reverse_bytes);
    [forward, reverse].into_iter().filter(|row| row.packets > 0).collect()
}

/// Adds up the rows of consecutive equal keys: NetFlow v5 splits large counters.
fn merge_shares(rows: Vec<Row>) -> Vec<Row> {
    let mut merged: Vec<Row> = Vec::new();
    for row in rows {
        match merged.last_mut() {
            Some(last) if *last == (Row { packets: last.packets, bytes: last.bytes, ..row.clone() }) => {
                last.packets += row.packets;
                last.bytes += row.bytes;
            }
            _ => merged.push(row),
        }
    }
    merged
}

/// The rows of all messages, by `netflow_parser`.
fn rows_of_messages(messages: &[Vec<u8>]) -> Vec<Row> {
    let mut parser = NetflowParser::default();
    let mut rows = Vec::new();
    for message in messages {
        let parsed = parser.parse_bytes(message);
        assert!(parsed.error.is_none(), "{:?}", parsed.error);
        for packet in parsed.packets {
            match packet {
                NetflowPacket::IPFix(message) => {
                    for set in message.flowsets {
                        match set.body {
                            ipfix::FlowSetBody::Data(data) => rows.extend(data.fields.iter().flat_map(ipfix_rows)),
                            ipfix::FlowSetBody::NoTemplate(missing) => panic!("no template: {missing:?}"),
                            _ => {}
                        }
                    }
                }
                NetflowPacket::V9(message) => {
                    for set in message.flowsets {
                        match set.body {
                            v9::FlowSetBody::Data(data) => rows.extend(data.fields.iter().flat_map(v9_rows)),
                            v9::FlowSetBody::NoTemplate(missing) => panic!("no template: {missing:?}"),
                            _ => {}
                        }
                    }
                }
                NetflowPacket::V5(message) => rows.extend(message.flowsets.iter().map(|record| {
                    let has_ports = [6, 17, 33, 132, 136].contains(&record.protocol_number);
                    Row {
                        source: record.src_addr.to_string(),
                        destination: record.dst_addr.to_string(),
                        ports: if has_ports { [record.src_port.into(), record.dst_port.into()] } else { [0, 0] },
                        protocol: record.protocol_number.into(),
                        packets: record.d_pkts.into(),
                        bytes: record.d_octets.into(),
                    }
                })),
                other => panic!("{other:?}"),
            }
        }
    }
    rows
}

fn number(value: &FieldValue) -> u64 {
    match value {
        FieldValue::DataNumber(DataNumber::U8(number)) => (*number).into(),
        FieldValue::DataNumber(DataNumber::U16(number)) => (*number).into(),
        FieldValue::DataNumber(DataNumber::U24(number) | DataNumber::U32(number)) => (*number).into(),
        FieldValue::DataNumber(DataNumber::U64(number)) => *number,
        FieldValue::ProtocolType(protocol) => u8::from(*protocol).into(),
        other => panic!("{other:?} is no number"),
    }
}

fn address(value: &FieldValue) -> String {
    match value {
        FieldValue::Ip4Addr(address) => address.to_string(),
        FieldValue::Ip6Addr(address) => address.to_string(),
        FieldValue::MacAddr(octets) => octets.map(|octet| format!("{octet:02x}")).join(":"),
        other => panic!("{other:?} is no address"),
    }
}

fn ipfix_rows(record: &ipfix::IPFixFlowRecord) -> Vec<Row> {
    let mut row = Row::default();
    let (mut reverse_packets, mut reverse_bytes) = (0, 0);
    for (field, value) in record {
        match field {
            IPFixField::IANA(Iana::SourceIpv4address | Iana::SourceIpv6address) => row.source = address(value),
            IPFixField::IANA(Iana::DestinationIpv4address | Iana::DestinationIpv6address) => {
                row.destination = address(value);
            }
            // IP flows may have both.
            IPFixField::IANA(Iana::SourceMacaddress) if row.source.is_empty() => row.source = address(value),
            IPFixField::IANA(Iana::DestinationMacaddress) if row.destination.is_empty() => {
                row.destination = address(value);
            }
            IPFixField::IANA(Iana::SourceTransportPort) => row.ports[0] = number(value),
            IPFixField::IANA(Iana::DestinationTransportPort) => row.ports[1] = number(value),
            IPFixField::IANA(Iana::ProtocolIdentifier) => row.protocol = number(value),
            IPFixField::IANA(Iana::PacketDeltaCount) => row.packets = number(value),
            IPFixField::IANA(Iana::OctetDeltaCount) => row.bytes = number(value),
            IPFixField::ReverseInformationElement(ReverseInformationElement::ReversePacketDeltaCount) => {
                reverse_packets = number(value);
            }
            IPFixField::ReverseInformationElement(ReverseInformationElement::ReverseOctetDeltaCount) => {
                reverse_bytes = number(value);
            }
            _ => {}
        }
    }
    both(row, reverse_packets, reverse_bytes)
}

fn v9_rows(record: &v9::V9FlowRecord) -> Option<Row> {
    let mut row = Row::default();
    for (field, value) in record {
        match field {
            V9Field::Ipv4SrcAddr | V9Field::Ipv6SrcAddr => row.source = address(value),
            V9Field::Ipv4DstAddr | V9Field::Ipv6DstAddr => row.destination = address(value),
            V9Field::InSrcMac if row.source.is_empty() => row.source = address(value),
            V9Field::InDstMac if row.destination.is_empty() => row.destination = address(value),
            V9Field::L4SrcPort => row.ports[0] = number(value),
            V9Field::L4DstPort => row.ports[1] = number(value),
            V9Field::Protocol => row.protocol = number(value),
            V9Field::InPkts => row.packets = number(value),
            V9Field::InBytes => row.bytes = number(value),
            _ => {}
        }
    }
    Some(row)
}

/// The rows of a line of JSON.
fn json(line: &[u8]) -> Vec<Row> {
    let object: Map<String, Value> = serde_json::from_slice(line).expect("a line is an object");
    text_rows(|name| match &object[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        number => Some(number.to_string()),
    })
}

fn csv(text: &[u8]) -> Vec<Row> {
    let mut reader = ::csv::Reader::from_reader(text);
    let rows = reader.deserialize::<BTreeMap<String, String>>().flat_map(|record| {
        let record = record.expect("a line has the columns of the header");
        text_rows(|name| Some(record[name].clone()).filter(|text| !text.is_empty()))
    });
    rows.collect()
}

/// The rows of a record with names; `field` returns the text of a value that applies.
fn text_rows(field: impl Fn(&str) -> Option<String>) -> Vec<Row> {
    let number = |name: &str| field(name).map_or(0, |text| text.parse().expect("it is a number"));
    let forward = Row {
        source: field("src_ip").or_else(|| field("src_mac")).expect("a record has a source"),
        destination: field("dst_ip").or_else(|| field("dst_mac")).expect("a record has a destination"),
        ports: [number("src_port"), number("dst_port")],
        protocol: number("protocol_number"),
        packets: number("fwd_packets"),
        bytes: number("fwd_bytes"),
    };
    both(forward, number("rev_packets"), number("rev_bytes"))
}
