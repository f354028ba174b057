//! Which fields of flow records are known of connections.

use weir_export::tcp_columns;
use weir_fields::{Column, Field};

/// Whether a field of records is known of connections.
pub fn has_field(field: Field) -> bool {
    /// Besides the fields of JSON and CSV.
    const KNOWN: [&str; 16] = [
        "protocol",
        "protocol_number",
        "bytes",
        "l2_bytes",
        "fwd_bytes",
        "rev_bytes",
        "fwd_tcp_flags",
        "rev_tcp_flags",
        "fwd_tcp_flags_number",
        "rev_tcp_flags_number",
        "server_ip",
        "client_ip",
        "service_port",
        "bps",
        "pps",
        "bpp",
    ];
    let is_known = |column: &&'static Column| {
        KNOWN.contains(&column.name) || tcp_columns().iter().any(|of| of.name == column.name)
    };
    field.columns().iter().all(is_known)
}
