//! A table of a server beside the table that Weir fills.

/// A column of a table, as `system.columns` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// `DEFAULT`, `MATERIALIZED`, `ALIAS`, `EPHEMERAL`, or empty.
    pub default_kind: String,
}

/// A column of the rows that are sent: what decides how they are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_name: String,
}

/// Why a row of Weir does not fit a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The table has no such column.
    #[error("it has no column {name}, which must be {expected}")]
    Missing {
        /// The column.
        name: String,
        /// Its type.
        expected: String,
    },
    /// The values have other octets.
    #[error("its column {name} is {found}, not {expected}")]
    Type {
        /// The column.
        name: String,
        /// Its type.
        expected: String,
        /// That of the table.
        found: String,
    },
    /// The server computes the column.
    #[error("its column {name} is computed ({kind}), so nothing can be inserted into it")]
    Computed {
        /// The column.
        name: String,
        /// `MATERIALIZED` or `ALIAS`.
        kind: String,
    },
}

/// What a table lacks for rows of these columns, in their order. It may have others, and any order.
pub fn compare(columns: &[RowColumn], live: &[LiveColumn]) -> Vec<Difference> {
    let difference = |column: &RowColumn| {
        let (name, expected) = (column.name.clone(), column.type_name.clone());
        let Some(found) = live.iter().find(|live| live.name == name) else {
            return Some(Difference::Missing { name, expected });
        };
        if ["MATERIALIZED", "ALIAS"].contains(&found.default_kind.as_str()) {
            return Some(Difference::Computed { name, kind: found.default_kind.clone() });
        }
        let is_same = encoding(&found.type_name) == encoding(&expected);
        (!is_same).then(|| Difference::Type { name, expected, found: found.type_name.clone() })
    };
    columns.iter().filter_map(difference).collect()
}

/// What decides how a value is encoded: the type without `LowCardinality` and time zone.
fn encoding(type_name: &str) -> String {
    let mut plain: String = type_name.split_whitespace().collect();
    while let Some(start) = plain.find("LowCardinality(") {
        // What is in it has no comma: a type that it may hold is a simple one.
        let Some(length) = plain[start..].find(')') else { break };
        plain.remove(start + length);
        plain.replace_range(start..start + "LowCardinality(".len(), "");
    }
    // DateTime64(9,'UTC')
    if let Some(start) = plain.find("DateTime64(")
        && let Some(zone) = plain[start..].find(",'").map(|at| start + at)
        && let Some(length) = plain[zone..].find(')')
    {
        plain.replace_range(zone..zone + length, "");
    }
    plain
}

/// Whether a table refuses a block that it got before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// It knows this number of blocks, or as many as replicated tables do by default.
    Known(Option<u64>),
    /// It knows none.
    Off,
    /// The engine is of another kind.
    Unknown,
}

/// The window of a table by its engine with all settings, as `system.tables` has it.
pub fn window(engine: &str) -> Window {
    let name = engine.split(['(', ' ']).next().unwrap_or_default();
    let setting = |key: &str| {
        let (_, after) = engine.split_once(key)?;
        let value = after.trim_start().strip_prefix('=')?.trim_start();
        value.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    if !name.ends_with("MergeTree") {
        return Window::Unknown;
    }
    if name.starts_with("Replicated") || name.starts_with("Shared") {
        return match setting(" replicated_deduplication_window") {
            Some(0) => Window::Off,
            blocks => Window::Known(blocks),
        };
    }
    match setting("non_replicated_deduplication_window") {
        None | Some(0) => Window::Off,
        blocks => Window::Known(blocks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column_type::row_columns;
    use weir_fields::select_columns;

    fn live(columns: &[(&str, &str, &str)]) -> Vec<LiveColumn> {
        let column = |&(name, type_name, kind): &(&str, &str, &str)| LiveColumn {
            name: name.into(),
            type_name: type_name.into(),
            default_kind: kind.into(),
        };
        columns.iter().map(column).collect()
    }

    #[test]
    fn a_column_fits_if_its_values_have_the_same_octets() {
        let fields = select_columns("start_time,src_ip,dst_port,protocol,approximate,fwd_vlan_id").unwrap();
        let columns = row_columns(&fields, false);
        let good = [
            ("note", "String", ""),
            ("start_time", "DateTime64(9)", ""),
            ("src_ip", "IPv6", "DEFAULT"),
            ("dst_port", "UInt16", ""),
            ("protocol", "String", ""),
            ("approximate", "Array(String)", ""),
            ("fwd_vlan_id", "Nullable(UInt16)", ""),
        ];
        assert_eq!(compare(&columns, &live(&good)), []);
        assert_eq!(encoding("Nullable(DateTime64(9, 'Europe/Rome'))"), "Nullable(DateTime64(9))");
        let bad = [
            ("start_time", "DateTime64(3, 'UTC')", ""),
            ("src_ip", "IPv4", ""),
            ("dst_port", "UInt16", "ALIAS"),
            ("protocol", "LowCardinality(Nullable(String))", ""),
            ("fwd_vlan_id", "UInt16", ""),
        ];
        let found: Vec<_> = compare(&columns, &live(&bad)).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "its column start_time is DateTime64(3, 'UTC'), not DateTime64(9, 'UTC')",
                "its column src_ip is IPv4, not IPv6",
                "its column dst_port is computed (ALIAS), so nothing can be inserted into it",
                "its column protocol is LowCardinality(Nullable(String)), not LowCardinality(String)",
                "it has no column approximate, which must be Array(LowCardinality(String))",
                "its column fwd_vlan_id is UInt16, not Nullable(UInt16)",
            ]
        );
        let with_probe: Vec<_> = compare(&row_columns(&fields, true), &live(&good));
        let expected = "LowCardinality(String)".into();
        assert_eq!(with_probe, [Difference::Missing { name: "probe".into(), expected }]);
    }

    #[test]
    fn the_window_is_a_setting_of_the_engine() {
        for (engine, expected) in [
            ("MergeTree ORDER BY a SETTINGS index_granularity = 8192", Window::Off),
            (
                "MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 1000, b = 1",
                Window::Known(Some(1000)),
            ),
            ("MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 0", Window::Off),
            ("ReplicatedMergeTree('/a', '{replica}') ORDER BY a SETTINGS c = 1", Window::Known(None)),
            ("ReplicatedMergeTree ORDER BY a SETTINGS replicated_deduplication_window = 0", Window::Off),
            ("SharedMergeTree ORDER BY a", Window::Known(None)),
            ("Distributed('c', 'd', 't')", Window::Unknown),
            ("Null", Window::Unknown),
        ] {
            assert_eq!(window(engine), expected, "{engine}");
        }
    }
}
