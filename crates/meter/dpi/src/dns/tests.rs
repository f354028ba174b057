use super::*;

fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Verdict {
    super::read_datagram(datagram, findings).unwrap_or(Verdict::No)
}

fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    super::read_streams(streams, findings).unwrap_or_else(|verdict| verdict)
}

/// A message with this header, and names and records as octets.
fn message(flags: u16, counts: [u16; 4], rest: &[&[u8]]) -> Vec<u8> {
    let header = [[0x12, 0x34], flags.to_be_bytes()].into_iter().chain(counts.map(u16::to_be_bytes));
    header.flatten().chain(rest.concat()).collect()
}

fn datagram(payload: &[u8], from_first: bool, port: u16, time_ns: u64) -> Datagram<'_> {
    let ports = if from_first { [40000, port] } else { [port, 40000] };
    Datagram { payload, wire_octets: payload.len() as u32, from_first, ports, time_ns }
}

const QUESTION: &[u8] = b"\x01a\x07example\0\0\x01\0\x01";

fn answer(kind: u16, data: &[u8]) -> Vec<u8> {
    let fixed = [&[0xc0, 12][..], &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 60], &(data.len() as u16).to_be_bytes()];
    [&fixed.concat(), data].concat()
}

/// The text of an answer with one record.
fn text(kind: u16, data: &[u8]) -> Option<String> {
    let mut findings = Findings::new(false);
    let octets = message(0x8180, [1, 1, 0, 0], &[QUESTION, &answer(kind, data)]);
    assert_eq!(read_datagram(&datagram(&octets, false, 53, 0), &mut findings), Verdict::Complete);
    findings.text(Fact::DnsAnswers).map(String::from)
}

#[test]
fn records_become_text() {
    assert_eq!(text(1, &[192, 0, 2, 1]).as_deref(), Some("192.0.2.1"));
    assert_eq!(text(28, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).as_deref(), Some("2001:db8::1"));
    assert_eq!(text(5, b"\x01b\xc0\x0e").as_deref(), Some("b.example"));
    assert_eq!(text(2, b"\0").as_deref(), Some("."));
    assert_eq!(text(15, b"\0\x0a\x04mail\xc0\x0e").as_deref(), Some("10 mail.example"));
    assert_eq!(text(16, b"\x03a=b\x01c").as_deref(), Some("\"a=b\" \"c\""));
    assert_eq!(text(33, b"\0\x01\0\x02\x13\xc4\x03sip\xc0\x0e").as_deref(), Some("1 2 5060 sip.example"));
    let serials = [1_u32, 2, 3, 4, 5].map(u32::to_be_bytes).concat();
    assert_eq!(
        text(6, &[b"\x02ns\xc0\x0e\x01h\xc0\x0e", &serials[..]].concat()).as_deref(),
        Some("ns.example h.example 1 2 3 4 5")
    );
    assert_eq!(
        text(65, b"\0\x01\0\0\x01\0\x06\x02h3\x02h2\0\x03\0\x02\x01\xbb\0\x04\0\x04\xc0\0\x02\x01\0\x05\0\x01x")
            .as_deref(),
        Some("1 . alpn=h3\\x2ch2 port=443 ipv4hint=192.0.2.1 ech")
    );
    assert_eq!(text(16, b"\x05a\"b,\\").as_deref(), Some("\"a\\x22b\\x2c\\\\\""));
    assert_eq!(text(65, b"\0\x01\0\0\x01\0\x04\x03h,3").as_deref(), Some("1 . alpn=h\\\\\\x2c3"));
    assert_eq!(text(257, b"\0\x05issuea").as_deref(), Some("TYPE257"));
    assert_eq!(text(16, b"\x02\xff\n").as_deref(), Some("\"\\xff\\x0a\""));
}

#[test]
fn data_that_are_not_of_their_form_have_no_text() {
    // The time to live of the answer, at 33, points behind itself.
    let mut octets = message(0x8180, [1, 1, 0, 0], &[QUESTION, &answer(5, b"\xc0\x21")]);
    octets[33..37].copy_from_slice(&[0xc0, 35, 0xc0, 33]);
    let mut findings = Findings::new(false);
    read_datagram(&datagram(&octets, false, 53, 0), &mut findings);
    assert_eq!(findings.text(Fact::DnsAnswers), Some("TYPE5"));
    for (kind, data) in [(16, &b"\x05ab"[..]), (16, b""), (6, b"\0\0\0\0\0\x01"), (65, b"\0\x01\0\0\x01\0\x09a")] {
        assert_eq!(text(kind, data), Some(format!("TYPE{kind}")));
    }
}

#[test]
fn message_has_a_question_or_a_record_or_answers_a_question_of_its_flow() {
    let claim = |octets: &[u8], port| {
        let mut findings = Findings::new(false);
        (read_datagram(&datagram(octets, true, port, 0), &mut findings), findings.application().is_some())
    };
    for port in [53, 5353, 5355] {
        assert_eq!(claim(&[0; 12], port), (Verdict::No, false), "{port}");
        assert_eq!(claim(&message(0x8005, [0; 4], &[]), port), (Verdict::No, false), "{port}");
    }
    // NOTIFY (RFC 1996) is of DNS alone; LLMNR has one question.
    let notify = message(0x2000, [1, 0, 0, 0], &[QUESTION]);
    assert!(claim(&notify, 53).1 && !claim(&notify, 5353).1 && !claim(&notify, 5355).1);
    let questions = message(0, [2, 0, 0, 0], &[QUESTION, QUESTION]);
    assert!(claim(&questions, 53).1 && claim(&questions, 5353).1 && !claim(&questions, 5355).1);
    assert!(!claim(&message(0x3000, [1, 0, 0, 0], &[QUESTION]), 53).1);
    let mut findings = Findings::new(false);
    read_datagram(&datagram(&message(0x100, [1, 0, 0, 0], &[QUESTION]), true, 53, 0), &mut findings);
    let refused = message(0x8005, [0; 4], &[]);
    assert_eq!(read_datagram(&datagram(&refused, false, 53, 0), &mut findings), Verdict::Complete);
    assert_eq!(findings.number(Fact::DnsRcode), Some(5));
}

#[test]
fn response_time_is_from_the_first_question_to_its_answer() {
    let query = message(0x100, [1, 0, 0, 0], &[QUESTION]);
    let mut other = query.clone();
    other[0] ^= 1;
    let answer = message(0x8183, [1, 0, 0, 0], &[QUESTION]);
    let mut answer_to_other = answer.clone();
    answer_to_other[0] ^= 1;
    let mut findings = Findings::new(false);
    let mut read = |payload, from_first, time_ns| {
        let verdict = read_datagram(&datagram(payload, from_first, 53, time_ns), &mut findings);
        (verdict, findings.number(Fact::DnsResponseNs))
    };
    assert_eq!(read(&query, true, 100), (Verdict::Recognised, None));
    assert_eq!(read(&other, true, 150), (Verdict::Recognised, None));
    assert_eq!(read(&query, true, 200), (Verdict::Recognised, None));
    assert_eq!(read(&answer_to_other, false, 300), (Verdict::Recognised, None));
    assert_eq!(read(&answer, false, 350), (Verdict::Complete, Some(250)));
    assert_eq!(findings.number(Fact::DnsRcode), Some(3));
}

#[test]
fn response_belongs_to_the_question_that_it_repeats() {
    let query = message(0x100, [1, 0, 0, 0], &[QUESTION]);
    let claim = |question: &[u8]| {
        let mut findings = Findings::new(false);
        read_datagram(&datagram(&query, true, 53, 0), &mut findings);
        let octets = message(0x8180, [1, 1, 0, 0], &[question, &answer(1, &[192, 0, 2, 1])]);
        read_datagram(&datagram(&octets, false, 53, 1), &mut findings);
        findings.text(Fact::DnsAnswers).is_some()
    };
    assert!(claim(QUESTION));
    assert!(claim(b"\x01A\x07eXample\0\0\x01\0\x01"));
    assert!(!claim(b"\x01b\x07example\0\0\x01\0\x01"));
    assert!(!claim(b"\x01a\x07example\0\0\x1c\0\x01"));
    assert!(!claim(b"\x01a\x07example\0\0\x01\0\x03"));
    // Two questions have the same id, and their answers cross.
    let other = b"\x01b\x07example\0\0\x01\0\x01";
    let mut findings = Findings::new(false);
    for (octets, from_first) in [
        (query.clone(), true),
        (message(0x100, [1, 0, 0, 0], &[other]), true),
        (message(0x8180, [1, 1, 0, 0], &[other, &answer(1, &[192, 0, 2, 2])]), false),
        (message(0x8180, [1, 1, 0, 0], &[QUESTION, &answer(1, &[192, 0, 2, 1])]), false),
    ] {
        read_datagram(&datagram(&octets, from_first, 53, 0), &mut findings);
    }
    assert_eq!(findings.text(Fact::DnsAnswers), Some("192.0.2.1"));
}

#[test]
fn names_are_learned_from_records_of_the_name_and_its_aliases() {
    let learn = |flags: u16, kind: u8, records: &[&[u8]]| {
        let question = [b"\x01a\x07example\0\0", &[kind, 0, 1][..]].concat();
        let mut findings = Findings::new(false);
        let query = message(0x100, [1, 0, 0, 0], &[&question]);
        read_datagram(&datagram(&query, true, 53, 0), &mut findings);
        let mut repeated = question.clone();
        repeated[1] = b'A';
        let octets = message(flags, [1, records.len() as u16, 0, 0], &[&repeated, &records.concat()]);
        let response = datagram(&octets, false, 53, 0);
        read_datagram(&response, &mut findings);
        let names = learned(&response, &findings).map(|names| names.addresses);
        names.into_iter().flatten().map(|(address, seconds)| (address[15], seconds)).collect::<Vec<_>>()
    };
    let own = answer(1, &[192, 0, 2, 1]);
    assert_eq!(learn(0x8180, 1, &[&own]), [(1, 60)]);
    assert_eq!(learn(0x8182, 1, &[&own]), []);
    assert_eq!(learn(0x8180, 28, &[&own]), []);
    let foreign = b"\x01x\xc0\x0e\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x02";
    assert_eq!(learn(0x8180, 1, &[foreign, &own]), [(1, 60)]);
    assert_eq!(learn(0x8180, 1, &[&answer(5, b"\x01X\xc0\x0e"), foreign]), [(2, 60)]);
    let mut chaos = own.clone();
    chaos[5] = 3;
    assert_eq!(learn(0x8180, 1, &[&chaos]), []);
    let mut negative = own.clone();
    negative[6] = 0x80;
    assert_eq!(learn(0x8180, 1, &[&negative]), [(1, 0)]);
}

#[test]
fn response_code_of_edns_has_twelve_bits() {
    let option = b"\0\0\x29\x04\xd0\x01\0\0\0\0\0";
    let octets = message(0x8180, [1, 0, 0, 1], &[QUESTION, option]);
    let mut findings = Findings::new(false);
    read_datagram(&datagram(&octets, false, 53, 0), &mut findings);
    assert_eq!(findings.number(Fact::DnsRcode), Some(16));
}

#[test]
fn on_other_ports_every_octet_has_to_agree() {
    let octets = message(0x100, [1, 0, 0, 0], &[QUESTION]);
    let longer = [&octets[..], b"x"].concat();
    let claim = |octets, port| {
        let mut findings = Findings::new(false);
        read_datagram(&datagram(octets, true, port, 0), &mut findings);
        findings.application()
    };
    assert_eq!(claim(&octets, 53), Some((Application::Dns, Confidence::Message)));
    assert_eq!(claim(&octets, 5353), Some((Application::Mdns, Confidence::Message)));
    assert_eq!(claim(&octets, 5355), Some((Application::Llmnr, Confidence::Message)));
    assert_eq!(claim(&octets, 9953), Some((Application::Dns, Confidence::Message)));
    assert_eq!(claim(&octets, 137), None);
    assert_eq!(claim(&longer, 53), Some((Application::Dns, Confidence::Pattern)));
    assert_eq!(claim(&longer, 9953), None);
}

#[test]
fn pointers_that_loop_or_point_forward_are_refused() {
    for pointer in [[0xc0, 12], [0xc0, 14], [0xc0, 0], [0xff, 0xff]] {
        let octets = message(0x100, [1, 0, 0, 0], &[&pointer, &[0, 1, 0, 1]]);
        let mut findings = Findings::new(false);
        assert_eq!(read_datagram(&datagram(&octets, true, 53, 0), &mut findings), Verdict::No);
    }
}

#[test]
fn streams_have_several_messages() {
    let framed = |octets: &[u8]| [&(octets.len() as u16).to_be_bytes(), octets].concat();
    let query = message(0x100, [1, 0, 0, 0], &[QUESTION]);
    let mut other = query.clone();
    other[0] ^= 1;
    let answer = |id: u8| {
        let mut octets = message(0x8180, [1, 1, 0, 0], &[QUESTION, &answer(1, &[192, 0, 2, id])]);
        octets[0] ^= id;
        octets
    };
    let first = [framed(&query), framed(&other)].concat();
    let second = [framed(&answer(1)), framed(&answer(0))].concat();
    let mut findings = Findings::new(false);
    let streams = Streams { first: &first, second: &second, ..Streams::default() };
    assert_eq!(read_streams(&streams, &mut findings), Verdict::Complete);
    assert_eq!(findings.text(Fact::DnsName), Some("a.example"));
    assert_eq!(findings.text(Fact::DnsAnswers), Some("192.0.2.0"));
    assert!(!findings.has(Fact::DnsResponseNs));
    let mut alone = Findings::new(false);
    assert_eq!(read_streams(&Streams { first: &second, ..Streams::default() }, &mut alone), Verdict::Complete);
    assert_eq!(alone.text(Fact::DnsAnswers), Some("192.0.2.1"));
}
#[test]
fn answers_to_another_protocol_are_not_claimed() {
    let answer = message(0x8180, [1, 0, 0, 0], &[QUESTION]);
    let second = [&(answer.len() as u16).to_be_bytes(), &answer[..]].concat();
    let mut findings = Findings::new(false);
    let streams = Streams { first: b"GET / HTTP/1.1\r\n\r\n", second: &second, ..Streams::default() };
    assert_eq!(read_streams(&streams, &mut findings), Verdict::No);
    assert_eq!(findings, Findings::new(false));
}

#[test]
fn damaged_counts_leave_the_question() {
    let octets = message(0x100, [1, 0, 0, 0xcf00], &[QUESTION]);
    let mut findings = Findings::new(false);
    assert_eq!(read_datagram(&datagram(&octets, true, 53, 0), &mut findings), Verdict::Recognised);
    assert_eq!(findings.application(), Some((Application::Dns, Confidence::Pattern)));
    assert_eq!(findings.text(Fact::DnsName), Some("a.example"));
    assert_eq!(read_datagram(&datagram(&octets, true, 54, 0), &mut Findings::new(false)), Verdict::No);
}
