//! `weir clickhouse`: the statements that make a table, and whether the table of a server fits.

use crate::arguments::{ClickHouse, ClickHouseCheck, ClickHouseCommand, ClickHouseSchema};
use crate::console::{self, print_styled, style};
use crate::error::{ClickHouseError, Error};
use crate::run_status::RunStatus;
use std::collections::HashMap;
use weir_clickhouse::{Difference, RowColumn, TableSettings, Window, create_table, row_columns};
use weir_export::{Attempts, ClickHouseTable, InvalidSpec, TableReport};
use weir_ledger::Timing;
use weir_text::columns::{Column, lines};

pub fn run(arguments: &ClickHouse) -> Result<RunStatus, Error> {
    match &arguments.command {
        ClickHouseCommand::Schema(schema) => print_schema(schema),
        ClickHouseCommand::Check(check) => compare(check),
    }
}

fn print_schema(schema: &ClickHouseSchema) -> Result<RunStatus, Error> {
    let name = format!("{}.{}", schema.database, schema.table);
    let settings = TableSettings {
        name: name.parse().map_err(|_| ClickHouseError::Name(name))?,
        columns: schema.fields.0.clone(),
        ttl_seconds: schema.ttl_seconds,
        with_views: schema.views,
        topic: schema.kafka.clone(),
    };
    let text = create_table(&settings).map_err(ClickHouseError::Field)?;
    Ok(console::print(text.as_bytes()))
}

fn compare(check: &ClickHouseCheck) -> Result<RunStatus, Error> {
    let table = match ClickHouseTable::parse(&check.sink) {
        Some(parsed) => parsed.map_err(|invalid| weir_export::Error::from(InvalidSpec::of(&check.sink, invalid)))?,
        None => return Err(ClickHouseError::NoTable.into()),
    };
    let columns = row_columns(table.columns().unwrap_or(&check.fields.0), table.has_probe());
    let report = table.report(&columns, Attempts::from(&Timing::default()));
    let report = report.map_err(|error| weir_export::Error::Io { sink: check.sink.clone(), error })?;
    if !check.quiet {
        print_styled(&table_of(&columns, &report), style::table);
    }
    let problems = report.problems(table.table());
    if problems.is_empty() {
        let window = match report.window {
            Window::Known(Some(blocks)) => format!("the last {blocks} batches"),
            _ => "the last batches".into(),
        };
        let text =
            format!("{}: all {} columns fit, and {window} are not inserted twice\n", table.table(), columns.len());
        return Ok(if check.quiet { RunStatus::Success } else { console::print(text.as_bytes()) });
    }
    Err(ClickHouseError::Differs { table: table.table().to_string(), problems }.into())
}

/// A column that does not fit, and why.
fn state_of(difference: &Difference) -> (&str, &'static str) {
    match difference {
        Difference::Missing { name, .. } => (name, "missing"),
        Difference::Type { name, .. } => (name, "another type"),
        Difference::Computed { name, .. } => (name, "computed"),
    }
}

/// Each column of Weir beside that of the table, and then the others of the table.
fn table_of(columns: &[RowColumn], report: &TableReport) -> String {
    let states: HashMap<_, _> = report.differences.iter().map(state_of).collect();
    let found = |name: &str| report.live.iter().find(|live| live.name == name).map_or("-", |live| &live.type_name);
    let own = columns.iter().map(|column| {
        let state = states.get(column.name.as_str()).copied().unwrap_or("fits");
        [column.name.clone(), column.type_name.clone(), found(&column.name).to_owned(), state.to_owned()]
    });
    let is_other = |live: &&weir_clickhouse::LiveColumn| columns.iter().all(|column| column.name != live.name);
    let others = report.live.iter().filter(is_other);
    let others = others.map(|live| [live.name.clone(), "-".into(), live.type_name.clone(), "not of Weir".into()]);
    let rows: Vec<[String; 4]> = own.chain(others).collect();
    let column = |at: usize, heading| Column::new(heading, false, rows.iter().map(move |row| row[at].clone()));
    let columns = [column(0, "column"), column(1, "of weir"), column(2, "of the table"), column(3, "state")];
    lines(&columns, 1, console::terminal_columns())
}
