//! `json+unix:PATH`: one JSON object per line over a Unix socket.

use super::file::FIELDS;
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, JsonCollector, RETRY};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "json+unix",
    place: ":PATH",
    writes: "one JSON object per line over a Unix socket",
    example: "json+unix:/run/collector.socket",
    settings: &[FIELDS, BUFFER, SPOOL, LIMIT, RETRY, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(JsonCollector::parse_unix(text)?)),
};
