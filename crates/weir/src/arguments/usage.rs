//! Errors of the command line parser: their tips name what this program has, and long values are
//! shortened.

use super::Arguments;
use crate::error::live_source;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use weir_capture::LiveSpec;
use weir_text::most_similar;

/// Options of nfdump, tcpdump and other programs, and the options of Weir for the same purpose.
const HABITS: [(&[&str], &[&str]); 4] = [
    (&["-s"], &["by", "sort"]),
    (&["-A", "-a", "--agg", "--aggregate", "--group-by"], &["by"]),
    (&["-n", "-c", "--limit"], &["top"]),
    (&["-w", "-o", "--output", "--csv", "--json"], &["output", "csv", "json", "html"]),
];

/// Commands that other programs have, and what does the same.
const COMMANDS: [(&[&str], &str); 2] = [
    (&["talkers", "hosts"], "'weir read FILE --by host' sums up flows, 'weir top' shows them live"),
    (&["flows", "dump", "show", "list"], "'weir read FILE' lists flows"),
];

/// What an option of [`HABITS`] does.
const PURPOSES: [(&str, &str); 7] = [
    ("by", "--by FIELD sums up flows"),
    ("sort", "--sort NAME sorts"),
    ("top", "--top N lists the N largest"),
    ("output", "-o flows.csv writes flow records"),
    ("csv", "--csv FILE"),
    ("json", "--json FILE"),
    ("html", "--html FILE write the report"),
];

/// Options for the name of a capture, which Weir takes without an option.
const OF_FILES: [&str; 5] = ["-r", "-R", "-i", "--input", "--read"];

/// The arguments with a value that begins with a hyphen, as in `--top -1`, joined to its option, if that
/// hyphen is why the parser refused them: so it says what is wrong with the value.
pub fn join_value(given: &[OsString], error: &clap::Error) -> Option<Vec<OsString>> {
    let unknown = unknown_option(error)?;
    let command = command_of(given);
    let end = given.iter().position(|argument| argument == "--").unwrap_or(given.len());
    let needs_value = |option: &OsStr| {
        let option = option.to_str().and_then(|name| find(&command, name));
        option.is_some_and(|option| {
            option.get_action().takes_values() && option.get_num_args().is_none_or(|count| count.min_values() > 0)
        })
    };
    let is_value = |at: &usize| given[*at].to_string_lossy().starts_with(unknown) && needs_value(&given[at - 1]);
    let at = (1..end).find(is_value)?;
    let mut option = given[at - 1].clone();
    // Of a short option, the hyphen cannot be taken for another one then, either.
    option.push("=");
    option.push(&given[at]);
    Some([&given[..at - 1], &[option], &given[at + 1..]].concat())
}

/// The error with a tip that says what there is instead, if that is known. The tips of the parser for
/// options, which are about other things, are removed.
pub fn with_tip(mut error: clap::Error, given: &[impl AsRef<OsStr>]) -> clap::Error {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => subcommand_tip(&error),
        ErrorKind::UnknownArgument => {
            let mut command = command_of(given);
            let (tip, similar) = unknown_option(&error).map_or((None, None), |name| option_tip(&command, name));
            error.remove(ContextKind::Suggested);
            error.remove(ContextKind::SuggestedArg);
            error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
            if let Some(similar) = similar {
                error.insert(ContextKind::SuggestedArg, ContextValue::String(similar));
            }
            tip
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What to do with the name of an interface or a capture instead of a command.
fn subcommand_tip(error: &clap::Error) -> Option<String> {
    let ContextValue::String(name) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    if Path::new(name).is_file() {
        Some(format!("to read this file: 'weir read {name}'"))
    } else if name.parse::<LiveSpec>().is_ok() || weir_capture::is_interface(name) {
        Some(format!("to meter this traffic: 'weir read -i {}'", live_source(name)))
    } else {
        COMMANDS.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, tip)| (*tip).into())
    }
}

/// What a command has instead of an option that it lacks: as a tip, or a similar option.
fn option_tip(command: &Command, name: &str) -> (Option<String>, Option<String>) {
    let habit = HABITS.iter().find(|(names, _)| names.contains(&name)).map_or(&[][..], |(_, options)| options);
    let has = |long: &str| command.get_arguments().any(|option| option.get_long() == Some(long));
    // Where sinks write the records, --html is something else.
    let is_meant = |long: &str| habit.contains(&long) && has(long) && (long != "html" || !has("output"));
    let purposes: Vec<&str> = PURPOSES.iter().filter(|(long, _)| is_meant(long)).map(|(_, purpose)| *purpose).collect();
    if name == "-w" && has("output") {
        return (Some("'weir packets FILE -o out.pcapng' writes packets, -o flows.csv flow records".into()), None);
    }
    if !purposes.is_empty() {
        return (Some(purposes.join(", ")), None);
    }
    let takes_files = command.get_positionals().any(|positional| positional.get_id() == "files");
    if OF_FILES.contains(&name) {
        if takes_files {
            return (Some(format!("name the file without an option: '{} FILE'", full_name(command))), None);
        } else if has("input") {
            return (Some("-i SOURCE names a file or an interface".into()), None);
        }
    }
    let other = habit.first().map_or(name.to_owned(), |long| format!("--{long}"));
    let root = Arguments::command();
    let others: Vec<String> = root
        .get_subcommands()
        .filter(|command| find(command, &other).is_some())
        .map(|command| format!("weir {}", command.get_name()))
        .collect();
    match others.as_slice() {
        [] => (None, name.strip_prefix("--").and_then(|name| similar_option(command, name))),
        [only] => (Some(format!("{only} has {other}")), None),
        [all @ .., last] => (Some(format!("{} and {last} have {other}", all.join(", "))), None),
    }
}

/// The most similar option.
fn similar_option(command: &Command, name: &str) -> Option<String> {
    let visible = command.get_arguments().filter(|option| !option.is_hide_set());
    most_similar(name, visible.filter_map(Arg::get_long)).map(|nearest| format!("--{nearest}"))
}

/// The option that the parser does not know.
fn unknown_option(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(name) if error.kind() == ErrorKind::UnknownArgument => Some(name),
        _ => None,
    }
}

/// The option of a command with a name such as `-o` or `--output`.
fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let is_named = |option: &&Arg| {
        let (long, short) = (option.get_long(), option.get_short());
        name.strip_prefix("--").map_or_else(
            || name.strip_prefix('-').is_some_and(|name| short.is_some_and(|short| name == short.to_string())),
            |name| long == Some(name),
        )
    };
    command.get_arguments().find(is_named)
}

/// The command that these arguments name.
/// The command that a command line names.
pub fn command_of(given: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Arguments::command();
    command.build();
    for argument in given.iter().skip(1) {
        if let Some(below) = command.find_subcommand(argument) {
            command = below.clone();
        }
    }
    command
}

/// The command with those above it.
fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}

/// An error that shows only the beginning of a long value: the parser repeats all of it, and an
/// expression may have thousands of addresses.
pub fn with_short_value(mut error: clap::Error) -> clap::Error {
    const SHOWN: usize = 60;
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.chars().count() > SHOWN
    {
        let short = value.chars().take(SHOWN).chain(['…']).collect();
        error.insert(ContextKind::InvalidValue, ContextValue::String(short));
    }
    error
}
