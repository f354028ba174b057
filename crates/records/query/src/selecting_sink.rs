//! A sink that passes only the records that expressions select, of a share of all flows, to another sink.

use crate::expression::Expression;
use crate::share::Share;
use std::net::SocketAddr;
use std::time::Instant;
use weir_export::{Error, MeteringStatus, Sink, Watch};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Passes the records of its share that all expressions select. The others are counted as `filtered`.
pub struct SelectingSink {
    sink: Box<dyn Sink + Send>,
    expressions: Vec<Expression>,
    /// `None`: all flows.
    share: Option<Share>,
    /// The selected records of a batch.
    selected: Vec<FlowRecord>,
    counters: SinkCounters,
}

impl SelectingSink {
    /// `name` is the sink as the user wrote it.
    pub fn new(name: &str, sink: Box<dyn Sink + Send>, expressions: Vec<Expression>, share: Option<Share>) -> Self {
        let counters = SinkCounters { sink: name.into(), ..sink.counters().clone() };
        Self { sink, expressions, share, selected: Vec::new(), counters }
    }

    /// Takes over the counters of the other sink, which knows neither the name nor the other records.
    fn update_counters(&mut self) {
        let sink = std::mem::take(&mut self.counters.sink);
        self.counters = SinkCounters { sink, filtered: self.counters.filtered, ..self.sink.counters().clone() };
    }
}

impl Sink for SelectingSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        self.selected.clear();
        for flow in flows {
            let is_in_share = self.share.is_none_or(|share| share.has(flow));
            if is_in_share && self.expressions.iter().all(|expression| expression.matches(flow)) {
                self.selected.push(flow.clone());
            } else {
                self.counters.filtered.add(flow.packets(), flow.frame_bytes());
            }
        }
        let result = if self.selected.is_empty() {
            // The sink has no records, like one that gets no batch.
            self.sink.tick();
            Ok(())
        } else {
            self.sink.write(&self.selected)
        };
        self.update_counters();
        result
    }

    fn connect(&mut self) -> bool {
        self.sink.connect()
    }

    fn set_metering_status(&mut self, status: &MeteringStatus) {
        self.sink.set_metering_status(status);
    }

    fn tick(&mut self) {
        self.sink.tick();
        self.update_counters();
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.sink.wakes_at()
    }

    fn reopen(&mut self) {
        self.sink.reopen();
        self.update_counters();
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        self.sink.drain(flows, until);
    }

    fn watch(&mut self, watch: &Watch) {
        self.sink.watch(watch);
    }

    fn finish(&mut self) -> Result<(), Error> {
        let result = self.sink.finish();
        self.update_counters();
        result
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        self.sink.udp_endpoints()
    }
}
