//! The report as a stream of Apache Arrow: a row per connection.

use crate::connection::Connection;
use crate::delay::Delay;
use crate::failure::Failure;
use crate::report::CaptureReport;
use std::io::{self, Write};
use weir_export::tcp_columns;
use weir_ledger::RecordTotals;
use weir_store::{ARROW_END, ARROW_ROWS, ArrowRows, ReportColumn, ReportValue, Row, RowForm};

/// The fields of a connection that flow records do not have, as JSON and CSV have them.
pub(crate) const REPORT_COLUMNS: [ReportColumn; 7] = [
    integer("number", "", "Number of the connection in the list."),
    text("failure", "How the connection failed; does not apply to one that did not fail."),
    text("delay", "Where most of the time went: network, server or client, or unknown."),
    integer("network_delay_ns", "ns", "Time of round trips, and of transfer with retransmissions."),
    integer("server_delay_ns", "ns", "Time of waiting for the server."),
    integer("client_delay_ns", "ns", "Time of waiting for the client."),
    integer("other_delay_ns", "ns", "Time that belongs to none of these."),
];

const fn integer(name: &'static str, unit: &'static str, description: &'static str) -> ReportColumn {
    ReportColumn { name, is_integer: true, unit, description }
}

const fn text(name: &'static str, description: &'static str) -> ReportColumn {
    ReportColumn { name, is_integer: false, unit: "", description }
}

impl CaptureReport {
    /// Writes all connections as ranked as a stream of Arrow, with the columns of CSV.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_arrow(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = ArrowRows::with_report_columns(tcp_columns(), &REPORT_COLUMNS);
        let mut message = Vec::new();
        rows.encode_schema(RowForm::default(), &mut message);
        for connections in self.connections.chunks(ARROW_ROWS) {
            for connection in connections {
                let record = connection.to_flow_record();
                let row = Row { record: &record, flow: &record, totals: RecordTotals::default() };
                rows.push_report(row, &report_values(connection));
            }
            rows.encode(&mut message);
            out.write_all(&message)?;
            message.clear();
        }
        message.extend(ARROW_END);
        out.write_all(&message)
    }
}

fn report_values(connection: &Connection) -> [ReportValue<'static>; 7] {
    let (delay, delays) = (connection.delay(), connection.delays());
    let integer = |number: u64| ReportValue::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let time = |ns| if delay == Delay::Unknown { ReportValue::None } else { integer(ns) };
    [
        integer(connection.number.into()),
        connection.failure().map_or(ReportValue::None, |failure| ReportValue::Text(Failure::key(failure))),
        ReportValue::Text(delay.name()),
        time(delays.network_ns),
        time(delays.server_ns),
        time(delays.client_ns),
        time(delays.other_ns),
    ]
}
