//! `json:PATH`: one JSON object per line.

use super::file::{FIELDS, ROTATE};
use super::text_file::TextFile;
use super::{SinkKind, ViewFormat, WHERE};
use crate::json_csv::TextFormat;
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "json",
    place: ":PATH",
    writes: "one JSON object per line",
    example: "json:-",
    settings: &[FIELDS, ROTATE, WHERE],
    endings: &["json", "jsonl", "ndjson"],
    view: Some(ViewFormat::Json),
    parse: |text| Ok(Arc::new(TextFile::parse("json", text, TextFormat::Json)?)),
};
