//! Packet inspection: all readers over any octets.

use super::Input;
use weir_dpi::{DATAGRAM_READERS, Datagram, Findings, STREAM_READERS, Streams, Verdict, quic};

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
        let (verdict, findings) = read(|findings| reader(&whole, findings));
        let (of_start, _) = read(|findings| reader(&start, findings));
        if claims(verdict) {
            assert_ne!(of_start, Verdict::No, "{:?} after No at {cut}", findings.application());
        }
    }
}

/// Input: ports, side, octets on the wire beyond those captured, payload.
pub fn dpi_datagram(input: &[u8]) {
    let mut input = Input(input);
    let (source_port, destination_port) = (input.u16(), input.u16());
    let from_first = input.octet() % 2 == 0;
    let missing = u32::from(input.octet());
    let payload = input.rest();
    let wire_octets = payload.len() as u32 + missing;
    let datagram = Datagram { payload, wire_octets, from_first, source_port, destination_port, time_ns: 1 };
    for reader in DATAGRAM_READERS {
        read(|findings| reader(&datagram, findings));
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
        let [source_port, destination_port] = if from_first { [40_000, 443] } else { [443, 40_000] };
        let datagram = Datagram { payload, wire_octets, from_first, source_port, destination_port, time_ns: 1 };
        let verdict = quic::read(&mut state, &datagram, &mut findings);
        assert_eq!(claims(verdict), findings.application().is_some(), "{verdict:?}");
        assert!(claims(verdict) || !is_claimed, "{verdict:?} after a claim");
        is_claimed = claims(verdict);
    }
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
