//! Option values that are more than a plain number or word.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_export::{InvalidSink, InvalidSpec, SINK_KINDS, SinkSpec, ViewFormat};
use weir_fields::{Column, InvalidFields};
use weir_ledger::Timing;
use weir_probe::{OverloadPolicy, ShedOrder, ShedStep};
use weir_query::{Expression, ExpressionError, Share};
use weir_text::units::{ParseError, parse_bit_rate, parse_duration, parse_number, parse_size};
use weir_text::zone::{TimeError, Zone};

/// What `-o` names. An invalid output is refused together with all other problems of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Records(RecordSink),
    /// Sinks that divide the records: `balance:SINK,SINK`.
    Balanced(Vec<RecordSink>),
    /// Sinks of which one gets the records: `failover:SINK,SINK`.
    Failover(Vec<RecordSink>),
    /// Decoded packets instead of records: `packets:PATH`.
    Packets(PathBuf),
    Invalid(InvalidOutput),
}

impl Output {
    pub fn parse(text: &str) -> Self {
        if let Some(sinks) = text.strip_prefix(BALANCE) {
            return balanced(sinks).map_or_else(Self::Invalid, Self::Balanced);
        }
        if let Some(sinks) = text.strip_prefix(FAILOVER) {
            return failover(sinks).map_or_else(Self::Invalid, Self::Failover);
        }
        match text.strip_prefix("packets:") {
            Some(path) => Self::Packets(path.into()),
            None => RecordSink::parse(text).map_or_else(Self::Invalid, Self::Records),
        }
    }

    /// The sinks of flow records.
    pub fn sinks(&self) -> &[RecordSink] {
        match self {
            Self::Records(sink) => std::slice::from_ref(sink),
            Self::Balanced(sinks) | Self::Failover(sinks) => sinks,
            Self::Packets(_) | Self::Invalid(_) => &[],
        }
    }
}

const BALANCE: &str = "balance:";
const FAILOVER: &str = "failover:";
/// What cannot be one of several sinks.
const NO_MEMBERS: [&str; 3] = [BALANCE, FAILOVER, "packets:"];

/// The sinks behind `balance:`, each with its share.
fn balanced(text: &str) -> Result<Vec<RecordSink>, InvalidOutput> {
    let mut sinks = members(BALANCE, text)?;
    let of = sinks.len();
    sinks.iter_mut().enumerate().for_each(|(part, sink)| sink.share = Some(Share { part, of }));
    Ok(sinks)
}

/// The sinks behind `failover:`, each with its place.
fn failover(text: &str) -> Result<Vec<RecordSink>, InvalidOutput> {
    let mut sinks = members(FAILOVER, text)?;
    if let Some(sink) = sinks.iter().find(|sink| sink.condition.is_some()) {
        return Err(InvalidOutput::WhereOfMember(sink.spec.name().into()));
    }
    if let Some(sink) = sinks.iter().find(|sink| sink.spec.view_format() == Some(ViewFormat::Table)) {
        return Err(InvalidOutput::Nested { of: FAILOVER, sink: sink.to_string() });
    }
    if let Some(sink) = sinks[..sinks.len() - 1].iter().find(|sink| !sink.spec.has_intake()) {
        return Err(InvalidOutput::NoIntake(sink.to_string()));
    }
    sinks.iter_mut().enumerate().for_each(|(place, sink)| sink.failover = Some(place));
    Ok(sinks)
}

/// Two or more different sinks.
fn members(of: &'static str, text: &str) -> Result<Vec<RecordSink>, InvalidOutput> {
    let texts = split_sinks(text);
    if let Some(nested) = texts.iter().find(|sink| NO_MEMBERS.iter().any(|start| sink.starts_with(start))) {
        return Err(InvalidOutput::Nested { of, sink: (*nested).into() });
    }
    if texts.len() < 2 {
        return Err(InvalidOutput::OneSink { of, sink: text.into() });
    }
    let sinks = texts.iter().map(|text| RecordSink::parse(text)).collect::<Result<Vec<_>, _>>()?;
    for (at, sink) in sinks.iter().enumerate() {
        if sinks[..at].iter().any(|other| other.spec.writes_same(&sink.spec)) {
            return Err(InvalidOutput::SinkTwice { of, sink: sink.to_string() });
        }
    }
    Ok(sinks)
}

/// Splits a list of sinks at each comma that a scheme follows: `json:` or another that exists, or anything with `://`.
/// Any other comma is part of a sink, as in `fields=src_ip,dst_ip`.
fn split_sinks(text: &str) -> Vec<&str> {
    let begins_sink = |rest: &str| {
        let scheme = rest.split_once(':').map_or("", |(scheme, _)| scheme);
        let is_word = !scheme.is_empty() && scheme.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'+');
        let is_known = NO_MEMBERS.iter().any(|start| rest.starts_with(start))
            || SINK_KINDS.iter().any(|kind| kind.scheme == scheme);
        is_known || is_word && rest[scheme.len()..].starts_with("://")
    };
    let mut sinks = Vec::new();
    let mut start = 0;
    for (comma, _) in text.match_indices(',').filter(|(comma, _)| begins_sink(&text[comma + 1..])) {
        sinks.push(&text[start..comma]);
        start = comma + 1;
    }
    sinks.push(&text[start..]);
    sinks
}

/// A sink of flow records, and which of them it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSink {
    pub spec: SinkSpec,
    pub condition: Option<Expression>,
    /// Its share of the flows, if it divides them with others.
    pub share: Option<Share>,
    /// Its place in `failover:`, from 0.
    pub failover: Option<usize>,
}

impl RecordSink {
    pub fn parse(text: &str) -> Result<Self, InvalidOutput> {
        let spec: SinkSpec = text.parse()?;
        let condition = spec.condition().map(parse_expression).transpose();
        match condition {
            Ok(condition) => Ok(Self { spec, condition, share: None, failover: None }),
            Err(error) => Err(InvalidOutput::Where { sink: spec.name().into(), error: Box::new(error) }),
        }
    }

    /// Whether its collector gets the same records from another sink, too.
    pub fn repeats(&self, other: &Self) -> bool {
        let is_of_other_flows = match (self.share, other.share) {
            (Some(share), Some(other)) => share.of == other.of && share.part != other.part,
            _ => false,
        };
        self.spec.is_collector()
            && self.spec.writes_same(&other.spec)
            && self.condition == other.condition
            && !is_of_other_flows
    }

    /// A table.
    pub fn table(path: &str) -> Self {
        let spec = format!("table:{path}").parse().expect("a valid table");
        Self { spec, condition: None, share: None, failover: None }
    }
}

impl fmt::Display for RecordSink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(formatter)
    }
}

/// Sinks that transactions can have.
const TRANSACTION_SINKS: [&str; 7] = ["json", "csv", "parquet", "arrow", "json+unix", "json+tcp", "json+tls"];

/// Parses a sink of transactions.
pub fn parse_transaction_sink(text: &str) -> Result<RecordSink, InvalidOutput> {
    let mut sink = RecordSink::parse(text)?;
    if !TRANSACTION_SINKS.contains(&sink.spec.scheme()) {
        return Err(InvalidOutput::NoTransactions(sink.spec.scheme()));
    }
    if let Some(selection) = sink.spec.fields() {
        let is_stored = ["parquet", "arrow"].contains(&sink.spec.scheme());
        let columns = weir_fields::select_transaction_columns(selection, is_stored);
        let invalid = |error| InvalidSpec::of(sink.spec.name(), InvalidSink::from(error));
        sink.spec = sink.spec.with_columns(&columns.map_err(invalid)?)?;
    }
    Ok(sink)
}

/// Why an output is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutput {
    #[error(transparent)]
    Sink(#[from] InvalidSpec),
    #[error("{sink}: where: {error}")]
    Where { sink: String, error: Box<ExpressionError> },
    #[error(
        "{of}{sink}: this is not a list of sinks; write {of}SINK,SINK, each after the first with its scheme, as in \
         {of}json+tcp://h1:5170,json+tcp://h2:5170"
    )]
    OneSink { of: &'static str, sink: String },
    #[error("{of} {sink} cannot be one of its sinks; name sinks of flow records only")]
    Nested { of: &'static str, sink: String },
    #[error("{of} {sink} is there twice; name each sink once")]
    SinkTwice { of: &'static str, sink: String },
    #[error(
        "failover: {0} can only be the last sink, because Weir does not learn whether it takes records; the sinks before \
         it need a connection, as json+tcp:, ipfix+tls:, clickhouse+http: or kafka:"
    )]
    NoIntake(String),
    #[error(
        "transactions cannot be written to {0}; use one of json:PATH, csv:PATH, parquet:FOLDER, arrow:PATH, \
         json+unix:PATH, json+tcp://HOST:PORT and json+tls://HOST:PORT"
    )]
    NoTransactions(&'static str),
    #[error("failover: {0}: where= is not for one of its sinks, because each record goes to one of them; use --where")]
    WhereOfMember(String),
}

/// Fields of flow records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldList(pub Vec<&'static Column>);

/// Parses a selection of fields.
pub fn parse_fields(text: &str) -> Result<FieldList, InvalidFields> {
    weir_fields::select_columns(text).map(FieldList)
}

/// Why an option value is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidValue {
    #[error("use shed, lose, or an overload level from 0 to {MAX_LEVEL} (weir help overload)")]
    Overload,
    #[error("there is no '{0}'; there are: fingerprints, dpi, tcp")]
    ShedStep(String),
    #[error("name dpi and tcp once each, as in tcp,dpi; fingerprints is optional, once and before dpi")]
    ShedOrder,
    #[error(transparent)]
    Number(#[from] ParseError),
    #[error("use a number from 1 (all packets) to {MAX_POPULATION}")]
    Sample,
    #[error("'{0}' is neither a core number nor a range; write for example 2,3 or 2-5")]
    Cores(String),
    #[error("must be at least 1ms: rates of shorter intervals mean nothing")]
    Interval,
    #[error("there is no time '{name}'; there are: {}", Timing::NAMES.join(", "))]
    Time { name: String },
    #[error("'{0}' has no value; write for example sink_retry=100ms")]
    NoTime(String),
    #[error("use 0, or a size with its unit, up to {MAX_PACKET_OCTETS_TEXT}, as in 8MiB")]
    PacketOctets,
    #[error("use a number from {least} to {most}")]
    Range { least: f64, most: f64 },
}

const MAX_LEVEL: u8 = 13;
/// The sampling interval field of the NetFlow v5 header has 14 bits.
const MAX_POPULATION: u64 = (1 << 14) - 1;
/// Shortest interval of a view.
const MIN_INTERVAL_NS: u64 = 1_000_000;
/// Ports of a link.
const MAX_PORTS: u32 = 64;
/// An answer with the packets of a flow is in memory.
const MAX_PACKET_OCTETS: u64 = 64 << 20;
const MAX_PACKET_OCTETS_TEXT: &str = "64MiB";
/// Core numbers are below this.
const MAX_CORES: usize = 1024;

/// Parses `--overload`: `shed`, `lose` or a level.
pub fn parse_overload(text: &str) -> Result<OverloadPolicy, InvalidValue> {
    match (text, text.parse::<u8>()) {
        ("shed", _) => Ok(OverloadPolicy::Shed),
        ("lose", _) => Ok(OverloadPolicy::Lose),
        (_, Ok(level)) if level <= MAX_LEVEL => Ok(OverloadPolicy::Level(level)),
        _ => Err(InvalidValue::Overload),
    }
}

/// Parses `--shed`: `dpi` and `tcp` in any order, and perhaps `fingerprints` before `dpi`.
pub fn parse_shed(text: &str) -> Result<ShedOrder, InvalidValue> {
    let steps = text.split(',').map(|word| match word.trim() {
        "fingerprints" => Ok(ShedStep::Fingerprints),
        "dpi" => Ok(ShedStep::Inspection),
        "tcp" => Ok(ShedStep::TcpAnalysis),
        word => Err(InvalidValue::ShedStep(word.into())),
    });
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    ShedOrder::new(&steps).ok_or(InvalidValue::ShedOrder)
}

/// Parses `--every`, ns.
pub fn parse_interval(text: &str) -> Result<u64, InvalidValue> {
    match parse_duration(text) {
        Ok(0..MIN_INTERVAL_NS) | Err(ParseError::NoDuration) => Err(InvalidValue::Interval),
        parsed => Ok(parsed?),
    }
}

/// Parses an expression; its times without a zone are in the current one.
pub fn parse_expression(text: &str) -> Result<Expression, ExpressionError> {
    Expression::in_zone(text, Zone::current())
}

/// Parses a time of `--from` or `--to`: as in expressions, a time of today, or a duration before now.
pub fn parse_time(text: &str) -> Result<u64, String> {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    Zone::current().parse_relative(text, now_ns).map_err(|error| match error {
        TimeError::Form { .. } => "not a time; write for example 2026-11-20T12:00:00Z, 2026-11-20, 12:00 or -2h".into(),
        error => error.to_string(),
    })
}

/// Parses `--listen-packets`: 0, or octets with a unit.
pub fn parse_packet_octets(text: &str) -> Result<usize, InvalidValue> {
    let size = if text == "0" { Some(0) } else { parse_size(text) };
    size.filter(|size| *size <= MAX_PACKET_OCTETS).map(|size| size as usize).ok_or(InvalidValue::PacketOctets)
}

/// Parses `--groups`: the groups of a view have numbers of 32 bits.
pub fn parse_groups(text: &str) -> Result<u64, InvalidValue> {
    const MAX: u64 = u32::MAX as u64;
    match parse_number(text)? {
        groups @ 1..=MAX => Ok(groups),
        _ => Err(ParseError::Range { min: 1, max: MAX }.into()),
    }
}

/// Parses `--sample`: N of "one packet in N".
pub fn parse_sample(text: &str) -> Result<u32, InvalidValue> {
    match parse_number(text)? {
        number @ 1..=MAX_POPULATION => Ok(number as u32),
        _ => Err(InvalidValue::Sample),
    }
}

/// Parses `--timing`: `NAME=TIME`, joined by commas.
pub fn parse_timing(text: &str) -> Result<Timing, InvalidValue> {
    let mut timing = Timing::default();
    for part in text.split(',') {
        let (name, time) = part.split_once('=').ok_or_else(|| InvalidValue::NoTime(part.into()))?;
        let field = timing.field_mut(name).ok_or_else(|| InvalidValue::Time { name: name.into() })?;
        *field = Duration::from_nanos(parse_duration(time)?);
    }
    Ok(timing)
}

/// Core numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

/// Parses a list of cores in the kernel's format: `2,3,8-11`.
pub fn parse_cores(text: &str) -> Result<Cores, InvalidValue> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < MAX_CORES => cores.extend(first..=last),
            _ => return Err(InvalidValue::Cores(part.into())),
        }
    }
    Ok(Cores(cores))
}

/// A link: one port, or the ports of a break-out cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub ports: u32,
    /// Of each port.
    pub bits_per_second: u64,
}

/// Parses the speed of a link: `100G`, or `4x25G` for four ports of 25 Gbit/s.
pub fn parse_link(text: &str) -> Result<Link, InvalidValue> {
    let ports = text.split_once('x').and_then(|(ports, rate)| Some((ports.parse::<u32>().ok()?, rate)));
    let (ports, rate) = ports.unwrap_or((1, text));
    match ports {
        1..=MAX_PORTS => Ok(Link { ports, bits_per_second: parse_bit_rate(rate)? }),
        _ => Err(ParseError::Range { min: 1, max: MAX_PORTS.into() }.into()),
    }
}

/// Parses seconds or minutes of a benchmark.
pub fn parse_seconds(text: &str) -> Result<f64, InvalidValue> {
    parse_decimal(text, 0.01, 100_000.0)
}

/// Parses million packets per second.
pub fn parse_mpps(text: &str) -> Result<f64, InvalidValue> {
    parse_decimal(text, 0.001, 10_000.0)
}

fn parse_decimal(text: &str, least: f64, most: f64) -> Result<f64, InvalidValue> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or(InvalidValue::Range { least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_names_and_units() {
        let timing = parse_timing("sink_retry=50ms,sink_timeout=2s").unwrap();
        let expected =
            Timing { sink_retry: Duration::from_millis(50), sink_timeout: Duration::from_secs(2), ..Timing::default() };
        assert_eq!(timing, expected);
        for (text, reason) in [
            ("sink_retires=1s", "there is no time 'sink_retires'; there are: sink_retry, "),
            ("", "'' has no value"),
            ("sink_retry", "'sink_retry' has no value; write for example sink_retry=100ms"),
            ("sink_retry=1s,", "'' has no value"),
            ("sink_retry=soon", "'soon' is not a unit of time"),
            ("sink_retry=0s", "must be at least 1ns"),
        ] {
            let error = parse_timing(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
