//! Memory of the tables before the meter needs it.
//!
//! The system clears each page of memory when it is touched for the first time. In 2 MiB pages that
//! takes 0.1 to 1.5 ms at a time, in which the meter processes no packet. A thread of its own can
//! have it done before: the meter tells it which slots come next ([`crate::free_slots`]).

use crate::free_slots::FlowKind;
use crate::mapped_array::ArrayMemory;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Blocks that wait for the thread at most. It is late then, and the meter touches the memory.
const QUEUE_BLOCKS: usize = 16;

/// Provides the memory of the slots that a meter will use next.
#[derive(Debug)]
pub struct MemoryAhead {
    blocks: Receiver<(FlowKind, Range<u32>)>,
    /// For all flows, and for TCP flows.
    tables: Vec<ArrayMemory>,
    of_tcp: ArrayMemory,
}

impl MemoryAhead {
    pub(crate) fn new(tables: Vec<ArrayMemory>, of_tcp: ArrayMemory) -> (Self, BlockNotices) {
        let (sender, blocks) = sync_channel(QUEUE_BLOCKS);
        (Self { blocks, tables, of_tcp }, BlockNotices(Some(sender)))
    }

    /// Provides memory until the meter is dropped. For a thread of its own, on another core than
    /// that of the meter.
    pub fn run(self) {
        for (kind, slots) in self.blocks {
            let of_tcp = (kind == FlowKind::Tcp).then_some(&self.of_tcp);
            // Without this advice (Linux before 5.14) the meter touches the memory itself.
            if self.tables.iter().chain(of_tcp).any(|table| table.provide(slots.clone()).is_err()) {
                return;
            }
        }
    }
}

/// Where a meter tells which slots come next.
#[derive(Debug, Default)]
pub(crate) struct BlockNotices(Option<SyncSender<(FlowKind, Range<u32>)>>);

impl BlockNotices {
    #[cold]
    pub fn send(&self, kind: FlowKind, slots: Range<u32>) {
        if let Some(sender) = &self.0 {
            let _ = sender.try_send((kind, slots));
        }
    }
}
