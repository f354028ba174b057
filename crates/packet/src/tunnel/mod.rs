//! Tunnels: from an outer IP header to the inner one (`docs/metering.md` section 3).

mod geneve;
mod gre;
mod gtpu;
mod malformed;
mod vxlan;

use crate::frame_slice::FrameSlice;
use crate::ip::Ip;
use crate::link::{self, LinkHeaders, LinkPayload, NextHeader};
use crate::packet::{Network, Packet, TunnelType};
use crate::transport::{Ports, UDP};
use geneve::Geneve;
use gre::Gre;
use gtpu::Gtpu;
use malformed::Malformed;
use vxlan::Vxlan;

/// Largest number of nested tunnels that are decapsulated.
pub(crate) const MAX_TUNNELS: u32 = 8;

/// UDP destination ports of tunnels.
pub(crate) const PORTS: [u16; 3] = [vxlan::PORT, geneve::PORT, gtpu::PORT];

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
/// Length of a UDP header, octets.
const UDP_BYTES: usize = 8;

/// A tunnel that carries IP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel<'a> {
    pub kind: TunnelType,
    /// GRE key or call ID, VXLAN or Geneve network identifier, GTP-U tunnel endpoint identifier.
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
        let (kind, identifier, next, payload) = match (outer.network, outer.protocol) {
            (_, UDP) => {
                let Some((ports, _)) = Ports::split(slice) else { return Ok(None) };
                let payload = slice.skip(UDP_BYTES).ok_or(Malformed);
                match ports.destination() {
                    vxlan::PORT => {
                        let (vxlan, payload) = Vxlan::split(payload?)?;
                        (TunnelType::Vxlan, Some(vxlan.identifier()), NextHeader::Ethernet, payload)
                    }
                    geneve::PORT => {
                        let (geneve, payload) = Geneve::split(payload?)?;
                        (TunnelType::Geneve, Some(geneve.identifier()), geneve.next(), payload)
                    }
                    gtpu::PORT => {
                        let (gtpu, payload) = Gtpu::split(payload?)?;
                        (TunnelType::Gtpu, Some(gtpu.identifier()), gtpu.next, payload)
                    }
                    _ => return Ok(None),
                }
            }
            (_, gre::PROTOCOL) => {
                let (gre, payload) = Gre::split(slice)?;
                (TunnelType::Gre, gre.identifier, gre.next, payload)
            }
            (Network::Ipv4, IPV4_IN_IP) => (TunnelType::Ipip, None, NextHeader::Ipv4, slice),
            (Network::Ipv4, IPV6_IN_IP) => (TunnelType::SixInFour, None, NextHeader::Ipv6, slice),
            (Network::Ipv6, IPV4_IN_IP) => (TunnelType::FourInSix, None, NextHeader::Ipv4, slice),
            (Network::Ipv6, IPV6_IN_IP) => (TunnelType::SixInSix, None, NextHeader::Ipv6, slice),
            _ => return Ok(None),
        };
        // VLAN tags and labels inside the tunnel are ignored: a packet has those of the outer
        // frame.
        match link::parse_from(next, payload, &mut { LinkHeaders::EMPTY })? {
            LinkPayload::Ip(ip) => Ok(Some(Self { kind, identifier, ip })),
            LinkPayload::Other(_) => Ok(None),
        }
    }
}
