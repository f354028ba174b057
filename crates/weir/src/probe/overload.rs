//! Overload levels as text, and the log of their changes (docs/overload.md).

use tracing::{info, warn};
use weir_ledger as ledger;
use weir_probe::{GroupStatus, LevelSettings, OverloadPolicy};
use weir_text::units;

/// What `--overload` selects, for `--check`.
pub fn policy_text(overload: OverloadPolicy, sample: u32) -> String {
    match overload {
        OverloadPolicy::Shed => "live sources: reduce detail level by level (docs/overload.md)".into(),
        OverloadPolicy::Lose => "keep full detail, count lost packets".into(),
        OverloadPolicy::Level(level) => format!("stay at level {level}: {}", level_effect(level, sample)),
    }
}

/// `level 3 since 12:00:05`
pub fn level_text(overload: &ledger::OverloadCounters) -> String {
    match overload.since_ns {
        0 => format!("level {}", overload.level),
        since_ns => format!("level {} since {}", overload.level, &units::utc(since_ns).1[..8]),
    }
}

/// Logs pipelines whose level is not the one in `levels`, and updates `levels`.
pub fn log_changes(levels: &mut Vec<u8>, pipelines: &[GroupStatus], sample: u32) {
    // The level that a pipeline starts with is no change.
    let new = pipelines[levels.len().min(pipelines.len())..].iter().map(|pipeline| {
        let overload = &pipeline.account.ledger.overload;
        if overload.since_ns == 0 { overload.level } else { 0 }
    });
    levels.extend(new);
    for (last, pipeline) in levels.iter_mut().zip(pipelines) {
        let level = pipeline.account.ledger.overload.level;
        let before = std::mem::replace(last, level);
        let (pipeline, effect) = (pipeline.name.as_str(), level_effect(level, sample));
        if level > before {
            warn!(pipeline, level, before, effect, "overload level raised");
        } else if level < before {
            info!(pipeline, level, before, effect, "overload level lowered");
        }
    }
}

/// What a level leaves out.
fn level_effect(level: u8, sample: u32) -> String {
    let LevelSettings { detail, population } = LevelSettings::new(level, sample);
    let mut missing = Vec::new();
    if !detail.inspection {
        missing.push("no inspection of payload".to_owned());
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
