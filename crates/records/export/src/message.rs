//! Messages of a connection, and how they wait in its spool.
//!
//! A batch is up to 64 KiB of messages. Its records are exported when the system has accepted all of its messages:
//! then it is released. After a kill or a loss of power, a batch that was not released is retransmitted as a whole.
//!
//! IPFIX: the batches of a run have its templates as their context. Those of an earlier run with other templates
//! are sent between the withdrawal of all templates and the definition of others (RFC 7011 section 8.1).

use crate::pending_records::PendingRecords;
use crate::spooled::{Context, Item, OfSpool};
use weir_ledger::RecordTotals;
use weir_spool::Batch;

const NO_DATA_RECORDS: u32 = u32::MAX;
/// Offset of the export time in an IPFIX message.
pub(crate) const TIME_OFFSET: usize = 4;

/// A message that waits.
pub(crate) struct Message {
    pub octets: Box<[u8]>,
    pub pending: PendingRecords,
    /// IPFIX data records, by which the next message is numbered; `None` in other formats.
    pub data_records: Option<u32>,
    /// Whether it has templates and options only, which each connection gets anew.
    pub is_of_session: bool,
    /// The templates that it needs, if they are those of an earlier run.
    pub context: Option<Context>,
    /// Whether it replaces the templates before.
    pub is_change: bool,
    /// Whether it comes from the spool.
    pub is_spooled: bool,
    /// It is the last message of a batch: of an earlier run or of this one.
    pub end_of: Option<OfSpool>,
}

impl Message {
    pub fn new(octets: &[u8], pending: PendingRecords, data_records: Option<u32>) -> Self {
        let is_of_session = pending.wire_records == 0;
        let octets = octets.into();
        Self {
            octets,
            pending,
            data_records,
            is_of_session,
            context: None,
            is_change: false,
            is_spooled: false,
            end_of: None,
        }
    }
}

impl Item for Message {
    /// Messages, each with its length, its records and its IPFIX data records.
    const FORMAT: u16 = 1;
    const BATCH_OCTETS: usize = 64 << 10;

    fn memory_bytes(&self) -> usize {
        self.octets.len() + size_of::<Self>()
    }

    fn octets(&self) -> usize {
        self.octets.len()
    }

    fn pending(&self) -> PendingRecords {
        self.pending
    }

    fn append_to(&self, batch: &mut Vec<u8>) {
        append_frame(batch, &self.octets, self.pending.wire_records, self.data_records);
    }

    fn of_batch(batch: Batch, own: &Context) -> Option<Vec<Self>> {
        let mut messages = messages_of(&batch.octets)?;
        let is_foreign = batch.is_earlier && *batch.context != **own && !batch.context.is_empty();
        for message in &mut messages {
            message.context = is_foreign.then(|| batch.context.clone());
        }
        let last = messages.last_mut()?;
        last.pending.flows = batch.records;
        last.end_of = Some(OfSpool { batch: batch.id, is_earlier: batch.is_earlier });
        Some(messages)
    }
}

/// Messages with the templates of a run, for [`Spool::set_context`]. They are sent with other times and numbers.
pub(crate) fn append_to_context(context: &mut Vec<u8>, message: &[u8], data_records: u32) {
    let start = context.len();
    append_frame(context, message, 0, Some(data_records));
    context[start + FRAME_OCTETS + TIME_OFFSET..][..8].fill(0);
}

/// Octets in front of a message in a batch: its length, its records, its data records.
const FRAME_OCTETS: usize = 4 + 8 + 4;

fn append_frame(batch: &mut Vec<u8>, message: &[u8], wire_records: u64, data_records: Option<u32>) {
    batch.extend((message.len() as u32).to_be_bytes());
    batch.extend(wire_records.to_be_bytes());
    batch.extend(data_records.unwrap_or(NO_DATA_RECORDS).to_be_bytes());
    batch.extend(message);
}

/// The messages of a batch; `None` if these are no messages.
fn messages_of(mut batch: &[u8]) -> Option<Vec<Message>> {
    let mut messages = Vec::new();
    while !batch.is_empty() {
        let (frame, rest) = batch.split_at_checked(FRAME_OCTETS)?;
        let octets = u32::from_be_bytes(frame[..4].try_into().ok()?) as usize;
        let wire_records = u64::from_be_bytes(frame[4..12].try_into().ok()?);
        let data_records = u32::from_be_bytes(frame[12..].try_into().ok()?);
        let (message, rest) = rest.split_at_checked(octets)?;
        let data_records = (data_records != NO_DATA_RECORDS).then_some(data_records);
        // IPFIX messages are numbered in place.
        if data_records.is_some() && octets < 16 {
            return None;
        }
        let pending = PendingRecords { flows: RecordTotals::default(), wire_records };
        messages.push(Message {
            is_spooled: true,
            is_of_session: false,
            ..Message::new(message, pending, data_records)
        });
        batch = rest;
    }
    Some(messages)
}

/// The messages that begin another set of templates: all others are withdrawn first.
pub(crate) fn change_of_templates(context: &[u8]) -> Vec<Message> {
    let mut messages = messages_of(context).unwrap_or_default();
    let Some(domain) = messages.first().map(|message| message.octets[12..16].to_vec()) else { return messages };
    // Version, length, time, sequence, domain; sets 2 and 3, 8 octets each: the set's own number and no fields.
    for set in [3u8, 2] {
        let mut octets = vec![0, 10, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0];
        octets.extend(&domain);
        octets.extend([0, set, 0, 8, 0, set, 0, 0]);
        messages.insert(0, Message::new(&octets, PendingRecords::default(), Some(0)));
    }
    for message in &mut messages {
        (message.is_of_session, message.is_change, message.is_spooled) = (true, true, false);
    }
    messages
}
