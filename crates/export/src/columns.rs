//! The list of columns, and columns by name.
//!
//! A column is a field of the whole flow, or a field of one direction with the prefix `fwd_` or
//! `rev_`. `fields.rs` defines all of them.

use crate::column::Column;
use crate::fields::FIELDS;
use std::sync::LazyLock;

/// All columns in their order.
pub fn columns() -> &'static [Column] {
    static COLUMNS: LazyLock<Vec<Column>> =
        LazyLock::new(|| FIELDS.iter().flat_map(|field| field.columns).copied().collect());
    &COLUMNS
}

/// There is no column of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no field {name:?} ({})", similar.map_or("names: weir fields".into(), |similar| format!("did you mean {similar}?")))]
pub struct UnknownColumn {
    /// The name as the user wrote it.
    pub name: String,
    /// The most similar name, if one is similar.
    pub similar: Option<&'static str>,
}

/// A column by its name.
///
/// # Errors
/// No column has the name.
pub fn column(name: &str) -> Result<&'static Column, UnknownColumn> {
    let columns = columns();
    columns.iter().find(|column| column.name == name).ok_or_else(|| UnknownColumn {
        name: name.into(),
        similar: most_similar(name, columns.iter().map(|column| column.name)),
    })
}

/// The name that is most similar to what the user wrote, if one is similar.
pub(crate) fn most_similar(written: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let similarity = |name: &&str| (strsim::jaro_winkler(name, written) * 1000.0) as u32;
    names.max_by_key(similarity).filter(|name| similarity(name) > 800)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_value::FieldValue;
    use std::collections::BTreeSet;
    use weir_flow::{Direction, FlowRecord};
    use weir_packet::Network;
    use weir_tcp::TcpReport;

    #[test]
    fn names_are_unique_and_name_the_direction() {
        let names: BTreeSet<&str> = columns().iter().map(|column| column.name).collect();
        assert_eq!(names.len(), columns().len());
        for name in &names {
            if let Some(field) = name.strip_prefix("fwd_") {
                assert!(names.contains(&*format!("rev_{field}")), "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_name_has_a_near_match() {
        assert_eq!(column("fwd_packets").unwrap().name, "fwd_packets");
        assert_eq!(column("rev_packet").unwrap_err().similar, Some("rev_packets"));
        assert_eq!(column("start").unwrap_err().similar, Some("start_time"));
        assert_eq!(column("xyz").unwrap_err().to_string(), "there is no field \"xyz\" (names: weir fields)");
    }

    #[test]
    fn totals_are_the_sums_of_both_directions() {
        let direction =
            |packets| Direction { packets, bytes: 10 * packets, frame_bytes: 20 * packets, ..Direction::default() };
        let flow = FlowRecord { forward: direction(3), reverse: direction(4), ..FlowRecord::default() };
        let read = |name: &str| column(name).unwrap().read(&flow);
        for (name, numbers) in [("packets", [7, 3, 4]), ("bytes", [70, 30, 40]), ("l2_bytes", [140, 60, 80])] {
            let columns = [name.to_owned(), format!("fwd_{name}"), format!("rev_{name}")];
            assert_eq!(columns.map(|name| read(&name)), numbers.map(FieldValue::Unsigned), "{name}");
        }
    }

    /// pandas reads a column of integers with one missing value as floating-point numbers.
    #[test]
    fn what_is_counted_is_never_null() {
        let udp = FlowRecord { protocol: 17, ..FlowRecord::default() };
        let tcp = FlowRecord {
            protocol: 6,
            forward: Direction { packets: 1, ..Direction::default() },
            tcp: Some([TcpReport::EMPTY; 2]),
            ..FlowRecord::default()
        };
        let layer2 = FlowRecord { network: Network::Layer2, ..FlowRecord::default() };
        let null = |flow: &FlowRecord, name: &str| column(name).unwrap().read(flow) == FieldValue::NotApplicable;
        let counts = [
            "duration_ns",
            "src_port",
            "dst_port",
            "packets",
            "fwd_packets",
            "rev_bytes",
            "rev_l2_bytes",
            "rev_tcp_flags_number",
            "interface",
            "queue_lost",
            "sampling_min",
            "sampling_max",
        ];
        for flow in [udp, tcp, layer2] {
            assert_eq!(counts.iter().find(|name| null(&flow, name)), None);
        }
        let of_tcp = ["rev_tcp_retransmitted_packets", "rev_tcp_unique_bytes", "rev_tcp_acknowledgments"];
        assert_eq!(of_tcp.iter().find(|name| null(&tcp, name)), None);
        assert!(of_tcp.iter().all(|name| null(&udp, name)));
        assert!(null(&tcp, "rev_tcp_handshake_rtt_ns") && null(&udp, "fwd_tcp_flags"));
    }

    #[test]
    fn protocol_and_tcp_flags_are_text_beside_the_numbers() {
        let forward = Direction { packets: 1, tcp_flags: 0x1b, ..Direction::default() };
        let flow = FlowRecord { protocol: 6, forward, ..FlowRecord::default() };
        let text = |name: &str| column(name).unwrap().read(&flow).to_string();
        assert_eq!(["protocol", "protocol_number"].map(text), ["tcp", "6"]);
        assert_eq!(["fwd_tcp_flags", "fwd_tcp_flags_number"].map(text), ["SAPF", "27"]);
        assert_eq!(["rev_tcp_flags", "rev_tcp_flags_number"].map(text), ["", "0"]);
        assert_eq!(FieldValue::TcpFlags(0xfff).to_string(), "SAPFRUECN123");
        assert_eq!(
            [1, 58, 17, 250].map(|number| FieldValue::Protocol(number).to_string()),
            ["icmp", "icmp6", "udp", "250"]
        );
    }
}
