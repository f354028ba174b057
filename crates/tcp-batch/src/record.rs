//! What a batch holds of a packet: 32 octets of IPv4, 56 of IPv6.
//!
//! In: a [`Packet`]. Out: its [`Facts`] behind the endpoints, and from those the very [`Segment`] that
//! [`Segment::of`] makes of the packet, but that a window of payload without SYN is 0 or 1, of which nothing else matters.
//! What does not fit (options and window of a SYN, payload above 65 535 octets, that it is a first fragment) is in a
//! second record right behind. The kernels read the same: `kernels/weir.cu`.

use crate::key::ConnectionKey;
use bytemuck::{Pod, Zeroable};
use weir_packet::{Flags, Network, Packet};
use weir_tcp::{DigestKey, Segment};

/// The protocol number of TCP.
const TCP: u8 = 6;

/// What is said of a segment beside its endpoints, 20 octets. In a second record: payload octets, window and maximum
/// segment size, window scale in place of both numbers and the time; [`Segment::FIRST_FRAGMENT`] or nothing in place of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Facts {
    sequence: u32,
    acknowledgment: u32,
    /// Since the batch's base, ns.
    time_ns: u32,
    /// Octets of payload; without payload the window.
    size: u16,
    ttl: u8,
    bits: u8,
    mark: u32,
}

/// A packet by IPv4. Addresses and ports are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Ipv4 {
    source: u32,
    destination: u32,
    source_port: u16,
    destination_port: u16,
    facts: Facts,
}

/// A packet by IPv6. Of an address the upper half comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Ipv6 {
    source: [u64; 2],
    destination: [u64; 2],
    source_port: u16,
    destination_port: u16,
    facts: Facts,
}

const _: () = assert!(size_of::<Facts>() == 20 && size_of::<Ipv4>() == 32 && size_of::<Ipv6>() == 56);

/// The low bits of [`Facts::bits`] are those of the wire, with ACK in the place of PSH.
const FIN_SYN_RST: u16 = Packet::FIN | Packet::SYN | Packet::RST;
const ACK: u8 = 1 << 3;
/// What the record is of, two bits: `size` is the window.
const BARE: u8 = 0;
/// `size` is payload, the window is not 0.
const PAYLOAD: u8 = 1 << 4;
/// `size` is payload, the window is 0.
const PAYLOAD_CLOSED: u8 = 2 << 4;
/// A packet without a whole TCP header.
const UNREAD: u8 = 3 << 4;
const KIND: u8 = 3 << 4;
const IDENTIFIED: u8 = 1 << 6;
/// Another record of the same packet follows.
const SECOND: u8 = 1 << 7;

/// Why a packet is no part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotTcp,
    NoPorts,
}

/// Which records a packet is for.
pub(crate) fn network(packet: &Packet) -> Result<Network, Refusal> {
    if packet.protocol != TCP || packet.network == Network::Layer2 {
        Err(Refusal::NotTcp)
    } else if !packet.flags.has(Flags::PORTS) {
        Err(Refusal::NoPorts)
    } else {
        Ok(packet.network)
    }
}

impl Facts {
    /// Of a packet, and of its second record if it needs one. The time is less than 2^32 ns after the base.
    #[inline]
    pub fn of(packet: &Packet, base_ns: u64, secret: &DigestKey) -> (Self, Option<Self>) {
        let time_ns = packet.time_ns.wrapping_sub(base_ns) as u32;
        let Some(segment) = Segment::from_packet(packet, secret) else {
            return (Self { time_ns, bits: UNREAD, ..Self::default() }, None);
        };
        let control = u16::from(segment.control);
        let (kind, size) = match (segment.payload_bytes, segment.window) {
            (0, window) => (BARE, window),
            (payload, 0) => (PAYLOAD_CLOSED, payload as u16),
            (payload, _) => (PAYLOAD, payload as u16),
        };
        let syn = control & Packet::SYN != 0;
        let options = segment.payload_bytes > 0 || segment.maximum_segment_size > 0 || segment.window_scale > 0;
        let fragment = segment.control & Segment::FIRST_FRAGMENT;
        let second = (syn && options || segment.payload_bytes > u16::MAX.into() || fragment != 0).then(|| Self {
            sequence: segment.payload_bytes,
            acknowledgment: u32::from(segment.maximum_segment_size) << 16 | u32::from(segment.window),
            time_ns: segment.window_scale.into(),
            bits: fragment,
            ..Self::default()
        });
        let mut bits = (control & FIN_SYN_RST) as u8 | kind;
        bits |= if control & Packet::ACK != 0 { ACK } else { 0 };
        bits |= if segment.has_identification { IDENTIFIED } else { 0 };
        bits |= if second.is_some() { SECOND } else { 0 };
        let (sequence, acknowledgment, ttl, mark) =
            (segment.sequence, segment.acknowledgment, segment.ttl, segment.digest);
        (Self { sequence, acknowledgment, time_ns, size, ttl, bits, mark }, second)
    }

    /// Whether another record of the same packet follows.
    #[inline(always)]
    pub fn has_second(&self) -> bool {
        self.bits & SECOND != 0
    }

    /// Whether it is a SYN that begins a connection: without ACK and RST.
    #[inline(always)]
    pub fn opens(&self) -> bool {
        const OPENING: u8 = ACK | (Packet::SYN | Packet::RST) as u8;
        self.bits & OPENING == Packet::SYN as u8 && self.bits & KIND != UNREAD
    }

    /// Time of the packet.
    #[inline(always)]
    pub fn time_ns(&self, base_ns: u64) -> u64 {
        base_ns + u64::from(self.time_ns)
    }

    /// What was packed; `None` of a packet without a whole TCP header.
    #[inline(always)]
    pub fn segment(&self, second: Option<&Self>, base_ns: u64) -> Option<Segment> {
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
            digest: self.mark,
            window: if bare { self.size } else { (kind == PAYLOAD).into() },
            maximum_segment_size: 0,
            window_scale: 0,
            control: self.bits & FIN_SYN_RST as u8 | (self.bits & ACK) << 1,
            ttl: self.ttl,
            has_identification: self.bits & IDENTIFIED != 0,
        };
        if let Some(second) = second {
            segment.payload_bytes = second.sequence;
            segment.window = second.acknowledgment as u16;
            segment.maximum_segment_size = (second.acknowledgment >> 16) as u16;
            segment.window_scale = second.time_ns as u8;
            segment.control |= second.bits;
        }
        Some(segment)
    }
}

/// A packet in a batch.
pub(crate) trait Record: Pod {
    /// Of packets with these endpoints.
    fn new(packet: &Packet, facts: Facts) -> Self;

    fn facts(&self) -> &Facts;

    /// Its connection, and which side of it sent the packet.
    fn key(&self) -> (ConnectionKey, usize);
}

impl Record for Ipv4 {
    fn new(packet: &Packet, facts: Facts) -> Self {
        Self {
            source: u128::from_be_bytes(packet.source) as u32,
            destination: u128::from_be_bytes(packet.destination) as u32,
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            facts,
        }
    }

    #[inline(always)]
    fn facts(&self) -> &Facts {
        &self.facts
    }

    #[inline(always)]
    fn key(&self) -> (ConnectionKey, usize) {
        let (source, destination) = ([0, self.source.into()], [0, self.destination.into()]);
        ConnectionKey::of((source, self.source_port), (destination, self.destination_port), Network::Ipv4)
    }
}

impl Record for Ipv6 {
    fn new(packet: &Packet, facts: Facts) -> Self {
        let halves = |address| {
            let number = u128::from_be_bytes(address);
            [(number >> 64) as u64, number as u64]
        };
        Self {
            source: halves(packet.source),
            destination: halves(packet.destination),
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            facts,
        }
    }

    #[inline(always)]
    fn facts(&self) -> &Facts {
        &self.facts
    }

    #[inline(always)]
    fn key(&self) -> (ConnectionKey, usize) {
        ConnectionKey::of((self.source, self.source_port), (self.destination, self.destination_port), Network::Ipv6)
    }
}
