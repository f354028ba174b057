//! The five-tuple by which others name a flow.

use crate::FlowRecord;
use std::hash::{Hash, Hasher};
use weir_packet::Network;

/// Addresses, ports and protocol, the same for both directions. The ports of ICMP are those of
/// [`weir_packet::Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTuple {
    /// Address and port of both ends, the smaller one first. Numbers are compared and hashed faster than
    /// octets.
    ends: [(u128, u16); 2],
    /// IP protocol number.
    pub protocol: u8,
    /// Layout of the addresses.
    pub network: Network,
}

impl Hash for FlowTuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [(one, one_port), (other, other_port)] = self.ends;
        state.write_u128(one);
        state.write_u128(other);
        state.write_u64(u64::from(one_port) << 32 | u64::from(other_port) << 16 | u64::from(self.protocol));
    }
}

impl FlowTuple {
    /// With the address and port of both ends, in any order.
    #[inline]
    pub fn new([one, other]: [([u8; 16], u16); 2], protocol: u8, network: Network) -> Self {
        let one = (u128::from_be_bytes(one.0), one.1);
        let other = (u128::from_be_bytes(other.0), other.1);
        Self { ends: if one <= other { [one, other] } else { [other, one] }, protocol, network }
    }

    /// Address and port of both ends, in a fixed order.
    pub fn ends(&self) -> [([u8; 16], u16); 2] {
        self.ends.map(|(address, port)| (address.to_be_bytes(), port))
    }
}

impl From<&FlowRecord> for FlowTuple {
    fn from(flow: &FlowRecord) -> Self {
        let ends = [(flow.source, flow.source_port), (flow.destination, flow.destination_port)];
        Self::new(ends, flow.protocol, flow.network)
    }
}
