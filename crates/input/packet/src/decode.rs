//! Entry point of the decoder: link layer, IP, tunnels and transport, in this order.

use crate::fast_path;
use crate::frame_slice::{FrameSlice, array};
use crate::ip::Ip;
use crate::link::{self, LinkHeaders, LinkPayload};
use crate::packet::{AnomalySet, Flags, NO_PROTOCOL, Network, Packet, TunnelType};
use crate::record;
use crate::transport;
use crate::tunnel::{MAX_TUNNELS, Tunnel};
use weir_ledger::{PacketAnomaly, RefusalReason};

/// What the decoder reads beyond the outermost IP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Decapsulates GRE, IP-in-IP, 6in4, 4in6, VXLAN, Geneve and GTP-U: the packet is the innermost
    /// one.
    pub decapsulate: bool,
}

/// Reads the headers of one frame into `packet`. Overwrites all of it except `time_ns` and
/// `interface`.
///
/// `link_type` is the link type of the capture (a `LINKTYPE_` number), `bytes` are the captured
/// octets, `frame_bytes` is the length on the wire. A frame without IP becomes a packet of
/// [`Network::Layer2`].
///
/// # Errors
/// Why there is no packet. The contents of `packet` are then unspecified.
#[inline]
pub fn decode(
    link_type: u16,
    bytes: &[u8],
    frame_bytes: u32,
    options: DecodeOptions,
    packet: &mut Packet,
) -> Result<AnomalySet, RefusalReason> {
    if link_type == link::ETHERNET && fast_path::decode(bytes, frame_bytes, options.decapsulate, packet) {
        return Ok(AnomalySet::default());
    }
    decode_general(link_type, bytes, frame_bytes, options, packet)
}

/// As [`decode`]. An IP packet also gets the MAC addresses of the last Ethernet header (or cooked
/// header) before its outermost IP header: [`Packet::mac_addresses`].
///
/// # Errors
/// As [`decode`].
#[inline(never)]
pub fn decode_with_mac_addresses(
    link_type: u16,
    bytes: &[u8],
    frame_bytes: u32,
    options: DecodeOptions,
    packet: &mut Packet,
) -> Result<AnomalySet, RefusalReason> {
    if link_type == link::ETHERNET
        && let Some(header) = bytes.first_chunk::<12>()
        && fast_path::decode(bytes, frame_bytes, options.decapsulate, packet)
    {
        packet.set_mac_addresses(array(header, 6), array(header, 0));
        return Ok(AnomalySet::default());
    }
    if link_type == record::DECODED_LINK_TYPE {
        return record::read(bytes, frame_bytes, packet);
    }
    let anomalies = decode_general(link_type, bytes, frame_bytes, options, packet)?;
    if packet.network != Network::Layer2 {
        let mut headers = LinkHeaders::EMPTY;
        link::parse(link_type, FrameSlice::new(bytes, frame_bytes), &mut headers)?;
        packet.set_mac_addresses(headers.source, headers.destination);
    }
    Ok(anomalies)
}

/// The general decoder without the fast path. It defines the result: [`decode`] gives the same for
/// every frame, and takes a fifth of the instructions for common ones.
///
/// # Errors
/// As [`decode`].
#[inline(never)]
pub fn decode_general(
    link_type: u16,
    bytes: &[u8],
    frame_bytes: u32,
    options: DecodeOptions,
    packet: &mut Packet,
) -> Result<AnomalySet, RefusalReason> {
    if link_type == record::DECODED_LINK_TYPE {
        let anomalies = record::read(bytes, frame_bytes, packet)?;
        record::remove_mac_addresses(packet);
        return Ok(anomalies);
    }
    let mut headers = LinkHeaders::EMPTY;
    let payload = link::parse(link_type, FrameSlice::new(bytes, frame_bytes), &mut headers)?;
    *packet = Packet {
        time_ns: packet.time_ns,
        interface: packet.interface,
        frame_bytes,
        vlan: headers.vlan,
        inner_vlan: headers.inner_vlan,
        mpls_label: headers.mpls_label,
        ..Packet::default()
    };
    let mut anomalies = AnomalySet::default();
    match payload {
        LinkPayload::Other(ethertype) => fill_layer2(ethertype, &headers, packet),
        LinkPayload::Ip(ip) => {
            let mut payload = ip.fill(packet, &mut anomalies);
            if options.decapsulate {
                payload = decapsulate(payload, packet, &mut anomalies, |_| {});
            }
            if let Some(payload) = payload {
                transport::fill(payload, packet, &mut anomalies);
            }
        }
    }
    Ok(anomalies)
}

/// The captured payload of a packet that [`decode`] read from this frame with these options, and its
/// octets on the wire, which are more if the snap length cut the frame. These are
/// [`Packet::payload_bytes`], or fewer if a UDP header says so: octets of the IP packet behind its
/// length are no payload. Empty without IP.
///
/// It reads the headers again, so call it for few packets.
pub fn payload<'a>(link_type: u16, bytes: &'a [u8], packet: &Packet, options: DecodeOptions) -> (&'a [u8], u32) {
    if link_type == link::ETHERNET && packet.tunnel_type == TunnelType::None && packet.flags.has(Flags::PORTS) {
        let ethertype = |at: usize| bytes.get(at..at + 2).map(|octets| u16::from_be_bytes([octets[0], octets[1]]));
        let link_bytes = match ethertype(12) {
            Some(link::IPV4 | link::IPV6) => Some(14),
            Some(fast_path::VLAN) if matches!(ethertype(16), Some(link::IPV4 | link::IPV6)) => Some(18),
            _ => None,
        };
        if let Some(link_bytes) = link_bytes {
            let end = link_bytes + packet.ip_bytes as usize;
            let start = end - (packet.payload_bytes as usize).min(packet.ip_bytes as usize);
            let bytes = &bytes[..bytes.len().min(packet.frame_bytes as usize)];
            let payload = bytes.get(start..end.min(bytes.len())).unwrap_or(&[]);
            return limited_by_udp(payload, bytes.get(start - 4..start), packet);
        }
    }
    payload_general(link_type, bytes, packet, options)
}

/// The captured payload of a packet, and its octets on the wire. `length_and_checksum` is the end of a
/// UDP header, if it was captured. An impossible length does not count; 0 is that of jumbograms (RFC
/// 2675 section 4).
fn limited_by_udp<'a>(payload: &'a [u8], length_and_checksum: Option<&[u8]>, packet: &Packet) -> (&'a [u8], u32) {
    let mut octets = packet.payload_bytes;
    if packet.protocol == transport::UDP
        && let Some(&[high, low, ..]) = length_and_checksum
        && let Some(length) = u16::from_be_bytes([high, low]).checked_sub(8)
    {
        octets = octets.min(length.into());
    }
    (&payload[..payload.len().min(octets as usize)], octets)
}

/// Octets behind the IP header that count as the header of a protocol other than TCP and UDP: those
/// of ICMP, and the ports of SCTP.
const OTHER_HEADER_OCTETS: usize = 8;

/// Octets of a frame before the transport header, and before the payload of TCP or UDP, of the packet
/// that [`decode`] has read from it. Other protocols have [`OTHER_HEADER_OCTETS`] behind the IP
/// header, later fragments nothing. What was not captured does not count; a frame without IP counts
/// whole.
#[inline(never)]
pub fn header_octets(link_type: u16, bytes: &[u8], packet: &Packet, options: DecodeOptions) -> [usize; 2] {
    let mut headers = LinkHeaders::EMPTY;
    let Ok(LinkPayload::Ip(ip)) = link::parse(link_type, FrameSlice::new(bytes, packet.frame_bytes), &mut headers)
    else {
        return [bytes.len(); 2];
    };
    let (mut scratch, mut anomalies, mut innermost) = (Packet::default(), AnomalySet::default(), ip);
    let payload = ip.fill(&mut scratch, &mut anomalies);
    if options.decapsulate {
        decapsulate(payload, &mut scratch, &mut anomalies, |ip| innermost = ip);
    }
    let start = innermost.octets().as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
    let ip_header = scratch.ip_bytes.saturating_sub(scratch.payload_bytes) as usize;
    let network = start.saturating_add(ip_header).min(bytes.len());
    let transport = match packet.protocol {
        transport::TCP | transport::UDP => scratch.payload_bytes.saturating_sub(packet.payload_bytes) as usize,
        _ => OTHER_HEADER_OCTETS,
    };
    let transport = if packet.flags.has(Flags::FRAGMENT_LATER) { 0 } else { transport };
    [network, network.saturating_add(transport).min(bytes.len())]
}

/// [`payload`] by the general decoder.
#[inline(never)]
pub(crate) fn payload_general<'a>(
    link_type: u16,
    bytes: &'a [u8],
    packet: &Packet,
    options: DecodeOptions,
) -> (&'a [u8], u32) {
    let mut headers = LinkHeaders::EMPTY;
    let Ok(LinkPayload::Ip(ip)) = link::parse(link_type, FrameSlice::new(bytes, packet.frame_bytes), &mut headers)
    else {
        return (&[], 0);
    };
    let (mut scratch, mut anomalies) = (Packet::default(), AnomalySet::default());
    let mut slice = ip.fill(&mut scratch, &mut anomalies);
    if options.decapsulate {
        slice = decapsulate(slice, &mut scratch, &mut anomalies, |_| {});
    }
    // The IP header gives the octets after it; the difference is the transport header.
    let header_bytes = scratch.payload_bytes.saturating_sub(packet.payload_bytes) as usize;
    let payload = slice.and_then(|slice| slice.skip(header_bytes)).map_or(&[][..], FrameSlice::captured);
    limited_by_udp(payload, slice.and_then(|slice| slice.captured().get(4..8)), packet)
}

/// `packet` is empty but for the fields of the link layer.
fn fill_layer2(ethertype: u16, headers: &LinkHeaders, packet: &mut Packet) {
    packet.source[10..].copy_from_slice(&headers.source);
    packet.destination[10..].copy_from_slice(&headers.destination);
    packet.source_port = ethertype;
    packet.destination_port = ethertype;
    packet.protocol = NO_PROTOCOL;
    packet.network = Network::Layer2;
    packet.flags = Flags(Flags::PORTS);
}

/// Replaces `packet` by the innermost packet. Returns the captured payload of its IP headers. Calls
/// `note_header` with each IP header in a tunnel.
fn decapsulate<'a>(
    mut payload: Option<FrameSlice<'a>>,
    packet: &mut Packet,
    anomalies: &mut AnomalySet,
    mut note_header: impl FnMut(Ip<'a>),
) -> Option<FrameSlice<'a>> {
    for level in 0..=MAX_TUNNELS {
        match Tunnel::split(packet, payload?) {
            Ok(Some(tunnel)) if level < MAX_TUNNELS => {
                packet.outer_source = packet.source;
                packet.outer_destination = packet.destination;
                packet.tunnel_type = tunnel.tunnel_type;
                packet.tunnel_id = tunnel.identifier.unwrap_or(0);
                note_header(tunnel.ip);
                payload = tunnel.ip.fill(packet, anomalies);
                if tunnel.identifier.is_some() {
                    packet.flags.0 |= Flags::TUNNEL_ID;
                }
                continue;
            }
            Ok(Some(_)) => anomalies.add(PacketAnomaly::TunnelTooDeep),
            Ok(None) => {}
            Err(_) => anomalies.add(PacketAnomaly::TunnelMalformed),
        }
        break;
    }
    payload
}
