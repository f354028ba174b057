//! Text formats: JSON, one object per line, and CSV with a header line (RFC 4180, but lines end
//! with LF). Also whole TCP connections (`weir tcp`) as JSON and CSV, with the same names.
//!
//! Lines are appended to one reused buffer. No name, address or number of a field has a character
//! that JSON or CSV must escape (a test checks this), so text is copied as it is.

use crate::field_value::FieldValue;
use crate::fields::{DirectionView, Field, Visitor, columns, unidirectional, visit_fields};
use crate::file_output::{FileOutput, RecordBoundary, whole_lines};
use crate::pending_records::PendingRecords;
use crate::sink::{Error, ExportOptions, Sink};
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use std::io::Write;
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Octets that are buffered before a write.
const BUFFER_BYTES: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    Json,
    Csv,
}

pub(crate) struct TextSink {
    format: TextFormat,
    uniflow: bool,
    /// Octets that begin a file.
    header: Vec<u8>,
    buffer: Vec<u8>,
    boundaries: Vec<RecordBoundary>,
    output: FileOutput,
    counters: SinkCounters,
}

impl TextSink {
    pub fn create(sink: &str, path: &str, format: TextFormat, options: &ExportOptions) -> Result<Self, Error> {
        let mut names = columns(|_| true);
        let start = match format {
            TextFormat::Json => format!("{{\"{}\":", names.next().expect("records have fields")),
            TextFormat::Csv => names.collect::<Vec<_>>().join(",") + "\n",
        };
        let output = FileOutput::open(sink, path, options, |file, length| whole_lines(file, length, start.as_bytes()))?;
        let mut sink = Self {
            format,
            uniflow: options.uniflow,
            header: if format == TextFormat::Csv { start.into_bytes() } else { Vec::new() },
            buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
            boundaries: Vec::new(),
            output,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        };
        sink.begin();
        Ok(sink)
    }

    /// Adds the header to an empty file, also if its first write failed.
    fn begin(&mut self) {
        if self.buffer.is_empty() && self.output.is_empty() {
            self.buffer.extend(&self.header);
        }
    }

    fn append(&mut self, flow: &FlowRecord, from_responder: bool) {
        // The JSON of other flows has no TCP fields.
        let has_all = flow.tcp.is_some() || self.format == TextFormat::Csv;
        append_record(self.format, flow, from_responder, |field| has_all || !field.tcp_only, &mut self.buffer);
        self.buffer.push(b'\n');
    }

    fn flush(&mut self) {
        self.output.write(&self.buffer, &self.boundaries, &mut self.counters);
        self.buffer.clear();
        self.boundaries.clear();
    }
}

impl Sink for TextSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if !self.output.is_ready() {
            self.output.lose(flows, &mut self.counters);
            return self.output.report_end();
        }
        self.begin();
        for flow in flows {
            let mut lines = 1;
            if self.uniflow {
                lines = 0;
                for (part, from_responder) in unidirectional(flow) {
                    self.append(&part, from_responder);
                    lines += 1;
                }
            } else {
                self.append(flow, false);
            }
            let pending = PendingRecords::of_flow(flow, lines);
            self.boundaries.push(RecordBoundary { end: self.buffer.len(), pending });
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush();
            }
        }
        // The reader of a pipe gets each batch at once.
        self.flush();
        self.output.report_end()
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush();
        self.output.finish()
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

/// Fields of a TCP connection (`weir tcp`) besides the TCP fields. Others (IP octets, inter-arrival
/// times, VLANs) are not known.
const TCP_COMMON_FIELDS: [&str; 9] =
    ["start", "end", "duration_ns", "src_ip", "dst_ip", "src_port", "dst_port", "packets", "community_id"];

fn has_tcp_field(field: &Field) -> bool {
    field.tcp_only || TCP_COMMON_FIELDS.contains(&field.name)
}

/// The columns of TCP connections: the fields, then those of the reverse direction.
pub fn tcp_columns() -> impl Iterator<Item = &'static str> {
    columns(has_tcp_field)
}

/// Appends a TCP connection as a JSON object.
pub fn append_tcp_json(connection: &FlowRecord, out: &mut Vec<u8>) {
    append_record(TextFormat::Json, connection, false, has_tcp_field, out);
}

/// Appends a TCP connection as a line of CSV that ends with LF.
pub fn append_tcp_csv(connection: &FlowRecord, out: &mut Vec<u8>) {
    append_record(TextFormat::Csv, connection, false, has_tcp_field, out);
    out.push(b'\n');
}

/// Appends the fields of a record for which `has_field` is true, without a line end.
fn append_record(
    format: TextFormat,
    flow: &FlowRecord,
    from_responder: bool,
    has_field: impl Fn(&Field) -> bool,
    out: &mut Vec<u8>,
) {
    let mut columns = Columns { format, has_field, reverse: false, is_first: true, out };
    visit_fields::<false>(&DirectionView::new(flow, false, from_responder), &mut columns);
    columns.reverse = true;
    visit_fields::<true>(&DirectionView::new(flow, true, from_responder), &mut columns);
    if format == TextFormat::Json {
        out.push(b'}');
    }
}

struct Columns<'a, F> {
    format: TextFormat,
    has_field: F,
    reverse: bool,
    is_first: bool,
    out: &'a mut Vec<u8>,
}

impl<F: Fn(&Field) -> bool> Visitor for Columns<'_, F> {
    fn visit(&mut self, field: &'static Field, value: impl FnOnce() -> FieldValue) {
        if !(self.has_field)(field) {
            return;
        }
        let is_first = std::mem::replace(&mut self.is_first, false);
        let key = field.json_keys[usize::from(self.reverse)];
        match (self.format, is_first) {
            (TextFormat::Json, true) => {
                self.out.push(b'{');
                self.out.extend(&key.as_bytes()[1..]);
            }
            (TextFormat::Json, false) => self.out.extend(key.as_bytes()),
            (TextFormat::Csv, true) => {}
            (TextFormat::Csv, false) => self.out.push(b','),
        }
        append_value(self.format, &value(), self.out);
    }
}

/// Appends a value in a text format.
fn append_value(format: TextFormat, value: &FieldValue, out: &mut Vec<u8>) {
    let quote: &[u8] = match (format, value) {
        (TextFormat::Json, FieldValue::NotApplicable | FieldValue::NoValue) => return out.extend(b"null"),
        (TextFormat::Json, FieldValue::Unsigned(_) | FieldValue::Implied(_) | FieldValue::Float(_))
        | (TextFormat::Csv, _) => b"",
        (TextFormat::Json, _) => b"\"",
    };
    out.extend(quote);
    match value {
        FieldValue::NotApplicable | FieldValue::NoValue => {}
        FieldValue::Unsigned(number) | FieldValue::Implied(number) => {
            out.extend(itoa::Buffer::new().format(*number).as_bytes())
        }
        FieldValue::Float(number) => out.extend(zmij::Buffer::new().format(*number).as_bytes()),
        FieldValue::Time(ns) => append_time(*ns, out),
        FieldValue::Ip(address) => write!(out, "{address}").expect("memory takes every octet"),
        FieldValue::Mac(octets) => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            for (at, octet) in octets.iter().enumerate() {
                out.extend((at > 0).then_some(b':'));
                out.extend([DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]]);
            }
        }
        FieldValue::Code(_, word) => out.extend(word.as_bytes()),
        FieldValue::Approximate(set) => append_words(set.names(), out),
        FieldValue::Degraded(set) => append_words(set.names(), out),
        FieldValue::CommunityId(id) => out.extend(id),
    }
    out.extend(quote);
}

fn append_words(words: impl Iterator<Item = &'static str>, out: &mut Vec<u8>) {
    for (at, word) in words.enumerate() {
        out.extend((at > 0).then_some(b' '));
        out.extend(word.as_bytes());
    }
}

/// `2026-11-20T12:00:00.123456789Z` (RFC 3339).
fn append_time(time_ns: u64, out: &mut Vec<u8>) {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(9));
    let time = Timestamp::new((time_ns / 1_000_000_000) as i64, (time_ns % 1_000_000_000) as i32);
    let time = time.expect("64 bits of ns end in the year 2554");
    PRINTER.print_timestamp(&time, out).expect("memory takes every octet");
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::{Approximate, Direction, EndReason};
    use weir_packet::TunnelType;
    use weir_tcp::TcpReport;

    fn time(ns: u64) -> String {
        let mut text = Vec::new();
        append_time(ns, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn times_are_rfc_3339_with_nanoseconds() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(time(951_782_400_000_000_001), "2000-02-29T00:00:00.000000001Z");
        assert_eq!(time(1_795_176_000_123_456_789), "2026-11-20T12:00:00.123456789Z");
        assert_eq!(time(4_107_542_399_999_999_999), "2100-02-28T23:59:59.999999999Z");
        assert_eq!(time(4_107_542_400_000_000_000), "2100-03-01T00:00:00.000000000Z");
        assert_eq!(time(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }

    #[test]
    fn no_name_and_no_word_needs_escaping() {
        let reasons =
            [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow, EndReason::Forced, EndReason::LackOfResources];
        let words = columns(|_| true)
            .chain(TunnelType::ALL.iter().filter_map(|tunnel| tunnel.name()))
            .chain(reasons.iter().map(|reason| reason.name()))
            .chain(Approximate(0xffff).names());
        for word in words {
            assert!(word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'), "{word}");
        }
    }

    #[test]
    fn tcp_connections_have_all_columns_in_json_and_csv() {
        let forward = Direction { packets: 3, first_ns: 5, last_ns: 7, ..Direction::default() };
        let tcp = Some([TcpReport { unique_bytes: 42, ..TcpReport::default() }, TcpReport::default()]);
        let connection =
            FlowRecord { protocol: 6, source_port: 1000, destination_port: 80, forward, tcp, ..FlowRecord::default() };
        let (mut json, mut csv) = (Vec::new(), Vec::new());
        append_tcp_json(&connection, &mut json);
        append_tcp_csv(&connection, &mut csv);
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let cells: Vec<&str> = csv.trim_end().split(',').collect();
        assert_eq!(cells.len(), tcp_columns().count());
        assert_eq!(json.as_object().unwrap().len(), cells.len());
        for (name, cell) in tcp_columns().zip(cells) {
            let value = &json[name];
            let text = value.as_str().map_or_else(|| value.to_string(), String::from);
            assert_eq!(cell, if value.is_null() { "" } else { &text }, "{name}");
        }
        assert_eq!((&json["tcp_unique_bytes"], &json["duration_ns"]), (&42.into(), &2.into()));
        assert!(json["rev_tcp_unique_bytes"].is_null());
    }
}
