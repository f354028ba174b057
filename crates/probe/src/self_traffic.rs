//! Our own export traffic, which is never metered: the record of a datagram with records would make another datagram.

use std::net::{IpAddr, SocketAddr};
use weir_packet::{Packet, ipv4_mapped};

const UDP: u8 = 17;

/// Datagrams that sinks send: from where to where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfTrafficFilter(Vec<[([u8; 16], u16); 2]>);

impl SelfTrafficFilter {
    /// Those of sinks that send datagrams, see [`weir_export::Sink::udp_endpoints`].
    pub fn new(datagrams: impl IntoIterator<Item = [SocketAddr; 2]>) -> Self {
        Self(datagrams.into_iter().map(|ends| ends.map(end)).collect())
    }

    /// Whether a packet is one of them.
    #[inline]
    pub(crate) fn has(&self, packet: &Packet) -> bool {
        packet.protocol == UDP && !self.0.is_empty() && self.has_datagram(packet)
    }

    #[inline(never)]
    fn has_datagram(&self, packet: &Packet) -> bool {
        self.0.contains(&[(packet.source, packet.source_port), (packet.destination, packet.destination_port)])
    }
}

fn end(address: SocketAddr) -> ([u8; 16], u16) {
    let octets = match address.ip() {
        IpAddr::V4(address) => ipv4_mapped(address.octets()),
        IpAddr::V6(address) => address.octets(),
    };
    (octets, address.port())
}
