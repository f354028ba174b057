use super::flow::UNKNOWN_DATAGRAMS;
use super::*;
use crate::transactions::MAX_OPEN;

const QUESTION: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01";

fn datagram(octets: &[u8]) -> Payload<'_> {
    let wire_octets = octets.len() as u32;
    Payload {
        octets,
        wire_octets,
        endpoint: 1,
        ports: [40_000, 53],
        addresses: [&[1; 16], &[2; 16]],
        time_ns: 5,
        tcp: None,
        is_last: false,
    }
}

fn answer() -> Vec<u8> {
    let mut answer = QUESTION.to_vec();
    (answer[2], answer[3]) = (0x81, 0x83);
    answer
}

#[test]
fn what_is_not_counted_is_told() {
    let settings = InspectionSettings { transactions: 1, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 8);
    let mut flows = [FlowInspection::default(); 3];
    flows[..2].iter_mut().for_each(|flow| _ = inspector.inspect(flow, &datagram(QUESTION)));
    assert_eq!(inspector.counters().transactions_left_out, 1);
    assert_eq!(inspector.findings(&flows[1]).unwrap().messages(), None);
    // More open questions than are known: of the oldest it is not known whether they are answered.
    for id in 0..MAX_OPEN as u8 + 2 {
        let question = [&[0xee, id], &QUESTION[2..]].concat();
        assert!(inspector.inspect(&mut flows[0], &datagram(&question)));
    }
    let found = inspector.findings(&flows[0]).unwrap();
    let counts = found.messages().unwrap();
    let of_messages = (counts.requests, counts.unanswered, counts.forgotten);
    assert_eq!(of_messages, (MAX_OPEN as u32 + 3, MAX_OPEN as u32, 3));
    assert_eq!(found.notes().names().collect::<Vec<_>>(), ["limit"]);
    // Another record of the flow, while inspection was suspended for some time.
    let goes_on = inspector.findings_of_record(&flows[0], true).unwrap();
    let counts = goes_on.messages().unwrap();
    assert_eq!((counts.unanswered, counts.forgotten), (0, 3));
    inspector.begin_record(&flows[0]);
    inspector.suspend();
    let found = inspector.findings(&flows[0]).unwrap();
    assert_eq!(found.messages().unwrap().unanswered, MAX_OPEN as u32);
    assert_eq!(found.notes().names().collect::<Vec<_>>(), ["gap", "limit"]);
    // Its place is free for another flow.
    inspector.end_flow(&mut flows[0]);
    inspector.inspect(&mut flows[2], &datagram(QUESTION));
    assert!(inspector.findings(&flows[2]).unwrap().messages().is_some());
}

#[test]
fn decided_flow_keeps_its_findings_until_it_ends() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    inspector.inspect(&mut flow, &datagram(QUESTION));
    assert_eq!(inspector.findings(&flow).unwrap().text(Fact::DnsName), Some("a.example"));
    let answer = answer();
    let reply = Payload { endpoint: 0, ports: [53, 40_000], time_ns: 9, ..datagram(&answer) };
    inspector.inspect(&mut flow, &reply);
    let findings = inspector.findings(&flow).unwrap();
    assert_eq!(findings.number(Fact::DnsRcode), Some(3));
    assert_eq!(findings.number(Fact::DnsResponseNs), Some(4));
    assert_eq!(findings.notes().names().count(), 0);
    assert!(inspector.findings_octets > 0);
    inspector.end_flow(&mut flow);
    assert_eq!((inspector.findings(&flow), inspector.findings_octets, flow), (None, 0, FlowInspection::default()));
    assert_eq!(
        inspector.counters(),
        &InspectionCounters {
            flows: 1,
            recognised: 1,
            recognised_by_packet: [1, 0, 0, 0, 0, 0, 0, 0],
            ..Default::default()
        }
    );
}

#[test]
fn a_reader_with_a_state_sees_all_datagrams_of_its_flow() {
    let capture = include_bytes!("../../testdata/quic-rfc9001.pcap");
    // Headers of the file, of each packet, Ethernet, IPv4, UDP; the packets have 1200 and 135 octets.
    let client = &capture[24 + 16 + 42..][..1200];
    let server = &capture[24 + 16 + 42 + 1200 + 16 + 42..][..135];
    let settings = InspectionSettings { sessions: 1, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 8);
    for _ in 0..2 {
        let mut flow = FlowInspection::default();
        inspector.inspect(&mut flow, &datagram(client));
        inspector.inspect(&mut flow, &Payload { endpoint: 0, ..datagram(server) });
        let findings = inspector.findings(&flow).unwrap();
        assert_eq!(findings.text(Fact::ServerName), Some("example.com"));
        assert_eq!(findings.number(Fact::TlsCipher), Some(0x1301));
        assert_eq!(inspector.free_sessions.len(), 1);
    }
}

#[test]
fn flow_of_no_known_protocol_takes_no_memory() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flows = [FlowInspection::default(); 20];
    for flow in &mut flows {
        inspector.inspect(flow, &Payload { ports: [40_000, 9], ..datagram(b"\xff\xff\xff") });
        assert!(!matches!(flow.state(), FlowState::Entry(_)) && inspector.findings(flow).is_none());
    }
    assert_eq!((inspector.entries.len(), inspector.sessions.len()), (0, 1));
    flows.iter_mut().for_each(|flow| inspector.end_flow(flow));
}

#[test]
fn datagrams_that_tell_nothing_do_not_hide_a_later_message() {
    for junk in 0..6 {
        let mut inspector = Inspector::new(InspectionSettings::default(), 8);
        let mut flow = FlowInspection::default();
        let expected = junk < UNKNOWN_DATAGRAMS;
        for number in 1..=junk {
            let more = inspector.inspect(&mut flow, &datagram(b"\xff\xff\xff"));
            assert_eq!(more, number < UNKNOWN_DATAGRAMS);
            // Neither does a datagram without payload.
            assert_eq!(inspector.inspect(&mut flow, &datagram(b"")), more);
        }
        assert_eq!(inspector.inspect(&mut flow, &datagram(QUESTION)), expected);
        let found = inspector.findings(&flow);
        assert_eq!(found.is_some_and(|found| found.has(Fact::DnsName)), expected);
        let counters = *inspector.counters();
        let decided_by = expected.then_some(junk as usize);
        assert_eq!(counters.recognised_by_packet.iter().position(|flows| *flows == 1), decided_by);
        assert_eq!(counters.flows, 1);
        inspector.end_flow(&mut flow);
        assert_eq!((flow, inspector.findings_octets), (FlowInspection::default(), 0));
    }
    // The limit of packets ends it earlier.
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    assert!(inspector.inspect(&mut flow, &datagram(b"\xff")));
    assert!(!inspector.inspect(&mut flow, &Payload { is_last: true, ..datagram(b"\xff") }));
    assert!(!inspector.inspect(&mut flow, &datagram(QUESTION)));
    assert_eq!(inspector.findings(&flow), None);
}

#[test]
fn datagrams_of_no_protocol_do_not_hide_the_answer() {
    let answer = answer();
    for junk in 0..6 {
        let settings = InspectionSettings { transactions: 0, ..InspectionSettings::default() };
        let mut inspector = Inspector::new(settings, 8);
        let mut flow = FlowInspection::default();
        inspector.inspect(&mut flow, &datagram(QUESTION));
        for number in 1..=junk {
            let more = inspector.inspect(&mut flow, &datagram(b"\xff\xff\xff"));
            assert_eq!(more, number < UNKNOWN_DATAGRAMS);
        }
        inspector.inspect(&mut flow, &Payload { endpoint: 0, ports: [53, 40_000], ..datagram(&answer) });
        let found = inspector.findings(&flow).unwrap();
        assert_eq!(found.has(Fact::DnsRcode), junk < UNKNOWN_DATAGRAMS, "{junk}");
        assert_eq!((found.application().unwrap().0, found.notes().0), (Application::Dns, 0));
    }
}

#[test]
fn a_learned_name_and_a_guess_stay_until_a_later_datagram_tells_more() {
    for ports in [false, true] {
        let mut inspector = Inspector::new(InspectionSettings { ports, ..Default::default() }, 8);
        let names = crate::learned::Names { name: "b.example", addresses: [([2; 16], 90)].into_iter().collect() };
        inspector.learned.add_names(&[1; 16], &names, 0);
        let mut flow = FlowInspection::default();
        for _ in 1..UNKNOWN_DATAGRAMS {
            assert!(inspector.inspect(&mut flow, &Payload { ports: [40_000, 443], ..datagram(b"\xff\xff") }));
            let found = inspector.findings(&flow).unwrap();
            assert_eq!(found.text(Fact::LearnedName), Some("b.example"));
            let guess = ports.then_some((Application::Quic, Confidence::Port));
            assert_eq!(found.application(), guess);
        }
        assert!(inspector.inspect(&mut flow, &Payload { ports: [40_000, 443], ..datagram(QUESTION) }));
        let found = inspector.findings(&flow).unwrap();
        assert_eq!(found.text(Fact::LearnedName), Some("b.example"));
        assert_eq!(found.application(), Some((Application::Dns, Confidence::Message)));
        inspector.end_flow(&mut flow);
        assert_eq!((inspector.findings_octets, inspector.counters().recognised), (0, 1));
    }
}

/// Payload of an endpoint of a connection whose SYNs were captured.
fn from(endpoint: usize, at: u32, octets: &[u8]) -> Payload<'_> {
    Payload { endpoint, tcp: Some((100 + at, false)), ports: [40_000, 40_001], ..datagram(octets) }
}

#[test]
fn a_side_that_tells_nothing_does_not_hide_what_the_other_proves() {
    const JUNK: &[u8] = b"?\x01\x02\x03 this is no protocol\r\n";
    let hello = b"HTTP/1.0 400 Bad Request\r\n\r\n";
    for (junk, answer, application) in [
        (&b"PUR\tGE / HTTP/1.0\r\n"[..], &hello[..], Some(Application::Http)),
        (JUNK, hello, Some(Application::Http)),
        (JUNK, b"SSH-2.0-a\r\n", Some(Application::Ssh)),
        // It begins like a record of TLS, which is longer.
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\xff\xff", b"SSH-2.0-a\r\n", Some(Application::Ssh)),
        (JUNK, JUNK, None),
        // It could become a message of DNS. The answer is not split.
        (b"?\x01", hello, Some(Application::Http)),
    ] {
        for times in [1, 3] {
            let mut inspector = Inspector::new(InspectionSettings::default(), 8);
            let mut flow = FlowInspection::default();
            flow.note_syn(1, 99, None);
            flow.note_syn(0, 99, Some(100));
            for number in 0..times {
                let octets = if number == 0 { junk } else { JUNK };
                assert!(inspector.inspect(&mut flow, &from(1, number * junk.len() as u32, octets)), "{junk:?}");
            }
            let (start, rest) = answer.split_at(if junk.len() > 2 { answer.len() / 2 } else { answer.len() });
            inspector.inspect(&mut flow, &from(0, 0, start));
            inspector.inspect(&mut flow, &from(0, start.len() as u32, rest));
            let found = inspector.findings(&flow);
            let name = found.as_ref().and_then(|found| found.application()).map(|(application, _)| application);
            assert_eq!(name, application, "{junk:?} {times}");
            assert_eq!(found.map_or(0, |found| found.notes().0), 0, "{junk:?} {times}");
            assert_eq!(inspector.counters().flows, 1);
            assert_eq!(inspector.inspect(&mut flow, &from(1, 900, b"x")), application.is_some());
            inspector.end_flow(&mut flow);
            assert_eq!((inspector.free_sessions.len(), inspector.findings_octets), (inspector.sessions.len() - 1, 0));
        }
    }
}

#[test]
fn later_syn_hides_nothing() {
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    // SYNs of the client before and after the answer, and what the answer acknowledges.
    for (before, answer, after) in [
        (&[99][..], 100, &[5000][..]),
        (&[99], 100, &[0, u32::MAX]),
        // Of two, the answer shows which one counts.
        (&[5000, 99], 100, &[5000]),
        (&[99, 5000], 100, &[]),
        (&[99, 5000, 6000], 100, &[]),
        // It acknowledges one octet less.
        (&[99], 99, &[]),
        // Its SYN carried octets, which are retransmitted.
        (&[99], 120, &[7]),
    ] {
        let mut inspector = Inspector::new(InspectionSettings::default(), 8);
        let mut flow = FlowInspection::default();
        before.iter().for_each(|sequence| flow.note_syn(1, *sequence, None));
        flow.note_syn(0, 99, Some(answer));
        after.iter().for_each(|sequence| flow.note_syn(1, *sequence, None));
        inspector.inspect(&mut flow, &from(1, 20, &request[20..]));
        inspector.inspect(&mut flow, &from(1, 0, &request[..20]));
        let found = inspector.findings(&flow).unwrap();
        assert_eq!(found.text(Fact::HttpHost), Some("a.example"), "{before:?} {answer} {after:?}");
        assert_eq!((found.notes().0, flow.client()), (0, Some(1)), "{before:?} {answer} {after:?}");
    }
}

#[test]
fn connection_that_restarts_is_read_from_its_own_start() {
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    // The first one came to nothing, and its end was not captured.
    for (sequence, answer) in [(77_000_000, 900), (99, 99)] {
        flow.note_syn(1, sequence, None);
        flow.note_syn(0, answer, Some(sequence + 1));
    }
    inspector.inspect(&mut flow, &from(1, 0, request));
    assert_eq!(inspector.findings(&flow).unwrap().text(Fact::HttpHost), Some("a.example"));
}

#[test]
fn flow_that_was_undecided_for_longest_is_evicted() {
    let sessions = 4;
    let mut inspector = Inspector::new(InspectionSettings { sessions, ..InspectionSettings::default() }, 64);
    let mut flows = [FlowInspection::default(); 40];
    // Half a request, so that the flow is undecided.
    let begin = |inspector: &mut Inspector, flow: &mut FlowInspection| {
        flow.note_syn(1, 99, None);
        assert!(inspector.inspect(flow, &from(1, 0, b"GET / HTT")));
    };
    let is_open = |inspector: &Inspector, flow: &FlowInspection| {
        let FlowState::Entry(entry) = flow.state() else { return false };
        matches!(inspector.entries.get(entry as usize), Some(Entry::Undecided(_)))
    };
    let mut open = Vec::new();
    for number in 0..flows.len() {
        begin(&mut inspector, &mut flows[number]);
        open.push(number);
        if open.len() > sessions as usize {
            open.remove(0);
        }
        // Flows end in between, so that sessions are taken in another order than that of their numbers.
        if number % 3 == 1 {
            let ended = open.remove((number / 3) % open.len());
            inspector.end_flow(&mut flows[ended]);
        }
        let are_open = (0..flows.len()).filter(|number| is_open(&inspector, &flows[*number]));
        assert_eq!(are_open.collect::<Vec<_>>(), open, "{number}");
    }
}

#[test]
fn octets_behind_a_gap_do_not_make_a_side_the_first() {
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for (first, answer, host, application) in [
        (&request[..], &b"HTTP/1.1 200 OK\r\n\r\n"[..], Some("a.example"), Application::Http),
        (b"?\x01\x02\x03 this is no protocol\r\n", b"SSH-2.0-a\r\n", None, Application::Ssh),
    ] {
        let mut inspector = Inspector::new(InspectionSettings::default(), 8);
        let mut flow = FlowInspection::default();
        flow.note_syn(1, 99, None);
        flow.note_syn(0, 99, Some(100));
        inspector.inspect(&mut flow, &from(0, 900, b"behind a gap"));
        inspector.inspect(&mut flow, &from(1, 0, first));
        inspector.inspect(&mut flow, &from(0, 0, answer));
        let found = inspector.findings(&flow).unwrap();
        assert_eq!((found.application().unwrap().0, found.text(Fact::HttpHost)), (application, host));
    }
}

#[test]
fn without_a_session_the_oldest_flow_is_evicted_and_keeps_what_was_found() {
    let settings = InspectionSettings { sessions: 2, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 8);
    let mut flows = [FlowInspection::default(); 3];
    flows.iter_mut().for_each(|flow| {
        inspector.inspect(flow, &datagram(QUESTION));
    });
    let found = flows.map(|flow| inspector.findings(&flow).unwrap());
    let notes = found.each_ref().map(|found| found.notes().names().collect::<Vec<_>>());
    assert_eq!(notes, [vec!["limit"], vec![], vec![]]);
    assert!(found.iter().all(|found| found.application().unwrap().0 == Application::Dns));
    assert_eq!((inspector.counters().evicted, inspector.sessions.len()), (1, 3));
    flows.iter_mut().for_each(|flow| inspector.end_flow(flow));
    assert_eq!((inspector.free_sessions.len(), inspector.findings_octets), (2, 0));
}

#[test]
fn facts_that_do_not_fit_are_left_out() {
    let settings = InspectionSettings { findings_octets: 300, sessions: 1, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 8);
    let mut flows = [FlowInspection::default(); 9];
    flows.iter_mut().for_each(|flow| {
        inspector.inspect(flow, &datagram(QUESTION));
    });
    let last = inspector.findings(&flows[7]).unwrap();
    assert_eq!((last.application().unwrap().0, last.has(Fact::DnsName)), (Application::Dns, false));
    assert!(inspector.findings_octets <= 300 && inspector.counters().facts_left_out > 0);
    flows.iter_mut().for_each(|flow| inspector.end_flow(flow));
    assert_eq!(inspector.findings_octets, 0);
}

#[test]
fn memory_of_sessions_is_bounded() {
    let settings = InspectionSettings { session_octets: 10_000, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 100);
    let mut flows = [FlowInspection::default(); 100];
    // The length announces a message of 12 KiB, which never ends.
    let start = [&[0x30, 0][..], &QUESTION[..12]].concat();
    for flow in &mut flows {
        inspector.inspect(flow, &Payload { tcp: Some((7, false)), ..datagram(&start) });
        inspector.inspect(flow, &Payload { tcp: Some((1000, false)), ..datagram(&[7; 500]) });
        assert!(inspector.session_octets <= 10_000 + 2000, "{}", inspector.session_octets);
    }
    assert!(inspector.counters().evicted > 50, "{:?}", inspector.counters());
    flows.iter_mut().for_each(|flow| inspector.end_flow(flow));
    assert_eq!((inspector.open_sessions.oldest, inspector.open_sessions.newest), (NONE, NONE));
}

#[test]
fn idle_sessions_leave_memory_to_open_ones() {
    let settings = InspectionSettings { session_octets: 100_000, ..InspectionSettings::default() };
    let mut inspector = Inspector::new(settings, 100);
    let mut flows = [FlowInspection::default(); 100];
    let start = [&[0x30, 0][..], &QUESTION[..12]].concat();
    for flow in &mut flows {
        inspector.inspect(flow, &Payload { tcp: Some((7, false)), ..datagram(&start) });
        inspector.inspect(flow, &Payload { tcp: Some((1000, false)), ..datagram(&[7; 500]) });
    }
    flows.iter_mut().for_each(|flow| inspector.end_flow(flow));
    assert!(inspector.session_octets <= 50_000, "{}", inspector.session_octets);
    let evicted = inspector.counters().evicted;
    inspector.inspect(&mut flows[0], &Payload { tcp: Some((7, false)), ..datagram(&start) });
    inspector.inspect(&mut flows[1], &Payload { tcp: Some((7, false)), ..datagram(&start) });
    assert_eq!(inspector.counters().evicted, evicted);
}

/// A million connections that begin a ClientHello and never end it, a half of them with a gap.
#[test]
fn a_million_half_open_handshakes_take_bounded_memory() {
    let count = if cfg!(miri) { 100 } else { 1_000_000 };
    let settings = InspectionSettings { sessions: 1000, session_octets: 1 << 20, ..Default::default() };
    let mut inspector = Inspector::new(settings, count);
    let limit = Inspector::memory_octets_for(&settings, count);
    let start = [&b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    let mut flows = vec![FlowInspection::default(); count];
    for (number, flow) in flows.iter_mut().enumerate() {
        inspector.inspect(flow, &Payload { tcp: Some((7, false)), ..datagram(&start) });
        let sequence = if number % 2 == 0 { 7 + start.len() as u32 } else { 7000 };
        inspector.inspect(flow, &Payload { tcp: Some((sequence, false)), ..datagram(&[0; 9]) });
        let lists: u64 = inspector.sessions.iter().take(10).map(Session::octets).sum();
        assert!(inspector.session_octets >= lists && inspector.session_octets <= (1 << 20) + 20_000);
        assert!(inspector.sessions.len() <= 1001);
    }
    let taken = inspector.sessions.iter().map(Session::octets).sum::<u64>()
        + (inspector.sessions.capacity() * size_of::<Session>()) as u64
        + (inspector.entries.capacity() * size_of::<Entry>()) as u64
        + inspector.findings_octets;
    assert!(taken <= limit, "{taken} {limit}");
    let counters = *inspector.counters();
    assert_eq!((counters.flows, counters.recognised_by_packet[0]), (count as u64, count as u64));
    assert!(counters.evicted >= count as u64 - 1000);
    let found = inspector.findings(&flows[0]).unwrap();
    assert_eq!(found.application().unwrap().0, Application::Tls);
    flows.iter_mut().for_each(|flow| inspector.end_flow(flow));
    assert_eq!((inspector.findings_octets, inspector.counters().recognised), (0, count as u64));
}

#[test]
fn datagram_that_the_capture_cut_has_a_gap() {
    let data = [&b"\x17\xfe\xfd\0\x01\0\0\0\0\0\0\0\x1e"[..], &[5; 30]].concat();
    for (octets, expected) in [(data.len(), &[][..]), (20, &["gap"])] {
        let mut inspector = Inspector::new(InspectionSettings::default(), 8);
        let mut flow = FlowInspection::default();
        let payload = Payload { wire_octets: data.len() as u32, ports: [40_000, 9], ..datagram(&data[..octets]) };
        inspector.inspect(&mut flow, &payload);
        let found = inspector.findings(&flow).unwrap();
        assert_eq!(found.application(), Some((Application::Dtls, Confidence::Pattern)));
        assert_eq!(found.notes().names().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn payload_that_the_capture_cut_has_a_gap_whether_or_not_the_flow_is_recognised() {
    let junk = b"\xff\xfe this is no protocol";
    for tcp in [None, Some((7, false))] {
        for captured in [0, 1, 5, junk.len()] {
            let mut inspector = Inspector::new(InspectionSettings::default(), 8);
            let mut flow = FlowInspection::default();
            let cut = Payload { wire_octets: junk.len() as u32, tcp, ..datagram(&junk[..captured]) };
            let of_use = [(); 2].map(|()| inspector.inspect(&mut flow, &cut));
            let notes = inspector.findings(&flow).map(|found| found.notes().names().collect::<Vec<_>>());
            assert_eq!(notes, (captured < junk.len()).then(|| vec!["gap"]), "{captured}");
            assert_eq!((of_use[0], inspector.counters().flows), (true, 1), "{captured}");
            inspector.inspect(&mut flow, &Payload { endpoint: 1, tcp, is_last: true, ..datagram(b"") });
            inspector.end_flow(&mut flow);
            assert_eq!((inspector.free_sessions.len(), inspector.findings_octets), (inspector.sessions.len() - 1, 0));
        }
    }
    // A datagram that was captured whole, after one that was not.
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    inspector.inspect(&mut flow, &Payload { wire_octets: 40, ports: [40_000, 53], ..datagram(b"") });
    inspector.inspect(&mut flow, &Payload { ports: [40_000, 53], ..datagram(QUESTION) });
    let found = inspector.findings(&flow).unwrap();
    let application = found.application().map(|(application, _)| application);
    assert_eq!((application, found.notes().names().collect::<Vec<_>>()), (Some(Application::Dns), vec!["gap"]));
}

#[test]
fn end_at_a_limit_is_noted_whether_or_not_the_flow_is_recognised() {
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let hello = [&b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    // Octets that are kept, packets that are inspected, the application, whether the limit is
    // noted.
    for (octets, limit, packets, application, is_limited) in [
        (&request[..], 8192, 16, Some(Application::Http), false),
        (request, 20, 16, Some(Application::Http), true),
        (request, 8, 16, None, true),
        (request, 8192, 1, Some(Application::Http), true),
        (&hello, 20, 16, Some(Application::Tls), true),
        (&hello, 8, 16, None, true),
        (b"\xff\xff\xff\xff\xff\xff", 8, 1, None, false),
    ] {
        for segment_octets in [1, 100] {
            let settings = InspectionSettings { octets: limit, ..InspectionSettings::default() };
            let mut inspector = Inspector::new(settings, 8);
            let mut flow = FlowInspection::default();
            flow.note_syn(1, 6, None);
            for (at, segment) in octets.chunks(segment_octets).enumerate() {
                let sequence = 7 + (at * segment_octets) as u32;
                let is_last = packets == 1 && (at + 1) * segment_octets >= octets.len();
                inspector.inspect(&mut flow, &Payload { tcp: Some((sequence, false)), is_last, ..datagram(segment) });
            }
            let case = format!("{octets:?} {limit} {segment_octets}");
            let found = inspector.findings(&flow);
            let found = found.as_deref();
            let notes = found.map(|found| found.notes().has(Note::Limit)).unwrap_or_default();
            let found = found.and_then(|found| found.application()).map(|(application, _)| application);
            assert_eq!((found, notes), (application, is_limited), "{case}");
            inspector.end_flow(&mut flow);
            assert_eq!(inspector.findings(&flow), None);
        }
    }
}

#[test]
fn limit_is_noted_of_flows_whose_payload_comes_after_it() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    let empty = Payload { tcp: Some((7, false)), is_last: true, ..datagram(b"") };
    for _ in 0..3 {
        assert!(inspector.inspect(&mut flow, &empty));
        assert_eq!(inspector.findings(&flow), None);
    }
    assert!(inspector.inspect(&mut flow, &Payload { wire_octets: 1, ..empty }), "a keep-alive");
    assert!(!inspector.inspect(&mut flow, &Payload { wire_octets: 9, ..empty }));
    let found = inspector.findings(&flow).unwrap();
    assert_eq!((found.application(), found.notes().names().collect::<Vec<_>>()), (None, vec!["limit"]));
    inspector.end_flow(&mut flow);
    assert_eq!((inspector.findings(&flow), flow), (None, FlowInspection::default()));
}

#[test]
fn streams_are_read_in_the_order_of_their_octets() {
    let message = [&[0, QUESTION.len() as u8], QUESTION].concat();
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    flow.note_syn(1, 99, None);
    let segment =
        |from: usize, to: usize| Payload { tcp: Some((100 + from as u32, false)), ..datagram(&message[from..to]) };
    inspector.inspect(&mut flow, &segment(20, message.len()));
    let found = inspector.findings(&flow).unwrap();
    assert_eq!((found.application(), found.notes().names().collect::<Vec<_>>()), (None, vec!["gap"]));
    inspector.inspect(&mut flow, &segment(0, 20));
    assert_eq!(inspector.findings(&flow).unwrap().text(Fact::DnsName), Some("a.example"));
    inspector.inspect(&mut flow, &Payload { is_last: true, ..segment(0, 0) });
    assert_eq!(inspector.findings(&flow).unwrap().notes().names().collect::<Vec<_>>(), ["limit"]);
    assert_eq!(inspector.free_sessions.len(), 1);
}

#[test]
fn packets_that_are_not_read_to_their_end_are_counted() {
    // Initials of alternating versions, each of which needs other keys.
    let initial = |version: [u8; 5]| [&version[..], &[1, 9, 0, 0, 20], &[7; 20]].concat();
    let versions = [initial(*b"\xc0\0\0\0\x01"), initial(*b"\xd0\x6b\x33\x43\xcf")].concat();
    let lines = [&b"GET / HTTP/1.1\r\n"[..], &b"a:\n".repeat(600)].concat();
    for (octets, tcp, application) in
        [(versions.repeat(20), None, Application::Quic), (lines, Some((7, false)), Application::Http)]
    {
        for transactions in [0, 8] {
            let settings = InspectionSettings { transactions, ..InspectionSettings::default() };
            let mut inspector = Inspector::new(settings, 8);
            let mut flow = FlowInspection::default();
            inspector.inspect(&mut flow, &Payload { tcp, ..datagram(&octets) });
            let found = inspector.findings(&flow).unwrap();
            assert_eq!(found.application().map(|(application, _)| application), Some(application));
            assert!(found.notes().has(Note::Limit));
            assert_eq!(inspector.counters().work_limited, 1);
            if application == Application::Quic {
                inspector.inspect(&mut flow, &datagram(&octets));
                assert_eq!(inspector.counters().work_limited, 2);
            }
            inspector.end_flow(&mut flow);
            inspector.inspect(&mut flow, &datagram(QUESTION));
            assert!(!inspector.findings(&flow).unwrap().notes().has(Note::Limit));
        }
    }
}

#[test]
fn octets_that_come_before_those_that_were_read_are_read() {
    let mut inspector = Inspector::new(InspectionSettings::default(), 8);
    let mut flow = FlowInspection::default();
    let request = b"\n\n\n\nGET / HTTP/1.1\r\nA: b\r\nHost: a.example\r\n\r\n";
    // The capture has no SYN, and the segment with the first octets comes later.
    for (begin, end) in [(4, 30), (0, 4), (30, request.len())] {
        let tcp = Some((100 + begin as u32, false));
        inspector.inspect(&mut flow, &Payload { tcp, ..datagram(&request[begin..end]) });
    }
    let found = inspector.findings(&flow).unwrap();
    assert_eq!((found.text(Fact::HttpHost), found.notes().names().count()), (Some("a.example"), 0));
}
