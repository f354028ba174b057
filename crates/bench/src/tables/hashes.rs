//! The keyed hash beside the RSS hash, and keys chosen to collide.

use crate::ceiling::{Hashed, Null, Roofline};
use crate::error::{CountMismatch, Error};
use crate::frames::Frames;
use crate::index::bucket_of;
use crate::load::{config, velan};
use crate::measure::{Bench, Fact, Group, Run, Work, timed};
use crate::meter::{Fused, Metering, Packets, decode};
use crate::report::{Curve, NULL, PIPELINE, Plot, ROOFLINE, Table};
use std::collections::HashSet;
use std::hint::black_box;
use std::path::Path;
use weir_capture::Source;
use weir_flow::{CacheFullPolicy, Config, KeyHasher, KeyOptions};
use weir_host::{STANDARD_KEY, SYMMETRIC_PATTERN, Toeplitz};
use weir_packet::{Network, Packet, ipv4_mapped};
use weir_text::units::number;

/// The ceiling: reads all octets of a key and hashes nothing.
const READ: &str = "keys only read";
const OURS: &str = "keyed multiply";
const SYMMETRIC: &str = "Toeplitz, symmetric key";
const STANDARD: &str = "Toeplitz, standard key";
/// Mean keys per bucket of a full flow cache.
const LOAD: f64 = 6.5;
const KEY: KeyOptions = KeyOptions { vlan: false, interface: false, tunnel: false, unidirectional: false };

/// Returns one packet of each flow among the first packets of a synthetic load.
pub fn distinct_keys(specification: &str, packets: usize) -> Result<Vec<Packet>, Error> {
    let mut source = weir_trafficgen::TrafficGenerator::new(&format!("{specification},packets={packets}"))?;
    let mut keys = Keys::default();
    keys.enter(&mut source)?;
    Ok(keys.packets)
}

/// Address and port.
type End = ([u8; 16], u16);

/// Packets of distinct flows.
#[derive(Default)]
struct Keys {
    /// Sorted endpoints, and protocol.
    known: HashSet<([End; 2], u8)>,
    packets: Vec<Packet>,
}

impl Keys {
    fn enter(&mut self, source: &mut dyn Source) -> Result<(), Error> {
        while let Some(burst) = source.burst()? {
            for frame in &burst {
                let mut packet = Packet::default();
                if !decode(frame, &mut packet) {
                    continue;
                }
                let mut ends = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
                ends.sort();
                // The RSS hash depends on the order of the endpoints; use one order.
                [(packet.source, packet.source_port), (packet.destination, packet.destination_port)] = ends;
                if self.known.insert((ends, packet.protocol)) {
                    self.packets.push(packet);
                }
            }
        }
        Ok(())
    }

    /// Reads all captures in a directory; skips what cannot be read.
    fn from_captures(directory: &Path) -> Self {
        let mut keys = Self::default();
        let mut paths: Vec<_> =
            std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            if let Ok(mut source) = weir_capture::open(path) {
                let _ = keys.enter(source.as_mut());
            }
        }
        keys
    }
}

/// Counts hashes per bucket.
pub fn counted(hashes: &[u64], buckets: usize) -> Vec<u32> {
    let mut counted = vec![0; buckets];
    for hash in hashes {
        counted[bucket_of(*hash, buckets)] += 1;
    }
    counted
}

/// Cumulative share of buckets over keys per bucket: measured, and of the Poisson distribution with the
/// same mean.
pub fn bucket_distribution(counted: &[u32], mean: f64) -> [Vec<(f64, f64)>; 2] {
    let most = counted.iter().copied().max().unwrap_or(0).min(40) as usize;
    let mut shares = vec![0.0; most + 1];
    for &keys in counted {
        shares[(keys as usize).min(most)] += 1.0 / counted.len() as f64;
    }
    let (mut measured, mut poisson) = (Vec::new(), Vec::new());
    let (mut sum, mut expected, mut term) = (0.0, 0.0, (-mean).exp());
    for (keys, share) in shares.into_iter().enumerate() {
        sum += share;
        expected += term;
        term *= mean / (keys + 1) as f64;
        measured.push((keys as f64, sum));
        poisson.push((keys as f64, expected));
    }
    [measured, poisson]
}

/// Hashes up to 2048 packets, which fit into the L1 or L2 cache, many times.
struct Hashing<F>(F);

impl<F: Fn(&Packet) -> u64> Work<Packets> for Hashing<F> {
    fn run(&mut self, packets: &mut Packets) -> Result<Run, Error> {
        let packets = &packets.0[..packets.0.len().min(2048)];
        let times = 4_000_000 / packets.len();
        let ((), seconds) = timed(|| {
            for _ in 0..times {
                black_box(packets.iter().fold(0, |sum: u64, packet| sum.wrapping_add(self.0(packet))));
            }
        });
        Ok(Run::new((times * packets.len()) as u64, seconds))
    }
}

/// RSS hash of a packet: addresses, and ports of TCP and UDP.
#[inline(always)]
fn rss(toeplitz: &Toeplitz, packet: &Packet) -> u64 {
    let mut input = [0; 36];
    let address = if packet.network == Network::Ipv4 { 4 } else { 16 };
    input[..address].copy_from_slice(&packet.source[16 - address..]);
    input[address..2 * address].copy_from_slice(&packet.destination[16 - address..]);
    input[2 * address..][..2].copy_from_slice(&packet.source_port.to_be_bytes());
    input[2 * address + 2..][..2].copy_from_slice(&packet.destination_port.to_be_bytes());
    // The bucket is chosen by the upper half of 64 bits.
    u64::from(toeplitz.hash(&input[..2 * address + 4])) << 32
}

/// Compares the keyed hash with the RSS hash: cost, and distribution of keys.
pub fn hash(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "one packet of each flow, decoded beforehand; cost: 2048 of them, in the cache; collisions: distinct keys \
                in buckets of 6.5 keys on average, as in a full flow index. NICs compute the RSS hash in hardware; its \
                cost here is that of software";
    let mut table = Table::new("hash", "The keyed hash and the RSS hash", "keys", load);
    table.logarithmic = false;
    table.against = vec![OURS];
    let hosts = || (0..=255).flat_map(|one| (0..one).map(move |other| (one, other)));
    let host = |number: u8| ipv4_mapped([192, 0, 2, number]);
    let pairs = hosts().map(|(one, other)| Packet { source: host(one), destination: host(other), ..numbered(53) });
    let ports = (0..=u16::MAX).map(|port| Packet { source_port: port, ..numbered(0) });
    let mut loads = vec![
        ("hosts of one /24".to_owned(), pairs.collect()),
        ("ports of two hosts".to_owned(), ports.collect()),
        ("velan".to_owned(), distinct_keys(&velan(bench.size(1 << 20, 4096)), bench.size(4 << 20, 20_000))?),
        (
            "mix".to_owned(),
            distinct_keys(&format!("mix,flows={}", bench.size(300_000, 2000)), bench.size(4 << 20, 40_000))?,
        ),
    ];
    if let Some(folder) = &bench.captures {
        let keys = Keys::from_captures(folder).packets;
        if keys.len() > 1 {
            loads.push(("captures".to_owned(), keys));
        } else {
            table.notes.push(format!("no captures in {}", folder.display()));
        }
    }
    let ours = KeyHasher::new(None);
    for (name, keys) in loads {
        let mut packets = Packets(keys);
        let [symmetric, standard] = [&SYMMETRIC_PATTERN.repeat(20)[..], &STANDARD_KEY].map(Toeplitz::new);
        let hashes = [
            (OURS, packets.0.iter().map(|packet| ours.hash(packet, KEY)).collect::<Vec<u64>>()),
            (SYMMETRIC, packets.0.iter().map(|packet| rss(&symmetric, packet)).collect()),
            (STANDARD, packets.0.iter().map(|packet| rss(&standard, packet)).collect()),
        ];
        let row = format!("{name}, {}", packets.0.len());
        let read = |packet: &Packet| packet.words()[..8].iter().fold(0, |sum, word| sum ^ word);
        let group = Group::new(&row, 0.0)
            .case(READ, Hashing(read))
            .case(OURS, Hashing(|packet: &Packet| ours.hash(packet, KEY)))
            .case(SYMMETRIC, Hashing(|packet: &Packet| rss(&symmetric, packet)))
            .case(STANDARD, Hashing(|packet: &Packet| rss(&standard, packet)));
        group.measure(bench, &mut table, &mut packets, |_| Ok(()))?;
        let number = ((packets.0.len() as f64 / LOAD) as usize).max(1);
        let mean = packets.0.len() as f64 / number as f64;
        let mut curves = Vec::new();
        for (series, hashes) in hashes {
            let counted = counted(&hashes, number);
            let [measured, poisson] = bucket_distribution(&counted, mean);
            if curves.is_empty() {
                curves.push(Curve { series: "Poisson".into(), points: poisson });
            }
            curves.push(Curve { series: series.into(), points: measured });
            let values: HashSet<u32> = hashes.iter().map(|hash| (hash >> 32) as u32).collect();
            let variance = counted.iter().map(|&keys| (f64::from(keys) - mean).powi(2)).sum::<f64>() / number as f64;
            let crowded: u32 = counted.iter().filter(|&&keys| keys > 10).sum();
            let facts = [
                ("distinct 32-bit values", values.len() as f64),
                ("most keys in a bucket", f64::from(counted.iter().copied().max().unwrap_or(0))),
                ("variance / mean (1 by Poisson)", variance / mean),
                ("% of keys in buckets beyond 10", 100.0 * f64::from(crowded) / packets.0.len() as f64),
            ];
            let mine = table.figures.iter_mut().find(|figure| figure.row == row && figure.series == series);
            if let Some(figure) = mine {
                figure.facts.extend(facts.map(|(name, value)| (name.to_owned(), value)));
            }
        }
        table.plots.push(Plot {
            name: format!("hash-{}", name.replace([' ', '/'], "-")),
            title: format!("Keys per bucket: {row} keys"),
            axes: ["keys in a bucket".into(), "share of buckets with at most this number of keys".into()],
            curves,
        });
    }
    Ok(table)
}

/// Every packet a new flow: with capacity for all, and with a full flow cache under each policy. Then keys
/// chosen by an attacker.
pub fn flood(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "64-octet UDP frames, every packet a flow of its own, at 10 Mpps. Capacity for all: idle timeout 50 ms, 2 M \
                records; full: 131072 records. Colliding keys: packets decoded before";
    let mut table = Table::new("flood", "Every packet a new flow", "load", load);
    table.logarithmic = false;
    table.against = vec![ROOFLINE, RANDOM];
    let full = bench.size(131_072, 1024);
    let policies = [
        ("capacity for all", CacheFullPolicy::Overflow, bench.size(2 << 20, 64 << 10), 50_000_000),
        ("full, overflow", CacheFullPolicy::Overflow, full, Config::default().idle_timeout_ns),
        ("full, evict", CacheFullPolicy::EvictOldestIdle, full, Config::default().idle_timeout_ns),
        ("full, drop", CacheFullPolicy::Drop, full, Config::default().idle_timeout_ns),
    ];
    for (row, policy, flows, idle_timeout_ns) in policies {
        let specification = "velan,flows=1,size=64,rate=10M,new=10M";
        let mut frames = Frames::continuing(specification, bench.size(4 << 20, 20_000))?;
        let group = Group::new(row, 0.0)
            .case(NULL, Null)
            .case(ROOFLINE, Roofline::new(flows)?)
            .case(PIPELINE, Fused::new(Config { policy, idle_timeout_ns, flows: flows as u32, ..Config::default() })?);
        group.measure(bench, &mut table, &mut frames, Frames::next_round)?;
    }
    attack(bench, &mut table)?;
    Ok(table)
}

const RANDOM: &str = "random keys";

/// Meters keys that collide under a known secret: under a random secret, beside random keys; and a
/// smaller number of them under the known secret.
fn attack(bench: &mut Bench<'_>, table: &mut Table) -> Result<(), Error> {
    const SECRET: u64 = 1;
    let number = bench.size(1 << 20, 1 << 10);
    (bench.say)("flood: searching colliding keys");
    let known = KeyHasher::new(Some(SECRET));
    // The lowest 2^-10 of all hashes select 2^-10 of the buckets.
    let mut tried = 0;
    let mut colliding = Vec::with_capacity(number);
    while colliding.len() < number {
        let packet = numbered(tried);
        if known.hash(&packet, KEY) >> (64 - 10) == 0 {
            colliding.push(packet);
        }
        tried += 1;
    }
    // Random keys of the same form and mean distance.
    let random: Vec<Packet> = (0..number as u64).map(|at| numbered(tried + at * (tried / number as u64))).collect();
    let few: Vec<Packet> = colliding[..number >> 4].to_vec();
    let row = format!("{number} keys");
    let packets = bench.size(4 << 20, 20_000);
    let config = config(number);
    let mut none = ();
    let one_line = Hashed::new(number, shuffled(&random, packets))?;
    let mut group = Group::new(row, 0.0).case(ROOFLINE, one_line);
    for (series, keys) in [(RANDOM, &random), ("keys that collide under a known secret", &colliding)] {
        group = group.case(series, OwnPackets { metering: Metering::new(config)?, packets: shuffled(keys, packets) });
    }
    group.measure(bench, table, &mut none, |()| Ok(()))?;
    let one_line = Hashed::new(few.len(), shuffled(&few, packets >> 6))?;
    let group = Group::new(format!("{} of them, under the known secret", few.len()), 0.0).case(ROOFLINE, one_line);
    let weak = Config { secret: Some(SECRET), ..crate::load::config(few.len()) };
    let own = OwnPackets { metering: Metering::new(weak)?, packets: shuffled(&few, packets >> 6) };
    group.case("keys that collide under a known secret", own).measure(bench, table, &mut none, |()| Ok(()))?;
    table.notes.push(format!("{} keys searched for colliding ones", self::number(tried as f64)));
    Ok(())
}

/// Returns a packet of flow number `at`, from hosts of one network to one server.
pub fn numbered(at: u64) -> Packet {
    let address = (10_u32 << 24) | (at >> 16) as u32 & 0xff_ffff;
    Packet {
        source: ipv4_mapped(address.to_be_bytes()),
        destination: ipv4_mapped([192, 0, 2, 1]),
        source_port: at as u16,
        destination_port: 443 + (at >> 40) as u16,
        protocol: 17,
        ip_bytes: 46,
        frame_bytes: 60,
        ttl: 64,
        time_ns: 1_767_225_600_000_000_000,
        ..Packet::default()
    }
}

/// Returns `packets` packets of flows in random order, 100 ns apart.
pub fn shuffled(keys: &[Packet], packets: usize) -> Packets {
    let mut random = weir_trafficgen::Random::new(1);
    let next = |at: usize| {
        let key = keys[bucket_of(random.next_u64(), keys.len())];
        Packet { time_ns: key.time_ns + 100 * at as u64, ..key }
    };
    Packets((0..packets).map(next).collect())
}

/// A meter with packets of its own.
struct OwnPackets {
    metering: Metering,
    packets: Packets,
}

impl Work<()> for OwnPackets {
    fn run(&mut self, (): &mut ()) -> Result<Run, Error> {
        let run = Work::<Packets>::run(&mut self.metering, &mut self.packets)?;
        let step_ns = 100 * self.packets.0.len() as u64;
        self.packets.0.iter_mut().for_each(|packet| packet.time_ns += step_ns);
        Ok(run)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.metering.close()
    }
}
