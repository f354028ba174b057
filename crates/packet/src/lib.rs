//! The decoder: frame bytes in, one [`Packet`] or one reason out.
//!
//! In: the captured bytes of one frame, its link type and its length on the wire.
//! Out: what the headers said, in two cache lines, never the payload.
//! Always true: nothing allocates, panics or loops without a bound; lengths come from the IP
//! header, so a snapped capture gives the same packet as a full one.
//! Not here: reassembly (later fragments are resolved by the meter), flows, time.
//!
//! ```text
//! link      Ethernet, cooked, loopback, raw; VLAN, MPLS, PPPoE, SNAP   -> IP, or an EtherType
//! ip        IPv4, IPv6 and its extension headers                       -> addresses, lengths, fragments
//! tunnel    IP in IP, GRE, VXLAN, Geneve, GTP-U, on request            -> ip again, up to 8 times
//! transport TCP, UDP, UDP-Lite, DCCP, SCTP, ICMP, ICMPv6               -> ports, control bits
//! ```
//! One protocol is one file, and each is built alike: a type that borrows the header's octets,
//! `split`, which alone can fail, and getters, which cannot. What everything means is in `docs/metering.md`.
#![forbid(unsafe_code)]

mod common;
mod decode;
mod ip;
mod link;
mod octets;
mod packet;
mod transport;
mod tunnel;

#[cfg(test)]
mod tests;

pub use decode::{DecodeOptions, decode, decode_general};
pub use packet::{AnomalySet, Flags, NO_LABEL, NO_VLAN, Network, Packet, TunnelType, ip_address, ipv4_mapped};
