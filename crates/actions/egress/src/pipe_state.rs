//! What the pipelines and the writer of a pipe output share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use weir_ledger::{OutputDropReason, PacketTotals};

const NO_LINK_TYPE: u32 = u32::MAX;

/// What the writer counts of one queue, in packets and their octets.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub sent: SharedTotals,
    /// Dropped from the queue, in the order of [`DROPPED`].
    pub dropped: [SharedTotals; 3],
    /// The writer drops what is in the queue.
    pub gives_up: AtomicBool,
}

/// Reasons for which the writer drops packets.
pub(crate) const DROPPED: [OutputDropReason; 3] =
    [OutputDropReason::Closed, OutputDropReason::WriteFailed, OutputDropReason::QueueFull];

/// Packet totals that another thread reads.
#[derive(Debug, Default)]
pub(crate) struct SharedTotals {
    packets: AtomicU64,
    octets: AtomicU64,
}

impl SharedTotals {
    pub fn add(&self, totals: PacketTotals) {
        self.packets.fetch_add(totals.packets, Ordering::Relaxed);
        self.octets.fetch_add(totals.octets, Ordering::Relaxed);
    }

    pub fn get(&self) -> PacketTotals {
        PacketTotals { packets: self.packets.load(Ordering::Relaxed), octets: self.octets.load(Ordering::Relaxed) }
    }
}

/// What the queues and the writer of an output share.
#[derive(Debug)]
pub(crate) struct PipeState {
    /// The link type of the file, once there is a frame.
    link_type: AtomicU32,
    /// 0, or the place in [`DROPPED`] of the reason for which nothing can be written, plus 1.
    refusal: AtomicU8,
    /// Pipelines that have not finished.
    pub pipelines: AtomicUsize,
    /// The writer has ended.
    pub has_ended: AtomicBool,
}

impl PipeState {
    pub fn new(pipelines: usize) -> Self {
        Self {
            link_type: AtomicU32::new(NO_LINK_TYPE),
            refusal: AtomicU8::new(0),
            pipelines: AtomicUsize::new(pipelines),
            has_ended: AtomicBool::new(false),
        }
    }

    pub fn link_type(&self) -> Option<u16> {
        u16::try_from(self.link_type.load(Ordering::Relaxed)).ok()
    }

    /// The link type of the file, which is this one if there is none yet.
    pub fn link_type_or(&self, link_type: u16) -> u32 {
        let set = self.link_type.compare_exchange(NO_LINK_TYPE, link_type.into(), Ordering::Relaxed, Ordering::Relaxed);
        set.err().unwrap_or(link_type.into())
    }

    pub fn set_refusal(&self, reason: Option<OutputDropReason>) {
        let place = reason.and_then(|reason| DROPPED.iter().position(|&known| known == reason));
        self.refusal.store(place.map_or(0, |place| place as u8 + 1), Ordering::Relaxed);
    }

    pub fn refusal(&self) -> Option<usize> {
        usize::from(self.refusal.load(Ordering::Relaxed)).checked_sub(1)
    }
}

/// Place of `QueueFull` in [`DROPPED`].
pub(crate) const QUEUE_FULL: usize = 2;
const _: () = assert!(matches!(DROPPED[QUEUE_FULL], OutputDropReason::QueueFull));
