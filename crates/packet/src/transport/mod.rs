//! Transport headers: ports, or ICMP type and code in their place, and TCP fields
//! (`docs/metering.md` section 2).

mod icmp;
mod ports;
mod tcp;

use crate::frame_slice::FrameSlice;
use crate::packet::{AnomalySet, Flags, Network, Packet};
use icmp::{Icmp, Version};
use ports::{DCCP, UDP_LITE};
use tcp::Tcp;
use weir_ledger::PacketAnomaly;

pub(crate) use ports::{Ports, UDP};
pub(crate) use tcp::{PROTOCOL as TCP, read_options};

/// Fills the transport fields of `packet`. Its IP fields are filled already; `payload_bytes` counts
/// the octets after the IP headers. `slice` holds their captured part.
#[inline]
pub(crate) fn fill(slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    match (packet.network, packet.protocol) {
        (_, tcp::PROTOCOL) => fill_tcp(slice, packet, anomalies),
        (Network::Ipv4, icmp::V4) => fill_icmp(Version::V4, slice, packet, anomalies),
        (Network::Ipv6, icmp::V6) => fill_icmp(Version::V6, slice, packet, anomalies),
        (_, protocol) => {
            if let Some(header_bytes) = ports::header_bytes(protocol) {
                fill_ports(header_bytes, slice, packet, anomalies);
            }
        }
    }
}

#[inline]
fn fill_tcp(slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    let Some((tcp, rest)) = Tcp::split(slice) else {
        return fill_ports(tcp::FIXED_BYTES, slice, packet, anomalies);
    };
    (packet.source_port, packet.destination_port) = (tcp.source_port(), tcp.destination_port());
    packet.sequence = tcp.sequence();
    packet.acknowledgment = tcp.acknowledgment();
    packet.control = tcp.control();
    packet.window = tcp.window();
    packet.icmp_or_checksum = tcp.checksum();
    packet.flags.0 |= Flags::PORTS | Flags::TCP;
    let header_bytes = tcp.header_bytes();
    if header_bytes < tcp::FIXED_BYTES || header_bytes > packet.payload_bytes {
        anomalies.add(PacketAnomaly::TransportMalformed);
    } else if packet.has_options() {
        read_options(rest.limit(header_bytes - tcp::FIXED_BYTES).captured(), packet);
    }
    // An impossible data offset is taken as a header without options, which was captured.
    packet.payload_bytes = packet.payload_bytes.saturating_sub(header_bytes.max(tcp::FIXED_BYTES));
}

#[inline]
fn fill_ports(header_bytes: u32, slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    match Ports::split(slice) {
        Some((ports, _)) => {
            (packet.source_port, packet.destination_port) = (ports.source(), ports.destination());
            packet.flags.0 |= Flags::PORTS;
            if packet.payload_bytes < header_bytes {
                anomalies.add(PacketAnomaly::TransportMalformed);
            }
        }
        None => add_missing_header(Ports::BYTES, packet, anomalies),
    }
    // The header length of these two is not fixed, so their payload is counted from the IP headers
    // on.
    if !matches!(packet.protocol, DCCP | UDP_LITE) {
        packet.payload_bytes = packet.payload_bytes.saturating_sub(header_bytes);
    }
}

#[inline]
fn fill_icmp(version: Version, slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    match Icmp::split(slice) {
        Some((icmp, _)) => {
            packet.icmp_or_checksum = icmp.type_and_code();
            (packet.source_port, packet.destination_port) = icmp.key(version);
            packet.flags.0 |= Flags::PORTS;
        }
        None => add_missing_header(Icmp::BYTES, packet, anomalies),
    }
    packet.payload_bytes = packet.payload_bytes.saturating_sub(icmp::HEADER_BYTES);
}

/// Adds the anomaly of a transport header that lacks its first `needed` octets: the packet itself
/// or only the capture ends there.
#[cold]
fn add_missing_header(needed: u32, packet: &Packet, anomalies: &mut AnomalySet) {
    anomalies.add(if packet.payload_bytes < needed {
        PacketAnomaly::TransportMalformed
    } else {
        PacketAnomaly::PortsNotCaptured
    });
}
