//! One trial: a source opened, a consumer on it, traffic for a while, and an account of it to the packet.

use crate::Error;
use crate::live::consumer::{Consumer, Seen, What};
use crate::live::device::Device;
use crate::live::report::Balance;
use crate::live::traffic::Traffic;
use crate::live::wire::{self, RIGHT, Sent, Wire};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::LiveSource;
use weir_probe::CpuAffinity;

/// Idle timeout of the flows, and how long ended ones are kept. Conversations pass within fractions of a second here, and are to end as
/// often as they begin.
pub const IDLE: Duration = Duration::from_millis(200);
/// The first part of a trial is not measured: tables fill, and the system provides their memory.
const WARM: f64 = 0.25;
/// How long packets that were sent are waited for. Whoever has not seen them by then has lost them uncounted.
const BOUND: Duration = Duration::from_secs(60);
/// How often a consumer is asked meanwhile.
const LOOK: Duration = Duration::from_millis(10);
/// How far pipelines are raised above other threads, as `weir probe` raises them.
const NICE: i32 = -10;

/// Where threads run.
#[derive(Clone, Debug)]
pub struct Cores {
    /// Who sends.
    pub sender: usize,
    /// Who receives: all others, or the same if there is no other.
    pub receivers: Vec<usize>,
}

impl Cores {
    /// Of those on which this program may run.
    pub fn read() -> Self {
        let there = rustix::thread::sched_getaffinity(None);
        let is_there = |core: &usize| there.as_ref().is_ok_and(|there| there.is_set(*core));
        let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(is_there);
        let sender = cores.next().unwrap_or(0);
        let mut receivers: Vec<_> = cores.collect();
        if receivers.is_empty() {
            receivers.push(sender);
        }
        Self { sender, receivers }
    }

    /// The place of a sender.
    pub fn of_sender(&self) -> CpuAffinity {
        CpuAffinity { cores: vec![self.sender], nice: NICE }
    }

    /// Places of both threads of a pipeline.
    pub fn of_pipeline(&self, pinned: bool) -> [CpuAffinity; 2] {
        [0, 1].map(|thread| {
            let core = self.receivers[thread % self.receivers.len()];
            CpuAffinity { cores: if pinned { vec![core] } else { Vec::new() }, nice: NICE }
        })
    }
}

/// Where packets come from.
pub enum Feed {
    /// Through a wire, to a source of the kernel (`af_packet`, `af_xdp`).
    Wire(Box<Wire>),
    /// From a device of DPDK that makes them itself.
    Device(Device),
}

/// A source, and what it is fed.
pub struct Bed<'a> {
    pub scheme: &'static str,
    pub feed: Feed,
    pub traffic: &'a mut Traffic,
    pub cores: &'a Cores,
    pub stop: &'a AtomicBool,
    pub balance: Balance,
}

/// What a trial came to.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Frames offered a second.
    pub offered_pps: f64,
    /// Packets taken by the consumer a second while they were measured.
    pub taken_pps: f64,
    /// Packets offered altogether.
    pub all: u64,
    /// Those of them that did not get through, whoever lost them.
    pub lost: u64,
    /// Processor time of each thread per packet, ns.
    pub ns: Vec<f64>,
    /// The same of the exporter's thread.
    pub exporter_ns: f64,
    /// The same of the exporter's thread, per record; none if there were none.
    pub record_ns: Option<f64>,
}

impl Trial {
    /// Processor time of the pipeline's threads per packet, ns.
    pub fn cost_ns(&self) -> f64 {
        self.ns.iter().sum()
    }
}

impl Bed<'_> {
    /// Opens the source anew.
    pub fn open(&mut self) -> Result<Box<dyn LiveSource + Send>, Error> {
        let name = match &mut self.feed {
            Feed::Wire(_) => format!("{}:{RIGHT}", self.scheme),
            Feed::Device(device) => device.next(),
        };
        let mut queues = weir_capture::open_live(&name)?;
        match queues.pop() {
            Some(source) if queues.is_empty() => Ok(source),
            _ => Err(Error::Live(format!("{name}: not one queue"))),
        }
    }

    /// Whether it was told to stop.
    pub fn interrupted(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Runs one trial, at a rate or as fast as it goes.
    pub fn trial(&mut self, what: What, pinned: bool, rate: Option<f64>, time: Duration) -> Result<Trial, Error> {
        self.interrupted()?;
        let source = self.open()?;
        let consumer = Consumer::begin(what, source, self.cores.of_pipeline(pinned), IDLE)?;
        let before = self.wire_lost()?;
        let sent = Sent::default();
        self.send(rate, time.mul_f64(WARM), &sent, || ())?;
        let first = consumer.ask()?;
        let warm = offered(&sent);
        let began = Instant::now();
        let more = Sent::default();
        let (took, ()) = self.send(rate, time, &more, || ())?;
        let all = offered(&sent) + offered(&more);
        let (last, measured) = match &self.feed {
            Feed::Wire(_) => {
                let frames = sent.frames.load(Ordering::Relaxed) + more.frames.load(Ordering::Relaxed);
                let arrived = frames - (wire::lost()? - before);
                (arrive(&consumer, arrived)?, took)
            }
            Feed::Device(_) => (consumer.ask()?, began.elapsed()),
        };
        let end = consumer.finish()?;
        let refused = sent.refused.load(Ordering::Relaxed) + more.refused.load(Ordering::Relaxed);
        let lost = self.account(all, refused, before, &end, what)?;
        let packets = (last.packets.received - last.lost()).saturating_sub(first.packets.received - first.lost());
        let per = |ns: u64, of: u64| ns as f64 / (of as f64).max(1.0);
        let busy = last.busy_ns.iter().zip(&first.busy_ns).map(|(last, first)| last.saturating_sub(*first));
        let exporter_ns = last.exporter_ns.saturating_sub(first.exporter_ns);
        let records = last.records - first.records;
        let seconds = measured.as_secs_f64().max(1e-9);
        let taken_pps = packets as f64 / seconds;
        Ok(Trial {
            offered_pps: if self.is_wire() { (all - warm) as f64 / seconds } else { taken_pps },
            taken_pps,
            all: if self.is_wire() { all } else { end.packets.received },
            lost,
            ns: busy.map(|ns| per(ns, packets)).collect(),
            exporter_ns: per(exporter_ns, packets),
            record_ns: (records > 0).then(|| per(exporter_ns, records)),
        })
    }

    /// Whether packets are sent by us, at a rate that we choose.
    pub fn is_wire(&self) -> bool {
        matches!(self.feed, Feed::Wire(_))
    }

    /// Frames that the wire has lost since it was made.
    pub fn wire_lost(&self) -> Result<u64, Error> {
        if self.is_wire() { wire::lost() } else { Ok(0) }
    }

    /// Sends, or lets the device be, while something else is done.
    pub fn send<T>(
        &mut self,
        rate: Option<f64>,
        time: Duration,
        sent: &Sent,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Duration, T), Error> {
        match &mut self.feed {
            Feed::Wire(wire) => wire.send(self.traffic, rate, time, (sent, self.stop), meanwhile),
            Feed::Device(_) => {
                let began = Instant::now();
                let done = meanwhile();
                while began.elapsed() < time && !self.stop.load(Ordering::Relaxed) {
                    thread::sleep(LOOK.min(time.saturating_sub(began.elapsed())));
                }
                Ok((began.elapsed(), done))
            }
        }
    }

    /// Enters a run into the balance of this source: frames offered, of which the kernel refused some; what the wire had lost before it
    /// began; what the consumer knows at its end. Gives how many did not get through.
    pub fn account(&mut self, offered: u64, refused: u64, before: u64, end: &Seen, what: What) -> Result<u64, Error> {
        let wire = self.wire_lost()? - before;
        let packets = &end.packets;
        let offered = if self.is_wire() { offered } else { packets.received };
        let run = Balance {
            runs: 1,
            sent: offered,
            metered: packets.metered,
            undecoded: packets.refused.total(),
            filtered: packets.filtered,
            refused,
            wire,
            card: packets.dropped_nic,
            kernel: packets.dropped_kernel,
            ring: packets.dropped_ring,
            table: packets.dropped_table_full,
        };
        if !run.holds() {
            let who = format!("{}, {}", self.scheme, what.name());
            return Err(Error::LostCount { who, what: run.to_string() });
        }
        self.balance.add(&run);
        Ok(run.lost())
    }
}

fn offered(sent: &Sent) -> u64 {
    sent.frames.load(Ordering::Relaxed) + sent.refused.load(Ordering::Relaxed)
}

/// Waits until a consumer knows of so many packets, or for longer than they can take.
pub fn arrive(consumer: &Consumer, packets: u64) -> Result<Seen, Error> {
    let began = Instant::now();
    loop {
        let seen = consumer.ask()?;
        if seen.packets.received >= packets || began.elapsed() > BOUND {
            return Ok(seen);
        }
        thread::sleep(LOOK);
    }
}
