//! Packet decoder: reads the headers of one captured frame into a [`Packet`].
//!
//! Input: the captured bytes of a frame, its link type and its length on the wire.
//! Output: a [`Packet`] of two cache lines with the header fields, or the one [`RefusalReason`] why
//! there is none. Payload is never copied.
//!
//! Invariants: no allocation, no panic, no unbounded loop. Lengths come from the IP header, so a
//! frame that the snap length cut gives the same packet as the whole frame, as long as its headers
//! were captured.
//!
//! Not done here: reassembly (the meter attributes later fragments), flows, time stamps.
//!
//! ```text
//! link      Ethernet, PPP, cooked, ...; VLAN, MPLS, LLC     -> IP, or an EtherType
//! ip        IPv4, IPv6 with extension headers               -> addresses, lengths, fragments
//! tunnel    IP in IP, GRE, VXLAN, Geneve, GTP-U, on request -> the inner IP header, up to 8 levels
//! transport TCP, UDP, UDP-Lite, DCCP, SCTP, ICMP, ICMPv6    -> ports, TCP control bits
//! ```
//! Frames of [`record::DECODED_LINK_TYPE`] are decoded packets already, from a file of packet records.
//!
//! One file holds one protocol. Its `split` takes the header off the captured octets, or fails; its
//! `fill` writes the fields of a [`Packet`]. `docs/metering.md` defines every field.
//!
//! [`RefusalReason`]: weir_ledger::RefusalReason
#![forbid(unsafe_code)]

mod decode;
mod fast_path;
mod frame_slice;
mod ip;
mod link;
mod packet;
pub mod record;
mod transport;
mod tunnel;

#[cfg(test)]
mod tests;

pub use decode::{DecodeOptions, decode, decode_general, decode_with_mac_addresses, header_octets, payload};
pub use link::link_type_name;
pub use packet::{
    AnomalySet, Flags, NO_LABEL, NO_VLAN, Network, Packet, TunnelType, address_octets, ip_address, ipv4_mapped,
};
pub use transport::icmp_ports;
