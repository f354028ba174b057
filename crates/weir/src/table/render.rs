//! Renders flow records as an aligned table.

use crate::names::HostNames;
use crate::protocols;
use weir_fields::{ColumnKind, FieldValue};
use weir_flow::{Direction, FlowRecord};
use weir_packet::{NO_VLAN, Network};
use weir_query::RecordOrder;
use weir_text::columns::{Column, fit, lines};
use weir_text::units;
use weir_text::zone::Zone;

/// Leading columns that identify a flow. The others are its counters.
const KEY_COLUMNS: usize = 6;

/// What a table shows of its records.
#[derive(Clone, Default)]
pub struct Layout {
    /// The order; `None` for the most IP bytes.
    pub order: Option<RecordOrder>,
    /// The selected fields; `None` for the usual columns.
    pub fields: Option<Vec<&'static weir_fields::Column>>,
    /// Whether the usual columns are without the end reason, because it is not known.
    pub is_end_unknown: bool,
    /// The records are transactions.
    pub of_transactions: bool,
}

/// The table as text: `flows` are the first of `all_flows`. With `names`, the usual columns of flows have names of hosts
/// and services, too.
pub fn table(
    flows: &[FlowRecord],
    all_flows: u64,
    layout: &Layout,
    names: Option<&HostNames>,
    terminal_columns: Option<usize>,
) -> String {
    let order = layout.order;
    let of_transactions = (layout.fields.is_none() && layout.of_transactions).then(|| columns_with_values(flows));
    let fields = layout.fields.as_ref().or(of_transactions.as_ref());
    let mut columns = match fields {
        None => columns(flows, !layout.is_end_unknown, names),
        Some(fields) => columns_of(fields, flows),
    };
    let is_shown = |order: &RecordOrder| match fields {
        None => SHOWN.contains(&order.name()),
        Some(fields) => fields.iter().any(|field| field.name == order.name()),
    };
    columns.extend(order.filter(|order| !is_shown(order)).map(|order| order_column(flows, order)));
    // The heading of the start is the day.
    let sorted = match order.map(|order| order.name()) {
        Some(name) if fields.is_some() => columns.iter_mut().find(|column| column.heading == name),
        Some("start_time") => columns.first_mut(),
        Some("duration" | "duration_ns") => columns.iter_mut().find(|column| column.heading == "duration"),
        Some("vlan") => columns.iter_mut().find(|column| column.heading == "vlan"),
        Some("fwd_packets") => columns.iter_mut().find(|column| column.heading == "pkts→"),
        Some("rev_packets") => columns.iter_mut().find(|column| column.heading == "←pkts"),
        _ => None,
    };
    sorted.into_iter().for_each(Column::require);
    let key_columns = if fields.is_some() { 1 } else { KEY_COLUMNS };
    let mut left_out = fit(&mut columns, terminal_columns);
    if fields.is_some() && !left_out.is_empty() {
        left_out = format!("{} (| less -S shows all)\n", left_out.trim_end());
    }
    let rows = lines(&columns, key_columns, terminal_columns);
    let hidden = all_flows - flows.len() as u64;
    let noun = if layout.of_transactions { "transaction" } else { "flow" };
    let mut text = match hidden {
        0 => units::count(all_flows, noun),
        _ => format!("{} of {all_flows} {noun}s (--top 0 for all)", flows.len()),
    };
    text += &match order {
        Some(order) => format!(", by {}; k, M and G are decimal\n", order.name()),
        None => ", by IP bytes of both directions; k, M and G are decimal\n".into(),
    };
    rows + &wrapped(&(text + &left_out), terminal_columns)
}

/// The columns of transactions, but for those without a value and those that say twice who talks.
fn columns_with_values(flows: &[FlowRecord]) -> Vec<&'static weir_fields::Column> {
    const LEFT_OUT: [&str; 3] = ["src_port", "community_id", "application_notes"];
    let has_value = |column: &&weir_fields::Column| flows.iter().any(|flow| !column.read(flow).to_string().is_empty());
    let columns = weir_fields::transaction_columns(false, true).into_iter();
    columns.filter(|column| !LEFT_OUT.contains(&column.name)).filter(has_value).collect()
}

/// Lines of prose, each wrapped at the width of the terminal.
pub fn wrapped(text: &str, terminal_columns: Option<usize>) -> String {
    let Some(columns) = terminal_columns else { return text.into() };
    text.lines().flat_map(|line| weir_text::wrap(line, columns)).map(|line| line + "\n").collect()
}

/// Fields that the table shows anyway.
const SHOWN: [&str; 8] =
    ["start_time", "duration", "duration_ns", "fwd_packets", "rev_packets", "fwd_bytes", "rev_bytes", "vlan"];

/// The field by which the table is sorted.
fn order_column(flows: &[FlowRecord], order: RecordOrder) -> Column {
    let cell = |flow: &FlowRecord| match order.value(flow) {
        FieldValue::Unsigned(ns) if order.is_time_span() => units::span(ns),
        FieldValue::Float(ns) if order.is_time_span() => units::span(ns as u64),
        FieldValue::Unsigned(number) if order.is_octets() => units::short(number) + "B",
        FieldValue::Unsigned(number) => units::short(number),
        FieldValue::Float(number) => units::number(number),
        value => text(&value),
    };
    Column::new(order.name(), true, flows.iter().map(cell))
}

/// A value of a field; times with their offset from UTC.
fn text(value: &FieldValue) -> String {
    match value {
        FieldValue::Time(ns) => Zone::current().rfc_3339(*ns),
        value => value.to_string(),
    }
}

/// One column per field. On a narrow terminal, times are left out first, then the last fields.
fn columns_of(fields: &[&weir_fields::Column], flows: &[FlowRecord]) -> Vec<Column> {
    /// More than there are fields.
    const RANK_OF_TIMES: u16 = 1 << 15;
    let is_time = |field: &weir_fields::Column| field.kind == ColumnKind::Time;
    let required = fields.iter().position(|field| !is_time(field)).unwrap_or(0);
    let column = |(at, field): (usize, &&weir_fields::Column)| {
        let is_number = matches!(field.kind, ColumnKind::Integer | ColumnKind::Number);
        let rank = if at == required { 0 } else { at as u16 + 1 + if is_time(field) { RANK_OF_TIMES } else { 0 } };
        let cell = |flow| {
            let (value, words) = (field.read(flow), field.properties.words);
            match value {
                FieldValue::Unsigned(ns) if field.unit == "ns" => units::span(ns),
                FieldValue::Float(ns) if field.unit == "ns" => units::span(ns as u64),
                value => words.and_then(|words| words.of_number(&value)).map_or_else(|| text(&value), Into::into),
            }
        };
        Column::new(field.name, is_number, flows.iter().map(cell)).optional(rank)
    };
    fields.iter().enumerate().map(column).collect()
}

fn columns(flows: &[FlowRecord], is_end_known: bool, names: Option<&HostNames>) -> Vec<Column> {
    let each = |cell: fn(&FlowRecord) -> String| flows.iter().map(cell);
    let count = |heading, figure: fn(&FlowRecord) -> u64| {
        Column::new(heading, true, flows.iter().map(|flow| units::short(figure(flow))))
    };
    let octets = |heading, figure: fn(&FlowRecord) -> u64| {
        Column::new(heading, true, flows.iter().map(|flow| units::short(figure(flow)) + "B"))
    };
    let mut columns = vec![
        start_column(flows).optional(4),
        Column::new("duration", true, each(|flow| units::span(flow.end_ns().saturating_sub(flow.start_ns()))))
            .optional(5),
        Column::new("proto", false, each(protocol)),
        Column::new("source", true, each(|flow| endpoint(flow, flow.source, flow.source_port))),
        Column::new("→", false, each(|_| "→".into())),
        Column::new("destination", false, each(|flow| endpoint(flow, flow.destination, flow.destination_port))),
        count("pkts→", |flow| flow.forward.packets).optional(1),
        count("←pkts", |flow| flow.reverse.packets).optional(1),
        octets("bytes→", |flow| flow.forward.bytes),
        octets("←bytes", |flow| flow.reverse.bytes),
    ];
    debug_assert_eq!(columns[KEY_COLUMNS].heading, "pkts→");
    columns.extend(names.into_iter().flat_map(|names| name_columns(flows, names)).filter(Column::has_content));
    let optional = [
        Column::new("app", false, each(application)).named("application").optional(2),
        Column::new("flags", false, each(flags)).optional(6),
        Column::new("end", false, each(|flow| flow.end_reason.name().into())).optional(7),
        Column::new("vlan", false, each(vlan)).optional(2),
        Column::new("tunnel", false, each(tunnel)).optional(3),
        Column::new("approximate", false, each(|flow| flow.approximate.names().collect::<Vec<_>>().join(",")))
            .optional(1),
    ];
    let is_known = |column: &Column| is_end_known || column.heading != "end";
    columns.extend(optional.into_iter().filter(|column| is_known(column) && column.has_content()));
    columns
}

/// The names of source and destination.
fn name_columns(flows: &[FlowRecord], names: &HostNames) -> [Column; 2] {
    let name = |flow: &FlowRecord, address, port| {
        let port = Some(port).filter(|_| flow.has_ports());
        names.of_end(address, port, &protocols::ip_protocol(flow.protocol))
    };
    let source = flows.iter().map(|flow| name(flow, flow.source_ip(), flow.source_port));
    let destination = flows.iter().map(|flow| name(flow, flow.destination_ip(), flow.destination_port));
    [
        Column::new("source name", false, source).optional(3),
        Column::new("destination name", false, destination).optional(2),
    ]
}

/// Start times. If all are of one day, the day is the heading.
fn start_column(flows: &[FlowRecord]) -> Column {
    let zone = Zone::current();
    let times: Vec<(String, String)> = flows.iter().map(|flow| zone.date_and_time(flow.start_ns())).collect();
    match times.first() {
        Some((day, _)) if times.iter().all(|(other, _)| other == day) => {
            let heading = format!("{day} {}", zone.name());
            Column::new(heading, true, times.into_iter().map(|(_, time)| time)).named("start")
        }
        _ => {
            let heading = format!("start ({})", zone.name());
            Column::new(heading, true, times.into_iter().map(|(day, time)| format!("{day} {time}")))
        }
    }
}

/// The forward direction, or the reverse one if only that has packets.
fn first_direction(flow: &FlowRecord) -> &Direction {
    if flow.forward.packets > 0 { &flow.forward } else { &flow.reverse }
}

fn application(flow: &FlowRecord) -> String {
    let application = flow.findings.as_ref().and_then(|findings| findings.application());
    application.map_or_else(String::new, |(application, _)| application.name().into())
}

fn protocol(flow: &FlowRecord) -> String {
    let [kind, code] = first_direction(flow).icmp;
    match flow.ethertype() {
        Some(ethertype) => protocols::ethertype(ethertype),
        None if has_type_and_code(flow) => format!("{} {kind}/{code}", protocols::ip_protocol(flow.protocol)),
        None => protocols::ip_protocol(flow.protocol),
    }
}

fn endpoint(flow: &FlowRecord, octets: [u8; 16], port: u16) -> String {
    match weir_packet::ip_address(flow.network, octets) {
        Some(address) if flow.has_ports() => std::net::SocketAddr::new(address, port).to_string(),
        Some(address) => address.to_string(),
        None => {
            let hexadecimal: Vec<String> = octets[10..].iter().map(|octet| format!("{octet:02x}")).collect();
            hexadecimal.join(":")
        }
    }
}

/// TCP control bits of both directions as letters.
fn flags(flow: &FlowRecord) -> String {
    if flow.protocol != 6 || flow.network == Network::Layer2 {
        return String::new();
    }
    let bits = flow.forward.tcp_flags | flow.reverse.tcp_flags;
    FieldValue::TcpFlags(bits).to_string()
}

/// Whether the type and code of ICMP are known: in place of ports, the record has them then.
fn has_type_and_code(flow: &FlowRecord) -> bool {
    flow.is_icmp() && (flow.source_port, flow.destination_port) != (0, 0)
}

fn vlan(flow: &FlowRecord) -> String {
    let direction = first_direction(flow);
    match (direction.vlan, direction.inner_vlan) {
        (NO_VLAN, _) => String::new(),
        (outer, NO_VLAN) => outer.to_string(),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}

fn tunnel(flow: &FlowRecord) -> String {
    let direction = first_direction(flow);
    match (direction.tunnel_type.name(), direction.tunnel_id) {
        (None, _) => String::new(),
        (Some(name), None) => name.into(),
        (Some(name), Some(identifier)) => format!("{name} {identifier}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use weir_flow::EndReason;
    use weir_packet::ipv4_mapped;

    /// A record of one UDP packet.
    pub fn udp(bytes: u64) -> FlowRecord {
        FlowRecord {
            source: ipv4_mapped([192, 0, 2, 1]),
            destination: ipv4_mapped([198, 51, 100, 20]),
            source_port: 5000,
            destination_port: 53,
            protocol: 17,
            forward: Direction { packets: 1, bytes, frame_bytes: bytes + 14, ..Direction::default() },
            ..FlowRecord::default()
        }
    }

    #[test]
    fn narrow_terminal_loses_columns_and_folds_only_long_addresses() {
        let wide = table(&[udp(100), udp(99)], 2, &Layout::default(), None, Some(200));
        assert_eq!(wide, table(&[udp(100), udp(99)], 2, &Layout::default(), None, None));
        assert_eq!(wide.lines().count(), 4);
        for width in [90, 80, 70] {
            let narrow = table(&[udp(100), udp(99)], 2, &Layout::default(), None, Some(width));
            // Headings, a line for each flow, and the two lines below.
            assert_eq!(narrow.lines().count(), 5, "{narrow}");
            assert!(narrow.lines().all(|line| line.chars().count() <= width), "{narrow}");
            assert!(narrow.contains("left out to fit the terminal: end"), "{narrow}");
            assert!(narrow.contains("198.51.100.20:53") && narrow.contains("←bytes"), "{narrow}");
        }
        // What the table is sorted by is the last to be left out.
        for name in ["duration", "start_time", "rev_packets", "rtt"] {
            let order = RecordOrder::new(&name.parse().unwrap()).unwrap();
            let sorted =
                table(&[udp(100), udp(99)], 2, &Layout { order: Some(order), ..Layout::default() }, None, Some(80));
            let heading = match name {
                "start_time" => " UTC",
                "rev_packets" => "←pkts",
                name => name,
            };
            assert!(sorted.lines().next().unwrap().contains(heading), "{name}: {sorted}");
            assert!(sorted.lines().all(|line| line.chars().count() <= 80), "{name}: {sorted}");
        }
        let mut long = udp(100);
        long.network = Network::Ipv6;
        (long.source, long.destination) = ([0xab; 16], [0xcd; 16]);
        let folded = table(&[long], 1, &Layout::default(), None, Some(80));
        assert!(folded.contains("duration") && !folded.contains("left out"), "{folded}");
    }

    #[test]
    fn bidirectional_tcp_flow_with_short_addresses_fits_100_columns() {
        let mut flow = udp(9_999_999);
        flow.protocol = 6;
        flow.reverse = flow.forward;
        flow.forward.tcp_flags = 0x1b;
        flow.end_reason = EndReason::EndOfFlow;
        let text = table(&[flow], 1, &Layout::default(), None, None);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains(" SAPF ") && text.contains(" end\n"), "{text}");
    }

    #[test]
    fn reverse_only_record_shows_its_reverse_direction() {
        let mut flow = udp(0);
        flow.protocol = 1;
        flow.reverse = Direction { packets: 1, icmp: [3, 1], vlan: 7, ..flow.forward };
        flow.forward = Direction::default();
        let text = table(&[flow], 1, &Layout::default(), None, None);
        assert!(text.contains("icmp 3/1") && text.contains(" 7\n"), "{text}");
    }
}
