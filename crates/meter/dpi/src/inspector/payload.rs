//! The payload of a packet, as the meter gives it to the inspector.

use crate::Datagram;
use crate::reassembly::Segment;

/// The payload of a packet, and what the inspector needs of its headers.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The octets, as far as they were captured.
    pub octets: &'a [u8],
    /// Their number on the wire.
    pub wire_octets: u32,
    /// Which endpoint of the flow sent it, 0 or 1.
    pub endpoint: usize,
    /// Port of the sender, of the receiver.
    pub ports: [u16; 2],
    /// Address of the sender, of the receiver; of IPv4 the mapped one.
    pub addresses: [&'a [u8; 16]; 2],
    /// Time of the packet, ns since 1970 UTC.
    pub time_ns: u64,
    /// Of TCP: the sequence number of the first octet, and whether a FIN follows the last one.
    /// `None` for UDP.
    pub tcp: Option<(u32, bool)>,
    /// No later packet of the flow will be inspected: the limit of packets is reached.
    pub is_last: bool,
}

impl<'a> Payload<'a> {
    /// The input of the readers of UDP. `first`: the endpoint that sent payload first.
    pub(super) fn datagram(&self, first: usize) -> Datagram<'a> {
        Datagram {
            payload: self.octets,
            wire_octets: self.wire_octets,
            from_first: self.endpoint & 1 == first,
            ports: self.ports,
            time_ns: self.time_ns,
        }
    }

    /// As a segment of a stream of TCP.
    pub(super) fn segment(&self) -> Segment<'a> {
        let (sequence, fin) = self.tcp.unwrap_or_default();
        Segment { sequence, octets: self.octets, wire_octets: self.wire_octets, fin }
    }

    /// Whether it has the form of RTP (RFC 3550 section 5.1), and not of RTCP (RFC 5761 section 4).
    pub(super) fn is_rtp(&self) -> bool {
        let is_rtp = |kind: u8| !(64..=95).contains(&(kind & 0x7f));
        self.tcp.is_none()
            && matches!(self.octets, [0x80..=0xbf, kind, _, _, _, _, _, _, _, _, _, _, ..] if is_rtp(*kind))
    }
}
