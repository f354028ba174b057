//! Collects the records of one meter, annotates them and exports them in batches. Annotations say
//! what is missing from a record: packets lost, packets not sampled, inspection and TCP analysis
//! skipped, and small flows aggregated while the flow was active.

use crate::account::totals;
use crate::exporter::export_handle::ExportHandle;
use crate::load_shedder::{LevelSettings, ShedOrder};
use crate::loss_channel::LossHistories;
use crate::loss_history::LossHistory;
use crate::settings::Settings;
use std::time::{Duration, Instant};
use weir_capture::ClockSteps;
use weir_flow::{Approximate, FlowRecord};
use weir_ledger::{OverloadCounters, RecordTotals};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Records that are exported at once, except after long waiting.
pub(crate) const BATCH: usize = 128;
/// Records in a batch at most.
pub(crate) const MAX_BATCH: usize = 2 * BATCH;
/// Records that wait for loss snapshots of their readers, at most about.
pub(crate) const MAX_WAITING: usize = 64 * BATCH;
/// While the pipeline is idle, records are exported after this time even if the batch is not full.
/// Together with the time until the meter detects the end of a flow, this is below a second.
const EXPORT_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) struct RecordOutput {
    /// The meter appends records here.
    pub records: Vec<FlowRecord>,
    /// The latest end of a flow among the first `examined` records, ns.
    end_ns: u64,
    examined: usize,
    exported: Instant,
    is_overdue: bool,
    pub handle: ExportHandle,
    /// Records that at least one sink accepted.
    pub sent: RecordTotals,
    /// Records that no sink accepted.
    pub lost: RecordTotals,
}

impl RecordOutput {
    pub fn new(handle: ExportHandle) -> Self {
        Self {
            records: Vec::with_capacity(MAX_BATCH),
            examined: 0,
            end_ns: 0,
            exported: Instant::now(),
            is_overdue: false,
            handle,
            sent: RecordTotals::default(),
            lost: RecordTotals::default(),
        }
    }

    /// Whether records should be exported: a batch is full, or they have waited too long.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.records.len() >= BATCH || self.is_overdue
    }

    /// Lets no record wait any longer.
    pub fn set_overdue(&mut self) {
        self.is_overdue = true;
    }

    /// Checks whether records have waited too long. For idle pipelines.
    pub fn check_overdue(&mut self, now: Instant) {
        self.is_overdue = now - self.exported >= EXPORT_INTERVAL;
    }

    /// The latest end of a flow of all records, ns.
    pub fn latest_end_ns(&mut self) -> u64 {
        let new = &self.records[self.examined..];
        self.end_ns = new.iter().map(FlowRecord::end_ns).fold(self.end_ns, u64::max);
        self.examined = self.records.len();
        self.end_ns
    }

    pub fn export(&mut self, annotator: &mut RecordAnnotator) {
        if !self.records.is_empty() {
            annotator.annotate(&mut self.records);
            let records = std::mem::take(&mut self.records);
            if records.len() <= MAX_BATCH {
                self.records = self.write(records);
            } else {
                let mut rest = records.into_iter();
                let mut batch = Vec::with_capacity(MAX_BATCH);
                while !rest.as_slice().is_empty() {
                    batch.extend(rest.by_ref().take(MAX_BATCH));
                    batch = self.write(batch);
                }
                self.records = batch;
            }
        }
        (self.examined, self.end_ns) = (0, 0);
        (self.exported, self.is_overdue) = (Instant::now(), false);
    }

    /// Exports a batch. Returns an empty one.
    fn write(&mut self, batch: Vec<FlowRecord>) -> Vec<FlowRecord> {
        let totals = totals(&batch);
        let (counters, empty) = match self.handle.write(batch) {
            Ok(empty) => (&mut self.sent, empty),
            Err(empty) => (&mut self.lost, empty),
        };
        counters.merge(totals);
        empty
    }
}

/// Exports the records of transactions of one meter.
pub(crate) struct TransactionOutput {
    /// The meter appends records here.
    pub records: Vec<FlowRecord>,
    exported: Instant,
    pub handle: ExportHandle,
    /// Records that at least one sink accepted.
    pub sent: u64,
    /// Records that no sink accepted.
    pub lost: u64,
}

impl TransactionOutput {
    pub fn new(handle: ExportHandle) -> Self {
        Self { records: Vec::with_capacity(MAX_BATCH), exported: Instant::now(), handle, sent: 0, lost: 0 }
    }

    /// Exports records if a batch is full.
    pub fn export_when_full(&mut self, annotator: &RecordAnnotator) {
        if self.records.len() >= BATCH {
            self.export(annotator);
        }
    }

    /// Exports records that have waited too long. For idle pipelines.
    pub fn export_when_overdue(&mut self, annotator: &RecordAnnotator, now: Instant) {
        if now - self.exported >= EXPORT_INTERVAL {
            self.export(annotator);
        }
    }

    pub fn export(&mut self, annotator: &RecordAnnotator) {
        self.exported = Instant::now();
        annotator.adjust_times(&mut self.records);
        let mut rest = std::mem::take(&mut self.records);
        while !rest.is_empty() {
            let next = rest.split_off(rest.len().min(MAX_BATCH));
            let records = rest.len() as u64;
            let (count, empty) = match self.handle.write(rest) {
                Ok(empty) => (&mut self.sent, empty),
                Err(empty) => (&mut self.lost, empty),
            };
            *count += records;
            self.records = empty;
            rest = next;
        }
        // Not the rest of a batch that was refused.
        self.records.clear();
    }

    /// Counts transactions that no sink gets because the end of the run is over.
    pub fn lose(&mut self, transactions: u64) {
        self.records.clear();
        self.handle.lose(RecordTotals { flows: transactions, ..RecordTotals::default() });
        self.sent += transactions;
    }
}

pub(crate) struct RecordAnnotator {
    /// Losses and levels of the readers of this meter.
    pub histories: LossHistories,
    /// The lowest level.
    base_level: u8,
    shed: ShedOrder,
    sampling_population: u32,
    /// Whether payload is inspected on the lowest level.
    inspects: bool,
    /// Counts records that lack something.
    pub counters: OverloadCounters,
}

impl RecordAnnotator {
    pub fn new(settings: &Settings, histories: LossHistories) -> Self {
        let (base_level, sampling_population) = (settings.overload.base_level(), settings.sampling_population.max(1));
        let inspects = settings.meter.inspection.is_some();
        let (shed, counters) = (settings.shed, OverloadCounters::default());
        Self { histories, base_level, shed, sampling_population, inspects, counters }
    }

    pub fn level(&self) -> u8 {
        self.histories.iter().map(|history| history.newest.level).max().unwrap_or_default().max(self.base_level)
    }

    pub fn settings_of(&self, level: u8) -> LevelSettings {
        LevelSettings::new(level, self.shed, self.sampling_population)
    }

    pub fn annotate(&mut self, records: &mut [FlowRecord]) {
        let clock = self.clock();
        let is_complete = self.base_level == 0 && self.sampling_population == 1;
        let nothing_missing = is_complete && self.histories.iter().all(LossHistory::is_empty);
        for record in records {
            self.counters.unanalysed_flows += u64::from(record.approximate.has(Approximate::UNANALYSED));
            self.counters.unfingerprinted_flows += u64::from(record.lacks_fingerprints());
            if !nothing_missing {
                self.annotate_one(record);
            }
            if clock != ClockSteps::default() {
                self.apply_clock_steps(record, clock.offset_ns);
            }
        }
    }

    /// Moves records of transactions to the time of the system's clock.
    pub fn adjust_times(&self, records: &mut [FlowRecord]) {
        let clock = self.clock();
        if clock != ClockSteps::default() {
            records.iter_mut().for_each(|record| self.apply_clock_steps(record, clock.offset_ns));
        }
    }

    /// The steps of the clock so far: the reader that looked last knows most of them.
    fn clock(&self) -> ClockSteps {
        let clocks = self.histories.iter().map(|history| history.newest.clock);
        clocks.max_by_key(|clock| clock.forward + clock.backward).unwrap_or_default()
    }

    fn annotate_one(&mut self, record: &mut FlowRecord) {
        let (start_ns, end_ns) = (record.start_ns(), record.end_ns());
        record.queue_lost = self.histories.iter().map(|history| history.lost_between(start_ns, end_ns)).sum();
        let levels = self.levels_between(start_ns, end_ns);
        let populations = levels.map(|level| self.settings_of(level).population);
        let flags = &mut record.approximate.0;
        if populations[1] > 1 {
            record.sampling = Some(populations);
            *flags |= Approximate::SAMPLED;
            // TCP analysis of a sampled connection would be wrong.
            if record.tcp.take().is_some() {
                *flags |= Approximate::UNANALYSED;
                self.counters.unanalysed_flows += 1;
            }
            self.counters.sampled_flows += 1;
        }
        if levels[1] > 0 || self.sampling_population > 1 {
            let [_, level_at_start] = self.levels_between(start_ns, start_ns);
            let detail = self.settings_of(level_at_start).detail;
            if !detail.small_flows {
                *flags |= Approximate::AGGREGATED;
            }
            let has_payload = matches!(record.protocol, TCP | UDP) && *flags & Approximate::OVERFLOW == 0;
            if self.inspects && !detail.inspection && record.findings.is_none() && has_payload {
                *flags |= Approximate::UNINSPECTED;
                self.counters.uninspected_flows += 1;
            }
        }
    }

    /// Moves a record to the time of the system's clock, and marks it if that was set during it.
    fn apply_clock_steps(&self, record: &mut FlowRecord, offset_ns: i64) {
        let (start_ns, end_ns) = (record.start_ns(), record.end_ns());
        if self.histories.iter().any(|history| history.clock_was_set(start_ns, end_ns)) {
            record.approximate.0 |= Approximate::CLOCK_SET;
        }
        for direction in [&mut record.forward, &mut record.reverse] {
            direction.first_ns = direction.first_ns.saturating_add_signed(offset_ns);
            direction.last_ns = direction.last_ns.saturating_add_signed(offset_ns);
        }
    }

    /// The lowest and the highest level of all readers between two times, both included.
    fn levels_between(&self, first_ns: u64, last_ns: u64) -> [u8; 2] {
        let levels = self.histories.iter().map(|history| history.levels_between(first_ns, last_ns));
        let levels = levels.reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])]).unwrap_or_default();
        levels.map(|level| level.max(self.base_level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporter::Exporter;
    use crate::settings::BackPressure;
    use crate::test_sink::sink;
    use crate::thread::CpuAffinity;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[test]
    fn any_number_of_records_is_exported_in_order_in_batches_of_limited_size() {
        let batches = Arc::new(Mutex::new(Vec::<Vec<u16>>::new()));
        let written = batches.clone();
        let memory = sink("memory", move |flows| {
            written.lock().push(flows.iter().map(|flow| flow.source_port).collect());
            true
        });
        let mut exporter =
            Exporter::new(vec![memory], CpuAffinity::default(), BackPressure::Block, &Settings::default()).unwrap();
        let mut output = RecordOutput::new(exporter.handle());
        let mut annotator = RecordAnnotator::new(&Settings::default(), LossHistories::same_thread());
        let (mut next, mut expected) = (0, Vec::new());
        for records in [0, 1, MAX_BATCH - 1, MAX_BATCH, MAX_BATCH + 1, 3 * MAX_BATCH, MAX_WAITING + BATCH] {
            let numbers = (0..records as u16).map(|number| next + number);
            output.records.extend(numbers.map(|source_port| FlowRecord { source_port, ..FlowRecord::default() }));
            let sizes = (0..records).step_by(MAX_BATCH).map(|start| MAX_BATCH.min(records - start));
            expected.extend(sizes);
            output.export(&mut annotator);
            assert_eq!((output.records.len(), output.latest_end_ns(), output.is_due()), (0, 0, false));
            next += records as u16;
        }
        assert_eq!((output.sent.flows, output.lost.flows), (next.into(), 0));
        drop(output);
        exporter.finish();
        let batches = batches.lock();
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), expected);
        assert!(batches.concat().into_iter().eq(0..next));
    }
}
