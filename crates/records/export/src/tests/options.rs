//! Options records: sampling, statistics, flow keys.

use super::open;
use crate::tests::flows::{answered, plain};
use crate::tests::{export_file, send, sum};
use std::net::UdpSocket;
use testbed::decode::{Decoder, Record, Value};
use weir_export::{ExportOptions, MeteringStatus};
use weir_flow::{FlowRecord, KeyOptions};
use weir_ledger::RecordTotals;

const SINKS: [(&str, &str); 4] =
    [("ipfix+udp", ""), ("ipfix+udp", "?template=full"), ("netflow9+udp", ""), ("netflow9+udp", "?template=full")];

fn decode(datagrams: &[Vec<u8>]) -> Decoder {
    let mut decoder = Decoder::new();
    datagrams.iter().for_each(|datagram| drop(decoder.message(datagram)));
    decoder
}

fn number(record: &Record, name: &str) -> u64 {
    match record.get(name) {
        Some(&Value::Unsigned(number)) => number,
        other => panic!("{name}: {other:?} in {record:?}"),
    }
}

/// The last options record with an element.
fn last<'a>(decoder: &'a Decoder, name: &str) -> &'a Record {
    decoder.options.iter().rfind(|record| record.contains_key(name)).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn the_sampling_rate_is_sent_also_if_every_packet_is_metered() {
    let options = ExportOptions { observation_domain: 7, ..ExportOptions::default() };
    for (scheme, settings) in SINKS {
        let decoder = decode(&send(scheme, settings, &options, &[plain(1, 1)]).1);
        let sampling = last(&decoder, "samplingInterval");
        let scope = if scheme.starts_with("ipfix") { "observationDomainId" } else { "scope 1" };
        let values = ["samplingInterval", scope].map(|name| number(sampling, name));
        assert_eq!((values, sampling.len()), ([1, 7], 2), "{scheme}{settings}");
        if scheme.starts_with("ipfix") {
            let selector = last(&decoder, "selectorAlgorithm");
            let names = ["selectorId", "selectorAlgorithm", "samplingSize", "samplingPopulation"];
            assert_eq!((names.map(|name| number(selector, name)), selector.len()), ([1, 3, 1, 1], 4));
        }
    }
}

/// Receives what a sink has sent over loopback.
fn receive(listener: &UdpSocket) -> Vec<Vec<u8>> {
    listener.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2000];
    std::iter::from_fn(|| listener.recv(&mut buffer).ok().map(|octets| buffer[..octets].to_vec())).collect()
}

#[test]
fn another_sampling_rate_is_sent_at_once_and_the_last_figures_at_the_end() {
    for (scheme, settings) in SINKS {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sink = open(&format!("{scheme}://{address}{settings}"), &ExportOptions::default()).unwrap();
        let status = MeteringStatus { sampling_population: 10, ..MeteringStatus::default() };
        sink.set_metering_status(&status);
        sink.write(&[answered(1, 1)]).unwrap();
        let status = MeteringStatus { sampling_population: 64, ..status };
        sink.set_metering_status(&status);
        sink.write(&[answered(2, 1)]).unwrap();
        let mut datagrams = receive(&listener);
        let decoder = decode(&datagrams);
        let rates = decoder.options.iter().filter(|record| record.contains_key("samplingInterval"));
        assert_eq!(rates.map(|record| number(record, "samplingInterval")).collect::<Vec<_>>(), [10, 64]);

        let lost_before_sink = RecordTotals { flows: 3, packets: 40, bytes: 500 };
        sink.set_metering_status(&MeteringStatus {
            ignored_packets: 5,
            ignored_octets: 600,
            lost_before_sink,
            ..status
        });
        let before = sink.counters().clone();
        sink.finish().unwrap();
        datagrams.extend(receive(&listener));
        let decoder = decode(&datagrams);
        let exported = last(&decoder, "exportedMessageTotalCount");
        let names = ["exportedMessageTotalCount", "exportedFlowRecordTotalCount", "exportedOctetTotalCount"];
        let expected = [before.messages, before.wire_records, before.octets];
        assert_eq!(names.map(|name| number(exported, name)), expected, "all before this message");
        assert_eq!(before.wire_records, sink.counters().wire_records);
        let ignored = last(&decoder, "ignoredPacketTotalCount");
        assert_eq!((number(ignored, "ignoredPacketTotalCount"), number(ignored, "ignoredOctetTotalCount")), (5, 600));
        let not_sent = last(&decoder, "notSentFlowTotalCount");
        let names = ["notSentFlowTotalCount", "notSentPacketTotalCount", "notSentOctetTotalCount"];
        assert_eq!(names.map(|name| number(not_sent, name)), [3, 40, 500]);
    }
}

#[test]
fn names_of_interfaces_are_sent_with_their_numbers() {
    for (scheme, settings) in SINKS {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sink = open(&format!("{scheme}://{address}{settings}"), &ExportOptions::default()).unwrap();
        let long = "an interface name of 34 octets,äb";
        let interfaces = vec![(3, "eth0".to_owned()), (70_000, long.to_owned())];
        sink.set_metering_status(&MeteringStatus { interfaces, ..MeteringStatus::default() });
        sink.write(&[plain(1, 1)]).unwrap();
        let decoder = decode(&receive(&listener));
        let named = decoder.options.iter().filter(|record| record.contains_key("interfaceName"));
        let scope = if scheme.starts_with("ipfix") { "ingressInterface" } else { "scope 2" };
        let named: Vec<_> = named.map(|record| (number(record, scope), record["interfaceName"].clone())).collect();
        let name = |text: &str| Value::Text(text.to_owned());
        assert_eq!(named, [(3, name("eth0")), (70_000, name("an interface name of 34 octets,"))], "{scheme}{settings}");
    }
}

#[test]
fn records_to_a_closed_port_are_reported_as_not_sent() {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut sink = open(&format!("ipfix+udp://{address}"), &ExportOptions::default()).unwrap();
    drop(listener);
    let flows: Vec<FlowRecord> = (0..50).map(|number| plain(number, 2)).collect();
    sink.write(&flows[..30]).unwrap();
    sink.write(&flows[30..]).unwrap();
    let listener = UdpSocket::bind(address).unwrap();
    sink.finish().unwrap();
    let decoder = decode(&receive(&listener));
    let lost = sum(&flows);
    let not_sent = last(&decoder, "notSentFlowTotalCount");
    let names = ["notSentFlowTotalCount", "notSentPacketTotalCount", "notSentOctetTotalCount"];
    assert_eq!(names.map(|name| number(not_sent, name)), [lost.flows, lost.packets, lost.bytes]);
    assert_eq!(number(last(&decoder, "exportedFlowRecordTotalCount"), "exportedFlowRecordTotalCount"), 0);
}

#[test]
fn flow_keys_name_the_elements_that_distinguish_flows() {
    let keys = |options: &ExportOptions, flow: FlowRecord| -> Vec<u16> {
        let (_, octets) = export_file("ipfix", options, &[flow]);
        let mut decoder = Decoder::new();
        decoder.file(&octets);
        let record = last(&decoder, "flowKeyIndicator");
        let (id, bits) = (number(record, "templateId"), number(record, "flowKeyIndicator"));
        let numbers = decoder.numbers(id as u16).into_iter().enumerate();
        numbers.filter(|(at, _)| *at < 64 && bits >> at & 1 == 1).map(|(_, number)| number).collect()
    };
    let plain_key = ExportOptions { uniflow: true, ..ExportOptions::default() };
    assert_eq!(keys(&plain_key, plain(1, 1)), [8, 7, 12, 11, 4]);
    let key = KeyOptions { vlan: true, interface: true, ..KeyOptions::default() };
    let mut tagged = plain(1, 1);
    tagged.forward.vlan = 5;
    assert_eq!(keys(&ExportOptions { key, ..plain_key }, tagged), [8, 7, 12, 11, 4, 10, 58, 243]);
}
