//! One queue as a [`Source`]: block after block of its ring, with its account.
//!
//! ```text
//! fill: frames left in the block of the last burst -> more of them
//!       else give the block back, and take the next; none ready -> wait, at most POLL_TIMEOUT
//! stop: a filter that drops all; the kernel hands over what is in the ring, the last block after its time;
//!       the end is where packets counted = handed over + dropped
//! ```
//! Budget per frame: its header is read, and a counter kept. A burst lies in one block, so a block may be given back as soon as
//! the next burst needs another. System calls: one to wait, if no block is ready.

use super::block::{Format, Walk};
use super::program;
use super::ring::Ring;
use super::socket::{self, Socket};
use crate::counters::Counters;
use crate::{Burst, Error, Frame, LiveSource, Losses, POLL_TIMEOUT, Progress, Source};
use std::io;
use std::time::{Duration, Instant};

/// How long a frame may wait in a block that is not full, generously: frames older than this have been handed over to us.
const HELD_NS: u64 = 100_000_000;
/// What the kernel counted but has not handed over so long after the source was stopped, or the block before, is lost.
const DRAIN: Duration = Duration::from_secs(2);

/// One queue.
pub(super) struct Queue {
    /// The source as the user wrote it.
    name: String,
    socket: Socket,
    ring: Ring,
    format: Format,
    handed: Handed,
    /// Of the first queue.
    card: Option<Counters>,
    /// The block that is read, or will be next.
    block: usize,
    /// How far it was read; `None` if it was not ours yet.
    walk: Option<Walk>,
    state: State,
    account: Account,
    /// How long it waits for frames.
    poll_timeout: Duration,
    /// When it was asked last whether the interface is there.
    looked: Instant,
}

/// What was handed over.
#[derive(Clone, Copy, Debug)]
struct Handed {
    /// Times are those of the card.
    hardware: bool,
    /// Time of the last frame.
    last_ns: u64,
    /// How far the times of frames are behind the system's clock; measured at the last frame of a burst.
    behind_ns: u64,
    packets: u64,
    /// The least of it so far: by so much the card's clock is behind; 0 for times by the system's.
    least_behind_ns: u64,
    octets: u64,
}

impl Handed {
    fn note(&mut self, frames: &[Frame<'_>]) {
        self.packets += frames.len() as u64;
        self.octets += frames.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
        if let Some(last) = frames.last() {
            self.last_ns = last.time_ns;
            if self.hardware {
                self.behind_ns = socket::realtime_ns().saturating_sub(last.time_ns);
                self.least_behind_ns = self.least_behind_ns.min(self.behind_ns);
            }
        }
    }
}

/// Packets since the source was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// By the kernel: all that it took in or dropped.
    counted: u64,
    /// Dropped by the kernel, as the ring was full.
    dropped: u64,
    /// In blocks that made no sense, or never came.
    missing: u64,
}

impl Account {
    /// Counted, but neither here nor known to be lost.
    fn open(&self, handed: u64) -> u64 {
        self.counted.saturating_sub(handed + self.dropped + self.missing)
    }
}

/// What comes next from a queue, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Frames, the latest of them of this time, ns.
    Frames(u64),
    /// None for now, and none before this time, ns.
    NoneBefore(u64),
    /// Nothing more.
    Ended,
}

/// What is to come.
#[derive(Debug)]
enum State {
    /// More and more.
    Live,
    /// What the kernel has taken in already; since a moment when there was some of it.
    Draining {
        since: Instant,
        /// Why, if nobody stopped it.
        trouble: Option<String>,
    },
    /// Nothing.
    Ended,
}

impl Queue {
    /// Reads the ring of a socket that takes in frames already.
    pub fn new(
        name: String,
        socket: Socket,
        ring: Ring,
        format: Format,
        hardware: bool,
        card: Option<Counters>,
    ) -> Self {
        let (state, account) = (State::Live, Account::default());
        let (walk, block) = (None, 0);
        let least_behind_ns = if hardware { u64::MAX } else { 0 };
        let handed = Handed { hardware, last_ns: 0, behind_ns: 0, least_behind_ns, packets: 0, octets: 0 };
        let (poll_timeout, looked) = (POLL_TIMEOUT, Instant::now());
        Self { name, socket, ring, format, handed, card, block, walk, state, account, poll_timeout, looked }
    }

    /// Whether a frame is there to be read, without waiting.
    fn has_frame(&mut self) -> bool {
        loop {
            match self.walk {
                Some(Walk { left: 1.., .. }) => return true,
                Some(_) => {
                    self.ring.release(self.block);
                    self.block = self.ring.after(self.block);
                    self.walk = None;
                }
                None => match self.ring.block(self.block) {
                    Some(block) => self.walk = Some(Walk::new(block)),
                    None => return false,
                },
            }
        }
    }

    /// Waits for a frame. `false`: there is none for now, or none any more.
    fn settle(&mut self) -> Result<bool, Error> {
        let until = Instant::now() + self.poll_timeout;
        loop {
            if self.has_frame() {
                return Ok(true);
            }
            self.end_if_drained()?;
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() || matches!(self.state, State::Ended) {
                // Whoever never waits learns here that there is nothing to wait for.
                if now - self.looked >= POLL_TIMEOUT {
                    self.look_for_interface();
                }
                return Ok(false);
            }
            match self.socket.wait(left) {
                Ok(()) => {}
                // It comes back, or is removed.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {}
                Err(error) => return Err(self.trouble(error.to_string())),
            }
            self.look_for_interface();
        }
    }

    /// An interface that was removed gives nothing more.
    fn look_for_interface(&mut self) {
        self.looked = Instant::now();
        if matches!(self.state, State::Live) && matches!(self.socket.bound_to(), Ok(None)) {
            let trouble = "the interface was removed; what it gave until then was metered".to_string();
            self.state = State::Draining { since: Instant::now(), trouble: Some(trouble) };
        }
    }

    /// When all is handed over, or nothing comes any more, that is the end.
    fn end_if_drained(&mut self) -> Result<(), Error> {
        let State::Draining { since, .. } = self.state else { return Ok(()) };
        self.count();
        let open = self.account.open(self.handed.packets);
        if open > 0 && since.elapsed() < DRAIN {
            return Ok(());
        }
        self.account.missing += open;
        let State::Draining { trouble, .. } = std::mem::replace(&mut self.state, State::Ended) else { return Ok(()) };
        let never = (open > 0).then(|| format!("the kernel counted {open} packets that it did not hand over"));
        match trouble.or(never) {
            Some(what) => Err(self.trouble(what)),
            None => Ok(()),
        }
    }

    /// Asks the kernel what it counted; it starts from 0 then.
    fn count(&mut self) {
        if matches!(self.state, State::Ended) {
            return;
        }
        if let Ok(counted) = self.socket.statistics() {
            self.account.counted += counted.packets;
            self.account.dropped += counted.drops;
        }
    }

    fn trouble(&self, what: String) -> Error {
        Error::Live { name: self.name.clone(), what }
    }

    /// What is to come next, without waiting: of so many frames at most, all of one block.
    ///
    /// # Errors
    /// As [`Source::fill`].
    pub fn ahead(&mut self, frames: usize) -> Result<Ahead, Error> {
        if !self.has_frame() {
            self.end_if_drained()?;
            self.look_for_interface();
            if matches!(self.state, State::Ended) {
                return Ok(Ahead::Ended);
            }
            let is_unknown = self.handed.hardware && self.handed.last_ns == 0;
            let now_ns = if is_unknown { None } else { Some(self.now_ns()) };
            return Ok(Ahead::NoneBefore(now_ns.unwrap_or(u64::MAX)));
        }
        let (Some(walk), Some(block)) = (self.walk, self.ring.block(self.block)) else {
            return Ok(Ahead::NoneBefore(0));
        };
        // What makes no sense is not waited for.
        Ok(Ahead::Frames(walk.latest_ns(block, frames).unwrap_or(u64::MAX)))
    }

    /// Hands over so many of these at most, up to a time.
    pub fn take<'a>(&'a mut self, frames: usize, until_ns: u64, burst: &mut Burst<'a>) {
        let from = burst.len();
        let (Some(walk), Some(block)) = (&mut self.walk, self.ring.block(self.block)) else { return };
        let mut left = frames;
        let goes = |time_ns| {
            let goes = left > 0 && time_ns <= until_ns;
            left = left.saturating_sub(1);
            goes
        };
        self.account.missing += u64::from(walk.fill(block, self.format, burst, goes));
        self.handed.note(&burst[from..]);
        if let State::Draining { since, .. } = &mut self.state
            && burst.len() > from
        {
            *since = Instant::now();
        }
    }

    /// Whether half of the ring waits to be read.
    pub fn is_half_full(&self) -> bool {
        self.ring.is_ready(self.ring.half_after(self.block))
    }
}

impl Source for Queue {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.settle()? {
            return Ok(!matches!(self.state, State::Ended));
        }
        if let State::Draining { since, .. } = &mut self.state {
            *since = Instant::now();
        }
        let (Some(walk), Some(block)) = (&mut self.walk, self.ring.block(self.block)) else { return Ok(true) };
        self.account.missing += u64::from(walk.fill(block, self.format, burst, |_| true));
        self.handed.note(burst);
        Ok(true)
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.handed.octets, total_bytes: None }
    }
}

impl LiveSource for Queue {
    /// While frames wait to be read, this is the time of the last frame that was delivered.
    fn now_ns(&self) -> u64 {
        let now_ns = socket::realtime_ns();
        let is_behind = match self.walk {
            Some(Walk { left: 1.., .. }) => true,
            Some(_) => self.ring.is_ready(self.ring.after(self.block)),
            None => self.ring.is_ready(self.block),
        };
        // The card's clock may be any; before its first frame nothing is known of it.
        let Handed { hardware, last_ns, behind_ns, .. } = self.handed;
        let is_unknown = hardware && last_ns == 0;
        let ahead = if is_behind || is_unknown { 0 } else { now_ns.saturating_sub(behind_ns + HELD_NS) };
        ahead.max(last_ns)
    }

    fn latest_ns(&self) -> u64 {
        // By how much the card's clock is behind is known as exactly as the frame tells that waited least.
        let ahead = if self.handed.hardware { HELD_NS } else { 0 };
        socket::realtime_ns().saturating_sub(self.handed.least_behind_ns) + ahead
    }

    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.poll_timeout = timeout;
    }

    fn losses(&mut self) -> Losses {
        self.count();
        let nic = self.card.as_mut().map_or(0, |card| card.lost().card);
        Losses { nic, kernel: self.account.dropped + self.account.missing, ring: 0 }
    }

    fn stop(&mut self) {
        if !matches!(self.state, State::Live) {
            return;
        }
        let stopped: io::Result<()> = self.socket.filter(&program::nothing());
        socket::settle();
        let trouble = stopped.err().map(|error| format!("cannot be stopped: {error}"));
        self.state = State::Draining { since: Instant::now(), trouble };
    }
}
