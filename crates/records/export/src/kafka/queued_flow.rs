//! A flow with its messages, as it waits in the spool.
//!
//! ```text
//! length of what follows    4    length and header `weir.batch`    1 + n
//! packets and octets of    16    length and header `weir.probe`    1 + n
//! the flow                       length and content of each
//! key                       8    message                           4 + n
//! ```

use crate::pending_records::PendingRecords;
use crate::spooled::{Context, Item, OfSpool};
use std::ops::Range;
use weir_ledger::RecordTotals;
use weir_spool::Batch;

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

const LENGTH_OCTETS: usize = 4;
const KEY_OCTETS: usize = 8;

/// The messages of a flow, in the form of the spool.
pub(crate) struct QueuedFlow {
    octets: Box<[u8]>,
    totals: RecordTotals,
    batch: Range<usize>,
    probe: Range<usize>,
    values: Vec<Range<usize>>,
    pub of_spool: Option<OfSpool>,
}

impl QueuedFlow {
    pub fn new(messages: &Messages<'_>, totals: RecordTotals) -> Self {
        let mut octets = vec![0; LENGTH_OCTETS];
        octets.extend(totals.packets.to_be_bytes());
        octets.extend(totals.bytes.to_be_bytes());
        octets.extend(messages.key);
        for header in [messages.batch, messages.probe] {
            octets.push(header.len() as u8);
            octets.extend(header);
        }
        for value in messages.values {
            octets.extend((value.len() as u32).to_be_bytes());
            octets.extend(&messages.octets[value.clone()]);
        }
        let length = (octets.len() - LENGTH_OCTETS) as u32;
        octets[..LENGTH_OCTETS].copy_from_slice(&length.to_be_bytes());
        Self::parse(octets.into()).expect("it was written here")
    }

    /// `None` if this is no such flow.
    fn parse(octets: Box<[u8]>) -> Option<Self> {
        let mut at = LENGTH_OCTETS;
        let mut take = |length: usize| {
            let range = at..at.checked_add(length).filter(|&end| end <= octets.len())?;
            at = range.end;
            Some(range)
        };
        let numbers = [take(8)?, take(8)?].map(|range| octets[range].try_into().map_or(0, u64::from_be_bytes));
        let totals = RecordTotals { flows: 1, packets: numbers[0], bytes: numbers[1] };
        take(KEY_OCTETS)?;
        let mut header = || {
            let length = octets[take(1)?][0];
            take(length.into())
        };
        let (batch, probe) = (header()?, header()?);
        let mut values = Vec::new();
        while let Some(length) = take(4) {
            values.push(take(u32::from_be_bytes(octets[length].try_into().ok()?) as usize)?);
        }
        let is_whole = at == octets.len() && !values.is_empty();
        is_whole.then_some(Self { octets, totals, batch, probe, values, of_spool: None })
    }

    pub fn messages(&self) -> Messages<'_> {
        let key = LENGTH_OCTETS + 16;
        Messages {
            key: &self.octets[key..key + KEY_OCTETS],
            batch: &self.octets[self.batch.clone()],
            probe: &self.octets[self.probe.clone()],
            octets: &self.octets,
            values: &self.values,
        }
    }
}

impl Item for QueuedFlow {
    const FORMAT: u16 = 3;
    const BATCH_OCTETS: usize = 64 << 10;

    fn memory_bytes(&self) -> usize {
        self.octets.len() + self.values.len() * size_of::<Range<usize>>() + size_of::<Self>()
    }

    fn octets(&self) -> usize {
        self.octets.len()
    }

    fn pending(&self) -> PendingRecords {
        PendingRecords { flows: self.totals, wire_records: self.values.len() as u64 }
    }

    fn append_to(&self, batch: &mut Vec<u8>) {
        batch.extend_from_slice(&self.octets);
    }

    fn of_batch(batch: Batch, _: &Context) -> Option<Vec<Self>> {
        let of_spool = Some(OfSpool { batch: batch.id, is_earlier: batch.is_earlier });
        let (mut rest, mut flows, mut totals) = (&batch.octets[..], Vec::new(), RecordTotals::default());
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest.get(..LENGTH_OCTETS)?.try_into().ok()?) as usize;
            let (octets, others) = rest.split_at_checked(LENGTH_OCTETS.checked_add(length)?)?;
            let flow = Self { of_spool, ..Self::parse(octets.into())? };
            totals.merge(flow.totals);
            flows.push(flow);
            rest = others;
        }
        // Another sum would not balance.
        (totals == batch.records).then_some(flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_spool::BatchId;

    const TOTALS: RecordTotals = RecordTotals { flows: 1, packets: 7, bytes: 900 };

    fn stored(octets: Vec<u8>, flows: u64) -> Batch {
        let records = RecordTotals { flows, packets: 7 * flows, bytes: 900 * flows };
        Batch { id: BatchId(5), records, format: 3, octets, context: [].into(), is_earlier: true }
    }

    #[test]
    fn flows_of_a_batch_are_those_that_were_written() {
        let of = |probe, values| Messages { key: &[9; 8], batch: b"0f-3", probe, octets: b"one two", values };
        let (both, others) = ([0..3, 3..7], [0..0, 1..2]);
        let written = [of(b"probe", &both), of(b"", &others)];
        let none = Context::from([]);
        let mut octets = Vec::new();
        written.iter().for_each(|messages| QueuedFlow::new(messages, TOTALS).append_to(&mut octets));
        let read = QueuedFlow::of_batch(stored(octets.clone(), 2), &none).unwrap();
        assert_eq!(read.len(), 2);
        for (flow, written) in read.iter().zip(&written) {
            let read = flow.messages();
            assert_eq!((read.key, read.batch, read.probe), (written.key, written.batch, written.probe));
            let values = |messages: &Messages<'_>| -> Vec<Vec<u8>> {
                messages.values.iter().map(|value| messages.octets[value.clone()].to_vec()).collect()
            };
            assert_eq!(values(&read), values(written));
            assert_eq!(flow.pending(), PendingRecords { flows: TOTALS, wire_records: written.values.len() as u64 });
            assert_eq!(flow.of_spool, Some(OfSpool { batch: BatchId(5), is_earlier: true }));
        }
        for cut in 1..octets.len() {
            assert!(QueuedFlow::of_batch(stored(octets[..cut].to_vec(), 2), &none).is_none(), "{cut}");
        }
        assert!(QueuedFlow::of_batch(stored(octets.clone(), 3), &none).is_none());
        // Octets of any value are a batch or none, without a panic.
        for at in 0..octets.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = octets.clone();
                changed[at] = value;
                let _ = QueuedFlow::of_batch(stored(changed, 2), &none);
            }
        }
    }
}
