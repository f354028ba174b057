//! Files of JSON and CSV.

use super::file::{SinkFile, is_standard_output};
use crate::file_output::check_rotated;
use crate::json_csv::{TextFormat, TextSink, check_text};
use crate::rotation::RotatedName;
use crate::sink::{Error, ExportOptions, InvalidSink, Sink};
use weir_fields::Column;
use weir_fields::select_columns;

#[derive(Debug)]
pub(super) struct TextFile {
    format: TextFormat,
    file: SinkFile,
    rotated: Option<RotatedName>,
    columns: Option<Vec<&'static Column>>,
}

impl TextFile {
    pub fn parse(scheme: &str, text: &str, format: TextFormat) -> Result<Self, InvalidSink> {
        let (file, fields) = SinkFile::parse_named(scheme, text)?;
        let rotated = file.rotation.rotation(&file.path)?;
        Ok(Self { format, file, rotated, columns: fields.map(select_columns).transpose()? })
    }
}

impl super::Destination for TextFile {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let columns = self.columns.clone().unwrap_or_else(|| options.columns.clone());
        let (path, rotated) = (&self.file.path, self.rotated.clone());
        Ok(Box::new(TextSink::create(name, path, self.format, columns, rotated, options)?))
    }

    fn check(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        match &self.rotated {
            Some(rotated) => check_rotated(name, rotated),
            None if is_standard_output(&self.file.path) => Ok(()),
            None => check_text(name, &self.file.path, self.format, self.columns.as_ref().unwrap_or(&options.columns)),
        }
    }

    fn file(&self) -> Option<&SinkFile> {
        Some(&self.file)
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }
}
