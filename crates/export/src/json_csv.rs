//! Text formats: JSON, one object per line, and CSV with a header line (RFC 4180, but lines end
//! with LF).
//!
//! Lines are appended to one reused buffer. No name, address or number of a field has a character
//! that JSON or CSV must escape (a test checks this), so text is copied as it is.

use crate::field_value::FieldValue;
use crate::fields::{DirectionView, Field, Visitor, columns, unidirectional, visit_fields};
use crate::file_output::{FileOutput, RecordBoundary};
use crate::pending_records::PendingRecords;
use crate::sink::{Error, ExportOptions, Sink};
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use std::io::Write;
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Octets that are buffered before a write.
const BUFFER_BYTES: usize = 1 << 16;

/// JSON or CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    Json,
    Csv,
}

/// A sink that writes lines of text.
pub(crate) struct TextSink {
    format: TextFormat,
    uniflow: bool,
    /// Text before the value of each column: `,"name":` or a comma.
    prefixes: Vec<String>,
    buffer: Vec<u8>,
    boundaries: Vec<RecordBoundary>,
    output: FileOutput,
    counters: SinkCounters,
}

impl TextSink {
    pub fn create(sink: &str, path: &str, format: TextFormat, options: &ExportOptions) -> Result<Self, Error> {
        let output = FileOutput::create(sink, path)?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 4096);
        if format == TextFormat::Csv {
            buffer.extend(columns().collect::<Vec<_>>().join(",").into_bytes());
            buffer.push(b'\n');
        }
        let prefix = |(at, name): (usize, &str)| match format {
            TextFormat::Json => format!("{}\"{name}\":", if at == 0 { "{" } else { "," }),
            TextFormat::Csv => if at == 0 { "" } else { "," }.into(),
        };
        Ok(Self {
            format,
            uniflow: options.uniflow,
            prefixes: columns().enumerate().map(prefix).collect(),
            buffer,
            boundaries: Vec::new(),
            output,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        })
    }

    fn append(&mut self, flow: &FlowRecord, from_responder: bool) {
        let mut columns = Columns {
            format: self.format,
            has_tcp: flow.tcp.is_some(),
            prefixes: self.prefixes.iter(),
            out: &mut self.buffer,
        };
        visit_fields::<false>(&DirectionView::new(flow, false, from_responder), &mut columns);
        visit_fields::<true>(&DirectionView::new(flow, true, from_responder), &mut columns);
        if self.format == TextFormat::Json {
            self.buffer.push(b'}');
        }
        self.buffer.push(b'\n');
    }

    fn flush(&mut self) -> Result<(), Error> {
        let result = self.output.write(&self.buffer, &self.boundaries, &mut self.counters);
        self.buffer.clear();
        self.boundaries.clear();
        result
    }
}

struct Columns<'a> {
    format: TextFormat,
    /// The flow has TCP analysis.
    has_tcp: bool,
    prefixes: std::slice::Iter<'a, String>,
    out: &'a mut Vec<u8>,
}

impl Visitor for Columns<'_> {
    fn visit(&mut self, field: &'static Field, value: impl FnOnce() -> FieldValue) {
        let prefix = self.prefixes.next().expect("one per column");
        if field.tcp_only && !self.has_tcp && self.format == TextFormat::Json {
            return;
        }
        self.out.extend(prefix.as_bytes());
        append_value(self.format, &value(), self.out);
    }
}

impl Sink for TextSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        let mut result = Ok(());
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
            self.boundaries
                .push(RecordBoundary { end: self.buffer.len(), pending: PendingRecords::of_flow(flow, lines) });
            if self.buffer.len() >= BUFFER_BYTES {
                result = result.and(self.flush());
            }
        }
        // The reader of a pipe gets each batch at once.
        result.and(self.flush())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush()
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

/// Appends a value in a text format.
pub(crate) fn append_value(format: TextFormat, value: &FieldValue, out: &mut Vec<u8>) {
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
        FieldValue::Words(set) => append_words(set.names(), out),
        FieldValue::Degraded(set) => append_words(set.names(), out),
        FieldValue::Text(text) => out.extend(text.as_str().as_bytes()),
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
    use weir_flow::{Approximate, EndReason};
    use weir_packet::TunnelType;

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
        let names = columns();
        let reasons =
            [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow, EndReason::Forced, EndReason::LackOfResources];
        let words = names
            .chain(TunnelType::ALL.iter().filter_map(|tunnel| tunnel.name()))
            .chain(reasons.iter().map(|reason| reason.name()))
            .chain(Approximate(0xffff).names());
        for word in words {
            assert!(word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'), "{word}");
        }
    }
}
