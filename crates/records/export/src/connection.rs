//! A connection to a collector: its addresses, connecting, writing, reading and the end. It does not block.
//! With TLS, it is made when the handshake has ended.

use crate::socket::{SocketWriter, Written, is_later, wait_for};
use crate::tls::{Tls, TlsSession};
use rustix::event::PollFlags;
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown, ToSocketAddrs};
use std::path::{self, PathBuf};
use std::time::{Duration, Instant};

/// What the log says of a collector that cannot be reached.
pub(crate) fn reason(sink: &str, error: &io::Error) -> String {
    let lacks_address = matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL));
    if sink.contains("://[") && lacks_address {
        return format!("{error}; this machine has no IPv6, or no address for it: name an IPv4 address");
    }
    error.to_string()
}

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

    /// The address as the user wrote it, in one form.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp { host, port } => format!("{}:{port}", host.to_ascii_lowercase()),
            Self::Unix(path) => path::absolute(path).as_ref().unwrap_or(path).display().to_string(),
        }
    }

    pub fn is_name(&self) -> bool {
        matches!(self, Self::Tcp { host, .. } if host.parse::<IpAddr>().is_err())
    }
}

/// A connection, or one that is being made.
pub(crate) struct Connection {
    socket: Socket,
    /// The socket is connected.
    is_open: bool,
    tls: Option<Box<TlsSession>>,
    end: End,
}

/// How far the end of the write side is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    /// The end of the TLS session waits for the system.
    Begun,
    Done,
}

impl Connection {
    /// Starts to connect. `dead`: time after which the system ends a connection whose other end accepts nothing.
    pub fn start(address: &SockAddr, tls: Option<&Tls>, dead: Duration) -> io::Result<Self> {
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        if address.domain() != Domain::UNIX {
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(dead))?;
            #[cfg(target_os = "linux")]
            rustix::net::sockopt::set_tcp_user_timeout(&socket, dead.as_millis().try_into().unwrap_or(u32::MAX))?;
        }
        let tls = tls.map(Tls::session).transpose()?.map(Box::new);
        match socket.connect(address) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(error),
            _ => Ok(Self { socket, is_open: false, tls, end: End::No }),
        }
    }

    /// Whether it takes messages now. Waits for this for a time; after `until` it is an error.
    pub fn is_made(&mut self, wait: Duration, until: Instant) -> io::Result<bool> {
        let end = Instant::now() + wait;
        if !self.is_open {
            if !wait_for(&self.socket, PollFlags::OUT, wait) {
                return if Instant::now() < until { Ok(false) } else { Err(io::ErrorKind::TimedOut.into()) };
            }
            self.socket.take_error()?.map_or(Ok(()), Err)?;
            self.check_other_end()?;
            self.is_open = true;
        }
        let Some(tls) = &mut self.tls else { return Ok(true) };
        loop {
            if tls.shake_hands(&self.socket)? {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= until {
                return Err(io::Error::other(
                    "the collector does not answer the TLS handshake; if it does not speak TLS on this port, name its \
                     port for TLS",
                ));
            }
            if now >= end {
                return Ok(false);
            }
            let events = if tls.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            wait_for(&self.socket, events, end - now);
        }
    }

    /// Without a listener, a socket that connects to a port of its own host may get this port and reach itself.
    fn check_other_end(&self) -> io::Result<()> {
        let local = self.socket.local_addr()?;
        if local.domain() != Domain::UNIX && local == self.socket.peer_addr()? {
            let text = "the connection reached itself (connection refused)";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
        }
        Ok(())
    }

    /// Sends octets that it took before, takes new ones, and sends those too.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Written> {
        if let Some(tls) = &mut self.tls {
            return tls.write(&self.socket, slices);
        }
        match SocketWriter(&self.socket).write_vectored(slices) {
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
        let is_open = match &mut self.tls {
            Some(tls) => tls.receive(&self.socket)?,
            None => self.receive()?,
        };
        match is_open {
            Some(false) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the collector closed the connection")),
            _ => Ok(()),
        }
    }

    /// Drops what the collector has sent. `None`: nothing; `false`: it has closed the connection.
    fn receive(&mut self) -> io::Result<Option<bool>> {
        match self.socket.read(&mut [0; 1024]) {
            Ok(octets) => Ok(Some(octets > 0)),
            Err(error) if is_later(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the write side. Then [`Connection::is_closed`] says whether the collector has closed the connection.
    /// Only if it has got everything, TLS tells it so.
    pub fn shut_down(&mut self, is_complete: bool) -> io::Result<()> {
        if !is_complete {
            return self.socket.shutdown(Shutdown::Write);
        }
        self.end = End::Begun;
        self.tls.as_mut().into_iter().for_each(|tls| tls.close());
        self.continue_end()
    }

    fn continue_end(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send(&self.socket)?;
        }
        if self.end == End::Begun && !self.tls.as_ref().is_some_and(|tls| tls.wants_write()) {
            self.socket.shutdown(Shutdown::Write)?;
            self.end = End::Done;
        }
        Ok(())
    }

    /// Whether the collector has closed it after [`Connection::shut_down`]. Waits for this for a time.
    pub fn is_closed(&mut self, wait: Duration) -> io::Result<bool> {
        self.continue_end()?;
        // Without octets to lose, an end of the connection is as good as one of the TLS session.
        let is_open = match &mut self.tls {
            Some(_) if self.end == End::Done && is_at_end(&self.socket)? => Some(false),
            // It has ended the session. Whether it has read everything, the end of the connection tells.
            Some(tls) if tls.is_ended() => self.receive()?,
            Some(tls) => tls.receive(&self.socket)?.map(|_| true),
            None => self.receive()?,
        };
        if is_open.is_none() {
            let events = if self.end == End::Done { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            wait_for(&self.socket, events, wait);
        }
        Ok(is_open == Some(false))
    }
}

/// Whether the other end has closed a connection, and all is read.
fn is_at_end(socket: &Socket) -> io::Result<bool> {
    match socket.peek(&mut [MaybeUninit::uninit()]) {
        Ok(octets) => Ok(octets == 0),
        Err(error) if is_later(&error) => Ok(false),
        // The system reports it once.
        Err(error) => Err(error),
    }
}
