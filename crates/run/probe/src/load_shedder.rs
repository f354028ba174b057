//! Load shedding: what a pipeline leaves out under overload, in which order, and when it resumes
//! (docs/overload.md).
//!
//! In: counters of packets read and lost, ten times a second. Out: a level, 0 to 13. Level 0 meters
//! everything. The first levels leave out inspection of payload and TCP analysis, in the order of
//! [`ShedOrder`]. The next one also aggregates small flows, and each higher level halves the share of
//! sampled packets. The module uses no source, meter or clock.

use weir_flow::Detail;

pub(crate) const MAX_LEVEL: u8 = 13;
/// Time without overload before the level decreases, ns: initial and largest value.
const HOLD_NS: [u64; 2] = [5_000_000_000, 320_000_000_000];
/// Shortest time between two changes of the level, ns: a new level needs time to take effect.
const MIN_UPDATE_INTERVAL_NS: u64 = 50_000_000;
/// Overload is high if at least one packet in this number was lost.
const HIGH_LOSS_ONE_IN: u64 = 100;

/// What a pipeline does when more packets arrive than it can meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverloadPolicy {
    /// Drop packets and count them.
    #[default]
    Lose,
    /// Shed load level by level, and resume level by level. Affects only live sources: captures
    /// wait.
    Shed,
    /// Stay on this level, 0 to 13, whatever the load is.
    Level(u8),
}

impl OverloadPolicy {
    /// The lowest level.
    pub(crate) fn base_level(self) -> u8 {
        if let Self::Level(level) = self { level } else { 0 }
    }
}

/// What one of the first levels leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedStep {
    /// Fingerprints of flows that are inspected: JA3, JA4, JA3S, HASSH.
    Fingerprints,
    /// Inspection of payload.
    Inspection,
    /// TCP analysis.
    TcpAnalysis,
}

/// In which order the first levels leave out inspection of payload and TCP analysis, each once. The
/// fingerprints may come before inspection, on a level of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedOrder([Option<ShedStep>; 3]);

impl ShedOrder {
    /// `None` unless the steps are such an order.
    pub fn new(steps: &[ShedStep]) -> Option<Self> {
        use ShedStep::{Fingerprints, Inspection, TcpAnalysis};
        let is_order = matches!(
            steps,
            [Inspection, TcpAnalysis]
                | [TcpAnalysis, Inspection]
                | [Fingerprints, Inspection, TcpAnalysis]
                | [Fingerprints, TcpAnalysis, Inspection]
                | [TcpAnalysis, Fingerprints, Inspection]
        );
        is_order.then(|| Self(std::array::from_fn(|at| steps.get(at).copied())))
    }

    /// The steps, the one of level 1 first.
    pub fn steps(self) -> impl Iterator<Item = ShedStep> {
        self.0.into_iter().flatten()
    }

    /// The highest level that meters every packet: it aggregates small flows.
    fn max_level_without_sampling(self) -> u8 {
        self.steps().count() as u8 + 1
    }

    /// Whether a level leaves out a step.
    fn leaves_out(self, step: ShedStep, level: u8) -> bool {
        self.steps().take(level.into()).any(|it| it == step)
    }
}

impl Default for ShedOrder {
    /// Inspection first: it only adds to records.
    fn default() -> Self {
        Self([Some(ShedStep::Inspection), Some(ShedStep::TcpAnalysis), None])
    }
}

/// What is metered on a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelSettings {
    /// Detail of the meter.
    pub detail: Detail,
    /// One packet in this number is metered, chosen at random; 1 for all.
    pub population: u32,
}

impl LevelSettings {
    /// Settings of a level if one packet in `sampling_population` is metered on every level. Sampled
    /// traffic has neither TCP analysis nor inspection.
    pub fn new(level: u8, order: ShedOrder, sampling_population: u32) -> Self {
        let population = population(level, order, sampling_population);
        let has = |step| population == 1 && !order.leaves_out(step, level);
        Self {
            detail: Detail {
                inspection: has(ShedStep::Inspection),
                fingerprints: has(ShedStep::Fingerprints),
                tcp_analysis: has(ShedStep::TcpAnalysis),
                small_flows: level < order.max_level_without_sampling(),
            },
            population,
        }
    }
}

/// One packet in this number is metered on a level, if it is one in `sampling_population` on every level.
pub(crate) fn population(level: u8, order: ShedOrder, sampling_population: u32) -> u32 {
    let population_of_level = 1 << level.min(MAX_LEVEL).saturating_sub(order.max_level_without_sampling());
    sampling_population.max(population_of_level)
}

/// The level of one pipeline: one up per update under overload, one down after a hold time without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadShedder {
    pub level: u8,
    max_level_without_sampling: u8,
    is_fixed: bool,
    /// Time of the last update, ns; packets read and lost until then.
    updated_ns: u64,
    read: u64,
    lost: u64,
    /// When the time without overload began.
    no_overload_since_ns: Option<u64>,
    /// How long it has to last before the level decreases.
    hold_ns: u64,
    lowered_ns: Option<u64>,
}

/// How overloaded a pipeline is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overload {
    /// No packet was lost, and no queue is nearly full.
    None,
    /// Less than 1 % of the packets were lost, or one of Weir's queues is nearly full.
    Low,
    /// At least 1 % of the packets were lost.
    High,
}

impl LoadShedder {
    pub fn new(policy: OverloadPolicy, order: ShedOrder) -> Self {
        Self {
            level: policy.base_level(),
            max_level_without_sampling: order.max_level_without_sampling(),
            is_fixed: policy != OverloadPolicy::Shed,
            updated_ns: 0,
            read: 0,
            lost: 0,
            no_overload_since_ns: None,
            hold_ns: HOLD_NS[0],
            lowered_ns: None,
        }
    }

    /// Adapts the level to the packets read and lost so far, and to the fill of Weir's own queues.
    /// Returns whether the level has changed.
    pub fn update(&mut self, now_ns: u64, (read, lost): (u64, u64), queue_nearly_full: bool) -> bool {
        if self.is_fixed || now_ns.abs_diff(self.updated_ns) < MIN_UPDATE_INTERVAL_NS {
            return false;
        }
        let overload = Overload::new(lost.saturating_sub(self.lost), read.saturating_sub(self.read), queue_nearly_full);
        (self.updated_ns, self.read, self.lost) = (now_ns, read, lost);
        let previous_level = self.level;
        self.adapt(now_ns, overload);
        self.level != previous_level
    }

    /// Low overload raises the level only as far as every packet is still metered: sampling would
    /// discard more packets than are lost.
    fn adapt(&mut self, now_ns: u64, overload: Overload) {
        let max_level = match overload {
            Overload::None => return self.lower_when_due(now_ns),
            Overload::Low => self.max_level_without_sampling.max(self.level),
            Overload::High => MAX_LEVEL,
        };
        self.no_overload_since_ns = None;
        if self.level == max_level {
            return;
        }
        self.level += 1;
        // The level was lowered too early: double the hold time.
        if let Some(lowered_ns) = self.lowered_ns.take()
            && now_ns.abs_diff(lowered_ns) < self.hold_ns
        {
            self.hold_ns = (2 * self.hold_ns).min(HOLD_NS[1]);
        }
    }

    /// Without overload: lowers the level after the hold time.
    fn lower_when_due(&mut self, now_ns: u64) {
        // The clock may have been set back.
        let since_ns = self.no_overload_since_ns.map_or(now_ns, |since_ns| since_ns.min(now_ns));
        self.no_overload_since_ns = Some(since_ns);
        if now_ns - since_ns < self.hold_ns {
            return;
        }
        if self.level == 0 {
            self.hold_ns = HOLD_NS[0];
            return;
        }
        self.level -= 1;
        (self.no_overload_since_ns, self.lowered_ns) = (Some(now_ns), Some(now_ns));
    }
}

impl Overload {
    fn new(lost: u64, read: u64, queue_nearly_full: bool) -> Self {
        match lost {
            0 if queue_nearly_full => Self::Low,
            0 => Self::None,
            _ if lost.saturating_mul(HIGH_LOSS_ONE_IN) >= lost.saturating_add(read) => Self::High,
            _ => Self::Low,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Ten updates a second for some seconds. Returns the level after each.
    fn updates(shedder: &mut LoadShedder, from_s: u64, seconds: u64, overload: Overload) -> Vec<u8> {
        let update = |at| {
            shedder.adapt(from_s * S + at * S / 10, overload);
            shedder.level
        };
        (0..10 * seconds).map(update).collect()
    }

    #[test]
    fn high_overload_raises_the_level_by_one_per_update_up_to_the_maximum() {
        let mut shedder = LoadShedder::new(OverloadPolicy::Shed, ShedOrder::default());
        let levels = updates(&mut shedder, 0, 2, Overload::High);
        assert_eq!(levels[..4], [1, 2, 3, 4]);
        assert_eq!(levels[19], MAX_LEVEL);
    }

    #[test]
    fn low_overload_never_causes_sampling() {
        let mut shedder = LoadShedder::new(OverloadPolicy::Shed, ShedOrder::default());
        assert_eq!(updates(&mut shedder, 0, 10, Overload::Low)[..4], [1, 2, 3, 3]);
        updates(&mut shedder, 10, 1, Overload::High);
        assert_eq!(updates(&mut shedder, 11, 20, Overload::Low), [MAX_LEVEL; 200], "nor do they lower the level");
        assert_eq!(Overload::new(1, 98, false), Overload::High);
        assert_eq!(Overload::new(1, 100, false), Overload::Low);
        assert_eq!(Overload::new(0, 100, true), Overload::Low);
        assert_eq!(Overload::new(0, 0, false), Overload::None);
    }

    #[test]
    fn level_decreases_every_five_seconds_without_overload() {
        let mut shedder = LoadShedder::new(OverloadPolicy::Shed, ShedOrder::default());
        updates(&mut shedder, 0, 1, Overload::High);
        assert_eq!(shedder.level, 10);
        let levels = updates(&mut shedder, 1, 60, Overload::None);
        let at = |level| levels.iter().position(|&at| at == level).unwrap();
        assert_eq!([at(9), at(8), at(7), at(0)], [50, 100, 150, 500]);
    }

    #[test]
    fn hold_time_doubles_when_the_level_rises_again_at_once() {
        let (mut shedder, mut now_s, mut holds_s) =
            (LoadShedder::new(OverloadPolicy::Shed, ShedOrder::default()), 0, Vec::new());
        updates(&mut shedder, 0, 1, Overload::Low);
        for _ in 0..9 {
            let from_s = now_s;
            while shedder.level == 3 {
                shedder.adapt(now_s * S, Overload::None);
                now_s += 1;
            }
            holds_s.push(now_s - from_s - 1);
            shedder.adapt(now_s * S, Overload::Low);
        }
        assert_eq!(holds_s, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
        updates(&mut shedder, now_s, 2000, Overload::None);
        assert_eq!(
            (shedder.level, shedder.hold_ns),
            (0, HOLD_NS[0]),
            "a long time without overload resets the hold time"
        );
    }

    #[test]
    fn level_decreases_although_the_clock_was_set_back() {
        let mut shedder = LoadShedder::new(OverloadPolicy::Shed, ShedOrder::default());
        updates(&mut shedder, 1000, 1, Overload::Low);
        updates(&mut shedder, 1001, 1, Overload::None);
        updates(&mut shedder, 0, 16, Overload::None);
        assert_eq!(shedder.level, 0);
    }

    #[test]
    fn levels_have_the_documented_settings() {
        let order = ShedOrder::default();
        let settings = |level| settings(level, order);
        let expected = [([1, 1, 1], 1), ([0, 1, 1], 1), ([0, 0, 1], 1), ([0, 0, 0], 1), ([0, 0, 0], 2), ([0, 0, 0], 4)];
        assert_eq!([0, 1, 2, 3, 4, 5].map(settings), expected);
        assert_eq!(settings(MAX_LEVEL), ([0, 0, 0], 1024));
        let detail = Detail { tcp_analysis: false, inspection: false, fingerprints: false, ..Detail::ALL };
        assert_eq!(LevelSettings::new(0, order, 7), LevelSettings { detail, population: 7 });
        assert_eq!(LevelSettings::new(5, order, 3).population, 4);
    }
    /// Whether a level has inspection, TCP analysis and small flows, and its population.
    fn settings(level: u8, order: ShedOrder) -> ([u8; 3], u32) {
        let LevelSettings { detail, population } = LevelSettings::new(level, order, 1);
        let Detail { inspection, tcp_analysis, small_flows, .. } = detail;
        ([inspection, tcp_analysis, small_flows].map(u8::from), population)
    }

    #[test]
    fn the_order_changes_level_1_only() {
        let order = ShedOrder::new(&[ShedStep::TcpAnalysis, ShedStep::Inspection]).unwrap();
        assert_eq!(settings(1, order), ([1, 0, 1], 1));
        for level in [0].into_iter().chain(2..=MAX_LEVEL) {
            assert_eq!(settings(level, order), settings(level, ShedOrder::default()), "level {level}");
        }
    }

    #[test]
    fn fingerprints_have_a_level_before_inspection() {
        use ShedStep::{Fingerprints, Inspection, TcpAnalysis};
        for steps in [
            [Fingerprints, Inspection, TcpAnalysis],
            [Fingerprints, TcpAnalysis, Inspection],
            [TcpAnalysis, Fingerprints, Inspection],
        ] {
            let order = ShedOrder::new(&steps).unwrap();
            for level in 0..=3 {
                let has = |step| u8::from(!steps[..level].contains(&step));
                let fingerprints = LevelSettings::new(level as u8, order, 1).detail.fingerprints;
                assert_eq!(u8::from(fingerprints), has(Fingerprints), "{steps:?} {level}");
                assert_eq!(settings(level as u8, order), ([has(Inspection), has(TcpAnalysis), 1], 1));
            }
            assert_eq!([4, 5, MAX_LEVEL].map(|level| settings(level, order).1), [1, 2, 512]);
            let mut shedder = LoadShedder::new(OverloadPolicy::Shed, order);
            assert_eq!(updates(&mut shedder, 0, 1, Overload::Low)[..5], [1, 2, 3, 4, 4]);
        }
    }

    #[test]
    fn an_order_has_every_step_once_and_fingerprints_before_inspection() {
        use ShedStep::{Fingerprints, Inspection, TcpAnalysis};
        assert_eq!(ShedOrder::new(&[Inspection, TcpAnalysis]), Some(ShedOrder::default()));
        for steps in [
            &[][..],
            &[Inspection],
            &[TcpAnalysis; 2],
            &[TcpAnalysis, Inspection, TcpAnalysis],
            &[Inspection, Fingerprints, TcpAnalysis],
            &[Fingerprints, TcpAnalysis],
            &[Fingerprints, Fingerprints, Inspection],
            &[Fingerprints, Inspection, TcpAnalysis, Fingerprints],
        ] {
            assert_eq!(ShedOrder::new(steps), None, "{steps:?}");
        }
    }
}
