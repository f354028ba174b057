//! The last flow records that have ended, in memory: what `/stored` answers from if the probe has no store.
//!
//! In: records as sinks get them, on the threads of the sinks. Out: those that a question may read while others come.
//! Invariant: never more than the limit and a block, and no memory before there are records.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_flow::FlowRecord;

/// Records that are allocated together.
const BLOCK: usize = 128;

/// The last records, the oldest first.
pub struct RecentFlows {
    limit: usize,
    is_wanted: AtomicBool,
    blocks: Mutex<VecDeque<Arc<Vec<FlowRecord>>>>,
}

/// The records at a time.
pub struct FlowsThen {
    blocks: Vec<Arc<Vec<FlowRecord>>>,
    /// Of the first block, those that are beyond the limit.
    beyond: usize,
}

impl RecentFlows {
    /// Up to this number of records, at least one.
    pub fn new(limit: usize) -> Self {
        Self { limit, is_wanted: AtomicBool::new(true), blocks: Mutex::default() }
    }

    /// From now on keeps records, or forgets them all.
    pub fn keep(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
        if !is_wanted {
            self.blocks.lock().clear();
        }
    }

    /// Whether records are kept.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Adds records.
    pub fn add(&self, mut records: &[FlowRecord]) {
        let mut blocks = self.blocks.lock();
        while !records.is_empty() {
            // A block that a question reads is not changed.
            let room = blocks.back_mut().and_then(Arc::get_mut).filter(|block| block.len() < BLOCK);
            let Some(block) = room else {
                blocks.push_back(Arc::new(Vec::with_capacity(BLOCK)));
                continue;
            };
            let (now, later) = records.split_at(records.len().min(BLOCK - block.len()));
            block.extend_from_slice(now);
            records = later;
        }
        let mut kept = total(blocks.iter());
        while let Some(first) = blocks.front().map(|block| block.len()).filter(|first| kept - first >= self.limit) {
            kept -= first;
            blocks.pop_front();
        }
    }

    /// The records now.
    pub fn now(&self) -> FlowsThen {
        let blocks: Vec<_> = self.blocks.lock().iter().cloned().collect();
        let beyond = total(blocks.iter()).saturating_sub(self.limit);
        FlowsThen { blocks, beyond }
    }
}

fn total<'a>(blocks: impl Iterator<Item = &'a Arc<Vec<FlowRecord>>>) -> usize {
    blocks.map(|block| block.len()).sum()
}

impl FlowsThen {
    /// They, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &FlowRecord> {
        self.blocks.iter().flat_map(|block| block.iter()).skip(self.beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(flows: &FlowsThen) -> Vec<u16> {
        flows.iter().map(|flow| flow.source_port).collect()
    }

    fn flows(ports: std::ops::Range<u16>) -> Vec<FlowRecord> {
        let flow = |source_port| FlowRecord { source_port, ..FlowRecord::default() };
        ports.map(flow).collect()
    }

    #[test]
    fn the_last_records_are_kept_whatever_their_batches_are() {
        for (limit, batch) in [(1, 1), (100, 7), (300, 128), (300, 1000), (129, 129)] {
            let recent = RecentFlows::new(limit);
            assert!(ports(&recent.now()).is_empty());
            flows(0..2000).chunks(batch).for_each(|flows| recent.add(flows));
            assert_eq!(ports(&recent.now()), (2000 - limit as u16..2000).collect::<Vec<_>>(), "{limit} {batch}");
        }
    }

    #[test]
    fn records_that_a_question_reads_stay_as_they_are() {
        let recent = RecentFlows::new(50);
        recent.add(&flows(0..40));
        let then = recent.now();
        recent.add(&flows(40..200));
        assert_eq!(ports(&then), (0..40).collect::<Vec<_>>());
        assert_eq!(ports(&recent.now()), (150..200).collect::<Vec<_>>());
        recent.keep(false);
        assert!(recent.now().iter().next().is_none() && !recent.is_wanted());
    }
}
