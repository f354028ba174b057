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
    let plain = ip[0] == 0x45 && fragment == 0 && ip_bytes >= 20 && at as u32 + ip_bytes <= frame_bytes;
    let Some(transport) = ip[20..].first_chunk() else { return false };
    let headers = || Headers {
        source: mapped([ip[12], ip[13], ip[14], ip[15]]),
        destination: mapped([ip[16], ip[17], ip[18], ip[19]]),
        ip_bytes,
        header_bytes: 20,
        identification: u16::from_be_bytes([ip[4], ip[5]]).into(),
        protocol: ip[9],
        ttl: ip[8],
        tos: ip[1],
        network: Network::Ipv4,
        vlan,
        frame_bytes,
    };
    plain && read_transport(headers, ip[9], ip_bytes - 20, transport, decapsulate, packet)
}

#[inline(always)]
fn read_v6(ip: &[u8; V6], at: usize, vlan: u16, frame_bytes: u32, decapsulate: bool, packet: &mut Packet) -> bool {
    let length = u32::from(u16::from_be_bytes([ip[4], ip[5]]));
    let plain = ip[0] >> 4 == 6 && length > 0 && at as u32 + 40 + length <= frame_bytes;
    let (Some(&source), Some(&destination), Some(transport)) =
        (ip[8..].first_chunk(), ip[24..].first_chunk(), ip[40..].first_chunk())
    else {
        return false;
    };
    let headers = || Headers {
        source,
        destination,
        ip_bytes: 40 + length,
        header_bytes: 40,
        identification: 0,
        protocol: ip[6],
        ttl: ip[7],
        tos: ip[0] << 4 | ip[1] >> 4,
        network: Network::Ipv6,
        vlan,
        frame_bytes,
    };
    plain && read_transport(headers, ip[6], length, transport, decapsulate, packet)
}

/// What link layer and IP header said.
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
    vlan: u16,
    frame_bytes: u32,
}

/// What the transport header said beyond ports.
struct Segment {
    header_bytes: u32,
    control: u16,
    sequence: u32,
    acknowledgment: u32,
    window: u16,
    flags: u8,
}

/// `length` octets follow the IP headers by what these say.
#[inline(always)]
fn read_transport(
    headers: impl FnOnce() -> Headers,
    protocol: u8,
    length: u32,
    t: &[u8; 20],
    decapsulate: bool,
    packet: &mut Packet,
) -> bool {
    let ports = [u16::from_be_bytes([t[0], t[1]]), u16::from_be_bytes([t[2], t[3]])];
    let header_bytes = u32::from(t[12] >> 4) * 4;
    if protocol == TCP && header_bytes >= 20 && header_bytes <= length {
        let segment = Segment {
            header_bytes,
            control: u16::from_be_bytes([t[12], t[13]]) & 0x0fff,
            sequence: u32::from_be_bytes([t[4], t[5], t[6], t[7]]),
            acknowledgment: u32::from_be_bytes([t[8], t[9], t[10], t[11]]),
            window: u16::from_be_bytes([t[14], t[15]]),
            flags: Flags::PORTS | Flags::TCP,
        };
        write(headers(), ports, segment, packet);
        true
    } else if protocol == UDP && length >= 8 && !(decapsulate && tunnel::is_port(ports[1])) {
        let nothing =
            Segment { header_bytes: 8, control: 0, sequence: 0, acknowledgment: 0, window: 0, flags: Flags::PORTS };
        write(headers(), ports, nothing, packet);
        true
    } else {
        false
    }
}

/// Every field but the time and the interface.
#[inline(always)]
fn write(ip: Headers, ports: [u16; 2], segment: Segment, packet: &mut Packet) {
    *packet = Packet {
        source: ip.source,
        destination: ip.destination,
        time_ns: packet.time_ns,
        ip_bytes: ip.ip_bytes,
        frame_bytes: ip.frame_bytes,
        source_port: ports[0],
        destination_port: ports[1],
        vlan: ip.vlan,
        inner_vlan: NO_VLAN,
        control: segment.control,
        protocol: ip.protocol,
        ttl: ip.ttl,
        tos: ip.tos,
        network: ip.network,
        flags: Flags(segment.flags),
        tunnel_type: TunnelType::None,
        sequence: segment.sequence,
        acknowledgment: segment.acknowledgment,
        payload_bytes: ip.ip_bytes - ip.header_bytes - segment.header_bytes,
        identification: ip.identification,
        mpls_label: NO_LABEL,
        interface: packet.interface,
        tunnel_id: 0,
        window: segment.window,
        icmp: [0; 2],
        outer_source: [0; 16],
        outer_destination: [0; 16],
    };
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
