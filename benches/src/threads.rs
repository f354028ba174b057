//! Threads: how reading and metering scale up to the number of cores, and beyond it.

use crate::parallel::Parallel;
use weir_bench::ceiling::{Decoded, Null};
use weir_bench::error::Error;
use weir_bench::frames::Frames;
use weir_bench::load::{VELAN, config, required_bytes, velan};
use weir_bench::measure::{Bench, Group};
use weir_bench::meter::Fused;
use weir_bench::report::{DECODED, NULL, PIPELINE, Table};

/// Flows of all threads together.
const FLOWS: usize = 131_072;

/// One pipeline per thread, each with its own frames and its share of the flows, as if it had a receive
/// queue of its own. The null consumer is capture alone.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = format!(
        "{VELAN}; {FLOWS} flows, divided among the threads. Each thread has frames of its own, as from a receive queue. \
         The null consumer is capture without metering. {cores} cores"
    );
    let mut table = Table::new("threads", "Threads up to and beyond the number of cores", "threads", load);
    table.clock = "wall clock until the last thread ends; threads are not pinned";
    table.against = vec![DECODED];
    let packets = bench.size(8 << 20, 20_000);
    for threads in counts(if bench.quick { 2 } else { 4 * cores }, cores) {
        let (packets, flows) = (packets / threads, (bench.size(FLOWS, 1000) / threads).max(1));
        if !bench.fits(threads * required_bytes(packets, flows), &format!("{threads} threads"), &mut table) {
            continue;
        }
        let mut frames = (0..threads).map(|_| Frames::new(&velan(flows), packets)).collect::<Result<Vec<_>, _>>()?;
        let decoded: Result<Vec<_>, _> = (0..threads).map(|_| Decoded::new(flows)).collect();
        let fused: Result<Vec<_>, _> = (0..threads).map(|_| Fused::new(config(flows))).collect();
        Group::new(threads.to_string(), threads as f64)
            .case(NULL, Parallel((0..threads).map(|_| Null).collect()))
            .case(DECODED, Parallel(decoded?))
            .case(PIPELINE, Parallel(fused?))
            .measure(bench, &mut table, &mut frames, |frames| frames.iter_mut().try_for_each(Frames::next_round))?;
    }
    Ok(table)
}

/// Powers of two up to `limit`, and the number of cores.
pub fn counts(limit: usize, cores: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..10).map(|exponent| 1 << exponent).chain([cores]).collect();
    counts.retain(|&count| count <= limit);
    counts.sort_unstable();
    counts.dedup();
    counts
}
