//! The columns of transactions: the records of which each has one question of DNS or one request of HTTP/1.

use crate::column::{Column, Origin};
use crate::restored::is_of_every_record;
use crate::select::{InvalidFields, select_columns};
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

/// The columns of a selection, as [`select_columns`], that transactions have: profiles and patterns stand for these of
/// their columns. `is_stored`: those without which records cannot be read again count, too.
///
/// # Errors
/// The selection is invalid, or transactions have nothing of an item of it.
pub fn select_transaction_columns(selection: &str, is_stored: bool) -> Result<Vec<&'static Column>, InvalidFields> {
    let is_kept = |column: &&Column| is_of_transactions(column) || is_stored && is_of_every_record(column);
    let mut selected: Vec<&'static Column> = Vec::new();
    for item in selection.split(',') {
        let of_item: Vec<_> = select_columns(item)?.into_iter().filter(is_kept).collect();
        if of_item.is_empty() {
            return Err(InvalidFields::NotOfTransactions(item.into()));
        }
        let new: Vec<_> = of_item.into_iter().filter(|column| !selected.contains(column)).collect();
        selected.extend(new);
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_stands_for_what_transactions_have() {
        let names = |selection, is_stored| {
            let columns = select_transaction_columns(selection, is_stored);
            columns.map(|columns| columns.iter().map(|column| column.name).collect::<Vec<_>>())
        };
        let all = names("all", false).unwrap();
        assert!(all.iter().all(|name| is_of_transactions(column(name).unwrap())));
        assert!(COLUMNS.iter().chain(&COUNTS).chain(&OTHERS).all(|name| all.contains(name)));
        assert_eq!(names("dns_t*,dst_port,dns_type", false).unwrap(), ["dns_type", "dst_port"]);
        assert!(names("all", true).unwrap().contains(&"fwd_packets") && names("fwd_packets", true).is_ok());
        for selection in ["packets", "basic,packets", "layer2", "*tcp_*"] {
            let error = names(selection, false).unwrap_err().to_string();
            assert!(error.starts_with("a transaction has no "), "{selection}: {error}");
        }
    }

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
