//! What is given up under overload, in which order, and when it comes back (docs/overload.md).
//!
//! ```text
//! a look, ten times a second: what was lost since the one before -> up one level, down one, or stay
//! ```
//! In: time and [`Pressure`]. Out: a level. It knows no source, no meter and no clock.

use weir_flow::Detail;

/// The highest level.
pub(crate) const TOP: u8 = 12;
/// The highest level on which every packet is metered.
const WHOLE: u8 = 2;
/// How long there is no pressure before it goes down a level: at first, and at most.
const PATIENCE_NS: [u64; 2] = [5_000_000_000, 320_000_000_000];
/// Losses are much from this share of what came on: one in so many.
const MUCH: u64 = 100;

/// What pipelines do when more comes than they can meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// Drop packets and count them.
    #[default]
    Drop,
    /// Give up detail, step by step, and take it up again. Only live sources come under overload: captures wait.
    Shed,
    /// Stay on a level, whatever comes: 0 to 12.
    Level(u8),
}

/// What is metered on a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelSettings {
    /// What the meter finds out.
    pub detail: Detail,
    /// One packet in so many is metered, chosen at random; 1: all.
    pub population: u32,
}

impl LevelSettings {
    /// Those of a level. If one packet in `sample` is metered on any level, no connection is seen whole.
    pub fn of(level: u8, sample: u32) -> Self {
        let of_level = 1 << u32::from(level.min(TOP).saturating_sub(WHOLE));
        let population = sample.max(of_level);
        Self { detail: Detail { tcp_analysis: level < 1 && population == 1, small_flows: level < WHOLE }, population }
    }
}

/// What a look tells of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Nothing was lost, and no queue is nearly full.
    None,
    /// Little was lost, or a queue of ours is nearly full.
    Some,
    /// One packet in 100 was lost, or more.
    Much,
}

impl Pressure {
    /// Of packets that were lost and packets that came through.
    pub fn of(lost: u64, came: u64, queue_is_full: bool) -> Self {
        match lost {
            0 if queue_is_full => Self::Some,
            0 => Self::None,
            _ if lost.saturating_mul(MUCH) >= lost.saturating_add(came) => Self::Much,
            _ => Self::Some,
        }
    }
}

/// Where a reader stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    level: u8,
    /// Since when there is no pressure.
    quiet_ns: Option<u64>,
    /// How long that must be.
    patience_ns: u64,
    /// When it went down last.
    went_down_ns: Option<u64>,
}

impl Ladder {
    /// On the ground.
    pub fn new() -> Self {
        Self { level: 0, quiet_ns: None, patience_ns: PATIENCE_NS[0], went_down_ns: None }
    }

    /// The level it stands on.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Takes note of a look. Few losses end at the level on which every packet is still metered: to sample half of the traffic
    /// away for them would be worse.
    pub fn look(&mut self, now_ns: u64, pressure: Pressure) {
        let top = match pressure {
            Pressure::None => return self.rest(now_ns),
            Pressure::Some => WHOLE.max(self.level),
            Pressure::Much => TOP,
        };
        self.quiet_ns = None;
        if self.level == top {
            return;
        }
        self.level += 1;
        // It went down too early.
        if let Some(went_down_ns) = self.went_down_ns.take()
            && now_ns.abs_diff(went_down_ns) < self.patience_ns
        {
            self.patience_ns = (2 * self.patience_ns).min(PATIENCE_NS[1]);
        }
    }

    fn rest(&mut self, now_ns: u64) {
        // Time may have been set back.
        let quiet_ns = self.quiet_ns.map_or(now_ns, |quiet_ns| quiet_ns.min(now_ns));
        self.quiet_ns = Some(quiet_ns);
        if now_ns - quiet_ns < self.patience_ns {
            return;
        }
        if self.level == 0 {
            self.patience_ns = PATIENCE_NS[0];
            return;
        }
        self.level -= 1;
        (self.quiet_ns, self.went_down_ns) = (Some(now_ns), Some(now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Looks ten times a second from a second on, for so long; the levels after each.
    fn looks(ladder: &mut Ladder, from_s: u64, seconds: u64, pressure: Pressure) -> Vec<u8> {
        let look = |at| {
            ladder.look(from_s * S + at * S / 10, pressure);
            ladder.level()
        };
        (0..10 * seconds).map(look).collect()
    }

    #[test]
    fn a_level_a_look_under_much_pressure_and_no_further_than_the_top() {
        let mut ladder = Ladder::new();
        let levels = looks(&mut ladder, 0, 2, Pressure::Much);
        assert_eq!(levels[..4], [1, 2, 3, 4]);
        assert_eq!(levels[19], TOP);
    }

    #[test]
    fn few_losses_never_sample() {
        let mut ladder = Ladder::new();
        assert_eq!(looks(&mut ladder, 0, 10, Pressure::Some)[..3], [1, 2, 2]);
        looks(&mut ladder, 10, 1, Pressure::Much);
        assert_eq!(looks(&mut ladder, 11, 20, Pressure::Some), [TOP; 200], "nor do they let it down");
        assert_eq!(Pressure::of(1, 98, false), Pressure::Much);
        assert_eq!(Pressure::of(1, 100, false), Pressure::Some);
        assert_eq!(Pressure::of(0, 100, true), Pressure::Some);
        assert_eq!(Pressure::of(0, 0, false), Pressure::None);
    }

    #[test]
    fn down_a_level_after_every_five_quiet_seconds() {
        let mut ladder = Ladder::new();
        looks(&mut ladder, 0, 1, Pressure::Much);
        assert_eq!(ladder.level(), 10);
        let levels = looks(&mut ladder, 1, 60, Pressure::None);
        let at = |level| levels.iter().position(|&at| at == level).unwrap();
        assert_eq!([at(9), at(8), at(7), at(0)], [50, 100, 150, 500]);
    }

    #[test]
    fn who_comes_back_up_at_once_waits_twice_as_long_the_next_time() {
        let (mut ladder, mut now_s, mut stays) = (Ladder::new(), 0, Vec::new());
        looks(&mut ladder, 0, 1, Pressure::Some);
        for _ in 0..9 {
            let began_s = now_s;
            while ladder.level() == 2 {
                ladder.look(now_s * S, Pressure::None);
                now_s += 1;
            }
            stays.push(now_s - began_s - 1);
            ladder.look(now_s * S, Pressure::Some);
        }
        assert_eq!(stays, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
        looks(&mut ladder, now_s, 2000, Pressure::None);
        assert_eq!((ladder.level(), ladder.patience_ns), (0, PATIENCE_NS[0]), "forgotten after a long quiet time");
    }

    #[test]
    fn time_that_is_set_back_stops_nothing() {
        let mut ladder = Ladder::new();
        looks(&mut ladder, 1000, 1, Pressure::Some);
        looks(&mut ladder, 1001, 1, Pressure::None);
        looks(&mut ladder, 0, 11, Pressure::None);
        assert_eq!(ladder.level(), 0);
    }

    #[test]
    fn every_level_has_what_the_page_says() {
        let of = |level| {
            let LevelSettings { detail, population } = LevelSettings::of(level, 1);
            (detail.tcp_analysis, detail.small_flows, population)
        };
        assert_eq!(
            [0, 1, 2, 3, 4].map(of),
            [(true, true, 1), (false, true, 1), (false, false, 1), (false, false, 2), (false, false, 4)]
        );
        assert_eq!(of(TOP), (false, false, 1024));
        assert_eq!(
            LevelSettings::of(0, 7),
            LevelSettings { detail: Detail { tcp_analysis: false, small_flows: true }, population: 7 }
        );
        assert_eq!(LevelSettings::of(4, 3).population, 4);
    }
}
