//! The figures on top: rates, losses by cause, overload, sinks that wait.

use crate::about::About;
use crate::line::{HEADING, LOSS, Line, PLAIN, cut};
use ratatui_core::style::Style;
use serde_json::Value;
use weir_dpi::printable;
use weir_text::units::{count, rate, short};

/// Lines of the figures.
pub const LINES: usize = 3;

/// The lines of a probe, from the answer of `/status`.
pub fn of_probe(status: Option<&Value>, columns: usize) -> [Line; LINES] {
    let Some(status) = status else {
        return [Line::new("no figures yet", PLAIN), Line::default(), Line::default()];
    };
    [
        Line::of_parts(rates(&status["interval"]), columns),
        Line::of_parts(losses(status), columns),
        Line::of_parts(sinks(&status["ledger"]["sinks"]), columns),
    ]
}

/// The lines of stored flows.
/// `flows`: how many match, and of how many, once that is answered.
pub fn of_view(about: &About, flows: Option<[u64; 2]>, columns: usize) -> [Line; LINES] {
    let flows = flows.map_or_else(
        || "asking …".into(),
        |[matching, read]| format!("{matching} of {read} match; all figures are totals, without rates"),
    );
    let part = |name: &str, text: String| {
        Line::of_parts([(name.to_owned(), HEADING), (cut(&text, columns.saturating_sub(8)), PLAIN)], columns)
    };
    [part("input ", about.inputs.clone()), part("began ", about.period()), part("flows ", flows)]
}

fn rates(interval: &Value) -> Vec<(String, Style)> {
    let Some(packets) = interval["packets_per_second"].as_f64() else {
        return vec![("no rates yet: they follow at the end of the first interval".into(), PLAIN)];
    };
    let number = |name: &str| interval[name].as_f64().unwrap_or_default();
    let mut parts = vec![
        (rate(packets, "packets/s"), HEADING),
        (rate(number("bits_per_second"), "bit/s"), HEADING),
        (format!("{} active flows", short(number("active_flows") as u64)), PLAIN),
        (format!("{} ended/s", short(number("ended_flows_per_second") as u64)), PLAIN),
    ];
    let loads = interval["pipelines"].as_array().into_iter().flatten();
    let loads = loads.flat_map(|pipeline| pipeline["thread_load_percent"].as_array()).flatten();
    let busiest = loads.filter_map(Value::as_f64).fold(0.0, f64::max);
    parts.push((format!("load {busiest:.0} %"), if busiest >= 80.0 { LOSS } else { PLAIN }));
    parts
}

fn losses(status: &Value) -> Vec<(String, Style)> {
    let (interval, packets) = (&status["interval"], &status["ledger"]["packets"]);
    let causes = [
        ("NIC", "dropped_nic"),
        ("kernel", "dropped_kernel"),
        ("queue", "dropped_queue"),
        ("flow cache", "dropped_cache_full"),
    ];
    let now = |key: &str| interval[format!("{key}_packets")].as_u64().unwrap_or_default();
    let all = |key: &str| packets[key].as_u64().unwrap_or_default();
    let total: u64 = causes.iter().map(|(_, key)| all(key)).fold(0, u64::saturating_add);
    let level = status["ledger"]["overload"]["level"].as_u64().unwrap_or_default();
    let lost_records = interval["lost_records"].as_u64().unwrap_or_default();
    let styled = |text: String, is_loss: bool| (text, if is_loss { LOSS } else { PLAIN });
    let mut parts = vec![styled(format!("lost {}", count(total, "packet")), total > 0)];
    parts.extend(causes.iter().map(|(name, key)| styled(format!("{name} {}", now(key)), now(key) > 0)));
    parts.push(styled(format!("level {level}"), level > 0));
    if lost_records > 0 {
        parts.push((format!("lost {}", count(lost_records, "record")), LOSS));
    }
    let silent = status["pipelines_without_response"].as_array().map_or(0, Vec::len);
    if silent > 0 {
        parts.push((format!("{} silent", count(silent as u64, "pipeline")), LOSS));
    }
    parts
}

/// A store, and any sink of Parquet files, holds records until a file is complete: nothing that the user has to mend.
fn is_collecting(sink: &str) -> bool {
    sink.starts_with("parquet:")
}

/// `1 sink waits:`, `1 of 2 sinks waits:`, `2 of 3 sinks wait:`
fn waiting_sinks(waiting: usize, all: usize) -> String {
    let of_all = if all == 1 { String::new() } else { format!("{waiting} of ") };
    format!("{of_all}{} {}:", count(all as u64, "sink"), if waiting == 1 { "waits" } else { "wait" })
}

/// Sinks with records in their queue or on disk, those with the most first; and how many records are for files that are
/// not complete.
fn sinks(sinks: &Value) -> Vec<(String, Style)> {
    let of = |sink: &Value, key: &str| sink[key]["flows"].as_u64().unwrap_or_default();
    let sinks = sinks.as_array().map_or(&[][..], Vec::as_slice);
    let mut collected = 0_u64;
    let mut waiting: Vec<(u64, u64, String)> = sinks
        .iter()
        .map(|sink| {
            (of(sink, "waiting"), of(sink, "spooled"), sink["sink"].as_str().map(printable).unwrap_or_default())
        })
        .map(|(queue, spool, name)| match is_collecting(&name) {
            true => {
                collected = collected.saturating_add(queue);
                (0, spool, name)
            }
            false => (queue, spool, name),
        })
        .filter(|(queue, spool, _)| queue.saturating_add(*spool) > 0)
        .collect();
    waiting.sort_by_key(|(queue, spool, _)| std::cmp::Reverse(queue.saturating_add(*spool)));
    let mut parts = vec![(
        if waiting.is_empty() {
            format!("no record waits for {}", count(sinks.len() as u64, "sink"))
        } else {
            waiting_sinks(waiting.len(), sinks.len())
        },
        PLAIN,
    )];
    for (queue, spool, name) in waiting {
        let on_disk = if spool > 0 { format!(" + {} on disk", short(spool)) } else { String::new() };
        let text = format!("{} {}{on_disk}", cut(&name, 40), short(queue));
        parts.push((text, if spool > 0 { LOSS } else { PLAIN }));
    }
    if collected > 0 {
        parts.push((format!("{} collected for files", short(collected)), PLAIN));
    }
    parts
}
