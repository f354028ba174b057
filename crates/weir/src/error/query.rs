use super::advice;
use super::advice::input_advice;
use std::io;
use std::path::PathBuf;
use weir_sql::{ENVIRONMENT, OLDEST_VERSION};

/// Why `weir query` has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(
        "{0}; the package weir-duckdb has it, and `make query` fetches it (24 MB); or install version {OLDEST_VERSION} or \
         later as libduckdb.so, or name the file with --engine or {ENVIRONMENT}"
    )]
    NoLibrary(weir_sql::Error),
    #[error("--engine: {0}; Weir needs DuckDB {OLDEST_VERSION} or later, as a library")]
    Library(weir_sql::Error),
    #[error("{0}{advice}", advice = sql_advice(.0))]
    Sql(weir_sql::Error),
    #[error("{word}: there is no such question{near} (weir query lists all)")]
    NoQuestion { word: String, near: String },
    #[error("the question host needs an address: weir query host 192.0.2.1")]
    NoAddress,
    #[error("{0}: this is no address")]
    Address(String),
    #[error("{0} is not part of the question: a store is given with -i {0}, and SQL that has spaces in quotes")]
    NotExpected(String),
    #[error("{0}: --print-sql=clickhouse prints a ready question (weir query lists all)")]
    QuestionOnly(String),
    #[error("--table {0}: name it DATABASE.TABLE, of letters, digits, - and _")]
    Table(String),
    #[error("--table names a table of ClickHouse: add --print-sql=clickhouse")]
    TableOfDuckDb,
    #[error("the SQL is empty")]
    Empty,
    #[error("{}: there are no flows; write some with weir read CAPTURE -o parquet:FOLDER, or name others with -i", .0.display())]
    NoStore(PathBuf),
    #[error("{}: this is no store, capture, Parquet, CSV, JSON or IPFIX file, and no file of nfdump", .0.display())]
    UnknownInput(PathBuf),
    #[error("{}: {error}{}", path.display(), input_advice(error))]
    Input { path: PathBuf, error: io::Error },
    #[error("{}: it cannot be metered; see above", .0.display())]
    Capture(PathBuf),
    #[error("new-hosts compares with earlier flows: name a store with -i, not other files")]
    NothingEarlier,
    #[error("--format parquet needs a file: -o FILE.parquet")]
    ParquetNeedsFile,
    #[error("{}: name it .csv, .json or .parquet, or give --format", .0.display())]
    UnknownFormat(PathBuf),
    #[error("cannot make a temporary folder: {error}{}", advice(.error))]
    Temporary { error: io::Error },
    #[error("standard input: {0}")]
    StandardInput(io::Error),
}

/// What the user can do; begins with punctuation.
fn sql_advice(error: &weir_sql::Error) -> &'static str {
    match error {
        weir_sql::Error::Statement(word) => statement_advice(word),
        weir_sql::Error::Several => ": run weir query once for each; in one, WITH names intermediate results",
        weir_sql::Error::Memory => "; --memory gives it more, and --from, --to and fewer columns need less",
        weir_sql::Error::Sql(message) => message_advice(message),
        _ => "",
    }
}

/// What to do in place of a statement, by its first word.
fn statement_advice(word: &str) -> &'static str {
    match word {
        "COPY" | "EXPORT" => "; -o FILE.csv, FILE.json or FILE.parquet writes the result of a SELECT",
        "ATTACH" | "DETACH" | "USE" | "IMPORT" => {
            "; -i names its inputs, and SQL may name files: from 'x.parquet', 'x.csv', 'x.json' or 'x.pcap'"
        }
        "INSTALL" | "LOAD" | "FORCE" => {
            "; it has the functions of DuckDB's library and of weir query --macros, and no extensions"
        }
        "PRAGMA" | "SET" | "RESET" | "CALL" => {
            "; its settings are --memory and --threads, and weir query \"describe flows\" lists the columns"
        }
        "PIVOT" | "UNPIVOT" => "; write sum(bytes) filter (where protocol = 'tcp') for each column",
        _ => "; write a SELECT, in which WITH names intermediate results",
    }
}

fn message_advice(message: &str) -> &'static str {
    if message.contains("file system operations are disabled") {
        "\nA query reads only its inputs (-i), and files that it names: from 'x.parquet', 'x.csv', 'x.json' or 'x.pcap'"
    } else if message.contains("Referenced column") {
        "\nweir query \"describe flows\" lists the fields that there are"
    } else if message.contains("Table with name") {
        "\nThe view of the inputs is called flows"
    } else {
        ""
    }
}
