//! The transport header: ports, or what stands for them, and control bits (`docs/metering.md` section 2).

mod icmp;
mod ports;
mod tcp;

use crate::octets::Octets;
use crate::{AnomalySet, Flags, Network, Packet};
use icmp::{Icmp, Version};
use ports::{DCCP, UDP_LITE};
use tcp::Tcp;
use weir_ledger::PacketAnomaly;

pub(crate) use ports::{Ports, UDP};
pub(crate) use tcp::{PROTOCOL as TCP, read_options};

/// Writes what the transport header says into `packet`, which holds all that the IP headers said:
/// `protocol`, and as `payload_bytes` how many octets follow them. `octets` is what was captured of those.
#[inline]
pub(crate) fn describe(octets: Octets<'_>, packet: &mut Packet, notes: &mut AnomalySet) {
    match (packet.network, packet.protocol) {
        (_, tcp::PROTOCOL) => describe_tcp(octets, packet, notes),
        (Network::Ipv4, icmp::V4) => describe_icmp(Version::V4, octets, packet, notes),
        (Network::Ipv6, icmp::V6) => describe_icmp(Version::V6, octets, packet, notes),
        (_, protocol) => {
            if let Some(header_bytes) = ports::header_bytes(protocol) {
                describe_ports(header_bytes, octets, packet, notes);
            }
        }
    }
}

#[inline]
fn describe_tcp(octets: Octets<'_>, packet: &mut Packet, notes: &mut AnomalySet) {
    let Some((tcp, rest)) = Tcp::split(octets) else {
        return describe_ports(tcp::FIXED_BYTES, octets, packet, notes);
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
        notes.add(PacketAnomaly::TransportMalformed);
    } else if packet.has_options() {
        read_options(rest.end_at(header_bytes - tcp::FIXED_BYTES).captured(), packet);
    }
    // What cannot be is taken as a header without options: its octets were there.
    packet.payload_bytes = packet.payload_bytes.saturating_sub(header_bytes.max(tcp::FIXED_BYTES));
}

#[inline]
fn describe_ports(header_bytes: u32, octets: Octets<'_>, packet: &mut Packet, notes: &mut AnomalySet) {
    match Ports::split(octets) {
        Some((ports, _)) => {
            (packet.source_port, packet.destination_port) = (ports.source(), ports.destination());
            packet.flags.0 |= Flags::PORTS;
            if packet.payload_bytes < header_bytes {
                notes.add(PacketAnomaly::TransportMalformed);
            }
        }
        None => note_absence(Ports::BYTES, packet, notes),
    }
    // The headers of these two are longer than what is read of them.
    if !matches!(packet.protocol, DCCP | UDP_LITE) {
        packet.payload_bytes = packet.payload_bytes.saturating_sub(header_bytes);
    }
}

#[inline]
fn describe_icmp(version: Version, octets: Octets<'_>, packet: &mut Packet, notes: &mut AnomalySet) {
    match Icmp::split(octets) {
        Some((icmp, _)) => {
            packet.icmp_or_checksum = icmp.type_and_code();
            (packet.source_port, packet.destination_port) = icmp.key(version);
            packet.flags.0 |= Flags::PORTS;
        }
        None => note_absence(Icmp::BYTES, packet, notes),
    }
    packet.payload_bytes = packet.payload_bytes.saturating_sub(icmp::HEADER_BYTES);
}

/// Tells a packet that ends before `needed` octets of its transport header from a capture that does.
#[cold]
fn note_absence(needed: u32, packet: &Packet, notes: &mut AnomalySet) {
    notes.add(if packet.payload_bytes < needed {
        PacketAnomaly::TransportMalformed
    } else {
        PacketAnomaly::PortsNotCaptured
    });
}
