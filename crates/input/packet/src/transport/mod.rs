//! Transport headers: ports, or ICMP type and code in their place, and TCP fields
//! (`docs/metering.md` section 2).

mod icmp;
mod ports;
mod tcp;

use crate::frame_slice::FrameSlice;
use crate::packet::{AnomalySet, Network, Packet};

pub use icmp::icmp_ports;
pub(crate) use icmp::{V4 as ICMP, V6 as ICMP_V6};
pub(crate) use ports::{UDP, read_ports};
pub(crate) use tcp::{PROTOCOL as TCP, read_options};

/// Whether packets of a protocol have ports.
#[inline]
pub(crate) fn has_ports(protocol: u8) -> bool {
    protocol == TCP || ports::header_bytes(protocol).is_some()
}

/// Fills the transport fields of `packet`. Its IP fields are filled already; `payload_bytes` counts
/// the octets after the IP headers. `slice` holds their captured part.
#[inline]
pub(crate) fn fill(slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    match (packet.network, packet.protocol) {
        (_, tcp::PROTOCOL) => tcp::fill(slice, packet, anomalies),
        (Network::Ipv4, icmp::V4) | (Network::Ipv6, icmp::V6) => icmp::fill(slice, packet, anomalies),
        (_, protocol) => {
            if let Some(header_bytes) = ports::header_bytes(protocol) {
                ports::fill(header_bytes, slice, packet, anomalies);
            }
        }
    }
}
