//! The meter's inner parts exchanged or turned off, one at a time.

use crate::Error;
use crate::ceiling::{Decoded, Null, Roofline};
use crate::frames::Frames;
use crate::index::{Chained, Library};
use crate::load::{VELAN, config, required_bytes, velan};
use crate::measure::{Bench, Group};
use crate::meter::Metering;
use crate::report::{Curve, DECODED, NULL, Plot, ROOFLINE, Table};
use crate::tables::hashes::{bucket_distribution, counted, distinct_keys};
use weir_flow::{
    ALL, CONVERSATIONS, Config, GAPS, HEADERS, Hpc, Instructions, KeyHasher, LABELS, PageKind, SIZES, Tuning,
};

/// The meter as it is.
const HERE: &str = "weir";

/// Makes a row of one flow count and measures what `cases` adds to it: so many meters.
fn row(
    bench: &mut Bench<'_>,
    table: &mut Table,
    flows: usize,
    meters: usize,
    cases: impl FnOnce(Group<'static, Frames>) -> Result<Group<'static, Frames>, Error>,
) -> Result<(), Error> {
    let packets = bench.size((2 * flows).clamp(4 << 20, 32 << 20), 20_000);
    if !bench.fits(required_bytes(packets, meters * flows), &format!("{flows} flows"), table) {
        return Ok(());
    }
    let mut frames = Frames::new(&velan(flows), packets)?;
    let group = Group::new(flows.to_string(), flows as f64)
        .case(NULL, Null)
        .case(ROOFLINE, Roofline::new(flows)?)
        .case(DECODED, Decoded::new(flows)?);
    cases(group)?.measure(bench, table, &mut frames, Frames::next_round)
}

fn counts<'a>(bench: &Bench<'_>, full: &'a [usize]) -> &'a [usize] {
    if bench.quick { &[1024, 4096] } else { full }
}

fn tuned(flows: usize, tuning: Tuning) -> Config {
    Config { tuning, ..config(flows) }
}

/// HPC beside plain chaining and a library's table; buckets of 1 to 16 entries; how keys spread over buckets.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = format!("{VELAN}. Only the index differs; hpc N: buckets of N entries, 65 % full");
    let mut table = Table::new("table", "The flow table's index", "concurrent flows", load);
    table.against = vec![ROOFLINE, "hpc 10"];
    for &flows in counts(bench, &[16_384, 131_072, 1 << 20, 1 << 22]) {
        row(bench, &mut table, flows, 9, |group| {
            let config = config(flows);
            Ok(group
                .case("hpc 10", Metering::<Hpc>::new(config)?)
                .case("chaining", Metering::<Chained>::new(config)?)
                .case("library", Metering::<Library>::new(config)?)
                .case("hpc 1", Metering::<Hpc<1>>::new(config)?)
                .case("hpc 2", Metering::<Hpc<2>>::new(config)?)
                .case("hpc 4", Metering::<Hpc<4>>::new(config)?)
                .case("hpc 8", Metering::<Hpc<8>>::new(config)?)
                .case("hpc 12", Metering::<Hpc<12, 2>>::new(config)?)
                .case("hpc 16", Metering::<Hpc<16, 2>>::new(config)?))
        })?;
    }
    let keys = distinct_keys(&velan(bench.size(1 << 20, 4096)), bench.size(4 << 20, 20_000))?;
    let hash = KeyHasher::new(Some(1));
    let hashes: Vec<u64> = keys.iter().map(|packet| hash.hash(packet, Default::default())).collect();
    let mut curves = Vec::new();
    for entries in [4, 10, 16] {
        let number = (hashes.len() * 100).div_ceil(entries * 65);
        let counted = counted(&hashes, number);
        let mean = hashes.len() as f64 / number as f64;
        let [measured, poisson] = bucket_distribution(&counted, mean);
        curves.push(Curve { series: format!("{entries} entries: measured"), points: measured });
        curves.push(Curve { series: format!("{entries} entries: Poisson"), points: poisson });
        let over = counted.iter().filter(|&&keys| keys as usize > entries).count();
        table.notes.push(format!(
            "{} keys in {number} buckets of {entries}: {:.1} % of the buckets go on in another one, most keys in one {}",
            hashes.len(),
            100.0 * over as f64 / number as f64,
            counted.iter().max().unwrap_or(&0)
        ));
    }
    let axes = ["keys in a bucket".to_owned(), "share of buckets with at most so many".to_owned()];
    table.plots.push(Plot {
        name: "table-collisions".into(),
        title: "Keys per bucket, 65 % full".into(),
        axes,
        curves,
    });
    Ok(table)
}

/// Packets whose memory is fetched together, from 1 (nothing ahead) to 64.
pub fn prefetch(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let mut table = Table::new("prefetch", "Packets fetched together", "concurrent flows", VELAN);
    table.against = vec![ROOFLINE, "64 together"];
    for &flows in counts(bench, &[128, 16_384, 131_072, 1 << 20, 1 << 22]) {
        row(bench, &mut table, flows, 7, |group| {
            [64, 32, 16, 8, 4, 2, 1].into_iter().try_fold(group, |group, ahead| {
                let tuning = Tuning { prefetch_packets: ahead, ..Tuning::default() };
                Ok(group.case(format!("{ahead} together"), Metering::<Hpc>::new(tuned(flows, tuning))?))
            })
        })?;
    }
    Ok(table)
}

/// Pages of the table's memory.
pub fn pages(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let mut table = Table::new("pages", "PageKind of the table's memory", "concurrent flows", VELAN);
    table.against = vec![ROOFLINE, "2 MiB transparent"];
    let free = crate::conditions::free_huge_pages();
    for &flows in counts(bench, &[16_384, 131_072, 1 << 20, 1 << 22, 10_000_000]) {
        let room = required_bytes(0, flows);
        let all = [
            ("2 MiB transparent", PageKind::Transparent, true),
            ("4 KiB", PageKind::Small, true),
            // Half as much again: every array takes whole pages.
            ("2 MiB reserved", PageKind::Hugetlb2M, free[0] as usize >> 1 << 21 > room),
            ("1 GiB reserved", PageKind::Hugetlb1G, free[1] as usize >= 6 + (room >> 30)),
        ];
        let there: Vec<_> = all.into_iter().filter(|&(.., there)| there).collect();
        if there.len() < all.len() {
            table
                .notes
                .push(format!("{flows} flows: not enough reserved pages for {} of the kinds", all.len() - there.len()));
        }
        row(bench, &mut table, flows, there.len(), |group| {
            there.into_iter().try_fold(group, |group, (name, pages, _)| {
                let tuning = Tuning { pages, ..Tuning::default() };
                Ok(group.case(name, Metering::<Hpc>::new(tuned(flows, tuning))?))
            })
        })?;
    }
    Ok(table)
}

/// The meter without one group of fields, and without all of them.
pub fn features(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = format!("{VELAN}. What is left out is left out when the program is built");
    let mut table = Table::new("features", "The cost of groups of fields", "concurrent flows", load);
    table.against = vec![ROOFLINE, "all fields"];
    for &flows in counts(bench, &[128, 16_384, 131_072, 1 << 20]) {
        row(bench, &mut table, flows, 7, |group| {
            let config = config(flows);
            Ok(group
                .case("all fields", Metering::<Hpc, ALL>::new(config)?)
                .case("no packet sizes", Metering::<Hpc, { ALL & !SIZES }>::new(config)?)
                .case("no gaps", Metering::<Hpc, { ALL & !GAPS }>::new(config)?)
                .case("no TTL and flags", Metering::<Hpc, { ALL & !HEADERS }>::new(config)?)
                .case("no labels", Metering::<Hpc, { ALL & !LABELS }>::new(config)?)
                .case("no TCP analysis", Metering::<Hpc, { ALL & !CONVERSATIONS }>::new(config)?)
                .case("counts and times only", Metering::<Hpc, 0>::new(config)?))
        })?;
    }
    Ok(table)
}

/// Everything on, then each thing off by itself.
pub fn ablate(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = format!("{VELAN}. The shared counter of two cores is in the table 'shared'");
    let mut table = Table::new("ablate", "Everything on, then each off", "concurrent flows", load);
    table.against = vec![ROOFLINE, HERE];
    for &flows in counts(bench, &[16_384, 131_072, 1 << 20, 1 << 22]) {
        row(bench, &mut table, flows, 8, |group| {
            let usual = Tuning::default();
            let none = Tuning { prefetch_packets: 1, pages: PageKind::Small, instructions: Some(Instructions::Plain) };
            let with = |tuning| Metering::<Hpc>::new(tuned(flows, tuning));
            Ok(group
                .case(HERE, with(usual)?)
                .case("no prefetch", with(Tuning { prefetch_packets: 1, ..usual })?)
                .case("4 KiB pages", with(Tuning { pages: PageKind::Small, ..usual })?)
                .case("AVX2", with(Tuning { instructions: Some(Instructions::Avx2), ..usual })?)
                .case("plain instructions", with(Tuning { instructions: Some(Instructions::Plain), ..usual })?)
                .case("chaining", Metering::<Chained>::new(config(flows))?)
                .case("fewest fields", Metering::<Hpc, 0>::new(config(flows))?)
                .case("chaining, no prefetch, 4 KiB, plain", Metering::<Chained>::new(tuned(flows, none))?))
        })?;
    }
    Ok(table)
}
