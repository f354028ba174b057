//! A column of flow records, which JSON, CSV, filters and aggregations read.

use crate::value::FieldValue;
use weir_flow::FlowRecord;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// [`FieldValue::Time`].
    Time,
    /// [`FieldValue::Unsigned`].
    Integer,
    /// [`FieldValue::Float`].
    Number,
    /// [`FieldValue::Ip`].
    Address,
    /// [`FieldValue::Mac`].
    Mac,
    /// One of few words: [`FieldValue::Code`] or [`FieldValue::Protocol`].
    Word,
    /// Several of few words: [`FieldValue::Approximate`], [`FieldValue::Degraded`] or
    /// [`FieldValue::Notes`].
    Words,
    /// Several names of the user, separated by spaces: [`FieldValue::Text`].
    Names,
    /// [`FieldValue::TcpFlags`]: text with a letter for each.
    TcpFlags,
    /// [`FieldValue::CommunityId`] or [`FieldValue::Text`].
    Text,
    /// [`FieldValue::Text`] in which the case of ASCII letters means nothing.
    CaselessText,
    /// The same: a name of a host (RFC 4343), or several.
    HostName,
}

impl ColumnKind {
    /// The name in docs/fields.md.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Address => "address",
            Self::Mac => "mac",
            Self::Word => "word",
            Self::Words => "words",
            Self::Names => "names",
            Self::TcpFlags | Self::Text => "text",
            Self::CaselessText => "caseless",
            Self::HostName => "hostname",
        }
    }
}

/// What computes the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The meter, from the headers of packets.
    Meter,
    /// TCP analysis.
    TcpAnalysis,
    /// Inspection of payload.
    Inspection,
    /// Enrichment.
    Enrichment,
}

/// What is known of a field besides its value.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// What computes it.
    pub origin: Origin,
}

impl Properties {
    /// Those of a field that needs no option.
    pub const fn of(origin: Origin) -> Self {
        Self { origin }
    }
}

/// A column of flow records.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name in JSON and CSV.
    pub name: &'static str,
    /// The name as a key in JSON, with a comma before it and a colon behind it.
    pub json_key: &'static str,
    /// What the values are.
    pub kind: ColumnKind,
    /// Unit of the values, or "".
    pub unit: &'static str,
    /// What the column means, in a sentence.
    pub description: &'static str,
    /// What else is known of it.
    pub properties: Properties,
    /// The number of a flow to which the field does not apply.
    pub(crate) none: Option<u64>,
    /// May return [`FieldValue::Implied`] and [`FieldValue::NoValue`].
    pub(crate) read: fn(&FlowRecord) -> FieldValue<'_>,
}

/// Names are unique.
impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Column {}

impl Column {
    /// Whether the origin computes it.
    pub fn is_of(&self, origin: Origin) -> bool {
        self.properties.origin == origin
    }

    /// The value in a flow record: of the type of [`Self::kind`], or [`FieldValue::NotApplicable`].
    #[inline]
    pub fn read<'a>(&self, flow: &'a FlowRecord) -> FieldValue<'a> {
        match (self.read)(flow) {
            FieldValue::Implied(number) => FieldValue::Unsigned(number),
            FieldValue::NotApplicable | FieldValue::NoValue => {
                self.none.map_or(FieldValue::NotApplicable, FieldValue::Unsigned)
            }
            value => value,
        }
    }
}
