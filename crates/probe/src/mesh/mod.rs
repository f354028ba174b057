//! Queues of packets from every reader to every meter, and how flows go from one meter to another while packets come.
//!
//! ```text
//! reader 0 ──┬──────────> meter 0        which meter takes a packet says a table that all readers have:
//!            └────┐ ┌───>                one entry for each of 512 parts of all flows
//! reader 1 ───────┼─┘
//!                 └─────> meter 1
//! ```
//! Parts are moved in steps, none of which stops anybody for long:
//!
//! 1. Who gives looks for the flows of those parts, among its other work ([`Task::Give`]).
//! 2. Who takes is told, too ([`Task::Take`]). Both will not go beyond the point of the switch in any of their queues.
//! 3. Readers take the new table, each between two bursts, and say how many packets they had handed to each meter.
//! 4. Who gives meters what it was handed until then, and hands over the flows. Nothing of those parts is on its way any more, and
//!    its clock has not passed what comes behind the switch.
//! 5. Who takes enters them, and goes on.
//!
//! Always true: the packets of a flow are metered in the order in which a reader handed them over, and by one meter at a time.
//! A queue that is full makes the reader of a capture wait; live packets are lost, and counted.

mod entry;
mod out;

pub(crate) use entry::In;
pub(crate) use out::Out;

use crate::balance::{METERS, Table, even};
use crate::exporter::BackPressure;
use crate::looks::{Listener, looks};
use rtrb::RingBuffer;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_flow::{BUCKETS, BucketSet, KeyOptions, Partitioner};

/// Packets in a queue: 2 MiB, some milliseconds at line rate.
const QUEUE: usize = 1 << 14;
/// What readers, meters and the mover know of each other.
pub(crate) struct Mesh {
    readers: Vec<OfReader>,
    meters: Vec<OfMeter>,
    /// Counts orders to the readers.
    order: AtomicU64,
    /// The last switch that was ordered.
    switch: AtomicU64,
    orders: Mutex<Order>,
}

/// What readers are told.
struct Order {
    table: Table,
    /// Which switch to that table this is; the same as before if it is none.
    switch: u64,
    /// Flows are on their way: look again soon.
    hurry: bool,
}

/// What a reader says of itself; only it writes.
#[repr(align(128))]
struct OfReader {
    /// The last order that it has taken.
    taken: AtomicU64,
    /// The last switch, and packets handed to each meter before.
    switched: AtomicU64,
    handed: Vec<AtomicU64>,
    /// It has ended, and packets handed to each meter in all.
    ended: AtomicBool,
    handed_in_all: Vec<AtomicU64>,
    /// Packets per part.
    packets: [AtomicU64; BUCKETS],
    /// Everything up to this time was handed over, ns by the clock that stamps packets; 0: not known.
    until_ns: AtomicU64,
}

/// What a meter is told, and says.
#[repr(align(128))]
struct OfMeter {
    /// Counts tasks given.
    given: AtomicU64,
    post: Mutex<Post>,
    /// The last switch that it is ready for: has found the flows, or holds.
    ready: AtomicU64,
    /// The last switch in which it has done its part.
    done: AtomicU64,
    /// Flows in its table.
    flows: AtomicU64,
}

#[derive(Default)]
struct Post {
    task: Option<Task>,
    /// The meter has gone, and takes no more tasks.
    gone: bool,
}

/// The flows of some parts, for the meters that the table says, after the switch of this number.
pub(crate) struct Gift {
    pub switch: u64,
    pub parts: BucketSet,
    pub table: Table,
}

/// What a meter is to do in a move.
pub(crate) enum Task {
    /// Give flows to other meters.
    Give(Box<Gift>),
    /// Take flows from so many meters after that switch, and until then nothing of what comes behind it.
    Take { switch: u64, from: usize },
    /// It does not come to that switch.
    Forget,
}

/// A meter has gone: nothing can be moved any more.
#[derive(Debug)]
pub(crate) struct Gone;

/// A meter's end, and where it is told what its readers lost.
pub(crate) type Entry = (In, Vec<Listener>);

/// A mesh of so many meters for readers whose sources wait for frames for `patience`, and that tell parts apart by `key` and the hash's `secret`.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn mesh(
    readers: usize,
    meters: usize,
    behind: BackPressure,
    patience: Duration,
    (secret, key): (u64, KeyOptions),
) -> io::Result<(Arc<Mesh>, Vec<Out>, Vec<Entry>)> {
    assert!((1..=METERS).contains(&meters) && readers >= 1, "a mesh has two sides");
    let counters = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let of_reader = |_| OfReader {
        taken: AtomicU64::new(0),
        switched: AtomicU64::new(0),
        handed: counters(meters),
        ended: AtomicBool::new(false),
        handed_in_all: counters(meters),
        packets: [const { AtomicU64::new(0) }; BUCKETS],
        until_ns: AtomicU64::new(0),
    };
    let of_meter = |_| OfMeter {
        given: AtomicU64::new(0),
        post: Mutex::default(),
        ready: AtomicU64::new(0),
        done: AtomicU64::new(0),
        flows: AtomicU64::new(0),
    };
    let mesh = Arc::new(Mesh {
        readers: (0..readers).map(of_reader).collect(),
        meters: (0..meters).map(of_meter).collect(),
        order: AtomicU64::new(0),
        switch: AtomicU64::new(0),
        orders: Mutex::new(Order { table: even(meters), switch: 0, hurry: false }),
    });
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..meters).map(|_| channel()).unzip();
    let of_inbox = |(number, inbox)| (In::new((mesh.clone(), number), inbox, senders.clone()), Vec::new());
    let mut ins: Vec<Entry> = inboxes.into_iter().enumerate().map(of_inbox).collect();
    let mut outs = Vec::new();
    for number in 0..readers {
        let (mut queues, mut tellers) = (Vec::new(), Vec::new());
        for (from, listeners) in &mut ins {
            let (producer, consumer) = RingBuffer::new(QUEUE);
            from.add(consumer);
            queues.push(producer);
            let (teller, listener) = looks();
            tellers.push(teller);
            listeners.push(listener);
        }
        let spread = if meters > 1 { Some(Partitioner::new(secret, key)?) } else { None };
        outs.push(Out::new((mesh.clone(), number), (queues, tellers), (behind, patience), spread));
    }
    Ok((mesh, outs, ins))
}

impl Mesh {
    pub fn meters(&self) -> usize {
        self.meters.len()
    }

    /// Packets per part since the beginning.
    pub fn packets(&self) -> [u64; BUCKETS] {
        let of = |part: usize| self.readers.iter().map(|reader| reader.packets[part].load(Ordering::Relaxed)).sum();
        std::array::from_fn(of)
    }

    /// Flows in all tables.
    pub fn flows(&self) -> u64 {
        self.meters.iter().map(|meter| meter.flows.load(Ordering::Relaxed)).sum()
    }

    /// Tells all readers to hurry or not, and to take a table if `switch` is another than before. The order's number.
    pub fn order(&self, table: &Table, switch: u64, hurry: bool) -> u64 {
        let mut order = lock(&self.orders);
        *order = Order { table: *table, switch, hurry };
        self.switch.store(switch, Ordering::Release);
        self.order.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether all readers have taken an order, or have ended.
    pub fn is_taken(&self, order: u64) -> bool {
        let has =
            |reader: &OfReader| reader.taken.load(Ordering::Acquire) >= order || reader.ended.load(Ordering::Acquire);
        self.readers.iter().all(has)
    }

    /// Gives a meter a task.
    pub fn give(&self, meter: usize, task: Task) -> Result<(), Gone> {
        let of = &self.meters[meter];
        let mut post = lock(&of.post);
        if post.gone {
            return Err(Gone);
        }
        post.task = Some(task);
        of.given.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a meter is ready for the switch of this number.
    ///
    /// # Errors
    /// It has gone.
    pub fn is_ready(&self, meter: usize, switch: u64) -> Result<bool, Gone> {
        self.has_come_to(meter, switch, |of| &of.ready)
    }

    /// Whether a meter has done its part in the switch of this number.
    ///
    /// # Errors
    /// It has gone.
    pub fn is_done(&self, meter: usize, switch: u64) -> Result<bool, Gone> {
        self.has_come_to(meter, switch, |of| &of.done)
    }

    fn has_come_to(&self, meter: usize, switch: u64, what: fn(&OfMeter) -> &AtomicU64) -> Result<bool, Gone> {
        let of = &self.meters[meter];
        let has = || what(of).load(Ordering::Acquire) >= switch;
        // It may have gone after it was done.
        if !has() && lock(&of.post).gone && !has() { Err(Gone) } else { Ok(has()) }
    }

    /// How many packets a reader handed to a meter before a switch; `None` if it has not switched yet.
    fn handed(&self, reader: usize, meter: usize, switch: u64) -> Option<u64> {
        let of = &self.readers[reader];
        // Asked first: whoever has ended has switched before, or never will; but that counts only if there is a switch.
        let ended = self.switch.load(Ordering::Acquire) == switch && of.ended.load(Ordering::Acquire);
        if of.switched.load(Ordering::Acquire) == switch {
            Some(of.handed[meter].load(Ordering::Relaxed))
        } else {
            ended.then(|| of.handed_in_all[meter].load(Ordering::Relaxed))
        }
    }
}

/// What stands there is whole after every line that could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
