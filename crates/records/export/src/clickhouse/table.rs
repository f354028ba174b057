//! Whether the table of a server takes the rows of a sink.

use super::client::{Client, Failure, shortened};
use std::sync::atomic::AtomicBool;
use weir_clickhouse::{Difference, LiveColumn, PROBE, RowColumn, TableName, Window, compare, quoted_text, window};

/// A table of a server beside the rows of a sink.
#[derive(Debug)]
pub struct TableReport {
    /// Its columns.
    pub live: Vec<LiveColumn>,
    /// What it lacks.
    pub differences: Vec<Difference>,
    /// Its engine with all settings.
    pub engine: String,
    /// Whether it refuses a block that it got before.
    pub window: Window,
}

impl TableReport {
    /// Asks the server.
    pub(crate) fn of(
        client: &mut Client,
        table: &TableName,
        columns: &[RowColumn],
        stop: &AtomicBool,
    ) -> Result<Self, Failure> {
        let (database, name) = (quoted_text(&table.database), quoted_text(&table.table));
        let engines = format!("SELECT engine_full FROM system.tables WHERE database = {database} AND name = {name}");
        let engines = client.ask(&engines, stop)?;
        let Some(engine) = engines.lines().next().map(String::from) else {
            return Err(Failure::Refused(format!(
                "there is no table {table}, or the user may not see it; make it with: weir clickhouse schema --database \
                 {} --table {}",
                table.database, table.table
            )));
        };
        let columns_of_table = format!(
            "SELECT name, type, default_kind FROM system.columns WHERE database = {database} AND table = {name} ORDER BY \
             position"
        );
        let text = client.ask(&columns_of_table, stop)?;
        let live: Vec<_> = text.lines().filter_map(live_column).collect();
        if live.is_empty() {
            return Err(Failure::Refused(format!(
                "the server does not answer as ClickHouse does, but with {:?}",
                shortened(&engine)
            )));
        }
        Ok(Self { differences: compare(columns, &live), live, window: window(&engine), engine })
    }

    /// Fails if the table lacks something.
    pub(crate) fn check(self, table: &TableName) -> Result<Self, Failure> {
        let Some(first) = self.differences.first() else { return Ok(self) };
        let others = match self.differences.len() {
            1 => String::new(),
            number => format!(" ({} other columns do not fit either)", number - 1),
        };
        if self.lacks_probe() {
            return Err(Failure::Refused(format!("the table {table} does not fit: {}{others}", no_probe(table))));
        }
        Err(Failure::Refused(format!(
            "the table {table} does not fit: {first}{others}; weir clickhouse check shows all, and weir clickhouse schema \
             prints the statements that make a table"
        )))
    }

    /// Whether the first thing that it lacks is the column of the probe: a table that was made before there was one.
    fn lacks_probe(&self) -> bool {
        matches!(self.differences.first(), Some(Difference::Missing { name, .. }) if name == PROBE)
    }

    /// What it lacks, and what to do about it.
    pub fn problems(&self, table: &TableName) -> Vec<String> {
        let problem = |difference: &Difference| match difference {
            Difference::Missing { name, .. } if name == PROBE => no_probe(table),
            other => other.to_string(),
        };
        self.differences.iter().map(problem).chain(self.window_warning().map(String::from)).collect()
    }

    /// What a user should know of the window.
    pub fn window_warning(&self) -> Option<&'static str> {
        match self.window {
            Window::Known(_) => None,
            Window::Off => Some(
                "the table has no non_replicated_deduplication_window, so rows can be inserted twice after the loss of a \
                 connection",
            ),
            Window::Unknown => Some(
                "the engine of the table is none that is known to refuse a block that it got before, so rows can be \
                 inserted twice after the loss of a connection",
            ),
        }
    }
}

/// How a table gets the column of the probe, or is filled without it.
fn no_probe(table: &TableName) -> String {
    format!(
        "it has no column {PROBE}, which names the probe that wrote a row; add it with: ALTER TABLE {} ADD COLUMN {PROBE} \
         LowCardinality(String), or write probe= behind the table to send rows without it",
        table.quoted()
    )
}

fn live_column(line: &str) -> Option<LiveColumn> {
    let mut parts = line.split('\t');
    let mut part = || parts.next().map(String::from);
    Some(LiveColumn { name: part()?, type_name: part()?, default_kind: part().unwrap_or_default() })
}
