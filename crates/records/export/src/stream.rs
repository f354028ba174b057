//! Messages over a connection to one collector: TCP, or a Unix stream socket.
//!
//! ```text
//! push -> waiting messages -> socket           no connection: they wait
//!              └> oldest lost beyond the limit
//! ```
//! Sockets do not block. A message leaves the waiting ones when the system has accepted all of it: its
//! records are exported then. TCP does not say what the collector has read. After the loss of a
//! connection, the first waiting message is retransmitted as a whole, so no message is split between two
//! connections.
//!
//! A new connection begins with the messages of the session (IPFIX: templates and options, RFC 7011
//! sections 8 and 10.4), then come the waiting ones. The sink makes them: a function that connects returns
//! whether it has to. IPFIX messages are numbered when they are sent, from 0 in each connection (RFC
//! 7011 section 3.1).

use crate::pending_records::PendingRecords;
use crate::sink::Attempts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read};
use std::net::{IpAddr, Shutdown, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// Waiting messages without a setting, bytes.
pub(crate) const DEFAULT_BUFFER_BYTES: u64 = 16 << 20;
/// Longest sleep between two looks at a connection. A new one that takes longer is waited for between
/// batches.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// A sink of live traffic whose messages exceed the limit waits this long for the socket.
const LIVE_WAIT: Duration = Duration::from_millis(2);
/// A sink without new records waits this long for the socket.
const TICK_WAIT: Duration = Duration::from_millis(200);
/// Most messages in one system call.
const MAX_SLICES: usize = 64;
/// Offset of the sequence number in an IPFIX message (RFC 7011 section 3.1).
const SEQUENCE_OFFSET: usize = 8;

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

    fn is_name(&self) -> bool {
        matches!(self, Self::Tcp { host, .. } if host.parse::<IpAddr>().is_err())
    }
}

/// A collector and the limit of what waits for it.
#[derive(Clone, Debug)]
pub(crate) struct StreamSettings {
    pub peer: Peer,
    /// Limit of waiting messages, bytes.
    pub buffer_bytes: usize,
}

enum State {
    Down { next_attempt: Instant },
    Connecting { socket: Socket, others: VecDeque<SockAddr>, until: Instant },
    Up { socket: Socket, since: Instant },
}

enum Progress {
    Connected,
    Pending,
    Failed(io::Error),
}

enum Outcome {
    Sent,
    NewSession,
    /// More than the limit waits at the deadline.
    Late,
}

struct Message {
    octets: Box<[u8]>,
    pending: PendingRecords,
    /// IPFIX data records, by which the next message is numbered; `None` in other formats.
    data_records: Option<u32>,
}

impl Message {
    /// Whether it has templates and options only, which each connection gets anew.
    fn is_of_session(&self) -> bool {
        self.pending.wire_records == 0
    }

    fn memory_bytes(&self) -> usize {
        self.octets.len() + size_of::<Self>()
    }
}

/// A connection with waiting messages.
pub(crate) struct StreamOutput {
    sink: String,
    settings: StreamSettings,
    times: Attempts,
    /// Live traffic: the sink waits for short times only.
    is_live: bool,
    state: State,
    /// From the end of a connection to the next attempt; doubles until one lasts.
    back_off: Duration,
    /// Since when there is no connection; `None` while there is one.
    down_since: Option<Instant>,
    /// The log says that there is no connection.
    is_logged: bool,
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
    /// Octets of the first waiting message that the system has accepted.
    accepted_octets: usize,
    /// IPFIX data records that were sent over this connection.
    sequence: u32,
    /// While a session begins: where its next message goes.
    session_end: Option<usize>,
    /// Flows that were lost since the connection was.
    lost_flows: u64,
    /// End of the time for the last records of the run.
    until: Option<Instant>,
}

impl StreamOutput {
    /// Connects to the collector. With `retries`, a collector that cannot be reached is no error, and a name
    /// is left to [`StreamOutput::connect`], because a name server may not answer for long.
    pub fn open(sink: &str, settings: StreamSettings, retries: bool, times: Attempts) -> io::Result<Self> {
        let now = Instant::now();
        let mut output = Self {
            sink: sink.into(),
            settings,
            times,
            is_live: retries,
            state: State::Down { next_attempt: now },
            back_off: times.reconnect,
            down_since: Some(now),
            is_logged: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            accepted_octets: 0,
            sequence: 0,
            session_end: None,
            lost_flows: 0,
            until: None,
        };
        if retries {
            if !output.settings.peer.is_name() {
                output.advance(SHORT_WAIT);
            }
            return Ok(output);
        }
        loop {
            match output.try_to_connect(SHORT_WAIT) {
                Progress::Connected => return Ok(output),
                Progress::Pending => {}
                Progress::Failed(error) => return Err(error),
            }
        }
    }

    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// The run ends: nothing waits any longer than this.
    pub fn drain(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// From now to [`StreamOutput::end_session`], messages go in front of those that wait.
    pub fn begin_session(&mut self) {
        self.session_end = Some(0);
    }

    pub fn end_session(&mut self) {
        self.session_end = None;
    }

    /// Adds a message to those that wait. `data_records`: of an IPFIX message.
    pub fn push(&mut self, octets: &[u8], pending: PendingRecords, data_records: Option<u32>) {
        let message = Message { octets: octets.into(), pending, data_records };
        if message.is_of_session() && !self.is_connected() {
            return;
        }
        self.waiting_bytes += message.memory_bytes();
        match &mut self.session_end {
            Some(at) => {
                self.waiting.insert(*at, message);
                *at += 1;
            }
            None => self.waiting.push_back(message),
        }
    }

    /// Sends what the system accepts now, and looks at the connection: ends it if the collector has, and
    /// continues an attempt to connect. Returns whether a new session begins.
    pub fn connect(&mut self, counters: &mut SinkCounters) -> bool {
        self.flush(counters);
        self.advance(Duration::ZERO)
    }

    /// The same while there are no records: waits for the socket for a short time if messages wait for it.
    pub fn tick(&mut self, counters: &mut SinkCounters) -> bool {
        let end = Instant::now() + TICK_WAIT;
        matches!(self.send_until(0, |_| Some(end), counters), Outcome::NewSession)
    }

    /// Sends until the waiting messages are within their limit; with `all`, until there are none. Waits for
    /// this, and for a new connection, as long as the kind of run permits; then messages beyond the limit are
    /// lost, the oldest first. Returns whether a new session begins: the sink sends its messages and calls
    /// this again.
    pub fn settle(&mut self, all: bool, counters: &mut SinkCounters) -> bool {
        let (start, limit) = (Instant::now(), if all { 0 } else { self.settings.buffer_bytes });
        let outcome = self.send_until(limit, |output| output.deadline(start, all), counters);
        if matches!(outcome, Outcome::Late) {
            self.lose_oldest(counters);
        }
        matches!(outcome, Outcome::NewSession)
    }

    /// When [`StreamOutput::settle`] ends that began at `start`; `None` if only the system ends a connection
    /// that accepts nothing.
    fn deadline(&self, start: Instant, all: bool) -> Option<Instant> {
        let is_live = self.is_live && !all;
        match (self.until, self.down_since) {
            (Some(until), _) => Some(until),
            (None, Some(_)) if is_live => Some(start),
            (None, None) if is_live => Some(start + LIVE_WAIT),
            (None, since) => since.map(|since| since.max(if all { start } else { since }) + self.times.outage),
        }
    }

    /// Sends until no more than `limit` bytes wait, or until a deadline.
    fn send_until(
        &mut self,
        limit: usize,
        deadline: impl Fn(&Self) -> Option<Instant>,
        counters: &mut SinkCounters,
    ) -> Outcome {
        loop {
            self.flush(counters);
            if self.waiting_bytes <= limit {
                return Outcome::Sent;
            }
            let left = deadline(self).map_or(SHORT_WAIT, |end| end.saturating_duration_since(Instant::now()));
            let wait = left.min(SHORT_WAIT);
            if wait.is_zero() {
                return Outcome::Late;
            }
            if let State::Up { socket, .. } = &self.state {
                wait_for(socket, PollFlags::OUT, wait);
            } else if self.advance(wait) {
                return Outcome::NewSession;
            } else if let State::Down { next_attempt } = self.state {
                std::thread::sleep(next_attempt.saturating_duration_since(Instant::now()).min(wait));
            }
        }
    }

    /// Writes what waits as far as the system accepts it.
    fn flush(&mut self, counters: &mut SinkCounters) {
        let result = self.check_end().and_then(|()| self.write(counters));
        result.err().into_iter().for_each(|error| self.disconnect(&error));
    }

    /// Whether the collector has closed the connection. What it sends is not read.
    fn check_end(&mut self) -> io::Result<()> {
        let State::Up { socket, .. } = &mut self.state else { return Ok(()) };
        match socket.read(&mut [0; 1024]) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the collector closed the connection")),
            Err(error) if !is_later(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn write(&mut self, counters: &mut SinkCounters) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let State::Up { socket, .. } = &self.state else { break };
            let mut sequence = self.sequence;
            for message in self.waiting.iter_mut().take(MAX_SLICES) {
                if let Some(data_records) = message.data_records {
                    message.octets[SEQUENCE_OFFSET..][..4].copy_from_slice(&sequence.to_be_bytes());
                    sequence = sequence.wrapping_add(data_records);
                }
            }
            let mut slices: Vec<_> =
                self.waiting.iter().take(MAX_SLICES).map(|message| IoSlice::new(&message.octets)).collect();
            slices[0].advance(self.accepted_octets);
            let sent = sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
            match sent.map_err(io::Error::from) {
                Ok(octets) => self.count_accepted(octets, counters),
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts octets that the system has accepted, and the messages that they complete.
    fn count_accepted(&mut self, octets: usize, counters: &mut SinkCounters) {
        counters.octets += octets as u64;
        self.accepted_octets += octets;
        while let Some(message) = self.waiting.front()
            && message.octets.len() <= self.accepted_octets
        {
            self.accepted_octets -= message.octets.len();
            self.waiting_bytes -= message.memory_bytes();
            message.pending.count_exported(counters);
            if let Some(data_records) = message.data_records {
                self.sequence = self.sequence.wrapping_add(data_records);
                counters.messages += 1;
            }
            self.waiting.pop_front();
        }
    }

    /// Loses the oldest messages with records until the others are within the limit. A message of which a
    /// part is sent stays.
    fn lose_oldest(&mut self, counters: &mut SinkCounters) {
        let first = usize::from(self.accepted_octets > 0);
        while self.waiting_bytes > self.settings.buffer_bytes
            && let Some(at) = (first..self.waiting.len()).find(|&at| !self.waiting[at].is_of_session())
            && let Some(message) = self.waiting.remove(at)
        {
            self.waiting_bytes -= message.memory_bytes();
            self.lost_flows += message.pending.flows.flows;
            message.pending.count_lost(ExportLossReason::BufferFull, counters);
        }
    }

    /// Ends the connection after an error. The messages of its session do not wait.
    fn disconnect(&mut self, error: &io::Error) {
        let State::Up { since, .. } = self.state else { return };
        let now = Instant::now();
        // A collector that accepts connections and closes them at once is not asked again and again.
        if now - since > 2 * self.back_off {
            self.back_off = self.times.reconnect;
        }
        (self.down_since, self.is_logged) = (Some(now), true);
        self.waiting.retain(|message| !message.is_of_session());
        self.waiting_bytes = self.waiting.iter().map(Message::memory_bytes).sum();
        (self.accepted_octets, self.sequence, self.lost_flows) = (0, 0, 0);
        self.retry_later();
        warn!(sink = self.sink, %error, "connection to the collector is lost, records wait for the next one");
    }

    /// Sets the time of the next attempt, with up to a quarter more or less.
    fn retry_later(&mut self) {
        let fraction = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos() % 1000);
        let wait = self.back_off.mul_f64(0.75 + f64::from(fraction) / 2000.0);
        self.state = State::Down { next_attempt: Instant::now() + wait };
        self.back_off = (2 * self.back_off).min(self.times.reconnect_max);
    }

    /// Connects, or waits until it is time for that. Returns whether a new session begins.
    fn advance(&mut self, wait: Duration) -> bool {
        match self.try_to_connect(wait) {
            Progress::Connected => {
                let late = self.waiting.iter().map(|message| message.pending.flows.flows).sum::<u64>();
                if std::mem::take(&mut self.is_logged) {
                    info!(sink = self.sink, late, lost = self.lost_flows, "connected to the collector again");
                }
                true
            }
            Progress::Pending => false,
            Progress::Failed(error) => {
                if !std::mem::replace(&mut self.is_logged, true) {
                    let sink = &self.sink;
                    warn!(sink, %error, "collector cannot be reached, trying again, its records wait until then");
                }
                self.retry_later();
                false
            }
        }
    }

    /// Makes a step towards a connection: `Pending` also if there is one. Waits for the address that is
    /// being tried, and for up to 50 ms for a new one.
    fn try_to_connect(&mut self, wait: Duration) -> Progress {
        let mut others = match &mut self.state {
            State::Up { .. } => return Progress::Pending,
            State::Down { next_attempt } if Instant::now() < *next_attempt => return Progress::Pending,
            State::Down { .. } => match self.settings.peer.addresses() {
                Ok(addresses) => addresses,
                Err(error) => return Progress::Failed(error),
            },
            State::Connecting { socket, others, until } => match connected(socket, wait, *until) {
                Ok(false) => return Progress::Pending,
                Ok(true) => return self.begin_connection(),
                Err(error) if others.is_empty() => return Progress::Failed(error),
                Err(_) => std::mem::take(others),
            },
        };
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        while let Some(address) = others.pop_front() {
            let until = Instant::now() + self.times.connect;
            let attempt = start_to_connect(&address, self.times.dead)
                .and_then(|socket| connected(&socket, SHORT_WAIT, until).map(|is_connected| (socket, is_connected)));
            match attempt {
                Ok((socket, is_connected)) => {
                    self.state = State::Connecting { socket, others, until };
                    return if is_connected { self.begin_connection() } else { Progress::Pending };
                }
                Err(of_address) => error = of_address,
            }
        }
        Progress::Failed(error)
    }

    fn begin_connection(&mut self) -> Progress {
        let now = Instant::now();
        match std::mem::replace(&mut self.state, State::Down { next_attempt: now }) {
            State::Connecting { socket, .. } | State::Up { socket, .. } => {
                (self.state, self.down_since) = (State::Up { socket, since: now }, None);
                Progress::Connected
            }
            State::Down { .. } => Progress::Pending,
        }
    }

    /// Counts what still waits as lost, and closes the connection: the write side first, so that the
    /// collector gets everything, then all when the collector has closed it, or after a time.
    pub fn close(&mut self, counters: &mut SinkCounters) {
        let reason = match self.is_connected() {
            true => ExportLossReason::DrainTimeout,
            false => ExportLossReason::CollectorUnreachable,
        };
        let mut lost = RecordTotals::default();
        for message in self.waiting.drain(..) {
            lost.merge(message.pending.flows);
            message.pending.count_lost(reason, counters);
        }
        self.waiting_bytes = 0;
        let State::Up { socket, .. } = &mut self.state else { return };
        let end = Instant::now() + self.times.close;
        let end = self.until.map_or(end, |until| until.min(end));
        let mut result = socket.shutdown(Shutdown::Write);
        // After a loss, the collector does not read.
        while result.is_ok() && lost.flows == 0 && Instant::now() < end {
            match socket.read(&mut [0; 1024]) {
                Ok(0) => break,
                Err(error) if is_later(&error) => {
                    let left = end.saturating_duration_since(Instant::now());
                    wait_for(socket, PollFlags::IN, left.min(SHORT_WAIT));
                }
                Err(error) => result = Err(error),
                Ok(_) => {}
            }
        }
        if let Err(error) = result {
            warn!(sink = self.sink, %error, "the collector ended the connection early, it may lack the last records");
        }
    }
}

/// Starts to connect. `dead`: time after which the system ends a connection whose other end accepts nothing.
fn start_to_connect(address: &SockAddr, dead: Duration) -> io::Result<Socket> {
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
        _ => Ok(socket),
    }
}

/// Whether the socket is connected.
fn connected(socket: &Socket, wait: Duration, until: Instant) -> io::Result<bool> {
    if wait_for(socket, PollFlags::OUT, wait) {
        return socket.take_error()?.map_or(Ok(true), Err);
    }
    if Instant::now() < until { Ok(false) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Waits until a socket is ready.
fn wait_for(socket: &Socket, events: PollFlags, wait: Duration) -> bool {
    let timeout = Timespec::try_from(wait).ok();
    poll(&mut [PollFd::new(socket, events)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
