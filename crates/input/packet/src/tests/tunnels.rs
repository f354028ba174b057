//! Nested tunnels.

use super::frames::*;
use crate::{DecodeOptions, Flags, TunnelType, ipv4_mapped};
use weir_ledger::PacketAnomaly;

/// All tunnels: the first type is none.
pub(super) const KINDS: &[TunnelType] = TunnelType::ALL.split_at(1).1;

/// Wraps an IP packet in a tunnel. The tunnel identifier, if there is one, is 7. `None` if the
/// tunnel cannot carry IP of that version.
pub(super) fn wrap(kind: TunnelType, inner: &[u8]) -> Option<Vec<u8>> {
    let (protocol, ethertype) = if inner[0] >> 4 == 4 { (4, 0x0800) } else { (41, 0x86dd) };
    let [a, b] = u16::to_be_bytes(ethertype);
    let frame = || ethernet(ethertype, inner);
    Some(match (kind, protocol) {
        (TunnelType::Gre, _) => ipv4(47, &[&[0x20, 0, a, b, 0, 0, 0, 7], inner].concat()),
        (TunnelType::Ipip, 4) | (TunnelType::SixInFour, 41) => ipv4(protocol, inner),
        (TunnelType::FourInSix, 4) | (TunnelType::SixInSix, 41) => ipv6(protocol, inner),
        (TunnelType::Vxlan, _) => udp_in_v6(9, 4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &frame()[..]].concat()),
        (TunnelType::Geneve, _) => udp_in_v4(9, 6081, &[&[0, 0, a, b, 0, 0, 7, 0], inner].concat()),
        (TunnelType::Gtpu, _) => udp_in_v4(2152, 2152, &[&[0x30, 255, 0, 0, 0, 0, 0, 7], inner].concat()),
        _ => return None,
    })
}

/// Wraps `inner` in a number of GRE tunnels.
fn in_gre(tunnels: usize, inner: Vec<u8>) -> Vec<u8> {
    (0..tunnels).fold(inner, |inner, _| wrap(TunnelType::Gre, &inner).unwrap())
}

#[test]
fn every_kind_in_every_kind_gives_the_innermost_packet() {
    for innermost in [udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x")] {
        let inner = decoded_as(101, &innermost).0;
        for kind in KINDS.iter().copied() {
            let Some(around) = wrap(kind, &innermost) else { continue };
            let carrier = decoded_as(101, &around).0;
            for outer in KINDS.iter().copied() {
                let Some(packet) = wrap(outer, &around) else { continue };
                let packet = without_anomalies(decapsulated(101, &packet));
                assert_eq!((packet.tunnel_type, packet.ip_bytes, packet.source_port), (kind, inner.ip_bytes, 5));
                assert_eq!((packet.source, packet.network), (inner.source, inner.network));
                assert_eq!(packet.outer_source, carrier.source);
                assert_eq!(packet.outer_destination, carrier.destination);
                let identified =
                    matches!(kind, TunnelType::Gre | TunnelType::Vxlan | TunnelType::Geneve | TunnelType::Gtpu);
                assert_eq!(packet.flags.has(Flags::TUNNEL_ID), identified);
                assert_eq!(packet.tunnel_id, if identified { 7 } else { 0 });
            }
        }
    }
}

#[test]
fn a_ninth_tunnel_is_not_decapsulated_and_its_ip_header_is_metered() {
    let eighth = without_anomalies(decapsulated(228, &in_gre(8, udp_in_v4(5, 6, b"x"))));
    assert_eq!((eighth.protocol, eighth.source_port), (17, 5));
    for tunnels in (9..20).chain([2000]) {
        let packet = in_gre(tunnels, udp_in_v4(5, 6, b"x"));
        let packet = with_anomalies(decapsulated(228, &packet), &[PacketAnomaly::TunnelTooDeep]);
        assert_eq!((packet.protocol, packet.tunnel_type, packet.source_port), (47, TunnelType::Gre, 0));
        assert_eq!(packet.ip_bytes as usize, 29 + 28 * (tunnels - 8));
    }
}

#[test]
fn a_ninth_tunnel_without_ip_or_malformed_is_not_too_deep() {
    let arp = ipv4(47, &[&[0, 0, 0x65, 0x58], &ethernet(0x0806, &[0; 28])[..]].concat());
    assert!(decapsulated(228, &in_gre(8, arp)).1.is_empty());
    let cut = ipv4(47, &[0, 0, 8]);
    assert_eq!(anomaly_list(decapsulated(228, &in_gre(8, cut)).1), [PacketAnomaly::TunnelMalformed]);
}

#[test]
fn endless_label_stacks_in_a_tunnel_are_malformed() {
    // 100 label stacks, each in Ethernet, in a tunnel.
    let stacks = (0..100).fold(Vec::new(), |inner, _| mpls(&[1], &[&[0; 4], &ethernet(0x8847, &inner)[..]].concat()));
    assert_malformed(228, &ipv4(47, &[&[0, 0, 0x88, 0x47], &stacks[..]].concat()));
}

#[test]
fn a_malformed_tunnel_in_a_valid_one_is_metered_on_its_outer_addresses() {
    let mut inner = ipv4_from([10, 9, 9, 9], [10, 8, 8, 8], 4, &udp_in_v4(5, 6, b"x"));
    inner[20] = 0x55;
    let packet = with_anomalies(decapsulated(228, &in_gre(1, inner)), &[PacketAnomaly::TunnelMalformed]);
    assert_eq!((packet.source, packet.protocol, packet.tunnel_type), (ipv4_mapped([10, 9, 9, 9]), 4, TunnelType::Gre));
}

#[test]
fn anomalies_of_outer_headers_are_kept() {
    let mut frame = wrap(TunnelType::Geneve, &ipv4(6, &[0, 5])).unwrap();
    frame[2..4].fill(0);
    let packet =
        with_anomalies(decapsulated(228, &frame), &[PacketAnomaly::LengthFromFrame, PacketAnomaly::TransportMalformed]);
    assert_eq!((packet.tunnel_type, packet.ip_bytes), (TunnelType::Geneve, 22));
}

#[test]
fn a_first_outer_fragment_is_decapsulated_and_a_later_one_is_not() {
    let mut packet = wrap(TunnelType::Ipip, &udp_in_v4(5, 6, &[0; 64])).unwrap();
    packet[6] = 0x20;
    let first = without_anomalies(decapsulated(228, &packet));
    assert_eq!((first.tunnel_type, first.source_port), (TunnelType::Ipip, 5));
    assert!(!first.flags.has(Flags::FRAGMENT_FIRST));

    packet[7] = 1;
    let later = without_anomalies(decapsulated(228, &packet));
    assert_eq!((later.tunnel_type, later.protocol), (TunnelType::None, 4));
    assert!(later.flags.has(Flags::FRAGMENT_LATER));
}

#[test]
fn fragments_inside_a_tunnel_are_flagged() {
    let mut inner = udp_in_v4(5, 6, &[0; 64]);
    inner[4..8].copy_from_slice(&[0x12, 0x34, 0x20, 0x00]);
    let first = decapsulated(228, &in_gre(1, inner.clone())).0;
    assert_eq!(first.flags.0, Flags::FRAGMENT_FIRST | Flags::TUNNEL_ID | Flags::PORTS);
    inner[7] = 9;
    let later = decapsulated(228, &in_gre(1, inner)).0;
    assert_eq!(later.flags.0, Flags::FRAGMENT_LATER | Flags::TUNNEL_ID);
    assert_eq!((first.identification, later.identification), (0x1234, 0x1234));
}

#[test]
fn padding_is_not_an_inner_header() {
    // The outer packet ends after the GRE header; the padding of the frame looks like IP.
    let mut frame = ethernet(0x0800, &ipv4(47, &[0, 0, 8, 0]));
    frame.extend(udp_in_v4(5, 6, b"x"));
    assert_malformed(1, &frame);
}

#[test]
fn an_inner_length_of_0_is_taken_from_the_outer_packet() {
    let mut inner = udp_in_v4(5, 6, b"x");
    inner[2..4].fill(0);
    let mut frame = ethernet(0x0800, &in_gre(1, inner));
    frame.extend([0; 30]);
    let packet = with_anomalies(decapsulated(1, &frame), &[PacketAnomaly::LengthFromFrame]);
    assert_eq!(packet.ip_bytes, 29);
}

#[test]
fn every_tunnel_truncated_anywhere_is_decoded_safely() {
    for kind in KINDS.iter().copied() {
        for inner in [udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x")] {
            let Some(packet) = wrap(kind, &inner) else { continue };
            let whole = decapsulated(101, &packet).0;
            let outer = decoded_as(101, &packet).0;
            for cut in 0..packet.len() {
                let Ok((packet, _)) = with_options(101, &packet, cut, DecodeOptions { decapsulate: true }) else {
                    continue;
                };
                let expected = if packet.tunnel_type == TunnelType::None { &outer } else { &whole };
                assert_eq!((packet.source, packet.ip_bytes), (expected.source, expected.ip_bytes));
            }
        }
    }
}
