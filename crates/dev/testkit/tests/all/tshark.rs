//! Compares the class of each TCP segment of real captures by [`TcpReference`] with what tshark says
//! of the same frame. Each difference follows from a rule of the table in `docs/tcp.md` section 8,
//! as often as the table says.
//!
//! A rule refers to what both knew when the segment came. A model of tshark's stream state
//! ([`Stream`]) arrives at its fields in every frame.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use weir_packet::Packet;
use weir_tcp::SegmentClass;
use weir_testkit::real::{End, segments};
use weir_testkit::reference::TcpReference;
use weir_testkit::truth;

/// The fields that are compared, `tcp.analysis.` before each; a set of them has a bit for each.
const FIELDS: [&str; 13] = [
    "retransmission",
    "fast_retransmission",
    "spurious_retransmission",
    "out_of_order",
    "duplicate_ack",
    "keep_alive",
    "keep_alive_ack",
    "zero_window_probe",
    "zero_window_probe_ack",
    "zero_window",
    "lost_segment",
    "ack_lost_segment",
    "reused_ports",
];
const RETRANSMISSION: u16 = 1;
const FAST: u16 = 1 << 1;
const SPURIOUS: u16 = 1 << 2;
const OUT_OF_ORDER: u16 = 1 << 3;
const DUPLICATE: u16 = 1 << 4;
const KEEP_ALIVE: u16 = 1 << 5;
const KEEP_ALIVE_ANSWER: u16 = 1 << 6;
const PROBE: u16 = 1 << 7;
const PROBE_ANSWER: u16 = 1 << 8;
const ZERO_WINDOW: u16 = 1 << 9;
const HOLE: u16 = 1 << 10;
const UNSEEN_ACKNOWLEDGED: u16 = 1 << 11;
const REUSED: u16 = 1 << 12;

/// The bits that Weir has a class for.
const COMMON: u16 =
    RETRANSMISSION | SPURIOUS | OUT_OF_ORDER | DUPLICATE | KEEP_ALIVE | PROBE | ZERO_WINDOW | HOLE | REUSED;

/// What tshark says of a frame.
struct Theirs {
    stream: u64,
    payload_bytes: u32,
    verdict: u16,
}

/// A rule that is used twice.
const NO_OCTET: &str = "a number without an octet";

/// The output of tshark, if it is installed.
fn tshark(arguments: &[&str]) -> Option<String> {
    let output = Command::new("tshark").args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

fn frames(capture: &Path) -> BTreeMap<u64, Theirs> {
    let fields = FIELDS.map(|field| format!("tcp.analysis.{field}"));
    let mut arguments =
        vec!["-n", "-r", capture.to_str().expect("names are UTF-8"), "-T", "fields", "-E", "occurrence=f"];
    let before = ["frame.number", "tcp.stream", "tcp.len"];
    before.into_iter().chain(fields.iter().map(|field| &field[..])).for_each(|field| arguments.extend(["-e", field]));
    let text = tshark(&arguments).expect("tshark reads every capture");
    let line = |line: &str| {
        let mut columns = line.split('\t');
        let mut number = || columns.next()?.parse::<u64>().ok();
        let (frame, stream, payload_bytes) = (number()?, number()?, number()? as u32);
        let verdict = columns.enumerate().map(|(bit, value)| u16::from(!value.is_empty()) << bit).sum();
        Some((frame, Theirs { stream, payload_bytes, verdict }))
    };
    text.lines().filter_map(line).collect()
}

/// The state of a connection in tshark: of each side its last segment and the next sequence number.
#[derive(Clone, Copy, Default)]
struct Stream {
    sides: [Side; 2],
    syn_ns: Option<u64>,
    round_trip_ns: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Side {
    /// Number of the SYN, or what it should have been.
    first: Option<u32>,
    /// Behind the highest octet, and since when.
    next: Option<u32>,
    next_ns: u64,
    /// Behind the octets that came one after the other.
    together: Option<u32>,
    last: Option<Packet>,
    verdict: u16,
    /// Duplicate acknowledgments in a row; the greatest number after an acknowledgment of octets that
    /// were not seen.
    duplicates: u32,
}

impl Side {
    fn window(&self) -> Option<u16> {
        self.last.map(|last| last.window)
    }

    fn acknowledgment(&self) -> u32 {
        self.last.map_or(0, |last| last.acknowledgment)
    }
}

impl Stream {
    /// Within this of the highest octet a segment below it is called out of order.
    fn limit_ns(&self) -> u64 {
        self.round_trip_ns.unwrap_or(3_000_000)
    }

    fn enter(&mut self, side: usize, packet: &Packet, payload: u32) -> u16 {
        let has = |bit| packet.control & bit != 0;
        let limit_ns = self.limit_ns();
        let [low, high] = &mut self.sides;
        let (own, peer) = if side == 0 { (low, high) } else { (high, low) };
        let (plain, place) = (!has(Packet::SYN | Packet::FIN | Packet::RST), has(Packet::SYN | Packet::FIN));
        let (start, after_payload) = (packet.sequence, packet.sequence.wrapping_add(payload));
        let end = after_payload.wrapping_add(u32::from(place));
        let next = own.next.unwrap_or(0);

        let mut verdict = 0;
        if has(Packet::SYN) && own.first.is_some_and(|first| first != start) {
            verdict |= REUSED;
            own.first = None;
        }
        own.first.get_or_insert(start.wrapping_sub(u32::from(!has(Packet::SYN))));
        if has(Packet::ACK) {
            peer.first.get_or_insert(packet.acknowledgment.wrapping_sub(1));
        }

        let repeats = plain
            && payload == 0
            && start == next
            && own.window() == Some(packet.window)
            && own.acknowledgment() == packet.acknowledgment;
        if payload == 1 && start == next && peer.window() == Some(0) {
            verdict |= PROBE;
        } else {
            let hole = own.next.is_some_and(|next| is_after(start, next)) && !has(Packet::RST);
            let keep_alive = plain && payload <= 1 && start == next.wrapping_sub(1);
            verdict |= if hole { HOLE } else { 0 } | if keep_alive { KEEP_ALIVE } else { 0 };
            verdict |= if plain && packet.window == 0 { ZERO_WINDOW } else { 0 };
            verdict |= match packet.window {
                _ if !repeats => 0,
                0 if peer.verdict & PROBE != 0 => PROBE_ANSWER,
                0 => 0,
                _ if peer.verdict & KEEP_ALIVE != 0 => KEEP_ALIVE_ANSWER,
                _ => DUPLICATE,
            };
        }
        if verdict & DUPLICATE != 0 {
            own.duplicates = own.duplicates.wrapping_add(1).max(1);
        }
        if own.acknowledgment() != packet.acknowledgment {
            own.duplicates = 0;
        }
        if has(Packet::ACK) && peer.together.is_some_and(|together| is_after(packet.acknowledgment, together)) {
            let apart = peer.next != peer.together;
            if apart || peer.duplicates == 0 {
                verdict |= UNSEEN_ACKNOWLEDGED;
            }
            if apart {
                peer.together = peer.next;
            } else {
                peer.duplicates = u32::MAX;
            }
        }

        if (payload > 0 || place) && verdict & KEEP_ALIVE == 0 {
            let below =
                own.next.is_some_and(|next| is_after(next, start)) && !(payload > 1 && start == next.wrapping_sub(1));
            let acknowledged = peer.acknowledgment();
            let since_ns = |time_ns| packet.time_ns.wrapping_sub(time_ns);
            verdict |= if payload > 0 && acknowledged != 0 && !is_after(after_payload, acknowledged) {
                RETRANSMISSION | SPURIOUS
            } else if !below {
                0
            } else if peer.duplicates >= 2
                && acknowledged == start
                && peer.last.is_some_and(|last| since_ns(last.time_ns) < 20_000_000)
            {
                RETRANSMISSION | FAST
            } else if since_ns(own.next_ns) < limit_ns && end != next {
                OUT_OF_ORDER
            } else {
                RETRANSMISSION
            };
        }

        if verdict & PROBE == 0 {
            if own.next.is_none_or(|next| is_after(end, next)) {
                (own.next, own.next_ns) = (Some(end).filter(|&end| end != 0), packet.time_ns);
            }
            if own.together.is_none_or(|together| together == start) {
                own.together = own.next;
            }
        }
        (own.last, own.verdict) = (Some(*packet), verdict);
        match packet.control & (Packet::SYN | Packet::ACK) {
            Packet::SYN => self.syn_ns = Some(packet.time_ns),
            Packet::ACK if self.round_trip_ns.is_none() => {
                self.round_trip_ns = self.syn_ns.map(|syn_ns| packet.time_ns - syn_ns).filter(|&ns| ns != 0);
            }
            _ => {}
        }
        verdict
    }
}

fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// What Weir knows of a side, as far as a rule speaks of it.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Behind the highest octet.
    next: Option<u32>,
    /// Greatest acknowledgment number.
    acknowledged: Option<u32>,
    /// Of the last segment that only acknowledged.
    window: u16,
    /// Why tshark has another next octet, while it has.
    apart: Option<&'static str>,
}

impl Known {
    fn enter(&mut self, packet: &Packet, class: SegmentClass) {
        let has = |bit| packet.control & bit != 0;
        let place = u32::from(has(Packet::SYN | Packet::FIN));
        let end = packet.sequence.wrapping_add(packet.payload_bytes).wrapping_add(place);
        match class {
            SegmentClass::Duplicate
            | SegmentClass::RoutedDuplicate
            | SegmentClass::Reset
            | SegmentClass::OutOfWindow => return,
            SegmentClass::Syn => *self = Self { next: Some(end), apart: self.apart, ..Self::default() },
            SegmentClass::InOrder => self.next = Some(end),
            SegmentClass::Acknowledgment | SegmentClass::DuplicateAcknowledgment => self.window = packet.window,
            SegmentClass::KeepAlive => {}
            _ if self.next.is_some_and(|next| is_after(end, next)) => self.next = Some(end),
            _ => {}
        }
        if has(Packet::ACK) && self.acknowledged.is_none_or(|known| is_after(packet.acknowledgment, known)) {
            self.acknowledged = Some(packet.acknowledgment);
        }
    }

    /// After a segment: whether the next octet is still the same, and why not.
    fn compare(&mut self, theirs: &Side, packet: &Packet, payload: u32, class: SegmentClass) {
        if self.next == theirs.next {
            self.apart = None;
        } else if self.apart.is_none() {
            self.apart = match class {
                _ if payload != packet.payload_bytes => Some("the frame is shorter than its IP length says"),
                SegmentClass::Syn => Some("another SYN in the same stream"),
                SegmentClass::OutOfWindow => Some("out of window"),
                SegmentClass::ZeroWindowProbe => Some("the octet of a window probe"),
                SegmentClass::Acknowledgment | SegmentClass::DuplicateAcknowledgment | SegmentClass::Reset => {
                    Some(NO_OCTET)
                }
                _ => None,
            }
        }
    }
}

/// What both knew when a segment came.
struct Before {
    stream: Stream,
    side: usize,
    known: [Known; 2],
}

impl Before {
    /// The result of Weir as tshark's bits.
    fn ours(&self, packet: &Packet, class: SegmentClass, closed: bool, spurious: bool) -> u16 {
        let own = self.known[self.side].next;
        let word = match class {
            SegmentClass::SynRetransmission | SegmentClass::Retransmission | SegmentClass::UnseenRetransmission => {
                RETRANSMISSION
            }
            SegmentClass::OutOfOrder => OUT_OF_ORDER,
            SegmentClass::DuplicateAcknowledgment => DUPLICATE,
            SegmentClass::KeepAlive => KEEP_ALIVE,
            SegmentClass::ZeroWindowProbe => PROBE,
            SegmentClass::InOrder if own.is_some_and(|next| next != packet.sequence) => HOLE,
            SegmentClass::Syn if own.is_some() => REUSED,
            _ => 0,
        };
        word | if closed { ZERO_WINDOW } else { 0 } | if spurious { SPURIOUS } else { 0 }
    }

    /// The rule by which the results differ.
    fn rule(&self, packet: &Packet, class: SegmentClass, ours: u16, theirs: u16) -> Option<&'static str> {
        let (own, peer) = (&self.known[self.side], &self.known[1 - self.side]);
        let (side, other) = (&self.stream.sides[self.side], &self.stream.sides[1 - self.side]);
        let (here, there) = (|bit| ours & !theirs & bit != 0, |bit| theirs & !ours & bit != 0);
        let below = |bytes| side.next.is_some_and(|next| packet.sequence == next.wrapping_sub(bytes));
        let acknowledged = packet.acknowledgment;
        let on_the_way = peer.next.is_some_and(|next| is_after(next, acknowledged));
        let greatest = own.acknowledged == Some(acknowledged) && own.window == packet.window;
        let last = below(0) && side.acknowledgment() == acknowledged && side.window() == Some(packet.window);
        let soon = side.next_ns + self.stream.limit_ns() > packet.time_ns;
        let asked_for = other.duplicates >= 2 && other.acknowledgment() == packet.sequence;
        let data = packet.payload_bytes > 0;
        Some(match class {
            SegmentClass::Duplicate | SegmentClass::RoutedDuplicate => "a duplicate",
            SegmentClass::OutOfWindow => "out of window",
            SegmentClass::Reset if data => "payload of a RST",
            _ if there(DUPLICATE) && !on_the_way => "nothing is on the way",
            _ if there(DUPLICATE) && !greatest => "repeats the last segment, not the greatest acknowledgment",
            _ if here(DUPLICATE) && !last => "repeats the greatest acknowledgment, not the last segment",
            _ if here(RETRANSMISSION) && there(OUT_OF_ORDER) && soon => "soon after the highest octet",
            _ if here(OUT_OF_ORDER) && there(FAST) && asked_for => "requested by duplicate acknowledgments",
            _ if here(RETRANSMISSION) && data && below(1) => "begins with the last octet",
            SegmentClass::Syn if here(REUSED) && side.last.is_none() => "the other SYN of a restarted stream",
            SegmentClass::Syn if ours & theirs & REUSED != 0 => "another SYN in the same stream",
            SegmentClass::Syn | SegmentClass::InOrder if own.next.is_none() => NO_OCTET,
            SegmentClass::Acknowledgment if there(HOLE) => NO_OCTET,
            _ => {
                // With the next octet that Weir knows tshark would say the same.
                let mut stream = self.stream;
                stream.sides[self.side].next = own.next;
                let agreed = stream.enter(self.side, packet, packet.payload_bytes) & COMMON == ours;
                own.apart.filter(|_| agreed)?
            }
        })
    }
}

#[test]
fn every_difference_to_tshark_is_one_of_the_rules_on_the_page() {
    if !tshark(&["--version"]).is_some_and(|text| text.starts_with("TShark (Wireshark) 4.0.")) {
        println!("SKIPPED: tshark 4.0 is not installed (other versions have other rules)");
        return;
    }
    let Some(captures) = truth::chosen_for_tcp() else { return };
    let (mut wrong, mut count) = (Vec::new(), 0);
    let mut rules: BTreeMap<&str, u64> = BTreeMap::new();
    for capture in &captures {
        let mut theirs = frames(capture);
        let mut streams: BTreeMap<u64, Stream> = BTreeMap::new();
        let mut connections: BTreeMap<(End, End), (u64, TcpReference, [Known; 2])> = BTreeMap::new();
        for segment in segments(capture) {
            let (packet, (ends, side)) = (segment.packet, segment.connection());
            let Some(Theirs { stream: number, payload_bytes, verdict }) = theirs.remove(&segment.frame) else {
                wrong.push(format!("{capture:?} {}: tshark does not know it", segment.frame));
                continue;
            };
            let (last, reference, known) =
                connections.entry(ends).or_insert_with(|| (number, <_>::default(), <_>::default()));
            let stream = streams.entry(number).or_default();
            let before = Before { stream: *stream, side, known: *known };
            let followed = stream.enter(side, &packet, payload_bytes) | if *last == number { 0 } else { REUSED };
            *last = number;
            let report = reference.report(side);
            let class = reference.enter(side, &packet);
            let now = reference.report(side);
            let (closed, spurious) = (
                now.zero_windows > report.zero_windows,
                now.spurious_retransmissions > report.spurious_retransmissions,
            );
            let ours = before.ours(&packet, class, closed, spurious);
            let says = || format!("{capture:?} {}: {class:?} {ours:b} is {verdict:b} there", segment.frame);
            if followed != verdict {
                wrong.push(format!("{}, followed as {followed:b}", says()));
            }
            if ours != verdict & COMMON {
                match before.rule(&packet, class, ours, verdict) {
                    Some(rule) => *rules.entry(rule).or_default() += 1,
                    None => wrong.push(says()),
                }
            }
            known[side].enter(&packet, class);
            known[side].compare(&stream.sides[side], &packet, payload_bytes, class);
            count += 1;
        }
        wrong.extend(theirs.keys().map(|frame| format!("{capture:?} {frame}: no segment here")));
    }
    println!("{count} segments, judged otherwise: {rules:#?}");
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    let page = include_str!("../../../../../docs/tcp.md").lines();
    let table = page.skip_while(|line| !line.starts_with("| tshark | Weir | rule |")).skip(2);
    let row = |line: &'static str| {
        let mut cells = line.trim_matches('|').rsplit('|').map(str::trim);
        let segments: u64 = cells.next()?.parse().ok()?;
        Some((cells.next()?, segments))
    };
    rules.insert("all", rules.values().sum());
    assert_eq!(table.map_while(row).collect::<BTreeMap<_, _>>(), rules, "the table in docs/tcp.md");
}
