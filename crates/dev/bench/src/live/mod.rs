//! `weir bench live`: loss-free rate and cost per packet of live sources.
//!
//! ```text
//! sender thread -> veth pair -> source -> null consumer, or the probe (fused or split)
//! └── network namespace of its own; ends with the process ──┘
//! ```
//! Input: names of sources, and frames to send. Output: a [`LiveReport`] with, per source, the
//! loss-free rate, the CPU time per packet beside that of a consumer that does nothing, the share of
//! each stage, the cost of an idle link, and a soak run if requested.
//!
//! Invariants: the consumers of a round run in turn at the same rate. In every trial, frames sent =
//! packets metered + packets lost, by place of the loss, exactly; otherwise there is no report.

mod consumer;
mod dpdk_device;
mod idle_link;
mod measure;
mod null_consumer;
mod report;
mod soak;
mod status;
mod traffic;
mod trial;
mod veth;

pub use report::LiveReport;
pub use traffic::{MIX, Traffic};
pub use veth::{RECEIVING_END, VethPair, create as veth_pair, received};

use crate::conditions::{self, Conditions};
use crate::error::Error;
use crate::measure::choose;
use dpdk_device::DpdkDevice;
use report::{Balance, Environment, SourceReport};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use trial::{CoreAssignment, Setup, TrafficFeed};

/// The sources that can be measured.
pub const LIVE: [&str; 3] = ["af_packet", "af_xdp", "dpdk"];

/// Load average (runnable processes) above which the report warns that figures are unreliable.
const BUSY_LOAD: f64 = 0.5;

/// Which live sources to measure, and how.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Names out of [`LIVE`], measured in this order. If empty, every source that opens.
    pub sources: Vec<String>,
    /// Number of measured rounds.
    pub rounds: usize,
    /// Duration of a trial, s.
    pub seconds: f64,
    /// Frames to send: a capture file or `synth:...`.
    pub frames: Option<String>,
    /// Duration of the soak run, if there is one.
    pub soak: Option<Duration>,
    /// Rate of the soak run as a share of the loss-free rate.
    pub soak_rate_share: f64,
    /// Interval of the soak run's status lines.
    pub interval: Duration,
    /// Date of the run, for the report.
    pub date: String,
    /// Set by the caller to interrupt the run.
    pub stop: Arc<AtomicBool>,
}

/// Runs the benchmark. Moves the calling thread into a new network namespace. `say` receives
/// progress messages; `show` receives the conditions and each finished table as text.
///
/// # Errors
/// No such source, missing privileges, or packets that no counter accounts for.
pub fn live(options: &LiveOptions, say: &mut dyn FnMut(&str), show: &mut dyn FnMut(&str)) -> Result<LiveReport, Error> {
    let schemes = choose(&options.sources, &LIVE, ["live source", "sources"])?.into_iter().map(|index| LIVE[index]);
    let frames = options.frames.as_deref().unwrap_or(traffic::MIX);
    let mut traffic = Traffic::load(frames)?;
    let cores = CoreAssignment::read();
    let conditions = Conditions::read(&options.date, options.rounds, options.seconds < 1.0);
    let environment = environment(options, &traffic, &cores, conditions.load);
    show(&format!("{conditions}{environment}"));
    let (mut sources, mut veth) = (Vec::new(), None);
    for scheme in schemes {
        let feed = match (scheme, veth.take()) {
            ("dpdk", _) => TrafficFeed::Dpdk(DpdkDevice::replaying(&traffic)?),
            (_, Some(veth @ TrafficFeed::Veth(_))) => veth,
            _ => TrafficFeed::Veth(Box::new(VethPair::create(cores.sender_affinity())?)),
        };
        let mut setup = Setup {
            scheme,
            feed,
            traffic: &mut traffic,
            cores: &cores,
            stop: &options.stop,
            balance: Balance::default(),
        };
        match setup.open() {
            Ok(source) => drop(source),
            Err(error) if options.sources.is_empty() => {
                say(&format!("{scheme} skipped: {error}"));
                veth = Some(setup.feed);
                continue;
            }
            Err(error) => return Err(error),
        }
        sources.push(measure_source(&mut setup, options, environment.hertz, say, show)?);
        veth = Some(setup.feed);
    }
    if sources.is_empty() {
        return Err(Error::NoLiveSource);
    }
    Ok(LiveReport { conditions, environment, sources, balanced: true })
}

fn environment(options: &LiveOptions, traffic: &Traffic, cores: &CoreAssignment, load: Option<f64>) -> Environment {
    let CoreAssignment { sender, receivers } = cores;
    let list = receivers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut placement = vec![
        format!(
            "sender on core {sender}; pinned: reading thread on core {}, metering thread of split on core {}",
            receivers[0],
            receivers[1 % receivers.len()]
        ),
        "unpinned: the kernel places the receiving threads; it always places the exporter".into(),
        "the kernel's work for a frame (send call, softirq, copy into a ring) runs mostly on the sender's \
         core and is in no figure"
            .into(),
    ];
    if receivers.contains(sender) {
        placement.push(format!("WARNING: one core ({list}) for sender and receivers; rates mean little"));
    } else if receivers.len() == 1 {
        placement.push("two cores: both threads of split share one core".into());
    }
    if load.is_some_and(|load| load > BUSY_LOAD) {
        placement.push(
            "WARNING: other processes use the cores (see load): rates are lower and costs higher than on an \
             idle machine"
                .into(),
        );
    }
    Environment {
        traffic: traffic.description.clone(),
        placement,
        seconds: options.seconds,
        hertz: conditions::cpu_hz(),
    }
}

fn measure_source(
    setup: &mut Setup<'_>,
    options: &LiveOptions,
    hertz: Option<f64>,
    say: &mut dyn FnMut(&str),
    show: &mut dyn FnMut(&str),
) -> Result<SourceReport, Error> {
    let mut report = SourceReport { source: setup.scheme, ..SourceReport::default() };
    let time = Duration::from_secs_f64(options.seconds);
    say(&format!("{}: loss-free rate", setup.scheme));
    report.rates = measure::rates(setup, time)?;
    show(&format!("\n{}", report.rates_text()));
    measure::costs(setup, &mut report, (options.rounds, time), hertz, say)?;
    show(&format!("\n{}\n{}", report.costs_text(), report.stages_text()));
    say(&format!("{}: idle link", setup.scheme));
    report.idle = idle_link::measure(setup, options.rounds, time)?;
    report.balance = setup.balance;
    show(&format!("\n{}{}", report.idle_text(), report.balance_text()));
    if let Some(time) = options.soak {
        soak::soak(setup, &mut report, [time, options.interval], options.soak_rate_share, show)?;
    }
    Ok(report)
}
