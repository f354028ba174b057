//! The messages of a sink of Kafka: they wait in the queue of librdkafka, and are counted by its reports.
//!
//! ```text
//! send -> librdkafka's queue -> broker -> report: exported, or lost with a reason
//!     └> newest lost beyond the limit
//! ```
//! A flow is exported when all of its messages are delivered. The client is made by the thread that writes, so that
//! its threads are in the sandbox, too.

use crate::kafka_options::Options;
use crate::pending_records::PendingRecords;
use crate::sink::{Attempts, Intake};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};
use weir_kafka::{Error, Event, Library, Message, Outcome, Producer, Report, code};
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// The header with the batch of a message.
const BATCH_HEADER: &CStr = c"weir.batch";
/// The header with the name of the probe.
const PROBE_HEADER: &CStr = c"weir.probe";
/// What a message takes in memory besides its value and the name of the probe: its description, key and headers.
const MESSAGE_BYTES: usize = 384;
/// Longest sleep between two looks at the events.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// A sink of live traffic whose messages exceed the limit waits this long for a batch.
const LIVE_WAIT: Duration = Duration::from_millis(2);

/// The broker did not answer in time.
const TIMED_OUT: i32 = -192;

/// A flow whose messages are with librdkafka.
struct FlowInHand {
    pending: PendingRecords,
    octets: usize,
    memory_bytes: usize,
    /// Messages without a report.
    messages: usize,
    /// Why one of them was not delivered.
    lost: Option<ExportLossReason>,
}

/// The messages of a flow.
pub(crate) struct Messages<'a> {
    pub key: &'a [u8],
    pub batch: &'a [u8],
    /// The name of the probe; empty for no such header.
    pub probe: &'a [u8],
    pub octets: &'a [u8],
    /// Where each message is in `octets`.
    pub values: &'a [Range<usize>],
}

/// Where the messages go, and what they may take.
#[derive(Clone)]
pub(crate) struct Destination {
    pub topic: String,
    pub options: Options,
    /// Limit of what waits, bytes.
    pub buffer_bytes: usize,
}

/// A client, and the flows that it has in hand.
pub(crate) struct KafkaOutput {
    sink: String,
    library: &'static Library,
    destination: Destination,
    times: Attempts,
    /// Live traffic: the sink waits for short times only.
    is_live: bool,
    producer: Option<Producer>,
    /// When a client is made, if there is none.
    next_attempt: Instant,
    flows: VecDeque<FlowInHand>,
    /// The number of the first flow.
    first: usize,
    waiting_bytes: usize,
    /// Since when no broker can be reached.
    down_since: Option<Instant>,
    /// The log says so.
    is_logged: bool,
    last_delivery: Option<Instant>,
    /// The last error of a connection.
    last_error: String,
    /// The client can do nothing any longer.
    has_failed: bool,
    /// Flows that were lost since no broker could be reached.
    lost_flows: u64,
    /// When the log had each error.
    logged: BTreeMap<i32, Instant>,
    /// End of the time for the last records of the run.
    until: Option<Instant>,
}

impl KafkaOutput {
    /// Checks the options. Without `retries`, also that a broker answers and has the topic.
    pub fn open(sink: &str, mut destination: Destination, retries: bool, times: Attempts) -> Result<Self, Error> {
        let library = Library::load()?;
        let mut first = loop {
            match Producer::new(library, &destination.options.0, &destination.topic) {
                Err(Error::Option { name, .. }) if destination.options.compress_otherwise(&name) => {}
                result => break result?,
            }
        };
        let checked = if retries { Ok(()) } else { first.check(&destination.topic, times.connect) };
        end(first, times.close);
        checked?;
        debug!(version = library.version(), "librdkafka is loaded");
        Ok(Self {
            sink: sink.into(),
            library,
            destination,
            times,
            is_live: retries,
            producer: None,
            next_attempt: Instant::now(),
            flows: VecDeque::new(),
            first: 0,
            waiting_bytes: 0,
            down_since: None,
            is_logged: false,
            last_delivery: None,
            last_error: "no broker has answered".into(),
            has_failed: false,
            lost_flows: 0,
            logged: BTreeMap::new(),
            until: None,
        })
    }

    /// How the brokers take messages. What librdkafka has stays there.
    pub fn intake(&self) -> Intake {
        Intake {
            is_connected: self.producer.is_some() && (self.down_since.is_none() || self.flows.is_empty()),
            is_stalled: false,
            room: self.destination.buffer_bytes.saturating_sub(self.waiting_bytes),
            gives_back: false,
        }
    }

    /// The run ends: nothing waits any longer than this.
    pub fn drain(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Makes a client if there is none, and counts what is delivered.
    pub fn connect(&mut self, counters: &mut SinkCounters) {
        if self.producer.is_none() && Instant::now() >= self.next_attempt {
            match Producer::new(self.library, &self.destination.options.0, &self.destination.topic) {
                Ok(producer) => self.producer = Some(producer),
                Err(error) => {
                    self.warn(0, "client of Kafka cannot be made, trying again", &error.to_string());
                    self.next_attempt = Instant::now() + self.times.retry;
                }
            }
        }
        self.take_events(Duration::ZERO, counters);
    }

    /// Sends the messages of a flow. If they exceed the limit, waits as long as the kind of run permits; then the flow
    /// is lost. `start`: when the batch began.
    pub fn send(
        &mut self,
        messages: &Messages<'_>,
        pending: PendingRecords,
        start: Instant,
        counters: &mut SinkCounters,
    ) {
        let headers = [(BATCH_HEADER, messages.batch), (PROBE_HEADER, messages.probe)];
        let headers = &headers[..if messages.probe.is_empty() { 1 } else { 2 }];
        let memory_bytes = messages.octets.len() + messages.values.len() * (MESSAGE_BYTES + messages.probe.len());
        let limit = self.destination.buffer_bytes.saturating_sub(memory_bytes);
        self.wait(start, limit, counters);
        let Some(producer) = &mut self.producer else {
            return pending.count_lost(ExportLossReason::WriteFailed, counters);
        };
        if self.waiting_bytes > limit {
            self.lost_flows += pending.flows.flows;
            return pending.count_lost(ExportLossReason::BufferFull, counters);
        }
        let number = self.first.wrapping_add(self.flows.len());
        let (mut accepted, mut refused) = (0, None);
        for range in messages.values {
            let value = &messages.octets[range.clone()];
            match producer.send(&Message { key: messages.key, value, headers, number }) {
                Outcome::Accepted => accepted += 1,
                Outcome::Refused(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let lost = refused.map(reason);
        if let Some(error) = refused {
            self.has_failed |= error == code::FATAL;
            self.warn(error, "Kafka refuses records, they are lost", &self.library.sentence(error));
        }
        match (accepted, lost) {
            (0, Some(reason)) => pending.count_lost(reason, counters),
            (messages_in_hand, _) => {
                self.waiting_bytes += memory_bytes;
                let octets = messages.octets.len();
                self.flows.push_back(FlowInHand { pending, octets, memory_bytes, messages: messages_in_hand, lost });
            }
        }
    }

    /// Waits until no more than this waits, or as long as the kind of run permits.
    fn wait(&mut self, start: Instant, limit: usize, counters: &mut SinkCounters) {
        while self.waiting_bytes > limit {
            self.take_events(Duration::ZERO, counters);
            let left = self.deadline(start, false).saturating_duration_since(Instant::now());
            if self.waiting_bytes <= limit || left.is_zero() || self.producer.is_none() {
                return;
            }
            self.take_events(left.min(SHORT_WAIT), counters);
        }
    }

    /// When a wait ends that began at `start`. `all`: at the end of the run.
    fn deadline(&self, start: Instant, all: bool) -> Instant {
        let is_live = self.is_live && !all;
        match (self.until, self.down_since) {
            (Some(until), _) => until,
            (None, Some(_)) if is_live => start,
            (None, None) if is_live => start + LIVE_WAIT,
            (None, Some(since)) => since.max(if all { start } else { since }) + self.times.outage,
            (None, None) => self.last_delivery.map_or(start, |last| last.max(start)) + self.times.dead,
        }
    }

    /// Counts what has been reported since, and waits for the first event.
    fn take_events(&mut self, wait: Duration, counters: &mut SinkCounters) {
        let mut wait = wait;
        while let Some(event) = self.producer.as_mut().and_then(|producer| producer.poll(wait)) {
            wait = Duration::ZERO;
            match event {
                Event::Reports(reports) => {
                    for report in reports {
                        self.count_report(report, counters);
                    }
                }
                Event::Error(number, sentence) => self.note_error(number, sentence),
                Event::Log(level, line) => debug!(level, line, "librdkafka"),
            }
        }
        self.log_outage();
        if self.has_failed {
            self.give_up_client(counters);
        }
    }

    /// Counts the outcome of a message, and that of its flow if it was the last one.
    fn count_report(&mut self, report: Report, counters: &mut SinkCounters) {
        let Report { number, error } = report;
        if error == 0 {
            counters.messages += 1;
            self.note_delivery();
        } else {
            self.warn(error, "Kafka refuses records, they are lost", &self.library.sentence(error));
        }
        let Some(flow) = self.flows.get_mut(number.wrapping_sub(self.first)) else { return };
        if error != 0 {
            flow.lost = Some(reason(error));
        }
        flow.messages = flow.messages.saturating_sub(1);
        if flow.messages == 0 {
            self.waiting_bytes -= std::mem::take(&mut flow.memory_bytes);
            match flow.lost {
                Some(reason) => flow.pending.count_lost(reason, counters),
                None => {
                    counters.octets += flow.octets as u64;
                    flow.pending.count_exported(counters);
                }
            }
        }
        while self.flows.front().is_some_and(|flow| flow.messages == 0) {
            self.flows.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    fn note_delivery(&mut self) {
        self.last_delivery = Some(Instant::now());
        self.down_since = None;
        if std::mem::take(&mut self.is_logged) {
            let late: u64 = self.flows.iter().filter(|flow| flow.messages > 0).map(|f| f.pending.flows.flows).sum();
            info!(sink = self.sink, late, lost = self.lost_flows, "connected to the collector again");
        }
    }

    fn note_error(&mut self, number: i32, sentence: String) {
        match number {
            code::ALL_BROKERS_DOWN => {
                if self.down_since.is_none() {
                    (self.down_since, self.lost_flows) = (Some(Instant::now()), 0);
                }
            }
            code::TRANSPORT | code::RESOLVE => {
                debug!(sink = self.sink, error = sentence, "connection to a broker");
                self.last_error = sentence;
            }
            code::FATAL => self.has_failed = true,
            _ => {
                self.warn(number, "connection to Kafka has an error, records wait", &sentence);
                self.last_error = sentence;
            }
        }
    }

    /// Logs that no broker can be reached. An idle connection that a broker ends is no reason.
    fn log_outage(&mut self) {
        let matters = !self.flows.is_empty() || self.last_delivery.is_none();
        if self.down_since.is_some() && matters && !std::mem::replace(&mut self.is_logged, true) {
            let (sink, error) = (&self.sink, &self.last_error);
            warn!(sink, error, "collector cannot be reached, trying again, its records wait until then");
        }
    }

    /// The client has failed for good, as after a loss of data in a broker. Its messages are lost, and another client
    /// is made.
    fn give_up_client(&mut self, counters: &mut SinkCounters) {
        self.has_failed = false;
        let Some(producer) = self.producer.take() else { return };
        let error = producer.fatal_error().unwrap_or_else(|| "no reason given".into());
        let lost = self.lose_all(ExportLossReason::CollectorRefused, counters);
        self.next_attempt = Instant::now() + self.times.retry;
        end(producer, self.times.close);
        warn!(sink = self.sink, error, lost, "client of Kafka has failed, another one is made");
    }

    /// Counts everything in hand as lost. Returns the number of flows.
    fn lose_all(&mut self, reason: ExportLossReason, counters: &mut SinkCounters) -> u64 {
        let mut lost = RecordTotals::default();
        self.first = self.first.wrapping_add(self.flows.len());
        for flow in self.flows.drain(..).filter(|flow| flow.messages > 0) {
            lost.merge(flow.pending.flows);
            flow.pending.count_lost(flow.lost.unwrap_or(reason), counters);
        }
        self.waiting_bytes = 0;
        lost.flows
    }

    /// Waits for the reports of all messages, as long as the kind of run permits. The others are lost.
    pub fn finish(&mut self, counters: &mut SinkCounters) {
        let start = Instant::now();
        while !self.flows.is_empty() {
            let left = self.deadline(start, true).saturating_duration_since(Instant::now());
            let Some(producer) = self.producer.as_mut().filter(|_| !left.is_zero()) else { break };
            producer.flush(left.min(Duration::from_millis(1)));
            self.take_events(left.min(SHORT_WAIT), counters);
        }
        let reason = match self.down_since {
            Some(_) => ExportLossReason::CollectorUnreachable,
            None => ExportLossReason::DrainTimeout,
        };
        let lost = self.lose_all(reason, counters);
        if lost > 0 {
            let (sink, error) = (&self.sink, &self.last_error);
            warn!(sink, lost, error, "records were not delivered in time");
        }
        if let Some(mut producer) = self.producer.take() {
            producer.purge();
            end(producer, self.times.close);
        }
    }

    /// Logs an error, unless the log had it a short time ago.
    fn warn(&mut self, number: i32, what: &str, error: &str) {
        let now = Instant::now();
        if self.logged.get(&number).is_none_or(|&last| now - last >= self.times.log) {
            self.logged.insert(number, now);
            warn!(sink = self.sink, error, "{what}");
        }
    }
}

/// Ends a client on a thread of its own: it may wait for a name server.
fn end(producer: Producer, limit: Duration) {
    let (ended, has_ended) = mpsc::channel();
    let drop_it = move || {
        drop(producer);
        let _ = ended.send(());
    };
    if thread::Builder::new().name("weir-kafka-end".into()).spawn(drop_it).is_ok() {
        let _ = has_ended.recv_timeout(limit);
    }
}

/// Why a message is lost.
fn reason(error: i32) -> ExportLossReason {
    match error {
        code::QUEUE_FULL => ExportLossReason::BufferFull,
        code::TRANSPORT | TIMED_OUT => ExportLossReason::CollectorUnreachable,
        _ => ExportLossReason::CollectorRefused,
    }
}
