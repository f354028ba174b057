//! Several meters behind a [`Partitioner`], between which flows move at any moment, beside one meter that sees all packets: the same
//! records, field by field.
//!
//! Every meter has a queue, as it would have on a thread of its own, and takes from it when chance lets it: so a flow comes to
//! meters that are behind the one it left, and to meters that are ahead of it.

use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use weir_flow::{
    Approximate, BUCKETS, BucketSet, CacheFullPolicy, Config, EndReason, FlowRecord, KeyOptions, Meter, MigratedFlow,
    Partitioner,
};
use weir_ledger::RecordTotals;
use weir_packet::Packet;
use weir_testkit::{compare, real, traffic};
use weir_trafficgen::TrafficGenerator;

const SEEDS: u64 = 400;
const SECOND: u64 = 1_000_000_000;

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % most
    }

    /// About one part in so many.
    fn parts(&mut self, of: u64) -> BucketSet {
        let mut parts = BucketSet::new();
        (0..BUCKETS as u16).filter(|_| self.below(of) == 0).for_each(|part| parts.insert(part));
        parts
    }
}

/// What a meter is told, in the order in which it is told.
enum Told {
    Packets(Vec<Packet>),
    Seek(BucketSet),
    Forget,
    Release(usize),
    Adopt(usize),
}

/// A meter and what it is still to do.
struct Queued {
    meter: Meter,
    queue: VecDeque<Told>,
}

/// Flows on their way.
#[derive(Default)]
struct Move {
    parts: BucketSet,
    to: usize,
    flows: Vec<MigratedFlow>,
    /// What the meter has less that they left.
    records: RecordTotals,
    released: bool,
    adopted: bool,
}

/// The distributor and its meters.
struct Many {
    spread: Partitioner,
    /// The meter that each part goes to.
    owners: [usize; BUCKETS],
    meters: Vec<Queued>,
    moves: Vec<Move>,
    /// Parts that are sought, the meter that seeks and the one they are for.
    sought: Option<(BucketSet, usize, usize)>,
    random: Random,
    /// Bursts between two decisions, about.
    patience: u64,
    newest_ns: u64,
    out: Vec<FlowRecord>,
    moved: usize,
}

fn less(one: RecordTotals, other: RecordTotals) -> RecordTotals {
    RecordTotals {
        flows: one.flows - other.flows,
        packets: one.packets - other.packets,
        bytes: one.bytes - other.bytes,
    }
}

impl Many {
    fn new(config: Config, meters: usize, seed: u64) -> Self {
        let queued = (0..meters).map(|_| Queued { meter: Meter::new(config), queue: VecDeque::new() }).collect();
        Self {
            spread: Partitioner::new(config.secret.expect("they have one secret"), config.key)
                .expect("there is memory"),
            owners: std::array::from_fn(|part| part % meters),
            meters: queued,
            moves: Vec::new(),
            sought: None,
            random: Random(seed | 1),
            patience: if seed.is_multiple_of(2) { 1 } else { 6 },
            newest_ns: 0,
            out: Vec::new(),
            moved: 0,
        }
    }

    fn give(&mut self, burst: &[Packet]) {
        let mut shares = vec![Vec::new(); self.meters.len()];
        for packet in burst {
            let mut packet = *packet;
            let part = self.spread.bucket(&mut packet);
            self.newest_ns = self.newest_ns.max(packet.time_ns);
            shares[self.owners[usize::from(part)]].push(packet);
        }
        for (queued, share) in self.meters.iter_mut().zip(shares) {
            if !share.is_empty() {
                queued.queue.push_back(Told::Packets(share));
            }
        }
        if self.random.below(self.patience) == 0 {
            self.decide();
        }
        for _ in 0..self.random.below(2 * self.meters.len() as u64 + 1) {
            let one = self.random.below(self.meters.len() as u64) as usize;
            self.step(one);
        }
    }

    /// The distributor begins a search, or ends one in one way or the other.
    fn decide(&mut self) {
        match self.sought.take() {
            None => {
                let meters = self.meters.len() as u64;
                let from = self.random.below(meters) as usize;
                let to = (from + 1 + self.random.below(meters - 1) as usize) % self.meters.len();
                let rare = [1, 2, 20][self.random.below(3) as usize];
                let parts = self.random.parts(rare);
                let own = |part: &u16| parts.contains(*part) && self.owners[usize::from(*part)] == from;
                let mut sought = BucketSet::new();
                (0..BUCKETS as u16).filter(own).for_each(|part| sought.insert(part));
                self.meters[from].queue.push_back(Told::Seek(sought));
                self.sought = Some((sought, from, to));
            }
            Some((_, from, _)) if self.random.below(5) == 0 => self.meters[from].queue.push_back(Told::Forget),
            Some((parts, from, to)) => {
                for part in (0..BUCKETS as u16).filter(|&part| parts.contains(part)) {
                    assert_eq!(std::mem::replace(&mut self.owners[usize::from(part)], to), from);
                }
                self.meters[from].queue.push_back(Told::Release(self.moves.len()));
                self.meters[to].queue.push_back(Told::Adopt(self.moves.len()));
                self.moves.push(Move { parts, to, ..Move::default() });
            }
        }
    }

    /// One meter does what it is to do next. False if it has nothing to do.
    fn step(&mut self, one: usize) -> bool {
        let Queued { meter, queue } = &mut self.meters[one];
        match queue.pop_front() {
            None => {
                if self.random.below(4) == 0 {
                    meter.advance_time(self.newest_ns, &mut self.out);
                }
                return false;
            }
            Some(Told::Packets(packets)) => meter.process(&packets, &mut self.out),
            Some(Told::Seek(parts)) => meter.start_migration(parts),
            Some(Told::Forget) => {
                meter.cancel_migration();
                assert!(!meter.migration_ready());
            }
            Some(Told::Release(number)) => {
                let before = meter.live();
                let released = &mut self.moves[number];
                meter.migrate_out(|part, moved| {
                    assert!(released.parts.contains(part));
                    released.flows.push(moved);
                });
                released.records = less(before, meter.live());
                released.released = true;
                self.moved += released.flows.len();
                if self.random.below(2) == 0 {
                    // It need not have got so far.
                    self.adopt(number);
                }
            }
            Some(Told::Adopt(number)) if self.moves[number].released => self.adopt(number),
            Some(adopt) => {
                queue.push_front(adopt);
                return false;
            }
        }
        self.check();
        true
    }

    fn adopt(&mut self, number: usize) {
        let adopted = &mut self.moves[number];
        if std::mem::replace(&mut adopted.adopted, true) {
            return;
        }
        let meter = &mut self.meters[adopted.to].meter;
        let (live, ended) = (meter.live(), self.out.len());
        let created = meter.counters().created;
        adopted.flows.drain(..).for_each(|moved| meter.migrate_in(moved, &mut self.out));
        assert_eq!(self.out.len(), ended, "a flow was ended though there is room");
        assert_eq!((less(meter.live(), live), meter.counters().created), (adopted.records, created));
    }

    /// Records created are handed out, live, or on their way.
    fn check(&self) {
        let created: u64 = self.meters.iter().map(|queued| queued.meter.counters().created).sum();
        let live: u64 = self.meters.iter().map(|queued| queued.meter.live().flows).sum();
        let on_the_way = self.moves.iter().filter(|one| one.released && !one.adopted);
        let on_the_way: u64 = on_the_way.map(|one| one.records.flows).sum();
        assert_eq!(created, live + on_the_way + self.out.len() as u64);
    }

    fn finish(&mut self) {
        while self.meters.iter().any(|queued| !queued.queue.is_empty()) {
            (0..self.meters.len()).for_each(|one| while self.step(one) {});
        }
        for Queued { meter, .. } in &mut self.meters {
            meter.advance_time(self.newest_ns, &mut self.out);
            meter.drain(&mut self.out);
            assert_eq!(meter.live(), RecordTotals::default());
        }
        self.check();
    }
}

/// Whether the records are the same in every field, and the nearest two of the first that are not.
fn compare(ours: &[FlowRecord], theirs: &[FlowRecord]) -> Result<(), String> {
    let mut balance: HashMap<String, i64> = HashMap::new();
    ours.iter().for_each(|flow| *balance.entry(format!("{flow:?}")).or_default() += 1);
    theirs.iter().for_each(|flow| *balance.entry(format!("{flow:?}")).or_default() -= 1);
    let only = |flows: &[FlowRecord], sign: i64| {
        let mut only: Vec<FlowRecord> =
            flows.iter().filter(|flow| balance[&format!("{flow:?}")].signum() == sign).copied().collect();
        only.sort_by_key(|flow| (flow.start_ns(), flow.source, flow.source_port));
        only.truncate(30);
        only
    };
    let (more, less) = (only(ours, 1), only(theirs, -1));
    if more.is_empty() && less.is_empty() {
        return Ok(());
    }
    compare::flows(&more, &less)?;
    Err(format!("fields without a meaning differ: {more:?} against {less:?}"))
}

/// How many flows moved, and the records.
fn same(
    packets: &[Packet],
    burst: usize,
    config: Config,
    meters: usize,
    seed: u64,
) -> Result<(usize, Vec<FlowRecord>), String> {
    let (one, meter) = real::meter_packets(packets, burst, config);
    let mut many = Many::new(config, meters, seed);
    packets.chunks(burst).for_each(|burst| many.give(burst));
    many.finish();
    compare(&many.out, &one).map_err(|apart| format!("{meters} meters against one: {apart}"))?;
    let mut noted = HashMap::new();
    for queued in &many.meters {
        let counters = queued.meter.counters();
        counters.anomalies.nonzero().for_each(|(what, count)| *noted.entry(what).or_default() += count);
        if counters.dropped_packets > 0 {
            return Err("packets were dropped".into());
        }
    }
    compare::debug(&noted, &meter.counters().anomalies.nonzero().collect::<HashMap<_, u64>>())?;
    Ok((many.moved, one))
}

/// The packets of hostile frames, in order of time, with some that need a wide record.
fn hostile(steps: &[traffic::Step], decapsulate: bool, random: &mut Random) -> Vec<Packet> {
    let (mut packets, mut newest_ns) = (Vec::new(), 0);
    for frame in traffic::frames(steps) {
        newest_ns = frame.time_ns.max(newest_ns);
        let mut packet = Packet { time_ns: newest_ns, interface: frame.interface, ..Packet::default() };
        let options = weir_packet::DecodeOptions { decapsulate };
        if weir_packet::decode(frame.link_type, &frame.bytes, frame.wire_bytes, options, &mut packet).is_ok() {
            if random.below(12) == 0 {
                packet.ip_bytes += 70_000;
            }
            packets.push(packet);
        }
    }
    packets
}

#[test]
fn flows_that_move_make_the_records_of_one_meter_on_hostile_traffic() {
    let moved = std::cell::Cell::new(0);
    let case = (traffic::steps(160), 1..8_usize, traffic::settings(), 2..6_usize, any::<u64>());
    traffic::check(SEEDS, &case, |(steps, burst, settings, meters, seed)| {
        let packets = hostile(&steps, settings.decode.decapsulate, &mut Random(seed | 1));
        let config = Config { flows: 4096, ..settings.meter };
        let (flows, _) = same(&packets, burst, config, meters, seed)?;
        moved.set(moved.get() + flows);
        Ok(())
    });
    println!("{} flows moved", moved.get());
    assert!(
        moved.get() > 10 * SEEDS as usize || std::env::var_os("WEIR_SEEDS").is_some(),
        "{} flows moved",
        moved.get()
    );
}

/// The packets of a synthetic load.
fn load(specification: &str) -> Vec<Packet> {
    let packets = weir_testkit::packets(&mut TrafficGenerator::new(specification).expect("the load exists"));
    assert!(packets.is_sorted_by_key(|packet| packet.time_ns), "time does not step back");
    packets
}

/// What many connections at once make of it, so that places are found by looking at some after others.
fn the_same_of(specification: &str) {
    let packets = load(specification);
    let unidirectional = KeyOptions { unidirectional: true, ..KeyOptions::default() };
    for (meters, burst, key) in
        [(2, 64, KeyOptions::default()), (3, 17, unidirectional), (5, 64, KeyOptions::default())]
    {
        let [idle_timeout_ns, active_timeout_ns] = [SECOND / 2, 2 * SECOND];
        let config = Config {
            flows: 1 << 14,
            idle_timeout_ns,
            active_timeout_ns,
            key,
            secret: Some(meters as u64),
            ..Config::default()
        };
        let (moved, flows) = same(&packets, burst, config, meters, 7).unwrap_or_else(|why| panic!("{why}"));
        let ended = |reason| flows.iter().filter(|flow| flow.end_reason == reason).count();
        let reasons = [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow].map(ended);
        println!("{specification}: {meters} meters, {moved} flows moved, ends {reasons:?}");
        assert!(moved > 500 && reasons.iter().all(|&ended| ended > 10), "{moved} flows moved, ends {reasons:?}");
    }
}

#[test]
fn flows_that_move_make_the_records_of_one_meter_on_a_lossy_network() {
    the_same_of(
        "lossy,flows=600,packets=60k,loss=6%,recut=60%,reorder=4%,spurious=2%,duplicate=4%,routed=40%,keepalive=30%,\
         zerowindow=30%,noid=50%",
    );
}

#[test]
fn flows_that_move_make_the_records_of_one_meter_on_an_internet_mix() {
    the_same_of("mix,flows=4000,packets=100k,ramp=1s");
}

/// What does not fit is in a record all the same, and everything else is as it was.
#[test]
fn a_full_meter_ends_what_it_cannot_take_in() {
    let packets = load("lossy,flows=500,new=500,packets=20k,loss=6%,duplicate=4%");
    for policy in [CacheFullPolicy::Overflow, CacheFullPolicy::Drop, CacheFullPolicy::EvictOldestIdle] {
        let config = Config { secret: Some(3), policy, ..Config::default() };
        let [mut large, mut small] = [1 << 12, 60].map(|flows| Meter::new(Config { flows, ..config }));
        let mut out = Vec::new();
        large.process(&packets, &mut out);
        let before = large.live();
        let mut all = BucketSet::new();
        (0..BUCKETS as u16).for_each(|part| all.insert(part));
        let mut moved = Vec::new();
        large.start_migration(all);
        large.migrate_out(|_, flow| moved.push(flow));
        assert_eq!((large.live(), moved.len() as u64), (RecordTotals::default(), before.flows));
        moved.into_iter().for_each(|flow| small.migrate_in(flow, &mut out));
        assert_eq!(small.counters().created, 0);
        assert_eq!((small.live().flows, out.len() as u64), (60, large.counters().created - 60), "{policy:?}");
        assert!(out.iter().any(|flow| flow.end_reason == EndReason::LackOfResources), "{policy:?}");
        small.drain(&mut out);
        assert_eq!(out.iter().map(FlowRecord::packets).sum::<u64>(), packets.len() as u64);
        let octets: u64 = packets.iter().map(|packet| u64::from(packet.frame_bytes)).sum();
        assert_eq!(out.iter().map(FlowRecord::frame_bytes).sum::<u64>(), octets);
        // But for the reason they are the records of a meter in which all have room.
        let mut one = real::meter_packets(&packets, packets.len(), config).0;
        one.iter_mut().chain(&mut out).for_each(|flow| {
            assert!(!flow.approximate.has(Approximate::OVERFLOW));
            if flow.end_reason == EndReason::LackOfResources {
                flow.end_reason = EndReason::Forced;
            }
        });
        compare(&out, &one).unwrap_or_else(|apart| panic!("{policy:?}: {apart}"));
    }
}
