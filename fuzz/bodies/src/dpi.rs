//! Packet inspection: all readers over any octets.

use std::sync::Arc;
use weir_dpi::{
    DATAGRAM_READERS, Datagram, DatagramState, Findings, FlowInspection, InspectionSettings, Inspector, Payload,
    STREAM_READERS, Streams, Verdict, quic,
};
use weir_ledger::InspectionCounters;
use weir_testkit::input::Input;

/// Input: ports, which side opened the connection, octets of the first side, then both streams.
///
/// `No` is final: a reader that says it of the start does not claim the whole.
pub fn dpi_streams(input: &[u8]) {
    let mut input = Input(input);
    let ports = [input.u16(), input.u16()];
    let first_is_client = [None, Some(false), Some(true)][usize::from(input.octet() % 3)];
    let [first, cut] = [input.u16(), input.u16()].map(usize::from);
    let octets = input.rest();
    let (first, second) = octets.split_at(first.min(octets.len()));
    let whole = Streams { first, second, ports, first_is_client, ..Streams::default() };
    let start = Streams { first: &first[..cut.min(first.len())], second: &[], ..whole };
    for reader in STREAM_READERS {
        let (verdict, findings) = read(|findings| reader.read(&whole, findings));
        let (of_start, _) = read(|findings| reader.read(&start, findings));
        if claims(verdict) {
            assert_ne!(of_start, Verdict::No, "{:?} after No at {cut}", findings.application());
        }
    }
}

/// Input: ports, side, octets on the wire beyond those captured, payload.
pub fn dpi_datagram(input: &[u8]) {
    let mut input = Input(input);
    let ports = [input.u16(), input.u16()];
    let from_first = input.octet() % 2 == 0;
    let missing = u32::from(input.octet());
    let payload = input.rest();
    let wire_octets = payload.len() as u32 + missing;
    let datagram = Datagram { payload, wire_octets, from_first, ports, time_ns: 1 };
    for reader in DATAGRAM_READERS {
        read(|findings| reader.read(&mut DatagramState::default(), &datagram, findings));
    }
}

/// Input: datagrams of one flow, each with its side, octets that were not captured, the length of the
/// payload, and the payload.
pub fn dpi_quic(input: &[u8]) {
    let mut input = Input(input);
    let (mut state, mut findings) = (quic::State::default(), Findings::new(true));
    let mut is_claimed = false;
    while !input.is_empty() {
        let (from_first, missing) = (input.octet() % 2 == 0, u32::from(input.octet()));
        let octets = usize::from(input.u16());
        let payload = input.take(octets);
        let wire_octets = payload.len() as u32 + missing;
        let ports = if from_first { [40_000, 443] } else { [443, 40_000] };
        let datagram = Datagram { payload, wire_octets, from_first, ports, time_ns: 1 };
        let verdict = quic::read(&mut state, &datagram, &mut findings);
        assert_eq!(claims(verdict), findings.application().is_some(), "{verdict:?}");
        assert!(claims(verdict) || !is_claimed, "{verdict:?} after a claim");
        is_claimed = claims(verdict);
    }
}

/// Input: packets of four flows that share an inspector with little memory. Each has its flow, side and kind
/// (TCP or UDP, SYN, FIN, last one), ports and addresses, sequence number, octets that were not captured, the
/// length of the payload, and the payload.
///
/// After the inspector wanted no more packets of a flow, its findings stay. Flows are counted once.
pub fn dpi_inspector(input: &[u8]) {
    const PORTS: [u16; 8] = [53, 5353, 123, 5060, 25, 443, 40_000, 40_001];
    let mut input = Input(input);
    let settings = InspectionSettings {
        packets: 16,
        octets: 1 << 10,
        sessions: 2,
        session_octets: 1 << 13,
        findings_octets: 1 << 10,
        names: 2,
        transactions: 2,
        transaction_octets: 1 << 13,
        two_way: true,
        personal: true,
        ports: false,
    };
    let mut inspector = Inspector::new(settings, 4);
    let mut flows = [FlowInspection::default(); 4];
    let mut ended: [Option<Option<Arc<Findings>>>; 4] = Default::default();
    let mut time_ns = 0;
    while !input.is_empty() {
        let [kind, ports, addresses] = input.octets();
        let (sequence, missing) = (input.u16(), u32::from(input.octet() % 4));
        let length = usize::from(input.u16());
        let octets = input.take(length);
        let (number, endpoint) = (usize::from(kind & 3), usize::from(kind >> 2 & 1));
        let flow = &mut flows[number];
        if kind & 0x10 != 0 {
            flow.note_syn(endpoint, sequence.into(), (kind & 0x20 != 0).then_some(u32::from(ports) << 8));
        }
        let tcp = (number < 2).then_some((u32::from(sequence), kind & 0x40 != 0));
        let address = |number: u8| [[1; 16], [2; 16], [3; 16], [4; 16]][usize::from(number & 3)];
        time_ns += 1_000_000_000 * u64::from(kind >> 3 & 1);
        let payload = Payload {
            octets,
            wire_octets: octets.len() as u32 + missing,
            endpoint,
            ports: [PORTS[usize::from(ports & 7)], PORTS[usize::from(ports >> 3 & 7)]],
            addresses: [&address(addresses), &address(addresses >> 2)],
            time_ns,
            tcp,
            is_last: kind & 0x80 != 0,
        };
        let needs_more = inspector.inspect(flow, &payload);
        let findings = inspector.findings(flow);
        match &ended[number] {
            Some(before) => {
                assert!(!needs_more, "it wanted no more packets before");
                assert_eq!(&findings, before);
            }
            None if !needs_more => ended[number] = Some(findings),
            None => {}
        }
    }
    flows.iter_mut().for_each(|flow| inspector.end_flow(flow));
    let InspectionCounters { flows, recognised, recognised_by_packet, .. } = *inspector.counters();
    assert_eq!(recognised_by_packet.iter().sum::<u64>(), recognised);
    assert!(recognised <= flows && flows <= 4);
    let recorded = inspector.take_transactions().count() as u64;
    let counters = inspector.transaction_counters().expect("transactions are recorded");
    assert_eq!((counters.begun, counters.open), (recorded + counters.left_out, 0));
}

fn claims(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Recognised | Verdict::Complete)
}

/// Calls a reader. It names an application if and only if it claims the octets, and says the same of them again.
fn read(reader: impl Fn(&mut Findings) -> Verdict) -> (Verdict, Findings) {
    let mut findings = Findings::new(true);
    let verdict = reader(&mut findings);
    assert_eq!(claims(verdict), findings.application().is_some(), "{verdict:?} {:?}", findings.application());
    let before = findings.clone();
    assert_eq!(reader(&mut findings), verdict);
    assert_eq!(findings, before);
    (verdict, findings)
}
