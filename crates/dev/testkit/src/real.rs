//! Runs the program's own pipeline over frames in memory and keeps its records.

use crate::RawFrame;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use weir_capture::{Burst, Error, Frame, Input, Progress, Source};
use weir_export::Sink;
use weir_flow::{FlowRecord, Meter};
use weir_ledger::{Ledger, PacketAnomaly, RefusalReason, SinkCounters};
use weir_packet::{AnomalySet, DecodeOptions, Flags, Packet, ip_address};
use weir_probe::{BackPressure, CpuAffinity, Exporter, Pipeline, Settings};

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every record, in the order of its end.
    pub flows: Vec<FlowRecord>,
    /// The ledger.
    pub ledger: Ledger,
    /// Errors of the source.
    pub damage: Vec<String>,
}

/// Meters frames, `burst` of them at a time (1 to [`weir_capture::MAX_BURST_FRAMES`]).
pub fn meter(frames: &[RawFrame], burst: usize, settings: Settings) -> Outcome {
    run(Input::File(Box::new(Memory { frames, burst })), settings)
}

/// Meters decoded packets, `burst` of them at a time.
pub fn meter_packets(packets: &[Packet], burst: usize, config: weir_flow::Config) -> (Vec<FlowRecord>, Meter) {
    let (mut meter, mut flows) = (Meter::new(config).expect("there is memory for it"), Vec::new());
    packets.chunks(burst).for_each(|burst| meter.process(burst, &mut flows));
    meter.drain(&mut flows);
    (flows, meter)
}

/// Meters a source to its end, continuing after damage.
pub fn run(mut source: Input<'_>, settings: Settings) -> Outcome {
    let flows = Arc::default();
    let counters = SinkCounters { sink: "memory".into(), ..SinkCounters::default() };
    let sink = MemorySink { flows: Arc::clone(&flows), counters };
    let mut exporter = Exporter::new(vec![Box::new(sink)], CpuAffinity::default(), BackPressure::Block, &settings)
        .expect("a thread can be started");
    let mut pipeline = Pipeline::new(settings, exporter.handle(), None).expect("there is memory for it");
    let mut damage = Vec::new();
    loop {
        match pipeline.process_burst(&mut source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => damage.push(error.to_string()),
        }
    }
    let account = pipeline.finish();
    exporter.finish();
    assert!(exporter.take_errors().is_empty(), "a sink in memory cannot fail");
    let ledger = exporter.ledger([account]);
    let flows = std::mem::take(&mut *flows.lock().expect("no holder of the lock panics"));
    Outcome { flows, ledger, damage }
}

/// Decodes a frame: its packet and its anomalies.
///
/// # Errors
/// The reason for refusing it.
pub fn decode(frame: &RawFrame, decapsulate: bool) -> Result<(Packet, Vec<PacketAnomaly>), RefusalReason> {
    decode_by(weir_packet::decode, frame, decapsulate)
}

/// The same with MAC addresses.
///
/// # Errors
/// As [`decode`].
pub fn decode_with_mac_addresses(
    frame: &RawFrame,
    decapsulate: bool,
) -> Result<(Packet, Vec<PacketAnomaly>), RefusalReason> {
    decode_by(weir_packet::decode_with_mac_addresses, frame, decapsulate)
}

type Decoder = fn(u16, &[u8], u32, DecodeOptions, &mut Packet) -> Result<AnomalySet, RefusalReason>;

fn decode_by(
    decoder: Decoder,
    frame: &RawFrame,
    decapsulate: bool,
) -> Result<(Packet, Vec<PacketAnomaly>), RefusalReason> {
    let mut packet = Packet { time_ns: frame.time_ns, interface: frame.interface, ..Packet::default() };
    let options = DecodeOptions { decapsulate };
    let anomalies = decoder(frame.link_type, &frame.bytes, frame.wire_bytes, options, &mut packet)?;
    Ok((packet, anomalies.iter().collect()))
}

/// Reads every frame of a capture, up to the first damage and beyond it.
///
/// # Panics
/// The capture cannot be opened.
pub fn capture(path: &Path) -> Vec<RawFrame> {
    frames(&mut *weir_capture::open(path).expect("every capture can be opened")).0
}

/// Reads every frame of a source, and its errors.
pub fn frames(source: &mut dyn Source) -> (Vec<RawFrame>, Vec<String>) {
    let (mut frames, mut damage) = (Vec::new(), Vec::new());
    loop {
        match source.burst() {
            Ok(Some(burst)) => frames.extend(burst.iter().map(RawFrame::from)),
            Ok(None) => return (frames, damage),
            Err(error) => damage.push(error.to_string()),
        }
    }
}

/// Address and port.
pub type End = (IpAddr, u16);

/// A TCP segment of a capture, tunnels not entered.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Number of its frame, from 1.
    pub frame: u64,
    /// Sender.
    pub from: End,
    /// Receiver.
    pub to: End,
    /// The decoded packet.
    pub packet: Packet,
}

impl Segment {
    /// Sorted endpoints of the connection, and the index of the sender.
    pub fn connection(&self) -> ((End, End), usize) {
        ((self.from.min(self.to), self.from.max(self.to)), usize::from(self.from > self.to))
    }
}

/// Reads every segment of a capture with a complete TCP header.
///
/// # Panics
/// The capture cannot be opened.
pub fn segments(path: &Path) -> Vec<Segment> {
    let mut segments = Vec::new();
    for (number, frame) in (1..).zip(capture(path)) {
        let Ok((packet, _)) = decode(&frame, false) else { continue };
        if packet.protocol != 6 || !packet.flags.has(Flags::TCP) {
            continue;
        }
        let end = |octets, port| (ip_address(packet.network, octets).expect("it is IP"), port);
        let (from, to) = (end(packet.source, packet.source_port), end(packet.destination, packet.destination_port));
        segments.push(Segment { frame: number, from, to, packet });
    }
    segments
}

struct Memory<'a> {
    frames: &'a [RawFrame],
    burst: usize,
}

impl Source for Memory<'_> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let (now, later) = self.frames.split_at(self.burst.min(self.frames.len()));
        self.frames = later;
        burst.extend(now.iter().map(|frame| Frame {
            bytes: &frame.bytes,
            time_ns: frame.time_ns,
            wire_bytes: frame.wire_bytes,
            link_type: frame.link_type,
            time_assumed: false,
            interface: frame.interface,
        }));
        Ok(!burst.is_empty())
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

struct MemorySink {
    flows: Arc<Mutex<Vec<FlowRecord>>>,
    counters: SinkCounters,
}

impl Sink for MemorySink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
        self.flows.lock().expect("no holder of the lock panics").extend_from_slice(flows);
        flows.iter().for_each(|flow| self.counters.exported.add(flow.packets(), flow.frame_bytes()));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), weir_export::Error> {
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}
