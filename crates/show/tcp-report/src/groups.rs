//! Sums over the connections of a server, a client or a network.
//!
//! In: connections, and what they are grouped by. Out: [`Group`]s in the order of their keys, one
//! after the other, so that not all need memory. Definitions: `docs/tcp.md`, section 9.

use crate::connection::{Connection, payload_bytes};
use crate::failure::Failure;
use crate::percent::percentile;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use weir_tcp::{SegmentClass, TcpReport};

/// The name of the network of an address, if it has one.
pub type NetworkNames = Arc<dyn Fn(IpAddr) -> Option<Arc<str>> + Send + Sync>;

/// The names of an end of connections: of its host, and of its service; empty without one. The text report has them.
pub type EndNames = Arc<dyn Fn(IpAddr, Option<u16>) -> String + Send + Sync>;

/// Length of the prefixes of networks without a name: IPv4 and IPv6.
const PREFIX_BITS: [u8; 2] = [24, 64];

/// What connections are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Address and port of the server.
    Server,
    /// Address of the client.
    Client,
    /// Networks of client and server: those with a name, else /24 and /64. A connection between two networks is in both.
    Network,
}

impl GroupBy {
    /// The name on the command line, in JSON and in CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Network => "network",
        }
    }

    /// The groups of a connection, each with the address of the other side.
    fn keys(self, connection: &Connection, names: Option<&NetworkNames>) -> impl Iterator<Item = (GroupKey, IpAddr)> {
        let Connection { client, server, .. } = connection;
        let (first, second) = match self {
            Self::Server => ((GroupKey::endpoint(*server), client.ip()), None),
            Self::Client => ((GroupKey::host(client.ip()), server.ip()), None),
            Self::Network => {
                let [of_client, of_server] = [client, server].map(|end| GroupKey::named(end.ip(), names));
                let second = (of_client != of_server).then_some((of_server, client.ip()));
                ((of_client, server.ip()), second)
            }
        };
        [first].into_iter().chain(second)
    }
}

/// A server, a host or a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    address: IpAddr,
    /// 32 or 128: a host.
    bits: u8,
    port: Option<u16>,
    /// Of a network with a name, which is all that counts.
    name: Option<Arc<str>>,
}

impl GroupKey {
    fn endpoint(endpoint: SocketAddr) -> Self {
        Self { port: Some(endpoint.port()), ..Self::host(endpoint.ip()) }
    }

    /// The address of a host or of a server, and its port.
    pub(crate) fn end(&self) -> Option<(IpAddr, Option<u16>)> {
        (self.name.is_none() && self.bits == Self::host(self.address).bits).then_some((self.address, self.port))
    }

    /// A host.
    pub(crate) fn host(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 }, port: None, name: None }
    }

    /// The network of a host that has a name, else [`Self::network`].
    fn named(address: IpAddr, names: Option<&NetworkNames>) -> Self {
        let name = names.and_then(|names| names(address));
        match name {
            None => Self::network(address),
            name => Self { address: Ipv4Addr::UNSPECIFIED.into(), bits: 0, port: None, name },
        }
    }

    /// The network of a host.
    pub(crate) fn network(address: IpAddr) -> Self {
        let [of_ipv4, of_ipv6] = PREFIX_BITS;
        match address {
            IpAddr::V4(address) => {
                let network = Ipv4Addr::from_bits(address.to_bits() & u32::MAX << (32 - of_ipv4));
                Self { address: network.into(), bits: of_ipv4, port: None, name: None }
            }
            IpAddr::V6(address) => {
                let network = Ipv6Addr::from_bits(address.to_bits() & u128::MAX << (128 - of_ipv6));
                Self { address: network.into(), bits: of_ipv6, port: None, name: None }
            }
        }
    }
}

/// `192.0.2.1:80`, `192.0.2.1`, `192.0.2.0/24` or a name.
impl Display for GroupKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            return f.write_str(name);
        }
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None if self.bits == Self::host(self.address).bits => self.address.fmt(f),
            None => write!(f, "{}/{}", self.address, self.bits),
        }
    }
}

/// Sums over the connections of a key. In pairs the clients' value comes first.
#[derive(Clone, Debug)]
pub struct Group {
    /// What the connections have in common.
    pub key: GroupKey,
    /// Connections.
    pub connections: u64,
    /// Those that never opened and belong to a scan or a flood.
    pub grouped: u64,
    /// Different addresses of the other side.
    pub peers: u64,
    /// Connections by number of [`Failure`].
    pub failures: [u64; Failure::COUNT],
    /// Handshakes with a round-trip time on this side of the capture point.
    pub handshakes: [u64; 2],
    /// Median of these times, ns.
    pub handshake_median_ns: [Option<u64>; 2],
    /// Answers of servers.
    pub answers: u64,
    /// Connections with an answer of the server.
    pub answered: u64,
    /// Median over these connections: the mean response time of the server, ns.
    pub response_median_ns: Option<u64>,
    /// The same, each less the round-trip time between capture point and server.
    pub server_median_ns: Option<u64>,
    /// Longest response time of a server, ns.
    pub response_max_ns: Option<u64>,
    /// Payload octets, duplicates included.
    pub payload_bytes: [u64; 2],
    /// Segments with payload, SYN or FIN.
    pub segments: [u64; 2],
    /// Retransmitted segments.
    pub retransmitted: [u64; 2],
    /// Segments of this side that were lost before the capture point.
    pub lost_before: [u64; 2],
    /// Segments of this side that were retransmitted although the capture has the original: lost
    /// behind the capture point, or their acknowledgments were.
    pub lost_behind: [u64; 2],
    /// Segments that announce a window of 0.
    pub zero_windows: [u64; 2],
}

impl Group {
    fn new(key: GroupKey) -> Self {
        Self {
            key,
            connections: 0,
            grouped: 0,
            peers: 0,
            failures: [0; Failure::COUNT],
            handshakes: [0; 2],
            handshake_median_ns: [None; 2],
            answers: 0,
            answered: 0,
            response_median_ns: None,
            server_median_ns: None,
            response_max_ns: None,
            payload_bytes: [0; 2],
            segments: [0; 2],
            retransmitted: [0; 2],
            lost_before: [0; 2],
            lost_behind: [0; 2],
            zero_windows: [0; 2],
        }
    }

    /// Connections that failed.
    pub fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Connections that never opened.
    pub fn unopened(&self) -> u64 {
        Failure::all()
            .filter(|failure| failure.is_before_opening())
            .map(|failure| self.failures[failure as usize])
            .sum()
    }

    /// Segments lost on the client's side of the capture point, and on the server's side.
    pub fn lost(&self) -> [u64; 2] {
        [0, 1].map(|side| self.lost_before[side] + self.lost_behind[1 - side])
    }

    /// Share of retransmitted segments, 0 to 1.
    pub fn retransmitted_share(&self) -> f64 {
        self.retransmitted.iter().sum::<u64>() as f64 / self.segments.iter().sum::<u64>().max(1) as f64
    }

    fn add(&mut self, connection: &Connection, times: &mut Times) {
        self.connections += 1;
        self.grouped += u64::from(connection.is_grouped);
        if let Some(failure) = connection.failure() {
            self.failures[failure as usize] += 1;
        }
        let reports = connection.reports();
        for (side, report) in reports.iter().enumerate() {
            self.payload_bytes[side] += payload_bytes(report);
            self.segments[side] += report.sequenced_segments();
            self.retransmitted[side] += report.retransmitted_segments();
            self.lost_before[side] += report.count(SegmentClass::UnseenRetransmission).segments;
            self.lost_behind[side] += needed_retransmissions(report);
            self.zero_windows[side] += report.zero_windows;
            times.handshakes_ns[side].extend(report.handshake_rtt_ns);
        }
        let responses = &reports[1].responses;
        if let Some(mean_ns) = responses.sum_ns.checked_div(responses.count) {
            self.answers += responses.count;
            self.answered += 1;
            self.response_max_ns = self.response_max_ns.max(Some(responses.max_ns));
            times.responses_ns.push(mean_ns);
            times.servers_ns.push(mean_ns.saturating_sub(connection.rtt_ns(1).unwrap_or(0)));
        }
    }

    fn finish(&mut self, times: &mut Times) {
        self.handshakes = times.handshakes_ns.each_ref().map(|times| times.len() as u64);
        self.handshake_median_ns = times.handshakes_ns.each_mut().map(take_median);
        self.response_median_ns = take_median(&mut times.responses_ns);
        self.server_median_ns = take_median(&mut times.servers_ns);
    }
}

/// The times of the connections of a group, ns.
#[derive(Default)]
struct Times {
    handshakes_ns: [Vec<u64>; 2],
    responses_ns: Vec<u64>,
    /// Response times without the path.
    servers_ns: Vec<u64>,
}

/// The median of times, which are removed.
fn take_median(times: &mut Vec<u64>) -> Option<u64> {
    times.sort_unstable();
    let median = percentile(times, 50);
    times.clear();
    median
}

/// Retransmissions whose original is in the capture, without those that had been acknowledged.
fn needed_retransmissions(report: &TcpReport) -> u64 {
    report.count(SegmentClass::Retransmission).segments.saturating_sub(report.spurious_retransmissions)
}

/// Makes the groups of connections, in the order of their keys.
pub(crate) fn for_each_group(
    connections: &[Connection],
    by: GroupBy,
    names: Option<&NetworkNames>,
    mut each: impl FnMut(&Group),
) {
    let mut members: Vec<(GroupKey, IpAddr, u32)> = Vec::with_capacity(connections.len());
    for (index, connection) in (0..).zip(connections) {
        members.extend(by.keys(connection, names).map(|(key, peer)| (key, peer, index)));
    }
    members.sort_unstable();
    let mut times = Times::default();
    for members in members.chunk_by(|one, other| one.0 == other.0) {
        let mut group = Group::new(members[0].0.clone());
        let mut last_peer = None;
        for &(_, peer, index) in members {
            group.peers += u64::from(last_peer.replace(peer) != Some(peer));
            group.add(&connections[index as usize], &mut times);
        }
        group.finish(&mut times);
        each(&group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_addresses_with_ports_or_prefixes() {
        let key = |text: &str| GroupKey::network(text.parse().unwrap()).to_string();
        assert_eq!(key("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(key("2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
        assert_eq!(GroupKey::endpoint("[2001:db8::1]:80".parse().unwrap()).to_string(), "[2001:db8::1]:80");
        assert_eq!(GroupKey::host("192.0.2.77".parse().unwrap()).to_string(), "192.0.2.77");
        let names: NetworkNames = Arc::new(|address| address.is_ipv4().then(|| "office".into()));
        let named = ["192.0.2.77", "10.0.0.1", "2001:db8::1"]
            .map(|text| GroupKey::named(text.parse().unwrap(), Some(&names)).to_string());
        assert_eq!(named, ["office", "office", "2001:db8::/64"]);
    }

    #[test]
    fn the_side_of_a_loss_follows_from_its_direction() {
        let mut group = Group::new(GroupKey::host("192.0.2.1".parse().unwrap()));
        (group.lost_before, group.lost_behind) = ([1, 10], [100, 1000]);
        assert_eq!(group.lost(), [1001, 110]);
    }
}
