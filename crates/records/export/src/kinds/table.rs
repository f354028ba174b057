//! `table:PATH`: a table of the largest flows. `weir` opens it, because it needs the whole run.

use super::file::{FIELDS, SinkFile, is_standard_output};
use super::{Destination, SinkKind, ViewFormat, WHERE};
use crate::file_output::check_file;
use crate::sink::{Error, ExportOptions, InvalidSink, InvalidSpec, Sink};
use std::path::Path;
use std::sync::Arc;
use weir_fields::Column;
use weir_fields::select_columns;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "table",
    place: ":PATH",
    writes: "a table of the largest flows (`--top`), for people",
    example: "table:-",
    settings: &[FIELDS, WHERE],
    endings: &[],
    view: Some(ViewFormat::Table),
    parse: |text| {
        let (file, fields) = SinkFile::parse("table", text)?;
        Ok(Arc::new(Table { file, columns: fields.map(select_columns).transpose()? }))
    },
};

#[derive(Debug)]
struct Table {
    file: SinkFile,
    columns: Option<Vec<&'static Column>>,
}

impl Destination for Table {
    fn open(&self, name: &str, _: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        Err(InvalidSpec { spec: name.into(), invalid: InvalidSink::Scheme }.into())
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        let path = &self.file.path;
        if is_standard_output(path) { Ok(()) } else { check_file(name, Path::new(path)) }
    }

    fn file(&self) -> Option<&SinkFile> {
        Some(&self.file)
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }
}
