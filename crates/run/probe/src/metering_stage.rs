//! The second stage of a pipeline: packets in, batches of annotated flow records out.

use crate::account::{Account, totals};
use crate::exporter::export_handle::ExportHandle;
use crate::heartbeat::catch_panic;
use crate::loss_channel::LossHistories;
use crate::loss_history::LossSnapshot;
use crate::record_output::{BATCH, MAX_WAITING, RecordAnnotator, RecordOutput, TransactionOutput};
use crate::settings::Settings;
use std::io;
use std::thread::Builder;
use std::time::{Duration, Instant};
use weir_flow::{Meter, MigratedFlow, PacketFollower, Payloads};
use weir_ledger::Ledger;
use weir_packet::Packet;

/// Time after which the clock of an idle meter advances without packets.
pub(crate) const IDLE_CLOCK_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct MeteringStage {
    pub meter: Meter,
    output: RecordOutput,
    transactions: Option<TransactionOutput>,
    annotator: RecordAnnotator,
    level: u8,
    clock_advanced: Instant,
}

impl MeteringStage {
    pub fn new(settings: &Settings, mut handle: ExportHandle, histories: LossHistories) -> io::Result<Self> {
        let annotator = RecordAnnotator::new(settings, histories);
        let transactions = handle.transactions.take().map(|handle| TransactionOutput::new(*handle));
        let (output, level) = (RecordOutput::new(handle), annotator.level());
        let mut meter = Meter::new(settings.meter)?;
        meter.set_detail(annotator.settings_of(level).detail);
        if let Some(affinity) = settings.memory_thread.clone() {
            let ahead = meter.memory_ahead();
            let run = move || {
                affinity.apply();
                ahead.run();
            };
            // Without this thread the meter is slower. It ends when the meter is dropped.
            let _ = Builder::new().name("weir-memory".into()).spawn(run);
        }
        Ok(Self { meter, output, transactions, annotator, level, clock_advanced: Instant::now() })
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

    /// Whether the payload of flows that begin now is inspected, which overload ends.
    pub fn inspects(&self) -> bool {
        self.annotator.settings_of(self.level).detail.inspection
    }

    #[inline]
    pub fn process(&mut self, packets: &[Packet]) {
        self.meter.process(packets, &mut self.output.records);
    }

    #[inline]
    pub fn process_with(&mut self, packets: &[Packet], payloads: &impl Payloads, follower: &mut impl PacketFollower) {
        self.meter.process_with(packets, payloads, follower, &mut self.output.records);
        if self.transactions.is_some() {
            self.take_transactions();
        }
    }

    /// Takes the transactions that have ended, and exports them if a batch is full.
    #[cold]
    #[inline(never)]
    fn take_transactions(&mut self) {
        if let Some(output) = &mut self.transactions {
            self.meter.take_transactions(&mut output.records);
            output.export_when_full(&self.annotator);
        }
    }

    /// Exports records if a batch is full or they have waited too long. If the loss histories do
    /// not cover the end of a record, calls `request_snapshots` with that time, ns, and whether the
    /// records must be exported now.
    #[inline]
    pub fn export_when_due(&mut self, request_snapshots: impl FnOnce(&mut LossHistories, u64, bool)) {
        if self.output.is_due() {
            let end_ns = self.output.latest_end_ns();
            if !self.annotator.histories.cover(end_ns) {
                let limit_reached = self.output.records.len() >= MAX_WAITING;
                request_snapshots(&mut self.annotator.histories, end_ns, limit_reached);
                self.apply_level();
                if !limit_reached && !self.annotator.histories.cover(end_ns) {
                    return;
                }
            }
            self.output.export(&mut self.annotator);
        }
    }

    /// Lets [`Self::export_when_due`] export all records that there are.
    pub fn set_overdue(&mut self) {
        self.output.set_overdue();
    }

    /// Ends flows that time out while no packets arrive. `now_ns` returns the time of the clock
    /// that stamps packets, `None` for a file.
    pub fn process_idle(&mut self, now_ns: impl FnOnce() -> Option<u64>) {
        let now = Instant::now();
        if now - self.clock_advanced >= IDLE_CLOCK_INTERVAL {
            self.clock_advanced = now;
            if let Some(now_ns) = now_ns() {
                self.advance_time(now_ns);
            }
        }
        self.output.check_overdue(now);
        if let Some(output) = &mut self.transactions {
            output.export_when_overdue(&self.annotator, now);
        }
    }

    pub fn advance_time(&mut self, now_ns: u64) {
        self.meter.advance_time(now_ns, &mut self.output.records);
        self.take_transactions();
    }

    pub fn migrate_in(&mut self, flow: MigratedFlow) {
        self.meter.migrate_in(flow, &mut self.output.records);
    }

    pub fn account(&self) -> Account {
        let mut ledger = Ledger::default();
        let counters = self.meter.counters();
        ledger.packets.dropped_cache_full = counters.dropped_packets;
        ledger.bytes.dropped_cache_full = counters.dropped_bytes;
        ledger.anomalies = counters.anomalies;
        ledger.flows_created = counters.created;
        ledger.live = self.meter.open_records();
        ledger.live.merge(totals(&self.output.records));
        ledger.overload = self.annotator.counters;
        ledger.inspection = self.meter.inspection_counters();
        let mut account = Account { ledger, sent: self.output.sent, lost: self.output.lost, ..Account::default() };
        if let Some(output) = &self.transactions {
            (account.sent_transactions, account.lost_transactions) = (output.sent, output.lost);
            let mut counters = self.meter.transaction_counters().unwrap_or_default();
            counters.open += output.records.len() as u64;
            account.ledger.transactions = Some(counters);
        }
        account
    }

    /// Whether a meter without packets ends now, also if readers do not.
    pub fn is_late(&self) -> bool {
        self.output.handle.is_late()
    }

    /// Ends every flow, as far as that is possible after a panic.
    pub fn finish_after_panic(&mut self) -> Account {
        catch_panic(|| self.finish()).unwrap_or_else(|| self.account())
    }

    /// Ends every flow, exports the last records and returns the final account.
    pub fn finish(&mut self) -> Account {
        self.output.handle.start_draining(self.account().ledger.live.flows);
        if let Some(output) = &mut self.transactions {
            output.handle.start_draining(self.meter.transaction_counters().map_or(0, |counters| counters.open));
        }
        while self.meter.drain_up_to(BATCH, &mut self.output.records) && !self.output.handle.is_closed() {
            self.output.export(&mut self.annotator);
            self.take_transactions();
        }
        self.end_transactions();
        let mut account = self.account();
        if self.output.handle.is_closed() {
            // Millions of flows would take seconds.
            let rest = std::mem::take(&mut account.ledger.live);
            self.output.handle.lose(rest);
            account.sent.merge(rest);
            if let (Some(output), Some(counters)) = (&mut self.transactions, &mut account.ledger.transactions) {
                output.lose(std::mem::take(&mut counters.open));
                account.sent_transactions = output.sent;
            }
            return account;
        }
        self.output.export(&mut self.annotator);
        self.account()
    }

    /// Exports the last transactions.
    fn end_transactions(&mut self) {
        let Some(output) = &mut self.transactions else { return };
        self.meter.take_transactions(&mut output.records);
        output.export(&self.annotator);
    }
}
