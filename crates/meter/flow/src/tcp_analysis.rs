//! TCP analysis of the flows in the cache: a connection per slot and the anomaly pool.
//!
//! A record is *analysed* if the analysis processed all its TCP packets. Any other record (analysis
//! switched off, or switched on after the record began) has no TCP fields but its control bits.

use crate::instructions::prefetch;
use crate::key::Endpoint;
use crate::mapped_array::{MappedArray, advise_huge_pages};
use crate::slot::FlowKeyState;
use std::io;
use weir_packet::Packet;
use weir_tcp::{AnomalyPool, CompletedTime, Connection, DetachedEntries, MeasuredTimes, PoolEntry, TcpReport};

/// Capacity of the anomaly pool, in directions with anomalies: half the slots, within these bounds.
const ANOMALIES: [usize; 2] = [1 << 16, 1 << 22];

#[derive(Debug)]
pub(crate) struct TcpAnalysis {
    /// Per slot; untouched memory in slots of other protocols.
    pub connections: MappedArray<Connection>,
    anomalies: AnomalyPool,
    /// Times that packets of this chunk completed. They are entered at its end, when their cache
    /// lines have been prefetched, or before a record is written or a connection ends.
    completed: CompletedTimes,
    /// Slots with a record that missed the analysis of a packet.
    pub unanalysed: SlotSet,
    /// Clock time since which all packets are analysed. Records that began before are not analysed.
    analysed_from_ns: u64,
}

/// Times that segments completed and that are not entered yet, oldest first.
#[derive(Debug)]
struct CompletedTimes {
    list: [Completed; Self::CAPACITY],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Completed {
    time_ns: u64,
    slot: u32,
    side: u8,
    is_round_trip: bool,
}

const _: () = assert!(size_of::<Completed>() == 16);

impl CompletedTimes {
    /// Enough for 64 packets, each of which completes at most a round trip and a response. Further
    /// times are entered at once.
    const CAPACITY: usize = 128;
    const NONE: Self =
        Self { list: [Completed { time_ns: 0, slot: 0, side: 0, is_round_trip: false }; Self::CAPACITY], count: 0 };

    /// Adds a time to the list, and prefetches what it will be entered into. Without this list,
    /// every such time waits for memory.
    #[inline(always)]
    fn push(&mut self, slot: u32, endpoint: Endpoint, time: CompletedTime, measured: &mut MeasuredTimes) {
        prefetch(measured);
        let CompletedTime { time_ns, is_round_trip } = time;
        if let Some(next) = self.list.get_mut(self.count) {
            *next = Completed { time_ns, slot, side: endpoint as u8, is_round_trip };
            self.count += 1;
        } else {
            measured.enter(time);
        }
    }
}

impl TcpAnalysis {
    pub fn new(slots: usize) -> io::Result<Self> {
        let capacity = anomaly_capacity(slots);
        let anomalies = AnomalyPool::new(capacity)?;
        // A segment out of order touches many cache lines of an entry, which may be anywhere.
        advise_huge_pages(anomalies.entries().as_ptr().cast(), capacity * size_of::<PoolEntry>());
        Ok(Self {
            connections: MappedArray::with_huge_pages(slots)?,
            anomalies,
            completed: CompletedTimes::NONE,
            unanalysed: SlotSet::new(slots)?,
            analysed_from_ns: 0,
        })
    }

    pub fn memory_bytes_for(slots: usize) -> usize {
        let anomalies = AnomalyPool::size_bytes_for(anomaly_capacity(slots));
        slots * size_of::<Connection>() + anomalies + SlotSet::memory_bytes_for(slots)
    }

    pub fn memory_bytes(&self) -> usize {
        self.connections.memory_bytes() + self.anomalies.size_bytes() + self.unanalysed.memory_bytes()
    }

    /// Resumes the analysis: for records that begin after `now_ns`.
    pub fn resume_after(&mut self, now_ns: u64) {
        self.analysed_from_ns = now_ns + 1;
    }

    /// Suspends the analysis: packets may be left out from now on.
    pub fn suspend(&mut self) {
        self.analysed_from_ns = u64::MAX;
    }

    /// Whether packets may be left out.
    #[inline(always)]
    pub fn is_suspended(&self) -> bool {
        self.analysed_from_ns == u64::MAX
    }

    /// Prefetches what the fast path needs of a connection, or all of it for SYN, FIN and RST.
    #[inline(always)]
    pub fn prefetch_for(&self, slot: u32, endpoint: Endpoint, packet: &Packet) {
        if !self.is_suspended()
            && let Some(connection) = self.connections.get(slot as usize)
        {
            prefetch(connection.hot_line(endpoint));
            prefetch(connection.times_line());
            if packet.control & (Packet::SYN | Packet::FIN | Packet::RST) != 0 {
                connection.lines().iter().for_each(prefetch);
            }
        }
    }

    /// Prefetches the rest for a packet with payload that is not next. The cache line that tells it was
    /// prefetched before.
    #[inline(always)]
    pub fn prefetch_displaced(&self, slot: u32, endpoint: Endpoint, packet: &Packet) {
        if let Some(connection) = self.connections.get(slot as usize)
            && connection.is_displaced(endpoint, packet)
        {
            connection.lines().iter().for_each(prefetch);
            if let Some(index) = connection.entry_index(endpoint) {
                self.anomalies.lines(index).for_each(prefetch);
            }
        }
    }

    #[inline(always)]
    pub fn prefetch(&self, slot: u32) {
        prefetch_all(&self.connections[slot as usize]);
    }

    /// Analyses an ordinary segment. Returns false if it needs [`TcpAnalysis::add`].
    #[inline(always)]
    pub fn add_fast(&mut self, slot: u32, endpoint: Endpoint, packet: &Packet) -> bool {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return false };
        let completed = &mut self.completed;
        connection.classify_fast(endpoint, packet, &self.anomalies, |measured, time| {
            completed.push(slot, endpoint, time, measured);
        })
    }

    /// Enters the times that packets completed.
    #[inline(always)]
    pub fn enter_completed(&mut self) {
        let count = std::mem::take(&mut self.completed.count);
        for &Completed { time_ns, slot, side, is_round_trip } in self.completed.list.iter().take(count) {
            self.connections[slot as usize].enter_time(side.into(), CompletedTime { time_ns, is_round_trip });
        }
    }

    /// Analyses a packet of a record that began at `record_began_ns`.
    #[inline(never)]
    pub fn add(&mut self, slot: u32, endpoint: Endpoint, packet: &Packet, record_began_ns: u64) {
        if record_began_ns < self.analysed_from_ns {
            self.unanalysed.insert(slot);
        } else {
            let completed = &mut self.completed;
            self.connections[slot as usize].classify_completing(
                endpoint,
                packet,
                &mut self.anomalies,
                |measured, time| completed.push(slot, endpoint, time, measured),
            );
        }
    }

    /// Writes the reports of a record, that of `initiator` first.
    pub fn write_reports(&mut self, slot: u32, initiator: Endpoint, packets: [u64; 2], reports: &mut [TcpReport; 2]) {
        self.enter_completed();
        let (connection, [forward, reverse]) = (&self.connections[slot as usize], reports);
        connection.write_report(initiator, packets[0], &self.anomalies, forward);
        connection.write_report(1 - initiator, packets[1], &self.anomalies, reverse);
    }

    /// Prepares a connection for its next record, after one that was `analysed` or not.
    pub fn end_record(&mut self, slot: u32, analysed: bool, record_began_ns: u64) {
        self.enter_completed();
        if analysed && record_began_ns >= self.analysed_from_ns {
            self.connections[slot as usize].start_next_record(&mut self.anomalies);
        } else {
            // Its state is incomplete: the analysis starts as in the middle of a connection.
            self.end_connection(slot);
        }
    }

    /// Starts the next record of a connection whose last one began at `record_began_ns`.
    pub fn start_record(&mut self, slot: u32, record_began_ns: u64) {
        if record_began_ns < self.analysed_from_ns {
            self.end_connection(slot);
        }
    }

    pub fn end_connection(&mut self, slot: u32) {
        self.enter_completed();
        self.connections[slot as usize].reset(&mut self.anomalies);
    }

    /// Removes a connection that migrates to another meter. Returns it, its anomalies, and whether
    /// the record missed the analysis of a packet.
    pub fn take(&mut self, slot: u32, state: &FlowKeyState) -> (Connection, DetachedEntries, bool) {
        self.enter_completed();
        let mut connection = std::mem::replace(&mut self.connections[slot as usize], Connection::NEW);
        let unanalysed = self.unanalysed.contains(slot) || state.record_began_ns < self.analysed_from_ns;
        if unanalysed {
            // Its state is incomplete.
            connection.reset(&mut self.anomalies);
            connection = Connection::NEW;
        }
        let anomalies = connection.detach_entries(&mut self.anomalies);
        self.unanalysed.remove(slot);
        (connection, anomalies, unanalysed)
    }

    pub fn insert(&mut self, slot: u32, mut connection: Connection, anomalies: DetachedEntries) {
        connection.attach_entries(anomalies, &mut self.anomalies);
        self.connections[slot as usize] = connection;
    }
}

fn anomaly_capacity(slots: usize) -> usize {
    (slots / 2).clamp(ANOMALIES[0], ANOMALIES[1]).min(2 * slots)
}

#[inline(always)]
fn prefetch_all(connection: &Connection) {
    let lines: &[[u64; 8]; 7] = bytemuck::must_cast_ref(connection);
    lines.iter().for_each(prefetch);
}

/// A set of slots: one bit per slot.
#[derive(Debug)]
pub(crate) struct SlotSet(MappedArray<u64>);

impl SlotSet {
    fn new(slots: usize) -> io::Result<Self> {
        Ok(Self(MappedArray::with_small_pages(slots.div_ceil(64))?))
    }

    fn memory_bytes_for(slots: usize) -> usize {
        slots.div_ceil(64) * size_of::<u64>()
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    pub fn contains(&self, slot: u32) -> bool {
        self.0[slot as usize / 64] >> (slot % 64) & 1 != 0
    }

    #[inline(always)]
    pub fn insert(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    pub fn remove(&mut self, slot: u32) {
        self.0[slot as usize / 64] &= !(1 << (slot % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_inserted_slots_only() {
        let mut set = SlotSet::new(130).unwrap();
        [0, 63, 64, 129].into_iter().for_each(|slot| set.insert(slot));
        set.remove(63);
        let found: Vec<u32> = (0..130).filter(|&slot| set.contains(slot)).collect();
        assert_eq!(found, [0, 64, 129]);
    }
}
