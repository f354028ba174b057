//! Through which interfaces the frames leave that an interface sends (rtnetlink).
//!
//! A VLAN interface, a tunnel and a bridge send through other interfaces, and a veth interface to its
//! peer. (/sys/class/net says the same, but for the network namespace in which /sys was mounted.)

use super::netlink::Netlink;
use crate::system::{u16_at, u32_at};
use std::io::{self, ErrorKind};

/// Message types and flags of `linux/rtnetlink.h` and `linux/netlink.h`.
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const REQUEST_DUMP: u16 = 0x301;
/// Attributes of `linux/if_link.h`.
const NAME: u16 = 3;
const LINK: u16 = 5;
const MASTER: u16 = 10;
const LINK_NETNSID: u16 = 37;
/// Octets of a message header, and of the interface before the attributes.
const HEADER_BYTES: usize = 16;
const INTERFACE_BYTES: usize = 16;

/// An interface and how it is linked to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    name: String,
    /// Index of the interface below it (VLAN, MACVLAN, tunnel), or of its peer (veth).
    below: Option<u32>,
    /// Index of the bridge or bond that it is a port of.
    master: Option<u32>,
}

/// The interfaces of this network namespace. A process that has it open can ask again later, also
/// when it may open no such socket any more.
#[derive(Debug)]
pub struct Links(Netlink);

impl Links {
    /// Opens a socket to the kernel.
    ///
    /// # Errors
    /// The kernel opens none.
    pub fn open() -> io::Result<Self> {
        Netlink::open().map(Self)
    }

    /// Returns the interface itself, if it exists, and those through which its frames leave, with their
    /// indexes: the interface below it, the ports of a bridge or bond, and so on; the peer of a veth
    /// interface.
    ///
    /// # Errors
    /// The kernel refuses the query, or does not answer.
    pub fn outgoing_interfaces(&mut self, name: &str) -> io::Result<Vec<(u32, String)>> {
        Ok(reached(&self.query()?, name))
    }

    fn query(&mut self) -> io::Result<Vec<Link>> {
        let mut request = [0; HEADER_BYTES + INTERFACE_BYTES];
        request[..4].copy_from_slice(&((HEADER_BYTES + INTERFACE_BYTES) as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
        request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
        self.0.send(&mut request)?;
        let (mut links, mut reply) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            if parse(self.0.receive(&mut reply)?, &mut links).ok_or_else(|| io::Error::from(ErrorKind::InvalidData))? {
                return Ok(links);
            }
        }
    }
}

fn reached(links: &[Link], name: &str) -> Vec<(u32, String)> {
    let mut found: Vec<&Link> = links.iter().filter(|link| link.name == name).collect();
    let mut at = 0;
    while let Some(&from) = found.get(at) {
        let next = links.iter().filter(|link| from.below == Some(link.index) || link.master == Some(from.index));
        for link in next {
            if !found.contains(&link) {
                found.push(link);
            }
        }
        at += 1;
    }
    found.into_iter().map(|link| (link.index, link.name.clone())).collect()
}

/// Adds the interfaces of a reply. Returns whether it is the last one; `None` if it is invalid or an
/// error.
fn parse(mut messages: &[u8], links: &mut Vec<Link>) -> Option<bool> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    while !messages.is_empty() {
        let (length, kind) = (u32_at(messages, 0)? as usize, u16_at(messages, 4)?);
        let message = messages.get(HEADER_BYTES..length)?;
        match kind {
            DONE => return Some(true),
            ERROR => return None,
            NEW_LINK => links.push(link(message)?),
            _ => {}
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(false)
}

fn link(message: &[u8]) -> Option<Link> {
    let mut link = Link { index: u32_at(message, 4)?, ..Link::default() };
    let mut attributes = message.get(INTERFACE_BYTES..)?;
    let mut is_elsewhere = false;
    while !attributes.is_empty() {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        match u16_at(attributes, 2)? {
            NAME => link.name = String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned(),
            LINK => link.below = u32_at(value, 0),
            MASTER => link.master = u32_at(value, 0),
            LINK_NETNSID => is_elsewhere = true,
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    if is_elsewhere {
        // The index is one of another network namespace.
        link.below = None;
    }
    Some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, below: u32, master: u32) -> Link {
        let some = |index| Some(index).filter(|&index| index > 0);
        Link { index, name: name.into(), below: some(below), master: some(master) }
    }

    #[test]
    fn frames_leave_through_parents_ports_and_peers() {
        let links = [
            link(1, "lo", 0, 0),
            link(2, "eth0", 0, 5),
            link(3, "eth0.10", 2, 0),
            link(4, "eth1", 0, 0),
            link(5, "br0", 0, 0),
            link(6, "br0.7", 5, 0),
            link(7, "veth0", 8, 0),
            link(8, "veth1", 7, 0),
        ];
        let reached = |name| reached(&links, name).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(reached("eth1"), ["eth1"]);
        assert_eq!(reached("eth0.10"), ["eth0.10", "eth0"]);
        assert_eq!(reached("br0.7"), ["br0.7", "br0", "eth0"]);
        assert_eq!(reached("veth0"), ["veth0", "veth1"]);
        assert_eq!(reached("none"), [""; 0]);
    }

    #[test]
    fn kernel_lists_the_loopback_interface() {
        let mut links = Links::open().expect("no permission is needed");
        for _ in 0..2 {
            assert_eq!(links.outgoing_interfaces("lo").unwrap(), [(1, "lo".into())]);
        }
    }

    #[test]
    fn cut_reply_is_invalid() {
        let mut message = vec![0; HEADER_BYTES + INTERFACE_BYTES];
        message[4..6].copy_from_slice(&NEW_LINK.to_ne_bytes());
        message[20] = 9;
        message.extend([7, 0, 3, 0, b'a', b'b', 0, 0, 8, 0, 10, 0, 5, 0, 0, 0]);
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        let mut links = Vec::new();
        assert_eq!(parse(&message, &mut links), Some(false));
        assert_eq!(links, [self::link(9, "ab", 0, 5)]);
        for cut in 1..message.len() {
            assert_eq!(parse(&message[..cut], &mut Vec::new()), None, "cut at {cut}");
        }
    }
}
