//! What is given up under overload, in words.

use crate::units;
use weir_ledger as ledger;
use weir_probe::{Answer, Measures, Overload};

/// What would be done.
pub fn plan(overload: Overload, sample: u32) -> String {
    let mut text = match overload {
        Overload::Shed => "give up detail step by step, if the source is live (docs/overload.md)".into(),
        Overload::Lose => "lose packets, and count them".into(),
        Overload::Rung(rung) => format!("stay on rung {rung}: {}", measures(rung, sample)),
    };
    if sample > 1 {
        text.push_str(&format!("; always one packet in {sample}"));
    }
    text
}

/// `rung 3 since 12:00:05`
pub fn short(overload: &ledger::Overload) -> String {
    match overload.since_ns {
        0 => format!("rung {}", overload.rung),
        since_ns => format!("rung {} since {}", overload.rung, time(since_ns)),
    }
}

/// What changed since it was told last, a line per pipeline.
pub fn changes(told: &mut Vec<u8>, answers: &[Answer], sample: u32) -> Vec<String> {
    // What a pipeline begins with is no change.
    let begins = answers[told.len().min(answers.len())..].iter().map(|answer| {
        let overload = &answer.account.ledger.overload;
        if overload.since_ns == 0 { overload.rung } else { 0 }
    });
    told.extend(begins);
    let of_each = told.iter_mut().zip(answers).filter_map(|(told, answer)| {
        let overload = &answer.account.ledger.overload;
        let before = std::mem::replace(told, overload.rung);
        let direction = if overload.rung > before { "overload" } else { "the load is less" };
        (before != overload.rung).then(|| {
            let (name, short) = (&answer.name, short(overload));
            format!("{name}: {direction}: {short}, was {before}: {}", measures(overload.rung, sample))
        })
    });
    of_each.collect()
}

/// What is metered on a rung.
fn measures(rung: u8, sample: u32) -> String {
    let Measures { detail, population } = Measures::of(rung, sample);
    let mut missing = Vec::new();
    if !detail.analysis {
        missing.push("no TCP analysis".to_owned());
    }
    if !detail.newcomers {
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
