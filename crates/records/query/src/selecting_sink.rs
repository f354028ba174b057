//! A sink that passes only the records that expressions select to another sink.

use crate::error::ExpressionError;
use crate::expression::Expression;
use std::net::SocketAddr;
use std::time::Instant;
use weir_export::{Error, MeteringStatus, Sink};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Passes the records that all expressions select. The others are counted as `filtered`.
pub struct SelectingSink {
    sink: Box<dyn Sink + Send>,
    expressions: Vec<Expression>,
    /// The selected records of a batch.
    selected: Vec<FlowRecord>,
    counters: SinkCounters,
}

impl SelectingSink {
    /// `name` is the sink as the user wrote it.
    pub fn new(name: &str, sink: Box<dyn Sink + Send>, expressions: Vec<Expression>) -> Self {
        let counters = SinkCounters { sink: name.into(), ..sink.counters().clone() };
        Self { sink, expressions, selected: Vec::new(), counters }
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
            if self.expressions.iter().all(|expression| expression.matches(flow)) {
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

    fn reopen(&mut self) {
        self.sink.reopen();
        self.update_counters();
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        self.sink.drain(flows, until);
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

/// Splits the specification of a sink from the expression of its setting `where`, which is the last
/// one: `?where=` or, behind other settings, `&where=`. The expression is all that follows, as it is
/// written.
pub fn split_where(sink: &str) -> (&str, Option<&str>) {
    let first = sink.find("?where=");
    let behind = sink.find('?').and_then(|settings| Some(settings + sink[settings..].find("&where=")?));
    match [first, behind].into_iter().flatten().min() {
        Some(at) => (&sink[..at], Some(&sink[at + "?where=".len()..])),
        None => (sink, None),
    }
}

/// The expression of a sink, if it has one.
///
/// # Errors
/// The expression is invalid.
pub fn expression_of(sink: &str) -> Result<Option<Expression>, ExpressionError> {
    split_where(sink).1.map(Expression::new).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expression_of_a_sink_is_all_behind_where() {
        for (sink, rest, expression) in [
            ("csv:flows.csv", "csv:flows.csv", None),
            ("csv:flows.csv?where=port 80 && bytes > 1k", "csv:flows.csv", Some("port 80 && bytes > 1k")),
            ("ipfix+udp://h:1?mtu=1400&where=tcp", "ipfix+udp://h:1?mtu=1400", Some("tcp")),
            ("csv:a?b&where=tcp", "csv:a?b", Some("tcp")),
            ("csv:a&where=tcp", "csv:a&where=tcp", None),
            ("csv:-?where=", "csv:-", Some("")),
        ] {
            assert_eq!(split_where(sink), (rest, expression), "{sink}");
        }
        assert!(expression_of("csv:-?where=").is_err() && expression_of("csv:-").unwrap().is_none());
    }
}
