//! The list of connections as columns, some rows at a time: as text, all of them could take more memory than the
//! connections themselves.

use crate::connection::{Connection, duplicates, payload, retransmitted};
use crate::totals::percent;
use weir_tcp::{SegmentClass, TcpReport};
use weir_text::columns::Column;
use weir_text::units;

/// Columns that say who.
pub const WHO: usize = 4;
/// Columns that are there whatever they say.
const ALWAYS: usize = 9;
/// Connections of a piece.
const PIECE: usize = 1000;

/// The connections of the list, and what is known of its columns.
pub struct List<'a> {
    listed: &'a [Connection],
    /// Of each column: whether it is there, as it says something of any connection, and its width.
    columns: Vec<(bool, usize)>,
}

impl<'a> List<'a> {
    /// Looks through all of them.
    pub fn of(listed: &'a [Connection]) -> Self {
        let mut all = vec![(false, 0); columns(&[], 0).len()];
        for (number, piece) in listed.chunks(PIECE).enumerate() {
            for (at, (column, (is_there, width))) in columns(piece, number * PIECE).iter().zip(&mut all).enumerate() {
                *is_there |= at < ALWAYS || column.says_something();
                *width = column.width().max(*width);
            }
        }
        Self { listed, columns: all }
    }

    /// The columns piece by piece; all pieces have the same ones, of the same width.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<Column>> {
        self.listed.chunks(PIECE).enumerate().map(|(at, piece)| {
            let all = columns(piece, at * PIECE).into_iter().zip(&self.columns);
            all.filter(|(_, (is_there, _))| *is_there).map(|(column, &(_, width))| column.widened(width)).collect()
        })
    }
}

/// A column of the list for each figure, of connections that follow so many others.
fn columns(listed: &[Connection], before: usize) -> Vec<Column> {
    let each =
        |heading: &str, cell: &dyn Fn(&Connection) -> String| Column::new(heading, true, listed.iter().map(cell));
    let some = |n: u64| if n == 0 { String::new() } else { units::short(n) };
    let one = |heading: &str, side: usize, figure: fn(&TcpReport) -> u64| {
        each(heading, &move |connection| some(figure(&connection.report(side))))
    };
    let both =
        |heading: &str, figure: fn(&TcpReport) -> u64| each(heading, &move |connection| some(connection.both(figure)));
    let octets = |heading: &str, side: usize| {
        each(heading, &move |connection| units::short(payload(&connection.report(side))) + "B")
    };
    let round_trip = |heading: &str, side: usize| {
        each(heading, &move |connection| connection.report(side).handshake_rtt_ns.map_or(String::new(), units::span))
    };
    let mut ranks = before as u64 + 1..;
    let columns = vec![
        Column::new("#", true, listed.iter().map(|_| ranks.next().unwrap_or_default().to_string())),
        Column::new("client", true, listed.iter().map(|connection| connection.client.to_string())),
        Column::new("→", false, listed.iter().map(|_| "→".into())),
        Column::new("server", false, listed.iter().map(|connection| connection.server.to_string())),
        each("retrans", &|connection| {
            let (part, whole) = connection.retransmitted_of();
            percent(part, whole)
        }),
        each("pkts→", &|connection| units::short(connection.packets[0])),
        each("←pkts", &|connection| units::short(connection.packets[1])),
        octets("payload→", 0),
        octets("←payload", 1),
        one("retr→", 0, retransmitted),
        one("←retr", 1, retransmitted),
        both("unseen", |report| report.count(SegmentClass::UnseenRetransmission).segments),
        both("ooo", |report| report.count(SegmentClass::OutOfOrder).segments),
        both("copies", duplicates),
        both("0-win", |report| report.zero_windows),
        each("missing", &|connection| {
            let octets = connection.both(|report| report.missing_bytes);
            if octets == 0 { String::new() } else { units::short(octets) + "B" }
        }),
        round_trip("rtt→server", 1),
        round_trip("client←rtt", 0),
        Column::new("not exact", false, listed.iter().map(marks)),
    ];
    debug_assert_eq!(columns[WHO].heading, "retrans");
    columns
}

/// In which way what is said of a connection is not exact; also whether it was seen from one side only.
pub fn marks(connection: &Connection) -> String {
    let bits = connection.reports().iter().fold(0, |bits, report| bits | report.degradation.0);
    let one_way = connection.is_one_way().then_some("one-way");
    weir_tcp::Degradation(bits).names().chain(one_way).collect::<Vec<_>>().join(",")
}
