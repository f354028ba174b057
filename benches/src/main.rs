//! Measurements of single parts of Weir, for its authors: `make benches TABLE="hash sweep"`.
//!
//! The harness is that of `weir bench` (crate `weir-bench`): cases of a row run in turn, round by
//! round, beside ceilings. Weir's users need none of these tables, so the binary does not have them.
#![forbid(unsafe_code)]

mod ablation;
mod cesnet;
mod egress;
mod hardware_counters;
mod hash;
mod keys;
mod memory;
mod pages;
mod parallel;
mod stages;
mod streams;
mod sweep;
mod threads;

use std::process::ExitCode;
use std::time::SystemTime;
use weir_bench::{NamedTable, Options};
use weir_text::zone::Zone;

const TABLES: [NamedTable; 10] = [
    ("cesnet", "CESNET's Table I: packet sizes and flow counts", cesnet::table),
    ("egress", "cost of forwarding packets, from memory and over interfaces (root)", egress::table),
    ("memory", "memory latency and bandwidth, and what they permit for the meter", memory::table),
    ("streams", "streams of frames from memory: malloc, mmap, locked pages; headers or all octets", streams::table),
    ("stages", "cost of each stage; instructions, cycles and energy where the machine has counters", stages::table),
    ("threads", "one pipeline per thread, up to four times as many as cores", threads::table),
    ("sweep", "hash tables: buckets of 1 to 16 entries, chaining, and how keys collide", sweep::table),
    ("hash", "the keyed hash beside the hash of NICs: cost, and spread of flows over queues and buckets", hash::table),
    (
        "ablation",
        "prefetch, batches, own counters and groups of features switched off, one after another",
        ablation::table,
    ),
    ("pages", "a table in memory from malloc, in locked, transparent huge and reserved huge pages", pages::table),
];

const USAGE: &str = "usage: weir-benches [--list] [--quick] [--rounds N] [TABLE]...";

fn main() -> ExitCode {
    let now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64);
    let mut options = Options {
        tables: Vec::new(),
        rounds: 5,
        quick: false,
        sinks: Vec::new(),
        date: Zone::UTC.date_and_time(now_ns).0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--rounds" => match arguments.next().and_then(|rounds| rounds.parse().ok()) {
                Some(rounds) => options.rounds = rounds,
                None => return failure(USAGE),
            },
            "--list" => {
                TABLES.iter().for_each(|(name, what, _)| println!("{name:9} {what}"));
                return ExitCode::SUCCESS;
            }
            name if name.starts_with('-') => return failure(USAGE),
            name => options.tables.push(name.into()),
        }
    }
    match weir_bench::run(&TABLES, &options, &mut |line| eprintln!("{line}"), &mut |text| print!("{text}")) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failure(&error.to_string()),
    }
}

fn failure(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests;
