//! A socket that does not block: writing without a signal, and waiting.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::Socket;
use std::io::{self, IoSlice, Write};
use std::time::Duration;

/// What became of octets.
pub(crate) struct Written {
    /// The connection has taken them.
    pub taken: usize,
    /// The system has accepted them, or others that were taken before.
    pub accepted: usize,
}

/// Writes to a socket without a signal (SIGPIPE) when the other end has closed it.
pub(crate) struct SocketWriter<'a>(pub &'a Socket);

impl Write for SocketWriter<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(octets)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self.0, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until a socket is ready.
pub(crate) fn wait_for(socket: &Socket, events: PollFlags, wait: Duration) -> bool {
    let timeout = Timespec::try_from(wait).ok();
    poll(&mut [PollFd::new(socket, events)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Whether an error means that the socket is not ready.
pub(crate) fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
