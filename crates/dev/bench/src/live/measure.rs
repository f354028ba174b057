//! Loss-free rate, and CPU time per packet: in total, relative to the null consumer, and by stage.

use crate::error::Error;
use crate::live::consumer::{ConsumerKind, FILTER, LAYOUTS, SINK, filter};
use crate::live::report::{Cost, Rate, SourceReport, Stage};
use crate::live::trial::{Setup, Trial};
use crate::report::Spread;
use std::time::Duration;
use weir_text::units::number;

/// Trials at full speed. Other processes may have held the sender's core for a while, so the fastest
/// trial without loss counts.
const FULL_SPEED_TRIALS: usize = 3;
/// Bisection steps between zero and the sender's full speed.
const BISECTION_STEPS: usize = 6;
/// Share of the lowest loss-free rate at which costs are measured.
const COST_RATE_SHARE: f64 = 0.5;

/// Consumers to compare, and whether their threads are pinned.
fn compared_consumers() -> impl Iterator<Item = (ConsumerKind, bool)> {
    LAYOUTS.into_iter().flat_map(|kind| [(kind, true), (kind, false)])
}

/// Measures the loss-free rate of each consumer.
pub fn rates(setup: &mut Setup<'_>, time: Duration) -> Result<Vec<Rate>, Error> {
    compared_consumers().map(|(kind, pinned)| loss_free_rate(setup, kind, pinned, time)).collect()
}

fn loss_free_rate(setup: &mut Setup<'_>, kind: ConsumerKind, pinned: bool, time: Duration) -> Result<Rate, Error> {
    let bits = 8.0 * setup.traffic.mean_frame_bytes();
    let result = |pps: f64, sender_limited: bool, lost_share: f64| Rate {
        consumer: kind.name(),
        pinned,
        pps,
        bps: pps * bits,
        sender_limited,
        lost_share,
    };
    let mut loss_free_pps = 0.0_f64;
    let mut lossy_pps = None;
    for _ in 0..FULL_SPEED_TRIALS {
        let full_speed = setup.trial(kind, pinned, None, time)?;
        if !setup.is_veth() {
            return Ok(result(
                full_speed.received_pps,
                false,
                full_speed.lost_packets as f64 / (full_speed.offered_packets as f64).max(1.0),
            ));
        }
        if full_speed.lost_packets > 0 {
            lossy_pps = Some(full_speed.offered_pps);
            break;
        }
        loss_free_pps = loss_free_pps.max(full_speed.offered_pps);
    }
    let Some(mut lossy_pps) = lossy_pps else { return Ok(result(loss_free_pps, true, 0.0)) };
    // A trial that was faster than the lossy one and lost nothing does not count.
    loss_free_pps = if loss_free_pps < lossy_pps { loss_free_pps } else { 0.0 };
    for _ in 0..BISECTION_STEPS {
        let rate = f64::midpoint(loss_free_pps, lossy_pps);
        let trial = setup.trial(kind, pinned, Some(rate), time)?;
        if trial.lost_packets == 0 {
            // The sender may have been slower than requested.
            loss_free_pps = trial.offered_pps.min(rate).max(loss_free_pps);
        } else {
            lossy_pps = rate;
        }
    }
    Ok(result(loss_free_pps, false, 0.0))
}

/// Measures the CPU time per packet of each consumer and of each stage, and adds it to `report`.
pub fn costs(
    setup: &mut Setup<'_>,
    report: &mut SourceReport,
    (rounds, time): (usize, Duration),
    hertz: Option<f64>,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let rate = setup.is_veth().then(|| {
        let least = report.rates.iter().map(|rate| rate.pps).fold(f64::INFINITY, f64::min);
        (COST_RATE_SHARE * least).max(1000.0)
    });
    report.cost_pps = rate;
    let mut cases: Vec<_> = compared_consumers().collect();
    cases.extend([(ConsumerKind::Decode, true), (ConsumerKind::Export, true)]);
    match filter() {
        Ok(_) => cases.push((ConsumerKind::Filter, true)),
        Err(error) => report.notes.push(format!("filter not measured: {error}")),
    }
    let mut trials: Vec<Vec<Trial>> = vec![Vec::new(); cases.len()];
    for round in 1..=rounds {
        say(&format!("{}: costs, round {round} of {rounds}", setup.scheme));
        for (trials, &(kind, pinned)) in trials.iter_mut().zip(&cases) {
            trials.push(setup.trial(kind, pinned, rate, time)?);
        }
    }
    let measured = Measured { cases, trials, hertz };
    report.costs = compared_consumers().map(|(kind, pinned)| measured.cost(kind, pinned)).collect();
    report.stages = measured.stages();
    Ok(())
}

/// Trials of each case.
struct Measured {
    cases: Vec<(ConsumerKind, bool)>,
    trials: Vec<Vec<Trial>>,
    hertz: Option<f64>,
}

impl Measured {
    /// Empty for a consumer that was not measured.
    fn trials_of(&self, kind: ConsumerKind, pinned: bool) -> &[Trial] {
        let index = self.cases.iter().position(|&case| case == (kind, pinned));
        index.map_or(&[][..], |index| &self.trials[index])
    }

    fn cycles(&self, spread: &Spread) -> Option<f64> {
        self.hertz.map(|hertz| spread.median * hertz / 1e9)
    }

    fn cost(&self, kind: ConsumerKind, pinned: bool) -> Cost {
        let (trials, null) = (self.trials_of(kind, pinned), self.trials_of(ConsumerKind::Null, pinned));
        let ns = Spread::of(trials.iter().map(Trial::cost_ns).collect());
        let ratios = trials.iter().zip(null).map(|(trial, null)| trial.cost_ns() / null.cost_ns().max(1e-9));
        let threads = trials[0].thread_ns.len();
        let thread = |number: usize| Spread::of(trials.iter().map(|trial| trial.thread_ns[number]).collect()).median;
        Cost {
            consumer: kind.name(),
            pinned,
            cycles: self.cycles(&ns),
            ns,
            threads_ns: (0..threads).map(thread).collect(),
            ratio_to_null: (kind != ConsumerKind::Null).then(|| Spread::of(ratios.collect())),
            lost: trials.iter().map(|trial| trial.lost_packets).sum(),
        }
    }

    /// What each stage adds, from the differences of consumers.
    fn stages(&self) -> Vec<Stage> {
        let costs = |kind: ConsumerKind| self.trials_of(kind, true).iter().map(Trial::cost_ns).collect::<Vec<_>>();
        let difference = |kind: ConsumerKind, base: ConsumerKind| {
            costs(kind).iter().zip(costs(base)).map(|(cost, base)| cost - base).collect::<Vec<_>>()
        };
        let export = self.trials_of(ConsumerKind::Export, true);
        let per_record: Vec<f64> = export.iter().filter_map(|trial| trial.exporter_ns_per_record).collect();
        let per_record = if per_record.is_empty() {
            "no flow record".into()
        } else {
            format!("{} ns per record", number(Spread::of(per_record).median))
        };
        let stages = [
            ("source", "null consumer: Source::fill, and waiting for frames".into(), costs(ConsumerKind::Null)),
            (
                "filter",
                format!("fused with filter '{FILTER}' minus fused"),
                difference(ConsumerKind::Filter, ConsumerKind::Fused),
            ),
            (
                "decode",
                "null consumer with decoder minus null consumer".into(),
                difference(ConsumerKind::Decode, ConsumerKind::Null),
            ),
            (
                "meter",
                "fused minus null consumer with decoder: flow cache, ledger, batches to the exporter".into(),
                difference(ConsumerKind::Fused, ConsumerKind::Decode),
            ),
            (
                "export",
                format!("exporter thread, {SINK}: {per_record}"),
                export.iter().map(|trial| trial.exporter_ns).collect(),
            ),
        ];
        let measured = stages.into_iter().filter(|(.., ns)| !ns.is_empty());
        let stage = |(stage, method, ns)| {
            let ns = Spread::of(ns);
            Stage { stage, method, cycles: self.cycles(&ns), ns }
        };
        measured.map(stage).collect()
    }
}
