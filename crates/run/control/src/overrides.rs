//! Overrides over HTTP: decisions of an IDS about single flows, and how it names them.

use crate::flows;
use crate::json::{Number, object};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};
use weir_fields::{community_id, community_id_has_ports, protocol_name};
use weir_flow::{FlowRecord, FlowTuple};
use weir_packet::{Network, address_octets};
use weir_probe::{Override, OverrideAction, Overrides};
use weir_query::protocol_number;

/// How long an override holds, s, unless a request names another time, and at most.
const DEFAULT_EXPIRY: u64 = 300;
const MAX_EXPIRY: u64 = 86_400;
const MAX_PORT: u64 = u16::MAX as u64;
/// ICMP and ICMPv6: the place of ports has what their messages are (weir help fields).
const ICMP: [u8; 2] = [1, 58];

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
    /// Its port. TCP, UDP, UDP-Lite, SCTP and DCCP need both ports, other protocols have none
    #[schema(value_type = Option<u16>, maximum = 65535)]
    #[param(value_type = Option<u16>, maximum = 65535, example = 40000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<Number<MAX_PORT>>,
    /// Address of the other end
    #[schema(value_type = Option<String>)]
    #[param(value_type = Option<String>, example = "198.51.100.2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_ip: Option<IpAddr>,
    /// Its port
    #[schema(value_type = Option<u16>, maximum = 65535)]
    #[param(value_type = Option<u16>, maximum = 65535, example = 443)]
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_port: Option<Number<MAX_PORT>>,
    /// IP protocol: a name as tcp, or a number as 132. A flow of ICMP or ICMPv6 is named by its Community ID
    #[param(example = "tcp")]
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    /// Community ID with seed 0, in place of all others. That of UDP-Lite and DCCP has no ports, and names no flow
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
    /// The flow. With a Community ID it has to be among the current flows.
    #[serde(deserialize_with = "object")]
    pub flow: FlowName,
    /// What happens to its packets.
    action: ActionName,
    /// With shunt: the rules still decide about this number of packets. Default: 0
    #[serde(default)]
    #[schema(value_type = u32, default = 0)]
    more: Number<{ u32::MAX as u64 }>,
    /// Seconds until the rules decide again, from 1 to 86400. Default: 300
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 86400)]
    expiry: Option<Number<{ u64::MAX }>>,
}

/// An action.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase", try_from = "String")]
enum ActionName {
    /// All packets are forwarded, to the egresses of the rules.
    Forward,
    /// None is forwarded.
    Drop,
    /// Only `more` packets are forwarded.
    Shunt,
}

impl TryFrom<String> for ActionName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        match &*name {
            "forward" => Ok(Self::Forward),
            "drop" => Ok(Self::Drop),
            "shunt" => Ok(Self::Shunt),
            _ => Err("action: use forward, drop or shunt"),
        }
    }
}

/// An override in effect.
#[derive(Serialize, ToSchema)]
pub struct OverrideState {
    /// The flow, with its Community ID. Without ports if its protocol has none.
    flow: FlowName,
    /// What happens to its packets.
    action: ActionName,
    /// Packets that the rules still decide about.
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
    #[error("name an ICMP flow by its community_id")]
    Icmp,
    #[error("a Community ID has no ports of {0}: name the flow by addresses, ports and protocol")]
    SharedId(String),
    #[error("protocol {0} has ports: write src_port and dst_port")]
    Ports(String),
    #[error("protocol {0} has no ports: leave src_port and dst_port out")]
    NoPorts(String),
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
            Self {
                community_id: None,
                src_ip: Some(src),
                dst_ip: Some(dst),
                protocol: Some(name),
                src_port,
                dst_port,
            } => {
                // Without a sign or zeros before it.
                let number = || name.parse::<u8>().ok().filter(|number| number.to_string() == *name);
                let protocol = protocol_number(name).or_else(number);
                let protocol = protocol.ok_or_else(|| InvalidOverride::Protocol(name.clone()))?;
                if src.is_ipv4() != dst.is_ipv4() {
                    return Err(InvalidOverride::Versions);
                }
                if ICMP.contains(&protocol) {
                    return Err(InvalidOverride::Icmp);
                }
                let network = if src.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 };
                let [source, destination] = [*src, *dst].map(address_octets);
                let mut flow = FlowRecord { network, source, destination, protocol, ..FlowRecord::default() };
                match (src_port, dst_port) {
                    (Some(src_port), Some(dst_port)) if flow.has_ports() => {
                        (flow.source_port, flow.destination_port) = (src_port.0 as u16, dst_port.0 as u16);
                    }
                    _ if flow.has_ports() => return Err(InvalidOverride::Ports(name.clone())),
                    (None | Some(Number(0)), None | Some(Number(0))) => {}
                    _ => return Err(InvalidOverride::NoPorts(name.clone())),
                }
                Ok(NamedFlow::Tuple(FlowTuple::from(&flow)))
            }
            _ => Err(InvalidOverride::Flow),
        }
    }
}

impl From<&FlowTuple> for FlowName {
    fn from(tuple: &FlowTuple) -> Self {
        let flow = record_of(tuple);
        let port = |port: u16| flow.has_ports().then_some(Number(port.into()));
        Self {
            src_ip: flow.source_ip(),
            src_port: port(flow.source_port),
            dst_ip: flow.destination_ip(),
            dst_port: port(flow.destination_port),
            protocol: Some(protocol_of(&flow)),
            community_id: id_of(&flow),
        }
    }
}

/// A record of the flow. An ICMP message that is not answered has a type in place of the port of its
/// source, and more than that of its destination.
fn record_of(tuple: &FlowTuple) -> FlowRecord {
    let (FlowTuple { network, protocol, .. }, [one, other]) = (*tuple, tuple.ends());
    let flow = |(source, source_port), (destination, destination_port)| FlowRecord {
        network,
        source,
        source_port,
        destination,
        destination_port,
        protocol,
        ..FlowRecord::default()
    };
    let in_order = flow(one, other);
    if in_order.is_icmp() && one.1 > 0xff { flow(other, one) } else { in_order }
}

fn protocol_of(flow: &FlowRecord) -> String {
    protocol_name(flow.protocol).map_or_else(|| flow.protocol.to_string(), String::from)
}

fn id_of(flow: &FlowRecord) -> Option<String> {
    Some(String::from_utf8_lossy(&community_id(flow)?).into_owned())
}

impl NewOverride {
    /// Action and time.
    pub fn read(&self) -> Result<(OverrideAction, Duration), InvalidOverride> {
        let action = match self.action {
            ActionName::Shunt => OverrideAction::Shunt(self.more.0 as u32),
            _ if self.more.0 > 0 => return Err(InvalidOverride::More),
            ActionName::Forward => OverrideAction::Forward,
            ActionName::Drop => OverrideAction::Drop,
        };
        let seconds = self.expiry.map_or(DEFAULT_EXPIRY, |Number(seconds)| seconds);
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

/// The tuple of a flow that was found by its Community ID.
///
/// # Errors
/// The ID has no ports of its protocol, so that it does not name one flow.
pub fn tuple_of_community_id(flow: &FlowRecord) -> Result<FlowTuple, InvalidOverride> {
    let is_shared = flow.has_ports() && !community_id_has_ports(flow);
    if is_shared { Err(InvalidOverride::SharedId(protocol_of(flow))) } else { Ok(flow.into()) }
}

/// The tuple of an override in effect with a Community ID.
///
/// # Errors
/// As [`tuple_of_community_id`].
pub fn find(overrides: &Overrides, id: &str) -> Result<Option<FlowTuple>, InvalidOverride> {
    let list = overrides.list();
    let mut flows = list.iter().map(|present| record_of(&present.tuple));
    flows.find(|flow| id_of(flow).as_deref() == Some(id)).as_ref().map(tuple_of_community_id).transpose()
}
