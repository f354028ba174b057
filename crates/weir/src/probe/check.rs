//! Checks of the configuration that start nothing, and the output of `--check`.

use super::control;
use super::overload;
use super::placement::{self, Placement};
use super::privileges;
use crate::actions::Actions;
use crate::anonymisation;
use crate::arguments::{Inspection, Layout, LogFormat, Logging, ProbeOptions, RecordSink};
use crate::console::printable;
use crate::enrichment::Enricher;
use crate::error::{Error, ProbeError};
use crate::files;
use crate::input;
use crate::missing_options;
use crate::outputs::Outputs;
use crate::settings::key_options;
use std::io::ErrorKind;
use std::path::Path;
use weir_capture::{Device, LiveSpec, SourceSpec};
use weir_packet::DecodeOptions;
use weir_probe::Settings;
use weir_query::Share;
use weir_text::units;

/// What is wrong with the options, each of which is valid alone.
pub fn options(probe: &ProbeOptions, outputs: &Outputs) -> Vec<Error> {
    let inputs = &probe.inputs[..];
    let needs_spread = probe.meters.is_some() && probe.layout != Layout::Spread;
    let needs_fused = probe.metering.dpi.is_some_and(|dpi| dpi != Inspection::Off) && probe.layout != Layout::Fused;
    let pipe = inputs.iter().find(|input| probe.autotune_ns.is_some() && input::is_pipe(input));
    let cannot_wait = |live: &&LiveSpec| probe.wait && !live.can_wait();
    let cannot_wait = inputs.iter().filter_map(SourceSpec::live).find(cannot_wait);
    let checks = [
        input::check_sources(inputs, "probe"),
        input::check_loopback(inputs, probe.force),
        input::check_packets(inputs, &probe.metering.selection, probe.rules.is_some()),
        reject_duplicates(inputs),
        anonymisation::check(&probe.sinks, probe.rules.as_deref()),
        files::check_targets(inputs, &outputs.targets),
        placement::check_cores("--cores", probe.cores.as_ref()),
        placement::check_cores("--export-cores", probe.export_cores.as_ref()),
        if needs_spread { Err(ProbeError::MetersWithoutSpread.into()) } else { Ok(()) },
        if probe.rules.is_some() && probe.layout != Layout::Fused {
            Err(ProbeError::RulesNeedFused.into())
        } else {
            Ok(())
        },
        probe.rules.as_deref().map_or(Ok(()), |rules| {
            Actions::load(rules)?.check(inputs, &outputs.targets, &probe.metering, &probe.enrichment)
        }),
        outputs.check_transactions(&probe.metering, probe.layout == Layout::Fused),
        if needs_fused { Err(ProbeError::InspectionNeedsFused.into()) } else { Ok(()) },
        cannot_wait.map_or(Ok(()), |live| Err(ProbeError::CannotWait(live.to_string()).into())),
        pipe.map_or(Ok(()), |pipe| Err(ProbeError::AutotuneOfPipe(pipe.to_string()).into())),
    ];
    outputs.problems(&probe.sinks).into_iter().chain(checks.into_iter().filter_map(Result::err)).collect()
}

/// Rejects a source that is named twice, because its packets would be counted twice. Members of a
/// fanout group share their packets, and each source of generated traffic has its own.
fn reject_duplicates(inputs: &[SourceSpec]) -> Result<(), Error> {
    let mut named = Vec::new();
    for input in inputs {
        let names = match input {
            SourceSpec::Generated(_) => Vec::new(),
            SourceSpec::Live(live) if live.may_share() => Vec::new(),
            SourceSpec::Live(live) => live.devices().iter().map(Device::to_string).collect(),
            SourceSpec::Packets(_) | SourceSpec::Capture(_) => vec![input.to_string()],
        };
        for device in names {
            if named.contains(&device) {
                return Err(ProbeError::DuplicateSource(device).into());
            }
            named.push(device);
        }
    }
    Ok(())
}

/// What would keep the probe from starting, as far as that is known without starting it: sources, their
/// queues, outputs, and names of collectors.
pub fn surroundings(probe: &ProbeOptions, outputs: &Outputs) -> Vec<Error> {
    let waits = |live: &LiveSpec| probe.wait && !live.devices().iter().all(Device::is_up);
    let is_empty = |input: &SourceSpec| matches!(input, SourceSpec::Capture(path) if path.as_os_str().is_empty());
    let inputs = probe.inputs.iter().filter(|input| !is_empty(input) && !input.live().is_some_and(waits));
    let decode = DecodeOptions { decapsulate: probe.metering.selection.decap };
    let mut problems: Vec<Error> = inputs.filter_map(|input| input::check_source(input, decode).err()).collect();
    let enricher = Enricher::load(&probe.enrichment).map_err(|error| problems.push(error)).ok().flatten();
    problems.extend(anonymisation::load(&probe.sinks).err());
    problems.extend(control::check(probe).err());
    let actions = probe.rules.as_deref().and_then(|rules| Actions::load(rules).ok());
    if let (Some(actions), Some(enricher)) = (&actions, &enricher) {
        problems.extend(missing_options::check_tags(&actions.rules, &probe.metering, &enricher.current()).err());
    }
    problems.extend(actions.iter().flat_map(Actions::check_interfaces));
    problems.extend(actions.iter().flat_map(Actions::check_files));
    if outputs.owner.is_some() {
        problems.extend(actions.iter().flat_map(|actions| actions.check_folders(&probe.user)));
    }
    let key = key_options(&probe.metering);
    let check = |sink: &RecordSink| {
        outputs.check_output(sink, &probe.sinks, key).and_then(|()| check_rotated(sink, probe, outputs))
    };
    let valid = outputs.sinks.iter().filter(|sink| outputs.check_sink(sink).is_ok());
    problems.extend(valid.filter_map(|sink| check(sink).err()));
    let check = |sink: &RecordSink| {
        let checked = outputs.check_transaction_output(sink, &probe.sinks, key);
        checked.and_then(|()| check_rotated(sink, probe, outputs))
    };
    problems.extend(outputs.transactions.iter().filter_map(|sink| check(sink).err()));
    if let Some(path) = outputs.stats.as_deref().filter(|path| *path != Path::new("-")) {
        let checked = weir_export::check_file(&path.display().to_string(), path);
        problems.extend(checked.map_err(Error::from).err());
    }
    problems
}

/// Checks that the user of the probe (`--user`) can create the files of a rotated output. Otherwise the
/// first one, which root creates, would be the last one.
pub fn check_rotated(sink: &RecordSink, probe: &ProbeOptions, outputs: &Outputs) -> Result<(), Error> {
    if outputs.owner.is_none() || !sink.spec.is_rotated() {
        return Ok(());
    }
    let key = key_options(&probe.metering);
    let checked = privileges::as_user(&probe.user, || outputs.check_files(sink, &probe.sinks, key));
    checked.map_err(|error| match error {
        Error::Sink { error: weir_export::Error::Io { error, .. } } if error.kind() == ErrorKind::PermissionDenied => {
            ProbeError::RotatedFiles { sink: sink.to_string(), user: probe.user.clone(), error }.into()
        }
        other => other,
    })
}

/// Describes what the probe would do: one fact per line.
pub fn describe(probe: &ProbeOptions, logging: Logging, outputs: &Outputs, settings: &Settings) -> String {
    let mut facts = Facts::default();
    describe_files(&mut facts, probe, outputs);
    describe_pipelines(&mut facts, probe, settings);
    describe_operation(&mut facts, probe, logging, settings);
    facts.0
}

#[derive(Default)]
struct Facts(String);

impl Facts {
    fn add(&mut self, name: &str, value: impl ToString) {
        let value = printable(&value.to_string()).replace('\n', "\u{fffd}");
        self.0 += &format!("{name:<10} {value}\n");
    }
}

/// Sources, outputs, and the files that are read.
fn describe_files(facts: &mut Facts, probe: &ProbeOptions, outputs: &Outputs) {
    for input in &probe.inputs {
        facts.add("source", input);
    }
    for sink in &outputs.sinks {
        facts.add("sink", sink);
        if let Some(Share { part, of }) = sink.share {
            facts.add("share", format!("{} of {of}, by a hash of the flow", part + 1));
        }
        if let Some(place) = sink.failover {
            let of = if place == 0 { "gets the records" } else { "gets them if those before it take none" };
            facts.add("failover", format!("{}: {of}", place + 1));
        }
        facts.add("settings", sink.spec.settings());
    }
    for sink in &outputs.transactions {
        facts.add("transactions", sink);
        facts.add("settings", sink.spec.settings());
    }
    if let Some((path, actions)) = probe.rules.as_deref().and_then(|path| Some((path, Actions::load(path).ok()?))) {
        let (rules, egresses) = actions.description();
        facts.add("rules", format!("{rules} of {}", path.display()));
        egresses.into_iter().for_each(|egress| facts.add("egress", egress));
    }
    if let Some(spec) = &probe.sinks.anonymise {
        facts.add("anonymise", spec.description());
    }
    let sources = probe.enrichment.sources();
    if let Some(path) = &sources.networks {
        facts.add("networks", path.display().to_string());
    }
    for path in &sources.geo {
        facts.add("geo", path.display().to_string());
    }
    for list in &sources.tags {
        facts.add("tags", format!("{} from {}", list.name, list.path.display()));
    }
}

fn describe_pipelines(facts: &mut Facts, probe: &ProbeOptions, settings: &Settings) {
    let requested = probe.inputs.iter().map(|input| input.live().map_or(Some(1), LiveSpec::requested_queues));
    let requested = requested.collect::<Option<Vec<_>>>();
    let placement = match requested {
        Some(queues) => Placement::choose(probe, &queues),
        None => Placement::undecided(probe),
    };
    let pipelines = match probe.layout {
        Layout::Fused => "one per receive queue, with one thread".into(),
        Layout::Split => "one per receive queue, with a reading thread and a metering thread".into(),
        Layout::Spread => format!(
            "one for all receive queues, with a reading thread per queue and {} metering threads",
            probe.metering_threads()
        ),
    };
    facts.add("pipelines", pipelines);
    facts.add("cores", placement.text());
    let meter = settings.meter;
    let per = if probe.layout == Layout::Spread { "metering thread" } else { "pipeline" };
    facts.add("flow cache", format!("{} slots per {per}", meter.flows));
    let inspection = match meter.inspection {
        Some(inspection) => {
            let with = if meter.second_opinion { ", also by nDPI" } else { "" };
            format!("the first {} packets per direction of each flow{with}", inspection.packets)
        }
        None if probe.metering.inspects() => "none, because metering threads get no payload in this layout".into(),
        None => "none".into(),
    };
    facts.add("inspection", inspection);
}

fn describe_operation(facts: &mut Facts, probe: &ProbeOptions, logging: Logging, settings: &Settings) {
    let meter = settings.meter;
    if let Some(expression) = &probe.metering.selection.filter {
        facts.add("filter", expression);
    }
    if settings.sampling_population > 1 {
        facts.add("sampling", format!("meter one packet in {}", settings.sampling_population));
    }
    let (idle, active) = (units::span(meter.idle_timeout_ns), units::span(meter.active_timeout_ns));
    facts.add("timeouts", format!("idle {idle}, active {active}"));
    facts.add(
        "end",
        format!("after a signal, sinks get the last records within {}", units::span(probe.drain_timeout_ns)),
    );
    if let Some(ns) = probe.autotune_ns {
        let trial = units::span(ns);
        let layout = if probe.inspects() { "" } else { "layout, " };
        facts.add("autotune", format!("first, {trial} per trial; may change {layout}cores, batch size and polling"));
    }
    facts.add("polling", if probe.busy_poll { "busy" } else { "sleep while there are no packets" });
    facts.add("batch", format!("{} packets", probe.batch));
    facts.add("overload", overload::policy_text(settings));
    let user = match probe.user.as_str() {
        "root" | "0" => "keep all privileges".into(),
        user => format!("if started as root, drop to {user} after opening sources and sinks"),
    };
    facts.add("user", user);
    let sandbox =
        if probe.hardening.no_sandbox { "off" } else { "system calls and files, after opening sources and sinks" };
    facts.add("sandbox", sandbox);
    facts.add("http", control::text(probe));
    let format = if logging.log_format == LogFormat::Json { "JSON" } else { "text" };
    facts.add("log", format!("{} and above, as {format}", logging.level(probe.reporting.quiet)));
}
