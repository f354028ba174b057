//! Compares several meters behind a [`Partitioner`], with flows migrating between them at random, with
//! one meter that processes all packets: the records are equal in every field.
//!
//! Every meter has a queue, as on a thread of its own, and processes it at random times. So a flow
//! reaches meters that are behind the one it left, and meters that are ahead of it.

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use weir_flow::{
    Approximate, BUCKETS, BucketSet, CacheFullPolicy, Config, EndReason, FlowRecord, KeyOptions, Meter, MigratedFlow,
    Partitioner,
};
use weir_ledger::RecordTotals;
use weir_packet::Packet;
use weir_probe::Settings;
use weir_testkit::{compare, real, traffic};
use weir_trafficgen::Random;

const SEEDS: u64 = 400;
const SECOND: u64 = 1_000_000_000;

/// An entry in a meter's queue. A number is that of a migration.
enum Message {
    Packets(Vec<Packet>),
    StartMigration(BucketSet),
    CancelMigration,
    MigrateOut(usize),
    MigrateIn(usize),
}

/// A meter and its queue.
struct Queued {
    meter: Meter,
    queue: VecDeque<Message>,
}

/// Migration of the flows of some buckets.
#[derive(Default)]
struct Migration {
    buckets: BucketSet,
    to: usize,
    flows: Vec<MigratedFlow>,
    /// Records that the source meter lost by it.
    records: RecordTotals,
    migrated_out: bool,
    migrated_in: bool,
}

/// A partitioner and its meters.
struct Cluster {
    partitioner: Partitioner,
    /// Meter of each bucket.
    owners: [usize; BUCKETS],
    meters: Vec<Queued>,
    migrations: Vec<Migration>,
    /// Buckets of the pending migration, its source and its destination meter.
    pending: Option<(BucketSet, usize, usize)>,
    random: Random,
    /// Mean number of bursts between two decisions.
    decision_interval: u64,
    newest_ns: u64,
    out: Vec<FlowRecord>,
    migrated_flows: usize,
}

impl Cluster {
    fn new(config: Config, meters: usize, seed: u64) -> Self {
        let queued =
            (0..meters).map(|_| Queued { meter: Meter::new(config).unwrap(), queue: VecDeque::new() }).collect();
        Self {
            partitioner: Partitioner::new(config.secret.expect("all meters share a secret"), config.key)
                .expect("there is memory"),
            owners: std::array::from_fn(|bucket| bucket % meters),
            meters: queued,
            migrations: Vec::new(),
            pending: None,
            random: Random::new(seed),
            decision_interval: if seed.is_multiple_of(2) { 1 } else { 6 },
            newest_ns: 0,
            out: Vec::new(),
            migrated_flows: 0,
        }
    }

    /// Queues a burst, and lets some meters process their next messages.
    fn process(&mut self, burst: &[Packet]) {
        let mut shares = vec![Vec::new(); self.meters.len()];
        for packet in burst {
            let mut packet = *packet;
            let bucket = self.partitioner.assign(&mut packet);
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
            let number = self.random.below(self.meters.len() as u64) as usize;
            self.step(number);
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
                let mut buckets = BucketSet::default();
                for bucket in 0..BUCKETS {
                    if self.random.below(rarity) == 0 && self.owners[bucket] == from {
                        buckets.insert(bucket as u16);
                    }
                }
                self.meters[from].queue.push_back(Message::StartMigration(buckets));
                self.pending = Some((buckets, from, to));
            }
            Some((_, from, _)) if self.random.below(5) == 0 => {
                self.meters[from].queue.push_back(Message::CancelMigration);
            }
            Some((buckets, from, to)) => {
                for bucket in (0..BUCKETS as u16).filter(|&bucket| buckets.contains(bucket)) {
                    assert_eq!(std::mem::replace(&mut self.owners[usize::from(bucket)], to), from);
                }
                self.meters[from].queue.push_back(Message::MigrateOut(self.migrations.len()));
                self.meters[to].queue.push_back(Message::MigrateIn(self.migrations.len()));
                self.migrations.push(Migration { buckets, to, ..Migration::default() });
            }
        }
    }

    /// Lets one meter process its next message. Returns false without one.
    fn step(&mut self, meter: usize) -> bool {
        let Queued { meter, queue } = &mut self.meters[meter];
        match queue.pop_front() {
            None => {
                if self.random.below(4) == 0 {
                    meter.advance_time(self.newest_ns, &mut self.out);
                }
                return false;
            }
            Some(Message::Packets(packets)) => meter.process(&packets, &mut self.out),
            Some(Message::StartMigration(buckets)) => meter.start_migration(buckets),
            Some(Message::CancelMigration) => {
                meter.cancel_migration();
                assert!(!meter.migration_ready());
            }
            Some(Message::MigrateOut(number)) => {
                let before = meter.open_records();
                let migration = &mut self.migrations[number];
                meter.migrate_out(|bucket, flow| {
                    assert!(migration.buckets.contains(bucket));
                    migration.flows.push(flow);
                });
                migration.records = before.saturating_sub(meter.open_records());
                migration.migrated_out = true;
                self.migrated_flows += migration.flows.len();
                if self.random.below(2) == 0 {
                    // The destination may take the flows in early.
                    self.migrate_in(number);
                }
            }
            Some(Message::MigrateIn(number)) if self.migrations[number].migrated_out => self.migrate_in(number),
            Some(early) => {
                queue.push_front(early);
                return false;
            }
        }
        self.check();
        true
    }

    fn migrate_in(&mut self, number: usize) {
        let migration = &mut self.migrations[number];
        if std::mem::replace(&mut migration.migrated_in, true) {
            return;
        }
        let meter = &mut self.meters[migration.to].meter;
        let (mut open, ended) = (meter.open_records(), self.out.len());
        let created = meter.counters().created;
        migration.flows.drain(..).for_each(|flow| meter.migrate_in(flow, &mut self.out));
        assert_eq!(self.out.len(), ended, "a flow ended although the cache has free slots");
        open.merge(migration.records);
        assert_eq!((meter.open_records(), meter.counters().created), (open, created));
    }

    /// Asserts that every record created is exported, live or migrating.
    fn check(&self) {
        let created: u64 = self.meters.iter().map(|queued| queued.meter.counters().created).sum();
        let live: u64 = self.meters.iter().map(|queued| queued.meter.open_records().flows).sum();
        let migrating = self.migrations.iter().filter(|migration| migration.migrated_out && !migration.migrated_in);
        let migrating: u64 = migrating.map(|migration| migration.records.flows).sum();
        assert_eq!(created, live + migrating + self.out.len() as u64);
    }

    fn finish(&mut self) {
        while self.meters.iter().any(|queued| !queued.queue.is_empty()) {
            (0..self.meters.len()).for_each(|meter| while self.step(meter) {});
        }
        for Queued { meter, .. } in &mut self.meters {
            meter.advance_time(self.newest_ns, &mut self.out);
            meter.drain(&mut self.out);
            assert_eq!(meter.open_records(), RecordTotals::default());
        }
        self.check();
    }
}

/// Compares all fields of all records, also those without meaning.
///
/// # Errors
/// The most similar pair of different records.
fn compare(ours: &[FlowRecord], theirs: &[FlowRecord]) -> Result<(), String> {
    let sorted = |flows: &[FlowRecord]| {
        let mut lines: Vec<String> = flows.iter().map(|flow| format!("{flow:?}")).collect();
        lines.sort();
        lines
    };
    let (our_lines, their_lines) = (sorted(ours), sorted(theirs));
    if our_lines == their_lines {
        return Ok(());
    }
    compare::flows(ours, theirs)?;
    let different = our_lines.iter().zip(&their_lines).find(|(our, their)| our != their);
    Err(format!("fields without meaning differ: {different:?}"))
}

/// Compares a cluster with one meter. Returns the number of flows that migrated, and the records.
fn compare_with_one_meter(
    packets: &[Packet],
    burst: usize,
    config: Config,
    meters: usize,
    seed: u64,
) -> Result<(usize, Vec<FlowRecord>), String> {
    let (one, meter) = real::meter_packets(packets, burst, config);
    let mut cluster = Cluster::new(config, meters, seed);
    packets.chunks(burst).for_each(|burst| cluster.process(burst));
    cluster.finish();
    compare(&cluster.out, &one).map_err(|apart| format!("{meters} meters against one: {apart}"))?;
    let mut anomalies = BTreeMap::new();
    for queued in &cluster.meters {
        let counters = queued.meter.counters();
        counters.anomalies.nonzero().for_each(|(what, count)| *anomalies.entry(what).or_default() += count);
        if counters.dropped_packets > 0 {
            return Err("packets were dropped".into());
        }
    }
    compare::same("anomalies", anomalies, meter.counters().anomalies.nonzero().collect())?;
    Ok((cluster.migrated_flows, one))
}

/// Returns the packets of hostile frames with monotonic times; some exceed the compact counters.
fn hostile(steps: &[traffic::Step], settings: &Settings, random: &mut Random) -> Vec<Packet> {
    let decode = if settings.meter.mac_addresses { real::decode_with_mac_addresses } else { real::decode };
    let (mut packets, mut newest_ns) = (Vec::new(), 0);
    for mut frame in traffic::frames(steps) {
        newest_ns = frame.time_ns.max(newest_ns);
        frame.time_ns = newest_ns;
        if let Ok((mut packet, _)) = decode(&frame, settings.decode.decapsulate) {
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
    let migrated = std::cell::Cell::new(0);
    let case = (traffic::steps(160), 1..8_usize, traffic::settings(), 2..6_usize, any::<u64>());
    traffic::check(SEEDS, &case, |(steps, burst, settings, meters, seed)| {
        let packets = hostile(&steps, &settings, &mut Random::new(seed));
        let config = Config { flows: 4096, ..settings.meter };
        let (flows, _) = compare_with_one_meter(&packets, burst, config, meters, seed)?;
        migrated.set(migrated.get() + flows);
        Ok(())
    });
    let migrated = migrated.get();
    println!("{migrated} flows migrated");
    assert!(migrated > 10 * SEEDS as usize || std::env::var_os("WEIR_SEEDS").is_some(), "{migrated} flows migrated");
}

/// Returns the packets of a synthetic load.
fn load(specification: &str) -> Vec<Packet> {
    let packets = weir_testkit::load(specification);
    assert!(packets.is_sorted_by_key(|packet| packet.time_ns), "time does not step back");
    packets
}

/// Compares clusters of two, three and five meters with one meter.
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
        let (migrated, flows) =
            compare_with_one_meter(&packets, burst, config, meters, 7).unwrap_or_else(|why| panic!("{why}"));
        let ended = |reason| flows.iter().filter(|flow| flow.end_reason == reason).count();
        let reasons = [EndReason::Idle, EndReason::Active, EndReason::EndOfFlow].map(ended);
        println!("{specification}: {meters} meters, {migrated} flows migrated, ends {reasons:?}");
        let enough = migrated > 500 && reasons.iter().all(|&ended| ended > 10);
        assert!(enough, "{migrated} flows migrated, ends {reasons:?}");
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
fn full_meter_exports_flows_that_it_cannot_take_in() {
    let packets = load("lossy,flows=500,new=500,packets=20k,loss=6%,duplicate=4%");
    for policy in [CacheFullPolicy::Overflow, CacheFullPolicy::Drop, CacheFullPolicy::EvictOldestIdle] {
        let config = Config { secret: Some(3), cache_full_policy: policy, ..Config::default() };
        let [mut large, mut small] = [1 << 12, 60].map(|flows| Meter::new(Config { flows, ..config }).unwrap());
        let mut out = Vec::new();
        large.process(&packets, &mut out);
        let before = large.open_records();
        let mut all = BucketSet::default();
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
