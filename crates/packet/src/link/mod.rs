//! From the link layer to IP: what the link type says comes first, then VLAN tags, MPLS stacks,
//! PPPoE sessions and SNAP headers in any order (`docs/metering.md` section 1).

mod cooked;
mod ethernet;
mod llc;
mod loopback;
mod mpls;
mod ppp;
mod pppoe;
mod vlan;

use crate::ip::Ip;
use crate::octets::Octets;
use crate::{NO_LABEL, NO_VLAN};
use cooked::Cooked;
use ethernet::Ethernet;
use llc::Llc;
use loopback::Loopback;
use mpls::Stack;
use ppp::Ppp;
use pppoe::Pppoe;
use vlan::Vlan;
use weir_ledger::RefusalReason;

pub(crate) use ethernet::is_length;
pub(crate) use vlan::is_vlan;

/// VLAN tags, label stacks, PPPoE and SNAP headers before IP, altogether, at most.
const HEADERS: u32 = 16;

/// EtherType of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;
/// EtherType of an MPLS stack (RFC 3032 section 5, RFC 5332).
pub(crate) const MPLS: [u16; 2] = [0x8847, 0x8848];
/// EtherType of a PPPoE session (RFC 2516).
const PPPOE_SESSION: u16 = 0x8864;

/// What the link layer said about the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    /// Source and destination MAC address; 0 where the link type has none.
    pub source: [u8; 6],
    pub destination: [u8; 6],
    /// VLAN identifiers of the first two tags, or [`NO_VLAN`].
    pub vlan: u16,
    pub inner_vlan: u16,
    /// Top label of the first stack, or [`NO_LABEL`].
    pub mpls_label: u32,
}

impl Envelope {
    /// Nothing is known yet.
    pub const EMPTY: Self =
        Self { source: [0; 6], destination: [0; 6], vlan: NO_VLAN, inner_vlan: NO_VLAN, mpls_label: NO_LABEL };

    fn tag(&mut self, vlan: u16) {
        if self.vlan == NO_VLAN {
            self.vlan = vlan;
        } else if self.inner_vlan == NO_VLAN {
            self.inner_vlan = vlan;
        }
    }
}

/// Where the headers lead.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// To IP.
    Ip(Ip<'a>),
    /// To something else: its EtherType, 0 if it has none.
    Other(u16),
}

/// Which header comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Ipv4,
    Ipv6,
    /// IP of the version that its first four bits say.
    AnyIp,
    Ethernet,
    Vlan,
    Mpls,
    Pppoe,
    Ppp,
    Llc,
    /// Nothing that leads to IP: its EtherType, 0 if it has none.
    Other(u16),
}

impl Next {
    /// What an EtherType says.
    #[inline]
    pub fn of_ethertype(ethertype: u16) -> Self {
        match ethertype {
            IPV4 => Self::Ipv4,
            IPV6 => Self::Ipv6,
            PPPOE_SESSION => Self::Pppoe,
            other if is_vlan(other) => Self::Vlan,
            other if MPLS.contains(&other) => Self::Mpls,
            other if is_length(other) => Self::Other(0),
            other => Self::Other(other),
        }
    }

    /// What the field says that holds an EtherType or an IEEE 802.3 length.
    #[inline]
    fn of_ethertype_or_length(value: u16) -> Self {
        if is_length(value) { Self::Llc } else { Self::of_ethertype(value) }
    }
}

/// Reads a frame of a link type (the LINKTYPE registry of tcpdump) down to the IP header.
///
/// # Errors
/// Why there is no IP header to be had, or no telling whether there is one.
#[inline]
pub(crate) fn read<'a>(link: u16, frame: Octets<'a>, envelope: &mut Envelope) -> Result<Content<'a>, RefusalReason> {
    let (next, rest) = match link {
        1 => (Next::Ethernet, frame),
        12 | 14 | 101 => (Next::AnyIp, frame),
        228 => (Next::Ipv4, frame),
        229 => (Next::Ipv6, frame),
        0 | 108 => {
            let (loopback, rest) = Loopback::split(frame).ok_or(RefusalReason::LinkTruncated)?;
            (loopback.next(), rest)
        }
        113 | 276 => {
            let split = if link == 113 { Cooked::split_v1(frame) } else { Cooked::split_v2(frame) };
            let (cooked, rest) = split.ok_or(RefusalReason::LinkTruncated)?;
            envelope.source = cooked.source();
            (cooked.next(), rest)
        }
        _ => return Err(RefusalReason::LinkType),
    };
    walk(next, rest, envelope)
}

/// Follows headers from the first that is known to what they lead to.
///
/// # Errors
/// As [`read`].
#[inline]
pub(crate) fn walk<'a>(
    mut next: Next,
    mut octets: Octets<'a>,
    envelope: &mut Envelope,
) -> Result<Content<'a>, RefusalReason> {
    let mut headers = 0;
    loop {
        // Ethernet and PPP are not counted: they come first, or after a stack or session that is.
        match next {
            Next::Ipv4 => return Ip::split_v4(octets).map(Content::Ip),
            Next::Ipv6 => return Ip::split_v6(octets).map(Content::Ip),
            Next::AnyIp => return Ip::split(octets).map(Content::Ip),
            Next::Other(ethertype) => return Ok(Content::Other(ethertype)),
            Next::Ethernet => {
                let (ethernet, rest) = Ethernet::split(octets).ok_or(RefusalReason::LinkTruncated)?;
                (envelope.destination, envelope.source) = (ethernet.destination(), ethernet.source());
                (next, octets) = (ethernet.next(), rest);
                continue;
            }
            Next::Ppp => {
                let (ppp, rest) = Ppp::split(octets).ok_or(RefusalReason::LinkTruncated)?;
                (next, octets) = (ppp.next(), rest);
                continue;
            }
            Next::Vlan => {
                let (vlan, rest) = Vlan::split(octets).ok_or(RefusalReason::LinkTruncated)?;
                envelope.tag(vlan.identifier());
                (next, octets) = (vlan.next(), rest);
            }
            Next::Mpls => {
                let (stack, rest) = Stack::split(octets)?;
                if envelope.mpls_label == NO_LABEL {
                    envelope.mpls_label = stack.top_label();
                }
                (next, octets) = (stack.next(), rest);
            }
            Next::Pppoe => {
                let (pppoe, rest) = Pppoe::split(octets).ok_or(RefusalReason::LinkTruncated)?;
                (next, octets) = (pppoe.next(), rest);
            }
            Next::Llc => match Llc::split(octets).ok_or(RefusalReason::LinkTruncated)? {
                (Llc::Snap(snap), rest) => (next, octets) = (snap.next(), rest),
                (Llc::Other, _) => return Ok(Content::Other(0)),
            },
        }
        headers += 1;
        if headers > HEADERS {
            return Err(RefusalReason::TooManyHeaders);
        }
    }
}
