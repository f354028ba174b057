//! Connections that never opened, of one source with many targets (a scan) or of one target with many
//! sources (a flood, or a server that does not run).
//!
//! In: all connections. Out: [`FailureGroup`]s, the largest first; their connections are marked, so
//! that the list of failures does not have each.

use crate::connection::Connection;
use crate::counts::nonzero;
use crate::failure::Failure;
use crate::groups::GroupKey;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use weir_text::units;

/// Fewest different targets of a source, or sources of a target, that are a group.
pub(crate) const FEWEST: u64 = 20;
/// Connections that are named of each group.
const EXAMPLES: usize = 3;

/// What the connections of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommonSide {
    /// The address of the client.
    Source(IpAddr),
    /// Address and port of the server.
    Target(SocketAddr),
}

/// Connections that never opened, and have one side in common.
#[derive(Clone, Debug)]
pub struct FailureGroup {
    /// The common side.
    pub common: CommonSide,
    /// The connections.
    pub connections: u64,
    /// Connections by number of [`Failure`].
    pub failures: [u64; Failure::COUNT],
    /// Different targets: address and port. Of a flood: different addresses of sources.
    pub others: u64,
    /// Different addresses among them.
    pub hosts: u64,
    /// Different ports among them; 0 of a flood.
    pub ports: u64,
    /// The address of the only host, or the network that all are in.
    pub network: Option<GroupKey>,
    /// The only port.
    pub port: Option<u16>,
    /// Connections of the common side that opened.
    pub opened: u64,
    /// Numbers of the first connections.
    pub examples: Vec<u32>,
}

impl FailureGroup {
    /// The other side: `1200 ports of 10.2.0.5`, `port 22 of 254 hosts of 10.2.0.0/24`, `300 hosts`.
    pub fn others_text(&self) -> String {
        let hosts = match (self.hosts, &self.network) {
            (1, Some(host)) => host.to_string(),
            (n, Some(network)) => format!("{n} hosts of {network}"),
            (n, None) => units::count(n, "host"),
        };
        match (self.common, self.port) {
            (CommonSide::Target(_), _) => hosts,
            (CommonSide::Source(_), Some(port)) => format!("port {port} of {hosts}"),
            (CommonSide::Source(_), None) => format!("{} of {hosts}", units::count(self.ports, "port")),
        }
    }

    /// The common side.
    pub fn common_text(&self) -> String {
        match self.common {
            CommonSide::Source(address) => address.to_string(),
            CommonSide::Target(target) => target.to_string(),
        }
    }

    /// How the connections failed: `1190 refused, 10 no answer`.
    pub fn failures_text(&self) -> String {
        let mut counts: Vec<_> = Failure::all().map(Failure::name).zip(self.failures).collect();
        counts.sort_by_key(|&(_, count)| Reverse(count));
        nonzero(counts.into_iter())
    }

    /// The first connections: `#3, #4, #7`.
    pub fn examples_text(&self) -> String {
        self.examples.iter().map(|number| format!("#{number}")).collect::<Vec<_>>().join(", ")
    }

    /// The group as a JSON object.
    pub fn json(&self) -> Value {
        let common = match self.common {
            CommonSide::Source(_) => "source",
            CommonSide::Target(_) => "target",
        };
        let mut object = json!({
            common: self.common_text(),
            "connections": self.connections,
            "others": self.others,
            "hosts": self.hosts,
            "ports": self.ports,
            "port": self.port,
            "network": self.network.as_ref().map(ToString::to_string),
            "opened": self.opened,
            "examples": self.examples,
        });
        for (failure, count) in Failure::all().zip(self.failures).filter(|&(_, count)| count > 0) {
            object[failure.key()] = count.into();
        }
        object
    }

    /// A group of connections, in the order of their endpoints.
    fn new(common: CommonSide, members: &[usize], connections: &[Connection]) -> Self {
        let members = || members.iter().map(|&index| &connections[index]);
        let is_scan = matches!(common, CommonSide::Source(_));
        let mut failures = [0; Failure::COUNT];
        members().filter_map(Connection::failure).for_each(|failure| failures[failure as usize] += 1);
        let mut hosts: Vec<IpAddr> =
            members().map(|of| if is_scan { of.server.ip() } else { of.client.ip() }).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let ports: BTreeSet<u16> = members().map(|of| of.server.port()).filter(|_| is_scan).collect();
        let mut targets = 0;
        let mut last = None;
        members().for_each(|of| targets += u64::from(last.replace(of.server) != Some(of.server)));
        let mut networks = hosts.iter().map(|&host| GroupKey::network(host));
        let first = networks.next();
        let network = match hosts[..] {
            [host] => Some(GroupKey::host(host)),
            _ => first.filter(|first| networks.all(|network| network == *first)),
        };
        let mut examples: Vec<u32> = members().map(|of| of.number).collect();
        examples.sort_unstable();
        examples.truncate(EXAMPLES);
        Self {
            common,
            connections: members().count() as u64,
            failures,
            others: if is_scan { targets } else { hosts.len() as u64 },
            hosts: hosts.len() as u64,
            ports: ports.len() as u64,
            network,
            port: ports.first().copied().filter(|_| ports.len() == 1),
            opened: 0,
            examples,
        }
    }
}

/// Finds the groups of connections, and marks these connections.
pub(crate) fn group_failures(connections: &mut [Connection]) -> Vec<FailureGroup> {
    let mut groups = Vec::new();
    let unopened = |connection: &Connection| {
        !connection.is_grouped && connection.failure().is_some_and(Failure::is_before_opening)
    };
    let of_sources = |of: &Connection| (CommonSide::Source(of.client.ip()), of.server, of.client);
    // Of a flood each address of a source counts once.
    let of_targets = |of: &Connection| (CommonSide::Target(of.server), SocketAddr::new(of.client.ip(), 0), of.client);
    for key in [&of_sources as &dyn Fn(&Connection) -> (CommonSide, SocketAddr, SocketAddr), &of_targets] {
        let mut members: Vec<usize> = (0..connections.len()).filter(|&index| unopened(&connections[index])).collect();
        members.sort_unstable_by_key(|&index| {
            let (common, other, client) = key(&connections[index]);
            let common = match common {
                CommonSide::Source(address) => SocketAddr::new(address, 0),
                CommonSide::Target(target) => target,
            };
            (common, other, client, connections[index].number)
        });
        let common = |index: usize| key(&connections[index]).0;
        let found = members.chunk_by(|&one, &other| common(one) == common(other)).filter(|members| {
            let mut others: Vec<_> = members.iter().map(|&index| key(&connections[index]).1).collect();
            others.dedup();
            others.len() as u64 >= FEWEST
        });
        let found: Vec<Vec<usize>> = found.map(<[usize]>::to_vec).collect();
        for members in found {
            groups.push(FailureGroup::new(key(&connections[members[0]]).0, &members, connections));
            members.into_iter().for_each(|index| connections[index].is_grouped = true);
        }
    }
    count_opened(&mut groups, connections);
    groups.sort_by_key(|group| (Reverse(group.connections), group.examples[0]));
    groups
}

/// Counts the connections of the common sides that opened.
fn count_opened(groups: &mut [FailureGroup], connections: &[Connection]) {
    let mut opened: HashMap<CommonSide, u64, ahash::RandomState> =
        groups.iter().map(|group| (group.common, 0)).collect();
    if opened.is_empty() {
        return;
    }
    let is_open = |of: &&Connection| !of.failure().is_some_and(Failure::is_before_opening);
    for connection in connections.iter().filter(is_open) {
        for common in [CommonSide::Source(connection.client.ip()), CommonSide::Target(connection.server)] {
            if let Some(count) = opened.get_mut(&common) {
                *count += 1;
            }
        }
    }
    groups.iter_mut().for_each(|group| group.opened = opened[&group.common]);
}
