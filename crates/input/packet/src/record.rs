//! A decoded packet as octets: the body of a packet record in a file of packet records
//! (docs/packet-records.md).
//!
//! In and out: the result of [`decode_with_mac_addresses`], and [`RECORD_OCTETS`] octets, numbers in
//! little-endian order on every machine. [`crate::decode`] reads such a body like a frame of the link
//! type [`DECODED_LINK_TYPE`].
//!
//! Invariants: a body that [`write`] made of a decoded frame gives the same packet, anomalies or
//! refusal again. Values that no frame gives are refused with [`RefusalReason::RecordMalformed`]:
//! what reads packets meets nothing but what the decoder makes.
//!
//! Not in a body: time, interface and length of the frame, which the caller has; payload.
//!
//! [`decode_with_mac_addresses`]: crate::decode_with_mac_addresses

use crate::frame_slice::array;
use crate::packet::{AnomalySet, Flags, NO_LABEL, NO_PROTOCOL, NO_VLAN, Network, Packet, TunnelType};
use crate::transport;
use weir_ledger::{PacketAnomaly, RefusalReason};

/// Link type of frames whose octets are the body of a packet record. The registry of tcpdump.org has
/// no such number, and ends far below.
pub const DECODED_LINK_TYPE: u16 = 65_000;
/// A bit of [`Flags`] that has no meaning.
const UNKNOWN_FLAG: u8 = 128;

/// Octets of a body.
pub const RECORD_OCTETS: usize = 116;

/// The anomalies by their bits.
const ANOMALIES: [PacketAnomaly; 7] = [
    PacketAnomaly::LengthFromFrame,
    PacketAnomaly::LengthBeyondFrame,
    PacketAnomaly::PortsNotCaptured,
    PacketAnomaly::TransportMalformed,
    PacketAnomaly::ExtensionMalformed,
    PacketAnomaly::TunnelTooDeep,
    PacketAnomaly::TunnelMalformed,
];

/// The refusals by their numbers, from 1.
const REFUSALS: [RefusalReason; 12] = [
    RefusalReason::NonIp,
    RefusalReason::LinkType,
    RefusalReason::LinkTruncated,
    RefusalReason::LinkMalformed,
    RefusalReason::MplsTruncated,
    RefusalReason::TooManyHeaders,
    RefusalReason::IpVersion,
    RefusalReason::Ipv4Truncated,
    RefusalReason::Ipv4HeaderLength,
    RefusalReason::Ipv4TotalLength,
    RefusalReason::Ipv6Truncated,
    RefusalReason::RecordMalformed,
];

/// Shortest IP packets, octets.
const IPV4_OCTETS: u32 = 20;
const IPV6_OCTETS: u32 = 40;

/// Writes what the decoder made of a frame.
pub fn write(decoded: Result<AnomalySet, RefusalReason>, packet: &Packet) -> [u8; RECORD_OCTETS] {
    let mut body = [0; RECORD_OCTETS];
    let anomalies = match decoded {
        Ok(anomalies) => anomalies,
        Err(reason) => {
            let number = REFUSALS.iter().position(|&other| other == reason).expect("a test compares the lists");
            body[2] = number as u8 + 1;
            return body;
        }
    };
    let bit = |anomaly| ANOMALIES.iter().position(|&other| other == anomaly).map_or(0, |bit| 1 << bit);
    let anomalies: u16 = anomalies.iter().map(bit).sum();
    let mut put = |at: usize, octets: &[u8]| body[at..at + octets.len()].copy_from_slice(octets);
    put(0, &anomalies.to_le_bytes());
    put(4, &packet.source);
    put(20, &packet.destination);
    put(36, &packet.ip_bytes.to_le_bytes());
    put(40, &packet.source_port.to_le_bytes());
    put(42, &packet.destination_port.to_le_bytes());
    put(44, &packet.vlan.to_le_bytes());
    put(46, &packet.inner_vlan.to_le_bytes());
    put(48, &[packet.protocol, packet.ttl, packet.tos, packet.network as u8]);
    put(52, &packet.control.to_le_bytes());
    put(54, &[packet.flags.0, packet.tunnel_type as u8]);
    put(56, &packet.sequence.to_le_bytes());
    put(60, &packet.acknowledgment.to_le_bytes());
    put(64, &packet.payload_bytes.to_le_bytes());
    put(68, &packet.identification.to_le_bytes());
    put(72, &packet.mpls_label.to_le_bytes());
    put(76, &packet.tunnel_id.to_le_bytes());
    put(80, &packet.window.to_le_bytes());
    put(82, &packet.icmp_or_checksum);
    put(84, &packet.outer_source);
    put(100, &packet.outer_destination);
    body
}

/// Reads a body into `packet`, except `time_ns` and `interface`, and gives what the decoder said of
/// the frame. `frame_bytes` is the length of the frame on the wire.
///
/// # Errors
/// Why the decoder refused the frame, or that no decoder made the body. The contents of `packet` are
/// then unspecified.
#[inline(never)]
pub(crate) fn read(body: &[u8], frame_bytes: u32, packet: &mut Packet) -> Result<AnomalySet, RefusalReason> {
    let malformed = RefusalReason::RecordMalformed;
    let body: &[u8; RECORD_OCTETS] = body.try_into().map_err(|_| malformed)?;
    let (u16, u32) = (|at| u16::from_le_bytes(array(body, at)), |at| u32::from_le_bytes(array(body, at)));
    if [body[2], body[3]] != [0, 0] {
        return Err(refusal(body));
    }
    let network = match body[51] {
        4 => Network::Ipv4,
        6 => Network::Ipv6,
        2 => Network::Layer2,
        _ => return Err(malformed),
    };
    let tunnel_type = *TunnelType::ALL.get(usize::from(body[55])).ok_or(malformed)?;
    packet.source = array(body, 4);
    packet.destination = array(body, 20);
    packet.ip_bytes = u32(36);
    packet.frame_bytes = frame_bytes;
    packet.source_port = u16(40);
    packet.destination_port = u16(42);
    packet.vlan = u16(44);
    packet.inner_vlan = u16(46);
    packet.protocol = body[48];
    packet.ttl = body[49];
    packet.tos = body[50];
    packet.network = network;
    packet.control = u16(52);
    packet.flags = Flags(body[54]);
    packet.tunnel_type = tunnel_type;
    packet.sequence = u32(56);
    packet.acknowledgment = u32(60);
    packet.payload_bytes = u32(64);
    packet.identification = u32(68);
    packet.mpls_label = u32(72);
    packet.tunnel_id = u32(76);
    packet.window = u16(80);
    packet.icmp_or_checksum = [body[82], body[83]];
    packet.outer_source = array(body, 84);
    packet.outer_destination = array(body, 100);
    if !is_possible(packet) {
        return Err(malformed);
    }
    match u16(0) {
        0 => Ok(AnomalySet::default()),
        bits => anomalies(bits),
    }
}

/// The refusal in a body, which has nothing else.
#[cold]
fn refusal(body: &[u8; RECORD_OCTETS]) -> RefusalReason {
    let number = usize::from(body[2]).wrapping_sub(1);
    let is_empty = body[..2].iter().chain(&body[3..]).all(|&octet| octet == 0);
    REFUSALS.get(number).copied().filter(|_| is_empty).unwrap_or(RefusalReason::RecordMalformed)
}

#[cold]
fn anomalies(bits: u16) -> Result<AnomalySet, RefusalReason> {
    if bits >> ANOMALIES.len() != 0 {
        return Err(RefusalReason::RecordMalformed);
    }
    let mut anomalies = AnomalySet::default();
    let has = |bit: usize| bits >> bit & 1 == 1;
    ANOMALIES.iter().enumerate().filter(|&(bit, _)| has(bit)).for_each(|(_, &anomaly)| anomalies.add(anomaly));
    Ok(anomalies)
}

/// Whether the decoder makes such packets. Most are of the first kind, which has few checks.
#[inline]
fn is_possible(packet: &Packet) -> bool {
    let Packet { vlan, inner_vlan, mpls_label, .. } = *packet;
    let has_link = (vlan <= 0xfff || vlan == NO_VLAN)
        && (inner_vlan == NO_VLAN || inner_vlan <= 0xfff && vlan != NO_VLAN)
        && (mpls_label <= 0xf_ffff || mpls_label == NO_LABEL);
    let header_octets = match packet.network {
        Network::Ipv4 if is_ipv4_mapped(&packet.source) && is_ipv4_mapped(&packet.destination) => IPV4_OCTETS,
        Network::Ipv6 => IPV6_OCTETS,
        Network::Layer2 => return has_link && is_possible_layer2(packet),
        Network::Ipv4 => return false,
    };
    let has_lengths = packet.ip_bytes >= header_octets && packet.payload_bytes <= packet.ip_bytes - header_octets;
    has_link && has_lengths && is_possible_transport(packet) && is_possible_outside(packet)
}

#[inline]
fn is_ipv4_mapped(address: &[u8; 16]) -> bool {
    address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}

/// Flags, ports and TCP fields.
#[inline]
fn is_possible_transport(packet: &Packet) -> bool {
    let Packet { flags, control, protocol, .. } = *packet;
    let is_fragment = |flag| flags.has(flag);
    let is_later = is_fragment(Flags::FRAGMENT_LATER);
    let is_tcp = flags.has(Flags::TCP);
    let has_ports = flags.has(Flags::PORTS);
    let is_icmp =
        matches!((packet.network, protocol), (Network::Ipv4, transport::ICMP) | (Network::Ipv6, transport::ICMP_V6));
    let flags_fit = flags.0 & (Flags::LOOKED_UP | UNKNOWN_FLAG) == 0
        && !(is_later && (is_fragment(Flags::FRAGMENT_FIRST) || has_ports))
        && (!is_tcp || has_ports && protocol == transport::TCP)
        && (!has_ports || is_icmp || transport::has_ports(protocol));
    let tcp_fits = is_tcp
        || (packet.sequence, packet.acknowledgment, control, packet.window) == (0, 0, 0, 0)
            && (has_ports && is_icmp || packet.icmp_or_checksum == [0; 2]);
    let ports_fit = has_ports || (packet.source_port, packet.destination_port) == (0, 0);
    // The maximum segment size is in the upper half of the identification, the window scale in the
    // upper 4 bits of the control bits.
    let options_fit = packet.has_options()
        || control <= Packet::CONTROL && (packet.network == Network::Ipv6 || packet.identification <= 0xffff);
    flags_fit && tcp_fits && ports_fit && options_fit
}

/// Tunnel and MAC addresses.
#[inline]
fn is_possible_outside(packet: &Packet) -> bool {
    let Packet { flags, tunnel_id, .. } = *packet;
    let without_tunnel = || packet.outer_addresses() == [[0; 16]; 2] && !flags.has(Flags::TUNNEL_ID);
    (packet.tunnel_type != TunnelType::None || without_tunnel()) && (flags.has(Flags::TUNNEL_ID) || tunnel_id == 0)
}

/// A packet without IP has only the fields of the link layer.
#[cold]
fn is_possible_layer2(packet: &Packet) -> bool {
    let Packet { source, destination, time_ns, interface, frame_bytes, vlan, inner_vlan, mpls_label, .. } = *packet;
    let ethertype = packet.source_port;
    let expected = Packet {
        source,
        destination,
        time_ns,
        interface,
        frame_bytes,
        vlan,
        inner_vlan,
        mpls_label,
        source_port: ethertype,
        destination_port: ethertype,
        protocol: NO_PROTOCOL,
        network: Network::Layer2,
        flags: Flags(Flags::PORTS),
        ..Packet::default()
    };
    source[..10] == [0; 10] && destination[..10] == [0; 10] && *packet == expected
}

/// Takes the MAC addresses out of an IP packet, so that it is one that [`crate::decode`] makes.
#[inline]
pub(crate) fn remove_mac_addresses(packet: &mut Packet) {
    [packet.outer_source, packet.outer_destination] = packet.outer_addresses();
    packet.flags.0 &= !Flags::MAC_ADDRESSES;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::frames::*;
    use crate::{DecodeOptions, decode, decode_with_mac_addresses};

    #[test]
    fn every_reason_and_every_anomaly_of_the_decoder_has_a_number() {
        assert!(RefusalReason::ALL.iter().all(|reason| REFUSALS.contains(reason)));
        for &reason in RefusalReason::ALL {
            let body = write(Err(reason), &Packet::default());
            assert_eq!(read(&body, 60, &mut Packet::default()), Err(reason));
        }
    }

    #[test]
    fn the_fields_are_where_the_page_says() {
        let mut frame = ethernet(0x8100, &vlan(3, 0x0800, &ipv4(6, &tcp(5, 6, 0x18, b"hello"))));
        frame[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16]);
        let mut packet = Packet::default();
        let decoded = decode_with_mac_addresses(1, &frame, 63, DecodeOptions::default(), &mut packet);
        let body = write(decoded, &packet);
        assert_eq!((&body[..4], &body[4..20], body[35]), (&[0; 4][..], &packet.source[..], 2));
        assert_eq!(body[36..48], [45, 0, 0, 0, 5, 0, 6, 0, 3, 0, 0xff, 0xff]);
        assert_eq!(body[48..56], [6, 64, 0, 4, 0x18, 0, Flags::PORTS | Flags::TCP | Flags::MAC_ADDRESSES, 0]);
        assert_eq!((&body[64..68], &body[72..76]), (&[5, 0, 0, 0][..], &[0xff; 4][..]));
        assert_eq!((&body[84..90], &body[100..106]), (&[11, 12, 13, 14, 15, 16][..], &[1, 2, 3, 4, 5, 6][..]));
    }

    #[test]
    fn a_body_with_any_octet_changed_is_refused_or_is_another_possible_packet() {
        let frames = [
            ethernet(0x0800, &ipv4(6, &tcp(5, 6, 0x02, b"hello"))),
            ethernet(0x86dd, &udp_in_v6(5, 6, b"hello")),
            ethernet(0x0806, &[0; 28]),
            ethernet(0x0800, &ipv4(1, &[8, 0, 0, 0, 0, 0, 0, 0])),
        ];
        let (mut refused, mut accepted) = (0, 0);
        for frame in frames {
            let mut packet = Packet::default();
            let length = frame.len() as u32;
            let decoded = decode(1, &frame, length, DecodeOptions::default(), &mut packet);
            let body = write(decoded, &packet);
            for (at, change) in (0..RECORD_OCTETS).flat_map(|at| (1..=255).map(move |change| (at, change))) {
                let mut changed = body;
                changed[at] ^= change;
                match read(&changed, length, &mut packet) {
                    Ok(anomalies) => {
                        accepted += 1;
                        assert_eq!(write(Ok(anomalies), &packet), changed);
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 0 && accepted > 0, "{refused} {accepted}");
    }

    #[test]
    fn a_body_of_another_length_is_malformed() {
        for length in [0, 1, RECORD_OCTETS - 1, RECORD_OCTETS + 1] {
            let mut packet = Packet::default();
            let read = decode(DECODED_LINK_TYPE, &vec![0; length], 60, DecodeOptions::default(), &mut packet);
            assert_eq!(read, Err(RefusalReason::RecordMalformed));
        }
    }
}
