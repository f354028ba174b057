//! What enrichment costs: CPU time to load, memory, and CPU time per record, for lists and databases of
//! several sizes. `cargo run --release -p weir-enrich --example cost`; docs/enrichment.md has a result.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use weir_enrich::{Enrichment, Sources, TagList};
use weir_flow::FlowRecord;
use weir_packet::Network;

const RECORDS: usize = 1 << 20;

/// xorshift64*, with a seed of its own per run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn ipv4(&mut self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.next() >> 32) as u32)
    }

    fn ipv6(&mut self) -> Ipv6Addr {
        Ipv6Addr::from_bits(0x2000 << 112 | u128::from(self.next()) << 61 | u128::from(self.next() >> 3))
    }
}

/// A list of this number of entries.
fn list(folder: &Path, name: &str, entries: usize, mut entry: impl FnMut() -> String) -> TagList {
    let path = folder.join(name);
    let mut text = String::new();
    (0..entries).for_each(|_| writeln!(text, "{}", entry()).expect("a string can be written"));
    std::fs::write(&path, text).expect("the folder can be written");
    TagList { name: name.into(), path }
}

/// A database of countries and systems with a network for each of these prefixes.
fn database(folder: &Path, ipv4: u32) -> PathBuf {
    let mut database = testbed::mmdb::Database::new("Example");
    // Prefixes of 18 to 21 bits, one behind the other.
    let bits = 32 - (u32::MAX / ipv4).ilog2();
    for number in 0..ipv4.min(1 << bits) {
        let value = testbed::mmdb::system(number % 80_000, "An organization with a name");
        database.add(Ipv4Addr::from_bits(number << (32 - bits)).into(), bits as u8, &value);
    }
    let path = folder.join("systems.mmdb");
    std::fs::write(&path, database.octets()).expect("the folder can be written");
    path
}

fn record(source: IpAddr, destination: IpAddr) -> FlowRecord {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let network = if source.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 };
    FlowRecord { source: octets(source), destination: octets(destination), network, ..FlowRecord::default() }
}

/// A figure of `/proc/self/status` in MB.
fn status_mb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) / 1000
}

/// Time for which this thread has run, ns: other programs of a busy machine do not count.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

fn measure(name: &str, entries: usize, sources: &Sources, random: &mut Random) {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = status_mb("VmRSS");
    let start = cpu_ns();
    let (enrichment, _) = Enrichment::load(sources).expect("the files are valid");
    let load_ns = cpu_ns() - start;
    let peak = status_mb("VmHWM").saturating_sub(before);
    let mut time_of = |record: &mut dyn FnMut(&mut Random) -> FlowRecord| {
        let records: Vec<FlowRecord> = (0..RECORDS / 8).map(|_| record(random)).collect();
        let start = cpu_ns();
        let mut found = 0;
        for record in &records {
            let places = enrichment.places(record);
            found += u64::from(places.tags.is_some() || places.source.autonomous_system.is_some());
        }
        ((cpu_ns() - start) / records.len() as f64, found)
    };
    let (ipv4_ns, found) = time_of(&mut |random| record(random.ipv4().into(), random.ipv4().into()));
    let (ipv6_ns, _) = time_of(&mut |random| record(random.ipv6().into(), random.ipv6().into()));
    let bytes = enrichment.memory_bytes();
    println!(
        "{name:<22} {entries:>9} {:>8.2} s {:>7.1} MB {:>6.1} B/entry {peak:>6} MB peak {ipv4_ns:>7.0} ns {ipv6_ns:>7.0} ns ({found} found)",
        load_ns / 1e9,
        bytes as f64 / 1e6,
        bytes as f64 / entries as f64
    );
}

fn main() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let folder = folder.path();
    let random = &mut Random(std::process::id().into());
    println!("list                     entries     load    memory              peak memory     per IPv4 record, IPv6");
    for entries in [1000, 100_000, 1_000_000, 5_000_000] {
        let tags = |list| Sources { tags: vec![list], ..Sources::default() };
        let of = list(folder, "ipv4", entries, || random.ipv4().to_string());
        measure("IPv4 addresses", entries, &tags(of), random);
        let of = list(folder, "ipv6", entries, || random.ipv6().to_string());
        measure("IPv6 addresses", entries, &tags(of), random);
        let of = list(folder, "domains", entries, || format!("host-{:x}.example.com", random.next() >> 24));
        measure("domain names", entries, &tags(of), random);
    }
    for entries in [100_000, 1_000_000] {
        let sources = Sources { geo: vec![database(folder, entries)], ..Sources::default() };
        measure("database, IPv4", entries as usize, &sources, random);
    }
}
