//! Frames for tests: each function puts one header before a payload.

use crate::{AnomalySet, DecodeOptions, Network, Packet, TunnelType, decode, ipv4_mapped};
use std::ops::Range;
use weir_ledger::{PacketAnomaly, RefusalReason};

pub(crate) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A VLAN tag without the EtherType that announces it.
pub(crate) fn vlan(tag: u16, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&tag.to_be_bytes(), &ethertype.to_be_bytes(), payload].concat()
}

pub(crate) fn mpls(labels: &[u32], payload: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    for (at, label) in labels.iter().enumerate() {
        let bottom = u32::from(at + 1 == labels.len());
        octets.extend((label << 12 | bottom << 8 | 64).to_be_bytes());
    }
    octets.extend(payload);
    octets
}

pub(crate) fn pppoe(protocol: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = (protocol.len() + payload.len()) as u16;
    [&[0x11, 0, 0, 7][..], &length.to_be_bytes(), protocol, payload].concat()
}

pub(crate) fn ipv4_from(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let fixed = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0];
    [&fixed[..], &source, &destination, payload].concat()
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_from([10, 0, 0, 1], [10, 0, 0, 2], protocol, payload)
}

pub(crate) fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let address = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    [&[0x60, 0, 0, 0, high, low, protocol, 64][..], &address(1), &address(2), payload].concat()
}

pub(crate) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    [&source.to_be_bytes(), &destination.to_be_bytes(), &length.to_be_bytes(), &[0, 0][..], payload].concat()
}

pub(crate) fn udp_in_v4(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    ipv4(17, &udp(source, destination, payload))
}

pub(crate) fn udp_in_v6(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    ipv6(17, &udp(source, destination, payload))
}

pub(crate) fn udp_from(
    source: [u8; 4],
    destination: [u8; 4],
    source_port: u16,
    destination_port: u16,
    payload: &[u8],
) -> Vec<u8> {
    ipv4_from(source, destination, 17, &udp(source_port, destination_port, payload))
}

pub(crate) fn tcp(source: u16, destination: u16, control: u16, payload: &[u8]) -> Vec<u8> {
    let mut octets = [&source.to_be_bytes(), &destination.to_be_bytes(), &[0; 8][..]].concat();
    octets.extend((0x5000 | control).to_be_bytes());
    octets.extend([0; 6]);
    octets.extend(payload);
    octets
}

/// An Ethernet frame, captured whole.
pub(crate) fn decoded(frame: &[u8]) -> (Packet, AnomalySet) {
    decoded_as(1, frame)
}

/// A frame of a link type, captured whole.
pub(crate) fn decoded_as(link: u16, frame: &[u8]) -> (Packet, AnomalySet) {
    snapped(link, frame, frame.len())
}

/// A frame of which only the first `captured` octets were captured.
pub(crate) fn snapped(link: u16, frame: &[u8], captured: usize) -> (Packet, AnomalySet) {
    with_options(link, frame, captured, DecodeOptions { decapsulate: false }).expect("the frame is decoded")
}

/// A frame captured whole and decapsulated.
pub(crate) fn decapsulated(link: u16, frame: &[u8]) -> (Packet, AnomalySet) {
    with_options(link, frame, frame.len(), DecodeOptions { decapsulate: true }).expect("the frame is decoded")
}

pub(crate) fn with_options(
    link: u16,
    frame: &[u8],
    captured: usize,
    options: DecodeOptions,
) -> Result<(Packet, AnomalySet), RefusalReason> {
    let mut packet = Packet::default();
    decode(link, &frame[..captured], frame.len() as u32, options, &mut packet).map(|anomalies| (packet, anomalies))
}

/// Why the captured octets of a long frame are refused.
pub(crate) fn refusal(link: u16, captured: &[u8]) -> RefusalReason {
    let mut packet = Packet::default();
    decode(link, captured, 1514, DecodeOptions::default(), &mut packet).expect_err("the frame is refused")
}

pub(crate) fn anomaly_list(anomalies: AnomalySet) -> Vec<PacketAnomaly> {
    anomalies.iter().collect()
}

/// Checks that a packet has no anomalies.
#[track_caller]
pub(crate) fn without_anomalies(decoded: (Packet, AnomalySet)) -> Packet {
    with_anomalies(decoded, &[])
}

/// Checks the anomalies of a packet.
#[track_caller]
pub(crate) fn with_anomalies((packet, anomalies): (Packet, AnomalySet), expected: &[PacketAnomaly]) -> Packet {
    assert_eq!(anomaly_list(anomalies), expected);
    packet
}

/// Checks that the frame leads to `udp_in_v4(5, 6, b"x")` or `udp_in_v6(5, 6, b"x")`.
pub(crate) fn assert_leads_to(network: Network, link: u16, frame: &[u8]) -> Packet {
    let packet = without_anomalies(decoded_as(link, frame));
    let ip_bytes = if network == Network::Ipv4 { 29 } else { 49 };
    let fields = (packet.network, packet.source_port, packet.ip_bytes, packet.payload_bytes);
    assert_eq!(fields, (network, 5, ip_bytes, 1), "link type {link}: {frame:x?}");
    packet
}

/// Checks that the frame is not IP and has this EtherType.
pub(crate) fn assert_not_ip(link: u16, frame: &[u8], ethertype: u16) -> Packet {
    let packet = decoded_as(link, frame).0;
    assert_eq!((packet.network, packet.source_port), (Network::Layer2, ethertype), "link type {link}: {frame:x?}");
    packet
}

/// Checks that a frame with IPv4 behind `header_bytes` of other headers is refused wherever the
/// capture ends before the end of the IPv4 header.
pub(crate) fn assert_truncation_is_refused(link: u16, frame: &[u8], header_bytes: usize) {
    for cut in 0..header_bytes + 20 {
        let before_ip = cut < header_bytes;
        let reason = if before_ip { RefusalReason::LinkTruncated } else { RefusalReason::Ipv4Truncated };
        assert_eq!(refusal(link, &frame[..cut]), reason, "link type {link} cut at {cut}: {frame:x?}");
    }
}

/// Checks the outer addresses of the innermost tunnel.
pub(crate) fn assert_outer_v4(packet: &Packet) {
    assert_eq!(packet.outer_source, ipv4_mapped([192, 0, 2, 1]));
    assert_eq!(packet.outer_destination, ipv4_mapped([192, 0, 2, 2]));
}

/// Checks that the packet is not decapsulated and has the `expected` anomalies.
pub(crate) fn assert_not_decapsulated(link: u16, frame: &[u8], expected: &[PacketAnomaly]) {
    let packet = with_anomalies(decapsulated(link, frame), expected);
    assert_eq!(packet, decoded_as(link, frame).0);
    assert_eq!(packet.tunnel_type, TunnelType::None);
}

/// Checks that the packet is not decapsulated because a header is truncated or impossible.
pub(crate) fn assert_malformed(link: u16, frame: &[u8]) {
    assert_not_decapsulated(link, frame, &[PacketAnomaly::TunnelMalformed]);
}

/// Checks that the packet is not decapsulated if it is cut anywhere in `cuts`, and that it is if
/// cut at their end.
pub(crate) fn assert_decapsulated_from(link: u16, frame: &[u8], cuts: Range<usize>) {
    let options = DecodeOptions { decapsulate: true };
    for cut in cuts.clone() {
        let (packet, anomalies) = with_options(link, frame, cut, options).expect("the outer packet is decoded");
        assert_eq!(anomaly_list(anomalies), [PacketAnomaly::TunnelMalformed], "cut at {cut}");
        assert_eq!(packet, snapped(link, frame, cut).0, "cut at {cut}");
    }
    let (packet, _) = with_options(link, frame, cuts.end, options).expect("the inner packet is decoded");
    assert_ne!(packet.tunnel_type, TunnelType::None);
    assert_eq!(packet.ip_bytes, decapsulated(link, frame).0.ip_bytes);
}
