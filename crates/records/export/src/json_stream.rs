//! JSON over a connection, one object per line, for log collectors such as Vector and Fluent Bit.

use crate::json_csv::{TextFormat, append_lines};
use crate::pending_records::PendingRecords;
use crate::sink::{Error, ExportOptions, Intake, Sink};
use crate::stream::StreamOutput;
use crate::watch::Watch;
use std::time::Instant;
use weir_fields::Column;
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

pub(crate) struct JsonStreamSink {
    columns: Vec<&'static Column>,
    uniflow: bool,
    /// The lines of a flow.
    lines: Vec<u8>,
    output: StreamOutput,
    counters: SinkCounters,
}

impl JsonStreamSink {
    pub fn new(sink: &str, output: StreamOutput, columns: Vec<&'static Column>, options: &ExportOptions) -> Self {
        let counters = SinkCounters { sink: sink.into(), ..SinkCounters::default() };
        Self { columns, uniflow: options.uniflow, lines: Vec::new(), output, counters }
    }

    /// Lines have no session: a new connection begins with those that wait.
    fn settle(&mut self, all: bool) {
        while self.output.settle(all, &mut self.counters) {}
    }
}

impl Sink for JsonStreamSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        for flow in flows {
            self.lines.clear();
            let lines = append_lines(TextFormat::Json, &self.columns, self.uniflow, flow, &mut self.lines);
            self.output.push(&self.lines, PendingRecords::of_flow(flow, lines), None);
        }
        self.settle(false);
        Ok(())
    }

    fn connect(&mut self) -> bool {
        self.output.connect(&mut self.counters);
        false
    }

    fn tick(&mut self) {
        self.output.tick(&mut self.counters);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.output.wakes_at()
    }

    fn drain(&mut self, _flows: u64, until: Instant) {
        self.output.drain(until);
    }

    fn watch(&mut self, watch: &Watch) {
        self.output.watch(watch);
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.settle(true);
        self.output.close(&mut self.counters);
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn intake(&self) -> Option<Intake> {
        Some(self.output.intake())
    }

    fn take_back(&mut self, most: u64, all: bool) -> u64 {
        self.output.take_back(most, all)
    }
}
