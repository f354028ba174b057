//! Transactions of a sink of Kafka with a spool: a record is in the topic once, also after a kill.
//!
//! ```text
//! all flows -> spool -> begin -> messages of batches -> all reported -> position -> commit -> batches released
//!                └────────────────── read again <- abort <── one refused, or unknown
//! ```
//! The position is the identifier of the last batch, as the offset of a group of its own, so that it is committed if
//! the messages are. A client begins with this position: batches up to it are in the topic, even if no run has got so
//! far as to release them.

use super::in_hand::{BatchInHand, FlowInHand, Origin};
use super::output::KafkaOutput;
use super::queued_flow::QueuedFlow;
use super::transaction_state::State;
use crate::pending_records::PendingRecords;
use crate::spooled::{Item, OfSpool, Spooled};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use weir_kafka::{Failure, Step, code};
use weir_ledger::{ExportLossReason, SinkCounters};
use weir_spool::BatchId;

/// A transaction begins this long after the last one, if fewer records wait than it can have.
const TRANSACTION_TIME: Duration = Duration::from_millis(200);
/// No broker is asked when a transaction begins: this is over at once.
const BEGIN_WAIT: Duration = Duration::from_secs(30);

impl KafkaOutput {
    /// Goes on with transactions as far as brokers have answered.
    pub(super) fn advance_transaction(&mut self, counters: &mut SinkCounters) {
        while let Some(state) = self.transactions.as_ref().map(|transactions| transactions.state)
            && self.producer.is_some()
        {
            let result = match state {
                State::Starting => self.start_transactions(),
                State::Started => self.read_position(),
                State::Ready => self.begin(counters),
                State::Open if !self.in_hand.is_reported() => return,
                State::Open => self.end_transaction(),
                State::Committing => self.commit(counters),
                State::Aborting => self.abort(counters),
            };
            match result {
                Ok(true) => {}
                Ok(false) | Err(Failure::Pending(_)) => return,
                Err(Failure::Abort(error)) => {
                    self.warn(
                        code::FATAL - 1,
                        "a transaction of Kafka is aborted, its records are retransmitted",
                        &error,
                    );
                    self.set_state(State::Aborting);
                }
                Err(Failure::Fatal(error)) => {
                    self.last_error = error;
                    return self.give_up_client(counters);
                }
            }
        }
    }

    fn set_state(&mut self, state: State) {
        if let Some(transactions) = &mut self.transactions {
            transactions.state = state;
        }
    }

    fn start_transactions(&mut self) -> Result<bool, Failure> {
        let wait = self.step_wait();
        let Some(producer) = &mut self.producer else { return Ok(false) };
        producer.step(&Step::Start, wait)?;
        self.note_delivery();
        self.set_state(State::Started);
        Ok(true)
    }

    fn read_position(&mut self) -> Result<bool, Failure> {
        let Some(transactions) = &mut self.transactions else { return Ok(false) };
        if Instant::now() < transactions.next_attempt {
            return Ok(false);
        }
        match transactions.place.read(self.library, &self.destination.options.0, self.times.connect) {
            Ok(position) => {
                transactions.committed = position.map(|position| BatchId(position as u64));
                transactions.state = State::Ready;
                let border = self.spool.as_ref().map(Spooled::border);
                let is_first = !std::mem::replace(&mut transactions.is_position_known, true);
                if is_first && border.is_some_and(|border| transactions.committed > Some(border)) {
                    transactions.last = border;
                    return self.take_back_position();
                }
                Ok(true)
            }
            Err(error) => {
                transactions.next_attempt = Instant::now() + self.times.retry;
                self.warn(
                    code::FATAL - 2,
                    "the position of the spool in Kafka cannot be read, trying again",
                    &error.to_string(),
                );
                Ok(false)
            }
        }
    }

    /// The position is of a later run than this one: the spool was put back to an earlier state. What earlier runs have
    /// left in it is in the topic, nothing of this run is: commits a position in front of it.
    fn take_back_position(&mut self) -> Result<bool, Failure> {
        warn!(
            sink = self.sink,
            "the position in Kafka is of a later run: the spool was restored from a copy; what it has of earlier runs \
             counts as in the topic"
        );
        if let Some(transactions) = &mut self.transactions {
            transactions.committed = None;
        }
        self.begin_transaction()?;
        Ok(true)
    }

    fn begin_transaction(&mut self) -> Result<(), Failure> {
        let Some(producer) = &mut self.producer else { return Ok(()) };
        match producer.step(&Step::Begin, BEGIN_WAIT) {
            Err(Failure::Pending(error)) => return Err(Failure::Fatal(error)),
            result => result?,
        }
        self.set_state(State::Open);
        Ok(())
    }

    /// Begins a transaction with the next batches of the spool.
    fn begin(&mut self, counters: &mut SinkCounters) -> Result<bool, Failure> {
        let (Some(transactions), Some(spool)) = (&mut self.transactions, &self.spool) else { return Ok(false) };
        let now = Instant::now();
        let is_late = !self.is_live && spool.bytes() > self.destination.buffer_bytes;
        let is_due =
            transactions.is_full || is_late || self.is_draining || now - transactions.began >= TRANSACTION_TIME;
        if !is_due || now < transactions.next_attempt || !spool.has_unread() {
            return Ok(false);
        }
        (transactions.began, transactions.is_full, transactions.last) = (now, false, None);
        let mut is_open = false;
        while let (Some(transactions), Some(spool)) = (&mut self.transactions, &mut self.spool)
            && spool.has_unread()
        {
            if self.in_hand.bytes() > self.destination.buffer_bytes / 2 {
                transactions.is_full = true;
                break;
            }
            let flows = spool.next();
            let Some(of_spool) = flows.first().and_then(|flow| flow.of_spool) else { break };
            if transactions.is_in_topic(of_spool.batch) {
                self.skip(of_spool, flows, counters);
                continue;
            }
            transactions.last = Some(of_spool.batch);
            if !std::mem::replace(&mut is_open, true) {
                self.begin_transaction()?;
            }
            self.submit_all(flows, counters);
        }
        Ok(is_open)
    }

    /// Counts the flows of a batch that is in the topic already.
    fn skip(&mut self, of_spool: OfSpool, flows: Vec<QueuedFlow>, counters: &mut SinkCounters) {
        if of_spool.is_earlier && !std::mem::replace(&mut self.is_skip_logged, true) {
            info!(sink = self.sink, "records of the spool are in the topic already, they are not retransmitted");
        }
        let number = self.in_hand.begin_batch(of_spool, flows.len());
        for (place, flow) in flows.into_iter().enumerate() {
            let mut pending = flow.pending();
            if of_spool.is_earlier {
                // The run that sent them did not live to count them.
                pending = PendingRecords { wire_records: 0, ..pending };
            }
            let lost = self.reason_of_refusal(of_spool, place);
            let origin = Origin::Spool(number, place);
            self.in_hand.add(FlowInHand { origin, lost, ..FlowInHand::new(pending, 0) }, counters);
        }
        self.release(counters);
    }

    /// Why brokers have refused a flow in an attempt before.
    pub(super) fn reason_of_refusal(&self, of_spool: OfSpool, place: usize) -> Option<ExportLossReason> {
        self.transactions.as_ref()?.refused.get(&(of_spool.batch, place)).copied()
    }

    /// All messages have a report.
    fn end_transaction(&mut self) -> Result<bool, Failure> {
        let wait = self.step_wait();
        let (Some(transactions), Some(producer)) = (&mut self.transactions, &mut self.producer) else {
            return Ok(false);
        };
        if !self.in_hand.is_finished() {
            transactions.state = State::Aborting;
            return Ok(true);
        }
        if let Some(BatchId(last)) = transactions.last {
            producer.step(&Step::Position(transactions.place.clone(), last as i64), wait)?;
        }
        transactions.state = State::Committing;
        Ok(true)
    }

    fn commit(&mut self, counters: &mut SinkCounters) -> Result<bool, Failure> {
        let wait = self.step_wait();
        let (Some(transactions), Some(producer)) = (&mut self.transactions, &mut self.producer) else {
            return Ok(false);
        };
        producer.step(&Step::Commit, wait)?;
        transactions.state = State::Ready;
        transactions.committed = transactions.last.max(transactions.committed);
        transactions.refused.clear();
        self.note_delivery();
        self.release(counters);
        Ok(true)
    }

    /// Aborts the transaction, then reads its batches again.
    fn abort(&mut self, counters: &mut SinkCounters) -> Result<bool, Failure> {
        let wait = self.step_wait();
        let Some(producer) = &mut self.producer else { return Ok(false) };
        match producer.step(&Step::Abort, wait) {
            // There is no other way.
            Err(Failure::Abort(error)) => return Err(Failure::Fatal(error)),
            result => result?,
        }
        self.take_reports(counters);
        let (batches, _) = self.in_hand.take_all(ExportLossReason::CollectorRefused, counters);
        let Some(transactions) = &mut self.transactions else { return Ok(false) };
        transactions.note_refused(&batches);
        if batches.iter().any(BatchInHand::is_unsent) {
            transactions.next_attempt = Instant::now() + self.times.retry;
        }
        (transactions.state, transactions.is_full) = (State::Ready, true);
        if let Some(spool) = &mut self.spool {
            spool.rewind();
        }
        Ok(true)
    }
}
