//! The path MTU of a connected UDP socket, and what the system does with datagrams that exceed it
//! (ip(7), ipv6(7)). Systems other than Linux report no path MTU here.

use std::io;
use std::net::UdpSocket;

/// Path MTU and the longest UDP payload without fragments, octets; `None` if unknown.
#[cfg(target_os = "linux")]
pub(crate) fn path_mtu(socket: &UdpSocket) -> Option<(usize, usize)> {
    use rustix::net::sockopt::{ip_mtu, ipv6_mtu};
    let (mtu, headers) = if is_ipv6(socket) { (ipv6_mtu(socket), 40 + 8) } else { (ip_mtu(socket), 20 + 8) };
    let mtu = usize::try_from(mtu.ok()?).ok()?;
    Some((mtu, mtu.saturating_sub(headers)))
}

/// Whether the system divides a datagram that is too long for the path into fragments, or refuses
/// it with an error ([`is_too_long`]).
#[cfg(target_os = "linux")]
pub(crate) fn set_fragmentation(socket: &UdpSocket, fragments: bool) -> io::Result<()> {
    use rustix::net::sockopt::{
        Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    };
    if is_ipv6(socket) {
        let value = if fragments { Ipv6PathMtuDiscovery::WANT } else { Ipv6PathMtuDiscovery::DO };
        set_ipv6_mtu_discover(socket, value)?;
    } else {
        let value = if fragments { Ipv4PathMtuDiscovery::WANT } else { Ipv4PathMtuDiscovery::DO };
        set_ip_mtu_discover(socket, value)?;
    }
    Ok(())
}

/// The datagram is longer than the path MTU, or the path reports that an earlier one was.
#[cfg(target_os = "linux")]
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

#[cfg(target_os = "linux")]
fn is_ipv6(socket: &UdpSocket) -> bool {
    socket.local_addr().is_ok_and(|address| address.is_ipv6())
}

#[cfg(not(target_os = "linux"))]
mod other {
    use super::{UdpSocket, io};

    pub(crate) fn path_mtu(_: &UdpSocket) -> Option<(usize, usize)> {
        None
    }

    pub(crate) fn set_fragmentation(_: &UdpSocket, _: bool) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn is_too_long(_: &io::Error) -> bool {
        false
    }
}
#[cfg(not(target_os = "linux"))]
pub(crate) use other::*;
