//! What goes from an output to the thread that writes, and what comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use weir_ledger::PacketTotals;

/// Octets of a chunk; only a single longer frame exceeds them.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;

/// Packet blocks of one output. The interface field of a block has the number of [`Frame::interface`].
pub(crate) struct Chunk {
    pub blocks: Vec<u8>,
    /// End of each block, and the link type of its frame.
    pub frames: Vec<(usize, u16)>,
    pub counters: Arc<WrittenCounters>,
    /// Where the empty chunk goes back to.
    pub home: Sender<Chunk>,
}

impl Chunk {
    /// Gives the empty chunk back to its output.
    pub fn give_back(mut self) {
        self.blocks.clear();
        self.blocks.shrink_to(CHUNK_BYTES);
        self.frames.clear();
        let home = self.home.clone();
        // The output may be gone.
        let _ = home.send(self);
    }
}

/// What the writing thread did with the frames of an output.
#[derive(Debug, Default)]
pub(crate) struct WrittenCounters {
    written: [AtomicU64; 2],
    failed: [AtomicU64; 2],
    /// The output waits no longer, and has counted what is left as failed.
    pub is_abandoned: AtomicBool,
}

impl WrittenCounters {
    pub fn written(&self) -> PacketTotals {
        Self::totals(&self.written)
    }

    pub fn failed(&self) -> PacketTotals {
        Self::totals(&self.failed)
    }

    pub fn add_written(&self, packets: PacketTotals) {
        Self::add(&self.written, packets);
    }

    pub fn add_failed(&self, packets: PacketTotals) {
        Self::add(&self.failed, packets);
    }

    fn add([packets, octets]: &[AtomicU64; 2], more: PacketTotals) {
        octets.fetch_add(more.octets, Relaxed);
        packets.fetch_add(more.packets, Relaxed);
    }

    fn totals([packets, octets]: &[AtomicU64; 2]) -> PacketTotals {
        PacketTotals { packets: packets.load(Relaxed), octets: octets.load(Relaxed) }
    }
}
