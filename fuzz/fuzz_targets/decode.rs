//! The decoder: any bytes, as any link type, with and without decapsulation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_packet::{Network, DecodeOptions, Packet, decode, decode_general};

const LINK_TYPES: [u16; 17] = [0, 1, 9, 12, 14, 50, 100, 101, 104, 108, 113, 228, 229, 239, 276, 105, u16::MAX];

fuzz_target!(|input: (u8, bool, u16, &[u8])| {
    let (link, decapsulate, beyond, bytes) = input;
    let link = LINK_TYPES[usize::from(link) % LINK_TYPES.len()];
    let frame_bytes = bytes.len() as u32 + u32::from(beyond);
    let mut packet = Packet { time_ns: 1, interface: 2, ..Packet::default() };
    let first = decode(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut packet);

    // The old contents of the packet must not matter.
    let mut other =
        Packet { vlan: 7, sequence: 9, source: [0xff; 16], icmp_or_checksum: [1, 2], time_ns: 1, interface: 2, ..packet };
    let second = decode(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut other);
    assert_eq!(first, second);
    if first.is_ok() {
        assert_eq!(packet, other);
        assert_eq!((packet.time_ns, packet.interface, packet.frame_bytes), (1, 2, frame_bytes));
        assert!(packet.network == Network::Layer2 || packet.ip_bytes > 0);
    }

    // The fast path gives the same result as the general decoder.
    assert_eq!(first, decode_general(link, bytes, frame_bytes, DecodeOptions { decapsulate }, &mut other));
    if first.is_ok() {
        assert_eq!(packet, other);
    }
});
