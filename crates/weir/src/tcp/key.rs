//! Which connection a user means: `#3`, both ends in either order, or a part that only one has.

use super::connection::Connection;
use crate::units;
use std::fmt::Write;

/// Connections that are named if a key fits several.
const NAMED: usize = 20;

/// Finds it among the connections in the order of the list; its place there, or what to say.
pub fn find(connections: &[Connection], key: &str) -> Result<usize, String> {
    if key.is_empty() {
        return Err("--explain needs a connection: its number as in #3, both ends, or a part of one".into());
    }
    if let Some(rank) = key.strip_prefix('#') {
        let rank: usize = rank.parse().map_err(|_| format!("--explain {key}: a number must follow, as in #3"))?;
        let last = connections.len();
        return match rank.checked_sub(1).filter(|&at| at < last) {
            Some(at) => Ok(at),
            None => Err(format!("--explain {key}: the list has {}", units::count(last as u64, "connection"))),
        };
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
        [] => Err(format!("--explain {key}: no connection of TCP has that; weir tcp FILE --top 0 lists all")),
        [one] => Ok(*one),
        several => {
            let mut text =
                format!("--explain {key}: {} connections have that; choose one by its number:", several.len());
            for &at in several.iter().take(NAMED) {
                let connection = &connections[at];
                let (day, time) = units::utc(connection.first_ns);
                let packets = units::count(connection.all_packets(), "packet");
                let _ = write!(text, "\n  '#{}'  {}  {day} {time}, {packets}", at + 1, connection.name());
            }
            if several.len() > NAMED {
                let _ = write!(text, "\n  and {} more", several.len() - NAMED);
            }
            Err(text)
        }
    }
}
