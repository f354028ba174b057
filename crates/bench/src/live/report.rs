//! What came out of `weir bench live`: as text here, as JSON by its shape.

use crate::conditions::Conditions;
use crate::report::Spread;
use serde::Serialize;
use std::fmt;
use weir_text::units::number;

/// Everything that was measured, and where.
#[derive(Clone, Debug, Serialize)]
pub struct LiveReport {
    pub(crate) conditions: Conditions,
    pub(crate) surroundings: Surroundings,
    pub(crate) sources: Vec<Measured>,
    /// Whether every frame of every trial was found again; a report where not does not exist.
    pub(crate) balanced: bool,
}

/// What holds for all sources of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Surroundings {
    /// What is sent.
    pub traffic: String,
    /// Which core does what, and whose time is told.
    pub placement: Vec<String>,
    /// Seconds of a trial.
    pub seconds: f64,
    /// Cycles per second of the processor, if known.
    pub hertz: Option<f64>,
}

/// One source.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub source: &'static str,
    pub rates: Vec<Rate>,
    /// Packets a second at which costs were measured; none: as many as were taken.
    pub cost_pps: Option<f64>,
    pub costs: Vec<Cost>,
    pub stages: Vec<Stage>,
    pub idle: Vec<Idle>,
    pub balance: Balance,
    pub soak: Option<Soak>,
    pub notes: Vec<String>,
}

/// How much a consumer takes without a loss.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    pub consumer: &'static str,
    pub pinned: bool,
    /// Packets a second.
    pub pps: f64,
    /// The same on the wire, bits a second.
    pub bps: f64,
    /// Whether it was the sender that could do no more.
    pub sender: bool,
    /// Of a device that makes as many as are taken: the share that was lost. Else 0.
    pub lost_share: f64,
}

/// Processor time of a consumer's threads.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    pub consumer: &'static str,
    pub pinned: bool,
    /// Per packet, of all threads of the pipeline, ns.
    pub ns: Spread,
    /// Of each of them, ns, medians.
    pub threads_ns: Vec<f64>,
    /// Per packet, if the clock is known.
    pub cycles: Option<f64>,
    /// Divided by the null consumer with the same places, round by round.
    pub of_null: Option<Spread>,
    /// Packets that did not get through, of all rounds.
    pub lost: u64,
}

/// What a stage takes.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    pub stage: &'static str,
    /// How that is known.
    pub by: String,
    /// Per packet, ns; a difference of two costs may come out below 0 if noise is larger than it.
    pub ns: Spread,
    pub cycles: Option<f64>,
}

/// A quiet link.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    pub consumer: &'static str,
    /// Share of a core that its threads take.
    pub load: f64,
    /// From the end of a flow until its record came to the sink, s.
    pub delay: Option<Spread>,
    /// Flows that were tried.
    pub flows: usize,
}

/// Where frames went, of all trials.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Balance {
    pub runs: u64,
    /// Offered by the sender, or made by a device.
    pub sent: u64,
    /// Metered, or counted by a null consumer.
    pub metered: u64,
    pub undecoded: u64,
    pub filtered: u64,
    /// Not taken by the sender's kernel.
    pub refused: u64,
    /// Lost between the ends of the wire.
    pub wire: u64,
    pub card: u64,
    pub kernel: u64,
    pub ring: u64,
    pub table: u64,
}

/// A long run below the rate without loss.
#[derive(Clone, Debug, Serialize)]
pub struct Soak {
    pub minutes: f64,
    /// Frames a second that were to be sent, and those that were: the sender does not make up for time that others had its core.
    pub wanted_pps: f64,
    pub pps: f64,
    pub balance: Balance,
    /// Resident memory after the first fifth and at the end, octets.
    pub memory: [u64; 2],
    /// Whether memory did not grow; none: it was too short to say.
    pub flat: Option<bool>,
    pub passed: bool,
}

impl LiveReport {
    /// The report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and strings only")
    }

    /// Whether no soak lost a packet or grew.
    pub fn passed(&self) -> bool {
        self.sources.iter().filter_map(|source| source.soak.as_ref()).all(|soak| soak.passed)
    }
}

impl Balance {
    /// Frames that did not get through.
    pub fn lost(&self) -> u64 {
        self.refused + self.wire + self.card + self.kernel + self.ring + self.table
    }

    /// Whether every frame is somewhere.
    pub fn holds(&self) -> bool {
        self.sent == self.metered + self.undecoded + self.filtered + self.lost()
    }

    pub fn add(&mut self, other: &Self) {
        let Self { runs, sent, metered, undecoded, filtered, refused, wire, card, kernel, ring, table } = self;
        let mine = [runs, sent, metered, undecoded, filtered, refused, wire, card, kernel, ring, table];
        let theirs = [
            other.runs,
            other.sent,
            other.metered,
            other.undecoded,
            other.filtered,
            other.refused,
            other.wire,
            other.card,
            other.kernel,
            other.ring,
            other.table,
        ];
        mine.into_iter().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, metered, undecoded, filtered, refused, wire, card, kernel, ring, table, .. } = self;
        let sign = if self.holds() { "=" } else { "IS NOT" };
        write!(
            f,
            "{sent} sent {sign} {metered} metered + {undecoded} refused by the decoder + {filtered} filtered; lost: "
        )?;
        write!(f, "{refused} sender + {wire} wire + {card} card + {kernel} kernel + {ring} ring + {table} table")
    }
}

impl fmt::Display for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "traffic      {}", self.traffic)?;
        self.placement.iter().try_for_each(|line| writeln!(f, "placement    {line}"))?;
        match self.hertz {
            Some(hertz) => {
                writeln!(f, "cycles       of {:.3} GHz, as /proc/cpuinfo states it: not counted", hertz / 1e9)?
            }
            None => writeln!(f, "cycles       unknown: /proc/cpuinfo states no clock")?,
        }
        writeln!(
            f,
            "trials       {} s each, after a quarter of that which is not measured; flows end 200 ms after their last packet",
            self.seconds
        )
    }
}

fn place(pinned: bool) -> &'static str {
    if pinned { "pinned" } else { "anywhere" }
}

fn cycles(cycles: Option<f64>) -> String {
    cycles.map_or_else(|| "-".into(), |cycles| format!("{cycles:.0}"))
}

/// The tables of a source, each to be shown as soon as it is there.
impl Measured {
    pub fn rates_text(&self) -> String {
        let mut text = format!(
            "{}: the rate without loss\n{:28} {:10} {:>10}  {:>7}\n",
            self.source, "", "", "kpackets/s", "Gbit/s"
        );
        for Rate { consumer, pinned, pps, bps, sender, lost_share } in &self.rates {
            let more = match (sender, lost_share) {
                (true, _) => "at least: the sender could do no more".into(),
                (_, 0.0) => String::new(),
                (_, share) => {
                    format!("of which {:.1} % were lost: the device gives as many as are taken", 100.0 * share)
                }
            };
            let (kpps, gbps) = (pps / 1e3, bps / 1e9);
            text += format!("{consumer:28} {:10} {kpps:>10.1}  {gbps:>7.3}  {more}", place(*pinned)).trim_end();
            text += "\n";
        }
        text
    }

    pub fn costs_text(&self) -> String {
        let rate = self
            .cost_pps
            .map_or_else(|| "as many packets as are taken".into(), |pps| format!("{:.1} kpackets/s", pps / 1e3));
        let mut text = format!(
            "{}: what a packet costs at {rate}: processor time of the receiving threads, median of rounds, least and most in brackets\n",
            self.source
        );
        text +=
            &format!("{:28} {:10} {:>9} {:17} {:>7}  {:>15}\n", "", "", "ns/packet", "", "cycles", "x null consumer");
        for cost in &self.costs {
            let Cost { consumer, pinned, ns, threads_ns, of_null, lost, .. } = cost;
            let spread = format!("({:.1}-{:.1})", ns.min, ns.max);
            let of_null = of_null
                .as_ref()
                .map_or_else(String::new, |of| format!("{:.2} ({:.2}-{:.2})", of.median, of.min, of.max));
            let threads = match &threads_ns[..] {
                [reads, meters] => format!("  reads {reads:.1}, meters {meters:.1}"),
                _ => String::new(),
            };
            let lost = if *lost > 0 { format!("  {lost} lost") } else { String::new() };
            let line = format!(
                "{consumer:28} {:10} {:>9.1} {spread:17} {:>7}  {of_null:>15}{threads}{lost}",
                place(*pinned),
                ns.median,
                cycles(cost.cycles)
            );
            text += line.trim_end();
            text += "\n";
        }
        text
    }

    pub fn stages_text(&self) -> String {
        let mut text = format!("{}: what a stage costs, fused and pinned, in the same rounds\n", self.source);
        text += &format!("{:10} {:>9} {:17} {:>7}\n", "", "ns/packet", "", "cycles");
        for Stage { stage, by, ns, cycles: of } in &self.stages {
            let spread = format!("({:.1}-{:.1})", ns.min, ns.max);
            text += &format!("{stage:10} {:>9.1} {spread:17} {:>7}  {by}\n", ns.median, cycles(*of));
        }
        text
    }

    pub fn idle_text(&self) -> String {
        let mut text = format!("{}: a quiet link, pinned\n", self.source);
        for Idle { consumer, load, delay, flows } in &self.idle {
            text += &format!("{consumer:28} {:6.2} % of a core", 100.0 * load);
            if let Some(Spread { median, max, .. }) = delay {
                text += &format!(
                    "; record after a flow's end: {:.0} ms, worst {:.0} ms of {flows} flows",
                    1e3 * median,
                    1e3 * max
                );
            }
            text += "\n";
        }
        text
    }

    pub fn balance_text(&self) -> String {
        let notes: String = self.notes.iter().map(|note| format!("note: {note}\n")).collect();
        format!("{notes}balance      {}, {} trials: {}\n", self.source, self.balance.runs, self.balance)
    }
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "balance      {}", self.balance)?;
        let [fifth, end] = self.memory.map(|octets| octets as f64 / f64::from(1 << 20));
        let flat = match self.flat {
            Some(true) => "flat",
            Some(false) => "NOT FLAT",
            None => "too short to say: a fifth of it must outlast the idle timeout",
        };
        let lost = self.balance.lost();
        let lost = if lost == 0 { "0 lost".into() } else { format!("{lost} LOST") };
        let verdict = if self.passed { "passed" } else { "FAILED" };
        write!(
            f,
            "verdict      {verdict}: {} min at {:.1} of {:.1} kpackets/s wanted, {lost}; memory {fifth:.1} MiB after the first fifth, {end:.1} MiB at the end: {flat} \
             (at most 4 MiB or 1 % more)",
            number(self.minutes),
            self.pps / 1e3,
            self.wanted_pps / 1e3,
        )
    }
}
