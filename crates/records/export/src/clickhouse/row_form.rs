//! What the rows of a batch are: the columns with their types, and the compression.
//!
//! It is the context of the batches in a spool: a line for the compression, then one for each column, name and type with
//! a tab between them. Neither has a tab or an end of line. A later run with other columns inserts them by it.

use weir_clickhouse::{RowColumn, row_columns};
use weir_fields::Column;

const COMPRESSION: [&str; 2] = ["none", "zstd"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowForm {
    pub columns: Vec<RowColumn>,
    pub is_compressed: bool,
}

impl RowForm {
    pub fn new(columns: &[&'static Column], has_probe: bool, is_compressed: bool) -> Self {
        Self { columns: row_columns(columns, has_probe), is_compressed }
    }

    pub fn to_context(&self) -> Vec<u8> {
        let mut text = COMPRESSION[usize::from(self.is_compressed)].to_owned();
        for RowColumn { name, type_name } in &self.columns {
            text += &format!("\n{name}\t{type_name}");
        }
        text.into_bytes()
    }

    /// `None` if it is none.
    pub fn of_context(context: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(context).ok()?.split('\n');
        let compression = lines.next()?;
        let is_compressed = COMPRESSION.iter().position(|name| *name == compression)? == 1;
        let column = |line: &str| {
            let (name, type_name) = line.split_once('\t')?;
            Some(RowColumn { name: name.into(), type_name: type_name.into() })
        };
        let columns = lines.map(column).collect::<Option<Vec<_>>>()?;
        Some(Self { columns, is_compressed })
    }
}
