//! A share of all flows, by a hash that is the same for both directions of a flow.

use weir_flow::FlowRecord;

/// One of the equal shares among sinks that divide the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub part: usize,
    /// The number of shares.
    pub of: usize,
}

impl Share {
    /// Whether a flow is in this share: it is in exactly one of them.
    pub fn has(self, flow: &FlowRecord) -> bool {
        self.part == ((u128::from(flow_hash(flow)) * self.of as u128) >> 64) as usize
    }
}

/// Hash of addresses, ports and protocol, the same in each direction, run and version.
fn flow_hash(flow: &FlowRecord) -> u64 {
    let port = |port: u16| if flow.has_ports() { port } else { 0 };
    let source = (flow.source, port(flow.source_port));
    let destination = (flow.destination, port(flow.destination_port));
    let [(low, low_port), (high, high_port)] =
        if source <= destination { [source, destination] } else { [destination, source] };
    let octets = low.into_iter().chain(low_port.to_be_bytes()).chain(high).chain(high_port.to_be_bytes());
    // FNV-1a, then the finish of MurmurHash3, because the highest bits choose the share.
    let hash = octets
        .chain([flow.protocol])
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3));
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}
