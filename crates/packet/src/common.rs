//! The common path: TCP or UDP, directly behind IPv4 without options or IPv6, directly behind Ethernet with one VLAN tag
//! or none, whole and sane. Nearly every packet of nearly every network is one.
//!
//! One check that the headers were captured, then constant offsets. Always true: what is read here is what the general
//! decoder (`decode.rs`) reads without a remark; whatever is odd in the least is left to it.

use crate::link::{IPV4, IPV6, is_vlan};
use crate::{Flags, NO_LABEL, NO_VLAN, Network, Packet, TunnelType, mapped, tunnel};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Octets before IP, without and with a tag.
const ETHERNET: usize = 14;
const TAGGED: usize = 18;
/// Octets of IP and the fixed TCP header together.
const V4: usize = 20 + 20;
const V6: usize = 40 + 20;

/// Reads a frame of link type Ethernet into `packet`, or says that it is not of the common kind. `packet` is then
/// unspecified but for `time_ns` and `interface`, which are never touched.
#[inline(always)]
pub(crate) fn read(bytes: &[u8], frame_bytes: u32, decapsulate: bool, packet: &mut Packet) -> bool {
    let Some(untagged) = bytes.first_chunk::<{ ETHERNET + V4 }>() else { return false };
    let ethertype = u16::from_be_bytes([untagged[12], untagged[13]]);
    if ethertype == IPV4 {
        let Some(ip) = untagged[ETHERNET..].first_chunk() else { return false };
        return read_v4(ip, ETHERNET, NO_VLAN, frame_bytes, decapsulate, packet);
    }
    read_less_common(bytes, ethertype, frame_bytes, decapsulate, packet)
}

/// The same for frames that have a tag or hold IPv6.
#[inline]
fn read_less_common(bytes: &[u8], ethertype: u16, frame_bytes: u32, decapsulate: bool, packet: &mut Packet) -> bool {
    if ethertype == IPV6 {
        let Some(ip) = bytes[ETHERNET..].first_chunk() else { return false };
        return read_v6(ip, ETHERNET, NO_VLAN, frame_bytes, decapsulate, packet);
    }
    if !is_vlan(ethertype) {
        return false;
    }
    let Some((tag, ip)) = bytes[ETHERNET..].split_first_chunk::<4>() else { return false };
    let vlan = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
    match u16::from_be_bytes([tag[2], tag[3]]) {
        IPV4 => match ip.first_chunk() {
            Some(ip) => read_v4(ip, TAGGED, vlan, frame_bytes, decapsulate, packet),
            None => false,
        },
        IPV6 => match ip.first_chunk() {
            Some(ip) => read_v6(ip, TAGGED, vlan, frame_bytes, decapsulate, packet),
            None => false,
        },
        _ => false,
    }
}

#[inline(always)]
fn read_v4(ip: &[u8; V4], at: usize, vlan: u16, frame_bytes: u32, decapsulate: bool, packet: &mut Packet) -> bool {
    let ip_bytes = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
    let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
    if ip[0] != 0x45 || fragment != 0 || ip_bytes > frame_bytes.wrapping_sub(at as u32) || frame_bytes < at as u32 {
        return false;
    }
    let network = Headers {
        source: mapped([ip[12], ip[13], ip[14], ip[15]]),
        destination: mapped([ip[16], ip[17], ip[18], ip[19]]),
        ip_bytes,
        header_bytes: 20,
        identification: u16::from_be_bytes([ip[4], ip[5]]).into(),
        protocol: ip[9],
        ttl: ip[8],
        tos: ip[1],
        network: Network::Ipv4,
    };
    let Some(transport) = ip[20..].first_chunk() else { return false };
    read_transport(network, transport, vlan, frame_bytes, decapsulate, packet)
}

#[inline(always)]
fn read_v6(ip: &[u8; V6], at: usize, vlan: u16, frame_bytes: u32, decapsulate: bool, packet: &mut Packet) -> bool {
    let length = u32::from(u16::from_be_bytes([ip[4], ip[5]]));
    if ip[0] >> 4 != 6 || length == 0 || 40 + length > frame_bytes.wrapping_sub(at as u32) || frame_bytes < at as u32 {
        return false;
    }
    let (Some((&source, rest)), Some((&destination, _))) = (ip[8..].split_first_chunk(), ip[24..].split_first_chunk())
    else {
        return false;
    };
    let Some(transport) = rest[16..].first_chunk() else { return false };
    let network = Headers {
        source,
        destination,
        ip_bytes: 40 + length,
        header_bytes: 40,
        identification: 0,
        protocol: ip[6],
        ttl: ip[7],
        tos: ip[0] << 4 | ip[1] >> 4,
        network: Network::Ipv6,
    };
    read_transport(network, transport, vlan, frame_bytes, decapsulate, packet)
}

/// What the IP header said.
struct Headers {
    source: [u8; 16],
    destination: [u8; 16],
    ip_bytes: u32,
    header_bytes: u32,
    identification: u32,
    protocol: u8,
    ttl: u8,
    tos: u8,
    network: Network,
}

/// TCP and UDP alike, without a branch between them: they come in random order.
#[inline(always)]
fn read_transport(
    ip: Headers,
    transport: &[u8; 20],
    vlan: u16,
    frame_bytes: u32,
    decapsulate: bool,
    packet: &mut Packet,
) -> bool {
    let t = transport;
    let tcp = ip.protocol == TCP;
    let destination_port = u16::from_be_bytes([t[2], t[3]]);
    let (least, header_bytes) = if tcp { (20, u32::from(t[12] >> 4) * 4) } else { (8, 8) };
    let common =
        (tcp | (ip.protocol == UDP)) & (header_bytes >= least) & (ip.header_bytes + header_bytes <= ip.ip_bytes);
    if !common || (decapsulate && !tcp && tunnel::is_port(destination_port)) {
        return false;
    }
    let of_tcp = |word: u32| if tcp { word } else { 0 };
    *packet = Packet {
        source: ip.source,
        destination: ip.destination,
        time_ns: packet.time_ns,
        ip_bytes: ip.ip_bytes,
        frame_bytes,
        source_port: u16::from_be_bytes([t[0], t[1]]),
        destination_port,
        vlan,
        inner_vlan: NO_VLAN,
        control: of_tcp(u32::from(u16::from_be_bytes([t[12], t[13]]) & 0x0fff)) as u16,
        protocol: ip.protocol,
        ttl: ip.ttl,
        tos: ip.tos,
        network: ip.network,
        flags: Flags(if tcp { Flags::PORTS | Flags::TCP } else { Flags::PORTS }),
        tunnel_type: TunnelType::None,
        sequence: of_tcp(u32::from_be_bytes([t[4], t[5], t[6], t[7]])),
        acknowledgment: of_tcp(u32::from_be_bytes([t[8], t[9], t[10], t[11]])),
        payload_bytes: ip.ip_bytes - ip.header_bytes - header_bytes,
        identification: ip.identification,
        mpls_label: NO_LABEL,
        interface: packet.interface,
        tunnel_id: 0,
        window: of_tcp(u32::from(u16::from_be_bytes([t[14], t[15]]))) as u16,
        icmp: [0; 2],
        outer_source: [0; 16],
        outer_destination: [0; 16],
    };
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::build::*;

    fn is_common(frame: &[u8], decapsulate: bool) -> bool {
        read(frame, frame.len() as u32, decapsulate, &mut Packet::default())
    }

    #[test]
    fn what_is_common_is_read_here() {
        let payload = [0; 26];
        for ip in [
            (0x0800, ipv4(TCP, &tcp(5, 6, Packet::SYN, &payload))),
            (0x0800, udp_in_v4(5, 6, &payload)),
            (0x86dd, ipv6(TCP, &tcp(5, 6, Packet::SYN, &payload))),
            (0x86dd, udp_in_v6(5, 6, &payload)),
        ] {
            let (ethertype, ip) = ip;
            assert!(is_common(&ethernet(ethertype, &ip), true));
            assert!(is_common(&ethernet(0x8100, &vlan(9, ethertype, &ip)), true));
            // As far as needed, and no less.
            let frame = ethernet(ethertype, &ip);
            let needed = ETHERNET + if ethertype == 0x0800 { V4 } else { V6 };
            for cut in 0..frame.len() {
                let common = read(&frame[..cut], frame.len() as u32, false, &mut Packet::default());
                assert_eq!(common, cut >= needed, "{cut} octets captured");
            }
        }
        let frame = ethernet(0x0800, &udp_in_v4(5, 4789, &payload));
        assert!(is_common(&frame, false) && !is_common(&frame, true));
    }

    #[test]
    fn what_is_odd_is_not() {
        let good = ethernet(0x0800, &ipv4(TCP, &tcp(5, 6, Packet::SYN, &[0; 9])));
        assert!(is_common(&good, true));
        let odd: [(&str, usize, u8); 9] = [
            ("EtherType", 13, 6),
            ("version", 14, 0x65),
            ("options", 14, 0x46),
            ("no length", 17, 0),
            ("longer than the frame", 17, 50),
            ("more fragments", 20, 0x20),
            ("a fragment's offset", 21, 1),
            ("protocol", 23, 1),
            ("data offset", 46, 0x40),
        ];
        for (what, at, value) in odd {
            let mut frame = good.clone();
            frame[at] = value;
            assert!(!is_common(&frame, true), "{what}");
        }
    }
}
