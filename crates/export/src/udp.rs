//! Datagrams to one collector, paced, with the account of what was refused.
//!
//! A connected UDP socket learns of an ICMP port unreachable from its next call, which sends nothing and reports what
//! became of an *earlier* datagram. So a refusal takes the datagram before back from the exported ones, and the
//! present one is sent again. On loopback every datagram is told of that way; over a network, hosts tell at most of some
//! per second, and a datagram that vanishes is not told of at all: UDP promises no more.

use crate::account::Carried;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};
use weir_ledger::{ExportLossReason, SinkCounters};

/// How often a datagram is sent again when each attempt only tells of the one before.
const ATTEMPTS: usize = 4;
/// How long a late refusal is waited for at the end.
const PATIENCE: Duration = Duration::from_millis(50);
/// Datagrams that may leave without a pause between them: a third of what the default receive buffer of Linux
/// (212 992 octets, about 2300 for each datagram of 1420) holds.
const BURST: u32 = 32;

/// A connected socket.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    pace: Pace,
    /// What the last datagram carried, if it may still be refused.
    last: Option<Carried>,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The operating system took it.
    pub taken: bool,
    /// On the way an earlier one turned out to be refused.
    pub refused_before: bool,
}

impl Datagrams {
    /// From where to where.
    pub fn ends(&self) -> Option<[SocketAddr; 2]> {
        Some([self.socket.local_addr().ok()?, self.socket.peer_addr().ok()?])
    }

    /// Connects to the first address of `host` that it can be connected to. `rate` is in datagrams per second,
    /// 0 for no pauses.
    pub fn connect(host: &str, port: u16, rate: u32) -> io::Result<Self> {
        let mut trouble = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match connect(address) {
                Ok(socket) => return Ok(Self { socket, pace: Pace::new(rate), last: None }),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    /// Sends a datagram and enters the fate of what it carries into the line.
    pub fn send(&mut self, datagram: &[u8], carried: Carried, line: &mut SinkCounters) -> Sent {
        self.pace.wait();
        let mut refused_before = false;
        let mut reason = ExportLossReason::WriteFailed;
        for _ in 0..ATTEMPTS {
            match self.socket.send(datagram) {
                Ok(octets) => {
                    line.messages += 1;
                    line.octets += octets as u64;
                    carried.exported(line);
                    self.last = Some(carried);
                    return Sent { taken: true, refused_before };
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    reason = ExportLossReason::CollectorRefused;
                    refused_before |= self.refuse(line);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    reason = ExportLossReason::WriteFailed;
                    break;
                }
            }
        }
        carried.lost(reason, line);
        Sent { taken: false, refused_before }
    }

    /// The last datagram completes what earlier ones began.
    pub fn complete(&mut self, carried: Carried, line: &mut SinkCounters) {
        carried.exported(line);
        if let Some(last) = &mut self.last {
            last.merge(carried);
        }
    }

    /// Waits a moment for the refusal of the last datagram. Whether there was one.
    pub fn finish(&mut self, line: &mut SinkCounters) -> bool {
        let start = Instant::now();
        while self.last.is_some() && start.elapsed() < PATIENCE {
            if let Ok(Some(error)) = self.socket.take_error()
                && error.kind() == io::ErrorKind::ConnectionRefused
            {
                return self.refuse(line);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// The last datagram was refused. Whether there was one that is not known to be yet.
    fn refuse(&mut self, line: &mut SinkCounters) -> bool {
        let last = self.last.take();
        if let Some(last) = last {
            last.take_back(ExportLossReason::CollectorRefused, line);
        }
        last.is_some()
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&address.into())?;
    let socket = UdpSocket::from(socket);
    // Never in fragments: one that is lost would take the others with it. Too long for the path is an error instead.
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

/// A token bucket, as the time at which it will be full again.
struct Pace {
    /// Time per datagram; zero for no pauses.
    interval: Duration,
    full_at: Instant,
}

impl Pace {
    fn new(rate: u32) -> Self {
        let interval = if rate == 0 { Duration::ZERO } else { Duration::from_secs(1) / rate };
        Self { interval, full_at: Instant::now() }
    }

    /// Takes one token, and waits for it if there is none.
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

    fn one() -> Carried {
        Carried { flows: RecordTotals { flows: 1, packets: 2, bytes: 120 }, wire_records: 1 }
    }

    #[test]
    fn a_bucket_lets_a_burst_pass_and_then_the_rate() {
        let mut pace = Pace::new(1000);
        let start = Instant::now();
        (0..BURST).for_each(|_| pace.wait());
        (0..20).for_each(|_| pace.wait());
        assert!(start.elapsed() >= Duration::from_millis(19), "{:?}", start.elapsed());
    }

    #[test]
    fn what_nobody_listens_to_is_refused_to_the_last_datagram() {
        // A port that was free a moment ago.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut datagrams = Datagrams::connect("127.0.0.1", port, 0).unwrap();
        let mut line = SinkCounters::default();
        for _ in 0..10 {
            datagrams.send(b"nobody hears", one(), &mut line);
        }
        datagrams.finish(&mut line);
        assert_eq!(line.exported, RecordTotals::default());
        assert_eq!(line.wire_records, 0);
        assert_eq!(
            line.lost[ExportLossReason::CollectorRefused.key()],
            RecordTotals { flows: 10, packets: 20, bytes: 1200 }
        );
    }

    #[test]
    fn what_is_listened_to_is_exported() {
        for host in ["127.0.0.1", "::1", "localhost"] {
            let Ok(listener) = UdpSocket::bind((host, 0)) else { continue };
            let port = listener.local_addr().unwrap().port();
            let mut datagrams = Datagrams::connect(host, port, 0).unwrap();
            let mut line = SinkCounters::default();
            assert_eq!(datagrams.send(b"heard", one(), &mut line), Sent { taken: true, refused_before: false });
            assert!(!datagrams.finish(&mut line));
            assert_eq!((line.exported, line.messages, line.octets), (one().flows, 1, 5));
            assert_eq!(listener.recv(&mut [0; 16]).unwrap(), 5);
        }
    }

    #[test]
    fn too_long_for_the_path_is_a_failed_write() {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut datagrams = Datagrams::connect("127.0.0.1", listener.local_addr().unwrap().port(), 0).unwrap();
        let mut line = SinkCounters::default();
        let sent = datagrams.send(&[0; 65_508], one(), &mut line);
        assert_eq!(sent, Sent { taken: false, refused_before: false });
        assert_eq!(line.lost[ExportLossReason::WriteFailed.key()], one().flows);
    }
}
