//! What the threads of a pipeline do, to the end of its source: one that does all, or those that read and those that meter, with
//! queues of packets between them.
//!
//! ```text
//! fused    source -> Reader -> Metering
//! split    source -> Reader -> mesh -> Metering
//! ```

use crate::desk::Desk;
use crate::looks::Histories;
use crate::mesh::{In, Out};
use crate::metering::Metering;
use crate::pipeline::Pipeline;
use crate::reader::{Packets, Reader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{BURST, Input, POLL_TIMEOUT};
use weir_packet::Packet;

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
    fn is_now(&mut self, source: &mut Input<'_>) -> bool {
        if !self.stopped && self.signal.load(Ordering::Relaxed) {
            self.stopped = true;
            let Some(live) = source.live() else { return true };
            live.stop();
            // What is still on its way is waited for.
            live.set_poll_timeout(POLL_TIMEOUT);
        }
        false
    }
}

/// One thread that does all.
pub(crate) fn fused(mut source: Input<'_>, mut pipeline: Pipeline, desk: &Desk, mut stop: Stop) {
    let mut answered = 0;
    loop {
        match pipeline.process_burst(&mut source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => desk.say(error.to_string()),
        }
        if let Some(number) = desk.question(&mut answered) {
            desk.answer(number, |change| {
                pipeline.record_losses(&mut source);
                change.iter().for_each(|settings| pipeline.reconfigure(settings));
                (pipeline.account(), pipeline.take_filter_errors().iter().map(ToString::to_string).collect())
            });
        }
        if stop.is_now(&mut source) {
            break;
        }
    }
    desk.end(pipeline.finish());
}

/// A thread that reads.
pub(crate) fn read(mut source: Input<'_>, mut reader: Reader, mut out: Out, desk: &Desk, mut stop: Stop) {
    let mut packets: Packets = Box::new([Packet::default(); BURST]);
    let (mut answered, mut looked) = (0, Instant::now());
    loop {
        if let Some(live) = source.live()
            && (reader.is_time_to_look() || out.is_asked())
        {
            out.look(&mut reader, live);
        }
        match reader.read(&mut source, &mut packets) {
            Ok(Some((count, waits))) => {
                out.hand_over(&mut packets[..count], &mut reader);
                if let Some(last) = packets[..count].last() {
                    out.is_at(last.time_ns);
                }
                if waits && looked.elapsed() >= POLL_TIMEOUT {
                    looked = Instant::now();
                    source.live().into_iter().for_each(|live| out.is_at(live.now_ns()));
                }
            }
            Ok(None) => break,
            Err(error) => desk.say(error.to_string()),
        }
        if let Some(number) = desk.question(&mut answered) {
            desk.answer(number, |change| {
                source.live().into_iter().for_each(|live| out.look(&mut reader, live));
                change.iter().for_each(|settings| reader.change(settings));
                (reader.account(), reader.filter_errors().iter().map(ToString::to_string).collect())
            });
        }
        out.take_order(source.live().map(|live| live as _));
        if stop.is_now(&mut source) || out.is_abandoned() {
            break;
        }
    }
    if let Some(live) = source.live() {
        out.finish(reader.look(live, false));
    }
    drop(out);
    desk.end(reader.account());
}

/// A thread that meters.
pub(crate) fn meter(mut metering: Metering, mut from: In, busy_poll: bool, desk: &Desk) {
    let (mut answered, mut idle) = (0, 0_u32);
    loop {
        // Asked first: what was handed over before the readers ended, or before that time, is there then.
        let (last, now_ns) = (from.is_abandoned(), from.now_ns());
        let (count, all) = from.absorb(&mut metering);
        metering.hear();
        from.go_on_moving(&mut metering);
        if count == 0 && last && from.may_end() {
            break;
        }
        if all {
            metering.wait(|| now_ns);
        }
        metering.export_when_due(Histories::ask);
        idle = if count == 0 { idle.saturating_add(1) } else { 0 };
        if idle > LOOKS && !busy_poll {
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
    // What was due by the time at which the readers ended is due here, whoever had the last packets.
    from.now_ns().into_iter().for_each(|now_ns| metering.is_at(now_ns));
    metering.hear();
    desk.end(metering.finish());
}
