//! Tunnels: from one IP header to the next inside it (`docs/metering.md` section 3).

mod geneve;
mod gre;
mod gtpu;
mod vxlan;

use crate::ip::Ip;
use crate::link::{self, Content, Envelope, Next};
use crate::octets::Octets;
use crate::transport::{Ports, UDP};
use crate::{Network, Packet, TunnelType};
use geneve::Geneve;
use gre::Gre;
use gtpu::Gtpu;
use vxlan::Vxlan;
use weir_ledger::RefusalReason;

/// Tunnels inside each other that are entered, at most.
pub(crate) const DEPTH: u32 = 8;

/// UDP destination ports of tunnels.
pub(crate) const PORTS: [u16; 3] = [vxlan::PORT, geneve::PORT, gtpu::PORT];

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
/// Octets of a UDP header.
const UDP_BYTES: usize = 8;

/// A tunnel header, or the IP header in the tunnel, is cut or impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<RefusalReason> for Malformed {
    fn from(_: RefusalReason) -> Self {
        Self
    }
}

/// A tunnel that leads to IP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel<'a> {
    pub kind: TunnelType,
    /// GRE key or call ID, network identifier, tunnel endpoint identifier.
    pub identifier: Option<u32>,
    pub ip: Ip<'a>,
}

impl<'a> Tunnel<'a> {
    /// Splits the tunnel header that `octets` begin with, and what leads from it to IP. `outer` is what the
    /// IP headers before it said. `None` if there is no tunnel, or if it carries something other than IP.
    ///
    /// # Errors
    /// A header is cut or impossible.
    #[inline]
    pub fn split(outer: &Packet, octets: Octets<'a>) -> Result<Option<Self>, Malformed> {
        let (kind, identifier, next, payload) = match (outer.network, outer.protocol) {
            (_, UDP) => {
                let Some((ports, _)) = Ports::split(octets) else { return Ok(None) };
                let payload = octets.skip(UDP_BYTES).ok_or(Malformed);
                match ports.destination() {
                    vxlan::PORT => {
                        let (vxlan, payload) = Vxlan::split(payload?)?;
                        (TunnelType::Vxlan, Some(vxlan.identifier()), Next::Ethernet, payload)
                    }
                    geneve::PORT => {
                        let (geneve, payload) = Geneve::split(payload?)?;
                        (TunnelType::Geneve, Some(geneve.identifier()), geneve.next(), payload)
                    }
                    gtpu::PORT => {
                        let (gtpu, payload) = Gtpu::split(payload?)?;
                        (TunnelType::Gtpu, Some(gtpu.identifier()), gtpu.next(), payload)
                    }
                    _ => return Ok(None),
                }
            }
            (_, gre::PROTOCOL) => {
                let (gre, payload) = Gre::split(octets)?;
                (TunnelType::Gre, gre.identifier(), gre.next(), payload)
            }
            (Network::Ipv4, IPV4_IN_IP) => (TunnelType::Ipip, None, Next::Ipv4, octets),
            (Network::Ipv4, IPV6_IN_IP) => (TunnelType::SixInFour, None, Next::Ipv6, octets),
            (Network::Ipv6, IPV4_IN_IP) => (TunnelType::FourInSix, None, Next::Ipv4, octets),
            (Network::Ipv6, IPV6_IN_IP) => (TunnelType::SixInSix, None, Next::Ipv6, octets),
            _ => return Ok(None),
        };
        // Tags and labels in a tunnel are not those of the frame.
        match link::walk(next, payload, &mut { Envelope::EMPTY })? {
            Content::Ip(ip) => Ok(Some(Self { kind, identifier, ip })),
            Content::Other(_) => Ok(None),
        }
    }
}
