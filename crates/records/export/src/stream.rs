//! Messages over a connection to one collector: TCP, with TLS or without, or a Unix stream socket. It connects, again after a loss,
//! and sends what waits.
//!
//! ```text
//! push -> waiting messages -> connection           none: they wait
//!              └> oldest lost beyond the limit
//! ```
//! Connections do not block. A message leaves the waiting ones when the system has accepted all of it: its
//! records are exported then. TCP does not say what the collector has read. After the loss of a
//! connection, the first waiting message is retransmitted as a whole, so no message is split between two
//! connections.
//!
//! A new connection begins with the messages of the session (IPFIX: templates and options, RFC 7011
//! sections 8 and 10.4), then come the waiting ones. The sink makes them: a function that connects returns
//! whether it has to.

use crate::connection::{Connection, Peer, reason};
use crate::message::Message;
use crate::pending_records::PendingRecords;
use crate::sink::{Attempts, ExportOptions, Intake};
use crate::spooled::{SpoolSettings, Spooled};
use crate::tls::{Tls, TlsSettings};
use crate::waiting::Waiting;
use crate::watch::Watch;
use socket2::SockAddr;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};
use weir_ledger::{ExportLossReason, SinkCounters};

/// Waiting messages without a setting, bytes.
pub(crate) const DEFAULT_BUFFER_BYTES: u64 = 16 << 20;
/// Longest sleep between two looks at a connection. A new one that takes longer is waited for between
/// batches.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// A sink of live traffic whose messages exceed the limit waits this long for the socket.
const LIVE_WAIT: Duration = Duration::from_millis(2);
/// A sink without new records waits this long for the socket.
const TICK_WAIT: Duration = Duration::from_millis(200);

/// A collector and the limit of what waits for it.
#[derive(Clone, Debug)]
pub(crate) struct StreamSettings {
    pub peer: Peer,
    pub tls: Option<TlsSettings>,
    /// Limit of waiting messages, bytes.
    pub buffer_bytes: usize,
    /// Longest time from one attempt to connect to the next; `None` for that of all sinks.
    pub retry: Option<Duration>,
    /// Where messages beyond the limit wait.
    pub spool: Option<SpoolSettings>,
}

enum State {
    Down { next_attempt: Instant },
    Connecting { connection: Connection, others: VecDeque<SockAddr>, until: Instant },
    Up { connection: Connection, since: Instant },
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

/// A connection with waiting messages.
pub(crate) struct StreamOutput {
    sink: String,
    settings: StreamSettings,
    tls: Option<Tls>,
    times: Attempts,
    /// Live traffic: the sink waits for short times only.
    is_live: bool,
    state: State,
    /// From the end of a connection to the next attempt; doubles until one lasts.
    back_off: Duration,
    /// When the collector has taken something, or the sink was opened.
    taken_at: Instant,
    /// Since when there is no connection; `None` while there is one.
    down_since: Option<Instant>,
    /// The log says that there is no connection.
    is_logged: bool,
    waiting: Waiting,
    /// Flows that were lost since the connection was.
    lost_flows: u64,
    /// End of the time for the last records of the run.
    until: Option<Instant>,
    watch: Watch,
    /// No records follow.
    is_ending: bool,
    /// There is a connection, and the messages of its session come first.
    is_new_session: bool,
    /// The addresses of the name when it was last resolved; none before.
    addresses: VecDeque<SockAddr>,
    /// The log says that the name has none any longer.
    is_unresolved: bool,
}

impl StreamOutput {
    /// Connects to the collector. With `retries`, a collector that cannot be reached is no error. A name is left
    /// to [`StreamOutput::connect`] then, because a name server may not answer for long, and so is TLS, because what
    /// a collector sends is not for the privileges of the start.
    /// With a spool, records wait there, so such a collector is no error either.
    pub fn open(
        sink: &str,
        settings: StreamSettings,
        tls: Option<Tls>,
        options: &ExportOptions,
        spool: Option<Spooled<Message>>,
    ) -> io::Result<Self> {
        let (retries, mut times) = (options.retries, options.attempts);
        let (now, has_spool) = (Instant::now(), spool.is_some());
        if let Some(retry) = settings.retry {
            (times.reconnect, times.reconnect_max) = (times.reconnect.min(retry), retry);
        }
        let mut output = Self {
            sink: sink.into(),
            settings,
            tls,
            times,
            is_live: retries,
            state: State::Down { next_attempt: now },
            back_off: times.reconnect,
            taken_at: now,
            down_since: Some(now),
            is_logged: false,
            waiting: Waiting::with_spool(spool),
            lost_flows: 0,
            until: None,
            watch: Watch::default(),
            is_ending: false,
            is_new_session: false,
            addresses: VecDeque::new(),
            is_unresolved: false,
        };
        if retries {
            if !output.settings.peer.is_name() && output.tls.is_none() {
                output.is_new_session = output.advance(SHORT_WAIT) && has_spool;
            }
            return Ok(output);
        }
        loop {
            match output.try_to_connect(SHORT_WAIT) {
                Progress::Connected => {
                    output.is_new_session = has_spool;
                    return Ok(output);
                }
                Progress::Pending => {}
                Progress::Failed(error) if has_spool => {
                    output.is_logged = true;
                    warn!(sink, %error, "collector cannot be reached, trying again, its records wait in the spool");
                    output.retry_later();
                    return Ok(output);
                }
                Progress::Failed(error) => return Err(error),
            }
        }
    }

    pub fn has_spool(&self) -> bool {
        self.waiting.has_spool()
    }

    /// The messages with the templates of this run, for those in the spool.
    pub fn set_context(&mut self, context: &[u8]) {
        self.waiting.set_context(context);
    }

    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// When the next step is due: towards a connection, or to send what waits. `None` if nothing is.
    pub fn wakes_at(&self) -> Option<Instant> {
        match self.state {
            State::Down { next_attempt } => Some(next_attempt),
            State::Connecting { until, .. } => Some(until.min(Instant::now() + SHORT_WAIT)),
            // The next tick waits for the socket.
            State::Up { .. } => (self.waiting.bytes() > 0).then(Instant::now),
        }
    }

    /// How the collector takes messages.
    pub fn intake(&self) -> Intake {
        let room = self.settings.buffer_bytes.saturating_sub(self.waiting.memory_bytes());
        Intake {
            is_connected: self.is_connected(),
            is_stalled: !self.waiting.is_empty(),
            room: if self.has_spool() { usize::MAX } else { room },
            gives_back: true,
        }
    }

    /// Gives up messages that wait, the newest first; returns the number of their flows. `all`: also those of which the
    /// connection has a part, which ends it; with a spool, these stay for it.
    pub fn take_back(&mut self, most: u64, all: bool) -> u64 {
        if all && !self.has_spool() {
            if self.is_connected() {
                self.down_since = Some(Instant::now());
                self.retry_later();
            }
            self.waiting.end_connection();
        }
        self.waiting.take_back(most)
    }

    /// See [`Sink::watch`](crate::Sink::watch).
    pub fn watch(&mut self, watch: &Watch) {
        self.watch = watch.clone();
        if self.has_spool() {
            watch.keep();
        }
    }

    /// The run ends: nothing waits any longer than this.
    pub fn drain(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// From now to [`StreamOutput::end_session`], messages go in front of those that wait.
    pub fn begin_session(&mut self) {
        self.waiting.begin_session();
    }

    pub fn end_session(&mut self) {
        self.waiting.end_session();
    }

    /// Adds a message to those that wait. `data_records`: of an IPFIX message.
    pub fn push(&mut self, octets: &[u8], pending: PendingRecords, data_records: Option<u32>) {
        let is_connected = self.is_connected();
        self.waiting.push(octets, pending, data_records, is_connected);
    }

    /// Sends what the system accepts now, and looks at the connection: ends it if the collector has, and
    /// continues an attempt to connect. Returns whether a new session begins.
    pub fn connect(&mut self, counters: &mut SinkCounters) -> bool {
        self.flush(counters);
        let is_new = mem::take(&mut self.is_new_session) || self.advance(Duration::ZERO);
        self.waiting.settle(counters);
        is_new
    }

    /// The same while there are no records: waits for the socket for a short time if messages wait for it.
    pub fn tick(&mut self, counters: &mut SinkCounters) -> bool {
        let end = Instant::now() + TICK_WAIT;
        let outcome = self.send_until(0, |_| Some(end), counters);
        self.waiting.settle(counters);
        matches!(outcome, Outcome::NewSession)
    }

    /// Sends until the waiting messages are within their limit; with `all`, until there are none. Waits for
    /// this, and for a new connection, as long as the kind of run permits; then messages beyond the limit are
    /// lost, the oldest first. Returns whether a new session begins: the sink sends its messages and calls
    /// this again.
    pub fn settle(&mut self, all: bool, counters: &mut SinkCounters) -> bool {
        if all && !mem::replace(&mut self.is_ending, true) {
            self.attempt_now();
        }
        let (start, limit) = (Instant::now(), if all { 0 } else { self.settings.buffer_bytes });
        let outcome = self.send_until(limit, |output| output.deadline(start, all), counters);
        if matches!(outcome, Outcome::Late) {
            self.lost_flows += self.waiting.lose_oldest(self.settings.buffer_bytes, counters);
        }
        self.waiting.settle(counters);
        matches!(outcome, Outcome::NewSession)
    }

    /// When [`StreamOutput::settle`] ends that began at `start`; `None` if only the system ends a connection
    /// that accepts nothing.
    fn deadline(&self, start: Instant, all: bool) -> Option<Instant> {
        let is_live = self.is_live && !all;
        if self.watch.must_end() {
            return Some(start);
        }
        if self.waiting.is_safe() && self.down_since.is_some() {
            // What waits is safe on disk: only a connection that is being made is waited for.
            return match self.state {
                State::Connecting { until, .. } if all => Some(self.until.map_or(until, |end| end.min(until))),
                _ => Some(start),
            };
        }
        match (self.until, self.down_since) {
            (Some(until), _) => Some(until),
            (None, Some(_)) if is_live => Some(start),
            (None, None) if is_live => Some(start + LIVE_WAIT),
            // A collector that takes nothing is away: until it takes something again, records go to the disk at once. At
            // the end, the thread that watches the sink ends this.
            (None, None) if self.waiting.is_safe() && !all => Some(self.taken_at + self.times.outage),
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
            if mem::take(&mut self.is_new_session) {
                return Outcome::NewSession;
            }
            self.flush(counters);
            if self.waiting.bytes() <= limit {
                return Outcome::Sent;
            }
            let left = deadline(self).map_or(SHORT_WAIT, |end| end.saturating_duration_since(Instant::now()));
            let wait = left.min(SHORT_WAIT);
            if wait.is_zero() {
                return Outcome::Late;
            }
            if let State::Up { connection, .. } = &self.state {
                connection.wait_for_write(wait);
            } else if self.advance(wait) {
                return Outcome::NewSession;
            } else if let State::Down { next_attempt } = self.state {
                std::thread::sleep(next_attempt.saturating_duration_since(Instant::now()).min(wait));
            }
        }
    }

    /// Writes what waits as far as the system accepts it.
    fn flush(&mut self, counters: &mut SinkCounters) {
        let result = self.write(counters);
        result.err().into_iter().for_each(|error| self.disconnect(&error));
    }

    fn write(&mut self, counters: &mut SinkCounters) -> io::Result<()> {
        let State::Up { connection, .. } = &mut self.state else { return Ok(()) };
        if self.is_new_session {
            return Ok(());
        }
        connection.check_end()?;
        // A large spool is read between batches of live records, which must not wait for it.
        let end = (self.is_live && self.waiting.has_spool()).then(|| Instant::now() + LIVE_WAIT / 2);
        loop {
            self.waiting.refill();
            if self.waiting.is_empty() || end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let written = connection.write(&self.waiting.slices())?;
            self.waiting.take(written.taken);
            self.waiting.count_accepted(written.accepted, counters);
            if written.accepted > 0 {
                self.taken_at = Instant::now();
                self.watch.step();
            }
            if written.taken == 0 && written.accepted == 0 {
                break;
            }
        }
        Ok(())
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
        self.waiting.end_connection();
        self.lost_flows = 0;
        self.retry_later();
        warn!(sink = self.sink, %error, "connection to the collector is lost, records wait for the next one");
    }

    /// Sets the time of the next attempt, with up to a quarter more or less, but not beyond the longest time.
    fn retry_later(&mut self) {
        let fraction = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos() % 1000);
        let wait = self.back_off.mul_f64(0.75 + f64::from(fraction) / 2000.0).min(self.times.reconnect_max);
        self.state = State::Down { next_attempt: Instant::now() + wait };
        self.back_off = (2 * self.back_off).min(self.times.reconnect_max);
    }

    /// The collector may be back long before the next attempt, and the run does not wait for that long.
    fn attempt_now(&mut self) {
        if let State::Down { next_attempt } = &mut self.state {
            *next_attempt = Instant::now();
            self.back_off = self.times.reconnect;
        }
    }

    /// Connects, or waits until it is time for that. Returns whether a new session begins.
    fn advance(&mut self, wait: Duration) -> bool {
        match self.try_to_connect(wait) {
            Progress::Connected => {
                let late = self.waiting.flows();
                if mem::take(&mut self.is_logged) {
                    info!(sink = self.sink, late, lost = self.lost_flows, "connected to the collector again");
                }
                true
            }
            Progress::Pending => false,
            Progress::Failed(error) => {
                if !mem::replace(&mut self.is_logged, true) {
                    let (sink, error) = (&self.sink, reason(&self.sink, &error));
                    warn!(sink, error, "collector cannot be reached, trying again, its records wait until then");
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
            State::Down { .. } => match self.resolve() {
                Ok(addresses) => addresses,
                Err(error) => return Progress::Failed(error),
            },
            State::Connecting { connection, others, until } => match connection.is_made(wait, *until) {
                Ok(false) => return Progress::Pending,
                Ok(true) => return self.begin_connection(),
                Err(error) if others.is_empty() || is_of_tls(&error) => return Progress::Failed(error),
                Err(_) => mem::take(others),
            },
        };
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        while let Some(address) = others.pop_front() {
            let until = Instant::now() + self.times.connect;
            let attempt = Connection::start(&address, self.tls.as_ref(), self.times.dead).and_then(|mut connection| {
                let is_made = connection.is_made(SHORT_WAIT, until)?;
                Ok((connection, is_made))
            });
            match attempt {
                Ok((connection, is_made)) => {
                    self.state = State::Connecting { connection, others, until };
                    return if is_made { self.begin_connection() } else { Progress::Pending };
                }
                Err(of_address) if is_of_tls(&of_address) => return Progress::Failed(of_address),
                Err(of_address) => error = of_address,
            }
        }
        Progress::Failed(error)
    }

    /// The addresses of the collector now. Logs when its name has others than before, or none.
    fn resolve(&mut self) -> io::Result<VecDeque<SockAddr>> {
        let result = self.settings.peer.addresses();
        if !self.settings.peer.is_name() {
            return result;
        }
        let sink = &self.sink;
        match &result {
            Ok(addresses) => {
                let is_same = addresses.iter().all(|address| self.addresses.contains(address));
                if !(self.addresses.is_empty() || is_same && addresses.len() == self.addresses.len()) {
                    info!(sink, addresses = shown(addresses), "the name of the collector has other addresses now");
                }
                self.addresses.clone_from(addresses);
                self.is_unresolved = false;
            }
            Err(error) => {
                if !self.addresses.is_empty() && !mem::replace(&mut self.is_unresolved, true) {
                    warn!(sink, %error, "the name of the collector cannot be resolved any longer, trying again");
                }
            }
        }
        result
    }

    fn begin_connection(&mut self) -> Progress {
        let now = Instant::now();
        match mem::replace(&mut self.state, State::Down { next_attempt: now }) {
            State::Connecting { connection, .. } | State::Up { connection, .. } => {
                (self.state, self.down_since) = (State::Up { connection, since: now }, None);
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
        if self.has_spool() {
            self.watch.save();
        }
        let lost = self.waiting.lose_all(reason, counters);
        let State::Up { connection, .. } = &mut self.state else { return };
        let end = Instant::now() + self.times.close;
        let end = self.until.map_or(end, |until| until.min(end));
        let mut result = connection.shut_down(lost.flows == 0);
        // After a loss, the collector does not read.
        while result.is_ok() && lost.flows == 0 && Instant::now() < end && !self.watch.must_end() {
            let left = end.saturating_duration_since(Instant::now());
            match connection.is_closed(left.min(SHORT_WAIT)) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => result = Err(error),
            }
        }
        if let Err(error) = result {
            warn!(sink = self.sink, %error, "the collector ended the connection early, it may lack the last records");
        }
    }
}

/// Addresses for the log.
fn shown(addresses: &VecDeque<SockAddr>) -> String {
    let texts: Vec<_> = addresses.iter().filter_map(|address| Some(address.as_socket()?.ip().to_string())).collect();
    texts.join(", ")
}

/// Whether TLS cannot begin, which is so for all addresses of a collector.
fn is_of_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other
}
