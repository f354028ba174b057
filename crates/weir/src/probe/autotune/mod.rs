//! `weir probe --autotune`: measures alternative layouts, core assignments, ring block sizes, batch
//! sizes and polling modes with the actual traffic. Output: the options with the best of them.
//!
//! Each trial is a probe without sinks. The candidates of one dimension take turns, and the median
//! of their turns counts, because neither traffic nor machine is constant. The simplest candidate
//! stays unless another one is clearly better.

mod trial;

use super::placement::available_cores;
use super::start::{open_worker_groups, start};
use crate::arguments::{Cores, Layout, ProbeOptions};
use crate::console::log;
use crate::error::{Error, ProbeError};
use crate::memory::ViewMemory;
use crate::outputs::OpenOutputs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{info, warn};
use trial::{Measurement, choose, measure, median};
use weir_capture::SourceSpec;
use weir_probe::{OverloadPolicy, Settings};
use weir_text::columns::{Column, rows};

/// Turns of each candidate.
const TURNS: u32 = 3;

struct Candidate {
    name: String,
    probe: ProbeOptions,
}

/// Measures alternatives to the options of `probe`, and returns the best ones.
///
/// # Errors
/// A source cannot be opened, or not again; or `stop` was set.
pub fn tune(probe: &ProbeOptions, settings: &Settings, stop: &Arc<AtomicBool>) -> Result<ProbeOptions, Error> {
    let trial_ns = probe.autotune_ns.unwrap_or(0);
    let turn = Duration::from_nanos(trial_ns) / TURNS;
    // Overload must show as loss, not as reduced detail.
    let settings = &Settings { overload: OverloadPolicy::Lose, ..settings.clone() };
    let is_live = has_live(probe);
    let note = if is_live { "packets of the trials are in no record" } else { "metering starts afterwards" };
    info!(trial_seconds = trial_ns as f64 / 1e9, turns = TURNS, note, "autotune: start");
    let mut best = probe.clone();
    for dimension in [layouts, pinning, block_sizes, batch_sizes, polling] {
        let candidates = dimension(&best);
        if candidates.len() < 2 {
            continue;
        }
        let trials = measure_all(&candidates, settings, turn, stop)?;
        log_trials(&candidates, &trials);
        let (chosen, reason) = choose(&trials);
        let Some(candidate) = candidates.into_iter().nth(chosen) else { continue };
        info!(candidate = candidate.name, reason = reason.to_string(), "autotune: chosen");
        best = candidate.probe;
        if trials.iter().all(|trial| trial.is_too_small(turn)) {
            let missing = if is_live { "too few packets arrived" } else { "the capture is too short" };
            warn!(reason = missing, "autotune: no decision is possible, options are unchanged");
            return Ok(ProbeOptions { autotune_ns: None, ..probe.clone() });
        }
    }
    info!(options = as_options(&best, probe), "autotune: finished");
    Ok(ProbeOptions { autotune_ns: None, ..best })
}

fn has_live(probe: &ProbeOptions) -> bool {
    probe.inputs.iter().any(|input| input.live().is_some())
}

/// How packets are distributed over threads. Not if payload is inspected or packets are forwarded: only
/// one layout can.
fn layouts(probe: &ProbeOptions) -> Vec<Candidate> {
    if probe.rules.is_some() {
        info!("autotune: other layouts than fused hand no packets on; to try them, leave --rules out");
        return Vec::new();
    }
    if probe.inspects() {
        info!("autotune: other layouts than fused have no inspection; to try them, use --dpi off");
        return Vec::new();
    }
    let spread_meters = available_cores().len().saturating_sub(1).clamp(2, 8) as u8;
    let candidate = |layout, meters| {
        let probe = ProbeOptions { layout, meters, ..probe.clone() };
        Candidate { name: layout_option(&probe), probe }
    };
    let spread = candidate(Layout::Spread, probe.meters.or(Some(spread_meters)));
    vec![candidate(Layout::Fused, None), candidate(Layout::Split, None), spread]
}

/// Each thread on its own core, or where the scheduler puts it.
fn pinning(probe: &ProbeOptions) -> Vec<Candidate> {
    if probe.cores.is_some() {
        return Vec::new();
    }
    let cores = Cores(available_cores());
    let pinned = format!("--cores {}", list(&cores));
    vec![
        Candidate { name: "no --cores".into(), probe: ProbeOptions { cores: None, ..probe.clone() } },
        Candidate { name: pinned, probe: ProbeOptions { cores: Some(cores), ..probe.clone() } },
    ]
}

/// Block sizes of the receive ring, all of the same total size.
fn block_sizes(probe: &ProbeOptions) -> Vec<Candidate> {
    const SIZES: [&str; 4] =
        ["block=256k,blocks=256", "block=64k,blocks=1024", "block=1M,blocks=64", "block=4M,blocks=16"];
    let candidate = |size: &str| {
        let with_size = |input: &SourceSpec| {
            let changed = input.live().and_then(|live| live.with_blocks(size));
            changed.map_or_else(|| input.clone(), SourceSpec::Live)
        };
        let inputs = probe.inputs.iter().map(with_size).collect();
        Candidate { name: format!("af_packet: {size}"), probe: ProbeOptions { inputs, ..probe.clone() } }
    };
    let is_tunable = |input: &SourceSpec| input.live().is_some_and(|live| live.with_blocks(SIZES[0]).is_some());
    if probe.inputs.iter().any(is_tunable) { SIZES.map(candidate).into() } else { Vec::new() }
}

/// Packets whose flow cache slots are prefetched together.
fn batch_sizes(probe: &ProbeOptions) -> Vec<Candidate> {
    let candidate =
        |batch: u8| Candidate { name: format!("--batch {batch}"), probe: ProbeOptions { batch, ..probe.clone() } };
    [64, 32, 16].map(candidate).into()
}

fn polling(probe: &ProbeOptions) -> Vec<Candidate> {
    if !has_live(probe) {
        return Vec::new();
    }
    // Busy polling takes all CPU time, so its capacity is unknown: it wins only by losing less.
    let candidate =
        |name: &str, busy_poll| Candidate { name: name.into(), probe: ProbeOptions { busy_poll, ..probe.clone() } };
    vec![candidate("no --busy-poll", false), candidate("--busy-poll", true)]
}

/// Measures the candidates in turns; the median turn of each.
fn measure_all(
    candidates: &[Candidate],
    settings: &Settings,
    turn: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Measurement>, Error> {
    let mut turns = vec![Vec::new(); candidates.len()];
    for _ in 0..TURNS {
        for (candidate, turns) in candidates.iter().zip(&mut turns) {
            let started = open_worker_groups(&candidate.probe, stop)
                .and_then(|groups| {
                    start(
                        &candidate.probe,
                        settings,
                        groups,
                        &mut OpenOutputs::default(),
                        ViewMemory::default(),
                        None,
                        None,
                    )
                })
                .map_err(|error| ProbeError::AutotuneTrial {
                    candidate: candidate.name.clone(),
                    error: error.into(),
                })?;
            let trial = measure(started, turn, stop);
            if stop.load(Ordering::Relaxed) {
                return Err(ProbeError::AutotuneStopped.into());
            }
            turns.push(trial);
        }
    }
    Ok(turns.into_iter().map(median).collect())
}

/// Logs what was measured: as text in aligned columns, as JSON one event per candidate.
fn log_trials(candidates: &[Candidate], trials: &[Measurement]) {
    if log::is_json() {
        for (candidate, trial) in candidates.iter().zip(trials) {
            info!(
                candidate = candidate.name,
                packets_per_second = trial.packets_per_second(),
                capacity_packets_per_second = trial.capacity(),
                lost_percent = trial.lost_percent(),
                cpu_ns_per_packet = trial.cpu_ns_per_packet(),
                "autotune: measured"
            );
        }
        return;
    }
    let column = |heading: &str, digits: usize, figure: fn(&Measurement) -> f64| {
        Column::new(heading, true, trials.iter().map(|trial| format!("{:.digits$}", figure(trial))))
    };
    let table = [
        Column::new("candidate", false, candidates.iter().map(|candidate| candidate.name.clone())),
        column("Mpackets/s", 3, |trial| trial.packets_per_second() / 1e6),
        column("capacity Mpackets/s", 3, |trial| trial.capacity() / 1e6),
        column("lost %", 2, Measurement::lost_percent),
        column("CPU ns/packet", 0, Measurement::cpu_ns_per_packet),
    ];
    rows(&table, 1, None).iter().for_each(|row| info!("autotune: {}", row.trim_end()));
}

fn as_options(best: &ProbeOptions, before: &ProbeOptions) -> String {
    let mut options = Vec::new();
    let changed_inputs = best.inputs.iter().zip(&before.inputs).filter(|(new, old)| new.to_string() != old.to_string());
    options.extend(changed_inputs.map(|(input, _)| format!("-i {input}")));
    options.push(layout_option(best));
    options.extend(best.cores.as_ref().map(|cores| format!("--cores {}", list(cores))));
    options.push(format!("--batch {}", best.batch));
    if best.busy_poll {
        options.push("--busy-poll".into());
    }
    options.join(" ")
}

fn layout_option(probe: &ProbeOptions) -> String {
    match probe.layout {
        Layout::Fused => "--layout fused".into(),
        Layout::Split => "--layout split".into(),
        Layout::Spread => format!("--layout spread --meters {}", probe.metering_threads()),
    }
}

fn list(Cores(cores): &Cores) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}
