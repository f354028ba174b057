//! The type of each column in ClickHouse.
//!
//! | column of Weir | type |
//! |---|---|
//! | time | `DateTime64(9, 'UTC')` |
//! | integer | `UInt8` to `UInt64`, as wide as its information element |
//! | number | `Float64` |
//! | address | `IPv6`; an IPv4 address is mapped (`::ffff:192.0.2.1`), none is `::` |
//! | word | `LowCardinality(String)`, none is empty |
//! | words, names | `Array(LowCardinality(String))` |
//! | a list of texts | `Array(String)` |
//! | other texts | `String`, none is empty; of few values `LowCardinality(String)` |
//!
//! Integers, numbers and times are `Nullable` if 0 and no value differ: not counters that every flow has.

use crate::comparison::RowColumn;
use std::fmt;
use weir_fields::{Column, ColumnKind, DataType, Origin, elements_of};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Nanoseconds since 1970, 64 bits.
    Time {
        /// Whether it can have no value.
        is_nullable: bool,
    },
    /// An unsigned number.
    Integer {
        /// Its octets: 1, 2, 4 or 8.
        octets: u8,
        /// Whether it can have no value.
        is_nullable: bool,
    },
    /// A floating-point number, which can have no value.
    Number,
    /// 16 octets.
    Address,
    /// A text.
    Text,
    /// A text of few values.
    Word,
    /// Several words, separated by this character in the text of a value.
    Words(u8),
    /// Several texts, separated by commas in the text of a value.
    Texts,
}

/// The column of the probe that wrote a row: not a field of a flow, but the same in all rows of a sink.
pub const PROBE: &str = "probe";

/// The columns of a row in their order: those of the fields, and then, if there is one, that of the probe.
pub fn row_columns(fields: &[&'static Column], has_probe: bool) -> Vec<RowColumn> {
    let column = |name: &str, of_type: ColumnType| RowColumn { name: name.into(), type_name: of_type.to_string() };
    let of_probe = has_probe.then(|| column(PROBE, ColumnType::Word));
    fields.iter().map(|field| column(field.name, ColumnType::of(field))).chain(of_probe).collect()
}

/// Integers that every flow has.
const ALWAYS: [&str; 12] = [
    "duration_ns",
    "packets",
    "bytes",
    "l2_bytes",
    "fwd_packets",
    "rev_packets",
    "fwd_bytes",
    "rev_bytes",
    "fwd_l2_bytes",
    "rev_l2_bytes",
    "interface",
    "queue_lost",
];

impl ColumnType {
    /// The type of a column.
    pub fn of(column: &Column) -> Self {
        let is_list = column.properties.is_list;
        match column.kind {
            ColumnKind::Time => Self::Time { is_nullable: !["start_time", "end_time"].contains(&column.name) },
            ColumnKind::Integer => {
                let is_nullable = !column.has_number_of_none() && !ALWAYS.contains(&column.name);
                Self::Integer { octets: octets(column), is_nullable }
            }
            ColumnKind::Number => Self::Number,
            ColumnKind::Address => Self::Address,
            ColumnKind::Words | ColumnKind::Names => Self::Words(b' '),
            ColumnKind::Word | ColumnKind::TcpFlags => Self::Word,
            _ if is_list => Self::Texts,
            // Names of networks, countries and operators; what protocols have few of.
            _ if column.is_of(Origin::Enrichment) => Self::Word,
            _ if ["tls_version", "http_method", "alpn"].contains(&column.name) => Self::Word,
            _ => Self::Text,
        }
    }
}

/// The octets of an integer: those of its element.
fn octets(column: &Column) -> u8 {
    let octets = elements_of(column).filter_map(|element| match element.data_type {
        DataType::Unsigned8 => Some(1),
        DataType::Unsigned16 => Some(2),
        DataType::Unsigned32 => Some(4),
        DataType::Unsigned64 => Some(8),
        _ => None,
    });
    octets.max().unwrap_or(8)
}

impl fmt::Display for ColumnType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time { is_nullable: false } => formatter.write_str("DateTime64(9, 'UTC')"),
            Self::Time { is_nullable: true } => formatter.write_str("Nullable(DateTime64(9, 'UTC'))"),
            Self::Integer { octets, is_nullable: false } => write!(formatter, "UInt{}", 8 * octets),
            Self::Integer { octets, is_nullable: true } => write!(formatter, "Nullable(UInt{})", 8 * octets),
            Self::Number => formatter.write_str("Nullable(Float64)"),
            Self::Address => formatter.write_str("IPv6"),
            Self::Text => formatter.write_str("String"),
            Self::Word => formatter.write_str("LowCardinality(String)"),
            Self::Words(_) => formatter.write_str("Array(LowCardinality(String))"),
            Self::Texts => formatter.write_str("Array(String)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_fields::column;

    #[test]
    fn the_probe_is_the_last_column_and_no_field() {
        assert!(column(PROBE).is_err());
        let fields = weir_fields::select_columns("src_ip,dst_ip").unwrap();
        let names =
            |has_probe| row_columns(&fields, has_probe).into_iter().map(|column| column.name).collect::<Vec<_>>();
        assert_eq!(
            (names(true).join(","), names(false).join(",")),
            ("src_ip,dst_ip,probe".into(), "src_ip,dst_ip".into())
        );
    }

    #[test]
    fn types_follow_the_catalogue() {
        for (name, expected) in [
            ("start_time", "DateTime64(9, 'UTC')"),
            ("src_ip", "IPv6"),
            ("src_port", "UInt16"),
            ("service_port", "Nullable(UInt16)"),
            ("protocol", "LowCardinality(String)"),
            ("fwd_packets", "UInt64"),
            ("packets", "UInt64"),
            ("fwd_tcp_flags", "LowCardinality(String)"),
            ("fwd_tos", "Nullable(UInt8)"),
            ("fwd_vlan_id", "Nullable(UInt16)"),
            ("sampling_max", "UInt32"),
            ("approximate", "Array(LowCardinality(String))"),
            ("tags", "Array(LowCardinality(String))"),
            ("bps", "Nullable(Float64)"),
            ("cert_not_before", "Nullable(DateTime64(9, 'UTC'))"),
            ("src_country", "LowCardinality(String)"),
            ("sni", "String"),
            ("alpn_offered", "Array(String)"),
            ("src_mac", "String"),
            ("fwd_tcp_retransmitted_packets", "Nullable(UInt64)"),
        ] {
            assert_eq!(column(name).map(ColumnType::of).unwrap().to_string(), expected, "{name}");
        }
    }
}
