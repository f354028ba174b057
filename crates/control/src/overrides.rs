//! Overrides over HTTP: what an IDS says about single flows, and how it names them.

use crate::flows;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};
use weir_export::{community_id, protocol_name};
use weir_flow::{FlowRecord, FlowTuple};
use weir_packet::{Network, ip_address, ipv4_mapped};
use weir_probe::{Override, OverrideAction, Overrides};
use weir_query::protocol_number;

/// How long an override holds, s, unless a request names another time, and at most.
const DEFAULT_EXPIRY: u64 = 300;
const MAX_EXPIRY: u64 = 86_400;

/// A flow: by addresses, ports and protocol, or by its Community ID.
#[derive(Clone, Default, Deserialize, Serialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FlowName {
    /// Address of one end. Source and destination may be exchanged
    #[schema(value_type = Option<String>)]
    #[param(value_type = Option<String>, example = "192.0.2.1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    src_ip: Option<IpAddr>,
    /// Its port. ICMP: as in the records (docs/fields.md). Default: 0
    #[schema(maximum = 65535)]
    #[param(maximum = 65535, example = 40000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    /// Address of the other end
    #[schema(value_type = Option<String>)]
    #[param(value_type = Option<String>, example = "198.51.100.2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_ip: Option<IpAddr>,
    /// Its port
    #[schema(maximum = 65535)]
    #[param(maximum = 65535, example = 443)]
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_port: Option<u16>,
    /// IP protocol: a name as tcp, or a number as 132
    #[param(example = "tcp")]
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    /// Community ID with seed 0, in place of all others
    #[param(example = "1:LQU9qZlK+B5F3KDmev6m5PMibrg=")]
    #[serde(skip_serializing_if = "Option::is_none")]
    community_id: Option<String>,
}

/// What to do with the packets of a flow.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(
    json!({
        "flow": {
            "src_ip": "192.0.2.1", "src_port": 40000, "dst_ip": "198.51.100.2", "dst_port": 443, "protocol": "tcp",
        },
        "action": "shunt",
        "expiry": 600,
    }),
    json!({"flow": {"community_id": "1:LQU9qZlK+B5F3KDmev6m5PMibrg="}, "action": "drop"}),
))]
pub struct NewOverride {
    /// The flow. With a Community ID it has to be among the flows of the moment.
    pub flow: FlowName,
    /// What happens to its packets.
    action: ActionName,
    /// With shunt: this number of packets still goes as the rules say. Default: 0
    #[serde(default)]
    more: u32,
    /// Seconds until the rules decide again, from 1 to 86400. Default: 300
    #[schema(minimum = 1, maximum = 86400)]
    expiry: Option<u64>,
}

/// An action.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ActionName {
    /// All packets are handed on, to where the rules say.
    Forward,
    /// None is handed on.
    Drop,
    /// Only `more` packets are handed on.
    Shunt,
}

/// An override in effect.
#[derive(Serialize, ToSchema)]
pub struct OverrideState {
    /// The flow, with its Community ID.
    flow: FlowName,
    /// What happens to its packets.
    action: ActionName,
    /// Packets that still go as the rules say.
    more: u32,
    /// Seconds until it ends.
    expires_in: u64,
    /// Packets that it has decided.
    packets: u64,
    /// Their octets on the wire.
    octets: u64,
}

/// All overrides in effect.
#[derive(Serialize, ToSchema)]
pub struct OverrideList {
    /// How many there can be.
    limit: usize,
    /// The next one to end first.
    overrides: Vec<OverrideState>,
}

/// Why a flow or an override is refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOverride {
    #[error("name the flow by src_ip, src_port, dst_ip, dst_port and protocol, or by community_id alone")]
    Flow,
    #[error("the addresses are of different versions of IP")]
    Versions,
    #[error("protocol: {0:?} is not a protocol; write for example tcp, udp or 132")]
    Protocol(String),
    #[error("community_id: a Community ID begins with 1: and has 30 characters")]
    CommunityId,
    #[error("expiry: use a number of seconds from 1 to {MAX_EXPIRY}")]
    Expiry,
    #[error("more: only action shunt has it")]
    More,
}

/// How a request names a flow.
pub enum NamedFlow {
    Tuple(FlowTuple),
    CommunityId(String),
}

impl FlowName {
    pub fn read(&self) -> Result<NamedFlow, InvalidOverride> {
        match self {
            Self {
                community_id: Some(id),
                src_ip: None,
                src_port: None,
                dst_ip: None,
                dst_port: None,
                protocol: None,
            } => flows::is_community_id(id)
                .then(|| NamedFlow::CommunityId(id.clone()))
                .ok_or(InvalidOverride::CommunityId),
            Self { community_id: None, src_ip: Some(src), dst_ip: Some(dst), protocol: Some(protocol), .. } => {
                let invalid = || InvalidOverride::Protocol(protocol.clone());
                let number = protocol_number(protocol).or_else(|| protocol.parse().ok()).ok_or_else(invalid)?;
                if src.is_ipv4() != dst.is_ipv4() {
                    return Err(InvalidOverride::Versions);
                }
                let network = if src.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 };
                let octets = |address: &IpAddr| match address {
                    IpAddr::V4(address) => ipv4_mapped(address.octets()),
                    IpAddr::V6(address) => address.octets(),
                };
                let ends = [(octets(src), self.src_port), (octets(dst), self.dst_port)];
                let tuple = FlowTuple::new(ends.map(|(ip, port)| (ip, port.unwrap_or(0))), number, network);
                Ok(NamedFlow::Tuple(tuple))
            }
            _ => Err(InvalidOverride::Flow),
        }
    }
}

impl From<&FlowTuple> for FlowName {
    fn from(tuple: &FlowTuple) -> Self {
        let [(source, source_port), (destination, destination_port)] = ends_of(tuple);
        let ip = |address| ip_address(tuple.network(), address);
        let protocol = tuple.protocol();
        Self {
            src_ip: ip(source),
            src_port: Some(source_port),
            dst_ip: ip(destination),
            dst_port: Some(destination_port),
            protocol: Some(protocol_name(protocol).map_or_else(|| protocol.to_string(), String::from)),
            community_id: id_of(tuple),
        }
    }
}

/// Both ends. An ICMP message that is not answered has a type in place of the port of its source, and
/// more than that of its destination.
fn ends_of(tuple: &FlowTuple) -> [([u8; 16], u16); 2] {
    let [one, other] = tuple.ends();
    let is_icmp = matches!((tuple.network(), tuple.protocol()), (Network::Ipv4, 1) | (Network::Ipv6, 58));
    if is_icmp && one.1 > 0xff { [other, one] } else { [one, other] }
}

fn id_of(tuple: &FlowTuple) -> Option<String> {
    let [(source, source_port), (destination, destination_port)] = ends_of(tuple);
    let (network, protocol) = (tuple.network(), tuple.protocol());
    let flow =
        FlowRecord { network, source, source_port, destination, destination_port, protocol, ..FlowRecord::default() };
    Some(String::from_utf8_lossy(&community_id(&flow)?).into_owned())
}

impl NewOverride {
    /// Action and time.
    pub fn read(&self) -> Result<(OverrideAction, Duration), InvalidOverride> {
        let action = match self.action {
            ActionName::Shunt => OverrideAction::Shunt(self.more),
            _ if self.more > 0 => return Err(InvalidOverride::More),
            ActionName::Forward => OverrideAction::Forward,
            ActionName::Drop => OverrideAction::Drop,
        };
        let seconds = self.expiry.unwrap_or(DEFAULT_EXPIRY);
        let is_valid = (1..=MAX_EXPIRY).contains(&seconds);
        is_valid.then_some((action, Duration::from_secs(seconds))).ok_or(InvalidOverride::Expiry)
    }
}

impl From<&Override> for OverrideState {
    fn from(present: &Override) -> Self {
        let decided = present.decided();
        let left = present.until.saturating_duration_since(Instant::now());
        Self {
            flow: FlowName::from(&present.tuple),
            action: match present.action {
                OverrideAction::Forward => ActionName::Forward,
                OverrideAction::Drop => ActionName::Drop,
                OverrideAction::Shunt(_) => ActionName::Shunt,
            },
            more: present.more(),
            expires_in: left.as_millis().div_ceil(1000) as u64,
            packets: decided.packets,
            octets: decided.octets,
        }
    }
}

/// The list for an answer.
pub fn list(overrides: &Overrides) -> OverrideList {
    let present = overrides.list();
    OverrideList { limit: Overrides::MAX, overrides: present.iter().map(|present| present.as_ref().into()).collect() }
}

/// The tuple of an override in effect with a Community ID.
pub fn find(overrides: &Overrides, id: &str) -> Option<FlowTuple> {
    overrides.list().iter().map(|present| present.tuple).find(|tuple| id_of(tuple).as_deref() == Some(id))
}
