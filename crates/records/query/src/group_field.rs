//! The fields by which a view groups records: `host`, `dst_port`, `src_ip/24`.

use crate::condition::without_final_dot;
use crate::error::nearest;
use crate::field::{Field, Kind, Read, field, near_names, of_first};
use crate::literal::mask;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use weir_fields::FieldValue;
use weir_flow::FlowRecord;
use weir_packet::{NO_LABEL, NO_VLAN};

/// Bits of an IPv6 prefix if the user names only those of IPv4: the usual subnet.
const DEFAULT_IPV6_BITS: u8 = 64;

/// A field by which records are grouped.
#[derive(Clone, Debug)]
pub struct GroupField {
    /// The field as the user wrote it.
    text: String,
    field: Field,
    /// Bits of IPv4 and of IPv6 addresses by which records are grouped.
    prefix: Option<[u8; 2]>,
}

/// Fields are equal if their texts are.
impl PartialEq for GroupField {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for GroupField {}

/// Why records cannot be grouped by a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGroupField {
    /// There is no such field.
    #[error("there is no field {name:?}{}", nearest(.near))]
    Unknown {
        /// The name as the user wrote it.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// Only addresses have prefixes.
    #[error("{0} is not an address: it has no prefix")]
    NoPrefix(&'static str),
    /// The prefix is not a number, or too long.
    #[error("{0:?} is not a prefix length: write FIELD/24, or FIELD/24/48 with a length for IPv6, too")]
    PrefixLength(String),
}

impl FromStr for GroupField {
    type Err = InvalidGroupField;

    fn from_str(text: &str) -> Result<Self, InvalidGroupField> {
        let (name, prefix) = text.split_once('/').map_or((text, None), |(name, prefix)| (name, Some(prefix)));
        let name = name.trim().to_ascii_lowercase();
        let found = view_field(&name);
        let field = found.ok_or_else(|| InvalidGroupField::Unknown { near: near_names(&name), name: name.clone() })?;
        let prefix = prefix.map(|bits| prefix_bits(field, bits)).transpose()?;
        Ok(Self { text: text.trim().into(), field, prefix })
    }
}

fn prefix_bits(field: Field, text: &str) -> Result<[u8; 2], InvalidGroupField> {
    if field.kind != Kind::Address {
        return Err(InvalidGroupField::NoPrefix(field.name));
    }
    let (ipv4, ipv6) = text.split_once('/').map_or((text, None), |(ipv4, ipv6)| (ipv4, Some(ipv6)));
    let bits = |text: &str, most: u8| text.parse().ok().filter(|&bits: &u8| bits <= most);
    let ipv6 = ipv6.map_or(Some(DEFAULT_IPV6_BITS), |text| bits(text, 128));
    bits(ipv4, 32)
        .zip(ipv6)
        .map(|(ipv4, ipv6)| [ipv4, ipv6])
        .ok_or_else(|| InvalidGroupField::PrefixLength(text.into()))
}

/// The field of a name in a view. What a packet header has once (VLAN, MPLS label) is that of the
/// first direction with packets.
fn view_field(name: &str) -> Option<Field> {
    let one = |name, kind, read| Some(Field { name, kind, read: Read::One(read) });
    match name {
        "source" | "src" => field("src_ip"),
        "destination" | "dst" => field("dst_ip"),
        "proto" => field("protocol"),
        "vlan" => one("vlan", Kind::Number(4095), |flow| of_first(flow, |d| known(d.vlan != NO_VLAN, d.vlan.into()))),
        "inner_vlan" => one("inner_vlan", Kind::Number(4095), |flow| {
            of_first(flow, |d| known(d.inner_vlan != NO_VLAN, d.inner_vlan.into()))
        }),
        "mpls" => one("mpls", Kind::Number(0xf_ffff), |flow| {
            of_first(flow, |d| known(d.mpls_label != NO_LABEL, d.mpls_label.into()))
        }),
        "flags" => one("flags", Kind::Flags, |flow| {
            let applies = flow.protocol == 6 && flow.has_ports();
            let bits = flow.forward.tcp_flags | flow.reverse.tcp_flags;
            if applies { FieldValue::TcpFlags(bits) } else { FieldValue::NotApplicable }
        }),
        name => field(name),
    }
}

/// A name of a host as all that are equal to it are written: in lower case, without the final dot.
fn comparable(name: Cow<'_, str>) -> Cow<'_, str> {
    let short = without_final_dot(&name);
    if short.len() == name.len() && !name.bytes().any(|octet| octet.is_ascii_uppercase()) {
        return name;
    }
    Cow::Owned(short.to_ascii_lowercase())
}

fn known(applies: bool, number: u64) -> Option<FieldValue<'static>> {
    applies.then_some(FieldValue::Unsigned(number))
}

impl GroupField {
    /// Name of the column.
    pub fn name(&self) -> &'static str {
        self.field.name
    }

    /// Whether a record is in the group of its source and in that of its destination.
    pub fn has_sides(&self) -> bool {
        matches!(self.field.read, Read::Sides(..))
    }

    /// Whether the values are numbers, which tables align at the right.
    pub fn is_number(&self) -> bool {
        self.field.kind.is_ordered() && self.field.kind != Kind::Time
    }

    /// The value in a record; of a field of both sides, that of one side.
    #[inline]
    pub(crate) fn value<'a>(&self, flow: &'a FlowRecord, side: usize) -> FieldValue<'a> {
        let value = match (self.field.read, side) {
            (Read::Column(column), _) => column.read(flow),
            (Read::One(read), _) | (Read::Sides(read, _), 0) | (Read::Sides(_, read), _) => read(flow),
        };
        match (value, self.prefix) {
            (FieldValue::Ip(address), Some([ipv4, ipv6])) => {
                FieldValue::Ip(mask(address, if address.is_ipv4() { ipv4 } else { ipv6 }))
            }
            (FieldValue::Text(name), _) if matches!(self.field.kind, Kind::HostName | Kind::List(&Kind::HostName)) => {
                FieldValue::Text(comparable(name))
            }
            (value, _) => value,
        }
    }

    /// Appends the text of a value, with the length of the prefix. It is empty for a record to which
    /// the field does not apply.
    pub fn append_text(&self, value: &FieldValue<'_>, out: &mut Vec<u8>) {
        value.append_text(out);
        if let (FieldValue::Ip(address), Some([ipv4, ipv6])) = (value, self.prefix) {
            out.extend(format!("/{}", if address.is_ipv4() { ipv4 } else { ipv6 }).as_bytes());
        }
    }
}

impl fmt::Display for GroupField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
