//! A sink for tests.

use crate::account::totals;
use std::io;
use weir_export::{Error, Sink};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, SinkCounters};

/// A sink that exports a batch if its function returns true, and fails otherwise.
struct TestSink<F> {
    counters: SinkCounters,
    write: F,
}

/// A sink with a name.
pub fn sink(name: &str, write: impl FnMut(&[FlowRecord]) -> bool + Send + 'static) -> Box<dyn Sink + Send> {
    Box::new(TestSink { counters: SinkCounters { sink: name.into(), ..SinkCounters::default() }, write })
}

impl<F: FnMut(&[FlowRecord]) -> bool> Sink for TestSink<F> {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if !(self.write)(flows) {
            self.counters.add_lost(ExportLossReason::WriteFailed, totals(flows));
            return Err(Error::Io { sink: self.counters.sink.clone(), error: io::ErrorKind::StorageFull.into() });
        }
        self.counters.exported.merge(totals(flows));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}
