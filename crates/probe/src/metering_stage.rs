//! The second stage of a pipeline: packets in, batches of annotated flow records out.

use crate::account::{Account, totals};
use crate::export_handle::ExportHandle;
use crate::loss_channel::LossHistories;
use crate::loss_history::LossSnapshot;
use crate::record_annotator::RecordAnnotator;
use crate::record_output::{BATCH, RecordOutput};
use crate::settings::Settings;
use std::io;
use std::time::{Duration, Instant};
use weir_flow::{BucketSet, Meter, MigratedFlow};
use weir_ledger::Ledger;
use weir_packet::Packet;

/// Time after which the clock of an idle meter advances without packets.
pub(crate) const IDLE_CLOCK_INTERVAL: Duration = Duration::from_millis(100);

/// A meter with its record output.
pub(crate) struct MeteringStage {
    meter: Meter,
    output: RecordOutput,
    annotator: RecordAnnotator,
    /// Level of load shedding that the meter works on.
    level: u8,
    /// When the clock advanced last without packets.
    clock_advanced: Instant,
}

impl MeteringStage {
    /// Allocates the memory of the meter.
    pub fn new(settings: &Settings, handle: ExportHandle, histories: LossHistories) -> io::Result<Self> {
        let annotator = RecordAnnotator::new(settings, histories);
        let (output, level) = (RecordOutput::new(handle), annotator.level());
        let mut meter = Meter::try_new(settings.meter)?;
        meter.set_detail(annotator.settings_of(level).detail);
        Ok(Self { meter, output, annotator, level, clock_advanced: Instant::now() })
    }

    /// Changes the timeouts, also of existing flows.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.meter.set_timeouts(settings.meter.idle_timeout_ns, settings.meter.active_timeout_ns);
    }

    /// Adds a loss snapshot of the reader on the same thread.
    pub fn add_snapshot(&mut self, snapshot: LossSnapshot) {
        self.annotator.histories.add(snapshot);
        self.apply_level();
    }

    /// Receives loss snapshots of readers on other threads.
    pub fn receive_snapshots(&mut self) {
        self.annotator.histories.receive();
        self.apply_level();
    }

    /// Adopts the highest level of all readers.
    fn apply_level(&mut self) {
        let level = self.annotator.level();
        if level != std::mem::replace(&mut self.level, level) {
            self.meter.set_detail(self.annotator.settings_of(level).detail);
        }
    }

    /// Meters a burst of packets.
    #[inline]
    pub fn process(&mut self, packets: &[Packet]) {
        self.meter.process(packets, &mut self.output.records);
    }

    /// Exports records if a batch is full or they have waited too long. If the loss histories do
    /// not cover the end of a record, calls `request_snapshots` with that time, ns, and whether the records
    /// cannot wait for a later update.
    #[inline]
    pub fn export_when_due(&mut self, request_snapshots: impl FnOnce(&mut LossHistories, u64, bool)) {
        if self.output.is_due() {
            let end_ns = self.output.latest_end_ns();
            if !self.annotator.histories.cover(end_ns) {
                let limit_reached = self.output.limit_reached();
                request_snapshots(&mut self.annotator.histories, end_ns, limit_reached);
                self.apply_level();
                if !limit_reached && !self.annotator.histories.cover(end_ns) {
                    return;
                }
            }
            self.output.export(&mut self.annotator);
        }
    }

    /// Ends flows that time out while no packets arrive. `now_ns` returns the time of the clock
    /// that stamps packets, `None` for a file.
    pub fn idle(&mut self, now_ns: impl FnOnce() -> Option<u64>) {
        let now = Instant::now();
        if now - self.clock_advanced >= IDLE_CLOCK_INTERVAL {
            self.clock_advanced = now;
            now_ns().into_iter().for_each(|now_ns| self.advance_time(now_ns));
        }
        self.output.check_overdue(now);
    }

    /// Advances the clock of the meter.
    pub fn advance_time(&mut self, now_ns: u64) {
        self.meter.advance_time(now_ns, &mut self.output.records);
    }

    /// Starts to collect the flows of some buckets while packets are processed.
    pub fn start_migration(&mut self, buckets: BucketSet) {
        self.meter.start_migration(buckets);
    }

    /// Whether all flows of these buckets are collected.
    pub fn migration_ready(&self) -> bool {
        self.meter.migration_ready()
    }

    /// Cancels a migration.
    pub fn cancel_migration(&mut self) {
        self.meter.cancel_migration();
    }

    /// Removes the collected flows and passes each on with its bucket.
    pub fn migrate_out(&mut self, pass_on: impl FnMut(u16, MigratedFlow)) {
        self.meter.migrate_out(pass_on);
    }

    /// Adds a flow of another meter.
    pub fn migrate_in(&mut self, flow: MigratedFlow) {
        self.meter.migrate_in(flow, &mut self.output.records);
    }

    /// Flows in the flow cache.
    pub fn open_records(&self) -> u64 {
        self.meter.open_records().flows
    }

    /// The account of this stage.
    pub fn account(&self) -> Account {
        let mut ledger = Ledger::default();
        let counters = self.meter.counters();
        ledger.packets.dropped_table_full = counters.dropped_packets;
        ledger.bytes.dropped_table_full = counters.dropped_bytes;
        ledger.anomalies = counters.anomalies;
        ledger.flows_created = counters.created;
        ledger.live = self.meter.open_records();
        ledger.live.merge(totals(&self.output.records));
        ledger.overload = self.annotator.counters;
        Account { ledger, sent: self.output.sent, lost: self.output.lost }
    }

    /// Ends every flow, exports the last records and returns the final account.
    pub fn finish(mut self) -> Account {
        self.output.start_draining();
        while self.meter.drain_up_to(BATCH, &mut self.output.records) {
            self.output.export(&mut self.annotator);
        }
        self.output.export(&mut self.annotator);
        self.account()
    }
}
