//! Flow records in a topic of Kafka: a message for each record, protobuf or JSON.

mod in_hand;
mod output;
mod queued_flow;
#[cfg(test)]
mod tests;
mod transaction;
mod transaction_state;

pub(crate) use output::{Destination, KafkaOutput};
pub(crate) use queued_flow::QueuedFlow;

use crate::json_csv::append_part;
use crate::pending_records::PendingRecords;
use crate::protobuf::{MessageContext, MessageEncoder};
use crate::sink::{Error, ExportOptions, Intake, Sink};
use crate::unidirectional::unidirectional;
use crate::watch::Watch;
use queued_flow::Messages;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_fields::Column;
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// What a message is.
pub(crate) enum MessageFormat {
    /// A direction of a flow.
    Protobuf(MessageEncoder),
    /// A flow, or with `--uniflow` a direction.
    Json(Vec<&'static Column>),
}

pub(crate) struct KafkaSink {
    format: MessageFormat,
    /// The name of the probe, or nothing.
    probe: String,
    uniflow: bool,
    /// Identifies this run of the sink.
    run: u64,
    batches: u64,
    /// Number of messages, which they have.
    sequence: u32,
    /// The messages of a flow.
    octets: Vec<u8>,
    values: Vec<Range<usize>>,
    output: KafkaOutput,
    counters: SinkCounters,
}

impl KafkaSink {
    pub fn new(
        sink: &str,
        output: KafkaOutput,
        format: MessageFormat,
        probe: Option<String>,
        options: &ExportOptions,
    ) -> Self {
        Self {
            format,
            probe: probe.unwrap_or_default(),
            uniflow: options.uniflow,
            run: RandomState::new().build_hasher().finish(),
            batches: 0,
            sequence: 0,
            octets: Vec::new(),
            values: Vec::new(),
            output,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        }
    }

    /// Encodes the messages of a flow.
    fn encode(&mut self, flow: &FlowRecord, time_ns: u64) {
        self.octets.clear();
        self.values.clear();
        let mut start = 0;
        match &mut self.format {
            MessageFormat::Json(columns) if !self.uniflow => append_part(columns, flow, flow, &mut self.octets),
            MessageFormat::Json(columns) => {
                for (part, _) in unidirectional(flow) {
                    append_part(columns, &part, flow, &mut self.octets);
                    self.values.push(start..self.octets.len());
                    start = self.octets.len();
                }
                return;
            }
            MessageFormat::Protobuf(encoder) => {
                for (part, is_reverse) in unidirectional(flow) {
                    let context = MessageContext { time_ns, sequence: self.sequence, is_reverse };
                    self.sequence = self.sequence.wrapping_add(1);
                    encoder.append(&part, context, &mut self.octets);
                    self.values.push(start..self.octets.len());
                    start = self.octets.len();
                }
                return;
            }
        }
        self.values.push(start..self.octets.len());
    }
}

impl Sink for KafkaSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        self.output.connect(&mut self.counters);
        let batch = format!("{:016x}-{}", self.run, self.batches);
        self.batches += 1;
        let time_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let start = Instant::now();
        for flow in flows {
            self.encode(flow, time_ns);
            let key = key(flow).to_be_bytes();
            let (batch, probe) = (batch.as_bytes(), self.probe.as_bytes());
            let messages = Messages { key: &key, batch, probe, octets: &self.octets, values: &self.values };
            let pending = PendingRecords::of_flow(flow, self.values.len() as u64);
            self.output.send(&messages, pending, start, &mut self.counters);
        }
        self.output.settle(&mut self.counters);
        Ok(())
    }

    fn connect(&mut self) -> bool {
        self.output.connect(&mut self.counters);
        false
    }

    fn tick(&mut self) {
        self.output.tick(&mut self.counters);
    }

    fn drain(&mut self, _flows: u64, until: Instant) {
        self.output.drain(until);
    }

    fn watch(&mut self, watch: &Watch) {
        self.output.watch(watch);
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.output.finish(&mut self.counters);
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn intake(&self) -> Option<Intake> {
        Some(self.output.intake())
    }
}

/// A hash of addresses, ports and protocol, the same for both directions, probes and runs (FNV-1a of 64 bits).
fn key(flow: &FlowRecord) -> u64 {
    let mut ends = [(flow.source, flow.source_port), (flow.destination, flow.destination_port)];
    ends.sort_unstable();
    let octets = ends.iter().flat_map(|(address, port)| address.iter().copied().chain(port.to_be_bytes()));
    let hash = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    octets.chain([flow.protocol]).fold(0xcbf2_9ce4_8422_2325, hash)
}
