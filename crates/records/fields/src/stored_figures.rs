//! The figures of stored rows, from their columns: the same as those of the records.

use crate::column::Column;
use crate::field::FIRST_EPHEMERAL_PORT;
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

/// Fields that follow from the stored values of [`Restored::sources`], the protocol, the version of IP, and the
/// application alone.
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
    /// TCP segments with payload, SYN or FIN.
    pub segments: u64,
    /// Of these, retransmitted.
    pub retransmitted: u64,
    /// Initial round trip of a TCP connection that sums have.
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
    l2_bytes: Option<usize>,
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
                l2_bytes: of("l2_bytes"),
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

    /// Whether fields may depend on a column although they are not computed from it: on the protocol, on the version of
    /// IP that an address has, and on the application.
    pub fn always_decides(column: &Column) -> bool {
        ["protocol", "src_ip", "dst_ip", "application"].contains(&column.name)
    }

    /// Whether a field follows from what [`Self::has_field`] says, and from whether directions have packets.
    pub fn is_of_packets(name: &str) -> bool {
        name == "flags"
    }

    /// Whether a column has the packets of a direction.
    pub fn is_packets(column: &Column) -> bool {
        ["fwd_packets", "rev_packets"].contains(&column.name)
    }

    /// The columns of the source and of the destination of which a field has the one of the server, or of the client, and
    /// whether it is that of the server.
    pub fn of_role(name: &str) -> Option<([&'static str; 2], bool)> {
        match name {
            "server_ip" => Some((["src_ip", "dst_ip"], true)),
            "client_ip" => Some((["src_ip", "dst_ip"], false)),
            "service_port" => Some((["src_port", "dst_port"], true)),
            _ => None,
        }
    }

    /// Whether null means the same as 0 in a column: it is added to others.
    pub fn is_zero_nothing(column: &Column) -> bool {
        let name = column.name.strip_prefix("fwd_").or_else(|| column.name.strip_prefix("rev_")).unwrap_or_default();
        SEGMENTS.contains(&name) || ["tcp_syn_count", "tcp_syn_retransmitted", "tcp_response_count"].contains(&name)
    }
}

/// The figures of rows column by column, each with a number for each row; empty if it is not read, or 0 in all rows.
pub struct FigureColumns<'a> {
    /// Packets of both directions.
    pub packets: [&'a [u64]; 2],
    /// IP octets of both directions.
    pub bytes: [&'a [u64]; 2],
    /// Octets on the wire of both directions.
    pub l2_bytes: [&'a [u64]; 2],
    /// Earliest packet, ns since 1970 UTC.
    pub first_ns: &'a [u64],
    /// Latest packet.
    pub last_ns: &'a [u64],
    /// TCP segments with payload, SYN or FIN.
    pub segments: &'a [u64],
    /// Of these, retransmitted.
    pub retransmitted: &'a [u64],
    /// Of these, those whose original was lost before the capture point.
    pub lost_before_capture: &'a [u64],
    /// Whether [`StoredFigures::rtt_ns`] of some row may be known.
    pub has_rtts: bool,
    /// Whether [`StoredFigures::responses`] of some row may not be 0.
    pub has_responses: bool,
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
            |row: usize| figures.addresses.iter().flatten().any(|place| rows.columns[*place].has_text(row));
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

    /// The columns of rows that were prepared.
    pub fn columns<'a>(&'a self, figures: &Figures, rows: &'a StoredRows) -> FigureColumns<'a> {
        let numbers = |place: usize| rows.columns[place].numbers().map_or(&[][..], |rows| rows.values.as_slice());
        let both = |place: fn(&Side) -> Option<usize>| {
            figures.sides.each_ref().map(|side| place(side).map_or(&[][..], numbers))
        };
        let is_read =
            |place: Option<usize>| place.is_some_and(|place| !matches!(rows.columns[place], StoredColumn::Nothing));
        let any = |place: fn(&Side) -> Option<usize>| figures.sides.iter().any(|side| is_read(place(side)));
        let has_segments = figures.sides.iter().any(|side| {
            let places = side.segments.iter().chain([&side.syns, &side.syn_retransmissions]);
            places.copied().any(is_read)
        });
        let of_segments = |numbers: &'a [u64]| if has_segments { numbers } else { &[] };
        FigureColumns {
            packets: both(|side| Some(side.packets)),
            bytes: both(|side| Some(side.bytes)),
            l2_bytes: both(|side| side.l2_bytes),
            first_ns: numbers(figures.start),
            last_ns: numbers(figures.end),
            segments: of_segments(&self.segments),
            retransmitted: of_segments(&self.retransmitted),
            lost_before_capture: of_segments(&self.unseen),
            has_rtts: figures.sides.iter().all(|side| is_read(side.handshake)),
            has_responses: any(|side| side.responses) || any(|side| side.response_max),
        }
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
        let l2_bytes = [0, 1].map(|side| figures.sides[side].l2_bytes.map_or(0, number));
        let [responses, response_sum_ns, response_max_ns] = self.responses(figures, rows, row);
        RowFigures {
            packets: both(|side| side.packets),
            bytes: both(|side| side.bytes),
            l2_bytes: l2_bytes[0].wrapping_add(l2_bytes[1]),
            first_ns: number(figures.start),
            last_ns: number(figures.end),
            segments: self.segments[row],
            retransmitted: self.retransmitted[row],
            rtt_ns: self.rtt_ns(figures, rows, row),
            responses,
            response_sum_ns,
            response_max_ns,
        }
    }

    /// The IP protocol of a row; `None` without IP.
    #[inline]
    pub fn ip_protocol(&self, figures: &Figures, rows: &StoredRows, row: usize) -> Option<u8> {
        let has_address = figures.addresses.iter().flatten().any(|place| rows.columns[*place].has_text(row));
        has_address.then(|| self.protocol(figures, rows, row))
    }

    /// Whether the source of a row that was prepared is the server.
    #[inline]
    pub fn is_source_server(&self, figures: &Figures, rows: &StoredRows, row: usize) -> bool {
        self.serves_source(figures, rows, row, self.ip_protocol(figures, rows, row))
    }

    /// The initial round trip of a row that sums have, as [`crate::summed_rtt_ns`] decides.
    #[inline]
    pub fn rtt_ns(&self, figures: &Figures, rows: &StoredRows, row: usize) -> Option<u64> {
        let of_side = |side: &Side| {
            let [syns, again] =
                [side.syns, side.syn_retransmissions].map(|place| some(place, rows, row).unwrap_or_default());
            some(side.handshake, rows, row).filter(|_| (syns, again) == (1, 0))
        };
        let [one, other] = figures.sides.each_ref().map(of_side);
        Some(one?.saturating_add(other?))
    }

    /// The number of answers of the server with a known response time, the sum of these times, and the longest, ns.
    #[inline]
    pub fn responses(&self, figures: &Figures, rows: &StoredRows, row: usize) -> [u64; 3] {
        let server = &figures.sides[usize::from(!self.is_source_server(figures, rows, row))];
        let responses = some(server.responses, rows, row).unwrap_or_default();
        let longest = some(server.response_max, rows, row);
        // The number of answers that is stored, of which there may be none.
        let sum_ns = match server.response_mean.map(|place| &rows.columns[place]) {
            Some(StoredColumn::Float(mean)) => (mean.values[row] * responses as f64).round() as u64,
            _ => 0,
        };
        [if longest.is_some() { responses.max(1) } else { responses }, sum_ns, longest.unwrap_or_default()]
    }

    /// Whether the source is the server, as [`crate::server_responses`] decides.
    #[inline]
    fn serves_source(&self, figures: &Figures, rows: &StoredRows, row: usize, protocol: Option<u8>) -> bool {
        let first_ephemeral = u64::from(FIRST_EPHEMERAL_PORT);
        let port =
            |place: Option<usize>| place.and_then(|place| rows.columns[place].numbers()).map_or(0, |of| of.values[row]);
        let [source, destination] = figures.ports.map(port);
        let has_ports = matches!(protocol, Some(6 | 17 | 33 | 132 | 136));
        has_ports && destination >= first_ephemeral && source < first_ephemeral && {
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

/// The integer of a row, if it has one.
#[inline]
fn some(place: Option<usize>, rows: &StoredRows, row: usize) -> Option<u64> {
    let numbers = rows.columns[place?].numbers()?;
    numbers.has(row).then(|| numbers.values[row])
}

fn add(sums: &mut [u64], numbers: &[u64]) {
    sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
}
