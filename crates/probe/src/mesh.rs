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

use crate::balance::{METERS, Table, even};
use crate::exporter::Behind;
use crate::history::Look;
use crate::looks::{Listener, Teller, looks};
use crate::metering::Metering;
use crate::reader::Reader;
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};
use weir_capture::{BURST, Source};
use weir_flow::{KeyOptions, Moved, PARTS, Parts, Spread};
use weir_packet::Packet;

/// Packets in a queue: 2 MiB, some milliseconds at line rate.
const QUEUE: usize = 1 << 14;
/// How long a reader waits for room, and for frames while flows are moved.
const NAP: Duration = Duration::from_micros(50);
const HURRY: Duration = Duration::from_millis(1);

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
    packets: [AtomicU64; PARTS],
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
    pub parts: Parts,
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

/// A reader's end.
pub(crate) struct Out {
    mesh: Arc<Mesh>,
    number: usize,
    queues: Vec<Producer<Packet>>,
    /// Packets handed to each meter.
    handed: Vec<u64>,
    /// How each meter is told what was lost.
    looks: Vec<Teller>,
    behind: Behind,
    /// How long the source waits for frames while nothing is moved.
    patience: Duration,
    /// Which part a packet belongs to; nothing with a single meter.
    spread: Option<Spread>,
    table: Table,
    /// The last order, and the last switch.
    order: u64,
    switch: u64,
}

/// A meter's end.
pub(crate) struct In {
    mesh: Arc<Mesh>,
    number: usize,
    lanes: Vec<Lane>,
    /// Number of the last task that was looked at.
    given: u64,
    doing: Doing,
    /// Flows from other meters, and the ways to them.
    inbox: Receiver<Vec<Moved>>,
    others: Vec<Sender<Vec<Moved>>>,
    taken: Vec<Vec<Moved>>,
}

/// The queue from one reader.
struct Lane {
    queue: Consumer<Packet>,
    /// Packets taken.
    taken: u64,
}

enum Doing {
    Nothing,
    Seek(Box<Gift>),
    Give(Box<Gift>),
    Take { switch: u64, from: usize },
}

/// A meter's end, and where it is told what its readers lost.
pub(crate) type Entry = (In, Vec<Listener>);

/// A mesh of so many meters for readers whose sources wait for frames for `patience`, and that tell parts apart by `key` and the hash's `secret`.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn mesh(
    readers: usize,
    meters: usize,
    behind: Behind,
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
        packets: [const { AtomicU64::new(0) }; PARTS],
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
    let of_inbox = |(number, inbox)| In {
        mesh: mesh.clone(),
        number,
        lanes: Vec::new(),
        given: 0,
        doing: Doing::Nothing,
        inbox,
        others: senders.clone(),
        taken: Vec::new(),
    };
    let of_inbox = |inbox| (of_inbox(inbox), Vec::new());
    let mut ins: Vec<Entry> = inboxes.into_iter().enumerate().map(of_inbox).collect();
    let mut outs = Vec::new();
    for number in 0..readers {
        let (mut queues, mut tellers) = (Vec::new(), Vec::new());
        for (from, listeners) in &mut ins {
            let (producer, consumer) = RingBuffer::new(QUEUE);
            from.lanes.push(Lane { queue: consumer, taken: 0 });
            queues.push(producer);
            let (teller, listener) = looks();
            tellers.push(teller);
            listeners.push(listener);
        }
        let spread = if meters > 1 { Some(Spread::new(secret, key)?) } else { None };
        let (handed, table) = (vec![0; meters], even(meters));
        outs.push(Out {
            mesh: mesh.clone(),
            number,
            queues,
            handed,
            looks: tellers,
            behind,
            patience,
            spread,
            table,
            order: 0,
            switch: 0,
        });
    }
    Ok((mesh, outs, ins))
}

impl Out {
    /// Hands over the packets of a burst. What finds no room is lost, and counted, or waited for.
    pub fn hand_over(&mut self, packets: &mut [Packet], reader: &mut Reader) {
        let Some(spread) = &mut self.spread else {
            return push(&mut self.queues[0], packets.iter(), self.behind, &mut self.handed[0], reader);
        };
        let counts = &self.mesh.readers[self.number].packets;
        let mut meters = [0_u8; BURST];
        for (meter, packet) in meters.iter_mut().zip(&mut *packets) {
            let part = usize::from(spread.part(packet)) % PARTS;
            // Nobody else writes it, so that this is no shared counter.
            counts[part].store(counts[part].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            *meter = self.table[part];
        }
        for (number, queue) in self.queues.iter_mut().enumerate() {
            let of_it = packets.iter().zip(meters).filter(|(_, meter)| usize::from(*meter) == number);
            push(queue, of_it.map(|(packet, _)| packet), self.behind, &mut self.handed[number], reader);
        }
    }

    /// Between two bursts: takes an order, if there is a new one.
    #[inline]
    pub fn take_order(&mut self, source: &mut dyn Source) {
        if self.mesh.order.load(Ordering::Relaxed) != self.order {
            self.take_new_order(source);
        }
    }

    #[cold]
    fn take_new_order(&mut self, source: &mut dyn Source) {
        let order = lock(&self.mesh.orders);
        let number = self.mesh.order.load(Ordering::Relaxed);
        let (table, switch, hurry) = (order.table, order.switch, order.hurry);
        drop(order);
        source.wait_at_most(if hurry { HURRY.min(self.patience) } else { self.patience });
        let of = &self.mesh.readers[self.number];
        if switch != self.switch {
            write(&of.handed, &self.handed);
            of.switched.store(switch, Ordering::Release);
        }
        of.taken.store(number, Ordering::Release);
        (self.table, self.order, self.switch) = (table, number, switch);
    }

    /// Whether a meter asks what was lost.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.looks.iter().any(Teller::is_asked)
    }

    /// Looks what was lost, and tells all meters.
    pub fn look(&mut self, reader: &mut Reader, source: &mut dyn Source) {
        // Three quarters of a queue.
        let is_full = self.queues.iter().any(|queue| queue.slots() < QUEUE / 4);
        if let Some(look) = reader.look(source, is_full) {
            self.looks.iter_mut().for_each(|teller| teller.tell(look));
        }
    }

    /// Tells the last that there is to tell.
    pub fn finish(&mut self, look: Look) {
        self.looks.iter_mut().for_each(|teller| teller.finish(look));
    }

    /// Everything that is known and was stamped before this time was handed over.
    pub fn is_at(&self, now_ns: u64) {
        self.mesh.readers[self.number].until_ns.store(now_ns, Ordering::Release);
    }

    /// Whether nobody is left to hand packets to.
    pub fn is_abandoned(&self) -> bool {
        self.queues.iter().all(Producer::is_abandoned)
    }
}

impl Drop for Out {
    /// What was handed over until now is all.
    fn drop(&mut self) {
        let of = &self.mesh.readers[self.number];
        write(&of.handed_in_all, &self.handed);
        of.ended.store(true, Ordering::Release);
    }
}

/// Hands packets to one meter.
#[inline]
fn push<'a>(
    queue: &mut Producer<Packet>,
    mut packets: impl Iterator<Item = &'a Packet> + Clone,
    behind: Behind,
    handed: &mut u64,
    reader: &mut Reader,
) {
    let mut left = packets.clone().count();
    while left > 0 {
        let room = queue.slots().min(left);
        if let Ok(chunk) = queue.write_chunk_uninit(room) {
            chunk.fill_from_iter(packets.by_ref().take(room).copied());
        }
        *handed += room as u64;
        left -= room;
        if left == 0 {
            return;
        }
        if behind == Behind::Lose || queue.is_abandoned() {
            return reader.lose(packets);
        }
        thread::sleep(NAP);
    }
}

fn write(counters: &[AtomicU64], values: &[u64]) {
    for (counter, value) in counters.iter().zip(values) {
        counter.store(*value, Ordering::Relaxed);
    }
}

impl In {
    /// Meters what has come: a burst of every queue at most, and nothing beyond a switch in which it gives or takes. How many packets that
    /// was, and whether it was all, so that time may go on to where the readers are.
    pub fn absorb(&mut self, metering: &mut Metering) -> (usize, bool) {
        let switch = match &self.doing {
            Doing::Nothing | Doing::Seek(_) => None,
            Doing::Give(gift) => Some(gift.switch),
            Doing::Take { switch, .. } => Some(*switch),
        };
        let (mut sum, mut all) = (0, switch.is_none());
        for (reader, lane) in self.lanes.iter_mut().enumerate() {
            let there = lane.queue.slots();
            let mut count = there.min(BURST);
            // Asked after what there is: what came after the switch is seen only when the switch is.
            if let Some(switch) = switch
                && let Some(end) = self.mesh.handed(reader, self.number, switch)
            {
                count = count.min((end - lane.taken) as usize);
            }
            if let Ok(chunk) = lane.queue.read_chunk(count) {
                let (first, second) = chunk.as_slices();
                metering.absorb(first);
                metering.absorb(second);
                chunk.commit_all();
            }
            lane.taken += count as u64;
            sum += count;
            all &= count == there;
        }
        if sum > 0 {
            self.mesh.meters[self.number].flows.store(metering.flows(), Ordering::Relaxed);
        }
        (sum, all)
    }

    /// The time up to which all readers have handed over everything that they know of, by the clock that stamps packets. To be asked
    /// before [`In::absorb`].
    pub fn now_ns(&self) -> Option<u64> {
        let of = |reader: &OfReader| {
            // Asked in this order: when it has ended it comes no further.
            let ended = reader.ended.load(Ordering::Acquire);
            (ended, reader.until_ns.load(Ordering::Acquire))
        };
        let times = || self.mesh.readers.iter().map(of);
        let at_work = times().filter(|(ended, _)| !ended).map(|(_, until_ns)| until_ns).min();
        let now_ns = at_work.or_else(|| times().map(|(_, until_ns)| until_ns).max());
        now_ns.filter(|&now_ns| now_ns > 0)
    }

    /// Whether all readers have ended. What they handed over before is there when this is said.
    pub fn is_abandoned(&self) -> bool {
        let all = self.lanes.iter().all(|lane| lane.queue.is_abandoned());
        // As `rtrb` asks for.
        fence(Ordering::Acquire);
        all
    }

    /// Takes its part in a move, if there is one.
    #[inline]
    pub fn go_on_moving(&mut self, metering: &mut Metering) {
        let of = &self.mesh.meters[self.number];
        if of.given.load(Ordering::Relaxed) != self.given {
            self.take_task(metering);
        }
        if !matches!(self.doing, Doing::Nothing) {
            self.go_on(metering);
        }
    }

    #[cold]
    fn take_task(&mut self, metering: &mut Metering) {
        let of = &self.mesh.meters[self.number];
        let mut post = lock(&of.post);
        self.given = of.given.load(Ordering::Relaxed);
        match post.task.take() {
            Some(Task::Give(gift)) => {
                metering.seek(gift.parts);
                self.doing = Doing::Seek(gift);
            }
            Some(Task::Take { switch, from }) => {
                self.doing = Doing::Take { switch, from };
                of.ready.store(switch, Ordering::Release);
            }
            Some(Task::Forget) => {
                metering.forget();
                self.doing = Doing::Nothing;
                self.taken.clear();
            }
            None => {}
        }
    }

    #[cold]
    fn go_on(&mut self, metering: &mut Metering) {
        let of = &self.mesh.meters[self.number];
        let done = match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => return,
            Doing::Seek(gift) if !metering.has_sought() => {
                self.doing = Doing::Seek(gift);
                return;
            }
            Doing::Seek(gift) => {
                let switch = gift.switch;
                self.doing = Doing::Give(gift);
                of.ready.store(switch, Ordering::Release);
                return;
            }
            Doing::Give(gift) if !self.is_at(gift.switch) => {
                self.doing = Doing::Give(gift);
                return;
            }
            Doing::Give(gift) => {
                let to = |part: u16| usize::from(gift.table[usize::from(part)]);
                let takers = (0..PARTS as u16).filter(|&part| gift.parts.contains(part)).map(to);
                let mut given: BTreeMap<usize, Vec<Moved>> = takers.map(|meter| (meter, Vec::new())).collect();
                metering.release(|part, moved| given.entry(to(part)).or_default().push(moved));
                for (meter, flows) in given {
                    // Whoever waits for it is there.
                    let _ = self.others[meter].send(flows);
                }
                gift.switch
            }
            Doing::Take { switch, from } => {
                self.taken.extend(self.inbox.try_iter());
                if self.taken.len() < from {
                    self.doing = Doing::Take { switch, from };
                    return;
                }
                self.taken.drain(..).flatten().for_each(|moved| metering.adopt(moved));
                switch
            }
        };
        of.done.store(done, Ordering::Release);
    }

    /// Whether all that was handed over before a switch is metered.
    fn is_at(&self, switch: u64) -> bool {
        let is_at = |(reader, lane): (usize, &Lane)| {
            self.mesh.handed(reader, self.number, switch).is_some_and(|end| lane.taken >= end)
        };
        self.lanes.iter().enumerate().all(is_at)
    }

    /// Whether it may end, once all readers have: nothing is left, and it is not in the middle of a move. If so it takes no more tasks.
    pub fn may_end(&mut self) -> bool {
        // What it held back has not been looked at.
        if self.lanes.iter().any(|lane| lane.queue.slots() > 0) {
            return false;
        }
        let mut post = lock(&self.mesh.meters[self.number].post);
        post.gone = matches!(self.doing, Doing::Nothing) && post.task.is_none();
        post.gone
    }
}

impl Drop for In {
    fn drop(&mut self) {
        lock(&self.mesh.meters[self.number].post).gone = true;
    }
}

impl Mesh {
    pub fn meters(&self) -> usize {
        self.meters.len()
    }

    /// Packets per part since the beginning.
    pub fn packets(&self) -> [u64; PARTS] {
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
