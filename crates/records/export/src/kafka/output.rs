//! The messages of a sink of Kafka: they wait in the queue of librdkafka, and are counted by its reports.
//!
//! ```text
//! send -> librdkafka's queue -> broker -> report: exported, or lost with a reason
//!     └> newest lost beyond the limit;
//!        with a spool, they go to the disk, and newer ones behind them
//! ```
//! A flow is exported when all of its messages are delivered. librdkafka gives nothing back: with a spool, a copy of
//! what it has stays here, and goes to the spool at the end of the run. The client is made by the thread that writes,
//! so that its threads are in the sandbox, too.

use super::in_hand::{FlowInHand, InHand, MessageOutcome, Origin};
use super::queued_flow::{Messages, QueuedFlow};
use super::transaction_state::Transactions;
use crate::kafka_options::Options;
use crate::pending_records::PendingRecords;
use crate::sink::{Attempts, Intake};
use crate::spooled::{Item, Spooled};
use crate::watch::Watch;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};
use weir_kafka::{Error, Event, Library, Message, Outcome, Producer, Report, Step, code};
use weir_ledger::{ExportLossReason, SinkCounters};

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

/// A sink without new records waits this long for brokers, to read on in the spool.
const TICK_WAIT: Duration = Duration::from_millis(200);
/// At the end of a run with a spool, brokers that are away may return within this time.
const RETURN_WAIT: Duration = Duration::from_secs(1);

/// Where the messages go, and what they may take.
#[derive(Clone)]
pub(crate) struct Destination {
    pub topic: String,
    /// With it, records are sent in transactions.
    pub transactional_id: Option<String>,
    pub options: Options,
    /// Limit of what waits, bytes.
    pub buffer_bytes: usize,
}

/// A client, and the flows that it has in hand.
pub(crate) struct KafkaOutput {
    pub(super) sink: String,
    pub(super) library: &'static Library,
    pub(super) destination: Destination,
    pub(super) times: Attempts,
    /// Live traffic: the sink waits for short times only.
    pub(super) is_live: bool,
    pub(super) producer: Option<Producer>,
    /// When a client is made, if there is none.
    next_attempt: Instant,
    pub(super) in_hand: InHand,
    pub(super) spool: Option<Spooled<QueuedFlow>>,
    /// Since when no broker can be reached.
    down_since: Option<Instant>,
    /// The log says so.
    is_logged: bool,
    last_delivery: Option<Instant>,
    /// The last error of a connection.
    pub(super) last_error: String,
    /// The client can do nothing any longer.
    has_failed: bool,
    /// Flows that were lost since no broker could be reached.
    lost_flows: u64,
    /// When the log had each error.
    logged: BTreeMap<i32, Instant>,
    /// End of the time for the last records of the run.
    until: Option<Instant>,
    watch: Watch,
    /// No more records follow.
    pub(super) is_draining: bool,
    /// The client sends nothing any longer.
    is_ending: bool,
    pub(super) transactions: Option<Transactions>,
    /// The log says that batches were in the topic already.
    pub(super) is_skip_logged: bool,
}

impl KafkaOutput {
    /// Checks the options. Without `retries`, also that a broker answers and has the topic. With a spool, records wait
    /// there until a broker answers.
    pub fn open(
        sink: &str,
        mut destination: Destination,
        mut spool: Option<Spooled<QueuedFlow>>,
        retries: bool,
        times: Attempts,
    ) -> Result<Self, Error> {
        let library = Library::load()?;
        let mut first = loop {
            match Producer::new(library, &destination.options.0, &destination.topic) {
                Err(Error::Option { name, .. }) if destination.options.compress_otherwise(&name) => {}
                result => break result?,
            }
        };
        let checked = if retries { Ok(()) } else { first.check(&destination.topic, times.connect) };
        end(first, times.close);
        match checked {
            Err(error) if error.is_unreachable() && spool.is_some() => {
                warn!(sink, %error, "collector cannot be reached, trying again, its records wait in the spool");
            }
            result => result?,
        }
        debug!(version = library.version(), "librdkafka is loaded");
        let transactions = match (&destination.transactional_id, &mut spool) {
            (Some(id), Some(spool)) => {
                spool.is_for_all = true;
                Some(Transactions::new(id, &destination.topic, spool)?)
            }
            _ => None,
        };
        Ok(Self {
            sink: sink.into(),
            library,
            destination,
            times,
            is_live: retries,
            producer: None,
            next_attempt: Instant::now(),
            in_hand: InHand::default(),
            spool,
            down_since: None,
            is_logged: false,
            last_delivery: None,
            last_error: "no broker has answered".into(),
            has_failed: false,
            lost_flows: 0,
            logged: BTreeMap::new(),
            until: None,
            watch: Watch::default(),
            is_draining: false,
            is_ending: false,
            transactions,
            is_skip_logged: false,
        })
    }

    /// How the brokers take messages. What librdkafka has stays there.
    pub fn intake(&self) -> Intake {
        let is_idle = self.in_hand.is_empty() && !self.is_behind();
        Intake {
            is_connected: self.producer.is_some() && (self.down_since.is_none() || is_idle),
            is_stalled: false,
            room: match self.spool {
                Some(_) => usize::MAX,
                None => self.destination.buffer_bytes.saturating_sub(self.in_hand.bytes()),
            },
            gives_back: false,
        }
    }

    /// Whether new flows wait behind others in the spool.
    fn is_behind(&self) -> bool {
        self.spool.as_ref().is_some_and(Spooled::is_behind)
    }

    /// The run ends: nothing waits any longer than this.
    pub fn drain(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// See [`Sink::watch`](crate::Sink::watch).
    pub fn watch(&mut self, watch: &Watch) {
        self.watch = watch.clone();
        if self.spool.is_some() {
            watch.keep();
        }
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
    /// goes to the spool, or is lost. `start`: when the batch began.
    pub fn send(
        &mut self,
        messages: &Messages<'_>,
        pending: PendingRecords,
        start: Instant,
        counters: &mut SinkCounters,
    ) {
        let must_wait = |spool: &&mut Spooled<QueuedFlow>| self.transactions.is_some() || spool.is_behind();
        if let Some(spool) = self.spool.as_mut().filter(must_wait) {
            return spool.push(QueuedFlow::new(messages, pending.flows));
        }
        let copy = self.spool.is_some().then(|| QueuedFlow::new(messages, pending.flows));
        let memory_bytes = memory_bytes(messages) + copy.as_ref().map_or(0, Item::memory_bytes);
        let limit = self.destination.buffer_bytes.saturating_sub(memory_bytes);
        self.wait(start, limit, counters);
        let is_full = self.in_hand.bytes() > limit;
        match (copy, &mut self.spool) {
            (Some(copy), Some(spool)) if is_full || self.producer.is_none() => spool.push(copy),
            _ if self.producer.is_none() => pending.count_lost(ExportLossReason::WriteFailed, counters),
            _ if is_full => {
                self.lost_flows += pending.flows.flows;
                pending.count_lost(ExportLossReason::BufferFull, counters);
            }
            (copy, _) => {
                let flow = self.submit(messages, pending, memory_bytes);
                let origin = copy.map_or(Origin::Memory, Origin::Copy);
                self.in_hand.add(FlowInHand { origin, ..flow }, counters);
            }
        }
    }

    /// Gives the messages of a flow to librdkafka.
    fn submit(&mut self, messages: &Messages<'_>, pending: PendingRecords, memory_bytes: usize) -> FlowInHand {
        let headers = [(BATCH_HEADER, messages.batch), (PROBE_HEADER, messages.probe)];
        let headers = &headers[..if messages.probe.is_empty() { 1 } else { 2 }];
        let number = self.in_hand.next_number();
        let mut flow = FlowInHand::new(pending, memory_bytes);
        for range in messages.values {
            let value = &messages.octets[range.clone()];
            flow.octets += value.len();
            let message = Message { key: messages.key, value, headers, number };
            let outcome = match self.producer.as_mut().map(|producer| producer.send(&message)) {
                Some(Outcome::Accepted) => {
                    flow.messages += 1;
                    continue;
                }
                Some(Outcome::Refused(error)) => self.outcome(error),
                None => MessageOutcome::Unsent,
            };
            flow.note(outcome);
            break;
        }
        flow
    }

    /// What an error says of a message. With a spool, one of the client says nothing of it.
    fn outcome(&mut self, error: i32) -> MessageOutcome {
        self.has_failed |= error == code::FATAL;
        if self.spool.is_some() && code::is_of_client(error) {
            // What it has is sent by another client, or in another transaction.
            self.has_failed |= !self.is_ending && self.transactions.is_none();
            return MessageOutcome::Unsent;
        }
        self.warn(error, "Kafka refuses records, they are lost", &self.library.sentence(error));
        MessageOutcome::Lost(reason(error))
    }

    /// Waits until no more than this waits, or as long as the kind of run permits.
    fn wait(&mut self, start: Instant, limit: usize, counters: &mut SinkCounters) {
        while self.in_hand.bytes() > limit {
            self.take_events(Duration::ZERO, counters);
            let left = self.deadline(start, false).saturating_duration_since(Instant::now());
            if self.in_hand.bytes() <= limit || left.is_zero() || self.producer.is_none() {
                return;
            }
            self.take_events(left.min(SHORT_WAIT), counters);
        }
    }

    /// A batch of flows was written: writes to the spool what waits behind it, and reads on there. Without live
    /// traffic, waits for brokers that are slow.
    pub fn settle(&mut self, counters: &mut SinkCounters) {
        if self.spool.is_none() {
            return;
        }
        let start = Instant::now();
        loop {
            self.advance(counters);
            let waiting = self.in_hand.bytes() + self.spool.as_ref().map_or(0, Spooled::bytes);
            let left = self.deadline(start, false).saturating_duration_since(Instant::now());
            if self.is_live || self.producer.is_none() || waiting <= self.destination.buffer_bytes || left.is_zero() {
                break;
            }
            self.take_events(left.min(SHORT_WAIT), counters);
        }
    }

    /// The same while there are no records: waits for brokers for a short time if records wait for them.
    pub fn tick(&mut self, counters: &mut SinkCounters) {
        self.connect(counters);
        let end = Instant::now() + TICK_WAIT;
        while self.spool.is_some() {
            self.advance(counters);
            let left = end.saturating_duration_since(Instant::now());
            let has_all = self.in_hand.is_empty() && !self.is_behind();
            if has_all || left.is_zero() || self.down_since.is_some() || self.producer.is_none() {
                break;
            }
            self.take_events(left.min(SHORT_WAIT), counters);
        }
    }

    /// Moves flows between memory, spool and librdkafka as far as there is room.
    fn advance(&mut self, counters: &mut SinkCounters) {
        self.take_events(Duration::ZERO, counters);
        self.spill(Vec::new(), counters);
        match self.transactions {
            Some(_) => self.advance_transaction(counters),
            None => self.refill(counters),
        }
        if let Some(spool) = &mut self.spool {
            spool.settle(false, counters);
        }
    }

    /// Writes flows to the spool, and those that wait behind it. What it does not take stays in memory up to the limit.
    fn spill(&mut self, flows: Vec<QueuedFlow>, counters: &mut SinkCounters) {
        let Some(spool) = &mut self.spool else { return };
        let left = spool.spill(flows);
        spool.keep(left);
        self.lost_flows += spool.lose_oldest(self.destination.buffer_bytes, counters);
    }

    /// Sends flows of the spool, if there is room for them.
    fn refill(&mut self, counters: &mut SinkCounters) {
        while self.producer.is_some()
            && self.in_hand.bytes() <= self.destination.buffer_bytes / 2
            && let Some(spool) = self.spool.as_mut().filter(|spool| spool.is_behind())
        {
            let flows = spool.next();
            if flows.is_empty() {
                break;
            }
            self.submit_all(flows, counters);
        }
        self.release(counters);
    }

    /// Sends the flows of a batch, or those that were in memory only.
    pub(super) fn submit_all(&mut self, flows: Vec<QueuedFlow>, counters: &mut SinkCounters) {
        let of_spool = flows.first().and_then(|flow| flow.of_spool);
        let number = of_spool.map(|of_spool| self.in_hand.begin_batch(of_spool, flows.len()));
        for (place, flow) in flows.into_iter().enumerate() {
            let of_copy = if number.is_none() { flow.memory_bytes() } else { 0 };
            let messages = flow.messages();
            let in_hand = match of_spool.and_then(|of_spool| self.reason_of_refusal(of_spool, place)) {
                Some(reason) => FlowInHand { lost: Some(reason), ..FlowInHand::new(flow.pending(), 0) },
                None => self.submit(&messages, flow.pending(), memory_bytes(&messages) + of_copy),
            };
            let origin = number.map_or(Origin::Copy(flow), |number| Origin::Spool(number, place));
            self.in_hand.add(FlowInHand { origin, ..in_hand }, counters);
        }
    }

    /// Counts the flows of finished batches, which leave the spool.
    pub(super) fn release(&mut self, counters: &mut SinkCounters) {
        while let (Some(spool), Some(batch)) = (&mut self.spool, self.in_hand.finished_batch()) {
            batch.count(spool, counters);
        }
    }

    /// When a wait ends that began at `start`. `all`: at the end of the run.
    fn deadline(&self, start: Instant, all: bool) -> Instant {
        let is_live = self.is_live && !all;
        if self.watch.must_end() {
            return start;
        }
        match (self.until, self.down_since) {
            // What waits is safe on disk.
            (_, Some(_)) if self.spool.is_some() && !all => start,
            (until, Some(_)) if self.spool.is_some() => {
                let end = start + RETURN_WAIT.min(self.times.outage);
                until.map_or(end, |until| until.min(end))
            }
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

    /// Counts the outcome of a message.
    fn count_report(&mut self, report: Report, counters: &mut SinkCounters) {
        let outcome = match report.error {
            0 => {
                self.note_delivery();
                MessageOutcome::Delivered
            }
            error => {
                if let Some(transactions) = &mut self.transactions {
                    transactions.note_failure();
                }
                self.outcome(error)
            }
        };
        self.in_hand.report(report.number, outcome, counters);
    }

    pub(super) fn note_delivery(&mut self) {
        self.last_delivery = Some(Instant::now());
        self.watch.step();
        self.down_since = None;
        if std::mem::take(&mut self.is_logged) {
            info!(
                sink = self.sink,
                late = self.in_hand.flows(),
                lost = self.lost_flows,
                "connected to the collector again"
            );
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
        let matters = !self.in_hand.is_empty() || self.is_behind() || self.last_delivery.is_none();
        if self.down_since.is_some() && matters && !std::mem::replace(&mut self.is_logged, true) {
            let (sink, error) = (&self.sink, &self.last_error);
            warn!(sink, error, "collector cannot be reached, trying again, its records wait until then");
        }
    }

    /// The client has failed for good, as after a loss of data in a broker. Its messages are lost, and another client
    /// is made. With a spool, that one sends them again.
    pub(super) fn give_up_client(&mut self, counters: &mut SinkCounters) {
        self.has_failed = false;
        let Some(mut producer) = self.producer.take() else { return };
        let error = producer.fatal_error().unwrap_or_else(|| self.last_error.clone());
        let flows = self.in_hand.flows();
        let (batches, unsent) = self.in_hand.take_all(ExportLossReason::CollectorRefused, counters);
        if let Some(transactions) = &mut self.transactions {
            transactions.restart(&batches);
        }
        self.next_attempt = Instant::now() + self.times.retry;
        let has_spool = self.spool.is_some();
        if let Some(spool) = &mut self.spool {
            producer.purge();
            spool.rewind();
        }
        end(producer, self.times.close);
        self.spill(unsent, counters);
        match has_spool {
            true => self.warn(code::FATAL, "client of Kafka has failed, another one sends its records again", &error),
            false => warn!(sink = self.sink, error, lost = flows, "client of Kafka has failed, another one is made"),
        }
    }

    /// Waits for the reports of all messages, as long as the kind of run permits. The others are lost, or wait in the
    /// spool for the next run.
    pub fn finish(&mut self, counters: &mut SinkCounters) {
        let start = Instant::now();
        self.is_draining = true;
        loop {
            self.advance(counters);
            let has_all = self.in_hand.is_empty() && !self.is_behind();
            let left = self.deadline(start, true).saturating_duration_since(Instant::now());
            let Some(producer) = self.producer.as_mut().filter(|_| !left.is_zero() && !has_all) else { break };
            producer.flush(left.min(Duration::from_millis(1)));
            self.take_events(left.min(SHORT_WAIT), counters);
        }
        self.is_ending = true;
        let mut producer = self.producer.take();
        if let Some(producer) = &mut producer {
            producer.purge();
            if self.transactions.is_some() && !self.in_hand.is_empty() {
                // Otherwise consumers wait for its end. If it fails, or another step is being made, the next run ends it.
                let _ = producer.step(&Step::Abort, SHORT_WAIT);
            }
        }
        self.end_spool(&mut producer, counters);
        let reason = self.reason_at_end();
        let lost = self.in_hand.flows();
        self.in_hand.take_all(reason, counters);
        if lost > 0 {
            let (sink, error) = (&self.sink, &self.last_error);
            warn!(sink, lost, error, "records were not delivered in time");
        }
        if let Some(producer) = producer {
            end(producer, self.times.close);
        }
    }

    fn reason_at_end(&self) -> ExportLossReason {
        match self.down_since {
            Some(_) => ExportLossReason::CollectorUnreachable,
            None => ExportLossReason::DrainTimeout,
        }
    }

    /// Looks at the reports of an aborted transaction.
    pub(super) fn take_reports(&mut self, counters: &mut SinkCounters) {
        while let Some(event) = self.producer.as_mut().and_then(|producer| producer.poll(Duration::ZERO)) {
            if let Event::Reports(reports) = event {
                reports.into_iter().for_each(|report| self.count_report(report, counters));
            }
        }
    }

    /// How long a step of a transaction is waited for at a time.
    pub(super) fn step_wait(&self) -> Duration {
        match self.is_live && !self.is_draining || self.down_since.is_some() {
            true => LIVE_WAIT,
            false => SHORT_WAIT,
        }
    }

    /// Looks at the last reports, and leaves what is not delivered to the next run.
    fn end_spool(&mut self, producer: &mut Option<Producer>, counters: &mut SinkCounters) {
        if self.spool.is_none() {
            return;
        }
        // The wait for the last reports is part of it: what they do not say goes to the disk.
        self.watch.save();
        let end = Instant::now() + self.times.close;
        while !self.in_hand.is_reported()
            && let Some(producer) = producer
        {
            let left = end.saturating_duration_since(Instant::now());
            match producer.poll(left.min(SHORT_WAIT)) {
                Some(Event::Reports(reports)) => {
                    reports.into_iter().for_each(|report| self.count_report(report, counters));
                }
                _ if left.is_zero() => break,
                _ => {}
            }
        }
        if self.transactions.is_none() {
            self.release(counters);
        }
        let reason = self.reason_at_end();
        let (_, unsent) = self.in_hand.take_all(reason, counters);
        if let Some(spool) = &mut self.spool {
            let flows = spool.end(unsent, reason, counters);
            if flows > 0 {
                info!(sink = self.sink, flows, "records wait in the spool for the next run");
            }
        }
    }

    /// Logs an error, unless the log had it a short time ago.
    pub(super) fn warn(&mut self, number: i32, what: &str, error: &str) {
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

/// What the messages of a flow take in librdkafka.
fn memory_bytes(messages: &Messages<'_>) -> usize {
    let octets: usize = messages.values.iter().map(|value| value.len()).sum();
    octets + messages.values.len() * (MESSAGE_BYTES + messages.probe.len())
}

/// Why a message is lost.
fn reason(error: i32) -> ExportLossReason {
    match error {
        code::QUEUE_FULL => ExportLossReason::BufferFull,
        code::TRANSPORT | code::MESSAGE_TIMED_OUT => ExportLossReason::CollectorUnreachable,
        _ => ExportLossReason::CollectorRefused,
    }
}
