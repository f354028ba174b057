//! Which records are read, and what the index of a file says about those of a row group.

use crate::reading::SharedFile;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use weir_fields::{Bounds, Column, ColumnKind};
use weir_flow::FlowRecord;

/// Whether some of many records may be selected.
type MayMatch = dyn Fn(&dyn Bounds) -> bool + Send + Sync;
/// Whether a record is selected, or wanted.
type Decide = dyn Fn(&FlowRecord) -> bool + Send + Sync;

/// Records that are read.
pub struct Selection {
    /// The columns that decide about a record.
    pub columns: Vec<&'static Column>,
    /// Whether a record is selected that has these columns.
    pub matches: Box<Decide>,
    /// Whether a selected record is read, too: the others are only counted. `None`: all are.
    pub is_wanted: Option<Box<Decide>>,
    /// For the bounds of a row group.
    pub may_match: Box<MayMatch>,
}

/// Statistics and Bloom filters of a row group.
pub struct GroupBounds<'a> {
    pub group: &'a RowGroupMetaData,
    pub file: &'a SharedFile,
}

impl GroupBounds<'_> {
    fn chunk(&self, column: &Column) -> Option<&ColumnChunkMetaData> {
        self.group.columns().iter().find(|chunk| chunk.column_descr().name() == column.name)
    }
}

impl Bounds for GroupBounds<'_> {
    fn numbers(&self, column: &Column) -> Option<RangeInclusive<u64>> {
        let statistics = self.chunk(column)?.statistics()?;
        let Statistics::Int64(values) = statistics else { return None };
        let (least, most) = match (values.min_opt(), values.max_opt()) {
            (Some(least), Some(most)) => (u64::try_from(*least).ok()?, u64::try_from(*most).ok()?),
            // Without values there are no bounds.
            _ if values.null_count_opt() == u64::try_from(self.group.num_rows()).ok() => (u64::MAX, 0),
            _ => return None,
        };
        let (least, most) = match column.kind {
            ColumnKind::Time => (least.checked_mul(1000)?, most.checked_mul(1000)?.saturating_add(999)),
            _ => (least, most),
        };
        // Null may be read as a number.
        let null = column.number_of_none();
        let has_null = statistics.null_count_opt() != Some(0);
        Some(if has_null { least.min(null)..=most.max(null) } else { least..=most })
    }

    fn may_have(&self, column: &Column, address: IpAddr) -> bool {
        let Some(chunk) = self.chunk(column) else { return true };
        let text = address.to_string();
        if let Some(Statistics::ByteArray(values)) = chunk.statistics() {
            let is = |bound: Option<&_>, order| {
                bound.is_some_and(|bound: &parquet::data_type::ByteArray| text.as_bytes().cmp(bound.data()) == order)
            };
            if is(values.min_opt(), Ordering::Less) || is(values.max_opt(), Ordering::Greater) {
                return false;
            }
        }
        // A filter that cannot be read excludes nothing.
        let filter = Sbbf::read_from_column_chunk(chunk, self.file).ok().flatten();
        filter.is_none_or(|filter| filter.check(text.as_str()))
    }
}
