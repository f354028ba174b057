//! `json+tls://HOST:PORT`: one JSON object per line over TLS.

use super::file::FIELDS;
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, CA, CERTIFICATE, JsonCollector, KEY, NAME, RETRY};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "json+tls",
    place: "://HOST:PORT",
    writes: "one JSON object per line over TLS",
    example: "json+tls://192.0.2.1:5171?ca=ca.pem",
    settings: &[FIELDS, BUFFER, SPOOL, LIMIT, RETRY, CA, NAME, CERTIFICATE, KEY, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(JsonCollector::parse_tcp(text, true)?)),
};
