//! A database in memory that is locked down, and queries of it.

use crate::connection::{Connection, TextRows};
use crate::error::Error;
use crate::library::Engine;
use crate::macros::macros;
use crate::tokens::{first_words, has_several, quoted_identifier, quoted_text, without_end};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// What a database may use, and what is in it.
#[derive(Debug)]
pub struct Settings {
    /// Memory, octets. What needs more is written to the folder.
    pub memory_bytes: u64,
    /// Threads.
    pub threads: usize,
    /// An empty folder.
    pub spill_folder: PathBuf,
    /// Folders, and files, that can be read.
    pub readable: Vec<PathBuf>,
    /// Views over them.
    pub views: Vec<View>,
}

/// A name in queries.
#[derive(Clone, Debug)]
pub struct View {
    /// Any text.
    pub name: String,
    /// A SELECT.
    pub sql: String,
}

impl View {
    /// The statement that makes it.
    pub fn statement(&self) -> String {
        format!("create or replace view {} as {};", quoted_identifier(&self.name), self.sql)
    }
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of any type. Its text is one in JSON, but for infinities and NaN.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A point in time; its text is RFC 3339 with microseconds, UTC.
    Time,
    /// A list, a structure, a map. Its text is JSON.
    Nested,
    /// All others.
    Text,
}

impl Kind {
    /// Of a type (`duckdb_type`).
    fn of(of_type: i32) -> Self {
        match of_type {
            1 => Self::Boolean,
            2..=11 | 16 | 19 | 32 => Self::Number,
            12 | 20..=22 | 31 => Self::Time,
            24..=26 | 28 | 33 => Self::Nested,
            _ => Self::Text,
        }
    }
}

/// A column of a result.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its values.
    pub kind: Kind,
}

/// A database in memory. It may be interrupted from any thread.
pub struct Database<'engine> {
    connection: Connection<'engine>,
}

impl<'engine> Database<'engine> {
    /// Makes a database with macros and views, and locks it down.
    ///
    /// # Errors
    /// DuckDB refuses a setting or a view.
    pub fn open(engine: &'engine Engine, settings: &Settings) -> Result<Self, Error> {
        let connection = Connection::open(engine)?;
        for statement in lock(settings) {
            connection.run(&statement)?;
        }
        Ok(Self { connection })
    }

    /// Prepares a SELECT, or the EXPLAIN of one.
    ///
    /// # Errors
    /// It is wrong, or another statement.
    pub fn prepare(&self, sql: &str) -> Result<Query<'_>, Error> {
        const SELECT: i32 = 1;
        const EXPLAIN: i32 = 4;
        if changes_settings(sql) {
            return Err(Error::NotSelect);
        }
        check_statement(sql)?;
        let statement = self.connection.prepare(sql)?;
        let is_explain = statement.kind() == EXPLAIN;
        if is_explain {
            // EXPLAIN ANALYZE runs what follows.
            check_statement(explained(sql))?;
            let explained = self.connection.prepare(explained(sql))?;
            if explained.kind() != SELECT {
                return Err(Error::NotSelect);
            }
        } else if statement.kind() != SELECT {
            return Err(Error::NotSelect);
        }
        let column = |(name, of_type)| Column { name, kind: Kind::of(of_type) };
        let columns = with_unique_names(statement.columns()).into_iter().map(column).collect();
        Ok(Query { connection: &self.connection, sql: without_end(sql).to_owned(), columns, is_explain })
    }

    /// Ends the query that runs.
    pub fn interrupt(&self) {
        self.connection.interrupt();
    }

    /// Percent of the query that runs; `None` if it is not known.
    pub fn progress_percent(&self) -> Option<f64> {
        self.connection.progress_percent()
    }
}

/// Statements that are refused by name: what DuckDB says of them is about its locked settings.
const REFUSED: [&str; 34] = [
    "alter",
    "analyze",
    "attach",
    "begin",
    "call",
    "checkpoint",
    "comment",
    "commit",
    "copy",
    "create",
    "deallocate",
    "delete",
    "detach",
    "drop",
    "execute",
    "export",
    "force",
    "import",
    "insert",
    "install",
    "load",
    "merge",
    "pivot",
    "pragma",
    "prepare",
    "reset",
    "rollback",
    "set",
    "start",
    "truncate",
    "unpivot",
    "update",
    "use",
    "vacuum",
];

/// Checks that the SQL is one statement, and none that is refused by its first word.
///
/// # Errors
/// It is not.
fn check_statement(sql: &str) -> Result<(), Error> {
    if has_several(sql) {
        return Err(Error::Several);
    }
    match first_words(sql, 1).into_iter().next() {
        Some((word, _)) if REFUSED.contains(&word.as_str()) => Err(Error::Statement(word.to_uppercase())),
        _ => Ok(()),
    }
}

/// Whether the SQL names a function that changes settings of DuckDB, which a SELECT can call.
fn changes_settings(sql: &str) -> bool {
    const FUNCTIONS: [&str; 4] = ["profiling(", "logging(", "peg_parser(", "checkpoint("];
    let text: String = sql.to_lowercase().split_whitespace().collect();
    FUNCTIONS.iter().any(|function| text.contains(function))
}

/// Gives the second column of a name `NAME_1`, as DuckDB does where names must differ.
fn with_unique_names(mut columns: Vec<(String, i32)>) -> Vec<(String, i32)> {
    let mut used = HashSet::new();
    for (name, _) in &mut columns {
        let mut number = 0;
        let mut unique = name.clone();
        while !used.insert(unique.to_lowercase()) {
            number += 1;
            unique = format!("{name}_{number}");
        }
        *name = unique;
    }
    columns
}

/// The statements that fill a database, and lock it down.
fn lock(settings: &Settings) -> Vec<String> {
    let Settings { memory_bytes, threads, spill_folder, readable, views } = settings;
    let text = |path: &Path| quoted_text(&path.to_string_lossy());
    let list = |of_folders: bool| {
        let paths = readable.iter().filter(|path| path.is_dir() == of_folders).map(|path| text(path));
        format!("[{}]", paths.collect::<Vec<_>>().join(", "))
    };
    let mut statements: Vec<String> = [
        "set autoinstall_known_extensions = false".into(),
        "set autoload_known_extensions = false".into(),
        "set allow_community_extensions = false".into(),
        format!("set memory_limit = '{}KiB'", (memory_bytes >> 10).max(1)),
        format!("set threads = {}", (*threads).max(1)),
        format!("set temp_directory = {}", text(spill_folder)),
        "set TimeZone = 'UTC'".into(),
        // A query is prepared three times, with the footers of all files.
        "set parquet_metadata_cache = true".into(),
        "set enable_progress_bar = true".into(),
        "set enable_progress_bar_print = false".into(),
        format!("set allowed_directories = {}", list(true)),
        format!("set allowed_paths = {}", list(false)),
        "set enable_external_access = false".into(),
        macros(),
    ]
    .into();
    statements.extend(views.iter().map(View::statement));
    statements.push("set lock_configuration = true".into());
    statements
}

/// What follows EXPLAIN, ANALYZE and the options in parentheses.
fn explained(sql: &str) -> &str {
    let words = first_words(sql, usize::MAX);
    let mut start = 0;
    let mut depth = 0_usize;
    for (number, (word, end)) in words.iter().enumerate() {
        match word.as_str() {
            "explain" if number == 0 => {}
            "analyze" if number == 1 => {}
            "(" if number == 1 => depth = 1,
            _ if depth == 0 => return &sql[start..],
            ")" => depth -= 1,
            _ => {}
        }
        start = *end;
    }
    ""
}

/// A query that is right.
pub struct Query<'database> {
    connection: &'database Connection<'database>,
    sql: String,
    /// The columns of its result.
    pub columns: Vec<Column>,
    /// Whether the result is a plan, a text of many lines.
    pub is_explain: bool,
}

impl<'database> Query<'database> {
    /// Starts it. Values are texts as [`Kind`] says.
    ///
    /// # Errors
    /// DuckDB's, or it was interrupted.
    pub fn run(&self) -> Result<Rows<'database>, Error> {
        let texts = if self.is_explain { self.sql.clone() } else { self.with_texts() };
        Ok(Rows { rows: self.connection.prepare(&texts)?.execute()? })
    }

    /// Writes the result to a Parquet file, which must be readable.
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn write_parquet(&self, path: &Path) -> Result<(), Error> {
        if self.is_explain {
            return Err(Error::NotSelect);
        }
        let path = quoted_text(&path.to_string_lossy());
        self.connection.run(&format!(
            "copy (select * from (\n{}\n)) to {path} (format parquet, compression zstd, use_tmp_file false)",
            self.sql
        ))
    }

    /// The same query, with all values as text.
    fn with_texts(&self) -> String {
        let text = |(at, column): (usize, &Column)| match column.kind {
            Kind::Time => format!("strftime(c{at}::timestamp, '%Y-%m-%dT%H:%M:%S.%fZ')"),
            Kind::Nested => format!("to_json(c{at})::varchar"),
            _ => format!("c{at}::varchar"),
        };
        let values: Vec<_> = self.columns.iter().enumerate().map(text).collect();
        let names: Vec<_> = (0..self.columns.len()).map(|at| format!("c{at}")).collect();
        format!("select {} from (\n{}\n) as result({})", values.join(", "), self.sql, names.join(", "))
    }
}

/// The rows of a result.
pub struct Rows<'database> {
    rows: TextRows<'database>,
}

impl Rows<'_> {
    /// The columns of the next rows, each with the text of each row; `None` is NULL. At the end, `None`.
    ///
    /// # Errors
    /// DuckDB's, or it was interrupted.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<Vec<Option<&str>>>>, Error> {
        self.rows.next_chunk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_explained_follows_the_options() {
        for (sql, rest) in [
            ("explain select 1", " select 1"),
            ("/* x */ EXPLAIN ANALYZE copy t to 'x'", " copy t to 'x'"),
            ("explain (format json, analyze) from flows", " from flows"),
            ("explain", ""),
        ] {
            assert_eq!(explained(sql), rest);
        }
    }

    #[test]
    fn statements_are_refused_by_their_first_word() {
        let word = |sql: &str| match check_statement(sql) {
            Err(Error::Statement(word)) => word,
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(word("/* x */ Copy flows to 'x'"), "COPY");
        assert_eq!(word("PRAGMA database_list;"), "PRAGMA");
        for sql in ["select 1 as copy", "\"copy\"", "(select 1)", "from copy", "select 'a;b' ; -- c;d", ""] {
            assert!(check_statement(sql).is_ok(), "{sql}");
        }
        for sql in ["select 1; select 2", ";select 1", "select 1;;copy x to 'y'"] {
            assert!(matches!(check_statement(sql), Err(Error::Several)) == (sql != ";select 1"), "{sql}");
        }
    }
}
