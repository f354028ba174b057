//! NetFlow v5 over UDP.

use crate::tests::flows::{answered, flow, plain, within_uptime};
use crate::tests::{expected, send, sum};
use netflow_parser::{NetflowPacket, NetflowParser};
use proptest::prelude::*;
use weir_export::ExportOptions;
use weir_flow::{Direction, FlowRecord};
use weir_ledger::ExportLossReason;
use weir_packet::{Network, ipv4_mapped};

/// A decoded record.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    source: [u8; 4],
    destination: [u8; 4],
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    control: u8,
    tos: u8,
    interface: u16,
    packets: u64,
    bytes: u64,
    /// Milliseconds since 1970-01-01 UTC.
    start_ms: u64,
    end_ms: u64,
    /// Sampling mode and interval of the datagram.
    sampling: u16,
}

fn decode(datagrams: &[Vec<u8>]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut sequence = 0;
    for datagram in datagrams {
        let parsed = NetflowParser::default().parse_bytes(datagram);
        assert!(parsed.error.is_none() && parsed.packets.len() == 1);
        let NetflowPacket::V5(message) = &parsed.packets[0] else { panic!("not version 5") };
        let header = &message.header;
        assert_eq!(datagram.len(), 24 + 48 * usize::from(header.count));
        assert_eq!(message.flowsets.len(), usize::from(header.count));
        assert_eq!((header.flow_sequence, header.engine_id), (sequence, 9), "sequence counts records");
        sequence += u32::from(header.count);
        let boot_ms = u64::from(header.unix_secs) * 1000 - u64::from(header.sys_up_time);
        for record in &message.flowsets {
            rows.push(Row {
                source: record.src_addr.octets(),
                destination: record.dst_addr.octets(),
                source_port: record.src_port,
                destination_port: record.dst_port,
                protocol: record.protocol_number,
                control: record.tcp_flags,
                tos: record.tos,
                interface: record.input,
                packets: record.d_pkts.into(),
                bytes: record.d_octets.into(),
                start_ms: boot_ms + u64::from(record.first),
                end_ms: boot_ms + u64::from(record.last),
                sampling: header.sampling_interval,
            });
        }
    }
    rows
}

/// The expected record of a unidirectional flow, before it is split because of 32-bit counters.
fn expected(part: &FlowRecord) -> Row {
    let d = &part.forward;
    let octets = |address: [u8; 16]| <[u8; 4]>::try_from(&address[12..]).unwrap();
    let (source_port, destination_port) = match part.protocol {
        6 | 17 | 33 | 132 | 136 => (part.source_port, part.destination_port),
        1 if part.approximate.0 & 1 == 0 && (part.source_port, part.destination_port) != (0, 0) => {
            (0, u16::from_be_bytes(d.icmp))
        }
        _ => (0, 0),
    };
    Row {
        source: octets(part.source),
        destination: octets(part.destination),
        source_port,
        destination_port,
        protocol: part.protocol,
        control: if part.protocol == 6 { d.tcp_flags as u8 } else { 0 },
        tos: d.tos,
        interface: u16::try_from(part.interface).unwrap_or(0),
        packets: d.packets,
        bytes: d.bytes,
        start_ms: part.start_ns() / 1_000_000,
        end_ms: part.end_ns() / 1_000_000,
        sampling: part.sampling.map_or(0, |[_, max]| 2 << 14 | max as u16),
    }
}

fn options() -> ExportOptions {
    ExportOptions { observation_domain: 0x109, ..ExportOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn every_ipv4_flow_is_decoded_and_all_others_are_counted_as_lost(mut flows in prop::collection::vec(flow(), 1..60)) {
        for flow in &mut flows {
            for direction in [&mut flow.forward, &mut flow.reverse] {
                // At most some dozens of records.
                direction.packets = direction.packets.min(3 << 36);
                direction.bytes = direction.bytes.min(3 << 36);
            }
            within_uptime(flow);
        }
        let (counters, datagrams) = send("netflow5+udp", "", &options(), &flows);
        let mut rows = decode(&datagrams).into_iter();
        for flow in flows.iter().filter(|flow| flow.network == Network::Ipv4) {
            for part in expected::unidirectional(flow) {
                let whole = expected(&part);
                let shares = whole.packets.max(whole.bytes).div_ceil(u64::from(u32::MAX)).max(1);
                let mut sums = (0, 0);
                for _ in 0..shares {
                    let row = rows.next().expect("a record for each share");
                    sums = (sums.0 + row.packets, sums.1 + row.bytes);
                    prop_assert_eq!(Row { packets: whole.packets, bytes: whole.bytes, ..row }, whole.clone());
                }
                prop_assert_eq!(sums, (whole.packets, whole.bytes));
            }
        }
        prop_assert_eq!(rows.next(), None);
        let of = |network| sum(flows.iter().filter(|flow| flow.network == network));
        prop_assert_eq!(counters.exported, of(Network::Ipv4));
        let lost = |reason: ExportLossReason| counters.lost.get(reason.key()).copied().unwrap_or_default();
        prop_assert_eq!(lost(ExportLossReason::NotIpv4), of(Network::Ipv6));
        prop_assert_eq!(lost(ExportLossReason::NotIp), of(Network::Layer2));
        prop_assert_eq!(counters.total(), sum(&flows));
    }
}

#[test]
fn a_datagram_has_thirty_records_if_the_mtu_allows() {
    let flows: Vec<FlowRecord> = (0..1000).map(|number| plain(number, 1)).collect();
    for (settings, most) in [("?mtu=1472", 24 + 30 * 48), ("?mtu=9000", 24 + 30 * 48), ("", 24 + 29 * 48)] {
        let (counters, datagrams) = send("netflow5+udp", settings, &options(), &flows);
        assert_eq!(datagrams.iter().map(Vec::len).max(), Some(most));
        assert_eq!((counters.exported.flows, counters.wire_records), (1000, 1000));
        assert_eq!(decode(&datagrams).len(), 1000);
    }
}

#[test]
fn both_directions_of_a_flow_are_in_one_datagram() {
    let flows: Vec<FlowRecord> = (0..100).map(|number| answered(number, 1)).collect();
    let (_, datagrams) = send("netflow5+udp", "", &options(), &flows);
    assert!(datagrams.iter().all(|datagram| datagram[3] % 2 == 0));
}

#[test]
fn counters_of_a_flow_split_over_many_datagrams_add_up() {
    let bytes = 100 * u64::from(u32::MAX) + 17;
    let forward = Direction { packets: bytes / 1400, bytes, frame_bytes: bytes, ..plain(1, 1).forward };
    let large = FlowRecord { source: ipv4_mapped([10, 0, 0, 1]), forward, ..plain(1, 1) };
    let flows = [plain(2, 3), large, plain(3, 4)];
    let (counters, datagrams) = send("netflow5+udp", "", &options(), &flows);
    let rows = decode(&datagrams);
    assert_eq!((counters.exported, counters.wire_records), (sum(&flows), 103));
    let large = rows.iter().filter(|row| row.source == [10, 0, 0, 1]);
    assert_eq!(large.clone().map(|row| row.bytes).sum::<u64>(), bytes);
    assert_eq!(large.map(|row| row.packets).sum::<u64>(), bytes / 1400);
}
