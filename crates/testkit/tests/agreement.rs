//! The program against the reference, on random traffic with every option.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_flow::Config;
use weir_packet::{Packet, ipv4_mapped};
use weir_probe::Settings;
use weir_testkit::compare::{self, same};
use weir_testkit::{RawFrame, real, reference, traffic};

const SEEDS: u64 = 1500;

#[test]
fn the_decoder_agrees_on_every_field() {
    traffic::check(SEEDS, &traffic::steps(60), |steps| {
        for frame in traffic::frames(&steps) {
            for decapsulate in [false, true] {
                compare::decoders(&frame, decapsulate)?;
            }
        }
        Ok(())
    });
}

#[test]
fn the_reference_agrees_with_etherparse() {
    let mut compared = 0_u32;
    for seed in 0..600 {
        for frame in traffic::frames(&traffic::seeded(seed, &traffic::steps(60))) {
            let Ok(parsed) = etherparse::SlicedPacket::from_ethernet(&frame.bytes) else { continue };
            let (Some(net), Some(transport), 1) = (parsed.net, parsed.transport, frame.link_type) else { continue };
            let Ok((packet, _)) = reference::decode(&frame, false) else { panic!("{frame:?}") };
            let (source, destination) = match net {
                etherparse::NetSlice::Ipv4(ip) => {
                    (ipv4_mapped(ip.header().source()), ipv4_mapped(ip.header().destination()))
                }
                etherparse::NetSlice::Ipv6(ip) => (ip.header().source(), ip.header().destination()),
                etherparse::NetSlice::Arp(_) => panic!("ARP has no transport"),
            };
            let (protocol, ports) = match transport {
                etherparse::TransportSlice::Tcp(tcp) => (6, (tcp.source_port(), tcp.destination_port())),
                etherparse::TransportSlice::Udp(udp) => (17, (udp.source_port(), udp.destination_port())),
                _ => continue,
            };
            let theirs = (source, destination, protocol, ports);
            let ours =
                (packet.source, packet.destination, packet.protocol, (packet.source_port, packet.destination_port));
            assert_eq!(ours, theirs, "seed {seed}, {frame:?}");
            compared += 1;
        }
    }
    assert!(compared > 1000, "only {compared} packets were compared");
}

/// The packets of some frames by the reference, so that the meter is judged alone.
fn packets(frames: &[RawFrame], settings: &Settings) -> Vec<Packet> {
    let decode = |frame| reference::decode(frame, settings.decode.decapsulate).ok();
    frames.iter().filter_map(decode).map(|(packet, _)| packet).collect()
}

fn the_meter_agrees(frames: &[RawFrame], burst: usize, settings: Settings) -> Result<(), String> {
    compare::meters(&packets(frames, &settings), burst, settings.meter)
}

#[test]
fn the_meter_agrees_on_the_same_packets() {
    let case = (traffic::steps(80), 1..64_usize, traffic::settings());
    traffic::check(SEEDS, &case, |(steps, burst, settings)| {
        the_meter_agrees(&traffic::frames(&steps), burst, settings)
    });
}

#[test]
fn the_meter_agrees_when_time_jumps() {
    let case = (traffic::jumps(80), 1..64_usize, traffic::settings());
    traffic::check(SEEDS, &case, |(steps, burst, settings)| {
        the_meter_agrees(&traffic::frames(&steps), burst, settings)
    });
}

fn the_pipeline_agrees(frames: &[RawFrame], burst: usize, settings: Settings) -> Result<(), String> {
    let ours = real::meter(frames, burst, settings.clone());
    let theirs = reference::meter(frames, burst, &settings);
    same("equations that do not hold", ours.ledger.check(), vec![])?;
    compare::flows(&ours.flows, &theirs.flows)?;
    let (packets, bytes) = (&ours.ledger.packets, &ours.ledger.bytes);
    same("refused", packets.refused.nonzero().collect::<BTreeMap<_, _>>(), theirs.refused)?;
    let refused_bytes: BTreeMap<_, _> = theirs.refused_bytes.into_iter().filter(|&(_, bytes)| bytes > 0).collect();
    same("octets refused", bytes.refused.nonzero().collect(), refused_bytes)?;
    same("noted", ours.ledger.anomalies.nonzero().collect::<BTreeMap<_, _>>(), theirs.anomalies)?;
    same("EtherTypes", ours.ledger.ethertypes, theirs.ethertypes)?;
    same("link types", ours.ledger.link_types, theirs.link_types)?;
    same("dropped", packets.dropped_table_full, theirs.dropped_packets)?;
    same("octets dropped", bytes.dropped_table_full, theirs.dropped_bytes)?;
    same("received", packets.received, frames.len() as u64)?;
    same("octets received", bytes.received, frames.iter().map(|frame| u64::from(frame.wire_bytes)).sum())?;
    let metered: u64 = theirs.flows.iter().map(weir_flow::FlowRecord::packets).sum();
    same("metered", packets.metered, metered)?;
    same("records", ours.ledger.flows_created, theirs.flows.len() as u64)
}

#[test]
fn the_pipeline_agrees_and_its_ledger_balances() {
    let time = prop_oneof![3 => traffic::steps(60).boxed(), 1 => traffic::jumps(60).boxed()];
    let case = (time, 1..=weir_capture::BURST, traffic::settings());
    traffic::check(SEEDS, &case, |(steps, burst, settings)| {
        the_pipeline_agrees(&traffic::frames(&steps), burst, settings)
    });
}

/// Random traffic hardly ever fills the table again at the very end of an overflow record.
#[test]
fn the_meter_agrees_at_the_end_of_an_overflow_record() {
    const ACTIVE_NS: u64 = 10_000_000_000;
    let config = Config { flows: 1, active_timeout_ns: ACTIVE_NS, ..Config::default() };
    for age_ns in [ACTIVE_NS - 1, ACTIVE_NS, ACTIVE_NS + 1] {
        let packet = |time_ns, source_port| Packet { time_ns, source_port, protocol: 17, ..Packet::default() };
        let packets = [packet(0, 1), packet(0, 2), packet(age_ns, 1), packet(age_ns, 2)];
        let (flows, _) = real::meter_packets(&packets, 1, config);
        compare::flows(&flows, &reference::meter_packets(&packets, 1, config).flows).unwrap();
        assert_eq!(flows.len(), if age_ns < ACTIVE_NS { 2 } else { 4 });
    }
}
