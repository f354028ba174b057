//! The fields by which a view groups records: `host`, `dst_port`, `src_ip/24`.

use crate::condition::without_final_dot;
use crate::error::nearest;
use crate::literal::mask;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use weir_fields::FieldValue;
use weir_fields::{Field, Kind, Read, Words, near_names, view_field};
use weir_flow::FlowRecord;

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

/// A name of a host as all that are equal to it are written: in lower case, without the final dot.
fn comparable(name: Cow<'_, str>) -> Cow<'_, str> {
    let short = without_final_dot(&name);
    if short.len() == name.len() && !name.bytes().any(|octet| octet.is_ascii_uppercase()) {
        return name;
    }
    Cow::Owned(short.to_ascii_lowercase())
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

    /// Whether the values are ports.
    pub fn is_port(&self) -> bool {
        self.field.kind == Kind::Number(u16::MAX.into())
    }

    /// Whether the values are protocols of IP.
    pub fn is_protocol(&self) -> bool {
        self.field.kind == Kind::Protocol
    }

    /// Whether the values are one of these words.
    pub fn has_words(&self, words: Words) -> bool {
        self.field.properties().words == Some(words)
    }

    /// Whether addresses are grouped by prefix.
    pub fn has_prefix(&self) -> bool {
        self.prefix.is_some()
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

    /// The word for a value that is a number in JSON and CSV.
    pub fn word(&self, value: &FieldValue<'_>) -> Option<&'static str> {
        self.field.properties().words?.of_number(value)
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
