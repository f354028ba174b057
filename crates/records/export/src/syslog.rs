//! Flow records as syslog messages (RFC 5424), one per message, whose text is the JSON of the record.
//!
//! ```text
//! <134>1 2026-11-29T08:56:58.123456Z host weir - flow - {"start_time":...}
//! ```
//! Over a connection each message has its length in front (octet counting, RFC 6587 and 5425). Over UDP each has
//! a datagram of its own (RFC 5426): a record that is too long for one is lost as a whole, not in part.

use crate::host::host_name;
use crate::json_csv::{TextFormat, append_lines};
use crate::pending_records::PendingRecords;
use crate::sink::{Error, ExportOptions, Intake, Sink};
use crate::stream::StreamOutput;
use crate::udp::UdpOutput;
use crate::watch::Watch;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use std::net::SocketAddr;
use std::time::Instant;
use weir_fields::Column;
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, SinkCounters};

/// Every syslog receiver takes a datagram of this length over IPv4, octets (RFC 5426 section 3.2).
pub(crate) const MIN_DATAGRAM_BYTES: usize = 480;
/// Severity of the messages: informational.
const SEVERITY: u8 = 6;
const TIME: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// Where messages go.
pub(crate) enum SyslogOutput {
    Stream(Box<StreamOutput>),
    /// With the longest datagram, octets.
    Udp(Box<UdpOutput>, usize),
}

pub(crate) struct SyslogSink {
    columns: Vec<&'static Column>,
    uniflow: bool,
    /// What a message begins with, in front of the time.
    start: String,
    /// What is between the time and the text.
    middle: String,
    /// The lines of a flow.
    lines: Vec<u8>,
    /// Its messages, one after another.
    messages: Vec<u8>,
    /// Where they end.
    ends: Vec<usize>,
    output: SyslogOutput,
    counters: SinkCounters,
}

impl SyslogSink {
    /// `facility`: its number.
    pub fn new(
        sink: &str,
        output: SyslogOutput,
        facility: u8,
        columns: Vec<&'static Column>,
        options: &ExportOptions,
    ) -> Self {
        Self {
            columns,
            uniflow: options.uniflow,
            start: format!("<{}>1 ", 8 * facility + SEVERITY),
            middle: format!(" {} weir - flow - ", host_name()),
            lines: Vec::new(),
            messages: Vec::new(),
            ends: Vec::new(),
            output,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        }
    }

    fn write_flow(&mut self, flow: &FlowRecord) {
        self.lines.clear();
        self.messages.clear();
        self.ends.clear();
        let lines = append_lines(TextFormat::Json, &self.columns, self.uniflow, flow, &mut self.lines);
        let pending = PendingRecords::of_flow(flow, lines);
        let is_counted = matches!(self.output, SyslogOutput::Stream(_));
        let time = time(flow.end_ns());
        for line in self.lines.split(|&octet| octet == b'\n').filter(|line| !line.is_empty()) {
            let parts = [self.start.as_bytes(), time.as_bytes(), self.middle.as_bytes(), line];
            if is_counted {
                let length: usize = parts.iter().map(|part| part.len()).sum();
                self.messages.extend(format!("{length} ").into_bytes());
            }
            parts.iter().for_each(|part| self.messages.extend(*part));
            self.ends.push(self.messages.len());
        }
        if let SyslogOutput::Stream(stream) = &mut self.output {
            stream.push(&self.messages, pending, None);
        } else {
            self.send(pending);
        }
    }

    /// Sends each message of a flow in a datagram. The flow is lost if one of them is.
    fn send(&mut self, pending: PendingRecords) {
        let SyslogOutput::Udp(udp, max_datagram) = &mut self.output else { return };
        let starts = || [0].into_iter().chain(self.ends.iter().copied());
        let mut messages = starts().zip(&self.ends).map(|(start, &end)| &self.messages[start..end]);
        if messages.clone().any(|message| message.len() > *max_datagram) {
            return pending.count_lost(ExportLossReason::TooLong, &mut self.counters);
        }
        if self.ends.len() == 1 {
            for message in messages {
                udp.send(message, pending, &mut self.counters);
            }
            return;
        }
        // A reported loss concerns the datagram before, which is of this flow from the second one on.
        let mut lost = None;
        let first = messages.next().map(|message| udp.send(message, PendingRecords::default(), &mut self.counters));
        let mut is_accepted = first.is_some_and(|sent| sent.accepted);
        for message in messages {
            let sent = udp.send(message, PendingRecords::default(), &mut self.counters);
            lost = sent.lost_before.or(lost);
            is_accepted &= sent.accepted;
        }
        if !is_accepted {
            let is_connected = udp.is_connected();
            let reason =
                if is_connected { ExportLossReason::WriteFailed } else { ExportLossReason::CollectorUnreachable };
            lost = lost.or(Some(reason));
        }
        match lost {
            None => udp.complete(pending, &mut self.counters),
            Some(reason) => pending.count_lost(reason, &mut self.counters),
        }
    }

    /// Messages have no session: a new connection begins with those that wait.
    fn settle(&mut self, all: bool) {
        if let SyslogOutput::Stream(stream) = &mut self.output {
            while stream.settle(all, &mut self.counters) {}
        }
    }
}

impl Sink for SyslogSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        flows.iter().for_each(|flow| self.write_flow(flow));
        self.settle(false);
        Ok(())
    }

    fn connect(&mut self) -> bool {
        match &mut self.output {
            SyslogOutput::Stream(stream) => {
                stream.connect(&mut self.counters);
                false
            }
            SyslogOutput::Udp(udp, _) => udp.connect(),
        }
    }

    fn tick(&mut self) {
        if let SyslogOutput::Stream(stream) = &mut self.output {
            stream.tick(&mut self.counters);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        if let SyslogOutput::Stream(stream) = &self.output { stream.wakes_at() } else { None }
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        match &mut self.output {
            SyslogOutput::Stream(stream) => stream.drain(until),
            SyslogOutput::Udp(udp, _) => udp.drain(flows, until),
        }
    }

    fn watch(&mut self, watch: &Watch) {
        if let SyslogOutput::Stream(stream) = &mut self.output {
            stream.watch(watch);
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.settle(true);
        match &mut self.output {
            SyslogOutput::Stream(stream) => stream.close(&mut self.counters),
            SyslogOutput::Udp(udp, _) => {
                udp.finish(&mut self.counters);
            }
        }
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        if let SyslogOutput::Udp(udp, _) = &self.output { udp.endpoints() } else { None }
    }

    fn intake(&self) -> Option<Intake> {
        if let SyslogOutput::Stream(stream) = &self.output { Some(stream.intake()) } else { None }
    }

    fn take_back(&mut self, most: u64, all: bool) -> u64 {
        if let SyslogOutput::Stream(stream) = &mut self.output { stream.take_back(most, all) } else { 0 }
    }
}

/// `2026-11-29T08:56:58.123456Z`: a message has no more digits.
fn time(time_ns: u64) -> String {
    let time = Timestamp::new((time_ns / 1_000_000_000) as i64, (time_ns % 1_000_000_000) as i32);
    TIME.timestamp_to_string(&time.expect("64 bits of ns end in the year 2554"))
}
