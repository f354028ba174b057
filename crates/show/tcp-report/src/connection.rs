//! One connection of a report: its endpoints, client first, and its counters.

use crate::endpoint_pairs::{EndpointPairs, PacketSums};
use crate::failure::Failure;
use crate::reader::TCP;
use std::net::SocketAddr;
use weir_flow::{Direction, FlowRecord};
use weir_packet::{Network, address_octets};
use weir_tcp::{CompactReport, Degradation, SegmentClass, TcpReport};
use weir_tcp_batch::{ConnectionKey, ConnectionRecord};

/// A connection. In pairs the client's value comes first.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its number in lists, from 1 on, in the order of first packets; 0 if it is in none. It does not depend on the
    /// ranking.
    pub number: u32,
    /// Address and port of the client: the sender of the first SYN, or, without a SYN, of the first
    /// packet.
    pub client: SocketAddr,
    /// Address and port of the other side.
    pub server: SocketAddr,
    /// Time of the earliest packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the latest packet, ns since 1970-01-01 UTC.
    pub last_ns: u64,
    /// Packets of each side.
    pub packets: [u64; 2],
    /// What the engine does not count.
    pub(crate) sums: PacketSums,
    /// It is in no list of its own, but in a [`FailureGroup`](crate::FailureGroup).
    pub(crate) is_grouped: bool,
    reports: [CompactReport; 2],
    failure: Option<Failure>,
    /// Side of the client in the batch engine: 0 if its endpoint is the lower one, else 1.
    pub(crate) client_side: usize,
}

impl Connection {
    /// Puts the client of a connection first.
    pub(crate) fn new(record: ConnectionRecord, pairs: &EndpointPairs) -> Self {
        let client_side = pairs.client_side(&record);
        let mut sums = pairs.sums(&record);
        let ConnectionRecord { mut endpoints, first_ns, last_ns, mut packets, mut reports } = record;
        if client_side == 1 {
            endpoints.reverse();
            packets.reverse();
            reports.reverse();
            sums.reverse();
        }
        let [client, server] = endpoints;
        let (number, is_grouped) = (0, false);
        let failure = Failure::of(&reports.each_ref().map(CompactReport::report), packets);
        Self { number, client, server, first_ns, last_ns, packets, sums, is_grouped, reports, failure, client_side }
    }

    /// The report of one side: 0 is the client, 1 the server.
    pub fn report(&self, side: usize) -> TcpReport {
        self.reports[side].report()
    }

    /// The reports of both sides.
    pub fn reports(&self) -> [TcpReport; 2] {
        self.reports.each_ref().map(CompactReport::report)
    }

    /// How the connection failed; `None` if it did not, or if the capture does not show it.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The same connection with other reports.
    pub(crate) fn with_reports(&self, reports: [TcpReport; 2]) -> Self {
        Self { reports: reports.map(CompactReport::from), ..self.clone() }
    }

    /// The pair of endpoints.
    pub(crate) fn key(&self) -> ConnectionKey {
        ConnectionKey::from_endpoints([self.client, self.server])
    }

    /// Client and server: `192.0.2.1:4000 → 192.0.2.2:80`.
    pub fn name(&self) -> String {
        format!("{} → {}", self.client, self.server)
    }

    /// Packets of both sides.
    pub fn total_packets(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Time from the first to the last packet, ns.
    pub fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// The sum of a counter over both sides.
    pub fn sum(&self, counter: impl Fn(&TcpReport) -> u64) -> u64 {
        self.reports().iter().map(counter).sum()
    }

    /// Retransmitted segments, and all segments that occupy sequence numbers.
    pub fn retransmission_ratio(&self) -> (u64, u64) {
        let reports = self.reports();
        (
            reports.iter().map(TcpReport::retransmitted_segments).sum(),
            reports.iter().map(TcpReport::sequenced_segments).sum(),
        )
    }

    /// Share of retransmitted segments, 0 to 1.
    pub fn retransmitted_share(&self) -> f64 {
        let (part, whole) = self.retransmission_ratio();
        part as f64 / whole.max(1) as f64
    }

    /// Why the counters of either side are not exact.
    pub(crate) fn degradation(&self) -> Degradation {
        Degradation(self.reports().iter().fold(0, |bits, report| bits | report.degradation.0))
    }

    /// Octets of a side that it sent for the first time, in bit/s of the whole duration. `None` if
    /// that is 0.
    pub fn throughput_bps(&self, side: usize) -> Option<u64> {
        const BITS_TIMES_NS: u128 = 8 * 1_000_000_000;
        let bits = u128::from(self.report(side).unique_bytes) * BITS_TIMES_NS;
        Some(u64::try_from(bits.checked_div(self.duration_ns().into())?).unwrap_or(u64::MAX))
    }

    /// Whether the capture has packets of one side only, although the other side answered: the
    /// captured side sends payload or acknowledges.
    pub fn is_one_way(&self) -> bool {
        const ANSWERS: [SegmentClass; 2] = [SegmentClass::InOrder, SegmentClass::Acknowledgment];
        self.packets.contains(&0) && self.sum(|report| report.segments_of(&ANSWERS)) > 0
    }

    /// A flow record with the fields of this connection.
    pub fn to_flow_record(&self) -> FlowRecord {
        let [forward, reverse] = [0, 1].map(|side| Direction {
            packets: self.packets[side],
            bytes: self.sums.ip_bytes[side],
            // Which side sent them is not known.
            frame_bytes: if side == 0 { self.sums.frame_bytes } else { 0 },
            tcp_flags: self.sums.control[side],
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            ..Direction::default()
        });
        FlowRecord {
            source: address_octets(self.client.ip()),
            destination: address_octets(self.server.ip()),
            source_port: self.client.port(),
            destination_port: self.server.port(),
            protocol: TCP,
            network: if self.client.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 },
            forward,
            reverse,
            tcp: Some(self.reports()),
            ..FlowRecord::default()
        }
    }
}

/// The address of an endpoint as IPv6, mapped if it is IPv4.
pub(crate) fn octets(endpoint: SocketAddr) -> [u8; 16] {
    address_octets(endpoint.ip())
}

/// Payload octets, duplicates included.
pub(crate) fn payload_bytes(report: &TcpReport) -> u64 {
    report.classes.iter().map(|count| count.bytes).sum()
}

/// Duplicates with the same TTL and with another TTL.
pub fn duplicate_segments(report: &TcpReport) -> u64 {
    report.segments_of(&[SegmentClass::Duplicate, SegmentClass::RoutedDuplicate])
}
