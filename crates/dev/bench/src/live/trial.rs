//! One trial: opens a source, starts a consumer on it, sends traffic for a while, and accounts for
//! every packet.

use crate::error::Error;
use crate::live::consumer::{Consumer, ConsumerKind};
use crate::live::dpdk_device::DpdkDevice;
use crate::live::report::Balance;
use crate::live::status::ConsumerStatus;
use crate::live::traffic::Traffic;
use crate::live::veth::{self, RECEIVING_END, SentFrames, VethPair};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{LiveSource, LiveSpec};
use weir_probe::CpuAffinity;

/// Idle timeout during trials. Conversations last fractions of a second here; the short timeout lets
/// them end as often as they begin.
pub const IDLE_TIMEOUT: Duration = Duration::from_millis(200);
/// Share of a trial that runs before the measurement: tables fill, and the kernel maps their memory.
const WARM_UP_SHARE: f64 = 0.25;
/// Time after which packets that were sent but not received count as lost without a counter.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// Nice value of pipeline threads, as in `weir probe`.
const NICE: i32 = -10;
/// Interval between two status queries.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Origin of the packets.
pub enum TrafficFeed {
    /// A veth pair, for `af_packet` and `af_xdp`.
    Veth(Box<VethPair>),
    /// A DPDK virtual device that generates packets itself.
    Dpdk(DpdkDevice),
}

/// CPU cores of the sender and of the receiving threads.
#[derive(Clone, Debug)]
pub struct CoreAssignment {
    pub sender: usize,
    /// Cores of the receiving threads: all other cores, or the sender's if it is the only one.
    pub receivers: Vec<usize>,
}

impl CoreAssignment {
    /// Reads the affinity mask of this process and gives its first core to the sender.
    pub fn read() -> Self {
        let mask = rustix::thread::sched_getaffinity(None);
        let in_mask = |core: &usize| mask.as_ref().is_ok_and(|mask| mask.is_set(*core));
        let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(in_mask);
        let sender = cores.next().unwrap_or(0);
        let mut receivers: Vec<_> = cores.collect();
        if receivers.is_empty() {
            receivers.push(sender);
        }
        Self { sender, receivers }
    }

    pub fn sender_affinity(&self) -> CpuAffinity {
        CpuAffinity { cores: vec![self.sender], nice: NICE }
    }

    /// Affinities of a pipeline's reading and metering threads.
    pub fn pipeline_affinities(&self, pinned: bool) -> [CpuAffinity; 2] {
        [0, 1].map(|thread| {
            let core = self.receivers[thread % self.receivers.len()];
            CpuAffinity { cores: if pinned { vec![core] } else { Vec::new() }, nice: NICE }
        })
    }
}

/// A source under test and its traffic.
pub struct Setup<'a> {
    pub scheme: &'static str,
    pub feed: TrafficFeed,
    pub traffic: &'a mut Traffic,
    pub cores: &'a CoreAssignment,
    pub stop: &'a AtomicBool,
    pub balance: Balance,
}

#[derive(Clone, Debug)]
pub struct Trial {
    /// Frames offered per second.
    pub offered_pps: f64,
    /// Packets received by the consumer per second of the measurement.
    pub received_pps: f64,
    /// Packets offered, warm-up included.
    pub offered_packets: u64,
    /// Packets lost, at any place.
    pub lost_packets: u64,
    /// CPU time per packet of each pipeline thread, ns.
    pub thread_ns: Vec<f64>,
    /// CPU time per packet of the exporter thread, ns.
    pub exporter_ns: f64,
    /// CPU time per flow record of the exporter thread, ns; `None` without records.
    pub exporter_ns_per_record: Option<f64>,
}

impl Trial {
    /// CPU time per packet of all pipeline threads, ns.
    pub fn cost_ns(&self) -> f64 {
        self.thread_ns.iter().sum()
    }
}

impl Setup<'_> {
    pub fn open(&mut self) -> Result<Box<dyn LiveSource + Send>, Error> {
        let name = match &mut self.feed {
            TrafficFeed::Veth(_) => format!("{}:{RECEIVING_END}", self.scheme),
            TrafficFeed::Dpdk(device) => device.next(),
        };
        let mut queues = name.parse::<LiveSpec>()?.open()?;
        match queues.pop() {
            Some(source) if queues.is_empty() => Ok(source),
            _ => Err(Error::SeveralQueues(name)),
        }
    }

    /// Returns [`Error::Interrupted`] if the caller has set the stop flag.
    pub fn check_interrupted(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Runs one trial at `rate` packets per second, or at full speed.
    pub fn trial(
        &mut self,
        kind: ConsumerKind,
        pinned: bool,
        rate: Option<f64>,
        time: Duration,
    ) -> Result<Trial, Error> {
        self.check_interrupted()?;
        let consumer = Consumer::start(kind, self.open()?, self.cores.pipeline_affinities(pinned), IDLE_TIMEOUT)?;
        let before = self.lost_on_veth()?;
        let sent = SentFrames::default();
        self.send(rate, time.mul_f64(WARM_UP_SHARE), &sent, || ())?;
        let first = consumer.status()?;
        let warm_up: u64 = sent.counts().iter().sum();
        let start = Instant::now();
        let (took, ()) = self.send(rate, time, &sent, || ())?;
        let [accepted, refused] = sent.counts();
        let (last, elapsed) = match &self.feed {
            TrafficFeed::Veth(_) => (wait_for_packets(&consumer, accepted - (veth::lost()? - before))?, took),
            TrafficFeed::Dpdk(_) => (consumer.status()?, start.elapsed()),
        };
        let end = consumer.finish()?;
        let lost = self.account([accepted, refused], before, &end, kind)?;
        let packets = (last.packets.received - last.lost()).saturating_sub(first.packets.received - first.lost());
        let per = |ns: u64, of: u64| ns as f64 / (of as f64).max(1.0);
        let busy = last.cpu_time_ns.iter().zip(&first.cpu_time_ns).map(|(last, first)| last.saturating_sub(*first));
        let exporter_ns = last.exporter_cpu_time_ns.saturating_sub(first.exporter_cpu_time_ns);
        let records = last.records - first.records;
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let received_pps = packets as f64 / seconds;
        Ok(Trial {
            offered_pps: if self.is_veth() { (accepted + refused - warm_up) as f64 / seconds } else { received_pps },
            received_pps,
            offered_packets: if self.is_veth() { accepted + refused } else { end.packets.received },
            lost_packets: lost,
            thread_ns: busy.map(|ns| per(ns, packets)).collect(),
            exporter_ns: per(exporter_ns, packets),
            exporter_ns_per_record: (records > 0).then(|| per(exporter_ns, records)),
        })
    }

    /// Whether this benchmark sends the packets, at a rate of its choice.
    pub fn is_veth(&self) -> bool {
        matches!(self.feed, TrafficFeed::Veth(_))
    }

    /// Frames lost on the veth pair since its creation.
    pub fn lost_on_veth(&self) -> Result<u64, Error> {
        if self.is_veth() { veth::lost() } else { Ok(0) }
    }

    /// Sends for `time` (a DPDK device generates packets anyway) and runs `meanwhile` at the same time.
    pub fn send<T>(
        &mut self,
        rate: Option<f64>,
        time: Duration,
        sent: &SentFrames,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Duration, T), Error> {
        match &mut self.feed {
            TrafficFeed::Veth(veth) => veth.send(self.traffic, rate, time, (sent, self.stop), meanwhile),
            TrafficFeed::Dpdk(_) => {
                let start = Instant::now();
                let done = meanwhile();
                while start.elapsed() < time && !self.stop.load(Ordering::Relaxed) {
                    thread::sleep(POLL_INTERVAL.min(time.saturating_sub(start.elapsed())));
                }
                Ok((start.elapsed(), done))
            }
        }
    }

    /// Adds a run to this source's balance and returns the packets it lost. `before`: frames lost on
    /// the veth pair before the run; `end`: the consumer's final counters.
    ///
    /// # Errors
    /// [`Error::LostCount`] if the counters do not add up.
    pub fn account(
        &mut self,
        [accepted, refused]: [u64; 2],
        before: u64,
        end: &ConsumerStatus,
        kind: ConsumerKind,
    ) -> Result<u64, Error> {
        let packets = &end.packets;
        let run = Balance {
            runs: 1,
            sent: if self.is_veth() { accepted + refused } else { packets.received },
            metered: packets.metered,
            undecoded: packets.refused.total(),
            filtered: packets.filtered,
            refused,
            veth: self.lost_on_veth()? - before,
            nic: packets.dropped_nic,
            kernel: packets.dropped_kernel,
            queue: packets.dropped_queue,
            cache: packets.dropped_cache_full,
        };
        if !run.holds() {
            let case = format!("{}, {}", self.scheme, kind.name());
            return Err(Error::LostCount { case, what: run.to_string() });
        }
        self.balance.add(&run);
        Ok(run.lost())
    }
}

/// Waits until a consumer has counted `packets`, at most [`ARRIVAL_TIMEOUT`].
pub fn wait_for_packets(consumer: &Consumer, packets: u64) -> Result<ConsumerStatus, Error> {
    let start = Instant::now();
    loop {
        let status = consumer.status()?;
        if status.packets.received >= packets || start.elapsed() > ARRIVAL_TIMEOUT {
            return Ok(status);
        }
        thread::sleep(POLL_INTERVAL);
    }
}
