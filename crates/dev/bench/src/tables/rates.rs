//! Rates of the whole pipeline: many flows, new flows, internet mix.

use crate::ceiling::{Decoded, DecodedAll, Null, Roofline};
use crate::error::Error;
use crate::frames::Frames;
use crate::load::{RATE, VELAN, WithFacts, config, own_frames, required_bytes, velan, warm_up};
use crate::measure::{Bench, Group, Run, Work};
use crate::meter::Fused;
use crate::report::{DECODED, DECODED_ALL, NULL, PIPELINE, ROOFLINE, Table};
use weir_flow::Config;

/// Flows of the load with which the table `flows` compares every row.
const ANCHOR_FLOWS: usize = 100_000;
const ANCHOR: &str = "weir, 100k flows";

/// From 128 to 16 million concurrent flows, with none, 100 k and 1 M new flows per second of
/// capture.
pub fn flows(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = format!(
        "{VELAN}. New flows take the place of the oldest; what is idle for as long as ten packets of a flow take on \
         average (200 ms at least) expires"
    );
    let mut table = Table::new("flows", "Concurrent flows and new flows", "concurrent flows", load);
    table.against = vec![ROOFLINE, DECODED, ANCHOR];
    let full = [128, 1024, 16_384, 131_072, 1 << 20, 1 << 22, 10_000_000, 1 << 24];
    let counts = if bench.quick { &[128, 1024, 16_384][..] } else { &full[..] };
    for &flows in counts {
        let packets = bench.size((2 * flows).clamp(4 << 20, 32 << 20), 20_000);
        let churned_packets = bench.size(8 << 20, 20_000);
        let mut used = required_bytes(packets, flows);
        if !bench.fits(used, &format!("{flows} flows"), &mut table) {
            continue;
        }
        let mut churned = Vec::new();
        for (new, series) in [(100_000, "weir, 100k new/s"), (1_000_000, "weir, 1M new/s")] {
            // With fewer concurrent flows the idle timeout alone would determine the number of
            // records.
            if flows < bench.size(131_072, 16_384) {
                continue;
            }
            let idle_timeout_ns = (10 * flows as u64 * 1_000_000_000 / RATE).max(200_000_000);
            // Flows of another half second wait for the expiry cursor.
            let config = Config {
                idle_timeout_ns,
                ..config(flows + (new * (idle_timeout_ns + 500_000_000) / 1_000_000_000) as usize)
            };
            let octets = used + required_bytes(churned_packets, config.flows as usize);
            if bench.fits(octets, &format!("{flows} flows, {series}"), &mut table) {
                used = octets;
                churned.push((new, series, config));
            }
        }
        let anchor_flows = bench.size(ANCHOR_FLOWS, 1000);
        let anchor = Frames::new(&velan(anchor_flows), bench.size(4 << 20, 20_000))?;
        let mut group = Group::new(flows.to_string(), flows as f64)
            .case(NULL, Null)
            .case(ROOFLINE, Roofline::new(flows)?)
            .case(DECODED, Decoded::new(flows)?)
            .case(ANCHOR, own_frames(anchor, Fused::new(config(anchor_flows))?))
            .case(PIPELINE, Fused::new(config(flows))?);
        for (new, series, config) in churned {
            (bench.say)(&format!("flows: {flows} flows, {series}: warming up until flows end as fast as they begin"));
            let frames = Frames::continuing(&format!("{},new={new}", velan(flows)), churned_packets)?;
            let mut case = own_frames(frames, Fused::new(config)?);
            for _ in 0..bench.size(((config.idle_timeout_ns + 500_000_000) / case.load.span_ns) as usize + 1, 1) {
                case.run(&mut ())?;
            }
            group = group.case(series, case);
        }
        let mut frames = Frames::new(&velan(flows), packets)?;
        group.measure(bench, &mut table, &mut frames, Frames::next_round)?;
    }
    Ok(table)
}

/// A mix of conversations as on the internet, in Gbit/s.
pub fn mix(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let flows = bench.size(300_000, 2_000);
    let load = format!(
        "synth:mix, {flows} conversations at a time, a tenth of them new every second; TCP and UDP over IPv4 and \
         IPv6, from memory, idle timeout 10 s; 100 Gbit/s of 700-octet packets are 17.9 Mpps. Gbit/s: frames without FCS, preamble and gap"
    );
    let mut table = Table::new("mix", "Internet mix", "frames", load);
    table.logarithmic = false;
    table.against = vec![DECODED, DECODED_ALL];
    for (row, snap, packets) in [("trimmed to 96", ",snap=96", 4_000_000), ("whole", "", 1_500_000)] {
        let packets = bench.size(packets, 20_000);
        if !bench.fits(packets * 1600, row, &mut table) {
            continue;
        }
        // Measured once slots are reused: clearing a page takes longer than metering the packets of its
        // flows.
        let mut frames = Frames::continuing(&format!("mix,flows={flows}{snap}"), packets)?;
        let mut fused = Fused::new(Config { idle_timeout_ns: 10_000_000_000, ..config(8 * flows) })?;
        warm_up(bench, &mut frames, 25_000_000_000, &mut [&mut fused])?;
        let rate = |frames: &Frames, run: &mut Run| {
            run.facts.push(("Gbit/s", frames.wire_bytes as f64 * 8e-9 / run.seconds));
            run.facts.push(("octets/frame", frames.wire_bytes as f64 / frames.packets as f64));
        };
        let group = Group::new(row, 0.0)
            .case(NULL, WithFacts(Null, rate))
            .case(ROOFLINE, WithFacts(Roofline::new(flows)?, rate))
            .case(DECODED, WithFacts(Decoded::new(flows)?, rate))
            .case(DECODED_ALL, WithFacts(DecodedAll::new(flows)?, rate))
            .case(PIPELINE, WithFacts(fused, rate));
        group.measure(bench, &mut table, &mut frames, Frames::next_round)?;
    }
    Ok(table)
}
