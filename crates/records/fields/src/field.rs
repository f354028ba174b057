//! What expressions and views read from a flow record: the columns, and words for what no single
//! column has (either side of a flow, the port of the service).

use crate::column::{Column, ColumnKind, Properties};
use crate::selection::{column, columns};
use crate::value::FieldValue;
use crate::words::Words;
use std::fmt;
use weir_flow::{Direction, FlowRecord, Place};
use weir_packet::{NO_LABEL, NO_VLAN, Network, Packet};
use weir_tcp::{ResponseTimes, SegmentClass, TcpReport};
use weir_text::similar;

/// What the values of a field are, and which literals are compared with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number up to a largest one.
    Number(u64),
    /// A whole number of octets.
    Octets,
    /// A number with a fraction.
    Fraction,
    /// Nanoseconds; the name ends with `_ns`, so a plain number is enough.
    Nanoseconds,
    /// Nanoseconds; a plain number is refused.
    Duration,
    /// A mean of nanoseconds.
    MeanNanoseconds,
    /// Nanoseconds since 1970-01-01 UTC.
    Time,
    /// An address.
    Address,
    /// A MAC address.
    Mac,
    /// An IP protocol, compared by its number.
    Protocol,
    /// TCP control bits.
    Flags,
    /// One or several of few words, without regard to case.
    Words(Words),
    /// Several names of the user, with regard to case.
    Names,
    /// Text that is compared exactly.
    Text,
    /// Text that is compared without regard to the case of ASCII letters.
    CaselessText,
    /// The same, for names of hosts: a dot at the end means nothing, either.
    HostName,
    /// Several texts of a kind, separated by commas.
    List(&'static Kind),
}

impl Kind {
    fn of(column: &Column) -> Self {
        match (column.kind, column.unit) {
            (ColumnKind::Time, _) => Self::Time,
            (ColumnKind::Integer, "octets") => Self::Octets,
            (ColumnKind::Integer, "ns") => Self::Nanoseconds,
            (ColumnKind::Integer, _) => Self::Number(u64::MAX),
            (ColumnKind::Number, "ns") => Self::MeanNanoseconds,
            (ColumnKind::Number, _) => Self::Fraction,
            (ColumnKind::Address, _) => Self::Address,
            (ColumnKind::Mac, _) => Self::Mac,
            (ColumnKind::TcpFlags, _) => Self::Flags,
            (ColumnKind::Names, _) => Self::Names,
            (ColumnKind::Text, _) if column.properties.is_list => Self::List(&Self::Text),
            (ColumnKind::CaselessText, _) if column.properties.is_list => Self::List(&Self::CaselessText),
            (ColumnKind::HostName, _) if column.properties.is_list => Self::List(&Self::HostName),
            (ColumnKind::CaselessText, _) => Self::CaselessText,
            (ColumnKind::HostName, _) => Self::HostName,
            (ColumnKind::Word | ColumnKind::Words | ColumnKind::Text, _) => {
                column.properties.words.map_or(Self::Text, Self::Words)
            }
        }
    }

    /// Whether `<` and `>` have a meaning.
    pub fn is_ordered(self) -> bool {
        !matches!(self, Self::Address | Self::Mac | Self::Protocol | Self::Flags | Self::Words(_) | Self::Names)
            && !self.is_text()
    }

    /// Whether the values are any text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::CaselessText | Self::HostName | Self::List(_))
    }

    /// Whether the values are a number of nanoseconds.
    pub fn is_time_span(self) -> bool {
        matches!(self, Self::Nanoseconds | Self::Duration | Self::MeanNanoseconds)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number(65_535) => "a port",
            Self::Number(_) | Self::Fraction => "a number",
            Self::Octets => "a number of octets",
            Self::Nanoseconds | Self::Duration | Self::MeanNanoseconds => "a duration",
            Self::Time => "a time",
            Self::Address => "an address",
            Self::Mac => "a MAC address",
            Self::Protocol => "a protocol",
            Self::Flags => "a set of TCP flags",
            Self::Words(_) => "a word",
            Self::Names => "a name",
            Self::Text | Self::CaselessText | Self::HostName | Self::List(_) => "text",
        })
    }
}

/// Reads a value from a record.
#[derive(Clone, Copy)]
pub enum Read {
    /// Of a column.
    Column(&'static Column),
    /// Of the whole flow.
    One(fn(&FlowRecord) -> FieldValue<'_>),
    /// Of the source and of the destination.
    Sides(fn(&FlowRecord) -> FieldValue<'_>, fn(&FlowRecord) -> FieldValue<'_>),
}

/// A field by its name.
#[derive(Clone, Copy)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// What the values are.
    pub kind: Kind,
    /// How they are read.
    pub read: Read,
    /// The column whose properties it has: its own, or one that it is read from.
    column: &'static str,
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Field {
    /// Its column, or one that it is read from.
    pub fn column(self) -> &'static Column {
        column(self.column).expect("the column exists")
    }

    /// The columns that it is read from, or computed from.
    pub fn columns(self) -> Vec<&'static Column> {
        let own = self.column();
        // Where a field of both sides has no direction, there is a column for each side.
        let other = own.name.strip_prefix("src_").and_then(|name| column(&format!("dst_{name}")).ok());
        let has_sides = field(self.name).is_some_and(|field| matches!(field.read, Read::Sides(..)));
        [own].into_iter().chain(other.filter(|_| has_sides)).collect()
    }

    /// The columns that a table has for it: of a field of both sides or directions, that of each.
    fn shown_columns(self) -> Vec<&'static Column> {
        let own = self.column();
        let of_other = |prefix, other| column(&format!("{other}{}", own.name.strip_prefix(prefix)?)).ok();
        let other = of_other("src_", "dst_").or_else(|| of_other("fwd_", "rev_"));
        [own].into_iter().chain(other.filter(|_| self.name != own.name)).collect()
    }

    /// The columns that have its values unchanged, for [`Bounds`](crate::Bounds): no record has others. Empty if it has
    /// no such columns.
    pub fn bounded_by(self) -> Vec<&'static Column> {
        match (self.name, self.read) {
            ("host" | "port" | "src_port" | "dst_port", _) => self.columns(),
            (_, Read::Column(column)) if column.is_restored() => vec![column],
            _ => Vec::new(),
        }
    }

    /// What else is known of it.
    pub fn properties(self) -> Properties {
        self.column().properties
    }

    /// Whether it is a number of which 0 says that there is none.
    pub fn is_count(self) -> bool {
        let is_counted = match self.read {
            Read::Column(column) => {
                matches!(column.unit, "packets" | "octets") || matches!(self.name, "bps" | "pps" | "bpp")
            }
            Read::One(_) | Read::Sides(..) => false,
        };
        is_counted || self.name.ends_with("_local")
    }

    /// The field of the source or of the destination, for a field of both sides.
    pub fn of_side(self, is_source: bool) -> Self {
        match self.read {
            Read::Sides(source, destination) => {
                Self { read: Read::One(if is_source { source } else { destination }), ..self }
            }
            Read::Column(_) | Read::One(_) => self,
        }
    }

    /// Whether this is one side of a field of both.
    pub fn is_of_one_side(&self) -> bool {
        let both = field(self.name).is_some_and(|field| matches!(field.read, Read::Sides(..)));
        both && !matches!(self.read, Read::Sides(..))
    }

    /// The value, and for a field of both sides that of the destination.
    #[inline]
    pub fn values<'a>(&self, flow: &'a FlowRecord) -> [FieldValue<'a>; 2] {
        match self.read {
            Read::Column(column) => [column.read(flow), FieldValue::NotApplicable],
            Read::One(read) => [read(flow), FieldValue::NotApplicable],
            Read::Sides(source, destination) => [source(flow), destination(flow)],
        }
    }
}

const PORT: Kind = Kind::Number(65_535);

/// The words that are no columns, or that are compared in another way than their column is written: ports
/// of protocols without ports do not apply, protocols are compared by number, durations need a unit.
const WORDS: [Field; 19] = [
    sides("host", "src_ip", Kind::Address, |flow| ip(flow.source_ip()), |flow| ip(flow.destination_ip())),
    sides("port", "src_port", PORT, source_port, destination_port),
    one("src_port", "src_port", PORT, source_port),
    one("dst_port", "dst_port", PORT, destination_port),
    one("service_port", "service_port", PORT, service_port),
    one("protocol", "protocol", Kind::Protocol, |flow| {
        when(flow.network != Network::Layer2, FieldValue::Protocol(flow.protocol))
    }),
    one("ip_version", "src_ip", Kind::Number(u64::MAX), ip_version),
    sides("flags", "fwd_tcp_flags", Kind::Flags, |flow| flags(flow, &flow.forward), |flow| flags(flow, &flow.reverse)),
    sides("vlan", "fwd_vlan_id", Kind::Number(4095), |flow| vlan(&flow.forward), |flow| vlan(&flow.reverse)),
    sides(
        "inner_vlan",
        "fwd_inner_vlan_id",
        Kind::Number(4095),
        |flow| inner_vlan(&flow.forward),
        |flow| inner_vlan(&flow.reverse),
    ),
    sides("mpls", "fwd_mpls_label", Kind::Number(0xf_ffff), |flow| mpls(&flow.forward), |flow| mpls(&flow.reverse)),
    sides("mac", "src_mac", Kind::Mac, |flow| mac(flow.mac_addresses()[0]), |flow| mac(flow.mac_addresses()[1])),
    sides("as", "src_as", Kind::Number(u32::MAX as u64), |flow| system(flow, 0), |flow| system(flow, 1)),
    sides("country", "src_country", Kind::CaselessText, |flow| country(flow, 0), |flow| country(flow, 1)),
    one("tunnel", "fwd_tunnel_type", Kind::Words(Words::TunnelType), |flow| {
        of_first(flow, |d| d.tunnel_type.name().map(|name| FieldValue::Code(d.tunnel_type as u8, name)))
    }),
    one("duration", "duration_ns", Kind::Duration, |flow| FieldValue::Unsigned(duration_ns(flow))),
    one("rtt", "rtt", Kind::Duration, rtt),
    one("response", "response", Kind::Duration, response),
    one("icmp_type", "fwd_icmp_type", Kind::Number(255), icmp),
];

/// What the words mean that are no columns.
const MEANINGS: [(&str, &str); 12] = [
    ("host", "Address of either side: `src_ip` and `dst_ip`."),
    ("port", "Port of either side: `src_port` and `dst_port`."),
    ("flags", "TCP flags: `fwd_tcp_flags` and `rev_tcp_flags`; in --by of both directions together."),
    ("vlan", "Outer VLAN ID of either direction; in --by of the forward direction, or else of the reverse direction."),
    ("inner_vlan", "Inner VLAN ID, in the same way."),
    ("mpls", "MPLS label, in the same way."),
    ("mac", "MAC address of either side: `src_mac` and `dst_mac`."),
    ("as", "Autonomous system of either side: `src_as` and `dst_as`."),
    ("country", "Country of either side: `src_country` and `dst_country`."),
    ("tunnel", "Tunnel type of the forward direction, or else of the reverse direction."),
    ("duration", "The same as `duration_ns`; a number needs a unit."),
    ("icmp_type", "ICMP or ICMPv6 type of the forward direction, or else of the reverse direction."),
];

/// The words of expressions and views that are no columns, each with its meaning.
pub fn words() -> impl Iterator<Item = (Field, &'static str)> {
    MEANINGS.iter().filter_map(|&(name, meaning)| Some((field(name)?, meaning)))
}

const fn one(name: &'static str, column: &'static str, kind: Kind, read: fn(&FlowRecord) -> FieldValue<'_>) -> Field {
    Field { name, kind, read: Read::One(read), column }
}

const fn sides(
    name: &'static str,
    column: &'static str,
    kind: Kind,
    source: fn(&FlowRecord) -> FieldValue<'_>,
    destination: fn(&FlowRecord) -> FieldValue<'_>,
) -> Field {
    Field { name, kind, read: Read::Sides(source, destination), column }
}

/// The field of a name: a word of this file, or a column.
pub fn field(name: &str) -> Option<Field> {
    let word = WORDS.iter().find(|word| word.name == name).copied();
    word.or_else(|| {
        let column = column(name).ok()?;
        Some(Field { name: column.name, kind: Kind::of(column), read: Read::Column(column), column: column.name })
    })
}

/// The field of a name in a view. What a packet header has once (VLAN, MPLS label) is that of the
/// first direction with packets.
pub fn view_field(name: &str) -> Option<Field> {
    let one = |name, kind, read| Some(Field { kind, read: Read::One(read), ..field(name)? });
    match name {
        "source" | "src" => field("src_ip"),
        "destination" | "dst" => field("dst_ip"),
        "proto" => field("protocol"),
        "vlan" => one("vlan", Kind::Number(4095), |flow| of_first(flow, |d| known(d.vlan != NO_VLAN, d.vlan.into()))),
        "inner_vlan" => one("inner_vlan", Kind::Number(4095), |flow| {
            of_first(flow, |d| known(d.inner_vlan != NO_VLAN, d.inner_vlan.into()))
        }),
        "mpls" => one("mpls", Kind::Number(0xf_ffff), |flow| {
            of_first(flow, |d| known(d.mpls_label != NO_LABEL, d.mpls_label.into()))
        }),
        "flags" => one("flags", Kind::Flags, |flow| {
            let applies = flow.protocol == 6 && flow.has_ports();
            let bits = flow.forward.tcp_flags | flow.reverse.tcp_flags;
            if applies { FieldValue::TcpFlags(bits) } else { FieldValue::NotApplicable }
        }),
        name => field(name),
    }
}

/// The columns of a word that is no column: `src_ip` and `dst_ip` of `host`.
pub(crate) fn columns_of_word(name: &str) -> Option<Vec<&'static Column>> {
    view_field(name).map(Field::shown_columns)
}

/// The name of the field that a column of the table shows, for its heading; other texts stay as they are.
pub fn name_of_heading(heading: &str) -> &str {
    match heading {
        "pkts→" => "fwd_packets",
        "←pkts" => "rev_packets",
        "bytes→" => "fwd_bytes",
        "←bytes" => "rev_bytes",
        "start" => "start_time",
        name => name,
    }
}

fn known(applies: bool, number: u64) -> Option<FieldValue<'static>> {
    applies.then_some(FieldValue::Unsigned(number))
}

/// The names that are near to an unknown one: the same field with a direction, or similar names.
pub fn near_names(name: &str) -> Vec<String> {
    const LISTED: usize = 3;
    let of_directions: Vec<String> = ["fwd_", "rev_"].iter().map(|prefix| format!("{prefix}{name}")).collect();
    if of_directions.iter().all(|name| field(name).is_some()) {
        return of_directions;
    }
    let names = WORDS.iter().map(|word| word.name).chain(columns().iter().map(|column| column.name));
    similar(name, names).into_iter().take(LISTED).map(String::from).collect()
}

/// The first of the ports that a client usually gets for itself (Linux: 32768 to 60999; IANA: 49152
/// to 65535).
pub const FIRST_EPHEMERAL_PORT: u16 = 32_768;

/// Whether the source is the server. It is not if the SYN was seen, because a server sends none.
/// Otherwise the first packet that was seen may be one of the server.
pub(crate) fn serves_source(flow: &FlowRecord) -> bool {
    let syn_seen = (flow.forward.tcp_flags | flow.reverse.tcp_flags) & Packet::SYN != 0;
    flow.has_ports()
        && !syn_seen
        && flow.destination_port >= FIRST_EPHEMERAL_PORT
        && flow.source_port < FIRST_EPHEMERAL_PORT
}

pub(crate) fn service_port(flow: &FlowRecord) -> FieldValue<'_> {
    if serves_source(flow) { source_port(flow) } else { destination_port(flow) }
}

pub(crate) fn server_ip(flow: &FlowRecord) -> FieldValue<'_> {
    ip(if serves_source(flow) { flow.source_ip() } else { flow.destination_ip() })
}

pub(crate) fn client_ip(flow: &FlowRecord) -> FieldValue<'_> {
    ip(if serves_source(flow) { flow.destination_ip() } else { flow.source_ip() })
}

fn when(applies: bool, value: FieldValue<'static>) -> FieldValue<'static> {
    if applies { value } else { FieldValue::NotApplicable }
}

fn ip(address: Option<std::net::IpAddr>) -> FieldValue<'static> {
    address.map_or(FieldValue::NotApplicable, FieldValue::Ip)
}

fn source_port(flow: &FlowRecord) -> FieldValue<'_> {
    when(flow.has_ports(), FieldValue::Unsigned(flow.source_port.into()))
}

fn destination_port(flow: &FlowRecord) -> FieldValue<'_> {
    when(flow.has_ports(), FieldValue::Unsigned(flow.destination_port.into()))
}

pub(crate) fn ip_version(flow: &FlowRecord) -> FieldValue<'static> {
    match flow.network {
        Network::Ipv4 => FieldValue::Unsigned(4),
        Network::Ipv6 => FieldValue::Unsigned(6),
        Network::Layer2 => FieldValue::NotApplicable,
    }
}

fn flags(flow: &FlowRecord, direction: &Direction) -> FieldValue<'static> {
    let applies = flow.protocol == 6 && flow.network != Network::Layer2 && direction.packets > 0;
    when(applies, FieldValue::TcpFlags(direction.tcp_flags))
}

fn vlan(direction: &Direction) -> FieldValue<'static> {
    when(direction.packets > 0 && direction.vlan != NO_VLAN, FieldValue::Unsigned(direction.vlan.into()))
}

fn inner_vlan(direction: &Direction) -> FieldValue<'static> {
    when(direction.packets > 0 && direction.inner_vlan != NO_VLAN, FieldValue::Unsigned(direction.inner_vlan.into()))
}

fn mpls(direction: &Direction) -> FieldValue<'static> {
    when(direction.packets > 0 && direction.mpls_label != NO_LABEL, FieldValue::Unsigned(direction.mpls_label.into()))
}

fn mac(address: Option<[u8; 6]>) -> FieldValue<'static> {
    address.map_or(FieldValue::NotApplicable, FieldValue::Mac)
}

/// The place of an endpoint: the source, or the destination.
fn place(flow: &FlowRecord, side: usize) -> Option<&Place> {
    let places = flow.places.as_ref()?;
    Some([&places.source, &places.destination][side])
}

fn system(flow: &FlowRecord, side: usize) -> FieldValue<'_> {
    let system = place(flow, side).and_then(|place| place.autonomous_system.as_ref());
    system.map_or(FieldValue::NotApplicable, |system| FieldValue::Unsigned(system.number.into()))
}

fn country(flow: &FlowRecord, side: usize) -> FieldValue<'_> {
    place(flow, side)
        .and_then(Place::country)
        .map_or(FieldValue::NotApplicable, |country| FieldValue::Text(country.into()))
}

/// A value of the forward direction, or of the reverse direction if the forward one has none.
pub fn of_first(flow: &FlowRecord, read: fn(&Direction) -> Option<FieldValue<'static>>) -> FieldValue<'static> {
    let value = |direction: &Direction| if direction.packets > 0 { read(direction) } else { None };
    value(&flow.forward).or_else(|| value(&flow.reverse)).unwrap_or(FieldValue::NotApplicable)
}

fn icmp(flow: &FlowRecord) -> FieldValue<'static> {
    if !flow.is_icmp() {
        return FieldValue::NotApplicable;
    }
    of_first(flow, |direction| Some(FieldValue::Unsigned(direction.icmp[0].into())))
}

/// Time from the first to the last packet.
pub fn duration_ns(flow: &FlowRecord) -> u64 {
    flow.end_ns().saturating_sub(flow.start_ns())
}

/// A rate over the duration of the record; does not apply to a record without duration.
pub(crate) fn per_second(flow: &FlowRecord, amount: f64) -> FieldValue<'static> {
    let ns = duration_ns(flow);
    when(ns > 0, FieldValue::Float(amount * 1e9 / ns.max(1) as f64))
}

/// A sum over both directions of TCP analysis.
fn tcp(flow: &FlowRecord, count: fn(&TcpReport) -> u64) -> Option<u64> {
    flow.tcp.as_ref().map(|[forward, reverse]| count(forward) + count(reverse))
}

pub(crate) fn retransmitted(flow: &FlowRecord) -> FieldValue<'static> {
    tcp(flow, TcpReport::retransmitted_segments).map_or(FieldValue::NotApplicable, FieldValue::Unsigned)
}

pub(crate) fn retransmitted_share(flow: &FlowRecord) -> FieldValue<'static> {
    let segments = tcp(flow, TcpReport::sequenced_segments).filter(|&segments| segments > 0);
    let retransmitted = tcp(flow, TcpReport::retransmitted_segments);
    segments.zip(retransmitted).map_or(FieldValue::NotApplicable, |(segments, retransmitted)| {
        FieldValue::Float(retransmitted as f64 / segments as f64)
    })
}

pub(crate) fn rtt(flow: &FlowRecord) -> FieldValue<'static> {
    let Some([forward, reverse]) = &flow.tcp else { return FieldValue::NotApplicable };
    let parts = forward.handshake_rtt_ns.zip(reverse.handshake_rtt_ns);
    parts.map_or(FieldValue::NotApplicable, |(one, other)| FieldValue::Unsigned(one.saturating_add(other)))
}

pub(crate) fn response(flow: &FlowRecord) -> FieldValue<'static> {
    let mean_ns = server_responses(flow).and_then(|times| times.sum_ns.checked_div(times.count));
    mean_ns.map_or(FieldValue::NotApplicable, FieldValue::Unsigned)
}

/// The round trips of the handshake between the capture point and the source, and the destination: only in the record
/// that has one SYN of each side. An answer to one of several SYN may be that to any of them (Karn's rule).
pub(crate) fn handshake_round_trips(flow: &FlowRecord) -> [Option<u64>; 2] {
    let is_single =
        |report: &TcpReport| report.syns() == 1 && report.count(SegmentClass::SynRetransmission).segments == 0;
    match &flow.tcp {
        Some(reports) if reports.iter().all(is_single) => reports.each_ref().map(|report| report.handshake_rtt_ns),
        _ => [None; 2],
    }
}

/// The initial round trip that sums of round trips have.
pub fn summed_rtt_ns(flow: &FlowRecord) -> Option<u64> {
    let [source, destination] = handshake_round_trips(flow);
    Some(source?.saturating_add(destination?))
}

/// The answers of the server without the round trip to it, if both are known: their number, and the sum of the times,
/// ns. The round trip is the shortest one of the handshake and of payload.
pub(crate) fn server_times(flow: &FlowRecord) -> Option<[u64; 2]> {
    let side = usize::from(!serves_source(flow));
    let report = &flow.tcp.as_ref()?[side];
    let (responses, round_trips) = (&report.responses, &report.round_trips);
    let handshake_ns = handshake_round_trips(flow)[side].filter(|_| responses.count > 0)?;
    let path_ns = if round_trips.count > 0 { handshake_ns.min(round_trips.min_ns) } else { handshake_ns };
    Some([responses.count, responses.sum_ns.saturating_sub(responses.count.saturating_mul(path_ns))])
}

/// The response times of the server.
pub fn server_responses(flow: &FlowRecord) -> Option<&ResponseTimes> {
    let [forward, reverse] = flow.tcp.as_ref()?;
    Some(if serves_source(flow) { &forward.responses } else { &reverse.responses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_column_or_has_a_meaning() {
        let names: Vec<&str> = words().map(|(word, _)| word.name).collect();
        let expected = WORDS.iter().map(|word| word.name).filter(|name| column(name).is_err());
        assert_eq!(names, expected.collect::<Vec<_>>());
    }

    #[test]
    fn the_words_of_every_column_are_known() {
        let is_word = |column: &&Column| matches!(column.kind, ColumnKind::Word | ColumnKind::Words);
        for column in columns().iter().filter(is_word) {
            let kind = field(column.name).expect("a column is a field").kind;
            assert!(matches!(kind, Kind::Words(_) | Kind::Protocol), "{}", column.name);
        }
    }
}
