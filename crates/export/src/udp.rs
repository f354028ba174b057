//! Datagrams to one collector, rate-limited, with counters of refused datagrams.
//!
//! A connected UDP socket reports an ICMP port unreachable at its next call. That call sends
//! nothing: it reports the refusal of an *earlier* datagram. So a refusal revokes the previous
//! datagram, which was counted as exported, and the current one is sent once more. On loopback
//! every refusal is reported. Over a network, hosts limit the rate of ICMP messages, and a datagram
//! that is lost on the way is not reported at all.

use crate::pending_records::PendingRecords;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};
use weir_ledger::{ExportLossReason, SinkCounters};

/// Largest number of attempts to send a datagram, each of which may only report an earlier refusal.
const MAX_ATTEMPTS: usize = 4;
/// How long [`UdpOutput::finish`] waits for the refusal of the last datagram.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(50);
/// Number of datagrams that may be sent without a pause: a third of what the default receive buffer
/// of Linux holds (212 992 bytes, of which a datagram of 1420 octets takes about 2300).
const BURST: u32 = 32;

/// A connected UDP socket.
pub(crate) struct UdpOutput {
    socket: UdpSocket,
    rate_limiter: RateLimiter,
    /// Records of the last datagram, if it may still be refused.
    last: Option<PendingRecords>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendOutcome {
    /// The operating system accepted the datagram.
    pub accepted: bool,
    /// An earlier datagram was reported as refused meanwhile.
    pub refused_before: bool,
}

impl UdpOutput {
    /// Local and remote address.
    pub fn endpoints(&self) -> Option<[SocketAddr; 2]> {
        Some([self.socket.local_addr().ok()?, self.socket.peer_addr().ok()?])
    }

    /// Connects to the first reachable address of `host`. `rate` is in datagrams per second; 0 for
    /// no limit.
    pub fn connect(host: &str, port: u16, rate: u32) -> io::Result<Self> {
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match connect(address) {
                Ok(socket) => return Ok(Self { socket, rate_limiter: RateLimiter::new(rate), last: None }),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Sends a datagram and counts its records.
    pub fn send(&mut self, datagram: &[u8], pending: PendingRecords, counters: &mut SinkCounters) -> SendOutcome {
        self.rate_limiter.wait();
        let mut refused_before = false;
        let mut reason = ExportLossReason::WriteFailed;
        for _ in 0..MAX_ATTEMPTS {
            match self.socket.send(datagram) {
                Ok(octets) => {
                    counters.messages += 1;
                    counters.octets += octets as u64;
                    pending.count_exported(counters);
                    self.last = Some(pending);
                    return SendOutcome { accepted: true, refused_before };
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    reason = ExportLossReason::CollectorRefused;
                    refused_before |= self.refuse(counters);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    reason = ExportLossReason::WriteFailed;
                    break;
                }
            }
        }
        pending.count_lost(reason, counters);
        SendOutcome { accepted: false, refused_before }
    }

    /// Counts the records that the last datagram completes and earlier ones began.
    pub fn complete(&mut self, pending: PendingRecords, counters: &mut SinkCounters) {
        pending.count_exported(counters);
        if let Some(last) = &mut self.last {
            last.merge(pending);
        }
    }

    /// Waits up to 50 ms for the refusal of the last datagram. Returns whether it was refused.
    pub fn finish(&mut self, counters: &mut SinkCounters) -> bool {
        let start = Instant::now();
        while self.last.is_some() && start.elapsed() < REFUSAL_TIMEOUT {
            if let Ok(Some(error)) = self.socket.take_error()
                && error.kind() == io::ErrorKind::ConnectionRefused
            {
                return self.refuse(counters);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Counts the last datagram as refused. Returns false if that was done before.
    fn refuse(&mut self, counters: &mut SinkCounters) -> bool {
        let last = self.last.take();
        if let Some(last) = last {
            last.revoke_exported(ExportLossReason::CollectorRefused, counters);
        }
        last.is_some()
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&address.into())?;
    let socket = UdpSocket::from(socket);
    // Datagrams are never fragmented, because one lost fragment loses all of the datagram. A
    // datagram that is too long for the path is an error instead.
    #[cfg(target_os = "linux")]
    match address {
        SocketAddr::V4(_) => {
            rustix::net::sockopt::set_ip_mtu_discover(&socket, rustix::net::sockopt::Ipv4PathMtuDiscovery::DO)?
        }
        SocketAddr::V6(_) => {
            rustix::net::sockopt::set_ipv6_mtu_discover(&socket, rustix::net::sockopt::Ipv6PathMtuDiscovery::DO)?;
        }
    }
    Ok(socket)
}

/// A token bucket, stored as the time at which it is full again.
struct RateLimiter {
    /// Time per datagram; zero for no limit.
    interval: Duration,
    full_at: Instant,
}

impl RateLimiter {
    fn new(rate: u32) -> Self {
        let interval = if rate == 0 { Duration::ZERO } else { Duration::from_secs(1) / rate };
        Self { interval, full_at: Instant::now() }
    }

    /// Takes one token. Waits until there is one.
    fn wait(&mut self) {
        if self.interval.is_zero() {
            return;
        }
        let now = Instant::now();
        self.full_at = self.full_at.max(now) + self.interval;
        let ahead = self.full_at - now;
        let burst = self.interval * BURST;
        if ahead > burst {
            std::thread::sleep(ahead - burst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::RecordTotals;

    fn one() -> PendingRecords {
        PendingRecords { flows: RecordTotals { flows: 1, packets: 2, bytes: 120 }, wire_records: 1 }
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_is_kept() {
        let mut rate_limiter = RateLimiter::new(1000);
        let start = Instant::now();
        (0..BURST).for_each(|_| rate_limiter.wait());
        (0..20).for_each(|_| rate_limiter.wait());
        assert!(start.elapsed() >= Duration::from_millis(19), "{:?}", start.elapsed());
    }

    #[test]
    fn datagrams_to_an_open_port_are_exported() {
        for host in ["127.0.0.1", "::1", "localhost"] {
            let Ok(listener) = UdpSocket::bind((host, 0)) else { continue };
            let port = listener.local_addr().unwrap().port();
            let mut datagrams = UdpOutput::connect(host, port, 0).unwrap();
            let mut counters = SinkCounters::default();
            assert_eq!(
                datagrams.send(b"taken", one(), &mut counters),
                SendOutcome { accepted: true, refused_before: false }
            );
            assert!(!datagrams.finish(&mut counters));
            assert_eq!((counters.exported, counters.messages, counters.octets), (one().flows, 1, 5));
            assert_eq!(listener.recv(&mut [0; 16]).unwrap(), 5);
        }
    }

    #[test]
    fn a_datagram_too_long_for_the_path_is_a_failed_write() {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut datagrams = UdpOutput::connect("127.0.0.1", listener.local_addr().unwrap().port(), 0).unwrap();
        let mut counters = SinkCounters::default();
        let sent = datagrams.send(&[0; 65_508], one(), &mut counters);
        assert_eq!(sent, SendOutcome { accepted: false, refused_before: false });
        assert_eq!(counters.lost[ExportLossReason::WriteFailed.key()], one().flows);
    }
}
