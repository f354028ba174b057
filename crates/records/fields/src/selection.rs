//! The list of columns, and columns by name.
//!
//! A column is a field of the whole flow, or a field of one direction with the prefix `fwd_` or
//! `rev_`. The catalogue defines all of them.

use crate::catalogue::fields;
use crate::column::{Column, Origin, Profile, Requirement};
use std::sync::LazyLock;
use weir_flow::KeyOptions;
use weir_text::most_similar;

/// The name of a selection of columns, and whether it has a column.
pub(crate) type FieldProfile = (&'static str, fn(&Column) -> bool);

/// Selections of columns by name.
pub(crate) const FIELD_PROFILES: [FieldProfile; 7] = [
    ("basic", |column| column.is_in(Profile::Basic)),
    ("layer2", |column| column.is_in(Profile::Layer2)),
    ("tcp", |column| column.is_of(Origin::TcpAnalysis) || column.is_in(Profile::Basic)),
    ("places", |column| column.is_of(Origin::Enrichment)),
    ("applications", |column| column.is_of(Origin::Inspection) || column.is_in(Profile::Basic)),
    ("store", |column| column.is_in(Profile::Store)),
    ("all", |_| true),
];

/// All columns in their order.
pub fn columns() -> &'static [Column] {
    static COLUMNS: LazyLock<Vec<Column>> =
        LazyLock::new(|| fields().flat_map(|field| field.columns).copied().collect());
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

/// A column by its name, or by another name that its entry has.
///
/// # Errors
/// No column has the name.
pub fn column(name: &str) -> Result<&'static Column, UnknownColumn> {
    let columns = columns();
    columns.iter().find(|column| column.name == name || column.properties.alias == Some(name)).ok_or_else(|| {
        UnknownColumn {
            name: name.into(),
            similar: most_similar(
                name,
                FIELD_PROFILES.iter().map(|(name, _)| *name).chain(columns.iter().map(|column| column.name)),
            ),
        }
    })
}

/// The column of the time at which a flow starts.
pub fn start_time() -> &'static Column {
    column("start_time").expect("the column exists")
}

/// The column of the time at which a flow ends.
pub fn end_time() -> &'static Column {
    column("end_time").expect("the column exists")
}

/// The columns if the user selects none: those of a profile (`basic` for JSON and CSV, `store` for a store), the other
/// fields that distinguish flows, and MAC addresses if requested.
pub fn default_columns(profile: Profile, key: KeyOptions, layer2: bool, mac_addresses: bool) -> Vec<&'static Column> {
    let is_more = |column: &&Column| {
        let needs = |requirement| column.properties.needs == Some(requirement);
        layer2 && column.is_in(Profile::Layer2)
            || mac_addresses && needs(Requirement::MacAddresses)
            || key.vlan && column.name.ends_with("vlan_id")
            || key.tunnel && needs(Requirement::Decapsulation)
    };
    let is_of_profile = |column: &&Column| column.is_in(profile);
    let others = columns().iter().filter(|column| !is_of_profile(column)).filter(is_more);
    columns().iter().filter(is_of_profile).chain(others).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::value::FieldValue;
    use std::collections::BTreeSet;
    use weir_flow::{Direction, FlowRecord};
    use weir_packet::Network;
    use weir_tcp::TcpReport;

    /// The columns of the profile `basic`.
    pub(crate) const BASIC: [&str; 27] = [
        "start_time",
        "end_time",
        "duration_ns",
        "src_ip",
        "src_port",
        "dst_ip",
        "dst_port",
        "protocol",
        "protocol_number",
        "packets",
        "bytes",
        "l2_bytes",
        "fwd_packets",
        "rev_packets",
        "fwd_bytes",
        "rev_bytes",
        "fwd_l2_bytes",
        "rev_l2_bytes",
        "fwd_tcp_flags",
        "rev_tcp_flags",
        "end_reason",
        "interface",
        "queue_lost",
        "sampling_max",
        "approximate",
        "community_id",
        "application",
    ];
    /// The columns of the profile `layer2`.
    const LAYER2: [&str; 3] = ["ethertype", "src_mac", "dst_mac"];

    #[test]
    fn names_are_unique_and_name_the_direction() {
        let names: BTreeSet<&str> = columns().iter().map(|column| column.name).collect();
        assert_eq!(names.len(), columns().len());
        for name in &names {
            if let Some(field) = name.strip_prefix("fwd_") {
                assert!(names.contains(&*format!("rev_{field}")), "{name}: `fwd_` is the prefix of fields of `each`");
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
    fn no_profile_has_the_name_of_a_field() {
        let is_field = |name: &&&str| column(name).is_ok();
        assert_eq!(FIELD_PROFILES.iter().map(|(name, _)| name).find(is_field), None);
    }

    #[test]
    fn the_default_has_the_flow_key() {
        let names = |key, layer2| -> Vec<&str> {
            default_columns(Profile::Basic, key, layer2, false).iter().map(|column| column.name).collect()
        };
        assert_eq!(names(KeyOptions::default(), false), BASIC);
        assert_eq!(names(KeyOptions::default(), true)[26..], [&["application"], &LAYER2[..]].concat());
        for layer2 in [false, true] {
            let columns = default_columns(Profile::Basic, KeyOptions::default(), layer2, true);
            assert_eq!(columns.iter().filter(|column| column.name.ends_with("_mac")).count(), 2);
        }
        let key = KeyOptions { vlan: true, tunnel: true, ..KeyOptions::default() };
        let more = names(key, false);
        assert!(
            ["fwd_vlan_id", "rev_inner_vlan_id", "fwd_tunnel_id", "rev_tunnel_type", "fwd_outer_src_ip"]
                .iter()
                .all(|name| more.contains(name)),
            "{more:?}"
        );
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
        for flow in [udp.clone(), tcp.clone(), layer2.clone()] {
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
        assert_eq!(FieldValue::TcpFlags(0xfff).to_string(), "SAPFRUECNXYZ");
        assert_eq!(
            [1, 58, 17, 250].map(|number| FieldValue::Protocol(number).to_string()),
            ["icmp", "icmp6", "udp", "250"]
        );
    }
}
