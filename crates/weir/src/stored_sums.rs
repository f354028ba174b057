//! Views of stores by their columns, if that is the only output: without records, on several threads.

use crate::arguments::Read;
use crate::console::progress::Progress;
use crate::outputs::{OpenOutputs, Outputs};
use crate::stored_reader::StoredReader;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::thread;
use tracing::debug;
use weir_ledger::RecordTotals;
use weir_query::{Expression, StoredTotals, StoredView, View};
use weir_store::{FlowReader, Summing};

/// More threads wait for the one that merges their sums.
const MAX_THREADS: usize = 8;

/// A view of all stored flows, and what the summary says beside it.
pub struct StoredSums {
    view: View,
    totals: StoredTotals,
}

/// Sums up stored flows without records; `None` if something needs records: the reader is at the beginning then.
pub fn sum_up(
    read: &Read,
    outputs: &Outputs,
    reader: &mut StoredReader,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Option<StoredSums> {
    let settings = outputs.view.as_ref()?;
    let [sink] = outputs.sinks.as_slice() else { return None };
    let needs_records = !outputs.shows_view(sink)
        || outputs.page.is_some()
        || sink.condition.is_some()
        || sink.share.is_some()
        || read.sinks.anonymise.is_some()
        || read.enrichment.columns().next().is_some()
        || !read.enrichment.tags.is_empty();
    if needs_records {
        return None;
    }
    let total_bytes = Some(reader.total_octets());
    let (reader, condition, starts_ns) = reader.only_parquet()?;
    // What is not selected by the reader is selected by the sink.
    if condition.is_none() && read.sinks.records.is_some() {
        return None;
    }
    View::new(settings.clone()).ok()?;
    let view = || View::new(settings.clone()).expect("these settings are checked");
    let (view, totals) = sum_up_columns(reader, condition, starts_ns, &view, stop, |view, done_bytes| {
        progress.update(weir_capture::Progress { done_bytes, total_bytes }, || packets(view));
    })?;
    Some(StoredSums { view, totals })
}

/// Sums up the selected flows of Parquet files by their columns, on the cores that this thread may use. `on_progress`
/// gets the sums so far, and the octets of the files that are read. `None` if that is not possible: the reader is at the
/// beginning then.
pub fn sum_up_columns(
    reader: &mut FlowReader,
    condition: Option<&Expression>,
    starts_ns: Option<RangeInclusive<u64>>,
    empty: &dyn Fn() -> View,
    stop: &AtomicBool,
    mut on_progress: impl FnMut(&View, u64),
) -> Option<(View, StoredTotals)> {
    let (mut view, part) = (empty(), empty());
    let settings = part.settings();
    let plan = StoredView::new(settings, condition, starts_ns, reader.columns(), |fields| reader.sources(fields))?;
    let mut totals = StoredTotals::default();
    let summing = Summing { threads: threads(), zeros: &plan.zeros(), stop };
    let is_done = reader.sum_up(
        &summing,
        || plan.sums(&part),
        |sums, done_bytes| {
            sums.merge_into(&mut view, &mut totals);
            on_progress(&view, done_bytes);
        },
    );
    is_done.then_some((view, totals))
}

/// Threads that read: one for each core that this thread may use.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS)
}

fn packets(view: &View) -> u64 {
    view.total().all_packets()
}

impl StoredSums {
    /// Gives the view to the sink, and the figures to the summary. Returns the flows that were summed up.
    pub fn pass_on(self, outputs: &Outputs, open: &OpenOutputs) -> RecordTotals {
        debug!("the view is summed up from columns, without records");
        let total = self.view.total();
        let flows = RecordTotals { flows: total.flows, packets: packets(&self.view), bytes: total.l2_bytes };
        open.summary.lock().unwrap_or_else(PoisonError::into_inner).add_sums(total, &self.totals);
        *outputs.summed.lock().unwrap_or_else(PoisonError::into_inner) = Some((self.view, flows));
        flows
    }
}
