//! What every source offers: bursts of frames, and for live sources losses, clock and end.

use crate::clock::{self, ClockSteps};
use crate::error::{Damage, Error};
use arrayvec::ArrayVec;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Largest number of frames in a burst.
pub const MAX_BURST_FRAMES: usize = 64;

/// Longest time a live source waits for frames before it returns an empty burst.
pub const POLL_TIMEOUT: Duration = Duration::from_millis(100);

/// Number of the first interface of a capture. Collectors take 0 for an unknown interface.
pub const FIRST_INTERFACE: u32 = 1;

/// One captured frame, borrowed from its source until the next burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Captured bytes; the snap length may have cut the end off. Of link type [`DECODED_LINK_TYPE`]: the
    /// body of a packet record.
    ///
    /// [`DECODED_LINK_TYPE`]: crate::files::format::DECODED_LINK_TYPE
    pub bytes: &'a [u8],
    /// Time of capture, ns since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Length on the wire in bytes; at least `bytes.len()`, except of a decoded packet.
    pub wire_bytes: u32,
    /// LINKTYPE number of the tcpdump registry: 1 is Ethernet.
    pub link_type: u16,
    /// The capture holds no time for this frame, or one outside 1970-2554. `time_ns` is then the
    /// time of the previous frame or the nearest possible time.
    pub time_assumed: bool,
    /// Interface number. pcap: 1; pcapng: number of the interface block, plus 1; live: the kernel's
    /// interface index (`ip link`); DPDK: port number, plus 1.
    pub interface: u32,
}

/// Memory that is never changed by its owner, and shared between threads.
pub type SharedMemory = Arc<dyn FrameMemory>;

/// The memory in which the bytes of all frames of a source are. If it is a mapped file, other processes
/// can truncate it. Lost bytes read as zeros.
pub trait FrameMemory: Send + Sync {
    /// Returns all bytes, lost ones included.
    fn bytes(&self) -> &[u8];

    /// Returns whether a lost byte was read. Cheap enough for one call per burst.
    fn has_loss(&self) -> bool {
        false
    }

    /// Returns what is lost, read or not. Costs a system call.
    fn loss(&self) -> Option<Loss> {
        None
    }
}

/// What of a mapped file is lost.
#[derive(Debug)]
pub struct Loss {
    pub(crate) path: PathBuf,
    /// Bytes before the first lost one.
    pub(crate) intact_bytes: usize,
    pub(crate) cause: Damage,
}

impl Loss {
    /// The error that reports it after this number of packets.
    pub(crate) fn into_error(self, packets: u64) -> Error {
        Error::Damaged { path: self.path, offset: self.intact_bytes as u64, packets, cause: self.cause }
    }
}

impl FrameMemory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Up to [`MAX_BURST_FRAMES`] frames in capture order; empty only if a live source has none now.
pub type Burst<'a> = ArrayVec<Frame<'a>, MAX_BURST_FRAMES>;

/// How much of its input a source has consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Consumed bytes of the input (compressed bytes if the input is compressed).
    pub done_bytes: u64,
    /// Size of the whole input in bytes, if known.
    pub total_bytes: Option<u64>,
}

/// Packets that a live source lost since it was opened, by the place of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Lost by the NIC or its driver.
    pub nic: u64,
    /// Dropped by the kernel, or by the receive ring that the kernel fills.
    pub kernel: u64,
    /// Lost by Weir: no packet buffer (DPDK), or a length that is unknown (AF_XDP).
    pub queue: u64,
}

impl Losses {
    /// Sum of the losses of two sources.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self { nic: self.nic + more.nic, kernel: self.kernel + more.kernel, queue: self.queue + more.queue }
    }
}

/// A finite or live sequence of frames, delivered in bursts.
pub trait Source {
    /// Puts the next frames into an empty burst. Returns false, and no frames, at the end.
    ///
    /// A live source that receives nothing within its poll timeout leaves the burst empty and
    /// returns true.
    ///
    /// # Errors
    /// Damaged or unreadable input, with its place. All frames before the damage have been
    /// delivered, and the burst is empty. The next call continues behind the damage if that is
    /// possible, otherwise it returns the end.
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error>;

    /// Returns the next frames in a new burst; `None` at the end.
    ///
    /// # Errors
    /// As [`Source::fill`].
    fn burst(&mut self) -> Result<Option<Burst<'_>>, Error> {
        let mut burst = Burst::new();
        Ok(self.fill(&mut burst)?.then_some(burst))
    }

    /// Returns the names of interfaces, as far as known, by the number in [`Frame::interface`].
    fn interfaces(&self) -> Vec<(u32, String)> {
        Vec::new()
    }

    /// Returns the packets that were lost when a finite source was recorded, as far as it says so, once
    /// it has ended.
    fn recorded_losses(&self) -> Losses {
        Losses::default()
    }

    /// Returns the memory in which the bytes of all frames are and stay, so that they can be read
    /// after the next burst; `None` if they are somewhere else.
    fn memory(&self) -> Option<SharedMemory> {
        None
    }

    /// Returns how much of the input has been consumed. Cheap enough for one call per burst.
    fn progress(&self) -> Progress;
}

/// A source of live traffic: it waits for frames, can lose them, has a clock, and ends when it is
/// stopped.
pub trait LiveSource: Source {
    /// Sets how long `fill` waits for frames; initially [`POLL_TIMEOUT`].
    fn set_poll_timeout(&mut self, timeout: Duration);

    /// Returns the losses so far. May query the kernel or the driver.
    fn query_losses(&mut self) -> Losses;

    /// Returns the current time of the clock that stamps frames, ns since 1970-01-01 UTC without the
    /// steps of [`LiveSource::clock_steps`]; never later than the time of a frame that is still to be delivered.
    fn now_ns(&self) -> u64;

    /// Returns an upper bound of the times of all frames received so far, delivered or not, ns
    /// since 1970-01-01 UTC. If frames are stamped on delivery, this bound holds for those
    /// received until 0.1 s before the call, as by default.
    fn latest_ns(&self) -> u64 {
        self.now_ns()
    }

    /// Returns how often the system's clock was set, which does not change the times of frames. No
    /// steps if the frames have the times of another clock.
    fn clock_steps(&self) -> ClockSteps {
        clock::steps()
    }

    /// From now on, if an interface is removed, the source waits until there is one of the same name,
    /// instead of ending with an error. Returns false, and changes nothing, if it cannot.
    fn wait_for_interface(&mut self) -> bool;

    /// Stops receiving. Frames that have already arrived are still delivered; then `fill` returns
    /// false.
    fn stop(&mut self);
}

/// A source that is finite or live.
pub enum Input<'a> {
    /// Capture files, pipes, generated traffic.
    File(Box<dyn Source + Send + 'a>),
    /// A receive queue.
    Live(Box<dyn LiveSource + Send + 'a>),
}

impl Input<'_> {
    fn source(&self) -> &dyn Source {
        match self {
            Self::File(source) => &**source,
            Self::Live(source) => &**source,
        }
    }

    /// Returns the live source, if it is one.
    #[inline]
    pub fn live(&mut self) -> Option<&mut (dyn LiveSource + Send)> {
        match self {
            Self::File(_) => None,
            Self::Live(source) => Some(&mut **source),
        }
    }
}

impl Source for Input<'_> {
    #[inline]
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        match self {
            Self::File(source) => source.fill(burst),
            Self::Live(source) => source.fill(burst),
        }
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.source().interfaces()
    }

    fn recorded_losses(&self) -> Losses {
        self.source().recorded_losses()
    }

    fn progress(&self) -> Progress {
        self.source().progress()
    }
}
