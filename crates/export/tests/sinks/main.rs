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
use weir_flow::Flow;
use weir_ledger::{Records, SinkLine};

/// Gives flows to a sink and finishes it.
fn export(sink: &str, options: &ExportOptions, flows: &[Flow]) -> SinkLine {
    let mut sink = open(sink, options).expect("the sink opens");
    for batch in flows.chunks(100) {
        sink.write(batch).expect("the sink takes a batch");
    }
    sink.finish().expect("the sink finishes");
    sink.line().clone()
}

/// The same over loopback, with the datagrams that arrived.
fn send(scheme: &str, settings: &str, options: &ExportOptions, flows: &[Flow]) -> (SinkLine, Vec<Vec<u8>>) {
    let listener = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    listener.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    let sink = format!("{scheme}://{}{settings}", listener.local_addr().expect("it is bound"));
    let reader = std::thread::spawn(move || {
        let mut datagrams = Vec::new();
        let mut buffer = vec![0; 65_536];
        let mut silences = 0;
        // The first datagram may take a while, and the last is followed by silence.
        while silences < if datagrams.is_empty() { 20 } else { 2 } {
            match listener.recv(&mut buffer) {
                Ok(octets) => datagrams.push(buffer[..octets].to_vec()),
                Err(_) => silences += 1,
            }
        }
        datagrams
    });
    let line = export(&sink, options, flows);
    let datagrams = reader.join().expect("the reader reads");
    assert_eq!(line.messages, datagrams.len() as u64, "every datagram arrived");
    assert_eq!(line.octets, datagrams.iter().map(|datagram| datagram.len() as u64).sum::<u64>());
    (line, datagrams)
}

fn sum<'a>(flows: impl IntoIterator<Item = &'a Flow>) -> Records {
    let mut records = Records::default();
    flows.into_iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
    records
}

fn uniflow() -> ExportOptions {
    ExportOptions { uniflow: true, ..ExportOptions::default() }
}
