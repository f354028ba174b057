//! The flow index beside other hash tables, outside the meter.

use crate::Error;
use crate::index::{Chaining, Hashbrown, Lookups};
use crate::load::velan;
use crate::measure::{Bench, Group};
use crate::report::{Curve, PIPELINE, Plot, Table};
use crate::tables::hashes::{bucket_distribution, counted, distinct_keys, numbered, shuffled};
use weir_flow::{FlowIndex, KeyHasher};
use weir_packet::Packet;

/// The flow index beside chaining and a library's table, outside the meter; how keys spread over
/// buckets.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "Lookups of known flows in random order, packets decoded before: hash, find by the whole key, count";
    let mut table = Table::new("table", "The flow index beside other hash tables", "concurrent flows", load);
    table.against = vec![PIPELINE];
    let counts = if bench.quick { &[1024, 4096][..] } else { &[16_384, 131_072, 1 << 20, 1 << 22] };
    for &flows in counts {
        let packets = bench.size((2 * flows).clamp(4 << 20, 8 << 20), 20_000);
        if !bench.fits(size_of::<Packet>() * (packets + flows) + 3 * 100 * flows, &format!("{flows} flows"), &mut table)
        {
            continue;
        }
        let keys: Vec<Packet> = (0..flows as u64).map(numbered).collect();
        let mut load = shuffled(&keys, packets);
        let group = Group::new(flows.to_string(), flows as f64)
            .case(PIPELINE, Lookups::<FlowIndex>::new(&keys)?)
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
    let axes = ["keys in a bucket".to_owned(), "share of buckets with at most this number of keys".to_owned()];
    table.plots.push(Plot {
        name: "table-collisions".into(),
        title: "Keys per bucket, 65 % full".into(),
        axes,
        curves,
    });
    Ok(table)
}
