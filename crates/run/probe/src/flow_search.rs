//! A search among the current flows: the records that are open, as far as they have come.
//!
//! Each thread that meters passes over its slots between two bursts, a few at a time: at most
//! [`SHARE`] of its time goes into a search, so that metering goes on. It keeps the records of the
//! highest rank only, so memory is bounded. The slots are not those of one instant: a flow that ends
//! during the search may be missing, and one that begins behind the place of the search, too. With
//! several meters, a flow that migrates meanwhile may be found twice or not at all.

use crate::metering_stage::MeteringStage;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_flow::{FlowRecord, Meter};

/// A thread gives a search at most this part of its time: 1 in 20.
const SHARE: u32 = 20;
/// Longest time between two bursts. Rings hold far more packets than arrive meanwhile.
const LONGEST: Duration = Duration::from_millis(2);
/// Slots between two looks at the clock.
const STEP_SLOTS: u32 = 16;

/// The rank of a record; the highest is the first.
pub type FlowRank = (bool, u64);

/// The rank of a record that matches; `None` for others. May add to the record, and keep what it needs of it: each thread
/// has its own.
pub type Ranking = dyn FnMut(&mut FlowRecord) -> Option<FlowRank> + Send;

/// What is searched.
#[derive(Clone)]
pub struct FlowSearch {
    /// What selects and ranks the records of one more thread.
    pub rank: Arc<dyn Fn() -> Box<Ranking> + Send + Sync>,
    /// How many records are wanted.
    pub limit: usize,
    /// When threads answer with what they have found until then.
    pub deadline: Instant,
    /// Time that a thread may give the search beyond its share: few flows are then found at one instant.
    pub head_start: Duration,
}

/// What one thread has found.
#[derive(Default)]
pub struct FoundFlows {
    /// Records by rank, the highest first.
    pub records: Vec<(FlowRank, Box<FlowRecord>)>,
    /// Number of records that match.
    pub matching: u64,
    /// Number of records that were looked at.
    pub searched: u64,
    /// All slots were looked at before the deadline.
    pub is_complete: bool,
}

/// Gets the answer of a thread. Dropped without being called if the thread ends before it answers.
pub type FlowReply = Box<dyn FnOnce(FoundFlows) + Send>;

/// A search on its way through the slots of a meter.
pub(crate) struct RunningSearch {
    rank: Box<Ranking>,
    limit: usize,
    deadline: Instant,
    head_start: Duration,
    reply: FlowReply,
    /// By rank; of one rank, the newest first.
    found: BTreeMap<(FlowRank, Reverse<u64>), Box<FlowRecord>>,
    matching: u64,
    searched: u64,
    next_slot: u32,
    /// When the thread got it, and how long it has worked on it.
    started: Option<Instant>,
    worked: Duration,
}

impl RunningSearch {
    /// Takes the memory of the search, so that no thread that meters has to.
    pub fn new(search: &FlowSearch, reply: FlowReply) -> Self {
        let FlowSearch { rank, limit, deadline, head_start } = search;
        Self {
            rank: rank(),
            limit: *limit,
            deadline: *deadline,
            head_start: *head_start,
            reply,
            found: BTreeMap::new(),
            matching: 0,
            searched: 0,
            next_slot: 0,
            started: None,
            worked: Duration::ZERO,
        }
    }

    /// Goes on for the time that it may take now. `None` when it has answered.
    pub fn advance(mut self, meter: &mut Meter) -> Option<Self> {
        let began = Instant::now();
        let since = began - *self.started.get_or_insert(began);
        let until = began + (self.head_start + since / SHARE).saturating_sub(self.worked).min(LONGEST);
        let mut now = began;
        while now < until && self.next_slot < meter.used_slots() {
            for slot in self.next_slot..meter.used_slots().min(self.next_slot + STEP_SLOTS) {
                if let Some(record) = meter.live_record(slot) {
                    self.look_at(record);
                }
            }
            self.next_slot += STEP_SLOTS;
            now = Instant::now();
        }
        self.worked += now - began;
        let is_complete = self.next_slot >= meter.used_slots();
        if !is_complete && now < self.deadline {
            return Some(self);
        }
        let records = self.found.into_iter().rev().map(|((rank, _), record)| (rank, record)).collect();
        (self.reply)(FoundFlows { records, matching: self.matching, searched: self.searched, is_complete });
        None
    }

    fn look_at(&mut self, mut record: Box<FlowRecord>) {
        self.searched += 1;
        let Some(rank) = (self.rank)(&mut record) else { return };
        self.matching += 1;
        self.found.insert((rank, Reverse(self.matching)), record);
        if self.found.len() > self.limit {
            self.found.pop_first();
        }
    }
}

/// Lets another thread search among the flows of one [`Pipeline`](crate::Pipeline): the side of that thread, and the
/// side of the pipeline ([`Pipeline::with_searches`](crate::Pipeline::with_searches)).
pub fn search_channel() -> (Searcher, Searches) {
    let (sender, requests) = bounded(1);
    let packets = Arc::<[AtomicU64; 2]>::default();
    (Searcher { requests: sender, packets: packets.clone() }, Searches { requests, running: None, packets })
}

/// Starts searches in a pipeline.
#[derive(Clone)]
pub struct Searcher {
    requests: Sender<RunningSearch>,
    packets: Arc<[AtomicU64; 2]>,
}

impl Searcher {
    /// Longest time of a search between two bursts.
    pub const LONGEST: Duration = LONGEST;

    /// Packets that the pipeline had received when the last search began, and that were dropped of them.
    pub fn packets(&self) -> [u64; 2] {
        self.packets.each_ref().map(|packets| packets.load(Relaxed))
    }

    /// Starts a search, before which the pipeline exports the records that wait. Returns whether the pipeline can take
    /// it: it has no other one that has not begun, and has not ended. `reply` is called on the thread of the pipeline.
    pub fn start(&self, search: &FlowSearch, reply: FlowReply) -> bool {
        self.requests.try_send(RunningSearch::new(search, reply)).is_ok()
    }
}

/// The searches in a pipeline, one after the other. Without a search it costs a load of memory per burst.
pub struct Searches {
    requests: Receiver<RunningSearch>,
    running: Option<RunningSearch>,
    packets: Arc<[AtomicU64; 2]>,
}

impl Searches {
    /// Takes a new search, if none is on its way. Returns whether there is one.
    pub(crate) fn begin(&mut self) -> bool {
        self.running.is_none() && {
            self.running = self.requests.try_recv().ok();
            self.running.is_some()
        }
    }

    /// Notes the packets received so far, and dropped of them.
    pub(crate) fn note_packets(&self, numbers: [u64; 2]) {
        self.packets.iter().zip(numbers).for_each(|(packets, number)| packets.store(number, Relaxed));
    }

    /// Goes on with the search on its way.
    pub(crate) fn advance(&mut self, metering: &mut MeteringStage) {
        if let Some(search) = self.running.take() {
            self.running = search.advance(&mut metering.meter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use weir_flow::Config;
    use weir_packet::{Packet, ipv4_mapped};

    /// A meter with flows of UDP: flow N has N packets of 100 octets.
    fn meter(flows: u32) -> Meter {
        let mut meter = Meter::new(Config { flows: 1 << 14, ..Config::default() }).unwrap();
        let mut out = Vec::new();
        for number in 1..=flows {
            let source = ipv4_mapped(number.to_be_bytes());
            let packet = Packet { source, time_ns: 1, frame_bytes: 100, protocol: 17, ..Packet::default() };
            (0..number.min(50)).for_each(|_| meter.process(&[packet], &mut out));
        }
        assert!(out.is_empty());
        meter
    }

    fn search(meter: &mut Meter, limit: usize, deadline: Instant, least: u64) -> FoundFlows {
        let rank = Arc::new(move || -> Box<Ranking> {
            Box::new(move |record| (record.packets() >= least).then_some((true, record.packets())))
        });
        let (sender, found) = mpsc::channel();
        let reply = Box::new(move |found| sender.send(found).unwrap());
        let mut running =
            Some(RunningSearch::new(&FlowSearch { rank, limit, deadline, head_start: Duration::ZERO }, reply));
        while let Some(search) = running.take() {
            running = search.advance(meter);
        }
        found.try_recv().unwrap()
    }

    #[test]
    fn the_highest_ranks_are_found_and_all_that_match_are_counted() {
        let mut meter = meter(40);
        let far = Instant::now() + Duration::from_secs(60);
        let found = search(&mut meter, 3, far, 31);
        let packets: Vec<u64> = found.records.iter().map(|(_, record)| record.packets()).collect();
        assert_eq!((packets, found.matching, found.searched, found.is_complete), (vec![40, 39, 38], 10, 40, true));
        assert_eq!(meter.open_records().flows, 40, "the flows go on");
        assert_eq!(search(&mut meter, 100, far, 0).records.len(), 40);
        assert_eq!(search(&mut meter, 0, far, 0).matching, 40);
    }

    #[test]
    fn a_search_takes_a_small_share_of_the_time_and_ends_at_its_deadline() {
        let mut meter = meter(10_000);
        let began = Instant::now();
        let found = search(&mut meter, 3, began + Duration::from_millis(2), 0);
        assert!(!found.is_complete && found.searched < 10_000, "{}", found.searched);
        let began = Instant::now();
        let mut worked = Duration::ZERO;
        let rank = Arc::new(|| -> Box<Ranking> { Box::new(|_| None) });
        let deadline = began + Duration::from_secs(60);
        let search = FlowSearch { rank, limit: 1, deadline, head_start: Duration::ZERO };
        let mut running = Some(RunningSearch::new(&search, Box::new(|_| {})));
        while let Some(search) = running.take() {
            running = search.advance(&mut meter);
            worked = running.as_ref().map_or(worked, |search| search.worked);
        }
        assert!(worked * SHARE < began.elapsed() * 2, "{worked:?} of {:?}", began.elapsed());
    }
}
