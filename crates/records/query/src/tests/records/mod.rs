//! Flow records for tests.
#![allow(dead_code)]

use weir_flow::{Direction, EndReason, FlowRecord};
use weir_packet::{Network, ipv4_mapped};
use weir_tcp::{SegmentClass, TcpReport};

/// 2026-11-20 12:00:00 UTC.
pub const START: u64 = 1_795_176_000_000_000_000;

fn direction(packets: u64, bytes: u64) -> Direction {
    let frame_bytes = bytes + 14 * packets;
    Direction { packets, bytes, frame_bytes, first_ns: START, last_ns: START + 2_000_000_000, ..Direction::default() }
}

/// A web connection of 2 s: 12 packets, 3000 octets, 2 retransmitted segments, a round trip of 3 ms.
pub fn web() -> FlowRecord {
    let mut reports = [TcpReport::EMPTY; 2];
    reports[0].classes[SegmentClass::Syn as usize].segments = 1;
    reports[0].classes[SegmentClass::InOrder as usize].segments = 3;
    reports[1].classes[SegmentClass::Syn as usize].segments = 1;
    reports[1].classes[SegmentClass::InOrder as usize].segments = 3;
    reports[1].classes[SegmentClass::Retransmission as usize].segments = 2;
    reports[0].handshake_rtt_ns = Some(1_000_000);
    reports[1].handshake_rtt_ns = Some(2_000_000);
    FlowRecord {
        source: ipv4_mapped([10, 0, 0, 1]),
        destination: ipv4_mapped([198, 51, 100, 20]),
        source_port: 40_000,
        destination_port: 443,
        protocol: 6,
        end_reason: EndReason::EndOfFlow,
        forward: Direction { tcp_flags: 0x1b, ..direction(5, 1000) },
        reverse: Direction { tcp_flags: 0x12, ..direction(7, 2000) },
        tcp: Some(reports),
        ..FlowRecord::default()
    }
}

pub fn dns() -> FlowRecord {
    FlowRecord {
        source: ipv4_mapped([10, 0, 0, 1]),
        destination: ipv4_mapped([10, 0, 0, 53]),
        source_port: 50_000,
        destination_port: 53,
        protocol: 17,
        forward: direction(1, 60),
        reverse: direction(1, 120),
        ..FlowRecord::default()
    }
}

pub fn icmp() -> FlowRecord {
    FlowRecord {
        source: ipv4_mapped([10, 0, 0, 1]),
        destination: ipv4_mapped([10, 0, 0, 2]),
        source_port: 8 << 8,
        protocol: 1,
        forward: Direction { icmp: [8, 0], ..direction(1, 84) },
        ..FlowRecord::default()
    }
}

pub fn of_ipv6() -> FlowRecord {
    let address = |last| {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        octets[15] = last;
        octets
    };
    FlowRecord { network: Network::Ipv6, source: address(1), destination: address(2), ..dns() }
}

/// A flow with VLAN 7 in one direction and 8 in the other.
pub fn vlans() -> FlowRecord {
    let mut flow = dns();
    (flow.forward.vlan, flow.forward.inner_vlan, flow.reverse.vlan) = (7, 100, 8);
    flow
}

pub fn layer2() -> FlowRecord {
    let mut source = [0; 16];
    source[10..].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    FlowRecord {
        network: Network::Layer2,
        source,
        destination: [0xff; 16],
        source_port: 0x0806,
        destination_port: 0x0806,
        protocol: 255,
        forward: direction(1, 0),
        ..FlowRecord::default()
    }
}
