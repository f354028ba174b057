//! Overload levels as text, and the log of their changes (docs/overload.md).

use tracing::{info, warn};
use weir_ledger as ledger;
use weir_probe::{GroupStatus, LevelSettings, OverloadPolicy, Settings, ShedOrder, ShedStep};
use weir_text::zone::Zone;

/// What `--overload` and `--shed` select, for `--check`.
pub fn policy_text(settings: &Settings) -> String {
    match settings.overload {
        OverloadPolicy::Shed => {
            let steps: Vec<_> = settings.shed.steps().map(step_text).collect();
            format!("live sources: reduce detail level by level, first {} (weir help overload)", steps.join(", then "))
        }
        OverloadPolicy::Lose => "keep full detail, count lost packets".into(),
        OverloadPolicy::Level(level) => {
            format!("stay at level {level}: {}", level_effect(level, settings.shed, settings.sampling_population))
        }
    }
}

fn step_text(step: ShedStep) -> &'static str {
    match step {
        ShedStep::Fingerprints => "fingerprints",
        ShedStep::Inspection => "inspection of payload",
        ShedStep::TcpAnalysis => "TCP analysis",
    }
}

/// `level 3 since 12:00:05`
pub fn level_text(overload: &ledger::OverloadCounters) -> String {
    match overload.since_ns {
        0 => format!("level {}", overload.level),
        since_ns => format!("level {} since {}", overload.level, Zone::current().date_and_second(since_ns).1),
    }
}

/// Logs pipelines whose level is not the one in `levels`, and updates `levels`.
pub fn log_changes(levels: &mut Vec<u8>, pipelines: &[GroupStatus], shed: ShedOrder, sample: u32) {
    // The level that a pipeline starts with is no change.
    let new = pipelines[levels.len().min(pipelines.len())..].iter().map(|pipeline| {
        let overload = &pipeline.account.ledger.overload;
        if overload.since_ns == 0 { overload.level } else { 0 }
    });
    levels.extend(new);
    for (last, pipeline) in levels.iter_mut().zip(pipelines) {
        let level = pipeline.account.ledger.overload.level;
        let before = std::mem::replace(last, level);
        let (pipeline, effect) = (pipeline.name.as_str(), level_effect(level, shed, sample));
        if level > before {
            warn!(pipeline, level, before, effect, "overload level raised");
        } else if level < before {
            info!(pipeline, level, before, effect, "overload level lowered");
        }
    }
}

/// What a level leaves out.
fn level_effect(level: u8, shed: ShedOrder, sample: u32) -> String {
    let LevelSettings { detail, population } = LevelSettings::new(level, shed, sample);
    let mut missing = Vec::new();
    if !detail.inspection {
        missing.push("no inspection of payload".to_owned());
    } else if !detail.fingerprints {
        missing.push("no fingerprints".into());
    }
    if !detail.tcp_analysis {
        missing.push("no TCP analysis".into());
    }
    if !detail.small_flows {
        missing.push("small new flows are aggregated".into());
    }
    if population > 1 {
        missing.push(format!("one packet in {population} is metered"));
    }
    if missing.is_empty() { "full detail".into() } else { missing.join(", ") }
}
