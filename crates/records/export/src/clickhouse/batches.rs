//! Encoded batches of rows that wait for the server, oldest first.
//!
//! A batch is encoded once. It is the same in each attempt, and so is its token: the server does not insert it twice.

use crate::pending_records::PendingRecords;
use hyper::body::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_ledger::RecordTotals;

/// Rows as they are sent.
pub(crate) struct Batch {
    /// Its number in the run, from 0. The token of the batch has it.
    pub id: u64,
    pub octets: Bytes,
    pub records: PendingRecords,
    /// Records with a value that does not fit its type.
    pub altered: u64,
}

impl Batch {
    fn memory_bytes(&self) -> usize {
        self.octets.len() + size_of::<Self>()
    }
}

/// The batches that are neither inserted nor lost. A sender takes the oldest, which stays until it is released.
#[derive(Default)]
pub(crate) struct Batches {
    waiting: VecDeque<Arc<Batch>>,
    /// The batch that the sender has.
    sent: Option<u64>,
    bytes: usize,
}

impl Batches {
    pub fn push(&mut self, batch: Batch) {
        self.bytes += batch.memory_bytes();
        self.waiting.push_back(Arc::new(batch));
    }

    /// The oldest batch, the same again until it is released.
    pub fn next(&mut self) -> Option<Arc<Batch>> {
        let first = self.waiting.front()?;
        self.sent = Some(first.id);
        Some(first.clone())
    }

    /// Ends an attempt to insert the batch, which waits on.
    pub fn put_back(&mut self) {
        self.sent = None;
    }

    /// Removes a batch that is inserted. Returns false if it was taken away before.
    pub fn release(&mut self, id: u64) -> bool {
        self.sent = None;
        self.remove(|batch| batch.id == id).is_some()
    }

    /// Removes the oldest batch that is not being sent.
    pub fn take_oldest(&mut self) -> Option<Arc<Batch>> {
        let sent = self.sent;
        self.remove(|batch| Some(batch.id) != sent)
    }

    /// Removes the newest batches of at most this number of flows, but none that is being sent, and without `all` not the
    /// first: it shows whether the server takes batches again. Returns the number of flows.
    pub fn take_newest(&mut self, most: u64, all: bool) -> u64 {
        let mut flows = 0;
        while let Some(last) = self.waiting.back()
            && (all || self.waiting.len() > 1)
            && Some(last.id) != self.sent
            && flows + last.records.flows.flows <= most
        {
            flows += last.records.flows.flows;
            self.bytes -= last.memory_bytes();
            self.waiting.pop_back();
        }
        flows
    }

    /// Removes all, also the one that is being sent.
    pub fn take_all(&mut self) -> impl Iterator<Item = Arc<Batch>> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting).into_iter()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The memory of all.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records of all.
    pub fn flows(&self) -> RecordTotals {
        let mut flows = RecordTotals::default();
        self.waiting.iter().for_each(|batch| flows.merge(batch.records.flows));
        flows
    }

    fn remove(&mut self, is_it: impl Fn(&Batch) -> bool) -> Option<Arc<Batch>> {
        let at = self.waiting.iter().position(|batch| is_it(batch))?;
        let batch = self.waiting.remove(at)?;
        self.bytes -= batch.memory_bytes();
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_that_is_being_sent_is_not_the_oldest_to_lose() {
        let mut batches = Batches::default();
        for id in 0..3 {
            let octets = Bytes::from(vec![0; 10]);
            batches.push(Batch { id, octets, records: PendingRecords::default(), altered: 0 });
        }
        assert_eq!(batches.next().unwrap().id, 0);
        assert_eq!(batches.take_oldest().unwrap().id, 1);
        batches.put_back();
        assert_eq!(batches.take_oldest().unwrap().id, 0);
        assert!(!batches.release(0) && batches.release(2) && batches.is_empty());
        assert_eq!(batches.bytes(), 0);
        assert!(batches.next().is_none());
    }
}
