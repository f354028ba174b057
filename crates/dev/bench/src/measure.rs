//! Measures cases in turn, round by round, and enters their figures into a table.

use crate::conditions;
use crate::error::{CountMismatch, Error};
use crate::report::{Figure, Spread, Table};
use rustix::time::{ClockId, clock_gettime};
use weir_export::SinkSpec;

/// Rounds before the measured ones: tables fill, and the kernel maps their memory.
const WARM_UP_ROUNDS: usize = 1;

/// Settings of a run, common to all tables.
pub struct Bench<'a> {
    /// Number of measured rounds.
    pub rounds: usize,
    /// Small loads: measures nothing.
    pub quick: bool,
    /// Sinks for the table `encode`.
    pub sinks: &'a [SinkSpec],
    /// Receives progress messages.
    pub say: &'a mut dyn FnMut(&str),
}

impl Bench<'_> {
    /// Returns `full`, or `quick` in a quick run.
    pub fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Whether `bytes` fit into three quarters of the available memory. If not, adds a note to the table.
    pub fn fits(&self, bytes: usize, what: &str, table: &mut Table) -> bool {
        let memory = conditions::available_memory_bytes();
        let fits = bytes as u64 <= memory / 4 * 3;
        if !fits {
            let [needed, there] = [bytes as u64, memory].map(|bytes| bytes as f64 / f64::from(1 << 30));
            table.notes.push(format!("skipped: {what} needs {needed:.1} GiB, {there:.1} GiB are available"));
        }
        fits
    }
}

/// Returns the indices of `names` in `known`, or all of them if no name is given.
pub fn choose(names: &[String], known: &[&str], [kind, kinds]: [&str; 2]) -> Result<Vec<usize>, Error> {
    if names.is_empty() {
        return Ok((0..known.len()).collect());
    }
    let unknown =
        |name: &str| Error::UnknownName(format!("unknown {kind} '{name}'; the {kinds} are {}", known.join(", ")));
    let find = |name: &String| known.iter().position(|known| known == name).ok_or_else(|| unknown(name));
    names.iter().map(find).collect()
}

/// A figure by name.
pub type Fact = (&'static str, f64);

/// Result of one pass of a case over its load.
#[derive(Clone, Debug)]
pub struct Run {
    /// Packets, or items of another kind.
    pub packets: u64,
    /// Time that they took, s.
    pub seconds: f64,
    /// Further figures by name. The report shows those of the last round.
    pub facts: Vec<Fact>,
}

impl Run {
    /// Without further figures.
    pub fn new(packets: u64, seconds: f64) -> Self {
        Self { packets, seconds, facts: Vec::new() }
    }
}

/// A case: work that is measured on a load of type `L`.
pub trait Work<L> {
    /// Runs the case once over its load.
    fn run(&mut self, load: &mut L) -> Result<Run, Error>;

    /// Checks the counters after the last round. Returns further figures.
    ///
    /// # Errors
    /// The equation that does not hold.
    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        Ok(vec![])
    }
}

/// A case with a load of its own.
pub struct OwnLoad<L, W> {
    /// The load.
    pub load: L,
    /// The case.
    pub work: W,
    /// Advances the load to the next round.
    pub next: fn(&mut L) -> Result<(), Error>,
}

impl<L, W: Work<L>, Other> Work<Other> for OwnLoad<L, W> {
    fn run(&mut self, _: &mut Other) -> Result<Run, Error> {
        let run = self.work.run(&mut self.load)?;
        (self.next)(&mut self.load)?;
        Ok(run)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        Box::new(self.work).finish()
    }
}

/// Runs `work` and returns its result and the CPU time of this thread, s.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before_ns = thread_cpu_time_ns();
    let result = work();
    (result, (thread_cpu_time_ns() - before_ns) as f64 / 1e9)
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Cases to compare; they run in turn on one load.
pub struct Group<'a, L> {
    row: String,
    x: f64,
    cases: Vec<(String, Box<dyn Work<L> + 'a>)>,
}

impl<'a, L> Group<'a, L> {
    /// Creates the group for one row of a table; `x` is its position on the plot's axis.
    pub fn new(row: impl Into<String>, x: f64) -> Self {
        Self { row: row.into(), x, cases: Vec::new() }
    }

    /// Adds a case.
    pub fn case(mut self, series: impl Into<String>, work: impl Work<L> + 'a) -> Self {
        self.cases.push((series.into(), Box::new(work)));
        self
    }

    /// Measures all cases and enters the figures into the table. `next` advances the load to the next
    /// round.
    pub fn measure(
        mut self,
        bench: &mut Bench,
        table: &mut Table,
        load: &mut L,
        mut next: impl FnMut(&mut L) -> Result<(), Error>,
    ) -> Result<(), Error> {
        (bench.say)(&format!("{}: {}", table.name, self.row));
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); self.cases.len()];
        for round in 0..WARM_UP_ROUNDS + bench.rounds {
            if round > 0 {
                next(load)?;
            }
            for (runs, (_, work)) in runs.iter_mut().zip(&mut self.cases) {
                let run = work.run(load)?;
                if round >= WARM_UP_ROUNDS {
                    runs.push(run);
                }
            }
        }
        let rate = |run: &Run| run.packets as f64 / run.seconds.max(1e-9) / 1e6;
        let rates: Vec<Vec<f64>> = runs.iter().map(|runs| runs.iter().map(rate).collect()).collect();
        let names: Vec<String> = self.cases.iter().map(|(series, _)| series.clone()).collect();
        for (at, (series, work)) in self.cases.into_iter().enumerate() {
            let case = || format!("{}, {}, {series}", table.name, self.row);
            let finished = work.finish().map_err(|mismatch| mismatch.in_case(case()))?;
            let Some(last) = runs[at].pop() else { continue };
            let others = table.against.iter().filter_map(|&against| {
                let other = names.iter().position(|name| name == against).filter(|&other| other != at)?;
                let ratios = rates[at].iter().zip(&rates[other]).map(|(rate, other)| rate / other);
                Some((against.to_owned(), Spread::of(ratios.collect())))
            });
            let figure = Figure {
                row: self.row.clone(),
                x: self.x,
                packets: last.packets,
                mpps: Spread::of(rates[at].clone()),
                of: others.collect(),
                facts: last.facts.into_iter().chain(finished).map(|(name, value)| (name.to_owned(), value)).collect(),
                series,
            };
            table.figures.push(figure);
        }
        Ok(())
    }
}
