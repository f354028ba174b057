//! Rates without loss, and the processor time of a packet: in all, beside a consumer that does nothing, and by stages.

use crate::Error;
use crate::live::consumer::{FILTER, SINK, What, filter};
use crate::live::report::{Cost, Measured, Rate, Stage};
use crate::live::trial::{Bed, Trial};
use crate::report::Spread;
use std::time::Duration;
use weir_text::units::number;

/// Who is compared.
const COMPARED: [(What, bool); 6] = [
    (What::Null, true),
    (What::Null, false),
    (What::Fused, true),
    (What::Fused, false),
    (What::Split, true),
    (What::Split, false),
];
/// Trials as fast as the sender goes, of which the fastest counts if nothing was lost: others may have had its core for a while.
const TRIALS: usize = 3;
/// Halvings of what the sender can do, until the rate without loss is told.
const HALVINGS: usize = 6;
/// Share of the least rate without loss at which costs are measured.
const COST_AT: f64 = 0.5;

/// How much each consumer takes without a loss.
pub fn rates(bed: &mut Bed<'_>, time: Duration) -> Result<Vec<Rate>, Error> {
    COMPARED.into_iter().map(|(what, pinned)| rate(bed, what, pinned, time)).collect()
}

fn rate(bed: &mut Bed<'_>, what: What, pinned: bool, time: Duration) -> Result<Rate, Error> {
    let bits = 8.0 * bed.traffic.mean_octets();
    let told = |pps: f64, sender: bool, lost_share: f64| Rate {
        consumer: what.name(),
        pinned,
        pps,
        bps: pps * bits,
        sender,
        lost_share,
    };
    let mut fine = 0.0_f64;
    let mut too_much = None;
    for _ in 0..TRIALS {
        let most = bed.trial(what, pinned, None, time)?;
        if !bed.is_wire() {
            return Ok(told(most.taken_pps, false, most.lost as f64 / (most.all as f64).max(1.0)));
        }
        if most.lost > 0 {
            too_much = Some(most.offered_pps);
            break;
        }
        fine = fine.max(most.offered_pps);
    }
    let Some(mut too_much) = too_much else { return Ok(told(fine, true, 0.0)) };
    // What was faster without a loss was luck.
    fine = if fine < too_much { fine } else { 0.0 };
    for _ in 0..HALVINGS {
        let rate = f64::midpoint(fine, too_much);
        let trial = bed.trial(what, pinned, Some(rate), time)?;
        if trial.lost == 0 {
            // The sender may not have kept up.
            fine = trial.offered_pps.min(rate).max(fine);
        } else {
            too_much = rate;
        }
    }
    Ok(told(fine, false, 0.0))
}

/// What a packet costs each consumer, and each stage.
pub fn costs(
    bed: &mut Bed<'_>,
    measured: &mut Measured,
    (rounds, time): (usize, Duration),
    hertz: Option<f64>,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let rate = bed.is_wire().then(|| {
        let least = measured.rates.iter().map(|rate| rate.pps).fold(f64::INFINITY, f64::min);
        (COST_AT * least).max(1000.0)
    });
    measured.cost_pps = rate;
    let mut cases = COMPARED.to_vec();
    cases.extend([(What::Decode, true), (What::Export, true)]);
    match filter() {
        Ok(_) => cases.push((What::Filter, true)),
        Err(error) => measured.notes.push(format!("no cost of a filter: {error}")),
    }
    let mut trials: Vec<Vec<Trial>> = vec![Vec::new(); cases.len()];
    for round in 1..=rounds {
        say(&format!("{}: costs, round {round} of {rounds}", bed.scheme));
        for (trials, &(what, pinned)) in trials.iter_mut().zip(&cases) {
            trials.push(bed.trial(what, pinned, rate, time)?);
        }
    }
    let of = |what: What, pinned: bool| {
        let at = cases.iter().position(|&case| case == (what, pinned));
        at.map(|at| &trials[at][..])
    };
    let cycles = |spread: &Spread| hertz.map(|hertz| spread.median * hertz / 1e9);
    for (what, pinned) in COMPARED {
        let (Some(mine), Some(null)) = (of(what, pinned), of(What::Null, pinned)) else { continue };
        let ns = Spread::of(mine.iter().map(Trial::cost_ns).collect());
        let ratios = mine.iter().zip(null).map(|(mine, null)| mine.cost_ns() / null.cost_ns().max(1e-9));
        let threads = mine[0].ns.len();
        let thread = |number: usize| Spread::of(mine.iter().map(|trial| trial.ns[number]).collect()).median;
        measured.costs.push(Cost {
            consumer: what.name(),
            pinned,
            cycles: cycles(&ns),
            ns,
            threads_ns: (0..threads).map(thread).collect(),
            of_null: (what != What::Null).then(|| Spread::of(ratios.collect())),
            lost: mine.iter().map(|trial| trial.lost).sum(),
        });
    }
    let mut stage = |stage: &'static str, by: String, ns: Vec<f64>| {
        let ns = Spread::of(ns);
        measured.stages.push(Stage { stage, by, cycles: cycles(&ns), ns });
    };
    let costs = |what: What| Some(of(what, true)?.iter().map(Trial::cost_ns).collect::<Vec<f64>>());
    let less = |what: What, than: What| {
        let (more, less) = (costs(what)?, costs(than)?);
        Some(more.iter().zip(less).map(|(more, less)| more - less).collect::<Vec<f64>>())
    };
    if let Some(ns) = costs(What::Null) {
        stage("source", "the null consumer: Source::fill, and the thread that waits for it".into(), ns);
    }
    if let Some(ns) = less(What::Filter, What::Fused) {
        stage("filter", format!("fused with '{FILTER}' less fused without"), ns);
    }
    if let Some(ns) = less(What::Decode, What::Null) {
        stage("decode", "a null consumer that decodes less one that does not".into(), ns);
    }
    if let Some(ns) = less(What::Fused, What::Decode) {
        stage("meter", "fused less that: the table, the ledger, records handed over".into(), ns);
    }
    if let Some(trials) = of(What::Export, true) {
        let records: Vec<f64> = trials.iter().filter_map(|trial| trial.record_ns).collect();
        let per_record = if records.is_empty() {
            "no record ended".into()
        } else {
            format!("{} ns per record", number(Spread::of(records).median))
        };
        let by = format!("the exporter's own thread, {SINK}: {per_record}");
        stage("export", by, trials.iter().map(|trial| trial.exporter_ns).collect());
    }
    Ok(())
}
