//! The second half of a pipeline: packets in, records out to the exporter, in batches.

use crate::account::Account;
use crate::exporter::{Entrance, records};
use crate::settings::Settings;
use std::io;
use std::time::{Duration, Instant};
use weir_flow::{Flow, Meter, Moved, Parts};
use weir_ledger::{Ledger, Records};
use weir_packet::Packet;

/// Records handed to the sinks at a time.
const BATCH: usize = 128;
/// While less comes than could, records leave this often, whole batch or not: with the time until an end is noticed less than a second.
const PATIENCE: Duration = Duration::from_millis(250);
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
    entrance: Entrance,
    sent: Records,
    lost: Records,
}

impl Metering {
    /// Takes the meter's memory.
    ///
    /// # Errors
    /// The system has not that much.
    pub fn new(settings: &Settings, entrance: Entrance) -> io::Result<Self> {
        Ok(Self {
            meter: Meter::try_new(settings.meter)?,
            flows: Vec::with_capacity(2 * BATCH),
            exported: Instant::now(),
            waited: Instant::now(),
            entrance,
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
        if self.flows.len() >= BATCH {
            self.export();
        }
    }

    /// What is done while there is little to do: records leave, and end, without a packet that says how late it is. `now_ns` is
    /// asked by the clock of live packets, if they are.
    pub fn wait(&mut self, now_ns: impl FnOnce() -> Option<u64>) {
        let now = Instant::now();
        if now - self.waited >= TICK {
            self.waited = now;
            if let Some(now_ns) = now_ns() {
                self.meter.wait(now_ns, &mut self.flows);
            }
        }
        if now - self.exported >= PATIENCE {
            self.export();
        }
    }

    /// Begins to look for the flows of some parts, while it goes on.
    pub fn seek(&mut self, parts: Parts) {
        self.meter.seek(parts);
    }

    /// Whether all of them are found.
    pub fn has_sought(&self) -> bool {
        self.meter.sought()
    }

    /// Gives up looking for them.
    pub fn forget(&mut self) {
        self.meter.forget();
    }

    /// Gives them away, each with its part.
    pub fn release(&mut self, hand_over: impl FnMut(u16, Moved)) {
        self.meter.release(hand_over);
    }

    /// Takes in a flow that another one gave away.
    pub fn adopt(&mut self, moved: Moved) {
        self.meter.adopt(moved, &mut self.flows);
        if self.flows.len() >= BATCH {
            self.export();
        }
    }

    /// Flows in the table.
    pub fn flows(&self) -> u64 {
        self.meter.live().flows
    }

    /// Time has come to this.
    pub fn is_at(&mut self, now_ns: u64) {
        self.meter.wait(now_ns, &mut self.flows);
    }

    /// Hands the records that have ended to the exporter.
    fn export(&mut self) {
        if !self.flows.is_empty() {
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
        self.exported = Instant::now();
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
