//! Queries about interfaces (rtnetlink), whose answers have a time limit.
//!
//! The kernel answers while it takes the request or is read from, so an answer that has not come within
//! [`ANSWER_TIME`] will not come. Invariants: a thread waits for an answer no longer than that, and an answer that
//! comes later is not taken for that of the next query (RFC 3549 section 2.3.2: sequence numbers).

use crate::system::{route_netlink, u32_at};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// Longest wait for an answer. Threads that meter ask.
const ANSWER_TIME: Duration = Duration::from_millis(100);
/// Place of the sequence number in a message header.
const SEQUENCE: usize = 8;

/// A socket to the kernel.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: File,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// The kernel opens none.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: route_netlink(ANSWER_TIME)?, sequence: 0 })
    }

    /// Sends a request, with the next sequence number in its header.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn send(&mut self, request: &mut [u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        request[SEQUENCE..SEQUENCE + 4].copy_from_slice(&self.sequence.to_ne_bytes());
        self.socket.write_all(request)
    }

    /// Receives the next messages of the answer to the last request.
    ///
    /// # Errors
    /// `TimedOut`: no answer has come.
    pub fn receive<'a>(&mut self, reply: &'a mut [u8]) -> io::Result<&'a [u8]> {
        loop {
            match self.socket.read(reply) {
                Ok(bytes) if u32_at(&reply[..bytes], SEQUENCE) == Some(self.sequence) => return Ok(&reply[..bytes]),
                Ok(bytes) if bytes < SEQUENCE + 4 => return Err(ErrorKind::InvalidData.into()),
                // The answer to an earlier request.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let text = format!("the kernel has not answered a netlink query within {ANSWER_TIME:?}");
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::Instant;

    #[test]
    fn an_answer_that_does_not_come_is_an_error_and_a_late_one_is_no_answer_to_the_next_query() {
        let (socket, kernel) = UnixDatagram::pair().unwrap();
        socket.set_read_timeout(Some(ANSWER_TIME)).unwrap();
        let mut netlink = Netlink { socket: File::from(OwnedFd::from(socket)), sequence: u32::MAX - 1 };
        let (mut requests, mut reply) = ([[0; 16]; 2], [0; 64]);
        let begin = Instant::now();
        netlink.send(&mut [0; 16]).unwrap();
        let error = netlink.receive(&mut reply).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "the kernel has not answered a netlink query within 100ms");
        assert!(begin.elapsed() >= ANSWER_TIME);
        netlink.send(&mut [1; 16]).unwrap();
        requests.iter_mut().for_each(|request| assert_eq!(kernel.recv(request).unwrap(), 16));
        // The kernel answers both, with their sequence numbers.
        requests.iter().for_each(|request| assert_eq!(kernel.send(request).unwrap(), 16));
        assert_eq!(netlink.receive(&mut reply).unwrap(), requests[1]);
        assert_ne!(requests[0][SEQUENCE..], requests[1][SEQUENCE..]);
        kernel.send(&[1; 9]).unwrap();
        assert_eq!(netlink.receive(&mut reply).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn the_socket_of_a_query_has_a_time_limit() {
        let mut netlink = Netlink::open().expect("no permission is needed");
        // Nothing was asked.
        assert_eq!(netlink.receive(&mut [0; 64]).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
