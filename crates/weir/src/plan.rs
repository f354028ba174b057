//! `weir plan`: how much machine a link needs, whether this one has it, and which core does what.

use crate::arguments::Plan as Arguments;
use crate::doctor::{interface, root};
use crate::findings::{line, machine_in_short, section, wrapped};
use crate::{Outcome, Refusal, print, units};
use serde_json::{Value, json};
use std::path::Path;
use weir_host::{Demand, LayoutMode, Machine, Plan, Severity, default_mpps_per_core, plan};

/// Of what the meter does from memory, the part that is left when it also receives.
const LEFT_FOR_METERING: f64 = 0.5;

/// Plans, and tells.
pub fn run(arguments: &Arguments) -> Result<Outcome, Refusal> {
    let root = root(arguments.sysroot.as_deref())?;
    let machine = Machine::read(&root, arguments.iface.as_slice());
    if let Some(name) = &arguments.iface {
        interface(&machine, name)?;
    }
    let (mpps_per_core, source) = match (arguments.mpps_per_core, &arguments.bench) {
        (Some(mpps), _) => (mpps, "as given".into()),
        (None, Some(path)) => measured(path, arguments.flows.into())?,
        (None, None) => (
            default_mpps_per_core(),
            "half of 14.8, the internet mix of docs/performance.md; measure yours: weir bench mix --json FILE, then --bench FILE".into(),
        ),
    };
    let demand = Demand {
        link_bits_per_second: arguments.link,
        frame_octets: arguments.packet,
        packets_per_second: arguments.rate.map(|rate| rate as f64),
        flows: arguments.flows.into(),
        records_per_second: arguments.records.map(|records| records as f64),
        mpps_per_core,
    };
    let plan = plan(&machine, &demand, arguments.iface.as_deref());
    let text = if arguments.json {
        format!("{:#}\n", json!({ "fits": plan.fits(), "mpps_per_core_source": source, "plan": plan }))
    } else {
        text(&machine, &plan, &source, arguments.verbose)
    };
    let outcome = print(text.as_bytes());
    Ok(if plan.fits() { outcome } else { Outcome::Flawed })
}

/// Mpps of a core from a report of `weir bench`: the internet mix of whole frames; else so many flows, or the next more.
fn measured(path: &Path, flows: u64) -> Result<(f64, String), Refusal> {
    let refuse = |why: String| Refusal(format!("--bench {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| refuse(format!("not JSON: {error}")))?;
    if report["conditions"]["quick"] == true {
        return Err(refuse("made with --quick, which measures nothing".into()));
    }
    let figures = |name: &str| -> Vec<&Value> {
        let tables = report["tables"].as_array().into_iter().flatten().filter(|table| table["name"] == name);
        let figures = tables.filter_map(|table| table["figures"].as_array()).flatten();
        figures.filter(|figure| figure["series"] == "weir").collect()
    };
    let mix = figures("mix").into_iter().find(|figure| figure["row"] == "whole");
    let rows = figures("flows");
    let reaches = |figure: &&&Value| figure["x"].as_f64().is_some_and(|x| x >= flows as f64);
    let figure = mix.or_else(|| rows.iter().find(reaches).or(rows.last()).copied());
    let mpps =
        figure.and_then(|figure| figure["mpps"]["median"].as_f64()).filter(|mpps| mpps.is_finite() && *mpps > 0.0);
    let (Some(figure), Some(mpps)) = (figure, mpps) else {
        return Err(refuse("no figures of the tables mix or flows (weir bench mix --json FILE)".into()));
    };
    let table = if mix.is_some() { "mix" } else { "flows" };
    let row = figure["row"].as_str().unwrap_or("?");
    Ok((
        mpps * LEFT_FOR_METERING,
        format!("half of {mpps:.1}, table {table}, row {row} of {}; the other half is for receiving", path.display()),
    ))
}

fn text(machine: &Machine, plan: &Plan, source: &str, verbose: bool) -> String {
    let mut text = String::new();
    let mut row = |name: &str, what: String| {
        let mut rows = String::new();
        wrapped(&mut rows, 0, &what);
        for (at, rest) in rows.lines().map(str::trim).enumerate() {
            line(&mut text, &format!("{:11}{rest}", if at == 0 { name } else { "" }));
        }
    };
    let Plan { demand, memory, export, layout, .. } = plan;
    let mega = |per_second: f64| format!("{:.2} M packets/s", per_second / 1e6);
    let gib = |octets: u64| format!("{:.2} GiB", octets as f64 / f64::from(1 << 30));
    let records = format!("{} records a second", units::short(export.records_per_second as u64));
    row("machine", machine_in_short(machine));
    row(
        "demand",
        format!(
            "{} of {}-octet frames: {}; {} flows, {records}",
            units::rate(demand.link_bits_per_second as f64, "bit/s"),
            demand.frame_octets,
            mega(plan.packets_per_second),
            units::short(demand.flows),
        ),
    );
    row("one core", format!("{:.1} M packets/s ({source})", demand.mpps_per_core));
    let each = if plan.pipelines > plan.needed_pipelines {
        "as the card has so many receive queues"
    } else {
        "each with a receive queue"
    };
    let needed = if plan.pipelines > plan.needed_pipelines {
        format!(" ({} are needed)", plan.needed_pipelines)
    } else {
        String::new()
    };
    row("pipelines", format!("{}, {each}{needed}", plan.pipelines));
    row(
        "memory",
        format!(
            "{}: flows {}, TCP {} (if all are TCP), TCP in trouble {} (if one flow of ten has a bad direction), packet buffers {}",
            gib(memory.total_bytes),
            gib(memory.flow_bytes),
            gib(memory.tcp_bytes),
            gib(memory.tcp_anomaly_bytes),
            gib(memory.buffer_bytes)
        ),
    );
    row("huge pages", format!("{} of 2 MiB", plan.huge_pages_2_mib));
    row(
        "PCIe",
        format!(
            "{} with headers of writes (24 octets for each 256) and a descriptor a frame",
            units::rate(plan.bus_bits_per_second, "bit/s")
        ),
    );
    let octets = |octets: f64| units::quantity(octets as u64, "B");
    row(
        "export",
        format!(
            "{records}: {} as IPFIX; on disk {} a day as IPFIX, {} as CSV",
            units::rate(export.ipfix_bits_per_second, "bit/s"),
            octets(export.ipfix_bytes_per_day),
            octets(export.csv_bytes_per_day)
        ),
    );
    let node = layout.node.map_or_else(|| "no known node".into(), |node| format!("node {node}"));
    let card = plan.nic.as_deref().unwrap_or("no card");
    if layout.pipelines.is_empty() {
        row("layout", format!("{card}: the cores are not known"));
    } else {
        let shape = match layout.mode {
            LayoutMode::Split => "split: capture alone on its core, meter and export on the next",
            LayoutMode::Fused => "fused: capture and meter on one core, all exporters on another",
        };
        let fewer = match plan.pipelines - layout.pipelines.len() {
            0 => String::new(),
            missing => format!("; {missing} of {} have no place", plan.pipelines),
        };
        row("layout", format!("{card}, {} of {node}, {shape}{fewer}", units::count(plan.cores as u64, "core")));
        for pipeline in &layout.pipelines {
            let (queue, capture, meter) = (pipeline.queue, pipeline.capture, pipeline.meter);
            row(
                "",
                format!(
                    "queue {queue}: capture on processor {capture}, meter on {meter}, export on {}",
                    pipeline.export
                ),
            );
        }
    }
    section(&mut text, &plan.findings, Severity::Critical, "DOES NOT FIT");
    section(&mut text, &plan.findings, Severity::Warning, "COULD BE BETTER");
    section(&mut text, &plan.findings, Severity::Unknown, "NOT KNOWN");
    if verbose {
        section(&mut text, &plan.findings, Severity::Ok, "FITS");
    }
    let verdict = if plan.fits() { "it fits, as far as is known" } else { "it does not fit" };
    line(&mut text, &format!("\n{verdict}; weir doctor looks at the rest of the machine"));
    text
}
