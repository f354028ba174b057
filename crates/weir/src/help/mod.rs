//! Help: of commands (`commands`), and of topics, which are the pages of `docs` (`topics`).
//!
//! A page is read from its Markdown (`page`) and written for a terminal (`terminal`) or as a manual page
//! (`manual`). The pages are part of the program, so that an installed machine has them.

mod commands;
mod manual;
mod page;
mod terminal;
#[cfg(test)]
mod tests;
mod topics;

pub use commands::{first_sentence, named, of_given, print, short};
pub use manual::page_of as manual_page;
pub use topics::{Topic, find, topics};

use crate::arguments::Help;
use crate::console::{self, print_styled, style};
use crate::error::Error;
use crate::run_status::RunStatus;

/// Columns of a page where no terminal says how wide it is.
const COLUMNS: usize = 80;

/// The widest page: longer lines are hard to read.
const MOST_COLUMNS: usize = 100;

/// `weir help`: prints the help of a command, or a topic.
pub fn run(help: &Help) -> Result<RunStatus, Error> {
    let columns = console::terminal_columns().unwrap_or(COLUMNS).min(MOST_COLUMNS);
    if let [word] = &help.words[..] {
        if word == "topics" {
            return Ok(print_styled(&terminal::text(&topics::list(), columns), style::page));
        }
        if let Some(topic) = find(word) {
            return Ok(print_styled(&terminal::text(&topic.blocks(), columns), style::page));
        }
    }
    let command = named(&help.words).ok_or_else(|| unknown("help", &help.words))?;
    Ok(print(&commands::long(command)))
}

/// No command and no topic has this name.
pub fn unknown(command: &str, words: &[String]) -> Error {
    let name = words.join(" ");
    let known = topics::names().chain(commands::names());
    let similar = weir_text::most_similar(&name, known.collect::<Vec<_>>().iter().map(AsRef::as_ref))
        .map_or_else(String::new, |similar| format!("; did you mean {similar}?"));
    Error::Option(format!(
        "{command} {name}: there is no such command or topic{similar} ('weir -h' lists commands, 'weir help topics' topics)"
    ))
}
