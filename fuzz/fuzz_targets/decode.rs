//! The decoder: any octets, as any link type, with and without decapsulation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_packet::{Network, DecodeOptions, Packet, decode, decode_general};

const LINKS: [u16; 12] = [0, 1, 12, 14, 101, 108, 113, 228, 229, 276, 105, u16::MAX];

fuzz_target!(|input: (u8, bool, u16, &[u8])| {
    let (link, decapsulate, beyond, bytes) = input;
    let link = LINKS[usize::from(link) % LINKS.len()];
    let frame_bytes = bytes.len() as u32 + u32::from(beyond);
    let mut packet = Packet { time_ns: 1, interface: 2, ..Packet::default() };
    let first = decode(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut packet);

    // What was in the packet before must not matter.
    let mut other =
        Packet { vlan: 7, sequence: 9, source: [0xff; 16], icmp: [1, 2], time_ns: 1, interface: 2, ..packet };
    let second = decode(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut other);
    assert_eq!(first, second);
    if first.is_ok() {
        assert_eq!(packet, other);
        assert_eq!((packet.time_ns, packet.interface, packet.frame_bytes), (1, 2, frame_bytes));
        assert!(packet.network == Network::Layer2 || packet.ip_bytes > 0);
    }

    // The common path is a shorter way to the same place.
    assert_eq!(first, decode_general(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut other));
    if first.is_ok() {
        assert_eq!(packet, other);
    }
});
