//! The report about captures, and the analysis that makes it.
//!
//! In: TCP packets in the order of the capture. Out: a [`CaptureReport`].

use crate::comparison::Comparison;
use crate::connection::Connection;
use crate::connection_table::{FAILED, ListColumn, OTHERS};
use crate::endpoint_pairs::EndpointPairs;
use crate::failure_groups::{FailureGroup, group_failures};
use crate::findings::{Finding, find};
use crate::group_table::GroupOrder;
use crate::groups::{EndNames, Group, GroupBy, NetworkNames, for_each_group};
use crate::ranking::{SortOrder, rank};
use crate::reader::{PacketConsumer, PacketCounts};
use crate::time_line::TimeLines;
use crate::totals::Totals;
use std::ops::Range;
use weir_flow::FlowRecord;
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
    /// Connections that were not selected, and their packets.
    pub not_selected: [u64; 2],
    /// All others, ranked: first those that failed, of which those in groups come last.
    pub connections: Vec<Connection>,
    /// How many of them failed.
    pub failed: usize,
    /// How many of those are in no group.
    pub ungrouped: usize,
    /// The groups of those that are in one.
    pub failure_groups: Vec<FailureGroup>,
    /// What is unusual.
    pub findings: Vec<Finding>,
    /// The groups of [`ReportOptions::grouping`], in their order.
    pub groups: Vec<Group>,
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
#[derive(Clone)]
pub struct ReportOptions {
    /// Names of the sources.
    pub sources: Vec<String>,
    /// What the connections are ranked by.
    pub sort: SortOrder,
    /// Connections of fewer packets are ranked last.
    pub min_packets: u64,
    /// Failed connections, and others, that text and HTML list at most; 0 for all.
    pub top: usize,
    /// Failed connections of one source with many targets, or of one target with many sources, are
    /// listed as one.
    pub group_failures: bool,
    /// The sums that are wanted.
    pub grouping: Option<Grouping>,
    /// Names that networks have in these sums.
    pub network_names: Option<NetworkNames>,
    /// Names beside clients and servers.
    pub end_names: Option<EndNames>,
}

/// Sums over connections, instead of lists of them.
#[derive(Clone, Copy, Debug)]
pub struct Grouping {
    /// What connections are grouped by.
    pub by: GroupBy,
    /// The order of the groups.
    pub order: GroupOrder,
}

/// Whether a connection, as a record, is selected.
pub type RecordTest<'a> = &'a dyn Fn(&FlowRecord) -> bool;

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
    /// The indices of the connections of a part.
    pub(crate) fn part(&self, part: Part) -> Range<usize> {
        match part {
            Part::Failed => 0..self.ungrouped,
            Part::Others => self.failed..self.connections.len(),
        }
    }

    /// The indices of the listed connections of a part.
    pub(crate) fn listed(&self, part: Part) -> Range<usize> {
        let Range { start, end } = self.part(part);
        start..self.limited(end - start) + start
    }

    /// A number of rows, at most `top`.
    pub(crate) fn limited(&self, rows: usize) -> usize {
        if self.options.top == 0 { rows } else { rows.min(self.options.top) }
    }

    /// Completes the ledger: `all` connections were analysed, and these packets and bytes left out.
    fn account(&mut self, all: u64, left_out: [u64; 2]) {
        let ledger = &mut self.counts.ledger;
        let [packets, bytes] = left_out;
        (ledger.packets.dropped_cache_full, ledger.bytes.dropped_cache_full) = (packets, bytes);
        ledger.packets.metered -= packets;
        ledger.bytes.metered -= bytes;
        ledger.flows_created = all;
        // What `PacketSums` has may differ a little from the connections of the engine: the rest counts
        // as not selected.
        let is_all = self.totals.connections == all;
        let selected = self.connections.iter().map(|connection| connection.sums.frame_bytes).sum();
        let bytes = if is_all { ledger.bytes.metered } else { ledger.bytes.metered.min(selected) };
        let exported = RecordTotals { flows: self.totals.connections, packets: self.totals.packets, bytes };
        let metered = RecordTotals { flows: all, packets: ledger.packets.metered, bytes: ledger.bytes.metered };
        let filtered = if is_all { RecordTotals::default() } else { metered.saturating_sub(exported) };
        self.not_selected = [filtered.flows, filtered.packets];
        ledger.sinks.push(SinkCounters { sink: "connections".into(), exported, filtered, ..SinkCounters::default() });
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

    /// Ends all connections, and ranks those that are selected; without a test, all.
    pub fn finish(
        self,
        counts: PacketCounts,
        options: ReportOptions,
        is_selected: Option<RecordTest>,
    ) -> CaptureReport {
        let Self { engine, mut ended, mut connections, pairs, comparison, left_out } = self;
        let name = engine.name().to_string();
        let engine_counters = engine.finish(&mut ended);
        connections.extend(ended.into_iter().map(|record| Connection::new(record, &pairs)));
        drop(pairs);
        connections.sort_by_key(|connection| (connection.first_ns, connection.client, connection.server));
        (1..).zip(&mut connections).for_each(|(number, connection)| connection.number = number);
        let all = connections.len();
        if let Some(is_selected) = is_selected {
            connections.retain(|connection| is_selected(&connection.to_flow_record()));
        }
        let failure_groups = if options.group_failures { group_failures(&mut connections) } else { Vec::new() };
        let failed = rank(&mut connections, options.sort, options.min_packets);
        let ungrouped = connections[..failed].partition_point(|connection| !connection.is_grouped);
        let totals = Totals::new(&connections);
        let mut report = CaptureReport {
            options,
            engine: name,
            engine_counters,
            counts,
            totals,
            not_selected: [0; 2],
            connections,
            failed,
            ungrouped,
            failure_groups,
            findings: Vec::new(),
            groups: Vec::new(),
            comparison,
            time_lines: TimeLines::default(),
        };
        report.account(all as u64, left_out);
        report.findings = find(&report.connections, &report.totals, &report.failure_groups);
        if let Some(Grouping { by, order }) = report.options.grouping {
            let mut groups = Vec::new();
            for_each_group(&report.connections, by, report.options.network_names.as_ref(), |group| {
                groups.push(group.clone())
            });
            order.sort(&mut groups);
            report.groups = groups;
        }
        report
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
