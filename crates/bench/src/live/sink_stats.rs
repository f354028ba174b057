//! Sink wrapper that records when flow records arrive and how much CPU time the exporter thread takes.

use crate::error::Error;
use crate::live::status::{ConsumerStatus, lock};
use crate::measure::thread_cpu_time_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use weir_export::Sink;
use weir_flow::FlowRecord;
use weir_ledger::{Ledger, SinkCounters};

/// Statistics of a sink.
#[derive(Default)]
pub struct SinkStats {
    records: AtomicU64,
    cpu_time_ns: AtomicU64,
    last_record: Mutex<Option<Instant>>,
}

impl SinkStats {
    /// Combines these statistics with the ledger of the probe, which must balance, and the CPU time of
    /// its pipeline threads.
    pub fn status(&self, ledger: &Ledger, cpu_time_ns: Vec<u64>) -> Result<ConsumerStatus, Error> {
        if let Some(wrong) = ledger.check().first() {
            let what = format!("{}: {} is not {}", wrong.equation, wrong.left, wrong.right);
            return Err(Error::LostCount { case: "live: the probe".into(), what });
        }
        Ok(ConsumerStatus {
            packets: ledger.packets.clone(),
            cpu_time_ns,
            exporter_cpu_time_ns: self.cpu_time_ns.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            last_record: *lock(&self.last_record),
        })
    }
}

/// Sink that measures, around another sink or none. Without one it only counts records.
pub struct MeasuringSink {
    inner: Option<Box<dyn Sink + Send>>,
    counters: SinkCounters,
    stats: Arc<SinkStats>,
}

impl MeasuringSink {
    /// Wraps `inner`.
    pub fn new(inner: Option<Box<dyn Sink + Send>>, stats: Arc<SinkStats>) -> Self {
        Self { inner, counters: SinkCounters::default(), stats }
    }
}

impl Sink for MeasuringSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
        *lock(&self.stats.last_record) = Some(Instant::now());
        match &mut self.inner {
            Some(inner) => inner.write(flows)?,
            None => flows.iter().for_each(|flow| self.counters.exported.add(flow.packets(), flow.frame_bytes())),
        }
        self.stats.cpu_time_ns.store(thread_cpu_time_ns(), Ordering::Relaxed);
        self.stats.records.fetch_add(flows.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), weir_export::Error> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.finish())
    }

    fn counters(&self) -> &SinkCounters {
        self.inner.as_ref().map_or(&self.counters, |inner| inner.counters())
    }
}
