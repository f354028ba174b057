//! Flow records for the encoders: every network, protocol and encapsulation, with extreme values.

use weir_flow::{Approximate, Direction, EndReason, FlowRecord};
use weir_packet::{NO_LABEL, NO_VLAN, Network, TunnelType, ipv4_mapped};
use weir_tcp::{Degradation, ResponseTimes, RoundTripTimes, TcpReport};
use weir_testkit::input::{Input, pick};

const REASONS: [EndReason; 5] =
    [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow, EndReason::Forced, EndReason::LackOfResources];

/// A record with packets in one direction or both.
pub(crate) fn flow(input: &mut Input<'_>) -> FlowRecord {
    let [network, protocol, sides, end, interface, sampling, approximate] = input.octets();
    let network = pick(&[Network::Ipv4, Network::Ipv4, Network::Ipv6, Network::Layer2], network);
    let protocol = match network {
        Network::Layer2 => 255,
        _ => pick(&[6, 6, 17, 1, 58, 132, 47, protocol], protocol),
    };
    let mut address = || match network {
        Network::Ipv4 => ipv4_mapped(input.octets()),
        Network::Ipv6 => input.octets(),
        Network::Layer2 => {
            let mut octets = [0; 16];
            octets[10..].copy_from_slice(&input.octets::<6>());
            octets
        }
    };
    let (source, destination) = (address(), address());
    let (mut source_port, mut destination_port) = (input.u16(), input.u16());
    let (mut forward, mut reverse) = (Direction::default(), Direction::default());
    if sides % 4 != 2 {
        forward = direction(input);
    }
    if sides % 4 > 1 {
        reverse = direction(input);
    }
    match (network, protocol) {
        (Network::Layer2, _) => destination_port = source_port,
        (Network::Ipv4, 1) | (Network::Ipv6, 58) => source_port = forward.icmp[0].into(),
        _ => {}
    }
    let sampling = if sampling & 3 == 3 { Some([1 + u32::from(sampling >> 2), 64 << (sampling >> 4)]) } else { None };
    let has_tcp = protocol == 6 && network != Network::Layer2 && sampling.is_none();
    FlowRecord {
        source,
        destination,
        source_port,
        destination_port,
        protocol,
        network,
        end_reason: pick(&REASONS, end),
        approximate: Approximate(if approximate & 3 == 3 { u16::from(approximate) << 1 & 0x1ff } else { 0 }),
        interface: if interface & 0x80 == 0 { interface.into() } else { u32::from(interface) << 24 },
        forward,
        reverse,
        tcp: has_tcp.then(|| [report(input), report(input)]),
        queue_lost: if end & 0xc0 == 0xc0 { input.u64() } else { 0 },
        sampling,
        findings: None,
        places: None,
    }
}

/// A counter above 0. Sums of counters stay below 2^64.
fn counter(input: &mut Input<'_>) -> u64 {
    let [power, low] = input.octets();
    (1_u64 << (power % 53)) + u64::from(low)
}

fn direction(input: &mut Input<'_>) -> Direction {
    let [time, flags, encapsulation, ttl, tos] = input.octets();
    let first_ns = if time & 3 == 3 { input.u64() } else { 1_700_000_000_000_000_000 + u64::from(input.u32()) * 1000 };
    let length_ns = if time & 12 == 12 { input.u64() } else { u64::from(input.u16()) * 1_000_000 };
    let has = |bit: u8| encapsulation & bit != 0;
    let tunnel_type = if has(8) { pick(&TunnelType::ALL, encapsulation >> 4) } else { TunnelType::None };
    let outer_is_ipv6 = match tunnel_type {
        TunnelType::Ipip | TunnelType::SixInFour => false,
        TunnelType::FourInSix | TunnelType::SixInSix => true,
        _ => has(0x80),
    };
    let mut outer = || if outer_is_ipv6 { input.octets() } else { ipv4_mapped(input.octets()) };
    let (outer_source, outer_destination) =
        if tunnel_type == TunnelType::None { ([0; 16], [0; 16]) } else { (outer(), outer()) };
    Direction {
        packets: counter(input),
        bytes: counter(input),
        frame_bytes: counter(input),
        first_ns,
        last_ns: first_ns.saturating_add(length_ns),
        size_min: input.u32(),
        size_max: input.u32(),
        size_squares: u128::from_le_bytes(input.octets()),
        iat_min_ns: input.u64(),
        iat_max_ns: input.u64(),
        iat_squares: u128::from_le_bytes(input.octets()),
        mpls_label: if has(1) { input.u32() >> 12 } else { NO_LABEL },
        tunnel_id: (tunnel_type != TunnelType::None && ttl & 1 != 0).then(|| input.u32()),
        vlan: if has(2) { input.u16() & 0xfff } else { NO_VLAN },
        inner_vlan: if has(2) && has(4) { input.u16() & 0xfff } else { NO_VLAN },
        tcp_flags: u16::from(flags) | u16::from(tos & 15) << 8,
        ttl_min: ttl,
        ttl_max: ttl.saturating_add(flags),
        tos,
        icmp: [flags, tos],
        tunnel_type,
        outer_source,
        outer_destination,
        source_mac: if has(0x40) { [2, 0, 0, 0, flags, ttl] } else { [0; 6] },
        destination_mac: if has(0x40) { [2, 0, 0, 0, ttl, tos] } else { [0; 6] },
    }
}

fn report(input: &mut Input<'_>) -> TcpReport {
    let [classes_low, classes_high, options, degradation] = input.octets();
    let mut report = TcpReport::default();
    let classes = u16::from_le_bytes([classes_low, classes_high]);
    for (number, count) in report.classes.iter_mut().enumerate().filter(|(number, _)| classes >> number & 1 != 0) {
        count.segments = counter(input);
        count.bytes = if options >> (number % 8) & 1 != 0 { counter(input) } else { 0 };
    }
    report.unique_bytes = report.classes.iter().map(|count| count.bytes).sum();
    if options & 1 != 0 {
        (report.retransmitted_bytes, report.partial_retransmissions) = (counter(input), counter(input));
        (report.spurious_retransmissions, report.unique_bytes) = (counter(input), counter(input));
    }
    if options & 2 != 0 {
        (report.zero_windows, report.fins) = (counter(input), counter(input));
        (report.largest_hole_bytes, report.missing_bytes) = (counter(input), counter(input));
    }
    if options & 4 != 0 {
        report.degradation = Degradation(degradation & 0x3f);
    }
    if options & 8 != 0 {
        report.syn_window = Some(input.u16());
        report.maximum_segment_size = Some(input.u16()).filter(|&size| size > 0);
        report.window_scale = Some(degradation & 15).filter(|&scale| scale < 15);
    }
    report.handshake_rtt_ns = (options & 0x10 != 0).then(|| input.u64());
    report.size_by_sequence_bytes = (options & 0x20 != 0).then(|| input.u64());
    report.duration_by_sequence_ns = (options & 0x60 != 0).then(|| input.u64());
    if options & 0x80 != 0 {
        let (count, min_ns, max_ns, sum_ns) = (counter(input), input.u64(), input.u64(), input.u64());
        report.responses = ResponseTimes { count, first_ns: min_ns, max_ns, sum_ns };
        report.round_trips = RoundTripTimes { count, min_ns, max_ns, sum_ns };
    }
    report
}
