//! What the threads of a worker group run until their source ends: everything (fused), or either
//! reading or metering (split, spread).
//!
//! ```text
//! fused            source -> ReadingStage -> MeteringStage
//! split, spread    source -> ReadingStage -> Dispatcher -> queues -> MeterInput -> MeteringStage
//! ```
//! A worker that panics still exports the flows that it has, and reports an account.

use crate::control_mailbox::ControlMailbox;
use crate::flow_search::RunningSearch;
use crate::heartbeat::{beat, catch_panic};
use crate::loss_channel::LossHistories;
use crate::metering_stage::{IDLE_CLOCK_INTERVAL, MeteringStage};
use crate::migration::{Dispatcher, MeterInput};
use crate::pipeline::Pipeline;
use crate::reading_stage::{PacketBurst, ReadingStage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{Input, MAX_BURST_FRAMES, POLL_TIMEOUT};
use weir_packet::Packet;

/// Polls of empty queues before a meter sleeps.
const IDLE_POLLS: u32 = 200;
/// Polls of empty queues between two checks whether a meter waits in vain for the end of a reader.
const POLLS_UNTIL_LATE: u32 = 100;
/// Sleep time of an idle meter: it doubles from the first to the second value.
const IDLE_SLEEP: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];

pub(crate) struct StopSignal {
    signal: Arc<AtomicBool>,
    was_stopped: bool,
}

impl StopSignal {
    pub fn new(signal: Arc<AtomicBool>) -> Self {
        Self { signal, was_stopped: false }
    }

    /// Stops a live source, once, if the signal is set: it ends after the frames that have arrived.
    /// Returns whether the worker has to end at once, without reading the rest of a file.
    fn apply(&mut self, source: &mut Input<'_>) -> bool {
        if !self.was_stopped && self.signal.load(Ordering::Relaxed) {
            self.was_stopped = true;
            let Some(live) = source.live() else { return true };
            live.stop();
            live.set_poll_timeout(POLL_TIMEOUT);
        }
        false
    }
}

pub(crate) fn run_fused(mut source: Input<'_>, mut pipeline: Pipeline, mailbox: &ControlMailbox, mut stop: StopSignal) {
    let run = || {
        let (mut last_request, mut search) = (0, None::<RunningSearch>);
        loop {
            beat();
            match pipeline.process_burst(&mut source) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => mailbox.add_error(error),
            }
            if let Some(request) = mailbox.new_request(&mut last_request) {
                mailbox.reply(request, |settings| {
                    pipeline.update_losses(&mut source);
                    settings.iter().for_each(|settings| pipeline.reconfigure(settings));
                    (pipeline.account(), pipeline.take_filter_errors())
                });
                search = mailbox.take_search().or(search);
            }
            if let Some(running) = search.take() {
                search = running.advance(&mut pipeline.metering.meter);
            }
            if stop.apply(&mut source) {
                break;
            }
        }
        pipeline.finish()
    };
    mailbox.finish(catch_panic(run).unwrap_or_else(|| pipeline.finish_after_panic()));
}

/// Reads and decodes packets and sends them to the meters.
pub(crate) fn run_reader(
    mut source: Input<'_>,
    mut reader: ReadingStage,
    mut dispatcher: Dispatcher,
    mailbox: &ControlMailbox,
    mut stop: StopSignal,
) {
    let read = || {
        let mut packets: PacketBurst = Box::new([Packet::default(); MAX_BURST_FRAMES]);
        let (mut last_request, mut clock_read) = (0, Instant::now());
        loop {
            beat();
            if let Some(live) = source.live()
                && (reader.losses.update_is_due() || dispatcher.snapshot_is_requested())
            {
                dispatcher.update_losses(&mut reader, live);
            }
            match reader.read(&mut source, &mut packets, |_, _| {}) {
                Ok(Some((count, burst_was_short))) => {
                    dispatcher.send(&mut packets[..count], &mut reader);
                    if let Some(last) = packets[..count].last() {
                        dispatcher.set_complete_until(last.time_ns);
                    }
                    if burst_was_short && clock_read.elapsed() >= IDLE_CLOCK_INTERVAL {
                        clock_read = Instant::now();
                        if let Some(live) = source.live() {
                            dispatcher.set_complete_until(live.now_ns());
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => mailbox.add_error(error),
            }
            if let Some(request) = mailbox.new_request(&mut last_request) {
                mailbox.reply(request, |settings| {
                    if let Some(live) = source.live() {
                        dispatcher.update_losses(&mut reader, live);
                    }
                    settings.iter().for_each(|settings| reader.reconfigure(settings));
                    (reader.account(), reader.take_filter_errors())
                });
            }
            dispatcher.apply_update(source.live().map(|live| live as _));
            if stop.apply(&mut source) || dispatcher.is_abandoned() {
                break;
            }
        }
        if let Some(live) = source.live() {
            dispatcher.send_last_snapshot(reader.update_losses(live, false));
        }
    };
    catch_panic(read);
    drop(dispatcher);
    mailbox.finish(reader.account());
}

/// Meters the packets of all readers.
pub(crate) fn run_meter(mut metering: MeteringStage, mut input: MeterInput, busy_poll: bool, mailbox: &ControlMailbox) {
    let run = || {
        let (mut last_request, mut idle_polls) = (0, 0_u32);
        let mut search = None::<RunningSearch>;
        loop {
            beat();
            // Before the queues are read: they then contain all packets that were sent before the
            // readers finished, or before that time.
            let is_late = || idle_polls % POLLS_UNTIL_LATE == POLLS_UNTIL_LATE - 1 && metering.is_late();
            let (readers_finished, now_ns) = (input.is_abandoned() || is_late(), input.complete_until_ns());
            let (count, emptied) = input.process(&mut metering);
            metering.receive_snapshots();
            input.migrate(&mut metering);
            if count == 0 && readers_finished && input.try_close() {
                break;
            }
            if emptied {
                metering.process_idle(|| now_ns);
            }
            metering.export_when_due(LossHistories::request);
            idle_polls = if count == 0 { idle_polls.saturating_add(1) } else { 0 };
            if idle_polls > IDLE_POLLS && !busy_poll {
                thread::sleep(IDLE_SLEEP[1].min(IDLE_SLEEP[0] * (1 << (idle_polls - IDLE_POLLS).min(10))));
            } else if idle_polls > 0 {
                std::hint::spin_loop();
            }
            if let Some(request) = mailbox.new_request(&mut last_request) {
                mailbox.reply(request, |settings| {
                    settings.iter().for_each(|settings| metering.reconfigure(settings));
                    (metering.account(), Vec::new())
                });
                search = mailbox.take_search().or(search);
            }
            if let Some(running) = search.take() {
                search = running.advance(&mut metering.meter);
            }
        }
        // End flows that had timed out when the readers finished: the meter that got the last packets
        // is the only one whose clock is at that time.
        if let Some(now_ns) = input.complete_until_ns() {
            metering.advance_time(now_ns);
        }
        metering.receive_snapshots();
        metering.finish()
    };
    mailbox.finish(catch_panic(run).unwrap_or_else(|| metering.finish_after_panic()));
}
