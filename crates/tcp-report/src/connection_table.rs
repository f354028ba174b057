//! The connection list as a table, in chunks: all its cells at once could need more memory than the
//! connections.

use crate::connection::{Connection, duplicate_segments, payload_bytes, retransmitted_segments};
use crate::percent::percent;
use weir_tcp::{SegmentClass, TcpReport};
use weir_text::columns::Column;
use weir_text::units;

/// The first columns: number, client, arrow, server.
pub const ENDPOINT_COLUMNS: usize = 4;
/// The first columns, which are shown even if they are empty.
const ALWAYS_SHOWN: usize = 9;
const CONNECTIONS_PER_CHUNK: usize = 1000;

/// The column headings explained.
pub const LEGEND: &str = "\
→: from the client; ←: from the server; retrans: retransmitted share of the segments with payload, SYN or FIN; \
retr: retransmitted segments; unseen: of these, original lost before the capture point; ooo: out of order; \
dups: duplicated by the capture; 0-win: zero windows; missing: payload missing from the capture; rtt: round-trip time \
of the handshake; k, M and G are decimal";

/// The connection list and the layout of its columns.
pub struct ConnectionTable<'a> {
    connections: &'a [Connection],
    /// For each column: whether it is shown, and its width in characters.
    layout: Vec<(bool, usize)>,
}

impl<'a> ConnectionTable<'a> {
    /// Lays out the columns for these connections.
    pub fn new(connections: &'a [Connection]) -> Self {
        let mut layout = vec![(false, 0); columns(&[], 0).len()];
        for (number, chunk) in connections.chunks(CONNECTIONS_PER_CHUNK).enumerate() {
            let columns = columns(chunk, number * CONNECTIONS_PER_CHUNK);
            for (at, (column, (shown, width))) in columns.iter().zip(&mut layout).enumerate() {
                *shown |= at < ALWAYS_SHOWN || column.has_content();
                *width = column.width().max(*width);
            }
        }
        Self { connections, layout }
    }

    /// The columns of each chunk of connections. All chunks have the same columns of the same
    /// widths.
    pub fn chunks(&self) -> impl Iterator<Item = Vec<Column>> {
        self.connections.chunks(CONNECTIONS_PER_CHUNK).enumerate().map(|(number, chunk)| {
            let columns = columns(chunk, number * CONNECTIONS_PER_CHUNK).into_iter().zip(&self.layout);
            columns.filter(|(_, (shown, _))| *shown).map(|(column, &(_, width))| column.widened(width)).collect()
        })
    }
}

/// All columns of connections that `before` others precede in the list.
fn columns(connections: &[Connection], before: usize) -> Vec<Column> {
    let column =
        |heading: &str, cell: &dyn Fn(&Connection) -> String| Column::new(heading, true, connections.iter().map(cell));
    let nonzero = |n: u64| if n == 0 { String::new() } else { units::short(n) };
    let one_side = |heading: &str, side: usize, counter: fn(&TcpReport) -> u64| {
        column(heading, &move |connection| nonzero(counter(&connection.report(side))))
    };
    let both_sides = |heading: &str, counter: fn(&TcpReport) -> u64| {
        column(heading, &move |connection| nonzero(connection.sum(counter)))
    };
    let octets = |heading: &str, side: usize| {
        column(heading, &move |connection| units::short(payload_bytes(&connection.report(side))) + "B")
    };
    let rtt = |heading: &str, side: usize| {
        column(heading, &move |connection| connection.report(side).handshake_rtt_ns.map_or(String::new(), units::span))
    };
    let numbers = before + 1..=before + connections.len();
    vec![
        Column::new("#", true, numbers.map(|number| number.to_string())),
        column("client", &|connection| connection.client.to_string()),
        column("→", &|_| "→".into()),
        Column::new("server", false, connections.iter().map(|connection| connection.server.to_string())),
        column("retrans", &|connection| {
            let (part, whole) = connection.retransmission_ratio();
            percent(part, whole)
        }),
        column("pkts→", &|connection| units::short(connection.packets[0])),
        column("←pkts", &|connection| units::short(connection.packets[1])),
        octets("payload→", 0),
        octets("←payload", 1),
        one_side("retr→", 0, retransmitted_segments),
        one_side("←retr", 1, retransmitted_segments),
        both_sides("unseen", |report| report.count(SegmentClass::UnseenRetransmission).segments),
        both_sides("ooo", |report| report.count(SegmentClass::OutOfOrder).segments),
        both_sides("dups", duplicate_segments),
        both_sides("0-win", |report| report.zero_windows),
        column("missing", &|connection| match connection.sum(|report| report.missing_bytes) {
            0 => String::new(),
            octets => units::short(octets) + "B",
        }),
        rtt("rtt→server", 1),
        rtt("client←rtt", 0),
        Column::new("not exact", false, connections.iter().map(degradations)),
    ]
}

/// Why the counters of a connection are not exact.
fn degradations(connection: &Connection) -> String {
    let one_way = connection.is_one_way().then_some("one-way");
    connection.degradation().names().chain(one_way).collect::<Vec<_>>().join(",")
}
