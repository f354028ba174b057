//! The command `weir`: parses the command line, opens sources and sinks, runs pipelines, and
//! reports the result as text, as ledger and as exit code.
//!
//! Exit codes: 0 success; 1 usage error, or input that cannot be opened (nothing was metered);
//! 2 finished, but an input was damaged, packets were dropped, or records were not delivered.
//! Libraries state what is wrong; advice for the user is added here (`error`).
#![forbid(unsafe_code)]

mod actions;
mod anonymisation;
mod arguments;
mod bench;
mod bypass;
mod capabilities;
mod clickhouse;
mod console;
mod doctor;
mod enrichment;
mod error;
mod eve;
mod files;
mod findings;
mod flow_packets;
mod health;
mod help;
mod input;
mod ledger_text;
mod memory;
mod missing_options;
mod names;
mod needs;
mod outputs;
mod packet_records;
mod packets;
mod page_answers;
mod page_file;
mod pages;
mod plan;
mod probe;
mod protocols;
mod query;
mod question_checks;
mod read;
mod run_status;
mod sandbox;
mod settings;
mod signals;
mod store;
mod stored;
mod stored_answers;
mod stored_reader;
mod stored_sums;
mod stored_times;
mod summary;
mod synth;
mod table;
mod tcp;
mod top;
mod view;

use arguments::{Arguments, Command, LogFormat, Logging};
use clap::CommandFactory;
use clap::error::ErrorKind;
use console::log::{self, Prefix};
use console::{printable, style};
use error::Error;
use run_status::RunStatus;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracing::error;

/// How long a probe that failed waits until its message is read.
const FAILURE_TIME: Duration = Duration::from_secs(5);

/// White space that is a control character. In an expression it has the meaning of a space.
const SPACES: [char; 5] = ['\t', '\n', '\x0b', '\x0c', '\r'];

fn main() -> ExitCode {
    signals::end_with_parent();
    let (given, parsed) = parse_given();
    let parsed = match parsed {
        Ok(arguments) => Ok((arguments, given.clone(), vec![])),
        Err(error) => probe::without_invalid_values(&given).ok_or(error),
    };
    let (arguments, given, invalid) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let one_line = |given: &OsString| printable(&given.to_string_lossy().replace(SPACES, " "));
            let given: Vec<String> = given.iter().map(one_line).collect();
            let wants_json = given.join("=").contains("--log-format=json");
            // The message repeats arguments: here those without control characters.
            let arguments: Vec<OsString> = given.iter().map(OsString::from).collect();
            let error = arguments::with_short_value(Arguments::parse_at_start(&arguments).err().unwrap_or(error));
            let error = arguments::with_tip(error, &given);
            if wants_json && error.use_stderr() {
                log::init(Logging { log_level: None, log_format: LogFormat::Json }, true, Prefix::Program);
                print_failure(error.to_string().trim_start_matches("error: ").trim_end());
            } else if error.use_stderr() {
                print_usage_error(&error);
            } else {
                return print_help(&error, &arguments);
            }
            return ExitCode::from(1);
        }
    };
    let Some(command) = arguments.command else {
        log::init(arguments.logging, false, Prefix::Program);
        return help::print(&help::short(Arguments::command())).into();
    };
    // `weir probe` starts the log when it has read its configuration file.
    let is_quiet = command.is_quiet();
    if !matches!(command, Command::Probe(_)) {
        log::init(arguments.logging, is_quiet, Prefix::Program);
    }
    let result = signals::survive_file_size_limit().and_then(|()| run(command, given, invalid));
    match result {
        Ok(status) => status.into(),
        Err(error) => {
            // If the configuration file of `weir probe` is invalid.
            log::init(arguments.logging, is_quiet, Prefix::Time);
            print_failure(error.to_string().trim_end());
            let end = Instant::now() + FAILURE_TIME;
            console::stderr::flush(&mut || Some(end));
            ExitCode::from(1)
        }
    }
}

/// Runs a command. `invalid` are the errors of options that the command line of `weir probe --check` was given.
fn run(command: Command, given: Vec<OsString>, invalid: Vec<Error>) -> Result<RunStatus, Error> {
    match command {
        Command::Read(read) => read::run(&read),
        Command::Probe(probe) => probe::run(&probe, given, invalid),
        Command::View(view) => view::run(&view),
        Command::Tcp(tcp) => tcp::run(&tcp),
        Command::Top(top) => top::run(&top),
        Command::Packets(packets) => packets::run(&packets),
        Command::Rules(rules) => actions::run(&rules),
        Command::Bypass(bypass) => bypass::run(&bypass),
        Command::Health(health) => health::run(&health),
        Command::Store(store) => store::run(&store),
        Command::Query(query) => query::run(&query),
        Command::Clickhouse(arguments) => clickhouse::run(&arguments),
        Command::Synth(synth) => synth::run(&synth),
        Command::Bench(bench) => bench::run(&bench),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Plan(plan) => plan::run(&plan),
        Command::Fields(fields) => pages::fields(&fields),
        Command::Completions(completions) => pages::completions(&completions),
        Command::Man(man) => pages::man(&man),
        Command::Help(words) => help::run(&words),
    }
}

/// The command line, and what it says.
fn parse_given() -> (Vec<OsString>, Result<Arguments, clap::Error>) {
    let mut given: Vec<OsString> = std::env::args_os().collect();
    let mut parsed = Arguments::parse_at_start(&given);
    while let Some(joined) = parsed.as_ref().err().and_then(|error| arguments::join_value(&given, error)) {
        given = joined;
        parsed = Arguments::parse_at_start(&given);
    }
    (given, parsed)
}

/// Prints why a command failed: each line behind `weir: `, or as an event of a JSON log.
fn print_failure(message: &str) {
    if log::is_json() {
        error!(error = message, "command failed");
    } else {
        console::eprint_styled(&console::wrapped_error("weir: ", message), style::failure);
    }
}

/// Prints help or version.
fn print_help(error: &clap::Error, given: &[OsString]) -> ExitCode {
    log::init(Logging { log_level: None, log_format: LogFormat::Text }, false, Prefix::Program);
    let is_help = error.kind() == ErrorKind::DisplayHelp;
    help::print(&if is_help { help::of_given(given) } else { error.render() }).into()
}

/// Prints the message of the command line parser.
fn print_usage_error(error: &clap::Error) {
    let (plain, wrapped) = (error.to_string(), console::wrapped_error("", &error.to_string()));
    if wrapped != plain {
        console::eprint_styled(&wrapped, style::failure);
    } else {
        let _ = error.print();
    }
}
