//! The five-tuple by which others name a flow.

use crate::FlowRecord;
use weir_packet::Network;

/// Addresses, ports and protocol, the same for both directions. The ports of ICMP are those of
/// [`weir_packet::Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowTuple {
    ends: [([u8; 16], u16); 2],
    protocol: u8,
    network: Network,
}

impl FlowTuple {
    /// With the address and port of both ends, in any order.
    pub fn new(mut ends: [([u8; 16], u16); 2], protocol: u8, network: Network) -> Self {
        ends.sort_unstable();
        Self { ends, protocol, network }
    }

    /// Address and port of both ends, in a fixed order.
    pub fn ends(&self) -> [([u8; 16], u16); 2] {
        self.ends
    }

    /// IP protocol number.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Layout of the addresses.
    pub fn network(&self) -> Network {
        self.network
    }
}

impl From<&FlowRecord> for FlowTuple {
    fn from(flow: &FlowRecord) -> Self {
        let ends = [(flow.source, flow.source_port), (flow.destination, flow.destination_port)];
        Self::new(ends, flow.protocol, flow.network)
    }
}
