//! All readers over the captures of `testdata`: whole, cut at every octet, and with every octet changed.
//!
//! The name of a capture is its application. `NAME.facts` beside it lists the facts to be found.
//! `BLESS=1` writes these files; compare them with another program before you commit them.

use super::fixtures::{self, Fixture};
use std::fmt::Write;
use weir_dpi::{
    Application, Confidence, DATAGRAM_READERS, Datagram, DatagramState, Fact, Findings, STREAM_READERS, Streams,
    Verdict, ja3, ja3s, ja4, quic,
};

/// Octets of a stream or datagram that are cut and changed.
const OCTETS: usize = 600;

fn claims(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Recognised | Verdict::Complete)
}

/// The readers that claim a fixture, and what each finds.
fn claimants(fixture: &Fixture) -> Vec<(usize, Findings)> {
    let mut found = Vec::new();
    for (at, reader) in STREAM_READERS.iter().enumerate().filter(|_| fixture.datagrams.is_empty()) {
        let mut findings = Findings::new(true);
        if claims(reader.read(&fixture.streams(), &mut findings)) {
            found.push((at, findings));
        }
    }
    for (at, reader) in DATAGRAM_READERS.iter().enumerate() {
        let (mut state, mut findings) = (DatagramState::default(), Findings::new(true));
        let mut read = |datagram: &Datagram<'_>| reader.read(&mut state, datagram, &mut findings);
        // Every datagram is read, as after a verdict other than `No`.
        if fixture.datagrams().filter(|datagram| claims(read(datagram))).count() > 0 {
            found.push((at, findings));
        }
    }
    found
}

/// The findings as text.
fn facts(findings: &Findings) -> String {
    let mut text = String::new();
    let (application, confidence) = findings.application().expect("a reader that claims names the application");
    writeln!(text, "{} by {}", application.name(), confidence.name()).unwrap();
    findings.notes().names().for_each(|note| writeln!(text, "note {note}").unwrap());
    for &fact in Fact::ALL {
        match (findings.text(fact), findings.number(fact), findings.octets(fact)) {
            // What fingerprints are made of.
            _ if [Fact::DnsQuestion, Fact::TlsClientHello, Fact::TlsServerHello].contains(&fact) => {}
            _ if [Fact::DnsSecondQuestion, Fact::DnsSecondAnswer].contains(&fact) => {}
            (Some(value), None, _) => writeln!(text, "{fact:?} {value}").unwrap(),
            (Some(value), Some(_), _) if value.chars().all(|character| !character.is_control()) => {
                writeln!(text, "{fact:?} {value}").unwrap();
            }
            (_, Some(number), _) => writeln!(text, "{fact:?} {number}").unwrap(),
            (None, None, Some(octets)) => writeln!(text, "{fact:?} {octets:02x?}").unwrap(),
            (None, None, None) => {}
        }
    }
    let (ja3, ja4, ja3s) = (ja3(findings), ja4(findings), ja3s(findings));
    for (name, value) in [
        ("JA3", ja3.as_ref().map(|ja3| &ja3[..])),
        ("JA4", ja4.as_ref().map(|ja4| &ja4[..])),
        ("JA3S", ja3s.as_ref().map(|ja3s| &ja3s[..])),
    ] {
        value.into_iter().for_each(|value| writeln!(text, "{name} {}", String::from_utf8_lossy(value)).unwrap());
    }
    text
}

#[test]
fn exactly_one_reader_claims_each_capture_and_finds_its_facts() {
    let mut wrong = String::new();
    for fixture in fixtures::all() {
        let claimants = claimants(&fixture);
        let [(_, findings)] = &claimants[..] else {
            writeln!(wrong, "{}: {} readers claim it", fixture.name, claimants.len()).unwrap();
            continue;
        };
        let found = facts(findings);
        if !found.starts_with(&format!("{} by ", fixture.application())) {
            writeln!(wrong, "{}: {found}", fixture.name).unwrap();
        }
        let path = fixtures::folder().join(format!("{}.facts", fixture.name));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &found).expect("the facts can be written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if found != expected {
            writeln!(wrong, "{}: found\n{found}expected\n{expected}", fixture.name).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_start_of_a_true_stream_is_never_refused_and_not_claimed_by_others() {
    for fixture in fixtures::all().iter().filter(|fixture| fixture.datagrams.is_empty()) {
        let [(claimant, _)] = claimants(fixture)[..] else { panic!("{}: one reader claims it", fixture.name) };
        let [first, second] = [0, 1].map(|at: usize| fixture.streams[at].len());
        let cuts = (0..=first.min(OCTETS)).map(|cut| (cut, 0)).chain((0..=second.min(OCTETS)).map(|cut| (first, cut)));
        for (first, second) in cuts {
            for (at, reader) in STREAM_READERS.iter().enumerate() {
                let mut findings = Findings::new(true);
                let verdict = reader.read(&fixture.cut(first, second), &mut findings);
                let what = (&fixture.name, first, second, verdict);
                assert_eq!(claims(verdict), findings.application().is_some(), "{what:?}");
                if at == claimant {
                    assert_ne!(verdict, Verdict::No, "{what:?}");
                } else {
                    assert!(!claims(verdict), "{what:?}: also by {:?}", findings.application());
                }
            }
        }
    }
}

#[test]
fn cut_and_changed_octets_cause_no_panic() {
    for fixture in fixtures::all() {
        if fixture.datagrams.is_empty() {
            // Each side alone and first, too.
            let [first, second] = fixture.streams.each_ref().map(Vec::as_slice);
            for [first, second] in [[first, second], [second, first], [first, &[]], [second, &[]], [&[], second]] {
                changed(first, |first| read_streams(&Streams { first, second, ..fixture.streams() }));
                changed(second, |second| read_streams(&Streams { first, second, ..fixture.streams() }));
            }
        }
        for (at, datagram) in fixture.datagrams().enumerate() {
            changed(datagram.payload, |payload| {
                read_datagram(&Datagram { payload, wire_octets: payload.len() as u32, ..datagram });
                read_datagram(&Datagram { payload, ..datagram });
                // Its reader keeps a state; later datagrams have nothing to read.
                if fixture.application() != "quic" || at < 3 {
                    let whole = Datagram { payload, wire_octets: payload.len() as u32, ..datagram };
                    let (mut state, mut findings) = (quic::State::default(), Findings::new(true));
                    for datagram in fixture.datagrams().take(at).chain([whole]) {
                        quic::read(&mut state, &datagram, &mut findings);
                    }
                }
            });
        }
    }
}

/// Calls a function with octets cut at each, and with each changed.
fn changed(octets: &[u8], mut read: impl FnMut(&[u8])) {
    for cut in 0..octets.len().min(OCTETS) {
        read(&octets[..cut]);
    }
    let mut copy = octets.to_vec();
    for at in 0..octets.len().min(OCTETS) {
        for value in [0, 1, 0x7f, 0x80, 0xff, octets[at] ^ 1, octets[at] ^ 0x80] {
            copy[at] = value;
            read(&copy);
        }
        copy[at] = octets[at];
    }
}

fn read_streams(streams: &Streams<'_>) {
    for reader in STREAM_READERS {
        reader.read(streams, &mut Findings::new(true));
    }
}

fn read_datagram(datagram: &Datagram<'_>) {
    for reader in DATAGRAM_READERS {
        reader.read(&mut DatagramState::default(), datagram, &mut Findings::new(true));
    }
}

#[test]
fn random_octets_are_not_claimed() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut by_pattern = 0;
    for _ in 0..200_000 {
        let octets: Vec<u8> = (0..random() % 12).flat_map(|_| random().to_le_bytes()).collect();
        let (first, second) = octets.split_at(random() as usize % (octets.len() + 1));
        let ports = [random() as u16, [53, 123, 5353, 22, 25, 443][random() as usize % 6]];
        let mut judge = |verdict, findings: &Findings| match findings.application() {
            None => assert!(!claims(verdict)),
            // On port 123, the form of NTP is common by chance.
            Some((Application::Ntp, Confidence::Pattern)) => {}
            Some((_, Confidence::Pattern)) => by_pattern += 1,
            Some(application) => panic!("{application:?}: {first:02x?} {second:02x?}"),
        };
        for reader in STREAM_READERS {
            let mut findings = Findings::new(true);
            judge(reader.read(&Streams { first, second, ports, ..Streams::default() }, &mut findings), &findings);
        }
        for reader in DATAGRAM_READERS {
            let mut findings = Findings::new(true);
            let datagram =
                Datagram { payload: &octets, wire_octets: octets.len() as u32, from_first: true, ports, time_ns: 0 };
            judge(reader.read(&mut DatagramState::default(), &datagram, &mut findings), &findings);
        }
    }
    assert!(by_pattern < 20, "{by_pattern}");
}
