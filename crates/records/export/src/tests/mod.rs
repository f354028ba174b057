//! Decodes the output of the sinks and compares it with the flow records that were written.

mod applications;
mod basic;
mod conformance;
mod counters;
mod expected;
mod flows;
mod ipfix;
mod json_csv;
mod netflow5;
mod netflow9;
mod options;
mod profiles;

use netflow_parser::variable_versions::{ipfix as parsed_ipfix, v9 as parsed_v9};
use netflow_parser::{NetflowPacket, NetflowParser};
use std::net::UdpSocket;
use std::time::Duration;
use weir_export::{Error, ExportOptions, Sink, SinkSpec};
use weir_flow::FlowRecord;
use weir_ledger::{RecordTotals, SinkCounters};

/// Opens a sink by its specification.
fn open(spec: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
    spec.parse::<SinkSpec>()?.open(options)
}

/// Writes flows to a file as one batch, and returns its contents.
fn export_file(scheme: &str, options: &ExportOptions, flows: &[FlowRecord]) -> (SinkCounters, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("flows");
    let mut sink = open(&format!("{scheme}:{}", path.display()), options).expect("the sink opens");
    sink.write(flows).expect("the sink accepts a batch");
    sink.finish().expect("the sink finishes");
    (sink.counters().clone(), std::fs::read(path).expect("the file can be read"))
}

/// Writes flows to a sink that sends datagrams over loopback, and returns the datagrams received.
/// None is lost, however slow the machine is: a batch needs at most about 50 of the 90 datagrams
/// that the receive buffer holds, and is read before the next batch is sent.
fn send(scheme: &str, settings: &str, options: &ExportOptions, flows: &[FlowRecord]) -> (SinkCounters, Vec<Vec<u8>>) {
    let listener = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // Datagrams over loopback arrive at once. The timeout only ends a test that fails.
    listener.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    let address = listener.local_addr().expect("it is bound");
    let mut buffer = vec![0; 65_536];
    let mut receive = || {
        let octets = listener.recv(&mut buffer).expect("every datagram arrived");
        buffer[..octets].to_vec()
    };
    let mut datagrams = Vec::new();
    let mut sink = open(&format!("{scheme}://{address}{settings}"), options).expect("the sink opens");
    for batch in flows.chunks(30) {
        sink.write(batch).expect("the sink accepts a batch");
        datagrams.extend((datagrams.len() as u64..sink.counters().messages).map(|_| receive()));
    }
    sink.finish().expect("the sink finishes");
    let counters = sink.counters().clone();
    datagrams.extend((datagrams.len() as u64..counters.messages).map(|_| receive()));
    // No sink sends an empty datagram, so this one marks the end.
    UdpSocket::bind("127.0.0.1:0").and_then(|end| end.send_to(&[], address)).expect("the end is sent");
    assert!(receive().is_empty(), "no datagram but those counted");
    assert_eq!(counters.octets, datagrams.iter().map(|datagram| datagram.len() as u64).sum::<u64>());
    (counters, datagrams)
}

/// The number of data records that an independent parser finds in messages.
fn parsed_records(messages: &[Vec<u8>]) -> u64 {
    let mut parser = NetflowParser::default();
    let mut records = 0;
    for message in messages {
        let parsed = parser.parse_bytes(message);
        assert!(parsed.error.is_none(), "{:?}", parsed.error);
        for packet in parsed.packets {
            records += match packet {
                NetflowPacket::IPFix(message) => message
                    .flowsets
                    .iter()
                    .map(|set| match &set.body {
                        parsed_ipfix::FlowSetBody::Data(data) => data.fields.len(),
                        _ => 0,
                    })
                    .sum::<usize>(),
                NetflowPacket::V9(message) => message
                    .flowsets
                    .iter()
                    .map(|set| match &set.body {
                        parsed_v9::FlowSetBody::Data(data) => data.fields.len(),
                        _ => 0,
                    })
                    .sum(),
                other => panic!("{other:?}"),
            };
        }
    }
    records as u64
}

fn sum<'a>(flows: impl IntoIterator<Item = &'a FlowRecord>) -> RecordTotals {
    let mut records = RecordTotals::default();
    flows.into_iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
    records
}
