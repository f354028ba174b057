//! Messages that wait on disk: how a connection uses its spool.
//!
//! ```text
//! messages in memory beyond the limit ─► batches in the spool ─► messages again, when the sink takes them
//! ```
//! A batch is up to 64 KiB of messages. Its records are exported when the system has accepted all of its messages:
//! then it is released. After a kill or a loss of power, a batch that was not released is retransmitted as a whole.
//!
//! IPFIX: the batches of a run have its templates as their context. Those of an earlier run with other templates
//! are sent between the withdrawal of all templates and the definition of others (RFC 7011 section 8.1).

use crate::pending_records::PendingRecords;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tracing::{info, warn};
use weir_ledger::{EarlierCounters, ExportLossReason, RecordTotals, SinkCounters};
use weir_spool::{BatchId, Error, SEGMENT_BYTES, Settings, Spool};

/// Limit of a spool without a setting, octets.
pub(crate) const DEFAULT_LIMIT: u64 = 10 << 30;
/// Octets of messages in a batch.
const BATCH_OCTETS: usize = 64 << 10;
/// The form of a batch: messages, each with its length, its records and its IPFIX data records.
const FORMAT: u16 = 1;
const NO_DATA_RECORDS: u32 = u32::MAX;
/// Offset of the export time in an IPFIX message.
pub(crate) const TIME_OFFSET: usize = 4;

/// Where records wait on disk for a collector.
#[derive(Clone, Debug)]
pub(crate) struct SpoolSettings {
    pub folder: PathBuf,
    /// Octets.
    pub limit: u64,
}

impl SpoolSettings {
    /// `sink`: the collector, whose records these are.
    pub fn of_sink(&self, sink: &str, owner: Option<(u32, u32)>) -> Settings {
        Settings {
            folder: self.folder.clone(),
            sink: sink.into(),
            limit: self.limit,
            segment_bytes: SEGMENT_BYTES,
            owner,
        }
    }
}

/// Templates of an earlier run, as messages.
pub(crate) type Context = Arc<[u8]>;

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
    pub end_of: Option<(BatchId, bool)>,
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

    pub fn memory_bytes(&self) -> usize {
        self.octets.len() + size_of::<Self>()
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

/// The spool of a connection.
pub(crate) struct Spooled {
    spool: Spool,
    sink: String,
    /// Templates of this run.
    pub context: Context,
    /// Newer than all that is in the spool.
    tail: Vec<Message>,
    tail_bytes: usize,
    /// The log says that records wait on disk.
    is_logged: bool,
    /// The log says that the spool is full, or cannot be used.
    is_full_logged: bool,
    is_failed_logged: bool,
    /// Flows from the spool that were delivered since it was empty.
    late_flows: u64,
}

impl Spooled {
    /// Opens a spool.
    pub fn open(sink: &str, settings: Settings) -> Result<Self, Error> {
        let folder = settings.folder.display().to_string();
        let (spool, recovered) = Spool::open(settings)?;
        let (flows, octets_cut) = (recovered.waiting.records.flows, recovered.octets_cut);
        if octets_cut > 0 {
            warn!(sink, folder, octets_cut, "the spool ends with a part of a batch, which is cut off");
        }
        if flows > 0 {
            info!(sink, folder, flows, "records of an earlier run wait in the spool");
        }
        Ok(Self {
            spool,
            sink: sink.into(),
            context: Arc::new([]),
            tail: Vec::new(),
            tail_bytes: 0,
            is_logged: flows > 0,
            is_full_logged: false,
            is_failed_logged: false,
            late_flows: 0,
        })
    }

    /// Whether new messages wait behind others that are not in memory.
    pub fn is_behind(&self) -> bool {
        self.spool.has_unread() || !self.tail.is_empty()
    }

    /// Octets on disk and in memory that are to be read.
    pub fn bytes(&self) -> usize {
        let on_disk = if self.spool.has_unread() { self.spool.status().octets } else { 0 };
        self.tail_bytes + usize::try_from(on_disk).unwrap_or(usize::MAX / 2)
    }

    /// Flows that wait.
    pub fn flows(&self) -> u64 {
        let in_tail: u64 = self.tail.iter().map(|message| message.pending.flows.flows).sum();
        self.spool.status().waiting.total().records.flows + in_tail
    }

    pub fn push(&mut self, message: Message) {
        self.tail_bytes += message.memory_bytes();
        self.tail.push(message);
    }

    /// The next messages: a batch, then what is newer.
    pub fn next(&mut self) -> Vec<Message> {
        match self.spool.next() {
            Ok(Some(batch)) => {
                let messages = messages_of(&batch.octets).filter(|messages| !messages.is_empty());
                let Some(mut messages) = messages.filter(|_| batch.format == FORMAT) else {
                    warn!(sink = self.sink, "a batch in the spool is of another version of Weir, and is lost");
                    self.spool.reject(batch.id);
                    return Vec::new();
                };
                let is_foreign = batch.is_earlier && *batch.context != *self.context && !batch.context.is_empty();
                for message in &mut messages {
                    message.context = is_foreign.then(|| batch.context.clone());
                }
                if let Some(last) = messages.last_mut() {
                    last.pending.flows = batch.records;
                    last.end_of = Some((batch.id, batch.is_earlier));
                }
                messages
            }
            Ok(None) => {
                self.tail_bytes = 0;
                std::mem::take(&mut self.tail)
            }
            Err(error) => {
                self.report(&error);
                Vec::new()
            }
        }
    }

    /// The system has accepted all messages of a batch.
    pub fn release(&mut self, id: BatchId, flows: u64) {
        self.late_flows += flows;
        if let Err(error) = self.spool.release(id) {
            self.report(&error);
        }
        if self.spool.is_empty() && self.tail.is_empty() && std::mem::take(&mut self.is_logged) {
            let late = std::mem::take(&mut self.late_flows);
            self.is_full_logged = false;
            info!(sink = self.sink, late, "the spool is empty again, its records are delivered");
        }
    }

    /// Writes messages to the spool, in front of them those that are older. Returns those that it did not take, the
    /// oldest first.
    pub fn spill(&mut self, mut messages: Vec<Message>) -> Vec<Message> {
        messages.append(&mut self.tail);
        self.tail_bytes = 0;
        if messages.is_empty() {
            return messages;
        }
        if !std::mem::replace(&mut self.is_logged, true) {
            info!(sink = self.sink, "records wait in the spool on disk from now on");
        }
        self.spool.set_context(&self.context.clone());
        let mut rest = messages.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut batch, mut records, mut taken) = (Vec::new(), RecordTotals::default(), Vec::new());
            while let Some(message) =
                rest.next_if(|message| batch.is_empty() || batch.len() + message.octets.len() <= BATCH_OCTETS)
            {
                append_frame(&mut batch, &message.octets, message.pending.wire_records, message.data_records);
                records.merge(message.pending.flows);
                taken.push(message);
            }
            if let Err(error) = self.spool.append(FORMAT, &batch, records) {
                self.report(&error);
                taken.extend(rest);
                return taken;
            }
            self.is_failed_logged = false;
        }
        if self.spool.status().dropped != Default::default() && !std::mem::replace(&mut self.is_full_logged, true) {
            warn!(sink = self.sink, "the spool is full, its oldest records are dropped");
        }
        Vec::new()
    }

    /// Whether there are messages that the spool has not taken yet.
    pub fn has_tail(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Gives up the newest messages that are only in memory, of at most this number of flows. Returns their flows.
    pub fn take_back(&mut self, most: u64) -> u64 {
        let mut flows = 0;
        while let Some(message) = self.tail.pop_if(|message| flows + message.pending.flows.flows <= most) {
            self.tail_bytes -= message.memory_bytes();
            flows += message.pending.flows.flows;
        }
        flows
    }

    /// Keeps messages that the spool did not take, as those that are newer than all in it.
    pub fn keep(&mut self, messages: Vec<Message>) {
        messages.into_iter().for_each(|message| self.push(message));
    }

    /// Loses the oldest messages that are only in memory until these take no more than `limit` bytes.
    pub fn lose_oldest(&mut self, limit: usize, counters: &mut SinkCounters) -> u64 {
        let mut flows = 0;
        let mut lost = 0;
        while self.tail_bytes > limit && lost < self.tail.len() {
            let message = &self.tail[lost];
            self.tail_bytes -= message.memory_bytes();
            flows += message.pending.flows.flows;
            message.pending.count_lost(ExportLossReason::BufferFull, counters);
            lost += 1;
        }
        self.tail.drain(..lost);
        flows
    }

    /// Loses all messages that are only in memory.
    pub fn lose_all(&mut self, reason: ExportLossReason, counters: &mut SinkCounters) {
        self.tail_bytes = 0;
        self.tail.drain(..).for_each(|message| message.pending.count_lost(reason, counters));
    }

    /// Brings batches to the disk when this is due, or `now`. Counts what waits, and what is lost.
    pub fn settle(&mut self, is_last: bool, counters: &mut SinkCounters) {
        let result = if is_last { self.spool.sync() } else { self.spool.sync_if_due(Instant::now()) };
        if let Err(error) = result {
            self.report(&error);
        }
        let status = self.spool.status();
        counters.spooled = status.waiting.own.records;
        let set = |of: &mut std::collections::BTreeMap<&'static str, RecordTotals>, dropped, damaged| {
            for (reason, records) in [(ExportLossReason::SpoolFull, dropped), (ExportLossReason::SpoolDamaged, damaged)]
            {
                if records != RecordTotals::default() {
                    of.insert(reason.key(), records);
                }
            }
        };
        set(&mut counters.lost, status.dropped.own.records, status.damaged.own.records);
        let mut earlier = EarlierCounters {
            found: status.appended.earlier.records,
            delivered: status.released.earlier.records,
            spooled: status.waiting.earlier.records,
            ..EarlierCounters::default()
        };
        set(&mut earlier.lost, status.dropped.earlier.records, status.damaged.earlier.records);
        counters.earlier = earlier;
    }

    fn report(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_failed_logged, true) {
            warn!(sink = self.sink, %error, "the spool cannot be used, records wait in memory as far as there is room");
        }
    }
}
