//! Column chunks of Parquet that are encoded apart from their file. Those whose values are all the same are encoded
//! once, and copied into other columns and row groups: most columns of TCP are 0 in all flows, and null in others.
//!
//! Invariant: a copy has the levels and the value of the column that it stands for. It may have another encoding than
//! the column has otherwise, which its pages say. Not done here: addresses, whose chunks have a Bloom filter.

use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::writer::{ColumnCloseResult, get_column_writer, get_typed_column_writer};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::collections::VecDeque;
use std::io::Write;

/// Chunks that are kept, at most. Columns that are null in the same rows follow each other.
const KEPT_CHUNKS: usize = 16;

/// Bytes that the kept chunks of a row group take, at most: a level for each row.
pub const fn kept_bytes(rows: usize) -> usize {
    KEPT_CHUNKS * rows * size_of::<i16>()
}

/// An encoded column of a row group.
#[derive(Clone)]
pub struct EncodedChunk {
    octets: Bytes,
    closed: ColumnCloseResult,
}

/// What all values of a column are that are not null.
#[derive(Clone, PartialEq)]
pub enum UniformValue {
    /// There are none.
    None(Physical),
    /// Integers.
    Integer(i64),
    /// Texts.
    Text(Vec<u8>),
}

/// Chunks of one value.
#[derive(Default)]
pub struct UniformChunks {
    /// The last one that was used first.
    kept: VecDeque<UniformChunk>,
}

struct UniformChunk {
    value: UniformValue,
    present: Vec<i16>,
    chunk: EncodedChunk,
}

impl EncodedChunk {
    /// Encodes values, and for each row 1, or 0 for null.
    pub fn new<T: DataType>(
        column: ColumnDescPtr,
        properties: &WriterPropertiesPtr,
        values: &[T::T],
        present: &[i16],
    ) -> Result<Self> {
        let mut octets = TrackedWrite::new(Vec::new());
        let page_writer = Box::new(SerializedPageWriter::new(&mut octets));
        let writer = get_column_writer(column.clone(), properties.clone(), page_writer);
        let mut writer = get_typed_column_writer::<T>(writer);
        writer.write_batch(values, Some(present), None)?;
        let closed = writer.close()?;
        Self { octets: octets.into_inner()?.into(), closed }.with_column(column)
    }

    /// The same for another column of this physical type. The index of the file gets no more of it than readers use:
    /// the index takes most of the time of a search that finds little.
    fn with_column(mut self, column: ColumnDescPtr) -> Result<Self> {
        let of = &self.closed.metadata;
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression_codec(of.compression_codec())
            .set_encodings_mask(*of.encodings_mask())
            .set_total_compressed_size(of.compressed_size())
            .set_total_uncompressed_size(of.uncompressed_size())
            .set_num_values(of.num_values())
            .set_data_page_offset(of.data_page_offset())
            .set_dictionary_page_offset(of.dictionary_page_offset());
        let metadata = match of.statistics() {
            Some(statistics) => metadata.set_statistics(statistics.clone()),
            None => metadata,
        };
        self.closed.metadata = metadata.build()?;
        Ok(self)
    }

    /// Writes it as the next column of a row group.
    pub fn append<W: Write + Send>(self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        group.append_column(&self.octets, self.closed)
    }
}

impl UniformValue {
    fn encode(&self, column: ColumnDescPtr, properties: &WriterPropertiesPtr, present: &[i16]) -> Result<EncodedChunk> {
        let values = present.iter().filter(|level| **level > 0).count();
        match self {
            Self::None(Physical::INT32) => EncodedChunk::new::<Int32Type>(column, properties, &[], present),
            Self::None(Physical::INT64) => EncodedChunk::new::<Int64Type>(column, properties, &[], present),
            Self::None(Physical::DOUBLE) => EncodedChunk::new::<DoubleType>(column, properties, &[], present),
            Self::None(_) => EncodedChunk::new::<ByteArrayType>(column, properties, &[], present),
            Self::Integer(number) => {
                EncodedChunk::new::<Int64Type>(column, properties, &vec![*number; values], present)
            }
            Self::Text(text) => {
                let text = ByteArray::from(text.clone());
                EncodedChunk::new::<ByteArrayType>(column, properties, &vec![text; values], present)
            }
        }
    }
}

impl UniformChunks {
    /// The chunk of a column whose values are all this one.
    pub fn chunk(
        &mut self,
        column: ColumnDescPtr,
        properties: &WriterPropertiesPtr,
        value: UniformValue,
        present: &[i16],
    ) -> Result<EncodedChunk> {
        let same = self.kept.iter().position(|kept| kept.value == value && kept.present == present);
        if let Some(kept) = same.and_then(|at| self.kept.remove(at)) {
            let chunk = kept.chunk.clone();
            self.kept.push_front(kept);
            return chunk.with_column(column);
        }
        let chunk = value.encode(column, properties, present)?;
        self.kept.truncate(KEPT_CHUNKS - 1);
        self.kept.push_front(UniformChunk { value, present: present.to_vec(), chunk: chunk.clone() });
        Ok(chunk)
    }
}
