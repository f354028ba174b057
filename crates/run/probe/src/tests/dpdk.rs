//! Flow records of packets received through DPDK match those of the same packets read from a file.
//! Needs the feature `dpdk`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_capture::{Input, LiveSpec};
use weir_egress::{Balance, Egress, OutputSettings, OutputSpec};
use weir_export::Sink;
use weir_flow::FlowRecord;
use weir_ledger::{Ledger, RecordTotals, SinkCounters};
use weir_probe::{BackPressure, CpuAffinity, Exporter, PacketActions, Pipeline, Settings};
use weir_rules::Rules;

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
    let mut exporter =
        Exporter::new(vec![Box::new(sink)], CpuAffinity::default(), BackPressure::Block, &Settings::default())
            .expect("a thread can be started");
    let mut pipeline = Pipeline::new(Settings::default(), exporter.handle(), None).expect("enough memory");
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures");
    // Captures in which no flow times out: DPDK delivers the packets without their gaps.
    let files: Vec<PathBuf> = ["web", "tls", "ssh", "vlan", "qinq", "mpls", "6in4", "vxlan", "sctp"]
        .iter()
        .map(|name| folder.join(name).with_extension("pcap"))
        .collect();
    let arguments: String = files.iter().map(|file| format!(";rx_pcap={}", file.display())).collect();
    let queues = format!("dpdk:net_pcap0{arguments},queues={},descriptors=512,hugepages=off", files.len());
    let queues = queues.parse::<LiveSpec>().and_then(|live| live.open()).expect("DPDK is installed");
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

#[test]
fn packets_go_through_dpdk_from_port_to_port_by_rules() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let [whole, cut] = ["whole.pcap", "cut.pcap"].map(|name| folder.path().join(name));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures/web.pcap");
    let frames = |file: &Path| {
        let mut source = weir_capture::open(file).expect("it is a capture");
        let mut frames: Vec<Vec<u8>> = Vec::new();
        while let Some(burst) = source.burst().expect("it is whole") {
            frames.extend(burst.iter().map(|frame| frame.bytes.to_vec()));
        }
        frames
    };
    let rules = "[egress.whole]\noutputs = ['x']\n[egress.cut]\noutputs = ['y']\n[default]\nto = 'whole'\n\
                 [[network]]\nwhere = 'port 80'\nto = 'cut'\nslice = 'l4'\n";
    let rules = Rules::new(rules).unwrap_or_else(|error| panic!("{error:?}"));
    let egress = |device: &str, file: &Path| {
        let output: OutputSpec = format!("dpdk:{device};tx_pcap={},descriptors=256,hugepages=off", file.display())
            .parse()
            .expect("an output");
        let outputs =
            weir_egress::open(&output, &[], 1, &OutputSettings::default()).unwrap_or_else(|error| panic!("{error}"));
        Egress::new(outputs, Balance::default(), 0)
    };
    let source = format!("dpdk:net_pcap_from;rx_pcap={},descriptors=512,hugepages=off", file.display());
    let source = source.parse::<LiveSpec>().and_then(|live| live.open()).expect("DPDK is installed").remove(0);
    let egresses: Vec<Egress> = rules
        .egresses
        .iter()
        .map(|of| if of.name == "cut" { egress("net_pcap_cut", &cut) } else { egress("net_pcap_whole", &whole) })
        .collect();
    let actions = PacketActions::new(Arc::new(rules), egresses);
    let expected = frames(&file);
    let mut exporter = Exporter::new(
        vec![Box::new(MemorySink::default())],
        CpuAffinity::default(),
        BackPressure::Block,
        &Settings::default(),
    )
    .expect("a thread can be started");
    let mut pipeline = Pipeline::new(Settings::default(), exporter.handle(), Some(actions)).expect("enough memory");
    let (mut source, deadline) = (Input::Live(source), Instant::now() + TIMEOUT);
    while pipeline.process_burst(&mut source).expect("it goes on") {
        assert!(Instant::now() < deadline);
        if pipeline.account().ledger.packets.received == expected.len() as u64 {
            source.live().into_iter().for_each(|live| live.stop());
        }
    }
    let account = pipeline.finish();
    exporter.finish();
    let ledger = exporter.ledger([account]);
    assert!(ledger.balanced(), "{:?}", ledger.check());
    // The files are complete when the ports are closed.
    drop(pipeline);
    let [whole, cut] = [&whole, &cut].map(|file| frames(file));
    assert!(!whole.is_empty() && cut.len() > 100, "{} {}", whole.len(), cut.len());
    let actions = ledger.actions.expect("there are rules");
    assert_eq!(actions.forwarded.packets, expected.len() as u64);
    for output in &actions.outputs {
        let frames = if output.output.contains("cut") { &cut } else { &whole };
        assert_eq!(output.sent.packets, frames.len() as u64, "{}", output.output);
    }
    let (mut whole, mut cut, mut shorter) = (whole.iter().peekable(), cut.iter().peekable(), 0);
    for frame in &expected {
        if whole.next_if(|sent| *sent == frame).is_none() {
            let sent = cut.next_if(|sent| frame.starts_with(sent)).expect("each packet was sent, in its order");
            shorter += u32::from(sent.len() < frame.len());
        }
    }
    assert!(whole.next().is_none() && cut.next().is_none() && shorter > 10, "{shorter}");
}
