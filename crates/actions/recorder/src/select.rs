//! Which frames of a source belong to the flows that are searched.
//!
//! ```text
//! meter   -> records that match -> flows and the times of their records    (if the query needs it)
//! frame   -> its flow -> selected by its key, or by a record at its time
//! ```
//! The meter has its default settings. A later fragment belongs to the flow of its first fragment, by
//! the rules of the meter (docs/metering.md, section 4): it follows within 30 s.

use crate::flow_key::{FlowKey, decode_frame};
use crate::query::{Classifier, Query, Verdict, Wanted};
use ahash::AHashMap;
use std::io;
use weir_capture::{Burst, Frame, MAX_BURST_FRAMES};
use weir_flow::{Approximate, Config, FlowRecord, Meter, NoFollower, Payloads};
use weir_packet::{DecodeOptions, Flags, Network, Packet, payload};

/// First fragments that are stored, and for how long.
const MAX_FRAGMENTS: usize = 1 << 16;
const FRAGMENT_TIMEOUT_NS: u64 = 30_000_000_000;

/// The times of the records that match, by flow.
#[derive(Debug, Default)]
pub struct SelectedRecords {
    times: AHashMap<FlowKey, Vec<[u64; 2]>>,
    /// Records that match.
    pub records: u64,
    /// Records that match and sum several flows, because the flow cache was full: their packets are
    /// not found.
    pub overflow_records: u64,
}

/// Meters frames, and selects the records that match.
pub struct RecordSearch {
    query: Query,
    meter: Meter,
    ended: Vec<FlowRecord>,
    packets: Box<[Packet; MAX_BURST_FRAMES]>,
    selected: SelectedRecords,
}

struct BurstPayloads<'a> {
    frames: &'a [&'a Frame<'a>],
}

impl Payloads for BurstPayloads<'_> {
    const AVAILABLE: bool = true;

    fn payload(&self, index: usize, packet: &Packet) -> (&[u8], u32) {
        let frame = self.frames.get(index);
        frame.map_or((&[], 0), |frame| payload(frame.link_type, frame.bytes, packet, DecodeOptions::default()))
    }
}

impl RecordSearch {
    /// Takes the memory of a meter with this configuration.
    ///
    /// # Errors
    /// The system has too little memory.
    pub fn new(query: &Query, config: Config) -> io::Result<Self> {
        Ok(Self {
            query: query.clone(),
            meter: Meter::new(config)?,
            ended: Vec::new(),
            packets: Box::new([Packet::default(); MAX_BURST_FRAMES]),
            selected: SelectedRecords::default(),
        })
    }

    /// Meters a burst.
    pub fn add(&mut self, burst: &Burst<'_>) {
        let mut frames = Vec::with_capacity(burst.len());
        for frame in burst {
            if decode_frame(frame, &mut self.packets[frames.len()]).is_some() {
                frames.push(frame);
            }
        }
        let packets = &self.packets[..frames.len()];
        self.meter.process_with(packets, &BurstPayloads { frames: &frames }, &mut NoFollower, &mut self.ended);
        self.select();
    }

    fn select(&mut self) {
        let Wanted::Records(expression) = &self.query.wanted else { return };
        for record in self.ended.drain(..).filter(|record| expression.matches(record)) {
            self.selected.records += 1;
            match FlowKey::of_record(&record) {
                Some(key) if !record.approximate.has(Approximate::OVERFLOW) => {
                    self.selected.times.entry(key).or_default().push([record.start_ns(), record.end_ns()]);
                }
                _ => self.selected.overflow_records += 1,
            }
        }
    }

    /// Ends all records.
    pub fn finish(mut self) -> SelectedRecords {
        self.meter.drain(&mut self.ended);
        self.select();
        self.selected
    }
}

/// A datagram: source, destination, identification, protocol, network.
type Datagram = ([u8; 16], [u8; 16], u32, u8, Network);

/// Selects frames.
pub struct FrameSelector {
    classifier: Classifier,
    selects_all: bool,
    records: SelectedRecords,
    first_fragments: AHashMap<Datagram, (FlowKey, u64)>,
    packet: Packet,
}

impl FrameSelector {
    /// `records` are those of a [`RecordSearch`], if the query needs it.
    pub fn new(query: &Query, records: SelectedRecords) -> Self {
        Self {
            classifier: Classifier::new(query),
            selects_all: query.wanted == Wanted::Everything,
            records,
            first_fragments: AHashMap::new(),
            packet: Packet::default(),
        }
    }

    /// Whether a frame belongs to a flow that is searched. Frames come in the order of their source.
    pub fn selects(&mut self, frame: &Frame<'_>) -> bool {
        if self.selects_all {
            return true;
        }
        let Some(key) = decode_frame(frame, &mut self.packet) else { return false };
        let key = self.flow_of_fragment(key);
        match self.classifier.verdict(&key) {
            Verdict::All => true,
            Verdict::None => false,
            Verdict::Unknown => self
                .records
                .times
                .get(&key)
                .is_some_and(|times| times.iter().any(|[first, last]| (*first..=*last).contains(&frame.time_ns))),
        }
    }

    /// The flow of a packet: for a later fragment, that of its first one.
    fn flow_of_fragment(&mut self, key: FlowKey) -> FlowKey {
        let Packet { source, destination, identification, protocol, network, flags, time_ns, .. } = self.packet;
        let datagram = (source, destination, identification, protocol, network);
        if flags.has(Flags::FRAGMENT_FIRST) {
            if self.first_fragments.len() >= MAX_FRAGMENTS {
                self.first_fragments.retain(|_, (_, since)| time_ns.saturating_sub(*since) < FRAGMENT_TIMEOUT_NS);
                if self.first_fragments.len() >= MAX_FRAGMENTS {
                    self.first_fragments.clear();
                }
            }
            self.first_fragments.insert(datagram, (key, time_ns));
        } else if flags.has(Flags::FRAGMENT_LATER)
            && let Some((first, since)) = self.first_fragments.get(&datagram)
            && time_ns.saturating_sub(*since) < FRAGMENT_TIMEOUT_NS
        {
            return *first;
        }
        key
    }
}
