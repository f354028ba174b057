//! Packets in, the report of a run out.

use crate::client::Clients;
use crate::comparison::Comparison;
use crate::connection::Connection;
use crate::ranking::{self, SortOrder};
use crate::reader::{PacketConsumer, PacketCounts};
use crate::totals::{self, Totals};
use weir_ledger::{RecordTotals, SinkCounters};
use weir_packet::Packet;
use weir_tcp_batch::{ConnectionRecord, Engine, EngineCounters};

/// Everything that a run found.
pub struct CaptureReport {
    /// Names of the sources.
    pub sources: Vec<String>,
    /// Name of the processor or of the GPUs that analysed the packets.
    pub engine: String,
    /// What the engine did.
    pub engine_counters: EngineCounters,
    /// What became of all packets.
    pub counts: PacketCounts,
    /// Sums over all connections.
    pub totals: Totals,
    /// All connections, ranked.
    pub connections: Vec<Connection>,
    /// The comparison with the usual rule.
    pub comparison: Option<Comparison>,
    /// What the connections are ranked by.
    pub sort: SortOrder,
    /// Connections of fewer packets are ranked last.
    pub min_packets: u64,
    /// Connections that text and page list.
    pub top: usize,
}

/// How connections are ranked, and how many of them text and page list.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Names of the sources.
    pub sources: Vec<String>,
    /// What the connections are ranked by.
    pub sort: SortOrder,
    /// Connections of fewer packets are ranked last. `None` is the default of the order.
    pub min_packets: Option<u64>,
    /// Connections that are listed. 0 for all.
    pub top: usize,
}

/// Follows the connections of a run.
pub struct Analysis {
    engine: Engine,
    done: Vec<ConnectionRecord>,
    /// Those that have ended.
    connections: Vec<Connection>,
    clients: Clients,
    comparison: Option<Comparison>,
    /// Packets of connections beyond the limit, and their octets on the wire.
    left_out: [u64; 2],
}

impl CaptureReport {
    /// The connections at the top of the ranking.
    pub fn listed(&self) -> &[Connection] {
        &self.connections[..self.top.min(self.connections.len())]
    }

    /// What limits the figures: one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.totals.warnings(self.counts.without_ports, self.left_out())
    }

    /// Packets of connections beyond the limit.
    pub fn left_out(&self) -> u64 {
        self.counts.ledger.packets.dropped_table_full
    }

    /// The warning about packets of connections beyond the limit, if there are any.
    pub fn incomplete(&self) -> Option<String> {
        (self.left_out() > 0).then(|| totals::incomplete(self.left_out(), self.totals.connections))
    }
}

impl Analysis {
    /// Creates an analysis of at most `max_connections` connections, with a comparison with the usual rule or without.
    pub fn new(engine: Engine, max_connections: usize, compare: bool) -> Self {
        Self {
            engine,
            done: Vec::new(),
            connections: Vec::new(),
            clients: Clients::at_most(max_connections),
            comparison: compare.then(Comparison::default),
            left_out: [0; 2],
        }
    }

    fn hand_on(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        self.engine.enter(packets, &mut self.done);
        if let Some(comparison) = &mut self.comparison {
            comparison.consume(packets, frame_numbers);
        }
    }

    /// Ends all connections, and ranks them.
    pub fn finish(self, mut counts: PacketCounts, options: ReportOptions) -> CaptureReport {
        let Self { engine, mut done, mut connections, clients, comparison, left_out } = self;
        let name = engine.name().to_string();
        let engine_counters = engine.finish(&mut done);
        connections.extend(done.into_iter().map(|conversation| Connection::of(conversation, &clients)));
        drop(clients);
        let min_packets = options.min_packets.unwrap_or(options.sort.default_min_packets());
        ranking::sort(&mut connections, options.sort, min_packets);
        let totals = Totals::of(&connections);
        let ledger = &mut counts.ledger;
        let [packets, octets] = left_out;
        (ledger.packets.dropped_table_full, ledger.bytes.dropped_table_full) = (packets, octets);
        ledger.packets.metered -= packets;
        ledger.bytes.metered -= octets;
        ledger.flows_created = totals.connections;
        let mut line = SinkCounters { sink: "connections".into(), ..SinkCounters::default() };
        // Of a connection packets are known, and octets of payload, but not of frames.
        line.exported =
            RecordTotals { flows: totals.connections, packets: totals.packets, bytes: ledger.bytes.metered };
        ledger.sinks.push(line);
        CaptureReport {
            sources: options.sources,
            engine: name,
            engine_counters,
            counts,
            totals,
            connections,
            comparison,
            sort: options.sort,
            min_packets,
            top: if options.top == 0 { usize::MAX } else { options.top },
        }
    }
}

impl PacketConsumer for Analysis {
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        let mut from = 0;
        for (at, packet) in packets.iter().enumerate() {
            if !self.clients.enter(packet) {
                self.left_out[0] += 1;
                self.left_out[1] += u64::from(packet.frame_bytes);
                self.hand_on(&packets[from..at], &frame_numbers[from..at]);
                from = at + 1;
            }
        }
        self.hand_on(&packets[from..], &frame_numbers[from..]);
        self.connections.extend(self.done.drain(..).map(|conversation| Connection::of(conversation, &self.clients)));
    }
}
