//! Connections that the findings are about, for the lists that show only the first ones of a ranking.
//!
//! In: findings, and the ranked connections that are not listed. Out: of each finding the connection that it is most about:
//! the slowest of a slow server, the one with most losses of a path that loses.

use crate::connection::Connection;
use crate::findings::{Finding, FindingKind};
use crate::ranking::SortOrder;
use crate::report::{CaptureReport, Part};
use std::cmp::Reverse;

/// What the connections of a finding are ranked by in a part; `None` if it is about the whole capture, names connections,
/// or is not about this part.
fn order(kind: FindingKind, part: Part) -> Option<&'static str> {
    match kind {
        FindingKind::Unopened | FindingKind::Reset if part != Part::Failed => None,
        FindingKind::SlowServer => Some("response"),
        FindingKind::LostBefore | FindingKind::LostBehind => Some("retransmissions"),
        FindingKind::ZeroWindows => Some("zero-window"),
        FindingKind::LongPath => Some("rtt"),
        FindingKind::Missing => Some("missing"),
        FindingKind::Unopened | FindingKind::Reset => Some("packets"),
        FindingKind::Duplicates | FindingKind::OneWay | FindingKind::Scan => None,
    }
}

/// Whether a finding is about a connection.
fn concerns(finding: &Finding, connection: &Connection) -> bool {
    match (finding.figure("server").or(finding.figure("host")), finding.figure("role")) {
        (Some(client), Some("client")) => connection.client.ip().to_string() == client,
        (Some(server), _) => connection.server.to_string() == server,
        (None, _) => true,
    }
}

impl CaptureReport {
    /// Of each finding the index of the first connection by what the finding is about, unless it is listed.
    pub(crate) fn named(&self, part: Part) -> Vec<usize> {
        let (listed, all) = (self.listed(part), self.part(part));
        let mut indices: Vec<usize> = Vec::new();
        for finding in &self.findings {
            let Some(order) = order(finding.kind, part).and_then(|name| SortOrder::named(name).ok()) else { continue };
            let candidates = all.clone().filter(|&index| concerns(finding, &self.connections[index]));
            let value = |index: usize| order.value(&self.connections[index]);
            let first = candidates.max_by_key(|&index| (value(index), Reverse(index)));
            indices.extend(first.filter(|&index| !listed.contains(&index) && value(index)[1] > 0));
        }
        indices.sort_unstable();
        indices.dedup();
        indices
    }
}
