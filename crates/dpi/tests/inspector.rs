//! The inspector over the captures of `testdata`, compared with the readers alone.

#[expect(dead_code, reason = "not all tests need all functions")]
mod fixtures;

use weir_dpi::{
    DATAGRAM_READERS, Datagram, Fact, Findings, FlowInspection, InspectionSettings, Inspector, Payload, STREAM_READERS,
    Streams, Verdict, quic,
};

/// What the readers find in a datagram if all of them are asked.
fn found_by_all(datagram: &Datagram<'_>) -> Findings {
    let claims = |verdict| matches!(verdict, Verdict::Recognised | Verdict::Complete);
    for reader in DATAGRAM_READERS {
        let mut findings = Findings::new(false);
        if claims(reader(datagram, &mut findings)) {
            return findings;
        }
    }
    let mut findings = Findings::new(false);
    quic::read(&mut quic::State::default(), datagram, &mut findings);
    findings
}

/// The same for the first octets of a connection.
fn found_by_all_in_stream(streams: &Streams<'_>) -> Findings {
    for reader in STREAM_READERS {
        let mut findings = Findings::new(false);
        if matches!(reader(streams, &mut findings), Verdict::Recognised | Verdict::Complete) {
            return findings;
        }
    }
    Findings::new(false)
}

fn found_by(inspector: &mut Inspector, payload: &Payload<'_>) -> Option<Findings> {
    let mut flow = FlowInspection::default();
    inspector.inspect(&mut flow, payload);
    let findings = inspector.findings(&flow);
    inspector.end_flow(&mut flow);
    findings.map(|findings| (*findings).clone())
}

/// The octets with each first octet, and with each of the next ones changed.
fn variants(octets: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let with = |at: usize, value: u8| {
        let mut changed = octets.to_vec();
        changed[at] = value;
        changed
    };
    let firsts = (0..=u8::MAX).map(move |value| with(0, value));
    firsts.chain((1..octets.len().min(40)).flat_map(move |at| [0, 1, 0x30, 0xff].map(|value| with(at, value))))
}

#[test]
fn readers_that_the_first_octet_leaves_out_would_have_found_nothing() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    for fixture in fixtures::all() {
        for datagram in fixture.datagrams().take(4) {
            for octets in variants(datagram.payload) {
                let datagram = Datagram { payload: &octets, from_first: true, ..datagram };
                let payload = Payload {
                    octets: &octets,
                    wire_octets: datagram.wire_octets,
                    endpoint: 0,
                    ports: [datagram.source_port, datagram.destination_port],
                    addresses: [&[1; 16], &[2; 16]],
                    time_ns: datagram.time_ns,
                    tcp: None,
                    is_last: false,
                };
                let found = found_by(&mut inspector, &payload).unwrap_or_default();
                assert_eq!(
                    found,
                    found_by_all(&datagram),
                    "{}: {:02x?}",
                    fixture.name,
                    &octets[..octets.len().min(40)]
                );
            }
        }
        let [first, second] = &fixture.streams;
        for stream in [first, second].into_iter().filter(|stream| !stream.is_empty()) {
            for octets in variants(&stream[..stream.len().min(1460)]) {
                let ports = fixture.streams().ports;
                let streams = Streams { first: &octets, ports, ..Streams::default() };
                let payload = Payload {
                    octets: &octets,
                    wire_octets: octets.len() as u32,
                    endpoint: 0,
                    ports,
                    addresses: [&[1; 16], &[2; 16]],
                    time_ns: 0,
                    tcp: Some((7, false)),
                    is_last: false,
                };
                let found = found_by(&mut inspector, &payload).unwrap_or_default();
                let all = found_by_all_in_stream(&streams);
                assert_eq!(found, all, "{}: {:02x?}", fixture.name, &octets[..octets.len().min(40)]);
            }
        }
    }
}

/// The findings do not depend on how a stream is cut into segments, nor on their order.
#[test]
fn segments_of_any_length_give_the_same_findings() {
    let settings = InspectionSettings { octets: 64 << 10, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 8);
    for fixture in fixtures::all().iter().filter(|fixture| fixture.datagrams.is_empty()) {
        let mut found = Vec::new();
        for (segment_octets, swapped) in [(1 << 16, false), (1460, false), (536, true), (100, false), (7, true)] {
            let mut flow = FlowInspection::default();
            let ports = fixture.streams().ports;
            for endpoint in 0..2 {
                flow.note_syn(endpoint, 99, endpoint == 1);
            }
            for (endpoint, stream) in fixture.streams.iter().enumerate() {
                let mut segments: Vec<_> = stream.chunks(segment_octets).enumerate().collect();
                if swapped {
                    segments.chunks_mut(2).for_each(<[_]>::reverse);
                }
                for (at, octets) in segments {
                    let payload = Payload {
                        octets,
                        wire_octets: octets.len() as u32,
                        endpoint,
                        ports: if endpoint == 0 { ports } else { [ports[1], ports[0]] },
                        addresses: [&[1; 16], &[2; 16]],
                        time_ns: 0,
                        tcp: Some((100 + (at * segment_octets) as u32, false)),
                        is_last: false,
                    };
                    inspector.inspect(&mut flow, &payload);
                }
            }
            found.push(inspector.findings(&flow).map(|findings| (*findings).clone()).unwrap_or_default());
            inspector.end_flow(&mut flow);
        }
        for other in &found[1..] {
            assert_eq!(other.application(), found[0].application(), "{}", fixture.name);
            for fact in Fact::ALL {
                assert_eq!(other.octets(fact), found[0].octets(fact), "{}: {fact:?}", fixture.name);
            }
        }
    }
}

/// The certificate of a server of DTLS mostly comes in fragments over several datagrams.
#[test]
fn messages_of_dtls_are_put_together_from_several_datagrams() {
    let fixture = fixtures::all().into_iter().find(|fixture| fixture.name == "dtls-1.2").expect("it is there");
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    for datagram in fixture.datagrams() {
        let payload = Payload {
            octets: datagram.payload,
            wire_octets: datagram.wire_octets,
            endpoint: usize::from(!datagram.from_first),
            ports: [datagram.source_port, datagram.destination_port],
            addresses: [&[1; 16], &[2; 16]],
            time_ns: datagram.time_ns,
            tcp: None,
            is_last: false,
        };
        inspector.inspect(&mut flow, &payload);
    }
    let findings = inspector.findings(&flow).expect("it is recognised");
    assert!(findings.has(Fact::CertificateNames) && findings.has(Fact::TlsClientHello), "{findings:?}");
}
