//! The meter and the batch engine on a synthetic network whose truth is known: nothing missed, nothing invented, wherever
//! batches end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_flow::{Config, FlowRecord, Meter};
use weir_packet::Packet;
use weir_tcp::{Class, Report};
use weir_tcp_batch::{Choice, Engine, Options};
use weir_trafficgen::{TrueTcp, synth};

/// What both directions told, by their senders and receivers.
type Told = BTreeMap<(SocketAddr, SocketAddr), TrueTcp>;

/// The packets of a load, and the truth.
fn load(specification: &str) -> (Vec<Packet>, Told) {
    let mut source = synth(specification).expect("the load exists").with_truth();
    let packets = weir_testkit::packets(&mut source);
    let mut truth = Told::new();
    for (flow, [there, back]) in source.truth().iter().zip(source.true_tcp()) {
        let client = SocketAddr::new(flow.source, flow.source_port);
        let server = SocketAddr::new(flow.destination, flow.destination_port);
        truth.insert((client, server), *there);
        truth.insert((server, client), *back);
    }
    (packets, truth)
}

/// A report in the words of the truth.
fn told(report: &Report) -> TrueTcp {
    let segments = |class| report.of(class).segments;
    let octets = |class| report.of(class).bytes;
    TrueTcp {
        segments: report.segments(),
        payload_octets: report.classes.iter().map(|count| count.bytes).sum(),
        syn: segments(Class::Syn),
        syn_again: segments(Class::SynRepeated),
        fin: report.fins,
        rst: segments(Class::Reset),
        switched_copies: segments(Class::Duplicate),
        routed_copies: segments(Class::RoutedDuplicate),
        copied_octets: octets(Class::Duplicate) + octets(Class::RoutedDuplicate),
        keep_alives: segments(Class::KeepAlive),
        keep_alive_octets: octets(Class::KeepAlive),
        window_probes: segments(Class::ZeroWindowProbe),
        zero_windows: report.zero_windows,
        acks: segments(Class::Acknowledgment) + segments(Class::DuplicateAcknowledgment),
        in_order: segments(Class::InOrder),
        retransmissions: segments(Class::Retransmission),
        retransmitted_octets: report.retransmitted_bytes,
        spurious: report.spurious,
        out_of_order: segments(Class::OutOfOrder),
        unseen: segments(Class::UnseenRetransmission),
        unique_octets: report.unique_bytes,
    }
}

fn differences(ours: &Told, truth: &Told) -> Vec<String> {
    let all = ours.keys().chain(truth.keys()).collect::<std::collections::BTreeSet<_>>();
    let of = |told: &Told, ends| told.get(ends).copied().unwrap_or_default();
    all.into_iter()
        .filter(|ends| of(ours, ends) != of(truth, ends))
        .map(|ends| format!("{ends:?}: {:?} against {:?}", of(ours, ends), of(truth, ends)))
        .collect()
}

const LOADS: [&str; 2] = [
    "lossy,flows=200,packets=60k",
    "lossy,flows=200,packets=60k,seed=7,loss=6%,recut=60%,reorder=4%,spurious=2%,duplicate=4%,routed=40%,keepalive=30%,\
     zerowindow=30%,noid=50%",
];

#[test]
fn the_batch_engine_tells_the_truth_at_every_size_of_batch() {
    for specification in LOADS {
        let (packets, truth) = load(specification);
        assert!(truth.values().map(|told| told.retransmissions + told.unseen).sum::<u64>() > 200);
        for batch in [2, 3, 7, 64, 1000, 1 << 14, 1 << 16, 1 << 20, 1 << 23] {
            let options = Options { choice: Choice::Cpu, batch, ..Options::default() };
            let mut engine = Engine::open(options).expect("the processor is there");
            let mut done = Vec::new();
            packets.chunks(97).for_each(|burst| engine.enter(burst, &mut done));
            engine.finish(&mut done);
            let mut ours = Told::new();
            for one in &done {
                let [low, high] = one.endpoints;
                for (ends, report) in [(low, high), (high, low)].into_iter().zip(&one.reports) {
                    assert_eq!(ours.insert(ends, told(&report.report())), None, "one connection between {ends:?}");
                }
            }
            assert_eq!(differences(&ours, &truth), [""; 0], "{specification}, batches of {batch}");
        }
    }
}

#[test]
fn the_meter_tells_the_truth() {
    for specification in LOADS {
        let (packets, truth) = load(specification);
        let mut meter = Meter::new(Config { flows: 4096, ..Config::default() });
        let mut flows: Vec<FlowRecord> = Vec::new();
        packets.chunks(64).for_each(|burst| meter.process(burst, &mut flows));
        meter.drain(&mut flows);
        let mut ours = Told::new();
        for flow in &flows {
            let end = |ip: Option<std::net::IpAddr>, port| SocketAddr::new(ip.expect("all is IP"), port);
            let client = end(flow.source_ip(), flow.source_port);
            let server = end(flow.destination_ip(), flow.destination_port);
            let reports = flow.tcp.expect("all is TCP");
            for (ends, report) in [(client, server), (server, client)].into_iter().zip(&reports) {
                assert_eq!(ours.insert(ends, told(report)), None, "one record between {ends:?}");
            }
        }
        assert_eq!(differences(&ours, &truth), [""; 0], "{specification}");
    }
}
