//! Annotates flow records with what is missing from them: packets lost, packets not sampled, TCP
//! analysis skipped and small flows aggregated while the flow was active.

use crate::load_shedder::{LevelSettings, OverloadPolicy};
use crate::loss_channel::LossHistories;
use crate::settings::Settings;
use weir_flow::{Approximate, FlowRecord};
use weir_ledger as ledger;

/// Annotates the records of one meter.
pub(crate) struct RecordAnnotator {
    /// Losses and levels of the readers of this meter.
    pub histories: LossHistories,
    /// The level that is never left.
    base_level: u8,
    sample_one_in: u32,
    /// Counts records that lack something.
    pub counters: ledger::OverloadCounters,
}

impl RecordAnnotator {
    pub fn new(settings: &Settings, histories: LossHistories) -> Self {
        let base_level = if let OverloadPolicy::Level(level) = settings.overload { level } else { 0 };
        let sample_one_in = settings.sample_one_in.max(1);
        Self { histories, base_level, sample_one_in, counters: ledger::OverloadCounters::default() }
    }

    /// The current level: the highest of all readers.
    pub fn level(&self) -> u8 {
        self.histories.level().max(self.base_level)
    }

    /// Settings of a level.
    pub fn settings_of(&self, level: u8) -> LevelSettings {
        LevelSettings::new(level, self.sample_one_in)
    }

    /// Annotates records that are about to be exported.
    pub fn annotate(&mut self, records: &mut [FlowRecord]) {
        let nothing_missing = self.base_level == 0 && self.sample_one_in == 1 && self.histories.are_empty();
        for record in records {
            self.counters.unanalysed_flows += u64::from(record.approximate.has(Approximate::UNANALYSED));
            if !nothing_missing {
                self.annotate_one(record);
            }
        }
    }

    fn annotate_one(&mut self, record: &mut FlowRecord) {
        let (start_ns, end_ns) = (record.start_ns(), record.end_ns());
        record.queue_lost = self.histories.lost_between(start_ns, end_ns);
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
        if levels[1] > 0 {
            let [_, level_at_start] = self.levels_between(start_ns, start_ns);
            let is_aggregated = !LevelSettings::new(level_at_start, 1).detail.small_flows;
            *flags |= if is_aggregated { Approximate::AGGREGATED } else { 0 };
        }
    }

    fn levels_between(&self, first_ns: u64, last_ns: u64) -> [u8; 2] {
        self.histories.levels_between(first_ns, last_ns).map(|level| level.max(self.base_level))
    }
}
