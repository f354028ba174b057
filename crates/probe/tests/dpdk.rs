//! Flows of packets that came through DPDK, beside those of the same packets from a file. Only with the feature `dpdk`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_capture::{Input, Source};
use weir_export::Sink;
use weir_flow::FlowRecord;
use weir_ledger::{Ledger, RecordTotals, SinkCounters};
use weir_probe::{BackPressure, CpuAffinity, Exporter, Pipeline, Settings};

/// Longer than any of this takes anywhere.
const LONG: Duration = Duration::from_secs(120);

/// Keeps every record.
#[derive(Default)]
struct Kept {
    line: SinkCounters,
    flows: Arc<Mutex<Vec<FlowRecord>>>,
}

impl Sink for Kept {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
        for flow in flows {
            self.line.exported.merge(RecordTotals { flows: 1, packets: flow.packets(), bytes: flow.frame_bytes() });
        }
        self.flows.lock().expect("no sink panics").extend_from_slice(flows);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), weir_export::Error> {
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.line
    }
}

/// What a record says that does not depend on when its packets came.
fn essence(flow: &FlowRecord) -> String {
    let [there, back] = [&flow.forward, &flow.reverse]
        .map(|way| (way.packets, way.bytes, way.frame_bytes, way.tcp_flags, way.vlan, way.ttl_min, way.size_squares));
    let addresses = (flow.network, flow.source, flow.destination);
    format!("{addresses:?} {} {} {} {there:?} {back:?}", flow.protocol, flow.source_port, flow.destination_port)
}

/// Meters a source until it ends, or has handed over so many packets and is told to stop.
fn meter(mut source: Input<'_>, packets: u64) -> (Vec<String>, Ledger) {
    let kept = Kept::default();
    let flows = kept.flows.clone();
    let mut exporter = Exporter::new(vec![Box::new(kept)], CpuAffinity::default(), BackPressure::Block)
        .expect("a thread can be started");
    let mut pipeline = Pipeline::new(Settings::default(), exporter.handle()).expect("there is memory");
    let deadline = Instant::now() + LONG;
    while pipeline.process_burst(&mut source).expect("it is whole") {
        let received = pipeline.account().ledger.packets.received;
        assert!(Instant::now() < deadline, "{received} of {packets}");
        if received == packets {
            source.live().into_iter().for_each(|live| live.stop());
        }
    }
    let account = pipeline.finish();
    exporter.finish();
    assert!(exporter.take_errors().is_empty());
    let ledger = exporter.ledger([account]);
    let mut flows: Vec<String> = flows.lock().expect("no sink panics").iter().map(essence).collect();
    flows.sort();
    (flows, ledger)
}

fn packets_of(file: &Path) -> u64 {
    let (mut source, mut packets) = (weir_capture::open(file).expect("it is shipped"), 0);
    while let Some(burst) = source.burst().expect("it is whole") {
        packets += burst.len() as u64;
    }
    packets
}

#[test]
fn flows_through_dpdk_are_those_of_the_file_and_the_account_balances() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    // Captures in which no flow ends by time: the packets come at once here.
    let files: Vec<PathBuf> = ["web", "tls", "ssh", "vlan", "qinq", "mpls", "6in4", "vxlan", "sctp"]
        .iter()
        .map(|name| folder.join(name).with_extension("pcap"))
        .collect();
    let arguments: String = files.iter().map(|file| format!(";rx_pcap={}", file.display())).collect();
    let queues = format!("dpdk:net_pcap0{arguments},queues={},descriptors=512,hugepages=off", files.len());
    let queues = weir_capture::open_live(&queues).expect("DPDK is here");
    assert_eq!(queues.len(), files.len());
    for (file, queue) in files.iter().zip(queues) {
        let packets = packets_of(file);
        let (expected, of_the_file) = meter(Input::File(weir_capture::open(file).expect("it is shipped")), packets);
        let (found, ledger) = meter(Input::Live(queue), packets);
        assert_eq!(found, expected, "{}", file.display());
        assert_eq!(ledger.packets, of_the_file.packets, "{}", file.display());
        assert_eq!(ledger.bytes, of_the_file.bytes, "{}", file.display());
        assert!(ledger.balanced(), "{:?}", ledger.check());
        assert_eq!((ledger.packets.received, ledger.packets.dropped_nic), (packets, 0));
    }
}
