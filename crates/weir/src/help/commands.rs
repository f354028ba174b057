//! The help of commands: `-h` has what most people need, `--help` has all, with the examples first.
//!
//! Both are made of what the command line parser knows, when they are printed: starts that print no help
//! do not pay for them.

use super::topics;
use crate::arguments::Arguments;
use crate::console::{self, style};
use crate::run_status::RunStatus;
use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;

/// Options that `-h` has, of commands with more of them.
const SHORT: [(&str, &[&str]); 5] = [
    ("weir-read", &["input", "output", "fields", "top", "sort", "by", "where", "filter"]),
    ("weir-probe", &["input", "output", "where", "filter", "rules", "config", "check", "listen"]),
    ("weir-view", &["listen", "open", "where", "from", "to", "filter", "networks", "token-file"]),
    ("weir-tcp", &["where", "by", "sort", "top", "explain", "html", "json", "csv"]),
    ("weir-query", &["input", "from", "to", "top", "every", "format", "output", "print-sql"]),
];

/// Options of `-h`, at most.
const OPTIONS: usize = 8;

/// Examples of `-h`, at most: fewer if there are more lines.
const EXAMPLES: usize = 8;

/// Lines of `-h`, at most.
const LINES: usize = 40;

/// Text of a command line of help, in the way of the parser: `{before-help}` has the examples.
const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";

/// The help that a command line asks for.
pub fn of_given(given: &[OsString]) -> StyledStr {
    let words = given.iter().skip(1).take_while(|word| *word != "--");
    let is_short = |word: &&OsString| {
        let word = word.to_string_lossy();
        word.starts_with('-') && !word.starts_with("--") && word.contains('h')
    };
    let is_long = |word: &&OsString| *word == "--help";
    let first = words.clone().find(|word| is_short(word) || is_long(word));
    let command = crate::arguments::command_of(given);
    if first.as_ref().is_some_and(is_long) { long(command) } else { short(command) }
}

/// The command with these names, from the first one on.
pub fn named(words: &[String]) -> Option<Command> {
    let mut command = Arguments::command();
    command.build();
    words.iter().try_fold(command, |command, word| command.find_subcommand(word).cloned())
}

/// The names of all commands.
pub fn names() -> impl Iterator<Item = std::borrow::Cow<'static, str>> {
    let names: Vec<String> = Arguments::command().get_subcommands().map(|command| command.get_name().into()).collect();
    names.into_iter().map(Into::into)
}

/// `-h`: at most 40 lines.
pub fn short(command: Command) -> StyledStr {
    let is_short = |help: &StyledStr| help.to_string().lines().count() <= LINES;
    let mut all = (0..=EXAMPLES).rev().map(|examples| with_examples(command.clone(), examples));
    all.find(is_short).unwrap_or_else(|| with_examples(command, 0))
}

/// `-h` with this number of examples.
fn with_examples(command: Command, count: usize) -> StyledStr {
    let shown = shown(&command);
    let (examples, _) = texts(&command);
    let end =
        format!("{}\n'{} --help' shows all{}", first_examples(&examples, count), full_name(&command), pages(&command));
    let shorter = |option: Arg| {
        let help = option.get_help().map(|help| first_sentence(&help.to_string())).unwrap_or_default();
        let is_hidden = option.get_long().is_some_and(|name| !shown.iter().any(|shown| shown == name));
        option.hide_short_help(is_hidden).help(help).help_heading(None::<&str>)
    };
    command.mut_args(shorter).help_template(TEMPLATE).after_help(end.trim().to_owned()).render_help()
}

/// The long names of the options that `-h` has.
fn shown(command: &Command) -> Vec<String> {
    if let Some((_, options)) = SHORT.iter().find(|(name, _)| Some(*name) == command.get_display_name()) {
        return options.iter().map(|&name| name.into()).collect();
    }
    let own = command.get_arguments().filter(|option| !option.is_global_set() && !option.is_hide_set());
    let names = own.filter_map(Arg::get_long).filter(|name| !matches!(*name, "help" | "version"));
    names.take(OPTIONS).map(Into::into).collect()
}

/// `--help`: all.
pub fn long(command: Command) -> StyledStr {
    let (examples, rest) = texts(&command);
    let end = format!("{rest}\n\n{}", pages(&command).trim_start_matches("; "));
    command.help_template(TEMPLATE).before_help(examples).after_help(end.trim().to_owned()).render_long_help()
}

/// Prints help or version.
pub fn print(help: &StyledStr) -> RunStatus {
    let is_styled = style::is_on(&std::io::stdout());
    console::print(if is_styled { help.ansi().to_string() } else { help.to_string() }.as_bytes())
}

/// The examples of a command, and what else stands behind its options.
fn texts(command: &Command) -> (String, String) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, rest): (Vec<&str>, Vec<&str>) = text.split("\n\n").partition(|part| part.starts_with("Examples:"));
    (examples.join("\n\n").trim_end().to_owned(), rest.join("\n\n"))
}

/// The first examples, below their heading. A line with more indentation belongs to the one above.
fn first_examples(examples: &str, count: usize) -> String {
    if count == 0 {
        return String::new();
    }
    let mut begun = 0;
    let is_of_first = |line: &&str| {
        begun += usize::from(line.starts_with("  ") && !line.starts_with("   "));
        begun <= count
    };
    examples.lines().take_while(is_of_first).map(|line| format!("{line}\n")).collect()
}

/// Up to the first period that ends a sentence, without what is in parentheses.
pub fn first_sentence(text: &str) -> String {
    let mut parts = text.split(" (");
    let mut sentence = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        sentence += part.split_once(')').map_or("", |(_, behind)| behind);
    }
    let end = [". ", " [default"].iter().filter_map(|end| sentence.find(end)).min();
    sentence.truncate(end.unwrap_or(sentence.len()));
    sentence
}

/// Where the page of a command is.
fn pages(command: &Command) -> String {
    let name = command.get_name();
    let topic = [format!("{name}-guide"), name.to_owned()].into_iter().find_map(|name| topics::find(&name));
    topic.map_or_else(String::new, |topic| format!("; 'weir help {}' is the page about it", topic.name))
}

/// The command with those above it.
fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}
