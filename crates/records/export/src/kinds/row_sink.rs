//! Flow records as rows, for what writes them column by column.

use crate::pending_records::totals;
use crate::sink::{Error, ExportOptions, Sink};
use crate::unidirectional::unidirectional;
use weir_flow::FlowRecord;
use weir_ledger::{RecordTotals, SinkCounters};
use weir_store::{Row, RowForm};

/// What takes rows: a store, a file, or a stream.
pub(super) trait RowWriter: Send {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<(), Error>;

    fn tick(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error>;

    fn counters(&self) -> &SinkCounters;
}

/// A sink that passes rows on: flows, or with `--uniflow` their directions.
pub(super) struct RowSink<W> {
    uniflow: bool,
    writer: W,
    /// Why it has ended, until this is reported.
    error: Option<Error>,
}

impl<W: RowWriter> RowSink<W> {
    pub fn new(options: &ExportOptions, writer: W) -> Self {
        Self { uniflow: options.uniflow, writer, error: None }
    }

    fn write_rows(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if !self.uniflow {
            let row = |flow| Row { record: flow, flow, totals: totals(flow) };
            return self.writer.write(&flows.iter().map(row).collect::<Vec<_>>());
        }
        for flow in flows {
            let parts: Vec<FlowRecord> = unidirectional(flow).map(|(part, _)| part).collect();
            let counted = |at| if at == 0 { totals(flow) } else { RecordTotals::default() };
            let row = |(at, record)| Row { record, flow, totals: counted(at) };
            self.writer.write(&parts.iter().enumerate().map(row).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

impl<W: RowWriter> Sink for RowSink<W> {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        let written = self.write_rows(flows).and_then(|()| self.writer.tick());
        self.error.take().map_or(Ok(()), Err).and(written)
    }

    fn tick(&mut self) {
        if let Err(error) = self.writer.tick() {
            self.error.get_or_insert(error);
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        let finished = self.writer.finish();
        self.error.take().map_or(Ok(()), Err).and(finished)
    }

    fn counters(&self) -> &SinkCounters {
        self.writer.counters()
    }
}

/// What the rows of a sink are.
pub(super) fn row_form(options: &ExportOptions) -> RowForm {
    RowForm {
        is_uniflow: options.uniflow || options.directions,
        is_anonymised: options.anonymised,
        is_transactions: options.transactions,
    }
}
