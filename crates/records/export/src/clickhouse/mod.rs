//! The sink of ClickHouse: rows in the format RowBinary over HTTP.
//!
//! ```text
//! write -> rows -> compressed -> batch ─┬─> waiting batches -> thread of the sender -> server
//!                                       └─> oldest lost beyond the limit of memory;
//!                                           with a spool, all go to the disk, and newer ones behind them
//! ```
//! A batch ends after a number of rows or a time. It is inserted when the server has answered 200 and its whole answer
//! has no error; only then its records are exported. Each attempt has the same octets and the same token
//! (`insert_deduplication_token`), by which the server refuses what it has got before. A spool keeps octets, token and
//! columns, so that this holds for attempts of later runs, too.

mod batches;
mod client;
mod connection;
mod row_form;
mod sender;
mod table;

pub(crate) use client::{Client, Credentials};
pub(crate) use connection::{ConnectionTimes, Endpoint};
pub use table::TableReport;

use crate::host::host_name;
use crate::pending_records::{PendingRecords, totals};
use crate::sink::{Attempts, Error, ExportOptions, Intake, Sink};
use crate::spooled::Spooled;
use crate::unidirectional::unidirectional;
use crate::watch::Watch;
use batches::Batch;
use row_form::RowForm;
use sender::{Sender, Shared, State};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::warn;
use weir_clickhouse::{RowEncoder, TableName};
use weir_fields::Column;
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};
use zstd::stream::write::Encoder as Zstd;

/// Longest sleep between two looks at a deadline.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// A sink without new records waits this long for the server, to read on in the spool.
const TICK_WAIT: Duration = Duration::from_millis(200);
/// Level 3 takes half as much time again, and saves little.
const ZSTD_LEVEL: i32 = 1;

/// A table of a server, and how rows are sent to it.
#[derive(Clone, Debug)]
pub(crate) struct TableSettings {
    pub table: TableName,
    pub rows: u64,
    pub wait: Duration,
    pub buffer_bytes: usize,
    pub is_compressed: bool,
    /// What the column of the probe has; without a name, rows have no such column.
    pub probe: Option<String>,
}

/// The rows of the batch that is being filled.
struct OpenBatch {
    octets: Octets,
    records: PendingRecords,
    altered: u64,
    began: Instant,
}

enum Octets {
    Plain(Vec<u8>),
    Compressed(Zstd<'static, Vec<u8>>),
}

/// The sink.
pub(crate) struct ClickHouseSink {
    settings: TableSettings,
    encoder: RowEncoder,
    uniflow: bool,
    row: Vec<u8>,
    open: Option<OpenBatch>,
    form: Arc<RowForm>,
    /// The beginning of all tokens.
    run: String,
    batches: u64,
    spool: Option<Spooled<Arc<Batch>>>,
    shared: Arc<Shared>,
    /// Until its thread starts.
    sender: Option<Sender>,
    times: Attempts,
    /// Live traffic: the sink does not wait for the server.
    is_live: bool,
    until: Option<Instant>,
    watch: Watch,
    has_failed: bool,
    counters: SinkCounters,
}

impl ClickHouseSink {
    /// Checks the table, and prepares to send. A probe (`retries`), or a sink with a spool, goes on without an answer.
    pub fn open(
        sink: &str,
        client: Client,
        settings: TableSettings,
        columns: Vec<&'static Column>,
        mut spool: Option<Spooled<Arc<Batch>>>,
        options: &ExportOptions,
    ) -> Result<Self, Error> {
        let form = Arc::new(RowForm::new(&columns, settings.probe.is_some(), settings.is_compressed));
        let is_checked = check_at_start(sink, &client, &settings.table, &form, spool.is_some(), options)?;
        if let Some(spool) = &mut spool {
            spool.context = form.to_context().into();
        }
        let shared = Arc::<Shared>::default();
        let sender = Sender {
            sink: sink.into(),
            client,
            table: settings.table.clone(),
            times: options.attempts,
            ends_when_refused: !options.retries,
            checked: is_checked.then(|| form.clone()),
            shared: shared.clone(),
            back_off: options.attempts.reconnect,
            logged: None,
        };
        Ok(Self {
            encoder: RowEncoder::new(&columns, settings.probe.as_deref()),
            run: format!("{}/{}", run_name(), settings.table),
            settings,
            uniflow: options.uniflow,
            row: Vec::new(),
            open: None,
            form,
            batches: 0,
            spool,
            shared,
            sender: Some(sender),
            times: options.attempts,
            is_live: options.retries,
            until: None,
            watch: Watch::default(),
            has_failed: false,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        })
    }

    /// Starts the thread: not before the first call of the thread of the sink, which is restricted.
    fn start(&mut self) -> Result<(), Error> {
        let Some(sender) = self.sender.take() else { return Ok(()) };
        let thread = std::thread::Builder::new().name("weir-clickhouse".into()).spawn(move || sender.run());
        thread.map(drop).map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> Error {
        Error::Io { sink: self.counters.sink.clone(), error }
    }

    fn append(&mut self, flow: &FlowRecord) -> io::Result<()> {
        self.row.clear();
        let (mut rows, mut fits) = (1, true);
        if self.uniflow {
            rows = 0;
            for (part, _) in unidirectional(flow) {
                fits &= self.encoder.append(&part, flow, &mut self.row);
                rows += 1;
            }
        } else {
            fits = self.encoder.append(flow, flow, &mut self.row);
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenBatch::new(self.settings.is_compressed)?),
        };
        open.records.merge(PendingRecords { flows: totals(flow), wire_records: rows });
        open.altered += u64::from(!fits);
        open.octets.write(&self.row)?;
        // A batch is a part of the memory, so that what is lost is not all.
        if open.records.wire_records >= self.settings.rows || open.octets.len() >= self.settings.buffer_bytes / 4 {
            self.end_batch()?;
        }
        Ok(())
    }

    /// Ends a batch that has waited long enough. While others wait for the server, more rows go into it: the server
    /// likes few large batches.
    fn end_due_batch(&mut self) -> io::Result<()> {
        let is_due = self.open.as_ref().is_some_and(|open| open.began.elapsed() >= self.settings.wait);
        if is_due && self.shared.lock().batches.is_empty() { self.end_batch() } else { Ok(()) }
    }

    fn end_batch(&mut self) -> io::Result<()> {
        let Some(OpenBatch { octets, records, altered, .. }) = self.open.take() else { return Ok(()) };
        let token = format!("{}/{}", self.run, self.batches);
        self.batches += 1;
        let (octets, form) = (octets.finish()?.into(), self.form.clone());
        let batch = Arc::new(Batch { token, form, octets, records, altered, of_spool: None });
        match self.spool.as_mut().filter(|spool| spool.is_behind()) {
            Some(spool) => spool.push(batch),
            None => self.shared.lock().batches.push(batch),
        }
        self.shared.notify();
        Ok(())
    }

    /// Counts what was inserted meanwhile.
    fn count(&mut self) {
        let inserted = std::mem::take(&mut self.shared.lock().inserted);
        for batch in inserted {
            let batch: &Batch = &batch;
            let mut records = batch.records;
            if let (Some(of_spool), Some(spool)) = (batch.of_spool, &mut self.spool) {
                spool.release(of_spool.batch, records.flows.flows);
                if of_spool.is_earlier {
                    records.flows = RecordTotals::default();
                }
            }
            self.watch.step();
            records.count_exported(&mut self.counters);
            if batch.altered > 0 {
                *self.counters.altered.entry("number_beyond_format").or_default() += batch.altered;
            }
            self.counters.messages += 1;
            self.counters.octets += batch.octets.len() as u64;
        }
    }

    /// Fetches batches from the spool, if there is room for them in memory.
    fn refill(&mut self) {
        let Some(spool) = self.spool.as_mut().filter(|_| !self.has_failed) else { return };
        while spool.is_behind() && self.shared.lock().batches.bytes() < self.settings.buffer_bytes / 4 {
            let batches = spool.next();
            if batches.is_empty() {
                break;
            }
            batches.into_iter().for_each(|batch| self.shared.lock().batches.push(batch));
            self.shared.notify();
        }
    }

    /// Waits as long as the kind of run permits until no more than this waits; then writes to the spool, or loses the
    /// oldest.
    fn settle(&mut self, all: bool) {
        let (start, limit) = (Instant::now(), if all { 0 } else { self.settings.buffer_bytes });
        let shared = self.shared.clone();
        loop {
            self.count();
            self.refill();
            let on_disk = self.spool.as_ref().map_or(0, Spooled::bytes);
            let state = shared.lock();
            if self.has_failed || state.failed.is_some() || state.batches.bytes() + on_disk <= limit {
                break;
            }
            let end = self.deadline(&state, start, all);
            let left = end.map_or(SHORT_WAIT, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            if state.inserted.is_empty() {
                drop(shared.wait(state, left.min(SHORT_WAIT)));
            }
        }
        let state = shared.lock();
        if self.spool.is_none() {
            self.lose_oldest(state);
        } else if state.batches.bytes() > self.settings.buffer_bytes {
            drop(state);
            self.spill();
        }
    }

    /// When [`ClickHouseSink::settle`] ends that began at `start`.
    fn deadline(&self, state: &State, start: Instant, all: bool) -> Option<Instant> {
        // What waits goes to the disk.
        let is_safe = self.spool.as_ref().is_some_and(Spooled::is_usable);
        if self.watch.must_end() || self.is_live && !all || is_safe && state.down_since.is_some() {
            return Some(start);
        }
        // A live run abandons a sink that accepts nothing for as long as an outage: it ends before that.
        let outage = if self.is_live { self.times.outage.mul_f64(0.8) } else { self.times.outage };
        let of_outage = state.down_since.map(|since| if all { since.max(start) } else { since } + outage);
        [self.until, of_outage].into_iter().flatten().min()
    }

    fn lose_oldest(&mut self, mut state: MutexGuard<'_, State>) {
        while state.batches.bytes() > self.settings.buffer_bytes
            && let Some(batch) = state.batches.take_oldest()
        {
            state.lost_flows += batch.records.flows.flows;
            batch.records.count_lost(ExportLossReason::BufferFull, &mut self.counters);
        }
    }

    /// Moves the batches that are in memory only to the spool. What it does not take stays in memory up to the limit.
    fn spill(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        let batches = self.shared.lock().batches.take_unsaved();
        let left = spool.spill(batches);
        spool.keep(left);
        let lost = spool.lose_oldest(self.settings.buffer_bytes, &mut self.counters);
        self.shared.lock().lost_flows += lost;
    }

    /// Writes to the spool what waits behind it, and brings it to the disk when this is due.
    fn settle_spool(&mut self) {
        if self.spool.as_ref().is_some_and(Spooled::is_behind) {
            self.spill();
        }
        if let Some(spool) = &mut self.spool {
            spool.settle(false, &mut self.counters);
        }
    }

    /// Counts all that waits as lost, for a reason; with a spool, it goes there.
    fn lose_all(&mut self, reason: ExportLossReason) {
        if let Some(open) = self.open.take() {
            open.records.count_lost(reason, &mut self.counters);
        }
        let waiting: Vec<_> = self.shared.lock().batches.take_all().collect();
        if let Some(spool) = &mut self.spool {
            self.watch.save();
            let unsaved = waiting.into_iter().filter(|batch| batch.of_spool.is_none()).collect();
            spool.end(unsaved, reason, &mut self.counters);
            return;
        }
        waiting.iter().for_each(|batch| batch.records.count_lost(reason, &mut self.counters));
    }

    /// Ends the sink if the server refuses the records for good.
    fn check(&mut self) -> Result<(), Error> {
        let Some(failure) = self.shared.lock().failed.take() else { return Ok(()) };
        self.has_failed = true;
        self.count();
        // With a spool, the records wait there until the table, the user or the address is right.
        if self.spool.is_none() {
            self.lose_all(ExportLossReason::WriteFailed);
        }
        Err(self.error(failure.into_io()))
    }

    fn write_flows(&mut self, flows: &[FlowRecord]) -> io::Result<()> {
        flows.iter().try_for_each(|flow| self.append(flow))?;
        self.end_due_batch()
    }
}

impl Sink for ClickHouseSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if self.has_failed && self.spool.is_none() {
            let mut lost = RecordTotals::default();
            flows.iter().for_each(|flow| lost.merge(totals(flow)));
            self.counters.add_lost(ExportLossReason::WriteFailed, lost);
            return Ok(());
        }
        self.start()?;
        self.write_flows(flows).map_err(|error| self.error(error))?;
        self.settle(false);
        self.settle_spool();
        self.count();
        self.check()
    }

    fn connect(&mut self) -> bool {
        self.count();
        false
    }

    fn tick(&mut self) {
        // Memory takes every octet.
        if let Err(error) = self.end_due_batch() {
            warn!(sink = self.counters.sink, %error, "a batch cannot be ended");
        }
        self.count();
        if self.spool.is_none() {
            return;
        }
        // What earlier runs have left needs no new records.
        if let Err(error) = self.start() {
            warn!(%error, "the thread that sends cannot be started, trying again");
        }
        let end = Instant::now() + TICK_WAIT;
        loop {
            self.refill();
            let state = self.shared.lock();
            let left = end.saturating_duration_since(Instant::now());
            let is_idle = state.batches.is_empty() || state.down_since.is_some() || state.failed.is_some();
            if is_idle && state.inserted.is_empty() || left.is_zero() {
                break;
            }
            if state.inserted.is_empty() {
                drop(self.shared.wait(state, left.min(SHORT_WAIT)));
            } else {
                drop(state);
            }
            self.count();
        }
        self.settle_spool();
    }

    fn drain(&mut self, _flows: u64, until: Instant) {
        self.until = Some(until);
    }

    fn watch(&mut self, watch: &Watch) {
        self.watch = watch.clone();
        if self.spool.is_some() {
            watch.keep();
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.shared.lock().is_ending = true;
        let ended = self.end_batch().map_err(|error| self.error(error)).and_then(|()| self.start());
        self.shared.notify();
        self.settle(true);
        self.count();
        let is_down = self.shared.lock().down_since.is_some();
        let checked = self.check();
        let reason = if is_down { ExportLossReason::CollectorUnreachable } else { ExportLossReason::DrainTimeout };
        self.lose_all(reason);
        self.shared.stop();
        ended.and(checked)
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn intake(&self) -> Option<Intake> {
        let state = self.shared.lock();
        let open = self.open.as_ref().map_or(0, |open| open.octets.len());
        Some(Intake {
            is_connected: state.down_since.is_none() && state.failed.is_none() && !self.has_failed,
            // A server may take long for a batch.
            is_stalled: false,
            // With a spool, what waits goes to the disk, and stays with this sink.
            room: match self.spool {
                Some(_) => usize::MAX,
                None => self.settings.buffer_bytes.saturating_sub(state.batches.bytes() + open),
            },
            gives_back: self.spool.is_none(),
        })
    }

    fn take_back(&mut self, most: u64, all: bool) -> u64 {
        let mut flows = 0;
        if self.spool.is_some() {
            return 0;
        }
        if let Some(open) = &self.open {
            flows = open.records.flows.flows;
            if flows > most {
                return 0;
            }
            self.open = None;
        }
        flows + self.shared.lock().batches.take_newest(most - flows, all)
    }
}

impl Drop for ClickHouseSink {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl OpenBatch {
    fn new(is_compressed: bool) -> io::Result<Self> {
        let octets = match is_compressed {
            true => Octets::Compressed(Zstd::new(Vec::new(), ZSTD_LEVEL)?),
            false => Octets::Plain(Vec::new()),
        };
        Ok(Self { octets, records: PendingRecords::default(), altered: 0, began: Instant::now() })
    }
}

impl Octets {
    fn write(&mut self, row: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(octets) => octets.write_all(row),
            Self::Compressed(encoder) => encoder.write_all(row),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(octets) => octets.len(),
            Self::Compressed(encoder) => encoder.get_ref().len(),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain(octets) => Ok(octets),
            Self::Compressed(encoder) => encoder.finish(),
        }
    }
}

/// Asks the server for the table. Returns whether it has answered.
fn check_at_start(
    sink: &str,
    client: &Client,
    table: &TableName,
    form: &RowForm,
    has_spool: bool,
    options: &ExportOptions,
) -> Result<bool, Error> {
    let (mut client, of_table, columns) = (client.another(), table.clone(), form.columns.clone());
    let mut ask = move || TableReport::of(&mut client, &of_table, &columns, &AtomicBool::new(false))?.check(&of_table);
    let answer = match options.retries {
        false => Some(ask()),
        // A name server, or the server, may not answer for long: a thread of its own waits for it.
        true => {
            let (send, receive) = std::sync::mpsc::channel();
            let started = std::thread::Builder::new().spawn(move || drop(send.send(ask())));
            started.map_err(|error| Error::Io { sink: sink.into(), error })?;
            receive.recv_timeout(options.attempts.connect).ok()
        }
    };
    match answer {
        Some(Ok(report)) => {
            if let Some(warning) = report.window_warning() {
                warn!(sink, "{warning}");
            }
            Ok(true)
        }
        Some(Err(failure)) if failure.is_permanent() || !options.retries && !has_spool => {
            Err(Error::Io { sink: sink.into(), error: failure.into_io() })
        }
        _ => Ok(false),
    }
}

/// The name of this run of this sink: host, time, and a random number.
fn run_name() -> String {
    static SINKS: AtomicU64 = AtomicU64::new(0);
    let host = host_name();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let random = RandomState::new().build_hasher().finish();
    format!("weir/{host}/{time:x}-{random:x}-{}", SINKS.fetch_add(1, Ordering::Relaxed))
}
