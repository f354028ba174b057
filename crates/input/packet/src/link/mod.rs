//! Link layer: from the start of a frame to IP. The link type determines the first header; VLAN
//! tags, MPLS label stacks, PPPoE sessions and LLC headers may follow in any order
//! (`docs/metering.md` section 1).

mod atm;
mod cisco_hdlc;
mod cooked;
mod ethernet;
mod link_headers;
mod link_type;
mod llc;
mod loopback;
mod mpls;
mod next_header;
mod nflog;
mod ppp;
mod pppoe;
mod vlan;

use crate::frame_slice::FrameSlice;
use crate::ip::{Ip, Ipv4, Ipv6};
use weir_ledger::RefusalReason;

pub(crate) use link_headers::LinkHeaders;
pub(crate) use link_type::ETHERNET;
pub use link_type::link_type_name;
pub(crate) use next_header::{ETHERNET_BRIDGING, IPV4, IPV6, NO_ETHERTYPE, NextHeader, is_mpls, is_vlan};
pub(crate) use ppp::skip_address_and_control;

/// Largest number of VLAN tags, label stacks, PPPoE and LLC headers before IP, in total.
const MAX_HEADERS: u32 = 16;

/// What the headers lead to.
pub(crate) enum LinkPayload<'a> {
    Ip(Ip<'a>),
    /// Not IP: the EtherType, or [`NO_ETHERTYPE`].
    Other(u16),
}

/// Reads a frame of a link type (the LINKTYPE registry of tcpdump.org) down to the IP header.
///
/// # Errors
/// Why no IP header can be read, or why it cannot be decided whether there is one.
#[inline]
pub(crate) fn parse<'a>(
    link_type: u16,
    frame: FrameSlice<'a>,
    headers: &mut LinkHeaders,
) -> Result<LinkPayload<'a>, RefusalReason> {
    let truncated = RefusalReason::LinkTruncated;
    let (next, rest) = match link_type {
        link_type::ETHERNET => (NextHeader::Ethernet, frame),
        link_type::RAW | link_type::DLT_RAW | link_type::DLT_RAW_OPENBSD => (NextHeader::AnyIp, frame),
        link_type::IPV4 => (NextHeader::Ipv4, frame),
        link_type::IPV6 => (NextHeader::Ipv6, frame),
        link_type::NULL | link_type::LOOP => loopback::split(frame).ok_or(truncated)?,
        link_type::LINUX_SLL => cooked::split_v1(frame, headers).ok_or(truncated)?,
        link_type::LINUX_SLL2 => cooked::split_v2(frame, headers).ok_or(truncated)?,
        link_type::PPP_HDLC if cisco_hdlc::has_address(frame) => cisco_hdlc::split(frame).ok_or(truncated)?,
        link_type::PPP | link_type::PPP_HDLC => {
            (NextHeader::Ppp(NO_ETHERTYPE), skip_address_and_control(frame).ok_or(truncated)?)
        }
        link_type::C_HDLC => cisco_hdlc::split(frame).ok_or(truncated)?,
        link_type::ATM_RFC1483 => atm::split(frame).ok_or(truncated)?,
        link_type::NFLOG => nflog::split(frame)?,
        _ => return Err(RefusalReason::LinkType),
    };
    parse_from(next, rest, headers)
}

/// Follows the headers from `next` on to IP, or to the first that does not lead to IP.
///
/// # Errors
/// As [`parse`].
#[inline]
pub(crate) fn parse_from<'a>(
    mut next: NextHeader,
    mut rest: FrameSlice<'a>,
    headers: &mut LinkHeaders,
) -> Result<LinkPayload<'a>, RefusalReason> {
    let truncated = RefusalReason::LinkTruncated;
    let mut count = 0;
    loop {
        // Ethernet and PPP headers are not counted: each is the first, or follows a header that is
        // counted.
        match next {
            NextHeader::Ipv4 => return Ok(LinkPayload::Ip(Ip::V4(Ipv4::split(rest)?))),
            NextHeader::Ipv6 => return Ok(LinkPayload::Ip(Ip::V6(Ipv6::split(rest)?))),
            NextHeader::AnyIp => return Ip::split(rest).map(LinkPayload::Ip),
            NextHeader::Other(ethertype) => return Ok(LinkPayload::Other(ethertype)),
            NextHeader::Ethernet => {
                (next, rest) = ethernet::split(rest, headers).ok_or(truncated)?;
                continue;
            }
            NextHeader::Ppp(ethertype) => {
                (next, rest) = ppp::split(rest, ethertype).ok_or(truncated)?;
                continue;
            }
            NextHeader::Vlan => (next, rest) = vlan::split(rest, headers).ok_or(truncated)?,
            NextHeader::Mpls => (next, rest) = mpls::split(rest, headers)?,
            NextHeader::Pppoe => (next, rest) = pppoe::split(rest).ok_or(truncated)?,
            NextHeader::Llc => {
                let (header, payload) = llc::split(rest).ok_or(truncated)?;
                let Some(header) = header else { return Ok(LinkPayload::Other(NO_ETHERTYPE)) };
                (next, rest) = (header, payload);
            }
        }
        count += 1;
        if count > MAX_HEADERS {
            return Err(RefusalReason::TooManyHeaders);
        }
    }
}
