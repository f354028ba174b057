//! Options of `weir query`.

use super::values::parse_time;
use super::{Hardening, INPUT, OUTPUT, OutputFiles, PERFORMANCE};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weir_text::units::{parse_duration, parse_number};

/// Ask stored flows in SQL, or by a ready question
///
/// Queries are SELECT statements of DuckDB, whose library does the work. The view flows has the stored flows, a column
/// per field (weir help query). Without QUERY, the ready questions are listed
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Query {
    /// A SELECT statement, the name of a ready question, or - for SQL at standard input. SQL may name files: from 'x.pcap',
    /// 'x.parquet', 'x.csv', 'x.json'
    #[arg(value_name = "SQL|QUESTION")]
    pub query: Option<String>,

    /// The address of the question host
    #[arg(value_name = "ADDRESS")]
    pub address: Option<String>,

    /// What the view flows has: stores (folders), Parquet, CSV, JSON and IPFIX files, files of nfdump,
    /// captures. Several are joined [default: WEIR_STORE of the environment, or flows]
    #[arg(short = 'i', long = "input", value_name = "PATH", help_heading = INPUT)]
    pub inputs: Vec<PathBuf>,

    /// Only flows that start at this time and later: 2026-11-20T12:00:00Z, 2026-11-20T12:00:00.5, 2026-11-20, 12:00 (today), -2h (before now); UTC without a zone
    #[arg(long = "from", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub from_ns: Option<u64>,

    /// Only flows that start at this time and earlier
    #[arg(long = "to", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub to_ns: Option<u64>,

    /// Rows of a ready question; 0 for all
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = OUTPUT)]
    pub top: u64,

    /// Length of a step of the question timeline
    #[arg(long = "every", value_name = "TIME", value_parser = parse_step, default_value = "5m", help_heading = OUTPUT)]
    pub every_ns: u64,

    /// Format of the result [default: by the name of the file; table at standard output]
    #[arg(long, value_name = "FORMAT", help_heading = OUTPUT)]
    pub format: Option<QueryFormat>,

    /// File for the result: .csv, .json (an object per line) or .parquet
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,

    #[command(flatten, next_help_heading = OUTPUT)]
    pub output_files: OutputFiles,

    /// Print the SQL, and do not run it: for DuckDB's own shell, or a ready question for ClickHouse
    #[arg(long, value_name = "ENGINE", num_args = 0..=1, require_equals = true, default_missing_value = "duckdb", help_heading = OUTPUT)]
    pub print_sql: Option<SqlEngine>,

    /// The table that a question for ClickHouse asks [default: weir.flows]
    #[arg(long, value_name = "DATABASE.TABLE", requires = "print_sql", help_heading = OUTPUT)]
    pub table: Option<String>,

    /// Print the SQL of the functions in_net, community_id, port_name and others, for DuckDB's own shell
    #[arg(long, exclusive = true, help_heading = OUTPUT)]
    pub macros: bool,

    /// Print no progress; the default of --log-level is warn
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,

    /// DuckDB's library, 1.4 or later [default: WEIR_DUCKDB of the environment, ../lib/weir/libduckdb.so beside the
    /// program, /usr/lib/weir/libduckdb.so, or the system's]
    #[arg(long, value_name = "FILE", help_heading = PERFORMANCE)]
    pub engine: Option<PathBuf>,

    /// Memory for the query, as in 4G; what needs more is written to the folder for temporary files (TMPDIR) [default: half
    /// of what is free]
    #[arg(long = "memory", value_name = "SIZE", value_parser = parse_memory, help_heading = PERFORMANCE)]
    pub memory_bytes: Option<u64>,

    /// Threads of the query [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = PERFORMANCE)]
    pub threads: Option<u16>,

    #[command(flatten)]
    pub hardening: Hardening,
}

/// Whose SQL is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SqlEngine {
    /// With the views over the inputs
    Duckdb,
    /// Over a table that a sink fills
    Clickhouse,
}

/// Formats of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    /// Aligned columns
    Table,
    /// Comma-separated values with a line of names
    Csv,
    /// A JSON object per line
    Json,
    /// A Parquet file
    Parquet,
}

fn parse_memory(text: &str) -> Result<u64, String> {
    // The least with which DuckDB starts.
    const MIN_BYTES: u64 = 64_000_000;
    match parse_number(text).map_err(|error| error.to_string())? {
        ..MIN_BYTES => Err("a query needs at least 64M".into()),
        bytes => Ok(bytes),
    }
}

/// Steps are whole microseconds.
fn parse_step(text: &str) -> Result<u64, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        ..1_000 => Err("a step has at least 1us".into()),
        ns => Ok(ns - ns % 1_000),
    }
}

const EXAMPLES: &str = "\
Examples:
  weir query                                           list the ready questions
  weir query top-talkers --from -2h                    of the last two hours of the store flows
  weir query host 192.0.2.1 -i /var/lib/weir/flows     the peers of a host
  weir query tcp-quality -i capture.pcap               of a capture
  weir query failed --print-sql                        its SQL, to change it
  weir query failed --print-sql=clickhouse --from -2h  for a table of ClickHouse
  weir query \"select application, sum(fwd_bytes + rev_bytes) as bytes from flows group by all order by bytes desc\"
  weir query \"select * from flows where in_net(src_ip, '10.0.0.0/8')\" -o inside.parquet
  weir query \"select count(*) from 'a.pcap'\"           files can be tables
  weir query \"describe flows\"                          its columns

Exit codes:
  0  success
  1  usage error, wrong SQL, no library, or an input that cannot be read
  2  a capture was damaged, or the query was interrupted";
