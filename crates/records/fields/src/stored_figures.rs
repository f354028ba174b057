//! The figures of stored rows, from their columns: the same as those of the records.

use crate::column::Column;
use crate::restored::Restored;
use crate::selection;
use crate::stored_rows::{Rows, StoredColumn, StoredRows, StoredText};
use weir_flow::FlowRecord;
use weir_packet::Packet;

/// No protocol: that of a record without one.
const NO_PROTOCOL: u8 = u8::MAX;
/// Entries of counts of segments whose sum is the segments of a view, beside SYN and their retransmissions.
const SEGMENTS: [&str; 6] = [
    "tcp_in_order_packets",
    "tcp_out_of_order",
    "tcp_zero_window_probes",
    "tcp_out_of_window",
    "tcp_retransmitted_packets",
    "tcp_retransmitted_unseen",
];

/// Fields that follow from the stored values of [`Restored::sources`], the protocol, and the version of IP alone.
const FIELDS: [&str; 41] = [
    "application",
    "bytes",
    "client_ip",
    "dns_answers",
    "dns_forgotten",
    "dns_name",
    "dns_nxdomain",
    "dns_other_errors",
    "dns_queries",
    "dns_refused",
    "dns_servfail",
    "dns_unanswered",
    "dst_ip",
    "dst_port",
    "end_reason",
    "fwd_bytes",
    "fwd_l2_bytes",
    "fwd_packets",
    "host",
    "http_4xx",
    "http_5xx",
    "http_host",
    "http_path",
    "http_requests",
    "interface",
    "ip_version",
    "l2_bytes",
    "packets",
    "port",
    "protocol",
    "protocol_number",
    "response",
    "rev_bytes",
    "rev_l2_bytes",
    "rev_packets",
    "rtt",
    "server_ip",
    "service_port",
    "src_ip",
    "src_port",
    "tcp_failure",
];

/// The figures of a row, as those of its record.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowFigures {
    /// Packets of both directions.
    pub packets: [u64; 2],
    /// IP octets of both directions.
    pub bytes: [u64; 2],
    /// Octets on the wire.
    pub l2_bytes: u64,
    /// Earliest packet, ns since 1970 UTC.
    pub first_ns: u64,
    /// Latest packet.
    pub last_ns: u64,
    /// The IP protocol; `None` without IP.
    pub protocol: Option<u8>,
    /// TCP segments with payload, SYN or FIN.
    pub segments: u64,
    /// Of these, retransmitted.
    pub retransmitted: u64,
    /// Of these, those whose original was lost before the capture point.
    pub lost_before_capture: u64,
    /// Initial round trip of a TCP connection, if it is known.
    pub rtt_ns: Option<u64>,
    /// Answers of a TCP server with a known response time.
    pub responses: u64,
    /// Sum of these response times, ns.
    pub response_sum_ns: u64,
    /// Longest of these response times, ns.
    pub response_max_ns: u64,
}

/// Places of columns; `None` if one is not read.
pub struct Figures {
    start: usize,
    end: usize,
    protocol: usize,
    addresses: [Option<usize>; 2],
    ports: [Option<usize>; 2],
    sides: [Side; 2],
}

/// Places of the columns of a direction.
struct Side {
    packets: usize,
    bytes: usize,
    l2_bytes: usize,
    flags: Option<usize>,
    syns: Option<usize>,
    syn_retransmissions: Option<usize>,
    segments: [Option<usize>; SEGMENTS.len()],
    handshake: Option<usize>,
    responses: Option<usize>,
    response_mean: Option<usize>,
    response_max: Option<usize>,
}

impl Figures {
    /// `None` if a column is not read without which a record is none.
    pub fn new(columns: &[&'static Column]) -> Option<Self> {
        let place = |name: &str| columns.iter().position(|column| column.name == name);
        let side = |prefix: &str| {
            let of = |name: &str| place(&format!("{prefix}_{name}"));
            Some(Side {
                packets: of("packets")?,
                bytes: of("bytes")?,
                l2_bytes: of("l2_bytes")?,
                flags: of("tcp_flags"),
                syns: of("tcp_syn_count"),
                syn_retransmissions: of("tcp_syn_retransmitted"),
                segments: SEGMENTS.map(of),
                handshake: of("tcp_handshake_rtt_ns"),
                responses: of("tcp_response_count"),
                response_mean: of("tcp_response_mean_ns"),
                response_max: of("tcp_response_max_ns"),
            })
        };
        Some(Self {
            start: place("start_time")?,
            end: place("end_time")?,
            protocol: place("protocol")?,
            addresses: [place("src_ip"), place("dst_ip")],
            ports: [place("src_port"), place("dst_port")],
            sides: [side("fwd")?, side("rev")?],
        })
    }

    /// Whether a field follows from [`Restored::sources`] and from what [`Self::always_decides`] says.
    pub fn has_field(name: &str) -> bool {
        FIELDS.contains(&name)
    }

    /// Whether fields may depend on a column although they are not computed from it: on the protocol, and on the version
    /// of IP that an address has.
    pub fn always_decides(column: &Column) -> bool {
        ["protocol", "src_ip", "dst_ip"].contains(&column.name)
    }

    /// Whether null means the same as 0 in a column: it is added to others.
    pub fn is_zero_nothing(column: &Column) -> bool {
        let name = column.name.strip_prefix("fwd_").or_else(|| column.name.strip_prefix("rev_")).unwrap_or_default();
        SEGMENTS.contains(&name) || ["tcp_syn_count", "tcp_syn_retransmitted", "tcp_response_count"].contains(&name)
    }
}

/// What is computed of the rows that are decoded, and of the texts of a row group.
#[derive(Default)]
pub struct StoredFigures {
    /// The protocol of each text.
    protocols: Vec<u8>,
    /// The TCP flags of each text, of each direction.
    flags: [Vec<u16>; 2],
    /// Of each row.
    segments: Vec<u64>,
    retransmitted: Vec<u64>,
    unseen: Vec<u64>,
}

impl StoredFigures {
    /// Checks what makes rows flows, as [`Restored::finish`] does, with the columns that are set. Returns the times of
    /// start, if they are flows.
    pub fn check<'a>(&mut self, figures: &Figures, rows: &'a StoredRows) -> Option<&'a Rows<u64>> {
        let column = |place: usize| rows.columns[place].numbers();
        let (starts, ends) = (column(figures.start)?, column(figures.end)?);
        let [forward, reverse] = [&figures.sides[0], &figures.sides[1]].map(|side| column(side.packets));
        let (forward, reverse) = (forward?, reverse?);
        let are_times = starts.values.iter().zip(&ends.values).all(|(start, end)| start <= end);
        let are_packets = forward.values.iter().zip(&reverse.values).all(|(one, other)| one | other != 0);
        if !are_times || !are_packets || !self.read_protocols(&rows.columns[figures.protocol]) {
            return None;
        }
        let has_address =
            |row: usize| figures.addresses.iter().flatten().any(|place| rows.columns[*place].address(row).is_some());
        let is_flow = |row: usize| self.protocol(figures, rows, row) == NO_PROTOCOL || has_address(row);
        (0..rows.rows).all(is_flow).then_some(starts)
    }

    /// Computes the figures of rows of which all columns are set. Returns whether all are flows.
    pub fn prepare(&mut self, figures: &Figures, rows: &StoredRows) -> bool {
        if self.check(figures, rows).is_none() {
            return false;
        }
        let read = |flow: &FlowRecord| flow.forward.tcp_flags | flow.reverse.tcp_flags;
        let names = ["fwd_tcp_flags", "rev_tcp_flags"];
        for ((side, flags), name) in figures.sides.iter().zip(&mut self.flags).zip(names) {
            if !side.flags.is_none_or(|place| read_texts(&rows.columns[place], name, flags, read)) {
                return false;
            }
        }
        let are_ports = |place: &usize| {
            let ports = rows.columns[*place].numbers().map_or(&[][..], |ports| &ports.values);
            ports.iter().all(|port| *port <= u16::MAX.into())
        };
        if !figures.ports.iter().flatten().all(are_ports) {
            return false;
        }
        let mut means = figures.sides.iter().filter_map(|side| side.response_mean).map(|place| &rows.columns[place]);
        let is_valid = |mean: &StoredColumn| match mean {
            StoredColumn::Float(of) => of.values.iter().all(|mean| mean.is_finite() && *mean >= 0.0),
            _ => true,
        };
        if !means.all(is_valid) {
            return false;
        }
        for sums in [&mut self.segments, &mut self.retransmitted, &mut self.unseen] {
            sums.clear();
            sums.resize(rows.rows, 0);
        }
        figures.sides.iter().for_each(|side| self.add_segments(side, rows));
        true
    }

    fn add_segments(&mut self, side: &Side, rows: &StoredRows) {
        let numbers = |place: Option<usize>| rows.columns[place?].numbers().map(|rows| rows.values.as_slice());
        for (at, place) in side.segments.iter().enumerate() {
            let Some(numbers) = numbers(*place) else { continue };
            add(&mut self.segments, numbers);
            if at >= 4 {
                add(&mut self.retransmitted, numbers);
            }
            if at == 5 {
                add(&mut self.unseen, numbers);
            }
        }
        // SYN were counted with their retransmissions.
        match (numbers(side.syns), numbers(side.syn_retransmissions)) {
            (Some(syns), None) => add(&mut self.segments, syns),
            (None, Some(again)) => {
                add(&mut self.segments, again);
                add(&mut self.retransmitted, again);
            }
            (Some(syns), Some(again)) => {
                let more = self.segments.iter_mut().zip(syns).zip(again);
                more.for_each(|((sum, syns), again)| *sum = sum.wrapping_add(*syns.max(again)));
                add(&mut self.retransmitted, again);
            }
            (None, None) => {}
        }
    }

    /// The figures of a row that was prepared.
    #[inline]
    pub fn of(&self, figures: &Figures, rows: &StoredRows, row: usize) -> RowFigures {
        let number = |place: usize| rows.columns[place].numbers().map_or(0, |rows| rows.values[row]);
        let both = |place: fn(&Side) -> usize| [number(place(&figures.sides[0])), number(place(&figures.sides[1]))];
        let l2_bytes = both(|side| side.l2_bytes);
        let some = |place: Option<usize>| {
            let numbers = rows.columns[place?].numbers()?;
            numbers.has(row).then(|| numbers.values[row])
        };
        let handshakes = some(figures.sides[0].handshake).zip(some(figures.sides[1].handshake));
        let protocol = self.protocol(figures, rows, row);
        let has_address = figures.addresses.iter().flatten().any(|place| rows.columns[*place].address(row).is_some());
        let protocol = has_address.then_some(protocol);
        let server = &figures.sides[usize::from(!self.serves_source(figures, rows, row, protocol))];
        let responses = some(server.responses).unwrap_or_default();
        let longest = some(server.response_max);
        // The number of answers that is stored, of which there may be none.
        let response_sum_ns = match server.response_mean.map(|place| &rows.columns[place]) {
            Some(StoredColumn::Float(mean)) => (mean.values[row] * responses as f64).round() as u64,
            _ => 0,
        };
        RowFigures {
            packets: both(|side| side.packets),
            bytes: both(|side| side.bytes),
            l2_bytes: l2_bytes[0].wrapping_add(l2_bytes[1]),
            first_ns: number(figures.start),
            last_ns: number(figures.end),
            protocol,
            segments: self.segments[row],
            retransmitted: self.retransmitted[row],
            lost_before_capture: self.unseen[row],
            rtt_ns: handshakes.map(|(one, other)| one.saturating_add(other)),
            responses: if longest.is_some() { responses.max(1) } else { responses },
            response_sum_ns,
            response_max_ns: longest.unwrap_or_default(),
        }
    }

    /// Whether the source is the server, as [`crate::server_responses`] decides.
    #[inline]
    fn serves_source(&self, figures: &Figures, rows: &StoredRows, row: usize, protocol: Option<u8>) -> bool {
        const FIRST_EPHEMERAL_PORT: u64 = 32_768;
        let port =
            |place: Option<usize>| place.and_then(|place| rows.columns[place].numbers()).map_or(0, |of| of.values[row]);
        let [source, destination] = figures.ports.map(port);
        let has_ports = matches!(protocol, Some(6 | 17 | 33 | 132 | 136));
        has_ports && destination >= FIRST_EPHEMERAL_PORT && source < FIRST_EPHEMERAL_PORT && {
            let flags = |at: usize| match figures.sides[at].flags.map(|place| &rows.columns[place]) {
                Some(StoredColumn::Text { places, .. }) => {
                    self.flags[at].get(places[row] as usize).copied().unwrap_or(0)
                }
                _ => 0,
            };
            (flags(0) | flags(1)) & Packet::SYN == 0
        }
    }

    #[inline]
    fn protocol(&self, figures: &Figures, rows: &StoredRows, row: usize) -> u8 {
        match &rows.columns[figures.protocol] {
            StoredColumn::Text { places, .. } => {
                self.protocols.get(places[row] as usize).copied().unwrap_or(NO_PROTOCOL)
            }
            _ => NO_PROTOCOL,
        }
    }

    fn read_protocols(&mut self, column: &StoredColumn) -> bool {
        read_texts(column, "protocol", &mut self.protocols, |flow| flow.protocol)
    }
}

/// Appends what stands for each new text of a column. Returns whether all are values of the column.
fn read_texts<T>(column: &StoredColumn, name: &str, known: &mut Vec<T>, read: impl Fn(&FlowRecord) -> T) -> bool {
    let (StoredColumn::Text { values, .. }, Ok(column)) = (column, selection::column(name)) else { return true };
    values[known.len()..].iter().all(|text: &StoredText| {
        let mut flow = Restored::begin();
        let is_valid = column.restore(&mut flow, text.value());
        known.push(read(&flow));
        is_valid
    })
}

fn add(sums: &mut [u64], numbers: &[u64]) {
    sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
}
