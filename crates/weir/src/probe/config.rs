//! The file of `weir probe --config`: the options of the command line by their names, as TOML; and the other way round.
//!
//! A file becomes the arguments it stands for, which go through the one parser that there is. So what is right on the
//! command line is right in a file, and nothing is said twice.

use crate::Refusal;
use crate::arguments::Arguments;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

const COMMAND: &str = "probe";
/// Octets of a file that are read.
const LARGEST: u64 = 1 << 20;

/// The arguments of the command line with those of the file that are not among them.
///
/// # Errors
/// The file cannot be read, is no TOML, has a name or a value that makes no sense: with the line.
pub fn with_file(given: &[OsString], path: &Path) -> Result<Vec<OsString>, Refusal> {
    let name = path.display();
    let failed = |error: std::io::Error| Refusal(format!("{name}: {error}{}", crate::files::advice(&error)));
    let mut text = String::new();
    std::fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_string(&mut text)).map_err(failed)?;
    let table: toml::Table = text.parse().map_err(|error| Refusal(format!("{name}: {error}")))?;
    let whole = Arguments::command();
    let command = whole.find_subcommand(COMMAND).expect("there is such a command");
    let matches = matches(given).map_err(|error| Refusal(error.to_string()))?;
    let mut arguments = Vec::new();
    for (key, value) in &table {
        let wrong = |what: &str| Refusal(format!("{name}: line {}: {key}: {what}", line_of(&text, key)));
        let Some(option) = options(command).find(|option| option.get_long() == Some(key)) else {
            return Err(wrong(&format!("there is no such option{}", near(command, key))));
        };
        let of_option = as_arguments(option, value).map_err(|what| wrong(&what))?;
        let alone = ["weir", COMMAND].map(OsString::from).into_iter().chain(of_option.iter().cloned());
        if let Err(error) = self::matches(&alone.collect::<Vec<_>>()) {
            let text = error.to_string();
            let what = text.lines().next().unwrap_or_default();
            return Err(wrong(what.strip_prefix("error: ").unwrap_or(what)));
        }
        if matches.value_source(option.get_id().as_str()) != Some(ValueSource::CommandLine) {
            arguments.extend(of_option);
        }
    }
    let behind = given.iter().position(|argument| argument == COMMAND).map_or(given.len(), |at| at + 1);
    let (before, after) = given.split_at(behind);
    Ok([before, &arguments, after].concat())
}

/// Everything that is set, as such a file.
pub fn as_file(arguments: &[OsString]) -> Result<String, Refusal> {
    let matches = matches(arguments).map_err(|error| Refusal(error.to_string()))?;
    let whole = Arguments::command();
    let command = whole.find_subcommand(COMMAND).expect("there is such a command");
    let mut text = String::from("# weir probe --config THIS-FILE; what stands on the command line comes first.\n");
    for option in options(command) {
        let long = option.get_long().expect("options have one");
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        let id = option.get_id().as_str();
        let set = match option.get_action() {
            ArgAction::SetTrue => Some(matches.get_flag(id).to_string()),
            action => matches.get_raw(id).map(|values| {
                let values: Vec<String> = values.map(|value| as_toml(&value.to_string_lossy())).collect();
                let several = matches!(action, ArgAction::Append);
                if several { format!("[{}]", values.join(", ")) } else { values.concat() }
            }),
        };
        let line = match set {
            Some(value) => format!("{long} = {value}"),
            None => format!("# {long} ="),
        };
        text.push_str(&format!("\n# {}\n{line}\n", help.replace('\n', " ")));
    }
    Ok(text)
}

/// Names of the options that are set otherwise in the one than in the other.
pub fn differing(one: &[OsString], other: &[OsString]) -> Result<Vec<String>, Refusal> {
    let [one, other] = [one, other].map(|arguments| matches(arguments).map_err(|error| Refusal(error.to_string())));
    let (one, other) = (one?, other?);
    let whole = Arguments::command();
    let command = whole.find_subcommand(COMMAND).expect("there is such a command");
    let differs = |option: &&Arg| {
        let id = option.get_id().as_str();
        let values =
            |matches: &ArgMatches| matches.get_raw(id).map(|values| values.map(OsString::from).collect::<Vec<_>>());
        values(&one) != values(&other)
    };
    Ok(options(command).filter(differs).filter_map(Arg::get_long).map(str::to_owned).collect())
}

/// Options that make sense in a file.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    const NOT: [&str; 5] = ["config", "check", "print-config", "help", "version"];
    command.get_arguments().filter(|option| option.get_long().is_some_and(|long| !NOT.contains(&long)))
}

fn matches(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let matches = Arguments::command().try_get_matches_from(arguments)?;
    Ok(matches.subcommand_matches(COMMAND).cloned().unwrap_or_default())
}

/// What an entry stands for on the command line.
fn as_arguments(option: &Arg, value: &toml::Value) -> Result<Vec<OsString>, String> {
    let long = option.get_long().expect("options have one");
    let flag = matches!(option.get_action(), ArgAction::SetTrue);
    match value {
        toml::Value::Boolean(true) if flag => Ok(vec![format!("--{long}").into()]),
        toml::Value::Boolean(false) if flag => Ok(vec![]),
        _ if flag => Err("true or false must follow".into()),
        toml::Value::Array(values) if matches!(option.get_action(), ArgAction::Append) => {
            values.iter().map(|value| Ok(format!("--{long}={}", plain(value)?).into())).collect()
        }
        value => Ok(vec![format!("--{long}={}", plain(value)?).into()]),
    }
}

fn plain(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        other => Err(format!("{} makes no sense here; a text or a number does", other.type_str())),
    }
}

/// A value as TOML writes it.
fn as_toml(value: &str) -> String {
    match value.parse::<i64>() {
        Ok(number) if number.to_string() == value => value.into(),
        _ => toml::Value::String(value.into()).to_string(),
    }
}

/// The line that a key stands in, from 1.
fn line_of(text: &str, key: &str) -> usize {
    let begins = |line: &str| {
        let rest = line.trim_start().trim_start_matches(['"', '\'']).strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with('='))
    };
    text.lines().position(begins).map_or(1, |at| at + 1)
}

/// The option that was probably meant.
fn near(command: &Command, key: &str) -> String {
    let names = options(command).filter_map(Arg::get_long);
    let likeness = |name: &&str| (strsim::jaro_winkler(name, key) * 1000.0) as u32;
    let near = names.max_by_key(likeness).filter(|name| likeness(name) > 800);
    near.map_or_else(String::new, |name| format!("; {name} is one"))
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
        match with_file(&given, file.path()) {
            Ok(arguments) => Ok(arguments.into_iter().skip(2).map(lossy).collect()),
            Err(Refusal(why)) => Err(why.replace(&file.path().display().to_string(), "FILE")),
        }
    }

    #[test]
    fn a_file_becomes_the_arguments_it_stands_for() {
        let text = "input = [\"a.pcap\", \"b.pcap\"]\nidle = \"30s\"\nflows = 65536\ndecap = true\nlayer2 = false\n";
        let expected = ["--decap", "--flows=65536", "--idle=30s", "--input=a.pcap", "--input=b.pcap"];
        let mut arguments = with(text, &[]).unwrap();
        arguments.sort();
        assert_eq!(arguments, expected);
    }

    #[test]
    fn what_stands_on_the_command_line_comes_first() {
        let text = "input = [\"a.pcap\"]\nidle = \"30s\"\nactive = 60\n";
        assert_eq!(
            with(text, &["-i", "c.pcap", "--idle", "5s"]).unwrap(),
            ["--active=60", "-i", "c.pcap", "--idle", "5s"]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, why) in [
            ("idle = \"30s\"\nfolws = 5\n", "FILE: line 2: folws: there is no such option; flows is one"),
            ("\nidle = \"5d\"\n", "FILE: line 2: idle: invalid value '5d'"),
            ("decap = \"yes\"\n", "FILE: line 1: decap: true or false must follow"),
            ("flows = true\n", "FILE: line 1: flows: boolean makes no sense here"),
            ("[meter]\nflows = 5\n", "FILE: line 1: meter: there is no such option"),
            ("check = true\n", "no such option"),
            ("idle = \n", "TOML parse error at line 1"),
        ] {
            let error = with(text, &[]).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let given: Vec<OsString> =
            ["weir", "probe", "-i", "a.pcap", "--idle", "7s", "--decap", "--cores", "2-3"].map(OsString::from).into();
        let text = as_file(&given).unwrap();
        let arguments = with(&text, &[]).unwrap();
        for argument in ["--input=a.pcap", "--idle=7s", "--decap", "--cores=2-3", "--active=300s", "--user=nobody"] {
            assert!(arguments.contains(&argument.to_string()), "{argument}: {arguments:?}");
        }
        let again: Vec<OsString> =
            ["weir", "probe"].iter().map(OsString::from).chain(arguments.iter().map(OsString::from)).collect();
        assert_eq!(as_file(&again).unwrap(), text);
    }
}
