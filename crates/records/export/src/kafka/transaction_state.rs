//! Where the transactions of a client are.

use super::in_hand::BatchInHand;
use super::queued_flow::QueuedFlow;
use crate::spooled::Spooled;
use std::collections::BTreeMap;
use std::time::Instant;
use weir_kafka::{Error, Position};
use weir_ledger::ExportLossReason;
use weir_spool::BatchId;

/// The transactions of a client.
pub(super) struct Transactions {
    pub(super) place: Position,
    pub(super) state: State,
    pub(super) began: Instant,
    /// The last transaction had no room for all that waited.
    pub(super) is_full: bool,
    /// The next attempt after a failure.
    pub(super) next_attempt: Instant,
    /// The position was read in this run.
    pub(super) is_position_known: bool,
    /// All batches up to here are in the topic.
    pub(super) committed: Option<BatchId>,
    /// The last batch of the transaction.
    pub(super) last: Option<BatchId>,
    /// Flows that brokers have refused, by batch and place: each attempt leaves them out.
    pub(super) refused: BTreeMap<(BatchId, usize), ExportLossReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Transactions of earlier clients are ended.
    Starting,
    /// The position is to be read.
    Started,
    Ready,
    /// Messages are sent.
    Open,
    /// All are reported, and the position is in the transaction.
    Committing,
    /// Something was refused, or is unknown.
    Aborting,
}

impl Transactions {
    /// `id`: the `transactional.id`.
    pub fn new(id: &str, topic: &str, spool: &Spooled<QueuedFlow>) -> Result<Self, Error> {
        Ok(Self {
            place: Position::new(&format!("{id}-{:016x}", spool.number()), topic)?,
            state: State::Starting,
            began: Instant::now(),
            is_full: false,
            next_attempt: Instant::now(),
            is_position_known: false,
            committed: None,
            last: None,
            refused: BTreeMap::new(),
        })
    }

    /// A message of the transaction has failed.
    pub fn note_failure(&mut self) {
        if matches!(self.state, State::Open | State::Committing) {
            self.state = State::Aborting;
        }
    }

    /// Another client begins.
    pub fn restart(&mut self, batches: &[BatchInHand]) {
        self.note_refused(batches);
        self.state = State::Starting;
    }

    pub(super) fn note_refused(&mut self, batches: &[BatchInHand]) {
        for batch in batches {
            let of_batch = batch.refused.iter().map(|&(place, reason)| ((batch.of_spool.batch, place), reason));
            self.refused.extend(of_batch);
        }
    }

    pub(super) fn is_in_topic(&self, batch: BatchId) -> bool {
        self.committed.is_some_and(|committed| batch <= committed)
    }
}
