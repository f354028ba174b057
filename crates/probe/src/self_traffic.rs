//! The filter for Weir's own export traffic. A record of an export datagram would cause another
//! datagram, and so on without end; therefore such datagrams are never metered.

use std::net::{IpAddr, SocketAddr};
use weir_packet::{Packet, ipv4_mapped};

const UDP: u8 = 17;

/// Source and destination of the UDP datagrams that sinks send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfTrafficFilter(Vec<[([u8; 16], u16); 2]>);

impl SelfTrafficFilter {
    /// A filter for `[source, destination]` pairs, see [`weir_export::Sink::udp_endpoints`].
    pub fn new(endpoints: impl IntoIterator<Item = [SocketAddr; 2]>) -> Self {
        Self(endpoints.into_iter().map(|ends| ends.map(endpoint)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a packet is one of these datagrams.
    #[inline(never)]
    pub(crate) fn matches(&self, packet: &Packet) -> bool {
        let endpoints = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
        packet.protocol == UDP && self.0.contains(&endpoints)
    }
}

fn endpoint(address: SocketAddr) -> ([u8; 16], u16) {
    let octets = match address.ip() {
        IpAddr::V4(address) => ipv4_mapped(address.octets()),
        IpAddr::V6(address) => address.octets(),
    };
    (octets, address.port())
}
