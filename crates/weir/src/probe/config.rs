//! The configuration file of `weir probe`: the long options of the command line as TOML keys.
//!
//! A file is translated into command line arguments, which the command line parser validates. So a
//! file and a command line have the same options, values and error messages.

use crate::arguments::{self, Arguments, LogFormat, Logging, ProbeOptions};
use crate::error::{ConfigError, ConfigProblem, Error};
use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, Parser, ValueEnum};
use rustix::fs::OFlags;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_ledger::Timing;
use weir_text::most_similar;

const COMMAND: &str = "probe";
/// What a printed file begins with, before the version.
const TITLE: &str = "# Configuration of weir probe ";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Options that this version does not have, with what has become of them, as in "renamed to idle in 0.2.0". The tests
/// read the files of earlier versions (tests/all/probe/configurations).
const CHANGED: &[(&str, &str)] = &[];
const COMMENT_COLUMNS: usize = 96;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Adds the options of a file with this text to the arguments. Options of the command line take
/// precedence.
///
/// # Errors
/// The text is not TOML, or a key or value is invalid.
pub fn add_text(arguments: &[OsString], path: &Path, text: &str) -> Result<Vec<OsString>, Error> {
    let (merged, invalid) = add_valid(arguments, path, text)?;
    Error::of(invalid).map(|()| merged)
}

/// As [`add_text`], but leaves out what is invalid, and returns the errors.
fn add_valid(arguments: &[OsString], path: &Path, text: &str) -> Result<(Vec<OsString>, Vec<Error>), Error> {
    let name = path.display().to_string();
    let table: toml::Table = text.parse().map_err(|error| ConfigError::Syntax { path: name.clone(), error })?;
    let command = probe_command();
    let matches = probe_matches(arguments)?;
    let (mut from_file, mut invalid) = (Vec::new(), Vec::new());
    for (key, value) in &table {
        let entry = match options(&command).find(|option| option.get_long() == Some(key)) {
            Some(option) => as_arguments(option, value).and_then(|arguments| {
                let problem = arguments.iter().find_map(invalid_value);
                problem.map_or(Ok((option, arguments)), |problem| Err(ConfigProblem::Value(problem)))
            }),
            None => Err(unknown_option(&command, key, text)),
        };
        match entry {
            Ok((option, of_option)) => {
                if matches.value_source(option.get_id().as_str()) != Some(ValueSource::CommandLine) {
                    from_file.extend(of_option);
                }
            }
            Err(problem) => {
                let (path, line) = (name.clone(), line_of(text, key));
                invalid.push(ConfigError::Entry { path, line, key: key.clone(), problem }.into());
            }
        }
    }
    let split = arguments.iter().position(|argument| argument == COMMAND).map_or(arguments.len(), |at| at + 1);
    let (before, after) = arguments.split_at(split);
    Ok(([before, &from_file, after].concat(), invalid))
}

/// What the command line parser says about the value of an option; `None` if it is valid.
fn invalid_value(option: &OsString) -> Option<String> {
    let alone = ["weir".into(), COMMAND.into(), option.clone()];
    let error = Arguments::command().try_get_matches_from(alone).err()?;
    // Alone, an option may lack another one.
    (error.kind() != ErrorKind::MissingRequiredArgument).then(|| first_paragraph(error))
}

/// The command line of `weir probe --check` without the options that have an invalid value, and the
/// errors of these. `None` for other commands, and if something else is wrong with it.
pub fn without_invalid_values(arguments: &[OsString]) -> Option<(Arguments, Vec<OsString>, Vec<Error>)> {
    let accept_all = |option: Arg| match option.get_action().takes_values() {
        true => option.value_parser(OsStringValueParser::new()),
        false => option,
    };
    let command = Arguments::command().mut_args(accept_all);
    let command = command.mut_subcommand(COMMAND, |command| command.mut_args(accept_all));
    let matches = command.try_get_matches_from(arguments).ok()?;
    let matches = matches.subcommand_matches(COMMAND).filter(|matches| matches.get_flag("check"))?;
    let (mut valid, mut invalid) = (vec!["weir".into(), COMMAND.into()], Vec::new());
    for option in probe_command().get_arguments() {
        let (id, Some(long)) = (option.get_id().as_str(), option.get_long()) else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let with_value = |value: &OsStr| {
            let mut option = OsString::from(format!("--{long}="));
            option.push(value);
            option
        };
        let given: Vec<OsString> = match option.get_action().takes_values() {
            true => matches.get_raw(id).into_iter().flatten().map(with_value).collect(),
            false => vec![format!("--{long}").into()],
        };
        for option in given {
            match invalid_value(&option) {
                Some(problem) => invalid.push(Error::Option(problem)),
                None => valid.push(option),
            }
        }
    }
    Some((Arguments::parse_at_start(&valid).ok()?, valid, invalid))
}

/// The text of a file.
///
/// # Errors
/// The file cannot be read, is longer than 1 MiB or is not UTF-8.
fn read(path: &Path) -> Result<String, Error> {
    File::open(path).and_then(read_text).map_err(|error| file_error(path, error))
}

fn read_text(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "longer than 1 MiB, the limit of a configuration file",
        ));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a text file (TOML in UTF-8)"))
}

fn file_error(path: &Path, error: io::Error) -> Error {
    ConfigError::File { path: path.display().to_string(), error }.into()
}

/// The text of a file that no program writes: it has not changed for `config_settled`. Waits for that
/// time, and at most for `config_limit`. Does not wait for the other end of a pipe.
///
/// # Errors
/// As [`read`]. The file is no regular file, or it changes again and again.
pub fn read_settled(path: &Path, timing: &Timing) -> Result<String, Error> {
    const RETRY_INTERVAL: Duration = Duration::from_millis(100);
    let Timing { config_settled: settled, config_limit: limit, .. } = *timing;
    // A program can set the time of modification, but not that of the change.
    let version = |file: &File| file.metadata().map(|file| (file.dev(), file.ino(), file.ctime(), file.ctime_nsec()));
    let read = || {
        let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file, which a reload needs"));
        }
        let before = version(&file)?;
        Ok((before, read_text(&file)?, version(&file)?))
    };
    let (started, mut last) = (Instant::now(), None::<(_, Instant)>);
    loop {
        let (before, text, version) = read().map_err(|error| file_error(path, error))?;
        last = last.filter(|&(seen, _)| seen == before);
        let (_, since) = *last.get_or_insert((before, Instant::now()));
        let (_, _, seconds, nanoseconds) = version;
        let changed = UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanoseconds as u32);
        // The time of the change is in the future if the clock was set back.
        let is_old = SystemTime::now().duration_since(changed).is_ok_and(|age| age >= settled);
        if before == version && (is_old || since.elapsed() >= settled) {
            return Ok(text);
        }
        if started.elapsed() >= limit {
            let error = io::Error::new(io::ErrorKind::ResourceBusy, "a program is still writing to this file");
            return Err(file_error(path, error));
        }
        std::thread::sleep(RETRY_INTERVAL.min(settled));
    }
}

/// The options of the command line and of the configuration file.
pub struct Merged {
    pub arguments: Vec<OsString>,
    /// The text of the file.
    pub text: String,
    /// Errors of the file; its other options are in the arguments.
    pub invalid: Vec<Error>,
}

/// Adds the options of the configuration file to the arguments, if there is one.
///
/// # Errors
/// The file cannot be read, or is not TOML.
pub fn merge(given: &ProbeOptions, arguments: &[OsString]) -> Result<Merged, Error> {
    let Some(path) = &given.config else {
        return Ok(Merged { arguments: arguments.to_vec(), text: String::new(), invalid: vec![] });
    };
    let text = read(path)?;
    let (arguments, invalid) = add_valid(arguments, path, &text)?;
    Ok(Merged { arguments, text, invalid })
}

/// The options of a configuration file, each of which is valid alone.
///
/// # Errors
/// The file cannot be read, or all that is wrong with it.
pub fn options_of_file(path: &Path) -> Result<ProbeOptions, Error> {
    let arguments = ["weir".into(), COMMAND.into()];
    let text = read(path)?;
    Ok(parse(&add_text(&arguments, path, &text)?)?.0)
}

/// The log format of a file with an error elsewhere, unless the command line has one.
pub fn log_format(given: &ProbeOptions, arguments: &[OsString]) -> Option<LogFormat> {
    if arguments.iter().any(|argument| argument.to_string_lossy().starts_with("--log-format")) {
        return None;
    }
    let text = read(given.config.as_ref()?).ok()?;
    let value = |line: &str| Some(line.parse::<toml::Table>().ok()?.get("log-format")?.as_str()?.to_owned());
    LogFormat::from_str(&text.lines().find_map(value)?, false).ok()
}

/// Parses arguments of `weir probe` at its start ([`Arguments::parse_at_start`]).
///
/// # Errors
/// An option is invalid, or the local zone is not known.
pub fn parse_at_start(arguments: &[OsString]) -> Result<(ProbeOptions, Logging), Error> {
    of_probe(Arguments::parse_at_start(arguments)?)
}

/// Parses arguments of `weir probe`.
pub fn parse(arguments: &[OsString]) -> Result<(ProbeOptions, Logging), Error> {
    of_probe(Arguments::try_parse_from(arguments)?)
}

fn of_probe(Arguments { command, logging }: Arguments) -> Result<(ProbeOptions, Logging), Error> {
    match command {
        Some(arguments::Command::Probe(probe)) => Ok((*probe, logging)),
        _ => unreachable!("these are arguments of weir probe"),
    }
}

/// All options and their values in the format of the file.
pub fn to_file(arguments: &[OsString]) -> Result<String, Error> {
    let matches = probe_matches(arguments)?;
    let command = probe_command();
    let mut text = format!("{TITLE}{VERSION} (--config FILE). Options of the command line take precedence.\n");
    for option in options(&command) {
        let long = option.get_long().expect("options have a long name");
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        let id = option.get_id().as_str();
        let value = match option.get_action() {
            ArgAction::SetTrue => Some(matches.get_flag(id).to_string()),
            action => matches.get_raw(id).map(|values| {
                let values: Vec<String> = values.map(|value| to_toml(&value.to_string_lossy())).collect();
                if matches!(action, ArgAction::Append) { format!("[{}]", values.join(", ")) } else { values.concat() }
            }),
        };
        text.push('\n');
        weir_text::wrap(&help, COMMENT_COLUMNS).iter().for_each(|line| text.push_str(&format!("# {line}\n")));
        match value {
            Some(value) => text.push_str(&format!("{long} = {value}\n")),
            None => text.push_str(&format!("# {long} =\n")),
        }
    }
    Ok(text)
}

/// Names of the options whose values differ.
pub fn differing_options(one: &[OsString], other: &[OsString]) -> Result<Vec<String>, Error> {
    let (one, other) = (probe_matches(one)?, probe_matches(other)?);
    let command = probe_command();
    let differs = |option: &&Arg| {
        let id = option.get_id().as_str();
        let values =
            |matches: &ArgMatches| matches.get_raw(id).map(|values| values.map(OsString::from).collect::<Vec<_>>());
        values(&one) != values(&other)
    };
    Ok(options(&command).filter(differs).filter_map(Arg::get_long).map(str::to_owned).collect())
}

/// The command with its global options.
fn probe_command() -> Command {
    let mut command = Arguments::command();
    command.build();
    command.find_subcommand(COMMAND).expect("the command exists").clone()
}

/// Options that are allowed in a file.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    const EXCLUDED: [&str; 6] = ["config", "check", "print-config", "help", "version", "timing"];
    command.get_arguments().filter(|option| option.get_long().is_some_and(|long| !EXCLUDED.contains(&long)))
}

fn probe_matches(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let matches = Arguments::command().try_get_matches_from(arguments)?;
    Ok(matches.subcommand_matches(COMMAND).cloned().unwrap_or_default())
}

/// The arguments that an entry of a file is translated into.
fn as_arguments(option: &Arg, value: &toml::Value) -> Result<Vec<OsString>, ConfigProblem> {
    let long = option.get_long().expect("options have a long name");
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    match value {
        toml::Value::Boolean(true) if is_flag => Ok(vec![format!("--{long}").into()]),
        toml::Value::Boolean(false) if is_flag => Ok(vec![]),
        _ if is_flag => Err(ConfigProblem::NotBoolean),
        toml::Value::Array(values) if matches!(option.get_action(), ArgAction::Append) => {
            values.iter().map(|value| Ok(format!("--{long}={}", scalar(value)?).into())).collect()
        }
        value => Ok(vec![format!("--{long}={}", scalar(value)?).into()]),
    }
}

fn scalar(value: &toml::Value) -> Result<String, ConfigProblem> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        other => Err(ConfigProblem::WrongType(other.type_str())),
    }
}

/// The first paragraph of an error of the command line parser: what is wrong, and where in an
/// expression.
fn first_paragraph(error: clap::Error) -> String {
    let text = arguments::with_short_value(error).to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default().trim_end();
    // The possible values are a line of their own, and only the first line is listed among others.
    paragraph.strip_prefix("error: ").unwrap_or(paragraph).replace("\n  [possible values", " [possible values")
}

fn to_toml(value: &str) -> String {
    match value.parse::<i64>() {
        Ok(number) if number.to_string() == value => value.into(),
        _ => format!("\"{}\"", value.chars().map(escape).collect::<String>()),
    }
}

/// A character of a TOML string. Control characters, also those that TOML permits, are escaped
/// because a terminal would obey them.
fn escape(letter: char) -> String {
    match letter {
        '"' | '\\' => format!("\\{letter}"),
        _ if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        _ => letter.into(),
    }
}

/// Line number of a key, from 1.
fn line_of(text: &str, key: &str) -> usize {
    let has_key = |line: &str| {
        let rest = line.trim_start().trim_start_matches(['"', '\'']).strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with('='))
    };
    text.lines().position(has_key).map_or(1, |at| at + 1)
}

/// The problem of an unknown key: what has become of it, that the file is of another version, or the most similar option.
fn unknown_option(command: &Command, key: &str, text: &str) -> ConfigProblem {
    if let Some(change) = what_changed(CHANGED, key) {
        return ConfigProblem::Changed(change);
    }
    match (most_similar(key, options(command).filter_map(Arg::get_long)), version_of(text)) {
        (None, Some(version)) if version != VERSION => {
            ConfigProblem::OfOtherVersion { of: version.into(), own: VERSION }
        }
        (similar, _) => ConfigProblem::Unknown(similar.map(str::to_owned)),
    }
}

fn what_changed(changed: &[(&str, &'static str)], key: &str) -> Option<&'static str> {
    changed.iter().find(|(name, _)| *name == key).map(|(_, change)| *change)
}

/// The version that has printed a file (`--print-config`).
fn version_of(text: &str) -> Option<&str> {
    let rest = text.lines().next()?.strip_prefix(TITLE)?;
    rest.split_whitespace().next().filter(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn with(text: &str, given: &[&str]) -> Result<Vec<String>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let given: Vec<OsString> = ["weir", "probe"].iter().chain(given).map(OsString::from).collect();
        let lossy = |argument: OsString| argument.to_string_lossy().into_owned();
        match read(file.path()).and_then(|text| add_text(&given, file.path(), &text)) {
            Ok(arguments) => Ok(arguments.into_iter().skip(2).map(lossy).collect()),
            Err(error) => Err(error.to_string().replace(&file.path().display().to_string(), "FILE")),
        }
    }

    #[test]
    fn file_is_translated_into_arguments() {
        let text = "input = [\"a.pcap\", \"b.pcap\"]\nidle = \"30s\"\nflows = 65536\ndecap = true\nlayer2 = false\n";
        let expected = ["--decap", "--flows=65536", "--idle=30s", "--input=a.pcap", "--input=b.pcap"];
        let mut arguments = with(text, &[]).unwrap();
        arguments.sort();
        assert_eq!(arguments, expected);
    }

    #[test]
    fn command_line_takes_precedence() {
        let text = "input = [\"a.pcap\"]\nidle = \"30s\"\nactive = 60\n";
        assert_eq!(
            with(text, &["-i", "c.pcap", "--idle", "5s"]).unwrap(),
            ["--active=60", "-i", "c.pcap", "--idle", "5s"]
        );
    }

    #[test]
    fn errors_name_the_line() {
        for (text, why) in [
            ("idle = \"30s\"\nfolws = 5\n", "FILE: line 2: folws: unknown option; did you mean flows?"),
            ("\nidle = \"5w\"\n", "FILE: line 2: idle: invalid value '5w'"),
            ("decap = \"yes\"\n", "FILE: line 1: decap: use true or false"),
            ("flows = true\n", "FILE: line 1: flows: boolean is not allowed here"),
            ("[meter]\nflows = 5\n", "FILE: line 1: meter: unknown option"),
            ("check = true\n", "unknown option"),
            (
                "# Configuration of weir probe 9.8.7 (x)\nx-y-z = 1\n",
                "FILE: line 2: x-y-z: unknown option: the file is of weir 9.8.7",
            ),
            ("idle = \n", "TOML parse error at line 1"),
        ] {
            let error = with(text, &[]).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_option_that_was_renamed_says_so() {
        let changed = [("idle-time", "renamed to idle in 0.2.0")];
        let change = what_changed(&changed, "idle-time").unwrap();
        assert_eq!(ConfigProblem::Changed(change).to_string(), "this option was renamed to idle in 0.2.0");
        assert_eq!(what_changed(&changed, "idle"), None);
        assert_eq!(version_of(&format!("{TITLE}0.1.0 (--config FILE).\n")), Some("0.1.0"));
    }

    #[test]
    fn longer_file_than_the_limit_is_an_error() {
        let comment = |bytes: u64| "#".repeat(bytes as usize);
        assert_eq!(with(&comment(MAX_FILE_BYTES), &[]), Ok(vec![]));
        let error = with(&comment(MAX_FILE_BYTES + 1), &[]).unwrap_err();
        assert_eq!(error, "FILE: longer than 1 MiB, the limit of a configuration file");
    }

    #[test]
    fn printed_configuration_can_be_read() {
        let given: Vec<OsString> =
            ["weir", "probe", "-i", "a.pcap", "--idle", "7s", "--decap", "--cores", "2-3"].map(OsString::from).into();
        let text = to_file(&given).unwrap();
        let arguments = with(&text, &[]).unwrap();
        for argument in [
            "--input=a.pcap",
            "--idle=7s",
            "--decap",
            "--cores=2-3",
            "--active=300s",
            "--user=nobody",
            "--log-format=text",
        ] {
            assert!(arguments.contains(&argument.to_string()), "{argument}: {arguments:?}");
        }
        let again: Vec<OsString> =
            ["weir", "probe"].iter().map(OsString::from).chain(arguments.iter().map(OsString::from)).collect();
        assert_eq!(to_file(&again).unwrap(), text);
    }
}
