//! Which connection a user means: `#3`, both ends in either order, or a part that only one has.

use crate::connection::Connection;
use std::fmt::Write;
use weir_text::units;

/// Connections that are named if a key fits several.
const NAMED: usize = 20;

/// Why a key means no single connection.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The key is empty.
    #[error("a connection must follow: its number as in #3, both ends, or a part of one")]
    Empty,
    /// No number follows `#`.
    #[error("a number must follow, as in #3")]
    NoNumber,
    /// The list is shorter.
    #[error("the list has {}", units::count(*.connections as u64, "connection"))]
    BeyondList {
        /// Connections of the list.
        connections: usize,
    },
    /// No connection has that.
    #[error("no connection of TCP has that")]
    NotFound,
    /// Several connections have that: a line for each of the first ones.
    #[error("{found} connections have that; choose one by its number:{}", lines(.named, *.found))]
    Ambiguous {
        /// How many have that.
        found: usize,
        /// The first of them in words.
        named: Vec<String>,
    },
}

fn lines(named: &[String], found: usize) -> String {
    let mut text = String::new();
    for line in named {
        let _ = write!(text, "\n  {line}");
    }
    if found > named.len() {
        let _ = write!(text, "\n  and {} more", found - named.len());
    }
    text
}

/// Finds it among the connections in the order of the list; its place there, or what to say.
pub fn find(connections: &[Connection], key: &str) -> Result<usize, LookupError> {
    if key.is_empty() {
        return Err(LookupError::Empty);
    }
    if let Some(rank) = key.strip_prefix('#') {
        let rank: usize = rank.parse().map_err(|_| LookupError::NoNumber)?;
        let connections = connections.len();
        return rank.checked_sub(1).filter(|&at| at < connections).ok_or(LookupError::BeyondList { connections });
    }
    let is_pair = |c: &Connection| {
        let (client, server) = (c.client.to_string(), c.server.to_string());
        key == format!("{client}-{server}") || key == format!("{server}-{client}")
    };
    let of_ends = |fits: &dyn Fn(&str) -> bool| -> Vec<usize> {
        let fits = |c: &Connection| fits(&c.client.to_string()) || fits(&c.server.to_string());
        (0..connections.len()).filter(|&at| fits(&connections[at])).collect()
    };
    let mut found: Vec<usize> = (0..connections.len()).filter(|&at| is_pair(&connections[at])).collect();
    // A whole port or address before a piece of one.
    let start = format!("{key}:");
    for fits in [&(|end: &str| end.ends_with(key) || end.starts_with(&start)) as &dyn Fn(&str) -> bool, &|end: &str| {
        end.contains(key)
    }] {
        if found.is_empty() {
            found = of_ends(fits);
        }
    }
    match found.as_slice() {
        [] => Err(LookupError::NotFound),
        [one] => Ok(*one),
        several => {
            let name = |&at: &usize| {
                let connection = &connections[at];
                let (day, time) = units::utc(connection.first_ns);
                let packets = units::count(connection.all_packets(), "packet");
                format!("'#{}'  {}  {day} {time}, {packets}", at + 1, connection.name())
            };
            let named = several.iter().take(NAMED).map(name).collect();
            Err(LookupError::Ambiguous { found: several.len(), named })
        }
    }
}
