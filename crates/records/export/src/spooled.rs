//! Records that wait on disk: how a sink uses its spool.
//!
//! ```text
//! items in memory beyond the limit ─► batches in the spool ─► items again, when the sink takes them
//! ```
//! An item is what the sink sends as a whole: a message, a batch of rows, the messages of a flow. The spool is used by
//! the thread of the sink only, so that no one else waits for the disk.

use crate::pending_records::PendingRecords;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};
use tracing::{info, warn};
use weir_ledger::{EarlierCounters, ExportLossReason, RecordTotals, SinkCounters};
use weir_spool::{Batch, BatchId, Error, Settings, Spool};

/// Where records wait on disk for a collector.
#[derive(Clone, Debug)]
pub(crate) struct SpoolSettings {
    pub folder: PathBuf,
    /// Octets.
    pub limit: u64,
}

/// What the batches of a run need, such as templates.
pub(crate) type Context = Arc<[u8]>;

/// Where a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfSpool {
    pub batch: BatchId,
    /// An earlier run has left it: the spool counts its records.
    pub is_earlier: bool,
}

/// What waits.
pub(crate) trait Item: Sized {
    /// The form of a batch.
    const FORMAT: u16;
    /// Octets of the items of a batch at most, if it has more than one.
    const BATCH_OCTETS: usize;

    fn memory_bytes(&self) -> usize;

    /// What it adds to a batch, octets.
    fn octets(&self) -> usize;

    fn pending(&self) -> PendingRecords;

    fn append_to(&self, batch: &mut Vec<u8>);

    /// The items of a batch; `None` if these are none. `own`: the context of this run.
    fn of_batch(batch: Batch, own: &Context) -> Option<Vec<Self>>;
}

/// The spool of a sink.
pub(crate) struct Spooled<T> {
    spool: Spool,
    sink: String,
    /// Of this run.
    pub context: Context,
    /// Newer than all that is in the spool.
    tail: Vec<T>,
    tail_bytes: usize,
    /// The log says that records wait on disk.
    is_logged: bool,
    /// All records go through it, so that the log does not say when they wait in it.
    pub is_for_all: bool,
    /// The log says that the spool is full, or cannot be used.
    is_full_logged: bool,
    is_failed_logged: bool,
    /// Flows from the spool that were delivered since it was empty.
    late_flows: u64,
    /// Flows of which the log says that they are lost by damage.
    damaged_flows: u64,
    /// The spool could not know what was delivered, and how much there was.
    positions_lost: bool,
    /// Records of earlier runs in released batches that the collector refused.
    earlier_lost: BTreeMap<&'static str, RecordTotals>,
}

impl<T: Item> Spooled<T> {
    /// Opens a spool.
    pub fn open(sink: &str, settings: Settings) -> Result<Self, Error> {
        let folder = settings.folder.display().to_string();
        let (spool, recovered) = Spool::open(settings)?;
        let (flows, octets_cut) = (recovered.waiting.records.flows, recovered.octets_cut);
        if octets_cut > 0 {
            warn!(sink, folder, octets_cut, "the spool ends with a part of a batch, which is cut off");
        }
        if recovered.positions_lost {
            let unknown_flows = spool.status().unknown.total().records.flows;
            warn!(
                sink,
                folder,
                unknown_flows,
                "the files acks and acks.copy of the spool are damaged or missing: records may come twice, those before \
                 the first segment may be lost, and the newest ones may be lost without being counted"
            );
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
            is_for_all: false,
            is_full_logged: false,
            is_failed_logged: false,
            late_flows: 0,
            damaged_flows: 0,
            positions_lost: recovered.positions_lost,
            earlier_lost: BTreeMap::new(),
        })
    }

    /// Whether new items wait behind others that are not in memory.
    pub fn is_behind(&self) -> bool {
        self.spool.has_unread() || !self.tail.is_empty()
    }

    /// Whether there are batches to read.
    pub fn has_unread(&self) -> bool {
        self.spool.has_unread()
    }

    /// A random number, the same in all runs.
    pub fn number(&self) -> u64 {
        self.spool.number()
    }

    /// An identifier between those of the batches of earlier runs and those of this run.
    pub fn border(&self) -> BatchId {
        self.spool.border()
    }

    /// Whether what waits is safe on disk: the last write succeeded.
    pub fn is_usable(&self) -> bool {
        !self.is_failed_logged
    }

    /// Octets on disk and in memory that are to be read.
    pub fn bytes(&self) -> usize {
        let on_disk = if self.spool.has_unread() { self.spool.status().octets } else { 0 };
        self.tail_bytes + usize::try_from(on_disk).unwrap_or(usize::MAX / 2)
    }

    /// Flows that wait.
    pub fn flows(&self) -> u64 {
        let in_tail: u64 = self.tail.iter().map(|item| item.pending().flows.flows).sum();
        self.spool.status().waiting.total().records.flows + in_tail
    }

    pub fn push(&mut self, item: T) {
        self.tail_bytes += item.memory_bytes();
        self.tail.push(item);
    }

    /// The next items: a batch, then what is newer.
    pub fn next(&mut self) -> Vec<T> {
        match self.spool.next() {
            Ok(Some(batch)) => {
                let (id, format) = (batch.id, batch.format);
                let items = if format == T::FORMAT { T::of_batch(batch, &self.context) } else { None };
                items.filter(|items| !items.is_empty()).unwrap_or_else(|| {
                    warn!(sink = self.sink, "a batch in the spool is of another version of Weir, and is lost");
                    self.spool.reject(id);
                    Vec::new()
                })
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

    /// The system has accepted all items of a batch.
    pub fn release(&mut self, id: BatchId, flows: u64) {
        self.late_flows += flows;
        if let Err(error) = self.spool.release(id) {
            self.report(&error);
        }
        self.log_if_empty();
    }

    /// Records of an earlier run were in a released batch, and the collector refused them.
    pub fn count_earlier_lost(&mut self, reason: ExportLossReason, records: RecordTotals) {
        self.earlier_lost.entry(reason.key()).or_default().merge(records);
    }

    /// What was read and not released is read again: the connection is lost.
    pub fn rewind(&mut self) {
        self.spool.rewind();
    }

    /// Logs that all records of the spool are delivered. The last of them may be released while newer ones wait behind
    /// it in memory only, which need no release.
    fn log_if_empty(&mut self) {
        if self.late_flows > 0 && self.is_logged && self.spool.is_empty() && self.tail.is_empty() {
            let late = std::mem::take(&mut self.late_flows);
            (self.is_logged, self.is_full_logged) = (false, false);
            info!(sink = self.sink, late, "the spool is empty again, its records are delivered");
        }
    }

    /// Writes items to the spool, in front of them those that are older. Returns those that it did not take, the
    /// oldest first.
    pub fn spill(&mut self, mut items: Vec<T>) -> Vec<T> {
        items.append(&mut self.tail);
        self.tail_bytes = 0;
        if items.is_empty() {
            return items;
        }
        if !self.is_for_all && !std::mem::replace(&mut self.is_logged, true) {
            info!(sink = self.sink, "records wait in the spool on disk from now on");
        }
        self.spool.set_context(&self.context.clone());
        let mut rest = items.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut batch, mut records, mut taken) = (Vec::new(), RecordTotals::default(), Vec::new());
            while let Some(item) =
                rest.next_if(|item| batch.is_empty() || batch.len() + item.octets() <= T::BATCH_OCTETS)
            {
                item.append_to(&mut batch);
                records.merge(item.pending().flows);
                taken.push(item);
            }
            if let Err(error) = self.spool.append(T::FORMAT, &batch, records) {
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

    /// Whether there are items that the spool has not taken yet.
    pub fn has_tail(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Gives up the newest items that are only in memory, of at most this number of flows. Returns their flows.
    pub fn take_back(&mut self, most: u64) -> u64 {
        let mut flows = 0;
        while let Some(item) = self.tail.pop_if(|item| flows + item.pending().flows.flows <= most) {
            self.tail_bytes -= item.memory_bytes();
            flows += item.pending().flows.flows;
        }
        flows
    }

    /// Keeps items that the spool did not take, as those that are newer than all in it.
    pub fn keep(&mut self, items: Vec<T>) {
        items.into_iter().for_each(|item| self.push(item));
    }

    /// Loses the oldest items that are only in memory until these take no more than `limit` bytes.
    pub fn lose_oldest(&mut self, limit: usize, counters: &mut SinkCounters) -> u64 {
        let mut flows = 0;
        let mut lost = 0;
        while self.tail_bytes > limit && lost < self.tail.len() {
            let item = &self.tail[lost];
            self.tail_bytes -= item.memory_bytes();
            flows += item.pending().flows.flows;
            item.pending().count_lost(ExportLossReason::BufferFull, counters);
            lost += 1;
        }
        self.tail.drain(..lost);
        flows
    }

    /// Loses all items that are only in memory.
    pub fn lose_all(&mut self, reason: ExportLossReason, counters: &mut SinkCounters) {
        self.tail_bytes = 0;
        self.tail.drain(..).for_each(|item| item.pending().count_lost(reason, counters));
    }

    /// The run ends: keeps what was in memory and what was read, but not released, for the next one. What the spool does
    /// not take is lost. Returns the number of flows that wait or are lost.
    pub fn end(&mut self, in_memory: Vec<T>, reason: ExportLossReason, counters: &mut SinkCounters) -> u64 {
        let left = self.spill(in_memory);
        self.keep(left);
        let flows = self.flows();
        self.lose_all(reason, counters);
        self.spool.rewind();
        self.settle(true, counters);
        flows
    }

    /// Brings batches to the disk when this is due, or `now`. Counts what waits, and what is lost.
    pub fn settle(&mut self, is_last: bool, counters: &mut SinkCounters) {
        let result = if is_last { self.spool.sync() } else { self.spool.sync_if_due(Instant::now()) };
        if let Err(error) = result {
            self.report(&error);
        }
        self.log_if_empty();
        let status = self.spool.status();
        let damaged = status.damaged.total().records.flows;
        if damaged > self.damaged_flows {
            let flows = damaged - std::mem::replace(&mut self.damaged_flows, damaged);
            warn!(sink = self.sink, flows, "a file of the spool is damaged or missing, records in it are lost");
        }
        counters.spooled = status.waiting.own.records;
        let set = |of: &mut BTreeMap<&'static str, RecordTotals>, dropped, damaged| {
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
            lost: self.earlier_lost.clone(),
        };
        for lost in self.earlier_lost.values() {
            earlier.delivered = earlier.delivered.saturating_sub(*lost);
        }
        set(&mut earlier.lost, status.dropped.earlier.records, status.damaged.earlier.records);
        if self.positions_lost {
            // Also if there are none: the newest records may be lost uncounted.
            earlier.lost.insert(ExportLossReason::SpoolUnknown.key(), status.unknown.earlier.records);
        }
        counters.spool_octets = status.octets;
        counters.spool_oldest = status.oldest.and_then(|time| time.duration_since(UNIX_EPOCH).ok()?.as_secs().into());
        counters.earlier = earlier;
    }

    fn report(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_failed_logged, true) {
            warn!(sink = self.sink, %error, "the spool cannot be used, records wait in memory as far as there is room");
        }
    }
}
