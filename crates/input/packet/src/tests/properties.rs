//! Properties that hold for every frame: valid, truncated, damaged or random.

use super::frames::*;
use super::strategies::{IpPacket, framed, headers, ip_packet, link, tunnelled, tunnels};
use super::tunnels::wrap;
use crate::decode::payload_general;
use crate::header_octets;
use crate::{
    AnomalySet, DecodeOptions, Flags, NO_LABEL, NO_VLAN, Network, Packet, TunnelType, decode, decode_general,
    decode_with_mac_addresses, payload, record,
};
use proptest::collection::vec;
use proptest::prelude::*;
use weir_ledger::{PacketAnomaly, RefusalReason};

/// Every link type that is decoded, and last one that is not.
const LINKS: [u16; 16] = [0, 1, 9, 12, 14, 50, 100, 101, 104, 108, 113, 228, 229, 239, 276, 105];

/// Compares [`decode`] with the general decoder and with the decoder of MAC addresses, with and
/// without decapsulation.
pub(super) fn decoded_alike(link: u16, bytes: &[u8], frame_bytes: u32) {
    for decapsulate in [false, true] {
        let used = Packet { time_ns: 1, interface: 2, source: [9; 16], ..Packet::default() };
        let [mut packet, mut general, mut with_macs] = [used; 3];
        let options = DecodeOptions { decapsulate };
        let result = decode(link, bytes, frame_bytes, options, &mut packet);
        assert_eq!(result, decode_general(link, bytes, frame_bytes, options, &mut general));
        assert_eq!(result, decode_with_mac_addresses(link, bytes, frame_bytes, options, &mut with_macs));
        recorded_alike(result, &packet, &with_macs);
        if result.is_ok() {
            assert_eq!(packet, general);
            [with_macs.outer_source, with_macs.outer_destination] = with_macs.outer_addresses();
            with_macs.flags.0 &= !Flags::MAC_ADDRESSES;
            assert_eq!(with_macs, packet);
            let found = payload(link, bytes, &packet, options);
            if packet.network != Network::Layer2 {
                assert_eq!(found, payload_general(link, bytes, &packet, options));
            }
            assert!(found.0.len() as u32 <= found.1 && found.1 <= packet.payload_bytes);
        }
    }
}

/// Compares the packets of a frame with those that its record in a file of packet records gives.
fn recorded_alike(result: Result<AnomalySet, RefusalReason>, packet: &Packet, with_macs: &Packet) {
    let body = record::write(result, with_macs);
    let options = DecodeOptions::default();
    for (expected, decode) in
        [(packet, decode as fn(_, _: &_, _, _, &mut _) -> _), (with_macs, decode_with_mac_addresses)]
    {
        let mut read = Packet { time_ns: 1, interface: 2, source: [7; 16], ..Packet::default() };
        let frame_bytes = expected.frame_bytes;
        assert_eq!(decode(record::DECODED_LINK_TYPE, &body, frame_bytes, options, &mut read), result);
        if result.is_ok() {
            assert_eq!(read, *expected);
        }
    }
}

/// A packet with a value in every field.
fn used_packet() -> Packet {
    let tunnel = wrap(TunnelType::Gre, &ipv4(6, &tcp(5, 6, 0xfff, b"hello"))).expect("GRE carries IPv4");
    let frame = ethernet(0x8100, &vlan(3, 0x88a8, &vlan(4, 0x8847, &mpls(&[5], &tunnel))));
    Packet {
        tos: 9,
        sequence: 9,
        acknowledgment: 9,
        identification: 9,
        window: 9,
        icmp_or_checksum: [9; 2],
        flags: Flags(0xff),
        ..decapsulated(1, &frame).0
    }
}

/// Decodes into a packet that holds old values, and checks what must hold for every frame.
fn checked(
    link: u16,
    bytes: &[u8],
    frame_bytes: u32,
    decapsulate: bool,
) -> Result<(Packet, AnomalySet), RefusalReason> {
    let mut packet = Packet { time_ns: 1, interface: 2, ..Packet::default() };
    let mut other = Packet { time_ns: 1, interface: 2, ..used_packet() };
    let result = decode(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut packet);
    assert_eq!(result, decode(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut other));
    decoded_alike(link, bytes, frame_bytes);
    let anomalies = result?;
    assert_eq!(packet, other, "an old value is left");
    assert_eq!((packet.time_ns, packet.interface, packet.frame_bytes), (1, 2, frame_bytes));

    let header_bytes = match packet.network {
        Network::Layer2 => 0,
        Network::Ipv4 => 20,
        Network::Ipv6 => 40,
    };
    assert!(packet.ip_bytes >= header_bytes + packet.payload_bytes);
    let flags = packet.flags;
    assert!(!flags.has(Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER));
    assert!(!flags.has(Flags::TCP) || (packet.protocol == 6 && flags.has(Flags::PORTS)));
    assert!(flags.has(Flags::TCP) || (packet.control, packet.window, packet.sequence) == (0, 0, 0));
    assert!(flags.has(Flags::PORTS) || (packet.source_port, packet.destination_port, packet.icmp()) == (0, 0, [0; 2]));
    if flags.has(Flags::FRAGMENT_LATER) {
        assert!(!flags.has(Flags::PORTS));
    }
    if packet.network == Network::Layer2 {
        assert!(anomalies.is_empty());
        assert_eq!((packet.protocol, packet.ip_bytes, flags.0), (255, 0, Flags::PORTS));
        assert_eq!(packet.source_port, packet.destination_port);
    }
    let tunnel_anomalies = anomaly_list(anomalies)
        .iter()
        .any(|n| matches!(n, PacketAnomaly::TunnelMalformed | PacketAnomaly::TunnelTooDeep));
    assert!(decapsulate || !(tunnel_anomalies || packet.tunnel_type != TunnelType::None));
    if packet.tunnel_type == TunnelType::None {
        assert!(!flags.has(Flags::TUNNEL_ID));
        assert_eq!((packet.outer_source, packet.outer_destination, packet.tunnel_id), ([0; 16], [0; 16], 0));
    }
    Ok((packet, anomalies))
}

/// Decodes with and without decapsulation, and checks the two against each other.
fn checked_both_ways(link: u16, bytes: &[u8], frame_bytes: u32) {
    match (checked(link, bytes, frame_bytes, false), checked(link, bytes, frame_bytes, true)) {
        (Ok((outer, outer_anomalies)), Ok((inner, inner_anomalies))) => {
            assert_eq!(
                (outer.vlan, outer.inner_vlan, outer.mpls_label),
                (inner.vlan, inner.inner_vlan, inner.mpls_label)
            );
            if inner.tunnel_type == TunnelType::None {
                assert_eq!(outer, inner);
                assert!(anomaly_list(outer_anomalies).iter().all(|&n| anomaly_list(inner_anomalies).contains(&n)));
            } else {
                assert!(matches!(outer.protocol, 4 | 17 | 41 | 47));
            }
        }
        (Err(outer), Err(inner)) => assert_eq!(outer, inner),
        (outer, inner) => panic!("without {outer:?}, with decapsulation {inner:?}"),
    }
}

#[test]
fn payload_is_what_follows_the_transport_header() {
    let segment = tcp(5, 6, 0x18, b"hello");
    let datagram = udp(5, 53, b"question");
    let frames = [
        (ethernet(0x0800, &ipv4(6, &segment)), &b"hello"[..]),
        (ethernet(0x8100, &vlan(3, 0x0800, &ipv4(17, &datagram))), b"question"),
        (ethernet(0x8100, &vlan(3, 0x88a8, &vlan(4, 0x86dd, &ipv6(17, &datagram)))), b"question"),
        (ethernet(0x0806, b"no IP"), b""),
    ];
    for (mut frame, expected) in frames {
        for cut in 0..=8 {
            let wire = frame.len() as u32;
            let padded = [&frame[..], &[0; 30]].concat();
            let captured = &padded[..padded.len() - 30 - cut];
            let mut packet = Packet::default();
            if decode(1, captured, wire, DecodeOptions::default(), &mut packet).is_ok() && packet.payload_bytes > 0 {
                let left = &expected[..expected.len().saturating_sub(cut)];
                let wire_octets = expected.len() as u32;
                assert_eq!(payload(1, captured, &packet, DecodeOptions::default()), (left, wire_octets));
            }
        }
        // Padding is no payload.
        frame.extend([0; 30]);
        let mut packet = Packet::default();
        decode(1, &frame, frame.len() as u32, DecodeOptions::default(), &mut packet).unwrap();
        let wire_octets = expected.len() as u32;
        assert_eq!(payload(1, &frame, &packet, DecodeOptions::default()), (expected, wire_octets));
    }
}

#[test]
fn octets_behind_the_length_of_udp_are_no_payload() {
    for (length, expected) in [(16, 8), (12, 4), (8, 0), (7, 8), (0, 8), (17, 8), (u16::MAX, 8)] {
        let mut datagram = udp(5, 53, b"question");
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        for frame in [
            ethernet(0x0800, &ipv4(17, &datagram)),
            ethernet(0x8100, &vlan(3, 0x88a8, &vlan(4, 0x86dd, &ipv6(17, &datagram)))),
        ] {
            let mut packet = Packet::default();
            decode(1, &frame, frame.len() as u32, DecodeOptions::default(), &mut packet).unwrap();
            let found = payload(1, &frame, &packet, DecodeOptions::default());
            assert_eq!(found, (&b"question"[..expected], expected as u32), "{length}");
            assert_eq!(packet.payload_bytes, 8);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_octets_are_decoded_safely(bytes in vec(any::<u8>(), 0..200), beyond in 0u32..2000) {
        for link in LINKS {
            checked_both_ways(link, &bytes, bytes.len() as u32 + beyond);
        }
    }

    #[test]
    fn random_octets_after_a_plausible_start_are_decoded_safely(
        start in prop::sample::select(vec![
            &[0x45, 0, 0, 100, 0, 0, 0, 0, 64][..],
            &[0x4f, 0, 0, 0],
            &[0x60, 0, 0, 0, 0, 100],
            &[0x60, 0, 0, 0, 0, 0, 0],
        ]),
        protocol in prop::sample::select(vec![0u8, 1, 4, 6, 17, 41, 43, 44, 47, 51, 58, 60, 132, 135, 140]),
        bytes in vec(any::<u8>(), 0..200),
        beyond in 0u32..2000,
    ) {
        let packet = [start, &[protocol], &bytes].concat();
        checked_both_ways(101, &packet, packet.len() as u32 + beyond);
    }

    #[test]
    fn a_wire_length_below_the_captured_length_is_decoded_safely(bytes in vec(any::<u8>(), 0..100), frame_bytes in 0u32..100) {
        for link in LINKS {
            let _ = checked(link, &bytes, frame_bytes, true);
        }
    }

    #[test]
    fn outer_headers_do_not_change_the_packet(
        packet in ip_packet(), kinds in tunnels(), headers in headers(), link in link(), padding in 0usize..40,
    ) {
        let (inner, _) = checked(101, &packet.octets, packet.octets.len() as u32, false).unwrap();
        let (outer, innermost) = tunnelled(&packet, &kinds);
        let frame = framed(link, &headers, &outer.octets);
        let mut octets = frame.octets.clone();
        // An IPv6 packet without a length extends to the end of the frame, so padding would change
        // it.
        let has_length = packet.octets[0] >> 4 != 6 || packet.octets[4..6] != [0; 2];
        octets.resize(octets.len() + if has_length { padding } else { 0 }, 0xee);
        let (decoded, anomalies) = checked(link, &octets, octets.len() as u32, true).unwrap();
        let (_, expected_anomalies) = checked(101, &packet.octets, packet.octets.len() as u32, false).unwrap();
        prop_assert_eq!(anomalies, expected_anomalies);
        prop_assert_eq!(decoded.tunnel_type, innermost.unwrap_or(TunnelType::None));
        prop_assert_eq!((decoded.vlan, decoded.inner_vlan, decoded.mpls_label), (frame.vlan, frame.inner_vlan, frame.mpls_label));
        let bare = Packet {
            frame_bytes: inner.frame_bytes,
            vlan: NO_VLAN,
            inner_vlan: NO_VLAN,
            mpls_label: NO_LABEL,
            tunnel_type: TunnelType::None,
            tunnel_id: 0,
            outer_source: [0; 16],
            outer_destination: [0; 16],
            flags: Flags(decoded.flags.0 & !Flags::TUNNEL_ID),
            ..decoded
        };
        prop_assert_eq!(bare, inner);
    }

    #[test]
    fn every_snap_length_after_the_headers_gives_the_same_packet(
        packet in ip_packet(), kinds in tunnels(), headers in headers(), link in link(),
    ) {
        let (outer, _) = tunnelled(&packet, &kinds);
        let frame = framed(link, &headers, &outer.octets);
        let wire = frame.octets.len() as u32;
        for decapsulate in [false, true] {
            let (whole, whole_anomalies) = checked(link, &frame.octets, wire, decapsulate).unwrap();
            let needed = frame.link_bytes + outer.header_bytes;
            for snap in needed.min(frame.octets.len())..frame.octets.len() {
                prop_assert_eq!(checked(link, &frame.octets[..snap], wire, decapsulate), Ok((whole, whole_anomalies)));
            }
            // With a shorter one fields may be missing, but none may have another value.
            for snap in 0..needed.min(frame.octets.len()) {
                let cut = checked(link, &frame.octets[..snap], wire, decapsulate);
                if let Ok((cut, _)) = cut && cut.tunnel_type == whole.tunnel_type && cut.outer_source == whole.outer_source {
                    if cut.source == whole.source && cut.network == whole.network {
                        prop_assert!(cut.ip_bytes >= whole.ip_bytes);
                    }
                    prop_assert!(!cut.flags.has(Flags::PORTS) || cut.ip_bytes != whole.ip_bytes
                        || (cut.source_port, cut.icmp()) == (whole.source_port, whole.icmp()));
                }
            }
        }
    }

    #[test]
    fn a_damaged_octet_anywhere_is_decoded_safely(
        packet in ip_packet(), kinds in tunnels(), headers in headers(), link in link(), value in any::<u8>(), bit in 0u8..8,
    ) {
        let (IpPacket { octets, header_bytes }, _) = tunnelled(&packet, &kinds);
        let frame = framed(link, &headers, &octets);
        let wire = frame.octets.len() as u32;
        let mut damaged = frame.octets.clone();
        for at in 0..(frame.link_bytes + header_bytes).min(damaged.len()) {
            for with in [value, frame.octets[at] ^ 1 << bit, 0, 0xff] {
                damaged[at] = with;
                checked_both_ways(link, &damaged, wire);
            }
            damaged[at] = frame.octets[at];
        }
    }
}

#[test]
fn unknown_link_types_are_refused() {
    let is_decoded = |link: &u16| LINKS[..15].contains(link) || *link == record::DECODED_LINK_TYPE;
    for link in (0..=u16::MAX).filter(|link| !is_decoded(link)) {
        assert_eq!(checked(link, &[0x45; 64], 64, true), Err(RefusalReason::LinkType));
    }
}

#[test]
fn header_octets_end_before_payload_also_in_fragments() {
    let (segment, datagram) = (tcp(5, 6, 0x18, b"hello"), udp(5, 53, b"question"));
    let later = |mut ip: Vec<u8>| {
        ip[6..8].copy_from_slice(&[0x20, 0x10]);
        ip
    };
    let fragment_header = |next: u8, offset: u8| vec![next, 0, offset, 0, 0, 0, 0, 1];
    let inner = later(ipv4(17, &[7; 100]));
    let frames = [
        (ethernet(0x0800, &ipv4(6, &segment)), [34, 54]),
        (ethernet(0x8100, &vlan(3, 0x86dd, &ipv6(17, &datagram))), [58, 66]),
        (ethernet(0x0800, &ipv4(1, &[8; 50])), [34, 42]),
        (ethernet(0x0800, &later(ipv4(17, &[7; 100]))), [34, 34]),
        (ethernet(0x8100, &vlan(3, 0x0800, &later(ipv4(6, &[7; 4])))), [38, 38]),
        (ethernet(0x86dd, &ipv6(44, &[fragment_header(17, 1), vec![7; 100]].concat())), [62, 62]),
        (ethernet(0x86dd, &ipv6(44, &[fragment_header(17, 0), udp(5, 53, b"x")].concat())), [62, 70]),
        // Malformed extension headers: up to the last one that was read.
        (ethernet(0x86dd, &ipv6(60, &[17, 200, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4])), [54, 62]),
        // In a tunnel: the headers of the inner packet.
        (ethernet(0x0800, &ipv4(4, &inner)), [54, 54]),
        (ethernet(0x86dd, &ipv6(4, &inner)), [74, 74]),
        (ethernet(0x0800, &ipv4(41, &ipv6(44, &[fragment_header(17, 1), vec![7; 9]].concat()))), [82, 82]),
        (ethernet(0x0800, &later(ipv4(4, &inner))), [34, 34]),
        (ethernet(0x0806, b"no IP"), [19, 19]),
    ];
    let options = DecodeOptions { decapsulate: true };
    for (number, (frame, expected)) in frames.iter().enumerate() {
        let mut packet = Packet::default();
        decode(1, frame, frame.len() as u32, options, &mut packet).unwrap();
        assert_eq!(header_octets(1, frame, &packet, options), *expected, "frame {number}");
        // What was not captured does not count.
        for cut in 0..frame.len() {
            let mut packet = Packet::default();
            if decode(1, &frame[..cut], frame.len() as u32, options, &mut packet).is_ok() {
                let octets = header_octets(1, &frame[..cut], &packet, options);
                assert!(octets[0] <= octets[1] && octets[1] <= cut.min(expected[1]), "frame {number} cut at {cut}");
            }
        }
    }
}
