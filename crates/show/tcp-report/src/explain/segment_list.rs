//! One connection, a line per segment: what the state machine of `weir-tcp` decided about it, and
//! why.
//!
//! In: the packets of a capture. Out: lines, written as the packets come; then a comparison with
//! the batch engine.
//! Sequence numbers are relative to the SYN of their side, or to the octet before the first
//! segment.

use super::error::{CAPTURE_CHANGED, ExplainError};
use super::search::PairTracker;
use crate::connection::Connection;
use crate::reader::PacketConsumer;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;
use weir_export::append_tcp_json;
use weir_fields::FieldValue;
use weir_packet::{Flags, Packet};
use weir_tcp::{Degradation, SegmentClass, SegmentEvent, TcpReport};
use weir_text::zone::Zone;
use weir_text::{paragraph, units, wrap};

/// Segments of a side that can be the original of a duplicate.
const REMEMBERED: usize = 64;

/// Columns of a terminal for which the list has window, length, identification and TTL.
const WIDE_COLUMNS: usize = 120;
/// Columns for classes and details, at least.
const MIN_DETAILS: usize = 20;

/// Whether the list is complete and confirmed, and the first error of the output.
type Outcome<E> = (Result<(), ExplainError<E>>, Option<io::Error>);

/// Writes the segments of one connection.
pub struct SegmentList<'a, W> {
    connection: &'a Connection,
    tracker: PairTracker,
    /// Number of the connection between its endpoints, from 0.
    number: usize,
    sides: [Side; 2],
    events: Vec<SegmentEvent>,
    /// Width of the terminal.
    columns: Option<usize>,
    out: W,
    /// The first error of the output.
    error: Option<io::Error>,
    /// Segments that have a line, and those of the connection so far.
    most: u64,
    segments: u64,
}

/// What one side of the batch engine sent.
#[derive(Default)]
struct Side {
    /// Sequence number that others are relative to, before positions start.
    first_sequence: Option<u32>,
    /// Position that others are relative to.
    first_position: Option<u64>,
    /// Frames of the last segments that can be the original of a duplicate, the latest first.
    recent_frames: VecDeque<u64>,
}

impl<'a, W: Write> SegmentList<'a, W> {
    /// Starts the list of a connection: its `number` between its endpoints.
    pub fn new(connection: &'a Connection, number: usize, columns: Option<usize>, out: W) -> Self {
        let tracker = PairTracker::new(connection);
        let (sides, events) = (Default::default(), Vec::new());
        let mut list =
            Self { connection, tracker, number, sides, events, columns, out, error: None, most: u64::MAX, segments: 0 };
        let zone = Zone::current();
        let (day, time) = zone.date_and_time(connection.first_ns);
        let title = paragraph(
            &if connection.number > 0 { format!("#{}  ", connection.number) } else { String::new() },
            &format!("{}, from {day} {time} {}", connection.name(), zone.name()),
            columns,
        );
        let octets = "octets: first:end, relative to the SYN of their side, or to the octet before its first segment";
        let rest = match list.is_narrow() {
            true => "→: from the client; left out to fit the terminal: window, length, id, ttl (| less -S shows all)",
            false => "window: not scaled; →: from the client",
        };
        let headings = list.start_of_line("frame", "seconds", ' ')
            + &list.rest_of_line(["octets", "ack", "window", "flags", "length", "id", "ttl"]);
        let legend = format!("frame: number in the capture, from 1; {octets}; {rest}");
        let legend = paragraph("", &legend, columns.or(Some(WIDE_COLUMNS)));
        list.write(&format!("{title}{legend}\n{headings}class: details\n"));
        list
    }

    /// Only the first segments have a line.
    pub fn limit(&mut self, most: u64) {
        self.most = most;
    }

    /// How many have none.
    pub fn left_out(&self) -> u64 {
        self.segments.saturating_sub(self.most)
    }

    fn is_narrow(&self) -> bool {
        self.columns.is_some_and(|columns| columns < WIDE_COLUMNS)
    }

    fn start_of_line(&self, frame: &str, seconds: &str, arrow: char) -> String {
        match self.is_narrow() {
            true => format!("{frame:>6} {seconds:>11} {arrow} "),
            false => format!("{frame:>8} {seconds:>13}  {arrow} "),
        }
    }

    /// What follows it, until the class.
    fn rest_of_line(&self, [octets, acknowledgment, window, flags, length, identification, ttl]: [&str; 7]) -> String {
        match self.is_narrow() {
            true => format!("{octets:>15} {acknowledgment:>8} {flags:<5} "),
            false => format!(
                "{octets:>21} {acknowledgment:>10} {window:>6} {flags:<5} {length:>6} {identification:>6} {ttl:>3}  "
            ),
        }
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none() {
            self.error = self.out.write_all(text.as_bytes()).err();
        }
    }

    /// Ends the list with a summary of both sides, and compares them with the report of the engine
    /// unless there is a reason not to.
    pub fn finish<E>(self, skip: Option<&str>) -> Outcome<E> {
        let reports = [0, 1].map(|role| self.tracker.report(self.engine_side(role)));
        let mut text = String::new();
        if self.left_out() > 0 {
            let _ = writeln!(text, "{} more, which have no line here", units::count(self.left_out(), "segment"));
        }
        text.push('\n');
        for (name, report) in ["client", "server"].into_iter().zip(&reports) {
            let classes = SegmentClass::ALL.iter().filter(|&&class| report.count(class).segments > 0);
            let classes: Vec<String> =
                classes.map(|&class| format!("{} {}", report.count(class).segments, class.name())).collect();
            let sums = format!(
                "{}; {} octets, {} of them retransmitted, {} missing",
                if classes.is_empty() { "no packets".into() } else { classes.join(", ") },
                report.unique_bytes + report.retransmitted_bytes,
                report.retransmitted_bytes,
                report.missing_bytes
            );
            text += &paragraph(&format!("{name}: "), &sums, self.columns);
        }
        let result = if let Some(why) = skip {
            let _ = writeln!(text, "not compared with the batch engine: {why}");
            Ok(())
        } else if [0, 1].map(|role| self.tracker.packets()[self.engine_side(role)]) != self.connection.packets {
            let _ = writeln!(text, "not compared with the batch engine, which had other packets: {CAPTURE_CHANGED}");
            Err(ExplainError::CaptureChanged)
        } else if reports == self.connection.reports() {
            text += "the batch engine reports the same\n";
            Ok(())
        } else {
            text += "the batch engine reports something else; please report this (field: batch engine, segment list)\n";
            for difference in differences(self.connection, reports) {
                let _ = writeln!(text, "  {difference}");
            }
            Err(ExplainError::Mismatch)
        };
        self.end(&text, result)
    }

    /// Ends an incomplete list.
    pub fn interrupt<E>(self) -> Outcome<E> {
        let text = "\ninterrupted: the list is incomplete and not compared with the batch engine\n";
        self.end(text, Err(ExplainError::Interrupted))
    }

    fn end<E>(mut self, text: &str, result: Result<(), ExplainError<E>>) -> Outcome<E> {
        self.write(text);
        (result, self.error.or_else(|| self.out.flush().err()))
    }

    /// The batch engine's side of the client (0) or the server (1).
    fn engine_side(&self, role: usize) -> usize {
        role ^ self.connection.client_side
    }

    fn write_segment(&mut self, side: usize, packet: &Packet, frame: u64) {
        self.segments += 1;
        if self.segments > self.most {
            self.tracker.classify(side, packet, |_| {});
            return;
        }
        let client = side == self.engine_side(0);
        // Times can go back.
        let seconds = (packet.time_ns as f64 - self.connection.first_ns as f64) / 1e9;
        let arrow = if client { '→' } else { '←' };
        let mut line = self.start_of_line(&frame.to_string(), &format!("{seconds:.6}"), arrow);
        let position = self.tracker.state.position(side, packet.sequence);
        let degradation = self.tracker.report(side).degradation;
        self.events.clear();
        let class = self.tracker.classify(side, packet, |event| self.events.push(event));
        self.events.retain(|event| !matches!(event, SegmentEvent::Degraded(bit) if degradation.has(*bit)));
        if class == SegmentClass::Unread {
            self.write(&(line + "unread: a packet without a whole TCP header\n"));
            return;
        }
        let started = self.start_positions(side, packet, class);
        // If positions start with this segment, its own is one of the new ones.
        let position = if started { self.tracker.state.position(side, packet.sequence) } else { position };
        let start = self.relative(side, position, packet.sequence);
        let payload = i64::from(packet.payload_bytes);
        // A SYN with payload counts as the first octet, as in tshark.
        let syn = packet.control & Packet::SYN != 0 && payload > 0;
        let octets = format!("{start}:{}", start + payload + i64::from(syn));
        let acknowledgment = if packet.control & Packet::ACK != 0 {
            let peer = 1 - side;
            self.sides[peer].first_sequence.get_or_insert(packet.acknowledgment.wrapping_sub(1));
            let position = self.tracker.state.position(peer, packet.acknowledgment);
            self.relative(peer, position, packet.acknowledgment).to_string()
        } else {
            String::new()
        };
        let identification = match packet.identification & 0xffff {
            0 => "-".into(),
            number => format!("0x{number:04x}"),
        };
        let flags = FieldValue::TcpFlags(packet.control & Packet::CONTROL).to_string();
        let [window, length, ttl] = [packet.window.to_string(), payload.to_string(), packet.ttl.to_string()];
        line += &self.rest_of_line([&octets, &acknowledgment, &window, &flags, &length, &identification, &ttl]);
        let mut details = class.name().to_string();
        for (at, detail) in self.details(side, packet, class).iter().enumerate() {
            let _ = write!(details, "{} {detail}", if at == 0 { ":" } else { ";" });
        }
        let indent = line.chars().count();
        let width = self.columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(MIN_DETAILS));
        for part in wrap(&details, width) {
            let _ = writeln!(line, "{part}");
            self.write(&std::mem::replace(&mut line, " ".repeat(indent)));
        }
        if !matches!(class, SegmentClass::Duplicate | SegmentClass::RoutedDuplicate | SegmentClass::OutOfWindow) {
            let frames = &mut self.sides[side].recent_frames;
            frames.push_front(frame);
            frames.truncate(REMEMBERED);
        }
    }

    /// Sets what sequence numbers of a side are relative to, if that changes with this segment.
    /// Returns whether the positions of the state machine start with it.
    fn start_positions(&mut self, side: usize, packet: &Packet, class: SegmentClass) -> bool {
        let own = &mut self.sides[side];
        let started = self.events.iter().find_map(|event| match *event {
            SegmentEvent::PositionsStarted { lowest, restarted } => Some((lowest, restarted)),
            _ => None,
        });
        if let Some((lowest, restarted)) = started {
            let known = own.first_sequence.filter(|_| class != SegmentClass::Syn && !restarted);
            let first = known.unwrap_or((lowest as u32).wrapping_sub(1));
            own.first_position = Some(lowest.wrapping_add_signed(signed(first.wrapping_sub(lowest as u32))));
        } else if own.first_sequence.is_none() {
            own.first_sequence = Some(packet.sequence.wrapping_sub(1));
        }
        started.is_some()
    }

    /// A sequence number of a side and its position, relative to the first one.
    fn relative(&self, side: usize, position: Option<u64>, sequence: u32) -> i64 {
        let Side { first_sequence, first_position, .. } = self.sides[side];
        match (position, first_position) {
            (Some(position), Some(first)) => position.wrapping_sub(first).cast_signed(),
            _ => signed(sequence.wrapping_sub(first_sequence.unwrap_or(sequence))),
        }
    }

    /// What the state machine decided about a segment besides its class.
    fn details(&self, side: usize, packet: &Packet, class: SegmentClass) -> Vec<String> {
        let octets = |count| units::count(count, "octet");
        let range = |start: u64, end: u64| {
            let first = self.sides[side].first_position.unwrap_or(start);
            format!("{}:{}", start.wrapping_sub(first).cast_signed(), end.wrapping_sub(first).cast_signed())
        };
        let (mut details, mut repeated, mut repeated_octets, mut filled) = (Vec::new(), String::new(), 0, 0);
        for event in &self.events {
            match *event {
                SegmentEvent::Duplicate { age, original_ttl } => {
                    let ttl = if original_ttl == packet.ttl { String::new() } else { format!(", TTL {original_ttl}") };
                    let original = self.sides[side].recent_frames.get(age);
                    details.extend(original.map(|frame| format!("of frame {frame}{ttl}")));
                }
                SegmentEvent::PositionsStarted { restarted: true, .. } => {
                    details.push("sequence numbers restart".into());
                }
                SegmentEvent::PositionsStarted { .. } => {}
                SegmentEvent::Repeated(Range { start, end }) => {
                    repeated += &format!(" {}", range(start, end));
                    repeated_octets += end - start;
                }
                SegmentEvent::HoleOpened(Range { start, end }) => {
                    details.push(format!("opens hole {}, {}", range(start, end), octets(end - start)));
                }
                SegmentEvent::HoleFilled(Range { start, end }) => filled += end - start,
                SegmentEvent::HoleSettled(Range { start, end }) => {
                    details.push(format!("settles hole {}, too many holes", range(start, end)));
                }
                SegmentEvent::PartialRetransmission => {
                    let new = u64::from(packet.payload_bytes).saturating_sub(repeated_octets);
                    details.extend((new > 0).then(|| format!("{} new", octets(new))));
                }
                SegmentEvent::SpuriousRetransmission => {
                    details.push("spurious, all of it had been acknowledged".into());
                }
                SegmentEvent::HandshakeAnswered { rtt_ns } => {
                    let name = if side == self.engine_side(0) { "client" } else { "server" };
                    details.push(format!("round-trip time on the {name} side {}", units::span(rtt_ns)));
                }
                SegmentEvent::RequestAnswered { response_ns } => {
                    details.push(format!("answers after {}", units::span(response_ns)));
                }
                SegmentEvent::PayloadAcknowledged { rtt_ns } => {
                    details.push(format!("acknowledges after {}", units::span(rtt_ns)));
                }
                SegmentEvent::ZeroWindow => details.push("announces a window of 0".into()),
                SegmentEvent::Degraded(bit) => {
                    details.extend(Degradation(bit).names().map(|name| format!("marked {name}")));
                }
            }
        }
        if packet.flags.has(Flags::FRAGMENT_FIRST) {
            details.push("first fragment, the others are not read".into());
        }
        if filled > 0 {
            let missing = match self.tracker.report(side).missing_bytes {
                0 => "none missing now".into(),
                missing => format!("{missing} still missing"),
            };
            details.insert(0, format!("fills {}, {missing}", octets(filled)));
        }
        if repeated_octets > 0 {
            details.insert(0, format!("repeats{repeated}, {}", octets(repeated_octets)));
        } else if class == SegmentClass::Retransmission && packet.payload_bytes == 0 {
            details.insert(0, "repeats the FIN".into());
        }
        details
    }
}

impl<W: Write> PacketConsumer for SegmentList<'_, W> {
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        for (packet, &frame) in packets.iter().zip(frame_numbers) {
            let Some(side) = self.tracker.side(packet) else { continue };
            if self.tracker.number <= self.number && self.tracker.opens_next(packet) {
                if self.tracker.number == self.number {
                    // The state stays that of this connection: later ones do not matter.
                    self.tracker.number += 1;
                } else {
                    self.tracker.start_next();
                }
            }
            if self.tracker.number == self.number {
                self.write_segment(side, packet, frame);
            } else if self.tracker.number < self.number {
                self.tracker.classify(side, packet, |_| {});
            }
        }
    }
}

/// A difference of sequence numbers as a signed number.
fn signed(difference: u32) -> i64 {
    difference.cast_signed().into()
}

/// The fields of records in which the reports of the engine and other reports differ: name and both
/// values.
fn differences(connection: &Connection, reports: [TcpReport; 2]) -> Vec<String> {
    let fields = |connection: &Connection| -> Map<String, Value> {
        let mut text = Vec::new();
        append_tcp_json(&connection.to_flow_record(), &mut text);
        serde_json::from_slice(&text).expect("a record is a JSON object")
    };
    let others = fields(&connection.with_reports(reports));
    let differing = fields(connection).into_iter().filter(|(name, value)| others.get(name) != Some(value));
    differing.map(|(name, value)| format!("{name}: {value}, {}", others[&name])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_pairs::EndpointPairs;
    use weir_tcp::SegmentCount;
    use weir_tcp_batch::ConnectionRecord;

    #[test]
    fn differences_have_the_field_name_and_both_values() {
        let endpoints = ["192.0.2.1:1000", "192.0.2.2:80"].map(|endpoint| endpoint.parse().unwrap());
        let record =
            ConnectionRecord { endpoints, first_ns: 0, last_ns: 0, packets: [3, 4], reports: Default::default() };
        let connection = Connection::new(record, &EndpointPairs::with_limit(1));
        let mut reports = connection.reports();
        assert!(differences(&connection, reports).is_empty());
        reports[1].classes[SegmentClass::OutOfOrder as usize] = SegmentCount { segments: 2, bytes: 300 };
        reports[0].handshake_rtt_ns = Some(5);
        let all = differences(&connection, reports).join("; ");
        for expected in
            ["fwd_tcp_handshake_rtt_ns: null, 5", "rev_tcp_out_of_order: 0, 2", "rev_tcp_out_of_order_bytes: 0, 300"]
        {
            assert!(all.contains(expected), "{all}");
        }
    }
}
