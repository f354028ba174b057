//! IPFIX, in files and over UDP.

use crate::tests::basic::flows_of_many_shapes;
use crate::tests::flows::{answered, flow, plain};
use crate::tests::{expected, export_file, parsed_records, send, sum};
use proptest::prelude::*;
use testbed::decode::{Decoder, Header, Record};
use weir_export::ExportOptions;
use weir_flow::{Direction, FlowRecord};

/// Checks that sequence numbers count the data records before each message.
fn assert_sequence(messages: &[Header]) {
    let mut expected = 0u32;
    for message in messages {
        assert_eq!(message.sequence, expected);
        expected = expected.wrapping_add(message.data_records);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_field_of_every_flow_is_decoded(flows in prop::collection::vec(flow(), 1..60), uniflow: bool) {
        let options = ExportOptions { uniflow, observation_domain: 77, ..ExportOptions::default() };
        let (counters, octets) = export_file("ipfix", &options, &flows);
        let mut decoder = Decoder::new();
        let records = decoder.file(&octets);
        let expected: Vec<Record> = flows.iter().flat_map(|flow| expected::ipfix(flow, uniflow)).collect();
        prop_assert_eq!(&records, &expected);
        prop_assert_eq!(counters.exported, sum(&flows));
        prop_assert_eq!(counters.wire_records, expected.len() as u64);
        prop_assert_eq!(counters.octets, octets.len() as u64);
        prop_assert_eq!(counters.messages, decoder.messages.len() as u64);
        prop_assert!(decoder.messages.iter().all(|message| message.domain == 77));
        assert_sequence(&decoder.messages);
    }

    #[test]
    fn an_independent_parser_finds_every_record(flows in prop::collection::vec(flow(), 1..40)) {
        let (counters, octets) = export_file("ipfix", &ExportOptions::default(), &flows);
        prop_assert_eq!(parsed_records(&[octets]), counters.wire_records);
    }
}

#[test]
fn extreme_counters_are_decoded() {
    let extreme = Direction {
        packets: u64::MAX,
        bytes: u64::MAX,
        frame_bytes: u64::MAX,
        last_ns: u64::MAX,
        size_squares: u128::MAX,
        iat_squares: u128::MAX,
        ..Direction::default()
    };
    for flow in [
        FlowRecord { forward: extreme, ..FlowRecord::default() },
        FlowRecord { reverse: extreme, ..FlowRecord::default() },
        FlowRecord::default(),
    ] {
        let (counters, octets) = export_file("ipfix", &ExportOptions::default(), std::slice::from_ref(&flow));
        assert_eq!(Decoder::new().file(&octets), expected::ipfix(&flow, false));
        assert_eq!(counters.exported, sum([&flow]));
    }
}

#[test]
fn messages_of_a_file_are_filled_up_to_65535_octets() {
    let flows: Vec<FlowRecord> = (0..20_000).map(|number| plain(number, 1)).collect();
    let (_, octets) = export_file("ipfix", &ExportOptions::default(), &flows);
    let mut decoder = Decoder::new();
    assert_eq!(decoder.file(&octets).len(), flows.len());
    // The last message has options records only.
    let [full @ .., last, options] = &decoder.messages[..] else { panic!("few messages") };
    assert!(full.len() > 10 && last.octets <= 65_535 && options.octets < 400);
    assert!(full[1..].iter().all(|message| (65_000..=65_535).contains(&message.octets)));
    // Of the elements of Weir, all but those of the whole flow have a reverse element.
    assert_eq!((decoder.templates_seen, decoder.types_seen), (1, 112), "a file has each template once");
    assert_sequence(&decoder.messages);
}

#[test]
fn a_file_has_full_records_of_every_shape() {
    let flows = flows_of_many_shapes();
    let (counters, octets) = export_file("ipfix", &ExportOptions::default(), &flows);
    let mut decoder = Decoder::new();
    let records = decoder.file(&octets);
    let expected: Vec<Record> = flows.iter().flat_map(|flow| expected::ipfix(flow, false)).collect();
    assert!(records == expected && counters.altered.is_empty(), "{:?}", counters.altered);
    assert!(decoder.templates.len() > 1500, "{} templates", decoder.templates.len());
}

#[test]
fn no_flows_make_an_empty_file() {
    let (counters, octets) = export_file("ipfix", &ExportOptions::default(), &[]);
    assert_eq!((octets.len(), counters.messages, counters.octets), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn datagrams_are_within_the_mtu(flows in prop::collection::vec(flow(), 1..60), mtu in 1232usize..3000) {
        let (counters, datagrams) = send("ipfix+udp", &format!("?mtu={mtu}&template=full"), &ExportOptions::default(), &flows);
        let mut decoder = Decoder::new();
        let records: Vec<Record> = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
        let expected: Vec<Record> = flows.iter().flat_map(|flow| expected::ipfix(flow, false)).collect();
        prop_assert_eq!(records, expected);
        prop_assert!(datagrams.iter().all(|datagram| datagram.len() <= mtu));
        prop_assert_eq!(counters.exported, sum(&flows));
        assert_sequence(&decoder.messages);
    }
}

#[test]
fn templates_are_retransmitted_after_a_thousand_messages() {
    let flows: Vec<FlowRecord> = (0..18_000).map(|number| answered(number, 2)).collect();
    let (counters, datagrams) =
        send("ipfix+udp", "?mtu=1232&rate=20000&template=full", &ExportOptions::default(), &flows);
    assert!(counters.messages > 2000, "{}", counters.messages);
    let mut decoder = Decoder::new();
    let records: usize = datagrams.iter().map(|datagram| decoder.message(datagram).len()).sum();
    assert_eq!(records, flows.len());
    assert!(decoder.templates_seen > 2, "{}", decoder.templates_seen);
    assert!(decoder.types_seen.is_multiple_of(112) && decoder.types_seen > 0, "{}", decoder.types_seen);
    assert_sequence(&decoder.messages);
    // A collector that starts with the retransmitted templates decodes all later records.
    let again = datagrams.iter().skip(10).position(|datagram| datagram[16..18] == [0, 2]).unwrap() + 10;
    let mut late = Decoder::new();
    let records: usize = datagrams[again..].iter().map(|datagram| late.message(datagram).len()).sum();
    assert!(records > flows.len() / 2);
}
