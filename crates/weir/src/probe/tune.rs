//! `weir probe --autotune`: tries a few ways to lay a probe out on the traffic that there is, keeps the best, and says why.
//!
//! In: the arguments. Out: the arguments with what was best. Each trial is a probe of its own without sinks; trials of one question take
//! turns, and the median of their turns counts, as neither traffic nor the machine stands still. What is simpler stays unless something
//! else is clearly better.

use super::placement::cores_there;
use super::{Running, begin, open_groups};
use crate::arguments::{Cores, Layout, Probe};
use crate::{Refusal, say, units};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_probe::{BackPressure, Overload, Settings};

/// Turns of a trial.
const TURNS: u32 = 3;
/// What a trial leaves out at its beginning: memory is touched for the first time.
const WARM: Duration = Duration::from_millis(50);
/// How often it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(1);
/// Something else must be so much better, as a factor.
const CLEARLY: f64 = 1.05;
/// A share of packets lost that is no more than another one, in millionths.
const ABOUT_AS_FEW: u64 = 1000;
/// A capture must last so long, or the whole turn.
const SHORTEST: Duration = Duration::from_millis(100);
/// Packets of a trial below which live traffic tells nothing.
const TOO_FEW: u64 = 1000;

/// What a trial, or a turn of it, came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Trial {
    packets: u64,
    /// Lost by whoever was too slow for them.
    lost: u64,
    seconds: f64,
    /// Processor time of the busiest thread.
    busiest_seconds: f64,
    /// Processor time of all threads.
    busy_seconds: f64,
    live: bool,
}

impl Trial {
    /// Millionths of all packets.
    fn lost_share(&self) -> u64 {
        self.lost * 1_000_000 / (self.packets + self.lost).max(1)
    }

    /// Whether it tells nothing: hardly any live traffic came, or a capture was over at once.
    fn is_too_little(&self, turn: Duration) -> bool {
        if self.live { self.packets < TOO_FEW } else { self.seconds < turn.min(SHORTEST).as_secs_f64() }
    }

    /// Packets a second at which its busiest thread has no time left; of a capture, packets a second.
    fn room(&self) -> f64 {
        self.packets as f64 / (if self.live { self.busiest_seconds } else { self.seconds }).max(1e-9)
    }
}

/// What is tried.
struct Candidate {
    name: String,
    probe: Probe,
}

/// Tries what may be better than what `probe` says, and gives that. `None`: it was stopped.
///
/// # Errors
/// A source cannot be opened, or not again.
pub fn tune(probe: &Probe, settings: &Settings, stop: &Arc<AtomicBool>) -> Result<Option<Probe>, Refusal> {
    if let Some(pipe) = probe.inputs.iter().find(|input| is_pipe(input)) {
        return Err(Refusal(format!("--autotune: {} can be read only once", pipe.to_string_lossy())));
    }
    let turn = Duration::from_nanos(probe.autotune.unwrap_or(0)) / TURNS;
    // What is too much is to be seen as lost.
    let settings = &Settings { overload: Overload::Drop, ..settings.clone() };
    let live = probe.inputs.iter().any(|input| weir_capture::is_live(&input.to_string_lossy()));
    say(&format!(
        "autotune: {} for each trial, {TURNS} turns of {}; {}",
        units::span(probe.autotune.unwrap_or(0)),
        units::span(turn.as_nanos() as u64),
        if live { "what comes meanwhile is in no record" } else { "then it is read from its beginning" }
    ));
    let mut best = probe.clone();
    for question in [layouts, pinning, blocks, batches, polling] {
        let candidates = question(&best);
        if candidates.len() < 2 {
            continue;
        }
        let Some(trials) = try_all(&candidates, settings, turn, stop)? else { return Ok(None) };
        let (chosen, why) = choose(&trials);
        for (number, (candidate, trial)) in candidates.iter().zip(&trials).enumerate() {
            say(&line(&candidate.name, trial, (number == chosen).then_some(&why)));
        }
        let Some(candidate) = candidates.into_iter().nth(chosen) else { continue };
        best = candidate.probe;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let too_little = if live { "traffic" } else { "in the capture" };
        if trials.iter().all(|trial| trial.is_too_little(turn)) {
            say(&format!("autotune: there is too little {too_little} to tell one from another; all stays as it was"));
            return Ok(Some(Probe { autotune: None, ..probe.clone() }));
        }
    }
    say(&format!("autotune: from now on as with{}", as_options(&best, probe)));
    Ok(Some(Probe { autotune: None, ..best }))
}

fn is_pipe(input: &OsString) -> bool {
    let name = input.to_string_lossy();
    let is_file = !weir_capture::is_live(&name) && !name.starts_with("synth:");
    is_file && !std::fs::metadata(input).is_ok_and(|about| about.is_file())
}

/// Threads per queue.
fn layouts(probe: &Probe) -> Vec<Candidate> {
    let cores = cores_there().len();
    let spread = cores.saturating_sub(1).clamp(2, 8) as u8;
    let of = |layout, meters: Option<u8>| {
        let name = match layout {
            Layout::Fused => "--layout fused".into(),
            Layout::Split => "--layout split".into(),
            Layout::Spread => format!("--layout spread --meters {}", meters.unwrap_or_default()),
        };
        Candidate { name, probe: Probe { layout, meters, ..probe.clone() } }
    };
    vec![of(Layout::Fused, None), of(Layout::Split, None), of(Layout::Spread, probe.meters.or(Some(spread)))]
}

/// Every thread on a core of its own, or wherever the system puts it.
fn pinning(probe: &Probe) -> Vec<Candidate> {
    if probe.cores.is_some() {
        return Vec::new();
    }
    let cores = Cores(cores_there());
    let pinned = format!("--cores {}", list(&cores));
    vec![
        Candidate { name: "threads where the system puts them".into(), probe: Probe { cores: None, ..probe.clone() } },
        Candidate { name: pinned, probe: Probe { cores: Some(cores), ..probe.clone() } },
    ]
}

/// Blocks of the ring that the kernel shares with us: large ones are fuller, small ones come sooner. The ring stays as large.
fn blocks(probe: &Probe) -> Vec<Candidate> {
    const SIZES: [&str; 4] =
        ["block=256k,blocks=256", "block=64k,blocks=1024", "block=1M,blocks=64", "block=4M,blocks=16"];
    let open = |input: &OsString| {
        let name = input.to_string_lossy();
        name.starts_with("af_packet:") && !name.contains("block")
    };
    if !probe.inputs.iter().any(open) {
        return Vec::new();
    }
    let of = |blocks: &&str| {
        let with = |input: &OsString| {
            if open(input) { format!("{},{blocks}", input.to_string_lossy()).into() } else { input.clone() }
        };
        let inputs = probe.inputs.iter().map(with).collect();
        Candidate { name: format!("af_packet: {blocks}"), probe: Probe { inputs, ..probe.clone() } }
    };
    SIZES.iter().map(of).collect()
}

/// Packets whose memory is fetched together.
fn batches(probe: &Probe) -> Vec<Candidate> {
    let of = |batch: u8| Candidate { name: format!("--batch {batch}"), probe: Probe { batch, ..probe.clone() } };
    [64, 32, 16].map(of).into()
}

/// Spin, or sleep.
fn polling(probe: &Probe) -> Vec<Candidate> {
    if !probe.inputs.iter().any(|input| weir_capture::is_live(&input.to_string_lossy())) {
        return Vec::new();
    }
    // Of a thread that never sleeps nothing tells how much room it has: it must lose less.
    let of = |name: &str, busy_poll| Candidate { name: name.into(), probe: Probe { busy_poll, ..probe.clone() } };
    vec![of("threads sleep while nothing comes", false), of("--busy-poll", true)]
}

/// Every candidate in turn, some turns; the median of each. `None`: it was stopped.
fn try_all(
    candidates: &[Candidate],
    settings: &Settings,
    turn: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Vec<Trial>>, Refusal> {
    let mut turns = vec![Vec::new(); candidates.len()];
    for _ in 0..TURNS {
        for (candidate, turns) in candidates.iter().zip(&mut turns) {
            let trial = try_one(&candidate.probe, settings, turn, stop)
                .map_err(|Refusal(why)| Refusal(format!("autotune: {}: {why}", candidate.name)))?;
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            turns.push(trial);
        }
    }
    Ok(Some(turns.into_iter().map(median).collect()))
}

/// The turn in the middle, by what counts.
fn median(mut turns: Vec<Trial>) -> Trial {
    turns.sort_by(|one, other| {
        (other.lost_share(), one.room()).partial_cmp(&(one.lost_share(), other.room())).expect("numbers")
    });
    turns.get(turns.len() / 2).copied().unwrap_or_default()
}

fn try_one(probe: &Probe, settings: &Settings, turn: Duration, stop: &Arc<AtomicBool>) -> Result<Trial, Refusal> {
    let Running { probe, behind } = begin(probe, settings, open_groups(probe, stop)?, Vec::new())?;
    let live = behind == BackPressure::Drop;
    let mut began = Instant::now();
    let mut before = State::default();
    if live {
        wait(&probe, WARM.min(turn / 4), stop);
        (before, began) = (state(&probe), Instant::now());
    }
    wait(&probe, turn, stop);
    let (after, seconds) = (state(&probe), began.elapsed().as_secs_f64());
    drop(probe);
    let busy_before = |thread: usize| before.busy_ns.get(thread).copied().unwrap_or(0);
    let busy = after.busy_ns.iter().enumerate();
    let busy: Vec<f64> = busy.map(|(thread, ns)| ns.saturating_sub(busy_before(thread)) as f64 / 1e9).collect();
    Ok(Trial {
        packets: after.packets - before.packets,
        lost: after.lost - before.lost,
        seconds,
        busiest_seconds: busy.iter().copied().fold(0.0, f64::max),
        busy_seconds: busy.iter().sum(),
        live,
    })
}

/// Lets it run for so long, or to its end.
fn wait(probe: &weir_probe::Probe, time: Duration, stop: &AtomicBool) {
    let began = Instant::now();
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) && !probe.is_finished() {
        std::thread::sleep(LOOK.min(time));
    }
}

/// What a probe has done.
#[derive(Default)]
struct State {
    packets: u64,
    lost: u64,
    busy_ns: Vec<u64>,
}

fn state(probe: &weir_probe::Probe) -> State {
    let (ledger, pipelines) = probe.status();
    let line = &ledger.packets;
    let lost = line.dropped_nic + line.dropped_kernel + line.dropped_ring;
    let busy_ns = pipelines.into_iter().flat_map(|pipeline| pipeline.cpu_time_ns).collect();
    State { packets: line.received - lost, lost, busy_ns }
}

/// Which trial is the best, and why. The first stays unless another is clearly better.
fn choose(trials: &[Trial]) -> (usize, String) {
    let (mut best, mut why) = (0, "nothing else is clearly better".to_owned());
    for (number, trial) in trials.iter().enumerate().skip(1) {
        let (now, new) = (&trials[best], trial);
        if new.lost_share() + ABOUT_AS_FEW < now.lost_share() {
            (best, why) = (number, "it loses less".into());
        } else if new.lost_share() <= now.lost_share() + ABOUT_AS_FEW && new.room() > now.room() * CLEARLY {
            let percent = 100.0 * (new.room() / now.room() - 1.0);
            let what = if new.live { "its busiest thread has room for" } else { "it meters" };
            (best, why) = (number, format!("{what} {percent:.0} % more packets, and it loses no more"));
        }
    }
    (best, why)
}

fn line(name: &str, trial: &Trial, chosen: Option<&String>) -> String {
    let packets = units::rate(trial.packets as f64 / trial.seconds.max(1e-9), "packets/s");
    let lost = trial.lost_share() as f64 / 10_000.0;
    let cost = match trial.packets {
        0 => "no packets".into(),
        packets => format!("{:.0} ns of processor time per packet", 1e9 * trial.busy_seconds / packets as f64),
    };
    let room = units::rate(trial.room(), "packets/s");
    let room = if trial.live { format!("room for {room}") } else { "all threads together".into() };
    let chosen = chosen.map_or_else(String::new, |why| format!("  <- taken: {why}"));
    format!("autotune: {name:<36} {packets:>15}, {lost:.2} % lost, {cost}, {room}{chosen}")
}

/// What is other than it was, as options.
fn as_options(best: &Probe, before: &Probe) -> String {
    let mut text = String::new();
    let mut option = |name: &str, value: String| text.push_str(&format!(" {name} {value}"));
    best.inputs.iter().zip(&before.inputs).filter(|(now, then)| now != then).for_each(|(input, _)| {
        option("-i", input.to_string_lossy().into_owned());
    });
    let layout = match best.layout {
        Layout::Fused => "fused".into(),
        Layout::Split => "split".into(),
        Layout::Spread => format!("spread --meters {}", super::meters(best)),
    };
    option("--layout", layout);
    if let Some(cores) = &best.cores {
        option("--cores", list(cores));
    }
    option("--batch", best.batch.to_string());
    if best.busy_poll {
        text.push_str(" --busy-poll");
    }
    text
}

fn list(Cores(cores): &Cores) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(packets: u64, lost: u64, busiest_seconds: f64) -> Trial {
        Trial { packets, lost, seconds: 1.0, busiest_seconds, busy_seconds: busiest_seconds, live: true }
    }

    #[test]
    fn what_loses_less_is_taken_whatever_it_costs() {
        let trials = [trial(90_000, 10_000, 0.1), trial(100_000, 0, 0.9), trial(100_000, 0, 0.89)];
        assert_eq!(choose(&trials), (1, "it loses less".into()));
    }

    #[test]
    fn what_is_first_stays_unless_another_is_clearly_better() {
        let trials = [trial(100_000, 0, 0.50), trial(100_000, 0, 0.49), trial(100_000, 60, 0.51)];
        assert_eq!(choose(&trials), (0, "nothing else is clearly better".into()));
        let trials = [trial(100_000, 0, 0.50), trial(100_000, 50, 0.25)];
        let why = "its busiest thread has room for 100 % more packets, and it loses no more";
        assert_eq!(choose(&trials), (1, why.into()));
    }

    #[test]
    fn the_turn_in_the_middle_counts() {
        let turns = vec![trial(100, 0, 0.1), trial(100, 0, 0.9), trial(100, 0, 0.2)];
        assert_eq!(median(turns), trial(100, 0, 0.2));
        let turns = vec![trial(100, 0, 0.1), trial(90, 10, 0.1), trial(50, 50, 0.1)];
        assert_eq!(median(turns), trial(90, 10, 0.1));
    }
}
