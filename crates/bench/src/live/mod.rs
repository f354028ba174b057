//! `weir bench live`: what live sources can take without a loss, and what of the cost is ours.
//!
//! ```text
//! sender's thread -> left ═ right -> source -> null consumer, or the probe on one thread or two
//! └──── a network of its own, gone with the process ────┘
//! ```
//! In: names of sources, and frames to be sent. Out: a [`LiveReport`]: per source the rate without loss, the processor time of a packet
//! beside that of a consumer that does nothing, what each stage takes of it, what a quiet link costs, and a long run if asked for.
//! Always true: consumers are compared in turn, round by round, at one rate; what was sent is what was metered and what was lost by each
//! who can lose, to the packet, in every trial, or there is no report.

mod consumer;
mod device;
mod idle;
mod measure;
mod report;
mod soak;
mod traffic;
mod trial;
mod wire;

pub use report::LiveReport;

use crate::Error;
use crate::conditions::{self, Conditions};
use device::Device;
use report::{Balance, Measured, Surroundings};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use traffic::Traffic;
use trial::{Bed, Cores, Feed};
use wire::Wire;

/// The sources that can be measured.
pub const LIVE: [&str; 3] = ["af_packet", "af_xdp", "dpdk"];

/// Processes that want to run beside this one, on average, from which on figures say little.
const BUSY: f64 = 0.5;

/// What to measure of live sources, and how.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Names of [`LIVE`], in this order; none for all that can be opened here.
    pub sources: Vec<String>,
    /// Measured rounds.
    pub rounds: usize,
    /// How long a trial takes, s.
    pub seconds: f64,
    /// A capture to be sent, or `synth:...`.
    pub frames: Option<String>,
    /// How long a run at `at` of the rate without loss takes, if one is asked for.
    pub soak: Option<Duration>,
    /// Share of the rate without loss.
    pub at: f64,
    /// How often such a run tells how it is.
    pub interval: Duration,
    /// The date, for the conditions.
    pub date: String,
    /// Set when it is to stop.
    pub stop: Arc<AtomicBool>,
}

/// Measures, in a network of its own, into which this takes the calling thread; `say` is told what goes on, and `show` the conditions and
/// each table as soon as it is done, as text.
///
/// # Errors
/// No such source, not permitted, or packets that were found nowhere.
pub fn live(options: &LiveOptions, say: &mut dyn FnMut(&str), show: &mut dyn FnMut(&str)) -> Result<LiveReport, Error> {
    let wanted = wanted(&options.sources)?;
    let frames = options.frames.as_deref().unwrap_or(traffic::MIX);
    let mut traffic = Traffic::load(frames)?;
    let cores = Cores::read();
    let conditions = Conditions::read(&options.date, options.rounds, options.seconds < 1.0);
    let surroundings = surroundings(options, &traffic, &cores, conditions.load);
    show(&format!("{conditions}{surroundings}"));
    let (mut sources, mut wire) = (Vec::new(), None);
    for scheme in wanted {
        let feed = match (scheme, wire.take()) {
            ("dpdk", _) => Feed::Device(Device::that_plays(&traffic)?),
            (_, Some(wire @ Feed::Wire(_))) => wire,
            _ => Feed::Wire(Box::new(Wire::make(cores.of_sender())?)),
        };
        let mut bed = Bed {
            scheme,
            feed,
            traffic: &mut traffic,
            cores: &cores,
            stop: &options.stop,
            balance: Balance::default(),
        };
        match bed.open() {
            Ok(source) => drop(source),
            Err(error) if options.sources.is_empty() => {
                say(&format!("{scheme} is left out: {error}"));
                wire = Some(bed.feed);
                continue;
            }
            Err(error) => return Err(error),
        }
        sources.push(measured(&mut bed, options, surroundings.hertz, say, show)?);
        wire = Some(bed.feed);
    }
    if sources.is_empty() {
        return Err(Error::Live("no source can be opened here".into()));
    }
    Ok(LiveReport { conditions, surroundings, sources, balanced: true })
}

fn wanted(names: &[String]) -> Result<Vec<&'static str>, Error> {
    if names.is_empty() {
        return Ok(LIVE.to_vec());
    }
    let find = |name: &String| {
        let known = LIVE.into_iter().find(|known| known == name);
        known.ok_or_else(|| Error::Live(format!("no source '{name}' to measure: there are {}", LIVE.join(", "))))
    };
    names.iter().map(find).collect()
}

fn surroundings(options: &LiveOptions, traffic: &Traffic, cores: &Cores, load: Option<f64>) -> Surroundings {
    let Cores { sender, receivers } = cores;
    let list = receivers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut placement = vec![
        format!("sender on core {sender}; pinned: reader on core {}, meter of split on core {}", receivers[0], receivers[1 % receivers.len()]),
        "anywhere: the receiving threads where the system puts them; the exporter always is".into(),
        "what the kernel does for a frame (the sender's call, softirq, the copy into a ring) runs mostly on the sender's core, and is in nobody's cost".into(),
    ];
    if receivers.contains(sender) {
        placement.push(format!("THERE IS ONE CORE: sender and receivers share it, so rates mean little ({list})"));
    } else if receivers.len() == 1 {
        placement.push("two cores: both threads of split share the one that the sender leaves".into());
    }
    if load.is_some_and(|load| load > BUSY) {
        placement.push(
            "OTHERS KEEP THE CORES BUSY (load, above): rates are lower, costs higher than they would be alone".into(),
        );
    }
    Surroundings { traffic: traffic.about.clone(), placement, seconds: options.seconds, hertz: conditions::hertz() }
}

fn measured(
    bed: &mut Bed<'_>,
    options: &LiveOptions,
    hertz: Option<f64>,
    say: &mut dyn FnMut(&str),
    show: &mut dyn FnMut(&str),
) -> Result<Measured, Error> {
    let mut measured = Measured {
        source: bed.scheme,
        rates: Vec::new(),
        cost_pps: None,
        costs: Vec::new(),
        stages: Vec::new(),
        idle: Vec::new(),
        balance: Balance::default(),
        soak: None,
        notes: Vec::new(),
    };
    let time = Duration::from_secs_f64(options.seconds);
    say(&format!("{}: the rate without loss", bed.scheme));
    measured.rates = measure::rates(bed, time)?;
    show(&format!("\n{}", measured.rates_text()));
    measure::costs(bed, &mut measured, (options.rounds, time), hertz, say)?;
    show(&format!("\n{}\n{}", measured.costs_text(), measured.stages_text()));
    say(&format!("{}: a quiet link", bed.scheme));
    measured.idle = idle::idle(bed, options.rounds, time)?;
    measured.balance = bed.balance.clone();
    show(&format!("\n{}{}", measured.idle_text(), measured.balance_text()));
    if let Some(time) = options.soak {
        soak::soak(bed, &mut measured, options, time, show)?;
    }
    Ok(measured)
}
