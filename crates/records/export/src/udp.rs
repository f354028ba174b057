//! Datagrams to one collector, rate-limited, with counters of refused datagrams.
//!
//! A connected UDP socket reports an ICMP port unreachable at its next call. That call sends
//! nothing: it reports the refusal of an *earlier* datagram. So a refusal revokes the previous
//! datagram, which was counted as exported, and the current one is sent once more. On loopback
//! every refusal is reported. Over a network, hosts limit the rate of ICMP messages, and a datagram
//! that is lost on the way is not reported at all.
//!
//! A datagram fits the path MTU where the format permits. The system refuses one that is too long
//! for a path whose MTU has become smaller: it is then sent in fragments, and later ones are
//! shorter. If a router of the path reports it (ICMP), the previous datagram is lost.
//!
//! An output may begin without a connection: [`UdpOutput::connect`] then tries to connect about
//! once a second, and datagrams until then are lost. A connected socket keeps its source address,
//! even if the host loses it or the route changes. So a socket that cannot send is closed, and about
//! once a second a socket whose source address the system would not choose any more is replaced.

use crate::connection::reason;
use crate::path_mtu::{is_too_long, path_mtu, set_fragmentation};
use crate::pending_records::PendingRecords;
use crate::sink::Attempts;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use weir_ledger::{ExportLossReason, SinkCounters};

/// Largest number of attempts to send a datagram, each of which may only report an earlier refusal.
const MAX_ATTEMPTS: usize = 4;
/// How long [`UdpOutput::finish`] waits for the refusal of the last datagram.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(50);
/// Number of datagrams that may be sent without a pause: a third of what the default receive buffer
/// of Linux holds (212 992 bytes, of which a datagram of 1420 octets takes about 2300).
const BURST: u32 = 32;

/// The same at the end of a run, in flows. A datagram has some 10 to 30.
const FLOWS_PER_BURST: u64 = 10 * BURST as u64;

/// Destination and limits of datagrams.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    pub host: String,
    pub port: u16,
    /// Longest UDP payload, octets.
    pub mtu: usize,
    /// Datagrams per second; 0 for no limit.
    pub rate: u32,
}

impl Collector {
    /// Host and port as the user wrote them, in one form.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host.to_ascii_lowercase(), self.port)
    }
}

/// A connected UDP socket.
pub(crate) struct UdpOutput {
    sink: String,
    collector: Collector,
    /// Also the time between two checks of the source address.
    attempts: Attempts,
    /// `None` until the collector can be reached.
    socket: Option<UdpSocket>,
    last_attempt: Option<Instant>,
    /// The log says that the collector cannot be reached.
    is_unreachable: bool,
    last_warning: Option<Instant>,
    rate_limiter: RateLimiter,
    /// At the end of a run: about how many flows are to be sent until when.
    drain: Option<(u64, Instant)>,
    /// Records of the last datagram, if it may still be refused.
    last: Option<PendingRecords>,
    last_octets: usize,
    /// UDP payload that the format needs, octets: the limit is never lower.
    min_payload: usize,
    /// Present limit of the UDP payload, octets.
    max_payload: usize,
    /// Longest UDP payload without fragments, octets, as far as known.
    unfragmented: usize,
    /// Whether the system may divide datagrams into fragments at present.
    fragments: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendOutcome {
    /// The operating system accepted the datagram.
    pub accepted: bool,
    /// An earlier datagram was reported as lost meanwhile.
    pub lost_before: Option<ExportLossReason>,
    /// The path MTU has become too small for the limit before.
    pub path_mtu_fell: bool,
}

impl UdpOutput {
    /// Local and remote address.
    pub fn endpoints(&self) -> Option<[SocketAddr; 2]> {
        let socket = self.socket.as_ref()?;
        Some([socket.local_addr().ok()?, socket.peer_addr().ok()?])
    }

    /// Opens the output. Datagrams of `min_payload` octets must be possible: where they do not fit
    /// the path, they are sent in fragments. With `retries`, a collector that cannot be reached is
    /// no error, and a name is left to [`UdpOutput::connect`], because a name server may not answer
    /// for long.
    pub fn open(
        sink: &str,
        collector: Collector,
        min_payload: usize,
        retries: bool,
        attempts: Attempts,
    ) -> io::Result<Self> {
        let is_name = collector.host.parse::<IpAddr>().is_err();
        let mut output = Self {
            sink: sink.into(),
            socket: None,
            last_attempt: None,
            is_unreachable: false,
            last_warning: None,
            rate_limiter: RateLimiter::new(collector.rate),
            drain: None,
            last: None,
            last_octets: 0,
            min_payload,
            max_payload: collector.mtu,
            unfragmented: usize::MAX,
            fragments: false,
            collector,
            attempts,
        };
        if !(retries && is_name)
            && let Err(error) = output.try_to_connect()
        {
            if !(retries && is_unreachable(&error)) {
                return Err(error);
            }
            output.log_unreachable(&error);
        }
        Ok(output)
    }

    /// Connects if there is no connection or its source address is not that of the route any more,
    /// unless it looked shortly before. May wait for a name server. Returns whether there is a
    /// new connection.
    pub fn connect(&mut self) -> bool {
        if self.last_attempt.is_some_and(|at| at.elapsed() < self.attempts.retry) {
            return false;
        }
        self.last_attempt = Some(Instant::now());
        if self.socket.is_some() && self.has_source_of_route() {
            return false;
        }
        let connected = self.try_to_connect();
        connected.as_ref().err().inspect(|error| self.log_unreachable(error));
        connected.is_ok()
    }

    /// Whether a new socket would have the same source address. If there is no route, sending fails.
    fn has_source_of_route(&self) -> bool {
        let Some([local, remote]) = self.endpoints() else { return false };
        connect(remote).and_then(|socket| socket.local_addr()).map_or(true, |new| new.ip() == local.ip())
    }

    /// Connects to the first reachable address of the collector.
    fn try_to_connect(&mut self) -> io::Result<()> {
        let result = connect_to_any((&self.collector.host, self.collector.port));
        self.last_attempt = Some(Instant::now());
        self.socket = Some(result?);
        // Datagrams of an earlier socket cannot be refused any more.
        (self.last, self.fragments) = (None, false);
        self.adapt_to_path();
        self.permit_fragments(self.needs_fragments());
        Ok(())
    }

    fn log_unreachable(&mut self, error: &io::Error) {
        if !self.is_unreachable && self.last_warning.is_none_or(|at| at.elapsed() >= self.attempts.log) {
            (self.is_unreachable, self.last_warning) = (true, Some(Instant::now()));
            let (sink, error) = (&self.sink, reason(&self.sink, error));
            warn!(sink, error, "collector cannot be reached, trying again, its records are lost until then");
        }
    }

    fn log_reachable(&mut self) {
        if std::mem::replace(&mut self.is_unreachable, false) {
            info!(sink = self.sink, "collector can be reached");
        }
    }

    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Present limit of the UDP payload of a datagram, octets.
    pub fn max_payload(&self) -> usize {
        self.max_payload
    }

    /// Lowers the limit to what fits the path MTU, as far as the format permits. Returns whether the
    /// path MTU has become too small for the limit.
    fn adapt_to_path(&mut self) -> bool {
        let Some((path_mtu, unfragmented)) = self.socket.as_ref().and_then(path_mtu) else { return false };
        let fell = unfragmented < self.max_payload && unfragmented < self.unfragmented;
        self.unfragmented = unfragmented;
        if fell {
            self.max_payload = unfragmented.clamp(self.min_payload, self.max_payload);
            let (limit, fragments) = (self.max_payload, self.needs_fragments());
            warn!(
                sink = self.sink,
                path_mtu, limit, fragments, "path MTU is too small for the datagrams, their UDP payload is limited"
            );
        }
        fell
    }

    /// Whether datagrams of the present limit exceed the path MTU.
    fn needs_fragments(&self) -> bool {
        self.unfragmented < self.max_payload
    }

    fn permit_fragments(&mut self, fragments: bool) {
        if let Some(socket) = &self.socket
            && fragments != self.fragments
            && set_fragmentation(socket, fragments).is_ok()
        {
            self.fragments = fragments;
        }
    }

    /// Sends about this number of flows until a time, faster than the limit if this needs it.
    pub fn drain(&mut self, flows: u64, until: Instant) {
        self.drain = Some((flows, until));
    }

    /// Time for a datagram with this number of flows, and for a burst: those of the limit, or at the
    /// end of a run their share of the time that is left, if that is shorter.
    fn pace(&mut self, flows: u64) -> [Duration; 2] {
        let limit = self.rate_limiter.interval;
        let limits = [limit, limit * BURST];
        let Some((remaining, until)) = &mut self.drain else { return limits };
        let left = until.saturating_duration_since(Instant::now());
        let flows_of = |limit: Duration, flows: u64| limit.min(left.mul_f64(flows as f64 / (*remaining).max(1) as f64));
        let pace = [flows_of(limits[0], flows.max(1)), flows_of(limits[1], FLOWS_PER_BURST)];
        *remaining = remaining.saturating_sub(flows);
        pace
    }

    /// Sends a datagram and counts its records.
    pub fn send(&mut self, datagram: &[u8], pending: PendingRecords, counters: &mut SinkCounters) -> SendOutcome {
        let mut outcome = SendOutcome { accepted: false, lost_before: None, path_mtu_fell: false };
        let mut reason = ExportLossReason::CollectorUnreachable;
        if self.socket.is_some() {
            let pace = self.pace(pending.flows.flows);
            self.rate_limiter.wait(pace);
        }
        for _ in 0..MAX_ATTEMPTS {
            let Some(socket) = &self.socket else { break };
            match socket.send(datagram) {
                Ok(octets) => {
                    self.log_reachable();
                    counters.messages += 1;
                    counters.octets += octets as u64;
                    pending.count_exported(counters);
                    (self.last, self.last_octets) = (Some(pending), datagram.len());
                    outcome.accepted = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    reason = ExportLossReason::CollectorRefused;
                    if self.revoke_last(reason, counters) {
                        outcome.lost_before = Some(reason);
                    }
                }
                Err(error) if is_too_long(&error) => {
                    reason = ExportLossReason::WriteFailed;
                    outcome.path_mtu_fell |= self.adapt_to_path();
                    if datagram.len() > self.unfragmented && !self.fragments {
                        self.permit_fragments(true);
                    } else if self.revoke_too_long(counters) {
                        // The path has reported an earlier datagram: this one cannot be refused.
                        outcome.lost_before = Some(reason);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => reason = ExportLossReason::WriteFailed,
                Err(error) if is_unreachable(&error) => {
                    reason = ExportLossReason::CollectorUnreachable;
                    self.log_unreachable(&with_cause(error));
                    // The next socket may have another source address. It gets templates again.
                    self.socket = None;
                    break;
                }
                Err(error) => {
                    reason = ExportLossReason::WriteFailed;
                    self.log_unreachable(&error);
                    break;
                }
            }
        }
        self.permit_fragments(self.needs_fragments());
        if !outcome.accepted {
            pending.count_lost(reason, counters);
        }
        outcome
    }

    /// Counts the records that the last datagram completes and earlier ones began.
    pub fn complete(&mut self, pending: PendingRecords, counters: &mut SinkCounters) {
        pending.count_exported(counters);
        if let Some(last) = &mut self.last {
            last.merge(pending);
        }
    }

    /// Waits up to 50 ms for the refusal of the last datagram. Returns whether it was lost.
    pub fn finish(&mut self, counters: &mut SinkCounters) -> bool {
        let start = Instant::now();
        while self.last.is_some() && start.elapsed() < REFUSAL_TIMEOUT {
            let Some(socket) = &self.socket else { break };
            match socket.take_error() {
                Ok(Some(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return self.revoke_last(ExportLossReason::CollectorRefused, counters);
                }
                Ok(Some(error)) if is_too_long(&error) => {
                    self.adapt_to_path();
                    return self.revoke_too_long(counters);
                }
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Counts the last datagram as lost. Returns false if that was done before.
    fn revoke_last(&mut self, reason: ExportLossReason, counters: &mut SinkCounters) -> bool {
        let last = self.last.take();
        if let Some(last) = last {
            last.revoke_exported(reason, counters);
        }
        last.is_some()
    }

    /// The path has reported a datagram that was too long: counts the last one as lost if it was.
    fn revoke_too_long(&mut self, counters: &mut SinkCounters) -> bool {
        self.last_octets > self.unfragmented && self.revoke_last(ExportLossReason::WriteFailed, counters)
    }
}

/// The collector may be reachable later. For a route of type blackhole the error is `InvalidInput`,
/// for one of type prohibit or a firewall of this host `PermissionDenied`.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, HostUnreachable, InvalidInput, NetworkDown, NetworkUnreachable, PermissionDenied,
    };
    matches!(
        error.kind(),
        AddrNotAvailable | HostUnreachable | InvalidInput | NetworkDown | NetworkUnreachable | PermissionDenied
    )
}

/// The error, with the cause in words if the error does not name it.
fn with_cause(error: io::Error) -> io::Error {
    let cause = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INVAL) => "a blackhole route discards the datagrams",
        Some(Errno::ACCESS) => "a prohibit route forbids the datagrams",
        Some(Errno::PERM) => "a firewall of this host forbids the datagrams",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{cause}: {error}"))
}

fn connect_to_any((host, port): (&str, u16)) -> io::Result<UdpSocket> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match connect(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    let to = address.into();
    socket.connect(&to).map_err(|error| {
        // The system gives the same error for a prohibit route and for a broadcast address.
        let is_broadcast = error.kind() == io::ErrorKind::PermissionDenied
            && socket.set_broadcast(true).and_then(|()| socket.connect(&to)).is_ok();
        if is_broadcast {
            io::Error::other("this is a broadcast address; name the address of one collector")
        } else {
            with_cause(error)
        }
    })?;
    let socket = UdpSocket::from(socket);
    // No fragments where datagrams can do without, because one lost fragment loses all of the
    // datagram. A datagram that is too long for the path is an error instead.
    set_fragmentation(&socket, false)?;
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

    /// Takes one token of the time `interval` from a bucket of the time `burst`. Waits until there is
    /// one.
    fn wait(&mut self, [interval, burst]: [Duration; 2]) {
        if self.interval.is_zero() {
            return;
        }
        let now = Instant::now();
        // The bucket may have become smaller.
        self.full_at = self.full_at.clamp(now, now + burst) + interval;
        let ahead = self.full_at - now;
        if ahead > burst {
            std::thread::sleep(ahead - burst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::{RecordTotals, Timing};

    fn one() -> PendingRecords {
        PendingRecords { flows: RecordTotals { flows: 1, packets: 2, bytes: 120 }, wire_records: 1 }
    }

    const SENT: SendOutcome = SendOutcome { accepted: true, lost_before: None, path_mtu_fell: false };

    fn connect_to(host: &str, port: u16) -> UdpOutput {
        let collector = Collector { host: host.into(), port, mtu: 1420, rate: 0 };
        UdpOutput::open("ipfix+udp://host", collector, 1232, false, Attempts::from(&Timing::default())).unwrap()
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_is_kept() {
        let mut rate_limiter = RateLimiter::new(1000);
        let start = Instant::now();
        let pace = [rate_limiter.interval, rate_limiter.interval * BURST];
        (0..BURST).for_each(|_| rate_limiter.wait(pace));
        (0..20).for_each(|_| rate_limiter.wait(pace));
        assert!(start.elapsed() >= Duration::from_millis(19), "{:?}", start.elapsed());
    }

    #[test]
    fn at_the_end_of_a_run_datagrams_share_the_time_that_is_left() {
        let mut udp = connect_to("127.0.0.1", 9);
        udp.rate_limiter = RateLimiter::new(10);
        let limit = Duration::from_millis(100);
        let second = Duration::from_secs(1);
        assert_eq!(udp.pace(25), [limit, limit * BURST]);
        udp.drain(1000, Instant::now() + second);
        // 25 of 1000 flows get 25 ms of the second, 100 of 500 get 200 ms, of which 100 are needed.
        let [share, burst] = udp.pace(25);
        assert!(share > limit / 8 && share <= limit / 4 && burst < second, "{share:?}");
        udp.drain(500, Instant::now() + second);
        assert_eq!(udp.pace(100)[0], limit);
        udp.drain(500, Instant::now());
        assert_eq!(udp.pace(25), [Duration::ZERO; 2]);
    }

    #[test]
    fn a_rate_that_rises_is_not_delayed_by_the_datagrams_before() {
        let mut rate_limiter = RateLimiter::new(10);
        let before = [rate_limiter.interval, rate_limiter.interval * BURST];
        (0..BURST).for_each(|_| rate_limiter.wait(before));
        let start = Instant::now();
        let pace = [10, 320].map(Duration::from_micros);
        (0..10).for_each(|_| rate_limiter.wait(pace));
        // With the pace before, the burst alone would take that.
        assert!(start.elapsed() < before[1] / 2, "{:?}", start.elapsed());
    }

    #[test]
    fn datagrams_to_an_open_port_are_exported() {
        for host in ["127.0.0.1", "::1", "localhost"] {
            let Ok(listener) = UdpSocket::bind((host, 0)) else { continue };
            let port = listener.local_addr().unwrap().port();
            let mut datagrams = connect_to(host, port);
            let mut counters = SinkCounters::default();
            assert_eq!(datagrams.send(b"taken", one(), &mut counters), SENT);
            assert!(!datagrams.finish(&mut counters));
            assert_eq!((counters.exported, counters.messages, counters.octets), (one().flows, 1, 5));
            assert_eq!(listener.recv(&mut [0; 16]).unwrap(), 5);
        }
    }

    #[test]
    fn a_datagram_too_long_for_udp_is_a_failed_write() {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut datagrams = connect_to("127.0.0.1", listener.local_addr().unwrap().port());
        let mut counters = SinkCounters::default();
        let sent = datagrams.send(&[0; 65_508], one(), &mut counters);
        assert_eq!(sent, SendOutcome { accepted: false, ..SENT });
        assert_eq!(counters.lost[ExportLossReason::WriteFailed.key()], one().flows);
    }
}
