//! The columns of each list: which fields of an answer they show, and how.

use crate::list::List;
use crate::row::Row;
use crate::scan;
use weir_text::units::{self, short};
use weir_text::zone::Zone;

/// The order by the rate since the last answer, which is sorted here: the answers do not have it.
pub const RATE: &str = "rate";
/// The usual order of all lists but the failures.
pub const BYTES: &str = "bytes";
/// The usual order of failures: the newest first.
pub const START: &str = "start_time";

/// The field, and the parameter of a request, by which a flow is found again.
pub const FLOW_ID: &str = "community_id";

/// Fields of a flow that the columns show. What a store does not have is left out of its answer.
pub const FLOW_FIELDS: &str = "start_time,duration_ns,src_ip,src_port,dst_ip,dst_port,protocol,packets,bytes,fwd_packets,\
     rev_packets,fwd_bytes,rev_bytes,fwd_tcp_flags,rev_tcp_flags,community_id,retransmitted_share,rtt,application,sni,\
     http_host,dns_name,dst_dns_name,dns_rcode,dns_nxdomain,dns_servfail,dns_refused,dns_unanswered,http_status,http_4xx,\
     http_5xx,tls_alert";

/// Flows that failed; the names of these rules are those of `weir tcp` and of the fields.
const FAILED: &str = "(flags S and not dst flags S) or (flags R and not (src flags F and dst flags F)) or (src flags S \
     and dst flags S and not src flags A) or dns_rcode > 0 or dns_nxdomain > 0 or dns_unanswered > 0 or http_status >= \
     400 or http_4xx > 0 or http_5xx > 0";
/// The same of fields that a store does not have.
const FAILED_NOW: &str = " or dns_servfail > 0 or dns_refused > 0 or tls_alert";

/// Selects flows that failed: current ones, or stored ones.
pub fn failed(is_stored: bool) -> String {
    if is_stored { FAILED.into() } else { FAILED.to_owned() + FAILED_NOW }
}

/// How a column is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the row is about, at the left; cut if it is too long.
    Key,
    /// A text at the left; cut if it is too long.
    Text,
    /// A figure at the right.
    Figure,
    /// A time in RFC 3339, which is shown shorter.
    Time,
}

/// A column.
pub struct Column {
    /// The heading.
    pub heading: &'static str,
    /// The name by which the list can be sorted; empty if it cannot.
    pub sort: &'static str,
    /// How it is laid out.
    pub kind: Kind,
    /// Columns of a higher rank are left out first; those of rank 0 never.
    pub rank: u8,
    /// A cell.
    pub cell: fn(&Row) -> String,
}

const fn figure(heading: &'static str, sort: &'static str, rank: u8, cell: fn(&Row) -> String) -> Column {
    Column { heading, sort, kind: Kind::Figure, rank, cell }
}

const fn time(heading: &'static str, sort: &'static str, rank: u8, cell: fn(&Row) -> String) -> Column {
    Column { heading, sort, kind: Kind::Time, rank, cell }
}

const fn text(heading: &'static str, rank: u8, cell: fn(&Row) -> String) -> Column {
    Column { heading, sort: "", kind: Kind::Text, rank, cell }
}

const fn key_column(heading: &'static str, cell: fn(&Row) -> String) -> Column {
    Column { heading, sort: "", kind: Kind::Key, rank: 0, cell }
}

/// The columns of a list, from the left to the right. With rates, the answers are those of current flows.
pub fn columns(list: List, has_rates: bool) -> Vec<Column> {
    let mut columns = match list {
        List::Hosts => groups(key_column("host", host), true),
        List::Pairs => groups(key_column("source → destination", pair), false),
        List::Servers => groups(key_column("server", server), false),
        List::Applications => groups(key_column("application", application), false),
        List::Flows => flows(),
        List::Failures => failures(),
    };
    columns.retain(|column| has_rates || column.sort != RATE);
    columns
}

/// The same with names behind what the rows are about.
pub fn with_names(mut columns: Vec<Column>) -> Vec<Column> {
    let key = columns.iter().position(|column| column.kind == Kind::Key).unwrap_or_default();
    columns.insert(key + 1, text("names", 2, |row| row.name.clone()));
    columns
}

/// The heading as it is shown: times are in the zone of the user.
pub fn heading(column: &Column) -> String {
    match column.kind {
        Kind::Time if Zone::current().name() != "UTC" => column.heading.replace("UTC", "local"),
        _ => column.heading.into(),
    }
}

/// The names by which a list can be sorted.
pub fn sort_names(list: List, has_rates: bool) -> Vec<&'static str> {
    columns(list, has_rates).iter().map(|column| column.sort).filter(|sort| !sort.is_empty()).collect()
}

/// Name and direction of an order: `bytes`, `bytes:asc`.
pub fn order(sort: &str) -> (&str, bool) {
    match sort.split_once(':') {
        Some((name, direction)) => (name, direction == "asc"),
        None => (sort, false),
    }
}

/// An order with the name of a heading, as `rtt`, has that of its column.
pub fn known_order(list: List, sort: &str) -> String {
    let (name, _) = order(sort);
    let columns = columns(list, true);
    let of_heading = columns.iter().find(|column| column.heading == name && !column.sort.is_empty());
    of_heading.map_or_else(|| sort.into(), |column| sort.replacen(name, column.sort, 1))
}

/// The first and the last time in the columns of a list, ns since 1970; `None` without any.
pub fn times_ns(list: List, rows: &[Row]) -> Option<(u64, u64)> {
    let columns = columns(list, false);
    let of_times = columns.iter().filter(|column| column.kind == Kind::Time);
    let texts = of_times.flat_map(|column| rows.iter().map(column.cell));
    let times = texts.filter_map(|text| Zone::UTC.parse(&text).ok());
    times.fold(None, |found: Option<(u64, u64)>, ns| {
        Some(found.map_or((ns, ns), |(first, last)| (first.min(ns), last.max(ns))))
    })
}

fn groups(key: Column, is_of_both_sides: bool) -> Vec<Column> {
    let mut columns = vec![
        key,
        figure("≥bit/s", RATE, 1, rate),
        figure("bytes", BYTES, 0, |row| octets(row, "bytes")),
        figure("packets", "packets", 3, |row| count(row, "packets")),
        figure("flows", "flows", 2, |row| count(row, "flows")),
    ];
    columns.extend(if is_of_both_sides {
        [
            figure("sent", "sent_bytes", 4, |row| octets(row, "sent_bytes")),
            figure("received", "received_bytes", 4, |row| octets(row, "received_bytes")),
        ]
    } else {
        [
            figure("bytes→", "fwd_bytes", 4, |row| octets(row, "fwd_bytes")),
            figure("←bytes", "rev_bytes", 4, |row| octets(row, "rev_bytes")),
        ]
    });
    columns.extend([
        figure("retr%", "retransmitted_share", 5, percent),
        figure("rtt", "rtt_mean_ns", 6, |row| span(row, "rtt_mean_ns")),
        figure("response", "response_mean_ns", 7, |row| span(row, "response_mean_ns")),
        time("first UTC", "first_time", 9, |row| row.text("first_time")),
        time("last UTC", "last_time", 8, |row| row.text("last_time")),
    ]);
    columns
}

fn flows() -> Vec<Column> {
    vec![
        text("proto", 2, |row| row.text("protocol")),
        key_column("source → destination", ends),
        figure("bit/s", RATE, 1, rate),
        figure("bytes", BYTES, 0, |row| octets(row, "bytes")),
        figure("packets", "packets", 5, |row| count(row, "packets")),
        figure("bytes→", "fwd_bytes", 6, |row| octets(row, "fwd_bytes")),
        figure("←bytes", "rev_bytes", 6, |row| octets(row, "rev_bytes")),
        text("app", 3, |row| row.text("application")),
        text("name", 4, name),
        figure("duration", "duration_ns", 7, |row| span(row, "duration_ns")),
        text("flags", 8, flags),
        figure("retr%", "retransmitted_share", 9, percent),
        figure("rtt", "rtt", 10, |row| span(row, "rtt")),
        time("start UTC", START, 11, |row| row.text("start_time")),
    ]
}

fn failures() -> Vec<Column> {
    vec![
        time("start UTC", START, 2, |row| row.text("start_time")),
        text("proto", 4, |row| row.text("protocol")),
        key_column("source → destination", ends),
        text("failure", 0, failure),
        text("name", 3, name),
        figure("bytes", BYTES, 5, |row| octets(row, "bytes")),
        figure("packets", "packets", 6, |row| count(row, "packets")),
        figure("duration", "duration_ns", 7, |row| span(row, "duration_ns")),
        text("app", 8, |row| row.text("application")),
        text("flags", 9, flags),
    ]
}

/// The number of groups that a row sums up, as text; `None` if it is a group.
pub fn others(row: &Row) -> Option<String> {
    match row.values.get("other_groups")? {
        serde_json::Value::Null => Some("others (no memory)".into()),
        number => number.as_u64().filter(|&number| number > 0).map(|number| format!("others ({number})")),
    }
}

/// Whether a row sums up other groups.
pub fn is_others(row: &Row) -> bool {
    others(row).is_some()
}

/// What distinguishes a row from the others of its list.
pub fn key(list: List, row: &Row) -> String {
    let names: &[&str] = match list {
        List::Flows | List::Failures => {
            &["start_time", "src_ip", "src_port", "dst_ip", "dst_port", "protocol", "community_id"]
        }
        _ => &["host", "src_ip", "dst_ip", "server_ip", "service_port", "application", "other_groups"],
    };
    names.iter().map(|name| row.text(name)).collect::<Vec<_>>().join(" ")
}

/// Selects the flows of a group.
pub fn condition(list: List, row: &Row) -> String {
    let is = |name: &str| match row.text(name) {
        value if value.is_empty() => format!("not {name}"),
        value => format!("{name} = {value}"),
    };
    let names: &[&str] = match list {
        List::Pairs => &["src_ip", "dst_ip"],
        List::Servers => &["server_ip", "service_port"],
        List::Applications => &["application"],
        _ => &["host"],
    };
    names.iter().map(|name| is(name)).collect::<Vec<_>>().join(" and ")
}

/// What a group is called.
pub fn title(list: List, row: &Row) -> String {
    if scan::is_scan(row) {
        return format!("scan {}", scan::ends(row));
    }
    let (what, name) = match list {
        List::Hosts => ("host", host(row)),
        List::Pairs => ("pair", pair(row)),
        List::Servers => ("server", server(row)),
        List::Applications => ("application", application(row)),
        List::Flows | List::Failures => ("flow", ends(row)),
    };
    format!("{what} {name}")
}

/// Where a flow can be found again: its start and its Community ID, if it has one.
pub fn identity(row: &Row) -> Option<(String, String)> {
    let [start, id] = ["start_time", FLOW_ID].map(|name| row.text(name));
    (!start.is_empty() && !id.is_empty()).then_some((start, id))
}

/// The value that the lists are sorted by here.
pub fn rank(row: &Row, sort: &str) -> (bool, u64, String) {
    match sort {
        RATE => (row.bits_per_second.is_some(), row.bits_per_second.unwrap_or_default(), String::new()),
        START => (true, 0, row.text("start_time")),
        name => (row.number(name).is_some(), row.number(name).unwrap_or_default(), String::new()),
    }
}

/// Octets, from which rates follow.
pub fn octets_of(row: &Row) -> Option<u64> {
    row.number("bytes")
}

fn or_none(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

fn host(row: &Row) -> String {
    others(row).unwrap_or_else(|| or_none(row.text("host")))
}

fn application(row: &Row) -> String {
    others(row).unwrap_or_else(|| or_none(row.text("application")))
}

fn pair(row: &Row) -> String {
    let [source, destination] = ["src_ip", "dst_ip"].map(|name| or_none(row.text(name)));
    others(row).unwrap_or_else(|| format!("{source} → {destination}"))
}

fn server(row: &Row) -> String {
    others(row).unwrap_or_else(|| endpoint(row, "server_ip", "service_port"))
}

fn ends(row: &Row) -> String {
    if scan::is_scan(row) {
        return scan::ends(row);
    }
    format!("{} → {}", endpoint(row, "src_ip", "src_port"), endpoint(row, "dst_ip", "dst_port"))
}

fn endpoint(row: &Row, address: &str, port: &str) -> String {
    let address = or_none(row.text(address));
    match row.number(port) {
        None | Some(0) => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

/// The name of what is asked for. If the first question of DNS has an answer without an error, that name did not fail.
fn name(row: &Row) -> String {
    let has_failed = ["dns_nxdomain", "dns_servfail", "dns_refused", "dns_unanswered"]
        .iter()
        .any(|name| row.number(name).is_some_and(|number| number > 0));
    let is_another = has_failed && row.number("dns_rcode") == Some(0);
    let names =
        ["sni", "http_host", "dns_name", "dst_dns_name"].iter().filter(|name| !(is_another && **name == "dns_name"));
    names.map(|name| row.text(name)).find(|name| !name.is_empty()).unwrap_or_default()
}

fn flags(row: &Row) -> String {
    let [forward, reverse] = ["fwd_tcp_flags", "rev_tcp_flags"].map(|name| row.text(name));
    if forward.is_empty() && reverse.is_empty() { String::new() } else { format!("{forward}→ ←{reverse}") }
}

fn count(row: &Row, name: &str) -> String {
    row.number(name).map(short).unwrap_or_default()
}

fn octets(row: &Row, name: &str) -> String {
    row.number(name).map(|number| short(number) + "B").unwrap_or_default()
}

fn span(row: &Row, name: &str) -> String {
    row.number(name).map(units::span).unwrap_or_default()
}

fn rate(row: &Row) -> String {
    row.bits_per_second.map_or_else(|| "-".into(), short)
}

fn percent(row: &Row) -> String {
    let share = row.values.get("retransmitted_share").and_then(serde_json::Value::as_f64);
    share.map(|share| format!("{:.2}", share * 100.0)).unwrap_or_default()
}

/// Why a flow failed.
fn failure(row: &Row) -> String {
    if scan::is_scan(row) {
        return scan::failure(row);
    }
    let mut reasons = Vec::from_iter(tcp_failure(row));
    let some = |name: &str| row.number(name).filter(|&number| number > 0);
    let code = some("dns_rcode").filter(|code| ![2, 3, 5].contains(code));
    reasons.extend(code.map(|code| format!("DNS code {code}")));
    for (field, code, word) in
        [("dns_nxdomain", 3, "NXDOMAIN"), ("dns_servfail", 2, "SERVFAIL"), ("dns_refused", 5, "REFUSED")]
    {
        let first = some("dns_rcode").is_some_and(|first| first == code);
        reasons.extend(some(field).or(first.then_some(1)).map(|number| times(word, number)));
    }
    reasons.extend(some("dns_unanswered").map(|number| times("no answer of DNS", number)));
    let status = some("http_status").filter(|&status| status >= 400);
    let others = [("http_4xx", "HTTP 4xx"), ("http_5xx", "HTTP 5xx")];
    match status {
        Some(status) => reasons.push(format!("HTTP {status}")),
        None => reasons.extend(others.iter().filter_map(|(field, word)| some(field).map(|number| times(word, number)))),
    }
    let alert = row.text("tls_alert");
    reasons.extend((!alert.is_empty()).then(|| format!("TLS {alert}")));
    reasons.join(", ")
}

fn times(word: &str, number: u64) -> String {
    if number == 1 { word.into() } else { format!("{number} {word}") }
}

/// Why a connection failed, as `weir tcp` calls it.
fn tcp_failure(row: &Row) -> Option<String> {
    let [client, server] = ["fwd_tcp_flags", "rev_tcp_flags"].map(|name| row.text(name));
    let [client_has, server_has] = [&client, &server].map(|flags| move |flag: char| flags.contains(flag));
    let has_opened = client_has('S') && server_has('S');
    let reason = match (client_has('R'), server_has('R')) {
        (false, true) if client_has('S') && !server_has('S') => "refused",
        _ if client_has('S') && row.number("rev_packets") == Some(0) => "no answer",
        _ if has_opened && !client_has('A') => "half-open",
        _ if client_has('F') && server_has('F') => return None,
        (true, true) => "reset by both",
        (true, false) => "reset by client",
        (false, true) => "reset by server",
        _ if client_has('S') && !server_has('S') => "no SYN of the server",
        _ => return None,
    };
    Some(reason.into())
}
