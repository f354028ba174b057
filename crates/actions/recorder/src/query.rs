//! What is searched, and which flows can have it.

use crate::flow_key::FlowKey;
use crate::index::community_ids;
use ahash::AHashMap;
use weir_flow::{FlowRecord, FlowTuple};
use weir_packet::{Network, address_octets};
use weir_query::{Expression, protocol_number};
use weir_text::FlowText;

/// Fields that a flow has as soon as its addresses, ports and protocol are known.
const OF_FLOW: [&str; 9] =
    ["host", "src_ip", "dst_ip", "port", "src_port", "dst_port", "protocol", "ip_version", "community_id"];
/// Those of them that do not depend on which side is the initiator.
const OF_BOTH_SIDES: [&str; 5] = ["host", "port", "protocol", "ip_version", "community_id"];
/// Those that fragments have, too.
const OF_FRAGMENTS: [&str; 5] = ["host", "src_ip", "dst_ip", "protocol", "ip_version"];
/// Protocols of IP with ports whose Community ID has them.
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// Flows whose verdict is stored.
const MAX_VERDICTS: usize = 1 << 20;

/// What is searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub(crate) wanted: Wanted,
    /// Time of the first and of the last packet that may be found, ns since 1970 UTC.
    pub(crate) time_ns: [u64; 2],
    /// Addresses, ports and protocol do not suffice.
    needs_records: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All frames, also those without a flow.
    Everything,
    /// The flow with this Community ID.
    Flow([u8; 30]),
    /// Flows with records that match.
    Records(Expression),
}

/// Why a text names no flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a flow; write a Community ID (1: and 28 characters), or addresses and ports as in \
     192.0.2.1:40000-192.0.2.2:443/tcp, [2001:db8::1]:40000-[2001:db8::2]:53/udp or 192.0.2.1-192.0.2.2/icmp"
)]
pub struct InvalidFlow;

/// What the key of a flow tells about its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All match.
    All,
    /// None matches.
    None,
    /// The record has to be known.
    Unknown,
}

impl Query {
    /// Searches all frames.
    pub fn everything() -> Self {
        Self { wanted: Wanted::Everything, time_ns: [0, u64::MAX], needs_records: false }
    }

    /// Searches the flows whose records match.
    pub fn records(expression: Expression) -> Self {
        let needs_records = !expression.compares_only(&OF_BOTH_SIDES);
        Self { wanted: Wanted::Records(expression), needs_records, ..Self::everything() }
    }

    /// Searches a flow by its Community ID (version 1, seed 0), or by addresses, ports and protocol, as [`FlowText`]
    /// reads them: TCP without a protocol; all flows between two addresses of a protocol without ports.
    ///
    /// # Errors
    /// The text is neither.
    pub fn flow(text: &str) -> Result<Self, InvalidFlow> {
        let text = text.trim();
        let wanted = match text.strip_prefix("1:") {
            Some(digest) if digest.len() == 28 => {
                let is_base64 = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'/');
                let valid = digest.ends_with('=') && digest[..27].bytes().all(is_base64);
                text.as_bytes().try_into().ok().filter(|_| valid).map(Wanted::Flow)
            }
            _ => of_ends(text),
        };
        wanted.map(|wanted| Self { wanted, ..Self::everything() }).ok_or(InvalidFlow)
    }

    /// Finds packets of this time only: from the first to the last, ns since 1970 UTC.
    #[must_use]
    pub fn within(self, from_ns: u64, to_ns: u64) -> Self {
        Self { time_ns: [from_ns, to_ns], ..self }
    }

    /// Whether addresses, ports and protocol do not suffice, so that the packets have to be metered.
    pub fn needs_records(&self) -> bool {
        self.needs_records
    }
}

/// What a flow by addresses selects: of a protocol with ports that flow, of another one all between both addresses.
fn of_ends(text: &str) -> Option<Wanted> {
    let FlowText { ends: [source, destination], protocol } = FlowText::parse(text)?;
    let name = protocol.as_deref().unwrap_or("tcp");
    let protocol = protocol_number(name).or_else(|| name.parse().ok())?;
    let (Some(source_port), Some(destination_port)) = (source.1, destination.1) else {
        let (one, other) = (source.0, destination.0);
        // `host` is either side: of a host with itself, both have to be that host, whichever is the initiator.
        let expression = match one == other {
            true => format!("proto {protocol} and src_ip = {one} and dst_ip = {one}"),
            false => format!("proto {protocol} and host {one} and host {other}"),
        };
        let has_ports = [TCP, UDP, SCTP].contains(&protocol);
        return (!has_ports).then(|| Expression::new(&expression).ok().map(Wanted::Records)).flatten();
    };
    if ![TCP, UDP, SCTP].contains(&protocol) {
        return None;
    }
    let network = if source.0.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 };
    let ends = [(address_octets(source.0), source_port), (address_octets(destination.0), destination_port)];
    let key = FlowKey { tuple: FlowTuple::new(ends, protocol, network), is_of_fragments: false };
    community_ids(&key, &mut FlowRecord::default()).next().map(Wanted::Flow)
}

/// Decides about flows, and remembers it.
pub(crate) struct Classifier {
    query: Query,
    verdicts: AHashMap<FlowKey, Verdict>,
    /// A record with the key and nothing else.
    record: FlowRecord,
}

impl Classifier {
    pub fn new(query: &Query) -> Self {
        Self { query: query.clone(), verdicts: AHashMap::new(), record: FlowRecord::default() }
    }

    pub fn verdict(&mut self, key: &FlowKey) -> Verdict {
        if let Some(&verdict) = self.verdicts.get(key) {
            return verdict;
        }
        let verdict = self.decide(key);
        if self.verdicts.len() == MAX_VERDICTS {
            self.verdicts.clear();
        }
        self.verdicts.insert(*key, verdict);
        verdict
    }

    fn decide(&mut self, key: &FlowKey) -> Verdict {
        let record = &mut self.record;
        match &self.query.wanted {
            Wanted::Everything => Verdict::All,
            Wanted::Flow(_) if key.is_of_fragments => Verdict::Unknown,
            Wanted::Flow(id) if community_ids(key, record).any(|known| known == *id) => Verdict::All,
            Wanted::Flow(_) => Verdict::None,
            Wanted::Records(expression) => {
                let known: &[&str] = if key.is_of_fragments { &OF_FRAGMENTS } else { &OF_FLOW };
                // Either side may be the initiator.
                let [one, other] = [0, 1].map(|from| {
                    key.write_to(record, from);
                    expression.matches_by(known, record)
                });
                match (one, other) {
                    (Some(true), Some(true)) => Verdict::All,
                    (Some(false), Some(false)) => Verdict::None,
                    _ => Verdict::Unknown,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_named_by_its_community_id_or_its_addresses_and_ports() {
        let by_id = Query::flow("1:LQU9qZlK+B5F3KDmev6m5PMibrg=").unwrap();
        for tuple in [
            "128.232.110.120:34855-66.35.250.204:80/tcp",
            "66.35.250.204:80-128.232.110.120:34855",
            "66.35.250.204:80-128.232.110.120:34855/TCP",
            "128.232.110.120:34855 → 66.35.250.204:80",
            "tcp 128.232.110.120:34855 -> 66.35.250.204:80",
            "128.232.110.120:34855 ← 66.35.250.204:80/6",
            " 1:LQU9qZlK+B5F3KDmev6m5PMibrg= ",
        ] {
            assert_eq!(Query::flow(tuple).unwrap(), by_id, "{tuple}");
        }
        let of_ipv6 = Query::flow("[2001:470:e5bf:dead:4957:2174:e82c:4887]:63943-[2607:f8b0:400c:c03::1a]:25/tcp");
        assert_eq!(of_ipv6.unwrap(), Query::flow("1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=").unwrap());
        for text in
            ["", "1:", "1:LQU9qZlK+B5F3KDmev6m5PMibrg", "1:LQU9qZlK+B5F3KDmev6m5PMibr==", "x", "1.2.3.4-5.6.7.8"]
        {
            assert_eq!(Query::flow(text), Err(InvalidFlow), "{text}");
        }
        assert_eq!(Query::flow("1.2.3.4:5-[::1]:6"), Err(InvalidFlow));
        assert_eq!(Query::flow("1.2.3.4:5-1.2.3.5:6/icmp"), Err(InvalidFlow));
        assert_eq!(Query::flow("1.2.3.4-1.2.3.5/tcp"), Err(InvalidFlow));
        let of_icmp = Query::records(Expression::new("proto 1 and host 1.2.3.4 and host 1.2.3.5").unwrap());
        assert_eq!(Query::flow("1.2.3.4 → 1.2.3.5/icmp"), Ok(of_icmp));
        assert!(!Query::flow("1.2.3.4-1.2.3.4/icmp").unwrap().needs_records());
        let unbracketed = "2001:470:e5bf:dead:4957:2174:e82c:4887:63943 → 2607:f8b0:400c:c03::1a:25";
        assert_eq!(Query::flow(unbracketed).unwrap(), Query::flow("1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=").unwrap());
    }
}
