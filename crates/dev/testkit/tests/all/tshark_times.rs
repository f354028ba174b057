//! Compares the times of answers (`docs/tcp.md` section 6) by [`TcpReference`] with those of tshark in
//! the same frame: round trips with `tcp.analysis.ack_rtt`, the handshake with
//! `tcp.analysis.initial_rtt`, and response times with the sum of `tcp.time_delta` since the request,
//! which is found by tshark's own fields only. Each difference follows from a rule, and occurs as often
//! as the table in `tshark_times.txt` says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_packet::Packet;
use weir_tcp::SegmentClass;
use weir_testkit::real::{End, segments};
use weir_testkit::reference::TcpReference;
use weir_testkit::truth;

/// What tshark says of a frame. Times in ns.
struct Theirs {
    stream: u64,
    payload_bytes: u32,
    /// Since the first and since the previous frame of the stream.
    relative_ns: u64,
    delta_ns: u64,
    /// Since the segment that this one acknowledges, and the frame of that.
    acknowledged: Option<(u64, u64)>,
    initial_ns: Option<u64>,
    /// Seen before, out of order, a keep-alive or a window probe.
    is_old: bool,
}

/// The output of tshark, if it is installed.
fn tshark(arguments: &[&str]) -> Option<String> {
    let output = Command::new("tshark").args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

const FIELDS: [&str; 12] = [
    "frame.number",
    "tcp.stream",
    "tcp.len",
    "tcp.time_relative",
    "tcp.time_delta",
    "tcp.analysis.ack_rtt",
    "tcp.analysis.acks_frame",
    "tcp.analysis.initial_rtt",
    "tcp.analysis.retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.keep_alive",
    "tcp.analysis.zero_window_probe",
];

fn frames(capture: &Path) -> BTreeMap<u64, Theirs> {
    let mut arguments =
        vec!["-n", "-r", capture.to_str().expect("names are UTF-8"), "-T", "fields", "-E", "occurrence=f"];
    FIELDS.iter().for_each(|field| arguments.extend(["-e", field]));
    let text = tshark(&arguments).expect("tshark reads every capture");
    let line = |line: &str| {
        let columns: Vec<_> = line.split('\t').collect();
        let number = |column: usize| columns[column].parse::<u64>().ok();
        let theirs = Theirs {
            stream: number(1)?,
            payload_bytes: number(2)? as u32,
            relative_ns: nanoseconds(columns[3])?,
            delta_ns: nanoseconds(columns[4])?,
            acknowledged: nanoseconds(columns[5]).zip(number(6)),
            initial_ns: nanoseconds(columns[7]),
            is_old: columns[8..].iter().any(|column| !column.is_empty()),
        };
        Some((number(0)?, theirs))
    };
    text.lines().filter_map(line).collect()
}

/// A time in seconds with decimals.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + format!("{decimals:0<9}").parse::<u64>().ok()?)
}

/// A segment with payload: its frame, when it came, the sequence number after it, and its class.
#[derive(Clone, Copy)]
struct Sent {
    frame: u64,
    time_ns: u64,
    end: u32,
    class: SegmentClass,
    /// By tshark.
    is_old: bool,
    /// For tshark the payload is that of the frame, which the capture cut.
    is_cut: bool,
}

/// A connection of the reference, and what tshark's fields say of it.
#[derive(Default)]
struct Connection {
    reference: TcpReference,
    sent: [Vec<Sent>; 2],
    /// By tshark: the last payload of a side that the other side has not answered.
    request: [Option<(u64, u32)>; 2],
    syns: [u64; 2],
    /// When a side sent a RST, or acknowledged octets that the other side had not sent.
    strange_ns: [u64; 2],
}

fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

fn captures() -> Vec<PathBuf> {
    let shipped = std::fs::read_dir(truth::testdata().join("captures")).expect("the folder can be listed");
    let shipped = shipped.map(|entry| entry.expect("the folder can be listed").path());
    let is_capture =
        |path: &PathBuf| path.to_str().is_some_and(|name| name.contains(".pcap") && !name.ends_with(".json"));
    let mut all: Vec<_> = shipped.filter(is_capture).chain(truth::chosen_for_tcp().unwrap_or_default()).collect();
    all.sort();
    all
}

#[test]
fn every_difference_to_tshark_is_one_of_the_rules() {
    if !tshark(&["--version"]).is_some_and(|text| text.starts_with("TShark (Wireshark) 4.0.")) {
        println!("SKIPPED: tshark 4.0 is not installed (other versions have other rules)");
        return;
    }
    let mut rules: BTreeMap<&str, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for capture in captures() {
        let theirs = frames(&capture);
        // tshark analyses no sequence numbers if the capture truncates the TCP header.
        let is_analysed = theirs.values().any(|their| their.acknowledged.is_some());
        let mut connections: BTreeMap<((End, End), u64), Connection> = BTreeMap::new();
        for segment in segments(&capture) {
            let (packet, (ends, side)) = (segment.packet, segment.connection());
            let Some(their) = theirs.get(&segment.frame) else { continue };
            let connection = connections.entry((ends, their.stream)).or_default();
            for (rule, says) in connection.enter(segment.frame, side, &packet, their) {
                let unanalysed = "round trip: truncated headers, which tshark does not analyse";
                match rule.or_else(|| (!is_analysed && says.starts_with("round trip")).then_some(unanalysed)) {
                    Some(rule) => *rules.entry(rule).or_default() += 1,
                    None => wrong.push(format!("{capture:?} {}: {says}", segment.frame)),
                }
            }
        }
    }
    println!("{rules:#?}");
    let is_complete = truth::third_party().is_some();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    let table = include_str!("tshark_times.txt").lines().skip(2);
    let row = |line: &'static str| {
        let (rule, times) = line.trim_matches('|').rsplit_once('|')?;
        Some((rule.trim(), times.trim().parse::<u64>().ok()?))
    };
    if is_complete {
        assert_eq!(table.map_while(row).collect::<BTreeMap<_, _>>(), rules, "the table in tshark_times.txt");
    }
}

impl Connection {
    /// Enters a segment. Returns the rule by which each of its times relates to that of tshark, with
    /// both as text.
    fn enter(
        &mut self,
        frame: u64,
        side: usize,
        packet: &Packet,
        their: &Theirs,
    ) -> Vec<(Option<&'static str>, String)> {
        let before = self.reference.report(side);
        let class = self.reference.enter(side, packet);
        let now = self.reference.report(side);
        let mut found = Vec::new();
        let unsent =
            self.sent[1 - side].last().is_some_and(|last| is_after(packet.acknowledgment, last.end.wrapping_add(1)));
        if unsent || packet.control & Packet::RST != 0 {
            self.strange_ns[side] = packet.time_ns;
        }
        if now.round_trips.count > before.round_trips.count {
            let ours = now.round_trips.sum_ns - before.round_trips.sum_ns;
            let rule = self.round_trip_rule(side, packet, ours, their);
            found.push((rule, format!("round trip {ours}, {:?} there", their.acknowledged)));
        }
        let ours =
            (now.responses.count > before.responses.count).then(|| now.responses.sum_ns - before.responses.sum_ns);
        let end = packet.sequence.wrapping_add(packet.payload_bytes);
        let request = self.request[1 - side];
        let reaches = |end: u32| packet.acknowledgment.wrapping_sub(end) < 1 << 30;
        let answered = request.filter(|&(_, end)| their.payload_bytes > 0 && !their.is_old && reaches(end));
        let theirs = answered.map(|(at, _)| their.relative_ns - at);
        if ours.is_some() || theirs.is_some() {
            let rule = match (ours, theirs) {
                (Some(ours), Some(theirs)) if ours == theirs && theirs == their.delta_ns => {
                    Some("response: tcp.time_delta")
                }
                (Some(ours), Some(theirs)) if ours == theirs => Some("response: sum of tcp.time_delta"),
                _ => self.response_rule(side, packet, class, (ours, theirs), their),
            };
            found.push((rule, format!("response {ours:?}, {theirs:?} there, {class:?}")));
        }
        if their.payload_bytes > 0 && !their.is_old {
            self.request[side] = Some((their.relative_ns, end));
        }
        if ours.is_some() {
            self.request[1 - side] = None;
        }
        let handshake = [0, 1].map(|side| self.reference.report(side).handshake_rtt_ns);
        self.syns[side] += u64::from(packet.control & Packet::SYN != 0);
        if before.handshake_rtt_ns.is_none()
            && let ([Some(one), Some(other)], Some(theirs)) = (handshake, their.initial_ns)
        {
            let rule = if one + other == theirs {
                Some("handshake: equal")
            } else {
                (self.syns != [1, 1]).then_some("handshake: from the last SYN, tshark from the first")
            };
            found.push((rule, format!("handshake {}, {theirs} there", one + other)));
        }
        if packet.payload_bytes > 0 {
            let is_cut = their.payload_bytes != packet.payload_bytes;
            self.sent[side].push(Sent { frame, time_ns: packet.time_ns, end, class, is_old: their.is_old, is_cut });
        }
        found
    }

    /// How a round trip relates to that of tshark.
    fn round_trip_rule(&self, side: usize, packet: &Packet, ours: u64, their: &Theirs) -> Option<&'static str> {
        let timed = self.sent[1 - side]
            .iter()
            .rev()
            .find(|sent| sent.time_ns + ours == packet.time_ns && sent.class == SegmentClass::InOrder)?;
        let beyond = timed.end != packet.acknowledgment;
        match their.acknowledged {
            Some((theirs, _)) if theirs == ours => Some("round trip: equal"),
            Some((theirs, frame)) if beyond && theirs < ours && frame > timed.frame => {
                Some("round trip: the acknowledgment is also that of a later segment, which tshark times")
            }
            None if ours == 0 => Some("round trip: 0, which tshark leaves out"),
            None if timed.time_ns < self.strange_ns[side] => {
                Some("round trip: after a RST or an acknowledgment of octets that were not sent")
            }
            None if beyond => Some("round trip: no segment ends at the acknowledgment number"),
            None if timed.is_cut => Some("round trip: the frame is shorter than its IP length says"),
            None if timed.is_old => Some("round trip: tshark calls the timed segment a retransmission"),
            _ => None,
        }
    }

    /// Why a response time differs from that of a program that knows tshark's fields only.
    fn response_rule(
        &self,
        side: usize,
        packet: &Packet,
        class: SegmentClass,
        (ours, theirs): (Option<u64>, Option<u64>),
        their: &Theirs,
    ) -> Option<&'static str> {
        let is_asked = |sent: &&Sent| Some(packet.time_ns - sent.time_ns) == ours;
        let asked = self.sent[1 - side].iter().rev().find(is_asked);
        Some(match class {
            SegmentClass::InOrder if ours.is_some() && their.is_old => "response: tshark calls the answer old",
            SegmentClass::InOrder if asked.is_some_and(|sent| sent.is_old && sent.class == SegmentClass::InOrder) => {
                "response: tshark calls the last part of the request old"
            }
            SegmentClass::InOrder if asked.is_some_and(|sent| sent.class != SegmentClass::InOrder) => {
                "response: the last part of the request was late or a retransmission"
            }
            SegmentClass::Duplicate | SegmentClass::RoutedDuplicate if theirs.is_some() => "response: a duplicate",
            SegmentClass::KeepAlive if theirs.is_some() => "response: a keep-alive after the octet of a window probe",
            SegmentClass::OutOfWindow if theirs.is_some() => "response: out of window",
            SegmentClass::Reset if theirs.is_some() => "response: payload of a RST",
            _ => return None,
        })
    }
}
