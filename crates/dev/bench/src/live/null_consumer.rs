//! Consumer that takes frames from a source and counts them: the least that any consumer must do.

use crate::error::Error;
use crate::live::status::{ANSWER_TIMEOUT, ConsumerStatus};
use crate::measure::thread_cpu_time_ns;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use weir_capture::{Burst, LiveSource, Losses, MAX_BURST_FRAMES};
use weir_ledger::{RefusalReason, TrafficCounters};
use weir_packet::Packet;
use weir_probe::CpuAffinity;

type Answer = Result<ConsumerStatus, weir_capture::Error>;

/// A null consumer on a thread of its own.
pub struct NullConsumer {
    /// Each query is the channel for its answer. The thread stops when no further query can come.
    queries: Sender<Sender<Answer>>,
    thread: JoinHandle<Answer>,
}

impl NullConsumer {
    /// Starts the thread. With `decode` it also decodes each frame.
    pub fn start(source: Box<dyn LiveSource + Send>, affinity: CpuAffinity, decode: bool) -> Result<Self, Error> {
        let (queries, received) = mpsc::channel();
        let thread = thread::Builder::new().name("null".into()).spawn(move || {
            affinity.apply();
            consume(source, &received, decode)
        });
        Ok(Self { queries, thread: thread.map_err(Error::io("cannot start a thread"))? })
    }

    /// Queries the thread for its counters.
    pub fn status(&self) -> Result<ConsumerStatus, Error> {
        let (query, answer) = mpsc::channel();
        // If the thread has ended, no answer comes.
        let _ = self.queries.send(query);
        match answer.recv_timeout(ANSWER_TIMEOUT) {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::Consumer("the null consumer does not answer".into())),
        }
    }

    /// Stops the thread and returns its final counters.
    pub fn finish(self) -> Result<ConsumerStatus, Error> {
        drop(self.queries);
        Ok(self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    }
}

fn consume(mut source: Box<dyn LiveSource + Send>, queries: &Receiver<Sender<Answer>>, decode: bool) -> Answer {
    let (mut packets, mut stopped) = (TrafficCounters::default(), false);
    let mut decoded: Box<[Packet; MAX_BURST_FRAMES]> = Box::new([Packet::default(); MAX_BURST_FRAMES]);
    loop {
        let mut burst = Burst::new();
        let more = match source.fill(&mut burst) {
            Ok(more) => more,
            Err(error) => {
                // The error answers the next query, or is the result.
                let Ok(query) = queries.recv() else { return Err(error) };
                let _ = query.send(Err(error));
                return Ok(ConsumerStatus::default());
            }
        };
        if decode {
            for (frame, packet) in burst.iter().zip(decoded.iter_mut()) {
                if crate::meter::decode(frame, packet) {
                    packets.metered += 1;
                } else {
                    // The benchmark does not report the actual reason.
                    packets.refused.count(RefusalReason::NonIp);
                }
            }
        } else {
            packets.metered += burst.len() as u64;
        }
        drop(burst);
        match queries.try_recv() {
            Ok(query) => drop(query.send(Ok(status(&mut packets, &mut *source)))),
            Err(TryRecvError::Disconnected) if !stopped => {
                stopped = true;
                source.stop();
            }
            Err(_) => {}
        }
        if !more {
            return Ok(status(&mut packets, &mut *source));
        }
    }
}

fn status(packets: &mut TrafficCounters, source: &mut dyn LiveSource) -> ConsumerStatus {
    let Losses { nic, kernel, queue } = source.query_losses();
    (packets.dropped_nic, packets.dropped_kernel, packets.dropped_queue) = (nic, kernel, queue);
    packets.received = packets.metered + packets.refused.total() + nic + kernel + queue;
    let cpu_time_ns = vec![thread_cpu_time_ns()];
    ConsumerStatus { packets: packets.clone(), cpu_time_ns, ..ConsumerStatus::default() }
}
