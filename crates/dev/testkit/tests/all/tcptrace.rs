//! Compares the times of answers (`docs/tcp.md` section 6) by [`TcpReference`] with those of tcptrace
//! 6.6.7, for each segment that one of them times: round trips and the handshake with its list of
//! RTT samples, response times with its HTTP module, the throughput with its sums. Each difference
//! follows from a rule, and occurs as often as the table in `tcptrace.txt` says.
//!
//! tcptrace lists of each RTT sample the sequence number of the segment (`-Z`) and when it was
//! acknowledged (`-R`). The samples have to give the figures that it prints (`-l -r --csv`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_capture::{PcapWriter, Source};
use weir_packet::Packet;
use weir_tcp::SegmentClass;
use weir_testkit::real::{End, segments};
use weir_testkit::reference::TcpReference;
use weir_testkit::truth;

/// Runs tcptrace in a folder, where it writes its files.
fn tcptrace(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("tcptrace").args(arguments).current_dir(folder).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A segment with payload, SYN or FIN.
#[derive(Clone, Copy, Debug)]
struct Sent {
    time_ns: u64,
    sequence: u32,
    /// The sequence number after it.
    end: u32,
    class: SegmentClass,
    /// Number of the segment in its connection, as below.
    number: usize,
    has_payload: bool,
    has_fin: bool,
}

/// A segment as acknowledgment.
#[derive(Clone, Copy)]
struct Acknowledgment {
    time_ns: u64,
    acknowledged: u32,
    number: usize,
    is_reset: bool,
    window: u16,
}

/// A round trip: when its segment was sent, and when it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RoundTrip {
    start_ns: u64,
    end_ns: u64,
    /// Number of the segment that acknowledges.
    end: usize,
}

impl RoundTrip {
    /// tcptrace reads times in µs.
    fn us(&self) -> u64 {
        us(self.end_ns) - us(self.start_ns)
    }
}

/// The packets between two endpoints, and what Weir measured of them. Segments have the numbers from
/// 0 on, both sides together.
#[derive(Default)]
struct Connection {
    reference: TcpReference,
    segments: usize,
    sent: [Vec<Sent>; 2],
    received: [Vec<Acknowledgment>; 2],
    /// Of the segments of a side.
    round_trips: [Vec<RoundTrip>; 2],
    handshakes: [Vec<RoundTrip>; 2],
    /// Of a side that answers: from the request to the answer.
    responses: [Vec<RoundTrip>; 2],
    /// Of the first and of the last packet.
    times_ns: (u64, u64),
}

impl Connection {
    fn enter(&mut self, side: usize, packet: &Packet) {
        let before = self.reference.report(side);
        let class = self.reference.enter(side, packet);
        let now = self.reference.report(side);
        let has = |bit| packet.control & bit != 0;
        let end = self.segments;
        let since = |ns| RoundTrip { start_ns: packet.time_ns - ns, end_ns: packet.time_ns, end };
        if now.round_trips.count > before.round_trips.count {
            self.round_trips[1 - side].push(since(now.round_trips.sum_ns - before.round_trips.sum_ns));
        }
        if let Some(ns) = now.handshake_rtt_ns.filter(|_| now.handshake_rtt_ns != before.handshake_rtt_ns) {
            self.handshakes[1 - side].push(since(ns));
        }
        if now.responses.count > before.responses.count {
            self.responses[side].push(since(now.responses.sum_ns - before.responses.sum_ns));
        }
        if has(Packet::ACK) {
            let acknowledged = packet.acknowledgment;
            self.received[1 - side].push(Acknowledgment {
                time_ns: packet.time_ns,
                acknowledged,
                number: end,
                is_reset: has(Packet::RST),
                window: packet.window,
            });
        }
        let positions = packet.payload_bytes + u32::from(has(Packet::SYN)) + u32::from(has(Packet::FIN));
        if positions > 0 {
            self.sent[side].push(Sent {
                time_ns: packet.time_ns,
                sequence: packet.sequence,
                end: packet.sequence.wrapping_add(positions),
                class,
                number: self.segments,
                has_payload: packet.payload_bytes > 0,
                has_fin: has(Packet::FIN),
            });
        }
        self.times_ns.0 = if self.segments == 0 { packet.time_ns } else { self.times_ns.0 };
        self.times_ns.1 = packet.time_ns;
        self.segments += 1;
    }
}

/// The RTT samples of a direction by tcptrace: sequence numbers of the segments, and the times of
/// their acknowledgments if the round trip is longer than 1 µs, in µs.
#[derive(Debug, Default)]
struct Samples {
    sequences: Vec<u32>,
    ends_us: Vec<u64>,
}

/// What tcptrace prints of a direction. It rounds times to 0.1 ms.
#[derive(Debug)]
struct Printed {
    from: End,
    to: End,
    samples: usize,
    min_ms: f64,
    mean_ms: f64,
    max_ms: f64,
    unique_bytes: u64,
    bytes_per_second: Option<u64>,
    listed: Samples,
}

fn end(text: &str) -> Option<End> {
    let (ip, port) = text.rsplit_once(':')?;
    Some((ip.parse().ok()?, port.parse().ok()?))
}

/// Seconds with 6 decimals, in µs.
fn microseconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000 + decimals.parse::<u64>().ok()?)
}

fn read_samples(folder: &Path, prefix: &str) -> Samples {
    let mut samples = Samples::default();
    // It cuts names of more than 14 octets.
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
        let Some(kind) = name.strip_prefix(prefix) else { continue };
        let text = fs::read_to_string(&path).expect("it can be read");
        let first = |line: &str, at| line.split_whitespace().nth(at).map(str::to_owned);
        if kind.starts_with("_rttraw") {
            samples.sequences = text.lines().filter_map(|line| first(line, 0)?.parse().ok()).collect();
        } else if kind.starts_with("_rtt.") {
            let dots = text.lines().filter(|line| line.starts_with("dot "));
            samples.ends_us = dots.filter_map(|line| microseconds(&first(line, 1)?)).collect();
        }
    }
    samples
}

/// All directions in a capture, if tcptrace can read it.
fn printed(capture: &Path) -> Vec<Printed> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let capture = capture.to_str().expect("names are UTF-8");
    tcptrace(folder.path(), &["-n", "-Z", "-R", capture]);
    let csv = tcptrace(folder.path(), &["-n", "-l", "-r", "--csv", capture]).expect("it ran before");
    let mut lines = csv.lines().filter(|line| !line.starts_with('#') && line.contains(','));
    let columns: Vec<&str> = lines.next().map_or_else(Vec::new, |line| line.split(',').collect());
    let mut directions = Vec::new();
    for line in lines.filter(|line| line.starts_with(|first: char| first.is_ascii_digit())) {
        let values: BTreeMap<&str, &str> = columns.iter().copied().zip(line.split(',').map(str::trim)).collect();
        let number: usize = values["conn_#"].parse().expect("a number");
        let name = |side: usize| letters(2 * (number - 1) + side);
        let end = |letter| {
            (ip(values[&*format!("host_{letter}")]), values[&*format!("port_{letter}")].parse().expect("a port"))
        };
        for (side, ending, from, to) in [(0, "a2b", "a", "b"), (1, "b2a", "b", "a")] {
            let value = |name: &str| -> f64 { values[&*format!("{name}_{ending}")].parse().expect("a number") };
            directions.push(Printed {
                from: end(from),
                to: end(to),
                samples: value("RTT_samples") as usize,
                min_ms: value("RTT_min"),
                mean_ms: value("RTT_avg"),
                max_ms: value("RTT_max"),
                unique_bytes: value("unique_bytes_sent") as u64,
                bytes_per_second: values[&*format!("throughput_{ending}")].parse().ok(),
                listed: read_samples(folder.path(), &format!("{}2{}", name(side), name(1 - side))),
            });
        }
    }
    directions
}

fn ip(text: &str) -> std::net::IpAddr {
    text.parse().expect("an address")
}

/// The name that tcptrace gives to an endpoint: a, b, … z, aa, ab, …
fn letters(index: usize) -> String {
    let rest = if index < 26 { String::new() } else { letters(index / 26 - 1) };
    format!("{rest}{}", char::from(b'a' + (index % 26) as u8))
}

/// The port of the HTTP module.
const HTTP_PORT: u16 = 80;

/// The requests by the HTTP module: sorted endpoints, when the request was sent, and when the reply
/// began, in µs.
fn replies(capture: &Path) -> Vec<((End, End), (u64, u64))> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let capture = capture.to_str().expect("names are UTF-8");
    let text = tcptrace(folder.path(), &["-n", "-q", "-xhttp", capture]).expect("it ran before");
    let (mut ends, mut asked, mut replies) = (None, None, Vec::new());
    for line in text.lines() {
        if let Some((from, to)) = line.split_once(" ==> ") {
            ends = end(from).zip(end(to.split(' ').next().expect("there is a first")));
        } else if let Some(time) = line.trim().strip_prefix("Time request sent:") {
            asked = date(time);
        } else if let Some(time) = line.trim().strip_prefix("Time reply started:")
            && let (Some((from, to)), Some(asked), Some(began)) = (ends, asked.take(), date(time))
        {
            replies.push(((from.min(to), from.max(to)), (asked, began)));
        }
    }
    replies
}

/// A date with µs, and in parentheses its seconds, rounded to ms; in µs.
fn date(text: &str) -> Option<u64> {
    let (date, seconds) = text.trim().strip_suffix(')')?.split_once(" (")?;
    let us: u64 = date.split('.').nth(1)?.split(' ').next()?.parse().ok()?;
    let rounded_us = (seconds.parse::<f64>().ok()? * 1e6) as u64;
    Some((rounded_us + 500_000 - us) / 1_000_000 * 1_000_000 + us)
}

/// Shipped captures, captures of other projects, and generated ones.
fn captures(folder: &Path) -> Vec<PathBuf> {
    let shipped = fs::read_dir(truth::testdata().join("captures")).expect("the folder can be listed");
    let shipped = shipped.map(|entry| entry.expect("the folder can be listed").path());
    let is_capture =
        |path: &PathBuf| path.to_str().is_some_and(|name| name.contains(".pcap") && !name.ends_with(".json"));
    let mut all: Vec<_> = shipped.filter(is_capture).chain(truth::chosen_for_tcp().unwrap_or_default()).collect();
    all.sort();
    for (name, specification) in GENERATED {
        let path = folder.join(name);
        let mut writer =
            PcapWriter::new(fs::File::create(&path).expect("it can be written"), 1, 65_535).expect("it can be written");
        let mut source = weir_trafficgen::TrafficGenerator::new(specification).expect("a valid specification");
        while let Some(burst) = source.burst().expect("it generates") {
            burst.iter().for_each(|frame| writer.write(frame).expect("it can be written"));
        }
        writer.finish().expect("it can be written");
        all.push(path);
    }
    all
}

const GENERATED: [(&str, &str); 2] = [
    (
        "lossless.pcap",
        "lossy,flows=50,packets=20k,loss=0,reorder=0,spurious=0,duplicate=0,keepalive=0,zerowindow=0,think=20ms",
    ),
    ("lossy.pcap", "lossy,flows=50,packets=20k,loss=2%,think=20ms"),
];

#[test]
fn every_difference_to_tcptrace_is_one_of_the_rules() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let web = truth::testdata().join("captures/web.pcap");
    if !tcptrace(folder.path(), &["-n", web.to_str().expect("names are UTF-8")])
        .is_some_and(|text| text.contains("version 6.6.7"))
    {
        println!("SKIPPED: tcptrace 6.6.7 is not installed (Debian 12: apt-get install tcptrace)");
        return;
    }
    // Of shipped and generated captures, and of all others.
    let mut rules: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    let mut wrong = Vec::new();
    let shipped = truth::testdata();
    for capture in captures(folder.path()) {
        let column = usize::from(!capture.starts_with(&shipped) && !capture.starts_with(folder.path()));
        let mut connections: BTreeMap<(End, End), Connection> = BTreeMap::new();
        for segment in segments(&capture) {
            let (ends, side) = segment.connection();
            connections.entry(ends).or_default().enter(side, &segment.packet);
        }
        let mut theirs: BTreeMap<((End, End), usize), Vec<Printed>> = BTreeMap::new();
        for direction in printed(&capture) {
            let (from, to) = (direction.from, direction.to);
            theirs.entry(((from.min(to), from.max(to)), usize::from(from > to))).or_default().push(direction);
        }
        if theirs.is_empty() && !connections.is_empty() {
            rules.entry("a capture that tcptrace cannot read").or_default()[column] += 1;
            continue;
        }
        let unknown = connections.keys().filter(|&&ends| !theirs.contains_key(&(ends, 0)));
        wrong.extend(unknown.map(|ends| format!("{capture:?} {ends:?}: not there")));
        for ((ends, side), directions) in &theirs {
            let Some(connection) = connections.get(ends) else {
                wrong.push(format!("{capture:?} {ends:?}: not here"));
                continue;
            };
            for (rule, says) in connection.compare(*side, directions) {
                match rule {
                    Some(rule) => rules.entry(rule).or_default()[column] += 1,
                    None => wrong.push(format!("{capture:?} {ends:?} {side}: {says}")),
                }
            }
        }
        for (ends, times_us) in replies(&capture) {
            let Some(connection) = connections.get(&ends) else { continue };
            match connection.response_rule(usize::from(ends.1.1 == HTTP_PORT), times_us) {
                Some(rule) => rules.entry(rule).or_default()[column] += 1,
                None => wrong.push(format!("{capture:?} {ends:?}: {times_us:?} {:?}", connection.responses)),
            }
        }
    }
    println!("{rules:#?}");
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    let table = include_str!("tcptrace.txt").lines().skip(2);
    let row = |line: &'static str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        Some((cells.next()?, [cells.next()?.parse().ok()?, cells.next()?.parse().ok()?]))
    };
    let mut expected: BTreeMap<&str, [u64; 2]> = table.map_while(row).collect();
    if truth::third_party().is_none() {
        expected.values_mut().for_each(|times| times[1] = 0);
        expected.retain(|_, times| times[0] > 0);
    }
    assert_eq!(rules, expected, "the table in tcptrace.txt");
}

impl Connection {
    /// The samples of a side's segments by tcptrace.
    fn locate(&self, side: usize, directions: &[Printed], wrong: &mut Vec<String>) -> Vec<(Sent, RoundTrip)> {
        let mut found: Vec<(Sent, RoundTrip)> = Vec::new();
        for direction in directions {
            let mut of_direction: Vec<RoundTrip> = Vec::new();
            for &sequence in &direction.listed.sequences {
                // Also of a repeated FIN.
                let is_end = |sent: &Sent, ack: &&Acknowledgment| {
                    let beyond = sent.end.wrapping_sub(ack.acknowledged);
                    ack.number > sent.number && (beyond == 0 || (beyond == 1 && sent.has_fin && sent.has_payload))
                };
                let trip = |sent: &Sent| {
                    let end = self.received[side].iter().find(|ack| is_end(sent, ack))?;
                    Some((
                        Sent { sequence, ..*sent },
                        RoundTrip { start_ns: sent.time_ns, end_ns: end.time_ns, end: end.number },
                    ))
                };
                // Of a segment that repeats octets, only the part behind them is a segment.
                let begins = |sent: &&Sent| sent.sequence == sequence;
                let has = |sent: &&Sent| sequence.wrapping_sub(sent.sequence) < sent.end.wrapping_sub(sent.sequence);
                let is_new = |(sent, _): &(Sent, RoundTrip)| found.iter().all(|(other, _)| other.number != sent.number);
                let sent = || self.sent[side].iter();
                let located = sent().filter(begins).chain(sent().filter(has)).filter_map(trip).find(is_new);
                let Some(located) = located else {
                    wrong.push(format!("no segment with {sequence} is acknowledged"));
                    continue;
                };
                found.push(located);
                of_direction.push(located.1);
            }
            let long = of_direction.iter().filter(|sample| sample.us() > 1);
            if !long.map(|sample| us(sample.end_ns)).eq(direction.listed.ends_us.iter().copied()) {
                wrong.push(format!("{of_direction:?} is {:?}", direction.listed));
            }
            if !direction.are(&of_direction) {
                wrong.push(format!("{of_direction:?} is {direction:?}"));
            }
        }
        found
    }

    fn compare(&self, side: usize, directions: &[Printed]) -> Vec<(Option<&'static str>, String)> {
        let mut wrong = Vec::new();
        let theirs = self.locate(side, directions, &mut wrong);
        let mut found: Vec<_> = wrong.into_iter().map(|says| (None, says)).collect();
        found.extend(self.compare_throughput(side, directions));
        let is_there = |trip: &RoundTrip| theirs.iter().any(|(_, other)| other == trip);
        for trip in &self.handshakes[side] {
            let rule = if is_there(trip) { Some("handshake: equal") } else { self.untimed_there(side, trip) };
            found.push((rule, format!("handshake {trip:?}")));
        }
        for trip in &self.round_trips[side] {
            let rule = if is_there(trip) { Some("round trip: equal") } else { self.untimed_there(side, trip) };
            found.push((rule, format!("round trip {trip:?}")));
        }
        for (sent, trip) in &theirs {
            if !self.handshakes[side].contains(trip) && !self.round_trips[side].contains(trip) {
                found.push((self.untimed_here(side, sent, trip), format!("there {sent:?}: {trip:?}")));
            }
        }
        found
    }

    fn compare_throughput(&self, side: usize, directions: &[Printed]) -> Option<(Option<&'static str>, String)> {
        let [theirs] = directions else { return None };
        let there = theirs.bytes_per_second? as f64;
        let ours = self.reference.report(side).unique_bytes;
        let us = us(self.times_ns.1) - us(self.times_ns.0);
        let bytes_per_second = |bytes: u64| bytes as f64 * 1e6 / us as f64;
        let is = |bytes: u64| (bytes_per_second(bytes) - there).abs() <= 0.5001;
        let acknowledged = || self.received.iter().flat_map(|received| received.iter().zip(received.iter().skip(1)));
        let is_far =
            |(one, other): (&Acknowledgment, &Acknowledgment)| distance(one.acknowledged, other.acknowledged) > FAR;
        let has = |side: usize, class| self.reference.report(side).count(class).segments > 0;
        let rule = match () {
            () if is(ours) => "throughput: equal",
            () if !is(theirs.unique_bytes) => return Some((None, format!("throughput {ours} in {us} us, {theirs:?}"))),
            () if acknowledged().any(is_far) => "throughput: sequence numbers more than 2^28 apart",
            () if has(side, SegmentClass::OutOfWindow) => "throughput: octets out of window",
            () if has(1 - side, SegmentClass::Reset) => "throughput: octets after a RST",
            () if self.sent[side].iter().any(|sent| self.is_probe(side, sent)) => "throughput: window probes there",
            () => return Some((None, format!("octets {ours}, {theirs:?}"))),
        };
        Some((Some(rule), String::new()))
    }

    /// How tcptrace's times of a request and its reply relate to a response time of a side.
    fn response_rule(&self, side: usize, (asked_us, began_us): (u64, u64)) -> Option<&'static str> {
        let answer = self.responses[side].iter().find(|answer| us(answer.end_ns) == began_us)?;
        let is_part = |sent: &Sent| us(sent.time_ns) == asked_us && sent.has_payload;
        Some(match us(answer.start_ns) {
            start_us if start_us == asked_us => "response: equal",
            start_us if start_us > asked_us && self.sent[1 - side].iter().any(is_part) => {
                "response: the request has several segments"
            }
            _ => return None,
        })
    }

    /// tcptrace takes all payload for window probes while the last window of the other side is 0.
    fn is_probe(&self, side: usize, sent: &Sent) -> bool {
        let last = self.received[side].iter().rfind(|ack| ack.number < sent.number);
        sent.has_payload && last.is_some_and(|ack| ack.window == 0)
    }

    /// Why only tcptrace has a round trip.
    fn untimed_here(&self, side: usize, sent: &Sent, theirs: &RoundTrip) -> Option<&'static str> {
        let during = |other: &&Sent| sent.number < other.number && other.time_ns <= theirs.end_ns;
        let is_timing = |trip: &RoundTrip| trip.start_ns <= sent.time_ns && sent.time_ns <= trip.end_ns;
        let received = &self.received[side];
        let overlaps = |first: &Sent| {
            first.number < sent.number && is_after(first.end, sent.sequence) && is_after(sent.end, first.sequence)
        };
        let is_ended_by_reset = || received.iter().any(|ack| ack.number == theirs.end && ack.is_reset);
        Some(match sent.class {
            _ if is_ended_by_reset() => "round trip there only: acknowledged by a RST",
            SegmentClass::OutOfOrder | SegmentClass::UnseenRetransmission => "round trip there only: fills a hole",
            SegmentClass::Retransmission
                if self.sent[side]
                    .iter()
                    .any(|whole| whole.number == sent.number && whole.sequence != sent.sequence) =>
            {
                "round trip there only: new octets of a retransmission"
            }
            SegmentClass::Retransmission
                if self.sent[side].iter().any(|first| overlaps(first) && self.is_probe(side, first)) =>
            {
                "round trip there only: window probes there"
            }
            SegmentClass::InOrder if !sent.has_payload => "round trip there only: FIN without payload",
            SegmentClass::InOrder if self.round_trips[side].iter().any(is_timing) => {
                "round trip there only: another segment is timed"
            }
            SegmentClass::InOrder
                if self.sent[side].iter().filter(during).any(|other| other.class != SegmentClass::InOrder) =>
            {
                "round trip there only: a segment of the side is not in order"
            }
            _ => return None,
        })
    }

    /// Why only Weir has a round trip.
    fn untimed_there(&self, side: usize, ours: &RoundTrip) -> Option<&'static str> {
        let timed = || self.sent[side].iter().filter(|sent| sent.time_ns == ours.start_ns);
        let has_end =
            |end: u32| self.received[side].iter().any(|ack| ack.number == ours.end && ack.acknowledged == end);
        let is_repeated = |sent: &Sent| {
            self.sent[side].iter().any(|other| {
                other.sequence == sent.sequence
                    && matches!(other.class, SegmentClass::Duplicate | SegmentClass::RoutedDuplicate)
            })
        };
        let before = |sent: &Sent| {
            let (first, last) = (sent.number, ours.end);
            self.received[side].iter().filter(move |ack| (first..last).contains(&ack.number))
        };
        let is_within = |sent: &Sent| {
            before(sent).any(|ack| {
                (1..sent.end.wrapping_sub(sent.sequence)).contains(&ack.acknowledged.wrapping_sub(sent.sequence))
            })
        };
        let earlier = || self.received[side].iter().take_while(|ack| ack.number < ours.end);
        let is_far = |sent: &Sent| earlier().any(|ack| distance(ack.acknowledged, sent.end) > FAR);
        Some(match () {
            () if ours.us() == 0 => "round trip: 0 µs, which tcptrace counts without listing it",
            () if !timed().any(|sent| has_end(sent.end)) => {
                "round trip here only: the acknowledgment also covers later segments"
            }
            () if timed().any(is_repeated) => "round trip here only: the segment has a duplicate",
            () if timed().any(|sent| sent.class == SegmentClass::SynRetransmission) => {
                "round trip here only: SYN retransmission"
            }
            () if timed().any(is_within) => "round trip here only: an acknowledgment within the segment came before",
            () if timed().any(is_far) => "round trip here only: two connections at once",
            () => return None,
        })
    }
}

impl Printed {
    /// Whether the figures are those of these samples, and of others of 0.
    fn are(&self, samples: &[RoundTrip]) -> bool {
        let ms = || samples.iter().map(|sample| sample.us() as f64 / 1000.0);
        // It divides by a number that is a little larger, so that it is not 0.
        let mean_ms = ms().sum::<f64>() / (self.samples as f64 + 0.0001);
        let near = |one: f64, other: f64| (one - other).abs() < 0.0501;
        samples.len() <= self.samples && near(mean_ms, self.mean_ms) && near(ms().fold(0.0, f64::max), self.max_ms)
            // A sample of 0 is the minimum only at the end.
            && (samples.len() < self.samples || samples.is_empty() || near(ms().fold(f64::MAX, f64::min), self.min_ms))
    }
}

fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// Sequence numbers of one connection are nearer.
const FAR: u32 = 1 << 28;

fn distance(one: u32, other: u32) -> u32 {
    (one.wrapping_sub(other) as i32).unsigned_abs()
}

fn us(ns: u64) -> u64 {
    ns / 1000
}
