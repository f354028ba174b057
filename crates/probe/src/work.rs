//! What the threads of a pipeline do, to the end of its source: one that does all, or two with a queue of packets between them.
//!
//! ```text
//! fused    source -> Reader -> Metering
//! split    source -> Reader -> queue of packets -> Metering
//! ```
//! If the queue is full the reader of a capture waits; live packets are lost, and counted.

use crate::desk::Desk;
use crate::exporter::Behind;
use crate::looks::{Histories, Teller};
use crate::metering::Metering;
use crate::pipeline::Pipeline;
use crate::reader::{Packets, Reader};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{BURST, Source};
use weir_packet::Packet;

/// Packets in the queue between two threads: 2 MiB, some milliseconds at line rate.
const QUEUE: usize = 1 << 14;
/// Looks into an empty queue before the meter sleeps, and how long it sleeps: from the first to the second, doubling.
const LOOKS: u32 = 200;
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];

/// Whether a source is told to stop.
pub(crate) struct Stop {
    signal: Arc<AtomicBool>,
    stopped: bool,
}

impl Stop {
    pub fn new(signal: Arc<AtomicBool>) -> Self {
        Self { signal, stopped: false }
    }

    /// Passes it on to the source. Whether nothing more is to be read: the rest of a capture would go on coming.
    fn is_now(&mut self, source: &mut dyn Source) -> bool {
        if !self.stopped && self.signal.load(Ordering::Relaxed) {
            self.stopped = true;
            source.stop();
            return source.now_ns().is_none();
        }
        false
    }
}

/// One thread that does all.
pub(crate) fn fused(mut source: Box<dyn Source + Send>, mut pipeline: Pipeline, desk: &Desk, mut stop: Stop) {
    let mut answered = 0;
    loop {
        match pipeline.step(&mut *source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => desk.say(error.to_string()),
        }
        if let Some(number) = desk.question(&mut answered) {
            desk.answer(number, |change| {
                pipeline.look(&mut *source);
                change.iter().for_each(|settings| pipeline.change(settings));
                (pipeline.account(), pipeline.filter_errors().iter().map(ToString::to_string).collect())
            });
        }
        if stop.is_now(&mut *source) {
            break;
        }
    }
    desk.end(pipeline.finish());
}

/// The way from the first thread to the second.
pub(crate) struct Out {
    queue: Producer<Packet>,
    clock: Arc<AtomicU64>,
    looks: Teller,
    behind: Behind,
}

/// Its other end.
pub(crate) struct In {
    queue: Consumer<Packet>,
    /// Time by the clock of live packets, while few come; else 0.
    clock: Arc<AtomicU64>,
}

/// A queue between two threads, of which the first tells its looks this way.
pub(crate) fn queue(behind: Behind, looks: Teller) -> (Out, In) {
    let (producer, consumer) = RingBuffer::new(QUEUE);
    let clock = Arc::new(AtomicU64::new(0));
    (Out { queue: producer, clock: clock.clone(), looks, behind }, In { queue: consumer, clock })
}

/// The first of two threads.
pub(crate) fn read(mut source: Box<dyn Source + Send>, mut reader: Reader, mut out: Out, desk: &Desk, mut stop: Stop) {
    let mut packets: Packets = Box::new([Packet::default(); BURST]);
    let (mut answered, mut looked) = (0, Instant::now());
    loop {
        if reader.is_time_to_look() || out.looks.is_asked() {
            out.look(&mut reader, &mut *source);
        }
        match reader.read(&mut *source, &mut packets) {
            Ok(Some((count, waits))) => {
                out.hand_over(&packets[..count], &mut reader);
                if waits && looked.elapsed() >= weir_capture::PATIENCE {
                    looked = Instant::now();
                    out.clock.store(source.now_ns().unwrap_or(0), Ordering::Relaxed);
                }
            }
            Ok(None) => break,
            Err(error) => desk.say(error.to_string()),
        }
        if let Some(number) = desk.question(&mut answered) {
            desk.answer(number, |change| {
                out.look(&mut reader, &mut *source);
                change.iter().for_each(|settings| reader.change(settings));
                (reader.account(), reader.filter_errors().iter().map(ToString::to_string).collect())
            });
        }
        if stop.is_now(&mut *source) || out.queue.is_abandoned() {
            break;
        }
    }
    if let Some(look) = reader.look(&mut *source, false) {
        out.looks.finish(look);
    }
    desk.end(reader.account());
}

impl Out {
    fn look(&mut self, reader: &mut Reader, source: &mut dyn Source) {
        // Three quarters of it.
        let is_full = self.queue.slots() < QUEUE / 4;
        if let Some(look) = reader.look(source, is_full) {
            self.looks.tell(look);
        }
    }

    fn hand_over(&mut self, mut packets: &[Packet], reader: &mut Reader) {
        loop {
            let room = self.queue.slots().min(packets.len());
            if let Ok(chunk) = self.queue.write_chunk_uninit(room) {
                chunk.fill_from_iter(packets[..room].iter().copied());
            }
            packets = &packets[room..];
            if packets.is_empty() {
                return;
            }
            if self.behind == Behind::Lose || self.queue.is_abandoned() {
                return reader.lose(packets);
            }
            thread::sleep(NAPS[0]);
        }
    }
}

/// The second of two threads.
pub(crate) fn meter(mut metering: Metering, mut from: In, desk: &Desk) {
    let (mut answered, mut idle) = (0, 0_u32);
    loop {
        // Asked first: what was handed over before the first thread ended is there then.
        let last = from.queue.is_abandoned();
        let count = from.queue.slots().min(BURST);
        if let Ok(chunk) = from.queue.read_chunk(count) {
            let (first, second) = chunk.as_slices();
            metering.absorb(first);
            metering.absorb(second);
            chunk.commit_all();
            metering.hear();
        }
        if count == 0 && last {
            break;
        }
        if count < BURST {
            metering.wait(|| Some(from.clock.load(Ordering::Relaxed)).filter(|&now_ns| now_ns > 0));
        }
        metering.export_when_due(Histories::ask);
        idle = if count == 0 { idle.saturating_add(1) } else { 0 };
        if idle > LOOKS {
            thread::sleep(NAPS[1].min(NAPS[0] * (1 << (idle - LOOKS).min(10))));
        } else if idle > 0 {
            std::hint::spin_loop();
        }
        if let Some(number) = desk.question(&mut answered) {
            desk.answer(number, |change| {
                change.iter().for_each(|settings| metering.change(settings));
                (metering.account(), Vec::new())
            });
        }
    }
    metering.hear();
    desk.end(metering.finish());
}
