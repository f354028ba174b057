//! Tunnels: from an outer IP header to the inner one (`docs/metering.md` section 3).

mod geneve;
mod gre;
mod gtpu;
mod header;
mod vxlan;

use crate::frame_slice::FrameSlice;
use crate::ip::Ip;
use crate::link::{self, LinkHeaders, LinkPayload, NextHeader};
use crate::packet::{Network, Packet, TunnelType};
use crate::transport::{UDP, read_ports};
use header::TunnelHeader;

/// Largest number of nested tunnels that are decapsulated.
pub(crate) const MAX_TUNNELS: u32 = 8;

/// UDP destination ports of tunnels.
pub(crate) const PORTS: [u16; 3] = [vxlan::PORT, geneve::PORT, gtpu::PORT];

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
/// Length of a UDP header, octets.
const UDP_BYTES: usize = 8;

/// A tunnel header, or the IP header inside the tunnel, is truncated or impossible.
pub(crate) struct Malformed;

/// A tunnel that carries IP.
pub(crate) struct Tunnel<'a> {
    pub tunnel_type: TunnelType,
    /// See [`TunnelHeader::identifier`].
    pub identifier: Option<u32>,
    pub ip: Ip<'a>,
}

impl<'a> Tunnel<'a> {
    /// Splits the tunnel header at the start of `slice` and the headers between it and the inner IP
    /// header. `outer` holds the fields of the outer IP headers. `None` if there is no tunnel, or
    /// it does not carry IP.
    ///
    /// # Errors
    /// A header is truncated or impossible.
    #[inline]
    pub fn split(outer: &Packet, slice: FrameSlice<'a>) -> Result<Option<Self>, Malformed> {
        let ip_in_ip = |next| Some(TunnelHeader { identifier: None, next, payload: slice });
        let (tunnel_type, header) = match (outer.network, outer.protocol) {
            (_, UDP) => {
                let Some((_, destination_port)) = read_ports(slice) else { return Ok(None) };
                let payload = slice.skip(UDP_BYTES);
                match destination_port {
                    vxlan::PORT => (TunnelType::Vxlan, payload.and_then(vxlan::split)),
                    geneve::PORT => (TunnelType::Geneve, payload.and_then(geneve::split)),
                    gtpu::PORT => (TunnelType::Gtpu, payload.and_then(gtpu::split)),
                    _ => return Ok(None),
                }
            }
            (_, gre::PROTOCOL) => (TunnelType::Gre, gre::split(slice)),
            (Network::Ipv4, IPV4_IN_IP) => (TunnelType::Ipip, ip_in_ip(NextHeader::Ipv4)),
            (Network::Ipv4, IPV6_IN_IP) => (TunnelType::SixInFour, ip_in_ip(NextHeader::Ipv6)),
            (Network::Ipv6, IPV4_IN_IP) => (TunnelType::FourInSix, ip_in_ip(NextHeader::Ipv4)),
            (Network::Ipv6, IPV6_IN_IP) => (TunnelType::SixInSix, ip_in_ip(NextHeader::Ipv6)),
            _ => return Ok(None),
        };
        let TunnelHeader { identifier, next, payload } = header.ok_or(Malformed)?;
        // VLAN tags and labels inside the tunnel are ignored: a packet has those of the outer
        // frame.
        match link::parse_from(next, payload, &mut { LinkHeaders::EMPTY }) {
            Ok(LinkPayload::Ip(ip)) => Ok(Some(Self { tunnel_type, identifier, ip })),
            Ok(LinkPayload::Other(_)) => Ok(None),
            Err(_) => Err(Malformed),
        }
    }
}
