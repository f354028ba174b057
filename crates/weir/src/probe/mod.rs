//! `weir probe`: live traffic, a pipeline per queue, until it is told to stop.

mod config;
mod lines;
mod overload;
mod rights;

use crate::arguments::{Arguments, Command, Cores, Layout, Probe};
use crate::outputs::{Ending, Outputs, settings};
use crate::{Outcome, Refusal, files, read, say, units};
use clap::Parser;
use lines::Lines;
use rustix::thread::CpuSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_capture::Source;
use weir_probe::{Answer, Behind, Place, Queue, Settings};

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
    let outputs = Outputs::of(&probe.sinks.outputs, probe.stats.as_deref());
    files::check_targets(&inputs, &outputs.targets)?;
    let settings = Settings { overload: probe.overload, sample: probe.sample, ..settings(&probe.metering)? };
    let config = settings.meter;
    check_cores("--cores", probe.cores.as_ref())?;
    check_cores("--export-cores", probe.export_cores.as_ref())?;
    if probe.check {
        return Ok(crate::print(plan(probe, &outputs, &settings).as_bytes()));
    }

    let stop = read::stop_signal()?;
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, reload.clone())
        .map_err(|error| Refusal(format!("cannot listen for signals: {error}")))?;
    let queues = open_queues(probe, &stop)?;
    let mut opened = outputs.open(&probe.sinks)?;
    rights::raise();
    rights::drop_to(&probe.user)?;
    let export = Place { cores: cores(probe.export_cores.as_ref()), nice: EXPORTER_NICE };
    // A capture waits for the sinks; what comes by itself does not.
    let behind = if queues.iter().any(|queue| queue.source.now_ns().is_some()) { Behind::Lose } else { Behind::Wait };
    let mut running = weir_probe::Probe::start(queues, settings, opened.take_sinks(), export, behind)
        .map_err(|_| read::no_room(&config))?;

    rights::lower();
    let (lines, rungs) = (Lines::default(), Vec::new());
    let mut watch = Watch { probe, lines, rungs, told: Instant::now(), lost: 0, flawed: false };
    let (mut current, mut written) = (parse(&whole)?, outputs.sinks.clone());
    let began = Instant::now();
    while !(stop.load(Ordering::Relaxed) || running.has_ended() || running.abandoned()) {
        if probe.duration.is_some_and(|ns| began.elapsed() >= Duration::from_nanos(ns)) {
            break;
        }
        std::thread::sleep(LOOK);
        if reload.swap(false, Ordering::Relaxed) {
            match take_over(given, &arguments, (&mut current, &mut written), &mut running, opened.totals()) {
                Ok(what) => what.lines().for_each(say),
                Err(Refusal(why)) => format!("goes on as before: {}", why.trim_end()).lines().for_each(say),
            }
        }
        watch.tell(&running);
    }
    let abandoned = running.abandoned();
    let waits = Arc::new(AtomicBool::new(true));
    remind(waits.clone());
    let end = running.finish();
    waits.store(false, Ordering::Relaxed);
    for error in &end.errors {
        watch.sink_failed(error);
    }
    end.answers.iter().for_each(|answer| watch.source_failed(answer));
    let flawed = watch.flawed;
    if abandoned {
        say("no output is left");
    }
    let ending = Ending { quiet: probe.quiet, verbose: probe.verbose };
    let told = outputs.tell(&end.ledger, opened, &ending);
    Ok(if flawed || abandoned { Outcome::Flawed } else { told })
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

/// A queue per pipeline, open.
fn open_queues(probe: &Probe, stop: &Arc<AtomicBool>) -> Result<Vec<Queue>, Refusal> {
    let mut queues = Vec::new();
    for input in &probe.inputs {
        let name = input.to_string_lossy().into_owned();
        if weir_capture::is_live(&name) {
            let sources = files::open_queues(&name)?;
            let short = name.split(',').next().unwrap_or(&name).to_owned();
            let named = |(number, source)| queue(format!("{short}@{number}"), source);
            queues.extend(sources.into_iter().enumerate().map(named));
        } else {
            let source = files::open_sources(&[input], stop)?;
            queues.push(queue(name, source));
        }
    }
    // Every thread has the next core, and the first one's again behind the last.
    let mut cores = cores(probe.cores.as_ref()).into_iter().cycle();
    let mut place = || Place { cores: cores.next().into_iter().collect(), nice: rights::MOST_URGENT };
    for queue in &mut queues {
        queue.place = place();
        queue.meter = (probe.layout == Layout::Split).then(&mut place);
    }
    Ok(queues)
}

/// A queue, wherever it is worked on.
fn queue(name: String, source: Box<dyn Source + Send>) -> Queue {
    Queue { name, source, place: Place::default(), meter: None }
}

/// Refuses cores on which this program may not run.
fn check_cores(option: &str, list: Option<&Cores>) -> Result<(), Refusal> {
    let Ok(there) = rustix::thread::sched_getaffinity(None) else { return Ok(()) };
    let is_there = |core: usize| core < CpuSet::MAX_CPU && there.is_set(core);
    match cores(list).into_iter().find(|&core| !is_there(core)) {
        Some(core) => Err(Refusal(format!(
            "{option}: there is no core {core} that this program may run on; there are {} of them (nproc, lscpu -e)",
            there.count()
        ))),
        None => Ok(()),
    }
}

fn cores(list: Option<&Cores>) -> Vec<usize> {
    list.map_or_else(Vec::new, |cores| cores.0.clone())
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
    let list = |cores: Option<&Cores>| match cores {
        Some(Cores(cores)) => cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        None => "wherever the system puts them".into(),
    };
    let threads = if probe.layout == Layout::Split { "two threads" } else { "a thread" };
    fact("pipelines", format!("one per queue, {threads} each, on cores: {}", list(probe.cores.as_ref())));
    fact("exporter", format!("on cores: {}", list(probe.export_cores.as_ref())));
    let meter = settings.meter;
    fact("flows", format!("{} per pipeline", meter.flows));
    if let Some(expression) = &probe.metering.filter {
        fact("filter", expression.clone());
    }
    fact("timeouts", format!("idle {}, active {}", units::span(meter.idle_ns), units::span(meter.active_ns)));
    fact("overload", overload::plan(settings.overload, settings.sample));
    fact("rights", format!("those of {} once everything is open", probe.user));
    text
}

/// Says that it waits, if it does for long.
fn remind(waits: Arc<AtomicBool>) {
    const PATIENCE: Duration = Duration::from_secs(3);
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        if waits.load(Ordering::Relaxed) {
            say("waits until the outputs have taken the last records; another signal ends it at once, and loses them");
        }
    });
}

/// Takes over what the file says now: timeouts, filter, and sinks if they are others.
fn take_over(
    given: &Probe,
    arguments: &[OsString],
    (current, written): (&mut Probe, &mut Vec<String>),
    running: &mut weir_probe::Probe,
    totals: &Arc<std::sync::Mutex<crate::summary::Totals>>,
) -> Result<String, Refusal> {
    let Some(path) = &given.config else {
        return Err(Refusal("there is no --config to read again".into()));
    };
    let probe = parse(&with_config(given, arguments)?)?;
    let outputs = Outputs::of(&probe.sinks.outputs, probe.stats.as_deref());
    let settings = settings(&probe.metering)?;
    let meter = settings.meter;
    let sinks = if probe.sinks == current.sinks {
        None
    } else {
        // A file that is opened again is emptied.
        let is_file = |sink: &&String| matches!(files::Target::of_sink(sink), files::Target::File(_));
        let mut named = probe.sinks.outputs.iter().filter(is_file);
        if let Some(again) = named.find(|sink| written.contains(sink)) {
            return Err(Refusal(format!(
                "{again} was written, and to open it again would empty it: give it another name, or leave the outputs as they are"
            )));
        }
        Some(outputs.open_sinks(&probe.sinks, totals)?)
    };
    running.change(settings, sinks);
    let (idle, active) = (units::span(meter.idle_ns), units::span(meter.active_ns));
    let mut text = format!("{} read again: idle {idle}, active {active}, {}", path.display(), outputs.sinks.join(", "));
    let differs = [
        ("input", probe.inputs != current.inputs),
        ("flows", probe.metering.flows != current.metering.flows),
        ("layout", probe.layout != current.layout),
        ("overload", probe.overload != current.overload),
        ("sample", probe.sample != current.sample),
        ("cores", probe.cores != current.cores || probe.export_cores != current.export_cores),
        ("user", probe.user != current.user),
    ];
    let names: Vec<_> = differs.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
    if !names.is_empty() {
        text.push_str(&format!("\nnot taken over, as it needs another start: {}", names.join(", ")));
    }
    current.sinks = probe.sinks;
    written.extend(outputs.sinks);
    Ok(text)
}

/// What is told while it goes on.
struct Watch<'a> {
    probe: &'a Probe,
    lines: Lines,
    told: Instant,
    /// The rung of each pipeline, as it was told.
    rungs: Vec<u8>,
    /// Records that sinks had lost by then.
    lost: u64,
    flawed: bool,
}

impl Watch<'_> {
    fn tell(&mut self, running: &weir_probe::Probe) {
        let since = self.told.elapsed();
        if since < Duration::from_nanos(self.probe.interval) {
            return;
        }
        self.told = Instant::now();
        let (ledger, answers) = running.ask();
        answers.iter().for_each(|answer| self.source_failed(answer));
        overload::changes(&mut self.rungs, &answers, self.probe.sample).iter().for_each(|change| say(change));
        for error in running.sink_errors() {
            self.sink_failed(&error);
        }
        let lost = ledger.sinks.iter().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum();
        if lost > std::mem::replace(&mut self.lost, lost) {
            for sink in ledger.sinks.iter().filter(|sink| !sink.lost.is_empty()) {
                let reasons = sink.lost.iter().map(|(reason, lost)| format!("{} {reason}", lost.flows));
                say(&format!("{}: records lost so far: {}", sink.sink, reasons.collect::<Vec<_>>().join(", ")));
            }
        }
        let wrong = if answers.iter().any(|answer| answer.silent) { Vec::new() } else { ledger.check() };
        for wrong in wrong {
            self.flawed = true;
            say(&format!("THE LEDGER DOES NOT BALANCE: {}: {} is not {}", wrong.equation, wrong.left, wrong.right));
        }
        if !self.probe.quiet {
            let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            let text = self.lines.at(now_ns, since.as_secs_f64(), &ledger, &answers);
            let _ = crate::tell(&text);
        }
    }

    fn source_failed(&mut self, answer: &Answer) {
        for error in &answer.errors {
            self.flawed = true;
            say(error);
        }
        if answer.more_errors > 0 {
            say(&format!("{}: {} more such lines", answer.name, answer.more_errors));
        }
    }

    fn sink_failed(&mut self, error: &weir_export::Error) {
        if !error.is_closed_pipe() {
            self.flawed = true;
            say(&read::sink_trouble(error));
        }
    }
}
