//! Compiled rules, and the decision about a flow.

use std::fmt;
use weir_flow::FlowRecord;
use weir_query::Expression;

/// The levels, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Where packets come from: interfaces, VLANs.
    Source,
    /// Addresses, and what is known of them.
    Network,
    /// The application, and what inspection has found.
    Application,
}

impl Level {
    /// All levels.
    pub const ALL: [Self; 3] = [Self::Source, Self::Network, Self::Application];

    /// The name of its table in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Network => "network",
            Self::Application => "application",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much of a packet is forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Slice {
    /// All of it.
    #[default]
    Whole,
    /// Up to the end of the IP headers.
    Network,
    /// Up to the end of the TCP or UDP header; of other protocols 8 octets behind the IP headers.
    Transport,
    /// At most this number of octets from the link layer on.
    Octets(u32),
}

/// What happens to the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    /// They are forwarded; else dropped.
    pub forward: bool,
    /// Only the first packets of the flow, of both directions together, are forwarded.
    pub shunt: Option<u32>,
    /// How much of each.
    pub slice: Slice,
    /// The first packets of the flow, of both directions together, are forwarded whole nevertheless.
    pub slice_after: u32,
    /// Bit `n` is set if they go to egress `n`.
    pub egresses: u32,
}

/// An action, and the rules that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The action.
    pub action: Action,
    /// Index in [`Rules::rules`] of the rule of each level; `None` if no rule of it matched.
    pub rules: [Option<u16>; 3],
}

/// What a rule sets. `None` leaves what the levels before have set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub forward: Option<bool>,
    pub shunt: Option<u32>,
    /// How much of each packet, behind the first ones.
    pub slice: Option<(Slice, u32)>,
    pub egresses: Option<u32>,
    pub record: Option<bool>,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its level.
    pub level: Level,
    /// Its name, or the condition.
    pub name: String,
    /// Line of the file, from 1.
    pub line: usize,
    /// The condition; `None` matches every flow.
    pub condition: Option<Expression>,
    /// The condition asks for what inspection finds.
    pub(crate) needs_inspection: bool,
    /// Whether it asks for what enrichment finds.
    pub(crate) needs_places: bool,
    pub(crate) settings: Settings,
}

impl Rule {
    /// The text of its condition.
    pub(crate) fn text(&self) -> Option<&str> {
        self.condition.as_ref().map(Expression::text)
    }

    fn matches(&self, flow: &FlowRecord) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.matches(flow))
    }
}

/// Outputs that packets go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Its name in the file.
    pub name: String,
    /// Its outputs, as the user wrote them, each with its line.
    pub outputs: Vec<(usize, String)>,
    /// How packets are divided among them, as the user wrote it, and its line.
    pub balance: Option<(usize, String)>,
    /// Line of the file, from 1.
    pub line: usize,
}

/// Limits of packets that wait for a decision, per pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Octets of memory.
    pub octets: u64,
    /// Time by the clock of the packets, ns.
    pub time_ns: u64,
}

impl Default for Hold {
    fn default() -> Self {
        Self { octets: 64 << 20, time_ns: 1_000_000_000 }
    }
}

/// A compiled rules file.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The rules of all levels, in the order of levels and of the file.
    pub rules: Vec<Rule>,
    /// The egresses, in the order of the file; the recorder is the last one.
    pub egresses: Vec<Egress>,
    /// Whether the last egress is the recorder.
    pub has_recorder: bool,
    /// Limits of packets that wait.
    pub hold: Hold,
    pub(crate) default: Settings,
}

/// The name of the egress that the table `recorder` is.
pub(crate) const RECORDER: &str = "recorder";

impl Rules {
    /// Decides about a flow from its record so far. `None`: the decision needs what inspection has
    /// not found yet. It is never `None` if inspection has ended.
    pub fn decide(&self, flow: &FlowRecord, inspection_ended: bool) -> Option<Decision> {
        let mut rules = [None; 3];
        let mut set = self.default;
        for level in Level::ALL {
            if level == Level::Application && !inspection_ended && self.needs_inspection() {
                return None;
            }
            let of_level = self.rules.iter().enumerate().filter(|(_, rule)| rule.level == level);
            let Some((index, rule)) = of_level.into_iter().find(|(_, rule)| rule.matches(flow)) else { continue };
            rules[level as usize] = Some(index as u16);
            let Settings { forward, shunt, slice, egresses, record } = rule.settings;
            if forward == Some(false) {
                set.forward = forward;
                break;
            }
            set = Settings {
                forward: forward.or(set.forward),
                shunt: shunt.or(set.shunt),
                slice: slice.or(set.slice),
                egresses: egresses.or(set.egresses),
                record: record.or(set.record),
            };
        }
        Some(Decision { action: self.action(&set), rules })
    }

    /// What happens to packets of no flow: frames that are not metered, and packets for which the
    /// flow cache had no place. The rules of no level match them.
    pub fn without_flow(&self) -> Decision {
        Decision { action: self.action(&self.default), rules: [None; 3] }
    }

    /// Whether a rule asks for what inspection finds.
    pub fn needs_inspection(&self) -> bool {
        self.rules.iter().any(|rule| rule.needs_inspection)
    }

    /// Whether a rule asks for what enrichment finds: networks, countries, tags, names of interfaces.
    pub fn needs_places(&self) -> bool {
        self.rules.iter().any(|rule| rule.needs_places)
    }

    /// Egresses to which no rule hands packets, and the default does not either.
    pub fn unused_egresses(&self) -> impl Iterator<Item = &Egress> {
        let all = || self.rules.iter().map(|rule| &rule.settings).chain([&self.default]);
        let is_recorder = |index: usize| self.has_recorder && index + 1 == self.egresses.len();
        let is_used = move |index: usize| match is_recorder(index) {
            // Without a word of the default, packets are recorded.
            true => self.default.record.is_none() || all().any(|set| set.record == Some(true)),
            false => {
                self.default.egresses.is_none()
                    || all().any(|set| set.egresses.is_some_and(|egresses| egresses & 1 << index > 0))
            }
        };
        self.egresses.iter().enumerate().filter(move |&(index, _)| !is_used(index)).map(|(_, egress)| egress)
    }

    fn action(&self, set: &Settings) -> Action {
        let recorder = if self.has_recorder { 1 << (self.egresses.len() - 1) } else { 0 };
        let all = ((1_u64 << self.egresses.len()) - 1) as u32 & !recorder;
        let recorded = if set.record.unwrap_or(true) { recorder } else { 0 };
        let (slice, slice_after) = set.slice.unwrap_or_default();
        Action {
            forward: set.forward.unwrap_or(true),
            shunt: set.shunt,
            slice,
            slice_after,
            egresses: set.egresses.unwrap_or(all) & !recorder | recorded,
        }
    }
}
