//! The segments of one flow, from one reading of a capture: its packets are collected first.
//!
//! In: the packets of a capture. Out: what [`CaptureReport::explain`] writes of one connection, with lines for its first
//! segments only. Memory: [`MAX_PACKETS`] packets; what comes after them is counted.

use super::{ExplainError, Pass};
use crate::ranking::SortOrder;
use crate::reader::{PacketConsumer, PacketCounts, TCP};
use crate::report::{Analysis, CaptureReport, ReportOptions};
use std::convert::Infallible;
use std::net::SocketAddr;
use weir_fields::community_id;
use weir_flow::FlowRecord;
use weir_packet::Packet;
use weir_tcp_batch::{Backend, ConnectionKey, DeviceError, Engine, EngineOptions};
use weir_text::{FlowText, units};

/// Packets that are collected: 128 octets each.
const MAX_PACKETS: usize = 1 << 17;
/// Packets of a batch of the engine. It takes memory for all of them.
const BATCH_PACKETS: usize = 1 << 14;
/// Packets that are replayed at once.
const BURST_PACKETS: usize = 256;

/// Why a text names no flow of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a flow of TCP; write its Community ID, or addresses and ports as in 192.0.2.1:40000-192.0.2.2:443")]
pub struct InvalidTcpFlow;

/// Which packets are wanted.
enum Wanted {
    Endpoints(ConnectionKey),
    /// A Community ID, until a packet has it.
    Id(String),
}

/// The packets of one flow of TCP, in the order of the capture.
pub struct FlowPackets {
    wanted: Wanted,
    packets: Vec<Packet>,
    frame_numbers: Vec<u64>,
    /// Packets beyond [`MAX_PACKETS`].
    beyond: u64,
    /// Frames have their number among those of the flow.
    numbers_alone: bool,
}

/// What was written of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Segments of the connection.
    pub segments: u64,
    /// Those of them without a line.
    pub left_out: u64,
}

/// Why the segments of a flow are not listed.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// No packet has its addresses and ports.
    #[error("no packet of this flow")]
    NoPackets,
    /// No connection of it is at this time.
    #[error("{} of these addresses and ports, at other times", units::count(*.0 as u64, "connection"))]
    OtherTimes(usize),
    /// Several connections, one after another, and no time.
    #[error("{0} connections of these addresses and ports, one after another; name a time within one of them")]
    Several(usize),
    /// The batch engine cannot start.
    #[error(transparent)]
    Engine(#[from] DeviceError),
    /// The segment list failed.
    #[error(transparent)]
    Explain(#[from] ExplainError<Infallible>),
}

impl FlowPackets {
    /// Collects the packets of a flow: its Community ID, or its ends, as [`FlowText`] reads them.
    ///
    /// # Errors
    /// The text is neither.
    pub fn new(flow: &str) -> Result<Self, InvalidTcpFlow> {
        let flow = flow.trim();
        let wanted = match flow.strip_prefix("1:") {
            Some(digest) if digest.len() == 28 => Wanted::Id(flow.into()),
            _ => Wanted::Endpoints(endpoints(flow).ok_or(InvalidTcpFlow)?),
        };
        Ok(Self { wanted, packets: Vec::new(), frame_numbers: Vec::new(), beyond: 0, numbers_alone: false })
    }

    /// From now on frames have their number among those of the flow, not among all that are read.
    pub fn number_alone(&mut self) {
        self.numbers_alone = true;
    }

    /// Packets that were not collected, because there are too many.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    fn is_wanted(&mut self, packet: &Packet) -> bool {
        let (key, _) = ConnectionKey::from_packet(packet);
        if let Wanted::Id(id) = &self.wanted
            && community_id(&record_of(packet)).is_some_and(|of_packet| of_packet == id.as_bytes())
        {
            self.wanted = Wanted::Endpoints(key);
        }
        matches!(&self.wanted, Wanted::Endpoints(wanted) if *wanted == key)
    }

    /// Writes the connection of a time, ns since 1970 UTC, segment by segment: a line for each of the first `most` ones,
    /// and the sums of all. Without a time there must be one connection. `counts` are those of the reader.
    ///
    /// # Errors
    /// There is no packet, no such connection, or too little memory.
    pub fn explain(
        self,
        counts: PacketCounts,
        at_ns: Option<u64>,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<Explained, FlowError> {
        if self.packets.is_empty() {
            return Err(FlowError::NoPackets);
        }
        let frames = counts.ledger.packets.received;
        let options = EngineOptions {
            backend: Backend::Cpu,
            batch_size: BATCH_PACKETS,
            max_anomalies: self.packets.len().min(4096),
        };
        let mut analysis = Analysis::new(Engine::open(options)?, self.packets.len(), false);
        self.replay(&mut analysis);
        let options = ReportOptions {
            sources: Vec::new(),
            sort: SortOrder::named("packets").expect("there is this order"),
            min_packets: 0,
            top: 0,
            group_failures: false,
            grouping: None,
            network_names: None,
            end_names: None,
        };
        let mut report = analysis.finish(counts, options, None);
        // It is in no list.
        report.connections.iter_mut().for_each(|connection| connection.number = 0);
        let index = connection_at(&report, at_ns)?;
        let read = |consumer: &mut dyn PacketConsumer| {
            self.replay(consumer);
            Ok::<_, Infallible>(Pass { frames, interrupted: false })
        };
        let left_out = report.explain_first(index, 1, read, None, most as u64, out)?;
        Ok(Explained { segments: report.connections[index].total_packets(), left_out })
    }

    fn replay(&self, consumer: &mut dyn PacketConsumer) {
        for (packets, frames) in self.packets.chunks(BURST_PACKETS).zip(self.frame_numbers.chunks(BURST_PACKETS)) {
            consumer.consume(packets, frames);
        }
    }
}

impl PacketConsumer for FlowPackets {
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        for (packet, &frame) in packets.iter().zip(frame_numbers) {
            if !self.is_wanted(packet) {
                continue;
            }
            if self.packets.len() == MAX_PACKETS {
                self.beyond += 1;
                continue;
            }
            self.packets.push(*packet);
            self.frame_numbers.push(if self.numbers_alone { self.packets.len() as u64 } else { frame });
        }
    }
}

/// The index of the connection of a time.
fn connection_at(report: &CaptureReport, at_ns: Option<u64>) -> Result<usize, FlowError> {
    let connections = &report.connections;
    let Some(at_ns) = at_ns else {
        return if connections.len() == 1 { Ok(0) } else { Err(FlowError::Several(connections.len())) };
    };
    let at = connections.iter().position(|of| (of.first_ns..=of.last_ns).contains(&at_ns));
    at.ok_or(FlowError::OtherTimes(connections.len()))
}

fn endpoints(flow: &str) -> Option<ConnectionKey> {
    let FlowText { ends, protocol } = FlowText::parse(flow)?;
    if protocol.is_some_and(|name| !["tcp", "6"].contains(&&*name)) {
        return None;
    }
    let [one, other] = ends.map(|(address, port)| Some(SocketAddr::new(address, port?)));
    Some(ConnectionKey::from_endpoints([one?, other?]))
}

/// A record with the addresses and ports of a packet and nothing else.
fn record_of(packet: &Packet) -> FlowRecord {
    FlowRecord {
        network: packet.network,
        source: packet.source,
        source_port: packet.source_port,
        destination: packet.destination,
        destination_port: packet.destination_port,
        protocol: TCP,
        ..FlowRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_of_tcp_has_two_endpoints_or_a_community_id() {
        for flow in [
            "192.0.2.1:1-192.0.2.2:2",
            "192.0.2.1:1 → 192.0.2.2:2",
            "192.0.2.1:1-192.0.2.2:2/tcp",
            " tcp 192.0.2.1:1 ← 192.0.2.2:2",
            "[2001:db8::1]:1-[2001:db8::2]:2",
            "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
        ] {
            assert!(FlowPackets::new(flow).is_ok(), "{flow}");
        }
        for flow in
            ["", "x", "192.0.2.1:1-192.0.2.2:2/udp", "192.0.2.1:1-[2001:db8::2]:2", "1:short", "192.0.2.1-192.0.2.2"]
        {
            assert_eq!(FlowPackets::new(flow).err(), Some(InvalidTcpFlow), "{flow}");
        }
    }
}
