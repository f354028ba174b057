//! Load shedding: what a pipeline leaves out under overload, in which order, and when it resumes
//! (docs/overload.md).
//!
//! In: counters of packets read and lost, ten times a second. Out: a level, 0 to 12. Level 0 meters
//! everything, level 1 skips TCP analysis, level 2 also aggregates small flows, and each higher
//! level halves the share of sampled packets. The module uses no source, meter or clock.

use weir_flow::Detail;

/// The highest level.
pub(crate) const MAX_LEVEL: u8 = 12;
/// The highest level that meters every packet.
const MAX_LEVEL_WITHOUT_SAMPLING: u8 = 2;
/// Time without pressure before the level decreases, ns: initial and largest value.
const HOLD_NS: [u64; 2] = [5_000_000_000, 320_000_000_000];
/// Shortest time between two changes of the level, ns: a new level needs time to take effect.
const MIN_UPDATE_INTERVAL_NS: u64 = 50_000_000;
/// Pressure is high if at least one packet in this number was lost.
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
    /// Stay on this level, 0 to 12, whatever the load is.
    Level(u8),
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
    /// Settings of a level if one packet in `sample_one_in` is metered on every level. TCP is not
    /// analysed in sampled traffic.
    pub fn new(level: u8, sample_one_in: u32) -> Self {
        let population_of_level = 1 << u32::from(level.min(MAX_LEVEL).saturating_sub(MAX_LEVEL_WITHOUT_SAMPLING));
        let population = sample_one_in.max(population_of_level);
        let tcp_analysis = level < 1 && population == 1;
        Self { detail: Detail { tcp_analysis, small_flows: level < MAX_LEVEL_WITHOUT_SAMPLING }, population }
    }
}

/// The level of one pipeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadShedder {
    level: u8,
    /// `None` if the level is fixed.
    controller: Option<LevelController>,
    /// Time of the last update, ns; packets read and lost until then.
    updated_ns: u64,
    read: u64,
    lost: u64,
}

impl LoadShedder {
    /// A shedder on level 0, or on a fixed level.
    pub fn new(overload: OverloadPolicy) -> Self {
        let (level, controller) = match overload {
            OverloadPolicy::Lose => (0, None),
            OverloadPolicy::Shed => (0, Some(LevelController::new())),
            OverloadPolicy::Level(level) => (level, None),
        };
        Self { level, controller, updated_ns: 0, read: 0, lost: 0 }
    }

    /// The current level.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Adapts the level to the packets read and lost so far, and to the fill of Weir's own queues.
    /// Returns whether the level has changed.
    pub fn update(&mut self, now_ns: u64, (read, lost): (u64, u64), queue_nearly_full: bool) -> bool {
        let Some(controller) = &mut self.controller else { return false };
        if now_ns.abs_diff(self.updated_ns) < MIN_UPDATE_INTERVAL_NS {
            return false;
        }
        let pressure = Pressure::new(lost.saturating_sub(self.lost), read.saturating_sub(self.read), queue_nearly_full);
        (self.updated_ns, self.read, self.lost) = (now_ns, read, lost);
        controller.update(now_ns, pressure);
        controller.level != std::mem::replace(&mut self.level, controller.level)
    }
}

/// How overloaded a pipeline is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    /// No packet was lost, and no queue is nearly full.
    None,
    /// Less than 1 % of the packets were lost, or one of Weir's queues is nearly full.
    Low,
    /// At least 1 % of the packets were lost.
    High,
}

impl Pressure {
    fn new(lost: u64, read: u64, queue_nearly_full: bool) -> Self {
        match lost {
            0 if queue_nearly_full => Self::Low,
            0 => Self::None,
            _ if lost.saturating_mul(HIGH_LOSS_ONE_IN) >= lost.saturating_add(read) => Self::High,
            _ => Self::Low,
        }
    }
}

/// Raises the level by one per update under pressure, and lowers it by one after a hold time.
#[derive(Clone, Copy, Debug)]
struct LevelController {
    level: u8,
    /// When the time without pressure began.
    no_pressure_since_ns: Option<u64>,
    /// How long it has to last before the level decreases.
    hold_ns: u64,
    /// When the level decreased last.
    lowered_ns: Option<u64>,
}

impl LevelController {
    fn new() -> Self {
        Self { level: 0, no_pressure_since_ns: None, hold_ns: HOLD_NS[0], lowered_ns: None }
    }

    /// Low pressure raises the level only as far as every packet is still metered: sampling would
    /// discard more packets than are lost.
    fn update(&mut self, now_ns: u64, pressure: Pressure) {
        let max_level = match pressure {
            Pressure::None => return self.lower_when_due(now_ns),
            Pressure::Low => MAX_LEVEL_WITHOUT_SAMPLING.max(self.level),
            Pressure::High => MAX_LEVEL,
        };
        self.no_pressure_since_ns = None;
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

    /// Without pressure: lowers the level after the hold time.
    fn lower_when_due(&mut self, now_ns: u64) {
        // The clock may have been set back.
        let since_ns = self.no_pressure_since_ns.map_or(now_ns, |since_ns| since_ns.min(now_ns));
        self.no_pressure_since_ns = Some(since_ns);
        if now_ns - since_ns < self.hold_ns {
            return;
        }
        if self.level == 0 {
            self.hold_ns = HOLD_NS[0];
            return;
        }
        self.level -= 1;
        (self.no_pressure_since_ns, self.lowered_ns) = (Some(now_ns), Some(now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Ten updates a second for some seconds. Returns the level after each.
    fn updates(controller: &mut LevelController, from_s: u64, seconds: u64, pressure: Pressure) -> Vec<u8> {
        let update = |at| {
            controller.update(from_s * S + at * S / 10, pressure);
            controller.level
        };
        (0..10 * seconds).map(update).collect()
    }

    #[test]
    fn high_pressure_raises_the_level_by_one_per_update_up_to_the_maximum() {
        let mut controller = LevelController::new();
        let levels = updates(&mut controller, 0, 2, Pressure::High);
        assert_eq!(levels[..4], [1, 2, 3, 4]);
        assert_eq!(levels[19], MAX_LEVEL);
    }

    #[test]
    fn low_pressure_never_causes_sampling() {
        let mut controller = LevelController::new();
        assert_eq!(updates(&mut controller, 0, 10, Pressure::Low)[..3], [1, 2, 2]);
        updates(&mut controller, 10, 1, Pressure::High);
        assert_eq!(updates(&mut controller, 11, 20, Pressure::Low), [MAX_LEVEL; 200], "nor do they lower the level");
        assert_eq!(Pressure::new(1, 98, false), Pressure::High);
        assert_eq!(Pressure::new(1, 100, false), Pressure::Low);
        assert_eq!(Pressure::new(0, 100, true), Pressure::Low);
        assert_eq!(Pressure::new(0, 0, false), Pressure::None);
    }

    #[test]
    fn level_decreases_every_five_seconds_without_pressure() {
        let mut controller = LevelController::new();
        updates(&mut controller, 0, 1, Pressure::High);
        assert_eq!(controller.level, 10);
        let levels = updates(&mut controller, 1, 60, Pressure::None);
        let at = |level| levels.iter().position(|&at| at == level).unwrap();
        assert_eq!([at(9), at(8), at(7), at(0)], [50, 100, 150, 500]);
    }

    #[test]
    fn hold_time_doubles_when_the_level_rises_again_at_once() {
        let (mut controller, mut now_s, mut holds_s) = (LevelController::new(), 0, Vec::new());
        updates(&mut controller, 0, 1, Pressure::Low);
        for _ in 0..9 {
            let from_s = now_s;
            while controller.level == 2 {
                controller.update(now_s * S, Pressure::None);
                now_s += 1;
            }
            holds_s.push(now_s - from_s - 1);
            controller.update(now_s * S, Pressure::Low);
        }
        assert_eq!(holds_s, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
        updates(&mut controller, now_s, 2000, Pressure::None);
        assert_eq!(
            (controller.level, controller.hold_ns),
            (0, HOLD_NS[0]),
            "a long time without pressure resets the hold time"
        );
    }

    #[test]
    fn level_decreases_although_the_clock_was_set_back() {
        let mut controller = LevelController::new();
        updates(&mut controller, 1000, 1, Pressure::Low);
        updates(&mut controller, 1001, 1, Pressure::None);
        updates(&mut controller, 0, 11, Pressure::None);
        assert_eq!(controller.level, 0);
    }

    #[test]
    fn levels_have_the_documented_settings() {
        let settings = |level| {
            let LevelSettings { detail, population } = LevelSettings::new(level, 1);
            (detail.tcp_analysis, detail.small_flows, population)
        };
        assert_eq!(
            [0, 1, 2, 3, 4].map(settings),
            [(true, true, 1), (false, true, 1), (false, false, 1), (false, false, 2), (false, false, 4)]
        );
        assert_eq!(settings(MAX_LEVEL), (false, false, 1024));
        assert_eq!(
            LevelSettings::new(0, 7),
            LevelSettings { detail: Detail { tcp_analysis: false, small_flows: true }, population: 7 }
        );
        assert_eq!(LevelSettings::new(4, 3).population, 4);
    }
}
