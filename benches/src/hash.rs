//! The keyed hash of the meter beside the Toeplitz hash of NICs: cost of a key, and per trace whether
//! its flows spread evenly over queues and buckets.

use crate::keys::{KEY, counts, distinct, numbered};
use std::hint::black_box;
use std::path::Path;
use weir_bench::error::Error;
use weir_bench::measure::{Bench, Group, Run, Work, timed};
use weir_bench::report::Table;
use weir_flow::{BUCKETS, KeyHasher};
use weir_packet::Packet;
use weir_trafficgen::TrafficGenerator;

/// The ceiling: reads a key and hashes nothing.
const READ: &str = "keys only read";
const OURS: &str = "keyed hash";
const NIC: &str = "Toeplitz, symmetric key";
/// Receive queues.
const QUEUES: usize = 8;
/// Captures of the repository, as one trace.
const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures");

/// Rates of the hashes, and in the notes a verdict for each trace.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "keys of IPv4 flows; the hash of NICs is computed bit by bit in software";
    let mut table = Table::new("hash", "Hashes of flow keys", "keys", load);
    (table.item, table.against) = ("key", vec![READ]);
    let hasher = KeyHasher::new(Some(1));
    for number in if bench.quick { &[1024][..] } else { &[16_384, 1 << 20] } {
        let mut keys: Vec<Packet> = (0..*number).map(numbered).collect();
        Group::new(number.to_string(), *number as f64)
            .case(READ, Hashed(|packet: &Packet| u64::from(packet.source_port) ^ packet.words()[1] ^ packet.words()[3]))
            .case(OURS, Hashed(move |packet: &Packet| hasher.hash(packet, KEY)))
            .case(NIC, Hashed(toeplitz))
            .measure(bench, &mut table, &mut keys, |_| Ok(()))?;
    }
    let packets = bench.size(4_000_000, 20_000);
    for profile in ["velan,flows=100000", "mix,flows=100000", "apps,flows=20000"] {
        let flows = distinct(&mut TrafficGenerator::new(&format!("{profile},packets={packets}"))?)?;
        add_verdicts(&mut table, &format!("synth:{profile}"), &flows, &hasher);
    }
    add_verdicts(&mut table, "testdata/captures", &captures(Path::new(CAPTURES)), &hasher);
    Ok(table)
}

/// The flows of all captures of a folder that can be read.
fn captures(folder: &Path) -> Vec<Packet> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sources = entries.filter_map(|entry| weir_capture::open(&entry.path()).ok());
    sources.filter_map(|mut source| distinct(&mut *source).ok()).flatten().collect()
}

fn add_verdicts(table: &mut Table, trace: &str, flows: &[Packet], hasher: &KeyHasher) {
    let ours: Vec<u64> = flows.iter().map(|packet| hasher.hash(packet, KEY)).collect();
    let nic: Vec<u64> = flows.iter().map(toeplitz).collect();
    for (name, hashes) in [(OURS, ours), (NIC, nic)] {
        for (places, what) in [(QUEUES, "queues"), (BUCKETS, "buckets")] {
            table.notes.push(format!("{trace}, {name}: {}", verdict(&counts(&hashes, places), what)));
        }
    }
}

/// Whether flows spread as random numbers do: chi-squared is at most three standard deviations above
/// its mean.
fn verdict(counts: &[u32], places: &str) -> String {
    let (flows, number) = (counts.iter().sum::<u32>(), counts.len() as f64);
    let mean = f64::from(flows) / number;
    let squares: f64 = counts.iter().map(|&count| (f64::from(count) - mean).powi(2)).sum();
    let (chi_squared, free) = (squares / mean.max(1e-9), number - 1.0);
    let verdict = if chi_squared <= free + 3.0 * (2.0 * free).sqrt() { "even" } else { "UNEVEN" };
    let most = f64::from(counts.iter().copied().max().unwrap_or(0)) / mean.max(1e-9);
    format!(
        "{flows} flows over {number} {places}: {verdict} (the fullest has {most:.2} of the mean, chi² {chi_squared:.0} of {free})"
    )
}

/// The Toeplitz hash of receive-side scaling with a symmetric key (Woo and Park, 2012), in the
/// highest 32 bits, over addresses and ports.
fn toeplitz(packet: &Packet) -> u64 {
    /// The key repeats after 16 bits: its 32 bits from bit `n` on are these, rotated.
    const KEY: u32 = 0x6d5a_6d5a;
    let is_ipv4 = packet.source[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let from = if is_ipv4 { 12 } else { 0 };
    let ports = [packet.source_port.to_be_bytes(), packet.destination_port.to_be_bytes()];
    let octets = packet.source[from..].iter().chain(&packet.destination[from..]).chain(ports.as_flattened());
    let mut hash = 0;
    for (at, octet) in octets.enumerate() {
        for bit in 0..8 {
            if octet & (0x80 >> bit) != 0 {
                hash ^= KEY.rotate_left(8 * at as u32 + bit);
            }
        }
    }
    u64::from(hash) << 32
}

/// Hashes all keys.
struct Hashed<F>(F);

impl<F: Fn(&Packet) -> u64> Work<Vec<Packet>> for Hashed<F> {
    fn run(&mut self, keys: &mut Vec<Packet>) -> Result<Run, Error> {
        let (hash, seconds) = timed(|| keys.iter().fold(0, |hash, packet| hash ^ (self.0)(packet)));
        black_box(hash);
        Ok(Run::new(keys.len() as u64, seconds))
    }
}
