//! Random flow records of every network, protocol and encapsulation, with extreme counters.

use proptest::prelude::*;
use std::sync::Arc;
use weir_flow::{Approximate, AutonomousSystem, Direction, EndReason, FlowRecord, NamedNetwork, Place, Places};
use weir_packet::{NO_LABEL, NO_VLAN, Network, TunnelType, ipv4_mapped};
use weir_tcp::{Degradation, ResponseTimes, RoundTripTimes, SegmentClass, SegmentCount, TcpReport};

/// Sums of counters up to this do not overflow in these tests.
const MAX_COUNTER: u64 = 1 << 52;

const REASONS: [EndReason; 5] =
    [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow, EndReason::Forced, EndReason::LackOfResources];

fn counter() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..100, 1..=u64::from(u32::MAX) + 5, 1..=MAX_COUNTER, Just(MAX_COUNTER)]
}

fn address(network: Network) -> BoxedStrategy<[u8; 16]> {
    match network {
        Network::Ipv4 => any::<[u8; 4]>().prop_map(ipv4_mapped).boxed(),
        Network::Ipv6 => prop_oneof![9 => any::<[u8; 16]>(), 1 => any::<[u8; 4]>().prop_map(ipv4_mapped)].boxed(),
        Network::Layer2 => any::<[u8; 6]>()
            .prop_map(|mac| {
                let mut octets = [0; 16];
                octets[10..].copy_from_slice(&mac);
                octets
            })
            .boxed(),
    }
}

/// The tags, labels and tunnels of a direction.
fn encapsulation() -> impl Strategy<Value = Direction> {
    let vlan = || prop_oneof![3 => Just(NO_VLAN), 1 => 0u16..4096];
    let label = prop_oneof![3 => Just(NO_LABEL), 1 => 0u32..1 << 20];
    let tunnel = prop_oneof![3 => Just(TunnelType::None), 2 => prop::sample::select(&TunnelType::ALL[..])];
    // None, only that of the source as in cooked captures, or both.
    let macs = prop_oneof![
        3 => Just([[0; 6]; 2]),
        1 => any::<[u8; 6]>().prop_map(|source| [source, [0; 6]]),
        2 => any::<[[u8; 6]; 2]>(),
    ];
    let tunnel = (tunnel, any::<Option<u32>>(), any::<bool>(), any::<[u8; 16]>(), any::<[u8; 16]>());
    (vlan(), vlan(), label, tunnel, macs).prop_map(
        |(vlan, inner_vlan, mpls_label, tunnel, [source_mac, destination_mac])| {
            let (tunnel_type, id, any_is_ipv6, source, destination) = tunnel;
            let outer_is_ipv6 = match tunnel_type {
                TunnelType::Ipip | TunnelType::SixInFour => false,
                TunnelType::FourInSix | TunnelType::SixInSix => true,
                _ => any_is_ipv6,
            };
            let outer = |octets: [u8; 16]| {
                let [a, b, c, d, ..] = octets;
                if outer_is_ipv6 { octets } else { ipv4_mapped([a, b, c, d]) }
            };
            Direction {
                vlan,
                inner_vlan: if vlan == NO_VLAN { NO_VLAN } else { inner_vlan },
                mpls_label,
                tunnel_type,
                tunnel_id: id.filter(|_| tunnel_type != TunnelType::None),
                outer_source: outer(source),
                outer_destination: outer(destination),
                source_mac,
                destination_mac,
                ..Direction::default()
            }
        },
    )
}

fn direction() -> impl Strategy<Value = Direction> {
    let times = prop_oneof![
        4 => (1_500_000_000_000_000_000u64..1_800_000_000_000_000_000, 0u64..400_000_000_000),
        1 => (any::<u64>(), any::<u64>()),
    ];
    let counters = (counter(), counter(), counter(), any::<u128>());
    let sizes = (any::<u32>(), any::<u32>());
    let gaps = (any::<u64>(), any::<u64>(), any::<u128>());
    let rest = (any::<u16>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<[u8; 2]>());
    (counters, times, sizes, gaps, rest, encapsulation()).prop_map(
        |(counters, (first_ns, length_ns), sizes, gaps, (tcp_flags, ttl_min, ttl_max, tos, icmp), encapsulation)| {
            Direction {
                packets: counters.0,
                bytes: counters.1,
                frame_bytes: counters.2,
                size_squares: counters.3,
                first_ns,
                last_ns: first_ns.saturating_add(length_ns),
                size_min: sizes.0,
                size_max: sizes.1,
                iat_min_ns: gaps.0,
                iat_max_ns: gaps.1,
                iat_squares: gaps.2,
                tcp_flags: tcp_flags & 0xfff,
                ttl_min,
                ttl_max,
                tos,
                icmp,
                ..encapsulation
            }
        },
    )
}

/// TCP analysis of a direction, with or without anomalies.
fn report() -> impl Strategy<Value = TcpReport> {
    let counts = prop::collection::vec((counter(), counter()), SegmentClass::COUNT);
    let more = (counter(), counter(), counter(), counter(), counter(), counter(), counter(), 0..64_u8);
    let syn = prop::option::of((any::<u16>(), prop::option::of(1..=u16::MAX), prop::option::of(0..15_u8)));
    let times = (prop::option::of(any::<u64>()), prop::option::of(any::<u64>()), prop::option::of(any::<u64>()));
    (any::<[bool; 3]>(), counts, more, counter(), syn, times).prop_map(|(trouble, counts, more, fins, syn, times)| {
        let mut report = TcpReport { unique_bytes: more.0, fins, ..TcpReport::default() };
        for (class, (segments, bytes)) in SegmentClass::ALL.into_iter().zip(counts) {
            let usual = matches!(
                class,
                SegmentClass::Syn | SegmentClass::Reset | SegmentClass::InOrder | SegmentClass::Acknowledgment
            );
            if usual || trouble[0] {
                // Payload of SYN or RST is a TCP anomaly.
                let bare = matches!(class, SegmentClass::Syn | SegmentClass::Reset) && !trouble[2];
                report.classes[class as usize] = SegmentCount { segments, bytes: if bare { 0 } else { bytes } };
            }
        }
        if trouble[0] {
            (report.retransmitted_bytes, report.partial_retransmissions, report.spurious_retransmissions) =
                (more.1, more.2, more.3);
        }
        if trouble[1] {
            (report.zero_windows, report.largest_hole_bytes, report.missing_bytes) = (more.4, more.5, more.6);
            report.degradation = Degradation(more.7);
        }
        if let Some((window, maximum_segment, scale)) = syn {
            (report.syn_window, report.maximum_segment_size, report.window_scale) =
                (Some(window), maximum_segment, scale);
        }
        (report.handshake_rtt_ns, report.size_by_sequence_bytes, report.duration_by_sequence_ns) = times;
        if more.1 % 4 > 0 {
            let (count, min_ns, max_ns, sum_ns) = (more.1 % 4, more.2, more.3, more.4);
            report.responses = ResponseTimes { count, first_ns: min_ns, max_ns, sum_ns };
            report.round_trips = RoundTripTimes { count, min_ns, max_ns, sum_ns };
        }
        if trouble[2] {
            // As in a whole connection without anomalies, where these values are implied.
            report.unique_bytes = report.classes.iter().map(|count| count.bytes).sum();
            report.size_by_sequence_bytes = report.duration_by_sequence_ns.and(Some(report.unique_bytes));
        }
        report
    })
}

/// Places of one flow in two, with any combination of values.
fn places(seed: u32) -> Option<Arc<Places>> {
    let has_geo = seed & 2 != 0;
    let place = |bits: u32| Place {
        network: (bits & 1 != 0).then(|| {
            let (name, site) = ("a \"b\", c\\".into(), if bits & 2 != 0 { "K\u{f6}ln".into() } else { "".into() });
            Arc::new(NamedNetwork { name, site, role: "role".into(), is_local: false })
        }),
        is_local: (bits & 4 != 0).then_some(bits & 8 != 0),
        country: (has_geo && bits & 16 != 0).then_some(*b"DE"),
        autonomous_system: (has_geo && bits & 32 != 0).then(|| {
            let organization = (bits & 64 != 0).then(|| "Example".into());
            Arc::new(AutonomousSystem { number: u32::MAX - bits, organization })
        }),
        tags: (bits & 128 != 0).then(|| "one two-2".into()),
    };
    let tags = (seed & 4 != 0).then(|| "three".into());
    let interface = (seed & 1 << 19 != 0).then(|| "eth0, \"a\"".into());
    let places = || Places { source: place(seed >> 3), destination: place(seed >> 11), tags, interface, has_geo };
    (seed & 1 != 0).then(|| Arc::new(places()))
}

/// A flow with at least one packet.
pub fn flow() -> impl Strategy<Value = FlowRecord> {
    let network = prop_oneof![4 => Just(Network::Ipv4), 3 => Just(Network::Ipv6), 1 => Just(Network::Layer2)];
    network.prop_flat_map(|network| {
        let protocol = prop_oneof![
            4 => prop::sample::select(vec![6u8, 17, 1, 58, 132, 33, 136, 47, 50]),
            1 => any::<u8>(),
        ];
        let approximate = prop_oneof![3 => Just(0u16), 1 => 0u16..2048];
        let sampling = prop_oneof![3 => Just(None), 1 => (1..100u32, 0..16_000u32).prop_map(|(least, more)| Some([least, least + more]))];
        (
            (address(network), address(network), any::<u16>(), any::<u16>(), protocol),
            (prop::sample::select(&REASONS[..]), approximate, any::<u32>(), 0..3u8, prop_oneof![Just(0), any::<u64>()], sampling),
            (direction(), direction(), [report(), report()]),
        )
            .prop_map(move |(key, rest, (forward, reverse, reports))| {
                let (source, destination, mut source_port, mut destination_port, mut protocol) = key;
                let (end_reason, approximate, interface, sides, queue_lost, sampling) = rest;
                match network {
                    Network::Layer2 => {
                        protocol = 255;
                        destination_port = source_port;
                    }
                    Network::Ipv4 if protocol == 1 => source_port = forward.icmp[0].into(),
                    Network::Ipv6 if protocol == 58 => source_port = forward.icmp[0].into(),
                    _ => {}
                }
                FlowRecord {
                    source,
                    destination,
                    source_port,
                    destination_port,
                    protocol,
                    network,
                    end_reason,
                    approximate: Approximate(approximate),
                    interface,
                    forward: if sides == 2 { Direction::default() } else { forward },
                    reverse: if sides == 1 { Direction::default() } else { reverse },
                    // A sampled connection has no TCP analysis.
                    tcp: (protocol == 6 && network != Network::Layer2 && sampling.is_none()).then_some(reports),
                    queue_lost,
                    sampling,
                    findings: None,
                    places: places(interface),
                }
            })
    })
}

/// Moves both directions of a flow to within 40 days and before 2100, so that they fit into the 32
/// bits of NetFlow.
pub fn within_uptime(flow: &mut FlowRecord) {
    let start_ns = flow.start_ns() % 4_100_000_000_000_000_000;
    for direction in [&mut flow.forward, &mut flow.reverse] {
        let length_ns = (direction.last_ns - direction.first_ns) % (20 * 86_400_000_000_000);
        direction.first_ns = start_ns + direction.first_ns % (20 * 86_400_000_000_000);
        direction.last_ns = direction.first_ns + length_ns;
    }
}

/// A simple unidirectional flow: UDP over IPv4.
pub fn plain(number: u32, packets: u64) -> FlowRecord {
    let first_ns = 1_700_000_000_000_000_000 + u64::from(number) * 1_000_000;
    FlowRecord {
        source: ipv4_mapped(number.to_be_bytes()),
        destination: ipv4_mapped([192, 0, 2, 1]),
        source_port: number as u16,
        destination_port: 53,
        protocol: 17,
        forward: Direction {
            packets,
            bytes: packets * 100,
            frame_bytes: packets * 114,
            first_ns,
            last_ns: first_ns + 5_000_000,
            size_min: 100,
            size_max: 100,
            size_squares: u128::from(packets) * 10_000,
            ttl_min: 64,
            ttl_max: 64,
            ..Direction::default()
        },
        ..FlowRecord::default()
    }
}

/// The same flow with the same packets in the reverse direction.
pub fn answered(number: u32, packets: u64) -> FlowRecord {
    let flow = plain(number, packets);
    FlowRecord { reverse: flow.forward, ..flow }
}
