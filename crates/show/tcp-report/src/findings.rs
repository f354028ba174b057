//! What is unusual in a capture, in sentences.
//!
//! In: connections, their sums and groups of failures. Out: at most [`MAX_FINDINGS`] [`Finding`]s, in the order of [`FindingKind`]. Each
//! names the figures that it was made of. Thresholds: `docs/tcp.md`, section 9.

use crate::connection::Connection;
use crate::counts::nonzero;
use crate::failure::Failure;
use crate::failure_groups::{CommonSide, FailureGroup};
use crate::groups::{Group, GroupBy, for_each_group};
use crate::percent::percent;
use crate::totals::Totals;
use serde_json::{Map, Value, json};
use weir_tcp::SegmentClass;
use weir_text::units;

/// Findings of a report, at most: one of each kind, and one more.
pub const MAX_FINDINGS: usize = 12;
/// Servers, clients or groups that are named of each kind, at most.
const NAMED: usize = 3;

/// Least share of a figure in percent, and least count.
struct Threshold {
    percent: u64,
    least: u64,
}

impl Threshold {
    /// Whether a part of a whole reaches it.
    fn is_reached(&self, part: u64, whole: u64) -> bool {
        part >= self.least && u128::from(part) * 100 >= u128::from(whole) * u128::from(self.percent) && part > 0
    }
}

const DUPLICATES: Threshold = Threshold { percent: 5, least: 1 };
const MISSING: Threshold = Threshold { percent: 1, least: 1 };
const ONE_WAY: Threshold = Threshold { percent: 10, least: 1 };
const UNOPENED: Threshold = Threshold { percent: 20, least: 3 };
const RESET: Threshold = Threshold { percent: 20, least: 3 };
const LOST: Threshold = Threshold { percent: 1, least: 10 };
const ZERO_WINDOWS: u64 = 5;
/// Fewest answers of a slow server, and handshakes of a long path.
const FEWEST_TIMES: u64 = 3;
const SLOW_NS: u64 = 200_000_000;
const LONG_PATH_NS: u64 = 50_000_000;

/// What a finding is about. The first ones weigh most: they limit the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The capture has packets twice.
    Duplicates,
    /// Sequence numbers skip payload.
    Missing,
    /// The capture lacks one direction of connections.
    OneWay,
    /// Connections to a server do not open.
    Unopened,
    /// A server resets connections.
    Reset,
    /// A server answers slowly.
    SlowServer,
    /// Segments of a host were lost before the capture point.
    LostBefore,
    /// Segments to a host were lost behind the capture point.
    LostBehind,
    /// A host closes its window.
    ZeroWindows,
    /// A source tries many targets, or a target is tried by many sources.
    Scan,
    /// The path to a host takes long.
    LongPath,
}

impl FindingKind {
    /// The name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Duplicates => "duplicates",
            Self::Missing => "missing",
            Self::OneWay => "one_way",
            Self::Unopened => "unopened",
            Self::Reset => "reset_by_server",
            Self::SlowServer => "slow_server",
            Self::LostBefore => "lost_before",
            Self::LostBehind => "lost_behind",
            Self::ZeroWindows => "zero_windows",
            Self::Scan => "scan",
            Self::LongPath => "long_path",
        }
    }
}

/// What is unusual.
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// A sentence without a full stop.
    pub text: String,
    /// Options that show more of the kind.
    pub advice: Option<&'static str>,
    /// The figures of the sentence by name.
    figures: Map<String, Value>,
    /// Among those of a kind, larger ones come first.
    weight: u64,
}

impl Finding {
    fn new(kind: FindingKind, weight: u64, text: String, figures: Value) -> Self {
        let figures = if let Value::Object(figures) = figures { figures } else { Map::new() };
        Self { kind, text, advice: None, figures, weight }
    }

    /// A figure that is a text.
    pub(crate) fn figure(&self, name: &str) -> Option<&str> {
        self.figures.get(name)?.as_str()
    }

    /// The finding as a JSON object.
    pub fn json(&self) -> Value {
        let mut object = Map::from_iter([("kind".into(), self.kind.key().into())]);
        object.extend(self.figures.clone());
        object.insert("text".into(), self.text.clone().into());
        object.into()
    }
}

/// The findings of one kind with the largest weights, and how many there are.
struct Largest {
    findings: Vec<Finding>,
    all: usize,
    /// What they are about, and the option that lists the others.
    of: &'static str,
    advice: &'static str,
}

impl Largest {
    fn new(of: &'static str, advice: &'static str) -> Self {
        Self { findings: Vec::new(), all: 0, of, advice }
    }

    fn add(&mut self, finding: Finding) {
        let at = self.findings.partition_point(|other| other.weight >= finding.weight);
        self.all += 1;
        if at < NAMED {
            self.findings.insert(at, finding);
            self.findings.truncate(NAMED);
        }
    }

    /// The first ones; the last one of them says how many others there are.
    fn first(mut self, named: usize) -> Vec<Finding> {
        self.findings.truncate(named);
        let others = self.all - self.findings.len();
        if let (Some(last), 1..) = (self.findings.last_mut(), others) {
            last.text += &format!("; and {others} more {}{}", self.of, if others == 1 { "" } else { "s" });
            last.advice = Some(self.advice);
            last.figures.insert("others".into(), others.into());
        }
        self.findings
    }
}

/// What is unusual, in the order of weight: at most [`MAX_FINDINGS`].
pub(crate) fn find(connections: &[Connection], totals: &Totals, scans: &[FailureGroup]) -> Vec<Finding> {
    let mut findings = capture_findings(totals);
    let mut kinds = group_findings(connections);
    let mut largest = Largest::new("scan or flood", "--top 0");
    scans.iter().for_each(|group| largest.add(scan(group)));
    kinds.push(largest);
    // The first one of each kind, then the second ones.
    let mut named = vec![0; kinds.len()];
    let turns = (0..NAMED).flat_map(|nth| (0..kinds.len()).map(move |kind| (nth, kind)));
    let found = turns.filter(|&(nth, kind)| nth < kinds[kind].findings.len()).map(|(_, kind)| kind);
    found.take(MAX_FINDINGS - findings.len()).for_each(|kind| named[kind] += 1);
    findings.extend(kinds.into_iter().zip(named).flat_map(|(kind, named)| kind.first(named)));
    findings.sort_by_key(|finding| finding.kind);
    findings
}

/// What limits the capture.
fn capture_findings(totals: &Totals) -> Vec<Finding> {
    let copies = [SegmentClass::Duplicate, SegmentClass::RoutedDuplicate].map(|class| totals.count(class).segments);
    let (copies, packets) = (copies.iter().sum::<u64>(), totals.packets);
    let [unique, missing] = [totals.sum(|side| side.unique_bytes), totals.sum(|side| side.missing_bytes)];
    let mut findings = Vec::new();
    if DUPLICATES.is_reached(copies, packets) {
        let text = match copies * 2 == packets {
            true => format!("every packet is in the capture twice ({copies} of {packets} are duplicates)"),
            false => format!(
                "{} of the packets are duplicates that the capture made ({copies} of {packets})",
                percent(copies, packets)
            ),
        };
        let figures = json!({"duplicates": copies, "packets": packets});
        findings.push(Finding::new(FindingKind::Duplicates, copies, text, figures));
    }
    let payload = unique.saturating_add(missing);
    if MISSING.is_reached(missing, payload) {
        let impossible = totals.impossible_bytes;
        let what = match impossible {
            0 => "not captured, or not real".into(),
            n if n == missing => "not real, as their time is too short for them on any link".into(),
            n => format!(
                "not captured, or not real, as {} of them, for which the time is too short on any link",
                units::quantity(n, "B")
            ),
        };
        let text = format!(
            "sequence numbers skip {} of payload between captured octets ({}), in {}: {what}",
            units::quantity(missing, "B"),
            percent(missing, payload),
            units::count(totals.with_missing, "connection")
        );
        let figures = json!({"missing_bytes": missing, "impossible_bytes": impossible, "unique_bytes": unique,
            "connections": totals.with_missing});
        findings.push(Finding::new(FindingKind::Missing, missing, text, figures));
    }
    if ONE_WAY.is_reached(totals.one_way, totals.connections) {
        let (one_way, connections) = (totals.one_way, totals.connections);
        let (all, verb) = (units::count(connections, "connection"), if one_way == 1 { "is" } else { "are" });
        let text = format!("{one_way} of {all} {verb} captured in one direction only");
        let figures = json!({"one_way": one_way, "connections": connections});
        findings.push(Finding::new(FindingKind::OneWay, one_way, text, figures));
    }
    findings
}

/// What is unusual of servers (address and port) and of clients.
fn group_findings(connections: &[Connection]) -> Vec<Largest> {
    type Find = fn(&Group, usize) -> Option<Finding>;
    const OF_SERVERS: [Find; 3] = [unopened, resets, slow_server];
    const OF_BOTH: [Find; 4] = [lost_before, lost_behind, closed_windows, long_path];
    let mut servers = OF_SERVERS.map(|_| Largest::new("server", "--by server"));
    let mut both = OF_BOTH.map(|_| Largest::new("host", "--by server, --by client"));
    let enter = |finds: &[Find], kinds: &mut [Largest], group: &Group, side| {
        for (find, kind) in finds.iter().zip(kinds) {
            find(group, side).into_iter().for_each(|finding| kind.add(finding));
        }
    };
    for_each_group(connections, GroupBy::Client, None, |group| enter(&OF_BOTH, &mut both, group, 0));
    for_each_group(connections, GroupBy::Server, None, |group| {
        enter(&OF_BOTH, &mut both, group, 1);
        enter(&OF_SERVERS, &mut servers, group, 1);
    });
    servers.into_iter().chain(both).collect()
}

/// Connections to a server that never opened, without those of scans and floods.
fn unopened(group: &Group, _: usize) -> Option<Finding> {
    let (unopened, all) = (group.unopened() - group.grouped, group.connections - group.grouped);
    UNOPENED.is_reached(unopened, all).then(|| {
        let reasons = Failure::all().filter(|failure| failure.is_before_opening());
        let reasons = nonzero(reasons.map(|failure| (failure.name(), group.failures[failure as usize])));
        let reasons = if group.grouped == 0 { format!(": {reasons}") } else { String::new() };
        let text = format!("{}: {unopened} of {} did not open{reasons}", group.key, units::count(all, "connection"));
        let figures = json!({"server": group.key.to_string(), "unopened": unopened, "connections": all});
        Finding::new(FindingKind::Unopened, unopened, text, figures)
    })
}

fn resets(group: &Group, _: usize) -> Option<Finding> {
    let (resets, all) = (group.failures[Failure::ResetByServer as usize], group.connections - group.grouped);
    RESET.is_reached(resets, all).then(|| {
        let text = format!("{} reset {resets} of {}", group.key, units::count(all, "connection"));
        let figures = json!({"server": group.key.to_string(), "reset_by_server": resets, "connections": all});
        Finding::new(FindingKind::Reset, resets, text, figures)
    })
}

fn slow_server(group: &Group, _: usize) -> Option<Finding> {
    let server_ns = group.server_median_ns?;
    let median_ns = group.response_median_ns?;
    (group.answers >= FEWEST_TIMES && server_ns >= SLOW_NS).then(|| {
        let path = group.handshake_median_ns[1]
            .map_or(String::new(), |ns| format!("; a round trip to it takes {}", units::span(ns)));
        let text = format!(
            "{} answers slowly: median {} ({} in {}){path}",
            group.key,
            units::span(median_ns),
            units::count(group.answers, "answer"),
            units::count(group.answered, "connection")
        );
        let figures = json!({
            "server": group.key.to_string(),
            "response_median_ns": median_ns,
            "server_median_ns": server_ns,
            "answers": group.answers,
            "connections": group.answered,
            "path_median_ns": group.handshake_median_ns[1],
        });
        Finding::new(FindingKind::SlowServer, server_ns, text, figures)
    })
}

/// What a host is in its connections: 0 is the client, 1 the server.
fn role(side: usize) -> &'static str {
    ["client", "server"][side]
}

fn lost_before(group: &Group, side: usize) -> Option<Finding> {
    let (lost, segments) = (group.lost_before[side], group.segments[side]);
    LOST.is_reached(lost, segments).then(|| {
        let text = format!(
            "{} from {} were lost before the capture point, {} of the {segments} captured ones",
            units::count(lost, "segment"),
            group.key,
            percent(lost, segments)
        );
        let figures = json!({"host": group.key.to_string(), "role": role(side), "lost": lost, "segments": segments});
        Finding::new(FindingKind::LostBefore, lost, text, figures)
    })
}

fn lost_behind(group: &Group, side: usize) -> Option<Finding> {
    let (lost, segments) = (group.lost_behind[1 - side], group.segments[1 - side]);
    LOST.is_reached(lost, segments).then(|| {
        let text = format!(
            "{lost} of {} to {} were lost behind the capture point, or their acknowledgments were ({})",
            units::count(segments, "segment"),
            group.key,
            percent(lost, segments)
        );
        let figures = json!({"host": group.key.to_string(), "role": role(side), "lost": lost, "segments": segments});
        Finding::new(FindingKind::LostBehind, lost, text, figures)
    })
}

fn closed_windows(group: &Group, side: usize) -> Option<Finding> {
    let closed = group.zero_windows[side];
    (closed >= ZERO_WINDOWS).then(|| {
        let (host, connections) = (group.key.to_string(), group.connections);
        let of = units::count(connections, "connection");
        let times = units::count(closed, "time");
        let text = format!("{host} closed its window {times} ({of}): the application there reads too slowly");
        let figures = json!({"host": host, "role": role(side), "zero_windows": closed, "connections": connections});
        Finding::new(FindingKind::ZeroWindows, closed, text, figures)
    })
}

fn long_path(group: &Group, side: usize) -> Option<Finding> {
    let (median_ns, handshakes) = (group.handshake_median_ns[side]?, group.handshakes[side]);
    (handshakes >= FEWEST_TIMES && median_ns >= LONG_PATH_NS).then(|| {
        let text = format!(
            "a round trip between the capture point and {} takes {} (median of {})",
            group.key,
            units::span(median_ns),
            units::count(handshakes, "handshake")
        );
        let figures = json!({
            "host": group.key.to_string(),
            "role": role(side),
            "path_median_ns": median_ns,
            "handshakes": handshakes,
        });
        Finding::new(FindingKind::LongPath, median_ns, text, figures)
    })
}

fn scan(group: &FailureGroup) -> Finding {
    let (common, others, failures) = (group.common_text(), group.others_text(), group.failures_text());
    let opened = if group.opened > 0 { format!("; {} opened", group.opened) } else { String::new() };
    let (connections, text) = (
        group.connections,
        match group.common {
            CommonSide::Source(_) => format!("{common} tried {others}: {failures}{opened}"),
            CommonSide::Target(_) => format!("{others} tried {common}: {failures}{opened}"),
        },
    );
    Finding::new(FindingKind::Scan, connections, text, group.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_needs_a_share_and_a_count() {
        for (part, whole, is_reached) in [(9, 10, false), (10, 1000, true), (10, 1001, false), (0, 0, false)] {
            assert_eq!(LOST.is_reached(part, whole), is_reached, "{part} of {whole}");
        }
        assert!(!ONE_WAY.is_reached(0, 0) && ONE_WAY.is_reached(u64::MAX, u64::MAX));
    }

    #[test]
    fn the_largest_are_named_and_the_others_counted() {
        for (named, expected) in [(3, &["9", "5", "3; and 1 more server"][..]), (1, &["9; and 3 more servers"])] {
            let mut largest = Largest::new("server", "--by server");
            for weight in [3, 9, 1, 5] {
                largest.add(Finding::new(FindingKind::Scan, weight, weight.to_string(), json!({})));
            }
            let texts: Vec<String> = largest.first(named).into_iter().map(|finding| finding.text).collect();
            assert_eq!(texts, expected);
        }
    }
}
