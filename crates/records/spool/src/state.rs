//! What a spool knows while it is open.

use crate::acks::Acks;
use crate::count::{Count, Split};
use crate::folder::Folder;
use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use weir_ledger::RecordTotals;

/// Bits of an identifier that count the batches of a run; the others count the runs.
pub(crate) const BATCH_BITS: u32 = 40;

/// Where a spool is, whose it is, and how large it may be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder. It is created if its parent exists.
    pub folder: PathBuf,
    /// The sink that the records wait for. A spool of another sink is refused.
    pub sink: String,
    /// Octets on the disk, at most.
    pub limit: u64,
    /// Octets of a segment, at most.
    pub segment_bytes: u64,
    /// User and group of new files.
    pub owner: Option<(u32, u32)>,
}

/// Identifies a batch in its spool for ever. Later batches have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// A batch that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its identifier, for [`Spool::release`].
    pub id: BatchId,
    /// Its records.
    pub records: RecordTotals,
    /// The form of the octets, as it was given to [`Spool::append`].
    pub format: u16,
    /// The octets.
    pub octets: Vec<u8>,
    /// What the batches of its run need.
    pub context: Arc<[u8]>,
    /// Whether an earlier run appended it.
    pub is_earlier: bool,
}

/// What became of all batches since the spool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Appended; of earlier runs: found.
    pub appended: Split,
    /// Released.
    pub released: Split,
    /// Dropped because the spool was full.
    pub dropped: Split,
    /// Lost because an entry or a segment is damaged or missing.
    pub damaged: Split,
    /// Delivered or lost: what says which is damaged or missing too.
    pub unknown: Split,
    /// Not released, whether read or not.
    pub waiting: Split,
    /// Octets of the segments on disk.
    pub octets: u64,
    /// When the oldest segment with batches that wait was begun; `None` if nothing waits.
    pub oldest: Option<SystemTime>,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub number: u32,
    /// Octets of entries. A part of an entry that was not written is behind them.
    pub octets: u64,
    /// All batches before its first whole entry.
    pub start: Count,
    pub begun: SystemTime,
}

#[derive(Debug)]
pub(crate) struct Active {
    pub file: File,
    pub unsynced: u64,
}

/// An open spool. It has the lock of its folder.
#[derive(Debug)]
pub struct Spool {
    pub(crate) folder: Folder,
    pub(crate) _lock: File,
    pub(crate) limit: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) acks: Acks,
    pub(crate) runs: u32,
    pub(crate) number: u64,
    /// Batches of this run so far.
    pub(crate) own_batches: u64,
    pub(crate) segments: VecDeque<Segment>,
    /// The last segment, if batches are appended to it.
    pub(crate) active: Option<Active>,
    /// The next segment has this number.
    pub(crate) next_number: u32,
    pub(crate) octets: u64,
    /// What later batches need.
    pub(crate) context: Arc<[u8]>,
    /// All batches of earlier runs.
    pub(crate) border: Count,
    /// All batches that were ever appended.
    pub(crate) appended: Count,
    /// All batches up to here are read or lost.
    pub(crate) read: Count,
    /// Waiting at start.
    pub(crate) found: Count,
    pub(crate) place: Place,
    pub(crate) open: Open,
    /// Read, and not released.
    pub(crate) in_flight: VecDeque<InFlight>,
    /// To be read again, before all others.
    pub(crate) rewound: VecDeque<InFlight>,
    /// The last batch that is gone.
    pub(crate) last_gone: u64,
    pub(crate) released: Split,
    pub(crate) dropped: Split,
    pub(crate) damaged: Split,
    pub(crate) unknown: Split,
    pub(crate) synced_at: Option<Instant>,
}

/// Where the next entry is looked for.
#[derive(Debug, Default)]
pub struct Place {
    pub segment: u32,
    pub offset: u64,
}

/// The open segment, and what its batches need.
#[derive(Debug, Default)]
pub struct Open {
    pub file: Option<(u32, File)>,
    pub context: Option<(u64, Arc<[u8]>)>,
}

/// A batch that was read and not released.
#[derive(Debug)]
pub struct InFlight {
    pub id: u64,
    pub before: Count,
    pub count: Count,
    pub place: Place,
    pub context: Arc<[u8]>,
}

impl InFlight {
    /// Its count, of this run or of earlier ones.
    pub fn split(&self, border: Count) -> Split {
        if self.before.batches < border.batches {
            Split { earlier: self.count, own: Count::default() }
        } else {
            Split { earlier: Count::default(), own: self.count }
        }
    }
}
