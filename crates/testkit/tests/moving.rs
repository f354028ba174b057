//! Compares several meters behind a [`Partitioner`], with flows migrating between them at random, with
//! one meter that processes all packets: the records are equal in every field.
//!
//! Every meter has a queue, as on a thread of its own, and processes it at random times. So a flow
//! reaches meters that are behind the one it left, and meters that are ahead of it.

use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use weir_flow::{
    Approximate, BUCKETS, BucketSet, CacheFullPolicy, Config, EndReason, FlowRecord, KeyOptions, Meter, MigratedFlow,
    Partitioner,
};
use weir_ledger::RecordTotals;
use weir_packet::Packet;
use weir_testkit::{compare, real, traffic};
use weir_trafficgen::Random;

const SEEDS: u64 = 400;
const SECOND: u64 = 1_000_000_000;

/// Returns a set of buckets, each chosen with probability 1 in `rarity`.
fn random_buckets(random: &mut Random, rarity: u64) -> BucketSet {
    let mut buckets = BucketSet::new();
    (0..BUCKETS as u16).filter(|_| random.below(rarity) == 0).for_each(|bucket| buckets.insert(bucket));
    buckets
}

/// An entry in a meter's queue.
enum Message {
    Packets(Vec<Packet>),
    Seek(BucketSet),
    Forget,
    Release(usize),
    Adopt(usize),
}

/// A meter and its queue.
struct Queued {
    meter: Meter,
    queue: VecDeque<Message>,
}

/// Migration of the flows of some buckets.
#[derive(Default)]
struct Move {
    buckets: BucketSet,
    to: usize,
    flows: Vec<MigratedFlow>,
    /// Records that the source meter lost by it.
    records: RecordTotals,
    released: bool,
    adopted: bool,
}

/// A partitioner and its meters.
struct Cluster {
    partitioner: Partitioner,
    /// Meter of each bucket.
    owners: [usize; BUCKETS],
    meters: Vec<Queued>,
    moves: Vec<Move>,
    /// Buckets of the pending migration, its source and its destination meter.
    pending: Option<(BucketSet, usize, usize)>,
    random: Random,
    /// Mean number of bursts between two decisions.
    decision_interval: u64,
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

impl Cluster {
    fn new(config: Config, meters: usize, seed: u64) -> Self {
        let queued = (0..meters).map(|_| Queued { meter: Meter::new(config), queue: VecDeque::new() }).collect();
        Self {
            partitioner: Partitioner::new(config.secret.expect("all meters share a secret"), config.key)
                .expect("there is memory"),
            owners: std::array::from_fn(|bucket| bucket % meters),
            meters: queued,
            moves: Vec::new(),
            pending: None,
            random: Random::new(seed),
            decision_interval: if seed.is_multiple_of(2) { 1 } else { 6 },
            newest_ns: 0,
            out: Vec::new(),
            moved: 0,
        }
    }

    fn give(&mut self, burst: &[Packet]) {
        let mut shares = vec![Vec::new(); self.meters.len()];
        for packet in burst {
            let mut packet = *packet;
            let bucket = self.partitioner.bucket(&mut packet);
            self.newest_ns = self.newest_ns.max(packet.time_ns);
            shares[self.owners[usize::from(bucket)]].push(packet);
        }
        for (queued, share) in self.meters.iter_mut().zip(shares) {
            if !share.is_empty() {
                queued.queue.push_back(Message::Packets(share));
            }
        }
        if self.random.below(self.decision_interval) == 0 {
            self.decide();
        }
        for _ in 0..self.random.below(2 * self.meters.len() as u64 + 1) {
            let one = self.random.below(self.meters.len() as u64) as usize;
            self.step(one);
        }
    }

    /// Starts a migration, or cancels or completes the pending one.
    fn decide(&mut self) {
        match self.pending.take() {
            None => {
                let meters = self.meters.len() as u64;
                let from = self.random.below(meters) as usize;
                let to = (from + 1 + self.random.below(meters - 1) as usize) % self.meters.len();
                let rarity = [1, 2, 20][self.random.below(3) as usize];
                let buckets = random_buckets(&mut self.random, rarity);
                let own = |bucket: &u16| buckets.contains(*bucket) && self.owners[usize::from(*bucket)] == from;
                let mut pending = BucketSet::new();
                (0..BUCKETS as u16).filter(own).for_each(|bucket| pending.insert(bucket));
                self.meters[from].queue.push_back(Message::Seek(pending));
                self.pending = Some((pending, from, to));
            }
            Some((_, from, _)) if self.random.below(5) == 0 => self.meters[from].queue.push_back(Message::Forget),
            Some((buckets, from, to)) => {
                for bucket in (0..BUCKETS as u16).filter(|&bucket| buckets.contains(bucket)) {
                    assert_eq!(std::mem::replace(&mut self.owners[usize::from(bucket)], to), from);
                }
                self.meters[from].queue.push_back(Message::Release(self.moves.len()));
                self.meters[to].queue.push_back(Message::Adopt(self.moves.len()));
                self.moves.push(Move { buckets, to, ..Move::default() });
            }
        }
    }

    /// Lets one meter process its next message. Returns false without one.
    fn step(&mut self, one: usize) -> bool {
        let Queued { meter, queue } = &mut self.meters[one];
        match queue.pop_front() {
            None => {
                if self.random.below(4) == 0 {
                    meter.advance_time(self.newest_ns, &mut self.out);
                }
                return false;
            }
            Some(Message::Packets(packets)) => meter.process(&packets, &mut self.out),
            Some(Message::Seek(buckets)) => meter.start_migration(buckets),
            Some(Message::Forget) => {
                meter.cancel_migration();
                assert!(!meter.migration_ready());
            }
            Some(Message::Release(number)) => {
                let before = meter.open_records();
                let released = &mut self.moves[number];
                meter.migrate_out(|bucket, moved| {
                    assert!(released.buckets.contains(bucket));
                    released.flows.push(moved);
                });
                released.records = less(before, meter.open_records());
                released.released = true;
                self.moved += released.flows.len();
                if self.random.below(2) == 0 {
                    // The destination may adopt the flows early.
                    self.adopt(number);
                }
            }
            Some(Message::Adopt(number)) if self.moves[number].released => self.adopt(number),
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
        let (live, ended) = (meter.open_records(), self.out.len());
        let created = meter.counters().created;
        adopted.flows.drain(..).for_each(|moved| meter.migrate_in(moved, &mut self.out));
        assert_eq!(self.out.len(), ended, "a flow ended although the cache has free slots");
        assert_eq!((less(meter.open_records(), live), meter.counters().created), (adopted.records, created));
    }

    /// Asserts that every record created is exported, live or migrating.
    fn check(&self) {
        let created: u64 = self.meters.iter().map(|queued| queued.meter.counters().created).sum();
        let live: u64 = self.meters.iter().map(|queued| queued.meter.open_records().flows).sum();
        let migrating = self.moves.iter().filter(|one| one.released && !one.adopted);
        let migrating: u64 = migrating.map(|one| one.records.flows).sum();
        assert_eq!(created, live + migrating + self.out.len() as u64);
    }

    fn finish(&mut self) {
        while self.meters.iter().any(|queued| !queued.queue.is_empty()) {
            (0..self.meters.len()).for_each(|one| while self.step(one) {});
        }
        for Queued { meter, .. } in &mut self.meters {
            meter.advance_time(self.newest_ns, &mut self.out);
            meter.drain(&mut self.out);
            assert_eq!(meter.open_records(), RecordTotals::default());
        }
        self.check();
    }
}

/// Compares all fields of all records.
///
/// # Errors
/// The most similar pair of different records.
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
    Err(format!("fields without meaning differ: {more:?} against {less:?}"))
}

/// How cluster flows migrated, and the records.
fn compare_with_one_meter(
    packets: &[Packet],
    burst: usize,
    config: Config,
    meters: usize,
    seed: u64,
) -> Result<(usize, Vec<FlowRecord>), String> {
    let (one, meter) = real::meter_packets(packets, burst, config);
    let mut cluster = Cluster::new(config, meters, seed);
    packets.chunks(burst).for_each(|burst| cluster.give(burst));
    cluster.finish();
    compare(&cluster.out, &one).map_err(|apart| format!("{meters} meters against one: {apart}"))?;
    let mut anomalies = HashMap::new();
    for queued in &cluster.meters {
        let counters = queued.meter.counters();
        counters.anomalies.nonzero().for_each(|(what, count)| *anomalies.entry(what).or_default() += count);
        if counters.dropped_packets > 0 {
            return Err("packets were dropped".into());
        }
    }
    compare::same("anomalies", anomalies, meter.counters().anomalies.nonzero().collect())?;
    Ok((cluster.moved, one))
}

/// Returns the packets of hostile frames with monotonic times; some exceed the compact counters.
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
fn migrated_flows_have_the_records_of_one_meter_on_hostile_traffic() {
    let moved = std::cell::Cell::new(0);
    let case = (traffic::steps(160), 1..8_usize, traffic::settings(), 2..6_usize, any::<u64>());
    traffic::check(SEEDS, &case, |(steps, burst, settings, meters, seed)| {
        let packets = hostile(&steps, settings.decode.decapsulate, &mut Random::new(seed));
        let config = Config { flows: 4096, ..settings.meter };
        let (flows, _) = compare_with_one_meter(&packets, burst, config, meters, seed)?;
        moved.set(moved.get() + flows);
        Ok(())
    });
    println!("{} flows migrated", moved.get());
    assert!(
        moved.get() > 10 * SEEDS as usize || std::env::var_os("WEIR_SEEDS").is_some(),
        "{} flows migrated",
        moved.get()
    );
}

/// Returns the packets of a synthetic load.
fn load(specification: &str) -> Vec<Packet> {
    let packets = weir_testkit::load(specification);
    assert!(packets.is_sorted_by_key(|packet| packet.time_ns), "time does not step back");
    packets
}

/// What cluster connections at once make of it, so that places are found by looking at some after others.
fn compare_on_load(specification: &str) {
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
        let (moved, flows) =
            compare_with_one_meter(&packets, burst, config, meters, 7).unwrap_or_else(|why| panic!("{why}"));
        let ended = |reason| flows.iter().filter(|flow| flow.end_reason == reason).count();
        let reasons = [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow].map(ended);
        println!("{specification}: {meters} meters, {moved} flows migrated, ends {reasons:?}");
        assert!(moved > 500 && reasons.iter().all(|&ended| ended > 10), "{moved} flows migrated, ends {reasons:?}");
    }
}

#[test]
fn migrated_flows_have_the_records_of_one_meter_on_a_lossy_network() {
    compare_on_load(
        "lossy,flows=600,packets=60k,loss=6%,recut=60%,reorder=4%,spurious=2%,duplicate=4%,routed=40%,keepalive=30%,\
         zerowindow=30%,noid=50%",
    );
}

#[test]
fn migrated_flows_have_the_records_of_one_meter_on_an_internet_mix() {
    compare_on_load("mix,flows=4000,packets=100k,ramp=1s");
}

/// Flows that do not fit are exported at once; all others continue.
#[test]
fn full_meter_exports_flows_that_it_cannot_adopt() {
    let packets = load("lossy,flows=500,new=500,packets=20k,loss=6%,duplicate=4%");
    for policy in [CacheFullPolicy::Overflow, CacheFullPolicy::Drop, CacheFullPolicy::EvictOldestIdle] {
        let config = Config { secret: Some(3), policy, ..Config::default() };
        let [mut large, mut small] = [1 << 12, 60].map(|flows| Meter::new(Config { flows, ..config }));
        let mut out = Vec::new();
        large.process(&packets, &mut out);
        let before = large.open_records();
        let mut all = BucketSet::new();
        (0..BUCKETS as u16).for_each(|bucket| all.insert(bucket));
        let mut moved = Vec::new();
        large.start_migration(all);
        large.migrate_out(|_, flow| moved.push(flow));
        assert_eq!((large.open_records(), moved.len() as u64), (RecordTotals::default(), before.flows));
        moved.into_iter().for_each(|flow| small.migrate_in(flow, &mut out));
        assert_eq!(small.counters().created, 0);
        assert_eq!((small.open_records().flows, out.len() as u64), (60, large.counters().created - 60), "{policy:?}");
        assert!(out.iter().any(|flow| flow.end_reason == EndReason::LackOfResources), "{policy:?}");
        small.drain(&mut out);
        assert_eq!(out.iter().map(FlowRecord::packets).sum::<u64>(), packets.len() as u64);
        let octets: u64 = packets.iter().map(|packet| u64::from(packet.frame_bytes)).sum();
        assert_eq!(out.iter().map(FlowRecord::frame_bytes).sum::<u64>(), octets);
        // Apart from the end reason, the records equal those of a meter with enough slots.
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
