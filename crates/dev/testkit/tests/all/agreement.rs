//! The program against the reference, on random traffic with every option.

use proptest::prelude::*;
use std::cell::Cell;
use weir_flow::Config;
use weir_packet::{Packet, ipv4_mapped};
use weir_testkit::traffic::{self, Step};
use weir_testkit::{compare, real, reference};

const SEEDS: u64 = 1500;

#[test]
fn decoder_equals_reference_in_every_field() {
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
fn reference_decoder_equals_etherparse() {
    let compared = Cell::new(0_u32);
    traffic::check(600, &traffic::steps(60), |steps| {
        for frame in traffic::frames(&steps) {
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
            compare::same(&format!("{frame:?}"), ours, theirs)?;
            compared.set(compared.get() + 1);
        }
        Ok(())
    });
    let compared = compared.get();
    assert!(compared > 1000 || std::env::var_os("WEIR_SEEDS").is_some(), "only {compared} packets were compared");
}

fn check_meter(steps: impl Strategy<Value = Vec<Step>>) {
    traffic::check(SEEDS, &(steps, 1..64_usize, traffic::settings()), |(steps, burst, settings)| {
        // The reference decodes, so that the meter is judged alone.
        let of_reference =
            if settings.meter.mac_addresses { reference::decode_with_mac_addresses } else { reference::decode };
        let decode = |frame| of_reference(frame, settings.decode.decapsulate).ok();
        let packets: Vec<Packet> =
            traffic::frames(&steps).iter().filter_map(decode).map(|(packet, _)| packet).collect();
        compare::meters(&packets, burst, settings.meter)
    });
}

#[test]
fn meter_equals_reference_on_the_same_packets() {
    check_meter(traffic::steps(80));
}

#[test]
fn meter_equals_reference_when_time_jumps() {
    check_meter(traffic::jumps(80));
}

#[test]
fn pipeline_equals_reference_and_its_ledger_balances() {
    let time = prop_oneof![3 => traffic::steps(60).boxed(), 1 => traffic::jumps(60).boxed()];
    let case = (time, 1..=weir_capture::MAX_BURST_FRAMES, traffic::settings());
    traffic::check(SEEDS, &case, |(steps, burst, settings)| {
        compare::pipelines(&traffic::frames(&steps), burst, settings)
    });
}

/// Random traffic hardly ever fills the cache again at the very end of an overflow record.
#[test]
fn meter_equals_reference_at_the_end_of_an_overflow_record() {
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
