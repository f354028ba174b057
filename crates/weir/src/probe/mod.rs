//! `weir probe`: live traffic, a pipeline per queue, until it is told to stop.

mod config;
mod lines;
mod links;
mod notify;
mod overload;
mod placement;
mod rights;
mod tune;

use crate::arguments::{Arguments, Command, Layout, Probe, Sinks};
use crate::outputs::{Ending, Outputs, settings};
use crate::{Outcome, Refusal, files, read, say, units};
use clap::Parser;
use lines::Lines;
use links::Links;
use notify::Manager;
use placement::{Placement, check_cores};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_capture::Input;
use weir_export::Sink;
use weir_flow::Tuning;
use weir_probe::{BackPressure, CpuAffinity, PipelineStatus, ReceiveQueue, Settings, WorkerGroup};

/// How often it looks for signals.
const LOOK: Duration = Duration::from_millis(50);
/// The exporter gives way to the pipelines.
const EXPORTER_NICE: i32 = 5;

/// Opens everything, gives up what rights it does not need, meters, and tells.
pub fn run(given: &Probe) -> Result<Outcome, Refusal> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let whole = with_config(given, &arguments)?;
    let probe = &parse(&whole)?;
    if probe.print_config {
        return Ok(crate::print(config::as_file(&whole)?.as_bytes()));
    }
    let inputs: Vec<&OsStr> = probe.inputs.iter().map(OsString::as_os_str).collect();
    read::check_sources(&inputs, "probe")?;
    check_twice(&inputs)?;
    let outputs = Outputs::of(&probe.sinks.outputs, probe.stats.as_deref());
    files::check_targets(&inputs, &outputs.targets)?;
    let settings = Settings { overload: probe.overload, sample_one_in: probe.sample, ..settings(&probe.metering)? };
    if probe.meters.is_some() && probe.layout != Layout::Spread {
        return Err(Refusal("--meters: only with --layout spread do threads share the metering".into()));
    }
    check_cores("--cores", probe.cores.as_ref())?;
    check_cores("--export-cores", probe.export_cores.as_ref())?;
    if probe.check {
        return Ok(crate::print(plan(probe, &outputs, &settings).as_bytes()));
    }

    let stop = read::stop_signal()?;
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, reload.clone())
        .map_err(|error| Refusal(format!("cannot listen for signals: {error}")))?;
    let tuned = if probe.autotune.is_some() { tune::tune(probe, &settings, &stop)? } else { Some(probe.clone()) };
    let Some(probe) = &tuned else {
        return Err(Refusal("stopped while it tried: nothing was metered".into()));
    };
    let (groups, placement) = open_groups(probe, &stop)?;
    let mut opened = outputs.open(&probe.sinks, &stop)?;
    let mut manager = Manager::of_environment();
    rights::raise();
    rights::drop_to(&probe.user)?;
    if !(probe.quiet || placement.threads.is_empty() || placement.why.is_empty()) {
        let (threads, export) = (placement.threads_in_words(), &placement.export);
        say(&format!("pipelines on cores {threads}; outputs on {}", Placement::list(export)));
    }
    let Running { probe: mut running, behind } = begin(probe, &settings, (groups, placement), opened.take_sinks())?;

    rights::lower();
    let (lines, links, levels) = (Lines::default(), Links::of(&probe.inputs), Vec::new());
    let mut watch = Watch { probe, lines, links, levels, told: Instant::now(), lost: 0, flawed: false };
    let mut current =
        Current { probe: parse(&whole)?, began: whole.clone(), written: outputs.sinks.clone(), observed: None };
    current.observed = outputs.sinks.first().cloned();
    let began = Instant::now();
    manager.ready();
    while !(stop.load(Ordering::Relaxed) || running.is_finished() || running.all_sinks_failed()) {
        if probe.duration.is_some_and(|ns| began.elapsed() >= Duration::from_nanos(ns)) {
            break;
        }
        std::thread::sleep(LOOK);
        if reload.swap(false, Ordering::Relaxed) {
            match take_over(given, &arguments, &mut current, &mut running, opened.totals()) {
                Ok(what) => what.lines().for_each(say),
                Err(Refusal(why)) => format!("goes on as before: {}", why.trim_end()).lines().for_each(say),
            }
        }
        if let Some(status) = watch.tell(&running) {
            manager.status(&status);
        }
        manager.alive();
    }
    manager.stopping();
    let abandoned = running.all_sinks_failed();
    let waits = Arc::new(AtomicBool::new(true));
    remind(waits.clone(), behind);
    let end = running.finish();
    waits.store(false, Ordering::Relaxed);
    for error in &end.sink_errors {
        watch.sink_failed(error);
    }
    end.pipelines.iter().for_each(|pipeline| watch.source_failed(pipeline));
    let flawed = watch.flawed;
    if abandoned {
        say("no output is left");
    }
    let ending = Ending { quiet: probe.quiet, verbose: probe.verbose };
    let told = outputs.tell(&end.ledger, opened, &ending);
    Ok(if flawed || abandoned { Outcome::Flawed } else { told })
}

/// Pipelines at work.
struct Running {
    probe: weir_probe::Probe,
    /// What they do when outputs are behind.
    behind: BackPressure,
}

/// Starts what the arguments say.
fn begin(
    probe: &Probe,
    settings: &Settings,
    (groups, placement): (Vec<WorkerGroup>, Placement),
    sinks: Vec<Box<dyn Sink + Send>>,
) -> Result<Running, Refusal> {
    let tuning = Tuning { prefetch_packets: probe.batch.into(), ..settings.meter.tuning };
    let meter = weir_flow::Config { tuning, ..settings.meter };
    let settings = Settings { busy_poll: probe.busy_poll, meter, ..settings.clone() };
    let export = CpuAffinity { cores: placement.export, nice: EXPORTER_NICE };
    let live = groups.iter().flat_map(|group| &group.queues).any(|queue| matches!(queue.source, Input::Live(_)));
    // A capture waits for the sinks; what comes by itself does not.
    let behind = if live { BackPressure::Drop } else { BackPressure::Block };
    let started = weir_probe::Probe::start(groups, settings, sinks, export, behind);
    Ok(Running { probe: started.map_err(|_| read::no_room(&meter))?, behind })
}

/// The arguments with those of a file, if there is one.
fn with_config(given: &Probe, arguments: &[OsString]) -> Result<Vec<OsString>, Refusal> {
    match &given.config {
        Some(path) => config::with_file(arguments, path),
        None => Ok(arguments.to_vec()),
    }
}

fn parse(arguments: &[OsString]) -> Result<Probe, Refusal> {
    match Arguments::try_parse_from(arguments).map(|arguments| arguments.command) {
        Ok(Some(Command::Probe(probe))) => Ok(*probe),
        Ok(_) => Err(Refusal("weir probe was asked for, and something else stands there".into())),
        Err(error) => Err(Refusal(error.to_string())),
    }
}

/// Threads that meter for all queues.
fn meters(probe: &Probe) -> u8 {
    probe.meters.unwrap_or(2)
}

/// The pipelines, their sources open, and where threads run.
fn open_groups(probe: &Probe, stop: &Arc<AtomicBool>) -> Result<(Vec<WorkerGroup>, Placement), Refusal> {
    let (mut queues, mut counts) = (Vec::new(), Vec::new());
    for input in &probe.inputs {
        let name = input.to_string_lossy().into_owned();
        let before = queues.len();
        if weir_capture::is_live(&name) {
            let sources = placement::beside(probe, input, || files::open_queues(&name))?;
            let short = name.split(',').next().unwrap_or(&name).to_owned();
            queues.extend(
                sources
                    .into_iter()
                    .enumerate()
                    .map(|(number, source)| (format!("{short}@{number}"), Input::Live(source))),
            );
        } else {
            let source = files::open_sources(&[input], stop)?;
            queues.push((name, source));
        }
        counts.push(queues.len() - before);
    }
    let placement = Placement::choose(probe, &counts);
    // Every thread has the next core, and the first one's again behind the last.
    let mut cores = placement.threads.iter().copied().cycle();
    let mut affinity = || CpuAffinity { cores: cores.next().into_iter().collect(), nice: rights::MOST_URGENT };
    if probe.layout == Layout::Spread {
        let name = match &queues[..] {
            [(name, _)] => name.clone(),
            queues => format!("{} queues", queues.len()),
        };
        let queues = queues.into_iter().map(|(_, source)| ReceiveQueue { source, affinity: affinity() }).collect();
        let group = WorkerGroup { name, queues, meters: (0..meters(probe)).map(|_| affinity()).collect() };
        return Ok((vec![group], placement));
    }
    let group = |(name, source)| {
        let queues = vec![ReceiveQueue { source, affinity: affinity() }];
        WorkerGroup { name, queues, meters: if probe.layout == Layout::Split { vec![affinity()] } else { vec![] } }
    };
    Ok((queues.into_iter().map(group).collect(), placement))
}

/// Refuses a source that is named twice: each of its packets would count twice. Programs that share an interface are something else, and
/// synthetic traffic is made anew for each.
fn check_twice(inputs: &[&OsStr]) -> Result<(), Refusal> {
    let mut named = Vec::new();
    for input in inputs.iter().map(|input| input.to_string_lossy()) {
        let shares = input.starts_with("synth:") || input.split(',').any(|setting| setting.starts_with("fanout="));
        let devices =
            if weir_capture::is_live(&input) { weir_capture::devices(&input) } else { vec![input.into_owned()] };
        for device in devices.into_iter().filter(|_| !shares) {
            if named.contains(&device) {
                return Err(Refusal(format!("{device} is named twice, and each packet would count twice")));
            }
            named.push(device);
        }
    }
    Ok(())
}

/// What would be done.
fn plan(probe: &Probe, outputs: &Outputs, settings: &Settings) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: String| text.push_str(&format!("{name:<10} {value}\n"));
    for input in &probe.inputs {
        fact("source", input.to_string_lossy().into_owned());
    }
    for sink in &outputs.sinks {
        fact("sink", sink.clone());
    }
    let asked = probe.inputs.iter().map(|input| placement::queues_asked(input)).collect::<Option<Vec<_>>>();
    let placement = match asked {
        Some(queues) => Placement::choose(probe, &queues),
        None => Placement::not_yet(probe),
    };
    let pipelines = match probe.layout {
        Layout::Fused => "one per queue, a thread each".into(),
        Layout::Split => "one per queue, two threads each".into(),
        Layout::Spread => {
            format!("one of all queues, a thread each; {} threads meter, and share the flows", meters(probe))
        }
    };
    fact("pipelines", format!("{pipelines}, on cores: {}", placement.threads_in_words()));
    fact("exporter", format!("on cores: {}", placement.export_in_words()));
    let meter = settings.meter;
    let per = if probe.layout == Layout::Spread { "thread that meters" } else { "pipeline" };
    fact("flows", format!("{} per {per}", meter.flows));
    if let Some(expression) = &probe.metering.filter {
        fact("filter", expression.clone());
    }
    fact(
        "timeouts",
        format!("idle {}, active {}", units::span(meter.idle_timeout_ns), units::span(meter.active_timeout_ns)),
    );
    if let Some(ns) = probe.autotune {
        fact(
            "autotune",
            format!("first, {} for each trial; layout, cores, batch and polling may become others", units::span(ns)),
        );
    }
    let polling = if probe.busy_poll { "all the time" } else { "sleep while nothing comes" };
    fact("threads", format!("{polling}, {} packets' memory fetched together", probe.batch));
    fact("overload", overload::plan(settings.overload, settings.sample_one_in));
    fact("rights", format!("those of {} once everything is open", probe.user));
    text
}

/// Says that it waits, if it does for long.
fn remind(waits: Arc<AtomicBool>, behind: BackPressure) {
    const PATIENCE: Duration = Duration::from_secs(3);
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        if waits.load(Ordering::Relaxed) {
            let until = match behind {
                BackPressure::Block => "",
                BackPressure::Drop => " (one that takes nothing for 10 s is given up)",
            };
            say(&format!(
                "waits until the outputs have taken the last records{until}; another signal ends it at once, and loses them"
            ));
        }
    });
}

/// What is in force, but for what needs another start.
struct Current {
    probe: Probe,
    /// The arguments that it began with.
    began: Vec<OsString>,
    /// Sinks that this run has opened.
    written: Vec<String>,
    /// The one of which records are added up for the summary.
    observed: Option<String>,
}

/// Takes over what the file says now: timeouts, filter, and sinks if they are others.
fn take_over(
    given: &Probe,
    arguments: &[OsString],
    Current { probe: current, began: latest, written, observed }: &mut Current,
    running: &mut weir_probe::Probe,
    totals: &Arc<std::sync::Mutex<crate::summary::Totals>>,
) -> Result<String, Refusal> {
    let Some(path) = &given.config else {
        return Err(Refusal("there is no --config to read again".into()));
    };
    let whole = with_config(given, arguments)?;
    let probe = parse(&whole)?;
    let outputs = Outputs::of(&probe.sinks.outputs, probe.stats.as_deref());
    let settings = settings(&probe.metering)?;
    let meter = settings.meter;
    let before = Outputs::of(&current.sinks.outputs, current.stats.as_deref());
    let as_before = Sinks { outputs: current.sinks.outputs.clone(), ..probe.sinks.clone() } == current.sinks;
    let kept = |sink: &String| before.sinks.iter().position(|there| there == sink).filter(|_| as_before);
    // A file that is opened again is emptied.
    let is_file = |sink: &&String| matches!(files::Target::of_sink(sink), files::Target::File(_));
    let mut opened_again = outputs.sinks.iter().filter(|sink| kept(sink).is_none()).filter(is_file);
    if let Some(again) = opened_again.find(|sink| written.contains(sink)) {
        let why = if as_before { "" } else { " (top, uniflow or domain is another)" };
        return Err(Refusal(format!(
            "{again} was written, and to open it again{why} would empty it: give it another name, or leave it as it is"
        )));
    }
    let same = as_before && outputs.sinks == before.sinks;
    let is_new = |sink: &&String| kept(sink).is_none();
    let stays = observed.as_ref().is_some_and(|sink| outputs.sinks.contains(sink) && !is_new(&sink));
    let totals = if stays { None } else { Some(totals) };
    let sinks = if same { None } else { Some(outputs.change_sinks(&probe.sinks, kept, totals)?) };
    running.reconfigure(settings, sinks).map_err(|error| Refusal(format!("no thread for the outputs: {error}")))?;
    let (idle, active) = (units::span(meter.idle_timeout_ns), units::span(meter.active_timeout_ns));
    let mut text = format!("{} read again: idle {idle}, active {active}, {}", path.display(), outputs.sinks.join(", "));
    const TAKEN_OVER: [&str; 7] = ["idle", "active", "filter", "output", "top", "uniflow", "domain"];
    let mut names = config::differing(latest, &whole)?;
    names.retain(|name| !TAKEN_OVER.contains(&name.as_str()));
    if !names.is_empty() {
        text.push_str(&format!("\nnot taken over, as it needs another start: {}", names.join(", ")));
    }
    if !stays {
        *observed = outputs.sinks.iter().find(is_new).cloned();
    }
    current.sinks = probe.sinks;
    written.extend(outputs.sinks);
    Ok(text)
}

/// What is told while it goes on.
struct Watch<'a> {
    probe: &'a Probe,
    lines: Lines,
    links: Links,
    told: Instant,
    /// The level of each pipeline, as it was told.
    levels: Vec<u8>,
    /// Records that sinks had lost by then.
    lost: u64,
    flawed: bool,
}

impl Watch<'_> {
    /// Tells, if it is time, and gives a line of what it came to.
    fn tell(&mut self, running: &weir_probe::Probe) -> Option<String> {
        let since = self.told.elapsed();
        if since < Duration::from_nanos(self.probe.interval) {
            return None;
        }
        self.told = Instant::now();
        let (ledger, pipelines) = running.status();
        pipelines.iter().for_each(|pipeline| self.source_failed(pipeline));
        self.links.changes().iter().for_each(|change| say(change));
        overload::changes(&mut self.levels, &pipelines, self.probe.sample).iter().for_each(|change| say(change));
        for error in running.take_sink_errors() {
            self.sink_failed(&error);
        }
        let lost = ledger.sinks.iter().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum();
        if lost > std::mem::replace(&mut self.lost, lost) {
            for sink in ledger.sinks.iter().filter(|sink| !sink.lost.is_empty()) {
                let reasons = sink.lost.iter().map(|(reason, lost)| format!("{} {reason}", lost.flows));
                say(&format!("{}: records lost so far: {}", sink.sink, reasons.collect::<Vec<_>>().join(", ")));
            }
        }
        let wrong = if pipelines.iter().any(|pipeline| pipeline.timed_out) { Vec::new() } else { ledger.check() };
        for wrong in wrong {
            self.flawed = true;
            say(&format!("THE LEDGER DOES NOT BALANCE: {}: {} is not {}", wrong.equation, wrong.left, wrong.right));
        }
        if !self.probe.quiet {
            let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            let text = self.lines.at(now_ns, since.as_secs_f64(), &ledger, (&pipelines, running.sink_cpu_time_ns()));
            let _ = crate::tell(&text);
        }
        Some(lines::status(&ledger))
    }

    fn source_failed(&mut self, pipeline: &PipelineStatus) {
        for error in &pipeline.errors {
            self.flawed = true;
            // Queues of one source say the same.
            say(&format!("{}: {error}", pipeline.name));
        }
        if pipeline.more_errors > 0 {
            say(&format!("{}: {} more such lines", pipeline.name, pipeline.more_errors));
        }
    }

    fn sink_failed(&mut self, error: &weir_export::Error) {
        if !error.is_closed_pipe() {
            self.flawed = true;
            say(&read::sink_trouble(error));
        }
    }
}
