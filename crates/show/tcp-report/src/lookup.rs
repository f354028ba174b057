//! Finds the connection that a user means.

use crate::connection::Connection;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use weir_fields::community_id;
use weir_flow::FlowRecord;
use weir_packet::{Network, address_octets};
use weir_text::{FlowText, units};

/// Protocol of IP.
const TCP: u8 = 6;

/// Why a key does not mean exactly one connection.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The key is empty, or no number follows `#`.
    #[error("{0}")]
    Syntax(&'static str),
    /// The list is shorter.
    #[error("the list has {}", units::count(*.connections as u64, "connection"))]
    BeyondList {
        /// Connections in the list.
        connections: usize,
    },
    /// No connection matches.
    #[error("no connection matches")]
    NotFound,
    /// Several connections match.
    #[error("{} connections match", .matches.len())]
    Ambiguous {
        /// Their indices in the list.
        matches: Vec<usize>,
    },
}

/// Returns the index of the connection with this key: its number in the list (`#3`, or `3` if no port is 3), both
/// endpoints in either order ([`FlowText`]: `192.0.2.1:4000 → 192.0.2.2:80`), its Community ID, or a part of an endpoint that no other
/// connection has. A whole address or port is preferred to a part of one.
///
/// # Errors
/// No connection matches, or several do.
pub fn find_connection(connections: &[Connection], key: &str) -> Result<usize, LookupError> {
    let key = key.trim();
    if key.is_empty() {
        let text = "the key is empty; use a number as in #3, both endpoints, or a part of one";
        return Err(LookupError::Syntax(text));
    }
    let with_number = |number: u32| connections.iter().position(|connection| connection.number == number);
    if let Some(number) = key.strip_prefix('#') {
        let number: u32 = number.parse().map_err(|_| LookupError::Syntax("a number must follow #, as in #3"))?;
        return with_number(number).ok_or(LookupError::BeyondList { connections: connections.len() });
    }
    let has_port = |connection: &Connection, port| {
        [connection.client, connection.server].map(|end| end.port().into()).contains(&port)
    };
    if let Ok(number) = key.parse()
        && !connections.iter().any(|connection| has_port(connection, number))
        && let Some(found) = with_number(number)
    {
        return Ok(found);
    }
    if key.starts_with("1:") {
        let is_of =
            |connection: &Connection| community_id(&record_of(connection)).is_some_and(|id| id == key.as_bytes());
        let matches: Vec<usize> = (0..connections.len()).filter(|&index| is_of(&connections[index])).collect();
        return one_of(matches).unwrap_or(Err(LookupError::NotFound));
    }
    // As the reports print it.
    if let Some(FlowText { ends, protocol }) = FlowText::parse(key) {
        let is_tcp = protocol.is_none_or(|name| name == "tcp" || name == "6");
        let is_pair = |connection: &Connection| {
            let is = |(address, port): (IpAddr, Option<u16>), end: SocketAddr| {
                address == end.ip() && port.is_none_or(|port| port == end.port())
            };
            let (client, server) = (connection.client, connection.server);
            is_tcp && [[client, server], [server, client]].iter().any(|of| (0..2).all(|at| is(ends[at], of[at])))
        };
        let matches: Vec<usize> = (0..connections.len()).filter(|&index| is_pair(&connections[index])).collect();
        return one_of(matches).unwrap_or(Err(LookupError::NotFound));
    }
    for is_match in [is_whole, is_part] {
        let is_match =
            |connection: &Connection| is_match(key, &connection.client.to_string(), &connection.server.to_string());
        let matches: Vec<usize> = (0..connections.len()).filter(|&index| is_match(&connections[index])).collect();
        if let Some(found) = one_of(matches) {
            return found;
        }
    }
    Err(LookupError::NotFound)
}

/// The only match; `None` if there is none.
fn one_of(matches: Vec<usize>) -> Option<Result<usize, LookupError>> {
    match matches[..] {
        [] => None,
        [index] => Some(Ok(index)),
        _ => Some(Err(LookupError::Ambiguous { matches })),
    }
}

/// A record with the endpoints of a connection and nothing else.
fn record_of(connection: &Connection) -> FlowRecord {
    let [client, server] = [connection.client, connection.server].map(|end| (address_octets(end.ip()), end.port()));
    FlowRecord {
        network: if connection.client.is_ipv4() { Network::Ipv4 } else { Network::Ipv6 },
        source: client.0,
        source_port: client.1,
        destination: server.0,
        destination_port: server.1,
        protocol: TCP,
        ..FlowRecord::default()
    }
}

/// Whether a key is the whole address or port of an endpoint, or both.
fn is_whole(key: &str, client: &str, server: &str) -> bool {
    // An IPv6 address may be without brackets.
    let with_brackets = key.parse::<Ipv6Addr>().map(|address| format!("[{address}]"));
    let key = with_brackets.as_deref().unwrap_or(key);
    let is = |endpoint: &str| {
        endpoint.ends_with(key) || endpoint.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'))
    };
    is(client) || is(server)
}

fn is_part(key: &str, client: &str, server: &str) -> bool {
    client.contains(key) || server.contains(key)
}
