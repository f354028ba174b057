//! A connection to a collector: its addresses, connecting, writing, reading and the end. It does not block.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read};
use std::net::{IpAddr, Shutdown, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The other end of the connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Peer {
    /// All addresses. May wait for a name server.
    pub fn addresses(&self) -> io::Result<VecDeque<SockAddr>> {
        match self {
            Self::Tcp { host, port } => Ok((host.as_str(), *port).to_socket_addrs()?.map(SockAddr::from).collect()),
            Self::Unix(path) => Ok([SockAddr::unix(path)?].into()),
        }
    }

    pub fn is_name(&self) -> bool {
        matches!(self, Self::Tcp { host, .. } if host.parse::<IpAddr>().is_err())
    }
}

/// What became of octets.
pub(crate) struct Written {
    /// The connection has taken them.
    pub taken: usize,
    /// The system has accepted them, or others that were taken before.
    pub accepted: usize,
}

/// A connection, or one that is being made.
pub(crate) struct Connection {
    socket: Socket,
}

impl Connection {
    /// Starts to connect. `dead`: time after which the system ends a connection whose other end accepts nothing.
    pub fn start(address: &SockAddr, dead: Duration) -> io::Result<Self> {
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        if address.domain() != Domain::UNIX {
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(dead))?;
            #[cfg(target_os = "linux")]
            rustix::net::sockopt::set_tcp_user_timeout(&socket, dead.as_millis().try_into().unwrap_or(u32::MAX))?;
        }
        match socket.connect(address) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(error),
            _ => Ok(Self { socket }),
        }
    }

    /// Whether it takes messages now. Waits for this for a time; after `until` it is an error.
    pub fn is_made(&mut self, wait: Duration, until: Instant) -> io::Result<bool> {
        if wait_for(&self.socket, PollFlags::OUT, wait) {
            return self.socket.take_error()?.map_or(Ok(true), Err);
        }
        if Instant::now() < until { Ok(false) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// Sends octets that it took before, takes new ones, and sends those too.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Written> {
        let sent = sendmsg(&self.socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
        match sent.map_err(io::Error::from) {
            Ok(octets) => Ok(Written { taken: octets, accepted: octets }),
            Err(error) if is_later(&error) => Ok(Written { taken: 0, accepted: 0 }),
            Err(error) => Err(error),
        }
    }

    /// Waits until it takes more octets, or for a time.
    pub fn wait_for_write(&self, wait: Duration) {
        wait_for(&self.socket, PollFlags::OUT, wait);
    }

    /// Whether the collector has closed it: an error. What it sends is not read.
    pub fn check_end(&mut self) -> io::Result<()> {
        match self.socket.read(&mut [0; 1024]) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the collector closed the connection")),
            Err(error) if !is_later(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the write side. Then [`Connection::is_closed`] says whether the collector has closed the connection.
    pub fn shut_down(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Whether the collector has closed it after [`Connection::shut_down`]. Waits for this for a time.
    pub fn is_closed(&mut self, wait: Duration) -> io::Result<bool> {
        match self.socket.read(&mut [0; 1024]) {
            Ok(octets) => Ok(octets == 0),
            Err(error) if is_later(&error) => {
                wait_for(&self.socket, PollFlags::IN, wait);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Waits until a socket is ready.
fn wait_for(socket: &Socket, events: PollFlags, wait: Duration) -> bool {
    let timeout = Timespec::try_from(wait).ok();
    poll(&mut [PollFd::new(socket, events)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
