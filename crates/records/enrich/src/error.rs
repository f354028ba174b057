//! Why a file of the user cannot be used, and which of its lines cannot.

use crate::prefix::InvalidPrefix;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Broken lines that are named; further ones are counted.
pub const MAX_NAMED_LINES: usize = 10;
/// Characters of a broken line that are shown.
const SHOWN_CHARACTERS: usize = 60;

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{option} {}: {problem}", path.display())]
pub struct Error {
    /// The option that names the file, with the name of a list: `--tags botnets`.
    pub option: String,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

impl Error {
    pub(crate) fn new(option: impl Into<String>, path: &Path, problem: Problem) -> Self {
        Self { option: option.into(), path: path.into(), problem }
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is a directory, a pipe or a device.
    #[error("not a regular file")]
    NotAFile,
    /// It has no octets.
    #[error("the file is empty")]
    Empty,
    /// It changed while it was read.
    #[error("the file changed while it was read")]
    Changed,
    /// It does not begin with the names of columns.
    #[error("the first line has to name the columns, as in prefix,name,site,role,local: {0}")]
    Columns(String),
    /// Lines of a table are broken.
    #[error("{0}")]
    Lines(BrokenLines),
    /// No line of a list is an entry.
    #[error("no line is an address, a prefix, a domain name, a JA3 or a JA4; {0}")]
    NoEntry(BrokenLines),
    /// It has too many names.
    #[error("the names have more than 4 GiB together")]
    TooManyNames,
    /// There is no bit for it in a set of lists.
    #[error("--tags names more than 32 lists")]
    TooManyLists,
    /// It is not in the MaxMind DB format, or damaged.
    #[error("not a MaxMind database, or damaged: {0}")]
    Database(String),
    /// The database has other contents.
    #[error("the database has no country and no autonomous system; its type is {0:?}")]
    NoPlaces(String),
}

/// Lines of a file that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokenLines {
    /// The first ones, at most [`MAX_NAMED_LINES`].
    pub first: Vec<BrokenLine>,
    /// All of them.
    pub count: u64,
}

impl BrokenLines {
    /// Adds a line.
    pub(crate) fn add(&mut self, number: u64, text: &str, reason: InvalidEntry) {
        self.count += 1;
        if self.first.len() < MAX_NAMED_LINES {
            let mut shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
            if shown.len() < text.len() {
                shown.push('\u{2026}');
            }
            self.first.push(BrokenLine { number, text: shown, reason });
        }
    }

    /// Lines that are not named.
    pub fn more(&self) -> u64 {
        self.count - self.first.len() as u64
    }
}

/// `line 3: "x": not a prefix; line 7: ...; and 5 more lines`
impl fmt::Display for BrokenLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, line) in self.first.iter().enumerate() {
            write!(f, "{}{line}", if at > 0 { "; " } else { "" })?;
        }
        match self.more() {
            0 => Ok(()),
            1 => f.write_str("; and 1 more line"),
            more => write!(f, "; and {more} more lines"),
        }
    }
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenLine {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its text, or the begin of it.
    pub text: String,
    /// What is wrong with it.
    pub reason: InvalidEntry,
}

impl fmt::Display for BrokenLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {:?}: {}", self.number, self.text, self.reason)
    }
}

/// Why a line is no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    /// It is not a prefix.
    #[error(transparent)]
    Prefix(#[from] InvalidPrefix),
    /// Its kind is not known.
    #[error("not an address, a prefix, a domain name, a JA3 or a JA4")]
    Unknown,
    /// It has more than one word.
    #[error("more than one word; write one entry per line, comments after #")]
    Words,
    /// It is longer than any entry.
    #[error("longer than an entry can be")]
    TooLong,
    /// It is not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// A value of `local`.
    #[error("local is not true, false or empty")]
    Local,
    /// A name is too long or has control characters.
    #[error("{0} has control characters or more than 128 octets")]
    Text(&'static str),
    /// A quote is opened and not closed.
    #[error("a quote is not closed")]
    Quote,
    /// It has more values than there are columns.
    #[error("more values than columns")]
    Values,
    /// The prefix has a line already.
    #[error("the prefix is in line {0}, too")]
    Twice(u64),
}
