//! The list of columns, and columns by name.
//!
//! A column is a field of the whole flow, or a field of one direction with the prefix `fwd_` or
//! `rev_`. The catalogue defines all of them.

use crate::catalogue::fields;
use crate::column::{Column, Origin, Profile, Requirement};
use crate::field::columns_of_word;
use std::collections::HashSet;
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

/// Why a selection of columns is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFields {
    /// A name is neither that of a column nor that of a profile.
    #[error(transparent)]
    Unknown(#[from] UnknownColumn),
    /// A pattern matches no column.
    #[error("no field matches {0:?} (names: weir fields)")]
    NoMatch(String),
    /// Of this name, pattern or profile, transactions have nothing.
    #[error("a transaction has no {0}; see weir help transactions for the fields that it has")]
    NotOfTransactions(String),
}

/// The columns of a selection: names, words of expressions (`host` is `src_ip` and `dst_ip`), patterns with `*` for any
/// text, and the profiles `basic`, `layer2`, `tcp`, `places`, `applications`, `store` and `all`, separated by commas,
/// without regard to case.
/// They are in the order of the selection, each once.
///
/// # Errors
/// A name is unknown, or a pattern matches no column.
pub fn select_columns(selection: &str) -> Result<Vec<&'static Column>, InvalidFields> {
    let mut selected: Vec<&'static Column> = Vec::new();
    let mut names = HashSet::new();
    for item in selection.split(',') {
        let lower = item.to_ascii_lowercase();
        let of_item: Vec<&'static Column> =
            if let Some((_, has)) = FIELD_PROFILES.iter().find(|(name, _)| *name == lower) {
                columns().iter().filter(|column| has(column)).collect()
            } else if item.contains('*') {
                columns().iter().filter(|column| matches(&lower, column.name)).collect()
            } else {
                match (column(&lower), columns_of_word(&lower)) {
                    (Ok(column), _) => vec![column],
                    (Err(_), Some(of_word)) => of_word,
                    (Err(unknown), None) => return Err(UnknownColumn { name: item.into(), ..unknown }.into()),
                }
            };
        if of_item.is_empty() {
            return Err(InvalidFields::NoMatch(item.into()));
        }
        for column in of_item {
            if names.insert(column.name) {
                selected.push(column);
            }
        }
    }
    Ok(selected)
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

/// Whether a name matches a pattern, in which `*` stands for any text. The work is at most that of one search
/// for each `*`: patterns come from the HTTP interface, too.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let (parts, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut middle) = name.strip_prefix(start).and_then(|name| name.strip_suffix(end)) else { return false };
    // The first place of each part leaves most of the name to the others.
    parts.split('*').all(|part| match middle.find(part) {
        Some(at) => {
            middle = &middle[at + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::FieldValue;
    use std::collections::BTreeSet;
    use weir_flow::{Direction, FlowRecord};
    use weir_packet::Network;
    use weir_tcp::TcpReport;

    /// The columns of the profile `basic`.
    const BASIC: [&str; 27] = [
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

    /// The columns of the profile `places`.
    const PLACES: [&str; 18] = [
        "interface_name",
        "src_network",
        "dst_network",
        "src_site",
        "dst_site",
        "src_role",
        "dst_role",
        "src_local",
        "dst_local",
        "src_country",
        "dst_country",
        "src_as",
        "dst_as",
        "src_as_org",
        "dst_as_org",
        "tags",
        "src_tags",
        "dst_tags",
    ];

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
    fn a_star_stands_for_any_text() {
        for pattern in
            ["*", "**", "abcabc", "abc*", "*abc", "a*c", "*b*b*", "*bca*", "a**c", "abc*abc", "*a*b*c*a*b*c*"]
        {
            assert!(matches(pattern, "abcabc"), "{pattern}");
        }
        for pattern in ["", "abc", "*bb*", "abca*cabc", "abcabc*c", "*b*b*b*", "b*", "*b", "abc*d*abc"] {
            assert!(!matches(pattern, "abcabc"), "{pattern}");
        }
        // As long as a request may be. A recursive search would not end, or overflow the stack.
        assert!(matches(&"*".repeat(16_000), "fwd_packets"));
        assert!(!matches(&format!("{}zz", "*".repeat(16_000)), "fwd_packets"));
        assert!(!matches(&format!("{}zz", "*s".repeat(8_000)), "fwd_packets"));
    }

    #[test]
    fn no_profile_has_the_name_of_a_field() {
        let is_field = |name: &&&str| column(name).is_ok();
        assert_eq!(FIELD_PROFILES.iter().map(|(name, _)| name).find(is_field), None);
    }

    fn names(selection: &str) -> Vec<&'static str> {
        select_columns(selection).unwrap().iter().map(|column| column.name).collect()
    }

    #[test]
    fn a_selection_has_profiles_names_and_patterns_in_its_order() {
        assert_eq!(names("basic"), BASIC, "the profile has the order of the table");
        assert_eq!(names("all").len(), columns().len());
        assert_eq!(names("places"), PLACES);
        assert_eq!(
            names("bytes,*_ip,src_ip,bytes"),
            [
                "bytes",
                "src_ip",
                "dst_ip",
                "server_ip",
                "client_ip",
                "fwd_outer_src_ip",
                "rev_outer_src_ip",
                "fwd_outer_dst_ip",
                "rev_outer_dst_ip"
            ]
        );
        assert_eq!(names("*rtt*")[..2], ["fwd_tcp_handshake_rtt_ns", "rev_tcp_handshake_rtt_ns"]);
        assert!(names("tcp").len() > 80 && names("tcp")[..26] == BASIC[..26] && names("tcp").contains(&"rev_tcp_mss"));
        assert_eq!(names("basic,*vlan_id").len(), 31);
        assert_eq!(names("fwd_*").len(), names("rev_*").len());
    }

    #[test]
    fn a_word_selects_the_columns_of_both_sides_and_directions() {
        for (word, expected) in [
            ("host", "src_ip dst_ip"),
            ("port", "src_port dst_port"),
            ("flags", "fwd_tcp_flags rev_tcp_flags"),
            ("vlan", "fwd_vlan_id rev_vlan_id"),
            ("inner_vlan", "fwd_inner_vlan_id rev_inner_vlan_id"),
            ("mpls", "fwd_mpls_label rev_mpls_label"),
            ("tunnel", "fwd_tunnel_type rev_tunnel_type"),
            ("icmp_type", "fwd_icmp_type rev_icmp_type"),
            ("mac", "src_mac dst_mac"),
            ("as", "src_as dst_as"),
            ("country", "src_country dst_country"),
            ("duration", "duration_ns"),
            ("source,dst,proto,host", "src_ip dst_ip protocol"),
            ("Host", "src_ip dst_ip"),
        ] {
            assert_eq!(names(word).join(" "), expected, "{word}");
        }
        for (word, _) in crate::words() {
            assert!(!names(word.name).is_empty());
        }
    }

    #[test]
    fn a_selection_that_does_not_exist_is_refused() {
        for (selection, expected) in [
            ("start", "there is no field \"start\" (did you mean start_time?)"),
            ("basic,rev_byte", "there is no field \"rev_byte\" (did you mean rev_bytes?)"),
            ("basics", "there is no field \"basics\" (did you mean basic?)"),
            ("", "there is no field \"\" (names: weir fields)"),
            ("src_ip,", "there is no field \"\" (names: weir fields)"),
            ("basic,*_mos", "no field matches \"*_mos\" (names: weir fields)"),
        ] {
            assert_eq!(select_columns(selection).unwrap_err().to_string(), expected);
        }
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
