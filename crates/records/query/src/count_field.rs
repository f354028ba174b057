//! What a view counts the different values of: `hosts`, `ports`, `sni`.

use crate::group_field::{GroupField, InvalidGroupField};
use std::fmt;
use std::str::FromStr;

/// A field of which the different values in each group are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountField {
    /// Addresses of the other side: of the destination; of the source in groups of a field of the destination; of the
    /// servers of a client, and the clients of a server.
    Hosts,
    /// Ports of the destination.
    Ports,
    /// Values of a field, and the name of the column.
    Field(GroupField, String),
}

impl FromStr for CountField {
    type Err = InvalidGroupField;

    fn from_str(text: &str) -> Result<Self, InvalidGroupField> {
        match text.trim().to_ascii_lowercase().as_str() {
            "hosts" => Ok(Self::Hosts),
            "ports" => Ok(Self::Ports),
            _ => {
                let field: GroupField = text.parse()?;
                let name = format!("distinct_{}", field.name());
                Ok(Self::Field(field, name))
            }
        }
    }
}

impl CountField {
    /// Name of the column.
    pub fn name(&self) -> &str {
        match self {
            Self::Hosts => "hosts",
            Self::Ports => "ports",
            Self::Field(_, name) => name,
        }
    }

    /// The field, if it is one.
    pub fn field(&self) -> Option<&GroupField> {
        if let Self::Field(field, _) = self { Some(field) } else { None }
    }

    /// Names of the fields that are read, if records are grouped by these fields.
    pub fn names_in(&self, by: &[GroupField]) -> [&'static str; 2] {
        self.of_sides(by).map(|field| field.name())
    }

    /// The fields whose values count in a group of the source and in one of the destination, if records are grouped by
    /// these fields.
    pub(crate) fn of_sides(&self, by: &[GroupField]) -> [GroupField; 2] {
        let field =
            |side: &str, what: &str| -> GroupField { format!("{side}_{what}").parse().expect("the field exists") };
        let begins_with = |side: &str| by.iter().any(|field| field.name().starts_with(side));
        match self {
            Self::Hosts if by.iter().any(GroupField::has_sides) => [field("dst", "ip"), field("src", "ip")],
            Self::Hosts => {
                let opposites = [("server_", "client"), ("client_", "server"), ("dst_", "src")];
                let other = opposites.into_iter().find(|(side, _)| begins_with(side));
                let address = field(other.map_or("dst", |(_, other)| other), "ip");
                [address.clone(), address]
            }
            Self::Ports => [field("dst", "port"), field("dst", "port")],
            Self::Field(field, _) => [field.clone(), field.clone()],
        }
    }
}

impl fmt::Display for CountField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts | Self::Ports => f.write_str(self.name()),
            Self::Field(field, _) => field.fmt(f),
        }
    }
}
