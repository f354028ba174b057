//! Comparison with the decoder `etherparse`, field by field, for the frames that it can read.

use super::frames::decoded_as;
use super::strategies::{framed, headers, ip_packet};
use crate::{Flags, NO_VLAN, Network, Packet, ipv4_mapped};
use etherparse::{
    Icmpv4Slice, Icmpv6Slice, IpNumber, Ipv4Slice, Ipv6ExtensionSlice, Ipv6Slice, LinkExtSlice, NetSlice, SlicedPacket,
    TcpOptionElement, TcpSlice, UdpHeaderSlice,
};
use proptest::prelude::*;

/// Compares the fields of a frame, captured whole, with those that etherparse reads. False if it
/// does not support the frame or rejects it.
fn compare(link: u16, frame: &[u8]) -> bool {
    let sliced = match link {
        1 => SlicedPacket::from_ethernet(frame),
        113 => SlicedPacket::from_linux_sll(frame),
        _ => SlicedPacket::from_ip(frame),
    };
    let Ok(sliced) = sliced else { return false };
    let mut tags = Vec::new();
    for extension in &sliced.link_exts {
        match extension {
            LinkExtSlice::Vlan(vlan) => tags.push(vlan.vlan_identifier().value()),
            // Etherparse decodes the payload of MACsec; Weir does not.
            LinkExtSlice::Macsec(_) => return false,
        }
    }
    let packet = || decoded_as(link, frame).0;
    match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => compare_ipv4(ip, &packet()),
        Some(NetSlice::Ipv6(ip)) => compare_ipv6(ip, &packet()),
        Some(NetSlice::Arp(_)) | None => return false,
    }
    let tag = |at: usize| tags.get(at).copied().unwrap_or(NO_VLAN);
    assert_eq!((packet().vlan, packet().inner_vlan), (tag(0), tag(1)));
    true
}

fn compare_ipv4(ip: &Ipv4Slice<'_>, packet: &Packet) {
    let header = ip.header();
    assert_eq!(packet.network, Network::Ipv4);
    assert_eq!((packet.source, packet.destination), (ipv4_mapped(header.source()), ipv4_mapped(header.destination())));
    assert_eq!((packet.ttl, packet.tos), (header.ttl(), header.dcp().value() << 2 | header.ecn().value()));
    assert_eq!((packet.protocol, packet.ip_bytes), (header.protocol().0, header.total_len().into()));
    assert_eq!(packet.identification, header.identification().into());
    let first = header.more_fragments() && header.fragments_offset().value() == 0;
    assert_eq!(packet.flags.has(Flags::FRAGMENT_FIRST), first);
    assert_eq!(packet.flags.has(Flags::FRAGMENT_LATER), header.fragments_offset().value() != 0);
    // Etherparse skips an authentication header over IPv4; Weir takes it as the protocol.
    if ip.extensions().auth.is_none() {
        compare_transport(ip.payload().payload, packet);
    }
}

fn compare_ipv6(ip: &Ipv6Slice<'_>, packet: &Packet) {
    let header = ip.header();
    assert_eq!(packet.network, Network::Ipv6);
    assert_eq!((packet.source, packet.destination), (header.source(), header.destination()));
    assert_eq!((packet.ttl, packet.tos), (header.hop_limit(), header.traffic_class()));
    let whole = ip.extensions().slice().len() + ip.payload().payload.len();
    if header.payload_length() != 0 || header.next_header() != IpNumber::IPV6_HEADER_HOP_BY_HOP {
        assert_eq!(packet.ip_bytes as usize, 40 + whole);
    } else {
        // Etherparse does not support jumbograms.
        return;
    }
    // Etherparse does not support these three extension headers.
    if matches!(ip.payload().ip_number.0, 135 | 139 | 140) {
        return;
    }
    // Up to the first header of a later fragment: etherparse continues after it, Weir does not.
    let (mut first, mut later, mut identification, mut extensions) = (false, false, 0, 0);
    for extension in ip.extensions().clone() {
        extensions += 1;
        if let Ipv6ExtensionSlice::Fragment(fragment) = extension {
            identification = fragment.identification();
            later = fragment.fragment_offset().value() != 0;
            first = !later && (first || fragment.more_fragments());
            if later {
                break;
            }
        }
    }
    if extensions > 16 {
        return;
    }
    // The upper half may hold the maximum segment size.
    let mask = if first || later { u32::MAX } else { 0xffff };
    assert_eq!(packet.identification & mask, identification & mask);
    assert_eq!(packet.flags.has(Flags::FRAGMENT_FIRST), first);
    assert_eq!(packet.flags.has(Flags::FRAGMENT_LATER), later);
    if !later {
        assert_eq!(packet.protocol, ip.payload().ip_number.0);
        compare_transport(ip.payload().payload, packet);
    }
}

/// `octets` is the whole payload of the IP headers.
fn compare_transport(octets: &[u8], packet: &Packet) {
    if packet.flags.has(Flags::FRAGMENT_LATER) {
        assert_eq!(packet.payload_bytes as usize, octets.len());
        return;
    }
    let ports = (packet.source_port, packet.destination_port);
    match (packet.network, packet.protocol) {
        (_, 6) => {
            let Ok(tcp) = TcpSlice::from_slice(octets) else { return };
            assert_eq!(ports, (tcp.source_port(), tcp.destination_port()));
            assert_eq!(packet.sequence, tcp.sequence_number());
            assert_eq!(packet.acknowledgment, tcp.acknowledgment_number());
            assert_eq!((packet.window, packet.payload_bytes as usize), (tcp.window_size(), tcp.payload().len()));
            let bits =
                [tcp.fin(), tcp.syn(), tcp.rst(), tcp.psh(), tcp.ack(), tcp.urg(), tcp.ece(), tcp.cwr(), tcp.ns()];
            let control = bits.iter().enumerate().map(|(at, &bit)| u16::from(bit) << at).sum::<u16>();
            // Etherparse does not read the three reserved bits.
            assert_eq!(packet.control & 0x1ff, control);
            assert_eq!(u16::from_be_bytes(packet.icmp_or_checksum), tcp.checksum());
            if tcp.syn() && !packet.flags.has(Flags::FRAGMENT_FIRST) {
                // Etherparse stops at impossible options, as Weir does.
                let options: Vec<_> = tcp.options_iterator().map_while(Result::ok).collect();
                let size = options.iter().find_map(|option| match option {
                    TcpOptionElement::MaximumSegmentSize(size) => Some(*size),
                    _ => None,
                });
                let scale = options.iter().find_map(|option| match option {
                    TcpOptionElement::WindowScale(scale) => Some(*scale.min(&14)),
                    _ => None,
                });
                assert_eq!(
                    (packet.maximum_segment_size(), packet.window_scale()),
                    (size.filter(|&size| size > 0), scale)
                );
            }
        }
        (_, 17) => {
            let Ok(udp) = UdpHeaderSlice::from_slice(octets) else { return };
            assert_eq!(ports, (udp.source_port(), udp.destination_port()));
            assert_eq!(packet.payload_bytes as usize, octets.len() - 8);
        }
        (Network::Ipv4, 1) => {
            let Ok(icmp) = Icmpv4Slice::from_slice(octets) else { return };
            assert_eq!(packet.icmp(), [icmp.type_u8(), icmp.code_u8()]);
        }
        (Network::Ipv6, 58) => {
            let Ok(icmp) = Icmpv6Slice::from_slice(octets) else { return };
            assert_eq!(packet.icmp(), [icmp.type_u8(), icmp.code_u8()]);
        }
        (_, 33 | 132 | 136) => {}
        _ => assert_eq!(packet.payload_bytes as usize, octets.len()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn whole_frames_are_decoded_alike(
        packet in ip_packet(), headers in headers(), link in prop::sample::select(vec![1u16, 1, 101, 113]), padding in 0usize..20,
    ) {
        // Etherparse supports at most three VLAN tags, of three EtherTypes, and no other headers.
        use super::strategies::Header::Vlan;
        let known: Vec<_> = headers
            .into_iter()
            .filter(|header| matches!(header, Vlan { ethertype: 0x8100 | 0x88a8 | 0x9100, .. }))
            .take(3)
            .collect();
        let mut frame = framed(link, &known, &packet.octets).octets;
        // Etherparse also reads the bodies of ICMP and IGMP, and rejects some lengths.
        let (decoded, _) = decoded_as(link, &frame);
        prop_assert!(compare(link, &frame) || matches!(decoded.protocol, 1 | 2));
        frame.resize(frame.len() + padding, 0);
        compare(link, &frame);
    }

    #[test]
    fn damaged_frames_are_decoded_alike(
        packet in ip_packet(), headers in headers(), link in prop::sample::select(vec![1u16, 1, 101, 113]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let frame = framed(link, &headers, &packet.octets);
        let mut octets = frame.octets;
        let header_bytes = (frame.link_bytes + packet.header_bytes).min(octets.len());
        for (at, value) in damage {
            octets[at.index(header_bytes)] = value;
        }
        compare(link, &octets);
    }
}
