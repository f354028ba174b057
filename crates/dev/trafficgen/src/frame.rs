//! Writes frames: Ethernet, IPv4 or IPv6, TCP or UDP, with correct checksums. All but the first
//! bytes of a payload are zeros, which do not change a checksum and so cost nothing. The profile `apps`
//! has other octets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_capture::MAX_BURST_FRAMES;

/// Bytes of the longest headers and the first payload bytes: Ethernet, IPv6, TCP with the options
/// of a SYN, 4.
const HEADERS: usize = 96;
/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// Shortest frame on the wire without FCS, in bytes; shorter frames are padded.
const SHORTEST: usize = 60;
/// Options of a SYN: segment size (filled in), window scale 7, SACK permitted.
const SYN_OPTIONS: [u8; 12] = [2, 4, 0, 0, 1, 3, 3, 7, 1, 1, 4, 2];

/// Window of a SYN, in octets.
const SYN_WINDOW: u16 = 64_240;
/// About the same window after the handshake, in units of 128 octets by the window scale.
pub(super) const WINDOW: u16 = 502;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// Memory of one frame. It has 25 cache lines, an odd number, so that the starts of a burst's
/// frames do not compete for the same cache sets.
pub(super) struct Slot {
    pub(super) time_ns: u64,
    pub(super) wire_bytes: u32,
    /// Zeros after the headers and the first payload bytes, if all its frames are of [`Headers::write`].
    pub(super) octets: [u8; 1588],
}

const _: () = assert!(size_of::<Slot>() == 25 * 64);

pub(super) fn slots() -> Box<[Slot]> {
    (0..MAX_BURST_FRAMES).map(|_| Slot { time_ns: 0, wire_bytes: 0, octets: [0; 1588] }).collect()
}

#[derive(Clone, Copy)]
pub(super) struct Endpoint {
    /// IPv4 in the first four octets.
    pub(super) address: [u8; 16],
    pub(super) port: u16,
}

impl Endpoint {
    pub(super) fn ip(&self, ipv6: bool) -> IpAddr {
        match self.address {
            [a, b, c, d, ..] if !ipv6 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            address => IpAddr::V6(Ipv6Addr::from(address)),
        }
    }
}

pub(super) struct Headers {
    pub(super) ipv6: bool,
    pub(super) source: Endpoint,
    pub(super) destination: Endpoint,
    /// Last byte of the source's MAC address, 0 or 1; the destination has the other one.
    pub(super) source_side: u8,
    pub(super) ttl: u8,
    /// IPv4 only.
    pub(super) identification: u16,
    pub(super) transport: Transport,
    /// Octets behind the transport header.
    pub(super) payload: u16,
    /// The first of them; the others are zeros, and these too if there are fewer than 4.
    pub(super) opening: [u8; 4],
}

pub(super) enum Transport {
    Udp,
    Tcp { sequence: u32, acknowledgment: u32, flags: u8, window: u16 },
}

impl Headers {
    /// Writes the frame into a slot and sets its length on the wire. Returns the length of the IP
    /// packet in bytes.
    #[inline]
    pub(super) fn write(&self, slot: &mut Slot) -> u32 {
        let octets = slot.octets.first_chunk_mut::<HEADERS>().expect("a slot is longer than the headers");
        *octets = [0; HEADERS];
        let (ethernet, behind) = octets.split_first_chunk_mut::<ETHERNET>().expect("the headers begin with Ethernet");
        ethernet[0] = 2;
        ethernet[5] = 1 - self.source_side;
        ethernet[6] = 2;
        ethernet[11] = self.source_side;
        ethernet[12..].copy_from_slice(if self.ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });

        let (protocol, header_bytes) = match self.transport {
            Transport::Udp => (UDP, 8),
            Transport::Tcp { flags, .. } if flags & SYN != 0 => (TCP, 20 + SYN_OPTIONS.len() as u16),
            Transport::Tcp { .. } => (TCP, 20),
        };
        let transport_bytes = header_bytes + self.payload;
        let (ip_header, addresses) = if self.ipv6 {
            (40, sum(&self.source.address) + sum(&self.destination.address))
        } else {
            (20, sum(&self.source.address[..4]) + sum(&self.destination.address[..4]))
        };
        let (ip, transport) = behind.split_at_mut(ip_header);
        self.write_ip(ip, protocol, transport_bytes, addresses);
        let header = usize::from(header_bytes);
        let transport = &mut transport[..header + self.opening.len()];
        transport[0..2].copy_from_slice(&self.source.port.to_be_bytes());
        transport[2..4].copy_from_slice(&self.destination.port.to_be_bytes());
        transport[header..].copy_from_slice(&self.opening);
        let pseudo = addresses + u32::from(protocol) + u32::from(transport_bytes);
        match self.transport {
            Transport::Udp => {
                transport[4..6].copy_from_slice(&transport_bytes.to_be_bytes());
                let checksum = finish(sum(transport) + pseudo);
                transport[6..8].copy_from_slice(&udp_checksum(checksum).to_be_bytes());
            }
            Transport::Tcp { sequence, acknowledgment, flags, window } => {
                transport[4..8].copy_from_slice(&sequence.to_be_bytes());
                transport[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
                transport[12] = (header_bytes as u8 / 4) << 4;
                transport[13] = flags;
                let window = if flags & SYN != 0 { SYN_WINDOW } else { window };
                transport[14..16].copy_from_slice(&window.to_be_bytes());
                if flags & SYN != 0 {
                    transport[20..header].copy_from_slice(&SYN_OPTIONS);
                    transport[22..24].copy_from_slice(&segment_bytes(self.ipv6).to_be_bytes());
                }
                let checksum = finish(sum(transport) + pseudo);
                transport[16..18].copy_from_slice(&checksum.to_be_bytes());
            }
        }
        let ip_bytes = ip_header as u32 + u32::from(transport_bytes);
        slot.wire_bytes = (ETHERNET as u32 + ip_bytes).max(SHORTEST as u32);
        ip_bytes
    }

    /// Writes the IP header. `addresses` is the sum of its addresses.
    #[inline]
    fn write_ip(&self, ip: &mut [u8], protocol: u8, transport_bytes: u16, addresses: u32) {
        if self.ipv6 {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&transport_bytes.to_be_bytes());
            ip[6] = protocol;
            ip[7] = self.ttl;
            ip[8..24].copy_from_slice(&self.source.address);
            ip[24..40].copy_from_slice(&self.destination.address);
        } else {
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(20 + transport_bytes).to_be_bytes());
            ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
            ip[6] = 0x40; // do not fragment
            ip[8] = self.ttl;
            ip[9] = protocol;
            ip[12..16].copy_from_slice(&self.source.address[..4]);
            ip[16..20].copy_from_slice(&self.destination.address[..4]);
            let checksum = finish(sum(&ip[..12]) + addresses);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// As [`Self::write`], with these octets at the start of the payload in place of `opening`. The
    /// slot need not have zeros after its headers.
    pub(super) fn write_payload(&self, octets: &[u8], slot: &mut Slot) -> u32 {
        let ip_bytes = self.write(slot);
        let at = ETHERNET + if self.ipv6 { 40 } else { 20 };
        let (header_bytes, checksum_at) = match self.transport {
            Transport::Udp => (8, at + 6),
            Transport::Tcp { .. } => (usize::from(slot.octets[at + 12] >> 4) * 4, at + 16),
        };
        let payload = &mut slot.octets[at + header_bytes..][..self.payload.into()];
        let (start, rest) = payload.split_at_mut(octets.len());
        start.copy_from_slice(octets);
        rest.fill(0);
        let last = octets.chunks_exact(2).remainder().first().map_or(0, |octet| u32::from(*octet) << 8);
        let checksum = &mut slot.octets[checksum_at..checksum_at + 2];
        let before = !u16::from_be_bytes([checksum[0], checksum[1]]);
        let after = finish(u32::from(before) + sum(octets) + last);
        let after = if matches!(self.transport, Transport::Udp) { udp_checksum(after) } else { after };
        checksum.copy_from_slice(&after.to_be_bytes());
        ip_bytes
    }
}

/// Payload of a full TCP segment without options on Ethernet.
pub(super) const fn segment_bytes(ipv6: bool) -> u16 {
    if ipv6 { 1440 } else { 1460 }
}

/// Returns the sum of the 16-bit words of an even number of bytes, for the checksum of RFC 1071.
#[inline]
pub(super) fn sum(octets: &[u8]) -> u32 {
    octets.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

/// Returns the checksum of a sum of words.
#[inline]
pub(super) fn finish(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Returns the UDP checksum: 0 would mean that there is none, so it is sent as all ones (RFC 768).
#[inline]
pub(super) fn udp_checksum(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}
