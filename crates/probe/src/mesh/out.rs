//! A reader's end of a mesh: packets go to the meter that has their part, and orders are taken between two bursts.

use super::{Mesh, QUEUE, lock};
use crate::balance::{Table, even};
use crate::exporter::BackPressure;
use crate::history::Look;
use crate::looks::Teller;
use crate::reader::Reader;
use rtrb::Producer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use weir_capture::{BURST, LiveSource};
use weir_flow::{BUCKETS, Partitioner};
use weir_packet::Packet;

/// How long a reader waits for room, and for frames while flows are moved.
const NAP: Duration = Duration::from_micros(50);
const HURRY: Duration = Duration::from_millis(1);

/// A reader's end.
pub(crate) struct Out {
    mesh: Arc<Mesh>,
    number: usize,
    queues: Vec<Producer<Packet>>,
    /// Packets handed to each meter.
    handed: Vec<u64>,
    /// How each meter is told what was lost.
    looks: Vec<Teller>,
    behind: BackPressure,
    /// How long the source waits for frames while nothing is moved.
    patience: Duration,
    /// Which part a packet belongs to; nothing with a single meter.
    spread: Option<Partitioner>,
    table: Table,
    /// The last order, and the last switch.
    order: u64,
    switch: u64,
}

impl Out {
    /// That of a reader with so many queues, one for each meter. `spread`: which part a packet belongs to; not asked with a single meter.
    pub fn new(
        (mesh, number): (Arc<Mesh>, usize),
        (queues, looks): (Vec<Producer<Packet>>, Vec<Teller>),
        (behind, patience): (BackPressure, Duration),
        spread: Option<Partitioner>,
    ) -> Self {
        let (handed, table) = (vec![0; queues.len()], even(queues.len()));
        Self { mesh, number, queues, handed, looks, behind, patience, spread, table, order: 0, switch: 0 }
    }

    /// Hands over the packets of a burst. What finds no room is lost, and counted, or waited for.
    pub fn hand_over(&mut self, packets: &mut [Packet], reader: &mut Reader) {
        let Some(spread) = &mut self.spread else {
            return push(&mut self.queues[0], packets.iter(), self.behind, &mut self.handed[0], reader);
        };
        let counts = &self.mesh.readers[self.number].packets;
        let mut meters = [0_u8; BURST];
        for (meter, packet) in meters.iter_mut().zip(&mut *packets) {
            let part = usize::from(spread.bucket(packet)) % BUCKETS;
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
    pub fn take_order(&mut self, source: Option<&mut dyn LiveSource>) {
        if self.mesh.order.load(Ordering::Relaxed) != self.order {
            self.take_new_order(source);
        }
    }

    #[cold]
    fn take_new_order(&mut self, source: Option<&mut dyn LiveSource>) {
        let order = lock(&self.mesh.orders);
        let number = self.mesh.order.load(Ordering::Relaxed);
        let (table, switch, hurry) = (order.table, order.switch, order.hurry);
        drop(order);
        if let Some(source) = source {
            source.set_poll_timeout(if hurry { HURRY.min(self.patience) } else { self.patience });
        }
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
    pub fn look(&mut self, reader: &mut Reader, source: &mut dyn LiveSource) {
        // Three quarters of a queue.
        let is_full = self.queues.iter().any(|queue| queue.slots() < QUEUE / 4);
        let look = reader.look(source, is_full);
        self.looks.iter_mut().for_each(|teller| teller.tell(look));
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
    behind: BackPressure,
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
        if behind == BackPressure::Drop || queue.is_abandoned() {
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
