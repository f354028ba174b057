//! A packet as a batch holds it: 36 bytes for IPv4, 56 for IPv6.
//!
//! Packing keeps what the analysis reads: unpacking returns the [`Segment`] of the packet, except
//! that the window of a segment with payload and without SYN is 0 or 1, because only that matters.
//! What does not fit goes into an extension, the next entry of the batch: options and window of a
//! SYN, payload above 65 535 octets, and that the packet is a first fragment. `kernels/weir.cu`
//! reads the same layout.

use crate::key::{ConnectionKey, halves};
use bytemuck::{Pod, Zeroable};
use weir_packet::{Network, Packet};
use weir_tcp::{DigestKey, Segment};

/// A segment without its endpoints, 20 bytes. An extension holds payload octets, then window and
/// maximum segment size, then window scale in place of both numbers and the time, and
/// [`Segment::FIRST_FRAGMENT`] or 0 in place of the bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PackedSegment {
    sequence: u32,
    acknowledgment: u32,
    /// Time since the base of the batch.
    time_ns: u32,
    /// Payload octets; without payload the window.
    size: u16,
    ttl: u8,
    bits: u8,
    digest: u32,
}

/// A packet over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PackedIpv4 {
    source: u32,
    destination: u32,
    source_port: u16,
    destination_port: u16,
    segment: PackedSegment,
    /// The only field that IPv6 lacks.
    identification: u16,
    unused: u16,
}

/// A packet over IPv6. The upper half of an address comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PackedIpv6 {
    source: [u64; 2],
    destination: [u64; 2],
    source_port: u16,
    destination_port: u16,
    segment: PackedSegment,
}

const _: () =
    assert!(size_of::<PackedSegment>() == 20 && size_of::<PackedIpv4>() == 36 && size_of::<PackedIpv6>() == 56);

/// [`PackedSegment::bits`]: the control bits FIN, SYN and RST as on the wire, ACK in the place of
/// PSH.
const FIN_SYN_RST: u16 = Packet::FIN | Packet::SYN | Packet::RST;
const ACK: u8 = 1 << 3;
/// Two bits for the kind of packet. No payload: `size` is the window.
const BARE: u8 = 0;
/// `size` is the payload, the window is not 0.
const PAYLOAD: u8 = 1 << 4;
/// `size` is the payload, the window is 0.
const PAYLOAD_ZERO_WINDOW: u8 = 2 << 4;
/// No whole TCP header.
const UNREAD: u8 = 3 << 4;
const KIND: u8 = 3 << 4;
/// An extension follows.
const EXTENDED: u8 = 1 << 7;

impl PackedSegment {
    /// Packs a packet, and returns its extension if it needs one. Its time is less than 2^32 ns
    /// after `base_ns`.
    #[inline]
    pub fn pack(packet: &Packet, base_ns: u64, key: &DigestKey) -> (Self, Option<Self>) {
        let time_ns = packet.time_ns.wrapping_sub(base_ns) as u32;
        let Some(segment) = Segment::from_packet(packet, key) else {
            return (Self { time_ns, bits: UNREAD, ..Self::default() }, None);
        };
        let control = u16::from(segment.control);
        let (kind, size) = match (segment.payload_bytes, segment.window) {
            (0, window) => (BARE, window),
            (payload, 0) => (PAYLOAD_ZERO_WINDOW, payload as u16),
            (payload, _) => (PAYLOAD, payload as u16),
        };
        let syn = control & Packet::SYN != 0;
        let options = segment.payload_bytes > 0 || segment.maximum_segment_size > 0 || segment.window_scale > 0;
        let fragment = segment.control & Segment::FIRST_FRAGMENT;
        let extension = (syn && options || segment.payload_bytes > u16::MAX.into() || fragment != 0).then(|| Self {
            sequence: segment.payload_bytes,
            acknowledgment: u32::from(segment.maximum_segment_size) << 16 | u32::from(segment.window),
            time_ns: segment.window_scale.into(),
            bits: fragment,
            ..Self::default()
        });
        let mut bits = (control & FIN_SYN_RST) as u8 | kind;
        bits |= if control & Packet::ACK != 0 { ACK } else { 0 };
        bits |= if extension.is_some() { EXTENDED } else { 0 };
        let Segment { sequence, acknowledgment, ttl, digest, .. } = segment;
        (Self { sequence, acknowledgment, time_ns, size, ttl, bits, digest }, extension)
    }

    /// Whether an extension follows.
    #[inline(always)]
    pub fn has_extension(&self) -> bool {
        self.bits & EXTENDED != 0
    }

    /// Time of the packet, ns since 1970-01-01 UTC.
    #[inline(always)]
    pub fn time_ns(&self, base_ns: u64) -> u64 {
        base_ns + u64::from(self.time_ns)
    }

    /// Unpacks the segment; `None` for a packet without a whole TCP header.
    #[inline(always)]
    pub fn unpack(&self, extension: Option<&Self>, identification: u16, base_ns: u64) -> Option<Segment> {
        let kind = self.bits & KIND;
        if kind == UNREAD {
            return None;
        }
        let bare = kind == BARE;
        let mut segment = Segment {
            time_ns: self.time_ns(base_ns),
            sequence: self.sequence,
            acknowledgment: self.acknowledgment,
            payload_bytes: if bare { 0 } else { self.size.into() },
            digest: self.digest,
            window: if bare { self.size } else { (kind == PAYLOAD).into() },
            maximum_segment_size: 0,
            window_scale: 0,
            control: self.bits & FIN_SYN_RST as u8 | (self.bits & ACK) << 1,
            ttl: self.ttl,
            identification,
        };
        if let Some(extension) = extension {
            segment.payload_bytes = extension.sequence;
            segment.window = extension.acknowledgment as u16;
            segment.maximum_segment_size = (extension.acknowledgment >> 16) as u16;
            segment.window_scale = extension.time_ns as u8;
            segment.control |= extension.bits;
        }
        Some(segment)
    }
}

/// An entry of a batch.
pub(crate) trait PackedPacket: Pod {
    /// Adds the endpoints of a packet to its packed segment or extension.
    fn new(packet: &Packet, segment: PackedSegment) -> Self;

    fn segment(&self) -> &PackedSegment;

    /// [`Segment::identification`].
    fn identification(&self) -> u16;

    /// The connection, and the side of it that sent the packet.
    fn key(&self) -> (ConnectionKey, usize);
}

impl PackedPacket for PackedIpv4 {
    fn new(packet: &Packet, segment: PackedSegment) -> Self {
        Self {
            source: u128::from_be_bytes(packet.source) as u32,
            destination: u128::from_be_bytes(packet.destination) as u32,
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            segment,
            identification: packet.identification as u16,
            unused: 0,
        }
    }

    #[inline(always)]
    fn segment(&self) -> &PackedSegment {
        &self.segment
    }

    #[inline(always)]
    fn identification(&self) -> u16 {
        self.identification
    }

    #[inline(always)]
    fn key(&self) -> (ConnectionKey, usize) {
        let (source, destination) = ([0, self.source.into()], [0, self.destination.into()]);
        ConnectionKey::new((source, self.source_port), (destination, self.destination_port), Network::Ipv4)
    }
}

impl PackedPacket for PackedIpv6 {
    fn new(packet: &Packet, segment: PackedSegment) -> Self {
        Self {
            source: halves(u128::from_be_bytes(packet.source)),
            destination: halves(u128::from_be_bytes(packet.destination)),
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            segment,
        }
    }

    #[inline(always)]
    fn segment(&self) -> &PackedSegment {
        &self.segment
    }

    #[inline(always)]
    fn identification(&self) -> u16 {
        0
    }

    #[inline(always)]
    fn key(&self) -> (ConnectionKey, usize) {
        ConnectionKey::new((self.source, self.source_port), (self.destination, self.destination_port), Network::Ipv6)
    }
}
