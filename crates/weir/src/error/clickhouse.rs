//! Errors of `weir clickhouse`.

/// Why `weir clickhouse` failed.
#[derive(Debug, thiserror::Error)]
pub enum ClickHouseError {
    #[error("{0}: names of databases and tables have letters, digits, - and _")]
    Name(String),
    #[error(transparent)]
    Field(weir_clickhouse::MissingField),
    #[error("name a table as in -o: clickhouse+http://HOST/DATABASE.TABLE or clickhouse+https://HOST/DATABASE.TABLE")]
    NoTable,
    #[error(
        "{}; weir clickhouse schema prints the statements that make a table",
        .problems.iter().map(|problem| format!("{table}: {problem}")).collect::<Vec<_>>().join("\n")
    )]
    Differs { table: String, problems: Vec<String> },
}
