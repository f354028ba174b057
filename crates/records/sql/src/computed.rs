//! Fields of views that flows do not store: `server_ip`, `rtt`. They are computed where a query names them.
//!
//! In: a SELECT of flows, and which names the query uses. Out: the same with these columns, whose values are those of
//! `weir read`. A file that has such a column keeps its own values. What else a file does not have is NULL.

use weir_fields::FIRST_EPHEMERAL_PORT;

/// A field: its name, the columns that it is computed from, and how.
struct Computed {
    name: &'static str,
    columns: &'static [&'static str],
    /// With `{has_ports}` and `{serves_source}`.
    sql: &'static str,
}

/// The columns that say which side is the server.
const SIDES: [&str; 7] = ["protocol", "src_ip", "dst_ip", "src_port", "dst_port", "fwd_tcp_flags", "rev_tcp_flags"];

const HAS_PORTS: &str = "coalesce(protocol in ('tcp', 'udp', 'dccp', 'sctp', 'udplite'), false)";

const fn one(name: &'static str, columns: &'static [&'static str], sql: &'static str) -> Computed {
    Computed { name, columns, sql }
}

/// All fields, in the order in which a view gets them.
const COMPUTED: [Computed; 10] = [
    one("server_ip", &[], "if({serves_source}, src_ip, dst_ip)"),
    one("client_ip", &[], "if({serves_source}, dst_ip, src_ip)"),
    one("service_port", &[], "if({has_ports}, if({serves_source}, src_port, dst_port), null)"),
    one("packets", &["fwd_packets", "rev_packets"], "fwd_packets + rev_packets"),
    one("bytes", &["fwd_bytes", "rev_bytes"], "fwd_bytes + rev_bytes"),
    one("l2_bytes", &["fwd_l2_bytes", "rev_l2_bytes"], "fwd_l2_bytes + rev_l2_bytes"),
    one(
        "rtt",
        &["fwd_tcp_handshake_rtt_ns", "rev_tcp_handshake_rtt_ns"],
        "fwd_tcp_handshake_rtt_ns + rev_tcp_handshake_rtt_ns",
    ),
    one(
        "response",
        &["fwd_tcp_response_mean_ns", "fwd_tcp_response_count", "rev_tcp_response_mean_ns", "rev_tcp_response_count"],
        "if({serves_source},
           round(fwd_tcp_response_mean_ns * fwd_tcp_response_count)::bigint // nullif(fwd_tcp_response_count, 0),
           round(rev_tcp_response_mean_ns * rev_tcp_response_count)::bigint // nullif(rev_tcp_response_count, 0))",
    ),
    one(
        "retransmitted",
        &[
            "fwd_tcp_retransmitted_packets",
            "rev_tcp_retransmitted_packets",
            "fwd_tcp_retransmitted_unseen",
            "rev_tcp_retransmitted_unseen",
            "fwd_tcp_syn_retransmitted",
            "rev_tcp_syn_retransmitted",
        ],
        "if(coalesce(fwd_tcp_retransmitted_packets, rev_tcp_retransmitted_packets) is null
           or coalesce(fwd_tcp_retransmitted_unseen, rev_tcp_retransmitted_unseen) is null
           or coalesce(fwd_tcp_syn_retransmitted, rev_tcp_syn_retransmitted) is null, null,
           coalesce(fwd_tcp_retransmitted_packets, 0) + coalesce(rev_tcp_retransmitted_packets, 0)
           + coalesce(fwd_tcp_retransmitted_unseen, 0) + coalesce(rev_tcp_retransmitted_unseen, 0)
           + coalesce(fwd_tcp_syn_retransmitted, 0) + coalesce(rev_tcp_syn_retransmitted, 0))",
    ),
    one(
        "tcp_failure",
        &["rev_packets"],
        "case when protocol <> 'tcp' or not contains(fwd_tcp_flags, 'S') then null
            when not regexp_matches(fwd_tcp_flags, '[APFU]') then
                case when rev_packets = 0 then 'no_answer' when contains(rev_tcp_flags, 'S') then 'half_open'
                     when contains(rev_tcp_flags, 'R') then 'refused' end
            when not contains(fwd_tcp_flags, 'A') then null
            when contains(fwd_tcp_flags, 'F') and contains(coalesce(rev_tcp_flags, ''), 'F') then null
            when contains(fwd_tcp_flags, 'R') then
                if(contains(coalesce(rev_tcp_flags, ''), 'R'), 'reset_by_both', 'reset_by_client')
            when contains(rev_tcp_flags, 'R') then 'reset_by_server' end",
    ),
];

/// The names of the fields.
pub fn computed_fields() -> impl Iterator<Item = &'static str> {
    COMPUTED.iter().map(|field| field.name)
}

/// A SELECT of flows with the fields that a query uses.
pub fn with_computed(flows: &str, is_used: impl Fn(&str) -> bool) -> String {
    let used: Vec<&Computed> = COMPUTED.iter().filter(|field| is_used(field.name)).collect();
    if used.is_empty() {
        return flows.into();
    }
    let serves_source = format!(
        "({HAS_PORTS} and coalesce(dst_port >= {FIRST_EPHEMERAL_PORT} and src_port < {FIRST_EPHEMERAL_PORT}, false)
           and not contains(coalesce(fwd_tcp_flags, '') || coalesce(rev_tcp_flags, ''), 'S'))"
    );
    let value = |field: &Computed| {
        let sql = field.sql.replace("{serves_source}", &serves_source).replace("{has_ports}", HAS_PORTS);
        format!("coalesce({0}, {sql}) as {0}", field.name)
    };
    let values: Vec<_> = used.iter().map(|field| value(field)).collect();
    // What a file does not have is NULL, of any type.
    let mut columns: Vec<&str> = Vec::new();
    for name in used.iter().flat_map(|field| [field.name].into_iter().chain(field.columns.iter().copied())).chain(SIDES)
    {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let nothing: Vec<_> = columns.iter().map(|name| format!("null as {name}")).collect();
    format!(
        "select * replace ({}) from (\n{flows}\nunion all by name\nselect {} where false\n)",
        values.join(",\n    "),
        nothing.join(", ")
    )
}
