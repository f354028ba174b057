//! Consumers of a live source: the null consumer, or the probe as `weir probe` runs it.

use crate::error::{CountMismatch, Error};
use crate::live::null_consumer::NullConsumer;
use crate::live::status::{ANSWER_TIMEOUT, ConsumerStatus};
use crate::meter::CountingSink;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_capture::{Input, LiveSource, PacketFilter};
use weir_export::{ExportOptions, Sink, SinkSpec};
use weir_flow::Config;
use weir_ledger::Ledger;
use weir_probe::{BackPressure, CpuAffinity, GroupStatus, Probe, ReceiveQueue, Settings, WorkerGroupSpec};

/// Capture filter of [`ConsumerKind::Filter`]; it matches every IP packet.
pub const FILTER: &str = "ip or ip6";
/// Sink of [`ConsumerKind::Export`].
pub const SINK: &str = "ipfix:/dev/null";
/// The consumers that every measurement compares.
pub const LAYOUTS: [ConsumerKind; 3] = [ConsumerKind::Null, ConsumerKind::Fused, ConsumerKind::Split];
/// Nice value of the exporter thread, as in `weir probe`.
const EXPORTER_NICE: i32 = 5;

/// What a consumer does with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerKind {
    /// Takes frames from the source and counts them.
    Null,
    /// As `Null`, and decodes each frame.
    Decode,
    /// The probe, capture and meter on one thread; records are only counted.
    Fused,
    /// The probe, capture and meter on two threads; records are only counted.
    Split,
    /// As `Fused`, with a capture filter.
    Filter,
    /// As `Fused`, with an exporter that encodes records.
    Export,
}

impl ConsumerKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null consumer",
            Self::Decode => "null consumer with decoder",
            Self::Fused => "fused",
            Self::Split => "split",
            Self::Filter => "fused with filter",
            Self::Export => "fused with export",
        }
    }
}

/// A running consumer.
pub enum Consumer {
    Null(NullConsumer),
    /// The probe, and when its sink last received records, if it only counts them.
    Probe(Box<Probe>, Arc<Mutex<Option<Instant>>>),
}

impl Consumer {
    /// Starts a consumer on a source. The affinities are those of the reading thread and, for
    /// [`ConsumerKind::Split`], of the metering thread.
    pub fn start(
        kind: ConsumerKind,
        source: Box<dyn LiveSource + Send>,
        [capture_affinity, meter_affinity]: [CpuAffinity; 2],
        idle_timeout: Duration,
    ) -> Result<Self, Error> {
        if matches!(kind, ConsumerKind::Null | ConsumerKind::Decode) {
            let decode = kind == ConsumerKind::Decode;
            return NullConsumer::start(source, capture_affinity, decode).map(Self::Null);
        }
        let filter = if kind == ConsumerKind::Filter { Some(filter()?) } else { None };
        let settings = Settings {
            filter,
            meter: Config { idle_timeout_ns: idle_timeout.as_nanos() as u64, ..Config::default() },
            ..Settings::default()
        };
        let counting = CountingSink::default();
        let last_write = counting.last_write.clone();
        let sink: Box<dyn Sink + Send> = match kind {
            ConsumerKind::Export => {
                SINK.parse::<SinkSpec>().map_err(weir_export::Error::from)?.open(&ExportOptions::default())?
            }
            _ => Box::new(counting),
        };
        let meters = if kind == ConsumerKind::Split { vec![meter_affinity] } else { vec![] };
        let queue = ReceiveQueue { source: Input::Live(source), affinity: capture_affinity, actions: None };
        let group = WorkerGroupSpec { name: "queue".into(), queues: vec![queue], meters };
        let exporter_affinity = CpuAffinity { cores: Vec::new(), nice: EXPORTER_NICE };
        let probe = Probe::start(vec![group], settings, vec![sink], None, exporter_affinity, BackPressure::Drop)
            .map_err(Error::io("cannot start a thread"))?;
        Ok(Self::Probe(Box::new(probe), last_write))
    }

    pub fn status(&self) -> Result<ConsumerStatus, Error> {
        match self {
            Self::Null(null) => null.status(),
            Self::Probe(probe, last_write) => {
                let start = Instant::now();
                loop {
                    let (ledger, pipelines) = probe.status();
                    let exporter_cpu_time_ns = probe.exporter().cpu_time_ns().iter().sum();
                    if !pipelines[0].timed_out || !pipelines[0].errors.is_empty() {
                        let status = probe_status(&ledger, &pipelines[0])?;
                        let last_record = *last_write.lock().unwrap_or_else(PoisonError::into_inner);
                        return Ok(ConsumerStatus { exporter_cpu_time_ns, last_record, ..status });
                    }
                    if start.elapsed() > ANSWER_TIMEOUT {
                        return Err(Error::Consumer("the probe does not answer".into()));
                    }
                }
            }
        }
    }

    /// Stops the consumer and returns its final counters.
    pub fn finish(self) -> Result<ConsumerStatus, Error> {
        match self {
            Self::Null(null) => null.finish(),
            Self::Probe(probe, _) => {
                let end = probe.finish();
                if let Some(error) = end.sink_errors.first() {
                    return Err(Error::Consumer(error.to_string()));
                }
                if let Some(panic) = end.panics.first() {
                    return Err(Error::Consumer(format!("{} panicked: {}", panic.thread, panic.message)));
                }
                probe_status(&end.ledger, &end.groups[0])
            }
        }
    }
}

/// Counters of a probe with one pipeline, whose ledger must balance.
fn probe_status(ledger: &Ledger, pipeline: &GroupStatus) -> Result<ConsumerStatus, Error> {
    if let Some(error) = pipeline.errors.first() {
        return Err(Error::Consumer(error.to_string()));
    }
    CountMismatch::check(ledger).map_err(|mismatch| mismatch.in_case("live: the probe"))?;
    Ok(ConsumerStatus {
        packets: ledger.packets.clone(),
        cpu_time_ns: pipeline.cpu_time_ns.clone(),
        records: ledger.sinks.iter().map(|sink| sink.exported.flows).sum(),
        ..ConsumerStatus::default()
    })
}

/// Compiles [`FILTER`]; fails without libpcap.
pub fn filter() -> Result<PacketFilter, Error> {
    Ok(PacketFilter::new(FILTER)?)
}
