//! The lists of connections: their columns, for the terminal and for HTML.
//!
//! In: connections. Out: [`ListColumn`]s, which say what a cell shows, and text tables of them, in
//! chunks: all cells at once could need more memory than the connections.

use crate::connection::{Connection, duplicate_segments, payload_bytes};
use crate::delay::Delay;
use crate::failure::Failure;
use crate::groups::EndNames;
use crate::percent::percent;
use std::ops::Range;
use weir_tcp::SegmentClass;
use weir_text::columns::Column;
use weir_text::units;
use weir_text::zone::Zone;

/// The first columns: number, client, arrow, server.
pub const ENDPOINT_COLUMNS: usize = 4;
/// Connections whose cells are in memory at once.
const CONNECTIONS_PER_CHUNK: usize = 1000;

/// What a cell shows.
pub struct Cell {
    /// Cells with larger values come first when a column is sorted. `None` if it is empty.
    pub value: Option<u64>,
    /// The value for people; empty if there is none.
    pub text: String,
}

/// A column of a list, or two: one for each side.
#[derive(Debug)]
pub struct ListColumn {
    /// The heading where both sides share a column.
    pub heading: &'static str,
    /// The headings in text of the client and of the server, if each has a column.
    side_headings: Option<[&'static str; 2]>,
    /// What it shows, unless the heading says it.
    pub meaning: &'static str,
    /// Whether it is shown even if it is empty.
    always: bool,
    /// Whether it shows words, not numbers.
    pub is_text: bool,
    cell: fn(&Connection, usize) -> Cell,
}

impl ListColumn {
    /// The headings in text: one, or that of the client and that of the server.
    fn text_headings(&self) -> &[&'static str] {
        self.side_headings.as_ref().map_or(std::slice::from_ref(&self.heading), |headings| headings)
    }

    /// What it is, with the zone of times; empty if the heading says it.
    pub fn explanation(&self) -> String {
        let zone = if self.heading == START.heading { format!(", {}", Zone::current().name()) } else { String::new() };
        format!("{}{zone}", self.meaning)
    }

    /// What it shows of a connection: one cell, or that of the client and that of the server.
    pub fn cells(&self, connection: &Connection) -> impl Iterator<Item = Cell> {
        (0..self.text_headings().len()).map(|side| (self.cell)(connection, side))
    }

    /// The rank of a connection in this column, of one side or of both together: the largest number is
    /// the first, and words are in alphabetical order. `None` if the cell is empty.
    pub(crate) fn rank(&self, connection: &Connection, side: Option<usize>) -> Option<u64> {
        let cells = self.cells(connection).enumerate().filter(|(at, _)| side.is_none_or(|side| side == *at));
        let numbers = cells.filter(|(_, cell)| !cell.text.is_empty()).map(|(_, cell)| {
            let mut first_octets = [0; 8];
            first_octets.iter_mut().zip(cell.text.bytes()).for_each(|(to, octet)| *to = octet);
            cell.value.unwrap_or(!u64::from_be_bytes(first_octets))
        });
        numbers.reduce(u64::saturating_add)
    }

    /// Whether a list in text has it for this side.
    fn is_shown(&self, side: usize, connections: &[Connection]) -> bool {
        let has_text = |connection| !(self.cell)(connection, side).text.is_empty();
        side < self.text_headings().len() && (self.always || connections.iter().any(has_text))
    }
}

/// A column with a number of both sides together.
const fn number(heading: &'static str, meaning: &'static str, cell: fn(&Connection, usize) -> Cell) -> ListColumn {
    ListColumn { heading, side_headings: None, meaning, always: false, is_text: false, cell }
}

/// Two columns with a number of each side.
const fn numbers(
    heading: &'static str,
    side_headings: [&'static str; 2],
    meaning: &'static str,
    cell: fn(&Connection, usize) -> Cell,
) -> ListColumn {
    ListColumn { side_headings: Some(side_headings), ..number(heading, meaning, cell) }
}

const FAILURE: ListColumn = ListColumn {
    is_text: true,
    ..number("failure", "", |connection, _| words(connection.failure().map_or("", Failure::name)))
};
const START: ListColumn = number("start", "time of the first packet", |connection, _| Cell {
    value: Some(connection.first_ns),
    text: Zone::current().date_and_time(connection.first_ns).1,
});
/// Instead of [`START`] if the capture has connections of several days.
const START_WITH_DAY: ListColumn = number(START.heading, START.meaning, |connection, _| {
    let (day, time) = Zone::current().date_and_time(connection.first_ns);
    Cell { value: Some(connection.first_ns), text: format!("{day} {time}") }
});
const RETRANSMITTED: ListColumn =
    number("retrans", "retransmitted share of the segments with payload, SYN or FIN", |connection, _| {
        let (part, whole) = connection.retransmission_ratio();
        // Billionths.
        Cell { value: Some((connection.retransmitted_share() * 1e9) as u64), text: percent(part, whole) }
    });
const DURATION: ListColumn =
    number("time", "from the first to the last packet", |connection, _| time(Some(connection.duration_ns())));
const PACKETS: ListColumn = numbers("packets", ["pkts→", "←pkts"], "", |connection, side| {
    let packets = connection.packets[side];
    Cell { value: Some(packets), text: units::short(packets) }
});
const PAYLOAD: ListColumn = numbers("payload", ["payload→", "←payload"], "", |connection, side| {
    octets(payload_bytes(&connection.report(side)))
});
const RETRANSMISSIONS: ListColumn =
    numbers("retr", ["retr→", "←retr"], "retransmitted segments", |connection, side| {
        count(connection.report(side).retransmitted_segments())
    });
const UNSEEN: ListColumn =
    number("unseen", "retransmitted segments whose original was lost before the capture point", |connection, _| {
        count(segments(connection, SegmentClass::UnseenRetransmission))
    });
const OUT_OF_ORDER: ListColumn =
    number("ooo", "out of order", |connection, _| count(segments(connection, SegmentClass::OutOfOrder)));
const DUPLICATES: ListColumn =
    number("dups", "duplicated by the capture", |connection, _| count(connection.sum(duplicate_segments)));
const ZERO_WINDOWS: ListColumn =
    number("0-win", "zero windows", |connection, _| count(connection.sum(|report| report.zero_windows)));
const MISSING: ListColumn = number("missing", "payload that sequence numbers skip", |connection, _| {
    match connection.sum(|report| report.missing_bytes) {
        0 => count(0),
        missing => octets(missing),
    }
});
pub const RTT: ListColumn = numbers(
    "rtt",
    ["rtt→", "←rtt"],
    "shortest round-trip time between the capture point and this side",
    |connection, side| time(connection.rtt_ns(side)),
);
const DELAY: ListColumn = ListColumn {
    is_text: true,
    ..number("delay", "where most of the time went", |connection, _| words(connection.delay().name()))
};
const NETWORK_SHARE: ListColumn = ListColumn {
    always: true,
    ..number("net %", "round trips, and transfer with retransmissions, in % of the time", |connection, _| {
        share(connection, connection.delays().network_ns)
    })
};
const SERVER_SHARE: ListColumn = ListColumn {
    always: true,
    ..number("srv %", "waiting for the server", |connection, _| share(connection, connection.delays().server_ns))
};
const CLIENT_SHARE: ListColumn = ListColumn {
    always: true,
    ..number("cli %", "waiting for the client", |connection, _| share(connection, connection.delays().client_ns))
};
pub const RESPONSE: ListColumn =
    numbers("resp", ["resp→", "←resp"], "longest response time", |connection, side| {
        let responses = connection.report(side).responses;
        time((responses.count > 0).then_some(responses.max_ns))
    });
const THROUGHPUT: ListColumn =
    numbers("bit/s", ["bit/s→", "←bit/s"], "throughput of the payload", |connection, side| {
        count(connection.throughput_bps(side).unwrap_or(0))
    });
const NOT_EXACT: ListColumn = ListColumn {
    is_text: true,
    ..number("not exact", "", |connection, _| {
        let one_way = connection.is_one_way().then_some("one-way");
        words(connection.degradation().names().chain(one_way).collect::<Vec<_>>().join(","))
    })
};

/// The list of connections that failed.
pub const FAILED: &[ListColumn] = &[FAILURE, START, DURATION, PACKETS, PAYLOAD, RETRANSMISSIONS, RTT, NOT_EXACT];
/// The list of the others.
pub const OTHERS: &[ListColumn] = &[
    RETRANSMITTED,
    DURATION,
    DELAY,
    NETWORK_SHARE,
    SERVER_SHARE,
    CLIENT_SHARE,
    RESPONSE,
    RTT,
    PACKETS,
    PAYLOAD,
    THROUGHPUT,
    RETRANSMISSIONS,
    UNSEEN,
    OUT_OF_ORDER,
    DUPLICATES,
    ZERO_WINDOWS,
    MISSING,
    NOT_EXACT,
];

/// The column with this heading, and the heading. A heading of text is of one side: `resp→`. Without
/// the arrow, and without blanks and %, it is the column of both sides: `resp`, `net`.
pub(crate) fn column_of_heading(name: &str) -> Option<(&'static ListColumn, &'static str, Option<usize>)> {
    let columns = || FAILED.iter().chain(OTHERS);
    let of_side = columns().find_map(|column| {
        let headings = column.side_headings?;
        let side = headings.iter().position(|&heading| heading == name)?;
        Some((column, headings[side], Some(side)))
    });
    let plain = |text: &str| text.replace(['→', '←', ' ', '%'], "");
    let has = |column: &&ListColumn| {
        column.text_headings().iter().chain([&column.heading]).any(|heading| plain(heading) == plain(name))
    };
    let of_both = || columns().filter(|_| !name.contains(['→', '←'])).find(has);
    of_side.or_else(|| of_both().map(|column| (column, column.heading, None)))
}

fn words(text: impl Into<String>) -> Cell {
    Cell { value: None, text: text.into() }
}

fn octets(n: u64) -> Cell {
    Cell { value: Some(n), text: units::short(n) + "B" }
}

fn count(n: u64) -> Cell {
    if n == 0 { words("") } else { Cell { value: Some(n), text: units::short(n) } }
}

fn time(ns: Option<u64>) -> Cell {
    Cell { value: ns, text: ns.map_or(String::new(), units::span) }
}

/// A part of the duration in percent, rounded; empty for 0, or if the parts are not known.
fn share(connection: &Connection, part_ns: u64) -> Cell {
    if part_ns == 0 || connection.delay() == Delay::Unknown {
        return count(0);
    }
    let percent = 100.0 * part_ns as f64 / connection.duration_ns().max(1) as f64;
    let text = if percent < 0.5 { "<1".into() } else { format!("{percent:.0}") };
    // Billionths.
    Cell { value: Some((percent * 1e7) as u64), text }
}

fn segments(connection: &Connection, class: SegmentClass) -> u64 {
    connection.sum(|report| report.count(class).segments)
}

/// Returns the text of a cell.
pub type CellText = Box<dyn Fn(&Connection) -> String>;

/// What a list is sorted by.
pub struct SortedColumn {
    /// The heading of the column that shows it, and the side if it is of one.
    pub column: Option<(&'static str, Option<usize>)>,
    /// Heading and cells of a column for lists without that column.
    pub own: Option<(&'static str, CellText)>,
}

impl SortedColumn {
    fn is(&self, column: &ListColumn, side: usize) -> bool {
        self.column.is_some_and(|(heading, of)| heading == column.heading && of.is_none_or(|of| of == side))
    }
}

/// A list of connections with the columns that are shown.
pub struct ConnectionTable<'a> {
    connections: &'a [Connection],
    /// Index of the first connection in the ranking.
    first: usize,
    /// The columns after number and endpoints.
    pub columns: Vec<&'static ListColumn>,
    /// The columns of text: each with its side.
    text_columns: Vec<(&'static ListColumn, usize)>,
    /// The day of all times and the zone; `None` if there are several days.
    day: Option<String>,
    /// Names of client and server; `None` if no connection has one.
    names: [Option<&'a EndNames>; 2],
}

/// The names of the client or of the server of a connection.
fn name_of(names: &EndNames, connection: &Connection, side: usize) -> String {
    let end = if side == 0 { connection.client } else { connection.server };
    names(end.ip(), Some(end.port()))
}

impl<'a> ConnectionTable<'a> {
    /// A list of these connections of a ranking. Columns without content, also in further rows, are left out.
    pub fn new(
        ranking: &'a [Connection],
        listed: Range<usize>,
        further: &[usize],
        columns: &'static [ListColumn],
    ) -> Self {
        let first = listed.start;
        let connections = &ranking[listed];
        let (first_ns, last_ns) = ranking.iter().fold((u64::MAX, 0), |(first, last), connection| {
            (connection.first_ns.min(first), connection.last_ns.max(last))
        });
        let zone = Zone::current();
        let [first_day, last_day] = [first_ns, last_ns].map(|ns| zone.date_and_time(ns).0);
        let day = (first_day == last_day).then(|| format!("{first_day} {}", zone.name()));
        let with_day = |column: &'static ListColumn| match column.heading == START.heading && day.is_none() {
            true => &START_WITH_DAY,
            false => column,
        };
        let sides = columns.iter().map(with_day).flat_map(|column| [(column, 0), (column, 1)]);
        let is_shown = |(column, side): &(&ListColumn, usize)| {
            column.is_shown(*side, connections)
                || further.iter().any(|&index| column.is_shown(*side, &ranking[index..=index]))
        };
        let text_columns: Vec<_> = sides.filter(is_shown).collect();
        let mut columns: Vec<&ListColumn> = text_columns.iter().map(|&(column, _)| column).collect();
        columns.dedup_by_key(|column| column.heading);
        Self { connections, first, columns, text_columns, day, names: [None; 2] }
    }

    /// Names in text.
    pub fn with_names(self, names: Option<&'a EndNames>) -> Self {
        let has_name = |side: usize| {
            let name = |names: &&EndNames| self.connections.iter().any(|of| !name_of(names, of, side).is_empty());
            names.filter(name)
        };
        Self { names: [0, 1].map(has_name), ..self }
    }

    /// The connections in chunks, each with the index of its first one in the ranking.
    pub fn chunks(&self) -> impl Iterator<Item = (usize, &'a [Connection])> {
        (self.first..).step_by(CONNECTIONS_PER_CHUNK).zip(self.connections.chunks(CONNECTIONS_PER_CHUNK))
    }

    /// The text columns of each chunk, with what the list is sorted by. All chunks have the same columns of the
    /// same widths.
    pub fn text_chunks(&self, sorted: &SortedColumn) -> impl Iterator<Item = Vec<Column>> {
        let mut widths = Vec::new();
        for (_, chunk) in self.chunks() {
            let columns = self.text_columns(chunk, sorted);
            widths.resize(columns.len(), 0);
            for (column, width) in columns.iter().zip(&mut widths) {
                *width = column.width().max(*width);
            }
        }
        self.chunks().map(move |(_, chunk)| {
            let columns = self.text_columns(chunk, sorted).into_iter().zip(&widths);
            columns.map(|(column, &width)| column.widened(width)).collect()
        })
    }

    fn text_columns(&self, connections: &[Connection], sorted: &SortedColumn) -> Vec<Column> {
        let endpoint = |heading, right, text: &dyn Fn(&Connection) -> String| {
            Column::new(heading, right, connections.iter().map(text))
        };
        let mut columns = vec![
            endpoint("#", true, &|connection| connection.number.to_string()),
            endpoint("client", true, &|connection| connection.client.to_string()),
            endpoint("→", true, &|_| "→".into()),
            endpoint("server", false, &|connection| connection.server.to_string()),
        ];
        for (side, heading) in ["client name", "server name"].into_iter().enumerate() {
            let of_side = self.names[side].map(|names| connections.iter().map(move |of| name_of(names, of, side)));
            columns.extend(of_side.map(|cells| Column::new(heading, false, cells).optional(1)));
        }
        // If the terminal is narrow, the last columns are left out, but not the first, nor what the list
        // is sorted by, and the delay, which is the answer, only after all others.
        columns.extend((0..).zip(&self.text_columns).map(|(rank, &(column, side))| {
            let texts = connections.iter().map(|connection| (column.cell)(connection, side).text);
            let rank = match rank {
                0 => 0,
                _ if sorted.is(column, side) => 0,
                _ if column.heading == DELAY.heading => 1,
                _ => rank + 1,
            };
            Column::new(column.text_headings()[side], !column.is_text, texts).optional(rank)
        }));
        let is_shown = self.text_columns.iter().any(|&(column, side)| sorted.is(column, side));
        let own = sorted.own.as_ref().filter(|_| !is_shown);
        columns.extend(own.map(|(heading, cell)| Column::new(*heading, true, connections.iter().map(cell))));
        columns
    }

    /// The column headings explained.
    pub fn legend(&self) -> String {
        let explained = self.columns.iter().filter(|column| !column.meaning.is_empty());
        let meanings = explained.map(|column| match self.day.as_ref().filter(|_| column.heading == START.heading) {
            Some(day) => format!("{}: {}, {day}", column.heading, column.meaning),
            None => format!("{}: {}", column.heading, column.explanation()),
        });
        meanings.chain(["k, M and G are decimal".into()]).collect::<Vec<String>>().join("; ")
    }
}
