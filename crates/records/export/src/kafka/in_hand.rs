//! The flows whose messages librdkafka has, and what became of them.
//!
//! A flow is exported when all of its messages are delivered. The outcome of a batch of the spool counts when that of
//! its last flow is known: until then, all of it is on disk.

use super::queued_flow::QueuedFlow;
use crate::pending_records::PendingRecords;
use crate::spooled::{OfSpool, Spooled};
use std::collections::VecDeque;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// Where a flow is besides.
pub(super) enum Origin {
    /// Nowhere.
    Memory,
    /// In memory: it goes to the spool if it is not sent.
    Copy(QueuedFlow),
    /// On disk: in the batch with this number, and its place there.
    Spool(u64, usize),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageOutcome {
    Delivered,
    /// Brokers do not take it.
    Lost(ExportLossReason),
    /// The client has not sent it, or does not know whether it arrived. It can be retransmitted.
    Unsent,
}

/// A flow whose messages are with librdkafka.
pub(super) struct FlowInHand {
    pub pending: PendingRecords,
    pub octets: usize,
    pub memory_bytes: usize,
    /// Messages without a report.
    pub messages: usize,
    /// Messages that are delivered.
    pub delivered: u64,
    /// Why one of them was not delivered.
    pub lost: Option<ExportLossReason>,
    pub is_unsent: bool,
    pub origin: Origin,
}

impl FlowInHand {
    pub fn new(pending: PendingRecords, memory_bytes: usize) -> Self {
        Self {
            pending,
            octets: 0,
            memory_bytes,
            messages: 0,
            delivered: 0,
            lost: None,
            is_unsent: false,
            origin: Origin::Memory,
        }
    }

    /// Notes the outcome of a message.
    pub fn note(&mut self, outcome: MessageOutcome) {
        match outcome {
            MessageOutcome::Delivered => self.delivered += 1,
            MessageOutcome::Lost(reason) => self.lost = Some(reason),
            MessageOutcome::Unsent => self.is_unsent = true,
        }
    }
}

/// What became of the flows of a batch.
pub(super) struct BatchInHand {
    pub of_spool: OfSpool,
    /// Flows without an outcome.
    open: usize,
    /// A flow has to be retransmitted.
    is_unsent: bool,
    pub messages: u64,
    pub octets: u64,
    pub delivered: PendingRecords,
    pub lost: Vec<(ExportLossReason, RecordTotals)>,
    /// Places of the lost flows.
    pub refused: Vec<(usize, ExportLossReason)>,
}

impl BatchInHand {
    /// Whether a flow has to be retransmitted.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// Counts its records, which leave the spool.
    pub fn count(self, spool: &mut Spooled<QueuedFlow>, counters: &mut SinkCounters) {
        let Self { of_spool: OfSpool { batch, is_earlier }, mut delivered, .. } = self;
        spool.release(batch, delivered.flows.flows);
        counters.messages += self.messages;
        counters.octets += self.octets;
        for (reason, records) in self.lost {
            match is_earlier {
                true => spool.count_earlier_lost(reason, records),
                false => counters.add_lost(reason, records),
            }
        }
        if is_earlier {
            // The spool counts these.
            delivered.flows = RecordTotals::default();
        }
        delivered.count_exported(counters);
    }
}

/// Flows and batches, in the order in which they were sent.
#[derive(Default)]
pub(super) struct InHand {
    flows: VecDeque<FlowInHand>,
    /// The number of the first flow.
    first: usize,
    batches: VecDeque<BatchInHand>,
    /// The number of the first batch.
    first_batch: u64,
    /// Flows that have to be retransmitted, and are in memory only.
    unsent: Vec<QueuedFlow>,
    bytes: usize,
}

impl InHand {
    /// The number of the next flow.
    pub fn next_number(&self) -> usize {
        self.first.wrapping_add(self.flows.len())
    }

    /// Memory of all flows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is a report for each message.
    pub fn is_reported(&self) -> bool {
        self.flows.is_empty()
    }

    /// Flows without an outcome.
    pub fn flows(&self) -> u64 {
        self.flows.iter().filter(|flow| flow.messages > 0).map(|flow| flow.pending.flows.flows).sum()
    }

    /// Whether there is nothing, also no batch whose outcome is to be counted.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty() && self.batches.is_empty()
    }

    /// The next flows are those of a batch. Returns its number.
    pub fn begin_batch(&mut self, of_spool: OfSpool, flows: usize) -> u64 {
        self.batches.push_back(BatchInHand {
            of_spool,
            open: flows,
            is_unsent: false,
            messages: 0,
            octets: 0,
            delivered: PendingRecords::default(),
            lost: Vec::new(),
            refused: Vec::new(),
        });
        self.first_batch + self.batches.len() as u64 - 1
    }

    /// Adds the next flow. One without messages has its outcome.
    pub fn add(&mut self, flow: FlowInHand, counters: &mut SinkCounters) {
        if flow.messages == 0 {
            return self.settle(flow, counters);
        }
        self.bytes += flow.memory_bytes;
        self.flows.push_back(flow);
    }

    /// Counts the outcome of a message, and that of its flow if it was the last one.
    pub fn report(&mut self, number: usize, outcome: MessageOutcome, counters: &mut SinkCounters) {
        let Some(flow) = self.flows.get_mut(number.wrapping_sub(self.first)).filter(|flow| flow.messages > 0) else {
            return;
        };
        flow.note(outcome);
        flow.messages -= 1;
        if flow.messages == 0 {
            self.bytes -= flow.memory_bytes;
            let settled = FlowInHand { origin: std::mem::replace(&mut flow.origin, Origin::Memory), ..*flow };
            self.settle(settled, counters);
        }
        while self.flows.front().is_some_and(|flow| flow.messages == 0) {
            self.flows.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Counts the outcome of a flow.
    fn settle(&mut self, flow: FlowInHand, counters: &mut SinkCounters) {
        let FlowInHand { pending, octets, delivered, lost, is_unsent, origin, .. } = flow;
        let place = match origin {
            Origin::Memory => None,
            Origin::Copy(copy) if is_unsent && lost.is_none() => {
                counters.messages += delivered;
                return self.unsent.push(copy);
            }
            Origin::Copy(_) => None,
            Origin::Spool(number, place) => Some((number, place)),
        };
        let of_spool = place.and_then(|(number, place)| {
            let batch = self.batches.get_mut(number.checked_sub(self.first_batch)? as usize)?;
            Some((batch, place))
        });
        let Some((batch, place)) = of_spool else {
            counters.messages += delivered;
            match lost {
                Some(reason) => pending.count_lost(reason, counters),
                None => {
                    counters.octets += octets as u64;
                    pending.count_exported(counters);
                }
            }
            return;
        };
        batch.open = batch.open.saturating_sub(1);
        batch.messages += delivered;
        match lost {
            Some(reason) => {
                batch.lost.push((reason, pending.flows));
                batch.refused.push((place, reason));
            }
            None if is_unsent => batch.is_unsent = true,
            None => {
                batch.octets += octets as u64;
                batch.delivered.merge(pending);
            }
        }
    }

    /// The oldest batch, if each of its flows is delivered or lost.
    pub fn finished_batch(&mut self) -> Option<BatchInHand> {
        self.batches.front().filter(|batch| batch.open == 0 && !batch.is_unsent)?;
        self.first_batch += 1;
        self.batches.pop_front()
    }

    /// Whether all batches are finished.
    pub fn is_finished(&self) -> bool {
        self.flows.is_empty() && self.batches.iter().all(|batch| batch.open == 0 && !batch.is_unsent)
    }

    /// Gives everything up, also what has no report. Returns the batches, which are on disk, and the flows that are in
    /// memory only. Without a copy, a flow is lost for a reason.
    pub fn take_all(
        &mut self,
        reason: ExportLossReason,
        counters: &mut SinkCounters,
    ) -> (Vec<BatchInHand>, Vec<QueuedFlow>) {
        self.first = self.next_number();
        self.bytes = 0;
        let mut unsent = std::mem::take(&mut self.unsent);
        for mut flow in self.flows.drain(..).filter(|flow| flow.messages > 0) {
            match std::mem::replace(&mut flow.origin, Origin::Memory) {
                // The batch counts them.
                Origin::Spool(..) => continue,
                Origin::Copy(copy) if flow.lost.is_none() => unsent.push(copy),
                Origin::Memory | Origin::Copy(_) => {
                    flow.pending.count_lost(flow.lost.unwrap_or(reason), counters);
                }
            }
            counters.messages += flow.delivered;
        }
        self.first_batch += self.batches.len() as u64;
        (self.batches.drain(..).collect(), unsent)
    }
}
