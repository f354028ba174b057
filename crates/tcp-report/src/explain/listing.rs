//! One connection, segment by segment, as a person would check it: by the reference, which is docs/tcp.md as a
//! program. What it says is then compared with what the engine said, if both saw the same.

use super::CAPTURE_CHANGED;
use super::endpoint_pair::Between;
use crate::connection::Connection;
use crate::reader::PacketConsumer;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;
use weir_export::append_tcp_json;
use weir_packet::{Flags, Packet};
use weir_tcp::{Degradation, Reference, SegmentClass, TcpReport};
use weir_text::units;

/// Segments of a side among which the original of a copy is looked for.
const REMEMBERED: usize = 64;

/// What came of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The engine says the same.
    Agrees,
    /// It says something else.
    Differs,
    /// It had other packets, so that it can say nothing of these.
    OtherPackets,
    /// There was a reason not to ask.
    NotCompared,
}

/// Goes through a capture and writes the segments of one connection.
pub struct Explanation<'a, W> {
    connection: &'a Connection,
    between: Between,
    /// Which of the connections between these ends it is.
    number: usize,
    reference: Reference,
    packets: [u64; 2],
    sides: [Side; 2],
    out: W,
    /// The first trouble with the output.
    pub failed: Option<io::Error>,
}

/// What one side sent, in positions counted from its SYN, or from the octet before its first.
#[derive(Default)]
struct Side {
    base: Option<u32>,
    highest: i64,
    /// In order, apart from each other.
    seen: Vec<Range<i64>>,
    recent: VecDeque<(u64, Packet)>,
}

impl<'a, W: Write> Explanation<'a, W> {
    /// Of this connection, the `number`th between its ends, from 0, to be written there.
    pub fn new(connection: &'a Connection, rank: usize, number: usize, out: W) -> Self {
        let mut explanation = Self {
            connection,
            between: Between::ends_of(connection),
            number,
            reference: Reference::default(),
            packets: [0; 2],
            sides: Default::default(),
            out,
            failed: None,
        };
        let (day, time) = units::utc(connection.first_ns);
        explanation.write(&format!(
            "#{rank}  {}, from {day} {time} UTC\n\
             frame: number in the capture, from 1; octets: first:behind the last, counted from the SYN of their side, or from\n\
             the octet before the first; window: as on the wire, not scaled; →: from the client\n\n\
             {:>8} {:>13}    {:>21} {:>10} {:>6} {:<5} {:>6} {:>6} {:>3}  what it is\n",
            connection.name(), "frame", "seconds", "octets", "ack", "window", "flags", "length", "id", "ttl"
        ));
        explanation
    }

    fn write(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(text.as_bytes()).err();
        }
    }

    fn segment(&mut self, side: usize, packet: &Packet, frame: u64) {
        let before = self.reference.report(side);
        let class = self.reference.enter(side, packet);
        let after = self.reference.report(side);
        self.packets[side] += 1;
        let line = self.line(side, packet, frame, class, &before, &after);
        self.write(&line);
    }

    fn line(
        &mut self,
        side: usize,
        packet: &Packet,
        frame: u64,
        class: SegmentClass,
        before: &TcpReport,
        after: &TcpReport,
    ) -> String {
        let client = side == usize::from(self.connection.turned);
        let arrow = if client { '→' } else { '←' };
        // Times may go back.
        let since = packet.time_ns as f64 - self.connection.first_ns as f64;
        let mut line = format!("{frame:>8} {:>13.6}  {arrow} ", since / 1e9);
        if class == SegmentClass::Unread {
            line += "a packet without a whole TCP header: unread\n";
            return line;
        }
        let began_anew = self.begin(side, packet, class, before, after);
        let own = &mut self.sides[side];
        let start = own.position(packet.sequence);
        let syn = packet.control & Packet::SYN != 0;
        let fin = packet.control & Packet::FIN != 0;
        let payload = i64::from(packet.payload_bytes);
        let acknowledges = packet.control & Packet::ACK != 0;
        // With payload, a SYN is the first octet, as tshark counts.
        let octets = format!("{start}:{}", start + payload + i64::from(syn && payload > 0));
        let mut notes: Vec<String> = began_anew.map(String::from).into_iter().collect();

        let taken = !matches!(
            class,
            SegmentClass::Duplicate
                | SegmentClass::RoutedDuplicate
                | SegmentClass::Reset
                | SegmentClass::KeepAlive
                | SegmentClass::OutOfWindow
        );
        if taken && (payload > 0 || fin || syn) {
            let first = start + i64::from(syn);
            own.explain_octets(first..first + payload, fin, (class, before, after), &mut notes);
        }
        match class {
            SegmentClass::Duplicate | SegmentClass::RoutedDuplicate => {
                let original = own.recent.iter().find(|(_, earlier)| is_alike(earlier, packet));
                notes.extend(original.map(|(frame, earlier)| match earlier.ttl == packet.ttl {
                    true => format!("of frame {frame}"),
                    false => format!("of frame {frame}, which had TTL {}", earlier.ttl),
                }));
            }
            SegmentClass::OutOfWindow => {}
            _ => {
                own.recent.push_front((frame, *packet));
                own.recent.truncate(REMEMBERED);
            }
        }
        if before.handshake_rtt_ns.is_none()
            && let Some(ns) = after.handshake_rtt_ns
        {
            let which = if client { "on the client's side, before" } else { "on the server's side, behind" };
            notes.push(format!("round trip {which} the probe: {}", units::span(ns)));
        }
        if packet.flags.has(Flags::FRAGMENT_FIRST) {
            notes.push("first fragment: the others are not read".into());
        }
        if after.zero_windows > before.zero_windows {
            notes.push("closes the window".into());
        }
        let peer = &mut self.sides[1 - side];
        let acknowledgment = if acknowledges {
            if peer.base.is_none() {
                peer.base = Some(packet.acknowledgment.wrapping_sub(1));
            }
            peer.position(packet.acknowledgment).to_string()
        } else {
            String::new()
        };
        let identification = match packet.identification & 0xffff {
            0 => "-".into(),
            number => format!("0x{number:04x}"),
        };
        let _ = write!(
            line,
            "{octets:>21} {acknowledgment:>10} {:>6} {:<5} {payload:>6} {identification:>6} {:>3}  {}",
            packet.window,
            letters(packet.control),
            packet.ttl,
            class.name()
        );
        for (at, note) in notes.iter().enumerate() {
            let _ = write!(line, "{} {note}", if at == 0 { ":" } else { ";" });
        }
        line.push('\n');
        line
    }

    /// Settles what positions are counted from; what to say if that is not what it was.
    fn begin(
        &mut self,
        side: usize,
        packet: &Packet,
        class: SegmentClass,
        before: &TcpReport,
        after: &TcpReport,
    ) -> Option<&'static str> {
        let own = &mut self.sides[side];
        let syn = class == SegmentClass::Syn;
        let first = if syn { packet.sequence } else { packet.sequence.wrapping_sub(1) };
        let jumped = after.degradation.has(Degradation::JUMP) && !before.degradation.has(Degradation::JUMP);
        match own.base {
            None => {
                own.base = Some(first);
                None
            }
            // What other side acknowledged first was no position yet.
            Some(_) if own.recent.is_empty() && syn => {
                (own.base, own.highest) = (Some(first), 0);
                None
            }
            Some(_) if jumped || (syn && before.syn_window.is_some()) => {
                *own = Side { base: Some(first), ..Side::default() };
                Some("positions begin anew")
            }
            Some(_) => None,
        }
    }

    /// Ends the list with what both sides sent, and compares that with what the engine said, unless there is a reason
    /// why that cannot be.
    pub fn finish(mut self, incomparable: Option<&str>) -> (Verdict, Option<io::Error>) {
        let mut text = String::from("\n");
        for (at, who) in ["client", "server"].into_iter().enumerate() {
            let report = self.reference.report(self.side(at));
            let classes = SegmentClass::ALL.iter().filter(|&&class| report.count(class).segments > 0);
            let classes: Vec<String> =
                classes.map(|&class| format!("{} {}", report.count(class).segments, class.name())).collect();
            let _ = writeln!(
                text,
                "{who}: {}; {} octets seen, {} of them again, {} missing",
                if classes.is_empty() { "nothing".into() } else { classes.join(", ") },
                report.unique_bytes + report.retransmitted_bytes,
                report.retransmitted_bytes,
                report.missing_bytes
            );
        }
        let sides = [self.side(0), self.side(1)];
        let reports = sides.map(|side| self.reference.report(side));
        let verdict = if let Some(why) = incomparable {
            let _ = writeln!(text, "not compared with the engine: {why}");
            Verdict::NotCompared
        } else if sides.map(|side| self.packets[side]) != self.connection.packets {
            let _ = writeln!(
                text,
                "not compared with the engine, which had other packets of this connection: {CAPTURE_CHANGED}"
            );
            Verdict::OtherPackets
        } else if reports == self.connection.reports() {
            text += "the engine says the same\n";
            Verdict::Agrees
        } else {
            text += "the engine says something else; please report this (field: by the engine, by the reference)\n";
            for difference in differences(self.connection, reports) {
                let _ = writeln!(text, "  {difference}");
            }
            Verdict::Differs
        };
        self.end(&text);
        (verdict, self.failed)
    }

    /// Ends the list before its end.
    pub fn interrupt(mut self) -> Option<io::Error> {
        self.end("\ninterrupted: the list ends here, and is not compared with the engine\n");
        self.failed
    }

    fn end(&mut self, text: &str) {
        self.write(text);
        if self.failed.is_none() {
            self.failed = self.out.flush().err();
        }
    }

    /// The engine's side of the client (0) or the server (1).
    fn side(&self, at: usize) -> usize {
        at ^ usize::from(self.connection.turned)
    }
}

impl<W: Write> PacketConsumer for Explanation<'_, W> {
    fn consume(&mut self, packets: &[Packet], frames: &[u64]) {
        for (packet, &frame) in packets.iter().zip(frames) {
            if let Some((number, side)) = self.between.enter(packet)
                && number == self.number
            {
                self.segment(side, packet, frame);
            }
        }
    }
}

impl Side {
    /// Of a sequence number, nearest to the highest.
    fn position(&self, sequence: u32) -> i64 {
        let low = sequence.wrapping_sub(self.base.unwrap_or(0));
        self.highest + i64::from(low.wrapping_sub(self.highest as u32) as i32)
    }

    /// Says which octets came again, which left a hole and which filled one, and takes them as seen.
    fn explain_octets(
        &mut self,
        octets: Range<i64>,
        fin: bool,
        (class, before, after): (SegmentClass, &TcpReport, &TcpReport),
        notes: &mut Vec<String>,
    ) {
        let again: Vec<Range<i64>> = self.seen.iter().filter_map(|seen| overlap(seen, &octets)).collect();
        let count = |ranges: &[Range<i64>]| ranges.iter().map(|range| range.end - range.start).sum::<i64>() as u64;
        let repeated = after.retransmitted_bytes - before.retransmitted_bytes;
        if repeated > 0 {
            // If the reference had to give something up, it does not know of all that is known here.
            let which = if count(&again) == repeated { list(&again) + ", " } else { String::new() };
            notes.push(format!("again {which}{}", units::count(repeated, "octet")));
        }
        if class == SegmentClass::Retransmission && fin && octets.is_empty() {
            notes.push("the FIN again".into());
        }
        let new = after.unique_bytes - before.unique_bytes;
        if after.partial_retransmissions > before.partial_retransmissions && new > 0 {
            notes.push(format!("{} new", units::count(new, "octet")));
        }
        if after.spurious_retransmissions > before.spurious_retransmissions {
            notes.push("needless, all of it had been acknowledged".into());
        }
        let known_from = !self.seen.is_empty() || class == SegmentClass::Syn;
        if octets.start > self.highest && known_from && class == SegmentClass::InOrder {
            let hole = self.highest..octets.start;
            notes.push(format!(
                "leaves out {}, {}",
                list(std::slice::from_ref(&hole)),
                units::count(count(&[hole]), "octet")
            ));
        }
        if after.missing_bytes < before.missing_bytes {
            let filled = before.missing_bytes - after.missing_bytes;
            let rest = match after.missing_bytes {
                0 => "none missing now".into(),
                n => format!("{n} still missing"),
            };
            notes.push(format!("fills {}, {rest}", units::count(filled, "octet")));
        }
        self.add(octets.start - i64::from(class == SegmentClass::Syn)..octets.end + i64::from(fin));
    }

    fn add(&mut self, mut range: Range<i64>) {
        self.highest = self.highest.max(range.end);
        self.seen.retain(|seen| {
            let apart = seen.end < range.start || range.end < seen.start;
            if !apart {
                range = range.start.min(seen.start)..range.end.max(seen.end);
            }
            apart
        });
        let at = self.seen.partition_point(|seen| seen.end < range.start);
        self.seen.insert(at, range);
    }
}

fn overlap(one: &Range<i64>, other: &Range<i64>) -> Option<Range<i64>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (both.start < both.end).then_some(both)
}

fn list(ranges: &[Range<i64>]) -> String {
    ranges.iter().map(|range| format!("{}:{}", range.start, range.end)).collect::<Vec<_>>().join(" ")
}

/// The fields of the records in which the engine and other reports differ: their names, and both values.
fn differences(by_engine: &Connection, reports: [TcpReport; 2]) -> Vec<String> {
    let fields = |connection: &Connection| -> Map<String, Value> {
        let mut text = Vec::new();
        append_tcp_json(&connection.flow(), &mut text);
        serde_json::from_slice(&text).expect("a record is an object")
    };
    let by_reference = fields(&by_engine.with_reports(reports));
    let differing = fields(by_engine).into_iter().filter(|(name, value)| by_reference.get(name) != Some(value));
    differing.map(|(name, value)| format!("{name}: {value}, {}", by_reference[&name])).collect()
}

/// Whether one may be a copy of the other.
fn is_alike(one: &Packet, other: &Packet) -> bool {
    let facts = |p: &Packet| (p.sequence, p.acknowledgment, p.payload_bytes, p.control, p.window, p.identification);
    facts(one) == facts(other)
}

/// Control bits in the order of the wire, from the right: `SA`, `PA`.
fn letters(control: u16) -> String {
    let bits = [('C', 7), ('E', 6), ('U', 5), ('P', 3), ('F', 0), ('S', 1), ('R', 2), ('A', 4)];
    bits.into_iter().filter(|&(_, bit)| control >> bit & 1 != 0).map(|(letter, _)| letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Clients;
    use weir_tcp::SegmentCount;
    use weir_tcp_batch::ConnectionRecord;

    #[test]
    fn a_difference_is_named_by_its_fields_and_both_values() {
        let ends = ["192.0.2.1:1000", "192.0.2.2:80"].map(|end| end.parse().unwrap());
        let nothing =
            ConnectionRecord { endpoints: ends, first_ns: 0, last_ns: 0, packets: [3, 4], reports: Default::default() };
        let connection = Connection::of(nothing, &Clients::at_most(1));
        let mut reports = connection.reports();
        assert!(differences(&connection, reports).is_empty());
        reports[1].classes[SegmentClass::OutOfOrder as usize] = SegmentCount { segments: 2, bytes: 300 };
        reports[0].handshake_rtt_ns = Some(5);
        let all = differences(&connection, reports).join("; ");
        let wanted =
            ["tcp_handshake_rtt_ns: null, 5", "rev_tcp_out_of_order: 0, 2", "rev_tcp_out_of_order_bytes: 0, 300"];
        assert!(wanted.iter().all(|difference| all.contains(difference)), "{all}");
    }
}
