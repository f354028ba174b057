//! Names and texts in SQL, and the statement that inserts rows.

use crate::comparison::RowColumn;
use std::fmt;
use std::str::FromStr;

/// Blocks that a table remembers, so that it refuses them when they come again.
pub(crate) const WINDOW: &str = "non_replicated_deduplication_window = 1000";
/// A field that the table needs is not selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed_by} needs the field {field}; add it to --fields")]
pub struct MissingField {
    /// The table, or a view.
    pub needed_by: String,
    /// The field.
    pub field: &'static str,
}

/// The database and the name of a table: letters, digits and underscores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// The database.
    pub database: String,
    /// The table in it.
    pub table: String,
}

impl FromStr for TableName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"_-".contains(&octet))
        };
        match text.split_once('.') {
            Some((database, table)) if is_name(database) && is_name(table) => {
                Ok(Self { database: database.into(), table: table.into() })
            }
            _ => Err("the table must be DATABASE.TABLE, of letters, digits, - and _"),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.database, self.table)
    }
}

impl TableName {
    /// As it stands in SQL.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quoted_name(&self.database), quoted_name(&self.table))
    }

    /// Another table of the same database, which has this at the end of its name.
    pub fn with_suffix(&self, suffix: &str) -> Self {
        Self { database: self.database.clone(), table: format!("{}_{suffix}", self.table) }
    }
}

/// A name as it stands in SQL: without quotes if it is a plain word.
pub fn quoted_name(name: &str) -> String {
    let is_plain = !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
    if is_plain { name.into() } else { format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`")) }
}

/// A text as it stands in SQL.
pub fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The statement that inserts rows of these columns.
pub fn insert_statement(table: &TableName, columns: &[RowColumn]) -> String {
    let names: Vec<_> = columns.iter().map(|column| quoted_name(&column.name)).collect();
    format!("INSERT INTO {} ({}) FORMAT RowBinary", table.quoted(), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted_where_needed() {
        assert_eq!(["flows", "1", "a-b", "a`\\"].map(quoted_name), ["flows", "`1`", "`a-b`", "`a\\`\\\\`"]);
        assert_eq!(quoted_text("it's \\"), "'it\\'s \\\\'");
        assert_eq!("net.a-b".parse::<TableName>().unwrap().quoted(), "net.`a-b`");
        for text in ["", "flows", "a.b.c", ".flows", "db.", "a.b c", "a.b'"] {
            assert!(text.parse::<TableName>().is_err(), "{text}");
        }
    }
}
