//! Flow records of packets received through DPDK match those of the same packets read from a file.
//! Needs the feature `dpdk`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_capture::Input;
use weir_export::Sink;
use weir_flow::FlowRecord;
use weir_ledger::{Ledger, RecordTotals, SinkCounters};
use weir_probe::{BackPressure, CpuAffinity, Exporter, Pipeline, Settings};

/// Longer than this test takes on any machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Keeps every record.
#[derive(Default)]
struct MemorySink {
    counters: SinkCounters,
    records: Arc<Mutex<Vec<FlowRecord>>>,
}

impl Sink for MemorySink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
        for flow in flows {
            self.counters.exported.merge(RecordTotals { flows: 1, packets: flow.packets(), bytes: flow.frame_bytes() });
        }
        self.records.lock().expect("no sink panics").extend_from_slice(flows);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), weir_export::Error> {
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

/// The fields of a record that do not depend on the arrival times of its packets.
fn without_times(flow: &FlowRecord) -> String {
    let [forward, reverse] = [&flow.forward, &flow.reverse].map(|side| {
        (side.packets, side.bytes, side.frame_bytes, side.tcp_flags, side.vlan, side.ttl_min, side.size_squares)
    });
    let addresses = (flow.network, flow.source, flow.destination);
    format!("{addresses:?} {} {} {} {forward:?} {reverse:?}", flow.protocol, flow.source_port, flow.destination_port)
}

/// Meters a source. Stops it after a number of packets.
fn meter(mut source: Input<'_>, packets: u64) -> (Vec<String>, Ledger) {
    let sink = MemorySink::default();
    let records = sink.records.clone();
    let mut exporter = Exporter::new(vec![Box::new(sink)], CpuAffinity::default(), BackPressure::Block)
        .expect("a thread can be started");
    let mut pipeline = Pipeline::new(Settings::default(), exporter.handle()).expect("enough memory");
    let deadline = Instant::now() + TIMEOUT;
    while pipeline.process_burst(&mut source).expect("the capture is not damaged") {
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
    let mut records: Vec<String> = records.lock().expect("no sink panics").iter().map(without_times).collect();
    records.sort();
    (records, ledger)
}

#[test]
fn records_through_dpdk_match_those_from_file_and_the_ledger_balances() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    // Captures in which no flow times out: DPDK delivers the packets without their gaps.
    let files: Vec<PathBuf> = ["web", "tls", "ssh", "vlan", "qinq", "mpls", "6in4", "vxlan", "sctp"]
        .iter()
        .map(|name| folder.join(name).with_extension("pcap"))
        .collect();
    let arguments: String = files.iter().map(|file| format!(";rx_pcap={}", file.display())).collect();
    let queues = format!("dpdk:net_pcap0{arguments},queues={},descriptors=512,hugepages=off", files.len());
    let queues = weir_capture::open_live(&queues).expect("DPDK is installed");
    assert_eq!(queues.len(), files.len());
    for (file, queue) in files.iter().zip(queues) {
        let source = weir_capture::open(file).expect("the capture is in the repository");
        let (expected, from_file) = meter(Input::File(source), u64::MAX);
        let packets = from_file.packets.received;
        let (found, ledger) = meter(Input::Live(queue), packets);
        assert_eq!(found, expected, "{}", file.display());
        assert_eq!(ledger.packets, from_file.packets, "{}", file.display());
        assert_eq!(ledger.bytes, from_file.bytes, "{}", file.display());
        assert!(ledger.balanced(), "{:?}", ledger.check());
        assert_eq!((ledger.packets.received, ledger.packets.dropped_nic), (packets, 0));
    }
}
