//! The decoder's door: link, IP, tunnels, transport, one after the other.

use crate::common;
use crate::link::{self, Content, Envelope};
use crate::octets::Octets;
use crate::transport;
use crate::tunnel::{DEPTH, Tunnel};
use crate::{AnomalySet, Flags, Network, Packet};
use weir_ledger::{PacketAnomaly, RefusalReason};

/// Protocol of a packet without IP.
const NO_PROTOCOL: u8 = 255;

/// What the decoder enters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Enter GRE, IP-in-IP, 6in4, 4in6, VXLAN, Geneve and GTP-U: the packet is then the innermost one.
    pub decapsulate: bool,
}

/// LINKTYPE number of Ethernet.
const ETHERNET: u16 = 1;

/// Reads the headers of one frame into `packet`, which it overwrites but for `time_ns` and `interface`.
///
/// `link` is the LINKTYPE number of the capture; `bytes` what was captured; `frame_bytes` the
/// length on the wire. A frame without IP becomes a packet of `Network::Layer2`.
///
/// # Errors
/// The one reason why there is no packet. `packet` is then unspecified.
#[inline]
pub fn decode(
    link: u16,
    bytes: &[u8],
    frame_bytes: u32,
    options: DecodeOptions,
    packet: &mut Packet,
) -> Result<AnomalySet, RefusalReason> {
    if link == ETHERNET && common::read(bytes, frame_bytes, options, packet) {
        return Ok(AnomalySet::default());
    }
    decode_general(link, bytes, frame_bytes, options, packet)
}

/// The general decoder alone, which is the definition: [`decode`] says the same of every frame, and of common ones
/// in a fifth of the instructions.
///
/// # Errors
/// As [`decode`].
#[inline(never)]
pub fn decode_general(
    link: u16,
    bytes: &[u8],
    frame_bytes: u32,
    options: DecodeOptions,
    packet: &mut Packet,
) -> Result<AnomalySet, RefusalReason> {
    let mut envelope = Envelope::EMPTY;
    let content = link::read(link, Octets::of_frame(bytes, frame_bytes), &mut envelope)?;
    *packet = Packet {
        time_ns: packet.time_ns,
        interface: packet.interface,
        frame_bytes,
        vlan: envelope.vlan,
        inner_vlan: envelope.inner_vlan,
        mpls_label: envelope.mpls_label,
        ..Packet::default()
    };
    let mut notes = AnomalySet::default();
    match content {
        Content::Other(ethertype) => describe_layer2(ethertype, &envelope, packet),
        Content::Ip(ip) => {
            let mut octets = ip.describe(packet, &mut notes);
            if options.decapsulate {
                octets = enter_tunnels(octets, packet, &mut notes);
            }
            if let Some(octets) = octets {
                transport::describe(octets, packet, &mut notes);
            }
        }
    }
    Ok(notes)
}

/// A frame without IP: who sent what to whom.
fn describe_layer2(ethertype: u16, envelope: &Envelope, packet: &mut Packet) {
    packet.source = mac(envelope.source);
    packet.destination = mac(envelope.destination);
    packet.source_port = ethertype;
    packet.destination_port = ethertype;
    packet.protocol = NO_PROTOCOL;
    packet.network = Network::Layer2;
    packet.flags = Flags(Flags::PORTS);
}

/// A MAC address in the shape of [`Packet::source`].
fn mac([a, b, c, d, e, f]: [u8; 6]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f]
}

/// Makes `packet` the innermost one, and gives what was captured behind its IP headers.
fn enter_tunnels<'a>(
    mut octets: Option<Octets<'a>>,
    packet: &mut Packet,
    notes: &mut AnomalySet,
) -> Option<Octets<'a>> {
    for depth in 0..=DEPTH {
        match Tunnel::split(packet, octets?) {
            Ok(Some(tunnel)) if depth < DEPTH => {
                packet.outer_source = packet.source;
                packet.outer_destination = packet.destination;
                packet.tunnel_type = tunnel.kind;
                packet.tunnel_id = tunnel.identifier.unwrap_or(0);
                octets = tunnel.ip.describe(packet, notes);
                if tunnel.identifier.is_some() {
                    packet.flags.0 |= Flags::TUNNEL_ID;
                }
                continue;
            }
            Ok(Some(_)) => notes.add(PacketAnomaly::TunnelTooDeep),
            Ok(None) => {}
            Err(_) => notes.add(PacketAnomaly::TunnelMalformed),
        }
        break;
    }
    octets
}
