//! The thread that sends batches to the server, one after the other, each until it is inserted.

use super::batches::{Batch, Batches};
use super::client::{Body, Client, Failure};
use super::row_form::RowForm;
use super::table::TableReport;
use crate::sink::Attempts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};
use weir_clickhouse::{TableName, insert_statement};

/// What the sink and its sender share.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The sender ends at once.
    stop: AtomicBool,
}

/// What became of the batches.
#[derive(Default)]
pub(super) struct State {
    pub batches: Batches,
    /// Batches that were inserted, until the sink counts them.
    pub inserted: Vec<Arc<Batch>>,
    /// Since when the server takes nothing; `None` while it does.
    pub down_since: Option<Instant>,
    /// Why the run of the sink is over.
    pub failed: Option<Failure>,
    /// The run ends: a failed attempt is repeated soon.
    pub is_ending: bool,
    /// Flows that were lost since the server takes nothing.
    pub lost_flows: u64,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits for a change.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, or for this time.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends the sender at the next step.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.notify();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Sends batches.
pub(super) struct Sender {
    pub sink: String,
    pub client: Client,
    pub table: TableName,
    pub times: Attempts,
    /// An error that stays ends the run.
    pub ends_when_refused: bool,
    /// The table was found to take rows of this form.
    pub checked: Option<Arc<RowForm>>,
    pub shared: Arc<Shared>,
    pub back_off: Duration,
    /// The log says that the server takes nothing, and whether this stays.
    pub logged: Option<bool>,
}

impl Sender {
    /// Sends until the sink stops it.
    pub fn run(mut self) {
        while let Some(batch) = self.next() {
            let result = self.attempt(&batch);
            let shared = self.shared.clone();
            let mut state = shared.lock();
            state.batches.put_back();
            match result {
                Ok(()) => {
                    if state.batches.release(&batch) {
                        state.inserted.push(batch);
                    }
                    self.succeed(&mut state);
                }
                Err(failure) if self.ends_when_refused && failure.is_permanent() => {
                    state.failed = Some(failure);
                    self.shared.notify();
                    return;
                }
                Err(failure) => {
                    state.down_since.get_or_insert_with(Instant::now);
                    drop(state);
                    self.fail(&failure);
                }
            }
            self.shared.notify();
        }
    }

    /// Waits for a batch; `None` at the end.
    fn next(&self) -> Option<Arc<Batch>> {
        const LONG: Duration = Duration::from_secs(3600);
        let mut state = self.shared.lock();
        loop {
            if self.shared.is_stopped() {
                return None;
            }
            if let Some(batch) = state.batches.next() {
                return Some(batch);
            }
            state = self.shared.wait(state, LONG);
        }
    }

    fn attempt(&mut self, batch: &Batch) -> Result<(), Failure> {
        let stop = &self.shared.stop;
        if self.checked.as_ref() != Some(&batch.form) {
            let columns = &batch.form.columns;
            let report = TableReport::of(&mut self.client, &self.table, columns, stop)?.check(&self.table)?;
            self.checked = Some(batch.form.clone());
            if let Some(warning) = report.window_warning() {
                warn!(sink = self.sink, "{warning}");
            }
        }
        let settings = [
            // The server would answer before it has inserted.
            ("async_insert", "0"),
            ("wait_end_of_query", "1"),
            ("insert_deduplicate", "1"),
            ("insert_deduplication_token", batch.token.as_str()),
            ("deduplicate_blocks_in_dependent_materialized_views", "1"),
            // A capture can have flows of more than 100 days.
            ("max_partitions_per_insert_block", "0"),
        ];
        let body = Body { octets: batch.octets.clone(), encoding: batch.form.is_compressed.then_some("zstd") };
        let statement = insert_statement(&self.table, &batch.form.columns);
        self.client.run(&statement, &settings, &body, stop).map(drop)
    }

    fn succeed(&mut self, state: &mut State) {
        self.back_off = self.times.reconnect;
        let lost = std::mem::take(&mut state.lost_flows);
        state.down_since = None;
        if self.logged.take().is_some() {
            let late = state.batches.flows().flows + state.inserted.last().map_or(0, |batch| batch.records.flows.flows);
            info!(sink = self.sink, late, lost, "ClickHouse takes records again");
        }
    }

    /// Says once why the server takes nothing, and waits until the next attempt.
    fn fail(&mut self, failure: &Failure) {
        if self.shared.is_stopped() {
            return;
        }
        let is_permanent = failure.is_permanent();
        if self.logged != Some(is_permanent) {
            self.logged = Some(is_permanent);
            let sink = &self.sink;
            match failure {
                _ if is_permanent => warn!(
                    sink, error = %failure,
                    "ClickHouse refuses the records; they wait until the table, the user or the address is right"
                ),
                Failure::Unreachable(error) => {
                    warn!(sink, %error, "ClickHouse cannot be reached, trying again, the records wait until then");
                }
                _ => {
                    warn!(sink, error = %failure, "ClickHouse takes no records now, trying again, they wait until then")
                }
            }
        }
        if is_permanent {
            self.checked = None;
            self.back_off = self.times.reconnect_max;
        }
        self.wait();
        self.back_off = (2 * self.back_off).min(self.times.reconnect_max);
    }

    /// Waits until the next attempt, with up to a quarter more or less; at the end of the run, a short time.
    fn wait(&mut self) {
        let fraction = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos() % 1000);
        let factor = 0.75 + f64::from(fraction) / 2000.0;
        let start = Instant::now();
        let shared = self.shared.clone();
        let mut state = shared.lock();
        loop {
            if state.is_ending {
                self.back_off = self.back_off.min(self.times.reconnect);
            }
            let left = self.back_off.mul_f64(factor).saturating_sub(start.elapsed());
            if self.shared.is_stopped() || left.is_zero() {
                return;
            }
            state = self.shared.wait(state, left);
        }
    }
}
