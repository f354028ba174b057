//! The door between sources and the rest of the house.

use arrayvec::ArrayVec;
use std::path::PathBuf;
use std::time::Duration;

/// Frames per burst, at most.
pub const BURST: usize = 64;

/// One captured frame, borrowed from its source until the next burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The bytes that were captured: as many as the snap length left.
    pub bytes: &'a [u8],
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Octets on the wire, at least `bytes.len()`.
    pub wire_bytes: u32,
    /// LINKTYPE number (the tcpdump registry): 1 is Ethernet.
    pub link: u16,
    /// The capture gave no time, or one outside 1970-2554: `time_ns` is that of the frame before, or the nearest possible.
    pub time_clamped: bool,
    /// Number of the interface: within the input, 0 for pcap, the interface block's number for pcapng; of live traffic the system's
    /// (`ip link`), for DPDK the port's.
    pub interface: u32,
}

/// Up to [`BURST`] frames in the order of capture; empty only if a live source has none for now.
pub type Burst<'a> = ArrayVec<Frame<'a>, BURST>;

/// How far a source has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Octets of input consumed (compressed octets if the input is compressed).
    pub done_bytes: u64,
    /// Octets of input altogether, if known.
    pub total_bytes: Option<u64>,
}

/// Packets that a live source knows of and could not hand over, since it was opened, by who lost them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The card, or its driver.
    pub card: u64,
    /// The kernel, or the ring that it shares with us: we were too slow.
    pub kernel: u64,
    /// Queues of our own.
    pub ring: u64,
}

impl Losses {
    /// Those of two sources together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self { card: self.card + more.card, kernel: self.kernel + more.kernel, ring: self.ring + more.ring }
    }
}

/// How long a live source waits for frames at most, before it hands over none.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// Whatever hands over frames: a capture that has an end, or live traffic, which has one when it is told to stop.
pub trait Source {
    /// Puts the next frames into an empty burst; false, and none, at the end. A live source that has none for
    /// [`PATIENCE`] leaves it empty. After an error, which gives none either, the
    /// next call goes on behind the damage if that is possible, else it is the end: every frame before the damage has
    /// been delivered.
    ///
    /// # Errors
    /// Damaged or unreadable input, with the place.
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error>;

    /// The next frames in a burst of their own; `None` at the end.
    ///
    /// # Errors
    /// As [`Source::fill`].
    fn burst(&mut self) -> Result<Option<Burst<'_>>, Error> {
        let mut burst = Burst::new();
        Ok(self.fill(&mut burst)?.then_some(burst))
    }

    /// How far it has come; cheap enough to ask once per burst.
    fn progress(&self) -> Progress;

    /// What time it is by the clock that stamps the frames, ns since 1970 UTC: of live sources only.
    fn now_ns(&self) -> Option<u64> {
        None
    }

    /// No frame that has come by now, read or not, has a later time than this, ns since 1970 UTC; one that is stamped when it is read
    /// has an earlier one than this was a tenth of a second later. Of live sources only.
    fn latest_ns(&self) -> Option<u64> {
        self.now_ns()
    }

    /// What was lost so far; of live sources, which may ask the system.
    fn losses(&mut self) -> Losses {
        Losses::default()
    }

    /// A live source waits for frames so long at most from now on, instead of [`PATIENCE`].
    fn wait_at_most(&mut self, _patience: Duration) {}

    /// Takes in nothing more: what has come already is still handed over, and then comes the end. Captures end by themselves.
    fn stop(&mut self) {}
}

/// Input that cannot be read, wholly or from some place on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened or read.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// Not a capture of any kind that Weir reads.
    #[error("{path}: {what}", path = path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// What it looks like, and what Weir reads.
        what: String,
    },
    /// Live traffic that cannot be opened, or broke off.
    #[error("{name}: {what}")]
    Live {
        /// The source as the user wrote it.
        name: String,
        /// What is wrong, and what to do about it.
        what: String,
    },
    /// A capture that is damaged at some place.
    #[error("{path}: at byte {offset}: {what}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, in octets from the start of the (decompressed) capture.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
}
