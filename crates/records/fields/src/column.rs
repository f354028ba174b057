//! A column of flow records, which JSON, CSV, filters and aggregations read.

use crate::restore::{Restore, StoredValue};
use crate::value::FieldValue;
use crate::words::Words;
use weir_dpi::Fact;
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
    /// Whether a value can be an address or a text that is no word of Weir: it can say who communicates.
    pub const fn can_identify(self) -> bool {
        match self {
            Self::Address | Self::Mac | Self::Names | Self::Text | Self::CaselessText | Self::HostName => true,
            Self::Time | Self::Integer | Self::Number | Self::Word | Self::Words | Self::TcpFlags => false,
        }
    }

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
    /// What a record has to be metered or enriched with, so that it has a value.
    pub needs: Option<Requirement>,
    /// When the value is known.
    pub known: Known,
    /// The profiles that name it. Others have all fields of an origin.
    pub profiles: &'static [Profile],
    /// The words that it can have.
    pub words: Option<Words>,
    /// A value is a list, separated by commas.
    pub is_list: bool,
    /// Another name.
    pub alias: Option<&'static str>,
    /// The names of the entries that it is computed from, if it has no element of its own.
    pub computed_from: &'static [&'static str],
    /// A stored record has the field if it has these columns, or columns of these entries.
    pub restored_from: &'static [&'static str],
    /// The extracted field that it is read from. Anonymised records have no others.
    pub fact: Option<Fact>,
    /// What anonymisation does with it; nothing if it is not stated. A test demands it of fields that can say who
    /// communicates.
    pub anonymisation: Option<Anonymisation>,
}

impl Properties {
    /// Those of most fields of an origin: they need no option, and change as long as the flow lasts.
    pub const fn of(origin: Origin) -> Self {
        Self {
            origin,
            needs: None,
            known: Known::Never,
            profiles: &[],
            words: None,
            is_list: false,
            alias: None,
            computed_from: &[],
            restored_from: &[],
            fact: None,
            anonymisation: None,
        }
    }

    /// Those of the reverse direction, which has no packets when a flow begins.
    pub(crate) const fn of_reverse(self) -> Self {
        Self { known: if matches!(self.known, Known::AtFirst) { Known::Never } else { self.known }, ..self }
    }
}

/// What anonymisation does with the values of a field (docs/anonymise.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymisation {
    /// They stay: they do not say who communicates, or they are words of the user.
    Keep,
    /// Addresses: the common prefix of two stays as long as it is.
    Address,
    /// MAC addresses: other ones, locally administered.
    Mac,
    /// Names and texts of payload: a keyed hash, of each entry if the field is a list. Addresses among them become
    /// those of [`Self::Address`].
    Name,
    /// These words of protocols stay. Others are names.
    Words(&'static [&'static str]),
    /// No record has the field.
    LeaveOut,
    /// The field follows from others, which are anonymised before.
    Derived,
}

impl Anonymisation {
    /// What docs/anonymise.md says that becomes of the field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "stays",
            Self::Address => "address",
            Self::Mac => "MAC address",
            Self::Name => "name",
            Self::Words(_) => "known word, or name",
            Self::LeaveOut => "left out",
            Self::Derived => "derived",
        }
    }
}

/// What records have to be metered or enriched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Flows of frames without IP.
    Layer2Flows,
    /// MAC addresses of IP flows.
    MacAddresses,
    /// Decapsulation of tunnels.
    Decapsulation,
    /// Inspection of payload.
    Inspection,
    /// Counts of questions and answers.
    Transactions,
    /// What may tell something about a person.
    PersonalFields,
    /// nDPI.
    Ndpi,
    /// The table of networks.
    Networks,
    /// Databases of countries and autonomous systems.
    Geo,
    /// Lists of tags.
    Tags,
    /// Names of interfaces.
    InterfaceNames,
}

impl Requirement {
    /// The option of `weir read` and `weir probe` that meets it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Layer2Flows => "--layer2",
            Self::MacAddresses => "--mac-addresses",
            Self::Decapsulation => "--decap",
            Self::Inspection => "--dpi light",
            Self::Transactions => "--dpi-transactions on",
            Self::PersonalFields => "--dpi-fields",
            Self::Ndpi => "--dpi full",
            Self::Networks => "--networks",
            Self::Geo => "--geo",
            Self::Tags => "--tags",
            Self::InterfaceNames => "--interface-names",
        }
    }
}

/// When the value of a field is known: rules decide each flow once, so that it must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// From the first packet on.
    AtFirst,
    /// When inspection of the first payload has ended.
    Later,
    /// Part of it from the first packet on, the rest when inspection has ended.
    InPart,
    /// It changes as long as the flow lasts.
    Never,
}

/// A selection of fields that entries name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// `basic`: fields of JSON and CSV that the user does not select.
    Basic,
    /// `layer2`.
    Layer2,
    /// `store`: fields of a store that the user does not select.
    Store,
    /// What `weir tcp` knows of a connection besides TCP analysis.
    Connection,
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
    /// Sets the value of a stored record.
    pub(crate) restore: Option<Restore>,
}

/// Names are unique.
impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Column {}

impl Column {
    /// Whether its entry names the profile.
    pub fn is_in(&self, profile: Profile) -> bool {
        self.properties.profiles.contains(&profile)
    }

    /// Whether the origin computes it.
    pub fn is_of(&self, origin: Origin) -> bool {
        self.properties.origin == origin
    }

    /// The number that a record has where the field does not apply, or where a stored record lacks it.
    pub fn number_of_none(&self) -> u64 {
        self.none.unwrap_or_default()
    }

    /// Whether a flow to which the field does not apply has a number in it.
    pub fn has_number_of_none(&self) -> bool {
        self.none.is_some()
    }

    /// Whether stored records can get the field back by its value.
    pub fn is_restored(&self) -> bool {
        self.restore.is_some()
    }

    /// Sets the value of a stored record. Returns whether it is one of the field.
    pub fn restore(&self, flow: &mut FlowRecord, value: StoredValue<'_>) -> bool {
        self.restore.is_some_and(|restore| restore(flow, value).is_some())
    }

    /// The value in a flow record: of the type of [`Self::kind`], or [`FieldValue::NotApplicable`].
    #[inline]
    pub fn read<'a>(&self, flow: &'a FlowRecord) -> FieldValue<'a> {
        // Changed in place: a copy waits for the parts of the value that the function has just written.
        let mut value = (self.read)(flow);
        match value {
            FieldValue::Implied(number) => value = FieldValue::Unsigned(number),
            FieldValue::NotApplicable | FieldValue::NoValue => {
                value = self.none.map_or(FieldValue::NotApplicable, FieldValue::Unsigned);
            }
            _ => {}
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::{Anonymisation, ColumnKind};
    use crate::catalogue::{fields, template_fields};
    use crate::element::{DataType, Element};
    use std::collections::BTreeMap;
    use weir_dpi::Fact;

    /// Whether an encoding holds an address or a text. Fixed words are none.
    fn can_identify(element: &Element) -> bool {
        use DataType::{Ipv4Address, Ipv6Address, MacAddress, OctetArray};
        matches!(element.data_type, Ipv4Address | Ipv6Address | MacAddress | OctetArray | DataType::String)
    }

    #[test]
    fn each_field_that_can_say_who_communicates_says_what_anonymisation_does_with_it() {
        for entry in fields().chain(template_fields()) {
            let column = &entry.columns[0];
            let is_word = matches!(column.kind, ColumnKind::Word | ColumnKind::Words | ColumnKind::TcpFlags);
            let has_text = column.kind.can_identify() || entry.elements.iter().any(can_identify) && !is_word;
            let rule = column.properties.anonymisation;
            assert!(!has_text || rule.is_some(), "{}: anonymisation: Some(...) is missing", entry.name);
            // What is in a record becomes what its kind is.
            let of_kind = match column.kind {
                ColumnKind::Address => matches!(rule, Some(Anonymisation::Address | Anonymisation::Derived)),
                ColumnKind::Mac => rule == Some(Anonymisation::Mac),
                _ => !matches!(rule, Some(Anonymisation::Address | Anonymisation::Mac)),
            };
            assert!(of_kind, "{}: {rule:?}", entry.name);
            let of_fact = matches!(rule, Some(Anonymisation::Name | Anonymisation::Words(_) | Anonymisation::LeaveOut));
            assert!(!of_fact || column.properties.fact.is_some(), "{}: fact: Some(...) is missing", entry.name);
        }
    }

    #[test]
    fn each_extracted_field_has_one_rule_or_is_left_out() {
        const OF_READERS: [Fact; 3] = [Fact::DnsQuestion, Fact::DnsSecondQuestion, Fact::DnsSecondAnswer];
        let mut rules: BTreeMap<Fact, Option<Anonymisation>> = BTreeMap::new();
        for entry in fields() {
            let properties = entry.columns[0].properties;
            let Some(fact) = properties.fact else { continue };
            let rule = *rules.entry(fact).or_insert(properties.anonymisation);
            assert_eq!(rule, properties.anonymisation, "{}: {fact:?}", entry.name);
        }
        let without: Vec<_> = Fact::ALL.iter().filter(|fact| !rules.contains_key(fact)).collect();
        assert_eq!(without, OF_READERS.iter().collect::<Vec<_>>());
    }
}
