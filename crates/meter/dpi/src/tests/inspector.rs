//! The inspector over the captures of `testdata`, compared with the readers alone.

use super::fixtures;
use weir_dpi::{
    DATAGRAM_READERS, Datagram, DatagramState, Fact, Findings, FlowInspection, InspectionSettings, Inspector, Note,
    Payload, STREAM_READERS, Streams, Verdict,
};

/// What the readers find in a datagram if all of them are asked.
fn found_by_all(datagram: &Datagram<'_>) -> Findings {
    let claims = |verdict| matches!(verdict, Verdict::Recognised | Verdict::Complete);
    let mut findings = Findings::new(false);
    for reader in DATAGRAM_READERS {
        let mut state = DatagramState::default();
        findings = Findings::new(false);
        let verdict = reader.read(&mut state, datagram, &mut findings);
        if state.has_gap() {
            findings.note(Note::Gap);
        }
        if claims(verdict) {
            break;
        }
    }
    findings
}

/// The same for the first octets of a connection.
fn found_by_all_in_stream(streams: &Streams<'_>) -> Findings {
    for reader in STREAM_READERS {
        let mut findings = Findings::new(false);
        if matches!(reader.read(streams, &mut findings), Verdict::Recognised | Verdict::Complete) {
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
    let settings = InspectionSettings { transactions: 0, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 8);
    for fixture in fixtures::all() {
        for datagram in fixture.datagrams().take(4) {
            for octets in variants(datagram.payload) {
                let datagram = Datagram { payload: &octets, from_first: true, ..datagram };
                let payload = Payload {
                    octets: &octets,
                    wire_octets: datagram.wire_octets,
                    endpoint: 0,
                    ports: datagram.ports,
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
                flow.note_syn(endpoint, 99, (endpoint == 1).then_some(100));
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
            for &fact in Fact::ALL {
                assert_eq!(other.octets(fact), found[0].octets(fact), "{}: {fact:?}", fixture.name);
            }
        }
    }
}

/// That holds for damaged streams, too: a claim follows from the octets alone.
#[test]
fn segments_of_a_damaged_stream_give_the_same_application() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut wrong = std::collections::BTreeSet::new();
    for fixture in fixtures::all().iter().filter(|fixture| fixture.datagrams.is_empty()) {
        let first: Vec<u8> = fixture.streams[0].iter().take(200).copied().collect();
        let ports = fixture.streams().ports;
        for at in 0..first.len().min(60) {
            for value in [0, 1, b' ', b'\n', b'A', 0x1b, 0x7f, 0x80, 0xff, first[at] ^ 1, first[at].wrapping_add(1)] {
                let mut octets = first.clone();
                octets[at] = value;
                let found = [200, 7, 2].map(|segment_octets| {
                    let segments = octets.chunks(segment_octets).enumerate();
                    let packets: Vec<_> = segments
                        .map(|(number, octets)| (0, Some(100 + (number * segment_octets) as u32), octets.to_vec()))
                        .collect();
                    found_in(&mut inspector, ports, &packets).application()
                });
                if found[0] != found[1] || found[1] != found[2] {
                    wrong.insert(format!("{} at {at}: {found:?}", fixture.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
            ports: datagram.ports,
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

#[test]
fn fingerprints_are_left_out_of_flows_that_begin_then() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let found = |inspector: &mut Inspector| {
        let fixture = fixtures::all().into_iter().find(|it| it.name.contains("ssh")).expect("a capture of SSH");
        found_in(inspector, [40_000, 22], &packets(&fixture))
    };
    let with = found(&mut inspector);
    inspector.set_fingerprints(false);
    let without = found(&mut inspector);
    inspector.set_fingerprints(true);
    assert_eq!(found(&mut inspector), with);
    assert!(with.has(Fact::Hassh) && !with.notes().has(Note::Unfingerprinted));
    assert!(!without.has(Fact::Hassh) && !without.has(Fact::HasshServer) && without.notes().has(Note::Unfingerprinted));
    assert_eq!(without.text(Fact::SshClient), with.text(Fact::SshClient));
}

/// The packets of a flow: endpoint, sequence number of TCP, payload.
fn packets(fixture: &fixtures::Fixture) -> Vec<(usize, Option<u32>, Vec<u8>)> {
    let datagrams =
        fixture.datagrams().map(|datagram| (usize::from(!datagram.from_first), None, datagram.payload.to_vec()));
    let segments = fixture.streams.iter().enumerate().flat_map(|(endpoint, stream)| {
        let segments = stream.chunks(1000).enumerate();
        segments.map(move |(at, octets)| (endpoint, Some(100 + 1000 * at as u32), octets.to_vec()))
    });
    datagrams.chain(segments).take(6).collect()
}

fn found_in(inspector: &mut Inspector, ports: [u16; 2], packets: &[(usize, Option<u32>, Vec<u8>)]) -> Findings {
    let mut flow = FlowInspection::default();
    for (endpoint, sequence, octets) in packets {
        let (ports, addresses) = match endpoint {
            0 => (ports, [&[1; 16], &[2; 16]]),
            _ => ([ports[1], ports[0]], [&[2; 16], &[1; 16]]),
        };
        let payload = Payload {
            octets,
            wire_octets: octets.len() as u32,
            endpoint: *endpoint,
            ports,
            addresses,
            time_ns: 0,
            tcp: sequence.map(|sequence| (sequence, false)),
            is_last: false,
        };
        inspector.inspect(&mut flow, &payload);
    }
    let findings = inspector.findings(&flow).map(|findings| (*findings).clone()).unwrap_or_default();
    inspector.end_flow(&mut flow);
    findings
}

#[test]
fn packets_that_are_cut_or_changed_cause_no_panic() {
    let mut inspector = Inspector::new(InspectionSettings { sessions: 2, ..InspectionSettings::default() }, 8);
    for fixture in fixtures::all() {
        let ports = fixture.datagrams().next().map_or(fixture.streams().ports, |datagram| datagram.ports);
        let mut packets = packets(&fixture);
        for number in 0..packets.len() {
            let whole = packets[number].2.clone();
            for at in 0..whole.len().min(600) {
                packets[number].2.truncate(at);
                found_in(&mut inspector, ports, &packets);
                packets[number].2.clone_from(&whole);
                for value in [0, 0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
                    packets[number].2[at] = value;
                    found_in(&mut inspector, ports, &packets);
                }
                packets[number].2[at] = whole[at];
            }
        }
    }
}

/// An attacker who sends other octets for the same place changes nothing that was found, and is
/// reported.
#[test]
fn octets_that_came_first_count_and_the_conflict_is_noted() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let fixture = fixtures::all().into_iter().find(|fixture| fixture.name == "tls-1.2").expect("it is there");
    let [client, _] = &fixture.streams;
    let name = client.windows(4).position(|octets| octets == b"www.").expect("the server name is there");
    let mut other = client.clone();
    other[name..name + 3].copy_from_slice(b"xxx");
    let part = |octets: &[u8], from: usize, to: usize| (0, Some(100 + from as u32), octets[from..to].to_vec());
    let end = client.len();
    for packets in [
        [part(client, 0, name + 4), part(&other, 0, name + 4), part(client, name + 4, end)],
        // Behind a gap, which the first octets fill.
        [part(client, name - 2, end), part(&other, name - 1, end), part(client, 0, name)],
        [part(client, name - 2, end), part(&other, 0, end), part(client, 0, end)],
    ] {
        let mut flow = FlowInspection::default();
        flow.note_syn(0, 99, None);
        for (endpoint, sequence, octets) in &packets {
            let payload = Payload {
                octets,
                wire_octets: octets.len() as u32,
                endpoint: *endpoint,
                ports: [40_000, 443],
                addresses: [&[1; 16], &[2; 16]],
                time_ns: 0,
                tcp: sequence.map(|sequence| (sequence, false)),
                is_last: false,
            };
            inspector.inspect(&mut flow, &payload);
        }
        let findings = inspector.findings(&flow).expect("it is recognised");
        inspector.end_flow(&mut flow);
        assert_eq!(findings.text(Fact::ServerName), Some("www.example.test"));
        assert!(findings.notes().names().any(|note| note == "conflict"), "{findings:?}");
    }
}

/// The first octet of a segment that overtook the first one says nothing.
#[test]
fn first_two_segments_may_come_in_either_order() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    for fixture in fixtures::all().iter().filter(|fixture| fixture.datagrams.is_empty()) {
        let [first, _] = &fixture.streams;
        let first = &first[..first.len().min(1200)];
        let mut found = [0, 1].map(|_| Vec::new());
        for cut in 1..first.len() {
            for (found, order) in found.iter_mut().zip([[0, 1], [1, 0]]) {
                let mut flow = FlowInspection::default();
                flow.note_syn(0, 99, None);
                let segments = [(100, &first[..cut]), (100 + cut as u32, &first[cut..])];
                for (sequence, octets) in order.map(|at: usize| segments[at]) {
                    let payload = Payload {
                        octets,
                        wire_octets: octets.len() as u32,
                        endpoint: 0,
                        ports: fixture.streams().ports,
                        addresses: [&[1; 16], &[2; 16]],
                        time_ns: 0,
                        tcp: Some((sequence, false)),
                        is_last: false,
                    };
                    inspector.inspect(&mut flow, &payload);
                }
                found.push(inspector.findings(&flow).and_then(|findings| findings.application()));
                inspector.end_flow(&mut flow);
            }
        }
        assert_eq!(found[0], found[1], "{}", fixture.name);
    }
}

/// Orders in which the payloads of two sides can be captured, each side in its own order: all of
/// them, or as many random ones.
fn interleavings([first, second]: [usize; 2], limit: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![vec![]];
    for _ in 0..first + second {
        orders = orders
            .iter()
            .flat_map(|order: &Vec<usize>| {
                let counts = [0, 1].map(|side| order.iter().filter(|at| **at == side).count());
                let sides = (0..2).filter(move |side| counts[*side] < [first, second][*side]);
                sides.map(|side| [&order[..], &[side]].concat())
            })
            .collect();
        if orders.len() > limit {
            break;
        }
    }
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for order in &mut orders {
        while order.len() < first + second {
            let counts = [0, 1].map(|side| order.iter().filter(|at| **at == side).count());
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let side = (state >> 40) as usize % 2;
            order.push(if counts[side] < [first, second][side] { side } else { 1 - side });
        }
    }
    orders
}

/// What is found in segments, captured in this order of their sides.
fn found_in_order(inspector: &mut Inspector, segments: &[Segment], order: &[usize], client: Option<usize>) -> Findings {
    let mut flow = FlowInspection::default();
    for endpoint in client.iter().flat_map(|_| 0..2) {
        flow.note_syn(endpoint, 99, (client != Some(endpoint)).then_some(100));
    }
    let mut sides = [0, 1].map(|side| segments.iter().filter(move |(of, _)| *of == side));
    let mut sequences = [100; 2];
    for &side in order {
        let (_, octets) = sides[side].next().expect("the order has as many as the side");
        let payload = Payload {
            octets,
            wire_octets: octets.len() as u32,
            endpoint: side,
            ports: [[25, 40_000], [40_000, 25]][side],
            addresses: [&[1; 16], &[2; 16]],
            time_ns: 0,
            tcp: Some((sequences[side], false)),
            is_last: false,
        };
        sequences[side] += octets.len() as u32;
        inspector.inspect(&mut flow, &payload);
    }
    let findings = inspector.findings(&flow).map(|findings| (*findings).clone()).unwrap_or_default();
    inspector.end_flow(&mut flow);
    findings
}

/// The side that sent it, and its octets.
type Segment = (usize, Vec<u8>);

/// Applications and segments of sessions in which the server, side 0, greets first.
fn sessions_with_greetings() -> Vec<(&'static str, Vec<Segment>)> {
    let sessions: [(&str, &[(usize, &str)]); 9] = [
        (
            "smtp",
            &[
                (0, "220 a.example\r\n"),
                (1, "EHLO b.example\r\n"),
                (0, "250-a.example\r\n250 PIPELINING\r\n"),
                (1, "MAIL FROM:<u@b.example>\r\nRCPT TO:<v@a.example>\r\nDATA\r\n"),
                (0, "250 OK\r\n250 OK\r\n354 OK\r\n"),
                (1, "Subject: x\r\n\r\nMAIL FROM:<w@b.example>\r\n.\r\n"),
            ],
        ),
        ("smtp", &[(0, "220 a.ex"), (1, "NOOP\r\n"), (0, "ample ESMTP\r\n"), (1, "HELO b\r\nMAIL FROM:<u@b>\r\n")]),
        (
            "smtp",
            &[
                (0, "220-a.example\r\n"),
                (0, "220 a.example\r\n"),
                (1, "LH"),
                (1, "LO b\r\nMAIL "),
                (1, "FROM:<u@b>\r\n"),
            ],
        ),
        (
            "ftp",
            &[(0, "220 a.example\r\n"), (1, "NOOP\r\n"), (0, "200 OK\r\n"), (1, "USER u@b\r\n"), (0, "331 OK\r\n")],
        ),
        ("ftp", &[(0, "220 ProFTPD\r\n"), (1, "FEAT\r\nUSER u@b\r\nPASS x\r\n"), (0, "211 x\r\n331 x\r\n230 x\r\n")]),
        (
            "pop3",
            &[
                (0, "+OK\r\n"),
                (1, "CAPA\r\n"),
                (0, "+OK\r\nUSER\r\n.\r\n"),
                (1, "USER u@b\r\nPASS x\r\n"),
                (0, "+OK\r\n"),
            ],
        ),
        ("pop3", &[(0, "+OK a.example <1@a>\r\n"), (1, "NOOP\r\n"), (0, "+OK\r\n"), (1, "APOP u@b "), (1, "0123\r\n")]),
        (
            "imap",
            &[
                (0, "* OK a.example\r\n"),
                (1, "a1 CAPABILITY\r\n"),
                (0, "* CAPABILITY IMAP4\r\na1 OK\r\n"),
                (1, "a2 LOGIN u@b x\r\n"),
            ],
        ),
        (
            "imap",
            &[
                (0, "* "),
                (0, "OK IMAP4\r\n"),
                (1, "1"),
                (1, " ID nil\r\n2 LOGIN \"u@b\" x\r\n"),
                (0, "* ID nil\r\n1 OK\r\n2 OK\r\n"),
            ],
        ),
    ];
    let octets = |(side, text): &(usize, &str)| (*side, text.as_bytes().to_vec());
    sessions.into_iter().map(|(name, segments)| (name, segments.iter().map(octets).collect())).collect()
}

/// Taps and receive queues may change the order of the two directions.
#[test]
fn findings_do_not_depend_on_the_order_in_which_the_directions_were_captured() {
    const APPLICATIONS: [&str; 10] = ["smtp", "imap", "pop3", "ftp", "http", "http2", "ssh", "mqtt", "redis", "smb"];
    let settings = InspectionSettings { octets: 64 << 10, personal: true, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 8);
    let fixtures = fixtures::all();
    let of_captures = fixtures.iter().filter(|fixture| fixture.datagrams.is_empty()).map(|fixture| {
        let client = usize::from(fixture.streams().first_is_client != Some(true));
        (fixture.application(), client, fixture.segments.clone())
    });
    let sessions = sessions_with_greetings().into_iter().map(|(name, segments)| (name, 1, segments));
    for (application, client, mut segments) in of_captures.chain(sessions) {
        if !APPLICATIONS.contains(&application) {
            continue;
        }
        let mut counts = [0; 2];
        segments.retain(|(side, _)| {
            counts[*side] += 1;
            counts[*side] <= InspectionSettings::default().packets as usize
        });
        let natural: Vec<usize> = segments.iter().map(|(side, _)| *side).collect();
        let counts = [0, 1].map(|side| natural.iter().filter(|of| **of == side).count());
        for client in [Some(client), None] {
            let expected = found_in_order(&mut inspector, &segments, &natural, client);
            assert_eq!(expected.application().map(|(application, _)| application.name()), Some(application));
            if segments.iter().any(|(_, octets)| octets.windows(3).any(|octets| octets == b"u@b")) {
                assert!(expected.text(Fact::User).is_some_and(|user| user.starts_with("u@b")), "{application}");
            }
            for order in interleavings(counts, 1000) {
                let found = found_in_order(&mut inspector, &segments, &order, client);
                assert_eq!(found.application(), expected.application(), "{application} {order:?}");
                for &fact in Fact::ALL {
                    assert_eq!(found.octets(fact), expected.octets(fact), "{application} {order:?} {fact:?}");
                }
            }
        }
    }
}
