//! The second half of a pipeline: packets in, records out to the exporter, in batches.

use crate::account::Account;
use crate::exporter::{ExportHandle, records};
use crate::history::Look;
use crate::ladder::{LevelSettings, Overload};
use crate::looks::Histories;
use crate::settings::Settings;
use std::io;
use std::time::{Duration, Instant};
use weir_flow::{Approximate, BucketSet, FlowRecord, Meter, MigratedFlow};
use weir_ledger::{self as ledger, Ledger, RecordTotals};
use weir_packet::Packet;

/// Records handed to the sinks at a time.
const BATCH: usize = 128;
/// Records that wait for readers to tell what they lost, about.
const HELD: usize = 64 * BATCH;
/// While less comes than could, records leave this often, whole batch or not: with the time until an end is noticed less than a second.
const PATIENCE: Duration = Duration::from_millis(250);
/// While less comes than could, time goes on without packets this often.
const TICK: Duration = weir_capture::POLL_TIMEOUT;

/// Meters packets.
pub(crate) struct Metering {
    meter: Meter,
    flows: Vec<FlowRecord>,
    /// Of so many of them the latest end is known, ns.
    looked_at: usize,
    end_ns: u64,
    /// When records were handed to the sinks last.
    exported: Instant,
    /// When time went on without packets last.
    waited: Instant,
    /// Records have waited long enough.
    overdue: bool,
    handle: ExportHandle,
    /// What its readers lost and gave up, and when.
    histories: Histories,
    /// The level that it stands on if no reader says otherwise, and the one that it stands on now.
    ground: u8,
    level: u8,
    /// One packet in so many is metered on any level.
    sample: u32,
    /// Records that lack something.
    overload: ledger::Overload,
    sent: RecordTotals,
    lost: RecordTotals,
}

impl Metering {
    /// Takes the meter's memory.
    ///
    /// # Errors
    /// The system has not that much.
    pub fn new(settings: &Settings, handle: ExportHandle, histories: Histories) -> io::Result<Self> {
        let ground = if let Overload::Level(level) = settings.overload { level } else { 0 };
        let mut meter = Meter::try_new(settings.meter)?;
        meter.set_detail(LevelSettings::of(ground, settings.sample_one_in.max(1)).detail);
        Ok(Self {
            meter,
            flows: Vec::with_capacity(2 * BATCH),
            looked_at: 0,
            end_ns: 0,
            exported: Instant::now(),
            waited: Instant::now(),
            overdue: false,
            handle,
            histories,
            ground,
            level: ground,
            sample: settings.sample_one_in.max(1),
            overload: ledger::Overload::default(),
            sent: RecordTotals::default(),
            lost: RecordTotals::default(),
        })
    }

    /// Takes over what can change while it runs: timeouts, also of flows that there are.
    pub fn change(&mut self, settings: &Settings) {
        self.meter.set_timeouts(settings.meter.idle_timeout_ns, settings.meter.active_timeout_ns);
    }

    /// Takes note of a look of the reader on the same thread.
    pub fn note(&mut self, look: Look) {
        self.histories.note(look);
        self.follow();
    }

    /// Takes note of what readers on other threads told.
    pub fn hear(&mut self) {
        self.histories.hear();
        self.follow();
    }

    /// Follows its readers to the highest level that one of them stands on.
    fn follow(&mut self) {
        let level = self.histories.level().max(self.ground);
        if level != std::mem::replace(&mut self.level, level) {
            self.meter.set_detail(LevelSettings::of(level, self.sample).detail);
        }
    }

    #[inline]
    pub fn absorb(&mut self, packets: &[Packet]) {
        self.meter.process(packets, &mut self.flows);
    }

    /// Hands records on if there are enough, or they have waited for long. If the histories do not cover one, `look` is to see to that; it
    /// may come later, unless it is told that there are too many.
    #[inline]
    pub fn export_when_due(&mut self, look: impl FnOnce(&mut Histories, u64, bool)) {
        if self.flows.len() >= BATCH || self.overdue {
            let new = &self.flows[self.looked_at..];
            let end_ns = new.iter().map(FlowRecord::end_ns).fold(self.end_ns, u64::max);
            (self.looked_at, self.end_ns) = (self.flows.len(), end_ns);
            if !self.histories.cover(end_ns) {
                let too_many = self.flows.len() >= HELD;
                look(&mut self.histories, end_ns, too_many);
                self.follow();
                if !too_many && !self.histories.cover(end_ns) {
                    return;
                }
            }
            self.export();
        }
    }

    /// What is done while there is little to do: records end, and are to leave, without a packet that says how late it is. `now_ns` is
    /// asked by the clock of live packets, if they are.
    pub fn wait(&mut self, now_ns: impl FnOnce() -> Option<u64>) {
        let now = Instant::now();
        if now - self.waited >= TICK {
            self.waited = now;
            if let Some(now_ns) = now_ns() {
                self.meter.advance_time(now_ns, &mut self.flows);
            }
        }
        self.overdue = now - self.exported >= PATIENCE;
    }

    /// Notes in the records that are to leave what their readers lost and gave up while they lived.
    fn describe(&mut self) {
        let nothing = self.ground == 0 && self.sample == 1 && self.histories.are_empty();
        for flow in &mut self.flows {
            self.overload.unanalysed_flows += u64::from(flow.approximate.has(Approximate::UNANALYSED));
            if nothing {
                continue;
            }
            let (start_ns, end_ns) = (flow.start_ns(), flow.end_ns());
            flow.queue_lost = self.histories.lost_between(start_ns, end_ns);
            let [lowest, highest] = self.histories.levels_between(start_ns, end_ns).map(|level| level.max(self.ground));
            let populations = [lowest, highest].map(|level| LevelSettings::of(level, self.sample).population);
            let marks = &mut flow.approximate.0;
            if populations[1] > 1 {
                flow.sampling = Some(populations);
                *marks |= Approximate::SAMPLED;
                // A connection of which packets were left out is not judged.
                if flow.tcp.take().is_some() {
                    *marks |= Approximate::UNANALYSED;
                    self.overload.unanalysed_flows += 1;
                }
                self.overload.sampled_flows += 1;
            }
            if highest > 0 {
                let [_, at_first] = self.histories.levels_between(start_ns, start_ns);
                let newcomers = LevelSettings::of(at_first.max(self.ground), 1).detail.small_flows;
                *marks |= if newcomers { 0 } else { Approximate::AGGREGATED };
            }
        }
    }

    /// Begins to look for the flows of some parts, while it goes on.
    pub fn seek(&mut self, parts: BucketSet) {
        self.meter.start_migration(parts);
    }

    /// Whether all of them are found.
    pub fn has_sought(&self) -> bool {
        self.meter.migration_ready()
    }

    /// Gives up looking for them.
    pub fn forget(&mut self) {
        self.meter.cancel_migration();
    }

    /// Gives them away, each with its part.
    pub fn release(&mut self, hand_over: impl FnMut(u16, MigratedFlow)) {
        self.meter.migrate_out(hand_over);
    }

    /// Takes in a flow that another one gave away.
    pub fn adopt(&mut self, moved: MigratedFlow) {
        self.meter.migrate_in(moved, &mut self.flows);
    }

    /// Flows in the table.
    pub fn flows(&self) -> u64 {
        self.meter.live().flows
    }

    /// Time has come to this.
    pub fn is_at(&mut self, now_ns: u64) {
        self.meter.advance_time(now_ns, &mut self.flows);
    }

    /// Hands the records that have ended to the exporter.
    fn export(&mut self) {
        if !self.flows.is_empty() {
            self.describe();
            let batch = std::mem::take(&mut self.flows);
            let records = records(&batch);
            match self.handle.write(batch) {
                Ok(empty) => {
                    self.sent.merge(records);
                    self.flows = empty;
                }
                Err(refused) => {
                    self.lost.merge(records);
                    self.flows = refused;
                    self.flows.clear();
                }
            }
        }
        (self.looked_at, self.end_ns) = (0, 0);
        (self.exported, self.overdue) = (Instant::now(), false);
    }

    /// The account of this half: what it took in, and what became of that.
    pub fn account(&self) -> Account {
        let mut ledger = Ledger::default();
        let counters = self.meter.counters();
        ledger.packets.dropped_table_full = counters.dropped_packets;
        ledger.bytes.dropped_table_full = counters.dropped_bytes;
        ledger.anomalies = counters.anomalies;
        ledger.created = counters.created;
        ledger.live = self.meter.live();
        ledger.live.merge(records(&self.flows));
        ledger.overload = self.overload;
        Account { ledger, sent: self.sent, lost: self.lost }
    }

    /// Ends every flow, hands over the last records, and gives the final account.
    pub fn finish(mut self) -> Account {
        self.handle.wait();
        while self.meter.drain_up_to(BATCH, &mut self.flows) {
            self.export();
        }
        self.export();
        self.account()
    }
}
