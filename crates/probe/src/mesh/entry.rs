//! A meter's end of a mesh: packets of all readers are metered, and flows are given and taken.

use super::{Gift, Mesh, OfReader, Task, lock};
use crate::metering::Metering;
use rtrb::Consumer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, Sender};
use weir_capture::BURST;
use weir_flow::{BUCKETS, MigratedFlow};
use weir_packet::Packet;

/// A meter's end.
pub(crate) struct In {
    mesh: Arc<Mesh>,
    number: usize,
    lanes: Vec<Lane>,
    /// Number of the last task that was looked at.
    given: u64,
    doing: Doing,
    /// Flows from other meters, and the ways to them.
    inbox: Receiver<Vec<MigratedFlow>>,
    others: Vec<Sender<Vec<MigratedFlow>>>,
    taken: Vec<Vec<MigratedFlow>>,
}

/// The queue from one reader.
struct Lane {
    queue: Consumer<Packet>,
    /// Packets taken.
    taken: u64,
}

/// Its part in a move.
enum Doing {
    Nothing,
    Seek(Box<Gift>),
    Give(Box<Gift>),
    Take { switch: u64, from: usize },
}

impl In {
    /// That of a meter; flows come by the inbox, and go to the others' ones.
    pub fn new(
        (mesh, number): (Arc<Mesh>, usize),
        inbox: Receiver<Vec<MigratedFlow>>,
        others: Vec<Sender<Vec<MigratedFlow>>>,
    ) -> Self {
        Self { mesh, number, lanes: Vec::new(), given: 0, doing: Doing::Nothing, inbox, others, taken: Vec::new() }
    }

    /// Takes packets of one more reader from this queue.
    pub fn add(&mut self, queue: Consumer<Packet>) {
        self.lanes.push(Lane { queue, taken: 0 });
    }

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
                count = count.min(end.saturating_sub(lane.taken) as usize);
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
                let takers = (0..BUCKETS as u16).filter(|&part| gift.parts.contains(part)).map(to);
                let mut given: BTreeMap<usize, Vec<MigratedFlow>> = takers.map(|meter| (meter, Vec::new())).collect();
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
