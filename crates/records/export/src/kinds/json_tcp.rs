//! `json+tcp://HOST:PORT`: one JSON object per line over TCP.

use super::file::FIELDS;
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, JsonCollector, RETRY};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "json+tcp",
    place: "://HOST:PORT",
    writes: "one JSON object per line over TCP",
    example: "json+tcp://192.0.2.1:5170",
    settings: &[FIELDS, BUFFER, SPOOL, LIMIT, RETRY, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(JsonCollector::parse_tcp(text, false)?)),
};
