//! Text formats: JSON, one object per line, and CSV with a header line (RFC 4180, but lines end
//! with LF). Also whole TCP connections (`weir tcp`) as JSON and CSV, with the same names.
//!
//! Lines are appended to one reused buffer. No name, address or number of a field has a character
//! that JSON or CSV must escape (a test checks this), so text is copied as it is.

use crate::compression::{Compression, whole_lines_in_frames};
use crate::file_output::{FileOutput, RecordBoundary, check_records, whole_lines};
use crate::pending_records::PendingRecords;
use crate::rotation::RotatedName;
use crate::sink::{Error, ExportOptions, Sink};
use crate::unidirectional::unidirectional;
use std::fs::File;
use std::io;
use std::sync::LazyLock;
use weir_fields::{Column, FieldValue, Origin, Profile, columns};
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
    columns: Vec<&'static Column>,
    uniflow: bool,
    /// Octets with which a file begins.
    start: Vec<u8>,
    buffer: Vec<u8>,
    boundaries: Vec<RecordBoundary>,
    output: FileOutput,
    counters: SinkCounters,
}

impl TextSink {
    pub fn create(
        sink: &str,
        path: &str,
        format: TextFormat,
        columns: Vec<&'static Column>,
        rotated: Option<RotatedName>,
        options: &ExportOptions,
    ) -> Result<Self, Error> {
        let start = start(format, &columns);
        let mut whole = |compression, file: &File, length| whole_text(compression, file, length, &start);
        let output = FileOutput::open(sink, path, rotated, options, &mut whole)?;
        let mut sink = Self {
            format,
            columns,
            uniflow: options.uniflow,
            start,
            buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
            boundaries: Vec::new(),
            output,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        };
        if !sink.output.is_rotated() {
            sink.begin();
        }
        Ok(sink)
    }

    /// Adds the header to an empty file, also if its first write failed.
    fn begin(&mut self) {
        if self.format == TextFormat::Csv && self.buffer.is_empty() && self.output.is_empty() {
            self.buffer.extend(&self.start);
        }
    }

    /// Ends the file, and begins another one.
    fn rotate(&mut self) {
        self.flush();
        self.output.rotate(&mut self.counters);
    }

    fn flush(&mut self) {
        self.output.write(&self.buffer, &self.boundaries, &mut self.counters);
        self.buffer.clear();
        self.boundaries.clear();
    }
}

impl Sink for TextSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if self.output.is_removed() {
            self.reopen();
        }
        if !self.output.is_ready() {
            self.output.lose(flows, &mut self.counters);
            return self.output.report_end();
        }
        for flow in flows {
            if self.output.is_due(flow) {
                self.rotate();
            }
            self.begin();
            let lines = append_lines(self.format, &self.columns, self.uniflow, flow, &mut self.buffer);
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

    fn tick(&mut self) {
        if self.output.is_over() {
            self.rotate();
        }
    }

    fn reopen(&mut self) {
        let start = &self.start;
        let mut whole = |compression, file: &File, length| whole_text(compression, file, length, start);
        self.output.reopen(&mut self.counters, &mut whole);
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush();
        self.output.finish(&mut self.counters)
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

/// Appends the lines of a flow: one, or with `uniflow` one for each direction. Returns their number.
pub(crate) fn append_lines(
    format: TextFormat,
    columns: &[&Column],
    uniflow: bool,
    flow: &FlowRecord,
    out: &mut Vec<u8>,
) -> u64 {
    let mut append = |record: &FlowRecord| {
        append_record(format, columns, record, flow, out);
        out.push(b'\n');
    };
    if !uniflow {
        append(flow);
        return 1;
    }
    unidirectional(flow).map(|(part, _)| append(&part)).count() as u64
}

/// Checks that records can be appended to a file, if it exists.
pub(crate) fn check_text(sink: &str, path: &str, format: TextFormat, columns: &[&Column]) -> Result<(), Error> {
    let start = start(format, columns);
    check_records(sink, path.as_ref(), &mut |compression, file, length| whole_text(compression, file, length, &start))
}

/// How each file begins.
fn start(format: TextFormat, columns: &[&Column]) -> Vec<u8> {
    let start = match format {
        TextFormat::Json => format!("{{\"{}\":", columns[0].name),
        TextFormat::Csv => columns.iter().map(|column| column.name).collect::<Vec<_>>().join(",") + "\n",
    };
    start.into_bytes()
}

fn whole_text(compression: Option<Compression>, file: &File, length: u64, start: &[u8]) -> io::Result<Option<u64>> {
    match compression {
        Some(compression) => whole_lines_in_frames(compression, file, length, start),
        None => whole_lines(file, length, start),
    }
}

/// The columns of TCP connections (`weir tcp`). Others (IP octets, inter-arrival times, VLANs) are not
/// known of them.
pub fn tcp_columns() -> &'static [&'static Column] {
    static COLUMNS: LazyLock<Vec<&Column>> = LazyLock::new(|| {
        columns()
            .iter()
            .filter(|column| column.is_of(Origin::TcpAnalysis) || column.is_in(Profile::Connection))
            .collect()
    });
    &COLUMNS
}

/// Appends some columns of a record as a JSON object, as the sink of JSON does.
pub fn append_json_record(columns: &[&Column], flow: &FlowRecord, out: &mut Vec<u8>) {
    append_record(TextFormat::Json, columns, flow, flow, out);
}

/// Appends some columns of a flow, or of one direction of it, as a JSON object.
pub(crate) fn append_part(columns: &[&Column], record: &FlowRecord, flow: &FlowRecord, out: &mut Vec<u8>) {
    append_record(TextFormat::Json, columns, record, flow, out);
}

/// Appends a TCP connection as a JSON object.
pub fn append_tcp_json(connection: &FlowRecord, out: &mut Vec<u8>) {
    append_record(TextFormat::Json, tcp_columns(), connection, connection, out);
}

/// Appends a TCP connection as a line of CSV that ends with LF.
pub fn append_tcp_csv(connection: &FlowRecord, out: &mut Vec<u8>) {
    append_record(TextFormat::Csv, tcp_columns(), connection, connection, out);
    out.push(b'\n');
}

/// Appends some columns of a record, a flow or one direction of it, without a line end. What is computed from several
/// columns, as the address of the server, is that of the flow.
fn append_record(format: TextFormat, columns: &[&Column], record: &FlowRecord, flow: &FlowRecord, out: &mut Vec<u8>) {
    for (at, column) in columns.iter().enumerate() {
        let is_computed = !column.properties.computed_from.is_empty();
        let value = column.read(if is_computed { flow } else { record });
        match (format, at) {
            (TextFormat::Csv, 0) => append_csv(&value, out),
            (TextFormat::Csv, _) => {
                out.push(b',');
                append_csv(&value, out);
            }
            (TextFormat::Json, _) => {
                out.extend(if at == 0 { b"{" } else { &b""[..] });
                out.extend(&column.json_key.as_bytes()[usize::from(at == 0)..]);
                append_json(&value, out);
            }
        }
    }
    if format == TextFormat::Json {
        out.push(b'}');
    }
}

fn append_json(value: &FieldValue<'_>, out: &mut Vec<u8>) {
    match value {
        FieldValue::NotApplicable => out.extend(b"null"),
        FieldValue::Unsigned(_) | FieldValue::Float(_) => value.append_text(out),
        FieldValue::Text(text) => append_json_text(text, out),
        _ => {
            out.push(b'"');
            value.append_text(out);
            out.push(b'"');
        }
    }
}

/// Appends a text of a record as a JSON string. It has no control characters, so that only two characters have to
/// be escaped.
pub fn append_json_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for part in text.split_inclusive(['"', '\\']) {
        match part.as_bytes() {
            [before @ .., special @ (b'"' | b'\\')] => out.extend([before, b"\\", &[*special]].concat()),
            part => out.extend(part),
        }
    }
    out.push(b'"');
}

fn append_csv(value: &FieldValue<'_>, out: &mut Vec<u8>) {
    match value {
        FieldValue::Text(text) => append_csv_text(text, out),
        value => value.append_text(out),
    }
}

/// Appends a text of a record as a field of CSV (RFC 4180): in quotation marks if it has a comma or a quotation
/// mark.
pub fn append_csv_text(text: &str, out: &mut Vec<u8>) {
    if text.contains([',', '"']) {
        out.push(b'"');
        out.extend(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::{Approximate, Direction, EndReason};
    use weir_packet::TunnelType;
    use weir_tcp::TcpReport;

    #[test]
    fn no_name_and_no_word_needs_escaping() {
        let reasons =
            [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow, EndReason::Forced, EndReason::LackOfResources];
        let words = columns()
            .iter()
            .map(|column| column.name)
            .chain(TunnelType::ALL.iter().filter_map(|tunnel| tunnel.name()))
            .chain(reasons.iter().map(|reason| reason.name()))
            .chain(Approximate(0xffff).names())
            .chain((0..=255).filter_map(weir_fields::protocol_name));
        for word in words {
            assert!(word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'), "{word}");
        }
    }

    #[test]
    fn texts_are_escaped() {
        let text = FieldValue::Text("a,\"b\\\\c\"".into());
        let (mut json, mut csv) = (Vec::new(), Vec::new());
        append_json(&text, &mut json);
        append_csv(&text, &mut csv);
        assert_eq!(String::from_utf8(json).unwrap(), r#""a,\"b\\\\c\"""#);
        assert_eq!(String::from_utf8(csv).unwrap(), r#""a,""b\\c""""#);
        let parsed: String = serde_json::from_slice(&{
            let mut json = Vec::new();
            append_json(&text, &mut json);
            json
        })
        .unwrap();
        assert_eq!(parsed, text.to_string());
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
        assert_eq!(cells.len(), tcp_columns().len());
        assert_eq!(json.as_object().unwrap().len(), cells.len());
        for (name, cell) in tcp_columns().iter().map(|column| column.name).zip(cells) {
            let value = &json[name];
            let text = value.as_str().map_or_else(|| value.to_string(), String::from);
            assert_eq!(cell, if value.is_null() { "" } else { &text }, "{name}");
        }
        assert_eq!((&json["fwd_tcp_unique_bytes"], &json["duration_ns"]), (&42.into(), &2.into()));
        assert_eq!(json["rev_tcp_unique_bytes"], 0);
    }
}
