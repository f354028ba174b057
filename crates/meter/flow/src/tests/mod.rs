//! Tests of the public interface of this crate.

mod limits;
mod meter;
mod migration;

use weir_packet::{Flags, Packet, ipv4_mapped};

/// A packet of UDP over IPv4.
pub(crate) fn udp(source: [u8; 4], destination: [u8; 4], [source_port, destination_port]: [u16; 2]) -> Packet {
    Packet {
        source: ipv4_mapped(source),
        destination: ipv4_mapped(destination),
        source_port,
        destination_port,
        protocol: 17,
        flags: Flags(Flags::PORTS),
        ..Packet::default()
    }
}
