//! Options of `weir clickhouse`.

use super::values::{FieldList, parse_fields};
use clap::{Args, Subcommand};
use weir_clickhouse::Topic;
use weir_text::units::parse_duration;

/// Print the tables that ClickHouse needs, and check one that it has
#[derive(Debug, Args)]
pub struct ClickHouse {
    #[command(subcommand)]
    pub command: ClickHouseCommand,
}

#[derive(Debug, Subcommand)]
pub enum ClickHouseCommand {
    Schema(Schema),
    Check(Check),
}

/// Print the statements that make a table for flow records, for clickhouse-client or another client
#[derive(Debug, Args)]
#[command(after_help = SCHEMA_EXAMPLES)]
pub struct Schema {
    /// Database of the table
    #[arg(long, value_name = "NAME", default_value = "weir")]
    pub database: String,

    /// Name of the table
    #[arg(long, value_name = "NAME", default_value = "flows")]
    pub table: String,

    /// Fields of the table: names, profiles (basic, layer2, tcp, places, applications, store, all) and patterns with *,
    /// separated by commas; see weir fields
    #[arg(long, value_name = "FIELDS", default_value = "store", value_parser = parse_fields)]
    pub fields: FieldList,

    /// Let the server remove rows this long after the start of their flow: 30d [default: rows stay]
    #[arg(long = "ttl", value_name = "TIME", value_parser = parse_ttl)]
    pub ttl_seconds: Option<u64>,

    /// Also make views, which the server fills with sums: of minutes, hosts, TCP quality and applications
    #[arg(long)]
    pub views: bool,

    /// Also make tables by which the server reads this topic of Kafka, which probes fill with -o
    /// 'kafka://BROKER/TOPIC?format=json&fields=FIELDS', with the fields of the table
    #[arg(long, value_name = "BROKER[,BROKER]/TOPIC", value_parser = parse_topic)]
    pub kafka: Option<Topic>,
}

/// Compare the table of a server with the rows that a sink would send
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct Check {
    /// The table, as in -o: clickhouse+http://HOST/DATABASE.TABLE?user=NAME&password-file=FILE
    #[arg(value_name = "SINK")]
    pub sink: String,

    /// Fields of the rows, if the sink has no fields=
    #[arg(long, value_name = "FIELDS", default_value = "store", value_parser = parse_fields)]
    pub fields: FieldList,

    /// Print only what does not fit
    #[arg(short, long)]
    pub quiet: bool,
}

/// Ten years.
const MAX_TTL_SECONDS: u64 = 3650 * 86_400;

/// The brokers get the port of Kafka if they have none.
fn parse_topic(text: &str) -> Result<Topic, String> {
    let is_name = |name: &str, others: &str| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || others.contains(letter))
    };
    let (brokers, name) = text.split_once('/').ok_or("it must be BROKER/TOPIC")?;
    if !is_name(name, "._-") || !brokers.split(',').all(|broker| is_name(broker, "._-:[]")) {
        return Err("brokers and topic have letters, digits, dots, underscores and hyphens".into());
    }
    let has_port = |broker: &str| match broker.rsplit_once(']') {
        Some((_, behind)) => behind.starts_with(':'),
        None => broker.contains(':'),
    };
    let with_port = |broker: &str| if has_port(broker) { broker.to_owned() } else { format!("{broker}:9092") };
    Ok(Topic { brokers: brokers.split(',').map(with_port).collect::<Vec<_>>().join(","), name: name.into() })
}

/// Whole seconds.
fn parse_ttl(text: &str) -> Result<u64, String> {
    match parse_duration(text).map_err(|error| error.to_string())? / 1_000_000_000 {
        0 => Err("rows stay at least 1s".into()),
        // Times of the server have 32 bits: in a longer time they would be over, and rows removed at once.
        seconds if seconds > MAX_TTL_SECONDS => Err("rows stay at most 3650d; without --ttl they stay".into()),
        seconds => Ok(seconds),
    }
}

const SCHEMA_EXAMPLES: &str = "\
Examples:
  weir clickhouse schema --ttl 30d --views > schema.sql            the table weir.flows and its views
  weir clickhouse schema | clickhouse-client --multiquery          make it
  weir clickhouse schema --table tcp --fields store,*_rtt_ns       more fields
  weir clickhouse schema --views --kafka kafka1,kafka2/flows       filled from a topic of Kafka

Exit codes:
  0  success
  1  usage error, or a field is missing that the table or a view needs";

const CHECK_EXAMPLES: &str = "\
Examples:
  weir clickhouse check clickhouse+http://192.0.2.1/weir.flows
  weir clickhouse check 'clickhouse+https://ch.example/weir.flows?user=weir&password-file=/etc/weir/clickhouse'

Exit codes:
  0  all rows fit the table, and it refuses a batch that it got before
  1  they do not, or it does not, or the server cannot be asked";
