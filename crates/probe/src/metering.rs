//! The second half of a pipeline: packets in, records out to the exporter, in batches.

use crate::account::Account;
use crate::exporter::{Entrance, records};
use crate::looks::Histories;
use crate::settings::Settings;
use std::io;
use std::time::{Duration, Instant};
use weir_flow::{Flow, Meter};
use weir_ledger::{Ledger, Records};
use weir_packet::Packet;

/// Records handed to the sinks at a time.
const BATCH: usize = 128;
/// While less comes than could, records leave this often, whole batch or not.
const PATIENCE: Duration = Duration::from_secs(1);
/// While less comes than could, time goes on without packets this often.
const TICK: Duration = weir_capture::PATIENCE;

/// Meters packets.
pub(crate) struct Metering {
    meter: Meter,
    flows: Vec<Flow>,
    /// When records were handed to the sinks last.
    exported: Instant,
    /// When time went on without packets last.
    waited: Instant,
    /// Records have waited long enough.
    overdue: bool,
    entrance: Entrance,
    /// What its readers lost, and when.
    pub histories: Histories,
    sent: Records,
    lost: Records,
}

impl Metering {
    /// Takes the meter's memory.
    ///
    /// # Errors
    /// The system has not that much.
    pub fn new(settings: &Settings, entrance: Entrance, histories: Histories) -> io::Result<Self> {
        Ok(Self {
            meter: Meter::try_new(settings.meter)?,
            flows: Vec::with_capacity(2 * BATCH),
            exported: Instant::now(),
            waited: Instant::now(),
            overdue: false,
            entrance,
            histories,
            sent: Records::default(),
            lost: Records::default(),
        })
    }

    /// Takes over what can change while it runs: timeouts, also of flows that there are.
    pub fn change(&mut self, settings: &Settings) {
        self.meter.set_timeouts(settings.meter.idle_ns, settings.meter.active_ns);
    }

    #[inline]
    pub fn absorb(&mut self, packets: &[Packet]) {
        self.meter.absorb(packets, &mut self.flows);
    }

    /// Hands records on if there are enough, or they have waited for long. If the histories do not cover one, `look` is to see to that.
    #[inline]
    pub fn export_when_due(&mut self, look: impl FnOnce(&mut Histories, u64)) {
        if self.flows.len() >= BATCH || self.overdue {
            let end_ns = self.flows.iter().map(Flow::end_ns).max().unwrap_or(0);
            if !self.histories.cover(end_ns) {
                look(&mut self.histories, end_ns);
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
                self.meter.wait(now_ns, &mut self.flows);
            }
        }
        self.overdue = now - self.exported >= PATIENCE;
    }

    /// Hands the records that have ended to the exporter.
    fn export(&mut self) {
        if !self.flows.is_empty() {
            for flow in &mut self.flows {
                flow.queue_lost = self.histories.lost_between(flow.start_ns(), flow.end_ns());
            }
            let batch = std::mem::take(&mut self.flows);
            let records = records(&batch);
            match self.entrance.write(batch) {
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
        (self.exported, self.overdue) = (Instant::now(), false);
    }

    /// The account of this half: what it took in, and what became of that.
    pub fn account(&self) -> Account {
        let mut ledger = Ledger::default();
        let counters = self.meter.counters();
        ledger.packets.dropped_table_full = counters.dropped_packets;
        ledger.bytes.dropped_table_full = counters.dropped_bytes;
        ledger.noted = counters.noted;
        ledger.created = counters.created;
        ledger.live = self.meter.live();
        ledger.live.merge(records(&self.flows));
        Account { ledger, sent: self.sent, lost: self.lost }
    }

    /// Ends every flow, hands over the last records, and gives the final account.
    pub fn finish(mut self) -> Account {
        self.entrance.wait();
        while self.meter.drain_some(BATCH, &mut self.flows) {
            self.export();
        }
        self.export();
        self.account()
    }
}
