//! When stored flows start, for `/about`, which the page asks every few seconds.

use parking_lot::Mutex;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use weir_control::{FindTimes, FlowSource, FlowTimes};
use weir_flow::FlowRecord;
use weir_store::StoredTimes;

/// The newest flows of a larger store, whose time is known: as many as the page begins to show within a second.
pub const NEWEST_FLOWS: u64 = 250_000;
/// When the newest flows start is found again after this multiple of the time that it took: where flows are few, it takes
/// many files.
const REST: u32 = 20;

/// When the newest flows of these files start, and until when that is kept.
struct Kept {
    paths: Vec<PathBuf>,
    newest_from_ns: Option<u64>,
    until: Instant,
}

/// What finds when flows start that start within these times, and when this number of the newest do; 0: that is not wanted.
pub fn finder(within: RangeInclusive<u64>, newest_flows: u64) -> Arc<FindTimes> {
    let kept: Mutex<Option<Kept>> = Mutex::new(None);
    Arc::new(move |source: &FlowSource| {
        let FlowSource::Files(paths) = source else { return times(source, &within, newest_flows) };
        let mut kept = kept.lock();
        let is_kept = |of: &&Kept| of.paths == *paths && Instant::now() < of.until;
        let known = kept.as_ref().filter(is_kept).map(|of| of.newest_from_ns);
        if let Some(newest_from_ns) = known.or((newest_flows == 0).then_some(None)) {
            let now = times(source, &within, 0)?;
            let newest_from_ns = newest_from_ns.filter(|from| from > now.starts_ns.start());
            return Some(FlowTimes { newest_from_ns, ..now });
        }
        let begin = Instant::now();
        let found = times(source, &within, newest_flows)?;
        let until = begin + begin.elapsed() * (1 + REST);
        *kept = Some(Kept { paths: paths.clone(), newest_from_ns: found.newest_from_ns, until });
        Some(found)
    })
}

/// When the flows start that start within these times. Those in memory are few: all of them are the newest.
pub fn times(source: &FlowSource, within: &RangeInclusive<u64>, newest_flows: u64) -> Option<FlowTimes> {
    match source {
        FlowSource::Files(paths) => {
            let StoredTimes { starts_ns, newest_from_ns } = weir_store::stored_times(paths, within, newest_flows)?;
            Some(FlowTimes { starts_ns, newest_from_ns })
        }
        FlowSource::Memory(recent) => {
            let recent = recent.now();
            let starts = || recent.iter().map(FlowRecord::start_ns).filter(|start| within.contains(start));
            Some(FlowTimes { starts_ns: starts().min()?..=starts().max()?, newest_from_ns: None })
        }
    }
}
