//! The worst loads: every packet a new flow, full flow caches, and keys chosen to collide.

use crate::ceiling::{Null, Roofline};
use crate::error::Error;
use crate::frames::Frames;
use crate::load::{DecodedPackets, config};
use crate::measure::{Bench, Group};
use crate::meter::{Fused, Metering};
use crate::report::{NULL, PIPELINE, ROOFLINE, Table};
use weir_flow::{CacheFullPolicy, Config, KeyHasher, KeyOptions};
use weir_packet::{Packet, ipv4_mapped};
use weir_text::units::number;
use weir_trafficgen::Random;

const RANDOM: &str = "random keys";
const COLLIDING: &str = "keys that collide under a known secret";
/// Time between two packets of [`shuffled`], ns.
const PACKET_INTERVAL_NS: u64 = 100;

/// Every packet a new flow: with capacity for all, and with a full flow cache under each policy. Then keys
/// chosen by an attacker.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
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
    for (row, cache_full_policy, flows, idle_timeout_ns) in policies {
        let mut frames = Frames::continuing("velan,flows=1,size=64,rate=10M,new=10M", bench.size(4 << 20, 20_000))?;
        let config = Config { cache_full_policy, idle_timeout_ns, flows: flows as u32, ..Config::default() };
        let group = Group::new(row, 0.0)
            .case(NULL, Null)
            .case(ROOFLINE, Roofline::new(flows)?)
            .case(PIPELINE, Fused::new(config)?);
        group.measure(bench, &mut table, &mut frames, Frames::next_round)?;
    }
    colliding_keys(bench, &mut table)?;
    Ok(table)
}

/// Meters keys that collide under a known secret: under a random secret, beside random keys; and a
/// smaller number of them under the known secret.
fn colliding_keys(bench: &mut Bench<'_>, table: &mut Table) -> Result<(), Error> {
    const SECRET: u64 = 1;
    let keys = bench.size(1 << 20, 1 << 10);
    (bench.say)("flood: searching colliding keys");
    let known = KeyHasher::new(Some(SECRET));
    // The lowest 2^-10 of all hashes select 2^-10 of the buckets.
    let mut tried = 0;
    let mut colliding = Vec::with_capacity(keys);
    while colliding.len() < keys {
        let packet = packet_of_flow(tried);
        if known.hash(&packet, KeyOptions::default()) >> (64 - 10) == 0 {
            colliding.push(packet);
        }
        tried += 1;
    }
    // Random keys of the same form and mean distance.
    let random: Vec<Packet> =
        (0..keys as u64).map(|number| packet_of_flow(tried + number * (tried / keys as u64))).collect();
    let few = &colliding[..keys >> 4];
    let packets = bench.size(4 << 20, 20_000);
    let case = |keys: &[Packet], packets, config| Ok::<_, Error>(shuffled(keys, packets).case(Metering::new(config)?));
    let group = Group::new(format!("{keys} keys"), 0.0)
        .case(RANDOM, case(&random, packets, config(keys))?)
        .case(COLLIDING, case(&colliding, packets, config(keys))?);
    group.measure(bench, table, &mut (), |()| Ok(()))?;
    let weak = Config { secret: Some(SECRET), ..config(few.len()) };
    let group = Group::new(format!("{} of them, under the known secret", few.len()), 0.0)
        .case(COLLIDING, case(few, packets >> 6, weak)?);
    group.measure(bench, table, &mut (), |()| Ok(()))?;
    table.notes.push(format!("{} keys searched for colliding ones", number(tried as f64)));
    Ok(())
}

/// Returns a packet of a numbered flow, from hosts of one network to one server.
fn packet_of_flow(number: u64) -> Packet {
    let address = (10_u32 << 24) | (number >> 16) as u32 & 0xff_ffff;
    Packet {
        source: ipv4_mapped(address.to_be_bytes()),
        destination: ipv4_mapped([192, 0, 2, 1]),
        source_port: number as u16,
        destination_port: 443 + (number >> 40) as u16,
        protocol: 17,
        ip_bytes: 46,
        frame_bytes: 60,
        ttl: 64,
        time_ns: 1_767_225_600_000_000_000,
        ..Packet::default()
    }
}

/// Returns `packets` packets of flows in random order.
fn shuffled(keys: &[Packet], packets: usize) -> DecodedPackets {
    let mut random = Random::new(1);
    let packet = |number: u64| {
        let key = keys[random.below(keys.len() as u64) as usize];
        Packet { time_ns: key.time_ns + PACKET_INTERVAL_NS * number, ..key }
    };
    let packets = packets as u64;
    DecodedPackets { packets: (0..packets).map(packet).collect(), span_ns: PACKET_INTERVAL_NS * packets }
}
