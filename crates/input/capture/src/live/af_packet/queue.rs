//! One receive queue: reads its ring block by block and counts its packets.
//!
//! ```text
//! fill: deliver the next frames of the current block; at its end release it and take the next one;
//!       if none is ready, wait for at most the poll timeout
//! stop: set a filter that drops everything; the kernel still delivers the rest of the ring; the
//!       end is reached when packets counted = delivered + dropped
//! ```
//! Cost per frame: a header read and a counter update. A burst never spans two blocks, so a block
//! is released when the next burst begins in another one. System calls: one to wait if no block is
//! ready.

use super::block::{BlockCursor, FrameProperties};
use super::program;
use super::ring::{RETIRE_MS, Ring};
use super::settings::Settings;
use super::socket::{self, Socket};
use super::stamp_clock::StampClock;
use crate::clock;
use crate::clock::ClockSteps;
use crate::error::Error;
use crate::live::counters::InterfaceCounters;
use crate::live::interface::Interface;
use crate::live_error::LiveError;
use crate::source::{Burst, Frame, LiveSource, Losses, POLL_TIMEOUT, Progress, Source};
use crate::system::{self, realtime_ns};
use std::time::{Duration, Instant};
use tracing::warn;

/// Upper bound of the time that the kernel holds a frame in a block not yet full, with a margin.
pub(super) const HELD_NS: u64 = 5 * RETIRE_MS as u64 * 1_000_000;
/// Packets that the kernel counted but has not delivered this long after the stop, or after the
/// last block, are lost.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// With a poll timeout of 0: time between two checks whether the interface exists.
const INTERFACE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct Queue {
    /// The source as the user wrote it.
    name: String,
    interface: Interface,
    settings: Settings,
    /// Waits for another interface of the same name if this one is removed.
    waits: bool,
    rebind_tried: Instant,
    /// The log says that the present interface of the name is of another kind.
    is_refusal_logged: bool,
    socket: Socket,
    ring: Ring,
    properties: FrameProperties,
    delivered: Delivered,
    stamp_clock: StampClock,
    /// Counters of the interface; only in the first queue.
    counters: Option<InterfaceCounters>,
    /// The current or next block.
    block: usize,
    /// Position in the block; `None` if it was not ready yet.
    cursor: Option<BlockCursor>,
    state: State,
    kernel: KernelCounts,
    poll_timeout: Duration,
    interface_checked: Instant,
}

/// Frames delivered, and the times of their clock.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    has_nic_timestamps: bool,
    last_ns: u64,
    /// System time at delivery minus time stamp of the last frame; 0 for time stamps of the kernel.
    delay_ns: u64,
    packets: u64,
    /// Smallest `delay_ns` so far: an upper bound of the NIC clock's lag behind the system's clock.
    least_delay_ns: u64,
    bytes: u64,
}

impl Delivered {
    /// The time of the system. Frames with time stamps of the NIC follow the steps of its clock.
    fn now_ns(&self) -> u64 {
        if self.has_nic_timestamps { realtime_ns() } else { clock::now_ns() }
    }

    fn count(&mut self, frames: &[Frame<'_>]) {
        self.packets += frames.len() as u64;
        self.bytes += frames.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
        if let Some(last) = frames.last() {
            self.last_ns = last.time_ns;
            if self.has_nic_timestamps {
                self.delay_ns = realtime_ns().saturating_sub(last.time_ns);
                self.least_delay_ns = self.least_delay_ns.min(self.delay_ns);
            }
        }
    }
}

/// Packets since the source was opened, by the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct KernelCounts {
    /// Received or dropped.
    counted: u64,
    /// Dropped because the ring was full.
    dropped: u64,
    /// In invalid blocks, or never delivered.
    missing: u64,
}

impl KernelCounts {
    /// Packets that the kernel counted and that are neither delivered nor known to be lost.
    fn outstanding(&self, delivered: u64) -> u64 {
        self.counted.saturating_sub(delivered + self.dropped + self.missing)
    }
}

/// What a queue delivers next, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Frames, of which the latest has this time, ns.
    Frames(u64),
    /// No frame at the moment, and none with a time before this one, ns.
    NoneBefore(u64),
    Ended,
}

#[derive(Debug)]
enum State {
    Live,
    /// It delivers what the kernel has already received.
    Draining {
        /// Time of the stop or of the last frame.
        since: Instant,
        /// Why it ends, if it was not stopped.
        error: Option<LiveError>,
    },
    Ended,
}

impl Queue {
    /// A queue of a socket that already receives.
    pub(super) fn new(
        name: &str,
        interface: Interface,
        settings: Settings,
        link_type: u16,
        (socket, ring): (Socket, Ring),
        counters: Option<InterfaceCounters>,
    ) -> Self {
        let has_nic_timestamps = settings.hardware;
        let least_delay_ns = if has_nic_timestamps { u64::MAX } else { 0 };
        let delivered = Delivered { has_nic_timestamps, last_ns: 0, delay_ns: 0, least_delay_ns, packets: 0, bytes: 0 };
        Self {
            name: name.into(),
            properties: FrameProperties { link_type, snap_bytes: settings.snap_bytes, interface: interface.index },
            interface,
            settings,
            waits: false,
            rebind_tried: Instant::now(),
            is_refusal_logged: false,
            socket,
            ring,
            delivered,
            stamp_clock: StampClock::default(),
            counters,
            block: 0,
            cursor: None,
            state: State::Live,
            kernel: KernelCounts::default(),
            poll_timeout: POLL_TIMEOUT,
            interface_checked: Instant::now(),
        }
    }

    fn advance_to_frame(&mut self) -> bool {
        loop {
            match self.cursor {
                Some(BlockCursor { left: 1.., .. }) => return true,
                Some(_) => {
                    self.ring.release(self.block);
                    self.block = self.ring.after(self.block);
                    self.cursor = None;
                }
                None => match self.ring.block(self.block) {
                    Some(block) => {
                        self.cursor = Some(BlockCursor::new(block));
                        self.update_stamp_clock(self.delivered.last_ns);
                    }
                    None => {
                        self.note_empty_ring();
                        return false;
                    }
                },
            }
        }
    }

    /// Compares the clocks, for time stamps of the kernel. No frame before `delivered_ns` is left.
    fn update_stamp_clock(&mut self, delivered_ns: u64) {
        if !self.delivered.has_nic_timestamps {
            self.stamp_clock.update(clock::steps(), clock::now_ns(), delivered_ns);
        }
    }

    fn note_empty_ring(&mut self) {
        let now_ns = clock::now_ns();
        if now_ns.saturating_sub(self.stamp_clock.compared_ns) >= HELD_NS {
            self.update_stamp_clock(now_ns - HELD_NS);
        }
    }

    /// Waits for a frame. Returns false if there is none at the moment, or none any more.
    fn wait_for_frame(&mut self) -> Result<bool, Error> {
        let until = Instant::now() + self.poll_timeout;
        loop {
            if self.advance_to_frame() {
                return Ok(true);
            }
            self.end_if_drained()?;
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() || matches!(self.state, State::Ended) {
                // With a poll timeout of 0 the interface is checked here.
                if now - self.interface_checked >= INTERFACE_CHECK_INTERVAL {
                    self.check_interface();
                }
                return Ok(false);
            }
            match self.socket.wait(left) {
                Ok(()) => {}
                // The interface is down: it may come up again, or be removed.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {}
                Err(error) => return Err(self.error(LiveError::Io("wait for packets".into(), error))),
            }
            self.check_interface();
        }
    }

    fn check_interface(&mut self) {
        self.interface_checked = Instant::now();
        if !matches!(self.state, State::Live) || !matches!(self.socket.bound_hardware_type(), Ok(None)) {
            return;
        }
        if !self.waits {
            self.drain(LiveError::InterfaceRemoved);
        } else if self.rebind_tried.elapsed() >= INTERFACE_CHECK_INTERVAL {
            self.rebind_tried = Instant::now();
            self.rebind();
        }
    }

    fn drain(&mut self, error: LiveError) {
        self.state = State::Draining { since: Instant::now(), error: Some(error) };
    }

    /// Binds the socket to an interface of the same name and kind, if there is one that is up. The ring
    /// is empty. Needs no capability.
    fn rebind(&mut self) {
        let Interface { name, hardware_type, .. } = &self.interface;
        let Some(index) = system::interface_index(name).filter(|_| system::is_up(name).unwrap_or(false)) else {
            return;
        };
        match system::hardware_type(name) {
            Ok(found) if found == *hardware_type => {}
            Ok(found) => {
                if !std::mem::replace(&mut self.is_refusal_logged, true) {
                    let (source, error) = (&self.name, LiveError::OtherKind(found));
                    warn!(source, %error, "interface cannot be captured, waiting for another one of its name");
                }
                return;
            }
            Err(_) => return,
        }
        if self.socket.bind(index as i32).is_err() {
            return;
        }
        match self.socket.bound_hardware_type() {
            Ok(Some(found)) if found != *hardware_type => return self.drain(LiveError::HardwareType(found)),
            Ok(Some(_)) => {}
            // It is removed again.
            _ => return,
        }
        if self.settings.promiscuous
            && let Err(error) = self.socket.enable_promiscuous_mode(index)
        {
            if system::interface_index(name) != Some(index) {
                return;
            }
            return self.drain(LiveError::Io("enable promiscuous mode again".into(), error));
        }
        (self.properties.interface, self.is_refusal_logged) = (index, false);
        self.counters.iter_mut().for_each(|counters| counters.follow(index));
    }

    /// Ends the queue when everything is delivered, or the kernel delivers nothing any more.
    fn end_if_drained(&mut self) -> Result<(), Error> {
        let State::Draining { since, .. } = self.state else { return Ok(()) };
        self.query_kernel();
        let outstanding = self.kernel.outstanding(self.delivered.packets);
        if outstanding > 0 && since.elapsed() < DRAIN_TIMEOUT {
            return Ok(());
        }
        self.kernel.missing += outstanding;
        let State::Draining { error, .. } = std::mem::replace(&mut self.state, State::Ended) else { return Ok(()) };
        let undelivered = (outstanding > 0).then_some(LiveError::Undelivered(outstanding));
        match error.or(undelivered) {
            Some(cause) => Err(self.error(cause)),
            None => Ok(()),
        }
    }

    /// Adds the kernel's counters, which restart from 0 at each query.
    fn query_kernel(&mut self) {
        if matches!(self.state, State::Ended) {
            return;
        }
        if let Ok([packets, drops]) = self.socket.statistics() {
            self.kernel.counted += packets;
            self.kernel.dropped += drops;
        }
    }

    fn error(&self, cause: LiveError) -> Error {
        Error::Live { name: self.name.clone(), cause }
    }

    /// Returns the time of the next frames, without waiting: at most `frames` frames of one block.
    ///
    /// # Errors
    /// As [`Source::fill`].
    pub(super) fn peek(&mut self, frames: usize) -> Result<Next, Error> {
        if !self.advance_to_frame() {
            self.end_if_drained()?;
            self.check_interface();
            if matches!(self.state, State::Ended) {
                return Ok(Next::Ended);
            }
            let is_unknown = self.delivered.has_nic_timestamps && self.delivered.last_ns == 0;
            return Ok(Next::NoneBefore(if is_unknown { u64::MAX } else { self.now_ns() }));
        }
        let (Some(cursor), Some(block)) = (self.cursor, self.ring.block(self.block)) else {
            return Ok(Next::NoneBefore(0));
        };
        // Without a valid frame, no other queue has to wait for this one.
        let mut stamp_clock = self.stamp_clock;
        Ok(Next::Frames(cursor.latest_ns(block, frames, |ns| stamp_clock.convert(ns)).unwrap_or(u64::MAX)))
    }

    /// Delivers up to `frames` frames of the current block, none with a time after `until_ns`.
    pub fn take<'a>(&'a mut self, frames: usize, until_ns: u64, burst: &mut Burst<'a>) {
        let from = burst.len();
        let (Some(cursor), Some(block)) = (&mut self.cursor, self.ring.block(self.block)) else { return };
        let (mut left, mut stamp_clock) = (frames, self.stamp_clock);
        let accepts = |stamp_ns| {
            let accepted = left > 0 && stamp_clock.convert(stamp_ns) <= until_ns;
            left = left.saturating_sub(1);
            accepted
        };
        self.kernel.missing += u64::from(cursor.fill(block, self.properties, burst, accepts));
        self.stamp_clock.convert_frames(&mut burst[from..]);
        self.delivered.count(&burst[from..]);
        if let State::Draining { since, .. } = &mut self.state
            && burst.len() > from
        {
            *since = Instant::now();
        }
    }

    /// Returns whether half of the ring waits to be read.
    pub fn is_half_full(&self) -> bool {
        self.ring.is_ready(self.ring.half_after(self.block))
    }
}

impl Source for Queue {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.wait_for_frame()? {
            return Ok(!matches!(self.state, State::Ended));
        }
        if let State::Draining { since, .. } = &mut self.state {
            *since = Instant::now();
        }
        let (Some(cursor), Some(block)) = (&mut self.cursor, self.ring.block(self.block)) else { return Ok(true) };
        self.kernel.missing += u64::from(cursor.fill(block, self.properties, burst, |_| true));
        self.stamp_clock.convert_frames(burst);
        self.delivered.count(burst);
        Ok(true)
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        vec![(self.properties.interface, self.interface.name.clone())]
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.delivered.bytes, total_bytes: None }
    }
}

impl LiveSource for Queue {
    /// While frames wait to be read, this is the time of the last frame that was delivered.
    fn now_ns(&self) -> u64 {
        let now_ns = self.delivered.now_ns();
        let has_frames = match self.cursor {
            Some(BlockCursor { left: 1.., .. }) => true,
            Some(_) => self.ring.is_ready(self.ring.after(self.block)),
            None => self.ring.is_ready(self.block),
        };
        // Before the first frame, the offset of the NIC's clock is unknown.
        let Delivered { has_nic_timestamps, last_ns, delay_ns, .. } = self.delivered;
        let is_unknown = has_nic_timestamps && last_ns == 0;
        let idle_ns = if has_frames || is_unknown { 0 } else { now_ns.saturating_sub(delay_ns + HELD_NS) };
        idle_ns.max(last_ns)
    }

    fn latest_ns(&self) -> u64 {
        // The delay of the NIC's clock is known only up to the time that its frames waited in the
        // ring.
        let uncertainty_ns = if self.delivered.has_nic_timestamps { HELD_NS } else { 0 };
        self.delivered.now_ns().saturating_sub(self.delivered.least_delay_ns) + uncertainty_ns
    }

    fn clock_steps(&self) -> ClockSteps {
        if self.delivered.has_nic_timestamps { ClockSteps::default() } else { clock::steps() }
    }

    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.poll_timeout = timeout;
    }

    fn wait_for_interface(&mut self) -> bool {
        self.waits = self.settings.can_wait();
        self.waits
    }

    fn query_losses(&mut self) -> Losses {
        self.query_kernel();
        let nic = self.counters.as_mut().map_or(0, |counters| counters.lost().nic);
        Losses { nic, kernel: self.kernel.dropped + self.kernel.missing, queue: 0 }
    }

    fn stop(&mut self) {
        if !matches!(self.state, State::Live) {
            return;
        }
        let stopped = self.socket.set_filter(&program::drop_filter());
        socket::wait_for_cpus();
        let error = stopped.err().map(LiveError::io("stop receiving"));
        self.state = State::Draining { since: Instant::now(), error };
    }
}
