//! The flow index beside other hash tables; prefetching and memory pages of the meter.

use crate::ceiling::{Decoded, Null, Roofline};
use crate::error::Error;
use crate::frames::Frames;
use crate::index::{Chaining, Hashbrown, Lookups};
use crate::load::{VELAN, config, required_bytes, velan};
use crate::measure::{Bench, Group};
use crate::meter::Metering;
use crate::report::{Curve, DECODED, NULL, Plot, ROOFLINE, Table};
use crate::tables::hashes::{bucket_distribution, counted, distinct_keys, numbered, shuffled};
use weir_flow::{Config, FlowIndex, KeyHasher, PageKind, Tuning};
use weir_packet::Packet;

/// The meter as it is.
const HERE: &str = "weir";

/// Measures one row: the ceilings and the `meters` cases that `cases` adds.
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

/// The flow index beside chaining and a library's table, outside the meter; how keys spread over
/// buckets.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "Lookups of known flows in random order, packets decoded before: hash, find by the whole key, count";
    let mut table = Table::new("table", "The flow index beside other hash tables", "concurrent flows", load);
    table.against = vec![HERE];
    for &flows in counts(bench, &[16_384, 131_072, 1 << 20, 1 << 22]) {
        let packets = bench.size((2 * flows).clamp(4 << 20, 8 << 20), 20_000);
        if !bench.fits(size_of::<Packet>() * (packets + flows) + 3 * 100 * flows, &format!("{flows} flows"), &mut table)
        {
            continue;
        }
        let keys: Vec<Packet> = (0..flows as u64).map(numbered).collect();
        let mut load = shuffled(&keys, packets);
        let group = Group::new(flows.to_string(), flows as f64)
            .case(HERE, Lookups::<FlowIndex>::new(&keys)?)
            .case("chaining", Lookups::<Chaining>::new(&keys)?)
            .case("hashbrown", Lookups::<Hashbrown>::new(&keys)?);
        group.measure(bench, &mut table, &mut load, |_| Ok(()))?;
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

/// Packets whose memory is prefetched together, from 1 (no prefetch) to 64.
pub fn prefetch(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let mut table = Table::new("prefetch", "Packets fetched together", "concurrent flows", VELAN);
    table.against = vec![ROOFLINE, "64 together"];
    for &flows in counts(bench, &[128, 16_384, 131_072, 1 << 20, 1 << 22]) {
        row(bench, &mut table, flows, 7, |group| {
            [64, 32, 16, 8, 4, 2, 1].into_iter().try_fold(group, |group, ahead| {
                let tuning = Tuning { prefetch_packets: ahead, ..Tuning::default() };
                Ok(group.case(format!("{ahead} together"), Metering::new(tuned(flows, tuning))?))
            })
        })?;
    }
    Ok(table)
}

/// Pages of the flow cache's memory.
pub fn pages(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let mut table = Table::new("pages", "PageKind of the table's memory", "concurrent flows", VELAN);
    table.against = vec![ROOFLINE, "2 MiB transparent"];
    let free = crate::conditions::free_huge_pages();
    for &flows in counts(bench, &[16_384, 131_072, 1 << 20, 1 << 22, 10_000_000]) {
        let room = required_bytes(0, flows);
        let all = [
            ("2 MiB transparent", PageKind::Transparent, true),
            ("4 KiB", PageKind::Small, true),
            // Half as much again, as every array takes whole pages.
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
                Ok(group.case(name, Metering::new(tuned(flows, tuning))?))
            })
        })?;
    }
    Ok(table)
}

/// Everything on, then each thing off.
pub fn ablate(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = format!("{VELAN}. The shared counter of two cores is in the table 'shared'");
    let mut table = Table::new("ablate", "Everything on, then each off", "concurrent flows", load);
    table.against = vec![ROOFLINE, HERE];
    for &flows in counts(bench, &[16_384, 131_072, 1 << 20, 1 << 22]) {
        row(bench, &mut table, flows, 4, |group| {
            let usual = Tuning::default();
            let with = |tuning| Metering::new(tuned(flows, tuning));
            Ok(group
                .case(HERE, with(usual)?)
                .case("no prefetch", with(Tuning { prefetch_packets: 1, ..usual })?)
                .case("4 KiB pages", with(Tuning { pages: PageKind::Small, ..usual })?)
                .case("no prefetch, 4 KiB pages", with(Tuning { prefetch_packets: 1, pages: PageKind::Small })?))
        })?;
    }
    Ok(table)
}
