//! Which header follows the one just read, and the EtherTypes that announce it.

/// Stands for the EtherType of a frame that has none.
pub(crate) const NO_ETHERTYPE: u16 = 0;

// EtherTypes.
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(super) const PPPOE_SESSION: u16 = 0x8864;
/// Transparent Ethernet bridging: Ethernet in GRE and Geneve.
pub(crate) const ETHERNET_BRIDGING: u16 = 0x6558;

/// The header that comes next on the way to IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHeader {
    Ipv4,
    Ipv6,
    /// IP of the version in its first four bits.
    AnyIp,
    Ethernet,
    Vlan,
    Mpls,
    Pppoe,
    /// The PPP protocol field. If it does not lead to IP, the frame has this EtherType.
    Ppp(u16),
    Llc,
    /// Nothing that leads to IP: the EtherType, or [`NO_ETHERTYPE`].
    Other(u16),
}

impl NextHeader {
    /// The header that an EtherType announces.
    #[inline]
    pub fn of_ethertype(ethertype: u16) -> Self {
        match ethertype {
            IPV4 => Self::Ipv4,
            IPV6 => Self::Ipv6,
            PPPOE_SESSION => Self::Pppoe,
            other if is_vlan(other) => Self::Vlan,
            other if is_mpls(other) => Self::Mpls,
            other if is_length(other) => Self::Other(NO_ETHERTYPE),
            other => Self::Other(other),
        }
    }

    /// The header that a field announces which holds an EtherType or an IEEE 802.3 length.
    #[inline]
    pub fn of_ethertype_or_length(value: u16) -> Self {
        if is_length(value) { Self::Llc } else { Self::of_ethertype(value) }
    }
}

/// Whether an EtherType announces a VLAN tag: customer (802.1Q), service (802.1ad), and the older
/// values.
#[inline]
pub(crate) fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300)
}

/// Whether an EtherType announces an MPLS label stack (RFC 3032 section 5, RFC 5332).
#[inline]
pub(crate) fn is_mpls(ethertype: u16) -> bool {
    matches!(ethertype, 0x8847 | 0x8848)
}

/// Whether a value is too low for an EtherType, hence an IEEE 802.3 length (clause 3.2.6).
#[inline]
fn is_length(value: u16) -> bool {
    value < 0x0600
}
