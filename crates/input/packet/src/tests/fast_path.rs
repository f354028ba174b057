//! The fast path accepts common frames and declines all others. (`properties.rs` compares it with
//! the general decoder for every frame that it generates.)

use super::frames::*;
use super::properties::decoded_alike;
use crate::{DecodeOptions, Packet, decode_general, fast_path};
use std::path::Path;

/// Decodes an Ethernet frame on the fast path; `None` if it declines.
fn decode_fast(frame: &[u8], captured: usize, decapsulate: bool) -> Option<Packet> {
    let mut packet = Packet::default();
    fast_path::decode(&frame[..captured], frame.len() as u32, decapsulate, &mut packet).then_some(packet)
}

fn accepts(frame: &[u8]) -> bool {
    decode_fast(frame, frame.len(), false).is_some()
}

/// Common frames, each with the number of octets up to the last field that is read (UDP: the
/// ports).
fn common_frames(payload: &[u8]) -> Vec<(Vec<u8>, usize)> {
    let segment = |option_words: u8| {
        let options = vec![1; usize::from(option_words) * 4];
        let mut segment = tcp(5, 6, 0x018, &[&options, payload].concat());
        segment[12] += option_words << 4;
        (6, segment, 20)
    };
    let transports = [(17, udp(5, 6, payload), 4), segment(0), segment(3), segment(10)];
    let packets = transports.iter().flat_map(|(protocol, octets, header)| {
        [(0x0800, ipv4(*protocol, octets), 20 + header), (0x86dd, ipv6(*protocol, octets), 40 + header)]
    });
    packets
        .flat_map(|(ethertype, ip, headers)| {
            let tagged = ethernet(0x8100, &vlan(0xe007, ethertype, &ip));
            [(ethernet(ethertype, &ip), 14 + headers), (tagged, 18 + headers)]
        })
        .collect()
}

#[test]
fn common_frames_are_accepted_padded_to_the_minimum() {
    for payload in 0..100 {
        for (mut frame, _) in common_frames(&vec![0; payload]) {
            frame.resize(frame.len().max(60), 0);
            for decapsulate in [false, true] {
                assert!(decode_fast(&frame, frame.len(), decapsulate).is_some(), "{frame:x?}");
            }
        }
    }
}

#[test]
fn only_the_headers_need_to_be_captured() {
    for (frame, header_bytes) in common_frames(&[0; 12]) {
        // UDP over IPv4 needs the length of a TCP header too, because the captured length is
        // compared once.
        let needed = header_bytes.max(if frame[12..14] == [0x81, 0] { 58 } else { 54 });
        for captured in 0..=frame.len() {
            assert_eq!(decode_fast(&frame, captured, false).is_some(), captured >= needed, "{captured} of {frame:x?}");
        }
    }
}

#[test]
fn unusual_frames_are_declined() {
    let plain = ethernet(0x0800, &ipv4(6, &tcp(5, 6, 0x018, &[0; 20])));
    assert!(accepts(&plain));
    // Version, header length; total length 0, too short and beyond the frame; fragments; protocol;
    // data offset.
    for (at, octets) in [
        (14, &[0x46][..]),
        (14, &[0x65]),
        (16, &[0, 0]),
        (16, &[0, 39]),
        (16, &[0, 61]),
        (20, &[0x20, 0]),
        (20, &[0, 1]),
        (20, &[0x1f, 0xff]),
        (23, &[1]),
        (46, &[0x40]),
        (46, &[0xf0]),
    ] {
        let mut frame = plain.clone();
        frame[at..at + octets.len()].copy_from_slice(octets);
        assert!(!accepts(&frame), "{octets:x?} at {at}");
    }
    for port in [4789, 6081, 2152] {
        for (ethertype, ip) in [(0x0800, udp_in_v4(5, port, &[0; 12])), (0x86dd, udp_in_v6(5, port, &[0; 12]))] {
            let frame = ethernet(ethertype, &ip);
            assert!(accepts(&frame));
            assert_eq!(decode_fast(&frame, frame.len(), true), None, "a tunnel to port {port}");
        }
    }
}

#[test]
fn a_declined_frame_leaves_the_packet_unchanged() {
    let before = Packet { source: [7; 16], window: 7, vlan: 7, ..Packet::default() };
    let mut packet = before;
    let frame = ethernet(0x0800, &udp_in_v4(5, 4789, &[0; 12]));
    assert!(!fast_path::decode(&frame, frame.len() as u32, true, &mut packet));
    assert_eq!(packet, before);
}

/// Every frame of the test captures, cut at every octet, is decoded alike by both paths; the fast
/// path accepts at least 95 % of TCP and UDP over Ethernet.
#[test]
fn the_test_captures_are_decoded_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures");
    let (mut files, mut common, mut accepted) = (0, 0, 0);
    for file in folder.read_dir().expect("the captures can be listed") {
        let path = file.expect("the captures can be listed").path();
        let Ok(mut source) = weir_capture::open(&path) else { continue };
        files += 1;
        while let Some(burst) = source.burst().expect("the capture is whole") {
            for frame in &burst {
                for cut in 0..=frame.bytes.len().min(160) {
                    decoded_alike(frame.link_type, &frame.bytes[..cut], frame.wire_bytes);
                }
                decoded_alike(frame.link_type, frame.bytes, frame.wire_bytes);
                let mut packet = Packet::default();
                let options = DecodeOptions::default();
                let anomalies = decode_general(frame.link_type, frame.bytes, frame.wire_bytes, options, &mut packet);
                let tcp_or_udp = matches!(packet.protocol, 6 | 17) && packet.flags.has(crate::Flags::PORTS);
                if frame.link_type == 1 && tcp_or_udp && anomalies.is_ok_and(|anomalies| anomalies.is_empty()) {
                    common += 1;
                    accepted +=
                        u32::from(fast_path::decode(frame.bytes, frame.wire_bytes, false, &mut Packet::default()));
                }
            }
        }
    }
    println!("{files} captures, {common} frames of TCP or UDP, {accepted} of them accepted by the fast path");
    // The others are truncated, have two VLAN tags, labels, IP options or extension headers.
    assert!(files >= 31 && accepted * 20 >= common * 19);
}
