//! `weir plan`: the cores and memory that a probe needs for a link, and how to use those available.

use crate::arguments::Plan as Arguments;
use crate::console::{print, print_styled, style};
use crate::doctor::{check_interface, open_root};
use crate::error::{BenchReportProblem, Error, MachineError};
use crate::files;
use crate::findings::{append_row, append_sections, append_wrapped, describe_machine};
use crate::run_status::RunStatus;
use serde_json::{Value, json};
use std::path::Path;
use weir_dpi::{InspectionSettings, Inspector};
use weir_export::FileMode;
use weir_host::{
    Capacity, Demand, LayoutMode, Machine, Memory, PAUSE_MS, PipelineCpus, Plan, default_mpps_per_core, plan,
};
use weir_plot::{Axis, line_chart, standalone};
use weir_text::units;

/// Share of the rate from memory that remains if the same core also receives the packets.
const METERING_SHARE: f64 = 0.5;

pub fn run(arguments: &Arguments) -> Result<RunStatus, Error> {
    let root = open_root(arguments.machine.sysroot.as_deref())?;
    let machine = Machine::read(&root, arguments.iface.as_slice());
    if let Some(name) = &arguments.iface {
        check_interface(&machine, name)?;
    }
    let (mpps_per_core, source) = match (arguments.mpps_per_core, &arguments.bench) {
        (Some(mpps), _) => (mpps, "from --mpps-per-core".into()),
        (None, Some(path)) => measured_mpps(path, arguments.flows.into())
            .map_err(|problem| MachineError::BenchReport { path: path.display().to_string(), problem })?,
        (None, None) => (
            default_mpps_per_core(),
            "half of 14.8, the internet mix ('weir help performance'); to measure this machine: weir bench mix --json FILE, then \
             --bench FILE"
                .into(),
        ),
    };
    let demand = Demand {
        link_bits_per_second: arguments.link.bits_per_second.saturating_mul(arguments.link.ports.into()),
        ports: arguments.link.ports,
        frame_octets: arguments.packet,
        packets_per_second: arguments.rate.map(|rate| rate as f64),
        flows: arguments.flows.into(),
        mac_addresses: arguments.mac_addresses,
        transaction_bytes: if arguments.transactions { transaction_bytes(arguments.flows) } else { 0 },
        records_per_second: arguments.records.map(|records| records as f64),
        mpps_per_core,
    };
    let plan = plan(&machine, &demand, arguments.iface.as_deref());
    if let Some(path) = &arguments.svg {
        write_plot(&plan, path, arguments.output_files.mode())?;
    }
    let printed = if arguments.machine.json {
        let report = json!({ "fits": plan.fits(), "mpps_per_core_source": source, "plan": plan });
        print(format!("{report:#}\n").as_bytes())
    } else {
        print_styled(&text(&machine, &plan, &source, arguments.machine.verbose), style::findings)
    };
    Ok(RunStatus::from_problems(!plan.fits()).and(printed))
}

/// What a pipeline takes more if it records transactions, at most.
fn transaction_bytes(flows: u32) -> u64 {
    let usual = InspectionSettings::default().within(flows);
    let recording = InspectionSettings { transaction_octets: InspectionSettings::TRANSACTION_OCTETS, ..usual };
    let [usual, recording] =
        [usual, recording.within(flows)].map(|settings| Inspector::memory_octets_for(&settings, flows as usize));
    recording - usual
}

/// Writes the pipelines needed by packet size as a plot.
fn write_plot(plan: &Plan, path: &Path, mode: FileMode) -> Result<(), Error> {
    let sizes = &plan.capacity.sizes;
    let points: Vec<_> = sizes.iter().map(|need| [f64::from(need.frame_octets), need.pipelines as f64]).collect();
    let horizontal = Axis::values("frame, octets with FCS", points.iter().map(|&[octets, _]| octets).collect());
    let most = sizes.iter().map(|need| need.pipelines).max().unwrap_or(1);
    let vertical = Axis::linear("pipelines; one core more for exporters", most as f64);
    let rate = units::rate(plan.demand.link_bits_per_second as f64, "bit/s");
    let title = format!("Cores for {rate} at {:.1} M packets/s per core", plan.demand.mpps_per_core);
    let svg = standalone(&line_chart(&title, [horizontal, vertical], "line rate", &points));
    files::write(path, mode, &svg)
}

/// Million packets per second of one core from a report of `weir bench`, and the origin: the
/// internet mix of whole frames; else the row with at least `flows` flows, or the last row.
fn measured_mpps(path: &Path, flows: u64) -> Result<(f64, String), BenchReportProblem> {
    let text = std::fs::read_to_string(path).map_err(BenchReportProblem::Read)?;
    let report: Value = serde_json::from_str(&text).map_err(BenchReportProblem::Syntax)?;
    if report["conditions"]["quick"] == true {
        return Err(BenchReportProblem::Quick);
    }
    let figures = |name: &str| -> Vec<&Value> {
        let tables = report["tables"].as_array().into_iter().flatten().filter(|table| table["name"] == name);
        let figures = tables.filter_map(|table| table["figures"].as_array()).flatten();
        figures.filter(|figure| figure["series"] == "weir").collect()
    };
    let mix = figures("mix").into_iter().find(|figure| figure["row"] == "whole");
    let rows = figures("flows");
    let is_enough = |figure: &&&Value| figure["x"].as_f64().is_some_and(|x| x >= flows as f64);
    let figure = mix.or_else(|| rows.iter().find(is_enough).or(rows.last()).copied());
    let mpps =
        figure.and_then(|figure| figure["mpps"]["median"].as_f64()).filter(|mpps| mpps.is_finite() && *mpps > 0.0);
    let (Some(figure), Some(mpps)) = (figure, mpps) else { return Err(BenchReportProblem::NoFigures) };
    let table = if mix.is_some() { "mix" } else { "flows" };
    let row = figure["row"].as_str().unwrap_or("?");
    let origin =
        format!("half of {mpps:.1}, table {table}, row {row} of {}; receiving takes the other half", path.display());
    Ok((mpps * METERING_SHARE, origin))
}

fn text(machine: &Machine, plan: &Plan, source: &str, verbose: bool) -> String {
    let mut text = String::new();
    let mut row = |name: &str, what: String| append_row(&mut text, name, 11, &what);
    let Plan { demand, memory, export, layout, .. } = plan;
    let mega = |per_second: f64| match per_second {
        ..10_000.0 => format!("{per_second:.0} packets/s"),
        _ => format!("{:.2} M packets/s", per_second / 1e6),
    };
    let records = format!("{} records per second", units::short(export.records_per_second as u64));
    row("machine", describe_machine(machine));
    let rate = units::rate(demand.link_bits_per_second as f64, "bit/s");
    let (frame, packets) = (demand.frame_octets, mega(plan.packets_per_second));
    let flows = units::short(demand.flows);
    let ports = match demand.ports {
        1 => String::new(),
        ports => format!(" on {ports} ports"),
    };
    row("demand", format!("{rate}{ports} of {frame}-octet frames: {packets}; {flows} flows, {records}"));
    row("one core", format!("{:.1} M packets/s ({source})", demand.mpps_per_core));
    let (each, needed) = if plan.pipelines > plan.needed_pipelines {
        ("one for each receive queue of the NIC", format!(" ({} would be enough)", plan.needed_pipelines))
    } else {
        ("each with its own receive queue", String::new())
    };
    row("pipelines", format!("{}, {each}{needed}", plan.pipelines));
    row("memory", memory_text(memory));
    row("huge pages", format!("{} of 2 MiB", plan.huge_pages_2_mib));
    let bus = units::rate(plan.bus_bits_per_second, "bit/s");
    row("PCIe", format!("{bus} including write headers (24 octets per 256) and one descriptor per frame"));
    let [ipfix, full] =
        [export.ipfix_bits_per_second, export.ipfix_full_bits_per_second].map(|rate| units::rate(rate, "bit/s"));
    let [ipfix_per_day, csv_per_day] =
        [export.ipfix_bytes_per_day, export.csv_bytes_per_day].map(|bytes| units::quantity(bytes as u64, "B"));
    let on_disk = format!("on disk {ipfix_per_day} per day as IPFIX, {csv_per_day} as CSV");
    row("export", format!("{records}: {ipfix} as IPFIX ({full} with template=full); {on_disk}"));
    let node = layout.node.map_or_else(|| "unknown node".into(), |node| format!("node {node}"));
    let nic = plan.nic.as_deref().unwrap_or("no NIC");
    if layout.pipelines.is_empty() {
        row("layout", format!("{nic}: the cores are unknown"));
    } else {
        let shape = match layout.mode {
            LayoutMode::Split => "split: capture on one core, metering and export on the next",
            LayoutMode::Fused => "fused: capture and metering on one core, all exporters on another",
        };
        let fewer = match plan.pipelines - layout.pipelines.len() {
            0 => String::new(),
            missing => format!("; no core for {missing} of {} pipelines", plan.pipelines),
        };
        row("layout", format!("{nic}, {} of {node}, {shape}{fewer}", units::count(plan.cores as u64, "core")));
        for PipelineCpus { queue, capture, meter, export } in &layout.pipelines {
            let cpus = format!("capture on CPU {capture}, metering on CPU {meter}, export on CPU {export}");
            let per_port = plan.pipelines as u32 / demand.ports;
            let port = if demand.ports > 1 { format!("port {} ", queue / per_port) } else { String::new() };
            row("", format!("{port}queue {}: {cpus}", queue % per_port));
        }
    }
    if verbose {
        append_capacity(&mut text, &plan.capacity);
    }
    append_sections(&mut text, &plan.findings, "CRITICAL: the machine is too small", verbose);
    let verdict = if plan.fits() { "the machine is large enough, as far as known" } else { "the machine is too small" };
    text.push('\n');
    append_wrapped(&mut text, 0, &format!("{verdict}; weir doctor checks its other settings"));
    text
}

fn memory_text(memory: &Memory) -> String {
    let gib = |octets: u64| format!("{:.2} GiB", octets as f64 / f64::from(1 << 30));
    let [total, flows, tcp] = [memory.total_bytes, memory.flow_bytes, memory.tcp_bytes].map(gib);
    let [anomalies, buffers] = [memory.tcp_anomaly_bytes, memory.buffer_bytes].map(gib);
    let tcp = format!("TCP {tcp} (if all flows are TCP), TCP anomalies {anomalies} (if one flow in ten has them)");
    let transactions = match memory.transaction_bytes {
        0 => String::new(),
        bytes => format!(", transactions {} (at most, without their sinks)", gib(bytes)),
    };
    format!("{total}: flows {flows}, {tcp}, packet buffers {buffers}{transactions}")
}

/// Appends the tables of what the plan does not decide.
fn append_capacity(text: &mut String, capacity: &Capacity) {
    let Capacity { sizes, pipelines, rings, trimming, gpu } = capacity;
    let mut line = |line: String| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    line("\nframe octets   M packets/s   pipelines (a core each)".into());
    for need in sizes {
        let (octets, rate, pipelines) = (need.frame_octets, need.packets_per_second / 1e6, need.pipelines);
        line(format!("{octets:>12}   {rate:>11.2}   {pipelines:>9}"));
    }
    line("\npipelines   packets lost, if they are spread evenly".into());
    for loss in pipelines {
        line(format!("{:>9}   {:>12}", loss.pipelines, percent(loss.lost_share)));
    }
    line(format!("\ndescriptors   holds, µs   lost in {PAUSE_MS} ms   empty after, µs"));
    for ring in rings {
        let (descriptors, holds, lost) = (ring.descriptors, ring.holds_ns / 1e3, ring.lost_in_pause);
        let recovers = ring.recovers_in_ns.map_or("never".into(), |ns| format!("{:.0}", ns / 1e3));
        line(format!("{descriptors:>11}   {holds:>9.0}   {lost:>12.0}   {recovers:>15}"));
    }
    if !trimming.is_empty() {
        line("\ntransferred          from, octets   64 octets; as demanded".into());
    }
    for way in trimming {
        let from = way.line_rate_from_octets.map_or("never".into(), |octets| octets.to_string());
        let [smallest, demanded] = way.line_rate_share.map(percent);
        line(format!("{:<18}   {from:>12}   {smallest}; {demanded}", way.transferred));
    }
    text.push('\n');
    let mega = gpu.saves_a_core_from_packets_per_second / 1e6;
    let sentence = format!(
        "TCP analysis in the batch engine (weir tcp), if all packets are TCP: {:.1} cores; with a GPU {:.1} cores pack \
         segments, and {} of a GPU is used. A GPU saves one core per {mega:.0} M packets/s: it pays if it costs less than \
         the cores. The rates of copies and kernels are assumptions: no kernel has run on a GPU yet.",
        gpu.cpu_cores,
        gpu.packing_cores,
        percent(gpu.gpu_use),
    );
    append_wrapped(text, 0, &sentence);
}
