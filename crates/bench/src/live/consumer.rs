//! Who takes what a source hands over: nobody much, or the probe as `weir probe` runs it.

use crate::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_capture::{Burst, Input, LiveSource, Losses, PacketFilter};
use weir_export::{ExportOptions, Sink};
use weir_flow::{Config, FlowRecord};
use weir_ledger::{Ledger, SinkCounters, TrafficCounters};
use weir_packet::Packet;
use weir_probe::{BackPressure, CpuAffinity, Probe, ReceiveQueue, Settings, WorkerGroup};

/// The filter whose cost is told: it keeps every packet of IP.
pub const FILTER: &str = "ip or ip6";
/// Where records go whose encoding is told.
pub const SINK: &str = "ipfix:/dev/null";
/// The exporter gives way to the pipelines, as in `weir probe`.
const EXPORTER_NICE: i32 = 5;
/// Longer than a thread takes to answer.
const BOUND: Duration = Duration::from_secs(60);

/// What is done with the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// They are taken from the source and counted.
    Null,
    /// They are decoded as well.
    Decode,
    /// The probe on one thread; records are counted.
    Fused,
    /// The probe on two threads.
    Split,
    /// The probe on one thread, behind a filter.
    Filter,
    /// The probe on one thread, records encoded.
    Export,
}

impl What {
    /// As people know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null consumer",
            Self::Decode => "null consumer that decodes",
            Self::Fused => "fused",
            Self::Split => "split",
            Self::Filter => "fused, with a filter",
            Self::Export => "fused, records encoded",
        }
    }
}

/// What a consumer has done so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Packets by fate; those of a null consumer count as metered.
    pub packets: TrafficCounters,
    /// Processor time of its threads, in the packets' order, ns.
    pub busy_ns: Vec<u64>,
    /// Processor time of the exporter's thread, ns.
    pub exporter_ns: u64,
    /// Records that came to the sink.
    pub records: u64,
    /// When the last of them came.
    pub recorded: Option<Instant>,
}

impl Seen {
    /// Packets that it knows to be lost.
    pub fn lost(&self) -> u64 {
        let TrafficCounters { dropped_nic, dropped_kernel, dropped_ring, dropped_table_full, .. } = self.packets;
        dropped_nic + dropped_kernel + dropped_ring + dropped_table_full
    }
}

/// A consumer at work.
pub enum Consumer {
    Null(Null),
    Probe(Box<Probe>, Arc<Noted>),
}

impl Consumer {
    /// Begins to take from a source, in places: the first for who reads, the second for who meters if that is another.
    pub fn begin(
        what: What,
        source: Box<dyn LiveSource + Send>,
        [affinity, meter]: [CpuAffinity; 2],
        idle: Duration,
    ) -> Result<Self, Error> {
        if matches!(what, What::Null | What::Decode) {
            return Null::begin(source, affinity, what == What::Decode).map(Self::Null);
        }
        let filter = if what == What::Filter { Some(filter()?) } else { None };
        let settings = Settings {
            filter,
            meter: Config { idle_timeout_ns: idle.as_nanos() as u64, ..Config::default() },
            ..Settings::default()
        };
        let inner = match what {
            What::Export => Some(weir_export::open(SINK, &ExportOptions::default()).map_err(wrong)?),
            _ => None,
        };
        let noted = Arc::new(Noted::default());
        let sink = Box::new(Noting { inner, line: SinkCounters::default(), noted: noted.clone() });
        let meters = if what == What::Split { vec![meter] } else { vec![] };
        let group = WorkerGroup {
            name: "queue".into(),
            queues: vec![ReceiveQueue { source: Input::Live(source), affinity }],
            meters,
        };
        let export = CpuAffinity { cores: Vec::new(), nice: EXPORTER_NICE };
        let probe = Probe::start(vec![group], settings, vec![sink], export, BackPressure::Drop).map_err(wrong)?;
        Ok(Self::Probe(Box::new(probe), noted))
    }

    /// What it has done so far.
    pub fn ask(&self) -> Result<Seen, Error> {
        match self {
            Self::Null(null) => null.ask(),
            Self::Probe(probe, noted) => {
                let began = Instant::now();
                loop {
                    let (ledger, pipelines) = probe.status();
                    let pipeline = pipelines.into_iter().next().expect("there is one pipeline");
                    if let Some(error) = pipeline.errors.first() {
                        return Err(Error::Live(error.clone()));
                    }
                    if !pipeline.timed_out {
                        return noted.seen(&ledger, pipeline.cpu_time_ns);
                    }
                    if began.elapsed() > BOUND {
                        return Err(Error::Live("the probe does not answer".into()));
                    }
                }
            }
        }
    }

    /// Ends it, and says what it has done altogether.
    pub fn finish(self) -> Result<Seen, Error> {
        match self {
            Self::Null(null) => null.finish(),
            Self::Probe(probe, noted) => {
                let end = probe.finish();
                if let Some(error) = end.sink_errors.first() {
                    return Err(wrong(error));
                }
                let pipeline = end.pipelines.into_iter().next().expect("there is one pipeline");
                match pipeline.errors.into_iter().next() {
                    Some(error) => Err(Error::Live(error)),
                    None => noted.seen(&end.ledger, pipeline.cpu_time_ns),
                }
            }
        }
    }
}

/// The filter, if libpcap is there to compile it.
pub fn filter() -> Result<PacketFilter, Error> {
    PacketFilter::new(FILTER).map_err(wrong)
}

fn wrong(error: impl ToString) -> Error {
    Error::Live(error.to_string())
}

/// Takes frames from a source and counts them: what nobody can do without.
pub struct Null {
    desk: Arc<Desk>,
    thread: JoinHandle<()>,
}

/// Where it is asked.
#[derive(Default)]
struct Desk {
    asked: AtomicU64,
    stop: AtomicBool,
    /// The number of the last answer, and that.
    told: Mutex<(u64, Seen)>,
    error: Mutex<Option<String>>,
}

impl Null {
    fn begin(source: Box<dyn LiveSource + Send>, affinity: CpuAffinity, decode: bool) -> Result<Self, Error> {
        let desk = Arc::new(Desk::default());
        let theirs = desk.clone();
        let thread = thread::Builder::new().name("null".into()).spawn(move || {
            affinity.apply();
            consume(source, &theirs, decode);
        });
        Ok(Self { desk, thread: thread.map_err(wrong)? })
    }

    fn ask(&self) -> Result<Seen, Error> {
        let number = self.desk.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let began = Instant::now();
        loop {
            if self.thread.is_finished() || began.elapsed() > BOUND {
                let error = lock(&self.desk.error).take();
                return Err(Error::Live(error.unwrap_or_else(|| "the null consumer does not answer".into())));
            }
            let told = lock(&self.desk.told);
            if told.0 >= number {
                return Ok(told.1.clone());
            }
            drop(told);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(self) -> Result<Seen, Error> {
        self.desk.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match lock(&self.desk.error).take() {
            Some(error) => Err(Error::Live(error)),
            None => Ok(lock(&self.desk.told).1.clone()),
        }
    }
}

fn consume(mut source: Box<dyn LiveSource + Send>, desk: &Desk, decode: bool) {
    let (mut packets, mut answered, mut stopped) = (TrafficCounters::default(), 0, false);
    let mut decoded: Box<[Packet; weir_capture::BURST]> = Box::new([Packet::default(); weir_capture::BURST]);
    loop {
        let mut burst = Burst::new();
        let more = match source.fill(&mut burst) {
            Ok(more) => more,
            Err(error) => {
                *lock(&desk.error) = Some(error.to_string());
                return;
            }
        };
        if decode {
            for (frame, packet) in burst.iter().zip(decoded.iter_mut()) {
                if crate::meter::decode(frame, packet) {
                    packets.metered += 1;
                } else {
                    // Why, nobody asks here.
                    packets.refused.count(weir_ledger::RefusalReason::NonIp);
                }
            }
        } else {
            packets.metered += burst.len() as u64;
        }
        drop(burst);
        let asked = desk.asked.load(Ordering::Relaxed);
        if asked != answered || !more {
            answered = asked;
            let Losses { nic, kernel, ring } = source.losses();
            (packets.dropped_nic, packets.dropped_kernel, packets.dropped_ring) = (nic, kernel, ring);
            packets.received = packets.metered + packets.refused.total() + nic + kernel + ring;
            let busy_ns = vec![processor_ns()];
            *lock(&desk.told) = (asked, Seen { packets: packets.clone(), busy_ns, ..Seen::default() });
        }
        if !more {
            return;
        }
        if !stopped && desk.stop.load(Ordering::Relaxed) {
            stopped = true;
            source.stop();
        }
    }
}

/// What came to the sink.
#[derive(Default)]
pub struct Noted {
    records: AtomicU64,
    busy_ns: AtomicU64,
    recorded: Mutex<Option<Instant>>,
}

impl Noted {
    /// With the account of the probe, which must balance.
    fn seen(&self, ledger: &Ledger, busy_ns: Vec<u64>) -> Result<Seen, Error> {
        if let Some(wrong) = ledger.check().first() {
            let what = format!("{}: {} is not {}", wrong.equation, wrong.left, wrong.right);
            return Err(Error::LostCount { who: "live: the probe".into(), what });
        }
        Ok(Seen {
            packets: ledger.packets.clone(),
            busy_ns,
            exporter_ns: self.busy_ns.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            recorded: *lock(&self.recorded),
        })
    }
}

/// A sink that notes when records came and what its thread took, around another one or none.
struct Noting {
    inner: Option<Box<dyn Sink + Send>>,
    line: SinkCounters,
    noted: Arc<Noted>,
}

impl Sink for Noting {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
        *lock(&self.noted.recorded) = Some(Instant::now());
        match &mut self.inner {
            Some(inner) => inner.write(flows)?,
            None => flows.iter().for_each(|flow| self.line.exported.add(flow.packets(), flow.frame_bytes())),
        }
        self.noted.busy_ns.store(processor_ns(), Ordering::Relaxed);
        self.noted.records.fetch_add(flows.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), weir_export::Error> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.finish())
    }

    fn counters(&self) -> &SinkCounters {
        self.inner.as_ref().map_or(&self.line, |inner| inner.counters())
    }
}

/// Processor time of this thread, ns.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What is behind a lock here is whole at any moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
