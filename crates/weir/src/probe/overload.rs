//! What is given up under overload, in words.

use crate::units;
use weir_ledger as ledger;
use weir_probe::{LevelSettings, Overload, PipelineStatus};

/// What would be done.
pub fn plan(overload: Overload, sample: u32) -> String {
    let mut text = match overload {
        Overload::Shed => "give up detail step by step, if the source is live (docs/overload.md)".into(),
        Overload::Drop => "lose packets, and count them".into(),
        Overload::Level(level) => format!("stay on level {level}: {}", measures(level, sample)),
    };
    if sample > 1 {
        text.push_str(&format!("; always one packet in {sample}"));
    }
    text
}

/// `level 3 since 12:00:05`
pub fn short(overload: &ledger::Overload) -> String {
    match overload.since_ns {
        0 => format!("level {}", overload.level),
        since_ns => format!("level {} since {}", overload.level, time(since_ns)),
    }
}

/// What changed since it was told last, a line per pipeline.
pub fn changes(told: &mut Vec<u8>, pipelines: &[PipelineStatus], sample: u32) -> Vec<String> {
    // What a pipeline begins with is no change.
    let begins = pipelines[told.len().min(pipelines.len())..].iter().map(|pipeline| {
        let overload = &pipeline.account.ledger.overload;
        if overload.since_ns == 0 { overload.level } else { 0 }
    });
    told.extend(begins);
    let of_each = told.iter_mut().zip(pipelines).filter_map(|(told, pipeline)| {
        let overload = &pipeline.account.ledger.overload;
        let before = std::mem::replace(told, overload.level);
        let direction = if overload.level > before { "overload" } else { "the load is less" };
        (before != overload.level).then(|| {
            let (name, short) = (&pipeline.name, short(overload));
            format!("{name}: {direction}: {short}, was {before}: {}", measures(overload.level, sample))
        })
    });
    of_each.collect()
}

/// What is metered on a level.
fn measures(level: u8, sample: u32) -> String {
    let LevelSettings { detail, population } = LevelSettings::new(level, sample);
    let mut missing = Vec::new();
    if !detail.tcp_analysis {
        missing.push("no TCP analysis".to_owned());
    }
    if !detail.small_flows {
        missing.push("small new flows are summed".into());
    }
    if population > 1 {
        missing.push(format!("one packet in {population} is metered"));
    }
    if missing.is_empty() { "everything is metered".into() } else { missing.join(", ") }
}

fn time(ns: u64) -> String {
    let (_, time) = units::utc(ns);
    time[..8].into()
}
