//! Frames, as an independent parser reads them.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use std::net::IpAddr;
use weir_capture::{Frame, Source};
use weir_trafficgen::TrafficGenerator;

pub const FIN: u16 = 1;
pub const SYN: u16 = 2;
pub const RST: u16 = 4;
pub const ACK: u16 = 16;

/// The fields of a frame.
#[derive(Clone, Debug)]
pub struct Seen {
    pub time_ns: u64,
    pub wire_bytes: u32,
    pub ip_bytes: u32,
    /// Addresses and ports, the sender's first.
    pub ends: [(IpAddr, u16); 2],
    pub ttl: u8,
    /// 0 in IPv6.
    pub identification: u16,
    pub protocol: u8,
    pub flags: u16,
    pub sequence: u32,
    pub acknowledgment: u32,
    pub window: u16,
    pub options: usize,
    pub payload: u32,
    /// The octets that routers do not change.
    pub constant: Vec<u8>,
}

/// Parses a frame and asserts that its checksums are correct.
pub fn see(frame: &Frame<'_>) -> Seen {
    let sliced = SlicedPacket::from_ethernet(frame.bytes).expect("every frame is whole and well formed");
    let (addresses, ip_bytes, ttl, identification) = match sliced.net.expect("every frame has IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            assert_eq!(folded(header.slice()), 0xffff, "IPv4 header checksum");
            let addresses = [header.source_addr().into(), header.destination_addr().into()];
            (addresses, u32::from(header.total_len()), header.ttl(), header.identification())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let addresses = [header.source_addr().into(), header.destination_addr().into()];
            (addresses, 40 + u32::from(header.payload_length()), header.hop_limit(), 0)
        }
        NetSlice::Arp(_) => panic!("ARP was never asked for"),
    };
    let mut constant = frame.bytes[14..][..ip_bytes as usize].to_vec();
    match addresses[0] {
        // Time to live and checksum; hop limit.
        IpAddr::V4(_) => [8, 10, 11].iter().for_each(|&at| constant[at] = 0),
        IpAddr::V6(_) => constant[7] = 0,
    }
    let seen = |protocol, ports: [u16; 2], payload: usize| Seen {
        time_ns: frame.time_ns,
        wire_bytes: frame.wire_bytes,
        ip_bytes,
        ends: [(addresses[0], ports[0]), (addresses[1], ports[1])],
        ttl,
        identification,
        protocol,
        flags: 0,
        sequence: 0,
        acknowledgment: 0,
        window: 0,
        options: 0,
        payload: payload as u32,
        constant,
    };
    match sliced.transport.expect("every packet has ports") {
        TransportSlice::Udp(udp) => {
            assert_ne!(udp.checksum(), 0);
            check_sum(addresses, 17, udp.slice());
            seen(17, [udp.source_port(), udp.destination_port()], udp.payload().len())
        }
        TransportSlice::Tcp(tcp) => {
            check_sum(addresses, 6, tcp.slice());
            let bits = [(tcp.fin(), FIN), (tcp.syn(), SYN), (tcp.rst(), RST), (tcp.psh(), 8), (tcp.ack(), ACK)];
            Seen {
                flags: bits.iter().map(|(set, bit)| u16::from(*set) * bit).sum(),
                sequence: tcp.sequence_number(),
                acknowledgment: tcp.acknowledgment_number(),
                window: tcp.window_size(),
                options: tcp.options().len(),
                ..seen(6, [tcp.source_port(), tcp.destination_port()], tcp.payload().len())
            }
        }
        _ => panic!("only TCP and UDP were asked for"),
    }
}

/// Returns whether the checksum over pseudo header, header and payload is correct.
fn check_sum([source, destination]: [IpAddr; 2], protocol: u8, segment: &[u8]) {
    let mut all = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => all.extend(address.octets()),
            IpAddr::V6(address) => all.extend(address.octets()),
        }
    }
    all.extend((segment.len() as u32).to_be_bytes());
    all.extend([0, protocol]);
    all.extend(segment);
    assert_eq!(folded(&all), 0xffff, "transport checksum");
}

/// Ones' complement sum of 16-bit words.
fn folded(octets: &[u8]) -> u64 {
    let words = octets.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Returns an FNV-1a hash of the times, lengths and octets of all frames.
pub fn digest(spec: &str) -> u64 {
    let mut source = TrafficGenerator::new(spec).unwrap();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    while let Some(burst) = source.burst().unwrap() {
        for frame in &burst {
            let head = frame.time_ns.to_be_bytes().into_iter().chain(frame.wire_bytes.to_be_bytes());
            for octet in head.chain(frame.bytes.iter().copied()) {
                hash = (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    hash
}
