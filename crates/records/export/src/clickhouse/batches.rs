//! Encoded batches of rows that wait for the server, oldest first.
//!
//! A batch is encoded once. It is the same in each attempt, and so is its token: the server does not insert it twice.

use super::row_form::RowForm;
use crate::pending_records::PendingRecords;
use crate::spooled::{Context, Item, OfSpool};
use hyper::body::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_ledger::RecordTotals;

/// Rows as they are sent.
pub(crate) struct Batch {
    /// By it the server knows a batch that it got before, also in a later run.
    pub token: String,
    pub form: Arc<RowForm>,
    pub octets: Bytes,
    pub records: PendingRecords,
    /// Records with a value that does not fit its type.
    pub altered: u64,
    /// Where it is on disk.
    pub of_spool: Option<OfSpool>,
}

/// Octets in front of the token: records as the format counts them, altered ones, the length of the token.
const FRAME_OCTETS: usize = 8 + 8 + 2;

impl Item for Arc<Batch> {
    const FORMAT: u16 = 2;
    /// A batch of rows is one of the spool.
    const BATCH_OCTETS: usize = 0;

    fn memory_bytes(&self) -> usize {
        self.octets.len() + self.token.len() + size_of::<Batch>()
    }

    fn octets(&self) -> usize {
        self.octets.len()
    }

    fn pending(&self) -> PendingRecords {
        self.records
    }

    fn append_to(&self, batch: &mut Vec<u8>) {
        batch.reserve(FRAME_OCTETS + self.token.len() + self.octets.len());
        batch.extend(self.records.wire_records.to_be_bytes());
        batch.extend(self.altered.to_be_bytes());
        // A host name, two numbers, and the name of the table, all of them short.
        batch.extend((self.token.len() as u16).to_be_bytes());
        batch.extend(self.token.as_bytes());
        batch.extend_from_slice(&self.octets);
    }

    fn of_batch(batch: weir_spool::Batch, _: &Context) -> Option<Vec<Self>> {
        let form = Arc::new(RowForm::of_context(&batch.context)?);
        let of_spool = Some(OfSpool { batch: batch.id, is_earlier: batch.is_earlier });
        let mut octets = Bytes::from(batch.octets);
        let frame = octets.split_to_checked(FRAME_OCTETS)?;
        let wire_records = u64::from_be_bytes(frame[..8].try_into().ok()?);
        let altered = u64::from_be_bytes(frame[8..16].try_into().ok()?);
        let length = u16::from_be_bytes(frame[16..].try_into().ok()?);
        let token = octets.split_to_checked(length.into())?;
        let token = std::str::from_utf8(&token).ok().filter(|token| !token.is_empty())?.to_owned();
        let records = PendingRecords { flows: batch.records, wire_records };
        Some(vec![Arc::new(Batch { token, form, octets, records, altered, of_spool })])
    }
}

/// [`Bytes::split_to`] without a panic.
trait SplitChecked: Sized {
    fn split_to_checked(&mut self, at: usize) -> Option<Self>;
}

impl SplitChecked for Bytes {
    fn split_to_checked(&mut self, at: usize) -> Option<Self> {
        (at <= self.len()).then(|| self.split_to(at))
    }
}

/// The batches in memory that are neither inserted nor lost. A sender takes the oldest, which stays until it is released.
#[derive(Default)]
pub(crate) struct Batches {
    waiting: VecDeque<Arc<Batch>>,
    /// The sender has the first one.
    is_first_sent: bool,
    bytes: usize,
}

impl Batches {
    pub fn push(&mut self, batch: Arc<Batch>) {
        self.bytes += batch.memory_bytes();
        self.waiting.push_back(batch);
    }

    /// The oldest batch, the same again until it is released.
    pub fn next(&mut self) -> Option<Arc<Batch>> {
        let first = self.waiting.front()?;
        self.is_first_sent = true;
        Some(first.clone())
    }

    /// Ends an attempt to insert the batch, which waits on.
    pub fn put_back(&mut self) {
        self.is_first_sent = false;
    }

    /// Removes the batch that the sender has, because it is inserted. Returns false if it was taken away before.
    pub fn release(&mut self, batch: &Arc<Batch>) -> bool {
        self.is_first_sent = false;
        let is_first = self.waiting.front().is_some_and(|first| Arc::ptr_eq(first, batch));
        is_first && self.remove(0).is_some()
    }

    /// Removes the oldest batch that is not being sent.
    pub fn take_oldest(&mut self) -> Option<Arc<Batch>> {
        self.remove(self.is_first_sent.into())
    }

    /// Removes the batches that are in memory only and not being sent, the oldest first.
    pub fn take_unsaved(&mut self) -> Vec<Arc<Batch>> {
        let mut taken = Vec::new();
        let mut at = self.is_first_sent.into();
        while let Some(batch) = self.waiting.get(at) {
            if batch.of_spool.is_some() {
                at += 1;
            } else {
                taken.extend(self.remove(at));
            }
        }
        taken
    }

    /// Removes the newest batches of at most this number of flows, but none that is being sent, and without `all` not the
    /// first: it shows whether the server takes batches again. Returns the number of flows.
    pub fn take_newest(&mut self, most: u64, all: bool) -> u64 {
        let mut flows = 0;
        while let Some(last) = self.waiting.back()
            && (all || self.waiting.len() > 1)
            && !(self.is_first_sent && self.waiting.len() == 1)
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
        (self.bytes, self.is_first_sent) = (0, false);
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

    fn remove(&mut self, at: usize) -> Option<Arc<Batch>> {
        let batch = self.waiting.remove(at)?;
        self.bytes -= batch.memory_bytes();
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_spool::BatchId;

    fn batch(token: &str, of_spool: Option<OfSpool>) -> Arc<Batch> {
        let form = Arc::new(RowForm { columns: Vec::new(), is_compressed: false });
        let records = PendingRecords { flows: RecordTotals { flows: 3, packets: 2, bytes: 1 }, wire_records: 6 };
        let octets = Bytes::from(vec![7; 10]);
        Arc::new(Batch { token: token.into(), form, octets, records, altered: 1, of_spool })
    }

    #[test]
    fn the_batch_that_is_being_sent_is_not_the_oldest_to_lose() {
        let mut batches = Batches::default();
        let all = ["0", "1", "2"].map(|token| batch(token, None));
        all.iter().for_each(|batch| batches.push(batch.clone()));
        assert_eq!(batches.next().unwrap().token, "0");
        assert_eq!(batches.take_oldest().unwrap().token, "1");
        batches.put_back();
        assert_eq!(batches.take_oldest().unwrap().token, "0");
        assert!(!batches.release(&all[0]) && batches.release(&all[2]) && batches.is_empty());
        assert_eq!(batches.bytes(), 0);
        assert!(batches.next().is_none());
    }

    #[test]
    fn batches_of_the_spool_and_the_one_that_is_being_sent_do_not_go_there() {
        let mut batches = Batches::default();
        let saved = Some(OfSpool { batch: BatchId(1), is_earlier: false });
        [("0", None), ("1", None), ("2", saved), ("3", None)]
            .into_iter()
            .for_each(|(token, of_spool)| batches.push(batch(token, of_spool)));
        batches.next();
        let tokens = |batches: &[Arc<Batch>]| batches.iter().map(|batch| batch.token.clone()).collect::<Vec<_>>();
        assert_eq!(tokens(&batches.take_unsaved()), ["1", "3"]);
        assert_eq!(tokens(&batches.take_all().collect::<Vec<_>>()), ["0", "2"]);
    }

    #[test]
    fn a_batch_of_the_spool_is_what_was_written() {
        let form = RowForm::new(&weir_fields::select_columns("start_time,src_ip,approximate").unwrap(), false, true);
        let written = batch("weir/host/1-2-0/a.b/7", None);
        let mut octets = Vec::new();
        written.append_to(&mut octets);
        let stored = |octets: &[u8], context: &[u8]| weir_spool::Batch {
            id: BatchId(5),
            records: written.records.flows,
            format: 2,
            octets: octets.into(),
            context: context.into(),
            is_earlier: true,
        };
        let none = Context::from([]);
        let read = <Arc<Batch> as Item>::of_batch(stored(&octets, &form.to_context()), &none).unwrap();
        let Batch { token, octets: rows, records, altered, of_spool, form: read_form } = &*read[0];
        assert_eq!((token, rows, *records, *altered), (&written.token, &written.octets, written.records, 1));
        assert_eq!((&**read_form, *of_spool), (&form, Some(OfSpool { batch: BatchId(5), is_earlier: true })));
        for cut in 0..FRAME_OCTETS + written.token.len() {
            assert!(<Arc<Batch> as Item>::of_batch(stored(&octets[..cut], &form.to_context()), &none).is_none());
        }
        for context in [&b""[..], b"lz4\na\tUInt8", b"zstd\na", b"zstd\n\xff\tUInt8"] {
            assert!(<Arc<Batch> as Item>::of_batch(stored(&octets, context), &none).is_none(), "{context:?}");
        }
    }
}
