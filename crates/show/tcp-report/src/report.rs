//! The report about captures, and the analysis that makes it.
//!
//! In: TCP packets in the order of the capture. Out: a [`CaptureReport`].

use crate::comparison::Comparison;
use crate::connection::Connection;
use crate::connection_table::{FAILED, ListColumn, OTHERS};
use crate::endpoint_pairs::EndpointPairs;
use crate::ranking::{SortOrder, rank};
use crate::reader::{PacketConsumer, PacketCounts};
use crate::time_line::TimeLines;
use crate::totals::Totals;
use std::ops::Range;
use weir_ledger::{RecordTotals, SinkCounters};
use weir_packet::Packet;
use weir_tcp_batch::{ConnectionRecord, Engine, EngineCounters};

/// Connections, totals and counts of a run.
pub struct CaptureReport {
    /// How connections are ranked and listed.
    pub options: ReportOptions,
    /// Name of the CPU or of the GPUs that analysed the packets.
    pub engine: String,
    /// Counters of the batch engine.
    pub engine_counters: EngineCounters,
    /// What became of all packets.
    pub counts: PacketCounts,
    /// Sums over all connections.
    pub totals: Totals,
    /// All connections, ranked: first those that failed.
    pub connections: Vec<Connection>,
    /// How many of them failed.
    pub failed: usize,
    /// The comparison with the usual rule.
    pub comparison: Option<Comparison>,
    /// Time lines of listed connections, for the HTML page.
    pub time_lines: TimeLines,
}

/// A part of the ranking, with a list of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The connections that failed.
    Failed,
    /// All others.
    Others,
}

impl Part {
    /// Both parts, as ranked.
    pub const ALL: [Self; 2] = [Self::Failed, Self::Others];

    /// The columns of its list.
    pub fn columns(self) -> &'static [ListColumn] {
        match self {
            Self::Failed => FAILED,
            Self::Others => OTHERS,
        }
    }
}

/// How connections are ranked and listed.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Names of the sources.
    pub sources: Vec<String>,
    /// What the connections are ranked by.
    pub sort: SortOrder,
    /// Connections of fewer packets are ranked last.
    pub min_packets: u64,
    /// Failed connections, and others, that text and HTML list at most; 0 for all.
    pub top: usize,
}

/// An analysis in progress: packets in, a [`CaptureReport`] at the end.
pub struct Analysis {
    engine: Engine,
    /// Connections that ended in the last packets; empty between calls.
    ended: Vec<ConnectionRecord>,
    /// Connections that ended before.
    connections: Vec<Connection>,
    pairs: EndpointPairs,
    comparison: Option<Comparison>,
    /// Packets of connections beyond the limit, and their bytes on the wire.
    left_out: [u64; 2],
}

impl CaptureReport {
    /// The indices of the listed connections of a part.
    pub(crate) fn listed(&self, part: Part) -> Range<usize> {
        let (start, end) = match part {
            Part::Failed => (0, self.failed),
            Part::Others => (self.failed, self.connections.len()),
        };
        start..if self.options.top == 0 { end } else { end.min(start.saturating_add(self.options.top)) }
    }

    /// Packets of connections beyond the limit.
    pub fn left_out(&self) -> u64 {
        self.counts.ledger.packets.dropped_cache_full
    }
}

impl Analysis {
    /// Creates an analysis of at most `max_connections` connections. `compare` adds the comparison
    /// with the usual rule.
    pub fn new(engine: Engine, max_connections: usize, compare: bool) -> Self {
        Self {
            engine,
            ended: Vec::new(),
            connections: Vec::new(),
            pairs: EndpointPairs::with_limit(max_connections),
            comparison: compare.then(Comparison::default),
            left_out: [0; 2],
        }
    }

    /// Ends all connections, and ranks them.
    pub fn finish(self, mut counts: PacketCounts, options: ReportOptions) -> CaptureReport {
        let Self { engine, mut ended, mut connections, pairs, comparison, left_out } = self;
        let name = engine.name().to_string();
        let engine_counters = engine.finish(&mut ended);
        connections.extend(ended.into_iter().map(|record| Connection::new(record, &pairs)));
        drop(pairs);
        connections.sort_by_key(|connection| (connection.first_ns, connection.client, connection.server));
        (1..).zip(&mut connections).for_each(|(number, connection)| connection.number = number);
        let failed = rank(&mut connections, options.sort, options.min_packets);
        let totals = Totals::new(&connections);
        let ledger = &mut counts.ledger;
        let [packets, bytes] = left_out;
        (ledger.packets.dropped_cache_full, ledger.bytes.dropped_cache_full) = (packets, bytes);
        ledger.packets.metered -= packets;
        ledger.bytes.metered -= bytes;
        ledger.flows_created = totals.connections;
        // The engine counts packets and payload of a connection, but not the bytes of its frames.
        let exported = RecordTotals { flows: totals.connections, packets: totals.packets, bytes: ledger.bytes.metered };
        ledger.sinks.push(SinkCounters { sink: "connections".into(), exported, ..SinkCounters::default() });
        CaptureReport {
            options,
            engine: name,
            engine_counters,
            counts,
            totals,
            connections,
            failed,
            comparison,
            time_lines: TimeLines::default(),
        }
    }

    fn analyse(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        self.engine.enter(packets, &mut self.ended);
        if let Some(comparison) = &mut self.comparison {
            comparison.consume(packets, frame_numbers);
        }
    }
}

impl PacketConsumer for Analysis {
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        let mut from = 0;
        for (at, packet) in packets.iter().enumerate() {
            if !self.pairs.enter(packet) {
                self.left_out[0] += 1;
                self.left_out[1] += u64::from(packet.frame_bytes);
                self.analyse(&packets[from..at], &frame_numbers[from..at]);
                from = at + 1;
            }
        }
        self.analyse(&packets[from..], &frame_numbers[from..]);
        self.connections.extend(self.ended.drain(..).map(|record| Connection::new(record, &self.pairs)));
    }
}
