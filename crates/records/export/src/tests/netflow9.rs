//! NetFlow v9 over UDP.

use crate::tests::flows::{answered, flow, within_uptime};
use crate::tests::{expected, parsed_records, send, sum};
use proptest::prelude::*;
use testbed::decode::{Decoder, Record, Value};
use weir_export::ExportOptions;
use weir_flow::FlowRecord;

/// Decodes datagrams, compares SysUptime elements with the absolute times and removes them.
fn decode(datagrams: &[Vec<u8>]) -> (Decoder, Vec<Record>) {
    let mut decoder = Decoder::new();
    let mut all = Vec::new();
    for datagram in datagrams {
        let mut records = decoder.message(datagram);
        let header = decoder.messages.last().unwrap();
        let boot_ms = u64::from(header.seconds) * 1000 - u64::from(header.up_ms);
        for record in &mut records {
            let mut take = |name: &str| match record.remove(name) {
                Some(Value::Unsigned(number)) => number,
                other => panic!("{name}: {other:?}"),
            };
            let (first, last) = (take("flowStartSysUpTime"), take("flowEndSysUpTime"));
            assert_eq!(record["flowStartMilliseconds"], Value::Unsigned(boot_ms + first));
            assert_eq!(record["flowEndMilliseconds"], Value::Unsigned(boot_ms + last));
            assert!(last <= u64::from(header.up_ms), "no record ends after the time in its header");
        }
        all.extend(records);
    }
    (decoder, all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn every_field_of_every_flow_is_decoded(mut flows in prop::collection::vec(flow(), 1..60)) {
        flows.iter_mut().for_each(within_uptime);
        let options = ExportOptions { observation_domain: 5, ..ExportOptions::default() };
        let (counters, datagrams) = send("netflow9+udp", "?mtu=1300&template=full", &options, &flows);
        let (decoder, records) = decode(&datagrams);
        let expected: Vec<Record> = flows.iter().flat_map(expected::netflow9).collect();
        prop_assert_eq!(records, expected.as_slice());
        prop_assert_eq!(counters.exported, sum(&flows));
        prop_assert_eq!(counters.wire_records, expected.len() as u64);
        prop_assert!(datagrams.iter().all(|datagram| datagram.len() <= 1300 - 28));
        for (number, message) in decoder.messages.iter().enumerate() {
            prop_assert_eq!((message.sequence, message.domain), (number as u32, 5), "sequence counts messages");
        }
        prop_assert_eq!(parsed_records(&datagrams), counters.wire_records);
    }
}

#[test]
fn a_capture_of_a_year_gets_a_new_boot_where_needed() {
    let day_ns = 86_400_000_000_000;
    let flows: Vec<FlowRecord> = (0..365)
        .map(|day| {
            let mut flow = answered(day, 1);
            for direction in [&mut flow.forward, &mut flow.reverse] {
                direction.first_ns += u64::from(day) * day_ns;
                direction.last_ns += u64::from(day) * day_ns;
            }
            flow
        })
        .collect();
    let (_, datagrams) = send("netflow9+udp", "", &ExportOptions::default(), &flows);
    let (decoder, records) = decode(&datagrams);
    assert_eq!(records.len(), 2 * flows.len());
    let mut boots: Vec<u64> =
        decoder.messages.iter().map(|m| u64::from(m.seconds) * 1000 - u64::from(m.up_ms)).collect();
    boots.dedup();
    assert_eq!(boots.len(), 8, "a boot lasts for 48.7 days");
}
