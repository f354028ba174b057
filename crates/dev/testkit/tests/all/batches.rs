//! The meter and the batch engine on generated TCP with known truth: every event is found and none is
//! invented, at every batch size.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_flow::Config;
use weir_packet::Packet;
use weir_tcp::{SegmentClass, TcpReport};
use weir_tcp_batch::{Backend, Engine, EngineOptions};
use weir_trafficgen::{ExpectedTcp, TrafficGenerator};

/// Counters of each direction, by its sender and receiver.
type Directions = BTreeMap<(SocketAddr, SocketAddr), ExpectedTcp>;

/// The packets of a load, and the truth.
fn load(specification: &str) -> (Vec<Packet>, Directions) {
    let mut source = TrafficGenerator::new(specification).expect("the load exists").with_expected_flows();
    let packets = weir_testkit::packets(&mut source);
    let mut truth = Directions::new();
    for (flow, [there, back]) in source.expected_flows().iter().zip(source.expected_tcp()) {
        let client = SocketAddr::new(flow.source, flow.source_port);
        let server = SocketAddr::new(flow.destination, flow.destination_port);
        // Only the generator knows how long a side thought.
        truth.insert((client, server), ExpectedTcp { thought_ns: 0, ..*there });
        truth.insert((server, client), ExpectedTcp { thought_ns: 0, ..*back });
    }
    (packets, truth)
}

/// Returns a report in the form of the expected counters.
fn counters(report: &TcpReport) -> ExpectedTcp {
    let segments = |class| report.count(class).segments;
    let octets = |class| report.count(class).bytes;
    ExpectedTcp {
        segments: report.segments(),
        payload_octets: report.classes.iter().map(|count| count.bytes).sum(),
        syn: segments(SegmentClass::Syn),
        syn_again: segments(SegmentClass::SynRetransmission),
        fin: report.fins,
        rst: segments(SegmentClass::Reset),
        switched_copies: segments(SegmentClass::Duplicate),
        routed_copies: segments(SegmentClass::RoutedDuplicate),
        copied_octets: octets(SegmentClass::Duplicate) + octets(SegmentClass::RoutedDuplicate),
        keep_alives: segments(SegmentClass::KeepAlive),
        keep_alive_octets: octets(SegmentClass::KeepAlive),
        window_probes: segments(SegmentClass::ZeroWindowProbe),
        zero_windows: report.zero_windows,
        acks: segments(SegmentClass::Acknowledgment) + segments(SegmentClass::DuplicateAcknowledgment),
        in_order: segments(SegmentClass::InOrder),
        retransmissions: segments(SegmentClass::Retransmission),
        retransmitted_octets: report.retransmitted_bytes,
        spurious: report.spurious_retransmissions,
        out_of_order: segments(SegmentClass::OutOfOrder),
        unseen: segments(SegmentClass::UnseenRetransmission),
        unique_octets: report.unique_bytes,
        answers: report.responses.count,
        answer_first_ns: report.responses.first_ns,
        answer_max_ns: report.responses.max_ns,
        answer_sum_ns: report.responses.sum_ns,
        round_trips: report.round_trips.count,
        round_trip_min_ns: report.round_trips.min_ns,
        round_trip_max_ns: report.round_trips.max_ns,
        round_trip_sum_ns: report.round_trips.sum_ns,
        thought_ns: 0,
    }
}

fn differences(ours: &Directions, truth: &Directions) -> Vec<String> {
    let all = ours.keys().chain(truth.keys()).collect::<std::collections::BTreeSet<_>>();
    let of = |directions: &Directions, ends| directions.get(ends).copied().unwrap_or_default();
    all.into_iter()
        .filter(|ends| of(ours, ends) != of(truth, ends))
        .map(|ends| format!("{ends:?}: {:?} against {:?}", of(ours, ends), of(truth, ends)))
        .collect()
}

const LOADS: [&str; 3] = [
    "lossy,flows=200,packets=60k",
    "lossy,flows=200,packets=60k,think=500ms,loss=3%",
    "lossy,flows=200,packets=60k,seed=7,loss=6%,recut=60%,reorder=4%,spurious=2%,duplicate=4%,routed=40%,keepalive=30%,\
     zerowindow=30%,noid=50%",
];

#[test]
fn batch_engine_is_exact_at_every_batch_size() {
    for specification in LOADS {
        let (packets, truth) = load(specification);
        assert!(truth.values().map(|expected| expected.retransmissions + expected.unseen).sum::<u64>() > 200);
        for batch in [2, 3, 7, 64, 1000, 1 << 14, 1 << 16, 1 << 20, 1 << 23] {
            let options = EngineOptions { backend: Backend::Cpu, batch_size: batch, ..EngineOptions::default() };
            let mut engine = Engine::open(options).expect("the CPU backend is always available");
            let mut done = Vec::new();
            packets.chunks(97).for_each(|burst| engine.enter(burst, &mut done));
            engine.finish(&mut done);
            let mut ours = Directions::new();
            for one in &done {
                let [low, high] = one.endpoints;
                for (ends, report) in [(low, high), (high, low)].into_iter().zip(&one.reports) {
                    assert_eq!(ours.insert(ends, counters(&report.report())), None, "one connection between {ends:?}");
                }
            }
            assert_eq!(differences(&ours, &truth), [""; 0], "{specification}, batches of {batch}");
        }
    }
}

#[test]
fn meter_is_exact() {
    for specification in LOADS {
        let (packets, truth) = load(specification);
        let (flows, _) = weir_testkit::real::meter_packets(&packets, 64, Config { flows: 4096, ..Config::default() });
        let mut ours = Directions::new();
        for flow in &flows {
            let end = |ip: Option<std::net::IpAddr>, port| SocketAddr::new(ip.expect("all is IP"), port);
            let client = end(flow.source_ip(), flow.source_port);
            let server = end(flow.destination_ip(), flow.destination_port);
            let reports = flow.tcp.expect("all is TCP");
            for (ends, report) in [(client, server), (server, client)].into_iter().zip(&reports) {
                assert_eq!(ours.insert(ends, counters(report)), None, "one record between {ends:?}");
            }
        }
        assert_eq!(differences(&ours, &truth), [""; 0], "{specification}");
    }
}
