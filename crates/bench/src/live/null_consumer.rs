//! Consumer that takes frames from a source and counts them: the least that any consumer must do.

use crate::error::Error;
use crate::live::status::{ANSWER_TIMEOUT, ConsumerStatus, lock};
use crate::measure::thread_cpu_time_ns;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_capture::{BURST, Burst, LiveSource, Losses};
use weir_ledger::{RefusalReason, TrafficCounters};
use weir_packet::Packet;
use weir_probe::CpuAffinity;

/// A null consumer on a thread of its own.
pub struct NullConsumer {
    mailbox: Arc<StatusMailbox>,
    thread: JoinHandle<()>,
}

/// Shared between the consumer's thread and its owner.
#[derive(Default)]
struct StatusMailbox {
    /// Number of the last status query.
    query: AtomicU64,
    stop: AtomicBool,
    /// Number of the last answered query, and the answer.
    answer: Mutex<(u64, ConsumerStatus)>,
    error: Mutex<Option<weir_capture::Error>>,
}

impl NullConsumer {
    /// Starts the thread. With `decode` it also decodes each frame.
    pub fn start(source: Box<dyn LiveSource + Send>, affinity: CpuAffinity, decode: bool) -> Result<Self, Error> {
        let mailbox = Arc::new(StatusMailbox::default());
        let for_thread = mailbox.clone();
        let thread = thread::Builder::new().name("null".into()).spawn(move || {
            affinity.apply();
            consume(source, &for_thread, decode);
        });
        Ok(Self { mailbox, thread: thread.map_err(Error::Thread)? })
    }

    /// Queries the thread for its counters.
    pub fn status(&self) -> Result<ConsumerStatus, Error> {
        let query = self.mailbox.query.fetch_add(1, Ordering::Relaxed) + 1;
        let start = Instant::now();
        loop {
            if self.thread.is_finished() || start.elapsed() > ANSWER_TIMEOUT {
                return Err(match lock(&self.mailbox.error).take() {
                    Some(error) => error.into(),
                    None => Error::Consumer("the null consumer does not answer".into()),
                });
            }
            let answer = lock(&self.mailbox.answer);
            if answer.0 >= query {
                return Ok(answer.1.clone());
            }
            drop(answer);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the thread and returns its final counters.
    pub fn finish(self) -> Result<ConsumerStatus, Error> {
        self.mailbox.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match lock(&self.mailbox.error).take() {
            Some(error) => Err(error.into()),
            None => Ok(lock(&self.mailbox.answer).1.clone()),
        }
    }
}

fn consume(mut source: Box<dyn LiveSource + Send>, mailbox: &StatusMailbox, decode: bool) {
    let (mut packets, mut answered, mut stopped) = (TrafficCounters::default(), 0, false);
    let mut decoded: Box<[Packet; BURST]> = Box::new([Packet::default(); BURST]);
    loop {
        let mut burst = Burst::new();
        let more = match source.fill(&mut burst) {
            Ok(more) => more,
            Err(error) => {
                *lock(&mailbox.error) = Some(error);
                return;
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
        let query = mailbox.query.load(Ordering::Relaxed);
        if query != answered || !more {
            answered = query;
            let Losses { nic, kernel, ring } = source.losses();
            (packets.dropped_nic, packets.dropped_kernel, packets.dropped_ring) = (nic, kernel, ring);
            packets.received = packets.metered + packets.refused.total() + nic + kernel + ring;
            let cpu_time_ns = vec![thread_cpu_time_ns()];
            *lock(&mailbox.answer) =
                (query, ConsumerStatus { packets: packets.clone(), cpu_time_ns, ..ConsumerStatus::default() });
        }
        if !more {
            return;
        }
        if !stopped && mailbox.stop.load(Ordering::Relaxed) {
            stopped = true;
            source.stop();
        }
    }
}
