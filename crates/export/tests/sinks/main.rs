//! What comes out of the sinks, read back and held against the flows that went in.

mod accounts;
mod decode;
mod expect;
mod flows;
mod ipfix;
mod netflow5;
mod netflow9;
mod text;

use std::net::UdpSocket;
use std::time::Duration;
use weir_export::{ExportOptions, open};
use weir_flow::FlowRecord;
use weir_ledger::{RecordTotals, SinkCounters};

/// Gives flows to a sink and finishes it.
fn export(sink: &str, options: &ExportOptions, flows: &[FlowRecord]) -> SinkCounters {
    let mut sink = open(sink, options).expect("the sink opens");
    for batch in flows.chunks(100) {
        sink.write(batch).expect("the sink takes a batch");
    }
    sink.finish().expect("the sink finishes");
    sink.counters().clone()
}

/// The same over loopback, with the datagrams that arrived. However slow the machine is, none is lost: what a batch
/// sends fits into a receive buffer (some 50 datagrams at most, of 90), and is read before the next one.
fn send(scheme: &str, settings: &str, options: &ExportOptions, flows: &[FlowRecord]) -> (SinkCounters, Vec<Vec<u8>>) {
    let listener = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // What was sent is there at once; this ends a test that fails.
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
        sink.write(batch).expect("the sink takes a batch");
        datagrams.extend((datagrams.len() as u64..sink.counters().messages).map(|_| receive()));
    }
    sink.finish().expect("the sink finishes");
    let line = sink.counters().clone();
    datagrams.extend((datagrams.len() as u64..line.messages).map(|_| receive()));
    // No sink sends an empty datagram: it comes behind all others.
    UdpSocket::bind("127.0.0.1:0").and_then(|end| end.send_to(&[], address)).expect("the end can be told");
    assert!(receive().is_empty(), "no datagram but those counted");
    assert_eq!(line.octets, datagrams.iter().map(|datagram| datagram.len() as u64).sum::<u64>());
    (line, datagrams)
}

fn sum<'a>(flows: impl IntoIterator<Item = &'a FlowRecord>) -> RecordTotals {
    let mut records = RecordTotals::default();
    flows.into_iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
    records
}

fn uniflow() -> ExportOptions {
    ExportOptions { uniflow: true, ..ExportOptions::default() }
}
