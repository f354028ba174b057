//! How a store is written.

use crate::retention::Keep;
use crate::schema::RowForm;
use std::time::Duration;
use weir_fields::Column;
use weir_ledger::Timing;

/// How a store is written.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The columns of new files.
    pub columns: Vec<&'static Column>,
    /// What a row is.
    pub rows: RowForm,
    /// A file ends this long after its first record, at the latest.
    pub interval: Duration,
    /// What stays.
    pub keep: Keep,
    /// Hours that are over are made one sorted file.
    pub compacts: bool,
    /// When that is done.
    pub upkeep: UpkeepTimes,
    /// A file that cannot be written is tried again, after this time; the log repeats it after the second one. With
    /// `None`, the store has ended.
    pub retry: Option<[Duration; 2]>,
}

/// Times of a store's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpkeepTimes {
    /// Without a new file, the thread looks at the store this often.
    pub check: Duration,
    /// An hour is over when it has had no new file for this long: flows that began in it end later.
    pub settled: Duration,
    /// From a failed attempt to sort an hour to the next one.
    pub retry: Duration,
}

impl From<&Timing> for UpkeepTimes {
    fn from(timing: &Timing) -> Self {
        Self { check: timing.store_check, settled: timing.store_settled, retry: timing.store_retry }
    }
}
