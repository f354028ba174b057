//! Information elements: how IPFIX (RFC 7011) and NetFlow v9 (RFC 3954) name and encode a field.

use weir_packet::Network;

/// Private enterprise number of the elements of Weir, for which IANA has no number. 32473 is the
/// number for examples and documentation (RFC 5612): see docs/decisions/0010.
pub const WEIR_ENTERPRISE: u32 = 32473;
/// Added to the numbers of Weir's elements. NetFlow v9 and IANA use the numbers from 1 to 533, and
/// some collectors ignore the enterprise number: python `netflow` 0.12.2 overwrote its octets and
/// packets.
pub const WEIR_FIRST_NUMBER: u16 = 1000;
/// Number of applicationId.
const APPLICATION_ID: u16 = 95;
/// In place of the length of an element whose values have lengths of their own (RFC 7011 section
/// 7).
pub const VARIABLE: u16 = 65_535;
/// Private enterprise number of the reverse direction of IANA elements (RFC 5103 section 6.1).
pub const REVERSE_ENTERPRISE: u32 = 29305;
/// Private enterprise number of ntop, whose elements many collectors support.
pub const NTOP_ENTERPRISE: u32 = 35632;
/// The bit that makes the number of a Weir element that of its reverse direction (RFC 5103 section
/// 6.2).
pub const WEIR_REVERSE_BIT: u16 = 0x4000;

/// Abstract data types (RFC 7011 section 6.1, RFC 5610 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DataType {
    /// octetArray.
    OctetArray = 0,
    /// unsigned8.
    Unsigned8 = 1,
    /// unsigned16.
    Unsigned16 = 2,
    /// unsigned32.
    Unsigned32 = 3,
    /// unsigned64.
    Unsigned64 = 4,
    /// float64.
    Float64 = 10,
    /// macAddress.
    MacAddress = 12,
    /// string: UTF-8.
    String = 13,
    /// dateTimeMilliseconds.
    DateTimeMilliseconds = 15,
    /// dateTimeNanoseconds.
    DateTimeNanoseconds = 17,
    /// ipv4Address.
    Ipv4Address = 18,
    /// ipv6Address.
    Ipv6Address = 19,
}

impl DataType {
    /// Full length, octets. The longest octet array is applicationId; a label stack entry without
    /// its TTL has less.
    pub const fn octets(self) -> u16 {
        match self {
            Self::Unsigned8 => 1,
            Self::Unsigned16 => 2,
            Self::Unsigned32 | Self::Ipv4Address | Self::OctetArray => 4,
            Self::MacAddress => 6,
            Self::Unsigned64 | Self::Float64 | Self::DateTimeMilliseconds | Self::DateTimeNanoseconds => 8,
            Self::Ipv6Address => 16,
            Self::String => VARIABLE,
        }
    }
}

/// Data type semantics of Weir elements (RFC 5610 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Semantics {
    /// default.
    Default = 0,
    /// quantity.
    Quantity = 1,
    /// identifier.
    Identifier = 4,
    /// flags.
    Flags = 5,
}

/// Units of Weir elements (RFC 5610 section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Units {
    /// none.
    None = 0,
    /// octets.
    Octets = 2,
    /// packets.
    Packets = 3,
    /// messages.
    Messages = 5,
    /// nanoseconds.
    Nanoseconds = 8,
}

/// A format with templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// IPFIX.
    Ipfix,
    /// NetFlow v9.
    Netflow9,
}

impl Format {
    /// Length of the header of a message, octets.
    pub const fn header_octets(self) -> usize {
        match self {
            Self::Ipfix => 16,
            Self::Netflow9 => 20,
        }
    }

    /// The name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipfix => "IPFIX",
            Self::Netflow9 => "NetFlow v9",
        }
    }

    /// The ID of sets of templates.
    pub const fn template_set(self) -> u16 {
        match self {
            Self::Ipfix => 2,
            Self::Netflow9 => 0,
        }
    }

    /// The ID of sets of options templates.
    pub const fn options_template_set(self) -> u16 {
        match self {
            Self::Ipfix => 3,
            Self::Netflow9 => 1,
        }
    }
}

/// An information element.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// Number in the IANA registry, or among the elements of the enterprise.
    pub number: u16,
    /// Its name, which it has in the registry if it is of IANA.
    pub name: &'static str,
    /// Its abstract data type.
    pub data_type: DataType,
    /// Length in a data record, octets: that of the type, or less (reduced-size encoding, RFC 7011
    /// section 6.2). 65535 if each value has a length of its own.
    pub octets: u16,
    /// Semantics and units of a Weir element; `None` for elements of IANA and ntop.
    pub weir: Option<(Semantics, Units)>,
    /// Number of the reverse direction of an ntop element. A larger value than the element can hold
    /// is sent as the largest one.
    pub ntop_reverse: Option<u16>,
    /// Omitted in directions without TCP anomalies.
    pub with_anomalies_only: bool,
    in_ipfix: bool,
    in_netflow9: bool,
    in_full: bool,
    in_basic: bool,
    /// Restricts the element to flows of this network.
    pub network: Option<Network>,
    /// The network whose basic templates have the element. Other records have it if it applies.
    pub basic_network: Option<Network>,
    /// Smallest number that is sent.
    pub min: u64,
}

impl Element {
    /// An element of the IANA registry, in IPFIX only.
    pub const fn iana(number: u16, name: &'static str, data_type: DataType) -> Self {
        let octets = data_type.octets();
        Self {
            number,
            name,
            data_type,
            octets,
            weir: None,
            ntop_reverse: None,
            with_anomalies_only: false,
            in_ipfix: true,
            in_netflow9: false,
            in_full: true,
            in_basic: false,
            network: None,
            basic_network: None,
            min: 0,
        }
    }

    /// An element of the IANA registry that NetFlow v9 has too, with the same number.
    pub const fn common(number: u16, name: &'static str, data_type: DataType) -> Self {
        Self { in_netflow9: true, ..Self::iana(number, name, data_type) }
    }

    /// An element of ntop, which has one number per direction.
    pub const fn ntop(number: u16, reverse: u16, name: &'static str, data_type: DataType) -> Self {
        Self { ntop_reverse: Some(reverse), ..Self::iana(number, name, data_type) }
    }

    /// Omitted in directions without TCP anomalies, where it is 0 or follows from other fields.
    pub const fn with_anomalies_only(self) -> Self {
        Self { with_anomalies_only: true, ..self }
    }

    /// An element of Weir.
    pub const fn weir(
        number: u16,
        name: &'static str,
        data_type: DataType,
        semantics: Semantics,
        units: Units,
    ) -> Self {
        Self { weir: Some((semantics, units)), ..Self::iana(WEIR_FIRST_NUMBER + number, name, data_type) }
    }

    /// In basic templates too.
    pub const fn basic(self) -> Self {
        Self { in_basic: true, ..self }
    }

    /// In basic templates of one network, and in all other records to which it applies.
    pub const fn basic_for(self, network: Network) -> Self {
        Self { in_basic: true, basic_network: Some(network), ..self }
    }

    /// In basic templates only.
    pub const fn only_basic(self) -> Self {
        Self { in_full: false, in_basic: true, ..self }
    }

    /// In lists of elements only, so that full templates stay short.
    pub const fn only_listed(self) -> Self {
        Self { in_full: false, ..self }
    }

    /// In NetFlow v9 only.
    pub const fn only_netflow9(self) -> Self {
        Self { in_ipfix: false, in_netflow9: true, ..self }
    }

    /// Sent in fewer octets than the type has.
    pub const fn in_octets(self, octets: u16) -> Self {
        Self { octets, ..self }
    }

    /// Restricted to flows of one network.
    pub const fn only_for(self, network: Network) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Restricted to numbers that need more than `octets`. Shorter ones have another element of the
    /// same field.
    pub const fn only_if_longer_than(self, octets: u16) -> Self {
        Self { min: 1 << (8 * octets), ..self }
    }

    /// Omitted if 0.
    pub const fn not_zero(self) -> Self {
        Self { min: 1, ..self }
    }

    /// Whether each value has a length of its own.
    #[inline(always)]
    pub const fn is_variable(&self) -> bool {
        self.octets == VARIABLE
    }

    /// Whether the element is the application of a flow.
    #[inline(always)]
    pub const fn is_application_id(&self) -> bool {
        self.number == APPLICATION_ID
    }

    /// Whether a format has the element.
    #[inline(always)]
    pub const fn is_in(&self, format: Format) -> bool {
        match format {
            Format::Ipfix => self.in_ipfix,
            Format::Netflow9 => self.in_netflow9,
        }
    }

    /// Whether full templates have the element.
    #[inline(always)]
    pub const fn is_full(&self) -> bool {
        self.in_full
    }

    /// Whether basic templates have the element.
    #[inline(always)]
    pub const fn is_basic(&self) -> bool {
        self.in_basic
    }
}

/// A quantity that only Weir has an element for.
pub(crate) const fn quantity(number: u16, name: &'static str, data_type: DataType, units: Units) -> Element {
    Element::weir(number, name, data_type, Semantics::Quantity, units)
}

/// The same: packets, only sent with TCP anomalies.
pub(crate) const fn anomaly_packets(number: u16, name: &'static str) -> Element {
    quantity(number, name, DataType::Unsigned64, Units::Packets).with_anomalies_only()
}

/// The same: octets, only sent with TCP anomalies.
pub(crate) const fn anomaly_octets(number: u16, name: &'static str) -> Element {
    quantity(number, name, DataType::Unsigned64, Units::Octets).with_anomalies_only()
}

/// A text of any length, which only Weir has an element for.
pub(crate) const fn text_element(number: u16, name: &'static str) -> Element {
    Element::weir(number, name, DataType::String, Semantics::Default, Units::None).only_listed()
}

/// A text of any length of the whole flow, for which ntop has an element.
pub(crate) const fn ntop_text(number: u16, name: &'static str) -> Element {
    Element::ntop(number, number, name, DataType::String).only_listed()
}
