//! A connection with its client first, and the figures that a list of them is made of.

use crate::client::Clients;
use std::net::{IpAddr, SocketAddr};
use weir_flow::{Direction, FlowRecord};
use weir_packet::{Network, ipv4_mapped};
use weir_tcp::{CompactReport, SegmentClass, TcpReport};
use weir_tcp_batch::ConnectionRecord;

/// What the engine said of a connection. Of pairs the client's comes first.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Address and port of the side that opened it.
    pub client: SocketAddr,
    /// Address and port of the other side.
    pub server: SocketAddr,
    /// Time of the earliest packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the latest packet, ns.
    pub last_ns: u64,
    /// Packets of the client and of the server.
    pub packets: [u64; 2],
    reports: [CompactReport; 2],
    /// The client is side 1 of the engine.
    pub turned: bool,
}

impl Connection {
    /// With the client first.
    pub fn of(conversation: ConnectionRecord, clients: &Clients) -> Self {
        let turned = clients.of(&conversation) == 1;
        let ConnectionRecord { endpoints: mut ends, first_ns, last_ns, mut packets, mut reports } = conversation;
        if turned {
            ends.reverse();
            packets.reverse();
            reports.reverse();
        }
        let [client, server] = ends;
        Self { client, server, first_ns, last_ns, packets, reports, turned }
    }

    /// What one direction told.
    pub fn report(&self, side: usize) -> TcpReport {
        self.reports[side].report()
    }

    /// What both told.
    pub fn reports(&self) -> [TcpReport; 2] {
        self.reports.each_ref().map(CompactReport::report)
    }

    /// The same connection of which something else was told.
    pub fn with_reports(&self, reports: [TcpReport; 2]) -> Self {
        Self { reports: reports.map(CompactReport::from), ..self.clone() }
    }

    /// Both ends, the lower one first.
    pub fn ends(&self) -> [SocketAddr; 2] {
        if self.turned { [self.server, self.client] } else { [self.client, self.server] }
    }

    /// `192.0.2.1:4000 → 192.0.2.2:80`.
    pub fn name(&self) -> String {
        format!("{} → {}", self.client, self.server)
    }

    /// Packets of both directions.
    pub fn all_packets(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// A figure of both directions.
    pub fn both(&self, figure: fn(&TcpReport) -> u64) -> u64 {
        self.reports().iter().map(figure).sum()
    }

    /// Segments sent again, and those among which they count.
    pub fn retransmitted_of(&self) -> (u64, u64) {
        let reports = self.reports();
        let both = |figure: fn(&TcpReport) -> u64| reports.iter().map(figure).sum();
        (both(retransmitted), both(sequenced))
    }

    /// Share of segments sent again, 0 to 1.
    pub fn retransmitted_share(&self) -> f64 {
        let (part, whole) = self.retransmitted_of();
        part as f64 / whole.max(1) as f64
    }

    /// Round trip of the handshake, ns: behind the probe and before it, as far as known.
    pub fn round_trip_ns(&self) -> u64 {
        self.reports().iter().filter_map(|report| report.handshake_rtt_ns).sum()
    }

    /// Seen from one side alone, though that side was answered: it sends payload or acknowledges.
    pub fn is_one_way(&self) -> bool {
        let one_side = self.packets.contains(&0);
        one_side
            && self.both(|r| r.count(SegmentClass::InOrder).segments + r.count(SegmentClass::Acknowledgment).segments)
                > 0
    }

    /// As a flow, for the fields of records.
    pub fn flow(&self) -> FlowRecord {
        let octets = |end: SocketAddr| match end.ip() {
            IpAddr::V4(address) => ipv4_mapped(address.octets()),
            IpAddr::V6(address) => address.octets(),
        };
        let [forward, reverse] = self.packets.map(|packets| Direction {
            packets,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            ..Direction::default()
        });
        FlowRecord {
            source: octets(self.client),
            destination: octets(self.server),
            source_port: self.client.port(),
            destination_port: self.server.port(),
            protocol: 6,
            network: if self.client.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 },
            forward,
            reverse,
            tcp: Some(self.reports()),
            ..FlowRecord::default()
        }
    }
}

/// Octets of payload, of copies and all.
pub fn payload(report: &TcpReport) -> u64 {
    report.classes.iter().map(|count| count.bytes).sum()
}

/// Segments sent again, whether or not the capture has the first of them, without copies.
pub fn retransmitted(report: &TcpReport) -> u64 {
    [SegmentClass::Retransmission, SegmentClass::UnseenRetransmission, SegmentClass::SynRetransmission]
        .iter()
        .map(|&class| report.count(class).segments)
        .sum()
}

/// Segments with payload, SYN or FIN, without duplicates, keep-alives and RST.
pub fn sequenced(report: &TcpReport) -> u64 {
    let new = [
        SegmentClass::Syn,
        SegmentClass::InOrder,
        SegmentClass::OutOfOrder,
        SegmentClass::ZeroWindowProbe,
        SegmentClass::OutOfWindow,
    ];
    new.iter().map(|&class| report.count(class).segments).sum::<u64>() + retransmitted(report)
}

/// Copies of both kinds.
pub fn duplicates(report: &TcpReport) -> u64 {
    report.count(SegmentClass::Duplicate).segments + report.count(SegmentClass::RoutedDuplicate).segments
}
