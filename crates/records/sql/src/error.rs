use std::path::PathBuf;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No library of DuckDB was found.
    #[error("DuckDB's library is not installed ({0})")]
    NoLibrary(libloading::Error),
    /// The library that was named cannot be used.
    #[error("{}: {error}", path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// What the loader says.
        error: libloading::Error,
    },
    /// DuckDB's message. It shows the place of an error in the SQL.
    #[error("{0}")]
    Sql(String),
    /// Another statement than SELECT or EXPLAIN of SELECT.
    #[error(
        "only SELECT, DESCRIBE, SUMMARIZE and EXPLAIN of these are possible, without functions that change settings"
    )]
    NotSelect,
    /// A statement that begins with this word, in capitals.
    #[error("{0} is not possible: a query only reads")]
    Statement(String),
    /// Two statements or more.
    #[error("the SQL has more than one statement; a query is one")]
    Several,
    /// What the query needs at a time, and DuckDB cannot write to a folder, is more than it may take.
    #[error("the query needs more memory than it may take")]
    Memory,
    /// The SQL has a NUL character.
    #[error("the SQL has a NUL character")]
    Nul,
    /// [`crate::Database::interrupt`].
    #[error("the query was interrupted")]
    Interrupted,
}

impl Error {
    /// That of a message of DuckDB.
    pub(crate) fn of(message: String) -> Self {
        if message.starts_with("INTERRUPT") {
            Self::Interrupted
        } else if message.starts_with("Out of Memory") && !message.contains("temp_directory") {
            Self::Memory
        } else {
            Self::Sql(message)
        }
    }
}
