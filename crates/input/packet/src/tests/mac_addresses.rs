//! MAC addresses of the frames of IP packets.

use super::frames::*;
use super::tunnels::wrap;
use crate::{DecodeOptions, Flags, Packet, TunnelType, decode_with_mac_addresses};

/// Source and destination of [`ethernet`].
const OF_FRAMES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const NONE: [[u8; 6]; 2] = [[0; 6]; 2];

fn decoded_with(link: u16, frame: &[u8], decapsulate: bool) -> Packet {
    let mut packet = Packet::default();
    let options = DecodeOptions { decapsulate };
    decode_with_mac_addresses(link, frame, frame.len() as u32, options, &mut packet).expect("the frame is decoded");
    packet
}

#[test]
fn they_are_those_of_the_ethernet_header() {
    for packet in [udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x"), ipv4(1, &[8, 0, 0, 0, 0, 0, 0, 0])] {
        let ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let tagged = vlan(3, 0x88a8, &vlan(4, ethertype, &packet));
        for frame in [ethernet(ethertype, &packet), ethernet(0x8100, &tagged)] {
            assert_eq!(decoded_with(1, &frame, false).mac_addresses(), OF_FRAMES);
            assert_eq!(decoded(&frame).0.mac_addresses(), NONE, "only on request");
        }
    }
}

#[test]
fn without_a_link_header_they_are_0() {
    assert_eq!(decoded_with(101, &udp_in_v4(5, 6, b"x"), false).mac_addresses(), NONE);
}

#[test]
fn a_cooked_header_has_that_of_the_sender() {
    let cooked = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 0], &udp_in_v4(5, 6, b"x")[..]].concat();
    assert_eq!(decoded_with(113, &cooked, false).mac_addresses(), [[2, 0, 0, 0, 0, 9], [0; 6]]);
}

#[test]
fn a_frame_without_ip_has_them_as_its_addresses_only() {
    let packet = decoded_with(1, &ethernet(0x0806, &[0; 28]), false);
    assert_eq!((packet.mac_addresses(), packet.flags.0), (NONE, Flags::PORTS));
    assert_eq!(packet, decoded(&ethernet(0x0806, &[0; 28])).0);
}

/// The frame in a VXLAN or Geneve tunnel has other addresses.
#[test]
fn those_of_a_tunnelled_packet_are_those_of_the_outer_frame() {
    let mut inner = ethernet(0x0800, &udp_in_v4(5, 6, b"x"));
    inner[..12].fill(7);
    let vxlan = udp_in_v4(9, 4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &inner[..]].concat());
    let frame = ethernet(0x0800, &vxlan);
    let packet = decoded_with(1, &frame, true);
    assert_eq!((packet.tunnel_type, packet.source_port), (TunnelType::Vxlan, 5));
    assert_eq!(packet.mac_addresses(), OF_FRAMES);
    let without = without_anomalies(decapsulated(1, &frame));
    assert_eq!(packet.outer_addresses(), [without.outer_source, without.outer_destination]);
}

#[test]
fn a_packet_from_a_tunnel_over_ipv6_has_none() {
    let frame = ethernet(0x86dd, &wrap(TunnelType::FourInSix, &udp_in_v4(5, 6, b"x")).expect("it carries IPv4"));
    let packet = decoded_with(1, &frame, true);
    assert_eq!((packet.tunnel_type, packet.mac_addresses()), (TunnelType::FourInSix, NONE));
    assert_eq!(packet, without_anomalies(decapsulated(1, &frame)));
}
