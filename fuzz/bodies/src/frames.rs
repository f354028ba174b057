//! The decoder: any octets, as any link type, with and without decapsulation.

use weir_packet::{DecodeOptions, Network, Packet, decode as decode_frame, decode_general};
use weir_testkit::input::{Input, pick};
use weir_testkit::{RawFrame, compare};

/// Link types that are decoded, and two that are not.
pub(crate) const LINK_TYPES: [u16; 17] =
    [0, 1, 9, 12, 14, 50, 100, 101, 104, 108, 113, 228, 229, 239, 276, 105, u16::MAX];

/// Decodes a frame. Invariants: nothing panics; the old contents of the packet do not matter; the
/// fast path, the general decoder and the reference decoder agree.
///
/// # Panics
/// An invariant does not hold.
pub fn decode(input: &[u8]) {
    let mut input = Input(input);
    let (link_type, decapsulate) = (pick(&LINK_TYPES, input.octet()), input.octet() & 1 != 0);
    let (beyond, bytes) = (input.u16(), input.rest());
    let wire_bytes = bytes.len() as u32 + u32::from(beyond);
    let options = DecodeOptions { decapsulate };
    let mut packet = Packet { time_ns: 1, interface: 2, ..Packet::default() };
    let first = decode_frame(link_type, bytes, wire_bytes, options, &mut packet);

    let mut other = Packet {
        vlan: 7,
        sequence: 9,
        source: [0xff; 16],
        icmp_or_checksum: [1, 2],
        time_ns: 1,
        interface: 2,
        ..packet
    };
    let second = decode_frame(link_type, bytes, wire_bytes, options, &mut other);
    assert_eq!(first, second);
    if first.is_ok() {
        assert_eq!(packet, other);
        assert_eq!((packet.time_ns, packet.interface, packet.frame_bytes), (1, 2, wire_bytes));
        assert!(packet.network == Network::Layer2 || packet.ip_bytes > 0);
    }

    assert_eq!(first, decode_general(link_type, bytes, wire_bytes, options, &mut other));
    if first.is_ok() {
        assert_eq!(packet, other);
    }

    let frame = RawFrame { time_ns: 1, wire_bytes, link_type, interface: 2, bytes: bytes.into() };
    compare::decoders(&frame, decapsulate).unwrap_or_else(|difference| panic!("{difference}"));
}
