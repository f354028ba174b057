//! A batch: up to 8192 flows, column by column.

use crate::interpreter::Error;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

const SCHEMA: &std::ffi::CStr = c"arrow_schema";
const ARRAY: &std::ffi::CStr = c"arrow_array";
const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// A column: its name, type, unit and sentence.
pub type Field = (String, &'static str, String, String);

/// A batch of flows: columns of `num_rows` values each, in the memory that the program has filled. It has the methods
/// of Arrow's PyCapsule interface, so that pyarrow, Polars and others take it without a copy.
#[pyclass(module = "weir", frozen)]
pub struct Batch(pub RecordBatch);

#[pymethods]
impl Batch {
    /// Number of flows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    /// Number of columns.
    #[getter]
    fn num_columns(&self) -> usize {
        self.0.num_columns()
    }

    /// The columns: name, type ("int64", "float64", "string", "timestamp[ns, UTC]"), unit, and what they are.
    #[getter]
    fn fields(&self) -> Vec<Field> {
        fields(self.0.schema_ref())
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<weir.Batch: {} flows, {} columns>", self.0.num_rows(), self.0.num_columns())
    }

    /// The batch as a struct array (Arrow's PyCapsule interface). No value is copied; `requested_schema` is ignored.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        python: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let array: FFI_ArrowArray = to_ffi(&StructArray::from(self.0.clone()).to_data()).map_err(refused)?.0;
        let array = PyCapsule::new_with_value(python, array, ARRAY)?;
        Ok((schema_capsule(python, self.0.schema_ref())?, array))
    }

    /// The columns (Arrow's PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(python, self.0.schema_ref())
    }

    /// A stream of this batch alone (Arrow's PyCapsule interface).
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        python: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        stream_capsule(python, Box::new(batches))
    }

    /// The batch as a DataFrame of pandas.
    fn df<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        tables(this, "to_pandas")
    }

    /// The batch as a DataFrame of Polars.
    fn pl<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        tables(this, "to_polars")
    }

    /// The batch as a Table of pyarrow.
    fn arrow<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        tables(this, "to_arrow")
    }
}

fn tables<'py>(batch: &Bound<'py, Batch>, function: &str) -> PyResult<Bound<'py, PyAny>> {
    batch.py().import("weir._tables")?.call_method1(function, (batch,))
}

/// Columns as users read them.
pub fn fields(schema: &Schema) -> Vec<Field> {
    let of = |field: &arrow_schema::FieldRef| {
        let metadata = |key| field.metadata().get(key).cloned().unwrap_or_default();
        (field.name().clone(), type_name(field.data_type()), metadata("unit"), metadata("description"))
    };
    schema.fields().iter().map(of).collect()
}

fn type_name(of: &DataType) -> &'static str {
    match of {
        DataType::Int64 => "int64",
        DataType::Float64 => "float64",
        DataType::Timestamp(TimeUnit::Nanosecond, _) => "timestamp[ns, UTC]",
        _ => "string",
    }
}

/// A schema for another library.
pub fn schema_capsule<'py>(python: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema.as_ref()).map_err(refused)?;
    PyCapsule::new_with_value(python, schema, SCHEMA)
}

/// A stream for another library, which releases it; else the capsule does.
pub fn stream_capsule<'py>(
    python: Python<'py>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(python, FFI_ArrowArrayStream::new(batches), STREAM)
}

fn refused(error: ArrowError) -> PyErr {
    Error::new_err(format!("these columns cannot be handed over: {error}"))
}
