//! Reads a source on a thread of its own, ahead of the thread that asks for its bursts.
//!
//! ```text
//! reading thread: source.fill ─► queue of bursts ─► fill: thread of the caller
//!                           └◄─ empty bursts ◄──────┘
//! ```
//! The reading thread walks, maps, decompresses or merges. What `fill` returns is what the source
//! returned: the same bursts, and errors at the same places. If all frames of the source stay in its
//! memory, as those of a mapped file do, only their places are passed on; otherwise their bytes are
//! copied. If a mapped file is truncated after the thread has read it, `fill` reports that, and returns
//! none of the lost frames.
//!
//! The caller takes all bursts of the queue at once, so a lock is taken for each burst and threads wake
//! each other for each queue. The queue is bounded in bursts and in bytes of frames.

use crate::error::Damage;
use crate::error::Error;
use crate::files::merge::merge;
use crate::files::prefetch::prefetch;
use crate::files::read_ahead::RETAINED_BYTES;
use crate::source::{Burst, Frame, Loss, Losses, MAX_BURST_FRAMES, Progress, SharedMemory, Source};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Bursts in the queue at most. With 64 a run takes a tenth longer: frames come from the second-level
/// cache of the other core then, which is slower than the cache that all cores share.
const QUEUE_BURSTS: usize = 512;
/// Bytes of frames in the queue at most, unless a single burst has more: of frames that are copied, and
/// of those in the source's memory. That keeps [more](RETAINED_BYTES) mapped.
const COPIED_BYTES: usize = 2 * 1024 * 1024;
const MAPPED_BYTES: usize = RETAINED_BYTES / 2;
/// Frames of a mapped capture after which the caller's thread decides, and decides again as long as it
/// reads itself: a capture can begin with handshakes. And bytes of a frame, on average of all so far, from
/// which on a reading thread is useful. The CPU itself loads shorter records ahead, and a
/// reading thread takes half as much CPU time again as it saves the caller.
const TRIAL_FRAMES: usize = 1024;
const MIN_MEAN_BYTES: usize = 80;
/// Interfaces whose names are passed on once. Those of higher numbers are passed on with each burst.
const NAMED_INTERFACES: usize = 4096;
/// Larger buffers are not used again.
const MAX_KEPT_BYTES: usize = 128 * 1024;
/// The headers of most packets end in the second line.
const LINE_BYTES: usize = 64;

/// The number of reading threads that can be busy with this number of inputs: one, or with several
/// inputs one that merges them and one for each.
#[must_use]
pub fn useful_threads(inputs: usize) -> usize {
    if inputs > 1 { inputs + 1 } else { 1 }
}

/// A number of reading threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingThreads {
    /// This number, but not more than can be busy.
    UpTo(usize),
    /// The same, but none for a mapped capture of short frames, which it would not make faster.
    IfUseful(usize),
}

/// Merges inputs like [`merge`], and reads them on threads. They start with the first burst, or with a
/// later one if it depends on the frames. If the system cannot start one, the thread that asks for
/// bursts reads itself.
#[must_use]
pub fn read_on_threads(mut inputs: Vec<Box<dyn Source + Send>>, threads: ReadingThreads) -> Box<dyn Source + Send> {
    let (ReadingThreads::UpTo(most) | ReadingThreads::IfUseful(most)) = threads;
    let Some(of_inputs) = most.checked_sub(1) else { return merge(inputs) };
    if inputs.len() > 1 {
        let on_thread = |(number, source)| -> Box<dyn Source + Send> {
            if number < of_inputs {
                Box::new(ReadingThread::new(source, format!("weir-input-{}", number + 1)))
            } else {
                source
            }
        };
        inputs = inputs.into_iter().enumerate().map(on_thread).collect();
    }
    let mut reader = ReadingThread::new(merge(inputs), "weir-read".into());
    if matches!(threads, ReadingThreads::IfUseful(_)) && reader.memory.is_some() {
        reader.trial = Some(Trial::default());
    }
    Box::new(reader)
}

/// A source that is read on another thread.
struct ReadingThread {
    name: String,
    /// Until the thread starts; for good if the system cannot start it.
    source: Option<Box<dyn Source + Send>>,
    /// The memory of the source, if all frames are there.
    memory: Option<SharedMemory>,
    thread: Option<JoinHandle<()>>,
    is_started: bool,
    /// As long as the thread is not useful.
    trial: Option<Trial>,
    shared: Arc<Shared>,
    /// Taken from the queue.
    items: VecDeque<Item>,
    /// The burst that was returned last.
    burst: Option<ReadBurst>,
    /// Packets in all returned bursts.
    packets: u64,
    /// A loss behind the returned burst.
    pending: Option<Error>,
    /// A loss was found, by either thread, so that it is reported once.
    reports_loss: bool,
    /// Bursts for the reading thread to use again.
    used: Vec<ReadBurst>,
    progress: Progress,
    interfaces: Vec<(u32, String)>,
    recorded_losses: Losses,
}

/// Frames that the caller's thread has read.
#[derive(Default)]
struct Trial {
    frames: usize,
    bytes: usize,
    /// Frames before the last decision.
    decided: usize,
}

/// What a call of `fill` returned.
enum Item {
    Burst(ReadBurst),
    Damage(Error, Progress),
}

/// The state of a source at its end.
struct AtEnd {
    progress: Progress,
    interfaces: Vec<(u32, String)>,
    recorded_losses: Losses,
}

/// A burst, and the state of the source after it.
#[derive(Default)]
struct ReadBurst {
    frames: Vec<ReadFrame>,
    /// The bytes of the frames, unless they are in the source's memory.
    bytes: Vec<u8>,
    progress: Progress,
    /// If there are new ones.
    interfaces: Option<Vec<(u32, String)>>,
}

/// A [`Frame`] in half a cache line.
struct ReadFrame {
    time_ns: u64,
    /// Place of its bytes in their memory.
    place: usize,
    bytes: u32,
    wire_bytes: u32,
    interface: u32,
    link_type: u16,
    time_assumed: bool,
}

const _: () = assert!(size_of::<ReadFrame>() <= 32);

impl ReadFrame {
    fn end(&self) -> usize {
        self.place + self.bytes as usize
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// The queue has items, or has ended.
    filled: Condvar,
    /// The queue was emptied, or is closed.
    emptied: Condvar,
    max_bytes: usize,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Bytes of the frames of the items.
    bytes: usize,
    /// Bursts to use again.
    used: Vec<ReadBurst>,
    /// No items follow. The state of the source at its end, unless its thread has panicked.
    ended: bool,
    at_end: Option<AtEnd>,
    /// The caller takes no more items.
    is_closed: bool,
}

impl Shared {
    /// Waits until the queue has room, and adds an item. Returns an empty burst, or `None` if the caller
    /// takes no more items.
    fn push(&self, item: Item, bytes: usize) -> Option<ReadBurst> {
        let mut queue = self.queue.lock();
        let is_full = |queue: &mut Queue| {
            let has_room = queue.items.len() < QUEUE_BURSTS && queue.bytes + bytes <= self.max_bytes;
            !queue.is_closed && !queue.items.is_empty() && !has_room
        };
        self.emptied.wait_while(&mut queue, is_full);
        if queue.is_closed {
            return None;
        }
        queue.items.push_back(item);
        queue.bytes += bytes;
        let empty = queue.used.pop().unwrap_or_default();
        let was_empty = queue.items.len() == 1;
        drop(queue);
        if was_empty {
            self.filled.notify_one();
        }
        Some(empty)
    }
}

/// Ends the queue when the reading thread ends, also by a panic.
struct QueueEnd(Arc<Shared>);

impl Drop for QueueEnd {
    fn drop(&mut self) {
        self.0.queue.lock().ended = true;
        self.0.filled.notify_one();
    }
}

impl ReadBurst {
    /// Takes the frames of a burst. Returns their bytes.
    fn take(&mut self, burst: &Burst<'_>, memory: Option<&SharedMemory>) -> usize {
        let base = memory.map(|memory| memory.bytes().as_ptr().addr());
        let frame_bytes = burst.iter().map(|frame| frame.bytes.len()).sum();
        if base.is_none() {
            self.bytes.reserve_exact(frame_bytes);
        }
        for &Frame { bytes, time_ns, wire_bytes, link_type, time_assumed, interface } in burst {
            let place = match base {
                // Where it is in that memory; checked when it is used.
                Some(base) if !bytes.is_empty() => bytes.as_ptr().addr().wrapping_sub(base),
                Some(_) => 0,
                None => {
                    self.bytes.extend_from_slice(bytes);
                    self.bytes.len() - bytes.len()
                }
            };
            let bytes = bytes.len() as u32;
            self.frames.push(ReadFrame { time_ns, place, bytes, wire_bytes, interface, link_type, time_assumed });
        }
        frame_bytes
    }

    fn frames<'a>(&'a self, memory: Option<&'a SharedMemory>) -> impl DoubleEndedIterator<Item = Frame<'a>> {
        let memory = memory.map_or(self.bytes.as_slice(), |memory| memory.bytes());
        self.frames.iter().map(
            |&ReadFrame { time_ns, place, bytes, wire_bytes, interface, link_type, time_assumed }| {
                let bytes = &memory[place..][..bytes as usize];
                Frame { bytes, time_ns, wire_bytes, link_type, time_assumed, interface }
            },
        )
    }

    fn last_byte<'a>(&'a self, memory: Option<&'a SharedMemory>) -> Option<&'a u8> {
        self.frames(memory).rev().find_map(|frame| frame.bytes.last())
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.bytes.clear();
        if self.bytes.capacity() > MAX_KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }
}

/// Reads a source into a queue until its end.
fn read(source: &mut dyn Source, shared: &Shared) {
    let memory = source.memory();
    let mut has_name = vec![false; NAMED_INTERFACES];
    let mut next = ReadBurst::default();
    loop {
        let mut burst = Burst::new();
        let filled = source.fill(&mut burst);
        let bytes = next.take(&burst, memory.as_ref());
        let mut has_new_interface = false;
        for frame in &burst {
            has_new_interface |= match has_name.get_mut(frame.interface as usize) {
                Some(has_name) => !std::mem::replace(has_name, true),
                None => true,
            };
        }
        drop(burst);
        let (item, bytes) = match filled {
            Ok(false) => break,
            Err(error) => (Item::Damage(error, source.progress()), 0),
            Ok(true) => {
                next.progress = source.progress();
                next.interfaces = has_new_interface.then(|| source.interfaces());
                (Item::Burst(std::mem::take(&mut next)), bytes)
            }
        };
        match shared.push(item, bytes) {
            Some(empty) if next.frames.capacity() == 0 => next = empty,
            Some(_) => {}
            None => return,
        }
    }
    let (progress, interfaces, recorded_losses) = (source.progress(), source.interfaces(), source.recorded_losses());
    shared.queue.lock().at_end = Some(AtEnd { progress, interfaces, recorded_losses });
}

impl ReadingThread {
    fn new(source: Box<dyn Source + Send>, name: String) -> Self {
        let memory = source.memory();
        let max_bytes = if memory.is_some() { MAPPED_BYTES } else { COPIED_BYTES };
        Self {
            name,
            memory,
            source: Some(source),
            thread: None,
            is_started: false,
            trial: None,
            shared: Arc::new(Shared { max_bytes, ..Shared::default() }),
            items: VecDeque::new(),
            burst: None,
            packets: 0,
            pending: None,
            reports_loss: false,
            used: Vec::new(),
            progress: Progress::default(),
            interfaces: Vec::new(),
            recorded_losses: Losses::default(),
        }
    }

    /// Starts the thread. If the system cannot, the caller's thread reads on.
    #[cold]
    fn start(&mut self) {
        self.is_started = true;
        let source = Arc::new(Mutex::new(self.source.take()));
        let (of_thread, end) = (source.clone(), QueueEnd(self.shared.clone()));
        let take = |source: &Mutex<Option<_>>| source.lock().take();
        let run = move || take(&of_thread).into_iter().for_each(|mut source: Box<_>| read(&mut *source, &end.0));
        self.thread = Builder::new().name(self.name.clone()).spawn(run).ok();
        if self.thread.is_none() {
            self.source = take(&source);
        }
    }

    /// What is lost, if some of it is in the next burst. If any byte of the burst is lost, the last one is,
    /// so that one is read.
    #[inline]
    fn loss_in_burst(&self) -> Option<Loss> {
        let (memory, burst) = (self.memory.as_ref()?, self.burst.as_ref()?);
        black_box(burst.last_byte(Some(memory)).copied());
        let loss = if memory.has_loss() { memory.loss() } else { None };
        loss.filter(|loss| burst.frames.last().is_some_and(|last| last.end() > loss.intact_bytes))
    }

    /// Removes lost frames from the next burst, and all that follow. What remains is followed by the error.
    #[cold]
    fn remove_lost(&mut self, loss: Loss) {
        self.reports_loss = true;
        if let Some(burst) = &mut self.burst {
            while burst.frames.pop_if(|last| last.end() > loss.intact_bytes).is_some() {}
            self.pending = Some(loss.into_error(self.packets + burst.frames.len() as u64));
        }
        self.items.clear();
        while self.receive() {
            self.items.clear();
        }
    }

    /// At the end of the queue: the file may have been truncated after the reading thread was there.
    fn end(&mut self) -> Result<bool, Error> {
        let loss = if self.reports_loss { None } else { self.memory.as_ref().and_then(|memory| memory.loss()) };
        self.reports_loss |= loss.is_some();
        loss.map_or(Ok(false), |loss| Err(loss.into_error(self.packets)))
    }

    /// Waits for items and takes all of them. Returns false at the end.
    fn receive(&mut self) -> bool {
        let mut queue = self.shared.queue.lock();
        let is_empty = |queue: &mut Queue| queue.items.is_empty() && !queue.ended;
        self.shared.filled.wait_while(&mut queue, is_empty);
        if queue.items.is_empty() {
            let at_end = queue.at_end.take();
            drop(queue);
            if let Some(AtEnd { progress, interfaces, recorded_losses }) = at_end {
                (self.progress, self.interfaces, self.recorded_losses) = (progress, interfaces, recorded_losses);
            }
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
            return false;
        }
        std::mem::swap(&mut queue.items, &mut self.items);
        queue.bytes = 0;
        queue.used.append(&mut self.used);
        drop(queue);
        self.shared.emptied.notify_one();
        true
    }
}

impl Source for ReadingThread {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.frames >= trial.decided + TRIAL_FRAMES) {
            trial.decided = trial.frames;
            if trial.bytes >= MIN_MEAN_BYTES * trial.frames {
                self.trial = None;
            }
        }
        if !self.is_started && self.trial.is_none() {
            self.start();
        }
        if self.source.is_some() {
            let filled = self.source.as_mut().map_or(Ok(false), |source| source.fill(burst));
            self.packets += burst.len() as u64;
            if let Some(trial) = &mut self.trial {
                trial.frames += burst.len();
                trial.bytes += burst.iter().map(|frame| frame.bytes.len()).sum::<usize>();
            }
            return filled;
        }
        if let Some(mut used) = self.burst.take() {
            used.clear();
            self.used.push(used);
        }
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        if self.items.is_empty() && !self.receive() {
            return self.end();
        }
        match self.items.pop_front() {
            None => return Ok(false),
            Some(Item::Damage(error, progress)) => {
                self.progress = progress;
                let cause = if let Error::Damaged { cause, .. } = &error { Some(cause) } else { None };
                self.reports_loss |= matches!(cause, Some(Damage::Truncated(..) | Damage::LostPages));
                return Err(error);
            }
            Some(Item::Burst(mut next)) => {
                self.progress = next.progress;
                if let Some(interfaces) = next.interfaces.take() {
                    self.interfaces = interfaces;
                }
                self.burst = Some(next);
            }
        }
        if let Some(loss) = self.loss_in_burst() {
            self.remove_lost(loss);
        }
        self.packets += self.burst.as_ref().map_or(0, |burst| burst.frames.len() as u64);
        let memory = self.memory.as_ref();
        if let Some(Item::Burst(after)) = self.items.get(1) {
            after.frames.iter().step_by(LINE_BYTES / size_of::<ReadFrame>()).for_each(prefetch);
        }
        if let Some(Item::Burst(coming)) = self.items.front() {
            for frame in coming.frames(memory) {
                let second = frame.bytes.get(LINE_BYTES).or(frame.bytes.last());
                frame.bytes.first().into_iter().chain(second).for_each(prefetch);
            }
            coming.last_byte(memory).into_iter().for_each(prefetch);
        }
        burst.extend(self.burst.iter().flat_map(|burst| burst.frames(memory)).take(MAX_BURST_FRAMES));
        if burst.is_empty() { self.pending.take().map_or(Ok(true), Err) } else { Ok(true) }
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.source.as_ref().map_or_else(|| self.interfaces.clone(), |source| source.interfaces())
    }

    fn recorded_losses(&self) -> Losses {
        self.source.as_ref().map_or(self.recorded_losses, |source| source.recorded_losses())
    }

    fn memory(&self) -> Option<SharedMemory> {
        self.memory.clone()
    }

    fn progress(&self) -> Progress {
        self.source.as_ref().map_or(self.progress, |source| source.progress())
    }
}

impl Drop for ReadingThread {
    /// Does not wait for the thread, which may wait for a pipe.
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.emptied.notify_one();
    }
}
