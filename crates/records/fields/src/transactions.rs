//! The columns of transactions: the records of which each has one question of DNS or one request of HTTP/1.

use crate::column::{Column, Origin};
use crate::restored::is_of_every_record;
use crate::selection::{column, columns};

/// The columns of JSON and CSV.
const COLUMNS: [&str; 18] = [
    "start_time",
    "src_ip",
    "src_port",
    "dst_ip",
    "dst_port",
    "protocol",
    "community_id",
    "application",
    "application_notes",
    "dns_name",
    "dns_type",
    "dns_rcode",
    "dns_response_ns",
    "http_method",
    "http_host",
    PATH,
    "http_status",
    "http_response_mean_ns",
];
/// Personal data.
const PATH: &str = "http_path";
/// More columns of a store, which views sum up.
const COUNTS: [&str; 14] = [
    "dns_queries",
    "dns_answers",
    "dns_nxdomain",
    "dns_servfail",
    "dns_refused",
    "dns_other_errors",
    "dns_unanswered",
    "dns_forgotten",
    "dns_response_mean_ns",
    "dns_response_max_ns",
    "http_requests",
    "http_4xx",
    "http_5xx",
    "http_response_max_ns",
];
/// Columns that a transaction has, too.
const OTHERS: [&str; 12] = [
    "end_time",
    "duration_ns",
    "protocol_number",
    "server_ip",
    "client_ip",
    "service_port",
    "interface_name",
    "application_by",
    "http_1xx",
    "http_2xx",
    "http_3xx",
    "udp_response_ns",
];

/// The columns of transactions if none are selected, of JSON and CSV or of a store. Those of a store include the
/// columns without which records cannot be read again. `personal`: paths are recorded.
pub fn transaction_columns(is_stored: bool, personal: bool) -> Vec<&'static Column> {
    let is_default = |name: &str| COLUMNS.contains(&name) && (personal || name != PATH);
    if is_stored {
        let is_kept = |column: &&Column| {
            let is_of_text = is_default(column.name) && column.restore.is_some();
            is_of_text || COUNTS.contains(&column.name) || is_of_every_record(column)
        };
        return columns().iter().filter(is_kept).collect();
    }
    let names = COLUMNS.iter().filter(|name| is_default(name));
    names.map(|name| column(name).expect("the catalogue has the columns of transactions")).collect()
}

/// Whether a column has values in transactions.
pub fn is_of_transactions(column: &Column) -> bool {
    let lists: [&[&str]; 3] = [&COLUMNS, &COUNTS, &OTHERS];
    lists.iter().any(|names| names.contains(&column.name)) || column.is_of(Origin::Enrichment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_columns_of_transactions_are_in_the_catalogue() {
        for is_stored in [false, true] {
            let of_profile = transaction_columns(is_stored, true);
            assert!(of_profile.iter().all(|column| is_of_transactions(column) || is_of_every_record(column)));
            assert!(transaction_columns(is_stored, false).iter().all(|column| column.name != PATH));
        }
        assert!(OTHERS.iter().all(|name| column(name).is_ok()));
    }
}
