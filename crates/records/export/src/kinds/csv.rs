//! `csv:PATH`: CSV with a header line.

use super::file::{FIELDS, ROTATE};
use super::text_file::TextFile;
use super::{SinkKind, ViewFormat, WHERE};
use crate::json_csv::TextFormat;
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "csv",
    place: ":PATH",
    writes: "CSV with a header line",
    example: "csv:-",
    settings: &[FIELDS, ROTATE, WHERE],
    endings: &["csv"],
    view: Some(ViewFormat::Csv),
    parse: |text| Ok(Arc::new(TextFile::parse("csv", text, TextFormat::Csv)?)),
};
