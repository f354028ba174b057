//! How a store is written.

use crate::retention::Keep;
use std::time::Duration;
use weir_fields::Column;

/// How a store is written.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The columns of new files.
    pub columns: Vec<&'static Column>,
    /// A file ends this long after its first record, at the latest.
    pub interval: Duration,
    /// What stays.
    pub keep: Keep,
    /// Hours that are over are made one sorted file.
    pub compacts: bool,
    /// A file that cannot be written is tried again, after this time; the log repeats it after the second one. With
    /// `None`, the store has ended.
    pub retry: Option<[Duration; 2]>,
}
